"""`benchmarks/random_shapes.py`: what it draws is always the same, and both sides compute it."""

from __future__ import annotations

import sys

import pytest

from tests import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import random_shapes
from kernels import error_of, reference
from peers import PEERS
from random_shapes import KINDS, MOST_ELEMENTS, Record, drawn

# The shapes of inputs as drawn when this was written.
DRAWN = {
    1: ("product", [(6, 1280), (1280, 676)]),
    3: ("convolution", [(4, 6, 19, 38), (38, 6, 7, 7)]),
    16: ("turned", [(220, 168), (168, 220)]),
}
QUICK = (2, 7, 10, 13, 14, 15, 18)  # small ones, of seven kinds


def test_a_number_is_always_the_same_workload() -> None:
    for number, (kind, shapes) in DRAWN.items():
        found, w = drawn(number)
        assert (found, [a.shape for a in w.inputs]) == (kind, shapes)


def test_sizes_are_bounded() -> None:
    for number in range(2 * len(KINDS)):
        kind, w = drawn(number)
        assert kind == list(KINDS)[number % len(KINDS)]
        assert all([0 < a.size <= 2 * MOST_ELEMENTS for a in w.inputs])


@pytest.mark.parametrize("number", QUICK)
def test_results_are_those_of_numpy(number: int) -> None:
    _, w = drawn(number)
    peer = PEERS["uopc"](1)
    assert error_of(w, reference(w), peer.array(peer.prepare(w)())) <= w.tolerance


@pytest.mark.slow
@pytest.mark.parametrize("number", QUICK)
def test_pytorch_computes_the_same(number: int) -> None:
    pytest.importorskip("torch")
    _, w = drawn(number)
    peer = PEERS["torch"](1)
    assert error_of(w, reference(w), peer.array(peer.prepare(w)())) <= w.tolerance


def test_the_report_has_means_and_the_worst() -> None:
    records = [
        Record(i, kind, [[3]], "float32", ours, 2.0, 1.0, 0.0, False)
        for i, (kind, ours) in enumerate([("sum", 1.0), ("sum", 4.0), ("chain", 2.0)])
    ]
    lines = list(random_shapes.report(records, worst=1))
    assert lines[0].startswith("Wrong results: none.")
    assert "| all | 3 | 1.00 | 2.00 | 1 |" in lines
    assert "| chain | 1 | 1.00 | 1.00 | 0 |" in lines
    assert lines[-1].startswith("| 1 | sum |")
