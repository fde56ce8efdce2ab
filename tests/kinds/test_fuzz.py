"""The first cases of the fuzzer; `python -m tests.fuzz` goes on for as long as asked."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from tests.fuzz import check, generate, vocabulary
from tests.fuzz.kinds import KINDS
from tests.fuzz.workers import Worker
from uopc.ir.core.ops import Ops

GPUS = 6
CASES = -(-len(vocabulary.pairs()) // generate.FOCUSES)  # every op on every dtype once


@pytest.fixture(scope="module")
def worker():
    started = Worker()
    yield started
    started.close()


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.suite])
@pytest.mark.few(4)
def test_the_first_cases_of_a_kind(kind, worker):
    for number in range(KINDS[kind].suite):
        verdict = worker.run(KINDS[kind].module, 0, number, 120)
        again = f"python -m tests.fuzz {kind} --first {number} --count 1"
        assert not verdict.failures, f"{again}: {verdict.failures}\n{verdict.report}"


def test_a_case_that_ends_its_process_is_a_finding(tmp_path):
    body = """
import ctypes, time
def run(seed, number):
    from tests.fuzz.kinds import Verdict
    print("not an answer")
    if number == 1:
        ctypes.string_at(0)
    if number == 2:
        time.sleep(60)
    return Verdict()
"""
    (tmp_path / "crashing.py").write_text(body, "utf-8")
    child = Worker([str(tmp_path)])
    found = [child.run("crashing", 0, i, 1 if i == 2 else 30) for i in range(4)]
    child.close()
    failures = [v.failures for v in found]
    assert failures == [[], ["the process died: SIGSEGV"], ["still running after 1 s"], []]
    assert "crashing.py" in found[1].report


def test_the_command_counts_cases():
    command = [sys.executable, "-m", "tests.fuzz", "graphs", "--count", "2", "--first", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "graphs: 2 cases, 0 failed" in done.stdout


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, GPUS))]
)
def test_random_graphs(part):
    """Compiled, not optimised, for another processor, interpreted: the same each time."""
    for i in range(part, CASES, GPUS):
        verdict = check.check(generate.draw(0, i))
        again = f"python -m tests.fuzz --first {i} --count 1"
        assert not verdict.failures, f"{again}: {verdict.failures}"


def test_a_case_is_the_same_whenever_it_is_drawn():
    a, b = generate.draw(3, 17), generate.draw(3, 17)
    assert a.outputs == b.outputs
    for name, array in a.inputs.items():
        np.testing.assert_array_equal(array, b.inputs[name])


def test_the_cases_go_through_the_vocabulary():
    drawn = Counter()
    for i in range(CASES):
        for v in generate.draw(0, i).outputs:
            drawn.update((u.op.name, check._operand_type(u)) for u in v.toposort())
    pairs = [(op.name, t.name) for op, t in vocabulary.pairs()]
    assert [p for p in pairs if p not in drawn] == []


def test_a_wrong_result_is_found():
    case = next(c for c in generate.cases(1) if c.outputs[0].op is Ops.REDUCE)
    want, spread = check.wanted(case)
    right = check.call(case)
    assert not check.compare(case, right, want, spread)
    wrong = {**right, "out0": right["out0"] + right["out0"].dtype.type(1)}
    assert check.compare(case, wrong, want, spread)
