"""Cycles and traffic of outlines written by hand, against counts on paper."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from uopc.cost.cycles import cycles, loop_cycles
from uopc.cost.machine import machine_of
from uopc.cost.traffic import dims_of, lines_of, traffic
from uopc.ir.nest.outline import Accumulator, Body, Dim, Outline, Reference, Unit
from uopc.target import Figures, Target

KIB, MIB = 1 << 10, 1 << 20
TARGET = Target("host", "cpu", 256, 16, "x86-64-v3", "", 32 * KIB, 1 * MIB, 32 * MIB)
M = machine_of(TARGET)
L1, L2, L3 = M.caches[:3]


def reference(size, body, strides, lanes=(), written=False, storage=0, offsets=(0,)):
    return Reference(
        storage, size, 4, False, written, body, tuple(lanes), (), strides, list(offsets)
    )


def loops(*lengths):
    return [Body(float(n), tuple(range(i))) for i, n in enumerate(lengths)]


def outline(bodies, references):
    sizes = {r.storage: r.size * r.item for r in references}
    return Outline(bodies, Body(), references, [sizes[i] for i in sorted(sizes)])


def test_lines_of_runs_rows_and_windows():
    assert lines_of((Dim(64, 1),), 4, 64, 1 << 20).total == 4
    rows = lines_of((Dim(16, 1), Dim(10, 1000)), 4, 64, 1 << 20)
    assert rows.total == 15 and rows.beside == 10  # a row begins inside of a line
    assert lines_of((Dim(8, 1), Dim(9, 1)), 4, 64, 1 << 20).run == 64  # windows overlap
    assert lines_of((Dim(100, None),), 4, 64, 320).total == 20  # no more than there are


def test_offsets_are_dimensions():
    assert dims_of(reference(999, 0, {}, offsets=(0, 1, 2)), 64) == (Dim(3, 1),)
    assert dims_of(reference(999, 0, {}, offsets=(0, 100, 200)), 64) == (Dim(3, 100),)
    found = dims_of(reference(999, 0, {}, offsets=(0, 1, 100, 101)), 64)
    assert found == (Dim(2, 99), Dim(2, 1))


@pytest.mark.parametrize("rows, times", [(100, 1), (3000, 20), (6000, 20)])
def test_a_vector_that_fits_a_cache_is_brought_once(rows, times):
    """for i < 20: for j < rows: reads x[j]. 3,000 lines of 64 bytes exceed L1, not L2."""
    o = outline(loops(20, rows), [reference(rows * 16, 1, {1: 16})])
    lines = traffic(o, L1)[1].lines
    cold = rows if rows * 64 > 1.25 * L1.nbytes else 0
    assert lines == pytest.approx(rows * (times - 1) + cold, rel=0.01)
    assert traffic(o, L2)[1].lines == 0


def test_rows_that_share_the_sets_of_a_cache_miss():
    """64 rows a page apart are in one set of L1: 8 of them fit."""
    at_pages = outline(loops(50, 64), [reference(1 << 16, 1, {1: 1024})])
    beside = outline(loops(50, 64), [reference(1 << 16, 1, {1: 1040})])
    assert traffic(at_pages, L1)[1].lines > 40 * 64
    assert traffic(beside, L1)[1].lines < 64 * 2


def test_what_an_earlier_reference_brought_is_not_brought_again():
    n = 1 << 22
    one = reference(n, 0, {0: 16})
    twice = outline(loops(n // 16), [one, dataclasses.replace(one)])
    once = outline(loops(n // 16), [one])
    assert traffic(twice, L1)[0].lines == pytest.approx(traffic(once, L1)[0].lines)


def test_multiply_adds_are_bound_by_their_unit_or_by_their_chain():
    def product(sums):
        bodies = loops(1000)
        bodies[0].units = Counter({Unit("alu", 8, 32): sums})
        bodies[0].accumulators = [Accumulator(8, 32, sums, 1, True)]
        bodies[0].carried = 4.0
        return loop_cycles(outline(bodies, []), M)[0] / 1000

    assert product(1) == pytest.approx(4.0, rel=0.05)  # waits for itself
    assert product(12) == pytest.approx(6.0, rel=0.05)  # two vectors of 32 bytes a cycle
    assert product(24) > 1.5 * product(12) + 8 * M.spill  # 16 registers


def test_the_machine_decides():
    wide = machine_of(dataclasses.replace(TARGET, vector_bits=512, registers=32))
    slow = machine_of(dataclasses.replace(TARGET, figures=Figures(l2_bytes=12.0)))
    bodies = loops(1000)
    bodies[0].units = Counter({Unit("div", 8, 32): 1})
    o = outline(bodies, [reference(1 << 14, 0, {0: 16}, [Dim(8, 1)])])
    assert cycles(o, slow) > cycles(o, M) > 0
    assert wide.registers_of(16, 32) == 1 and M.registers_of(16, 32) == 2
    assert M.clock == TARGET.figures.clock and L1.stream == 64 / TARGET.figures.l2_bytes
