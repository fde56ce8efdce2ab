"""Layers of decoders, as ONNX Runtime has them: normalised sums, positions, attention."""

from __future__ import annotations

from typing import Any

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported, UserError
from uopc.ir.core import bounds, shapes
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
    """Attention with heads of keys that several heads of queries share, and a cache.

    The results are also the cache with the new keys and values: those of a sequence begin where its
    old ones end, which its length says. A query sees what is not after it, in a window if asked.
    """
    for name, default in _REFUSED.items():
        if n.attr(name, default) != default:
            raise Unsupported(f"{name} of {n.attr(name, default)!r}")
    for number, name in _REFUSED_INPUTS.items():
        if n.has(number):
            raise Unsupported(f"the input {name}")
    q, k, v = _heads(n)
    batch, own, length, size = dims(k)
    before = (n.x(_LAST).cast(dtypes.int64).reshape(batch) + (1 - length)).maximum(0).unsqueeze(1)
    places = before + uopc.arange(length, dtype=dtypes.int64).unsqueeze(0)
    if n.attr("do_rotary", 0):
        at = _given_places(n, places) if n.has(_PLACES) else places
        turn = n.x(_COS), n.x(_SIN), bool(n.attr("rotary_interleaved", 0))
        q, k = rotated(q, at, *turn), rotated(k, at, *turn)
    room = _room(n)
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
    """Queries, keys and values of shape (batch, heads, length, size), which may come as one."""
    query, own = n.attr("num_heads", 0), n.attr("kv_num_heads", 0)
    if query < 1 or own < 1 or query % own:
        raise UserError(f"num_heads {query} is no multiple of kv_num_heads {own}")
    x = n.x(_QUERY)
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
    """The input `position_ids`; of a prompt its first number alone counts, as the operator says."""
    given, length = n.x(_PLACES).cast(dtypes.int64), dims(places)[1]
    found = n.ints(_TOTAL)
    if not found or found[0] != length:
        return given
    return (given[0, 0] + uopc.arange(length, dtype=dtypes.int64)).unsqueeze(0)


def _room(n: Node) -> Any:
    """The length of the cache after a call: the old one, or that of all tokens if that is more."""
    found = n.ints(_TOTAL)
    total = found[0] if found else None
    past = n.maybe(_PAST_KEY)
    if total is None:
        raise UserError("total_sequence_length is missing")
    if past is None:
        return total
    old = dims(past)[2]
    least, most = [[d, d] if isinstance(d, int) else bounds.bounds(d) for d in (old, total)]
    if most[1] <= least[0]:
        return old
    if least[1] <= most[0]:
        return total
    raise UserError(
        f"past_key has the length {shapes.show((old,))}, and total_sequence_length is "
        f"{shapes.show((total,))}: which is more must be known, pass dims="
    )


def _with_new(past: UOp | None, new: UOp, before: UOp, room: Any) -> UOp:
    """A cache of a length, with new rows behind the old ones of each sequence."""
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
    """The softmax of what each query sees."""
    cap, window = n.number("softcap", 0.0), n.attr("local_window_size", -1)
    batch, heads, length, room = dims(scores)
    if cap:
        scores = (scores / cap).tanh() * cap
    if (bias := n.maybe(_BIAS)) is not None:
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
