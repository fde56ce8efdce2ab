"""Layers of decoders, as ONNX Runtime has them: sums that are normalised, rotated positions."""

from __future__ import annotations

from typing import Any

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported, UserError
from uopc.ir.core import shapes
from uopc.onnx.node import Node, dims
from uopc.onnx.ops.blocks import MICROSOFT
from uopc.onnx.registry import op


def _wide(x: UOp) -> UOp:
    return x.cast(dtypes.promote(x.dtype, dtypes.float32))


# ---------------------------------------------------------------- normalisations
@op("SimplifiedLayerNormalization")
def simplified_layer_normalization(n: Node) -> Any:
    """The axes from `axis` on, divided by the root of their mean square; and one by this root."""
    x = n.x(0)
    axes = tuple(range(n.axis(-1, len(dims(x))), len(dims(x))))
    y, inverse = _root_mean_square(n, _wide(x), n.x(1), axes, 1e-5)
    y = y.cast(x.dtype)
    return y if n.outputs == 1 else (y, inverse)


def _root_mean_square(
    n: Node, x: UOp, scale: UOp, axes: tuple[int, ...], least: float
) -> tuple[UOp, UOp]:
    square = (x * x).mean(axes, keepdims=True) + n.number("epsilon", least)
    inverse = square.sqrt().reciprocal()
    return x * inverse * scale.cast(x.dtype), inverse


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(n: Node) -> Any:
    """A sum divided by the root of its mean square; the fourth output is the sum."""
    x = _added(n, 3)
    y, inverse = _root_mean_square(n, x, n.x(2), (len(dims(x)) - 1,), 1e-12)
    return _with_sum(n, y, None, inverse, x)


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(n: Node) -> Any:
    """A sum by its mean and variance; the fourth output is the sum."""
    x, shift = _added(n, 4), n.maybe(3)
    mean = x.mean(-1, keepdims=True)
    apart = x - mean
    square = (apart * apart).mean(-1, keepdims=True) + n.number("epsilon", 1e-12)
    inverse = square.sqrt().reciprocal()
    y = apart * inverse * n.x(2).cast(x.dtype)
    y = y if shift is None else y + shift.cast(x.dtype)
    return _with_sum(n, y, mean, inverse, x)


def _added(n: Node, bias: int) -> UOp:
    """The sum of input, skip, and a bias if there is one."""
    total = _wide(n.x(0)) + _wide(n.x(1))
    return total + _wide(n.x(bias)) if n.has(bias) else total


def _with_sum(n: Node, y: UOp, mean: UOp | None, inverse: UOp, total: UOp) -> Any:
    t = n.x(0).dtype
    found = y.cast(t), mean, inverse, total.cast(t)
    return found[: n.outputs] if n.outputs > 1 else found[0]


# ---------------------------------------------------------------- positions
@op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(n: Node) -> UOp:
    """Pairs of numbers of each head, turned by the angles of their position."""
    if n.attr("is_packed_batching", 0):
        raise Unsupported("sequences of several lengths in one (is_packed_batching)")
    x, places, cos, sin = (n.x(k) for k in range(4))
    shape, width = dims(x), 2 * dims(cos)[1]
    if len(shape) not in (3, 4):
        raise UserError(f"input has the shape {shapes.show(shape)}, not 3 or 4 dimensions")
    heads = n.attr("num_heads", 0)
    if n.attr("rotary_embedding_dim", 0) and not heads:
        raise UserError("num_heads is missing beside rotary_embedding_dim")
    each = x
    if len(shape) == 3:
        heads = heads or shape[2] // width
        each = x.reshape(*shape[:2], heads, shape[2] // heads).permute(0, 2, 1, 3)
    if dims(places) == (1,):
        places = places + uopc.arange(shape[-2] if len(shape) == 4 else shape[1])
        places = places.unsqueeze(0)
    turned = rotated(each, places, cos, sin, bool(n.attr("interleaved", 0)))
    return turned if len(shape) == 4 else turned.permute(0, 2, 1, 3).reshape(shape)


def rotated(x: UOp, places: UOp, cos: UOp, sin: UOp, interleaved: bool) -> UOp:
    """Heads of shape (batch, heads, length, size), of which the first numbers are turned, as many
    as there are angles twice. `places`: (batch or 1, length), of rows of the tables."""
    half = dims(cos)[1]
    if 2 * half > dims(x)[-1]:
        raise UserError(f"{2 * half} numbers of each head are turned, which has {dims(x)[-1]}")
    c, s = (_wide(t.take(places.cast(dtypes.int64), 0)).unsqueeze(1) for t in (cos, sin))
    part = _wide(x[..., : 2 * half])
    if interleaved:
        pairs = part.reshape(*dims(x)[:-1], half, 2)
        a, b = pairs[..., 0], pairs[..., 1]
        done = uopc.stack(a * c - b * s, a * s + b * c, axis=-1).reshape(dims(part))
    else:
        a, b = part[..., :half], part[..., half:]
        done = uopc.cat(a * c - b * s, b * c + a * s, axis=-1)
    done, rest = done.cast(x.dtype), x[..., 2 * half :]
    return uopc.cat(done, rest, axis=-1) if dims(rest)[-1] else done
