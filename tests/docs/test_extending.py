"""Each section of `docs/extending.md`, performed in a copy of the package: the steps work, and are
as many as the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests import ROOT, pages
from tests.pages import EXTENDING

CHECK = "check.py"
BACKENDS = 3  # llvm for the CPU, c, nvptx
PAGE = EXTENDING.read_text("utf-8")
TABLE = re.findall(r"^\| an? ([\w ]+) \| (\d)(?:, and (\d) per backend)? \|$", PAGE, re.MULTILINE)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "conformance", "fuzz", "ptx", "standin")


def sections():
    """The title of each section, and its blocks."""
    titles = re.finditer(r"^## An? (.*)$", PAGE, re.MULTILINE)
    starts = [(PAGE.count("\n", 0, m.start()), m[1]) for m in titles]
    blocks: dict[str, list[pages.Block]] = {title: [] for _, title in starts}
    for block in pages.blocks(EXTENDING, "python"):
        blocks[[title for line, title in starts if line < block.line][-1]].append(block)
    return blocks


SECTIONS = sections()


def found(lines, anchor):
    """The numbers of the lines that begin with a text."""
    return [i for i, line in enumerate(lines) if line.strip().startswith(anchor)]


def change(block, root):
    """Make the change that a block describes: write a file, or insert lines where its title says.

    Imports go to the top of the file, and a function for a row of a table goes above the table.
    """
    path, _, place = block.title.partition(", ")
    file = root / path
    if not place:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, "utf-8")
        return
    side, _, anchor = place.partition(" ")
    lines = file.read_text("utf-8").splitlines(keepends=True)
    (at,) = found(lines, anchor)
    parts = re.split(r"\n\n+", block.text.strip("\n"))
    imports = [f"{p}\n" for p in parts if p.startswith(("from ", "import "))]
    *functions, added = [p for p in parts if f"{p}\n" not in imports]
    lines.insert(at + (side == "below"), added + ("\n\n\n" if side == "above" else "\n"))
    lines[at:at] = [f"{p}\n\n\n" for p in functions]
    first = next(i for i, line in enumerate(lines) if line.startswith("from uopc"))
    lines[first:first] = imports
    file.write_text("".join(lines), "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_the_walk_through_works(section, tmp_path):
    for folder in ("uopc", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=LEFT_OUT)
    for block in SECTIONS[section]:
        change(block, tmp_path)
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "PYTEST_ADDOPTS")}
    environment |= {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"}
    done = subprocess.run(
        [sys.executable, CHECK], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_step_names_one_line():
    for block in pages.blocks(EXTENDING, "python"):
        path, _, place = block.title.partition(", ")
        if place:
            lines = (ROOT / path).read_text("utf-8").splitlines()
            assert len(found(lines, place.partition(" ")[2])) == 1, block.title


def test_the_places_are_as_many_as_the_page_says():
    counted = {s: len([b for b in blocks if b.title != CHECK]) for s, blocks in SECTIONS.items()}
    assert counted == {name: int(own) + BACKENDS * int(more or 0) for name, own, more in TABLE}
