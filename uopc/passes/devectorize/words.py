"""Words in memory: a number that is made of neighbours bit by bit is read as a whole.

    x[2i] | x[2i + 1] << 16: uint32x16   →   bitcast x[2i : 2i + 32]: uint32x16

The parts may begin at any element. Lanes whose words are no neighbours take a load each. Copies
that read the adjacent words make a block, of which rows are read and turned over as words.
"""

from __future__ import annotations

from collections.abc import Callable

from uopc.ir.builder import index_maps, rebuild
from uopc.ir.core import walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.nest.accesses import Access
from uopc.passes.analysis.lanes import lane_step
from uopc.passes.devectorize.transpose import blocks, transposed

Lane = Callable[["UOp", int], "UOp"]  # a lane of an index


def with_words(kernel: UOp, lane: Lane, has_rows: Callable[[UOp], bool]) -> UOp:
    """The kernel whose vectors of words are read as such, where their rows can be read."""
    every = {u: parts for u in walk.order(kernel) if (parts := _word_elements(u)) is not None}
    found = {u: parts for u, parts in every.items() if has_rows(parts[0])}
    if not found:
        return kernel
    groups: dict[object, dict[int, UOp]] = {}
    for u, parts in found.items():
        a = Access(parts[0])
        if lane_step(a.flat) not in (None, len(parts)):
            at, rest = divmod(a.form[0], len(parts))
            groups.setdefault((a.row, u.dtype, rest), {})[at] = u
    made: dict[UOp, UOp] = {}
    for block in [b for g in groups.values() for b in blocks(g)]:
        made |= transposed(block, lambda u, t, i: _words_from_lane(found[u], t, i, lane))
    made |= {u: _words(u, parts, lane) for u, parts in found.items() if u not in made}
    return rebuild.rebuild(kernel, made)


def _word_elements(u: UOp) -> list[UOp] | None:
    """The elements whose bits a vector's words are, the lowest first; None for other values."""
    t = u.dtype
    if u.op is not Ops.OR or t.kind != "uint" or t.lanes == 1:
        return None
    terms: dict[int, UOp] = {}
    for v in walk.flatten(u, Ops.OR):
        shift = 0
        if v.op is Ops.SHL and v.src[1].op is Ops.CONST:
            v, shift = v.src[0], v.src[1].arg
        element = _element(v)
        if element is None or type(shift) is not int or shift in terms:
            return None
        terms[shift] = element
    parts = [terms[shift] for shift in sorted(terms)]
    bits = parts[0].dtype.bits
    if sorted(terms) != list(range(0, t.bits, bits)):
        return None
    return parts if _are_neighbours(parts) else None


def _element(v: UOp) -> UOp | None:
    """The element of an array whose bits a number is, with zeros above."""
    if v.op is not Ops.CAST or v.src[0].dtype.kind != "uint":
        return None
    v = v.src[0]
    v = v.src[0] if v.op is Ops.BITCAST else v
    return v if v.op is Ops.INDEX and len(v.src) == 2 and v.dtype.kind != "bool" else None


def _are_neighbours(parts: list[UOp]) -> bool:
    """True for vectors of elements one after the other in the same array, under the same guard."""
    first, *others = [Access(u) for u in parts]
    return first.flat.dtype.lanes > 1 and all(
        a.row == first.row and a.form[0] == first.form[0] + i for i, a in enumerate(others, 1)
    )


def _words(u: UOp, parts: list[UOp], lane: Lane) -> UOp:
    """Words that lie side by side are one vector in memory; others are one each."""
    a = Access(parts[0])
    alike = a.gate is None or a.gate.dtype.lanes == 1
    if alike and lane_step(a.flat) == len(parts):
        return _words_from_lane(parts, u.dtype, 0, lane)
    each = parts[0].dtype.scalar.vec(len(parts))
    words = [_neighbours(parts[0], each, i, lane) for i in range(u.dtype.lanes)]
    whole = intern(Ops.STACK, each.scalar.vec(each.lanes * len(words)), tuple(words))
    return intern(Ops.BITCAST, u.dtype, (whole,))


def _words_from_lane(parts: list[UOp], t: DType, i: int, lane: Lane) -> UOp:
    """The words from lane i of a vector on."""
    elements = parts[0].dtype.scalar.vec(t.lanes * len(parts))
    return intern(Ops.BITCAST, t, (_neighbours(parts[0], elements, i, lane),))


def _neighbours(part: UOp, t: DType, i: int, lane: Lane) -> UOp:
    """The elements from lane i of a vector on."""
    flat, gate = index_maps.ungated(part.src[1])
    guard = index_maps.true() if gate is None else lane(gate, i)
    return intern(Ops.INDEX, t, (part.src[0], *index_maps.gated((lane(flat, i),), guard)))
