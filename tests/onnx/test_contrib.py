"""Operators that ONNX Runtime's tools write, beside ONNX Runtime on models of one node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import uopc.onnx
from tests.onnx.test_decoder import MICROSOFT, model, near, onnx_runtime
from uopc.errors import Unsupported

F4, I4 = np.float32, np.int32
RNG = np.random.default_rng(0)


def floats(*shape: int, dtype: Any = F4) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def codes(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    """Signed ones have 7 bits: ONNX Runtime's products of 8 saturate on some processors."""
    low, high = (0, 256) if dtype is np.uint8 else (-64, 64)
    return RNG.integers(low, high, shape, dtype)


def number(value: float, dtype: Any = F4) -> np.ndarray:
    return np.asarray(value, dtype)


def checked(
    op: str, inputs: list[np.ndarray | None], results: list[Any], fixed: tuple[int, ...] = (),
    **attributes: Any,
) -> None:  # fmt: skip
    """The results, of these dtypes, are those of ONNX Runtime. A result of None is left out;
    `fixed`: inputs that are constants. Codes may differ by one where a half is rounded."""
    names = ["" if v is None else f"i{k}" for k, v in enumerate(inputs)]
    outs = ["" if t is None else f"o{k}" for k, t in enumerate(results)]
    node = helper.make_node(op, names, outs, domain=MICROSOFT, **attributes)
    own = [(name, v) for name, v in zip(names, inputs) if v is not None]
    given = {name: v for k, (name, v) in enumerate(own) if k not in fixed}
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(k, kind(v.dtype), v.shape) for k, v in given.items()],
        [helper.make_tensor_value_info(o, kind(np.dtype(t)), None)
         for o, t in zip(outs, results) if t is not None],
        [numpy_helper.from_array(v, name) for name, v in own if name not in given],
    )  # fmt: skip
    versions = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    m = helper.make_model(graph, opset_imports=versions, ir_version=8)
    made = uopc.onnx.InferenceSession(m.SerializeToString()).run(None, given)
    wanted = onnx_runtime(m, given)
    if wanted is None:
        pytest.skip("the oracle is ONNX Runtime")
    for a, b in zip(made, wanted, strict=True):
        assert a.dtype == b.dtype
        if a.dtype.kind == "f":
            near(a, b, layers=4)
        else:
            assert a.shape == b.shape
            assert np.abs(a.astype(np.int64) - b).max(initial=0) <= 1
            assert np.mean(a != b) < 0.02


# ---------------------------------------------------------------- activations and products
@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Gelu", [(3, 5)], {}),
        ("BiasGelu", [(2, 3, 5), (5,)], {}),
        ("FastGelu", [(3, 5)], {}),
        ("FastGelu", [(2, 3, 5), (5,)], {}),
        ("QuickGelu", [(3, 5)], {}),
        ("QuickGelu", [(3, 5)], {"alpha": 1.0}),
    ],
)
def test_activations(op: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    checked(op, [floats(*s) * F4(3) for s in inputs], [F4], **attributes)


@pytest.mark.few(4)
@pytest.mark.parametrize("batch", [(), (4,), (2, 3)])
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_fused_matmul(batch: tuple[int, ...], turned: tuple[int, int]) -> None:
    a, b = floats(*batch, 3, 5), floats(*batch, 5, 2)
    a, b = (x.swapaxes(-1, -2) if t else x for x, t in zip((a, b), turned))
    checked("FusedMatMul", [a, b], [F4], transA=turned[0], transB=turned[1], alpha=0.5)


@pytest.mark.parametrize("turned", [(0, 0), (1, 1)])
def test_fused_matmul_of_moved_batches(turned: tuple[int, int]) -> None:
    a, b = floats(4, 3, 5), floats(4, 5, 2)
    a, b = (x.swapaxes(-1, -2) if t else x for x, t in zip((a, b), turned))
    a, b = (np.ascontiguousarray(np.moveaxis(x, -2, 0)) for x in (a, b))
    checked(
        "FusedMatMul", [a, b], [F4], transA=turned[0], transB=turned[1], transBatchA=1,
        transBatchB=1,
    )  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "numbers"),
    [("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]),
     ("HardSigmoid", [0.3, 0.4])],
)  # fmt: skip
def test_fused_conv(name: str, numbers: list[float]) -> None:
    x, w, b = floats(2, 4, 7, 7), floats(6, 2, 3, 3), floats(6)
    how = {"group": 2, "pads": [1] * 4, "activation": name}
    how |= {"activation_params": numbers} if numbers else {}
    checked("FusedConv", [x, w, b], [F4], (1, 2), **how)
    checked("FusedConv", [x, w, b, floats(2, 6, 7, 7)], [F4], (1, 2), **how)


def test_fused_gemm() -> None:
    checked(
        "FusedGemm", [floats(3, 4), floats(5, 4), floats(5)], [F4], transB=1, alpha=0.5,
        activation="LeakyRelu", activation_alpha=0.3,
    )  # fmt: skip


# ---------------------------------------------------------------- embeddings and attention
@pytest.mark.few(2)
@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("segments", [False, True])
def test_embed_layer_normalization(segments: bool, places: bool) -> None:
    words, mask = RNG.integers(0, 9, (2, 5)).astype(I4), RNG.integers(0, 2, (2, 5)).astype(I4)
    checked(
        "EmbedLayerNormalization",
        [
            words, mask[::-1].copy() if segments else None, floats(9, 8), floats(7, 8),
            floats(2, 8) if segments else None, floats(8), floats(8), mask if segments else None,
            (words[::-1] % 7).copy() if places else None,
        ],
        [F4, I4, F4], epsilon=1e-5,
    )  # fmt: skip


MASKS: dict[str, np.ndarray | None] = {
    "none": None,
    "lengths": np.array([3, 5], I4),
    "ends": np.array([3, 5, 1, 0], I4),
    "keys": np.array([[1, 1, 0, 1, 1], [1, 0, 0, 0, 0]], I4),
    "pairs": RNG.integers(0, 2, (2, 5, 5)).astype(I4),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", MASKS)
def test_attention(mask: str, causal: int) -> None:
    inputs = [floats(2, 5, 6), floats(6, 36), floats(36), MASKS[mask]]
    checked("Attention", inputs, [F4], (1, 2), num_heads=3, unidirectional=causal)


def test_attention_with_a_cache_and_a_bias() -> None:
    x, w, past, bias = floats(2, 1, 6), floats(6, 24), floats(2, 2, 2, 4, 4), floats(2, 2, 1, 5)
    checked("Attention", [x, w, floats(24), None, past], [F4, F4], (1, 2), num_heads=2, scale=0.3)
    given = [x, w, floats(24), None, None, bias[..., :1]]
    checked("Attention", given, [F4], (1, 2), num_heads=2)
    keys = np.ones((2, 5), I4)
    checked("Attention", [x, w, floats(24), keys, past], [F4, F4], (1, 2), num_heads=2,
            unidirectional=1)  # fmt: skip


def test_attention_of_several_sizes() -> None:
    given = [floats(1, 4, 6), floats(6, 8 + 8 + 12), floats(28)]
    checked("Attention", given, [F4], (1, 2), num_heads=4, qkv_hidden_sizes=[8, 8, 12])


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("shapes", "mask", "attributes"),
    [
        ([(2, 3, 8), (2, 5, 8), (2, 5, 12)], "keys", {}),
        ([(2, 3, 8), (2, 5, 8), (2, 5, 8), (24,)], "lengths", {"scale": 0.2}),
        ([(2, 3, 8), (2, 2, 5, 4), (2, 2, 5, 4)], "none", {}),
        ([(2, 5, 8)] * 3, "none", {"unidirectional": 1}),
    ],
)
def test_multi_head_attention(shapes: list[Any], mask: str, attributes: dict[str, Any]) -> None:
    given: list[np.ndarray | None] = [floats(*s) for s in shapes]
    if MASKS[mask] is not None:
        given += [None] * (4 - len(given)) + [MASKS[mask]]
    checked("MultiHeadAttention", given, [F4], num_heads=2, **attributes)


def test_multi_head_attention_with_a_cache_and_a_bias() -> None:
    given = [floats(2, 1, 8) for _ in range(3)]
    given = [*given, floats(24), None, floats(1, 2, 1, 4), floats(2, 2, 3, 4), floats(2, 2, 3, 4)]
    checked("MultiHeadAttention", given, [F4, F4, F4], num_heads=2)


def test_packed_keys_and_queries() -> None:
    """As the same arrays apart; ONNX Runtime takes packed ones on GPUs alone."""
    parts = [floats(2, 4, 2, 3) for _ in "qkv"]
    flat = [p.reshape(2, 4, 6) for p in parts]
    wanted = ran("MultiHeadAttention", flat, num_heads=2)
    all_ = ran("MultiHeadAttention", [np.stack(parts, 3)], num_heads=2)
    keys = ran("MultiHeadAttention", [flat[0], np.stack(parts[1:], 3)], num_heads=2)
    np.testing.assert_allclose(all_, wanted, 1e-6)
    np.testing.assert_allclose(keys, wanted, 1e-6)


def ran(op: str, inputs: list[np.ndarray], **attributes: Any) -> Any:
    given = {f"i{k}": v for k, v in enumerate(inputs)}
    return uopc.onnx.load(model(op, list(given), given, {}, **attributes))(**given)


def test_what_attention_refuses() -> None:
    with pytest.raises(Unsupported, match="do_rotary"):
        checked("Attention", [floats(1, 4, 6), floats(6, 18)], [F4], num_heads=3, do_rotary=1)
    lengths = np.zeros(3 * 2 + 2, I4)
    with pytest.raises(Unsupported, match="cumulated lengths"):
        checked("Attention", [floats(2, 4, 6), floats(6, 18), None, lengths], [F4], num_heads=3)


# ---------------------------------------------------------------- quantised tensors
U1, S1 = np.uint8, np.int8


def quantised(*shape: int, dtype: Any = U1, zero: int = 3) -> list[np.ndarray | None]:
    scale = number(0.01 + 0.02 * float(RNG.random()))
    return [codes(*shape, dtype=dtype), scale, number(zero, dtype) if zero else None]


@pytest.mark.parametrize("dtype", [U1, S1])
@pytest.mark.parametrize("zero", [0, 7])
def test_arithmetic_of_codes(dtype: Any, zero: int) -> None:
    to = [number(0.05), number(zero, dtype) if zero else None]
    for op in ("QLinearAdd", "QLinearMul") if zero else ():
        a, b = quantised(2, 3, 5, dtype=dtype, zero=zero), quantised(5, dtype=dtype, zero=zero)
        checked(op, [*a, *b, *to], [dtype], (1, 2, 4, 5, 6, 7))
    x = quantised(3, 40, dtype=dtype, zero=zero)
    constants = (1, 2, 3, 4) if zero else (1, 2)
    checked("QLinearSigmoid", [*x, number(0.004), to[1]], [dtype], constants)
    checked("QLinearLeakyRelu", [*x, *to], [dtype], constants, alpha=0.2)


@pytest.mark.parametrize("dtype", [U1, S1])
def test_sums_of_codes(dtype: Any) -> None:
    to = [number(0.02), number(5, dtype)]
    x = quantised(2, 3, 6, 6, dtype=dtype)
    checked("QLinearGlobalAveragePool", [*x, *to], [dtype], (1, 2, 3, 4))
    checked("QLinearGlobalAveragePool", [*x, *to], [dtype], (1, 2, 3, 4), channels_last=1)
    checked(
        "QLinearAveragePool", [*x, *to], [dtype], (1, 2, 3, 4), kernel_shape=[3, 2],
        strides=[2, 1], pads=[1, 0, 0, 1],
    )  # fmt: skip
    soft = [number(1 / 256), number(np.iinfo(dtype).min, dtype)]
    checked("QLinearSoftmax", [*x, *soft], [dtype], (1, 2, 3, 4), axis=-1, opset=13)
    checked("QLinearSoftmax", [*x, *soft], [dtype], (1, 2, 3, 4), axis=2, opset=11)


@pytest.mark.parametrize("dtype", [U1, S1])
def test_parts_of_codes(dtype: Any) -> None:
    to: list[np.ndarray | None] = [number(0.02), number(5, dtype)]
    a, b = quantised(2, 3, dtype=dtype), quantised(2, 4, dtype=dtype, zero=9)
    checked("QLinearConcat", [*to, *a, *b], [dtype], (0, 1, 3, 4, 6, 7), axis=1)
    a, b = quantised(2, 3, dtype=dtype), quantised(3, dtype=dtype, zero=9)
    where = RNG.random((2, 3)) < 0.5
    checked("QLinearWhere", [where, *a, *b, *to], [dtype], (2, 3, 5, 6, 7, 8))


@pytest.mark.parametrize("scales", [(), (4,)])
def test_products_of_codes(scales: tuple[int, ...]) -> None:
    a, b = codes(3, 5), codes(5, 4, dtype=S1)
    one, each = number(0.02), (0.01 + RNG.random(scales) / 50).astype(F4)
    zero = RNG.integers(-3, 3, scales).astype(S1) if scales else number(2, S1)
    bias, sums = floats(4), RNG.integers(-99, 99, 4).astype(I4)
    x = floats(3, 5)
    checked("DynamicQuantizeMatMul", [x, b, each, zero, bias], [F4], (1, 2, 3, 4))
    checked("DynamicQuantizeMatMul", [x, b, each], [F4], (1, 2))
    given = [a, b, one, each, number(9, U1), zero, bias]
    checked("MatMulIntegerToFloat", given, [F4], (1, 2, 3, 4, 5, 6))
    checked("QGemm", [a, one, number(9, U1), b, each, zero, sums], [F4], (1, 2, 3, 4, 5, 6))
    to = [number(0.1), number(7, U1)]
    checked(
        "QGemm", [a, one, number(9, U1), b.T.copy(), each, zero, sums, *to], [U1],
        (1, 2, 3, 4, 5, 6, 7, 8), transB=1,
    )  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_column", [False, True])
def test_lstm_of_codes(direction: str, per_column: bool) -> None:
    """A single row of states, since ONNX Runtime may quantise the rows of a batch apart."""
    many, size, width = 1 + (direction == "bidirectional"), 6, 5
    each = (many, 4 * size) if per_column else (many,)
    w, r = codes(many, width, 4 * size, dtype=S1), codes(many, size, 4 * size, dtype=S1)
    scale = [(0.005 + RNG.random(each) / 200).astype(F4) for _ in "wr"]
    zero = [np.zeros(each, S1) for _ in "wr"]
    state = [floats(many, 1, size) for _ in "hc"]
    checked(
        "DynamicQuantizeLSTM",
        [floats(7, 1, width), w, r, floats(many, 8 * size), None, *state, None, scale[0], zero[0],
         scale[1], zero[1]],
        [F4, F4, F4], (1, 2, 3, 6, 7, 8, 9), direction=direction, hidden_size=size,
    )  # fmt: skip
