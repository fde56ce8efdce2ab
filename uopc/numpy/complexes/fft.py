"""`fft` of the Array API (`uopc.numpy.fft`), with NumPy's parameters: Fourier transforms of real
and complex arrays along any axes, of any length.

`norm` says which transforms are divided by the length n: the inverse ones ("backward"), the others
("forward"), or both by its root ("ortho").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks
from uopc.ir.builder.movement import normal_axis
from uopc.ir.core import dtypes
from uopc.numpy import creation, dtype_functions, namespace
from uopc.numpy.array import Array, float_of
from uopc.numpy.complexes.arrays import ComplexArray, is_complex
from uopc.tensor.signals import fourier

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

Norm = Literal["backward", "ortho", "forward"] | None
_FORWARD = {None: 0.0, "backward": 0.0, "ortho": 0.5, "forward": 1.0}


def _given(who: str, a: Any, axis: Any) -> tuple[Array, int]:
    """The operand as an Array of floats or complex numbers, and its axis."""
    x = a if is_complex(a) else Array(float_of(a, who), a.tracing if isinstance(a, Array) else None)
    x = namespace.asarray(x)
    if x.dtype.is_float and x.dtype.bits < 32:
        x = namespace.astype(x, dtypes.float32)
    return x, normal_axis(checks.integer(who, "axis", axis), x.ndim, who)


def _complex(x: Array) -> ComplexArray:
    if isinstance(x, ComplexArray):
        return x
    return ComplexArray(x, creation.zeros_like(x))


def _power(who: str, norm: Norm, inverse: bool) -> float:
    """The power of n by which a transform is divided."""
    if norm not in _FORWARD:
        raise UserError(f"{who}: norm must be 'backward', 'ortho' or 'forward', got {norm!r}")
    return 1 - _FORWARD[norm] if inverse else _FORWARD[norm]


def _scaled(found: Any, n: int, power: float) -> Any:
    return found if power == 0 else found * float(n) ** -power


def _points(who: str, n: Any, size: Any) -> Any:
    """The length of a transform."""
    found = size if n is None else checks.integer(who, "n", n)
    if isinstance(found, int) and found < 1:
        raise UserError(f"{who}: the length must be 1 or more, got {found}")
    return found


# ---------------------------------------------------------------- along one axis
def fft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Any:
    """The discrete Fourier transform along an axis: the sums of a[j] e^(-2πi jk / n).

    n: the length, for which the axis is cut or padded by zeros. In complex64 of float32 and
    complex64, else in complex128. UserError for lengths that are variables or below 1.

    By factors (J. W. Cooley and J. W. Tukey, 1965), and for prime factors above 128 as a
    convolution (L. I. Bluestein, 1970).

    Examples:
        >>> np.asarray(unp.fft.fft(unp.asarray([1.0, 2.0, 1.0])))
        array([ 4. +0.j        , -0.5-0.8660254j, -0.5+0.8660254j])
    """
    x, axis = _given("fft", a, axis)
    n = _points("fft", n, x.shape[axis])
    if isinstance(x, ComplexArray):
        made: Any = ComplexArray.of_pairs(fourier.fft(x.uop, n, axis), x.tracing)
    else:
        half = ComplexArray.of_pairs(fourier.rfft(x.uop, n, axis), x.tracing)
        before = (slice(None),) * axis
        rest = namespace.conj(namespace.flip(half[(*before, slice(1, (n + 1) // 2))], axis=axis))
        made = namespace.concat([half, rest], axis=axis)
    return _scaled(made, n, _power("fft", norm, False))


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Any:
    """The inverse of `fft`. Parameters, dtype and errors are those of `fft`.

    Examples:
        >>> np.asarray(unp.fft.ifft(unp.asarray([0.0, 2.0, 0.0, 2.0])))
        array([ 1.+0.j,  0.+0.j, -1.+0.j,  0.+0.j])
    """
    x, axis = _given("ifft", a, axis)
    n = _points("ifft", n, x.shape[axis])
    made = ComplexArray.of_pairs(fourier.ifft(_complex(x).uop, n, axis), x.tracing)
    return _scaled(made, n, _power("ifft", norm, True) - 1)


def rfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Any:
    """The first n // 2 + 1 elements of the transform of real numbers; the others are conjugates of
    these. Parameters, dtype and errors are those of `fft`; UserTypeError for complex numbers.

    Examples:
        >>> np.asarray(unp.fft.rfft(unp.asarray([1.0, 0.0, -1.0, 0.0])))
        array([0.+0.j, 2.+0.j, 0.+0.j])
    """
    x, axis = _given("rfft", a, axis)
    if isinstance(x, ComplexArray):
        raise UserTypeError("rfft: needs real numbers: use fft")
    n = _points("rfft", n, x.shape[axis])
    made = ComplexArray.of_pairs(fourier.rfft(x.uop, n, axis), x.tracing)
    return _scaled(made, n, _power("rfft", norm, False))


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Any:
    """The inverse of `rfft`: n real numbers, by default the even number 2 * (m - 1), from m
    elements along the axis. Parameters, dtype and errors are those of `fft`.

    Examples:
        >>> np.asarray(unp.fft.irfft(unp.asarray([0.0, 2.0, 0.0])))
        array([ 1.,  0., -1.,  0.])
    """
    x, axis = _given("irfft", a, axis)
    n = _points("irfft", n, 2 * (x.shape[axis] - 1))
    made = Array(fourier.irfft(_complex(x).uop, n, axis), x.tracing)
    return _scaled(made, n, _power("irfft", norm, True) - 1)


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Any:
    """The transform, which is real, of numbers whose second half are conjugates of the first, which
    is given: n real numbers, by default 2 * (m - 1).

    Parameters, dtype and errors are those of `fft`.

    Examples:
        >>> np.asarray(unp.fft.hfft(unp.asarray([1.0, 2.0, 1.0])))
        array([ 6.,  0., -2.,  0.])
    """
    x, axis = _given("hfft", a, axis)
    n = _points("hfft", n, 2 * (x.shape[axis] - 1))
    made = Array(fourier.irfft(namespace.conj(_complex(x)).uop, n, axis), x.tracing)
    return _scaled(made, n, _power("hfft", norm, False) - 1)


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Any:
    """The inverse of `hfft`: the first n // 2 + 1 elements.

    Parameters, dtype and errors are those of `rfft`.

    Examples:
        >>> np.asarray(unp.fft.ihfft(unp.asarray([6.0, 0.0, -2.0, 0.0])))
        array([1.-0.j, 2.-0.j, 1.-0.j])
    """
    x, axis = _given("ihfft", a, axis)
    n = _points("ihfft", n, x.shape[axis])
    return _scaled(namespace.conj(rfft(x, n, axis)), n, _power("ihfft", norm, True))


# ---------------------------------------------------------------- along several axes
def _sizes_and_axes(who: str, a: Any, s: Any, axes: Any) -> tuple[list[Any], list[int]]:
    """The lengths, None where it is the size, and the axes."""
    rank = namespace.asarray(a).ndim
    if axes is None:
        count = rank if s is None else len(checks.sequence(who, "s", s))
        axes = range(-count, 0)
    found = [normal_axis(i, rank, who) for i in checks.sequence(who, "axes", axes)]
    sizes = [None] * len(found) if s is None else list(checks.sequence(who, "s", s))
    if len(sizes) != len(found):
        raise UserError(f"{who}: {len(sizes)} lengths for {len(found)} axes")
    return [None if n == -1 else n for n in sizes], found


def fftn(
    a: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = None
) -> Any:
    """The transform along several axes, by default all: see `fft`.

    s: the lengths along the axes, -1 for their sizes. UserError for another number of lengths.

    Examples:
        >>> np.asarray(unp.fft.fftn(unp.asarray([[1.0, 2.0], [3.0, 4.0]])))
        array([[10.+0.j, -2.+0.j],
               [-4.+0.j,  0.+0.j]])
    """
    sizes, found = _sizes_and_axes("fftn", a, s, axes)
    for n, axis in reversed(list(zip(sizes, found))):
        a = fft(a, n, axis, norm)
    return a


def ifftn(
    a: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = None
) -> Any:
    """The inverse of `fftn`, with its parameters.

    Examples:
        >>> np.asarray(unp.fft.ifftn(unp.asarray([[10.0, -2.0], [-4.0, 0.0]])))
        array([[1.+0.j, 2.+0.j],
               [3.+0.j, 4.+0.j]])
    """
    sizes, found = _sizes_and_axes("ifftn", a, s, axes)
    for n, axis in reversed(list(zip(sizes, found))):
        a = ifft(a, n, axis, norm)
    return a


def rfftn(
    a: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = None
) -> Any:
    """The transform of real numbers: `rfft` along the last of the axes, `fft` along the others.

    Parameters and errors are those of `fftn`; UserError for no axes.

    Examples:
        >>> np.asarray(unp.fft.rfftn(unp.asarray([[1.0, 2.0], [3.0, 4.0]])))
        array([[10.+0.j, -2.+0.j],
               [-4.+0.j,  0.+0.j]])
    """
    sizes, found = _some_axes("rfftn", a, s, axes)
    made = rfft(a, sizes[-1], found[-1], norm)
    return fftn(made, _kept(sizes[:-1]), found[:-1], norm)


def irfftn(
    a: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = None
) -> Any:
    """The inverse of `rfftn`: the last of the axes gets 2 * (m - 1) elements by default.

    Parameters and errors are those of `rfftn`.

    Examples:
        >>> np.asarray(unp.fft.irfftn(unp.asarray([[10.0, -2.0], [-4.0, 0.0]])))
        array([[1., 2.],
               [3., 4.]])
    """
    sizes, found = _some_axes("irfftn", a, s, axes)
    made = ifftn(a, _kept(sizes[:-1]), found[:-1], norm)
    return irfft(made, sizes[-1], found[-1], norm)


def _some_axes(who: str, a: Any, s: Any, axes: Any) -> tuple[list[Any], list[int]]:
    sizes, found = _sizes_and_axes(who, a, s, axes)
    if not found:
        raise UserError(f"{who}: needs at least one axis")
    return sizes, found


def _kept(sizes: list[Any]) -> list[int]:
    return [-1 if n is None else n for n in sizes]


def fft2(
    a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: Norm = None
) -> Any:
    """`fftn` along two axes, by default the last two.

    Examples:
        >>> np.asarray(unp.fft.fft2(unp.asarray([[1.0, 2.0], [3.0, 4.0]])))
        array([[10.+0.j, -2.+0.j],
               [-4.+0.j,  0.+0.j]])
    """
    return fftn(a, s, axes, norm)


def ifft2(
    a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: Norm = None
) -> Any:
    """`ifftn` along two axes, by default the last two.

    Examples:
        >>> np.asarray(unp.fft.ifft2(unp.asarray([[10.0, -2.0], [-4.0, 0.0]])))
        array([[1.+0.j, 2.+0.j],
               [3.+0.j, 4.+0.j]])
    """
    return ifftn(a, s, axes, norm)


def rfft2(
    a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: Norm = None
) -> Any:
    """`rfftn` along two axes, by default the last two.

    Examples:
        >>> np.asarray(unp.fft.rfft2(unp.asarray([[1.0, 2.0], [3.0, 4.0]])))
        array([[10.+0.j, -2.+0.j],
               [-4.+0.j,  0.+0.j]])
    """
    return rfftn(a, s, axes, norm)


def irfft2(
    a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: Norm = None
) -> Any:
    """`irfftn` along two axes, by default the last two.

    Examples:
        >>> np.asarray(unp.fft.irfft2(unp.asarray([[10.0, -2.0], [-4.0, 0.0]])))
        array([[1., 2.],
               [3., 4.]])
    """
    return irfftn(a, s, axes, norm)


# ---------------------------------------------------------------- frequencies
def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequency of each element of `fft` of n samples at distance d: 0, 1, … and the negative
    ones, over n · d. float64 by default. UserError for n below 1.

    Examples:
        >>> np.asarray(unp.fft.fftfreq(4))
        array([ 0.  ,  0.25, -0.5 , -0.25])
    """
    n = _points("fftfreq", n, 1)
    return _frequencies(np.fft.ifftshift(np.arange(n) - n // 2), n, d, dtype, device)


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequency of each element of `rfft` of n samples at distance d: see `fftfreq`.

    Examples:
        >>> np.asarray(unp.fft.rfftfreq(4))
        array([0.  , 0.25, 0.5 ])
    """
    n = _points("rfftfreq", n, 1)
    return _frequencies(np.arange(n // 2 + 1), n, d, dtype, device)


def _frequencies(numbers: Any, n: int, d: float, dtype: Any, device: Any) -> Array:
    t = dtype_functions.as_dtype(dtype, dtypes.float64)
    if not t.is_float:
        raise UserTypeError(f"fftfreq: dtype must be a float, got {t.name}")
    found: Array = creation.asarray(numbers * (1.0 / (n * d)), dtype=t, device=device)
    return found


def fftshift(x: Any, axes: Any = None) -> Any:
    """Move the element of frequency 0 to the middle, along the axes, by default all.

    Examples:
        >>> np.asarray(unp.fft.fftshift(unp.fft.fftfreq(4)))
        array([-0.5 , -0.25,  0.  ,  0.25])
    """
    return _shifted("fftshift", x, axes, 1)


def ifftshift(x: Any, axes: Any = None) -> Any:
    """The inverse of `fftshift`, which differs from it for odd lengths.

    Examples:
        >>> np.asarray(unp.fft.ifftshift(unp.asarray([-1, 0, 1])))
        array([ 0,  1, -1])
    """
    return _shifted("ifftshift", x, axes, -1)


def _shifted(who: str, x: Any, axes: Any, sign: int) -> Any:
    given = namespace.asarray(x)
    some = range(given.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    found = [normal_axis(i, given.ndim, who) for i in some]
    shifts = [sign * (given.shape[i] // 2) for i in found]
    return namespace.roll(given, tuple(shifts), tuple(found)) if found else given
