"""Choose a kernel's Opts for a GPU: which loops are blocks, which are threads.

Reads ranges and indices, as `choose_opts` does for a CPU, and the described part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.args import Opt
from uopc.passes.chooser import Apply, Chooser
from uopc.passes.contract import Context
from uopc.passes.kernel_facts import KernelFacts, length_of
from uopc.passes.range_tiling import kernel_axes

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

# Threads of a block of independent threads: eight warps hide latency, and a few blocks fill an SM.
BLOCK = 256


def choose_opts(kernel: UOp, context: Context, apply: Apply) -> tuple[tuple[Opt, ...], UOp]:
    """The Opts, and the kernel with them applied."""
    chooser = Chooser(kernel, context, apply)
    k = KernelFacts(chooser.kernel)
    outputs = [r for r in k.outputs if r.arg.kind == "loop" and length_of(r) != 1]
    if outputs:
        chooser.attempt("LOCAL", outputs[-1], BLOCK)
    for r in kernel_axes(chooser.kernel):
        if r.arg.kind == "loop":
            chooser.attempt("GRID", r, 0)
    return tuple(chooser.opts), chooser.kernel
