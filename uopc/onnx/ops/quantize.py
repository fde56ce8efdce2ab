"""Quantised tensors: integers with a scale and a zero point, per tensor, per axis or per block."""

from __future__ import annotations

from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.ir.core.dtypes import DType
from uopc.onnx.narrow import INTEGERS, NARROW, Narrow, fitted, holder, narrow_of
from uopc.onnx.node import Node, along, dims, normal
from uopc.onnx.ops.windows import convolved
from uopc.onnx.registry import op
from uopc.onnx.values import DTYPES


def spread(v: UOp, x: UOp, axis: int, block: int = 0) -> UOp:
    """Shape a scale to broadcast with x: one number, or one per position or block of an axis."""
    own = dims(v)
    if not own or own == (1,) or (block == 0 and len(own) > 1):
        return v.reshape(()) if own in ((), (1,)) else v
    rank = len(x.shape)
    axis = normal(axis, rank)
    if not block:
        return along(v, axis, rank)
    wide = list(own)
    wide.insert(axis + 1, block)
    many = v.unsqueeze(axis + 1).expand(tuple(wide))
    flat = list(own)
    flat[axis] = flat[axis] * block
    key = tuple([slice(0, d) for d in dims(x)])
    return many.reshape(tuple(flat))[key]


def _ends(t: DType) -> tuple[int, int]:
    info = np.iinfo(str(t.numpy))
    return int(info.min), int(info.max)


def rounded(y: UOp, t: DType) -> UOp:
    """Round to the nearest integer, ties to even, within the range of a dtype."""
    if t.is_float:
        return y.cast(t)
    low, high = _ends(t)
    return y.round().clip(float(low), float(high)).cast(t)


@op("DequantizeLinear")
def dequantize(n: Node) -> UOp:
    """(x - zero point) * scale, in the dtype of the scale."""
    x, scale, zero = n.x(0), n.x(1), n.maybe(2)
    axis, block = n.attr("axis", 1), n.attr("block_size", 0)
    t = dtypes.float32 if scale.dtype.itemsize < 4 else scale.dtype
    if zero is not None:  # bytes hold the difference of integers of few bits
        own = dtypes.int8 if narrow_of(n.raw(0)) in INTEGERS else t
        x = x.cast(own) - spread(zero, x, axis, block).cast(own)
    wide = x.cast(t)
    made = wide * spread(scale, x, axis, block).cast(wide.dtype)
    kind = n.attr("output_dtype", 0)
    return made.cast(DTYPES[kind] if kind else scale.dtype)


@op("QuantizeLinear")
def quantize(n: Node) -> Any:
    """x / scale + zero point, rounded to even and kept within the dtype."""
    x, scale, zero = n.x(0), n.x(1), n.maybe(2)
    axis, block = n.attr("axis", 1), n.attr("block_size", 0)
    kind = n.attr("output_dtype", 0)
    number = narrow_of(n.raw(2)) or (kind if kind in NARROW else None)
    if number is not None:
        t = holder(number)
    else:
        t = zero.dtype if zero is not None else DTYPES[kind] if kind else dtypes.uint8
    precise = n.attr("precision", 0)
    wide = DTYPES[precise] if precise else dtypes.promote(x.dtype, scale.dtype)
    wide = dtypes.float32 if not wide.is_float or wide.itemsize < 4 else wide
    y = x.cast(wide) / spread(scale, x, axis, block).cast(wide)
    if t.is_float:
        return y.cast(t) if number is None else fitted(y, number)
    y = y.round()
    if zero is not None:
        y = y + spread(zero, x, axis, block).cast(wide)
    if number is None:
        return rounded(y, t)
    bits, signed = INTEGERS[number]
    low = -(1 << bits - 1) if signed else 0
    held = y.clip(float(low), float(low + (1 << bits) - 1)).cast(t)
    return Narrow(held, number)


@op("DynamicQuantizeLinear")
def dynamic_quantize(n: Node) -> Any:
    """The scale and zero point that fit the range of x, and x quantised to uint8."""
    x = n.x(0)
    low, high = x.min().minimum(0.0), x.max().maximum(0.0)
    scale = (high - low) / 255.0
    scale = uopc.where(scale.eq(0), 1.0, scale)
    zero = rounded(-low / scale, dtypes.uint8)
    y = rounded((x / scale).round() + zero.cast(dtypes.float32), dtypes.uint8)
    return y, scale, zero


# ---------------------------------------------------------------- integer products
def _centred(x: UOp, zero: UOp | None, axis: int) -> UOp:
    wide = x.cast(dtypes.int32)
    if zero is None:
        return wide
    own = dims(zero)
    if len(own) == 1 and own != (1,):
        zero = along(zero, axis % len(x.shape), len(x.shape))
    elif own == (1,):
        zero = zero.reshape(())
    return wide - zero.cast(dtypes.int32)


def _both(n: Node, axis_0: int, axis_1: int) -> tuple[UOp, UOp]:
    """Inputs 0 and 1 minus their zero points, which may vary along these axes."""
    return _centred(n.x(0), n.maybe(2), axis_0), _centred(n.x(1), n.maybe(3), axis_1)


op("MatMulInteger")(lambda n: UOp.matmul(*_both(n, -2, -1)))
op("ConvInteger")(lambda n: convolved(n, *_both(n, 1, 0)))


@op("QLinearMatMul")
def qlinear_matmul(n: Node) -> UOp:
    """Multiply quantised matrices, and quantise the product."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (n.x(k) for k in range(8))
    product = _centred(a, a_zero, -2).matmul(_centred(b, b_zero, -1)).cast(dtypes.float32)
    scale = _rows(a_scale, -2) * _rows(b_scale, -1) / _rows(y_scale, -2)
    y = product * scale.cast(dtypes.float32)
    return rounded(y.round() + y_zero.cast(dtypes.float32), y_zero.dtype)


def _rows(v: UOp, axis: int) -> UOp:
    """Shape numbers of rows (axis -2) or of columns (axis -1) to broadcast with a matrix."""
    if dims(v) in ((), (1,)):
        return v.reshape(())
    return v.unsqueeze(1) if axis == -2 and len(dims(v)) == 1 else v


@op("QLinearConv")
def qlinear_conv(n: Node) -> UOp:
    """Convolve quantised images, and quantise the result."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (n.x(k) for k in range(8))
    sums = convolved(n, _centred(x, x_zero, 1), _centred(w, w_zero, 0), n.maybe(8))
    scale = x_scale.reshape(()) * w_scale / y_scale.reshape(())
    if dims(scale) not in ((), (1,)):
        scale = scale.reshape(-1, *[1] * (len(x.shape) - 2))
    y = sums.cast(dtypes.float32) * scale
    return rounded(y.round() + y_zero.reshape(()).cast(dtypes.float32), y_zero.dtype)
