"""Statements of a kernel that work on vectors: loads, stores, and what goes from lane to lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from uopc.backends.c import expressions
from uopc.backends.c.expressions import with_itself
from uopc.backends.c.names import inside
from uopc.backends.c.prelude import Prelude, shuffled
from uopc.backends.c.types import computed, held, mask_of
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp

ANY_MASK = dtypes.int32  # of bools that were never compared


class VectorKernelText(Protocol):
    """The part of a kernel's text that vectors use."""

    prelude: Prelude
    names: dict[UOp, str]
    lanes: Lanes

    def value(self, u: UOp, text: str) -> None: ...
    def kept(self, shape: str, text: str) -> str: ...
    def text(self, u: UOp) -> str: ...
    def named(self, u: UOp) -> str: ...


class Lanes:
    """The vectors of a kernel: their types and operands."""

    def __init__(self, kernel: VectorKernelText) -> None:
        self.kernel = kernel
        self.masks: dict[UOp, DType] = {}  # of vectors of bools: the type that holds them

    @property
    def prelude(self) -> Prelude:
        """The functions of the kernel's file."""
        return self.kernel.prelude

    def shape(self, u: UOp) -> str:
        """The type in C of a vector."""
        return self.prelude.vector(self.masks[u] if u.dtype.kind == "bool" else u.dtype)

    def constant(self, u: UOp, t: DType) -> str:
        """A constant as a vector of numbers."""
        return self.prelude.constant(u.dtype.scalar.vec(t.lanes), u.arg)

    def whole(self, u: UOp, t: DType) -> str:
        """An operand as a number, or a vector of numbers."""
        if u.op is Ops.CONST:
            return self.constant(u, t)
        text = self.kernel.text(u)
        return text if u.dtype.lanes == t.lanes else f"{self.prelude.repeated(t)}({text})"

    def named(self, u: UOp, t: DType) -> str:
        """The same, as text that may stand several times."""
        if u.op is Ops.CONST:
            return self.constant(u, t)
        if u.dtype.lanes > 1:
            return self.kernel.named(u)
        return self.kernel.kept(self.prelude.vector(t), self.whole(u, t))

    def mask(self, u: UOp, t: DType) -> str:
        """An operand of bools as a mask of some type."""
        if u.op is Ops.CONST:
            return self.prelude.truths(t, u.arg)
        text = self.kernel.text(u)
        if u.dtype.lanes == 1:
            return f"{self.prelude.repeated(t)}({inside(text)} ? -1 : 0)"
        return expressions.converted(self.masks[u], t, text, self.prelude)

    def like(self, u: UOp, model: UOp) -> str:
        """An operand in the type of another value."""
        if model.dtype.kind == "bool":
            return self.mask(u, self.masks[model])
        return self.whole(u, model.dtype)

    def give_mask(self, u: UOp, operands: Sequence[UOp]) -> DType:
        """The type of the mask of a value: that of the first operand which has one."""
        found = [self.masks[s].scalar for s in operands if s in self.masks]
        self.masks[u] = (found[0] if found else ANY_MASK).vec(u.dtype.lanes)
        return self.masks[u]


def is_wide(u: UOp) -> bool:
    """True for a node that makes or takes vectors."""
    return u.dtype.lanes > 1 or any([s.dtype.lanes > 1 for s in u.src])


# ---------------------------------------------------------------- elementwise
def alu(e: VectorKernelText, u: UOp) -> None:
    """An elementwise op."""
    lanes, op = e.lanes, u.op
    if (known := with_itself(u)) is not None:
        e.value(u, e.prelude.truths(lanes.give_mask(u, ()), known))
        return
    t = u.src[-1].dtype.scalar.vec(u.dtype.lanes)
    if t.kind == "bool":
        mask = lanes.give_mask(u, u.src)
        e.value(u, expressions.arithmetic(op, t, [lanes.mask(s, mask) for s in u.src], e.prelude))
        return
    if u.dtype.kind == "bool":
        lanes.masks[u] = mask_of(computed(t))
    if expressions.takes_scalars(op, t):
        texts = [e.text(s) if s.dtype.lanes == 1 else lanes.whole(s, t) for s in u.src]
        if all([s.dtype.lanes == 1 for s in u.src]):
            texts[0] = f"{e.prelude.repeated(t)}({texts[0]})"
    elif op is Ops.ABS and not t.is_float:
        texts = [lanes.named(s, t) for s in u.src]
    else:
        texts = [lanes.whole(s, t) for s in u.src]
    e.value(u, expressions.arithmetic(op, t, texts, e.prelude, u.src))


def _where(e: VectorKernelText, u: UOp) -> None:
    lanes, (c, a, b) = e.lanes, u.src
    is_bool = u.dtype.kind == "bool"
    mask = lanes.give_mask(u, (a, b, c)) if is_bool else mask_of(u.dtype)
    if c.dtype.lanes == 1:
        test = inside(e.text(c))
        e.value(u, f"{test} ? {inside(lanes.like(a, u))} : {inside(lanes.like(b, u))}")
    elif is_bool:
        m = e.kept(e.prelude.vector(mask), lanes.mask(c, mask))
        one, other = inside(lanes.mask(a, mask)), inside(lanes.mask(b, mask))
        e.value(u, f"({m} & {one}) | (~{m} & {other})")
    else:
        given = lanes.mask(c, mask), lanes.whole(a, u.dtype), lanes.whole(b, u.dtype)
        e.value(u, f"{e.prelude.select(u.dtype)}({', '.join(given)})")


def numbers(e: VectorKernelText, u: UOp, t: DType) -> str:
    """A vector of bools as one of numbers, 0 and 1."""
    mask = mask_of(t)
    if t.is_float:
        one, zero = [e.prelude.constant(t, value) for value in (1, 0)]
        return f"{e.prelude.select(t)}({e.lanes.mask(u, mask)}, {one}, {zero})"
    return expressions.converted(mask, t, f"{inside(e.lanes.mask(u, mask))} & 1", e.prelude)


# ---------------------------------------------------------------- memory
def _address(place: str) -> str:
    """The storage and the index of an element, which need not be inside of the storage."""
    base, _, index = place.partition("[")
    return f"{base}, {index[:-1]}"


def _stored(t: DType) -> DType:
    """The type of a vector in memory: a bool is a byte."""
    return dtypes.uint8.vec(t.lanes) if t.kind == "bool" else t


def _load(e: VectorKernelText, u: UOp) -> None:
    lanes, t = e.lanes, _stored(u.dtype)
    place, shape = e.text(u.src[0]), e.prelude.vector(t)
    gate = u.src[1] if len(u.src) > 1 else None
    text = f"UOPC_LOAD({shape}, {place})"
    if t.lanes != held(t):
        text = f"{e.prelude.part(t, is_store=False)}(&{place})"
    if gate is not None and gate.dtype.lanes == 1:
        text = f"{inside(e.text(gate))} ? {text} : ({shape}){{0}}"
    elif gate is not None:
        mask = lanes.mask(gate, mask_of(t))
        text = f"{e.prelude.masked(t, is_store=False)}({_address(place)}, {mask})"
    if u.dtype.kind == "bool":
        lanes.masks[u] = mask_of(t)
        text = f"({lanes.shape(u)})({inside(text)} != 0)"
    e.value(u, text)


def stored(e: VectorKernelText, u: UOp) -> str:
    """The statement of a STORE, without a gate that is no vector."""
    lanes, (at, value) = e.lanes, u.src[:2]
    t = value.dtype.scalar.vec(max(at.dtype.lanes, value.dtype.lanes))
    place, whole = e.text(at), _stored(t)
    shape = e.prelude.vector(whole)
    if t.kind == "bool":
        text = f"({shape}){inside(lanes.mask(value, mask_of(whole)))} & 1"
    else:
        text = lanes.whole(value, t)
    if len(u.src) > 2 and u.src[2].dtype.lanes > 1:
        mask = lanes.mask(u.src[2], mask_of(whole))
        return f"{e.prelude.masked(whole, is_store=True)}({_address(place)}, {mask}, {text});"
    if whole.lanes != held(whole):
        return f"{e.prelude.part(whole, is_store=True)}(&{place}, {text});"
    return f"UOPC_PLACE({shape}, {place}) = {text};"


# ---------------------------------------------------------------- lanes
def _each(e: VectorKernelText, u: UOp) -> str:
    """A scalar as a lane of a vector."""
    return f"{inside(e.text(u))} ? -1 : 0" if u.dtype.kind == "bool" else e.text(u)


def _stack(e: VectorKernelText, u: UOp) -> None:
    lanes, first = e.lanes, u.src[0]
    t = lanes.give_mask(u, u.src) if u.dtype.kind == "bool" else u.dtype
    if first.dtype.lanes > 1:
        e.value(u, _concatenated_text(e, u, t))
        return
    vector = first.src[0] if first.op is Ops.LANE else u
    of_one = all([s.op is Ops.LANE and s.src[0] is vector for s in u.src])
    if all([s is first for s in u.src]):
        e.value(u, f"{e.prelude.repeated(t)}({_each(e, first)})")
    elif of_one and vector.dtype is u.dtype and u.dtype.kind != "bool":
        name = e.names[vector]
        order = [s.arg for s in u.src]
        e.value(u, shuffled(e.prelude, t, t, name, name, order))
    else:
        e.value(u, f"({lanes.shape(u)}){{{', '.join([_each(e, s) for s in u.src])}}}")


def _concatenated_text(e: VectorKernelText, u: UOp, t: DType) -> str:
    """Concatenated vectors, joined pair by pair."""
    part = t.scalar.vec(u.src[0].dtype.lanes)
    texts = []
    for s in u.src:
        texts.append(e.lanes.mask(s, part) if t is not u.dtype else e.lanes.whole(s, part))
    while len(texts) > 1:
        whole = t.scalar.vec(2 * part.lanes)
        names = [e.kept(e.prelude.vector(part), text) for text in texts]
        names += names[-1:] * (len(names) % 2)
        texts = [shuffled(e.prelude, part, whole, a, b, range(whole.lanes))
                 for a, b in zip(names[::2], names[1::2])]  # fmt: skip
        part = whole
    if part is t:
        return texts[0]
    name = e.kept(e.prelude.vector(part), texts[0])
    return shuffled(e.prelude, part, t, name, name, range(t.lanes))


def _shuffle(e: VectorKernelText, u: UOp) -> None:
    t = e.lanes.give_mask(u, u.src) if u.dtype.kind == "bool" else u.dtype
    part = t.scalar.vec(u.src[0].dtype.lanes)
    if u.dtype.kind == "bool":
        names = [e.kept(e.prelude.vector(part), e.lanes.mask(s, part)) for s in u.src]
    else:
        names = [e.lanes.named(s, part) for s in u.src]
    e.value(u, shuffled(e.prelude, part, t, names[0], names[1], u.arg))


def _lookup(e: VectorKernelText, u: UOp) -> None:
    table, index = u.src
    if index.dtype.lanes == 1:
        place = f"{inside(e.text(index))} & {table.dtype.lanes - 1}"
        e.value(u, f"{e.lanes.named(table, table.dtype)}[{place}]")
        return
    given = [e.lanes.whole(s, s.dtype) for s in u.src]
    e.value(u, f"{e.prelude.looked_up(table.dtype, index.dtype)}({', '.join(given)})")


def _lane(e: VectorKernelText, u: UOp) -> None:
    text = f"{e.named(u.src[0])}[{u.arg}]"
    e.value(u, f"{text} != 0" if u.dtype.kind == "bool" else text)


def _hreduce(e: VectorKernelText, u: UOp) -> None:
    (a,) = u.src
    if a.dtype.kind != "bool":
        name = expressions.reduced(u.arg, a.dtype, e.prelude)
        e.value(u, f"{name}({e.lanes.whole(a, a.dtype)})")
        return
    mask = e.lanes.masks.get(a, ANY_MASK.vec(a.dtype.lanes))
    name = e.prelude.holds(mask, every=u.arg not in ("add", "max"))
    e.value(u, f"{name}({e.lanes.mask(a, mask)})")


def _lanes(e: VectorKernelText, u: UOp) -> None:
    e.value(u, e.prelude.constant(u.dtype, tuple(range(u.arg))))


RULES: dict[Op, Callable[[VectorKernelText, UOp], None]] = {
    Ops.LOAD: _load,
    Ops.WHERE: _where,
    Ops.STACK: _stack,
    Ops.SHUFFLE: _shuffle,
    Ops.LOOKUP: _lookup,
    Ops.LANE: _lane,
    Ops.HREDUCE: _hreduce,
    Ops.LANES: _lanes,
}
