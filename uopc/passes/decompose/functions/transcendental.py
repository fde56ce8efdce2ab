"""Transcendental functions as straight-line expressions over UOps, for float32 and float64.

They consist of arithmetic, integer shifts and selects, with no memory access or call, so they
vectorise; only rare arguments (huge angles, unusual logarithms) take a branch. Results are IEEE
over the whole format: subnormals, signed zeros, infinities, NaN. Folding
`(x + c) - c` or reassociating breaks them; contracting a product into an addition does not.

Worst error in ulp, measured (float32 of one argument: every input), and number of operations:
             exp   exp2  log   log2  sin   cos   tan   tanh  erf   pow
    float32  0.91  0.88  0.88  0.96  1.00  1.00  2.04  2.57  1.79  0.68   19-35 operations, pow 66
    float64  0.89  0.85  0.86  0.87  1.49  1.49  2.57  2.57  1.69  1.96   24-42, pow 119
Methods. Adding 1.5*2^m, m the mantissa bits, rounds to an integer n, left in the low bits of the
sum; with a bias added beforehand these bits are the exponent field of 2^n. A machine with SCALE
multiplies by 2^n directly. Fused multiply-adds reduce the arguments (Cody and Waite 1980);
`huge_angles.py` reduces huge ones, in 100 operations. float64 log is FDLIBM's. erf
is 1 - exp(-q), q fitted to -log(erfc x) over the whole range.
`python -m tests.ulp` measures the errors; with --coefficients it prints the tables.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from uopc.ir.builder.float_bits import (
    bits_of,
    exponent_and_fraction,
    float_of,
    polynomial,
    sign_of,
    with_sign,
)
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.decompose.cold_branches import applied, cold_branch
from uopc.passes.decompose.functions.huge_angles import payne_hanek, where_huge
from uopc.passes.decompose.functions.trig_float32 import reduced_32, sine_32

# fmt: off
LOG2E_32: Final = 1.44269502
LN2_32: Final = (0.693147182, -1.90465421e-09)
LOG2E_64: Final = (1.4426950408889634, 2.0355273740931033e-17)
LN2_64: Final = (0.6931471805599453, 2.3190468138462996e-17)
EXP_32: Final = (0.49999997, 0.16666542, 0.0416675285, 0.00836669281, 0.00138621568)
EXP_64: Final = (0.5000000000000006, 0.166666666666666, 0.04166666666657362, 0.008333333333383519,
    0.0013888888932399315, 0.00019841269731676298, 2.480150439420565e-05, 2.755739643193934e-06,
    2.762635760774076e-07, 2.5057264000887157e-08)
EXP2_32: Final = (0.693147182, 0.240226507, 0.0555035807, 0.00961807743, 0.00133916433,
    0.000154563575)
EXP2_64: Final = (0.6931471805599453, 0.24022650695910136, 0.055504108664822936,
    0.009618129107592436, 0.0013333558146164316, 0.00015403530459036856, 1.5252734037022494e-05,
    1.3215434398659551e-06, 1.0177985498492046e-07, 7.073924586475366e-09, 4.465566862098615e-10)
LOG_32: Final = (-0.499999881, 0.333333373, -0.250016004, 0.200012371, -0.166081786, 0.14195393,
    -0.1326361, 0.128275156, -0.0747935176)
LOG2_32: Final = (1.44269502, 1.82859328e-08, -0.721347332, 0.480898529, -0.360697985, 0.288553119,
    -0.23958084, 0.204832792, -0.191557124, 0.184965685, -0.107376426)
LOG_64: Final = (0.6666666666666736, 0.39999999999405034, 0.2857142874423165, 0.22222198403083,
    0.18183572504150583, 0.1531385313789698, 0.14797840067142343)
POW_LOG2_32: Final = (1.4426950409599, -0.72134752487046, 0.48089831025793, -0.3606728487304,
    0.28854152423735, -0.24050269762645, 0.20606958889005, -0.17905137383039, 0.15933889555426,
    -0.15724806235617, 0.1533369477467, -0.084166936990409)
POW_EXP2_32: Final = (1.0, 0.69314720671062, 0.2402265108415, 0.055503272142092, 0.0096180359586009,
    0.0013400432165378, 0.00015467364972895)
POW_LOG2_64: Final = (0.20000000000001192, 0.14285714285023715, 0.11111111264063103,
    0.09090891860173733, 0.07693392303330024, 0.06628114658085615, 0.06600717893311979)
THIRD_64: Final = (0.3333333333333333, 1.850371707708594e-17)
TWO_BY_LN2_64: Final = (2.8853900817779268, 4.0710547481862066e-17)
TWO_BY_PI_32: Final = ((0.6366197723675814, -3.935735335036497e-17), (-4.119769120791653e-09,
    2.8376220177865265e-25), (7.166494911215068e-17, -2.1442872565786008e-33),
    (-5.434184107743751e-25, 3.8858987075186823e-41))
TAN_SIN_32: Final = (1.5707963195518, -0.64596325904254, 0.079677451682143, -0.0045937443717558)
TAN_COS_32: Final = (0.99999999992132, -1.2337005359099, 0.2536690962017, -0.020859308361836,
    0.00090197626134627)
PI_64: Final = (3.141592653589793, 1.224646799147353e-16, 2.1657133478438278e-32)
INVERSE_PI_64: Final = 0.3183098861837907
SIN_64: Final = (-0.16666666666666666, 0.008333333333333208, -0.00019841269841213365,
    2.7557319211743382e-06, -2.5052106921474298e-08, 1.605894189407033e-10, -7.643043166023409e-13,
    2.7216743258720103e-15)
COS_64: Final = (-0.16666666666666666, 0.00833333333333325, -0.0001984126984121674,
    2.7557319211811738e-06, -2.5052106921470714e-08, 1.6058941893860709e-10, -7.643043160062661e-13,
    2.7216742596880023e-15)
TAN_64: Final = ((-0.13338344604831479, 0.0034248812628277676, -1.7861596937379078e-05), (1.0,
    -0.46671677938164813, 0.025663807723377206, -0.0003118142220981962, 4.981890135194099e-07))
ERF_32: Final = (-1.12837923, 5.49764003e-08, -0.636619449, -0.102777079, 0.019149933,
    0.000166634505, -0.00167360937, 0.000636590703, -0.000118729986, 9.38165067e-06)
ERF_64: Final = (-1.1283791670955126, (-0.6366197723675836, -1.1731091288881683,
    -1.0091481588837348, -0.5132133569905841, -0.16328356025520127, -0.031665914961235955,
    -0.003288580214749132, -0.00011987172892670219), (1.0, 1.681280682825404, 1.3437958580115688,
    0.6400640683021773, 0.19142155441526804, 0.03495947855124821, 0.0034214081031061533,
    0.00011989272158268913))
# fmt: on


class _WorkingFormat(NamedTuple):
    """A float format and the constants that the functions need in it."""

    uint: DType
    mantissa: int
    bias: int
    round: float  # adding it rounds to an integer, which is then the low bits of the sum
    log2e: float
    ln2: tuple[float, float]
    # Below the first the result is 0, above the second infinite; at the third 2^n is twice 0.
    exp: tuple[float, float, float]
    exp2: tuple[float, float, float]
    q: Sequence[float]  # e^r = 1 + r + r^2 q(r)
    g: Sequence[float]  # 2^r = 1 + r g(r)


_F32: Final = _WorkingFormat(
    dtypes.uint32, 23, 127, 1.5 * 2.0**23, LOG2E_32, LN2_32,
    (-104.0, 89.0, -176.0), (-150.0, 129.0, -254.0), EXP_32, EXP2_32,
)  # fmt: skip
_F64: Final = _WorkingFormat(
    dtypes.uint64, 52, 1023, 1.5 * 2.0**52, LOG2E_64[0], LN2_64,
    (-745.25, 710.0, -1418.0), (-1075.0, 1025.0, -2046.0), EXP_64, EXP2_64,
)  # fmt: skip


def _format(x: UOp) -> _WorkingFormat:
    return _F64 if x.dtype.scalar is dtypes.float64 else _F32


def _clamp(x: UOp, limits: tuple[float, float, float], scales: bool = False) -> UOp:
    """x, `at_most` above it and `far` below `low`; NaN stays. A SCALE by the result needs no lower
    limit."""
    low, at_most, far = limits
    x = (x > at_most).where(at_most, x)
    return x if scales else (x < low).where(far, x)


def _scaled(value: UOp, rounded: UOp, n: UOp, scales: bool) -> UOp:
    """value * 2^n, where `rounded` is n + 2*bias + round: two factors, so that it rounds once.

    What is below all numbers, as a masked score, must be multiplied by 0 and not underflow, which
    takes up to 20 times as long: both factors of the least n are 0, or the value becomes 0."""
    f = _format(value)
    if scales:
        value = (n < -(f.bias + f.mantissa + 0.0)).where(0.0, value)
        return intern(Ops.SCALE, value.dtype, (value, n))
    total = bits_of(rounded)
    half = total >> 1
    return value * float_of(half << f.mantissa) * float_of((total - half) << f.mantissa)


def _reduced_by_ln2(x: UOp, bias: int) -> tuple[UOp, UOp, UOp]:
    """x = n ln2 + r, |r| <= ln2/2: n + bias with n in the low bits, n, and r."""
    f = _format(x)
    shift = f.round + bias
    rounded = x.mulacc(f.log2e, shift)
    n = rounded - shift
    return rounded, n, n.mulacc(-f.ln2[1], n.mulacc(-f.ln2[0], x))


def exp(x: UOp, scales: bool = False) -> UOp:
    """e to the x: x = n ln2 + r, a polynomial in r, scaled by 2^n."""
    f = _format(x)
    rounded, n, r = _reduced_by_ln2(_clamp(x, f.exp, scales), 2 * f.bias)
    return _scaled(polynomial(r, (1.0, 1.0, *f.q)), rounded, n, scales)


def exp2(x: UOp, scales: bool = False) -> UOp:
    """2 to the x: x = n + r exactly, |r| <= 1/2, a polynomial in r, scaled by 2^n."""
    f = _format(x)
    x = _clamp(x, f.exp2, scales)
    shift = f.round + 2 * f.bias
    rounded = x + shift
    n = rounded - shift
    return _scaled(polynomial(x - n, (1.0, *f.g)), rounded, n, scales)


def _expm1_factors(x: UOp) -> tuple[UOp, UOp]:
    """(s, p) with e^x = s (1 + p), s a power of two and p = e^r - 1 in full; |x| < 2^6."""
    f = _format(x)
    rounded, _, r = _reduced_by_ln2(x, f.bias)
    return float_of(bits_of(rounded) << f.mantissa), (r * r).mulacc(polynomial(r, f.q), r)


def tanh(x: UOp) -> UOp:
    """Hyperbolic tangent: t/(t+2) with t = e^(2|x|) - 1, and the sign of x."""
    a = abs(x)
    a = (a > 20.0).where(20.0, a)
    s, p = _expm1_factors(a + a)
    t = s.mulacc(p, s - 1.0)
    return with_sign(t / (t + 2.0), sign_of(x))


def erf(x: UOp) -> UOp:
    """Error function: 1 - e^-q, q = a R(a) = -log(erfc a), a = |x| (the tables hold -R)."""
    limit = 6.0 if _format(x) is _F64 else 4.0
    a = (abs(x) > limit).where(limit, abs(x))
    if _format(x) is _F64:
        ratio = polynomial(a, ERF_64[1]) / polynomial(a, ERF_64[2])
        minus_q = a.mulacc(ERF_64[0], a * a * ratio)
    else:
        minus_q = a.mulacc(ERF_32[0], a * polynomial(a, ERF_32[1:]))
    s, p = _expm1_factors(minus_q)
    return with_sign((-s).mulacc(p, 1.0 - s), sign_of(x))


def _log1p_tail(f: UOp) -> UOp:
    """log(1 + f) - f + f^2/2 for float64: s (f^2/2 + R(s^2)) with s = f/(2 + f)."""
    s = f / (f + 2.0)
    z = s * s
    return s * z.mulacc(polynomial(z, LOG_64), f * 0.5 * f)


def _with_edges(logarithm: Callable[..., UOp], x: UOp) -> UOp:
    """The logarithm of any x, from one of positive numbers that takes a flag for subnormals. All
    numbers but the positive normal ones, told apart by a comparison of bits, take a branch."""
    f = _format(x)
    least, infinite = 1 << f.mantissa, (2 * f.bias + 1) << f.mantissa
    unusual = (bits_of(x) - least) >= infinite - least
    edge = x.eq(0.0).where(-math.inf, x.const_like(math.nan))
    subnormals = functools.partial(logarithm, subnormals=True)
    positive = applied(f"full_{logarithm.__name__}", subnormals, x)
    complete = (x <= 0.0).where(edge, (x < math.inf).where(positive, x))
    return cold_branch(unusual, logarithm(x, False), complete)


def log(x: UOp, subnormals: bool) -> UOp:
    """Natural logarithm of a positive x = 2^k (1 + f)."""
    k, m = exponent_and_fraction(x, subnormals)
    f = m - 1.0
    high, low = _format(x).ln2
    if _format(x) is _F64:
        square = f * 0.5 * f
        return k.mulacc(high, f - (square - k.mulacc(low, _log1p_tail(f))))
    tail = (f * f).mulacc(polynomial(f, LOG_32), k * low)
    return k.mulacc(high, f + tail)


def log2(x: UOp, subnormals: bool) -> UOp:
    """Base-2 logarithm of a positive x = 2^k (1 + f); exact at powers of two."""
    k, m = exponent_and_fraction(x, subnormals)
    f = m - 1.0
    if _format(x) is _F64:
        # log(1 + f) as high + low, times log2(e) as two parts.
        minus_half = f * -0.5
        high = minus_half.mulacc(f, f)
        low = minus_half.mulacc(f, f - high) + _log1p_tail(f)
        fraction = high.mulacc(LOG2E_64[0], low.mulacc(LOG2E_64[0], high * LOG2E_64[1]))
    else:
        fraction = f.mulacc(LOG2_32[0], f * polynomial(f, LOG2_32[1:]))
    return k + fraction


def _reduced_64(x: UOp, n: UOp, pi: Sequence[float]) -> UOp:
    """x - n pi: the products are exact inside the fused operations, so one rounding remains."""
    for part in pi:
        x = n.mulacc(-part, x)
    return x


def sin(x: UOp) -> UOp:
    """Sine. float64: x = n pi + r, sin x = (-1)^n sin r."""
    if _format(x) is _F32:
        return with_sign(sine_32(x, False), sign_of(x))
    rounded = x.mulacc(INVERSE_PI_64, _F64.round)
    r = with_sign(_reduced_64(x, rounded - _F64.round, PI_64), bits_of(rounded) << 63)
    return where_huge("huge_sin", x, _huge_sin_64, _sine_64(r, SIN_64))


def _huge_sin_64(x: UOp) -> UOp:
    r, _, odd = payne_hanek(x, 0, 0, PI_64)
    return _sine_64(with_sign(r, bits_of(odd) ^ sign_of(x)), SIN_64)


def cos(x: UOp) -> UOp:
    """Cosine. float64: x = (n + 1/2) pi + r, cos x = -(-1)^n sin r.

    For |x| < 0.57, r = x + pi/2 is above 1 and loses 6e-17, the low part of pi/2. So `COS_64` is
    fitted to sin r + 3/2^56 r^5 (1 - (2r/pi)^2)^2: near r = 1, where the loss counts most, that
    makes up for about half of it, and the error is as large with the loss as without.
    """
    if _format(x) is _F32:
        return sine_32(x, True)
    rounded = x.mulacc(INVERSE_PI_64, -0.5) + (_F64.round + 1.0)
    n = rounded - (_F64.round + 1.0)
    r = with_sign(_reduced_64(x, n + 0.5, PI_64), bits_of(rounded) << 63)
    return where_huge("huge_cos", x, _huge_cos_64, _sine_64(r, COS_64))


def _huge_cos_64(x: UOp) -> UOp:
    r, _, odd = payne_hanek(x, 0, 1 << 62, PI_64)
    return _sine_64(with_sign(r, bits_of(odd)), COS_64)


def _sine_64(r: UOp, terms: Sequence[float]) -> UOp:
    """sin r = r + r u for |r| <= pi/2, u a polynomial in r^2 that is +0 at 0."""
    z = r * r
    u = z.mulacc(terms[0], z * (z * polynomial(z, terms[1:])))
    return r.mulacc(u, r)


def tan(x: UOp) -> UOp:
    """Tangent. 2|x|/pi = n + r; sin over cos of r, or for odd n minus cos over sin."""
    if _format(x) is _F64:
        return _tan_64(x)
    r, rounded = reduced_32(x, TWO_BY_PI_32)
    odd = bits_of(rounded) << 63
    sine = (with_sign(r, odd) * polynomial(r * r, TAN_SIN_32)).cast(dtypes.float32)
    cosine = polynomial(r * r, TAN_COS_32).cast(dtypes.float32)
    swap = odd.ne(0)
    return with_sign(swap.where(cosine, sine) / swap.where(sine, cosine), sign_of(x))


def _tan_64(x: UOp) -> UOp:
    """|x| = n pi/2 + r; r N(r^2) / D(r^2), or for odd n minus its reciprocal; the sign of x.

    The rounding error of r, c, counts twice where tan is about 1. So the numerator gets 1.4 c,
    which is right there, and better than no correction everywhere else.
    """
    half_pi = [part / 2 for part in PI_64]
    rounded = abs(x).mulacc(2 * INVERSE_PI_64, _F64.round)
    n = rounded - _F64.round
    near = _reduced_64(abs(x), n, half_pi)
    # |x| - n half_pi[0] is exact, near at most 2^-14 off it: `lost` is right unless both are small.
    lost = n.mulacc(-half_pi[1], n.mulacc(-half_pi[0], abs(x)) - near)
    lost = (abs(near) > 2.0**-8).where(lost, 0.0)
    usual = _quotient_64(x, near, lost, bits_of(rounded) << 63)
    return where_huge("huge_tan", x, _huge_tan_64, usual)


def _huge_tan_64(x: UOp) -> UOp:
    r, c, sign = payne_hanek(x, 1, 0, [part / 2 for part in PI_64])
    return _quotient_64(x, r, c, bits_of(sign))


def _quotient_64(x: UOp, r: UOp, c: UOp, odd: UOp) -> UOp:
    """The tangent of x from the rest r + c and the parity of its reduction."""
    z = r * r
    above = r + c.mulacc(1.4, r * (z * polynomial(z, TAN_64[0])))
    below = polynomial(z, TAN_64[1])
    swap = odd.ne(0)
    quotient = swap.where(below, above) / swap.where(above, below)
    return with_sign(quotient, sign_of(x) ^ odd)


def _power_32(a: UOp, y: UOp) -> UOp:
    """a^y for a >= 0, computed in float64: 2^(y log2 a)."""
    wide = a.cast(dtypes.float64)
    k, m = exponent_and_fraction(wide, subnormals=False)
    f = m - 1.0
    logarithm = f.mulacc(polynomial(f, POW_LOG2_32), k)
    logarithm = (a < math.inf).where(logarithm, wide)
    logarithm = a.eq(0.0).where(-math.inf, logarithm)
    e = _clamp(logarithm * y.cast(dtypes.float64), (-160.0, 130.0, -160.0))
    shift = _F64.round + _F64.bias
    rounded = e + shift
    fraction = polynomial(e - (rounded - shift), POW_EXP2_32)
    return (fraction * float_of(bits_of(rounded) << 52)).cast(dtypes.float32)


def _log2_pair(a: UOp) -> tuple[UOp, UOp]:
    """log2(a) as high + low, to about 2^-64; a is positive and finite.

    2^k m, s = (m-1)/(m+1) as s + s_low; log2 m = (2/ln 2) (s + s c), c = z/3 + z^2 R(z), z = s^2.
    Products enter sums through `mulacc` only, so contraction cannot change them.
    """
    k, m = exponent_and_fraction(a)
    f = m - 1.0
    d = m + 1.0
    d_low = m - (d - 1.0)
    inverse = d.reciprocal()
    s = f * inverse
    s_low = (-s).mulacc(d_low, (-s).mulacc(d, f)) * inverse
    z = s * s
    z_low = (s + s).mulacc(s_low, s.mulacc(s, -z))
    third, third_low = THIRD_64
    c = z * third
    c_low = z.mulacc(third, -c) + z_low.mulacc(third, z * third_low)
    c_low = (z * z).mulacc(polynomial(z, POW_LOG2_64), c_low)
    two, two_low = TWO_BY_LN2_64
    t = s * two
    t_low = s_low.mulacc(two, s.mulacc(two_low, s.mulacc(two, -t)))
    high = s.mulacc(two, k)
    low = s.mulacc(two, k - high) + s_low.mulacc(two, s * two_low)
    total = t.mulacc(c, high)
    low = low + t.mulacc(c, high - total) + t_low.mulacc(c, t * c_low)
    high = total + low
    return high, (total - high) + low


def _power_64(a: UOp, y: UOp, scales: bool) -> UOp:
    """a^y for a >= 0: 2^(y log2 a), the exponent as a sum of two."""
    logarithm, logarithm_low = _log2_pair(a)
    logarithm = (a < math.inf).where(logarithm, a)
    logarithm = a.eq(0.0).where(-math.inf, logarithm)
    product = logarithm * y
    low = y.mulacc(logarithm_low, y.mulacc(logarithm, -product))
    e = _clamp(product, _F64.exp2, scales)
    low = e.eq(product).where(low, low.const_like(0.0))
    shift = _F64.round + 2 * _F64.bias
    rounded = e + shift
    n = rounded - shift
    return _scaled(polynomial((e - n) + low, (1.0, *EXP2_64)), rounded, n, scales)


def power(x: UOp, y: UOp, scales: bool = False) -> UOp:
    """x to the y, with the special cases of C's pow (C17 F.10.4.4)."""
    limit = 2.0**100  # any x but 1 overflows or vanishes long before
    exponent = _clamp(y, (-limit, limit, -limit))
    wide = _format(x) is _F64
    result = _power_64(abs(x), exponent, scales) if wide else _power_32(abs(x), exponent)
    half, fractional = y * 0.5, y.trunc().ne(y)
    odd = y.trunc().eq(y) & half.trunc().ne(half)
    result = odd.where(with_sign(result, sign_of(x)), result)
    invalid = (x < 0.0) & (x > -math.inf) & fractional
    return (x.eq(1.0) | y.eq(0.0)).where(1.0, invalid.where(math.nan, result))


DECOMPOSITIONS: Final[dict[Op, Callable[..., UOp]]] = {
    Ops.EXP: exp, Ops.EXP2: exp2, Ops.LOG: functools.partial(_with_edges, log),
    Ops.LOG2: functools.partial(_with_edges, log2), Ops.SIN: sin, Ops.COS: cos, Ops.TAN: tan,
    Ops.TANH: tanh, Ops.ERF: erf, Ops.POW: power,
}  # fmt: skip
