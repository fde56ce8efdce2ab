"""The facts of a machine: rows of cores, and figures that the costs read."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from tests import machines
from uopc.cost.cycles import cycles
from uopc.cost.machine import machine_of
from uopc.ir.nest.outline import Body, Dim, Outline, Reference, Unit
from uopc.target import CORES, Figures, core_of

LAPTOP = machines.MACHINES["laptop"].target  # 32 KiB, 256 KiB, 4 MiB


def on(cpu):
    """A laptop with another core."""
    return dataclasses.replace(LAPTOP, cpu=cpu, figures=core_of(cpu).figures)


def with_figures(**values):
    return machine_of(dataclasses.replace(LAPTOP, figures=dataclasses.replace(Figures(), **values)))


def kernel(unit=None, apart=1, written=False):
    """A loop of 9 iterations in a loop, over 64 MiB: a unit of arithmetic, and a reference whose
    lanes are `apart`."""
    around, inner = Body(float((1 << 21) // 9), ()), Body(9.0, (0,))
    inner.units = Counter([unit] if unit else [])
    r = Reference(
        0, 1 << 24, 4, False, written, 1, (Dim(8, apart),), (), {0: 72, 1: 8}, [0]
    )  # fmt: skip
    return Outline([around, inner], Body(), [r], [1 << 26])


def lines_alone():
    """A loop that reads every second line of 64 MiB, in an order that data say."""
    r = Reference(0, 1 << 24, 4, False, False, 0, (Dim(8, 1),), (), {0: None}, [0])
    return Outline([Body(float(1 << 19))], Body(), [r], [1 << 26])


@pytest.mark.parametrize("cpu", [*CORES, "x86-64-v3", "unknown"])
def test_facts_are_positive_and_caches_go_from_near_to_far(cpu):
    m = machine_of(on(cpu))
    numbers = [v for v in dataclasses.astuple(m) if type(v) in (int, float)]
    assert len(numbers) > 20 and all(v > 0 for v in numbers)
    data = [c for c in m.caches if not c.is_of_pages]
    assert [c.name for c in data] == ["L1", "L2", "L3"]
    for near, far in zip(data, data[1:]):
        assert near.nbytes < far.nbytes and near.ways > 0
        assert 0 < near.stream < far.stream and near.far < far.far and near.written < far.written
    assert all(c.far >= c.stream for c in data)
    pages = [c for c in m.caches if c.is_of_pages and c.serves_loads]
    assert pages[0].nbytes < pages[-1].nbytes and pages[0].far < pages[-1].far
    assert all(c.nbytes // c.line % c.ways == 0 for c in pages)


def test_a_described_core_has_its_row():
    assert core_of("unknown") == core_of("x86-64-v3")
    zen, lake, cove, arm = [
        machine_of(on(cpu)) for cpu in ("znver3", "cascadelake", "emeraldrapids", "neoverse-n1")
    ]
    assert (zen.issue, lake.issue, cove.issue, arm.issue) == (6.0, 4.0, 6.0, 4.0)
    assert (zen.multiply_bytes, lake.multiply_bytes, arm.multiply_bytes) == (64.0, 128.0, 32.0)
    assert [c.ways for c in cove.caches[1:3]] == [16, 16] and lake.caches[2].ways == 11
    larger = machine_of(dataclasses.replace(on("unknown"), l1_bytes=48 << 10)).caches[0]
    assert (larger.ways, larger.period) == (12, 4096), "8 ways would have sets in no power of two"
    assert arm.division(16, 64) > arm.division(16, 32) > 0
    big = machine_of(on("apple-m1")).caches[3]
    assert big.line == 16 << 10 and big.is_of_pages


def test_one_number_is_divided_as_slowly_as_the_vector_of_a_small_core():
    zen, cove = machine_of(on("znver3")), machine_of(on("emeraldrapids"))
    for bits, timed in ((32, 1.09), (64, 1.41)):  # ns at 3.24 GHz, of 4, of 16 and of 32 bytes
        for nbytes in (4, 16, 32):
            assert zen.division(nbytes, bits) == pytest.approx(3.24 * timed, rel=0.03)
        assert cove.division(64, bits) == pytest.approx(2 * cove.division(32, bits))
        assert cove.division(4, bits) < cove.division(32, bits)


def test_a_line_alone_is_no_faster_than_in_a_stream():
    found = with_figures(memory_bytes=1.0).caches[2]
    assert found.stream == found.far == 64.0


@pytest.mark.parametrize("name, factor, work", [
    ("divide_bytes", 0.2, kernel(Unit("div", 8, 32))),
    ("divide64_bytes", 0.2, kernel(Unit("div", 8, 64))),
    ("shuffle_bytes", 0.01, kernel(Unit("shuffle", 8, 32))),
    ("insert", 20.0, kernel(apart=48)),
    ("enter", 20.0, kernel(Unit("alu", 8, 32))),
    ("l2_alone", 50.0, lines_alone()), ("last_alone", 20.0, lines_alone()),
    ("memory_alone", 5.0, lines_alone()),
    ("l2_written", 50.0, kernel(written=True)), ("last_written", 20.0, kernel(written=True)),
    ("memory_written", 5.0, kernel(written=True)),
])  # fmt: skip
def test_a_slower_figure_makes_a_kernel_that_needs_it_slower(name, factor, work):
    """The kernel costs more on the slower machine; a kernel that only adds one vector costs the
    same, except where it enters loops."""
    slow = with_figures(**{name: getattr(Figures(), name) * factor})
    usual = machine_of(LAPTOP)
    assert cycles(work, slow) > 1.05 * cycles(work, usual)
    plain = Outline([Body(100.0, (), Counter([Unit("alu", 8, 32)]))], Body(), [], [])
    if name != "enter":
        assert cycles(plain, slow) == cycles(plain, usual)
