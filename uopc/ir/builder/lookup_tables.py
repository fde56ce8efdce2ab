"""Lookup tables: the values of an index in every iteration of its loops, as a constant array.

A reshape whose dimensions do not divide each other divides the index, and the next reshape divides
the quotient again. If the loops have few iterations, all values of such an index are known: the
index becomes an element of a constant array, and further arithmetic starts from the element.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from uopc.ir.builder import fold, leaves
from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.arena import compile_scoped, memo
from uopc.ir.core.data import arrays
from uopc.ir.core.evaluate import EXACT, Array, compute
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, monomials

# An index with more nested divisions is looked up; if its loops are too long for a table, the value
# it reads is stored, so that the reader starts from a plain index.
MOST_DIVISIONS = 4
# The greatest length of a table: 128 KiB of indices.
MOST_ELEMENTS = 1 << 15

_EXACT = EXACT | affine.DIVMOD_OPS | {Ops.CONST}
_DTYPES = frozenset((dtypes.bool_, dtypes.index, dtypes.float32, dtypes.float64))
_depths: dict[UOp, int] = compile_scoped({})


def divisions(index: UOp) -> int:
    """The depth of nested divisions in an index; an element of storage has depth 0."""
    known = _depths.get(index)
    if known is not None:
        return known
    for u in walk.toposort(index, lambda u: u not in _depths and u.op is not Ops.INDEX):
        if u not in _depths:
            below = [_depths[s] for s in u.src] if u.op is not Ops.INDEX else []
            _depths[u] = max(below, default=0) + (u.op in affine.DIVMOD_OPS)
    return _depths[index]


@memo
def looked_up(index: UOp) -> UOp:
    """An element of a table if the index is deep and its loops have few iterations, else the index.
    """
    if divisions(index) <= MOST_DIVISIONS:
        return index
    iterations = Iterations(ranges.ranges(index))
    found = iterations.array(index)
    return index if found is None else iterations.as_index(found, np.asarray(True))[0]


class Iterations:
    """The values of expressions in each iteration of some loops.

    An array has one dimension per loop, of length 1 if the value does not depend on the loop.
    """

    def __init__(self, ranges: Iterable[UOp]) -> None:
        self.ranges = sorted(ranges, key=monomials.term_order)
        lengths = [r.src[0] for r in self.ranges]
        fixed = all(map(affine.is_const, lengths))
        self.are_few = fixed and math.prod([n.arg for n in lengths]) <= MOST_ELEMENTS
        self.known: dict[UOp, Array | None] = {}

    def array(self, u: UOp) -> Array | None:
        """The values of a node; None if unknown, or if there are too many iterations."""
        known = self.known
        if u not in known and self.are_few:
            with np.errstate(all="ignore"):
                for v in walk.toposort(u, gate=lambda v: v not in known and not _is_read(v)):
                    known[v] = self._computed(v)
        return known.get(u)

    def _computed(self, u: UOp) -> Array | None:
        if u in self.ranges:
            dims = [1] * len(self.ranges)
            dims[self.ranges.index(u)] = u.src[0].arg
            return np.arange(u.src[0].arg).reshape(dims)
        if u.op is Ops.INDEX and u.src[0].op is Ops.DATA:
            return self._read(u)
        return self.applied(u, [self.known.get(s) for s in u.src])

    def applied(self, u: UOp, operands: list[Array | None]) -> Array | None:
        """Apply an exact op to the values of its operands; None if an operand is unknown."""
        sources = [a for a in operands if a is not None]
        if len(sources) < len(u.src) or u.op not in _EXACT or not _is_plain(u.dtype):
            return None
        if u.op is Ops.CONST and type(u.arg) is tuple:
            return None
        if u.op.evaluate is None:
            return compute(u, sources)
        # No operand is INVALID.
        return np.asarray(u.op.evaluate(*sources)).astype(u.dtype.numpy, copy=False)

    def _read(self, u: UOp) -> Array | None:
        places = [self.known.get(s) for s in u.src[1:]]
        known = [p for p in places if p is not None]
        if len(known) < len(places) or not _is_plain(u.dtype):
            return None
        dims = u.src[0].arg.dims
        if any([p.size and (p.min() < 0 or p.max() >= d) for p, d in zip(known, dims)]):
            return None  # some iterations are guarded
        return np.asarray(u.src[0].arg.array[tuple(known)])

    def element(self, array: Array, dtype: dtypes.DType) -> UOp:
        """The value in each iteration: a number if all values are equal, else a read from a table.
        """
        flat = array.reshape(-1)
        bits = flat.view(f"V{flat.itemsize}")
        if (bits == bits[0]).all() and (number := leaves.const_of_bits(dtype, flat[0])) is not None:
            return number
        kept = [i for i, n in enumerate(array.shape) if n > 1]
        stored = dtype
        if dtype is dtypes.index:  # 32 bits if they fit
            fits = array.min() >= -(1 << 31) and array.max() < 1 << 31
            stored = dtypes.int32 if fits else dtypes.int64
        dims = tuple([array.shape[i] for i in kept])
        table = arrays.register(array.reshape(dims).astype(stored.numpy))
        place = [self.ranges[i] for i in kept]
        read = intern(Ops.INDEX, stored, (intern(Ops.DATA, stored, (), table), *place))
        return fold.cast(read, dtype)

    def as_index(self, array: Array, live: Array) -> tuple[UOp, bool]:
        """An index equal to `array` where `live`, and True if the index is -1 elsewhere. A loop
        along which the array has a constant step gives a multiple of its counter; the rest is a
        table."""
        rest, live = np.broadcast_arrays(array, live)
        scattered, moved = not live.all(), affine.const(0)
        for axis, r in enumerate(self.ranges):
            if rest.ndim and rest.shape[axis] > 1 and (found := _even(rest, live, axis)):
                step, rest, live = found
                moved, scattered = affine.add(moved, affine.scaled(r, step)), False
        table = self.element(np.where(live, rest, -1 if scattered else 0), dtypes.index)
        return affine.add(table, moved), scattered


def _even(array: Array, live: Array, axis: int) -> tuple[int, Array, Array] | None:
    """(step, rest, live) if array = rest + step·counter along an axis, wherever `live`."""
    moved, seen = array.swapaxes(0, axis), live.swapaxes(0, axis)
    steps = (moved[1:] - moved[:-1])[seen[1:] & seen[:-1]]
    if not steps.size or (steps != steps[0]).any():
        return None
    dims = [1] * array.ndim
    dims[axis] = -1
    rest = array - steps[0] * np.arange(array.shape[axis]).reshape(dims)
    least = np.where(live, rest, np.iinfo(rest.dtype).max).min(axis, keepdims=True)
    most = np.where(live, rest, np.iinfo(rest.dtype).min).max(axis, keepdims=True)
    if (least < most).any():
        return None
    return int(steps[0]), least, np.asarray(live.any(axis, keepdims=True))


def _is_read(u: UOp) -> bool:
    """True for storage, and for an element of storage that is not constant."""
    return u.op.is_storage or (u.op is Ops.INDEX and u.src[0].op is not Ops.DATA)


def _is_plain(t: dtypes.DType) -> bool:
    return t in _DTYPES or t.is_int
