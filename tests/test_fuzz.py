"""The first cases of the fuzzer; `python -m tests.fuzz` goes on for as long as asked."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.fuzz import check, generate, vocabulary
from uopc.ir.core.ops import Ops

GPUS = 6
CASES = -(-len(vocabulary.pairs()) // generate.FOCUSES)  # every op on every dtype once


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
    right = check.run(case)
    assert not check.compare(case, right, want, spread)
    wrong = {**right, "out0": right["out0"] + right["out0"].dtype.type(1)}
    assert check.compare(case, wrong, want, spread)
