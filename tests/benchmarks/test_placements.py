"""`benchmarks/placements.py`: what it draws is always the same, and values that a caller stores
change no result."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import placements
from composites import KINDS, MOST_HEAVY, Composite
from placements import Record

# The shape of the output and the number of heavy values, as drawn when this was written.
DRAWN = {
    0: ((2, 12, 17, 31), 4), 7: ((96, 31), 3), 24: ((1, 500, 6), 4), 31: ((2, 16), 2),
    79: ((61, 61), 6), 1234: ((2, 12, 7, 10), 2), 99_999: ((32, 32), 4),
}  # fmt: skip

QUICK = (2, 8, 10, 11, 13, 15, 16, 28, 31)  # graphs that compile fast in every placement


def test_a_number_is_always_the_same_graph() -> None:
    for number, (shape, heavies) in DRAWN.items():
        graph, inputs, found = Composite(number).graph(lambda i, value: value)
        assert (graph.shape, found) == (shape, heavies)
        again, others, _ = Composite(number).graph(lambda i, value: value)
        assert again is graph
        for name, array in inputs.items():
            np.testing.assert_array_equal(array, others[name])


def test_the_benchmark_has_thirty_graphs() -> None:
    assert len(set(placements.BENCHMARK)) == 30


def test_every_kind_has_heavy_values() -> None:
    for number in range(2 * len(KINDS)):
        c = Composite(number)
        assert c.kind == KINDS[number % len(KINDS)].__name__
        assert 2 <= c.graph(lambda i, value: value)[2] <= MOST_HEAVY


@pytest.mark.parametrize("number", QUICK)
def test_every_placement_computes_the_same(number: int) -> None:
    for p in placements.placed(Composite(number), 1 + number % 2):
        assert p.error <= placements.TOLERANCE, p.stored


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(KINDS), 3 * len(KINDS)))
def test_every_placement_of_more_graphs_computes_the_same(number: int) -> None:
    for p in placements.placed(Composite(number), 1 + number % 2):
        assert p.error <= placements.TOLERANCE, p.stored


# ---------------------------------------------------------------- the report
def record(number: int, own: float, again: float, **others: float) -> Record:
    seconds = {"": own} | {name[1:]: t for name, t in others.items()}
    return Record(number, "sums", 1, len(others), seconds, again, dict.fromkeys(seconds, 1), {})


def test_the_ratio_is_to_the_fastest_placement() -> None:
    r = record(0, 4.0, 3.0, _0=2.0, _1=5.0)
    assert (r.own, r.best, r.ratio) == (3.0, "0", 1.5)
    assert record(0, 1.0, 1.0, _0=2.0).ratio == 0.5
    assert record(0, 1.0, 1.0, _0=2.0).best == ""
    assert record(0, 1.0, 1.0).ratio == 1.0


def test_ratios_say_nothing_below_the_time_at_which_repeats_differ() -> None:
    sure = [record(i, 100.0 + i, 101.0 + i) for i in range(15)]
    unsure = [record(i, 1.0 - i / 1000, 1.0 + 0.1 * (i % 2 == 0)) for i in range(100)]
    assert placements.floor(sure) == 100.0
    assert placements.floor(unsure + sure) == 100.0
    assert "15 of them take 100000000.0 µs" in next(placements.report(unsure + sure))


def test_the_report_counts_what_is_slower() -> None:
    records = [record(i, 100.0, 100.0, _0=t) for i, t in enumerate((100.0, 99.0, 80.0, 40.0))]
    lines = list(placements.report(records, worst=2))
    assert "| all | 4 | 1.333 | 50.0% | 2 | 1 | 1 | 2.50 |" in lines
    assert lines[-2].startswith("| 3 | sums |") and lines[-1].startswith("| 2 | sums |")
    text = "\n".join(placements.page(records))
    assert "takes 1.333 of the time of the fastest placement by hand" in text
    assert "2.50 at worst; 2 of them are within 1.05." in text
    records[1].wrong["0"] = 0.5
    assert "1 graphs have a wrong result: 1 (sums)" in list(placements.report(records))


def test_what_is_slower_than_before() -> None:
    """The machine was twice as slow at the second time, and so were most placements."""
    before = [record(i, 10.0, 10.0, _0=t) for i, t in enumerate((20.0, 5.0, 30.0))]
    after = [record(i, 20.0, 20.0, _0=t) for i, t in enumerate((40.0, 10.0, 10.0))]
    after[0].seconds[""], after[0].again = 40.0, 40.0
    after[1].seconds[""], after[1].again = 10.0, 10.0
    lines = list(placements.beside(before, after))
    assert "now / before is 1.000 (mean), above 1.15 in 1, below 0.87 in 1." in lines[0]
    assert [row[-7:-2] for row in lines[-3:]] == [" 2.00", " 1.00", " 0.50"]
