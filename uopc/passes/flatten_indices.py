"""The loops and flat indices of a kernel written by hand.

Before (handwritten)                  After (kernel)
  %1 = param "" slot=0 : f32[8, 4]      %1 = param "" slot=0 : f32[32]
  %2 = param "" slot=1 : f32[4, 8]      %2 = range 8 axis=0.0 kind=loop : index
  %3 = permute %2 (1, 0) : f32[8, 4]    %3 = mul %2, 4 : index
  %4 = store %1, %3                     %4 = range 4 axis=0.1 kind=loop : index
  sink %4 name=transpose                %5 = add %3, %4 : index
                                        %6 = param "" slot=1 : f32[32]
                                        %7 = mul %4, 8 : index
                                        %8 = add %2, %7 : index
                                        %9 = store %1[%5], %6[%8]
                                        %10 = end %9, %2, %4
                                        sink %10 name=transpose

Kernels that the scheduler made are flat already; this pass leaves them as they are. In a kernel
written by hand, a store of a value with a shape gets a loop per axis, a STAGE becomes a buffer that
a loop fills, and an INDEX of an expression or a view goes to its sources (`ir/builder/loops.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from uopc.errors import UserError
from uopc.ir.builder import index_maps, leaves, rebuild
from uopc.ir.builder.loops import with_loops
from uopc.ir.core import ranges, shapes, walk
from uopc.ir.core.level_of import is_shaped
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects, storage_root
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.iterations import is_ordered
from uopc.passes.analysis.loops import is_overwritten
from uopc.passes.contract import Context

_STORAGE = (Ops.PARAM, Ops.BUFFER)
_IN_TURN = ("loop", "reduce")
_THREADS = ("global", "local")
_COPIES = ("upcast", "unroll", "lane")  # kinds of ranges whose iterations stand side by side


def flatten_indices(kernel: UOp, context: Context) -> UOp:
    """The kernel with one flat index per access; the kernel itself if it has that already."""
    order = walk.order(kernel)
    if any([u.op is Ops.END and u.arg is not None for u in order]):
        raise UserError("end: give the Opts of a kernel written by hand to its SINK")
    if is_shaped(kernel):
        kernel = with_loops(kernel)
        order = walk.order(kernel)
    if any([u.op is Ops.SHAPED_WMMA for u in order]):
        kernel = _with_tiles(kernel, context)
        order = walk.order(kernel)
    chosen = any([u.op is Ops.RANGE and u.arg.kind not in _IN_TURN for u in order])
    kernel = _with_flat(kernel, order)
    return _in_order(kernel, context) if chosen else kernel


def _with_flat(kernel: UOp, order: Iterable[UOp]) -> UOp:
    """The kernel with one flat index per access."""
    shaped = {u for u in order if u.op in _STORAGE and len(shapes.shape(u)) != 1}
    if not shaped:
        return kernel

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u in shaped:
            return leaves.with_dims(u, (shapes.size(shapes.shape(u)),))
        return _flat(u, src) if u.op is Ops.INDEX else None

    return rebuild.rewritten(kernel, change)


def _in_order(kernel: UOp, context: Context) -> UOp:
    """The kernel, in which a range whose iterations stand side by side is a loop if they must keep
    their order. An optimised kernel has a BUFFER per copy, any other has one for all.

    UserError, with the line, if threads of a GPU store different values to one element.
    """
    order = walk.order(kernel)
    loops: dict[UOp, UOp] = {}
    for r in {r for u in order if u.op is Ops.END for r in ranges.closed_ranges(u)}:
        if r.arg.kind in _COPIES and is_ordered(kernel, r, context.optimize):
            arg = dataclasses.replace(r.arg, kind="loop")
            loops[r] = intern(Ops.RANGE, r.dtype, r.src, arg, r.tag)
    if context.target.gpu is not None:
        _check_threads(order)
    return rebuild.rebuild(kernel, loops) if loops else kernel


def _check_threads(order: Iterable[UOp]) -> None:
    for u in order:
        if u.op is not Ops.STORE or storage_root(u.src[0]).op is not Ops.PARAM:
            continue
        for r in ranges.ranges(u.src[1]):
            if r.arg.kind in _THREADS and is_overwritten(u, r):
                raise UserError(
                    f"store: all threads of the {r.arg.kind} range {r.arg.axis[0]} store to one"
                    f" element; use a range of kind loop{made_at(u)}"
                )


def _flat(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """The INDEX of the storage with one component."""
    dims = shapes.shape(before_effects(u.src[0]))
    index, guard = index_maps.plain_index(src[1:], index_maps.true())
    flat = index_maps.gated((index_maps.flat_index(dims, index),), guard)
    return intern(Ops.INDEX, u.dtype, (src[0], *flat))


def _with_tiles(kernel: UOp, context: Context) -> UOp:
    """The kernel, its SHAPED_WMMAs checked; on a GPU a warp shares the ranges of their tiles."""
    kinds: dict[UOp, UOp] = {}
    order = walk.order(kernel)
    for u in order:
        if u.op is not Ops.SHAPED_WMMA:
            continue
        problem = _misfit(u) or next(
            ("its users must add it up over its depth" for v in order if u in v.src and not (
                v.op is Ops.REDUCE and v.arg.op == "add" and u.src[4] in v.src[1:])), None
        )  # fmt: skip
        if problem:
            raise UserError(f"shaped_wmma: {problem}{made_at(u)}")
        for r, kind in zip(u.src[2:], ("warp", "warp", "unroll")):
            arg = dataclasses.replace(r.arg, kind=kind)
            kinds[r] = intern(Ops.RANGE, r.dtype, r.src, arg, r.tag)
    return kernel if context.target.gpu is None else rebuild.rebuild(kernel, kinds)


def _misfit(u: UOp) -> str | None:
    """The reason why no tensor core computes a SHAPED_WMMA, or None."""
    a, b, *loops = u.src
    from uopc.ir.devices.tensor_cores import OF_GPUS, tile_of  # few kernels have any

    tile = tile_of(u)
    if tile is None:
        known = ", ".join([f"{t.operand.name} {t.shape} to {t.result.name}" for t in OF_GPUS])
        given = f"{a.dtype.name} and {b.dtype.name} {u.arg} to {u.dtype.name}"
        return f"there is no tile of {given}; there are {known}"
    for r, size in zip(loops, tile.shape):
        if r.op is not Ops.RANGE or r.src[0].op is not Ops.CONST or r.src[0].arg != size:
            return f"row, column and depth must be ranges of {tile.shape}"
    if loops[1] in ranges.ranges(a) or loops[0] in ranges.ranges(b):
        return "a depends on row and depth, b on depth and column"
    return None
