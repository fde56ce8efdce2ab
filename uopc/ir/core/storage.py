"""What a kernel is called with: the order of its words, and what it reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.core import analysis
from uopc.ir.core.ops import Ops

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


def storage_root(place: UOp) -> UOp:
    """The storage that an INDEX goes to, or an AFTER waits for."""
    while place.op in (Ops.INDEX, Ops.AFTER):
        place = place.src[0]
    return place


def root_of(u: UOp) -> UOp:
    """The whole storage of a program's value: below the SLICEs of it and the AFTERs that wait."""
    while u.op in (Ops.AFTER, Ops.SLICE):
        u = u.src[0]
    return u


def written_params(kernel: UOp) -> dict[UOp, None]:
    """The storage that a kernel's STOREs go to."""
    found: dict[UOp, None] = {}
    for u in kernel.src if kernel.op is Ops.LINEAR else analysis.toposort(kernel):
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


def word_places(kernel: UOp) -> dict[UOp, int]:
    """Where a linear kernel finds what it is called with: storage and numbers by slot, then the
    variables that it still has, by name."""
    slots = {u: int(u.arg.slot) for u in kernel.src if u.op in (Ops.PARAM, Ops.NUMBER)}
    known = 1 + max(slots.values(), default=-1)
    named = sorted((u for u in kernel.src if u.op is Ops.VARIABLE), key=lambda u: str(u.arg.name))
    return slots | {u: known + i for i, u in enumerate(named)}
