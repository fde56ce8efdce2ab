"""The value of a node, in NumPy, from the values of its operands.

Constant folding, lookup tables, the check of the rules, and the reference interpreter all use it.
The row of an elementwise op defines it (`Op.evaluate`); this module adds constants, conversions,
movement, reductions, and a mask of elements with a value (INVALID has none).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.ir.core import dtypes, semantics, shapes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp

Array = npt.NDArray[Any]

# Ops that NumPy and every backend compute to the same bits.
EXACT = frozenset((
    Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.ABS, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR,
    Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE, Ops.WHERE, Ops.CAST,
))  # fmt: skip


# ---------------------------------------------------------------- scalar graphs
def evaluate(root: UOp, leaves: Mapping[UOp, Array]) -> tuple[Array, Array]:
    """The values of a scalar graph at many points, and a mask of the points with a value.

    `leaves`: the values of nodes at these points. Every other leaf must be a CONST or INVALID.
    """
    values: dict[UOp, Array] = {}
    masks: dict[UOp, Array | None] = {}
    with np.errstate(all="ignore"):
        for u in walk.toposort(root):
            masks[u] = None
            if u in leaves:
                values[u] = leaves[u].astype(u.dtype.numpy)
            elif u.op is Ops.INVALID:
                values[u], masks[u] = np.zeros((), u.dtype.numpy), np.array(False)
            else:
                sources = [values[s] for s in u.src]
                values[u] = compute(u, sources)
                masks[u] = present(u, [masks[s] for s in u.src], sources)
    exists = masks[root]
    return values[root], np.array(True) if exists is None else exists


# ---------------------------------------------------------------- one node
def compute(u: UOp, sources: Sequence[Array]) -> Array:
    """The value of a constant, an elementwise node, a conversion, a movement op, a STACK or a CAT.

    `sources` have the shapes and dtypes of the operands, and the result has those of `u`. The
    sources of elementwise nodes may also broadcast. Dimensions must be plain integers.
    """
    if u.op is Ops.CONST:
        return np.asarray(u.arg, u.dtype.numpy)
    if u.op is Ops.DATA:
        return np.asarray(u.arg.array)
    if u.op is Ops.STACK or u.op is Ops.CAT:
        return join(u, sources)
    return move(u, sources[0]) if u.op.movement else elementwise(u, sources)


_ACCUMULATED: dict[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def elementwise(u: UOp, sources: Sequence[Array]) -> Array:
    """The value of an elementwise node, a CAST or a BITCAST."""
    if u.op is Ops.CAST:
        return np.asarray(semantics.cast(sources[0], u.src[0].dtype, u.dtype))
    if u.op is Ops.BITCAST:
        return bitcast(sources[0], u.dtype.numpy)
    assert u.op.evaluate is not None
    if any(s.op is Ops.INVALID for s in u.src):
        sources = _without_invalid(u, sources)
    return np.asarray(u.op.evaluate(*sources)).astype(u.dtype.numpy, copy=False)


def _without_invalid(u: UOp, sources: Sequence[Array]) -> list[Array]:
    """The sources, with a placeholder for INVALID in the dtype of the other operand."""
    typed = [s.dtype for s in u.src[u.op is Ops.WHERE :] if s.op is not Ops.INVALID]
    t = typed[0].numpy if typed else u.dtype.numpy
    return [a.astype(t) if s.op is Ops.INVALID else a for s, a in zip(u.src, sources)]


def present(u: UOp, masks: Sequence[Array | None], sources: Sequence[Array]) -> Array | None:
    """A mask of the elements of an elementwise node that exist, from its operands' masks (None:
    all).

    Arithmetic on a missing element is missing; WHERE reads only the operand that its condition
    picks.
    """
    if all(m is None for m in masks):
        return None
    known = [np.True_ if m is None else m for m in masks]
    if u.op is Ops.WHERE:
        return np.asarray(known[0] & np.where(sources[0], known[1], known[2]))
    out = np.asarray(known[0])
    for m in known[1:]:
        out = out & m
    return out


def bitcast(a: Array, dtype: np.dtype[Any]) -> Array:
    """The bytes of `a` as another type; another item size changes the length of the last axis."""
    if a.ndim == 0:
        return np.asarray(a).reshape(1).view(dtype).reshape(())
    if a.size == 0:
        length = a.shape[-1] * a.dtype.itemsize // dtype.itemsize
        return np.zeros((*a.shape[:-1], length), dtype)
    return np.ascontiguousarray(a).view(dtype)


# ---------------------------------------------------------------- movement
def move(u: UOp, a: Array, symbolic: Sequence[int] = (), fill: int = 0) -> Array:
    """The elements of `a` that a movement op, a SLICE or a BITCAST shows, where possible as a view.

    `symbolic`: the values of symbolic dimensions. `fill`: the value where PAD, or SHRINK by
    variables, reaches out of `a`.
    """
    if u.op is Ops.BITCAST:
        return bitcast(a, u.dtype.numpy)
    if u.op is Ops.PERMUTE:
        return a.transpose(u.arg)
    if u.op is Ops.FLIP:
        return np.flip(a, u.arg)
    if type(u.arg) is not tuple:  # DETACH and the like move nothing
        return a
    dims: Sequence[int] = shapes.with_dims(u.arg, symbolic)  # type: ignore[arg-type]
    if u.op is Ops.RESHAPE:
        return a.reshape(dims)
    if u.op is Ops.EXPAND:
        return np.broadcast_to(a, dims)
    if u.op is Ops.SLICE:
        return a.reshape(-1)[dims[0] : dims[0] + dims[1]]
    begins, sizes = dims[: a.ndim], dims[a.ndim :]
    return _window(a, [-b for b in begins] if u.op is Ops.PAD else begins, sizes, fill)


def _window(a: Array, begins: Sequence[int], sizes: Sequence[int], fill: int) -> Array:
    """The window of `a` with these begins and sizes; `fill` where `a` has no element."""
    inside = [range(max(b, 0), min(b + s, d)) for b, s, d in zip(begins, sizes, a.shape)]
    part = a[tuple([slice(r.start, max(r.start, r.stop)) for r in inside])]
    if part.shape == tuple(sizes):
        return part
    out = np.full(sizes, fill, a.dtype)
    shifts = [r.start - b for r, b in zip(inside, begins)]
    out[tuple([slice(at, at + n) for at, n in zip(shifts, part.shape)])] = part
    return out


def join(u: UOp, parts: Sequence[Array]) -> Array:
    """The value of a STACK, which adds a first dimension, or of a CAT along the axis arg."""
    return np.stack(parts) if u.op is Ops.STACK else np.concatenate(parts, axis=u.arg)


# ---------------------------------------------------------------- reductions
def fold(op: str, a: Array, axes: Sequence[int], dtype: DType) -> Array:
    """Combine the elements along `axes` in pairs, halves with halves, in the dtype of `a`; narrow
    floats in float32, converted at the end as by CAST."""
    if dtype.is_float and dtype.bits < 32:
        wide = fold(op, a.astype(np.float32), axes, dtypes.float32)
        return semantics.cast(wide, dtypes.float32, dtype)
    axes = [axis % a.ndim for axis in axes]
    kept = [i for i in range(a.ndim) if i not in axes]
    dims = [a.shape[i] for i in kept]
    count = int(np.prod([a.shape[i] for i in axes], dtype=np.int64))
    if count == 0 or 0 in dims:
        return np.full(dims, identity(op, dtype))
    rest = np.ascontiguousarray(a.transpose([*axes, *kept])).reshape(count, *dims)
    while len(rest) > 1:
        half = len(rest) // 2
        odd = rest[2 * half :]
        rest = combine(op, rest[:half], rest[half : 2 * half], dtype)
        rest = np.concatenate([rest, odd]) if len(odd) else rest
    return np.asarray(rest[0])


def accumulate(op: str, a: Array, axis: int, dtype: DType) -> Array:
    """Combine the elements up to each along an axis, in order; narrow floats in float32, converted
    at the end as by CAST."""
    if dtype.is_float and dtype.bits < 32:
        wide = accumulate(op, a.astype(np.float32), axis, dtypes.float32)
        return semantics.cast(wide, dtypes.float32, dtype)
    function = _ACCUMULATED[op]
    return np.asarray(function.accumulate(a, axis=axis, dtype=a.dtype))


def combine(op: str, a: Array, b: Array, dtype: DType) -> Array:
    """One step of a reduction: `op` on two arrays, in `dtype`."""
    function = Op.by_name(op).evaluate
    assert function is not None
    return np.asarray(function(a, b)).astype(dtype.numpy, copy=False)


def identity(op: str, dtype: DType) -> Array:
    """The value of a reduction over nothing, as a 0-d array of the dtype."""
    return np.asarray(semantics.reduce_identity(op, dtype.scalar), dtype.numpy)
