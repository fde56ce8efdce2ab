"""Operators of quantised decoders beside NumPy and, where it is installed, ONNX Runtime."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import uopc
import uopc.onnx
from tests import ROOT
from tests.machines import lowered_for
from uopc import dtypes
from uopc.errors import Unsupported, UserError

sys.path.append(str(ROOT / "benchmarks"))

MICROSOFT = "com.microsoft"
FLOATS = [np.float32, np.float16]
ERROR = {"float16": 2e-3, "float32": 2e-6}
Arrays = dict[str, np.ndarray]


def model(
    op: str, inputs: list[str], given: Arrays, constants: Arrays, outputs: str = "y",
    domain: str = MICROSOFT, **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A model of one node. Its results have the dtype of `s`, or of the first input; `-` for a
    result that is left out."""
    names = ["" if name == "-" else name for name in outputs.split()]
    node = helper.make_node(op, inputs, names, name="own", domain=domain, **attributes)
    first = constants.get("s", next(iter(given.values())))
    result = helper.np_dtype_to_tensor_dtype(first.dtype)
    own = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in given.items()
    ]
    made = [helper.make_tensor_value_info(name, result, None) for name in names if name]
    kept = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    graph = helper.make_graph([node], "g", own, made, kept)
    versions = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def onnx_runtime(m: onnx.ModelProto, given: Arrays) -> list[np.ndarray] | None:
    """The results of ONNX Runtime; None where it is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    session = onnxruntime.InferenceSession(
        m.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: list[np.ndarray] = session.run(None, given)
    return found


def near(got: np.ndarray, wanted: np.ndarray, layers: int = 1) -> None:
    assert got.shape == wanted.shape
    largest = np.abs(wanted).max(initial=1e-3)
    error = np.abs(got.astype(np.float64) - wanted).max(initial=0)
    assert error <= ERROR[got.dtype.name] * largest * layers


def checked(m: onnx.ModelProto, given: Arrays, wanted: np.ndarray | None) -> Any:
    """The results, which are near to what is wanted and to what ONNX Runtime computes."""
    got = uopc.onnx.load(m)(**given)
    results = list(got.values()) if isinstance(got, dict) else [got]
    if wanted is not None:
        near(results[0], wanted)
    for own, other in zip(results, onnx_runtime(m, given) or []):
        assert own.dtype == other.dtype
        near(own, other)
    return got


def packed(q: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of the last axis in bytes, the first in the lowest bits."""
    each = 8 // bits
    q = np.pad(q, [(0, 0)] * (q.ndim - 1) + [(0, -q.shape[-1] % each)])
    q = q.reshape(*q.shape[:-1], -1, each) << np.arange(0, 8, bits)
    return q.sum(-1).astype(np.uint8)


# ---------------------------------------------------------------- MatMulNBits
def product(
    lead: tuple[int, ...], columns: int, rows: int, block: int, bits: int = 4, zero: str = "",
    dtype: Any = np.float32, group: np.ndarray | None = None, bias: bool = False, **more: Any,
) -> tuple[onnx.ModelProto, Arrays, np.ndarray]:  # fmt: skip
    """A model, its input, and the product of dequantised weights in float64."""
    rng = np.random.default_rng(columns + rows)
    blocks = -(-columns // block)
    q = rng.integers(0, 1 << bits, (rows, blocks, block))
    constants = {"b": packed(q, bits), "s": (rng.random((rows, blocks)) / 10).astype(dtype)}
    z: np.ndarray = np.full((rows, blocks), 1 << bits - 1)
    if zero == "packed":
        z = rng.integers(0, 1 << bits, (rows, blocks))
        constants["z"] = packed(z, bits)
    elif zero:
        z = constants["z"] = (rng.random((rows, blocks)) * (1 << bits)).astype(dtype)
    if group is not None:
        constants["g"] = group.astype(np.int32)
    if bias:
        constants["c"] = rng.standard_normal(rows).astype(dtype)
    x = rng.standard_normal((*lead, columns)).astype(dtype)
    of = np.arange(columns) // block if group is None else group
    w = q.reshape(rows, -1)[:, :columns] - z.astype(np.float64)[:, of]
    wanted = x.astype(np.float64) @ (w * constants["s"].astype(np.float64)[:, of]).T
    wanted = wanted + constants["c"] if bias else wanted
    names = ["a", *[k if k in constants else "" for k in "bszgc"]]
    options = {"K": columns, "N": rows, "bits": bits, "block_size": block} | more
    return model("MatMulNBits", names, {"a": x}, constants, **options), {"a": x}, wanted


@pytest.mark.few(6)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("zero", ["", "packed", "float"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_products(bits: int, zero: str, dtype: Any) -> None:
    """The last block has 6 of 32 columns; a row of zero points ends inside of a byte."""
    m, given, wanted = product((3,), 70, 5, 32, bits, zero, dtype, bias=zero != "")
    if (bits, zero) == (8, "float"):  # which ONNX Runtime refuses
        near(uopc.onnx.load(m)(**given), wanted)
    else:
        checked(m, given, wanted)


@pytest.mark.few(5)
@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("lead", [(), (1,), (2, 3), (17,)])
def test_blocks_and_batches(lead: tuple[int, ...], block: int) -> None:
    checked(*product(lead, 257, 37, block))


@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (16, 3), (31, 64), (512, 64)])
def test_sizes(columns: int, rows: int) -> None:
    checked(*product((1,), columns, rows, 16, zero="packed"))
    checked(*product((2,), columns, rows, 128, bits=2))


def test_a_batch_of_any_size() -> None:
    m, given, wanted = product((5,), 96, 11, 32)
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "m"
    f = uopc.onnx.load(m, dims={"m": (0, 8)})
    for size in (0, 1, 5):
        near(f(given["a"][:size]), wanted[:size])


def test_accuracy_levels_allow_and_do_not_ask() -> None:
    """Level 4 rounds the input to 8 bits in ONNX Runtime; here it does not."""
    m, given, wanted = product((2,), 256, 64, 32, accuracy_level=1)
    checked(m, given, wanted)
    coarse, *_ = product((2,), 256, 64, 32, accuracy_level=4)
    got = uopc.onnx.load(coarse)(**given)
    np.testing.assert_array_equal(got, uopc.onnx.load(m)(**given))
    other = onnx_runtime(coarse, given)
    if other is not None:
        assert np.abs(got - other[0]).max() < 0.02 * np.abs(wanted).max()


@pytest.mark.parametrize("zero", ["", "packed", "float"])
def test_columns_of_other_blocks(zero: str) -> None:
    """ONNX Runtime reads other zero points where they are packed, and so is not asked then."""
    group = np.random.default_rng(0).integers(0, 3, 70)
    m, given, wanted = product((3,), 70, 5, 32, zero=zero, group=group)
    if zero == "packed":
        near(uopc.onnx.load(m)(**given), wanted)
    else:
        checked(m, given, wanted)
    for bits in (2, 8):
        m, given, wanted = product((1,), 70, 5, 32, bits, zero, group=group)
        near(uopc.onnx.load(m)(**given), wanted)


def test_columns_of_their_own_blocks_cost_nothing() -> None:
    plain, given, wanted = product((1,), 128, 8, 32)
    grouped, *_ = product((1,), 128, 8, 32, group=np.arange(128) // 32)
    checked(grouped, given, wanted)
    sizes = [len(uopc.onnx.graph(m).outputs["y"].toposort()) for m in (plain, grouped)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("bias", [False, True])
def test_weights_that_are_left_out(bias: bool) -> None:
    m, given, _ = product((2,), 64, 5, 32, bias=bias)
    m.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((0, 2, 16), np.uint8), "b"))
    got = checked(m, given, None)
    expected = numpy_helper.to_array(m.graph.initializer[2]) if bias else np.zeros(5, np.float32)
    np.testing.assert_array_equal(got, np.broadcast_to(expected, (2, 5)))


def test_flat_scales_and_zero_points() -> None:
    """As exporters wrote them once."""
    m, given, wanted = product((2,), 96, 6, 32, zero="packed")
    for t in list(m.graph.initializer)[1:]:
        t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).reshape(-1), t.name))
    near(uopc.onnx.load(m)(**given), wanted)


def test_weights_that_are_inputs() -> None:
    m, given, wanted = product((2,), 96, 6, 32, zero="packed")
    for t in list(m.graph.initializer):
        array = numpy_helper.to_array(t)
        given[t.name] = array
        m.graph.input.append(helper.make_tensor_value_info(t.name, t.data_type, array.shape))
    del m.graph.initializer[:]
    checked(m, given, wanted)


BAD_PRODUCTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"bits": 3}, Unsupported, "bits must be one of 2, 4, 8, got 3"),
    ({"block_size": 24}, UserError, "block_size must be a power of 2, at least 16, got 24"),
    ({"block_size": 8}, UserError, "at least 16, got 8"),
    ({"weight_prepacked": 1}, Unsupported, "weight_prepacked"),
    ({"K": 63}, UserError, r"the last size of A must be K = 63, got \(2, 64\)"),
    ({"N": 6}, UserError, r"B must have the shape \(6, 2, 16\), got \(5, 2, 16\)"),
    ({"block_size": 64}, UserError, r"B must have the shape \(5, 1, 32\), got \(5, 2, 16\)"),
]


@pytest.mark.parametrize(("attributes", "kind", "text"), BAD_PRODUCTS)
def test_bad_attributes(attributes: dict[str, Any], kind: type[Exception], text: str) -> None:
    m, *_ = product((2,), 64, 5, 32)
    for a in m.graph.node[0].attribute:
        a.i = attributes.get(a.name, a.i)
    known = [a.name for a in m.graph.node[0].attribute]
    new = [helper.make_attribute(k, v) for k, v in attributes.items() if k not in known]
    m.graph.node[0].attribute.extend(new)
    with pytest.raises(kind, match=f"MatMulNBits 'own' of the model: .*{text}"):
        uopc.onnx.load(m)


@pytest.mark.parametrize(
    ("name", "array", "text"),
    [
        ("b", np.zeros((5, 2, 16), np.int8), "B must be uint8, got int8"),
        ("s", np.zeros((5, 3), np.float32), r"scales must have the shape \(5, 2\), got \(5, 3\)"),
        ("z", np.zeros((5, 2), np.uint8), r"zero_points must .* \(5, 1\), got \(5, 2\)"),
        ("z", np.zeros((5, 1), np.float32), r"zero_points must .* \(5, 2\), got \(5, 1\)"),
        ("g", np.full(64, 2, np.int32), "g_idx must have numbers from 0 to 1"),
        ("g", np.zeros(63, np.int32), r"g_idx must have the shape \(64\), got \(63\)"),
        ("s", np.zeros((5, 2), np.int32), "scales must be floats, got int32"),
        ("z", np.zeros((5, 2), np.int32), "zero_points must be floats, got int32"),
    ],
)
def test_bad_operands(name: str, array: np.ndarray, text: str) -> None:
    group = np.arange(64) // 32 if name == "g" else None
    m, *_ = product((2,), 64, 5, 32, zero="packed", group=group)
    next(t for t in m.graph.initializer if t.name == name).CopyFrom(
        numpy_helper.from_array(array, name)
    )
    with pytest.raises(UserError, match=f"MatMulNBits 'own' of the model: {text}"):
        uopc.onnx.load(m)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("zero", ["", "packed"])
def test_codes_are_read_as_they_are(zero: str, dtype: Any) -> None:
    """A step of a decoder: what a program keeps is the packed weights, and what it has made for
    each block; one kernel reads them, and one puts the input in their order."""
    m, given, wanted = product((1,), 1024, 512, 128, zero=zero, dtype=dtype)
    f = uopc.onnx.load(m, threads=1)
    near(f(**given), wanted)
    assert f.program is not None and len(f.program.kernels) == 2
    data = [u for u in f.program._source.request.graph.toposort() if u.op is uopc.Ops.DATA]
    assert sorted(u.shape for u in data if u.dtype is dtypes.uint8)[-1] == (512, 8, 64)
    assert sum(u.arg.array.nbytes for u in data) <= 512 * 8 * (64 + 4 + 1)


@pytest.mark.parametrize("zero", ["", "packed"])
def test_codes_are_looked_up_in_words(zero: str) -> None:
    """Groups of 128: four bytes side by side are a word, and the input is packed in their order."""
    m, *_ = product((1,), 1024, 512, 128, zero=zero)
    program = uopc.onnx.load(m, threads=1).program
    assert program is not None
    kernel = lowered_for("workstation", program._source.request.graph).kernels[-1]
    opts = [(o.op, o.arg) for o in kernel.arg.opts]
    assert ("UNROLL", 4) in opts
    assert "PACK" in [op for op, _ in opts]


# ---------------------------------------------------------------- GatherBlockQuantized
def table(
    kind: str, bits: int, shape: tuple[int, ...], block: int, axes: tuple[int, int], zero: bool,
    dtype: Any, at: np.ndarray,
) -> tuple[onnx.ModelProto, Arrays, np.ndarray]:  # fmt: skip
    """A model, its indices, and the rows in float64. `axes`: gathered, in blocks."""
    rng = np.random.default_rng(0)
    least = -(1 << bits - 1) if kind == "int4" else 0
    own = list(shape)
    own[axes[1]] = -(-shape[axes[1]] // block)
    q, z = (rng.integers(least, least + (1 << bits), s) for s in (shape, own))
    scale = (rng.random(own) + 0.1).astype(dtype)

    def held(v: np.ndarray) -> np.ndarray:
        return packed(v, bits) if kind == "uint8" else v.astype(getattr(ml_dtypes, kind))

    constants = {"d": held(q), "s": scale} | ({"z": held(z)} if zero else {})
    z = z if zero else np.full(own, 1 << bits - 1 if kind == "uint8" else 0)
    of = np.arange(shape[axes[1]]) // block
    w = (q - np.take(z, of, axes[1])) * np.take(scale.astype(np.float64), of, axes[1])
    names = ["d", "a", "s", *(["z"] if zero else [])]
    options = {"bits": bits, "block_size": block, "gather_axis": axes[0], "quantize_axis": axes[1]}
    m = model("GatherBlockQuantized", names, {"a": at}, constants, **options)
    return m, {"a": at}, np.take(w, at, axes[0], mode="wrap")


AT = np.array([[1, -2, 3], [0, 4, 4]])


@pytest.mark.few(5)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize(("shape", "axes"), [((7, 72), (0, 1)), ((5, 3, 64), (0, 2))])
@pytest.mark.parametrize(("kind", "bits"), [("uint8", 2), ("uint8", 4), ("uint8", 8), ("int4", 4)])
def test_rows_of_tables(
    kind: str, bits: int, shape: tuple[int, ...], axes: tuple[int, int], zero: bool, dtype: Any
) -> None:
    m, given, wanted = table(kind, bits, shape, 32, axes, zero, dtype, AT)
    got = checked(m, given, wanted)
    other = onnx_runtime(m, given)
    if other is not None:
        np.testing.assert_array_equal(got, other[0])


@pytest.mark.parametrize("kind", ["int4", "uint4"])
@pytest.mark.parametrize(("shape", "axes"), [((40, 7), (1, 0)), ((5, 40, 6), (0, 1))])
def test_blocks_along_other_axes(kind: str, shape: tuple[int, ...], axes: tuple[int, int]) -> None:
    checked(*table(kind, 4, shape, 16, axes, True, np.float32, AT))


def test_indices_out_of_range_give_zeros() -> None:
    at = np.array([100, 2, -9])
    m, given, wanted = table("uint8", 4, (7, 64), 16, (0, 1), False, np.float32, at)
    wanted[[0, 2]] = 0
    checked(m, given, wanted)
    none = np.zeros((0, 2), np.int64)
    got = checked(*table("uint8", 4, (7, 64), 16, (0, 1), False, np.float32, none))
    assert got.shape == (0, 2, 64)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"bits": 5}, "got 5"),
        ({"block_size": 12}, "block_size must be a power of 2.* got 12"),
        ({"gather_axis": 1}, "gather_axis must differ from quantize_axis"),
        ({"gather_axis": 1, "quantize_axis": 0}, "must not be the last axis of packed"),
        ({"quantize_axis": 2}, "axis 2 is out of range for 2 dimensions"),
    ],
)
def test_bad_tables(attributes: dict[str, int], text: str) -> None:
    m, *_ = table("uint8", 4, (7, 64), 16, (0, 1), False, np.float32, AT)
    for a in m.graph.node[0].attribute:
        a.i = attributes.get(a.name, a.i)
    with pytest.raises((UserError, Unsupported), match=f"GatherBlockQuantized 'own' .*{text}"):
        uopc.onnx.load(m)


def test_a_bias_has_an_element_for_each_row() -> None:
    m, *_ = product((2,), 64, 5, 32, bias=True)
    (bias,) = [t for t in m.graph.initializer if t.name == "c"]
    bias.CopyFrom(numpy_helper.from_array(np.zeros((7, 1, 5), np.float32), "c"))
    with pytest.raises(UserError, match=r"'own' .*bias must have the shape \(5\), got \(7, 1, 5\)"):
        uopc.onnx.load(m)


def test_groups_of_the_columns_of_the_last_block_too() -> None:
    """Numbers for 80 columns, or for the 96 of three blocks."""
    group = np.random.default_rng(3).permutation(np.arange(80) // 32)
    m, given, wanted = product((2,), 80, 5, 32, group=group)
    (t,) = [t for t in m.graph.initializer if t.name == "g"]
    more = np.concatenate([numpy_helper.to_array(t), np.zeros(16, np.int32)])
    t.CopyFrom(numpy_helper.from_array(more, "g"))
    checked(m, given, wanted)


@pytest.mark.parametrize(
    ("name", "array", "text"),
    [
        ("s", np.ones((6, 4), np.float32), r"scales must have the shape \(7, 4\), got \(6, 4\)"),
        ("s", np.ones((7, 5), np.float32), r"scales must have the shape \(7, 4\), got \(7, 5\)"),
        ("z", np.ones((7, 4), np.uint8), r"zero_points must have the shape \(7, 2\), got \(7, 4\)"),
        ("i", np.ones(2, np.float32), "indices must be integers, got float32"),
    ],
)
def test_bad_operands_of_tables(name: str, array: np.ndarray, text: str) -> None:
    names = ["d", "i", "s", "z"]
    given = {
        "d": np.ones((7, 32), np.uint8), "i": np.ones(2, np.int64),
        "s": np.ones((7, 4), np.float32), "z": np.ones((7, 2), np.uint8),
    } | {name: array}  # fmt: skip
    m = model("GatherBlockQuantized", names, {"i": given.pop("i")}, given, block_size=16)
    with pytest.raises(UserError, match=f"GatherBlockQuantized 'own' of the model: {text}"):
        uopc.onnx.load(m)


def test_tables_of_floats_are_refused() -> None:
    m, *_ = table("uint8", 8, (7, 64), 16, (0, 1), False, np.float32, AT)
    floats = np.ones((7, 64), ml_dtypes.float8_e4m3fn)
    m.graph.initializer[0].CopyFrom(numpy_helper.from_array(floats, "d"))
    with pytest.raises(Unsupported, match="must be int4, uint4 or uint8, got fp8e4m3"):
        uopc.onnx.load(m)


@pytest.mark.few(3)
# ---------------------------------------------------------------- DequantizeLinear in blocks
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("kind", ["int4", "uint4"])
@pytest.mark.parametrize(("axis", "block"), [(0, 16), (1, 32), (0, 24)])
def test_dequantised_weights_of_four_bits(kind: str, axis: int, block: int, zero: bool) -> None:
    rng = np.random.default_rng(0)
    shape = (72, 34)
    own = [-(-d // block) if i == axis else d for i, d in enumerate(shape)]
    low = -8 if kind == "int4" else 0
    q, z = (rng.integers(low, low + 16, s).astype(getattr(ml_dtypes, kind)) for s in (shape, own))
    scale, x = rng.random(own).astype(np.float32), rng.standard_normal((3, 72)).astype(np.float32)
    names = ["w", "s", *(["z"] if zero else [])]
    m = model("MatMul", ["a", "f"], {"a": x}, {"w": q, "s": scale, "z": z}, domain="")
    node = helper.make_node("DequantizeLinear", names, ["f"], axis=axis, block_size=block)
    m.graph.node.insert(0, node)
    of = np.arange(shape[axis]) // block
    wide = np.take(z.astype(np.float64), of, axis) if zero else 0
    w = (q.astype(np.float64) - wide) * np.take(scale.astype(np.float64), of, axis)
    checked(m, {"a": x}, x.astype(np.float64) @ w)


# ---------------------------------------------------------------- normalisations
def rows(dtype: Any) -> Arrays:
    rng = np.random.default_rng(0)
    shapes = {"x": (2, 3, 64), "k": (2, 3, 64), "g": (64,), "b": (64,), "c": (64,)}
    return {k: rng.standard_normal(s).astype(dtype) for k, s in shapes.items()}


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("epsilon", [{}, {"epsilon": 0.01}])
def test_root_mean_square(dtype: Any, epsilon: dict[str, float]) -> None:
    v = rows(dtype)
    x = v["x"].astype(np.float64)
    root = np.sqrt((x * x).mean(-1, keepdims=True) + epsilon.get("epsilon", 1e-5))
    op = "SimplifiedLayerNormalization"
    m = model(op, ["x", "g"], {"x": v["x"]}, {"g": v["g"]}, domain="", **epsilon)
    checked(m, {"x": v["x"]}, x / root * v["g"])
    m = model(op, ["x", "g"], {"x": v["x"]}, {"g": v["x"][1]}, domain="", axis=1)
    checked(m, {"x": v["x"]}, None)
    m = model(op, ["x", "g"], {"x": v["x"]}, {"g": v["g"]}, "y r", domain="")
    m.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    checked(m, {"x": v["x"]}, None)


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("epsilon", [{}, {"epsilon": 0.01}])
@pytest.mark.parametrize("key", [slice(None), slice(1), 0])
def test_sums_that_are_normalised(dtype: Any, epsilon: dict[str, float], key: Any) -> None:
    v = rows(dtype)
    given = {"x": v["x"], "k": v["k"][key]}
    x = given["x"].astype(np.float64) + given["k"]
    least = epsilon.get("epsilon", 1e-12)
    op = "SkipSimplifiedLayerNormalization"
    m = model(op, ["x", "k", "g"], given, {"g": v["g"]}, **epsilon)
    checked(m, given, x / np.sqrt((x * x).mean(-1, keepdims=True) + least) * v["g"])
    m = model(op, ["x", "k", "g", "b"], given, {"g": v["g"], "b": v["b"]}, "y - - t")
    checked(m, given, None)
    apart = x - x.mean(-1, keepdims=True)
    op = "SkipLayerNormalization"
    m = model(op, ["x", "k", "g"], given, {"g": v["g"]}, **epsilon)
    checked(m, given, apart / np.sqrt((apart**2).mean(-1, keepdims=True) + least) * v["g"])
    more = {k: v[k] for k in "gbc"}
    checked(model(op, ["x", "k", "g", "b", "c"], given, more, "y - - t"), given, None)


# ---------------------------------------------------------------- positions
def turned(x: np.ndarray, places: np.ndarray, angles: np.ndarray, pairs: bool) -> np.ndarray:
    """Complex numbers times e to the angles: halves of a head, or neighbours."""
    half = angles.shape[1]
    x = x.astype(np.float64)
    part = x[..., : 2 * half]
    a, b = (part[..., ::2], part[..., 1::2]) if pairs else (part[..., :half], part[..., half:])
    z = (a + 1j * b) * np.exp(1j * angles[places])[:, None]
    new = x.copy()
    if pairs:
        new[..., : 2 * half : 2], new[..., 1 : 2 * half : 2] = z.real, z.imag
    else:
        new[..., :half], new[..., half : 2 * half] = z.real, z.imag
    return new


@pytest.mark.few(4)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("one", [False, True])
def test_rotated_positions(size: int, pairs: bool, one: bool, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x, angles = rng.standard_normal((2, 4, 3, size)), rng.standard_normal((20, 8))
    x = x.astype(dtype)
    places = np.array([2]) if one else np.array([[1, 2, 3], [5, 0, 19]])
    where = np.array([[2, 3, 4]] * 2) if one else places
    tables = {"i": places, "c": np.cos(angles).astype(dtype), "s": np.sin(angles).astype(dtype)}
    options: dict[str, Any] = {"interleaved": int(pairs)}
    if size > 16:
        options |= {"rotary_embedding_dim": 16, "num_heads": 4}
    wanted = turned(x, where, angles, pairs)
    names = ["a", "i", "c", "s"]
    checked(model("RotaryEmbedding", names, {"a": x}, tables, **options), {"a": x}, wanted)
    flat = x.transpose(0, 2, 1, 3).reshape(2, 3, -1)
    m = model("RotaryEmbedding", names, {"a": flat}, tables, **options)
    checked(m, {"a": flat}, wanted.transpose(0, 2, 1, 3).reshape(flat.shape))


@pytest.mark.parametrize(
    ("shape", "options", "text"),
    [
        ((2, 3, 16), {"is_packed_batching": 1}, "is_packed_batching"),
        ((2, 3, 16), {"rotary_embedding_dim": 16}, "needs num_heads, which is missing"),
        ((2, 3, 16), {"num_heads": 2}, "angles for 16 numbers of a head, which has 8"),
        ((3, 16), {}, r"input must have 3 or 4 dimensions, got \(3, 16\)"),
    ],
)
def test_bad_positions(shape: tuple[int, ...], options: dict[str, int], text: str) -> None:
    x, angles = np.zeros(shape, np.float32), np.zeros((20, 8), np.float32)
    tables = {"i": np.zeros((2, 3), np.int64), "c": angles, "s": angles}
    m = model("RotaryEmbedding", ["a", "i", "c", "s"], {"a": x}, tables, **options)
    with pytest.raises((UserError, Unsupported), match=f"RotaryEmbedding 'own' .*{text}"):
        uopc.onnx.load(m)


@pytest.mark.parametrize(
    ("c", "s", "options", "text"),
    [
        ((8,), (8,), {}, r"cos_cache must be a matrix of angles, got \(8\)"),
        ((20, 0), (20, 0), {}, r"cos_cache must be a matrix of angles, got \(20, 0\)"),
        ((20, 8), (9, 8), {}, r"sin_cache must have the shape \(20, 8\), got \(9, 8\)"),
        ((20, 9), (20, 9), {}, "the last size of input must be a multiple of 18, got 16"),
        ((20, 3), (20, 3), {}, "the last size of input must be a multiple of 6, got 16"),
        ((20, 4), (20, 4), {"num_heads": 1, "rotary_embedding_dim": 6},
         "rotary_embedding_dim must be 8, .*got 6"),
    ],
)  # fmt: skip
def test_bad_angles(
    c: tuple[int, ...], s: tuple[int, ...], options: dict[str, int], text: str
) -> None:
    tables = {"i": np.zeros((2, 3), np.int64), "c": np.ones(c, "f4"), "s": np.ones(s, "f4")}
    given = {"a": np.zeros((2, 3, 16), np.float32)}
    m = model("RotaryEmbedding", ["a", "i", "c", "s"], given, tables, **options)
    with pytest.raises(UserError, match=f"RotaryEmbedding 'own' of the model: {text}"):
        uopc.onnx.load(m)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_results_of_norms_have_the_shape_of_the_input(op: str) -> None:
    cases: list[tuple[tuple[int, ...], tuple[int, ...], Any, str]] = [
        ((5, 2, 3, 8), (8,), np.float32, r"the sum must have .* got \(5, 2, 3, 8\)"),
        ((2, 3, 8), (4, 2, 3, 8), np.float32, r"the result must have .* got \(4, 2, 3, 8\)"),
        ((2, 3, 8), (8,), np.int32, "expected floats, got int32"),
    ]
    for skip, scale, dtype, text in cases:
        given = {"a": np.ones((2, 3, 8), dtype), "b": np.ones(skip, dtype)}
        m = model(op, ["a", "b", "s"], given, {"s": np.ones(scale, dtype)})
        with pytest.raises(UserError, match=f"{op} 'own' of the model: {text}"):
            uopc.onnx.load(m)


def test_a_norm_has_the_dtype_of_its_scale() -> None:
    given = {"a": np.arange(16, dtype=np.float16).reshape(2, 8)}
    scale = {"s": np.linspace(1, 2, 8, dtype=np.float32)}
    m = model("SimplifiedLayerNormalization", ["a", "s"], given, scale, domain="")
    a = given["a"].astype(np.float32)
    wanted = a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-5) * scale["s"]
    assert checked(m, given, wanted).dtype == np.float32
