"""Access maps: from an index into a movement op to the index into its source.

An index is a tuple of UOps of dtype index in normal form, one per dimension. A guard is a bool UOp:
where the guard is false there is no access (in a PAD, outside of the source).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from uopc.ir.builder import alu, lookup_tables
from uopc.ir.core import bounds, dtypes, ranges, shapes, walk
from uopc.ir.core.arena import memo
from uopc.ir.core.args import RangeArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.shapes import Dim, Shape
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare
from uopc.ir.index.dims import dim_uop

Index = tuple["UOp", ...]


@functools.cache
def true() -> UOp:
    return intern(Ops.CONST, dtypes.bool_, (), True)


def both(a: UOp, b: UOp) -> UOp:
    """The conjunction of two guards, folded."""
    return a if a is b else alu.alu(a, Ops.AND, b)


def guard_at(index: Index, guard: UOp) -> UOp:
    """Drop conditions on loops that the index does not use: the index is inside either way. So the
    sum of a row is the same value in all columns, also in padding."""
    conditions = walk.flatten(guard)
    moving = frozenset[UOp]().union(*[ranges.ranges(x) for x in index])
    kept = [c for c in conditions if not _is_of_others(c, moving)]
    return guard if len(kept) == len(conditions) else functools.reduce(both, kept, true())


def _is_of_others(condition: UOp, loops: frozenset[UOp]) -> bool:
    """True for a condition on other loops only, and on no variable."""
    own = ranges.ranges(condition)
    if not own or not own.isdisjoint(loops):
        return False
    return all([u.op is not Ops.VARIABLE for u in walk.toposort(condition)])


def broadcast_index(index: Index, dims: Shape) -> Index:
    """The index into an operand of shape `dims` that broadcasts to the indexed value."""
    kept = index if len(index) == len(dims) else index[len(index) - len(dims) :]
    if 1 not in dims:
        return kept
    first = affine.const(0)
    made = tuple([first if d == 1 else x for d, x in zip(dims, kept)])
    return index if made == index else made


def resized_indices(u: UOp, index: Index) -> list[Index]:
    """The indices of the source elements that form an element of a BITCAST: one element, a part of
    one, or several neighbours."""
    source, target = u.src[0].dtype.itemsize, u.dtype.itemsize
    if source == target:
        return [index]
    if source > target:
        return [(*index[:-1], affine.divmod_(index[-1], affine.const(source // target))[0])]
    count = target // source
    first = affine.mul(index[-1], affine.const(count))
    return [(*index[:-1], affine.plus(first, i)) for i in range(count)]


@memo
def loop_index(dims: Shape, first: int = 0) -> tuple[Index, tuple[UOp, ...]]:
    """The index of a stored value and its ranges, one per axis longer than 1.

    `first`: the first axis number, for a second nest in one kernel.
    """
    index: list[UOp] = []
    for i, d in enumerate(dims, first):
        loop = (Ops.RANGE, dtypes.index, (dim_uop(d),), RangeArg((0, i)))
        index.append(affine.const(0) if d == 1 else intern(*loop))
    return tuple(index), tuple([x for x in index if x.op is Ops.RANGE])


def reduce_index(u: UOp, index: Index, axes: Iterator[int]) -> tuple[Index, tuple[UOp, ...]]:
    """The index into the source of a REDUCE, and its ranges, one per reduced axis."""
    rest = iter(index)
    out: list[UOp] = []
    made: list[UOp] = []
    for i, d in enumerate(shapes.shape(u.src[0])):
        if i not in u.arg.axes:
            out.append(next(rest))
            continue
        arg = RangeArg((next(axes),), "reduce")
        made.append(intern(Ops.RANGE, dtypes.index, (dim_uop(d),), arg))
        out.append(made[-1])
    return tuple(out), tuple(made)


def gather_index(u: UOp, index: Index) -> tuple[Index, Index]:
    """The index into a gather in two parts: for its index operands, and for the remaining
    dimensions."""
    rank = len(index) - (len(shapes.shape(u.src[0])) - (len(u.src) - 1))
    return index[:rank], index[rank:]


def cut_in_parts(u: UOp) -> tuple[int, list[tuple[UOp, Dim, Dim]]]:
    """The axis of a STACK or CAT, and each source with its begin and length along the axis."""
    axis: int = 0 if u.op is Ops.STACK else u.arg
    found = []
    end: Dim = 0
    for s in u.src:
        begin, length = end, 1 if u.op is Ops.STACK else shapes.shape(s)[axis]
        found.append((s, begin, length))
        end = begin + length
    return axis, found


def source_index(u: UOp, index: Index) -> tuple[Index, UOp | None]:
    """The index into the source of a movement op, and a guard or None. A PAD adds a guard, and so
    does a SHRINK by variables that may leave its source."""
    return _MOVEMENT[u.op](u, index)


def reshape_index(outer: Shape, inner: Shape, index: Index) -> Index:
    """Flatten an index over `outer` and split it over `inner`, by matching groups of dimensions."""
    if [d for d in outer if d != 1] == [d for d in inner if d != 1]:
        rest = iter([x for d, x in zip(outer, index) if d != 1])
        return tuple([affine.const(0) if d == 1 else next(rest) for d in inner])
    if shapes.renamed_axis(outer, inner) is not None:  # sizes that are equal at each call
        return tuple([affine.const(0) if d == 1 else x for d, x in zip(inner, index)])
    return _reshaped(outer, inner, index)


@memo
def _reshaped(outer: Shape, inner: Shape, index: Index) -> Index:
    result: list[UOp] = []
    for o_dims, o_index, i_dims in _groups(outer, inner, index):
        result += _regroup(o_dims, o_index, i_dims)
    return tuple([lookup_tables.looked_up(x) for x in result])


def _groups(outer: Shape, inner: Shape, index: Index) -> list[tuple[Shape, Index, Shape]]:
    """Cut both shapes into groups of dimensions with equal products."""
    groups = []
    o = i = 0
    while o < len(outer) or i < len(inner):
        first_o, first_i = o, i
        p: Dim = 1
        q: Dim = 1
        if o < len(outer):
            p, o = outer[o], o + 1
        if i < len(inner):
            q, i = inner[i], i + 1
        while p != q:
            grow_outer = bounds.max_dim(p) < bounds.max_dim(q)
            if (grow_outer and o < len(outer)) or i == len(inner):
                if o == len(outer):
                    break
                p, o = p * outer[o], o + 1
            else:
                q, i = q * inner[i], i + 1
        if o == len(outer) or i == len(inner):  # trailing ones, or shapes that only match whole
            o, i = len(outer), len(inner)
        groups.append((outer[first_o:o], index[first_o:o], inner[first_i:i]))
    return groups


def _regroup(outer: Shape, index: Index, inner: Shape) -> list[UOp]:
    live = [(d, x) for d, x in zip(outer, index) if d != 1]
    flat = flat_index(tuple([d for d, _ in live]), [x for _, x in live])
    rest = iter(_unflatten(flat, [d for d in inner if d != 1]))
    return [affine.const(0) if d == 1 else next(rest) for d in inner]


def flat_index(dims: Shape, index: list[UOp] | Index) -> UOp:
    """The row-major position of an index."""
    flat, stride = affine.const(0), affine.const(1)
    for d, x in zip(reversed(dims), reversed(index)):
        flat = affine.add(flat, x if stride.arg == 1 else affine.mul(x, stride))
        stride = dim_uop(d) if stride.arg == 1 else affine.mul(stride, dim_uop(d))
    return flat


def _unflatten(flat: UOp, dims: list[Dim]) -> list[UOp]:
    out: list[UOp] = []
    for d in reversed(dims[1:]):
        flat, last = affine.divmod_(flat, dim_uop(d))
        out.append(last)
    return ([flat] if dims else []) + out[::-1]


def _flip(u: UOp, index: Index) -> tuple[Index, UOp | None]:
    dims = shapes.shape(u)
    last = [affine.sub(affine.plus(dim_uop(d), -1), x) for d, x in zip(dims, index)]
    return tuple([last[i] if i in u.arg else x for i, x in enumerate(index)]), None


def _shrink(u: UOp, index: Index) -> tuple[Index, UOp | None]:
    begins, sizes = shapes.window(u)
    inner = shapes.shape(u.src[0])
    moved = tuple([affine.add(x, dim_uop(b)) for x, b in zip(index, begins)])
    guard = true()
    for x, b, size, d in zip(moved, begins, sizes, inner):
        if not (type(b) is int and type(size) is int and type(d) is int):
            guard = both(guard, compare.less(affine.const(-1), x))
            guard = both(guard, compare.less(x, dim_uop(d)))
    return moved, None if guard is true() else guard


@memo
def _padded(begins: Shape, dims: Shape, index: Index) -> tuple[Index, UOp]:
    guard = true()
    source = []
    for x, b, d in zip(index, begins, dims):
        moved = affine.sub(x, dim_uop(b))
        guard = both(guard, compare.less(affine.const(-1), moved))
        guard = both(guard, compare.less(moved, dim_uop(d)))
        source.append(moved)
    return tuple(source), guard


_SAME = (Ops.DETACH, Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.AFTER, Ops.STAGE)
_MOVEMENT: dict[Op, Callable[[UOp, Index], tuple[Index, UOp | None]]] = {
    Ops.RESHAPE: lambda u, x: (reshape_index(shapes.shape(u), shapes.shape(u.src[0]), x), None),
    Ops.EXPAND: lambda u, x: (broadcast_index(x, shapes.shape(u.src[0])), None),
    Ops.PERMUTE: lambda u, x: (tuple([x[u.arg.index(i)] for i in range(len(x))]), None),
    Ops.FLIP: _flip,
    Ops.SHRINK: _shrink,
    Ops.PAD: lambda u, x: _padded(shapes.window(u)[0], shapes.shape(u.src[0]), x),
    **dict.fromkeys(_SAME, lambda u, x: (x, None)),
}


def gated(index: Index, guard: UOp) -> Index:
    """The index with its first component INVALID where the guard is false."""
    if guard.op is Ops.CONST and guard.arg is True:
        return index
    first = index[0] if index else affine.const(0)
    invalid = intern(Ops.INVALID, first.dtype.scalar)
    lanes = max(first.dtype.lanes, guard.dtype.lanes)
    guarded = intern(Ops.WHERE, first.dtype.scalar.vec(lanes), (guard, first, invalid))
    return (guarded, *index[1:])


def ungated(index: UOp) -> tuple[UOp, UOp | None]:
    """An index component without its guard, and the guard or None."""
    guard: UOp | None = None
    while index.op is Ops.WHERE and index.src[2].op is Ops.INVALID:
        guard = index.src[0] if guard is None else both(guard, index.src[0])
        index = index.src[1]
    if index.op is Ops.INVALID:  # a guard that never holds
        return affine.const(0), intern(Ops.CONST, dtypes.bool_, (), False)
    return index, guard


def plain_index(index: Index, guard: UOp) -> tuple[Index, UOp]:
    """The components without guards, and `guard` joined with all of them."""
    plain: list[UOp] = []
    for component in index:
        x, condition = ungated(component)
        plain.append(x)
        guard = guard if condition is None else both(guard, condition)
    return tuple(plain), guard
