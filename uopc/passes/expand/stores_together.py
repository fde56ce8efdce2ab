"""Copies of a store that write neighbours are stores of vectors, where their values take functions.

    store out[i], tanh(a)
    store out[i + 1], tanh(b)        →    store out[i..i+3], tanh(stack(a, b, c, d))
    …                                     …

A product of a matrix and a vector adds up some rows side by side, each along lanes. What is done
with a sum afterwards, such as an activation, then takes a vector for several rows, and not one
number after the other.
"""

from __future__ import annotations

from uopc.ir.builder import leaves
from uopc.ir.core import dtypes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.expand.widen import widened

Copies = tuple["UOp", ...]

# The least cost of an operation for which taking numbers into a vector and out of it pays.
LEAST_COST = Ops.FDIV.cost


def together(bodies: list[UOp], register: int) -> list[UOp]:
    """The bodies of a loop. For stores of numbers, neighbouring stores become stores of vectors; a
    register has `register` bits."""
    if not all([_is_plain(u) for u in bodies]):
        return bodies
    made: list[UOp] = []
    while bodies:
        count = register // bodies[0].src[1].dtype.bits
        while count > 1 and not _are_neighbours([u.src[0] for u in bodies[:count]], count):
            count //= 2
        made.append(bodies[0] if count < 2 else _store(tuple(bodies[:count])))
        bodies = bodies[max(count, 1) :]
    return made


def _is_plain(u: UOp) -> bool:
    """True for a store without a gate of a number that a costly operation gives."""
    if u.op is not Ops.STORE or len(u.src) != 2 or u.src[1].dtype.lanes > 1:
        return False
    inside = walk.toposort(u.src[1], gate=lambda v: v.op.is_alu or v.op is Ops.CAST)
    return any([v.op.is_alu and v.dtype.is_float and v.op.cost >= LEAST_COST for v in inside])


def _are_neighbours(places: list[UOp], count: int) -> bool:
    """True if `count` INDEXes are consecutive elements of one storage."""
    first = places[0]
    return len(places) == count and all([
        p.op is Ops.INDEX and len(p.src) == 2 and p.src[0] is first.src[0]
        and p.dtype.lanes == 1 and p.src[1] is affine.plus(first.src[1], i)
        for i, p in enumerate(places)
    ])  # fmt: skip


def _vector(places: Copies) -> UOp:
    first = places[0]
    lanes = intern(Ops.LANES, dtypes.index.vec(len(places)), (), len(places))
    src = first.src[0], affine.add(first.src[1], lanes)
    return intern(Ops.INDEX, first.dtype.vec(len(places)), src, first.arg, first.tag)


def _store(stores: Copies) -> UOp:
    first = stores[0]
    value = _vector_of_copies(tuple([u.src[1] for u in stores]))
    if value.dtype.lanes == 1:  # the same for all
        value = intern(Ops.STACK, value.dtype.vec(len(stores)), (value,) * len(stores))
    places = _vector(tuple([u.src[0] for u in stores]))
    return intern(Ops.STORE, dtypes.void, (places, value), first.arg, first.tag)


def _vector_of_copies(copies: Copies) -> UOp:
    """The value whose lanes are the given copies, or the single copy if all are equal."""
    made: dict[Copies, UOp] = {}
    stack = [copies]
    while stack:
        at = stack[-1]
        parts = _operands(at)
        missing = [p for p in parts if p not in made]
        stack += missing
        if not missing:
            made[stack.pop()] = _made(at, tuple([made[p] for p in parts]))
    return made[copies]


def _operands(copies: Copies) -> list[Copies]:
    """The copies of each operand of copies that do the same; none for others."""
    first = copies[0]
    if not (first.op.is_alu or first.op in (Ops.CAST, Ops.BITCAST)):
        return []
    known = first.op, first.dtype, first.arg, len(first.src)
    if any([(u.op, u.dtype, u.arg, len(u.src)) != known for u in copies]):
        return []
    return [] if all([u is first for u in copies]) else list(zip(*[u.src for u in copies]))


def _made(copies: Copies, src: Copies) -> UOp:
    first = copies[0]
    if src:
        return widened(first, src)
    if all([u is first for u in copies]):
        return first
    if all([u.op is Ops.CONST for u in copies]):
        return leaves.const(first.dtype, tuple([u.arg for u in copies]))
    if _are_neighbours(list(copies), len(copies)):
        return _vector(copies)
    return intern(Ops.STACK, first.dtype.vec(len(copies)), copies)
