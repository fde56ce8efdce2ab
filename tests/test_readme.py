"""The README tells the truth: its example runs, its dump is what the tool prints, its commands fit.

Times, and the number of lines of assembly (LLVM's affair), may differ.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def blocks(language):
    """The code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def shell(tmp_path):
    """Runs the README's commands in a folder that holds its example."""
    (tmp_path / "rows.py").write_text(blocks("python")[0])
    settings = {"UOPC_THREADS": "1", "UOPC_TARGET_CPU": "x86-64-v3", "PYTHONPATH": str(ROOT)}

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path, env=os.environ | settings, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def steady(text):
    """The text without what differs from run to run."""
    text = re.sub(r"(asm +text +)\d+", r"\1N", text)
    text = re.sub(r"\d+\.\d$", "T", text, flags=re.MULTILINE)
    return re.sub(r" +", " ", text)


x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="code for x86-64")


@x86
def test_the_example_runs(shell):
    assert shell("rows.py") == "(64,) True\n"


@x86
def test_the_dump_is_real(shell, blessed):
    (stored,) = blocks("text")
    commands = re.findall(r"^\$ uopc (.*)", stored, re.MULTILINE)
    assert len(commands) == 2
    made = "".join(f"$ uopc {c}\n{shell('-m', 'uopc', *c.split())}" for c in commands)
    if steady(stored) != steady(made):
        blessed.check(README, stored, made)


def test_the_example_is_short():
    lines = [line for line in blocks("python")[0].splitlines() if line]
    assert len(lines) <= 12


def test_commands_differ_only_at_the_end_and_ci_runs_the_tests():
    job, tests = (block.strip() for block in blocks("sh"))
    setup = "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && .venv/bin/python "
    assert job == setup + "examples/digits.py"
    assert tests == setup + "-m pytest"
    assert "README.md" in (ROOT / ".ci" / "run").read_text()


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README.read_text()):
        assert (ROOT / target).exists(), target


def test_one_screen():
    prose = re.sub(r"```.*?```", "", README.read_text(), flags=re.DOTALL)
    assert len(prose.splitlines()) <= 40
