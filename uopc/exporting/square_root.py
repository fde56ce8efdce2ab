"""Square roots in integers, for processors without an instruction: C compilers call a library.

A mantissa m of 53 or 54 bits stands for m / 2^52, from 1 to 4. The root is found bit by bit, with
one bit more than a mantissa: a bit is kept if the square stays below m. A root never lies half-way
between two floats, so the extra bit decides the rounding.
"""

from __future__ import annotations

from uopc.backends.llvm.builder import DOUBLE, FLOAT, I64, Builder, Operand, Signature
from uopc.backends.llvm.types import llvm_type, suffix
from uopc.exporting.machines import TargetMachine
from uopc.ir.core import dtypes

_ONE = 1 << 52  # the bit of a mantissa that is not stored
_INFINITY = 0x7FF << 52
_NAN = "0x7FF8000000000000"  # a double in LLVM IR by its bits


def _of_double(name: str) -> str:
    b = Builder(DOUBLE)
    x, nan = Operand(b, DOUBLE, "%x"), Operand(b, DOUBLE, _NAN)
    given = x.to(I64, "bitcast")
    positive, infinite = x.compare("ogt", 0.0), given.eq(_INFINITY)
    with b.unless(positive & (infinite ^ True)):
        negative, same = x.compare("olt", 0.0), x.operation("fadd", x)
        b.ret(negative.select(nan, infinite.select(x, same)))
    tiny = given < _ONE
    bits = tiny.select(x.operation("fmul", float(1 << 54)), x).to(I64, "bitcast")
    power = (bits >> 52) - tiny.select(1023 + 54, 1023)
    odd = power & 1
    mantissa = ((bits & (_ONE - 1)) | _ONE) << odd
    head, done = b.block(I64, I64, I64, I64), b.block()
    rest, square, root, bit = b.begin(head, mantissa << 1, 0, 0, _ONE << 1)
    tried = square + bit
    keeps = tried <= rest
    more_square, less_rest, more_root = tried + bit, rest - tried, root + bit
    square = keeps.select(more_square, square)
    rest, root = keeps.select(less_rest, rest), keeps.select(more_root, root)
    rest, bit = rest << 1, bit >> 1
    b.fork(bit.ne(0), head, done, rest, square, root, bit)
    b.begin(done)
    rounded = (root + 1) >> 1
    exponent = (power.operation("ashr", 1) + 1022) << 52
    b.ret((exponent + rounded).to(DOUBLE, "bitcast"))
    return b.definition(f"define internal double @{name}_sqrt_f64(double %x) nounwind")


def _of_float(name: str) -> str:
    """A root of 53 bits, rounded again, is that of 24 bits."""
    b = Builder(FLOAT)
    wide = Operand(b, FLOAT, "%x").to(DOUBLE, "fpext")
    root = b.call(f"@{name}_sqrt_f64", Signature(DOUBLE, DOUBLE), [wide])
    b.ret(root.to(FLOAT, "fptrunc"))
    return b.definition(f"define internal float @{name}_sqrt_f32(float %x) nounwind")


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
    single = [_of_float(name)] if dtypes.float32 in called else []
    return "\n".join([text, _of_double(name), *single, ""])
