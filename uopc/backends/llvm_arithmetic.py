"""Elementwise ops as LLVM instructions: one row an op, on operand names of one type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from uopc.backends.llvm_types import literal, llvm_type, suffix
from uopc.ir import dtypes
from uopc.ir.dtypes import DType
from uopc.ir.ops import Op, Ops

if TYPE_CHECKING:
    from uopc.backends.llvm import Emitter

# An instruction on operand names of type `t` (the operands' dtype, at the width of the result).
Alu: TypeAlias = Callable[["Emitter", DType, list[str]], str]


def is_signed(t: DType) -> bool:
    return t.kind in ("int", "index")


def _binary(integer: str, floating: str = "", boolean: str = "") -> Alu:
    def emit(e: Emitter, t: DType, names: list[str]) -> str:
        code = floating if t.is_float else boolean if t.kind == "bool" and boolean else integer
        return e.value(f"{code} {llvm_type(t)} {names[0]}, {names[1]}")

    return emit


def _by_sign(signed: str, unsigned: str) -> Alu:
    def emit(e: Emitter, t: DType, names: list[str]) -> str:
        code = signed if is_signed(t) else unsigned
        return e.value(f"{code} {llvm_type(t)} {names[0]}, {names[1]}")

    return emit


def _compare(signed: str, unsigned: str, floating: str) -> Alu:
    def emit(e: Emitter, t: DType, names: list[str]) -> str:
        code = f"fcmp {floating}" if t.is_float else f"icmp {signed if is_signed(t) else unsigned}"
        return e.value(f"{code} {llvm_type(t)} {names[0]}, {names[1]}")

    return emit


def _float_call(name: str) -> Alu:
    def emit(e: Emitter, t: DType, names: list[str]) -> str:
        ty = llvm_type(t)
        return e.intrinsic(ty, f"llvm.{name}.{suffix(t)}", [(ty, v) for v in names])

    return emit


def _neg(e: Emitter, t: DType, names: list[str]) -> str:
    ty = llvm_type(t)
    if t.is_float:
        return e.value(f"fneg {ty} {names[0]}")
    if t.kind == "bool":
        true = "true" if t.lanes == 1 else "<" + ", ".join(["i1 true"] * t.lanes) + ">"
        return e.value(f"xor {ty} {names[0]}, {true}")
    return e.value(f"sub {ty} {'0' if t.lanes == 1 else 'zeroinitializer'}, {names[0]}")


def _abs(e: Emitter, t: DType, names: list[str]) -> str:
    ty = llvm_type(t)
    if t.is_float:
        return e.intrinsic(ty, f"llvm.fabs.{suffix(t)}", [(ty, names[0])])
    if not is_signed(t):
        return names[0]
    return e.intrinsic(ty, f"llvm.abs.{suffix(t)}", [(ty, names[0]), ("i1", "false")])


def _reciprocal(e: Emitter, t: DType, names: list[str]) -> str:
    one = f"{llvm_type(t.scalar)} {literal(t.scalar, 1.0)}"
    ones = one.split()[1] if t.lanes == 1 else "<" + ", ".join([one] * t.lanes) + ">"
    return e.value(f"fdiv {llvm_type(t)} {ones}, {names[0]}")


def _extreme(signed: str, unsigned: str, wins: str) -> Alu:
    def emit(e: Emitter, t: DType, names: list[str]) -> str:
        ty, (a, b) = llvm_type(t), names
        if not t.is_float:
            name = signed if is_signed(t) else unsigned
            return e.intrinsic(ty, f"llvm.{name}.{suffix(t)}", [(ty, a), (ty, b)])
        # a if it wins or is NaN, else b: a NaN on either side comes through.
        mask = llvm_type(dtypes.bool_.vec(t.lanes))
        first = e.value(f"fcmp {wins} {ty} {a}, {b}")
        nan = e.value(f"fcmp uno {ty} {a}, {a}")
        take = e.value(f"or {mask} {first}, {nan}")
        return e.value(f"select {mask} {take}, {ty} {a}, {ty} {b}")

    return emit


ALU: dict[Op, Alu] = {
    Ops.ADD: _binary("add", "fadd contract", "or"),
    Ops.SUB: _binary("sub", "fsub contract", "xor"),
    Ops.MUL: _binary("mul", "fmul contract", "and"),
    Ops.FDIV: _binary("", "fdiv"),
    Ops.AND: _binary("and"),
    Ops.OR: _binary("or"),
    Ops.XOR: _binary("xor"),
    Ops.SHL: _binary("shl"),
    Ops.SHR: _by_sign("ashr", "lshr"),
    # The decompositions made the operands of these safe: no 0, no overflow.
    Ops.CDIV: _by_sign("sdiv", "udiv"),
    Ops.CMOD: _by_sign("srem", "urem"),
    Ops.CMPLT: _compare("slt", "ult", "olt"),
    Ops.CMPLE: _compare("sle", "ule", "ole"),
    Ops.CMPEQ: _compare("eq", "eq", "oeq"),
    Ops.CMPNE: _compare("ne", "ne", "une"),
    Ops.MAX: _extreme("smax", "umax", "ogt"),
    Ops.MIN: _extreme("smin", "umin", "olt"),
    Ops.NEG: _neg,
    Ops.ABS: _abs,
    Ops.RECIPROCAL: _reciprocal,
    Ops.SQRT: _float_call("sqrt"),
    Ops.TRUNC: _float_call("trunc"),
    Ops.FLOOR: _float_call("floor"),
    Ops.CEIL: _float_call("ceil"),
    Ops.ROUND: _float_call("roundeven"),
    Ops.MULACC: _float_call("fma"),
}
