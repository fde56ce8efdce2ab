"""One kernel and lists of Opts: the kernel before Opts, with a list to apply, and after a list."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.errors import UserError
from uopc.ir.core.args import KernelArg, Opt
from uopc.ir.core.uop import UOp, intern
from uopc.passes import PIPELINE
from uopc.passes.contract import Context
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.substitution import Tiled
from uopc.passes.optimize.opts.table import apply
from uopc.passes.pass_manager import run_pass

Opts = tuple[Opt, ...]


def before_opts(kernel: UOp, context: Context) -> UOp:
    """A kernel of a program as input of the pass `optimize`."""
    for _, p in PIPELINE:
        if p.name == "optimize":
            break
        if p.scope == "kernel":
            kernel = run_pass(p, kernel, context)
    return kernel


def with_opts(kernel: UOp, opts: Opts) -> UOp:
    """The kernel with a list of Opts to apply."""
    name = kernel.arg.name if isinstance(kernel.arg, KernelArg) else ""
    return intern(kernel.op, kernel.dtype, kernel.src, KernelArg(name, opts))


def replayed(base: Tiled, opts: Sequence[Opt]) -> Tiled | None:
    """The kernel after Opts; None if an Opt is refused."""
    try:
        for opt in opts:
            base = apply(base, opt)
    except (Refused, UserError):
        return None
    return base
