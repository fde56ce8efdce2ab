"""`numpy.fft` under jit, against NumPy: every function, lengths, axes, norms, dtypes, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
import uopc.numpy as unp
from uopc.errors import UserError, UserTypeError

_OF_ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
_LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 30, 31, 64, 97, 131, 256, 257, 360, 1000, 1021)
_RNG = np.random.default_rng(0)


def _numbers(*dims: int) -> npt.NDArray[np.complex128]:
    return _RNG.standard_normal(dims) + 1j * _RNG.standard_normal(dims)


def _given(name: str, z: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return z.real.copy() if name in ("rfft", "ihfft", "rfftn", "rfft2") else z


def _check(got: Any, want: npt.NDArray[Any], near: float = 1e-13) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    assert abs(got - want).max(initial=0) <= near * abs(want).max(initial=1)


@pytest.mark.parametrize("n", _LENGTHS)
@pytest.mark.parametrize("name", _OF_ONE)
def test_lengths(name: str, n: int) -> None:
    f, z = getattr(np.fft, name), _given(name, _numbers(2, n))
    if name in ("irfft", "hfft") and n == 1:
        with pytest.raises(UserError, match="1 or more"):
            uopc.jit(lambda a: f(a))(z)
        return
    _check(uopc.jit(lambda a: f(a))(z), f(z))


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("name", _OF_ONE)
def test_norms_and_axes(name: str, norm: Any) -> None:
    f = getattr(np.fft, name)
    z = _given(name, _numbers(6, 5, 4))
    for n, axis in ((None, 0), (9, 1), (3, -1), (None, -2)):
        got = uopc.jit(f, static_argnames=("n", "axis", "norm"))(z, n, axis, norm)
        _check(got, f(z, n, axis, norm))


@pytest.mark.parametrize("inverse", ["", "i"])
@pytest.mark.parametrize("name", ["fftn", "rfftn", "fft2", "rfft2"])
def test_several_axes(name: str, inverse: str) -> None:
    name = inverse + name
    f, z = getattr(np.fft, name), _given(name, _numbers(3, 4, 5))
    _check(uopc.jit(lambda a: f(a))(z), f(z))
    how: dict[str, Any] = {"axes": (0, 2), "s": (4, 7), "norm": "ortho"}
    _check(uopc.jit(lambda a: f(a, **how))(z), f(z, **how))


@pytest.mark.parametrize("name", ["fft", "rfft", "ifft"])
@pytest.mark.parametrize("dtype", ["f4", "c8", "i4", "bool"])
def test_dtypes(name: str, dtype: str) -> None:
    if (name, dtype) == ("rfft", "c8"):
        with pytest.raises(UserTypeError, match="real numbers"):
            uopc.jit(lambda a: np.fft.rfft(a))(np.ones(4, dtype))
        return
    f, x = getattr(np.fft, name), (_RNG.standard_normal((2, 60)) * 5).astype(dtype)
    _check(uopc.jit(lambda a: f(a))(x), f(x), 1e-6)


def test_frequencies_and_shifts() -> None:
    for n in (1, 2, 5, 8):
        assert np.allclose(np.asarray(unp.fft.fftfreq(n, 0.1)), np.fft.fftfreq(n, 0.1))
        assert np.allclose(np.asarray(unp.fft.rfftfreq(n, 0.1)), np.fft.rfftfreq(n, 0.1))
    z = _numbers(4, 5)
    for f in (np.fft.fftshift, np.fft.ifftshift):
        for axes in (None, 0, (0, 1), -1):
            got = uopc.jit(f, static_argnames="axes")(z, axes)
            assert np.array_equal(got, f(z, axes))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.sampled_from(_OF_ONE))
def test_any_length_is_cut_or_padded(size: int, n: int, name: str) -> None:
    f, z = getattr(np.fft, name), _given(name, _numbers(size))
    _check(uopc.jit(lambda a: f(a, n))(z), f(z, n))


def test_a_filter_is_inverted() -> None:
    z = _numbers(3, 128)
    assert np.allclose(uopc.jit(lambda a: np.fft.ifft(np.fft.fft(a) * 2))(z), 2 * z)
    x = z.real.copy()
    assert np.allclose(uopc.jit(lambda a: np.fft.irfft(np.fft.rfft(a)))(x), x)


def test_errors() -> None:
    with pytest.raises(UserError, match="norm"):
        uopc.jit(lambda a: np.fft.fft(a, norm="other"))(np.ones(4))
    with pytest.raises(UserError, match="1 or more"):
        uopc.jit(lambda a: np.fft.fft(a, 0))(np.ones(4))
    with pytest.raises(UserError, match="length"):
        uopc.jit(lambda a: np.fft.fftn(a, (2, 2), (0,)))(np.ones((4, 4)))
