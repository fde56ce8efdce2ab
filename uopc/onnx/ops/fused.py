"""Layers that ONNX Runtime's optimizers join: activations, products, embeddings and attention."""

from __future__ import annotations

from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported, UserError
from uopc.onnx.node import Node, dims, places
from uopc.onnx.ops.elementwise import ACTIVATIONS
from uopc.onnx.ops.layers import product, standard
from uopc.onnx.ops.windows import convolved
from uopc.onnx.registry import MICROSOFT, op
from uopc.tensor import table


# ---------------------------------------------------------------- activations
def _biased(n: Node) -> UOp:
    return n.x(0) + n.x(1) if n.has(1) else n.x(0)


op("Gelu BiasGelu", domain=MICROSOFT)(lambda n: _biased(n).gelu())
op("FastGelu", domain=MICROSOFT)(lambda n: _biased(n).gelu("tanh"))
op("BiasAdd", domain=MICROSOFT)(lambda n: n.x(0) + n.x(1) + n.x(2))


@op("QuickGelu", domain=MICROSOFT)
def quick_gelu(n: Node) -> UOp:
    """x * sigmoid(alpha * x)."""
    x = n.x(0)
    return x * (x * n.number("alpha", 1.702)).sigmoid()


@op("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(n: Node) -> UOp:
    """The first half of the last axis times the gelu of the second."""
    x = _biased(n)
    half = dims(x)[-1] // 2
    return x[..., :half] * x[..., half:].gelu()


def _activated(name: str, y: UOp, numbers: list[float]) -> UOp:
    """Apply an activation by its name, with its numbers, or their defaults."""
    if not name:
        return y
    if name == "Clip":
        return y.clip(*numbers)
    if name in ACTIVATIONS:
        f, *defaults = ACTIVATIONS[name]
        return f(y, *numbers, *defaults[len(numbers) :])
    if name not in ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign"):
        raise Unsupported(f"the activation {name} is not supported")
    made: UOp = table.operator(name)(y)
    return made


# ---------------------------------------------------------------- products
@op("FusedMatMul TransposeMatMul", domain=MICROSOFT)
def fused_matmul(n: Node) -> UOp:
    """alpha * a @ b, each transposed if asked: its last two axes, or its first axis behind those of
    the batch."""
    a, b = (_turned(n, n.x(k), side) for k, side in enumerate("AB"))
    alpha = n.number("alpha", 1.0)
    y = a.matmul(b)
    return y if alpha == 1 else (y * alpha).cast(y.dtype)


def _turned(n: Node, x: UOp, side: str) -> UOp:
    rank = len(dims(x))
    if rank < 2:
        return x
    if n.attr(f"transBatch{side}", 0):
        x = x.permute(*range(1, rank - 1), 0, rank - 1)
    return x.transpose(-1, -2) if n.attr(f"trans{side}", 0) else x


@op("FusedGemm", domain=MICROSOFT)
def fused_gemm(n: Node) -> UOp:
    """Gemm and an activation."""
    given = [n.attr(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")]
    return _activated(n.attr("activation", ""), product(n), [x for x in given if x is not None])


@op("FusedConv", domain=MICROSOFT)
def fused_conv(n: Node) -> UOp:
    """A convolution, a sum with the fourth input, and an activation."""
    y = convolved(n, n.x(0), n.x(1), n.maybe(2))
    y = y + n.x(3) if n.has(3) else y
    return _activated(n.attr("activation", ""), y, list(n.attr("activation_params", [])))


# ---------------------------------------------------------------- embeddings
@op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(n: Node) -> Any:
    """Add the rows of a word, a position and a segment, and normalise the sum. Further outputs: the
    numbers of words that a mask leaves, and the sum."""
    words, segments, mask = n.x(0), n.maybe(1), n.maybe(7)
    batch, length = dims(words)
    total = n.x(2).take(words.cast(dtypes.int64), 0)
    total = total + (n.x(3).take(n.x(8).cast(dtypes.int64), 0) if n.has(8) else n.x(3)[:length])
    if segments is not None:
        total = total + n.x(4).take(segments.cast(dtypes.int64), 0)
    y = standard(total, (2,), n.number("epsilon", 1e-12))[0] * n.x(5) + n.x(6)
    if n.outputs == 1:
        return y
    left = uopc.full((batch,), 0, dtypes.int32) if mask is None else mask.eq(1).sum(1)
    return (y, left.cast(dtypes.int32), total)[: n.outputs]


# ---------------------------------------------------------------- attention
@op("Attention", domain=MICROSOFT)
def attention(n: Node) -> Any:
    """Attention of a sequence to itself, whose queries, keys and values are one product. A further
    output is the cache: keys and values, with those of earlier calls."""
    if n.attr("do_rotary", 0) or n.attr("past_present_share_buffer", 0):
        raise Unsupported("do_rotary and past_present_share_buffer are not supported")
    x, w, past = n.x(0), n.x(1), n.maybe(4)
    whole = dims(w)[-1]
    sizes = list(n.attr("qkv_hidden_sizes", [])) or [whole // 3] * 3
    all_ = x.matmul(w)
    all_ = all_ + n.x(2) if n.has(2) else all_
    ends = [0, sizes[0], sizes[0] + sizes[1], whole]
    heads = n.attr("num_heads", 0)
    q, k, v = [_heads(all_[..., a:b], heads) for a, b in zip(ends, ends[1:])]
    if past is not None:
        k, v = uopc.cat(past[0], k, axis=2), uopc.cat(past[1], v, axis=2)
    y = _attended(n, q, k, v, n.maybe(3), n.maybe(5))
    return (y, uopc.stack(k, v)) if n.outputs > 1 else y


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(n: Node) -> Any:
    """Attention of queries to keys, which may be packed. Further outputs are the cache: the keys
    and values, with those of earlier calls."""
    if n.has(8) or n.has(9):
        raise Unsupported("past_sequence_length and cache_indirection are not supported")
    if n.outputs > 3:
        raise Unsupported("the output qk is not supported")
    heads = n.attr("num_heads", 0)
    q, k, v = [_heads(x, heads) for x in _unpacked(n)]
    if (bias := n.maybe(3)) is not None:
        size, own = dims(q)[-1] * heads, dims(v)[-1] * heads
        parts = bias[:size], bias[size : 2 * size], bias[2 * size : 2 * size + own]
        q, k, v = [u + b.reshape(heads, 1, -1) for u, b in zip((q, k, v), parts)]
    if n.has(6):
        k, v = uopc.cat(n.x(6), k, axis=2), uopc.cat(n.x(7), v, axis=2)
    y = _attended(n, q, k, v, n.maybe(4), n.maybe(5))
    return (y, k, v)[: n.outputs] if n.outputs > 1 else y


def _unpacked(n: Node) -> list[UOp]:
    """Queries, keys and values: inputs, or side by side behind (batch, length, heads)."""
    q, k, v = n.x(0), n.maybe(1), n.maybe(2)
    if k is not None and v is not None:
        return [q, k, v]
    packed = q if k is None else k
    parts = [packed[:, :, :, i].permute(0, 2, 1, 3) for i in range(dims(packed)[3])]
    return parts if k is None else [q, *parts]


def _heads(x: UOp, heads: int) -> UOp:
    """Split the last axis into heads, which become the second axis. Heads that are split already
    stay."""
    if heads < 1:
        raise UserError(f"num_heads must be positive, got {heads}")
    shape = dims(x)
    if len(shape) == 4:
        return x
    return x.reshape(*shape[:2], heads, shape[2] // heads).permute(0, 2, 1, 3)


def _attended(n: Node, q: UOp, k: UOp, v: UOp, mask: UOp | None, bias: UOp | None) -> UOp:
    """The attention of heads, under a mask, joined to the shape (batch, length, numbers)."""
    batch, heads, length, _ = dims(q)
    added = bias
    for seen, low in _seen(n, mask, batch, length, dims(k)[2]):
        part = uopc.where(seen, 0.0, low).cast(dtypes.float32)
        added = part if added is None else added + part
    scale = n.number("scale", 0.0) or None
    y = q.attention(k, v, mask=added, scale=scale)
    return y.permute(0, 2, 1, 3).reshape(batch, length, heads * dims(v)[-1])


def _seen(
    n: Node, mask: UOp | None, batch: Any, length: Any, total: Any
) -> list[tuple[UOp, float]]:
    """Which keys each query sees, and the number that is added to the scores of others."""
    found = []
    if mask is not None:
        found.append((_of_mask(mask, batch, total), n.number("mask_filter_value", -10000.0)))
    if n.attr("unidirectional", 0):
        seen = places(total, 3, 4) <= places(length, 2, 4) + (total - length)
        found.append((seen, float(np.finfo(np.float32).min)))
    return found


def _of_mask(mask: UOp, batch: Any, total: Any) -> UOp:
    """The keys that are seen, of shape (batch, 1, 1 or queries, keys). A vector has the lengths
    of sequences, and then perhaps their beginnings."""
    shape = dims(mask)
    if len(shape) == 2:
        return (mask > 0).reshape(batch, 1, 1, total)
    if len(shape) == 3:
        return (mask > 0).unsqueeze(1)
    if len(shape) != 1:
        raise Unsupported(f"a mask of {len(shape)} dimensions is not supported")
    at = places(total, 3, 4)
    seen = at < mask[:batch].reshape(batch, 1, 1, 1)
    if shape[0] is batch or shape[0] == batch:
        return seen
    if shape[0] != 2 * batch:
        raise Unsupported("a mask of cumulated lengths is not supported")
    return seen & (at >= mask[batch:].reshape(batch, 1, 1, 1))

