"""Products and normalisations: the layers of networks."""

from __future__ import annotations

import functools
import operator
from typing import Any

import uopc
from uopc import UOp, dtypes
from uopc.onnx.node import Node, along, dims
from uopc.onnx.registry import op

op("MatMul")(lambda n: n.x(0).matmul(n.x(1)))
op("Det")(lambda n: n.x(0).det())


def product(n: Node) -> UOp:
    """alpha * a @ b + beta * c; `a` and `b` are transposed if asked."""
    a, b, c = n.x(0), n.x(1), n.maybe(2)
    a = a.transpose() if n.attr("transA", 0) else a
    b = b.transpose() if n.attr("transB", 0) else b
    alpha, beta = n.number("alpha", 1.0), n.number("beta", 1.0)
    y = a.matmul(b)
    y = y if alpha == 1 else (y * alpha).cast(y.dtype)
    if c is None or beta == 0:
        return y
    return y + (c if beta == 1 else (c * beta).cast(c.dtype))


op("Gemm")(product)


@op("Einsum")
def einsum(n: Node) -> UOp:
    """A sum of products by its equation."""
    from uopc.tensor.matrices.einsum import einsum as made

    return made(n.attr("equation", ""), *n.all())


# ---------------------------------------------------------------- normalisations
def _channels(x: UOp, v: UOp) -> UOp:
    """Reshape a vector of channels to broadcast with images."""
    return along(v, 1, len(x.shape))


@op("BatchNormalization")
def batch_normalization(n: Node) -> Any:
    """Normalise by given means and variances; in training, by the batch's, which are outputs."""
    x, scale, bias, mean, var = (n.x(k) for k in range(5))
    eps = n.number("epsilon", 1e-5)
    if n.attr("training_mode", 0):
        axes = (0, *range(2, len(x.shape)))
        now = x.mean(axes)
        spread = ((x - _channels(x, now)) ** 2).mean(axes)
        keep = n.number("momentum", 0.9)
        kept = mean * keep + now * (1 - keep), var * keep + spread * (1 - keep)
        return _normal(x, scale, bias, now, spread, eps), *kept
    return _normal(x, scale, bias, mean, var, eps)


def _normal(x: UOp, scale: UOp, bias: UOp, mean: UOp, var: UOp, eps: float) -> UOp:
    factor = scale / (var + eps).sqrt()
    return (x * _channels(x, factor) + _channels(x, bias - mean * factor)).cast(x.dtype)


@op("InstanceNormalization")
def instance_normalization(n: Node) -> UOp:
    """Normalise each channel of each image by its mean and variance."""
    x, scale, bias = n.x(0), n.x(1), n.x(2)
    axes = tuple(range(2, len(x.shape)))
    y = standard(x, axes, n.number("epsilon", 1e-5))[0]
    return y * _channels(x, scale) + _channels(x, bias)


def standard(x: UOp, axes: tuple[int, ...], eps: float) -> tuple[UOp, UOp, UOp]:
    """Normalise over axes; also return the mean and the reciprocal of the standard deviation."""
    mean = x.mean(axes, keepdims=True)
    apart = x - mean
    inverse = ((apart * apart).mean(axes, keepdims=True) + eps).sqrt().reciprocal()
    return apart * inverse, mean, inverse


@op("LayerNormalization")
def layer_normalization(n: Node) -> Any:
    """Normalise the axes from `axis` on; also return the mean and 1 / standard deviation."""
    x, scale, bias = n.x(0), n.x(1), n.maybe(2)
    axis = n.axis(-1, len(x.shape))
    wide = x.cast(dtypes.float32) if x.dtype.itemsize < 4 else x
    axes = tuple(range(axis, len(x.shape)))
    y, mean, inverse = standard(wide, axes, n.number("epsilon", 1e-5))
    y = y.cast(x.dtype) * scale
    y = y if bias is None else y + bias
    return y if n.outputs == 1 else (y, mean, inverse)


@op("RMSNormalization")
def rms_normalization(n: Node) -> UOp:
    """Divide by the root mean square over the axes from `axis` on."""
    x, scale = n.x(0), n.x(1)
    axes = tuple(range(n.axis(-1, len(x.shape)), len(x.shape)))
    wide = x.cast(dtypes.float32) if x.dtype.itemsize < 4 else x
    inverse = ((wide * wide).mean(axes, keepdims=True) + n.number("epsilon", 1e-5)).sqrt()
    return (wide / inverse).cast(x.dtype) * scale


@op("GroupNormalization", since=21)
def group_normalization(n: Node) -> UOp:
    """Normalise groups of channels by their mean and variance."""
    x, scale, bias = n.x(0), n.x(1), n.x(2)
    own, groups = dims(x), n.attr("num_groups", 1)
    y = x.reshape(own[0], groups, -1)
    y = standard(y, (2,), n.number("epsilon", 1e-5))[0].reshape(own)
    return y * _channels(x, scale) + _channels(x, bias)


@op("LpNormalization")
def lp_normalization(n: Node) -> UOp:
    """Divide by the p-norm along an axis; where the norm is 0, give 0."""
    x = n.x(0)
    axis = (n.axis(-1, len(x.shape)),)
    if n.attr("p", 2) == 1:
        length = x.abs().sum(axis, keepdims=True)
    else:
        length = (x * x).sum(axis, keepdims=True).sqrt()
    return uopc.where(length.eq(0), 0.0, x / length)


@op("MeanVarianceNormalization")
def mean_variance_normalization(n: Node) -> UOp:
    """Normalise by mean and standard deviation over axes."""
    x = n.x(0)
    mean = x.mean(tuple(n.attr("axes", [0, 2, 3])), keepdims=True)
    apart = x - mean
    spread = (apart * apart).mean(tuple(n.attr("axes", [0, 2, 3])), keepdims=True).sqrt()
    return apart / (spread + 1e-9)


@op("LRN")
def lrn(n: Node) -> UOp:
    """Divide by a power of the sum of squares of neighbouring channels."""
    x, size = n.x(0), n.attr("size", 1)
    batch, channels, *sizes = dims(x)
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    if isinstance(channels, int):
        before, after = min(before, channels), min(after, channels)
    square = (x * x).pad([(0, 0), (before, after), *[(0, 0)] * len(sizes)])
    every = [(0, d) for d in sizes]
    near = [
        square.shrink([(0, batch), (i, i + channels), *every]) for i in range(before + after + 1)
    ]
    total = functools.reduce(operator.add, near)
    scale = n.number("bias", 1.0) + total * (n.number("alpha", 1e-4) / size)
    power: UOp = scale ** n.number("beta", 0.75)
    return x / power


op("NegativeLogLikelihoodLoss")(lambda n: _nll(n, n.x(0), n.x(1), n.maybe(2)))


@op("SoftmaxCrossEntropyLoss")
def cross_entropy(n: Node) -> Any:
    """Return the loss of logits; the second output is their log-softmax."""
    logs = n.x(0).log_softmax(1)
    found = _nll(n, logs, n.x(1), n.maybe(2))
    return (found, logs) if n.outputs > 1 else found


def _nll(n: Node, logs: UOp, target: UOp, weight: UOp | None) -> UOp:
    ignored = n.attr("ignore_index", None)
    target = target.cast(dtypes.int64)
    chosen = target if ignored is None else uopc.where(target.eq(ignored), 0, target)
    loss = -logs.gather(1, chosen.unsqueeze(1)).squeeze(1)
    each = uopc.full(loss.shape, 1.0, loss.dtype) if weight is None else weight.take(chosen, 0)
    if ignored is not None:
        each = uopc.where(target.eq(ignored), 0.0, each)
    loss, how = loss * each, n.attr("reduction", "mean")
    if how == "none":
        return loss
    return loss.sum() if how == "sum" else loss.sum() / each.sum()
