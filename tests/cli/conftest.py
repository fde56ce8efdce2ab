"""The command line in a folder of a test's own."""

from __future__ import annotations

import pytest

from uopc.cli import main as cli

SOFTMAX = """
import numpy as np
import uopc

x = uopc.param("x", (16, 32))
w = uopc.constant(np.arange(32 * 10, dtype="f4").reshape(32, 10) / 64)
graph = (x @ w).softmax(axis=-1)
"""


class Run:
    """The result of one command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run the command line in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UOPC_THREADS", "2")

    def call(*arguments: str) -> Run:
        capsys.readouterr()
        try:
            code = cli.main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return Run(code, out, err)

    return call


def good(run: Run) -> str:
    assert (run.code, run.err) == (0, "")
    return run.out


@pytest.fixture
def softmax(tmp_path):
    path = tmp_path / "softmax.py"
    path.write_text(SOFTMAX, "utf-8")
    return "softmax.py"
