"""INDEX and its transpose, which adds each element of a cotangent where it was read.

    y[i, w] = a[2 i + w]        its transpose:   a'[p] = sum over w of y'[(p - w) / 2, w]

If each dimension of the source is read along its own dimensions, by steps or by a constant table,
the transpose is a gather too. Otherwise a kernel adds row after row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from uopc.ir.builder import alu, fold, leaves, movement, operands
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, Shape
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop
from uopc.ir.records import dataclass
from uopc.tensor.scatter import inside, scatter

Table = npt.NDArray[np.int64]
Element = TypeVar("Element", bound=np.generic)
_FILLED = 4  # the most entries of a table for each entry that it needs


@dataclass(frozen=True)
class _ReadPlaces:
    """The positions that an index reads: either constant + the sum of step * i over dimensions, or
    a table. `axes`: the dimensions of the block of indices along which the positions change."""

    axes: tuple[int, ...]
    steps: tuple[int, ...] = ()
    constant: int = 0
    table: Table | None = None


def read(u: UOp, value: UOp) -> UOp:
    """The elements of another value that an INDEX reads."""
    found = leaves.constant_in(value)
    if found is not None and found.arg == 0:
        return leaves.const_like(u, 0)
    return movement.index(value, *u.src[1:])


def transposed(u: UOp, cotangent: UOp) -> UOp:
    """The cotangent of the operand of an INDEX."""
    a, indices = u.src[0], u.src[1:]
    if not indices:
        return cotangent
    block = shapes.broadcast([shapes.shape(i) for i in indices])
    lead = shapes.shape(a)[: len(indices)]
    places = [_places(i, len(block)) for i in indices]
    known = [p for p in places if p is not None]
    moving = [axis for p in known for axis in p.axes]
    if len(known) < len(places) or len(set(moving)) < len(moving):
        return _scattered(cotangent, indices, block, lead)
    rank = len(shapes.shape(cotangent))
    still = [i for i in range(len(block)) if i not in moving]
    value = movement.permute(cotangent, (*still, *moving, *range(len(block), rank)))
    value = movement.reduce(value, "add", tuple(range(len(still)))) if still else value
    for at, (p, n) in enumerate(zip(known, lead)):
        value = _collapsed(value, at, p, n)
    return value


# ---------------------------------------------------------------- places that are known
def _places(index: UOp, rank: int) -> _ReadPlaces | None:
    """The positions that an index of a block of this rank reads; None if they are unknown."""
    form = _steps(index)
    dims = shapes.shape(index)
    first = rank - len(dims)
    if form is not None:
        constant, steps = form
        axes = [i for i, s in enumerate(steps) if s]
        moved = tuple([first + i for i in axes])
        return _ReadPlaces(moved, tuple([steps[i] for i in axes]), constant)
    table = _table(index)
    if table is None:
        return None
    axes = [i for i, d in enumerate(dims) if d != 1]
    return _ReadPlaces(
        tuple([first + i for i in axes]), table=table.reshape([table.shape[i] for i in axes])
    )


def _steps(u: UOp) -> tuple[int, tuple[int, ...]] | None:
    """Decompose integers into a constant and a step for each dimension; None if impossible."""
    if u.op is Ops.CONST:
        return (int(u.arg), ()) if type(u.arg) is not tuple else None
    if u.op is Ops.IOTA:
        return 0, (1,)
    if u.op in (Ops.CAST, Ops.NEG, Ops.EXPAND, Ops.RESHAPE, Ops.SHRINK):
        inner = _steps(u.src[0])
        return None if inner is None else _moved_steps(u, *inner)
    if u.op not in (Ops.ADD, Ops.SUB, Ops.MUL):
        return None
    forms = [f for f in map(_steps, u.src) if f is not None]
    if len(forms) < 2:
        return None
    rank = len(shapes.shape(u))
    (c, a), (d, b) = [(k, (0,) * (rank - len(s)) + s) for k, s in forms]
    if u.op is Ops.MUL:
        if any(a) and any(b):
            return None
        return c * d, tuple([c * j + d * i for i, j in zip(a, b)])
    sign = 1 if u.op is Ops.ADD else -1
    return c + sign * d, tuple([i + sign * j for i, j in zip(a, b)])


def _moved_steps(u: UOp, c: int, steps: tuple[int, ...]) -> tuple[int, tuple[int, ...]] | None:
    if u.op is Ops.CAST:
        return (c, steps) if u.dtype is dtypes.index or u.dtype.bits >= 32 else None
    if u.op is Ops.NEG:
        return -c, tuple([-s for s in steps])
    if u.op is Ops.EXPAND:
        return c, (0,) * (len(shapes.shape(u)) - len(steps)) + steps
    if u.op is Ops.SHRINK:
        begins, _ = shapes.window(u)
        if not fold.is_inside(u) or not all([isinstance(b, int) for b in begins]):
            return None
        return c + sum([int(b) * s for b, s in zip(begins, steps)]), steps
    before, after = shapes.shape(u.src[0]), shapes.shape(u)
    if [d for d in before if d != 1] != [d for d in after if d != 1]:
        return None
    left = iter([s for d, s in zip(before, steps) if d != 1])
    return c, tuple([0 if d == 1 else next(left) for d in after])


_STATIC = frozenset((Ops.CONST, Ops.DATA, Ops.IOTA, Ops.INVALID, Ops.CAST, Ops.STACK, Ops.CAT))


def _table(index: UOp) -> Table | None:
    """The values of an index that depends on constant arrays only, -1 for INVALID; else None."""
    nodes = index.toposort()
    if not all([u.op in _STATIC or u.op.is_alu or u.op.movement for u in nodes]):
        return None
    if not all([isinstance(d, int) for u in nodes for d in shapes.shape(u)]):
        return None
    stored = sum([u.arg.array.size for u in nodes if u.op is Ops.DATA])
    if shapes.size(shapes.shape(index)) > max(stored, 64):
        return None  # a formula gives the numbers: a table would be larger than the graph's arrays
    return np.asarray(evaluated(index), np.int64)


def evaluated(u: UOp) -> npt.NDArray[np.generic]:
    """Compute a value that depends on constant arrays only; an INVALID index is -1."""
    from uopc.ir.interpret.arguments import Variables
    from uopc.ir.interpret.tensor import TensorRun

    run = TensorRun(lambda v: np.empty(0), Variables({}))
    run.run([u])
    found, mask = np.asarray(run.values[u]), run.masks.get(u)
    return found if mask is None else np.where(mask, found, -1)


def rearranged(a: npt.NDArray[Element], u: UOp, filling: Any) -> npt.NDArray[Element]:
    """Apply a movement op to an array that has the shape of its operand."""
    if u.op is Ops.RESHAPE:
        return a.reshape(shapes.shape(u))
    if u.op is Ops.EXPAND:
        return np.broadcast_to(a, shapes.shape(u))
    if u.op is Ops.PERMUTE:
        return a.transpose(u.arg)
    if u.op is Ops.FLIP:
        return np.flip(a, u.arg)
    begins, sizes = shapes.window(u)
    if u.op is Ops.SHRINK:
        return a[tuple([slice(b, b + n) for b, n in zip(begins, sizes)])]
    found = np.full(sizes, filling, a.dtype)
    found[tuple([slice(b, b + n) for b, n in zip(begins, a.shape)])] = a
    return found


# ---------------------------------------------------------------- one dimension of the source
def _collapsed(value: UOp, at: int, places: _ReadPlaces, n: Dim) -> UOp:
    """Merge the dimensions from `at` on into the dimension of length n that they read."""
    if places.table is not None:
        return by_table(value, at, places.table, n)
    dims = shapes.shape(value)
    c, steps = places.constant, places.steps
    if not steps:
        value, steps = movement.reshape(value, (*dims[:at], 1, *dims[at:])), (1,)
        dims = shapes.shape(value)
    if len(steps) == 1 and abs(steps[0]) == 1:
        m = dims[at]
        value, c = (value, c) if steps[0] == 1 else (movement.flip(value, at), c + 1 - m)
        steps = (1,)
        if all([isinstance(d, int) for d in (c, m, n)]) and 0 <= c <= n - m:
            widths = [(c, n - m - c) if i == at else (0, 0) for i in range(len(dims))]
            return movement.pad(value, widths)
    return _solved(value, at, c, steps, n)


def _solved(value: UOp, at: int, c: Dim, steps: tuple[int, ...], n: Dim) -> UOp:
    """Let each position p of the source read the i with c + sum of step * i = p: solve for the
    longest dimension and sum over the others."""
    dims = shapes.shape(value)
    mine = range(at, at + len(steps))
    chosen = max(mine, key=lambda i: dims[i] if isinstance(dims[i], int) else 1 << 62)
    others = [i for i in mine if i != chosen]
    rest = [i for i in range(len(dims)) if i not in mine]
    first = movement.permute(value, (chosen, *others, *rest))
    lengths = [n, *[dims[i] for i in others]]
    counters = [_axis(leaves.iota(d), len(others) - j) for j, d in enumerate(lengths)]
    left = counters[0] - c
    for counter, i in zip(counters[1:], others):
        left = left - counter * steps[i - at]
    step = steps[chosen - at]
    place = left // step
    ok = inside(place, dims[chosen]) & (left % step).eq(0)
    index = alu.where(ok, place, intern(Ops.INVALID, dtypes.index))
    seen = movement.index(first, index, *counters[1:])
    if others:
        seen = movement.reduce(seen, "add", tuple(range(1, len(others) + 1)))
    order = list(range(1, len(rest) + 1))
    order.insert(at, 0)
    return movement.permute(seen, tuple(order))


def _axis(v: UOp, after: int) -> UOp:
    """Append `after` dimensions of length 1 to a vector."""
    return movement.reshape(v, (*shapes.shape(v), *(1,) * after))


def by_table(value: UOp, at: int, table: Table, n: Dim) -> UOp:
    """Add elements at the positions of a table: gather by the inverse table (the readers of each
    position), or scatter if a few positions have most of the readers."""
    dims = shapes.shape(value)
    rest = (*dims[:at], *dims[at + table.ndim :])
    order = [*range(at, at + table.ndim), *range(at), *range(at + table.ndim, len(dims))]
    rows = movement.reshape(movement.permute(value, tuple(order)), (table.size, *rest))
    flat = table.reshape(-1)
    readers = None if not isinstance(n, int) else _readers(flat, n)
    if readers is None:
        zeros = leaves.full(leaves.const(value.dtype, 0), (n, *rest))
        found = scatter(zeros, operands.constant(flat), rows, Ops.ADD)
    else:
        known = operands.constant(np.maximum(readers, 0))
        place = fold.cast(known, dtypes.index)
        if (readers < 0).any():
            nothing = intern(Ops.INVALID, dtypes.index)
            place = alu.where(operands.constant(readers >= 0), place, nothing)
        found = movement.reduce(movement.index(rows, place), "add", 1)
    back = list(range(1, len(rest) + 1))
    back.insert(at, 0)
    return movement.permute(found, tuple(back))


def _readers(flat: Table, n: int) -> Table | None:
    """The readers of each of n positions, padded with -1, as (n, most readers); None if too much of
    the table is padding."""
    good = np.nonzero((flat >= 0) & (flat < n))[0]
    counts = np.bincount(flat[good], minlength=n)
    most = max(int(counts.max(initial=0)), 1)
    if most * n > _FILLED * (flat.size + n):
        return None
    order = good[np.argsort(flat[good], kind="stable")]
    starts = np.cumsum(counts) - counts
    found = np.full((n, most), -1, np.int64)
    found[flat[order], np.arange(len(order)) - starts[flat[order]]] = order
    return found


# ---------------------------------------------------------------- places known at run time
def _scattered(
    cotangent: UOp, indices: Sequence[UOp], block: Shape, lead: Shape
) -> UOp:
    """Add the rows of a cotangent at positions that are only known when the program runs."""
    flat, ok = None, None
    for i, d in zip(indices, lead):
        place, guard = _ungated(i)
        there = inside(place, d)
        there = there if guard is None else there & guard
        ok = there if ok is None else ok & there
        flat = place if flat is None else flat * d + place
    assert flat is not None
    assert ok is not None
    rows, count = shapes.size(lead), shapes.size(block)
    rest = shapes.shape(cotangent)[len(block) :]
    place = alu.where(ok, flat, dim_uop(rows))
    places = movement.reshape(movement.expand(place, block), (count,))
    zeros = leaves.full(leaves.const(cotangent.dtype, 0), (rows, *rest))
    values = movement.reshape(cotangent, (count, *rest))
    return movement.reshape(scatter(zeros, places, values, Ops.ADD), (*lead, *rest))


def _ungated(index: UOp) -> tuple[UOp, UOp | None]:
    """Split a guarded index into the index and its guard."""
    guard: UOp | None = None
    while index.op is Ops.WHERE and index.src[2].op is Ops.INVALID:
        guard = index.src[0] if guard is None else index.src[0] & guard
        index = index.src[1]
    return index, guard
