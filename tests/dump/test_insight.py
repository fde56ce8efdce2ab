"""A compile shows itself besides its report: the trace, and the rules that worked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import uopc
from tests import ROOT
from uopc import UPat
from uopc.cli import main as cli
from uopc.dump.stages import STAGES
from uopc.ir.builder.rebuild import rewritten
from uopc.ir.core import trace

SOFTMAX = """import uopc
x = uopc.param("x", (6, 40))
graph = (x * 2.0 + 1.0).softmax().sum(axis=1)
"""


@pytest.fixture
def softmax(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "softmax.py").write_text(SOFTMAX, "utf-8")
    return tmp_path


@pytest.mark.parametrize("option", ["--html", "--trace"])
def test_a_file_that_cannot_be_written(softmax, option, capsys):
    assert cli.main(["dump", "softmax.py", option, "no/such/folder/file"]) == 1
    assert "no/such/folder/file: No such file or directory" in capsys.readouterr().err


# ---------------------------------------------------------------- the trace
def test_the_trace_has_a_slice_a_stage(softmax, capsys):
    assert cli.main(["dump", "softmax.py", "--trace", "a.json"]) == 0
    events = json.loads((softmax / "a.json").read_text("utf-8"))["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert [e["name"] for e in slices] == [*STAGES[1:], "llvm", "asm"]
    ends = [e["ts"] + e["dur"] for e in slices]
    assert all(end <= after["ts"] + 0.01 for end, after in zip(ends, slices[1:]))
    assert slices[0]["args"]["level"] == "tensor" and slices[-1]["cat"] == "backend"


# ---------------------------------------------------------------- listeners
def test_the_walk_of_a_pass_tells_what_it_changed():
    x = uopc.param("x", (3,))
    graph = (x + 1.0) * (x + 1.0)

    def change(u, src):
        return x if u.op is uopc.Ops.ADD else None

    with trace.tracing((found := []).append):
        assert rewritten(graph, change) is x * x
    (fired,) = found
    assert (fired.before, fired.after) == (x + 1.0, x)
    assert re.search(r"change \(.*test_insight.py:\d+\)", str(fired))
    rewritten(graph, change)
    assert len(found) == 1


# ---------------------------------------------------------------- rules that work
def double():
    return uopc.PatternMatcher([(UPat.var("a") * 2.0, lambda a: a + a)])


def test_matches_are_counted_inside_a_block(capsys):
    x = uopc.param("x", (4,))
    with uopc.options(match_stats=True):
        f = uopc.compile(x * 2.0, rules=double())
    shown = capsys.readouterr().err
    assert re.search(r"1 / +\d+ +\d+\.\d%.*test_insight.py:\d+", shown), shown
    np.testing.assert_array_equal(f(np.ones(4, "f4")), 2 * np.ones(4, "f4"))
    uopc.compile(x * 2.0, rules=double())
    assert capsys.readouterr().err == ""


def test_the_environment_counts_matches_until_the_end():
    code = "import uopc; v = uopc.variable('v', 0, 9); print(((v * 4 + 1) // 4 + 0).simplify())"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True,
        env=os.environ | {"UOPC_MATCH_STATS": "1"}, check=True,
    )  # fmt: skip
    assert "all rules" in run.stderr and "hits / attempts" in run.stderr
