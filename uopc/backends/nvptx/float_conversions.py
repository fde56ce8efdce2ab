"""Conversions of bfloat16 and the 8-bit floats by a GPU's own instructions.

Values of these types are integers here: their bits. `Target.native_floats` lists the conversions of
an architecture; `decompose` has replaced the others. Rounding is to nearest, ties to even; 8-bit
floats saturate and are converted two at a time; NaN stays NaN.
"""

from __future__ import annotations

from uopc.backends.llvm import statements
from uopc.backends.llvm.emitter import Emitter
from uopc.backends.llvm.instructions import two_vectors
from uopc.backends.llvm.types import llvm_type
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp

_PAIRS = {dtypes.fp8e4m3: "e4m3x2", dtypes.fp8e5m2: "e5m2x2"}


def convert(e: Emitter, u: UOp) -> str | None:
    """A CAST."""
    source, target = u.src[0].dtype.scalar, u.dtype.scalar
    if target in _PAIRS and source is dtypes.float32:
        return _to_eight_bits(e, u, _PAIRS[target])
    if source in _PAIRS and target is dtypes.float32:
        return _from_eight_bits(e, u, _PAIRS[source])
    if target is dtypes.bfloat16 and source is dtypes.float32:
        n = u.dtype.lanes
        wide, bits = ("float", "bfloat") if n == 1 else (f"<{n} x float>", f"<{n} x bfloat>")
        got = e.value(f"fptrunc {wide} {e.of(u.src[0])} to {bits}")
        return e.value(f"bitcast {bits} {got} to {llvm_type(u.dtype)}")
    if source is dtypes.bfloat16 and target is dtypes.float32:
        return _from_bfloat(e, u)
    return statements.convert(e, u)


def _even(e: Emitter, u: UOp) -> tuple[str, int]:
    """The operand of a CAST as a vector of an even number of lanes."""
    t, name = u.src[0].dtype, e.of(u.src[0])
    if t.lanes == 1:
        narrow = llvm_type(t)
        return e.value(f"insertelement <2 x {narrow}> zeroinitializer, {narrow} {name}, i64 0"), 2
    if t.lanes % 2 == 0:
        return name, t.lanes
    return two_vectors(e, t, name, "zeroinitializer", range(t.lanes + 1)), t.lanes + 1


def _cut(e: Emitter, u: UOp, name: str, lanes: int) -> str:
    """The result of a CAST, from a vector of `lanes`."""
    t, wanted = llvm_type(u.dtype.scalar), u.dtype.lanes
    if wanted == lanes:
        return name
    if wanted == 1:
        return e.value(f"extractelement <{lanes} x {t}> {name}, i64 0")
    return two_vectors(e, u.dtype.scalar.vec(lanes), name, "poison", range(wanted))


def _to_eight_bits(e: Emitter, u: UOp, form: str) -> str:
    """The instruction's first operand becomes the upper half of its result."""
    name, n = _even(e, u)
    floats = e.lanes("float", name, n)
    pairs = e.vector("i16", [
        e.intrinsic("i16", f"llvm.nvvm.ff.to.{form}.rn", [("float", high), ("float", low)])
        for low, high in zip(floats[::2], floats[1::2])
    ])  # fmt: skip
    made = e.value(f"bitcast <{n // 2} x i16> {pairs} to <{n} x i8>")
    if u.dtype.scalar is dtypes.fp8e5m2:  # the instruction's NaN is 127; everywhere else it is 126
        instead, nan = (f"<{', '.join([f'i8 {k}'] * n)}>" for k in (126, 127))
        is_nan = e.value(f"icmp eq <{n} x i8> {made}, {nan}")
        made = e.value(f"select <{n} x i1> {is_nan}, <{n} x i8> {instead}, <{n} x i8> {made}")
    return _cut(e, u, made, n)


def _from_eight_bits(e: Emitter, u: UOp, form: str) -> str:
    """Through float16, which has all values of 8-bit floats."""
    name, n = _even(e, u)
    pairs = e.value(f"bitcast <{n} x i8> {name} to <{n // 2} x i16>")
    floats = []
    for pair in e.lanes("i16", pairs, n // 2):
        halves = e.intrinsic("<2 x half>", f"llvm.nvvm.{form}.to.f16x2.rn", [("i16", pair)])
        floats += [e.value(f"fpext half {x} to float") for x in e.lanes("half", halves, 2)]
    return _cut(e, u, e.vector("float", floats), n)


def _from_bfloat(e: Emitter, u: UOp) -> str:
    """A bfloat16 is the upper half of a float32: of a pair, one is masked, one shifted."""
    name, n = _even(e, u)
    half = n // 2
    words = f"<{half} x i32>"
    pairs = e.value(f"bitcast <{n} x i16> {name} to {words}")
    shift, mask = (f"<{', '.join([f'i32 {k}'] * half)}>" for k in (16, -65536))
    low, high = e.value(f"shl {words} {pairs}, {shift}"), e.value(f"and {words} {pairs}, {mask}")
    order = ", ".join(f"i32 {i // 2 + (i % 2) * half}" for i in range(n))
    both = e.value(f"shufflevector {words} {low}, {words} {high}, <{n} x i32> <{order}>")
    return _cut(e, u, e.value(f"bitcast <{n} x i32> {both} to <{n} x float>"), n)
