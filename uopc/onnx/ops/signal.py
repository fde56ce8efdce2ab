"""Fourier transforms, as products with the matrix of the transform."""

from __future__ import annotations

from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.onnx.node import Node, dims, fixed, normal
from uopc.onnx.registry import op


def _transformed(x: UOp, n: int, inverse: bool, onesided: bool) -> UOp:
    """Of the axis before the last, whose elements are real or pairs of the last axis."""
    have = fixed(x, "DFT")[-2]
    rank = len(x.shape)
    if have < n:
        x = x.pad([(0, n - have) if i == rank - 2 else (0, 0) for i in range(rank)])
    elif have > n:
        x = x[..., :n, :]
    half = onesided and inverse  # the other half is the conjugate of this one
    if half:
        x = _whole(x[..., : n // 2 + 1, :], n)
    rows = n // 2 + 1 if onesided and not inverse else n
    angle = 2 * np.pi * np.outer(np.arange(rows), np.arange(n)) / n
    sign, scale = (1, 1 / n) if inverse else (-1, 1)
    c, s = [uopc.constant(v * scale).cast(x.dtype) for v in (np.cos(angle), sign * np.sin(angle))]
    real = x[..., 0]
    a, b = _product(real, c), _product(real, s)
    if dims(x)[-1] == 2:
        imaginary = x[..., 1]
        a, b = a - _product(imaginary, s), b + _product(imaginary, c)
    return a.unsqueeze(-1) if half else uopc.stack(a, b, axis=rank - 1)


def _whole(x: UOp, n: int) -> UOp:
    """All n coefficients of a real signal, given the first half of them."""
    rest = x[..., 1 : n - n // 2, :].flip(len(x.shape) - 2)
    rest = rest * uopc.constant(np.array([1.0, -1.0])).cast(x.dtype)
    return uopc.cat(x, rest, axis=len(x.shape) - 2)


def _product(x: UOp, matrix: UOp) -> UOp:
    return x.matmul(matrix.transpose())


@op("DFT", since=20)
def dft(n: Node) -> UOp:
    """Along an axis that is an input; -2 by default."""
    axis = n.known(2)
    return _dft(n, -2 if axis is None else int(axis.reshape(-1)[0]))


@op("DFT")
def dft_17(n: Node) -> UOp:
    """Along the axis of an attribute."""
    return _dft(n, n.attr("axis", 1))


def _dft(n: Node, axis: int) -> UOp:
    x, length = n.x(0), n.known(1)
    rank = len(x.shape)
    axis = normal(axis, rank)
    order = [i for i in range(rank - 1) if i != axis] + [axis, rank - 1]
    x = x.permute(tuple(order))
    inverse, onesided = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    own = fixed(x, "DFT")[-2]
    size = 2 * (own - 1) if inverse and onesided else own
    size = size if length is None else int(length.reshape(-1)[0])
    made = _transformed(x, size, inverse, onesided)
    return made.permute(tuple(np.argsort(order).tolist()))


@op("STFT")
def stft(n: Node) -> UOp:
    """Frames of a signal, each times a window and transformed."""
    x, step, window, length = n.x(0), n.known(1), n.maybe(2), n.known(3)
    x = x.unsqueeze(-1) if len(x.shape) == 2 else x
    assert step is not None
    hop = int(step.reshape(-1)[0])
    size = int(length.reshape(-1)[0]) if length is not None else fixed(n.x(2), "STFT")[0]
    count = (fixed(x, "STFT")[1] - size) // hop + 1
    first = uopc.arange(count, dtype=dtypes.int64).unsqueeze(1) * hop
    frames: Any = x[:, first + uopc.arange(size, dtype=dtypes.int64)]
    if window is not None:
        frames = frames * window.cast(x.dtype).reshape(1, 1, -1, 1)
    return _transformed(frames, size, False, bool(n.attr("onesided", 1)))
