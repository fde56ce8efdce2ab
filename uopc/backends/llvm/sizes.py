"""Arithmetic on sizes as LLVM IR: what `Op.fold` says, in whole numbers of 64 bits."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.backends.llvm.builder import I1, I64, BasicBlock, Operand, Type
from uopc.ir.core.ops import Op, Ops

_PLAIN = {
    Ops.ADD: "add", Ops.SUB: "sub", Ops.MUL: "mul", Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor",
}  # fmt: skip
_RELATIONS = {
    Ops.CMPLT: "slt", Ops.CMPLE: "sle", Ops.CMPEQ: "eq", Ops.CMPNE: "ne",
    Ops.MAX: "sgt", Ops.MIN: "slt",
}  # fmt: skip
_EXTREMES = (Ops.MAX, Ops.MIN)
_DIVISIONS = (Ops.CDIV, Ops.CMOD, Ops.FLOORDIV, Ops.FLOORMOD)
# In the order of their numbers in `backends/cpu/size_code.py`.
OPERATIONS = (
    Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.ABS, *_DIVISIONS, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR,
    Ops.XOR, Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE, Ops.WHERE,
)  # fmt: skip


def computed(op: Op, src: Sequence[Operand], beyond: BasicBlock | None = None) -> Operand:
    """The value of an operation: of type i1 for a comparison. It goes to `beyond` where 64 bits do
    not hold the value; without that block, bounds say that they do."""
    a, other = src[0], src[-1]
    if op in _DIVISIONS:
        return _divided(op, a, other, beyond)
    if op in _RELATIONS:
        holds = a.compare(_RELATIONS[op], other)
        return holds.select(a, other) if op in _EXTREMES else holds
    if op is Ops.WHERE:
        return (a if a.t is I1 else a.ne(0)).select(*src[1:])
    if op in (Ops.NEG, Ops.ABS):
        negative = _sum(Ops.SUB, Operand(a.builder, I64, "0"), a, beyond)
        return negative if op is Ops.NEG else a.compare("slt", 0).select(negative, a)
    return _sum(op, a, other, beyond)


def _sum(op: Op, a: Operand, other: Operand, beyond: BasicBlock | None) -> Operand:
    """A sum, a difference, a product, or a combination of bits."""
    b, name = a.builder, _PLAIN[op]
    if beyond is None or op not in (Ops.ADD, Ops.SUB, Ops.MUL):
        return a.operation(name, other)
    pair = Type("{i64, i1}")
    called = f"@llvm.s{name}.with.overflow.i64(i64 {a.name}, i64 {other.name})"
    both = f"{pair.text} {b.value(pair, f'call {pair.text} {called}').name}"
    result = b.value(I64, f"extractvalue {both}, 0")
    b.leave(b.value(I1, f"extractvalue {both}, 1"), beyond)
    return result


def _divided(op: Op, a: Operand, divisor: Operand, beyond: BasicBlock | None) -> Operand:
    """A quotient or a remainder; 0 where the divisor is 0."""
    if beyond is not None:
        a.builder.leave(divisor.eq(-1) & a.eq(-(1 << 63)), beyond)
    safe = divisor.eq(0).select(1, divisor)
    quotient, rest = a.operation("sdiv", safe), a.operation("srem", safe)
    if op in (Ops.FLOORDIV, Ops.FLOORMOD):
        is_beyond = (rest ^ safe).compare("slt", 0) & rest.ne(0)
        less, more = quotient - 1, rest + safe
        quotient, rest = is_beyond.select(less, quotient), is_beyond.select(more, rest)
    result = quotient if op in (Ops.CDIV, Ops.FLOORDIV) else rest
    return divisor.eq(0).select(0, result)
