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

from collections.abc import Iterator, Sequence
from importlib import import_module

from uopc.errors import UserError
from uopc.ir.core.args import KernelArg, Opt
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.kernel_names import shape_name
from uopc.passes.contract import Context


def optimize(kernel: UOp, context: Context) -> UOp:
    """Apply and record the kernel's Opts, and name the kernel after its shape."""
    given = kernel.arg.opts if isinstance(kernel.arg, KernelArg) else None
    name = (kernel.arg.name if isinstance(kernel.arg, KernelArg) else "") or shape_name(kernel)
    if context.replayed is not None:
        given = _saved(name, context.replayed)
    opts = given if given is not None else context.opts
    if opts is None and context.optimize:
        opts, kernel = _choose_by_schedule(kernel, context)
    elif opts:
        kernel = _applied(kernel, opts, name)
    return intern(kernel.op, kernel.dtype, kernel.src, KernelArg(name, tuple(opts or ())))


# Only kernels that get Opts import the schedule of their machine, and the Opts.
def _choose_by_schedule(kernel: UOp, context: Context) -> tuple[tuple[Opt, ...], UOp]:
    """The Opts that the schedule of the machine chooses, once for each kernel of a compile, and the
    kernel with them."""
    key = kernel, context.threads
    if key not in context.scheduled:
        machine = "cpu" if context.target.gpu is None else "gpu"
        schedule = import_module(f"uopc.passes.optimize.schedule.{machine}")
        context.scheduled[key] = schedule.choose_opts(kernel, context)
    return context.scheduled[key]


def _applied(kernel: UOp, opts: Sequence[Opt], name: str) -> UOp:
    """The kernel with given Opts. UserError if one is refused."""
    from uopc.passes.optimize.opts.legality import Refused
    from uopc.passes.optimize.opts.substitution import Tiled
    from uopc.passes.optimize.opts.table import apply

    tiled = Tiled(kernel)
    for opt in opts:
        try:
            tiled = apply(tiled, opt)
        except Refused as why:
            raise UserError(f"kernel {name}: {why}") from None
    return tiled.kernel


def _saved(name: str, replayed: Iterator[KernelArg]) -> tuple[Opt, ...]:
    """The Opts of the next kernel of a saved schedule. UserError if it is another kernel."""
    saved = next(replayed, None)
    if saved is None or saved.name != name:
        there = "has too few kernels" if saved is None else f"has kernel {saved.name} here"
        raise UserError(f"kernel {name}: the saved schedule {there}")
    return saved.opts or ()
