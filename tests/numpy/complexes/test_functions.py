"""NumPy's functions of complex arrays under jit, against NumPy: in complex128 and in complex64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import uopc

_RNG = np.random.default_rng(0)


def _numbers(*dims: int) -> npt.NDArray[np.complex128]:
    return _RNG.standard_normal(dims) + 1j * _RNG.standard_normal(dims)


_a, _b, _m, _square, _v = (
    _numbers(3, 4), _numbers(3, 4), _numbers(4, 5), _numbers(4, 4), _numbers(4)
)  # fmt: skip
_x = _RNG.standard_normal((3, 4))
_PRODUCTS: dict[str, tuple[Any, ...]] = {
    "matmul": (lambda a, m: a @ m, _a, _m), "of a vector": (lambda a, v: a @ v, _a, _v),
    "by a vector": (lambda v, m: v @ m, _v, _m), "of vectors": (lambda v: v @ v, _v),
    "batch": (lambda a: a @ a.swapaxes(-1, -2), _numbers(2, 3, 4)),
    "real and complex": (lambda x, m: x @ m, _x, _m), "dot": (np.dot, _a, _m),
    "complex and real": (lambda m, x: m.T @ x.T, _m, _x),
    "einsum": (lambda a, m: np.einsum("ij,jk->k", a, m), _a, _m),
    "einsum of three": (lambda a, m, v: np.einsum("ij,jk,j->ik", a, m, v), _a, _m, _v),
    "vdot": (np.vdot, _a, _b), "vecdot": (np.vecdot, _a, _b), "inner": (np.inner, _a, _b),
    "outer": (np.outer, _v, _v), "kron": (np.kron, _a, _b), "convolve": (np.convolve, _v, _a[0]),
    "tensordot": (lambda a, m: np.tensordot(a, m, 1), _a, _m),
    "correlate": (lambda p, q: np.correlate(p, q, "full"), _v, _numbers(6)),
    "cross": (np.cross, _numbers(5, 3), _numbers(5, 3)),
    "norm": (np.linalg.norm, _a), "norms": (lambda a: np.linalg.norm(a, axis=0, ord=1), _a),
    "solve": (np.linalg.solve, _square, _m), "solve a vector": (np.linalg.solve, _square, _v),
    "inv": (np.linalg.inv, _square), "power": (lambda a: np.linalg.matrix_power(a, 3), _square),
    "inverse power": (lambda a: np.linalg.matrix_power(a, -2), _square),
    "power of 0": (lambda a: np.linalg.matrix_power(a, 0), _square),
    "multi_dot": (lambda a, m, v: np.linalg.multi_dot([a, m, m.T, v]), _a, _m, _v),
}  # fmt: skip
_REDUCTIONS: dict[str, tuple[Any, ...]] = {
    "sum": (lambda a: a.sum(), _a), "sum of an axis": (lambda a: a.sum(0), _a),
    "sum as complex": (lambda x: np.sum(x, dtype=complex), _x),
    "mean": (lambda a: a.mean(axis=1), _a), "var": (lambda a: a.var(axis=1), _a),
    "std": (np.std, _a), "average": (lambda a, x: np.average(a, weights=abs(x)), _a, _x),
    "prod": (lambda a: np.prod(a, axis=1), _a), "prod of all": (np.prod, _a),
    "prod of nothing": (lambda a: np.prod(a[:0], axis=0), _a), "nansum": (np.nansum, _a),
    "cumsum": (lambda a: np.cumsum(a, axis=0), _a), "cumprod": (lambda a: a.cumprod(1), _a),
    "cumprod of all": (np.cumprod, _a), "any": (np.any, _a), "all": (lambda a: a.all(0), _a),
    "count": (np.count_nonzero, _a), "max": (np.max, _a), "min": (lambda a: a.min(axis=0), _a),
    "max with ties": (lambda a: np.max(np.round(a), axis=1, keepdims=True), _a),
    "argmax": (np.argmax, _a), "argmin": (lambda a: np.argmin(a, axis=1), _a),
    "sort": (np.sort, _a), "sort with ties": (lambda a: np.sort(np.round(a), axis=0), _a),
    "argsort": (np.argsort, _a), "isclose": (np.isclose, _a, _a * (1 + 1e-9)),
    "array_equal": (np.array_equal, _a, _a.copy()), "trace": (np.trace, _square),
}  # fmt: skip
_MOVES: dict[str, tuple[Any, ...]] = {
    "where": (lambda x, a, b: np.where(x > 0, a, b), _x, _a, _b),
    "where of a number": (lambda x, a: np.where(x > 0, a, 2.0), _x, _a),
    "select": (lambda x, a, b: np.select([x > 1, x > 0], [a, b]), _x, _a, _b),
    "slice": (lambda a: a[1:, ::-1], _a), "rows": (lambda a: a[np.array([2, 0]), 1], _a),
    "iteration": (lambda a: sum(row.sum() for row in a), _a),
    "concatenate": (lambda a, x: np.concatenate([a, x, x * 1j]), _a, _x),
    "stack": (lambda a, x: np.stack([x, a], -1), _a, _x), "tile": (lambda a: np.tile(a, 2), _a),
    "block": (lambda a, x: np.block([[a, x], [x, a]]), _a, _x),
    "reshape": (lambda a: a.reshape(2, 6).T, _a), "roll": (lambda a: np.roll(a, 1, 1), _a),
    "pad": (lambda a: np.pad(a, 1), _a), "repeat": (lambda a: np.repeat(a, 2, axis=0), _a),
    "flip": (np.flip, _a), "diag": (np.diag, _v), "triu": (np.triu, _square), "diff": (np.diff, _v),
    "take": (lambda a: np.take(a, np.array([0, 2]), axis=1), _a), "gradient": (np.gradient, _v),
    "split": (lambda a: np.split(a, 2, axis=1)[1], _a),
    "moveaxis": (lambda a: np.moveaxis(a, 0, 1), _a),
    "insert": (lambda a: np.insert(a, 1, 2j, axis=0), _a), "append": (np.append, _a, _b),
    "delete": (lambda a: np.delete(a, 1, 0), _a), "trapezoid": (np.trapezoid, _v),
    "astype": (lambda x: x.astype(complex), _x), "narrower": (lambda a: a.astype("c8"), _a),
    "zeros_like": (lambda a: np.zeros_like(a) + 1, _a), "ones_like": (np.ones_like, _a),
    "full_like": (lambda a: np.full_like(a, 3 + 1j), _a), "size": (lambda a: a * np.size(a), _a),
    "linspace": (lambda x: np.linspace(0, 1 + 1j, 5) + x[0, 0], _x),
    "logspace": (lambda v: np.logspace(v[0], v[1], 5, dtype="c8"), _v),
}  # fmt: skip
_ELEMENTS: dict[str, tuple[Any, ...]] = {
    "cube": (lambda a: a**3, _a), "a number to the power": (lambda a: 2**a, _a),
    "phases": (lambda x: np.exp(2j * np.pi * x), _x), "quotient": (lambda x, a: x / a, _x, _a),
    "right operands": (lambda a: (1 + a) * (1 - a) / (2 / a), _a), "abs": (abs, _a),
    "known array": (lambda x: x * np.array([1, 1j, 2, 3j]), _x),
    "known array first": (lambda x: np.array([1, 1j, 2, 3j]) - x, _x),
    "integers": (lambda a: a * np.arange(4), _a), "less": (lambda a, b: a < b, _a, _b),
    "polyval": (np.polyval, _v, _a), "clip": (lambda a: np.clip(a, 0, 1 + 1j), _a),
    "round": (lambda a: np.round(a, 2), _a), "isreal": (np.isreal, _a),
    "iscomplex": (np.iscomplex, _a),
    "angle": (lambda a: np.angle(a, deg=True), _a), "sinc": (np.sinc, _a),
    "conjugate transpose": (lambda a: a.conj().T, _a),
    "float_power": (lambda a: np.float_power(a, 2), _a),
    "nan_to_num": (lambda a, x: np.nan_to_num(a / np.where(x > 0, 0, 1)), _a, _x),
}  # fmt: skip
_CASES = _PRODUCTS | _REDUCTIONS | _MOVES | _ELEMENTS


@pytest.mark.parametrize("narrow", [False, True], ids=["complex128", "complex64"])
@pytest.mark.parametrize("name", _CASES)
@np.errstate(all="ignore")
def test_functions_give_what_numpy_gives(name: str, narrow: bool) -> None:
    function, *args = _CASES[name]
    if narrow:
        args = [a.astype(np.complex64 if a.dtype.kind == "c" else np.float32) for a in args]
    want = np.asarray(function(*args))
    got = np.asarray(uopc.jit(lambda *given: function(*given))(*args))
    near = 1e-4 if np.finfo(args[0].dtype).eps > 1e-10 else 1e-12
    assert got.dtype == want.dtype and got.shape == want.shape
    assert np.allclose(got, want, rtol=near, atol=near)


def test_order_of_nan_is_numpys() -> None:
    nan = np.nan
    z = np.array([1, complex(nan, 1), complex(2, nan), complex(nan, nan), -1j, complex(0, nan), 1])
    assert np.array_equal(uopc.jit(np.argsort)(z), np.argsort(z, kind="stable"))
    assert uopc.jit(np.argmax)(z) == np.argmax(z) == 1
    assert np.isnan(uopc.jit(np.max)(z)) and np.isnan(uopc.jit(np.min)(z))
