"""The README: short, with figures that are measured, and commands that CI runs.

`tests/docs/test_pages.py` runs its snippets and follows its links.
"""

from __future__ import annotations

import re
import runpy

from tests import ROOT, pages
from tests.pages import README


def test_the_page_begins_with_a_function_of_numpy_and_examples_are_short():
    first, second = pages.blocks(README, "python")
    assert "@uopc.jit" in first.text and "uopc.param" not in first.text
    for example in (first, second):
        assert len([line for line in example.text.splitlines() if line]) <= 12


def test_the_first_screen_says_how_to_install_for_whom_and_shows_the_report():
    top, _, _ = README.read_text("utf-8").partition("\n## ")
    parts = ("@uopc.jit", "**Install**", "**For whom?**", "uopc dump")
    said = [top.index(part) for part in parts]
    assert said == sorted(said) and "](docs/report/" in top


def test_commands_differ_only_at_the_end_and_ci_runs_the_tests():
    job, tests = (block.text.strip() for block in pages.blocks(README, "sh"))
    setup = "python3 -m venv .venv && .venv/bin/pip install -q -e '.[{}]' && .venv/bin/python "
    assert job == setup.format("examples") + "examples/digits.py"
    assert tests == setup.format("test") + "-m pytest -n auto"
    assert "README.md" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_the_table_is_what_was_measured(blessed):
    text = README.read_text("utf-8")
    (stored,) = re.findall(r"^\| \| NumPy .*?\n(?=\n)", text, re.DOTALL | re.MULTILINE)
    blessed.check(README, stored, runpy.run_path(str(ROOT / "benchmarks" / "ratios.py"))["table"]())


def test_one_screen():
    prose = re.sub(r"```.*?```", "", README.read_text("utf-8"), flags=re.DOTALL)
    assert len([line for line in prose.splitlines() if line.strip()]) <= 45
