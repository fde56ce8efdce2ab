"""Opts that the user gave with a CONTIGUOUS: their kernels, and the reduces that they number."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from uopc.ir.core import walk
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

Opts = tuple[Opt, ...] | None


def has_opts(u: UOp) -> bool:
    """True if the kernel that stores this value has its Opts already; an empty list counts."""
    return u.op is Ops.CONTIGUOUS and u.arg is not None


def free_reduces(graph: UOp) -> set[UOp]:
    """The REDUCEs that a pass may compute in another way: they read storage, as others have a
    closed form, and the user gave them no Opts."""
    fixed = _fixed(graph)
    reads: set[UOp] = set()
    for u in walk.nodes(graph):
        if u.op.is_storage or not reads.isdisjoint(u.src):
            reads.add(u)
    return {u for u in reads if u.op is Ops.REDUCE and u not in fixed}


def _fixed(graph: UOp) -> set[UOp]:
    """The REDUCEs, among other values, that a CONTIGUOUS with Opts computes: the Opts number the
    ranges as the user wrote them."""
    found: set[UOp] = set()
    order = walk.nodes(graph) if Ops.CONTIGUOUS in walk.ops(graph) else []
    for u in reversed(order):
        if has_opts(u) or (u in found and u.op not in (Ops.REDUCE, Ops.CONTIGUOUS)):
            found.update(u.src)
    return found


def opts_of_stored(order: Iterable[UOp], stored: Collection[UOp]) -> dict[UOp, tuple[Opt, ...]]:
    """The Opts for the kernel of each stored value. A CONTIGUOUS of a stored value is no second
    store, so its Opts belong to that value; of several lists the first counts."""
    found: dict[UOp, tuple[Opt, ...]] = {}
    for u in order:
        if has_opts(u):
            found[u] = u.arg
            if u.src[0] in stored:
                found.setdefault(u.src[0], u.arg)
    return found
