"""Derivatives at special points and over the whole range of numbers: zeros, equal operands, ties
that a narrow float does not count, and arguments whose square no float holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import UOp, dtypes
from uopc.ir.core.dtypes import DType

F8 = dtypes.float64
LN2, PI2 = math.log(2), math.pi**2
FLAT = (1.0, 0.0)


def derivatives(f: Callable[[UOp], Any], at: Sequence[float], orders: int) -> list[Any]:
    """The derivatives of an elementwise function by order: backwards, and forwards."""
    x = uopc.param("x", (len(at),), F8)
    ones = uopc.full((len(at),), 1.0, F8)
    back = forth = f(x)
    found = []
    for _ in range(orders):
        back, forth = uopc.grad(back.sum(), x), uopc.jvp(forth, x, ones)
        found += [back, forth]
    values = uopc.compile(found, inputs=[x])(np.asarray(at, float))
    return list(zip(values[::2], values[1::2]))


# By name: the function, points, and at each of them the derivatives of order 1, 2 and 3.
POINTS: dict[str, tuple[Callable[[UOp], Any], dict[float, tuple[float, ...]]]] = {
    "logaddexp of equal operands": (lambda x: x.logaddexp(0.0), {0.0: (0.5, 0.25, 0.0)}),
    "logaddexp of infinities": (lambda x: x.logaddexp(x), {math.inf: (1.0,), -math.inf: (1.0,)}),
    "logaddexp2 of equal operands": (
        lambda x: unp.logaddexp2(x, 0.0), {0.0: (0.5, LN2 / 4, 0.0)},
    ),
    "sinc": (unp.sinc, {
        0.0: (0.0, -PI2 / 3, 0.0), 1e-9: (-PI2 / 3 * 1e-9, -PI2 / 3, PI2**2 / 5 * 1e-9),
        1.0: (-1.0, 2.0, PI2 - 6),
    }),
    "sigmoid": (lambda x: x.sigmoid(), {
        0.0: (0.25, 0.0, -0.125), -800.0: (0.0, 0.0, 0.0), 800.0: (0.0, 0.0, 0.0),
    }),
    "silu": (lambda x: x.silu(), {-800.0: (0.0, 0.0), 0.0: (0.5, 0.5, 0.0), 800.0: (1.0, 0.0)}),
    "cbrt": (unp.cbrt, {-8.0: (1 / 12, 1 / 144), 0.0: (math.inf,), 1.0: (1 / 3, -2 / 9, 10 / 27)}),
    "fmod of a multiple": (lambda x: unp.fmod(x, 2.0), dict.fromkeys((-4, 0, 2, 0.5), FLAT)),
    "modf of a whole number": (lambda x: unp.modf(x)[0], dict.fromkeys((-2, 0, 3, 0.5), FLAT)),
    "a divisor that fits nearly": (lambda x: unp.remainder(1.0, x), {0.1: (-9.0, 0.0)}),
    "0 to a power": (
        lambda x: x**x.const_like(5.0), {0.0: (0.0, 0.0, 0.0), -1.0: (5.0, -20.0, 60.0)},
    ),
    "a power of 0": (lambda x: (x + 2) ** x, {0.0: (LN2, 1 + LN2**2)}),
    "products of two zeros": (
        lambda x: uopc.stack(x, x, x + 1).prod(0), {0.0: (0.0, 2.0), -1.0: (1.0, -4.0)},
    ),
    "the median of equal elements": (
        lambda x: uopc.stack(x * x, 2 * x - 1).median(0), {1.0: (2.0, 1.0, 0.0)},
    ),
}  # fmt: skip


@pytest.mark.few(5)
@pytest.mark.parametrize("name", POINTS)
def test_orders_at_special_points(name: str) -> None:
    f, wanted = POINTS[name]
    orders = max(map(len, wanted.values()))
    found = derivatives(f, list(wanted), orders)
    for i, (at, values) in enumerate(wanted.items()):
        for k, value in enumerate(values):
            got = [float(g[i]) for g in found[k]]
            assert got == pytest.approx([value, value], rel=1e-9, abs=1e-12), (at, k + 1)


def test_hessians_of_two_operands_are_symmetric() -> None:
    a, b = uopc.param("a", (6,), F8), uopc.param("b", (6,), F8)
    at = np.array([2.0, 3.0, 0.0, 0.0, 1.0, 0.5]), np.array([0.0, 2.0, 2.0, 3.0, 0.0, 0.0])
    by_a, by_b = uopc.grad((a**b).sum(), a), uopc.grad((a**b).sum(), b)
    both = [uopc.grad(by_a.sum(), b), uopc.grad(by_b.sum(), a)]
    got = uopc.compile(both, inputs=[a, b])(*at)
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = at[0] ** (at[1] - 1) * (1 + at[1] * np.log(at[0]))
    np.testing.assert_allclose(got, [np.where(at[0] == 0, 0, wanted)] * 2, rtol=1e-12)


# ---------------------------------------------------------------- the whole range
def _mp(f: Callable[[Any], Any]) -> Callable[[float], float]:
    def value(x: float) -> float:
        with mpmath.workdps(60):
            return float(f(mpmath.mpf(x)))

    return value


RANGES: dict[str, tuple[Callable[[UOp], Any], Callable[[float], float], bool]] = {
    "log2": (lambda x: x.log2(), _mp(lambda x: 1 / (x * mpmath.log(2))), False),
    "log10": (lambda x: x.log10(), _mp(lambda x: 1 / (x * mpmath.log(10))), False),
    "atan": (lambda x: x.atan(), _mp(lambda x: 1 / (1 + x * x)), True),
    "atan2": (lambda x: x.atan2(1.0), _mp(lambda x: 1 / (1 + x * x)), True),
    "expm1": (lambda x: x.expm1(), _mp(mpmath.exp), True),
    "asinh": (lambda x: x.asinh(), _mp(lambda x: 1 / mpmath.sqrt(1 + x * x)), True),
    "rsqrt": (lambda x: x.rsqrt(), _mp(lambda x: -1 / (2 * x * mpmath.sqrt(x))), False),
    "x ** -0.5": (lambda x: x**-0.5, _mp(lambda x: -1 / (2 * x * mpmath.sqrt(x))), False),
    "cbrt": (unp.cbrt, _mp(lambda x: 1 / (3 * mpmath.cbrt(x) ** 2)), False),
    "sigmoid": (lambda x: x.sigmoid(), _mp(lambda x: mpmath.sech(x / 2) ** 2 / 4), True),
    "logaddexp": (lambda x: x.logaddexp(0.0), _mp(lambda x: 1 / (1 + mpmath.exp(-x))), True),
}  # fmt: skip
GREATEST = {dtypes.float16: (2.0**-24, 65504.0), dtypes.float32: (2.0**-149, 3.4e38)}


@pytest.mark.few(6)
@pytest.mark.parametrize("t", GREATEST, ids=str)
@pytest.mark.parametrize("name", RANGES)
def test_derivatives_over_the_whole_range(name: str, t: DType) -> None:
    f, derivative, of_both_signs = RANGES[name]
    least, most = GREATEST[t]
    at = np.geomspace(least, most, 60).astype(t.numpy)
    at = np.concatenate([at, -at]) if of_both_signs else at
    x = uopc.param("x", at.shape, t)
    got = uopc.compile(uopc.grad(f(x).cast(F8).sum(), x))(at).astype(float)
    with np.errstate(over="ignore"):
        wanted = np.array([derivative(v) for v in at.astype(float)]).astype(t.numpy).astype(float)
    # Where the sigmoid itself is less than the least normal number, it is 0.
    slack = 2e-38 if name in ("sigmoid", "logaddexp") else 0.0
    bound = {16: 2e-2, 32: 2e-6}[t.bits]
    np.testing.assert_allclose(got, wanted, rtol=bound, atol=max(2 * least, slack))


# ---------------------------------------------------------------- ties
@pytest.mark.parametrize("t", [dtypes.float16, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["max", "min"])
def test_more_ties_than_the_dtype_counts(name: str, t: DType) -> None:
    n = 70_000
    x, a, v = uopc.param("x", (n,), t), uopc.param("a", (1,), t), uopc.param("v", (n,), t)
    whole = uopc.grad(getattr(x, name)(), x)
    updated = getattr(a.at[uopc.constant(np.zeros(n, "i4"))], name)(v)
    shares = uopc.grad(updated.sum(), [a, v])
    f = uopc.compile([whole, *shares], inputs=[x, a, v])
    got = [np.asarray(g, float) for g in f(*[np.ones(d, t.numpy) for d in (n, 1, n)])]
    assert got[0].sum() == pytest.approx(1, rel=0.01)
    assert got[1].sum() + got[2].sum() == pytest.approx(1, rel=0.01)


# ---------------------------------------------------------------- products
def exact_gradient(values: Sequence[float]) -> list[float]:
    """The product of all others, in a wide range of exponents."""
    rows = [mpmath.fprod([mpmath.mpf(v) for j, v in enumerate(values) if j != i])
            for i in range(len(values))]  # fmt: skip
    return [float(v) for v in rows]


BIG = 1e200
FACTORS = (
    (BIG, 0.0, 0.0, BIG, BIG), (0.0, BIG, BIG), (BIG, 0.0, BIG), (0.0, 0.0, BIG, BIG),
    (-BIG, 2.0, 0.0, BIG), (0.0,), (3.0, 0.0, -2.0),
)  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("values", FACTORS, ids=str)
def test_products_of_zeros_where_others_overflow(values: Sequence[float]) -> None:
    n = len(values)
    x = uopc.param("x", (n,), F8)
    updated = uopc.constant(np.ones(1)).at[uopc.constant(np.zeros(n, "i4"))].mul(x)
    forms = [x.prod(), x.reshape(1, n, 1).prod((1, 2)).sum(), x.cumprod(0)[-1], updated.sum()]
    got = uopc.compile([uopc.grad(y, x) for y in forms], inputs=[x])(np.array(values))
    np.testing.assert_allclose(got, [exact_gradient(values)] * 4, rtol=1e-12)


def test_the_second_derivatives_of_products_of_zeros() -> None:
    x = uopc.param("x", (4,), F8)
    at = np.array([0.0, BIG, 0.0, 3.0])
    wanted = np.zeros((4, 4))
    wanted[0, 2] = wanted[2, 0] = 3 * BIG
    back = uopc.jacrev(uopc.grad(x.prod(), x), x)
    forth = uopc.jacfwd(uopc.grad(x.cumprod(0)[-1], x), x)
    got = uopc.compile([back, forth], inputs=[x])(at)
    np.testing.assert_allclose(got, [wanted] * 2, rtol=1e-12)


def test_batches_of_functions_with_rules_of_their_own() -> None:
    x = uopc.param("x", (3,), F8)
    rows = np.array([[0.0, 0.5, -2.0], [0.0, 0.0, 1.5]])
    y = unp.sinc(x) * x.sigmoid() + unp.cbrt(x + 3) + x.prod() + x.median() + (x + 2) ** x
    g = uopc.grad(y.sum(), x)
    f = uopc.compile(g, inputs=[x])
    got = uopc.compile(uopc.vmap(g, {x: uopc.constant(rows)}))()
    np.testing.assert_allclose(got, [f(r) for r in rows], rtol=1e-13)


@pytest.mark.parametrize("loops", [False, True])
def test_a_called_function_that_closes_over_the_argument(loops: bool) -> None:
    x = uopc.param("x", (2,), F8)

    def inner(v: Any) -> Any:
        return uopc.fori_loop(0, 2, lambda i, s: s.sin() * x, v) if loops else v.sin() * x

    y = uopc.checkpoint(inner)(x * 2)
    plain = inner(x * 2)
    rows = np.array([[0.3, -0.4], [0.7, 0.1]])
    made = [
        (uopc.grad(u.sum(), x), uopc.jvp(u, x, uopc.full((2,), 1.0, F8)),
         uopc.vmap(u, {x: uopc.constant(rows)}))
        for u in (y, plain)
    ]  # fmt: skip
    got = uopc.compile([*made[0], *made[1]], inputs=[x])(rows[0])
    for a, b in zip(got[:3], got[3:]):
        np.testing.assert_allclose(a, b, rtol=1e-13)
