"""Worst error of the transcendental functions, in units in the last place of the exact result.

`python -m tests.ulp` measures compiled functions; `--coefficients` prints the tables of
`uopc/passes/transcendental.py`. mpmath is needed for the tables and for the float64 references.
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
FUNCTIONS = ("exp", "exp2", "log", "log2", "sin", "cos", "tan", "tanh", "erf", "pow")
LIMITS = {
    "float32": {f: 1.0 if f in FUNCTIONS[:6] else 3.0 for f in FUNCTIONS},
    "float64": {f: 1.5 if f in FUNCTIONS[:6] else 3.0 for f in FUNCTIONS},
}

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
    margin = mp.mpf("1.0001")

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

    def one(_: Any) -> Any:
        return 1

    def tangent() -> tuple[list[float], list[float]]:
        above, below = rational_fit(
            lambda z: mp.tan(mp.sqrt(z)) / mp.sqrt(z), tiny, z_tan * margin, (3, 4), one, start=(1.0,)
        )
        return above[1:], below

    fit = polynomial_fit
    log2e_32 = split(1 / ln2, 1, 32)[0]
    starts = [2.0**49, 2.0**76, 2.0**102]  # keep the second part times a below 0.026
    lead, count = 16, 19
    fraction = int(mp.floor(mp.ldexp(1, 0)))
    with mp.workprec(count * 64 + 64):
        fraction = int(mp.floor(mp.ldexp(1 / (2 * mp.pi), count * 64 - lead)))
    words = [(fraction >> (64 * (count - 1 - i))) & (2**64 - 1) for i in range(count)]
    log2_rest = fit(
        lambda x: (log2_ratio(x) - log2e_32), f_low, f_high, 9, 32, lambda x: 1 / log2_ratio(x)
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
        "TAN_SIN_32": fit(lambda z: pi / 2 * sinc(z_sin * z), tiny, turn, 3, 64, one),
        "TAN_COS_32": fit(lambda z: mp.cos(pi / 2 * mp.sqrt(z)), tiny, turn, 4, 64, one),
        "REDUCE_LIMIT": 2.0**40,
        "PI_64": split_down(pi, 3),
        "INVERSE_PI_64": split(1 / pi, 1)[0],
        "SIN_64": fit(lambda z: (sinc(z) - 1) / z, tiny, z_sin * margin, 7, 64,
                      lambda z: z / sinc(z)),
        "TAN_64": tangent(),
        "ERF_32": [erf_32, *fit(lambda x: minus_q(x) - erf_32, tiny, 4, 8, 32, erf_weight)],
        "ERF_64": (erf_64, *rational_fit(lambda x: (minus_q(x) - erf_64) / x, tiny, 6, (7, 7),
                                         lambda x: x * erf_weight(x))),
        "PI_LEAD": lead,
        "INVERSE_TWO_PI_BITS": words,
    }  # fmt: skip


_NARROW = ("LN2_32", "LOG2E_32", "EXP_32", "EXP2_32", "LOG_32", "LOG2_32", "ERF_32")
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


if __name__ == "__main__":
    print_coefficients()
