"""Fourier transforms: products with small matrices, and twiddle factors between them.

A complex number is a pair (real, imaginary) in the last axis. Inside, pairs are rows: (…, 2, n).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks, movement
from uopc.ir.builder.fold import cast
from uopc.ir.builder.movement import normal_axis
from uopc.ir.builder.operands import constant
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.shapes import show
from uopc.ir.core.uop import UOp
from uopc.tensor import elementwise
from uopc.tensor.matrices.products import matmul

Floats = npt.NDArray[np.float64]
_RADIX = 32  # the largest matrix of a composite length
_PRIME = 128  # a length without small factors is one matrix up to this, and beyond it a convolution


# ---------------------------------------------------------------- what users call
def fft(a: UOp, n: int | None = None, axis: int = -2) -> UOp:
    """The discrete Fourier transform of complex numbers along an axis, as `numpy.fft.fft`.

    `a` has shape (…, 2): the last axis holds the real and the imaginary part, and so it does in the
    result. n: the length, for which the axis is cut or padded by zeros. Floats of 16 bits or fewer
    are transformed as float32 and rounded once, integers made floats first. UserError for lengths
    that are variables, or 0.

    By factors (J. W. Cooley and J. W. Tukey, 1965), and for prime factors above 128 as a
    convolution (L. I. Bluestein, 1970).

    Examples:
        >>> x = uopc.constant([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
        >>> uopc.compile(x.fft())().tolist()
        [[0.0, 0.0], [2.0, 0.0], [0.0, 0.0], [2.0, 0.0]]
    """
    return _complex("fft", a, n, axis, -1)


def ifft(a: UOp, n: int | None = None, axis: int = -2) -> UOp:
    """The inverse of `fft`, as `numpy.fft.ifft`: divided by the length.

    Shape, dtype and errors are those of `fft`.

    Examples:
        >>> x = uopc.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> uopc.compile(x.fft().ifft())().round(9).tolist()
        [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    """
    return _complex("ifft", a, n, axis, 1)


def rfft(a: UOp, n: int | None = None, axis: int = -1) -> UOp:
    """The Fourier transform of real numbers along an axis, as `numpy.fft.rfft`: the first n // 2
    + 1 coefficients, each a pair in a new last axis; the others are conjugates of these.

    Dtypes and errors are those of `fft`.

    Examples:
        >>> x = uopc.constant([1.0, 0.0, -1.0, 0.0])
        >>> uopc.compile(x.rfft())().tolist()
        [[0.0, 0.0], [2.0, 0.0], [0.0, 0.0]]
    """
    rows, length, t, at = _rows("rfft", a, n, axis, complex_=False)
    if length % 2 == 0 and length > _RADIX:
        return _placed(_by_halves(rows, length), at, t)
    return _placed(_first(_transformed(rows, length, -1), 2, length // 2 + 1), at, t)


def irfft(a: UOp, n: int | None = None, axis: int = -2) -> UOp:
    """The inverse of `rfft`, as `numpy.fft.irfft`: n real numbers, by default the even number 2 *
    (m - 1), from the m pairs along the axis.

    Dtypes and errors are those of `fft`; UserError for a single pair without `n`.

    Examples:
        >>> x = uopc.constant([1.0, 5.0, 2.0, 3.0])
        >>> uopc.compile(x.rfft().irfft())().round(9)
        array([1., 5., 2., 3.])
    """
    n = None if n is None else checks.integer("irfft", "n", n)
    m = _length("irfft", a, None if n is None else n // 2 + 1, axis, complex_=True)
    length = 2 * (m - 1) if n is None else n
    if length < 1:
        raise UserError("irfft: one pair gives a result of length 0: pass n=1")
    rows, _, t, at = _rows("irfft", a, length // 2 + 1, axis, complex_=True)
    found = _first(_transformed(_whole(rows, length), length, 1), 1, length)
    return _placed(found * (1 / length), at, t)


def _complex(who: str, a: UOp, n: int | None, axis: int, sign: int) -> UOp:
    rows, length, t, at = _rows(who, a, n, axis, complex_=True)
    found = _transformed(rows, length, sign)
    return _placed(found if sign < 0 else found * (1 / length), at, t)


# ---------------------------------------------------------------- rows of pairs
def _length(who: str, a: UOp, n: int | None, axis: int, complex_: bool) -> int:
    """Check the arguments, and return the length of the transform."""
    dims = shapes.shape(a)
    if not dims or (complex_ and (len(dims) < 2 or dims[-1] != 2)):
        wanted = "pairs in the last axis" if complex_ else "an axis"
        raise UserError(f"{who}: needs {wanted}, got {show(dims)}")
    axis = normal_axis(axis, len(dims), who)
    if complex_ and axis == len(dims) - 1:
        raise UserError(f"{who}: axis {axis} has the pairs of numbers: choose another axis")
    if n is not None and type(n) is not int:
        raise UserTypeError(f"{who}: n must be an int, got {n!r}")
    own = dims[axis]
    if not isinstance(own, int) or own == 0 or (n is not None and n < 1):
        raise UserError(f"{who}: the length must be a number above 0, got {show(dims)} and n={n}")
    return own if n is None else n


def _rows(
    who: str, a: UOp, n: int | None, axis: int, complex_: bool
) -> tuple[UOp, int, DType, int]:
    """Return the array as rows (…, 2, n), or (…, 1, n) of real numbers, in the dtype to compute in;
    n, the dtype of the result, and the axis."""
    n = _length(who, a, n, axis, complex_)
    rank = len(shapes.shape(a))
    axis = normal_axis(axis, rank, who)
    x = elementwise.as_float(a)
    t = x.dtype
    own = shapes.shape(x)[axis]
    assert isinstance(own, int)
    x = movement.shrink(x, [(0, min(own, n) if i == axis else d)
                            for i, d in enumerate(shapes.shape(x))])  # fmt: skip
    x = movement.pad(x, [(0, max(n - own, 0) if i == axis else 0) for i in range(rank)])
    x = movement.permute(x, (*[i for i in range(rank) if i != axis], axis))
    if not complex_:
        dims = shapes.shape(x)
        x = movement.reshape(x, (*dims[:-1], 1, n))
    return cast(x, dtypes.accumulator(t)), n, t, axis


def _placed(rows: UOp, axis: int, t: DType) -> UOp:
    """Move rows back to their axis, with pairs last; rows of one part become real numbers."""
    *lead, parts, n = shapes.shape(rows)
    before, after = range(axis), range(axis, len(lead))
    if parts == 1:
        rows = movement.reshape(rows, (*lead, n))
        return cast(movement.permute(rows, (*before, len(lead), *after)), t)
    return cast(movement.permute(rows, (*before, len(lead) + 1, *after, len(lead))), t)


def _first(rows: UOp, parts: int, n: int) -> UOp:
    """The first n numbers; with parts = 1, their real parts."""
    lead = shapes.shape(rows)[:-2]
    return movement.shrink(rows, [*[(0, d) for d in lead], (0, parts), (0, n)])


def _whole(rows: UOp, n: int) -> UOp:
    """All n coefficients of real numbers, given the first n // 2 + 1 of them."""
    lead = [(0, d) for d in shapes.shape(rows)[:-2]]
    rest = movement.shrink(rows, [*lead, (0, 2), (1, n - n // 2)])
    return movement.cat(rows, _mirrored(rest), axis=-1)


def _mirrored(rows: UOp) -> UOp:
    """The conjugates in reverse order."""
    return movement.flip(rows, (-1,)) * _numbers(np.array([[1.0], [-1.0]]), rows.dtype)


def _numbers(values: Floats, t: DType) -> UOp:
    return constant(values.astype(t.numpy))


# ---------------------------------------------------------------- the transform
def _by_halves(x: UOp, n: int) -> UOp:
    """The first n / 2 + 1 coefficients of n real numbers (…, 1, n): the even elements become real
    parts, the odd ones imaginary parts of n / 2 numbers; their transform yields both."""
    lead, m = shapes.shape(x)[:-2], n // 2
    k = len(lead)
    pairs = movement.permute(movement.reshape(x, (*lead, m, 2)), (*range(k), k + 1, k))
    z = _transformed(pairs, m, -1)
    z = movement.cat(z, _first(z, 2, 1), axis=-1)
    mirrored = _mirrored(z)
    c, s = _roots(np.arange(m + 1), n, -1)
    return (z + mirrored) * 0.5 + _times(z - mirrored, (s / 2, -c / 2))


def _transformed(x: UOp, n: int, sign: int) -> UOp:
    """(…, 2, n): the sums of x[j] e^(sign 2πi jk / n), of pairs or real numbers (…, 1 or 2, n)."""
    *lead, parts, _ = shapes.shape(x)
    radix = _radix(n)
    if radix == n:
        flat = movement.reshape(x, (*lead, parts * n))
        matrix = _numbers(np.ascontiguousarray(_matrix(n, sign, parts).T), x.dtype)
        return movement.reshape(matmul(flat, matrix), (*lead, 2, n))
    if not radix:
        return _by_convolution(x, n, sign)
    rest = n // radix
    # Element j = a * rest + b; coefficient k = c + radix * d.
    groups = movement.reshape(x, (*lead, parts * radix, rest))
    inner = matmul(_numbers(_matrix(radix, sign, parts), x.dtype), groups)
    inner = movement.reshape(inner, (*lead, 2, radix, rest))
    turned = _times(inner, _roots(np.outer(np.arange(radix), np.arange(rest)), n, sign))
    k = len(lead)
    outer = _transformed(movement.permute(turned, (*range(k), k + 1, k, k + 2)), rest, sign)
    outer = movement.permute(outer, (*range(k), k + 1, k + 2, k))
    return movement.reshape(outer, (*lead, 2, n))


def _radix(n: int) -> int:
    """The first factor to split off n: n if a single matrix suffices, 0 if all are too large."""
    if n <= _RADIX:
        return n
    stages = math.ceil(math.log(n, _RADIX) - 1e-9)
    wanted = n ** (1 / stages)
    small = [d for d in range(2, _RADIX + 1) if n % d == 0]
    if small:  # those of about one size have the fewest operations
        return min(small, key=lambda d: abs(math.log(d / wanted)))
    if n <= _PRIME:
        return n
    return next((d for d in range(_RADIX + 1, _PRIME + 1) if n % d == 0), 0)


def _roots(powers: npt.NDArray[np.int64], n: int, sign: int) -> tuple[Floats, Floats]:
    """Real and imaginary parts of e^(sign 2πi power / n)."""
    angle = (powers % n) * (2 * np.pi / n)
    c, s = np.cos(angle), sign * np.sin(angle)
    least = 1e-15  # which is 0 but for the rounding of the angle
    return np.where(abs(c) < least, 0.0, c), np.where(abs(s) < least, 0.0, s)


def _matrix(n: int, sign: int, parts: int) -> Floats:
    """The transform of n numbers, as a matrix of real numbers."""
    c, s = _roots(np.outer(np.arange(n), np.arange(n)), n, sign)
    return np.block([[c, -s], [s, c]])[:, : parts * n]


def _times(x: UOp, by: tuple[Floats, Floats]) -> UOp:
    """Multiply pairs (…, 2, *dims) by complex constants of shape dims."""
    c, s = by
    swapped = movement.flip(x, (-1 - c.ndim,))
    return x * _numbers(c, x.dtype) + swapped * _numbers(np.stack([-s, s]), x.dtype)


def _by_convolution(x: UOp, n: int, sign: int) -> UOp:
    """Transform by jk = (j² + k² - (k - j)²) / 2: a convolution, of a power-of-two length."""
    *lead, parts, _ = shapes.shape(x)
    squares = np.arange(n, dtype=np.int64) ** 2
    c, s = chirp = _roots(squares, 2 * n, sign)
    if parts == 1:
        given = x * _numbers(np.stack([c, s]), x.dtype)
    else:
        given = _times(x, chirp)
    m = 1 << (2 * n - 2).bit_length()
    kernel = np.zeros(m, np.complex128)
    kernel[:n] = c - 1j * s
    kernel[m - n + 1 :] = kernel[1:n][::-1]
    found = np.fft.fft(kernel) / m
    padded = movement.pad(given, [(0, 0)] * (len(lead) + 1) + [(0, m - n)])
    product = _times(_transformed(padded, m, -1), (found.real, found.imag))
    return _times(_first(_transformed(product, m, 1), 2, n), chirp)
