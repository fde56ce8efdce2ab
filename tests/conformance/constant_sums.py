"""Sums over movement of a constant, without the elements: an arange written as a sum.

RESHAPE, EXPAND, PAD and SHRINK of a constant leave an array that is either the constant or a PAD's
zero. In row-major order such an array is a list of runs, [begin, end), of elements that are the
constant; its sum over some axes is the constant times how many of them fall on each result. So a
triangle of n·n elements takes n runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from uopc.ir.core.evaluate import Array
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.shapes import with_dims
from uopc.ir.core.uop import UOp

MOST_RUNS = 1 << 25
# The values of symbolic dimensions.
Integers = Callable[[Sequence[UOp]], list[int]]


@dataclass
class Runs:
    """An array of `dims` that is 1 from each begin up to its end, in row-major order, else 0.

    `begins` and `ends` are sorted, and no two runs overlap.
    """

    dims: tuple[int, ...]
    begins: Array
    ends: Array

    def cut(self, length: int) -> Runs:
        """The same, with no run across a multiple of `length`."""
        if not len(self.begins) or length <= 0:
            return Runs(self.dims, self.begins[:0], self.ends[:0])
        first = self.begins // length
        pieces = (self.ends - 1) // length - first + 1
        if pieces.sum() > MOST_RUNS:
            raise MemoryError(f"a constant in {pieces.sum()} pieces")
        run = np.repeat(np.arange(len(pieces)), pieces)
        number = np.arange(len(run)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        row = (first[run] + number) * length
        begins = np.maximum(self.begins[run], row)
        return Runs(self.dims, begins, np.minimum(self.ends[run], row + length))


# ---------------------------------------------------------------- movement
def _window(runs: Runs, begins: Sequence[int], dims: Sequence[int]) -> Runs:
    """The elements of `dims` from `begins` on; what is outside of the source is 0."""
    for axis, (begin, size) in enumerate(zip(begins, dims)):
        if begin or size != runs.dims[axis]:
            runs = _window_of_axis(runs, axis, begin, size)
    return runs


def _window_of_axis(runs: Runs, axis: int, begin: int, size: int) -> Runs:
    inner = math.prod(runs.dims[axis + 1 :])
    old, new = runs.dims[axis] * inner, size * inner
    runs = runs.cut(old)
    row = runs.begins // max(old, 1)
    low = np.clip(runs.begins - row * old - begin * inner, 0, new)
    high = np.clip(runs.ends - row * old - begin * inner, 0, new)
    kept = low < high
    row = row[kept] * new
    dims = (*runs.dims[:axis], size, *runs.dims[axis + 1 :])
    return Runs(dims, row + low[kept], row + high[kept])


def _expand(runs: Runs, dims: Sequence[int]) -> Runs:
    runs = Runs((*[1] * (len(dims) - len(runs.dims)), *runs.dims), runs.begins, runs.ends)
    for axis, (old, new) in enumerate(zip(runs.dims, dims)):
        if old != new:
            runs = _repeat(runs, axis, new)
    return runs


def _repeat(runs: Runs, axis: int, count: int) -> Runs:
    """Axis `axis`, of size 1, `count` times."""
    inner = math.prod(runs.dims[axis + 1 :])
    dims = (*runs.dims[:axis], count, *runs.dims[axis + 1 :])
    if inner == 1:
        return Runs(dims, runs.begins * count, runs.ends * count)
    runs = runs.cut(inner)
    if len(runs.begins) * count > MOST_RUNS:
        raise MemoryError(f"a constant in {len(runs.begins) * count} pieces")
    row = runs.begins // max(inner, 1)
    shift = row[:, None] * (count - 1) * inner + np.arange(count) * inner
    begins = (runs.begins[:, None] + shift).reshape(-1)
    ends = (runs.ends[:, None] + shift).reshape(-1)
    order = np.argsort(begins, kind="stable")
    return Runs(dims, begins[order], ends[order])


def _moved(u: UOp, runs: Runs, integers: Integers) -> Runs:
    arg: tuple[int, ...] = with_dims(u.arg, integers(u.src[1:]))  # type: ignore[arg-type]
    if u.op is Ops.RESHAPE:
        return Runs(arg, runs.begins, runs.ends)
    if u.op is Ops.EXPAND:
        return _expand(runs, arg)
    rank = len(runs.dims)
    begins = [-b for b in arg[:rank]] if u.op is Ops.PAD else arg[:rank]
    return _window(runs, begins, arg[rank:])


_MOVES: frozenset[Op] = frozenset((Ops.RESHAPE, Ops.EXPAND, Ops.PAD, Ops.SHRINK))


# ---------------------------------------------------------------- sums
def path_to_constant(u: UOp) -> list[UOp] | None:
    """The movement between a sum of integers and the one constant that it is of; or None."""
    if u.op is not Ops.REDUCE or u.arg.op != "add" or u.dtype.kind not in ("int", "uint"):
        return None
    path: list[UOp] = []
    v = u.src[0]
    while v.op is Ops.PERMUTE:
        path.append(v)
        v = v.src[0]
    while v.op in _MOVES:
        path.append(v)
        v = v.src[0]
    return [*path, v] if v.op is Ops.CONST else None


def sum_of_constant(u: UOp, integers: Integers) -> Array:
    """The value of a REDUCE with a `path_to_constant`; MemoryError where that takes many runs."""
    *path, constant = path_to_constant(u) or []
    runs = Runs((), np.zeros(1, np.int64), np.ones(1, np.int64))
    axes: list[int] | None = None  # of `runs`, as the operand of the REDUCE has them
    for m in reversed(path):
        if m.op is not Ops.PERMUTE:
            runs = _moved(m, runs, integers)
            continue
        axes = [(axes or list(range(len(runs.dims))))[i] for i in m.arg]
    axes = axes or list(range(len(runs.dims)))
    count = len(axes)
    summed = {axes[i % count] for i in u.arg.axes}
    kept = [a for a in axes if a not in summed]
    counts = _counts(runs, summed).transpose([sorted(kept).index(a) for a in kept])
    return counts.astype(u.dtype.numpy) * np.asarray(constant.arg).astype(u.dtype.numpy)


def _counts(runs: Runs, summed: set[int]) -> Array:
    """The number of ones along the summed axes, for each index of the other axes."""
    if not runs.dims:
        return np.asarray(len(runs.begins))
    last = len(runs.dims) - 1
    kept = [a for a in range(last) if a not in summed]
    dims = [runs.dims[a] for a in kept]
    runs = runs.cut(runs.dims[last])
    row = runs.begins // max(runs.dims[last], 1)
    place = np.zeros(len(row), np.int64)
    for a in kept:
        inner = math.prod(runs.dims[a + 1 : last])
        place = place * runs.dims[a] + row // max(inner, 1) % max(runs.dims[a], 1)
    total = math.prod(dims)
    if last in summed:
        out = np.zeros(total, np.int64)
        np.add.at(out, place, runs.ends - runs.begins)
        return out.reshape(dims)
    # A run adds one from its first column on and takes it back behind its last one.
    width = runs.dims[last]
    steps = np.zeros((total, width + 1), np.int64)
    np.add.at(steps, (place, runs.begins - row * width), 1)
    np.add.at(steps, (place, runs.ends - row * width), -1)
    return np.cumsum(steps, axis=1)[:, :width].reshape(*dims, width)
