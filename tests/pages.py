"""The README and the pages of docs/ as code blocks, and how a page is run from top to bottom.

    ```python title="rows.py"   a file, for the commands of the page
    ```python                   run as it stands; the blocks of a page share their names
    ```pycon                    run as a doctest; `...` stands for any text
    ```console                  commands behind `$ `, and their output; a line `...` is any lines

Other blocks are not run. What differs from run to run (times, dates, digests, folders, the number
of lines of assembly) is masked before outputs are compared.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT

README = ROOT / "README.md"
EXTENDING = ROOT / "docs" / "extending.md"  # performed by tests/docs/test_extending.py
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
RUN = ("python", "pycon", "console")
# Code for these does not depend on the machine, apart from the code of LLVM.
SETTINGS = {"UOPC_THREADS": "1", "UOPC_TARGET_CPU": "x86-64-v3"}
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_DOCTEST = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_MASKS = (
    (r"(?m)^(hardware counters: .*|kernel +cycles .*\n.*)$", "COUNTERS"),  # of this machine
    (r"(asm +text +)\d+", r"\1N"),
    (r"\d+\.\d+", "T"),
    (r"\b[0-9a-f]{12}\b", "D"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "WHEN"),
    (r"(?<![\w.])/(?:[^\s/:]+/)+", "…/"),
    (r" +", " "),
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    text: str
    line: int


def blocks(page: Path, language: str = "") -> list[Block]:
    """The blocks of a page, or those in one language."""
    text = page.read_text("utf-8")
    found = [
        Block(m[1], m[2] or "", m[3], text.count("\n", 0, m.start()) + 1)
        for m in _BLOCK.finditer(text)
    ]
    return [b for b in found if language in ("", b.language)]


def steady(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, to in _MASKS:
        text = re.sub(pattern, to, text)
    return "\n".join([line.rstrip() for line in text.strip().splitlines()])


def agrees(wanted: str, got: str) -> bool:
    """True if an output is the one that a page shows."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.$", steady(wanted), flags=re.MULTILINE)]
    return re.fullmatch(".*".join(parts), steady(got), re.DOTALL) is not None


def commands(block: Block) -> list[tuple[str, str]]:
    """Each command of a console block, and the output that the page shows."""
    parts = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)
    assert parts[0] == "", f"line {block.line}: a console block begins with a command"
    return list(zip(parts[1::2], parts[2::2]))


def shell(command: str, folder: Path) -> str:
    """The output of a command in a folder: `uopc …` or `python …`, after settings as NAME=1."""
    words = shlex.split(command)
    settings = dict(os.environ) | SETTINGS
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        settings[name] = value
    programs = {"uopc": [sys.executable, "-m", "uopc"], "python": [sys.executable]}
    done = subprocess.run(
        [*programs[words[0]], *words[1:]],
        cwd=folder, env=settings, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, f"$ {command}\n{done.stderr}"
    return done.stdout + done.stderr


def run(page: Path, folder: Path) -> list[tuple[Block, str, str]]:
    """Run a page in the current folder. Gives (block, shown, printed) where outputs differ."""
    wrong = []
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.title and block.language == "python":
            (folder / block.title).write_text(block.text, "utf-8")
        elif block.language == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
        elif block.language == "pycon":
            test = doctest.DocTestParser().get_doctest(block.text, names, where, str(page), 0)
            test.globs = names
            report: list[str] = []
            doctest.DocTestRunner(optionflags=_DOCTEST).run(
                test, out=report.append, clear_globs=False
            )
            if report:
                wrong.append((block, "", "".join(report)))
        elif block.language == "console":
            made = [(c, shown, shell(c, folder)) for c, shown in commands(block)]
            if not all(agrees(shown, got) for _, shown, got in made):
                printed = "".join([f"$ {c}\n{got}" for c, _, got in made])
                wrong.append((block, block.text, printed))
    return wrong
