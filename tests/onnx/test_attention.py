"""Attention with a cache beside NumPy and, where it is installed, ONNX Runtime; whole decoders."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import uopc
import uopc.onnx
from tests import ROOT
from uopc.errors import Unsupported, UserError

sys.path.append(str(ROOT / "benchmarks"))
import nbits

from tests.onnx.test_decoder import FLOATS, Arrays, checked, model, near, onnx_runtime, turned

# ---------------------------------------------------------------- attention with a cache
NAMES = ["q", "k", "v", "pk", "pv", "last", "total", "c", "s", "i", "bias", "sink"]


def attended(v: Arrays, lengths: list[int], total: int, options: dict[str, Any]) -> Arrays:
    """The result and the filled part of the caches, one query after the other in float64."""
    query, own = options["num_heads"], options["kv_num_heads"]
    batch, length, width = v["q"].shape
    if "k" in v:
        size, parts = width // query, [v["q"], v["k"], v["v"]]
    else:
        size = width // (query + 2 * own)
        parts = np.split(v["q"], [query * size, (query + own) * size], axis=-1)
    q, k, new = (
        p.reshape(batch, length, -1, size).transpose(0, 2, 1, 3).astype(np.float64) for p in parts
    )
    begin = np.maximum(np.array(lengths) - length, 0)
    if options.get("do_rotary"):
        places = v.get("i", begin[:, None] + np.arange(length))
        angles = np.arctan2(v["s"].astype(np.float64), v["c"].astype(np.float64))
        pairs = bool(options.get("rotary_interleaved"))
        q, k = turned(q, places, angles, pairs), turned(k, places, angles, pairs)
    window, cap = options.get("local_window_size", -1), options.get("softcap", 0)
    y = np.zeros((batch, length, query * size))
    caches = {"k": np.zeros((batch, own, total, size)), "v": np.zeros((batch, own, total, size))}
    for b in range(batch):
        for name, rows in (("k", k), ("v", new)):
            past = v[f"p{name}"][b, :, : begin[b]] if f"p{name}" in v else rows[b][:, :0]
            joined = np.concatenate([past, rows[b]], 1)[:, : lengths[b]]
            caches[name][b, :, : lengths[b]] = joined
        for h, s in np.ndindex(query, length):
            last = begin[b] + s if options.get("causal", 1) else lengths[b] - 1
            first = max(0, begin[b] + s - window + 1) if window > 0 else 0
            seen = slice(first, last + 1)
            keys, values = (caches[c][b, h * own // query, seen] for c in "kv")
            scores = keys @ q[b, h, s] * options.get("scale", size**-0.5)
            scores = np.tanh(scores / cap) * cap if cap else scores
            if "bias" in v:
                scores = scores + v["bias"][0, h % v["bias"].shape[1], s, seen]
            extra = [v["sink"][h]] if "sink" in v else [0.0] * bool(options.get("smooth_softmax"))
            weights = np.exp(np.append(scores, extra))
            weights = weights[: len(scores)] / weights.sum()
            y[b, s, h * size : (h + 1) * size] = weights @ values
    return {"y": y} | caches


def attention(
    batch: int = 1, length: int = 1, past: int | None = 7, total: int | None = None,
    lengths: list[int] | None = None, heads: tuple[int, int] = (4, 2), has: str = "",
    dtype: Any = np.float32, **options: Any,
) -> tuple[onnx.ModelProto, Arrays, Arrays]:  # fmt: skip
    """A model, its inputs, and what it gives. `has`: k and v apart, rotation, bias, sink."""
    rng = np.random.default_rng(0)
    size = 16
    total = total or (past or 0) + length
    lengths = lengths or [total] * batch
    options = {"num_heads": heads[0], "kv_num_heads": heads[1]} | options
    shapes: dict[str, tuple[int, ...]] = {"q": (batch, length, sum(heads) * size + heads[1] * size)}
    if "apart" in has:
        shapes = {"q": (batch, length, heads[0] * size)}
        shapes |= dict.fromkeys("kv", (batch, length, heads[1] * size))
    if past is not None:
        shapes |= dict.fromkeys(("pk", "pv"), (batch, heads[1], past, size))
    if "bias" in has:
        shapes["bias"] = (1, heads[0], length, total)
    if "sink" in has:
        shapes["sink"] = (heads[0],)
    v = {k: rng.standard_normal(s).astype(dtype) for k, s in shapes.items()}
    v["last"] = np.array(lengths, np.int32) - 1
    if "rotated" in has:
        options["do_rotary"] = 1
        angles = rng.standard_normal((40, size // 2))
        v |= {"c": np.cos(angles).astype(dtype), "s": np.sin(angles).astype(dtype)}
    if "places" in has:
        v["i"] = rng.integers(0, 40, (batch, length))
    wanted = attended(v, lengths, total, options)
    names = [k if k in v or k == "total" else "" for k in NAMES]
    constants = {"total": np.array(total, np.int32), "s": v.get("s", np.zeros(1, dtype))}
    constants |= {k: v[k] for k in ("c", "sink") if k in v}
    given = {k: a for k, a in v.items() if k not in constants}
    m = model("GroupQueryAttention", names, given, constants, "y k0 v0", **options)
    return m, given, wanted | {"lengths": np.array(lengths)}


ATTENTIONS: list[dict[str, Any]] = [
    {}, {"has": "apart"}, {"length": 5, "past": None}, {"length": 5, "past": 0, "has": "rotated"},
    {"has": "rotated"}, {"has": "rotated", "rotary_interleaved": 1},
    {"length": 3, "has": "rotated"},
    {"has": "rotated places"}, {"length": 3, "has": "rotated places"}, {"past": 20, "total": 8},
    {"past": 20, "total": 9, "length": 3}, {"batch": 2, "past": 20, "total": 8, "lengths": [8, 5]},
    {"batch": 2, "lengths": [8, 5], "has": "rotated"}, {"past": 20, "total": 5, "length": 5},
    {"local_window_size": 3}, {"length": 6, "past": None, "local_window_size": 3},
    {"length": 3, "local_window_size": 1}, {"scale": 0.5}, {"softcap": 0.7}, {"smooth_softmax": 1},
    {"has": "sink", "softcap": 0.7}, {"has": "bias"}, {"has": "bias", "past": 20, "total": 8},
    {"heads": (6, 1)}, {"heads": (3, 3)}, {"length": 3, "causal": 0},
]  # fmt: skip


@pytest.mark.few(9)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("options", ATTENTIONS, ids=str)
def test_attention(options: dict[str, Any], dtype: Any) -> None:
    """Rows of the cache behind the last token are any."""
    m, given, wanted = attention(dtype=dtype, **options)
    results = uopc.onnx.load(m)(**given)
    near(results["y"], wanted["y"])
    for b, length in enumerate(wanted["lengths"]):
        for name in "kv":
            near(results[f"{name}0"][b, :, :length], wanted[name][b, :, :length])
    other = onnx_runtime(m, given)
    if other is not None:
        near(results["y"], other[0])
        assert [v.shape for v in results.values()] == [v.shape for v in other]


def test_places_of_a_prompt_follow_its_first() -> None:
    m, given, _ = attention(2, 3, 0, has="rotated places")
    checked(m, given, None)


def test_attention_of_any_length() -> None:
    """A buffer of 16 tokens, and as many in it as a mask is long."""
    m, given, wanted = attention(past=16, total=8, has="rotated")
    m.graph.input.append(helper.make_tensor_value_info("mask", onnx.TensorProto.FLOAT, [1, "t"]))
    m.graph.initializer.remove(next(t for t in m.graph.initializer if t.name == "total"))
    m.graph.node.insert(0, helper.make_node("Shape", ["mask"], ["total"], start=1))
    f = uopc.onnx.load(m, dims={"t": (1, 16)})
    got = f(**given, mask=np.ones((1, 8), np.float32))
    near(got["y"], wanted["y"])
    assert got["k0"].shape == (1, 2, 16, 16)
    with pytest.raises(UserError, match="pass dims= from which the greater one follows"):
        uopc.onnx.load(m, dims={"t": (1, 17)})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sliding_window_cache": 1}, "sliding_window_cache=1 is not"),
        ({"qk_output": 1}, "qk_output=1 is not"),
        ({"local_window_size": 0}, "local_window_size must not be 0"),
        ({"k_quant_type": "PER_TENSOR"}, "k_quant_type='PER_TENSOR' is not"),
        ({"kv_num_heads": 3}, "num_heads 4 must be a multiple of kv_num_heads 3"),
    ],
)
def test_bad_attention(options: dict[str, Any], text: str) -> None:
    m, *_ = attention()
    node = m.graph.node[0]
    kept = [a for a in node.attribute if a.name not in options]
    del node.attribute[:]
    node.attribute.extend([*kept, *[helper.make_attribute(k, v) for k, v in options.items()]])
    with pytest.raises((UserError, Unsupported), match=f"GroupQueryAttention 'own' .*{text}"):
        uopc.onnx.load(m)


def test_a_softcap_below_zero_is_none() -> None:
    m, given, wanted = attention()
    attributes = m.graph.node[0].attribute
    kept = [a for a in attributes if a.name != "softcap"]
    del attributes[:]
    attributes.extend([*kept, helper.make_attribute("softcap", -1.0)])
    near(uopc.onnx.load(m)(**given)["y"], wanted["y"])


@pytest.mark.parametrize(
    ("name", "shape", "text"),
    [
        ("pk", (1, 3, 4, 16), r"past_key must have the shape \(1, 2, 4, 16\), got \(1, 3, 4, 16\)"),
        ("pv", (1, 2, 5, 16), r"past_value must .* \(1, 2, 4, 16\), got \(1, 2, 5, 16\)"),
        ("pk", (1, 4, 32), r"past_key must have the shape .* got \(1, 4, 32\)"),
        ("pv", None, "past_key and past_value must be given both"),
        ("k", None, "key and value must be given both"),
        ("i", (1,), r"position_ids must have the shape .* got \(1\)"),
        ("i", (1, 2), r"position_ids must have the shape \(1, 1\), got \(1, 2\)"),
        ("bias", (4, 1, 5), r"attention_bias must have the shape .* got \(4, 1, 5\)"),
        ("bias", (1, 4, 1, 4), r"attention_bias must .* \(1, 4, 1, 5\), got \(1, 4, 1, 4\)"),
        ("total", (), "total_sequence_length 0 is below the 1 new tokens"),
    ],
)
def test_bad_operands_of_attention(name: str, shape: tuple[int, ...] | None, text: str) -> None:
    f4 = np.float32
    arrays = {
        "q": np.zeros((1, 1, 64), f4), "k": np.zeros((1, 1, 32), f4), "v": np.zeros((1, 1, 32), f4),
        "pk": np.zeros((1, 2, 4, 16), f4), "pv": np.zeros((1, 2, 4, 16), f4),
        "last": np.full(1, 4, np.int32), "total": np.array(5, np.int32),
        "c": np.ones((8, 8), f4), "s": np.ones((8, 8), f4), "i": np.full((1, 1), 4),
        "bias": np.zeros((1, 4, 1, 5), f4),
    }  # fmt: skip
    names = NAMES[:11]
    if shape is None:
        names = ["" if n == name else n for n in names]
        del arrays[name]
    else:
        arrays[name] = np.zeros(shape, arrays[name].dtype)
    m = model("GroupQueryAttention", names, {"q": arrays.pop("q")}, arrays, "y k0 v0",
              num_heads=4, kv_num_heads=2, do_rotary=1)  # fmt: skip
    with pytest.raises(UserError, match=f"GroupQueryAttention 'own' of the model: {text}"):
        uopc.onnx.load(m)


def test_lengths_that_are_computed_must_be_known() -> None:
    m, *_ = attention()
    m.graph.node[0].input[6] = "last"
    with pytest.raises(UserError, match="pass constants="):
        uopc.onnx.load(m)
    m.graph.node[0].input[6] = ""
    with pytest.raises(UserError, match="total_sequence_length is missing"):
        uopc.onnx.load(m)
    m, *_ = attention(has="sink")
    m.graph.node[0].input.extend(["", "", "sink"])
    with pytest.raises(Unsupported, match="the input q_norm_weight"):
        uopc.onnx.load(m)


# ---------------------------------------------------------------- a decoder
def test_steps_of_a_decoder() -> None:
    """Each step takes the caches of the one before it."""
    pytest.importorskip("onnxruntime")
    tiny = nbits.Decoder(2, 64, heads=4, shared=2, hidden=96, words=40, tokens=12)
    m = tiny.model()
    f, other = uopc.onnx.load(m), nbits.session(m)
    given = tiny.inputs(last=0)
    for last in range(4):
        given |= {"id": np.array([[7 * last]]), "last": np.array([last], np.int32)}
        got, expected = f(**given), other(**given)
        near(got["logits"], expected[0], layers=10)
        given |= {f"{i}.p{c}": got[f"{i}.{c}"] for i in range(2) for c in "kv"}
