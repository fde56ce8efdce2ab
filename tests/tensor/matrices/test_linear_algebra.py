"""Cholesky, QR, solve, inv, det, slogdet, matrix powers and triangles, beside NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
import uopc.numpy as unp
from uopc import UOp, dtypes
from uopc.ir.interpret.interpreter import evaluate_with_effects
from uopc.tensor.matrices import matrix_kernels

Array = Any
SIZES = pytest.mark.parametrize("n, t", [
    pytest.param(n, t, marks=() if t == "f8" and n in (1, 3, 17) else pytest.mark.slow)
    for t, sizes in (("f8", (1, 2, 3, 5, 8, 16, 17, 31, 64)), ("f4", (1, 3, 8, 17, 64)))
    for n in sizes
])  # fmt: skip
WAYS = ({"threads": 1}, {"threads": 2}, {"optimize": False})


def param(name: str, array: Array) -> UOp:
    return uopc.param(name, array.shape, dtypes.from_numpy(array.dtype))


def programs(*made: UOp, ways: Any = WAYS, interpreted: bool = False) -> Iterator[Any]:
    """Functions of arrays by name: a graph compiled in several ways, then interpreted."""
    for options in ways:
        f = uopc.compile(list(made), verify=True, **options)
        yield lambda f=f, **arrays: f(**{v.name: arrays[v.name] for v in f.inputs})
    if interpreted:
        yield lambda **arrays: evaluate_with_effects(
            list(made), {k: v.copy() for k, v in arrays.items()}
        )[0]


def results(*made: UOp, ways: Any = WAYS, interpreted: bool = False, **arrays: Array) -> Any:
    """The results of these functions for some arrays."""
    return (program(**arrays) for program in programs(*made, ways=ways, interpreted=interpreted))


DTYPES = pytest.mark.parametrize("t", [pytest.param("f4", marks=pytest.mark.slow), "f8"])


def normal(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def definite(batch: tuple[int, ...], n: int, dtype: str, seed: int = 0) -> Array:
    x = normal((*batch, n, n), "f8", seed)
    return (x @ x.mT + np.eye(n)).astype(dtype)


def norm(a: Array) -> Any:
    """The greatest sum of a row, of each matrix; 0 of an empty one."""
    return abs(np.asarray(a, "f8")).sum(-1).max(-1, initial=0.0)


def near(a: Array, b: Array, bound: Any, n: int, t: str) -> None:
    """|a - b| is at most 10·n·eps times the bound, for each matrix."""
    wrong = norm(np.asarray(a, "f8") - np.asarray(b, "f8"))
    assert (wrong <= 10 * max(n, 1) * np.finfo(t).eps * bound).all(), (wrong, bound)


# ---------------------------------------------------------------- factors
@SIZES
@pytest.mark.few(2)
def test_cholesky(n: int, t: str) -> None:
    a = definite((3,), n, t)
    x = param("a", a)
    noise = np.tril(normal((3, n, n), t), -1)
    for low, high in results(x.cholesky(), x.cholesky(upper=True), interpreted=n <= 8, a=a):
        assert low.dtype == high.dtype == a.dtype
        assert (np.triu(low, 1) == 0).all() and (np.tril(high, -1) == 0).all()
        near(low @ low.mT, a, norm(a), n, t)
        near(high.mT @ high, a, norm(a), n, t)
    other = x.permute(0, 2, 1).cholesky(upper=True).permute(0, 2, 1)
    for low, high in results(x.cholesky(), other, ways=WAYS[:1], a=a):
        (again,) = next(results(x.cholesky(), ways=WAYS[:1], a=a + noise.mT))
        np.testing.assert_array_equal(low, again)  # the upper triangle is not read
        np.testing.assert_array_equal(low, high)


@DTYPES
@pytest.mark.parametrize("m, n", [(1, 1), (1, 5), (5, 1), (4, 4), (7, 3), (3, 7), (17, 16),
                                  (16, 31), (64, 20), (33, 33)])  # fmt: skip
@pytest.mark.few(2)
def test_qr(m: int, n: int, t: str) -> None:
    a = normal((2, m, n), t)
    x = param("a", a)
    parts = [*x.qr(), *x.qr("complete")]
    for all_parts in results(*parts, interpreted=m * n < 30, a=a):
        for (q, r), mode in zip((all_parts[:2], all_parts[2:]), ("reduced", "complete")):
            want_q, want_r = np.linalg.qr(a, mode)
            assert q.shape == want_q.shape and r.shape == want_r.shape and q.dtype == a.dtype
            assert (np.tril(r, -1) == 0).all()
            near(q @ r, a, norm(a), max(m, n), t)
            near(q.mT @ q, np.eye(q.shape[-1]), 1.0, m * 2, t)
            diagonal = np.diagonal(r, axis1=1, axis2=2)  # the signs are LAPACK's
            same = np.sign(np.diagonal(want_r, axis1=1, axis2=2))
            np.testing.assert_array_equal(np.sign(diagonal), same)


# ---------------------------------------------------------------- equations
@SIZES
@pytest.mark.few(2)
def test_solve_inv_det(n: int, t: str) -> None:
    a = normal((3, n, n), t) / np.sqrt(n).astype(t)
    b, v = normal((3, n, 7), t, 1), normal((n,), t, 2)
    x = param("a", a)
    log = x.slogdet()
    made = (x.solve(param("b", b)), x.solve(param("v", v)), x.inv(), x.det(), *log)
    for many, one, inverse, d, sign, size in results(*made, interpreted=n <= 5, a=a, b=b, v=v):
        near(a @ many, b, norm(a) * norm(many), n, t)
        assert one.shape == (3, n)
        near(a @ one[..., None], v[:, None], norm(a) * norm(one[..., None]), n, t)
        near(a @ inverse, np.eye(n), norm(a) * norm(inverse), n, t)
        wide = np.linalg.det(a.astype("f8"))
        relative = 10 * n * np.finfo(t).eps * norm(a) * norm(np.linalg.inv(a.astype("f8")))
        assert (abs(d - wide) <= relative * abs(wide)).all()
        np.testing.assert_array_equal(sign, np.sign(wide))
        assert (abs(size - np.log(abs(wide))) <= relative + 1e-5 * abs(size)).all()
        assert {r.dtype for r in (many, one, inverse, d, sign, size)} == {a.dtype}


@DTYPES
@pytest.mark.parametrize("n", [1, 2, 5, 17, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.few(2)
def test_diagonalized(n: int, t: str) -> None:
    """e a f = diag(d), of any rank; the magnitudes of d do not grow by much."""
    a = np.stack([normal((n, k), t, k) @ normal((k, n), t, k + 1) for k in (n, n - 1, n // 2, 0)])
    x = param("a", a)
    for d, e, f in results(*matrix_kernels.diagonalized(x), interpreted=n <= 5, a=a):
        assert (norm(e) <= 4 * n).all() and (norm(f) <= 4 * n).all()
        near(e @ a @ f, d[:, None] * np.eye(n, dtype=t), norm(e) * norm(a) * norm(f), n, t)
        dets = np.linalg.det(e.astype("f8")) * np.linalg.det(f.astype("f8"))
        np.testing.assert_allclose(dets, 1, rtol=100 * n * np.finfo(t).eps)
        assert (d[-1] == 0).all() and (e[-1] == np.eye(n)).all() and (f[-1] == np.eye(n)).all()


@DTYPES
@pytest.mark.parametrize("m", [None, 1, 3, 21])
@pytest.mark.parametrize("n", [1, 5, *[pytest.param(n, marks=pytest.mark.slow) for n in (17, 40)]])
@pytest.mark.few(3)
def test_solve_triangular(n: int, m: int | None, t: str) -> None:
    a, b = normal((n, n), t), normal((n,) if m is None else (n, m), t, 1)
    x, y = param("a", a), param("b", b)
    cases = [(lower, trans, unit) for lower in (False, True) for trans in (0, "T")
             for unit in (False, True)]  # fmt: skip
    made = [x.solve_triangular(y, lower=k, trans=h, unit_diagonal=u) for k, h, u in cases]
    for got in results(*made, interpreted=n <= 5, a=a, b=b):
        for (lower, trans, unit), value in zip(cases, got):
            triangle = np.tril(a) if lower else np.triu(a)
            if unit:
                np.fill_diagonal(triangle, 1)
            matrix = triangle.T if trans else triangle
            assert value.shape == b.shape and value.dtype == b.dtype
            columns = value.reshape(n, -1)
            near(matrix @ columns, b.reshape(n, -1), norm(matrix) * norm(columns), n, t)
            if not unit and n < 6:
                want = scipy.linalg.solve_triangular(triangle, b, trans=trans, lower=lower)
                np.testing.assert_allclose(value, want, rtol=1e-3 if t == "f4" else 1e-9)


# ---------------------------------------------------------------- shapes
BATCHES = [((), ()), ((3,), ()), ((), (2,)), ((2, 1), (3,)), ((0,), (1,)), ((1,), (4,))]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9), st.sampled_from([None, 0, 1, 2, 5, 18]), st.sampled_from(BATCHES),
       st.sampled_from(["f4", "f8"]), st.integers(0, 99))  # fmt: skip
def test_batches_broadcast(n: int, m: int | None, batches: Any, t: str, seed: int) -> None:
    """b is one vector if it has one dimension, else matrices."""
    a = normal((*batches[0], n, n), t, seed) + 2 * np.eye(n, dtype=t)
    b = normal((n,) if m is None else (*batches[1], n, m), t, seed + 1)
    x, y = param("a", a), param("b", b)
    made = (x.solve(y), (x.tril() * x.tril()).solve_triangular(y, lower=True))
    for got in results(*made, ways=WAYS[:1], a=a, b=b):
        for value, matrix in zip(got, (a, np.tril(a) ** 2)):
            columns = b[:, None] if m is None else b
            both = np.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
            shape = (*both, n) if m is None else (*both, n, m)
            assert value.shape == shape and value.dtype == np.dtype(t)
            solved = value[..., None] if m is None else value
            near(matrix @ solved, np.broadcast_to(columns, solved.shape),
                 norm(matrix) * norm(solved), n, t)  # fmt: skip


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3), (0, 0, 0)])
def test_no_elements(shape: tuple[int, ...]) -> None:
    a = np.zeros(shape, "f4")
    x = param("a", a)
    log = np.linalg.slogdet(a)
    want = (np.linalg.cholesky(a), np.linalg.inv(a), np.linalg.det(a), *log,
            np.linalg.matrix_power(a, 3), *np.linalg.qr(a),
            *np.linalg.qr(a, "complete"))  # fmt: skip
    made = (x.cholesky(), x.inv(), x.det(), *x.slogdet(), x.matrix_power(3), *x.qr(),
            *x.qr("complete"))  # fmt: skip
    for got in results(*made, a=a):
        for value, wanted in zip(got, want):
            np.testing.assert_array_equal(value, wanted, strict=True)


@pytest.mark.parametrize("m, n", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr_without_columns(m: int, n: int, mode: Any) -> None:
    a = np.zeros((2, m, n), "f4")
    for got in results(*param("a", a).qr(mode), a=a):
        for value, wanted in zip(got, np.linalg.qr(a, mode)):
            np.testing.assert_array_equal(value, wanted, strict=True)


B, N, M = uopc.variable("b", 0, 40), uopc.variable("n", 0, 70), uopc.variable("m", 0, 30)
SYMBOLIC = (0, 3, 2), (3, 0, 1), (2, 5, 0), (1, 1, 1), (40, 7, 3), (2, 64, 17), (3, 70, 30)


def test_symbolic_sizes() -> None:
    x, y = uopc.param("x", (B, N, N), dtypes.float64), uopc.param("y", (B, N, M), dtypes.float64)
    square = [x.cholesky(), x.det(), x.solve(y), x.solve_triangular(y)]
    f = uopc.compile(square, inputs=[x, y], verify=True)
    for size in SYMBOLIC:
        matrices, right = definite(size[:1], size[1], "f8"), normal(size, "f8")
        factor, d, solved, triangular = f(matrices, right)
        scale = norm(matrices)
        near(factor @ factor.mT, matrices, scale, size[1], "f8")
        np.testing.assert_allclose(d, np.linalg.det(matrices), rtol=1e-9)
        near(matrices @ solved, right, scale * norm(solved), size[1], "f8")
        near(np.triu(matrices) @ triangular, right, scale * norm(triangular), size[1], "f8")


@pytest.mark.slow
def test_qr_of_symbolic_sizes() -> None:
    z = uopc.param("z", (B, N, M), dtypes.float64)
    f = uopc.compile([*z.qr(), *z.qr("complete")], verify=True)
    for size in SYMBOLIC:
        a = normal(size, "f8")
        got = f(a)
        for mode, pair in (("reduced", got[:2]), ("complete", got[2:])):
            want = np.linalg.qr(a, mode)
            near(pair[0] @ pair[1], a, norm(a), max(size), "f8")
            assert [v.shape for v in pair] == [v.shape for v in want]


def test_several_hundred_rows() -> None:
    """The length of the code does not depend on n."""
    n = 331
    a, b = definite((1,), n, "f8"), normal((1, n, 40), "f8")
    x, y = param("a", a), param("b", b)
    lines = []
    for f, value in ((uopc.compile(x.cholesky()), a), (uopc.compile(x.solve(y)), b)):
        lines.append(len(f.kernels[0].source.splitlines()))
        got = f(**{v.name: {"a": a, "b": b}[v.name] for v in f.inputs})
        wanted = got @ got.mT if value is a else a @ got
        near(wanted, value, norm(a) * max(norm(got), 1), n, "f8")
    q, r = uopc.compile(list(x.qr()))(b @ b.mT)
    near(q @ r, b @ b.mT, norm(b @ b.mT), n, "f8")
    near(q.mT @ q, np.eye(n), 1, n, "f8")
    small = uopc.param("s", (1, 67, 67), dtypes.float64)
    assert abs(len(uopc.compile(small.cholesky()).kernels[0].source.splitlines()) - lines[0]) < 50


# ---------------------------------------------------------------- values
@DTYPES
@pytest.mark.slow
def test_singular_matrices_give_what_ieee_arithmetic_gives(t: str) -> None:
    zero, ones, x = np.zeros((3, 3), t), np.ones((3, 3), t), uopc.param("a", (3, 3))
    x = param("a", zero)
    made = (x.det(), *x.slogdet(), x.inv(), x.cholesky(), x.solve(np.ones(3, t)),
            x.solve_triangular(np.ones(3, t)))  # fmt: skip
    for program in programs(*made, interpreted=True):
        for a in (zero, ones):
            d, sign, log, inverse, factor, one, triangular = program(a=a)
            assert d == 0 and sign == 0 and log == -np.inf
            assert not np.isfinite(inverse).all() and not np.isfinite(one).all()
            assert not np.isfinite(factor).all() and (np.triu(factor, 1) == 0).all()
            assert np.isfinite(triangular).all() == (a is ones)
    for got in results(x.cholesky(), *x.qr(), a=-np.eye(3, dtype=t)):
        assert np.isnan(got[0]).any()
        np.testing.assert_array_equal(got[1] @ got[2], -np.eye(3))
    for program in programs(x.det(), x.inv(), *x.qr()):
        for value in (np.nan, np.inf, -np.inf):
            bad = np.eye(3, dtype=t)
            bad[1, 0] = value
            assert all(not np.isfinite(v).all() for v in program(a=bad))


@pytest.mark.slow
def test_pivots_are_the_greatest_of_their_columns() -> None:
    """Without an exchange of rows the sum of 1e20 and 1 loses the 1."""
    a = np.array([[1e-20, 1, 0], [1, 1, 0], [0, 0, 2]])
    for one, inverse in results(
        param("a", a).solve(np.array([1.0, 2.0, 2.0])), param("a", a).inv(), a=a
    ):
        np.testing.assert_allclose(one, [1, 1, 1])
        np.testing.assert_allclose(inverse @ a, np.eye(3), atol=1e-15)
    x = uopc.param("a", (6, 6), dtypes.float64)
    program = next(programs(x.det(), x.inv()))
    for seed in range(20):
        a = np.eye(6)[np.random.default_rng(seed).permutation(6)]
        d, inverse = program(a=a)
        assert d == np.linalg.det(a)
        np.testing.assert_array_equal(inverse, a.T)


@pytest.mark.parametrize("scale", [1e-160, 1e160])
def test_qr_of_numbers_whose_squares_overflow_or_vanish(scale: float) -> None:
    a = normal((6, 4), "f8") * scale
    for q, r in results(*param("a", a).qr(), a=a):
        np.testing.assert_allclose(q @ (r / scale), a / scale, atol=1e-14)
        np.testing.assert_allclose(q.T @ q, np.eye(4), atol=1e-14)


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 3, 10])
def test_matrix_power(n: int) -> None:
    a = normal((2, 4, 4), "f8") + 3 * np.eye(4)
    (got,) = next(results(param("a", a).matrix_power(n), a=a))
    np.testing.assert_allclose(got, np.linalg.matrix_power(a, n), rtol=1e-10, atol=1e-12)
    whole = np.array([[1, 2], [3, -4]], "i4")
    if n >= 0:
        (got,) = next(results(param("a", whole).matrix_power(n), a=whole))
        np.testing.assert_array_equal(got, np.linalg.matrix_power(whole, n), strict=True)


def test_other_dtypes() -> None:
    """Integers count as float64; float16 is computed in float32."""
    a = np.array([[4, 2], [2, 5]])
    for t in ("i1", "u2", "i8", "f2"):
        x = param("a", a.astype(t))
        made = (x.cholesky(), x.inv(), x.solve(x), x.det())
        for got in results(*made, ways=WAYS[:1], a=a.astype(t)):
            assert {v.dtype for v in got} == {np.dtype("f2" if t == "f2" else "f8")}
            np.testing.assert_allclose(got[0], [[2, 0], [1, 2]])
            np.testing.assert_allclose(got[1] @ a, np.eye(2), atol=1e-2)
            np.testing.assert_allclose(got[2], np.eye(2), atol=1e-2)
            np.testing.assert_allclose(got[3], 16, rtol=1e-3)
    x = uopc.param("x", (2, 2), dtypes.float32)
    assert x.solve(np.ones(2)).dtype is dtypes.float64


# ---------------------------------------------------------------- the namespace, errors
def test_the_namespace_has_the_names_of_numpy() -> None:
    a = definite((2,), 5, "f8")
    x = unp.asarray(a)
    q, r = unp.linalg.qr(x, mode="complete")
    assert unp.linalg.qr(x)._fields == ("Q", "R") and q.shape == (2, 5, 5)
    near(np.asarray(q @ r), a, norm(a), 5, "f8")
    sign, log = unp.linalg.slogdet(x)
    assert unp.linalg.slogdet(x)._fields == ("sign", "logabsdet")
    np.testing.assert_allclose(np.asarray(log), np.linalg.slogdet(a).logabsdet)
    np.testing.assert_array_equal(np.asarray(sign), [1, 1])

    @uopc.jit
    def f(a: Array, b: Array) -> Any:
        factor = np.linalg.cholesky(a)
        y = unp.linalg.solve_triangular(factor, b, lower=True)
        x = unp.linalg.solve_triangular(factor, y, lower=True, trans="T")
        return x, np.linalg.solve(a, b), np.linalg.inv(a) @ b, np.linalg.det(a), np.linalg.qr(a)

    b = normal((2, 5, 3), "f8")
    *solved, d, (q, r) = f(a, b)
    for value in solved:
        np.testing.assert_allclose(value, np.linalg.solve(a, b), rtol=1e-8)
    np.testing.assert_allclose(d, np.linalg.det(a))
    near(q @ r, a, norm(a), 5, "f8")


def test_factors_are_part_of_a_graph() -> None:
    """A graph computes values before and behind such a kernel, and one factor serves two uses."""
    a, b = definite((), 6, "f8"), normal((6,), "f8")
    x = param("a", a)
    factor = (x * 2).cholesky()
    made = (factor.sum() + 1, (factor @ factor.T).exp())
    want = np.linalg.cholesky(a * 2)
    for total, power in results(*made, interpreted=True, a=a):
        np.testing.assert_allclose(total, want.sum() + 1)
        np.testing.assert_allclose(power, np.exp(a * 2), rtol=1e-10)
    (again,) = next(results(x.solve(x.solve(param("b", b)) * 3), a=a, b=b))
    np.testing.assert_allclose(again, np.linalg.solve(a, 3 * np.linalg.solve(a, b)))


AGAIN: dict[str, Any] = {
    "solve": lambda v: (EYE2 * 2 + v).solve(v * v),
    "det": lambda v: (EYE2 + v.reshape(2, 1)).det(),
    "cholesky": lambda v: (EYE2 * 3 + v[0] * v[0]).cholesky(),
    "qr": lambda v: uopc.stack(*[abs(part) for part in (EYE2 + v).qr()]),
    "at add": lambda v: uopc.zeros(4, dtype="f8").at[np.array([0, 2])].add(v),
    "at set": lambda v: (v * v).at[1].set(v[0]),
    "scan": lambda v: uopc.scan(lambda c, u: (c * u, (EYE2 + c).det()), v[0], v)[1],
}
EYE2 = uopc.eye(2, dtype="f8")


@pytest.mark.few(3)
@pytest.mark.parametrize("name", AGAIN)
def test_a_value_with_storage_again_on_other_operands(name: str) -> None:
    """Both are computed: neither overwrites what the other one is to read."""
    x, y = uopc.param("x", (2,), "f8"), uopc.param("y", (2,), "f8")
    made = AGAIN[name](x)
    at = np.array([1.25, -0.5]), np.array([0.75, 3.0])
    want = [uopc.compile(made)(v) for v in at]
    several = (made, made.substitute({x: y}), made.substitute({x: y * 2}), made)
    for inputs in ([x, y], [y, x]):
        given = dict(zip("xy", at))
        found = uopc.compile(several, inputs=inputs)(**given)
        for got, value in zip(found, [*want, uopc.compile(made)(at[1] * 2), want[0]]):
            np.testing.assert_allclose(got, value, rtol=1e-12)
    kernels = [len(uopc.compile(v).kernels) for v in (made, (made, made))]
    assert kernels[1] <= kernels[0] + 1  # a copy: the value is computed once


def test_derivatives_of_a_loop_that_solves() -> None:
    """The equations of a step and those of its derivative are solved in storage of their own."""
    a = np.array([[3.0, 1.0], [1.0, 2.0]])
    x, at = uopc.param("x", (2,), "f8"), np.array([0.7, 1.3])
    made = uopc.fori_loop(0, 2, lambda i, c: unp.linalg.solve(a, c) * c, x)
    inverse, value, want = np.linalg.inv(a), at, np.eye(2)
    for _ in range(2):
        want = (np.diag(inverse @ value) + np.diag(value) @ inverse) @ want
        value = (inverse @ value) * value
    for mode in ("fwd", "rev"):
        found = uopc.compile(uopc.jacobian(made, x, mode=mode))(at)
        np.testing.assert_allclose(found, want, rtol=1e-12)


X = uopc.param("x", (2, 3))
S = uopc.param("s", (4, 3, 3))
WRONG: dict[str, Any] = {
    r"cholesky: the matrices must be square, got \(2, 3\)": lambda: X.cholesky(),
    r"inv: needs matrices, 2 dimensions or more, got \(3\)": lambda: X[0].inv(),
    r"det: the matrices must be square": lambda: X.det(),
    r"qr: needs matrices": lambda: X[0].qr(),
    r"qr: the mode must be reduced or complete, got 'r'": lambda: X.qr("r"),
    r"solve: matrices \(4, 3, 3\), right-hand sides \(4\)": lambda: S.solve(np.ones(4)),
    r"solve: matrices \(4, 3, 3\), right-hand sides \(\)": lambda: S.solve(1.0),
    r"solve.* do not broadcast|solve: .*\(4\)": lambda: S.solve(np.ones((5, 3, 2))),
    r"solve_triangular: trans must be": lambda: S.solve_triangular(np.ones(3), trans=3),
    r"solve_triangular: lower must be True or False": lambda: S.solve_triangular(np.ones(3), 1),
    r"cholesky: upper must be True or False, got 1": lambda: S.cholesky(1),
    r"matrix_power: the exponent must be an int, got 2.0": lambda: S.matrix_power(2.0),
    r"matrix_power: the matrices must be square": lambda: X.matrix_power(2),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_use_is_an_error(message: str) -> None:
    with pytest.raises(uopc.Error, match=message):
        WRONG[message]()


def test_kernels_for_a_gpu_are_made() -> None:
    diagonalized = matrix_kernels.diagonalized(S)
    for made in (S.cholesky(), S.solve(np.ones((3, 20), "f4")), *S.qr(), *diagonalized):
        assert ".entry" in uopc.compile(made, device="cuda:sm_80").kernels[0].asm


@pytest.mark.parametrize("n", [5, 64])
def test_threads_share_the_batch(n: int) -> None:
    x = uopc.param("x", (4096, n, n))
    for made in (x.cholesky(), x.det(), x.solve(x[:, :, :1]), x.qr()[1]):
        kernels = uopc.compile(made, threads=2).kernels
        assert any(str(v) == "THREAD(0, 2)" for k in kernels for v in k.opts), kernels[-1].name
