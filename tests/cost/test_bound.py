"""The bound of cycles against a count on paper, and against the cost of recorded lists."""

from __future__ import annotations

import pytest

from tests.cost.points import XEON, points
from tests.cost.test_cycles import L1, TARGET, M, loops, outline, reference
from uopc.cost.bound import least_cycles
from uopc.cost.cycles import cycles
from uopc.cost.machine import machine_of
from uopc.ir.nest.outline import Dim, Unit


def test_elements_move_once_and_arithmetic_fills_vectors():
    wide = (Dim(8, 1),)
    bodies = loops(16, 100)
    read = reference(800, 1, {1: 8}, wide)
    written = reference(12800, 1, {0: 800, 1: 8}, wide, written=True, storage=1)
    drawn = outline(bodies, [read, written])
    stored, moved = 4 * 12800 / M.store_bytes, 4 * 13600 / 64 * L1.stream
    assert least_cycles(drawn, M) == pytest.approx(M.launch + stored + M.exposed * moved)
    bodies[1].units[Unit("alu", 1, 32)] = 5  # one lane each: a schedule may fill vectors
    arithmetic = 4 * 1600 * 5 / M.multiply_bytes
    both = max(arithmetic, stored) + M.exposed * moved
    assert least_cycles(drawn, M) == pytest.approx(M.launch + both)
    bodies[1].units[Unit("div", 8, 32)] = 3
    divided = 4800 * M.division(M.vector_bytes, 32)
    assert least_cycles(drawn, M) == pytest.approx(M.launch + divided + M.exposed * moved)
    assert M.vector_bits == TARGET.vector_bits == 256


def test_recorded_lists_cost_no_less():
    machine = machine_of(XEON)
    found = [o for p in points(24) for o in p.outlines]
    below = [o for o in found if cycles(o, machine) < 0.97 * least_cycles(o, machine)]
    assert len(below) <= 0.03 * len(found)
