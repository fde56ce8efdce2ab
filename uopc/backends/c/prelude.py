"""What the text of a kernel needs before it: macros and small functions, each when it is used."""

from __future__ import annotations

from uopc.backends.c.types import c_type, literal
from uopc.ir.core import dtypes, intervals
from uopc.ir.core.dtypes import DType

HEAD = """\
#include <stdbool.h>
#include <float.h>

#if FLT_EVAL_METHOD != 0
#error "each operation must round to its own type: for x86 of 32 bits, -msse2 -mfpmath=sse"
#endif
#if defined(__FAST_MATH__)
#error "compile without -ffast-math: results are those of IEEE 754"
#endif
/* A product is fused into a sum where this text says so, and nowhere else. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize ("fp-contract=off", "no-trapping-math")
#endif"""

_TABLE = {
    "INF": """\
#if defined(__GNUC__)
#define UOPC_INF __builtin_inf()
#define UOPC_INFF __builtin_inff()
#else
#include <math.h>
#define UOPC_INF ((double)INFINITY)
#define UOPC_INFF INFINITY
#endif""",
    "NAN": """\
#if defined(__GNUC__)
#define UOPC_NAN __builtin_nan("")
#define UOPC_NANF __builtin_nanf("")
#else
#include <math.h>
#define UOPC_NAN ((double)NAN)
#define UOPC_NANF NAN
#endif""",
    "FMA": """\
/* a*b + c, rounded once: an instruction, or the same bits by parts that are exact. */
#if defined(__FMA__) || defined(__aarch64__) || (defined(__ARM_FEATURE_FMA) && (__ARM_FP & 8)) \\
    || (defined(__riscv_flen) && __riscv_flen >= 64)
#define UOPC_FMA(a, b, c) __builtin_fma(a, b, c)
#else
static double uopc_sum(double a, double b, double *lost)
{
    const double total = a + b;
    const double moved = total - a;
    *lost = (a - (total - moved)) + (b - moved);
    return total;
}

/* a + b, where the last bit is 1 if the sum is not exact. */
static double uopc_odd_sum(double a, double b)
{
    union { double number; uint64_t bits; } both;
    double lost = 0.0;
    both.number = uopc_sum(a, b, &lost);
    if ((lost < 0.0 || lost > 0.0) && (both.bits & 1u) == 0u) {
        both.bits = ((lost < 0.0) == (both.number < 0.0)) ? both.bits + 1u : both.bits - 1u;
    }
    return both.number;
}

static double uopc_size(double a)
{
    return a < 0.0 ? -a : a;
}

static double uopc_fma(double a, double b, double c)
{
    const double large = 0x1p+900;
    const bool far = uopc_size(a) > large || uopc_size(b) > large || uopc_size(c) > large;
    const double down = far ? 0x1p-100 : 1.0;
    const bool first = uopc_size(a) > uopc_size(b);
    const double x = first ? a * down : a;
    const double y = first ? b : b * down;
    const double z = c * down;
    const double x_moved = x * 134217729.0;
    const double y_moved = y * 134217729.0;
    const double x_high = x_moved - (x_moved - x);
    const double y_high = y_moved - (y_moved - y);
    const double x_low = x - x_high;
    const double y_low = y - y_high;
    const double high = x * y;
    const double rounded = ((high - x_high * y_high) - x_low * y_high) - x_high * y_low;
    const double low = x_low * y_low - rounded;
    double lost = 0.0;
    double rest = 0.0;
    const double total = uopc_sum(high, uopc_sum(z, low, &lost), &rest);
    const double exact = total + uopc_odd_sum(lost, rest);
    const double small = uopc_size(z) <= DBL_MAX ? 1.0 : 0x1p-600;
    const double plain = (x * small) * (y * small) + z;
    const double made = (exact == exact ? exact : plain) * (far ? 0x1p+100 : 1.0);
    if (made == 0.0) {
        return (c == 0.0 && a != 0.0 && b != 0.0) ? a * b : a * b + c;
    }
    return made;
}
#define UOPC_FMA(a, b, c) uopc_fma(a, b, c)
#endif""",
    "FMAF": """\
#if defined(__FMA__) || defined(__aarch64__) || defined(__ARM_FEATURE_FMA) || defined(__riscv_flen)
#define UOPC_FMAF(a, b, c) __builtin_fmaf(a, b, c)
#else
static float uopc_fmaf(float a, float b, float c)
{
    const double product = (double)a * (double)b;
    const double total = product + (double)c;
    const double moved = total - product;
    const double lost = (product - (total - moved)) + ((double)c - moved);
    union { double number; uint64_t bits; } both;
    both.number = total;
    if ((lost < 0.0 || lost > 0.0) && (both.bits & 1u) == 0u) {
        both.bits = ((lost < 0.0) == (total < 0.0)) ? both.bits + 1u : both.bits - 1u;
    }
    return (float)both.number;
}
#define UOPC_FMAF(a, b, c) uopc_fmaf(a, b, c)
#endif""",
}
# Square roots are instructions, which compilers take for `sqrt` only where no errno is asked for.
_SQRT = {
    "sqrt": "_mm_cvtsd_f64(_mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(x)))",
    "sqrtf": "_mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)))",
}
_NEON_SQRT = {
    "sqrt": "vget_lane_f64(vsqrt_f64(vdup_n_f64(x)), 0)",
    "sqrtf": "vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0)",
}
_FUNCTIONS = ("sqrt", "trunc", "floor", "ceil", "rint", "fabs")


class Prelude:
    """The declarations that some kernels need, in the order in which they were first needed."""

    def __init__(self) -> None:
        self.items: dict[str, str] = {}

    def text(self) -> str:
        """All of them."""
        return "\n\n".join(self.items.values())

    def known(self, name: str) -> str:
        """The name of a macro of the table."""
        self.items.setdefault(name, _TABLE[name])
        return f"UOPC_{name}"

    def math(self, name: str, t: DType) -> str:
        """The name of a function that IEEE 754 defines and C has: an instruction of the machine
        where it has one."""
        assert name in _FUNCTIONS
        name += "" if t is dtypes.float64 else "f"
        macro = f"UOPC_{name.upper()}"
        if name in _SQRT:
            self.items.setdefault(name, (
                f"#if defined(__SSE2__)\n#include <emmintrin.h>\n#define {macro}(x) {_SQRT[name]}\n"
                f"#elif defined(__aarch64__)\n#include <arm_neon.h>\n"
                f"#define {macro}(x) {_NEON_SQRT[name]}\n#else\n#include <math.h>\n"
                f"#define {macro}(x) {name}(x)\n#endif"
            ))  # fmt: skip
            return macro
        self.items.setdefault(name, (
            f"#if defined(__GNUC__)\n#define {macro}(x) __builtin_{name}(x)\n#else\n"
            f"#include <math.h>\n#define {macro}(x) {name}(x)\n#endif"
        ))  # fmt: skip
        return macro

    def library(self, name: str, t: DType) -> str:
        """The name of a function of the C library."""
        self.items.setdefault("library", "#include <math.h>")
        return name if t is dtypes.float64 else f"{name}f"

    def constant(self, t: DType, value: object) -> str:
        """A constant."""
        text = literal(t, value)
        for name in ("INF", "NAN"):
            if f"UOPC_{name}" in text:
                self.known(name)
        return text

    def to_integer(self, source: DType, target: DType) -> str:
        """The name of a function that cuts a float off to an integer: it saturates, NaN gives 0."""
        name = f"uopc_{target.short}_from_{source.short}"
        if name not in self.items:
            whole = dtypes.int64 if target.kind == "index" else target
            low, high = intervals.of_type(whole)
            limits = [self.constant(source, float(v)) for v in (low, high + 1)]
            results = [self.constant(whole, v) for v in (low, high)]
            s, t = c_type(source), c_type(target)
            zero = literal(whole, 0)
            self.items[name] = "\n".join([
                f"static {t} {name}({s} x)", "{", f"    if (x >= {limits[1]}) {{",
                f"        return {results[1]};", "    }", f"    if (x <= {limits[0]}) {{",
                f"        return {results[0]};", "    }",
                f"    return x == x ? ({t})x : {zero};", "}",
            ])  # fmt: skip
        return name

    def bits(self, source: DType, target: DType) -> str:
        """The name of a function that takes the bits of a value for another type."""
        name = f"uopc_{target.short}_of_{source.short}"
        s, t = c_type(source), c_type(target)
        self.items.setdefault(name, (
            f"static {t} {name}({s} x)\n{{\n    union {{ {s} from; {t} to; }} both;\n"
            "    both.from = x;\n    return both.to;\n}"
        ))  # fmt: skip
        return name
