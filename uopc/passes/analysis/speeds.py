"""Thresholds that follow the speed of the machine: docs/lab/machine.md derives each.

A row of `thresholds.py` is the value on the machine that `Figures()` describes. Here it becomes the
value on another one.
"""

from __future__ import annotations

from uopc.passes.analysis import thresholds
from uopc.target import Figures, Target

MOST_PER_CYCLE = 2.0  # vectors: processors have two units
MOST_ACCUMULATORS = 8
LEAST_SHARE, MOST_SHARE = 1 / 8, 8.0  # of THREAD_WORK, whatever was measured
_REFERENCE = Figures()


def multiply_adds(figures: Figures, vector_bytes: int) -> float:
    """Multiply-adds of vectors that begin in a cycle."""
    return min(MOST_PER_CYCLE, figures.multiply_bytes / vector_bytes)


def loads(figures: Figures, vector_bytes: int) -> float:
    """Loads of vectors from the first-level cache that begin in a cycle."""
    return min(MOST_PER_CYCLE, figures.load_bytes / vector_bytes)


def latency(figures: Figures) -> float:
    """Cycles until a multiply-add can be added to."""
    return thresholds.LATENCY * (figures.latency / _REFERENCE.latency)


def vector_overhead(figures: Figures) -> float:
    """Cycles of a vector of a panel that do not overlap: it comes from the second-level cache."""
    return thresholds.VECTOR_OVERHEAD * (_REFERENCE.l2_bytes / figures.l2_bytes)


def far_rows(figures: Figures, row_bytes: int) -> float:
    """Cycles until short runs of rows have come from the second-level cache, which begins to bring
    each when it is asked for."""
    return thresholds.FAR_ROWS * row_bytes / figures.l2_bytes


def accumulators(target: Target) -> int:
    """Accumulators of a reduce along lanes: as many as additions are under way, a power of two."""
    f = target.figures
    wanted = thresholds.ACCUMULATORS * (f.latency * f.load_bytes)
    wanted /= _REFERENCE.latency * _REFERENCE.load_bytes
    count = 1
    while 2 * count <= wanted:
        count *= 2
    return min(count, MOST_ACCUMULATORS)


def thread_work(target: Target) -> float:
    """The least operations for which threads are used: a fixed multiple of the operations that one
    thread does while another wakes up."""
    f = target.figures
    speed = f.clock * f.multiply_bytes / (_REFERENCE.clock * _REFERENCE.multiply_bytes)
    share = speed * f.parked / _REFERENCE.parked
    return thresholds.THREAD_WORK * min(max(share, LEAST_SHARE), MOST_SHARE)
