"""The support of a value: where it is not zero by structure; and factors that may be infinite.

    where(c, a, 0)              where c holds
    pad, cat, stack, gathers    where their parts are
    a + b                       where a or b is
    sums along axes             where one of the terms is

A tangent that is zero by structure stays zero, whatever its factor: the derivative of a function
that was not chosen may be infinite or NaN.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.derivatives import gather
from uopc.ir.builder import alu, leaves, movement, operands
from uopc.ir.core import calls, dtypes, shapes
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.tensor.scatter import scatter

# A bool in the shape of the value; True: everywhere; False: nowhere.
Support = UOp | bool
_SAME = frozenset((
    Ops.NEG, Ops.CAST, Ops.CONTIGUOUS, Ops.COPY, Ops.STAGE, Ops.BIND, Ops.CONTIGUOUS_BACKWARD,
    Ops.DETACH,
))  # fmt: skip
_VIEWS = frozenset((Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.FLIP, Ops.SHRINK))
_PARTS = frozenset((Ops.STACK, Ops.CAT))
# Finite for finite operands, unless a single step overflows.
_TAME = frozenset((
    Ops.ADD, Ops.SUB, Ops.MUL, Ops.MULACC, Ops.NEG, Ops.ABS, Ops.MAX, Ops.MIN, Ops.SIN, Ops.COS,
    Ops.TANH, Ops.ERF, Ops.FLOOR, Ops.CEIL, Ops.ROUND, Ops.TRUNC, Ops.WHERE, Ops.CAST, Ops.STACK,
    Ops.CAT, Ops.INDEX, *_SAME, *_VIEWS, Ops.PAD,
))  # fmt: skip
_COMBINED = frozenset((Ops.REDUCE, Ops.ACCUMULATE, Ops.FDIV))
_STATIC = frozenset((Ops.CONST, Ops.DATA, Ops.IOTA))
_LOGIC = frozenset((Ops.AND, Ops.OR, Ops.XOR, Ops.WHERE))
_MOST_STATIC = 1 << 22  # the most elements of all values for evaluating a constant mask
_LONG = 8  # the most nodes of a constant mask that is kept as a graph


# ---------------------------------------------------------------- zeros
def is_zero(u: UOp) -> bool:
    """True if all elements of a value are zero by its structure: moved and joined constants."""
    left = [u]
    while left:
        v = left.pop()
        if v.op is Ops.CONST:
            if type(v.arg) is tuple or v.arg != 0:
                return False
        elif v.op is Ops.DATA:
            array = v.arg.array
            if array.size and (array.flat[0] != 0 or array.any()):
                return False
        elif v.op in _PARTS:
            left += v.src
        elif v.op is Ops.WHERE:
            left += v.src[1:]
        elif v.op in _SAME or v.op.movement or v.op is Ops.INDEX or _is_sum(v):
            left.append(v.src[0])
        else:
            return False
    return True


def _is_sum(u: UOp) -> bool:
    return u.op is Ops.REDUCE and u.arg.op == "add" and len(u.src) == 1


# ---------------------------------------------------------------- factors
_known_tame: weakref.WeakKeyDictionary[UOp, bool] = weakref.WeakKeyDictionary()


def is_tame(factor: UOp) -> bool:
    """True if a factor is finite wherever its inputs are finite, so that zero times the factor is
    zero."""
    nodes = calls.graph_order([factor], _sources, _known_tame.__contains__)
    for u in nodes:
        if u not in _known_tame:
            _known_tame[u] = _is_tame_op(u) and all([_known_tame[s] for s in _sources(u)])
    return _known_tame[factor]


def _is_tame_op(u: UOp) -> bool:
    """True if an op gives finite results for finite operands."""
    if u.op in _TAME or not u.dtype.is_float:
        return True
    if u.op is Ops.FDIV:
        return _is_number(u.src[1])
    if u.op is Ops.REDUCE or u.op is Ops.ACCUMULATE:
        return bool(u.arg.op != "mul")
    if u.op is Ops.CONST or u.op is Ops.DATA:
        return bool(np.isfinite(u.arg).all()) if u.op is Ops.CONST else True
    return not u.op.is_alu and u.op not in (Ops.PRIMITIVE, Ops.GETTUPLE)


def _is_number(u: UOp) -> bool:
    found = leaves.constant_in(u)
    return found is not None and found.arg != 0


def _sources(u: UOp) -> Sequence[UOp]:
    """The float operands that a float is computed from."""
    if not u.dtype.is_float or (u.op not in _TAME and u.op not in _COMBINED):
        return ()
    return [s for s in u.src if s.dtype.is_float]


# ---------------------------------------------------------------- masks
_known: weakref.WeakKeyDictionary[UOp, Support] = weakref.WeakKeyDictionary()


def support(value: UOp) -> Support:
    """A bool in the shape of a value, False where the value is zero by its structure."""
    for u in calls.graph_order([value], _masked_operands, _known.__contains__):
        if u not in _known:
            _known[u] = _of(u)
    found = _known[value]
    if not isinstance(found, bool):
        _known[value] = found = _evaluated(found)
    return found


def _masked_operands(u: UOp) -> Sequence[UOp]:
    """The operands whose masks determine the mask of a node."""
    op = u.op
    if op in _SAME or op in _VIEWS or op is Ops.PAD or op is Ops.MUL or op is Ops.INDEX:
        return u.src[:1]
    if op in _PARTS or op is Ops.ADD or op is Ops.SUB:
        return u.src
    if op is Ops.WHERE:
        return u.src[1:]
    if _is_sum(u) or (op is Ops.ACCUMULATE and u.arg.op == "add"):
        return u.src[:1]
    if op is Ops.PRIMITIVE:
        name = u.arg.name
        if name == "branches":
            return u.src[:1]
        if name in ("scatter_add", "scatter_set"):
            return u.src[1], u.src[3]
    return ()


def _of(u: UOp) -> Support:
    op = u.op
    if op is Ops.CONST:
        return type(u.arg) is tuple or u.arg != 0
    if not u.dtype.is_float:
        return _of_bits(u)
    below = [_known[s] for s in _masked_operands(u)]
    if op in _SAME:
        if op is Ops.CAST and not u.src[0].dtype.is_float:
            return _of_bits(u)
        return below[0]
    if op in _VIEWS:
        return _moved(u, below[0])
    if op is Ops.MUL:
        return _fitted(below[0], u)
    if op is Ops.WHERE:
        return _support_of_choice(u, *below)
    if op is Ops.ADD or op is Ops.SUB:
        return _either([_fitted(s, u) for s in below])
    if op is Ops.PAD:
        return _padded(u, below[0])
    if op in _PARTS:
        return _support_of_parts(u, below)
    if op is Ops.INDEX:
        return _support_read(u, below[0])
    if op is Ops.REDUCE and below:
        return _summed(u, below[0])
    if op is Ops.ACCUMULATE and below:
        return _accumulated(u, below[0])
    if op is Ops.PRIMITIVE and below:
        return below[0] if u.arg.name == "branches" else _scattered(u, *below)
    return True


def _of_bits(u: UOp) -> Support:
    """The support of a bool cast to float: the bool."""
    if u.op is Ops.CAST and u.src[0].dtype is dtypes.bool_:
        return u.src[0]
    return True


def _full(s: Support, dims: shapes.Shape) -> UOp:
    """Expand a mask to this shape."""
    if isinstance(s, bool):
        return leaves.full(leaves.const(dtypes.bool_, s), dims)
    return s if shapes.shape(s) == dims else movement.expand(s, dims)


def _fitted(s: Support, u: UOp) -> Support:
    """Expand the mask of an operand to the shape of the result."""
    return s if isinstance(s, bool) else _full(s, shapes.shape(u))


def _either(parts: Sequence[Support]) -> Support:
    found: Support = False
    for s in parts:
        if s is True or found is True:
            return True
        if s is False or s is found:
            continue
        found = s if isinstance(found, bool) else alu.alu(found, Ops.OR, s)
    return found


def _both(a: Support, b: Support) -> Support:
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return a if a is b else alu.alu(a, Ops.AND, b)


def _moved(u: UOp, s: Support) -> Support:
    if isinstance(s, bool):
        return s
    return intern(u.op, s.dtype, (_full(s, shapes.shape(u.src[0])), *u.src[1:]), u.arg)


def _support_of_choice(u: UOp, a: Support, b: Support) -> Support:
    condition, dims = u.src[0], shapes.shape(u)
    if a is b and isinstance(a, bool):
        return a
    wide = _full(condition, dims)
    if b is False:
        return _both(wide, _fitted(a, u))
    if a is False:
        return _both(alu.alu(wide, Ops.XOR, leaves.const(dtypes.bool_, True)), _fitted(b, u))
    return alu.where(wide, _full(a, dims), _full(b, dims))


def _padded(u: UOp, s: Support) -> Support:
    if s is False:
        return False
    return intern(Ops.PAD, dtypes.bool_, (_full(s, shapes.shape(u.src[0])), *u.src[1:]), u.arg)


def _support_of_parts(u: UOp, parts: Sequence[Support]) -> Support:
    if all([isinstance(s, bool) for s in parts]) and len(set(parts)) == 1:
        return parts[0]
    masks = [_full(s, shapes.shape(v)) for s, v in zip(parts, u.src)]
    return movement.stack(*masks) if u.op is Ops.STACK else movement.cat(*masks, axis=u.arg)


def _support_read(u: UOp, s: Support) -> Support:
    """True where the index is valid and the element that it reads is not zero."""
    if s is False:
        return False
    found: Support = True
    if not isinstance(s, bool):
        found = movement.index(s, *u.src[1:])
    dims = shapes.shape(u)
    rank = len(shapes.shape(u.src[0])) - (len(u.src) - 1)
    for index in u.src[1:]:
        while index.op is Ops.WHERE and index.src[2].op is Ops.INVALID:
            guard = index.src[0]
            wide = movement.reshape(guard, (*shapes.shape(guard), *(1,) * rank))
            found = _both(found, _full(wide, dims))
            index = index.src[1]
    return found


def _summed(u: UOp, s: Support) -> Support:
    """True where a term may be nonzero. Masks of matrix products only count along axes where they
    are the same for all terms."""
    if isinstance(s, bool):
        return s
    axes = [i for i in u.arg.axes if not _is_same_along(s, i)]
    dims = shapes.shape(u.src[0])
    windows = [(0, 1) if i in u.arg.axes and i not in axes else (0, d) for i, d in enumerate(dims)]
    once = _shrunk(s, windows)
    if axes and _is_product(u.src[0]):
        return True
    kept = tuple([d for i, d in enumerate(dims) if i not in u.arg.axes])
    return movement.reshape(_any(once, axes), kept) if axes else movement.reshape(once, kept)


def _is_product(u: UOp) -> bool:
    """True for a product of two repeated values, such as the terms of a matrix product."""
    if u.op is not Ops.MUL:
        return False
    return all([_is_repeated(s, shapes.shape(u)) for s in u.src])


def _is_repeated(u: UOp, dims: shapes.Shape) -> bool:
    if shapes.shape(u) != dims:
        return True
    while u.op in (Ops.RESHAPE, Ops.PERMUTE):
        u = u.src[0]
    return u.op is Ops.EXPAND


def _is_same_along(s: UOp, axis: int) -> bool:
    """True if the structure of a mask shows that it is constant along an axis."""
    while True:
        dims = shapes.shape(s)
        if dims[axis] == 1:
            return True
        if s.op is Ops.EXPAND:
            inner = shapes.shape(s.src[0])
            axis -= len(dims) - len(inner)
            if axis < 0 or inner[axis] == 1:
                return True
            s = s.src[0]
        elif s.op is Ops.PERMUTE:
            s, axis = s.src[0], s.arg[axis]
        elif s.op is Ops.FLIP:
            s = s.src[0]
        elif s.op in (Ops.PAD, Ops.SHRINK):
            if shapes.shape(s.src[0])[axis] != dims[axis]:
                return False
            s = s.src[0]
        elif s.op is Ops.RESHAPE:
            inner, sides = shapes.shape(s.src[0]), _sides(dims, axis)
            same = [i for i in range(len(inner)) if _sides(inner, i) == sides]
            if not same:
                return False
            s, axis = s.src[0], same[0]
        elif s.op in (Ops.AND, Ops.OR, Ops.XOR):
            return all([_is_same_along(_full(v, dims), axis) for v in s.src])
        else:
            return s.op is Ops.CONST


def _sides(dims: shapes.Shape, axis: int) -> tuple[shapes.Dim, shapes.Dim, shapes.Dim]:
    """The length of an axis, and the numbers of elements before and after it."""
    return shapes.size(dims[:axis]), dims[axis], shapes.size(dims[axis + 1 :])


def _shrunk(s: UOp, windows: Sequence[tuple[int, shapes.Dim]]) -> UOp:
    if all([w == (0, d) for w, d in zip(windows, shapes.shape(s))]):
        return s
    return movement.shrink(s, windows)


def _any(s: UOp, axes: Sequence[int]) -> UOp:
    """True where any bool along the axes is True."""
    made = movement.reduce(s.cast(dtypes.int32), "max", tuple(axes), keepdims=True)
    return alu.binary(Ops.CMPLT, 0, made)


def _accumulated(u: UOp, s: Support) -> Support:
    if isinstance(s, bool):
        return s
    made = intern(
        Ops.ACCUMULATE, dtypes.int32, (s.cast(dtypes.int32),), ReduceArg("max", u.arg.axes)
    )
    return alu.binary(Ops.CMPLT, 0, leaves.located(made))


def _scattered(u: UOp, a: Support, rows: Support) -> Support:
    """The support of rows that are set or added at indices."""
    if a is True:
        return True
    base = _full(a, shapes.shape(u)).cast(dtypes.int32)
    mask = leaves.const(dtypes.int32, int(rows is not False))
    if not isinstance(rows, bool):
        mask = rows.cast(dtypes.int32)
    op = Ops.MAX if u.arg.name == "scatter_add" else None
    return alu.binary(Ops.CMPLT, 0, scatter(base, u.src[2], mask, op))


def _evaluated(mask: UOp) -> Support:
    """Evaluate a mask of constants: a bool if it is the same everywhere, an array if its graph is
    long. Other masks stay."""
    nodes = list(mask.toposort())
    static = all([
        u.op in _STATIC or u.op.is_alu or u.op.movement or u.op in (Ops.CAST, *_PARTS)
        for u in nodes
    ])  # fmt: skip
    dims = [shapes.shape(u) for u in nodes]
    if not static or not all([isinstance(d, int) for row in dims for d in row]):
        return mask
    if sum([math.prod(row) for row in dims]) > _MOST_STATIC:
        return mask if len(nodes) <= _LONG else True
    found = np.asarray(_array(nodes), np.bool_)
    if found.all() or not found.any():
        return bool(found.all())
    if len(nodes) <= _LONG:
        return mask
    return operands.constant(np.ascontiguousarray(np.broadcast_to(found, shapes.shape(mask))))


def _array(nodes: Sequence[UOp]) -> npt.NDArray[Any]:
    """Evaluate the last of these nodes, which depend on constants only and come sources first."""
    known: dict[UOp, npt.NDArray[Any]] = {}
    for u in nodes:
        src = [known[s] for s in u.src]
        if u.op is Ops.CONST:
            known[u] = np.asarray(u.arg)
        elif u.op is Ops.DATA:
            known[u] = u.arg.array
        elif u.op.movement:
            known[u] = gather.rearranged(src[0], u, False)
        elif u.op is Ops.STACK:
            known[u] = np.stack(src)
        elif u.op is Ops.CAT:
            known[u] = np.concatenate(src, axis=u.arg)
        elif u.op in _LOGIC and u.op.evaluate is not None:
            known[u] = np.asarray(u.op.evaluate(*src))
        else:
            return gather.evaluated(nodes[-1])
    return known[nodes[-1]]
