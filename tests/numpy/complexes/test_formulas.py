"""Complex functions of all pairs of special values, against NumPy: values, and signs of zeros."""

from __future__ import annotations

import mpmath
import numpy as np
import numpy.typing as npt
import pytest

import uopc

_INF, _NAN = np.inf, np.nan
_SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, -0.5, 1e-3, -1e-3, 3.0, -3.0, np.pi / 2, 800.0, -800.0,
    1e10, 1e-20, 1e200, 1e300, -1e300, 1e-200, 1e-300, -1e-300, _INF, -_INF, _NAN,
]  # fmt: skip
_UNARY = (
    "exp", "log", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin",
    "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "sign", "square", "reciprocal", "absolute",
    "negative", "conjugate", "isnan", "isinf", "isfinite", "rint",
)  # fmt: skip
_BINARY = (
    "add", "subtract", "multiply", "maximum", "minimum", "fmax", "fmin", "equal", "not_equal",
    "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip
_TYPES = pytest.mark.parametrize("dtype", ["complex128", "complex64"])
Numbers = npt.NDArray[np.complexfloating]


def _grid(dtype: str) -> Numbers:
    parts = np.array(_SPECIAL, np.dtype(dtype).type(0).real.dtype)
    z = np.empty((len(parts), len(parts)), dtype)
    z.real, z.imag = parts[:, None], parts[None, :]
    return z.ravel()


def _agree(got: npt.NDArray, want: npt.NDArray, ulps: float = 8) -> npt.NDArray[np.bool_]:
    """True where each part is the same, or finite and near; signs of zeros count."""
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype == bool:
        return got == want
    found = np.ones(want.shape, bool)
    for g, w in ((got.real, want.real), (got.imag, want.imag)):
        info = np.finfo(w.dtype)
        same = ((g == w) & (np.signbit(g) == np.signbit(w))) | (np.isnan(g) & np.isnan(w))
        near = abs(g - w) <= ulps * info.eps * np.maximum(abs(want), 16 * info.tiny)
        signs = (np.signbit(g) == np.signbit(w)) | (w != 0)
        found &= same | (np.isfinite(g) & np.isfinite(w) & near & signs)
    return found


@_TYPES
@pytest.mark.parametrize("name", _UNARY)
@np.errstate(all="ignore")
def test_all_pairs_of_special_values(name: str, dtype: str) -> None:
    function, z = getattr(np, name), _grid(dtype)
    got = np.asarray(uopc.jit(lambda v: function(v))(z))
    wrong = ~_agree(got, function(z))
    assert not wrong.any(), list(zip(z[wrong], got[wrong], function(z)[wrong]))[:9]


@_TYPES
@pytest.mark.parametrize("name", _BINARY)
@np.errstate(all="ignore")
def test_pairs_of_special_numbers(name: str, dtype: str) -> None:
    function, z = getattr(np, name), _grid(dtype)[::3]
    a, b = [v.ravel() for v in np.meshgrid(z, z, indexing="ij")]
    got = np.asarray(uopc.jit(lambda v, w: function(v, w))(a, b))
    wrong = ~_agree(got, function(a, b))
    assert not wrong.any(), list(zip(a[wrong], b[wrong], got[wrong], function(a, b)[wrong]))[:9]


@_TYPES
@np.errstate(all="ignore")
def test_quotients_of_special_numbers(dtype: str) -> None:
    """The products inside are fused with sums here, so a part of size 0 may be a rounding error."""
    z = _grid(dtype)[::3]
    a, b = [v.ravel() for v in np.meshgrid(z, z, indexing="ij")]
    got, want = np.asarray(uopc.jit(lambda v, w: v / w)(a, b)), a / b
    info = np.finfo(dtype)
    for g, w in ((got.real, want.real), (got.imag, want.imag)):
        near = abs(g - w) <= 8 * info.eps * np.maximum(abs(want), 16 * info.tiny)
        wrong = ~(near | (g == w) | (np.isnan(g) & np.isnan(w)))
        assert not wrong.any(), list(zip(a[wrong], b[wrong], got[wrong], want[wrong]))[:9]


@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_numbers_near_zero_are_exact(name: str) -> None:
    """NumPy's log1p and expm1 of complex numbers lose digits, so mpmath says what is right."""
    rng = np.random.default_rng(0)
    sizes = 10.0 ** rng.uniform(-12, -0.5, 200)
    z = sizes * np.exp(2j * np.pi * rng.uniform(0, 1, 200))
    function = getattr(np, name)
    got = np.asarray(uopc.jit(lambda v: function(v))(z))
    with mpmath.workdps(40):
        exact = {"expm1": mpmath.expm1, "log1p": lambda v: mpmath.log(1 + v)}[name]
        want = np.array([complex(exact(mpmath.mpc(v))) for v in z])
    assert (abs(got - want) <= 8e-16 * abs(want)).all()


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sin", "tan", "tanh", "arcsin", "arccos",
                                  "arctan", "arcsinh", "arccosh", "arctanh"])  # fmt: skip
def test_random_numbers(name: str) -> None:
    rng = np.random.default_rng(1)
    sizes = 10.0 ** rng.uniform(-8, 2, 3000)
    z = sizes * np.exp(2j * np.pi * rng.uniform(0, 1, 3000))
    function = getattr(np, name)
    got, want = np.asarray(uopc.jit(lambda v: function(v))(z)), function(z)
    assert (abs(got - want) <= 2e-15 * abs(want)).all()


def test_powers() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 500)) + 1j * rng.standard_normal((2, 500))
    assert np.allclose(uopc.jit(lambda a, b: a**b)(a, b), a**b, rtol=1e-13)
    for n in (0, 1, 2, 3, 7, -1, -4, 0.5, 2.0):
        got = uopc.jit(lambda a, n: a**n, static_argnames="n")(a, n)
        assert np.allclose(got, a**n, rtol=1e-13), n
    zero = np.zeros(1, complex)
    assert uopc.jit(lambda a, b: a**b)(zero, zero)[0] == 1
    assert uopc.jit(lambda a, b: a**b)(zero, zero + 2)[0] == 0
