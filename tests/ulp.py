"""Worst error of the transcendental functions, in units in the last place of the exact result.

`python -m tests.ulp` measures compiled functions (`--all`: every float32 input, where there is
one argument; float16 always); it exits with 1 when one is beyond its limit. `--markdown` prints
the table of `docs/accuracy.md`, `--coefficients` the constants of `transcendental.py`,
`trig_float32.py`, `trig_without_fma.py` and `huge_angles.py` in `uopc/passes/decompose`, and of
`float_functions.py` in `uopc/tensor`. References: float64 for narrower functions; 80-bit floats
and, on fewer points, mpmath with 40 digits for float64 functions.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FUNCTIONS = (
    "exp", "exp2", "log", "log2", "sin", "cos", "tan", "tanh", "erf", "expm1", "log1p", "log10",
    "sinh", "cosh", "asinh", "acosh", "atanh", "asin", "acos", "atan", "pow", "atan2", "hypot",
)  # fmt: skip
PAIRS = ("pow", "atan2", "hypot")  # of two arguments
IN_NUMPY = {"pow": "power"} | {
    f: f"arc{f[1:]}" for f in FUNCTIONS if f[0] == "a"
}  # fmt: skip
LIMITS = {
    "float16": dict.fromkeys(FUNCTIONS, 0.51),
    "float32": {f: 1.0 if f in FUNCTIONS[:6] else 3.0 for f in FUNCTIONS},
    "float64": {f: 1.5 if f in FUNCTIONS[:6] else 3.0 for f in FUNCTIONS},
}

# Measuring


def ulp_error(got: Array, exact: Array) -> npt.NDArray[np.float64]:
    """|got - exact| in units in the last place of `exact` in the format of `got`.

    `exact` is of a wider format. Infinite where one alone is NaN, an infinity has no cause or the
    sign of an exact zero differs; a result that overflowed counts as the power of two above.
    """
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        wide, rounded = got.astype(exact.dtype), exact.astype(got.dtype)
    top = np.ldexp(np.ones((), exact.dtype), info.maxexp)
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.where(np.isfinite(exact), exact, 1))[1] - (info.nmant + 1)
        exponent = np.maximum(exponent, info.minexp - info.nmant)
        finite = np.where(np.isinf(wide), np.copysign(top, wide), wide)
        error = np.abs(finite - exact) / np.ldexp(np.ones((), exact.dtype), exponent)
    same = (np.isnan(got) & np.isnan(exact)) | (np.isinf(rounded) & (got == rounded))
    zeros = (wide == 0) & (exact == 0)
    error = np.where(same | (zeros & (np.signbit(got) == np.signbit(exact))), 0.0, error)
    wrong = ~same & (np.isnan(got) | ~np.isfinite(exact))
    wrong |= zeros & (np.signbit(got) != np.signbit(exact))
    return np.where(wrong, np.inf, error).astype(np.float64)


def reference(function: str, *arguments: Array) -> Array:
    """The exact values in the next wider format NumPy has."""
    wide = np.float64 if arguments[0].dtype.itemsize < 8 else np.longdouble
    with np.errstate(all="ignore"):
        values = [a.astype(wide) for a in arguments]
        if function == "erf":
            if wide is np.longdouble:
                return reference_mpmath("erf", *arguments)
            from scipy import special

            return np.asarray(special.erf(values[0]))
        return np.asarray(getattr(np, IN_NUMPY.get(function, function))(*values))


def reference_mpmath(function: str, *arguments: Array) -> Array:
    """The exact values to 40 digits, as long doubles."""
    import mpmath as mp

    named = {"exp2": lambda x: mp.mpf(2) ** x, "log2": lambda x: mp.log(x, 2), "pow": mp.power}
    f = named.get(function) or getattr(mp, function)
    out = np.empty(arguments[0].shape, np.longdouble)
    with mp.workdps(40):
        for i, xs in enumerate(zip(*[a.tolist() for a in arguments])):
            if not all(math.isfinite(x) and x != 0 for x in xs):
                out[i] = reference_special(function, *xs)
                continue
            value = f(*[mp.mpf(x) for x in xs])
            if isinstance(value, mp.mpc):
                out[i] = math.nan
            elif abs(value) > mp.mpf(2) ** 1025 or 0 < abs(value) < mp.mpf(2) ** -1100:
                out[i] = math.copysign(math.inf if abs(value) > 1 else 0.0, float(mp.sign(value)))
            else:
                mantissa, exponent = mp.frexp(value)
                high = np.longdouble(float(mantissa))
                low = np.longdouble(float(mantissa - mp.mpf(float(mantissa))))
                out[i] = np.ldexp(high + low, exponent)
    return out


def reference_special(function: str, *xs: float) -> float:
    """At zeros, infinities and NaN every format gives the same."""
    if function == "erf":
        return math.erf(xs[0])
    if function == "pow" and xs[0] == 0 and xs[1] < 0:
        odd = math.isfinite(xs[1]) and xs[1] % 2 == 1
        return math.copysign(math.inf, xs[0]) if odd else math.inf
    if function == "pow":
        return math.pow(*xs)
    with np.errstate(all="ignore"):
        named = getattr(np, IN_NUMPY.get(function, function))
        return float(named(*[np.float64(x) for x in xs]))


_RANGES = {
    "exp": (-746.0, 710.0), "exp2": (-1076.0, 1025.0), "log": (0.5, 2.0), "log2": (0.5, 2.0),
    "sin": (-1000.0, 1000.0), "cos": (-1000.0, 1000.0), "tan": (-1000.0, 1000.0),
    "tanh": (-20.0, 20.0), "erf": (-6.0, 6.0), "pow": (0.5, 2.0), "expm1": (-2.0, 2.0),
    "log1p": (-1.0, 2.0), "log10": (0.5, 2.0), "sinh": (-5.0, 5.0), "cosh": (-5.0, 5.0),
    "asinh": (-2.0, 2.0), "acosh": (1.0, 3.0), "atanh": (-1.0, 1.0), "asin": (-1.0, 1.0),
    "acos": (-1.0, 1.0), "atan": (-3.0, 3.0), "atan2": (-2.0, 2.0), "hypot": (-2.0, 2.0),
}  # fmt: skip
EDGES = (
    0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.0, -2.0, 3.0, -3.0,
    39800.0, 1e6, 1e9, 1e22, 3e38, 1e300, 6381956970095103 * 2.0**797, 6.339428458990708e204,
    1.1754943508222875e-38, 1e-45, -1e-45, 5e-324, -5e-324, 2.2250738585072014e-308,
    1.7976931348623157e308, 16777215.0,
    -16777215.0, 9007199254740991.0, -9007199254740991.0, 88.72284, -103.97208, 709.782712893384,
    -745.1332191019411, 0.9999999999999999, 1.0000000000000002, 0.70710678118654757,
)  # fmt: skip


def points(function: str, dtype: str, n: int, seed: int = 0) -> list[Array]:
    """About n arguments: the edges, the whole format, where the function lives, odd corners."""
    rng = np.random.default_rng(seed)
    t = np.dtype(dtype)
    unsigned = np.dtype(f"u{t.itemsize}")
    third = n // 3
    scale = {2: 0.015625, 4: 0.125, 8: 1.0}[t.itemsize]
    scale = scale if function in ("exp", "exp2") else 1.0
    low, high = (v * scale for v in _RANGES[function])
    anything = rng.integers(0, np.iinfo(unsigned).max, third, unsigned, endpoint=True).view(t)
    with np.errstate(all="ignore"):
        edges = np.array(EDGES, t)
        quarters = (np.arange(third) - third // 2) * (math.pi / 2)
        if function in PAIRS[1:]:
            sides = np.concatenate([rng.uniform(low, high, third), anything, anything])
            other = np.concatenate([rng.uniform(low, high, third), rng.permutation(anything),
                                    anything.astype(t) * rng.uniform(-4.0, 4.0, third)])
            xs, ys = np.meshgrid(edges, edges)
            pair = [np.concatenate([v.ravel(), w]).astype(t) for v, w in ((xs, sides), (ys, other))]
            # Of a signalling NaN and an infinity, C's hypot gives NaN.
            return [np.where(np.isnan(v), t.type(math.nan), v) for v in pair]
        if function != "pow":
            inside = rng.uniform(low, high, third)
            return [np.concatenate([edges, anything, inside, quarters]).astype(t)]
        base = np.concatenate(
            [anything, rng.uniform(low, high, third), rng.uniform(0.999, 1.001, third)]
        )
        reach = {2: 26.0, 4: 160.0, 8: 1100.0}[t.itemsize]
        power = rng.uniform(-reach, reach, base.size) / np.abs(np.log2(np.abs(base.astype(t))))
        whole = rng.random(base.size) < 0.5
        power = np.where(whole, np.trunc(power), power)
        xs, ys = np.meshgrid(edges, edges)
        return [
            np.concatenate([xs.ravel(), base]).astype(t),
            np.concatenate([ys.ravel(), power]).astype(t),
        ]


def compiled(function: str, dtype: str, n: int) -> Callable[..., Array]:
    """The function on arrays of n elements, compiled."""
    import uopc
    from uopc import dtypes

    arguments = [
        uopc.param(name, (n,), getattr(dtypes, dtype))
        for name in (("x", "y") if function in PAIRS else ("x",))
    ]
    program = uopc.compile(getattr(arguments[0], function)(*arguments[1:]), inputs=arguments)
    return lambda *arrays: np.asarray(program(*arrays))


def worst(
    function: str, dtype: str, arguments: Sequence[Array], f: Callable[..., Array],
    exact: Callable[..., Array] = reference,
) -> tuple[float, tuple[float, ...]]:  # fmt: skip
    """The greatest error over the arguments, and where it is."""
    error = ulp_error(f(*arguments), exact(function, *arguments))
    at = int(np.argmax(error))
    return float(error[at]), tuple(float(a[at]) for a in arguments)


def measure(function: str, dtype: str, n: int, every: bool) -> tuple[float, tuple[float, ...]]:
    """The greatest error found; `every` takes all inputs of a float32 function of one argument."""
    if function not in PAIRS and (dtype == "float16" or (every and dtype == "float32")):
        t = np.dtype(dtype)
        chunk = min(1 << 22, 1 << t.itemsize * 8)
        f = compiled(function, dtype, chunk)
        return max(
            worst(function, dtype, [np.arange(i, i + chunk, dtype=f"u{t.itemsize}").view(t)], f)
            for i in range(0, 1 << t.itemsize * 8, chunk)
        )
    # 80-bit floats are quick, and off by a thousandth; without them all is left to mpmath.
    quick = dtype != "float64" or (np.finfo(np.longdouble).nmant > 52 and function != "erf")
    runs = [(n, reference)] if quick else [(n, reference_mpmath)]
    if dtype == "float64" and quick:
        runs.append((min(n, 20_000), reference_mpmath))
    found = []
    for count, exact in runs:
        arguments = points(function, dtype, count)
        f = compiled(function, dtype, arguments[0].size)
        found.append(worst(function, dtype, arguments, f, exact))
    return max(found)


# Coefficients


def _nodes(low: Any, high: Any, n: int) -> list[Any]:
    """Chebyshev nodes of an interval."""
    import mpmath as mp

    low, high = mp.mpf(low), mp.mpf(high)
    return [
        (low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * n))
        for k in range(n)
    ]


def _least_squares(matrix: Any, right: Any) -> Any:
    import mpmath as mp

    return mp.lu_solve(matrix.T * matrix, matrix.T * right)


def _rounded(value: Any, bits: int) -> float:
    return float(value) if bits == 64 else float(np.float32(float(value)))


def polynomial_fit(
    f: Callable[[Any], Any], low: Any, high: Any, degree: int, bits: int,
    weight: Callable[[Any], Any],
) -> list[float]:  # fmt: skip
    """Near-minimax polynomial: weighted least squares at Chebyshev nodes.

    The coefficients are rounded one by one, lowest first; the later ones make up for it.
    """
    import mpmath as mp

    xs = _nodes(low, high, 4 * degree + 8)
    values, weights = [f(x) for x in xs], [weight(x) for x in xs]
    done: list[float] = []
    while len(done) <= degree:
        k = len(done)
        matrix, right = mp.matrix(len(xs), degree + 1 - k), mp.matrix(len(xs), 1)
        for i, x in enumerate(xs):
            known = sum(mp.mpf(c) * x**j for j, c in enumerate(done))
            right[i] = weights[i] * (values[i] - known)
            for j in range(k, degree + 1):
                matrix[i, j - k] = weights[i] * x**j
        done.append(_rounded(_least_squares(matrix, right)[0], bits))
    return done


def rational_fit(
    f: Callable[[Any], Any], low: Any, high: Any, degrees: tuple[int, int],
    weight: Callable[[Any], Any], start: Sequence[float] = (),
) -> tuple[list[float], list[float]]:  # fmt: skip
    """Near-minimax quotient, denominator 1 + ...; `start` fixes the numerator's first terms.

    Linearised least squares, repeated with the denominator found last as weight.
    """
    import mpmath as mp

    fixed, (top, bottom) = len(start), degrees
    xs = _nodes(low, high, 6 * (top + bottom + 2))
    values, below = [f(x) for x in xs], [mp.mpf(1)] * (6 * (top + bottom + 2))
    for _ in range(4):
        matrix = mp.matrix(len(xs), top + 1 - fixed + bottom)
        right = mp.matrix(len(xs), 1)
        for i, x in enumerate(xs):
            scale = weight(x) / below[i]
            known = sum(mp.mpf(c) * x**j for j, c in enumerate(start))
            for j in range(fixed, top + 1):
                matrix[i, j - fixed] = scale * x**j
            for j in range(1, bottom + 1):
                matrix[i, top - fixed + j] = -scale * values[i] * x**j
            right[i] = scale * (values[i] - known)
        solved = list(_least_squares(matrix, right))
        numerator = [*(mp.mpf(c) for c in start), *solved[: top + 1 - fixed]]
        denominator = [mp.mpf(1), *solved[top + 1 - fixed :]]
        below = [mp.polyval(denominator[::-1], x) for x in xs]
    return [float(c) for c in numerator], [float(c) for c in denominator]


def split(value: Any, parts: int, bits: int = 64) -> tuple[float, ...]:
    """A number as a sum of floats, each rounded to nearest."""
    import mpmath as mp

    out = []
    for _ in range(parts):
        out.append(_rounded(value, bits))
        value -= mp.mpf(out[-1])
    return tuple(out)


def split_down(value: Any, parts: int) -> tuple[float, ...]:
    """A positive number as a sum of float64 numbers that are all positive."""
    import mpmath as mp

    out = []
    for _ in range(parts):
        part = float(value)
        if mp.mpf(part) > value:
            part = math.nextafter(part, 0.0)
        out.append(part)
        value -= mp.mpf(part)
    return tuple(out)


def exact_parts(value: Any, widths: Sequence[int]) -> tuple[float, ...]:
    """A number as a sum of floats of so many bits, counted from its first one, and a last float."""
    import mpmath as mp

    out, place = [], int(mp.floor(mp.log(value, 2))) + 1
    for width in widths:
        place -= width
        out.append(float(mp.ldexp(mp.nint(mp.ldexp(value, -place)), place)))
        value -= mp.mpf(out[-1])
    return (*out, float(value))


def windows(value: Any, starts: Sequence[float]) -> list[tuple[float, ...]]:
    """The value in two parts, and for each start 2^b the value without what vanishes modulo 2.

    A float32 of 2^b or more is a multiple of 2^(b - 23).
    """
    import mpmath as mp

    out = [split(value, 2)]
    for start in starts:
        step = mp.mpf(2) ** 24 / mp.mpf(start)
        out.append(split(value - mp.nint(value / step) * step, 2))
    return out


def coefficients() -> dict[str, Any]:
    """Every table of the transcendental functions, by name."""
    import mpmath as mp

    mp.mp.dps = 60
    ln2, pi = mp.log(2), mp.pi
    r = ln2 / 2 * mp.mpf("1.001")
    f_low, f_high = mp.sqrt(0.5) - 1, mp.sqrt(2) - 1
    tiny = mp.mpf(10) ** -25
    turn = 0.526**2
    z_log, z_sin, z_tan = mp.mpf("0.02945"), (pi / 2) ** 2, (pi / 4) ** 2
    margin, z_near = mp.mpf("1.0001"), mp.mpf("0.79") ** 2

    def q(x: Any) -> Any:
        return (mp.expm1(x) - x) / x**2

    def g(x: Any) -> Any:
        return mp.expm1(x * ln2) / x

    def log_tail(x: Any) -> Any:
        return (mp.log1p(x) - x) / x**2

    def log2_ratio(x: Any) -> Any:
        return mp.log1p(x) / x / ln2

    def atanh_ratio(z: Any) -> Any:
        return mp.atanh(mp.sqrt(z)) / mp.sqrt(z)

    def sinc(z: Any) -> Any:
        return mp.sin(mp.sqrt(z)) / mp.sqrt(z)

    def minus_q(x: Any) -> Any:
        return mp.log(mp.erfc(x)) / x

    def erf_weight(x: Any) -> Any:
        return x * mp.erfc(x) / mp.erf(x)

    def by_half(terms: list[float], first: int) -> list[float]:
        """A polynomial in z as one in -z/2, times what it is multiplied with there."""
        return [c * first * (-2) ** k for k, c in enumerate(terms)]

    def one(_: Any) -> Any:
        return 1

    def tail(f: Any) -> Callable[[Any], Any]:
        """(f(x)/x - 1) / x^2 of an odd function, by z = x^2."""
        return lambda z: (f(mp.sqrt(z)) / mp.sqrt(z) - 1) / z

    def tangent() -> tuple[list[float], list[float]]:
        above, below = rational_fit(
            lambda z: mp.tan(mp.sqrt(z)) / mp.sqrt(z),
            tiny,
            z_tan * margin,
            (3, 4),
            one,
            start=(1.0,),
        )
        return above[1:], below

    fit, near = polynomial_fit, mp.mpf("1.001")

    def by_z(z: Any) -> Any:
        return z

    log2e_32 = split(1 / ln2, 1, 32)[0]
    starts = [2.0**49, 2.0**76, 2.0**102]  # keep the second part times a below 0.026
    lead, count = 40, 19
    fraction = int(mp.floor(mp.ldexp(1, 0)))
    with mp.workprec(count * 64 + 64):
        fraction = int(mp.floor(mp.ldexp(1 / (2 * mp.pi), count * 64 - lead)))
    words = [(fraction >> (64 * (count - 1 - i))) & (2**64 - 1) for i in range(count)]
    log2_rest = fit(
        lambda x: log2_ratio(x) - log2e_32, f_low, f_high, 9, 32, lambda x: 1 / log2_ratio(x)
    )
    erf_32, erf_64 = split(-2 / mp.sqrt(pi), 1, 32)[0], mp.mpf(split(-2 / mp.sqrt(pi), 1)[0])
    return {
        "LOG2E_32": log2e_32,
        "LN2_32": split(ln2, 2, 32),
        "LOG2E_64": split(1 / ln2, 2),
        "LN2_64": split(ln2, 2),
        "EXP_32": fit(q, -r, r, 4, 32, lambda x: x * x / mp.expm1(x)),
        "EXP_64": fit(q, -r, r, 9, 64, lambda x: x * x / mp.expm1(x)),
        "EXP2_32": fit(g, -0.5, 0.5, 5, 32, lambda x: x),
        "EXP2_64": fit(g, -0.5, 0.5, 10, 64, lambda x: x),
        "LOG_32": fit(log_tail, f_low, f_high, 8, 32, lambda x: x * x / mp.log1p(x)),
        "LOG2_32": [log2e_32, *log2_rest],
        "LOG_64": fit(lambda z: 2 * (atanh_ratio(z) - 1) / z, tiny, z_log, 6, 64, lambda z: z),
        "POW_LOG2_32": fit(log2_ratio, f_low, f_high, 11, 64, lambda x: 1 / log2_ratio(x)),
        "POW_EXP2_32": [1.0, *fit(g, -0.5, 0.5, 5, 64, lambda x: x)],
        "POW_LOG2_64": fit(
            lambda z: (atanh_ratio(z) - 1 - z / 3) / z**2, tiny, z_log, 6, 64, lambda z: z * z
        ),
        "THIRD_64": split(mp.mpf(1) / 3, 2),
        "TWO_BY_LN2_64": split(2 / ln2, 2),
        "WINDOW_STARTS": starts,
        "INVERSE_PI_32": windows(1 / pi, starts),
        "TWO_BY_PI_32": windows(2 / pi, starts),
        "SIN_32": fit(lambda z: pi * sinc(pi**2 * z), tiny, turn, 4, 64,
                      lambda z: 1 / sinc(pi**2 * z)),
        "LARGE_ANGLE_32": 2.0**16,
        "TWO_BY_PI_SMALL": split(2 / pi, 1, 32)[0],
        "HALF_PI_32": split(pi / 2, 3, 32),
        "SMALL_SIN_32": by_half(fit(lambda z: (sinc(z) - 1) / z, tiny, z_near, 2, 32,
                                   lambda z: z / sinc(z)), -2),
        "SMALL_COS_32": by_half(fit(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, tiny, z_near,
                                   2, 32, lambda z: z * z), 4),
        "TAN_SIN_32": fit(lambda z: pi / 2 * sinc(z_sin * z), tiny, turn, 3, 64, one),
        "TAN_COS_32": fit(lambda z: mp.cos(pi / 2 * mp.sqrt(z)), tiny, turn, 4, 64, one),
        "REDUCE_LIMIT": 2.0**40,
        "PI_64": split_down(pi, 3),
        "PI_EXACT_64": exact_parts(pi, (35, 34)),
        "LARGE_ANGLE_64": 2.0**16,
        "INVERSE_PI_64": split(1 / pi, 1)[0],
        "SIN_64": fit(lambda z: (sinc(z) - 1) / z, tiny, z_sin * margin, 7, 64,
                      lambda z: z / sinc(z)),
        "COS_64": fit(lambda z: (sinc(z) - 1) / z + mp.mpf(2) ** -56 * 3 * z * (1 - z / z_sin) ** 2,
                      tiny, z_sin * margin, 7, 64, lambda z: z / sinc(z)),
        "TAN_64": tangent(),
        "ERF_32": [erf_32, *fit(lambda x: minus_q(x) - erf_32, tiny, 4, 8, 32, erf_weight)],
        "ERF_64": (erf_64, *rational_fit(lambda x: (minus_q(x) - erf_64) / x, tiny, 6, (7, 7),
                                         lambda x: x * erf_weight(x))),
        "ASIN_32": fit(tail(mp.asin), tiny, 0.25 * near, 5, 32, by_z),
        "ASIN_64": fit(tail(mp.asin), tiny, 0.25 * near, 12, 64, by_z),
        "ATAN_32": fit(tail(mp.atan), tiny, near, 9, 32, by_z),
        "ATAN_64": rational_fit(tail(mp.atan), tiny, near, (5, 6), by_z),
        "SINH_32": fit(tail(mp.sinh), tiny, 1.5625, 3, 32, by_z),
        "SINH_64": fit(tail(mp.sinh), tiny, 1.5625, 6, 64, by_z),
        "EXPM1_32": fit(q, -0.42, 0.42, 5, 32, one),
        "EXPM1_64": fit(q, -0.42, 0.42, 10, 64, one),
        "HALF_PI": (split(pi / 2, 2, 32), split(pi / 2, 2)),
        "LOG10_2": (split(mp.log10(2), 2, 32), split(mp.log10(2), 2)),
        "PI_LEAD": lead,
        "INVERSE_TWO_PI_BITS": words,
    }  # fmt: skip


_NARROW = (
    "LN2_32", "LOG2E_32", "EXP_32", "EXP2_32", "LOG_32", "LOG2_32", "ERF_32", "TWO_BY_PI_SMALL",
    "HALF_PI_32", "SMALL_SIN_32", "SMALL_COS_32", "ASIN_32", "ATAN_32", "SINH_32", "EXPM1_32",
)  # fmt: skip
_MEDIUM = ("POW_LOG2_32", "POW_EXP2_32", "SIN_32", "TAN_SIN_32", "TAN_COS_32")


def _printed(value: Any, digits: int) -> str:
    if isinstance(value, int):
        return f"0x{value:016X}" if value > 1000 else str(value)
    if not hasattr(value, "__len__"):
        mantissa, power = math.frexp(float(value))
        exact = mantissa == 0.5 and abs(power) > 30
        return f"2.0**{power - 1}" if exact else repr(float(f"{float(value):.{digits}g}"))
    inner = ", ".join(_printed(v, digits) for v in value)
    return f"({inner})" if len(value) > 1 else f"({inner},)"


def print_coefficients() -> None:
    """The tables as Python, at most 100 characters a line."""
    print("# fmt: off")
    for name, value in coefficients().items():
        digits = 9 if name in _NARROW else 14 if name in _MEDIUM else 17
        line = f"{name}: Final = {_printed(value, digits)}"
        while len(line) > 100:
            cut = line.rindex(" ", 0, 101)
            print(line[:cut])
            line = "    " + line[cut + 1 :]
        print(line)
    print("# fmt: on")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--function", choices=FUNCTIONS, action="append")
    parser.add_argument("--dtype", choices=tuple(LIMITS), action="append")
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--all", action="store_true", help="every float32 input")
    parser.add_argument("--markdown", action="store_true", help="print a table for the documents")
    parser.add_argument("--coefficients", action="store_true", help="print the constants")
    options = parser.parse_args()
    if options.coefficients:
        print_coefficients()
        return 0
    bad = 0
    row = "| {} | {} | {:.3f} | {} | {} |" if options.markdown else "{:9}{:9}{:8.3f}{:7}  {}"
    if options.markdown:
        print("| function | dtype | worst ulp | limit | at |\n| --- | --- | --- | --- | --- |")
    for dtype in options.dtype or LIMITS:
        for function in options.function or FUNCTIONS:
            error, at = measure(function, dtype, options.points, options.all)
            limit = LIMITS[dtype][function]
            bad += error > limit
            mark = " BEYOND" if error > limit else ""
            where = ", ".join(repr(x) for x in at)
            print(row.format(function, dtype, error, limit, where + mark), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
