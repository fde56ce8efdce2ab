"""What a kernel written by hand reads and writes of what it is called with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir import analysis
from uopc.ir.ops import Ops

if TYPE_CHECKING:
    from uopc.ir.uop import UOp


def written_params(kernel: UOp) -> dict[UOp, None]:
    """The storage that a kernel's STOREs go to."""
    found: dict[UOp, None] = {}
    for u in analysis.toposort(kernel):
        if u.op is Ops.STORE:
            target = u.src[0]
            while target.op.movement or target.op is Ops.INDEX or target.op is Ops.AFTER:
                target = target.src[0]
            found[target] = None
    return found


def read_params(kernel: UOp) -> dict[UOp, None]:
    """The PARAMs of which elements are read: used for more than a place to store to."""
    param: dict[UOp, UOp] = {}  # of an address, or a view
    found: dict[UOp, None] = {}
    for u in analysis.toposort(kernel):
        through = u.op.movement or u.op in (Ops.INDEX, Ops.AFTER)
        if u.op is Ops.PARAM:
            param[u] = u
        elif through and u.src[0] in param:
            param[u] = param[u.src[0]]
        order_only = u.op in (Ops.SINK, Ops.GROUP, Ops.END, Ops.AFTER)
        for s in u.src[through or u.op is Ops.STORE :]:
            if s in param and not order_only:
                found[param[s]] = None
    return found
