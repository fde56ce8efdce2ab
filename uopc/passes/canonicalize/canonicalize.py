"""Bring a tensor graph to one form: no-ops vanish, empty values become constants.

Before (tensor)                          After (tensor)
  %1 = param x : f32[0, 4]                 %1 = expand 0.0:f32 (4,) : f32[4]
  %2 = reduce.add %1 axes=(0,) : f32[4]    %2 = param y : f32[4]
  %3 = param y : f32[4]                    %3 = add %1, %2 : f32[4]
  %4 = detach %3 : f32[4]                  sink %3
  %5 = add %2, %4 : f32[4]
  sink %5

DETACH and CONTIGUOUS_BACKWARD vanish, adjacent movement ops merge, a window in one part of a
STACK, CAT or PAD is one of that part, a reduce over nothing is its identity, a reduce of terms
that repeat is computed once, and clips that a conversion makes anyway vanish.
"""

from __future__ import annotations

from uopc.ir.builder import fold, leaves, movement, rebuild
from uopc.ir.builder.programs import Slots
from uopc.ir.core import dtypes, semantics, shapes
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.calls import is_length
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import base
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.user_opts import has_opts
from uopc.passes.canonicalize.inline_functions import FunctionCalls
from uopc.passes.canonicalize.needless_clips import without_needless_clips
from uopc.passes.canonicalize.repeated_terms import without_repeats
from uopc.passes.canonicalize.stores import (
    after_below_bitcasts,
    store_below_bitcasts,
    without_needless_stores,
)  # fmt: skip
from uopc.passes.contract import Context


def canonicalize(graph: UOp, context: Context) -> UOp:
    """One walk, sources first."""

    graph = without_needless_clips(graph) if context.optimize else graph
    plain: set[UOp] = set()  # AFTERs without a BITCAST below
    slots = Slots(graph)
    calls = FunctionCalls(context.schedule, slots, context.sharding)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op in (Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.BIND):
            return src[is_length(u)]
        if u.op is Ops.REDUCE:
            return _reduce(u, src[0])
        if u.op is Ops.GETTUPLE:
            return calls.value(u, src[0])
        if u.op is Ops.STORE:
            src = (src[0], _known_value(src[1]), *src[2:])
            return store_below_bitcasts(u, src, plain)
        if u.op is Ops.AFTER:
            return after_below_bitcasts(u, src, plain)
        return _simpler(u, src)

    return without_needless_stores(rebuild.rewritten(graph, change, outside_kernels=True))


def _simpler(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """A shorter node for a value, which follows from its operands alone."""
    if u.op is Ops.RESHAPE and src[0].op is Ops.RESHAPE and not _renames(u, src[0]):
        return movement.reshape(src[0].src[0], shapes.shape(u))
    if u.op in (Ops.COPY, Ops.CONTIGUOUS) and src[0].op is Ops.CONST and not has_opts(u):
        return src[0]
    if u.op is Ops.CAT:
        return _without_empty_parts(u, src)
    if u.op is Ops.SHRINK and 0 not in shapes.shape(u):
        return movement.part_of(src[0], *shapes.window(u))
    return _emptied(u, src) if u.op.movement or u.op.is_alu else None


def _renames(*reshapes: UOp) -> bool:
    """True if a RESHAPE relies on two sizes being equal, which keeps the index of each axis."""
    return any([
        shapes.renamed_axis(shapes.shape(r.src[0]), shapes.shape(r)) is not None for r in reshapes
    ])  # fmt: skip


def _known_value(v: UOp) -> UOp:
    """after x, (store x, invalid)  →  invalid, where it is read"""
    view = base(v)
    if view.op is not Ops.AFTER or len(view.src) != 2:
        return v
    shown, effect = view.src
    if effect.op is not Ops.STORE or effect.src[0] is not shown:
        return v
    if base(effect.src[1]).op is not Ops.INVALID:
        return v
    return leaves.full(intern(Ops.INVALID, v.dtype), shapes.shape(v))


def _emptied(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """A value without elements is a constant; a padded one without a source, zeros."""
    dims = shapes.shape(u)
    if 0 in dims or (u.op is Ops.PAD and 0 in shapes.shape(src[0])):
        return leaves.full(leaves.const(u.dtype, 0), dims)
    return None


def _without_empty_parts(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """cat a, (nothing), b  →  cat a, b"""
    parts = tuple([s for s in src if 0 not in shapes.shape(s)])
    if not parts or len(parts) == len(src):
        return _emptied(u, src)
    return parts[0] if len(parts) == 1 else intern(Ops.CAT, u.dtype, parts, u.arg)


def _reduce(u: UOp, value: UOp) -> UOp | None:
    """Empty: the identity. Of terms that repeat: repeated. Over axes of size 1: a reshape. Narrow
    floats: in float32, rounded once."""
    dims = shapes.shape(value)
    if any(dims[a] == 0 for a in u.arg.axes):
        identity = leaves.const(u.dtype, semantics.reduce_identity(u.arg.op, u.dtype))
        return leaves.full(identity, shapes.shape(u))
    if 0 in dims:
        return leaves.full(leaves.const(u.dtype, 0), shapes.shape(u))
    once = without_repeats(value, u.arg.axes)
    if once is not value:
        made = _reduced(intern(Ops.REDUCE, u.dtype, (once, *u.src[1:]), u.arg))
        return movement.expand(made, shapes.shape(u))
    long = tuple([a for a in u.arg.axes if dims[a] != 1])
    if not long:
        return movement.reshape(value, shapes.shape(u))
    if long != u.arg.axes:
        narrow = intern(Ops.REDUCE, u.dtype, (value,), ReduceArg(u.arg.op, long))
        return movement.reshape(_reduced(narrow), shapes.shape(u))
    if u.dtype.is_float and u.dtype.bits < 32:
        wide = intern(Ops.REDUCE, dtypes.float32, (fold.cast(value, dtypes.float32),), u.arg)
        return fold.cast(wide, u.dtype)
    return None


def _reduced(u: UOp) -> UOp:
    made = _reduce(u, u.src[0])
    return u if made is None else made
