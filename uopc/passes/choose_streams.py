"""The part of the heuristic for kernels that stream: what neighbouring iterations both read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir import affine
from uopc.ir.ops import Ops
from uopc.passes import machine
from uopc.passes.kernel_facts import Access, KernelFacts, expanded_size, length_of

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

# What tells reads of one storage apart but for a constant: the storage, and the other terms.
Place = tuple["UOp", frozenset[tuple["UOp", int]]]


def shared_rows(k: KernelFacts, output: UOp | None) -> tuple[UOp, int] | None:
    """The output loop, and how many of its iterations to put side by side, that most reduces what
    is read: a stencil's rows read the same places. None where nothing is gained."""
    best: tuple[float, UOp, int] | None = None
    size = expanded_size(k)
    for q in k.outputs:
        length = length_of(q)
        if q is output or q.arg.kind != "loop" or length is None:
            continue
        alone = len(_reads(k, q, 1))
        n = machine.SHARED_ROWS
        while n > 1 and (n > length or n * size > machine.MOST_SHARED):
            n //= 2
        each = len(_reads(k, q, n)) / n
        if n > 1 and each <= machine.SHARED_READS * alone and (best is None or each < best[0]):
            best = each, q, n
    return None if best is None else best[1:]


def _reads(k: KernelFacts, q: UOp, n: int) -> set[tuple[Place, int]]:
    """The places that n neighbouring iterations of q read, copies of the body counted apart."""
    found: set[tuple[Place, int]] = set()
    for a in k.accesses:
        if not a.written:
            found |= _places(a, q, n)
    return found


def _places(a: Access, q: UOp, n: int) -> set[tuple[Place, int]]:
    constant, terms = affine.form(a.flat)
    offsets = {constant}
    others = []
    for m, step in terms.items():
        count = n if m is q else length_of(m) if _is_copied(m) else None
        if count is None:
            others.append((m, step))
        else:
            offsets = {o + step * i for o in offsets for i in range(count)}
    place = (a.node.src[0], frozenset(others))
    return {(place, o) for o in offsets}


def _is_copied(m: UOp) -> bool:
    return m.op is Ops.RANGE and m.arg.kind in ("upcast", "unroll")
