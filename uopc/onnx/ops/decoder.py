"""Layers of decoders, as ONNX Runtime defines them: normalised sums, positions, attention."""

from __future__ import annotations

from typing import Any

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported, UserError
from uopc.ir.core import bounds, shapes
from uopc.onnx.node import Node, dims
from uopc.onnx.ops.blocks import with_shape
from uopc.onnx.registry import MICROSOFT, op


def _wide(x: UOp) -> UOp:
    if not x.dtype.is_float:
        raise UserError(f"expected floats, got {x.dtype.name}")
    return x.cast(dtypes.promote(x.dtype, dtypes.float32))


# ---------------------------------------------------------------- normalisations
@op("SimplifiedLayerNormalization")
def simplified_layer_normalization(n: Node) -> Any:
    """Divide by the root mean square over the axes from `axis` on; also return its reciprocal."""
    x = n.x(0)
    axes = tuple(range(n.axis(-1, len(dims(x))), len(dims(x))))
    y, inverse = _root_mean_square(n, _wide(x), n.x(1), axes, 1e-5)
    y = with_shape("the result", y, dims(x)).cast(n.x(1).dtype)
    return y if n.outputs == 1 else (y, inverse)


def _root_mean_square(
    n: Node, x: UOp, scale: UOp, axes: tuple[int, ...], least: float
) -> tuple[UOp, UOp]:
    square = (x * x).mean(axes, keepdims=True) + n.number("epsilon", least)
    inverse = square.sqrt().reciprocal()
    return x * inverse * scale.cast(x.dtype), inverse


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(n: Node) -> Any:
    """Add, and divide the sum by its root mean square; the fourth output is the sum."""
    x = _added(n, 3)
    y, inverse = _root_mean_square(n, x, n.x(2), (len(dims(x)) - 1,), 1e-12)
    return _with_sum(n, y, None, inverse, x)


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(n: Node) -> Any:
    """Add, and normalise the sum by its mean and variance; the fourth output is the sum."""
    x, shift = _added(n, 4), n.maybe(3)
    mean = x.mean(-1, keepdims=True)
    apart = x - mean
    square = (apart * apart).mean(-1, keepdims=True) + n.number("epsilon", 1e-12)
    inverse = square.sqrt().reciprocal()
    y = apart * inverse * n.x(2).cast(x.dtype)
    y = y if shift is None else y + shift.cast(x.dtype)
    return _with_sum(n, y, mean, inverse, x)


def _added(n: Node, bias: int) -> UOp:
    """Add input, skip and, if given, a bias, in the shape of the input."""
    total = _wide(n.x(0)) + _wide(n.x(1))
    total = total + _wide(n.x(bias)) if n.has(bias) else total
    return with_shape("the sum", total, dims(n.x(0)))


def _with_sum(n: Node, y: UOp, mean: UOp | None, inverse: UOp, total: UOp) -> Any:
    t, y = n.x(0).dtype, with_shape("the result", y, dims(total))
    found = y.cast(t), mean, inverse, total.cast(t)
    return found[: n.outputs] if n.outputs > 1 else found[0]


# ---------------------------------------------------------------- positions
@op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(n: Node) -> UOp:
    """Rotate pairs of numbers of each head by the angles of their position."""
    if n.attr("is_packed_batching", 0):
        raise Unsupported(
            "is_packed_batching (sequences of several lengths in one) is not supported"
        )
    x, places, cos, sin = (n.x(k) for k in range(4))
    shape, width = dims(x), 2 * _half(cos, sin)
    if len(shape) not in (3, 4):
        raise UserError(f"input must have 3 or 4 dimensions, got {shapes.show(shape)}")
    heads = n.attr("num_heads", 0)
    if n.attr("rotary_embedding_dim", 0) and not heads:
        raise UserError("rotary_embedding_dim needs num_heads, which is missing")
    if (turned := n.attr("rotary_embedding_dim", 0)) not in (0, width):
        raise UserError(
            f"rotary_embedding_dim must be {width}, twice the row of cos_cache, got {turned}"
        )
    each = x
    if len(shape) == 3:
        if not heads and shape[2] % width:
            raise UserError(f"the last size of input must be a multiple of {width}, got {shape[2]}")
        heads = heads or shape[2] // width
        each = x.reshape(*shape[:2], heads, shape[2] // heads).permute(0, 2, 1, 3)
    if dims(places) == (1,):
        places = places + uopc.arange(shape[-2] if len(shape) == 4 else shape[1])
        places = places.unsqueeze(0)
    y = rotated(each, places, cos, sin, bool(n.attr("interleaved", 0)))
    return y if len(shape) == 4 else y.permute(0, 2, 1, 3).reshape(shape)


def _half(cos: UOp, sin: UOp) -> int:
    """Check the tables' shapes, and return the number of angles in a row."""
    shape = dims(cos)
    if len(shape) != 2 or shape[1] == 0:
        raise UserError(f"cos_cache must be a matrix of angles, got {shapes.show(shape)}")
    half: int = dims(with_shape("sin_cache", sin, shape))[1]
    return half


def rotated(x: UOp, places: UOp, cos: UOp, sin: UOp, interleaved: bool) -> UOp:
    """Rotate the first 2 * angles numbers of each head; x has shape (batch, heads, length, size).
    `places`: the table row of each position, of shape (batch or 1, length)."""
    half = _half(cos, sin)
    if 2 * half > dims(x)[-1]:
        raise UserError(
            f"cos_cache has angles for {2 * half} numbers of a head, which has {dims(x)[-1]}"
        )
    c, s = (t.take(places.cast(dtypes.int64), 0).unsqueeze(1) for t in (cos, sin))
    return x.rotary(c, s, interleaved)


# ---------------------------------------------------------------- attention
# Inputs by their places.
_QUERY, _KEY, _VALUE, _PAST_KEY, _PAST_VALUE, _LAST, _TOTAL, _COS, _SIN, _PLACES = range(10)
_BIAS, _SINK = 10, 11
_REFUSED_INPUTS = {
    12: "k_scale", 13: "v_scale", 14: "q_norm_weight", 15: "k_norm_weight", 16: "query_seqlens",
}  # fmt: skip
_REFUSED = {
    "sliding_window_cache": 0, "qk_output": 0, "k_quant_type": "NONE", "v_quant_type": "NONE",
    "kv_cache_bit_width": 0,
}  # fmt: skip


@op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(n: Node) -> Any:
    """Attention with a cache, in which several query heads share a head of keys.

    Further outputs are the cache with the new keys and values, appended to each sequence at its old
    length. A query sees its own position and earlier ones, within a window if the node asks for
    one.
    """
    for name, default in _REFUSED.items():
        if n.attr(name, default) != default:
            raise Unsupported(f"{name}={n.attr(name, default)!r} is not supported")
    for number, name in _REFUSED_INPUTS.items():
        if n.has(number):
            raise Unsupported(f"the input {name} is not supported")
    q, k, v = _heads(n)
    batch, own, length, size = dims(k)
    before = (n.x(_LAST).cast(dtypes.int64).reshape(batch) + (1 - length)).maximum(0).unsqueeze(1)
    places = before + uopc.arange(length, dtype=dtypes.int64).unsqueeze(0)
    if n.attr("do_rotary", 0):
        at = _given_places(n, places) if n.has(_PLACES) else places
        turn = n.x(_COS), n.x(_SIN), bool(n.attr("rotary_interleaved", 0))
        q, k = rotated(q, at, *turn), rotated(k, at, *turn)
    room = _room(n, length)
    _check_cache(n, (batch, own, size))
    keys = _with_new(n.maybe(_PAST_KEY), k, before, room)
    values = _with_new(n.maybe(_PAST_VALUE), v, before, room)
    groups = dims(q)[1] // own
    each = _wide(q).reshape(batch, own, groups, length, size)
    scale = n.number("scale", 0.0) or float(size) ** -0.5
    scores = (each * scale).matmul(_wide(keys).transpose(-1, -2).unsqueeze(2))
    parts = _weights(n, scores.reshape(batch, own * groups, length, room), places)
    parts = parts.reshape(batch, own, groups, length, room)
    y = parts.matmul(_wide(values).unsqueeze(2)).reshape(batch, own * groups, length, size)
    y = y.permute(0, 2, 1, 3).reshape(batch, length, own * groups * size).cast(q.dtype)
    return (y, keys, values)[: n.outputs] if n.outputs > 1 else y


def _heads(n: Node) -> list[UOp]:
    """Queries, keys and values of shape (batch, heads, length, size), split if they are packed."""
    query, own = n.attr("num_heads", 0), n.attr("kv_num_heads", 0)
    if query < 1 or own < 1 or query % own:
        raise UserError(f"num_heads {query} must be a multiple of kv_num_heads {own}")
    x = n.x(_QUERY)
    if n.has(_KEY) != n.has(_VALUE):
        raise UserError("key and value must be given both, or packed in the query")
    if n.has(_KEY):
        parts, size = [x, n.x(_KEY), n.x(_VALUE)], dims(x)[-1] // query
    else:
        size = dims(x)[-1] // (query + 2 * own)
        ends = [0, query * size, (query + own) * size, (query + 2 * own) * size]
        parts = [x[..., a:b] for a, b in zip(ends, ends[1:])]
    counts = (query, own, own)
    return [
        p.reshape(*dims(x)[:2], count, size).permute(0, 2, 1, 3) for p, count in zip(parts, counts)
    ]  # fmt: skip


def _given_places(n: Node, places: UOp) -> UOp:
    """The input `position_ids`. For a prompt only its first number counts, by definition."""
    given, length = n.x(_PLACES).cast(dtypes.int64), dims(places)[1]
    with_shape("position_ids", given, (*dims(given)[:1], length))
    found = n.ints(_TOTAL)
    if not found or found[0] != length:
        return given
    return (given[0, 0] + uopc.arange(length, dtype=dtypes.int64)).unsqueeze(0)


def _check_cache(n: Node, sizes: tuple[Any, ...]) -> None:
    """UserError unless the old keys and values have this batch, these heads and this size."""
    key, value = n.maybe(_PAST_KEY), n.maybe(_PAST_VALUE)
    if (key is None) != (value is None):
        raise UserError("past_key and past_value must be given both, or neither")
    if key is not None and value is not None:
        wanted = (*sizes[:2], *dims(key)[2:3], sizes[2])
        with_shape("past_key", key, wanted)
        with_shape("past_value", value, wanted)


def _room(n: Node, length: Any) -> Any:
    """The length of the cache after a call: its old length or that of all tokens, if greater."""
    found = n.ints(_TOTAL)
    total = found[0] if found else None
    past = n.maybe(_PAST_KEY)
    if total is None:
        raise UserError("total_sequence_length is missing")
    if isinstance(total, int) and isinstance(length, int) and total < length:
        raise UserError(f"total_sequence_length {total} is below the {length} new tokens")
    if past is None:
        return total
    old = dims(past)[2]
    least, most = [[d, d] if isinstance(d, int) else bounds.bounds(d) for d in (old, total)]
    if most[1] <= least[0]:
        return old
    if least[1] <= most[0]:
        return total
    raise UserError(
        f"past_key has the length {shapes.show((old,))}, and total_sequence_length is"
        f" {shapes.show((total,))}: pass dims= from which the greater one follows"
    )


def _with_new(past: UOp | None, new: UOp, before: UOp, room: Any) -> UOp:
    """Append new rows to each sequence of a cache, at `before`; the result has length `room`."""
    batch, heads, length, size = dims(new)
    at = uopc.arange(room, dtype=dtypes.int64).unsqueeze(0) - before
    if length == 1:
        spread = new.expand((batch, heads, room, size))
    else:
        inside = at.clip(0, length - 1).reshape(batch, 1, room, 1)
        spread = new.gather(2, inside.expand((batch, heads, room, size)))
    at = at.reshape(batch, 1, room, 1)
    if past is None:
        old = uopc.full((), 0.0, new.dtype)
    else:
        old = past.pad([(0, 0), (0, 0), (0, room - dims(past)[2]), (0, 0)])
    return uopc.where((at >= 0) & (at < length), spread, old)


def _weights(n: Node, scores: UOp, places: UOp) -> UOp:
    """The softmax of the scores, over the positions that each query sees."""
    cap, window = n.number("softcap", 0.0), n.attr("local_window_size", -1)
    batch, heads, length, room = dims(scores)
    if window == 0:
        raise UserError("local_window_size must not be 0")
    if cap > 0:
        scores = (scores / cap).tanh() * cap
    if (bias := n.maybe(_BIAS)) is not None:
        (total,) = (n.ints(_TOTAL) or [room])[:1]
        with_shape("attention_bias", bias, (*dims(bias)[:2], length, total))
        scores = scores + _wide(bias.pad([(0, 0)] * 3 + [(0, room - dims(bias)[3])]))
    at = uopc.arange(room, dtype=dtypes.int64)
    last = places.reshape(batch, 1, length, 1)
    seen = at <= (last if n.attr("causal", 1) else last[:, :, -1:])
    if window > 0:
        seen = seen & (at > last - window)
    scores = uopc.where(seen, scores, -float("inf"))
    sink = n.maybe(_SINK)
    if sink is None and n.attr("smooth_softmax", 0) != 1:
        return scores.softmax(-1)
    extra = (
        uopc.full((), 0.0, scores.dtype) if sink is None else _wide(sink).reshape(1, heads, 1, 1)
    )
    column = extra.expand((batch, heads, length, 1))
    return uopc.cat(scores, column, axis=-1).softmax(-1)[..., :room]
