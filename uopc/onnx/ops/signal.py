"""Fourier transforms: the last axis holds real numbers, or pairs (real, imaginary)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import uopc
from uopc import UOp
from uopc.errors import UserError
from uopc.onnx.node import Node, dims, few, fixed, normal
from uopc.onnx.registry import op
from uopc.onnx.values import dtype_of


def _transformed(x: UOp, n: int | None, axis: int, inverse: bool, onesided: bool) -> UOp:
    """Transform along an axis before the last. `onesided`: return half of the coefficients."""
    real = dims(x)[-1] == 1
    if onesided and real and not inverse:
        return x[..., 0].rfft(n, axis)
    pairs = x.pad([(0, 1 if i == len(x.shape) - 1 else 0) for i in range(len(x.shape))])
    pairs = pairs if real else x
    if onesided and inverse:
        return pairs.irfft(n, axis).unsqueeze(-1)
    made = pairs.ifft(n, axis) if inverse else pairs.fft(n, axis)
    if not onesided:
        return made
    half = dims(made)[axis] // 2 + 1
    return made.shrink([(0, half if i == axis else d) for i, d in enumerate(dims(made))])


@op("DFT", since=20)
def dft(n: Node) -> UOp:
    """Transform along an axis, which is an input; the default is -2."""
    axis = n.first(2)
    return _dft(n, -2 if axis is None else int(axis))


@op("DFT")
def dft_17(n: Node) -> UOp:
    """Transform along an axis, which is an attribute."""
    return _dft(n, n.attr("axis", 1))


def _dft(n: Node, axis: int) -> UOp:
    x, length = n.x(0), n.first(1)
    inverse, onesided = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    size = None if length is None else int(length)
    return _transformed(x, size, normal(axis, len(x.shape)), inverse, onesided)


@op("MelWeightMatrix")
def mel_weight_matrix(n: Node) -> UOp:
    """Triangles over the frequencies of a transform, of equal width on the mel scale."""
    count, length, rate, low, high = (_given_number(n, k) for k in range(5))
    few(count * length, "MelWeightMatrix")
    ends = [2595 * math.log10(1 + f / 700) for f in (low, high)]
    mels = ends[0] + np.arange(count + 2) * ((ends[1] - ends[0]) / (count + 2))
    bins = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    at = np.arange(length // 2 + 1).reshape(-1, 1)
    first, peak, last = bins[:-2], bins[1:-1], bins[2:]
    rise = np.where(peak == first, 1.0, (at - first) / np.maximum(peak - first, 1))
    fall = (last - at) / np.maximum(last - peak, 1)
    made = np.where((at >= first) & (at <= peak), rise, 0.0)
    made = np.where((at >= peak) & (at < last), fall, made)
    return uopc.constant(made).cast(dtype_of(n.attr("output_datatype", 1)))


def _given_number(n: Node, k: int) -> Any:
    found = n.first(k)
    if found is None:
        raise UserError(f"input {k} is missing")
    return found.item()


@op("STFT")
def stft(n: Node) -> UOp:
    """Multiply frames of a signal by a window, and transform each frame."""
    x, window, length = n.x(0), n.maybe(2), n.first(3)
    size = fixed(dims(n.x(2))[0], "STFT: the window") if length is None else int(length)
    parts = x.unsqueeze(1) if len(x.shape) == 2 else x.transpose(1, 2)
    frames = parts.windows(size, int(_given_number(n, 1)))
    if window is not None:
        frames = frames * window.cast(x.dtype)
    onesided = bool(n.attr("onesided", 1))
    return _transformed(frames.permute(0, 2, 3, 1), None, 2, False, onesided)
