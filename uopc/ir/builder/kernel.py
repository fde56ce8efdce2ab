"""Builders of hand-written kernels: ranges, loads, stores, and the ends of loops."""

from __future__ import annotations

import itertools
from typing import Any

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import leaves, operands
from uopc.ir.builder.leaves import located
from uopc.ir.core import dtypes
from uopc.ir.core.args import AxisKind, KernelArg, Opt, RangeArg, ReduceArg, Space, StageArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.tensor_cores import TILES
from uopc.ir.core.uop import UOp, intern

_axes = itertools.count()


def range(end: Any, axis: int | tuple[int, ...] | None = None, kind: AxisKind = "loop") -> UOp:
    """A loop variable 0 ≤ i < end. Ranges nest in the order of `axis` (default: creation)."""
    nest = (next(_axes),) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    stop = leaves.dim_uop(operands.as_dim(end))
    return located(intern(Ops.RANGE, dtypes.index, (stop,), RangeArg(nest, kind)))


def load(address: UOp, gate: UOp | None = None) -> UOp:
    """The element at an INDEX; 0 where the gate is false."""
    src = (address,) if gate is None else (address, gate)
    return located(intern(Ops.LOAD, address.dtype, src))


def store(target: UOp, value: Any, gate: UOp | None = None) -> UOp:
    """Writes the value through the target: an INDEX, or a view of storage."""
    given = operands.as_uop(value, target.dtype)
    if given.op is not Ops.INVALID and given.dtype is not target.dtype:
        raise UserError(
            f"store: the value is {given.dtype.name}, the storage {target.dtype.name}; cast it"
        )
    src = (target, given) if gate is None else (target, given, gate)
    return leaves.fitting(intern(Ops.STORE, dtypes.void, src))


def stage(value: UOp, *ranges: UOp, space: Space = "local") -> UOp:
    """The value in storage of its own, filled in each iteration of the loops it depends on. `local`
    is shared by the threads of a GPU's block; `reg` belongs to one thread.

    The ranges are the loops that fill it, and its first dimensions: `x[i, j].stage(j)[7 - j]` is
    an element of row i of x. UserError for anything else.
    """
    if space not in ("local", "reg"):
        raise UserError(f"stage: the space must be local or reg, got {space!r}")
    _check_ranges("stage", ranges)
    arg = StageArg("user", space=space)
    return located(intern(Ops.STAGE, value.dtype, (value, *ranges), arg))


def shaped_wmma(a: UOp, b: UOp, row: UOp, column: UOp, depth: UOp, *others: UOp) -> UOp:
    """The sum of a·b over the ranges `depth` and `others`: on a GPU by tensor cores, a tile of
    `row` by `column` at a time, elsewhere by loops. `a` depends on row and depth, `b` on depth and
    column. The lengths are 16, 8 and 16 for float16 and bfloat16, 16, 8 and 8 for float32 (which
    tensor cores round to 10 bits), 16, 8 and 32 for int8, 8, 8 and 4 for float64."""
    tile = next((t for t in TILES if t.operand is a.dtype), None)
    if tile is None:
        raise UserError(f"shaped_wmma: there is no tile of {a.dtype.name}")
    src = (a, b, row, column, depth)
    made = located(intern(Ops.SHAPED_WMMA, tile.result, src, tile.shape))
    arg = ReduceArg("add")
    return located(intern(Ops.REDUCE, tile.result, (made, *others, depth), arg))


def end(effect: UOp, *ranges: UOp) -> UOp:
    """The effect, run once per iteration of the ranges, which it closes."""
    _check_ranges("end", ranges)
    return located(intern(Ops.END, dtypes.void, (effect, *ranges)))


def _check_ranges(who: str, ranges: tuple[object, ...]) -> None:
    for r in ranges:
        if not isinstance(r, UOp) or r.op is not Ops.RANGE:
            got = r.op if isinstance(r, UOp) else r
            raise UserError(f"{who}: expected ranges, got {got!r}")


def after(u: UOp, *effects: UOp) -> UOp:
    """`u` after the effects."""
    return located(intern(Ops.AFTER, u.dtype, (u, *effects))) if effects else u


def barrier(*effects: UOp) -> UOp:
    """The effects, after which the threads of a GPU's block wait for each other."""
    return located(intern(Ops.BARRIER, dtypes.void, effects))


def sink(
    *roots: UOp, name: str = "", opts: tuple[Opt, ...] | None = None, arg: KernelArg | None = None
) -> UOp:
    """The roots as one graph. A hand-written kernel has a name, and may fix its Opts; `arg` is both
    as a KernelInfo."""
    if arg is not None and (name or opts is not None or not isinstance(arg, KernelArg)):
        raise UserTypeError(f"sink: arg must be a KernelInfo, given alone, got {arg!r}")
    if name or opts is not None:
        arg = KernelArg(name, opts)
    return located(intern(Ops.SINK, dtypes.void, roots, arg))


def group(*effects: UOp) -> UOp:
    """All the effects."""
    return effects[0] if len(effects) == 1 else intern(Ops.GROUP, dtypes.void, effects)
