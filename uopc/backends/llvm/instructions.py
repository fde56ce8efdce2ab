"""Elementwise ops as LLVM instructions: one row per op, on operand names of one type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from uopc.backends.llvm.emitter import Emitter
from uopc.backends.llvm.types import constant, llvm_type, suffix
from uopc.ir.core import dtypes, intervals
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops

# An instruction on operand names of type `t` (the operands' dtype, at the width of the result).
Alu: TypeAlias = Callable[[Emitter, DType, list[str]], str]


def _binary(signed: str, unsigned: str = "", floating: str = "", boolean: str = "") -> Alu:
    """An instruction on two operands by its names; the others default to the first."""

    def emit(e: Emitter, t: DType, names: list[str]) -> str:
        name = floating if t.is_float else boolean if t.kind == "bool" else ""
        name = name or (signed if t.is_signed else unsigned or signed)
        return e.value(f"{name} {llvm_type(t)} {names[0]}, {names[1]}")

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
        return e.value(f"xor {ty} {names[0]}, {constant(t, True)}")
    return e.value(f"sub {ty} {constant(t, 0)}, {names[0]}")


def _abs(e: Emitter, t: DType, names: list[str]) -> str:
    ty = llvm_type(t)
    if t.is_float:
        return e.intrinsic(ty, f"llvm.fabs.{suffix(t)}", [(ty, names[0])])
    if not t.is_signed:
        return names[0]
    return e.intrinsic(ty, f"llvm.abs.{suffix(t)}", [(ty, names[0]), ("i1", "false")])


def _mulacc(e: Emitter, t: DType, names: list[str]) -> str:
    """A rule may make one of integers after pass decompose."""
    if t.is_float:
        return _float_call("fma")(e, t, names)
    return ALU[Ops.ADD](e, t, [ALU[Ops.MUL](e, t, names[:2]), names[2]])


def _dot4(e: Emitter, t: DType, names: list[str]) -> str:
    """x86 has it for 4, 8 and 16 lanes, ARM for 4. Pass decompose makes no others, besides less
    than 4."""
    whole, (a, b, c) = _of_dot(e, t, names)
    ty, of_bytes = llvm_type(whole), f"<{4 * whole.lanes} x i8>"
    if "vpdpbusd" in e.kernel.arg.units:
        name = f"llvm.x86.avx512.vpdpbusd.{32 * whole.lanes}"
        made = e.intrinsic(ty, name, [(ty, c), (ty, a), (ty, b)])
    else:
        a, b = [e.once(f"bitcast {ty} {v} to {of_bytes}") for v in (a, b)]
        if "usdot" in e.kernel.arg.units:
            name = "llvm.aarch64.neon.usdot.v4i32.v16i8"
            made = e.intrinsic(ty, name, [(ty, c), (of_bytes, a), (of_bytes, b)])
        elif "sdot" in e.kernel.arg.units:
            made = _two_dots(e, whole, of_bytes, (a, b, c))
        else:
            made = _spelled_dot4(e, whole, of_bytes, (a, b, c))
    return _first_lanes(e, whole, made, t)


def _of_dot(e: Emitter, t: DType, names: list[str]) -> tuple[DType, list[str]]:
    """The type of a dot product's sum, and its words and sum so far, in 4 lanes at least."""
    words, whole = dtypes.int32.vec(t.lanes), t.scalar.vec(max(4, t.lanes))
    if t.lanes < 4:
        names = [_widened(e, own, v, 4) for own, v in zip((words, words, t), names)]
    return whole, names if len(names) == 3 else [*names, constant(whole, 0)]


def _first_lanes(e: Emitter, whole: DType, made: str, t: DType) -> str:
    if t.lanes == 1:
        return e.value(f"extractelement {llvm_type(whole)} {made}, i64 0")
    return made if t is whole else two_vectors(e, whole, made, "poison", range(t.lanes))


def _two_dots(e: Emitter, t: DType, of_bytes: str, names: tuple[str, str, str]) -> str:
    """ARM before I8MM has products of two signed bytes: Σ u·s = Σ (u - 128)·s - Σ (-128)·s. All
    rows of a tile share the last sum."""
    a, b, total = names
    ty, top, name = llvm_type(t), "splat (i8 -128)", "llvm.aarch64.neon.sdot.v4i32.v16i8"
    signed = e.once(f"xor {of_bytes} {a}, {top}")
    e.declared[f"declare {ty} @{name}({ty}, {of_bytes}, {of_bytes})"] = None
    operands = f"{ty} zeroinitializer, {of_bytes} {top}, {of_bytes} {b}"
    extra = e.once(f"call {ty} @{name}({operands})")
    whole = e.intrinsic(ty, name, [(ty, total), (of_bytes, signed), (of_bytes, b)])
    return e.value(f"sub {ty} {whole}, {extra}")


def _dot2(e: Emitter, t: DType, names: list[str]) -> str:
    """AVX512-BF16's for 4, 8 and 16 lanes. Pass decompose makes no others, besides less than 4, and
    none for a machine without it."""
    whole, (a, b, c) = _of_dot(e, t, names)
    ty, pairs = llvm_type(whole), f"<{2 * whole.lanes} x bfloat>"
    wide = llvm_type(dtypes.int32.vec(whole.lanes))
    a, b = [e.value(f"bitcast {wide} {v} to {pairs}") for v in (a, b)]
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * whole.lanes}"
    made = e.intrinsic(ty, name, [(ty, c), (pairs, a), (pairs, b)])
    return _first_lanes(e, whole, made, t)


def _spelled_dot4(e: Emitter, t: DType, of_bytes: str, names: tuple[str, str, str]) -> str:
    """The products of bytes one by one, for a processor without the instruction."""
    a, b, total = names
    wide = dtypes.int32.vec(4 * t.lanes)
    ty = llvm_type(wide)
    unsigned = e.value(f"zext {of_bytes} {a} to {ty}")
    signed = e.value(f"sext {of_bytes} {b} to {ty}")
    products = e.value(f"mul {ty} {unsigned}, {signed}")
    for i in range(4):
        terms = two_vectors(e, wide, products, "poison", range(i, wide.lanes, 4))
        total = e.value(f"add {llvm_type(t)} {total}, {terms}")
    return total


def _widened(e: Emitter, t: DType, a: str, lanes: int) -> str:
    """A number, or a few, as the first lanes of a vector."""
    if t.lanes > 1:
        return two_vectors(e, t, a, "poison", [min(i, t.lanes - 1) for i in range(lanes)])
    wide = llvm_type(t.vec(lanes))
    return e.value(f"insertelement {wide} poison, {llvm_type(t)} {a}, i64 0")


def _scale(e: Emitter, t: DType, names: list[str]) -> str:
    """AVX-512's instruction: the mask selects all lanes, the last operand is the rounding mode."""
    ty, bits = llvm_type(t), t.lanes * t.bits
    kind = "ps" if t.bits == 32 else "pd"
    operands = [(ty, v) for v in (*names, names[0])] + [("i16" if t.lanes == 16 else "i8", "-1")]
    operands += [("i32", "4")] * (bits == 512)
    return e.intrinsic(ty, f"llvm.x86.avx512.mask.scalef.{kind}.{bits}", operands)


def _extreme(signed: str, unsigned: str, wins: str) -> Alu:
    def emit(e: Emitter, t: DType, names: list[str]) -> str:
        ty, (a, b) = llvm_type(t), names
        if t.kind == "bool":
            return e.value(f"{'or' if unsigned == 'umax' else 'and'} {ty} {a}, {b}")
        if not t.is_float:
            name = signed if t.is_signed else unsigned
            return e.intrinsic(ty, f"llvm.{name}.{suffix(t)}", [(ty, a), (ty, b)])
        # compare and select is one instruction on most machines, and gives a NaN of the second
        # operand. The last select restores a NaN of the first.
        mask = llvm_type(dtypes.bool_.vec(t.lanes))
        compare = wins
        if not b.startswith("%"):
            a, b = b, a
            # Of two zeros, pick the constant where IEEE's maximum or minimum would.
            if a == constant(t, 0.0 if wins == "ogt" else -0.0):
                compare = wins.replace("t", "e")
        first = e.value(f"fcmp {compare} {ty} {a}, {b}")
        best = e.value(f"select {mask} {first}, {ty} {a}, {ty} {b}")
        if a in (constant(t, 0.0), constant(t, -0.0)):
            return best
        nan = e.value(f"fcmp uno {ty} {a}, {a}")
        return e.value(f"select {mask} {nan}, {ty} {a}, {ty} {best}")

    return emit


def float_to_int(e: Emitter, source: DType, target: DType, a: str) -> str:
    """Truncated and saturated, NaN gives 0. CPUs have no instructions for that on vectors, nor for
    less than 32 bits: there the value is cut to the target's bounds while it is a float. Narrow
    floats become float32 first, since LLVM makes -32768 of a float16 NaN for AVX512-FP16."""
    if source.bits < 32 and not e.saturates:
        single = dtypes.float32.vec(source.lanes)
        a = e.value(f"fpext {llvm_type(source)} {a} to {llvm_type(single)}")
        source = single
    s, t, signed = llvm_type(source), llvm_type(target), target.is_signed
    name = "fptosi" if signed else "fptoui"
    by_one = "fcvtz" in e.kernel.arg.units
    if by_one and target.bits < 32 <= source.bits:
        word = (dtypes.int32 if signed else dtypes.uint32).vec(target.lanes)
        return _cut(e, word, target, float_to_int(e, source, word, a))
    one = e.saturates or by_one or target.lanes == 1
    if (target.bits >= 32 and one) or source.bits < 32:
        return e.intrinsic(t, f"llvm.{name}.sat.{suffix(target)}.{suffix(source)}", [(s, a)])
    low, high = intervals.of_type(target.scalar)
    mask = llvm_type(dtypes.bool_.vec(target.lanes))
    if signed:  # the bounds give NaN the lower one, which for the unsigned is 0
        number = e.value(f"fcmp ord {s} {a}, {a}")
        a = e.value(f"select {mask} {number}, {s} {a}, {s} {constant(source, 0.0)}")
    lost = max(0, high.bit_length() - source.scalar.whole_bits)
    greatest = high >> lost << lost  # the greatest float that is at most `high`, all ones in bits
    inside = ""
    for wins, bound, limit in (("ogt", low, low), ("olt", high + (greatest < high), greatest)):
        inside = e.value(f"fcmp {wins} {s} {a}, {constant(source, float(bound))}")
        a = e.value(f"select {mask} {inside}, {s} {a}, {s} {constant(source, float(limit))}")
    if target.bits < 32:
        wide = llvm_type(dtypes.int32.vec(target.lanes))
        return e.value(f"trunc {wide} {e.value(f'fptosi {s} {a} to {wide}')} to {t}")
    whole = e.value(f"{name} {s} {a} to {t}")
    if greatest == high:
        return whole
    return e.value(f"select {mask} {inside}, {t} {whole}, {t} {constant(target, high)}")


def _cut(e: Emitter, source: DType, target: DType, a: str) -> str:
    """Saturate a 32-bit integer to fewer bits."""
    w, (low, high) = llvm_type(source), intervals.of_type(target.scalar)
    bounds = [("smin", high), ("smax", low)] if target.is_signed else [("umin", high)]
    for op, bound in bounds:
        limit = (w, constant(source, bound))
        a = e.intrinsic(w, f"llvm.{op}.{suffix(source)}", [(w, a), limit])
    return e.value(f"trunc {w} {a} to {llvm_type(target)}")


def conversion(e: Emitter, source: DType, target: DType, a: str) -> str:
    """A value of one type in another one; LLVM computes with both."""
    s, t = llvm_type(source), llvm_type(target)
    if s == t:
        return a
    if source.is_float and target.is_float:
        return e.value(f"{'fpext' if target.bits > source.bits else 'fptrunc'} {s} {a} to {t}")
    if target.kind == "bool":
        zero = constant(source, 0) if source.lanes == 1 else "zeroinitializer"
        return e.value(f"{'fcmp une' if source.is_float else 'icmp ne'} {s} {a}, {zero}")
    if source.is_float:
        return float_to_int(e, source, target, a)
    if target.is_float:
        return e.value(f"{'sitofp' if source.is_signed else 'uitofp'} {s} {a} to {t}")
    wide = 1 if source.kind == "bool" else source.bits
    code = "trunc" if target.bits < wide else "sext" if source.is_signed else "zext"
    return e.value(f"{code} {s} {a} to {t}")


def two_vectors(e: Emitter, t: DType, a: str, b: str, order: Iterable[int]) -> str:
    """The lanes that `order` lists, of two vectors of one type."""
    places = [f"i32 {i}" for i in order]
    mask = f"<{len(places)} x i32> <{', '.join(places)}>"
    return e.value(f"shufflevector {llvm_type(t)} {a}, {llvm_type(t)} {b}, {mask}")


def lane(e: Emitter, t: DType, vector: str, at: int) -> str:
    """One lane of a vector. Lanes of uint32, the addresses of gathers, are extracted in pairs: a
    gather waits a cycle for each move out of a vector register."""
    if t.scalar is not dtypes.uint32 or t.lanes % 2 or t.lanes < 4:
        return e.value(f"extractelement {llvm_type(t)} {vector}, i64 {at}")
    wide = f"<{t.lanes // 2} x i64>"
    pairs = e.once(f"bitcast {llvm_type(t)} {vector} to {wide}")
    pair = e.once(f"extractelement {wide} {pairs}, i64 {at // 2}")
    return e.value(f"trunc i64 {e.value(f'lshr i64 {pair}, 32') if at % 2 else pair} to i32")


ALU: dict[Op, Alu] = {
    # Nothing here lets LLVM fuse a product into a sum: pass fuse-products has decided that.
    Ops.ADD: _binary("add", floating="fadd", boolean="or"),
    Ops.SUB: _binary("sub", floating="fsub", boolean="xor"),
    Ops.MUL: _binary("mul", floating="fmul", boolean="and"),
    Ops.FDIV: _binary("fdiv"),
    Ops.AND: _binary("and"),
    Ops.OR: _binary("or"),
    Ops.XOR: _binary("xor"),
    Ops.SHL: _binary("shl"),
    Ops.SHR: _binary("ashr", "lshr"),
    # `decompose` made the operands safe: no division by 0, no overflow.
    Ops.CDIV: _binary("sdiv", "udiv"),
    Ops.CMOD: _binary("srem", "urem"),
    Ops.CMPLT: _binary("icmp slt", "icmp ult", "fcmp olt"),
    Ops.CMPLE: _binary("icmp sle", "icmp ule", "fcmp ole"),
    Ops.CMPEQ: _binary("icmp eq", floating="fcmp oeq"),
    Ops.CMPNE: _binary("icmp ne", floating="fcmp une"),
    Ops.MAX: _extreme("smax", "umax", "ogt"),
    Ops.MIN: _extreme("smin", "umin", "olt"),
    Ops.NEG: _neg,
    Ops.ABS: _abs,
    Ops.RECIPROCAL: lambda e, t, names: ALU[Ops.FDIV](e, t, [constant(t, 1.0), *names]),
    Ops.SQRT: _float_call("sqrt"),
    Ops.TRUNC: _float_call("trunc"),
    Ops.FLOOR: _float_call("floor"),
    Ops.CEIL: _float_call("ceil"),
    Ops.ROUND: _float_call("roundeven"),
    Ops.MULACC: _mulacc,
    Ops.DOT4: _dot4,
    Ops.DOT2: _dot2,
    Ops.SCALE: _scale,
}
