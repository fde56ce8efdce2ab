"""Square roots in integers, for processors without an instruction: C compilers call a library.

A mantissa m of 53 or 54 bits stands for m / 2^52, from 1 to 4. The root is found bit by bit, with
one bit more than a mantissa: a bit is kept if the square stays below m. A root never lies half-way
between two floats, so the extra bit decides the rounding.
"""

from __future__ import annotations

from uopc.backends.llvm.types import llvm_type, suffix
from uopc.exporting.machines import TargetMachine
from uopc.ir.core import dtypes

_ONE = 1 << 52  # the bit of a mantissa that is not stored
_DOUBLE = """
define internal double @{name}_sqrt_f64(double %x) nounwind {{
entry:
  %given = bitcast double %x to i64
  %positive = fcmp ogt double %x, 0.0
  %infinite = icmp eq i64 %given, {infinity}
  %not.infinite = xor i1 %infinite, true
  %plain = and i1 %positive, %not.infinite
  br i1 %plain, label %scale, label %special
special:
  %negative = fcmp olt double %x, 0.0
  %same = fadd double %x, %x
  %kept = select i1 %infinite, double %x, double %same
  %root.special = select i1 %negative, double {nan}, double %kept
  ret double %root.special
scale:
  %tiny = icmp ult i64 %given, {one}
  %larger = fmul double %x, {scale}
  %normal = select i1 %tiny, double %larger, double %x
  %bits = bitcast double %normal to i64
  %biased = lshr i64 %bits, 52
  %off = select i1 %tiny, i64 {bias_tiny}, i64 1023
  %power = sub i64 %biased, %off
  %odd = and i64 %power, 1
  %low = and i64 %bits, {below}
  %whole = or i64 %low, {one}
  %mantissa = shl i64 %whole, %odd
  %first = shl i64 %mantissa, 1
  br label %head
head:
  %rest = phi i64 [ %first, %scale ], [ %rest.next, %head ]
  %square = phi i64 [ 0, %scale ], [ %square.next, %head ]
  %root = phi i64 [ 0, %scale ], [ %root.next, %head ]
  %bit = phi i64 [ {top}, %scale ], [ %bit.next, %head ]
  %tried = add i64 %square, %bit
  %keeps = icmp ule i64 %tried, %rest
  %square.more = add i64 %tried, %bit
  %rest.less = sub i64 %rest, %tried
  %root.more = add i64 %root, %bit
  %square.next = select i1 %keeps, i64 %square.more, i64 %square
  %rest.kept = select i1 %keeps, i64 %rest.less, i64 %rest
  %root.next = select i1 %keeps, i64 %root.more, i64 %root
  %rest.next = shl i64 %rest.kept, 1
  %bit.next = lshr i64 %bit, 1
  %more = icmp ne i64 %bit.next, 0
  br i1 %more, label %head, label %done
done:
  %half = add i64 %root.next, 1
  %rounded = lshr i64 %half, 1
  %halved = ashr i64 %power, 1
  %exponent = add i64 %halved, 1022
  %placed = shl i64 %exponent, 52
  %made = add i64 %placed, %rounded
  %result = bitcast i64 %made to double
  ret double %result
}}"""
# A root of 53 bits, rounded again, is that of 24 bits.
_SINGLE = """
define internal float @{name}_sqrt_f32(float %x) nounwind {{
  %wide = fpext float %x to double
  %root = call double @{name}_sqrt_f64(double %wide)
  %result = fptrunc double %root to float
  ret float %result
}}"""


def without_instruction(text: str, name: str, machine: TargetMachine) -> str:
    """Replace square roots that the processor lacks by functions in the module. A Cortex-M with
    fused products and sums of a float type also has its square root."""
    called = []
    for t in (dtypes.float32, dtypes.float64):
        intrinsic, llvm = f"@llvm.sqrt.{suffix(t)}(", llvm_type(t)
        if intrinsic in text and not machine.target.has_fma(t):
            called.append(t)
            text = text.replace(f"declare {llvm} {intrinsic}{llvm})\n", "")
            text = text.replace(intrinsic, f"@{name}_sqrt_{suffix(t)}(")
    if not called:
        return text
    double = _DOUBLE.format(
        name=name, one=_ONE, below=_ONE - 1, top=_ONE << 1, infinity=0x7FF << 52,
        nan="0x7FF8000000000000", scale=float(1 << 54), bias_tiny=1023 + 54,
    )  # fmt: skip
    single = _SINGLE.format(name=name) if dtypes.float32 in called else ""
    return "\n".join([text, double, single])
