"""Quantised tensors: integers with a scale and a zero point, per tensor, per axis or per block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.ir.core.dtypes import DType
from uopc.onnx.narrow import INTEGERS, NARROW, Narrow, fitted, holder, narrow_of
from uopc.onnx.node import Node, along, dims, normal
from uopc.onnx.ops.windows import averaged, convolved
from uopc.onnx.registry import MICROSOFT, op
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
@op("DequantizeLinear", domain=MICROSOFT)
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
@op("QuantizeLinear", domain=MICROSOFT)
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


op("DynamicQuantizeLinear")(lambda n: _by_range(n.x(0)))


def _by_range(x: UOp) -> tuple[UOp, UOp, UOp]:
    """Quantise x to uint8; also return the scale and zero point that fit the range of x."""
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


def dynamic_product(x: UOp, w: UOp, scale: UOp, zero: UOp | None) -> UOp:
    """The product of x, quantised by its range, and of quantised columns."""
    codes, own, middle = _by_range(x)
    sums = _centred(codes, middle, -2).matmul(_centred(w, zero, -1))
    return sums.cast(own.dtype) * (own * _rows(scale, -1))


@op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(n: Node) -> UOp:
    """Multiply by a quantised matrix, and add a bias."""
    return _plus(dynamic_product(n.x(0), n.x(1), n.x(2), n.maybe(3)), n.maybe(4))


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(n: Node) -> UOp:
    """Multiply quantised matrices to floats, and add a bias."""
    scale = _rows(n.x(2), -2) * _rows(n.x(3), -1)
    sums = _centred(n.x(0), n.maybe(4), -2).matmul(_centred(n.x(1), n.maybe(5), -1))
    return _plus(sums.cast(scale.dtype) * scale, n.maybe(6))


def _plus(y: UOp, bias: UOp | None) -> UOp:
    return y if bias is None else y + bias


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


# ---------------------------------------------------------------- functions of quantised tensors
class _Quantised(NamedTuple):
    """The scale and the zero point of a tensor: inputs `k` and `k + 1` of a node."""

    scale: UOp
    zero: UOp | None

    @staticmethod
    def of(n: Node, k: int) -> _Quantised:
        zero = n.maybe(k + 1)
        return _Quantised(n.x(k).reshape(()), zero if zero is None else zero.reshape(()))

    def floats(self, x: UOp) -> UOp:
        """The numbers of a tensor of integers."""
        return _centred(x, self.zero, 0).cast(self.scale.dtype) * self.scale

    def codes(self, y: UOp, t: DType) -> UOp:
        """Round numbers to integers of the zero point's dtype, or of `t`."""
        y = (y / self.scale).round()
        y = y if self.zero is None else y + self.zero.cast(y.dtype)
        return rounded(y, t if self.zero is None else self.zero.dtype)


def _registered(name: str, f: Callable[..., UOp], operands: int = 1) -> None:
    """Register an operator of quantised tensors: a function of a node and of floats. A tensor, its
    scale and its zero point are three inputs; the scale and zero point of the result follow."""

    def run(n: Node) -> UOp:
        given = [_Quantised.of(n, 3 * k + 1).floats(n.x(3 * k)) for k in range(operands)]
        return _Quantised.of(n, 3 * operands).codes(f(n, *given), n.x(0).dtype)

    op(name, domain=MICROSOFT)(run)


_registered("QLinearAdd", lambda n, a, b: a + b, 2)
_registered("QLinearMul", lambda n, a, b: a * b, 2)
_registered("QLinearSigmoid", lambda n, x: x.sigmoid())
_registered("QLinearLeakyRelu", lambda n, x: uopc.where(x < 0, x * n.number("alpha", 0.01), x))
_registered("QLinearReduceMean", lambda n, x: x.mean(
    tuple(n.attr("axes", range(len(dims(x))))), keepdims=bool(n.attr("keepdims", 1))
))  # fmt: skip


def _in_channels(f: Callable[[Node, UOp], UOp]) -> Callable[[Node, UOp], UOp]:
    """A function of images whose channels may be the last axis."""

    def run(n: Node, x: UOp) -> UOp:
        if not n.attr("channels_last", 0):
            return f(n, x)
        last = len(dims(x)) - 1
        return f(n, x.permute(0, last, *range(1, last))).permute(0, *range(2, last + 1), 1)

    return run


_registered("QLinearGlobalAveragePool", _in_channels(
    lambda n, x: x.mean(tuple(range(2, len(dims(x)))), keepdims=True)
))  # fmt: skip
_registered("QLinearAveragePool", _in_channels(averaged))


@op("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(n: Node) -> UOp:
    """The softmax along one axis, or along all from `axis` on where `opset` is below 13."""
    x = _Quantised.of(n, 1).floats(n.x(0))
    shape, axis = dims(x), n.axis(-1, len(dims(x)))
    if n.attr("opset", 13) < 13:
        x = x.reshape(*shape[:axis], -1)
    return _Quantised.of(n, 3).codes(x.softmax(axis).reshape(shape), n.x(0).dtype)


@op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(n: Node) -> UOp:
    """Join tensors, each with its scale and zero point."""
    parts = [_Quantised.of(n, k + 1).floats(n.x(k)) for k in range(2, len(n.inputs), 3)]
    joined = uopc.cat(*parts, axis=n.axis(0, len(dims(parts[0]))))
    return _Quantised.of(n, 0).codes(joined, n.x(2).dtype)


@op("QLinearWhere", domain=MICROSOFT)
def qlinear_where(n: Node) -> UOp:
    """Choose between two tensors, each with its scale and zero point."""
    a, b = (_Quantised.of(n, k + 1).floats(n.x(k)) for k in (1, 4))
    return _Quantised.of(n, 7).codes(uopc.where(n.x(0), a, b), n.x(1).dtype)


@op("QGemm", domain=MICROSOFT)
def qgemm(n: Node) -> UOp:
    """alpha * a @ b + c of quantised matrices; floats if the result has no scale."""
    a = n.x(0).transpose() if n.attr("transA", 0) else n.x(0)
    b = n.x(3).transpose() if n.attr("transB", 0) else n.x(3)
    product = _centred(a, n.maybe(2), -2).matmul(_centred(b, n.maybe(5), -1))
    sums = _plus(product, n.maybe(6)).cast(n.x(1).dtype)
    y = sums * (n.x(1).reshape(()) * _rows(n.x(4), -1) * n.number("alpha", 1.0))
    return _Quantised.of(n, 7).codes(y, n.x(0).dtype) if n.has(7) else y
