"""The README: short, with figures that are measured, and commands that CI runs.

`tests/test_pages.py` runs its snippets and follows its links.
"""

from __future__ import annotations

import re
import runpy

from tests import pages
from tests.pages import README, ROOT


def test_the_example_is_short():
    (example,) = pages.blocks(README, "python")
    assert len([line for line in example.text.splitlines() if line]) <= 12


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
    assert len(prose.splitlines()) <= 60
