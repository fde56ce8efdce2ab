"""Apply a list of Opts to a kernel: the user's, or the one `choose_opts` chooses.

Before (kernel)                             After (kernel)
  %1 = param "" slot=0 : f32[64]              %1 = param "" slot=0 : f32[64]
  %2 = range 64 axis=0.0 kind=loop : index    %2 = range 8 axis=0.0.0 kind=loop : index
  %3 = param "" slot=1 : f32[64]              %3 = mul %2, 8 : index
  %4 = exp %3[%2] : f32                       %4 = range 8 axis=0.0.1 kind=lane : index
  %5 = store %1[%2], %4                       %5 = add %3, %4 : index
  %6 = end %5, %2                             %6 = param "" slot=1 : f32[64]
  sink %6 opts=(VECTOR(0, 8),)                %7 = exp %6[%5] : f32
                                              %8 = store %1[%5], %7
                                              %9 = end %8, %2, %4
                                              sink %9 name=E_64 opts=(VECTOR(0, 8),)

An Opt names a range by its position among the kernel's ranges (output loops first, then reduce
loops, outer first) as they are when it is applied. The list is recorded in the SINK: replaying it
on the unoptimised kernel gives the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uopc.errors import UserError
from uopc.ir.core import analysis
from uopc.ir.core.args import KernelArg, Opt
from uopc.ir.core.levels import KERNEL
from uopc.ir.core.node import intern
from uopc.passes.contract import Context, Pass
from uopc.passes.optimize.opts import threads as thread_tiling
from uopc.passes.optimize.opts.coalesce import join
from uopc.passes.optimize.opts.distribute import settle
from uopc.passes.optimize.opts.legality import (
    Refused,
    block,
    cut_at,
    kernel_axes,
    overlap,
    pad_to,
    parts,
    split,
    swap,
    thread,
)  # fmt: skip
from uopc.passes.optimize.opts.nontemporal import stream
from uopc.passes.optimize.opts.packing import pack
from uopc.passes.optimize.opts.reduce_outward import sums
from uopc.passes.optimize.opts.reuse import keep
from uopc.passes.optimize.opts.split_at_bound import bound
from uopc.passes.optimize.opts.strip_mining import (
    Tiled,
    tile_loop,
    unroll,
    upcast,
    vector,
    without_lanes,
)
from uopc.passes.optimize.opts.tensor_cores import tensor
from uopc.passes.optimize.schedule import cpu as choose_opts
from uopc.passes.optimize.schedule import gpu as choose_gpu_opts

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


def _overlap(kernel: UOp, r: UOp, n: int) -> UOp:
    without_lanes(Tiled(kernel), r)
    return overlap(kernel, r, n)


# What each Opt is and does. It makes a kernel of a kernel, or those of `_TILES` a Tiled of a Tiled.
OPTS: dict[str, tuple[Callable[[Any, UOp, int], Any], str]] = {
    "VECTOR": (vector, "the inner n iterations become the lanes of vectors"),
    "OVERLAP": (_overlap, "as VECTOR, for any length: the last vector begins n before the end"),
    "UPCAST": (upcast, "the inner n iterations of an output loop become copies of its body"),
    "UNROLL": (unroll, "the inner n iterations of a reduce (0: all) get an accumulator each"),
    "TILE": (tile_loop, "the loop becomes two: an outer one, and an inner one of n iterations"),
    "BLOCK": (block, "as TILE, of an output loop and for any n: the last block may be shorter"),
    "PADTO": (pad_to, "the loop grows to a multiple of n, its accesses guarded"),
    "SPLIT": (split, "the loop is cut at the last multiple of n into a main loop and a rest"),
    "PEEL": (cut_at, "the loop is cut after its first n iterations, so that guards fold"),
    "SPLIT_AT": (bound, "the loop is cut in blocks of n where a comparison with outer loops turns"),
    "SWAP": (swap, "the loop changes places with output loop number n"),
    "COALESCE": (join, "the loop and output loop number n, the next one inside, become one"),
    "PACK": (pack, "operand n of the reduces in the loop is copied into a local tile before it"),
    "REUSE": (keep, "what the reduce adds up is computed once, into a local tile for all loops"),
    "REDUCE_OUT": (sums, "the reduce goes outside of output loop n, its sums into a local tile"),
    "DISTRIBUTE": (settle, "copies of the reduce go to a local tile; the rest loops, n at a time"),
    "NONTEMPORAL": (stream, "what is stored in the loop goes to memory past the caches"),
    "THREAD": (thread, "an output loop around the kernel is cut in n chunks, run in parallel"),
    "GRID": (thread_tiling.grid, "an output loop around the kernel becomes blocks of a grid"),
    "GROUP": (thread_tiling.group, "a reduce is shared among n threads that are neighbours"),
    "GROUPTOP": (thread_tiling.group_top, "a reduce is shared among n threads that are far apart"),
    "TC": (tensor, "a sum of products is done by tensor cores; 1: float32 may be rounded to tf32"),
    "PIPELINE": (thread_tiling.stages, "tiles filled in a loop of a reduce are filled n - 1 ahead"),
    "LOCAL": (thread_tiling.local, "the inner n iterations of an output loop become threads"),
}  # fmt: skip
_TILES = ("VECTOR", "UPCAST", "UNROLL", "TILE")


def apply_opt(kernel: UOp, opt: Opt) -> UOp:
    """The kernel after one Opt. Refused (with the reason) where it is not legal."""
    return apply(Tiled(kernel), opt).kernel


def apply(kernel: Tiled, opt: Opt) -> Tiled:
    """The same where several Opts follow one another."""
    if opt.op not in OPTS:
        raise UserError(f"unknown Opt {opt.op!r}; there are {', '.join(OPTS)}")
    axes = kernel.axes
    if not 0 <= opt.axis < len(axes):
        raise Refused(f"{opt}: the kernel has {len(axes)} ranges")
    r = axes[opt.axis]
    if r.arg.kind not in ("loop", "reduce"):
        raise Refused(f"{opt}: range {opt.axis} is already {r.arg.kind}")
    change, _ = OPTS[opt.op]
    try:
        if opt.op not in _TILES:
            return Tiled(change(kernel.kernel, r, opt.arg))
        tiled: Tiled = change(kernel, r, opt.arg)
        return tiled
    except Refused as refused:
        raise Refused(f"{opt}: {refused.why}", *refused.expressions) from None


def optimize(kernel: UOp, context: Context) -> UOp:
    """The kernel with its Opts applied and recorded, and a name from its shape."""
    given = kernel.arg.opts if isinstance(kernel.arg, KernelArg) else None
    name = (kernel.arg.name if isinstance(kernel.arg, KernelArg) else "") or kernel_name(kernel)
    opts = given if given is not None else context.opts
    if opts is None and context.optimize:
        choose = choose_gpu_opts if context.target.gpu is not None else choose_opts
        opts, kernel = choose.choose_opts(kernel, context, apply)
    else:
        opts, tiled = opts or (), Tiled(kernel)
        for opt in opts:
            try:
                tiled = apply(tiled, opt)
            except Refused as why:
                raise UserError(f"kernel {name}: {why}") from None
        kernel = tiled.kernel
    return intern(kernel.op, kernel.dtype, kernel.src, KernelArg(name, tuple(opts)))


def kernel_name(kernel: UOp) -> str:
    """`E_25_4` for elementwise, `r_64_128` with a reduce: the lengths of its loops, outer first."""
    axes = kernel_axes(kernel)
    kind = "r" if parts(kernel).reduces else "E"
    lengths = [str(analysis.bounds(r.src[0])[1]) for r in axes]
    return "_".join([kind, *(lengths or ["1"])])


PASS = Pass("optimize", KERNEL, KERNEL, optimize, "kernel", reassociates=True)
