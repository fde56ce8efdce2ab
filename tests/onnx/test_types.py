"""Types of few bits, strings, and outputs that are no tensors, beside ml_dtypes and ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import uopc
import uopc.onnx
from tests.onnx_nodes.cases import cases, excluded
from uopc.errors import Unsupported, UserError
from uopc.onnx.node import Decides

FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model('<ir_version: 10, opset_import: ["": 25, "ai.onnx.ml": 3]>' + text)


def kind_of(dtype: Any) -> str:
    return {"float32": "float", "float64": "double"}.get(np.dtype(dtype).name, np.dtype(dtype).name)


# ---------------------------------------------------------------- few bits
def interesting(rng: np.random.Generator) -> Any:
    near = np.arange(-40, 41) / 8  # all halves between neighbours of four bits
    powers = np.ldexp(1.0, np.arange(-149, 128))
    wide = np.concatenate([powers, powers * 1.5, powers * 1.25, powers * 1.75])
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 2.0**-127, 3.4e38, 448.0]
    return np.concatenate([near, wide, -wide, rng.standard_normal(200) * 4, ends])


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_of_four_bits(dtype: Any) -> None:
    with np.errstate(over="ignore"):
        x = interesting(np.random.default_rng(0)).astype(dtype)
    text = f"g ({kind_of(dtype)}[n] x) => (float4e2m1[n] y) {{ y = Cast<to=23>(x) }}"
    f = uopc.onnx.load(model(text))
    numbers = ~np.isnan(x.astype(np.float64))
    wanted = x[numbers].astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    np.testing.assert_array_equal(f(x)[numbers], wanted)
    assert not f(x)[~numbers].any()


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_powers_of_two(mode: str, saturate: int) -> None:
    """By the text of ONNX: its own function is of normal numbers and rounds no others."""
    x = np.abs(interesting(np.random.default_rng(0)))
    with np.errstate(over="ignore"):
        x = x.astype(np.float32)
    f = uopc.onnx.load(
        model(f"""g (float[n] x) => (float8e8m0[n] y) {{
        y = Cast<to=24, saturate={saturate}, round_mode="{mode}">(x) }}""")
    )
    got = f(x)
    normal = (x >= 2.0**-126) & (x < 2.0**127)
    wanted = numpy_helper.to_float8e8m0(x[normal], bool(saturate), mode).astype(np.float32)
    np.testing.assert_array_equal(got[normal], wanted)
    assert np.isnan(got[np.isnan(x)]).all()
    outside = x[(x < 2.0**-127)], x[x > 1.5 * 2.0**127]
    least, most = (got[(x < 2.0**-127)], got[x > 1.5 * 2.0**127])
    assert len(outside[0]) and len(outside[1])
    if saturate:
        assert (least == 2.0**-127).all() and (most == 2.0**127).all()
    else:
        assert np.isnan(least).all()
        assert np.isnan(most[outside[1] == np.inf]).all()
    subnormal = (x >= 2.0**-127) & (x < 2.0**-126)
    step = {"up": x > 2.0**-127, "down": x < 0, "nearest": x >= 1.5 * 2.0**-127}[mode][subnormal]
    np.testing.assert_array_equal(got[subnormal], np.where(step, 2.0**-126, 2.0**-127))


def test_an_unknown_rounding_is_an_error() -> None:
    text = 'g (float[2] x) => (float8e8m0[2] y) { y = Cast<to=24, round_mode="odd">(x) }'
    with pytest.raises(UserError, match="round_mode must be up, down or nearest, got 'odd'"):
        uopc.onnx.load(model(text))


@pytest.mark.parametrize("name", ["int4", "uint4", "float4_e2m1fn", "float8_e8m0fnu", "int2"])
def test_weights_of_few_bits_in_a_file(name: str, tmp_path: Path) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    w = np.array([0, 1, 1, 1, 0, 1, 1], np.float32).astype(dtype)
    packed = numpy_helper.from_array(w, "w")
    m = model("g (float[7] x) => (float[7] y) <float[7] w> { f = Cast<to=1>(w)  y = Add(x, f) }")
    t = TensorProto(name="w", data_type=packed.data_type, dims=[7])
    t.data_location = TensorProto.EXTERNAL
    t.external_data.add(key="location", value="w.bin")
    del m.graph.initializer[:]
    m.graph.initializer.append(t)
    (tmp_path / "w.bin").write_bytes(packed.raw_data)
    onnx.save(m, tmp_path / "m.onnx")
    x = np.arange(7, dtype=np.float32)
    np.testing.assert_array_equal(uopc.onnx.load(tmp_path / "m.onnx")(x), x + w.astype(np.float32))
    (tmp_path / "w.bin").write_bytes(packed.raw_data[:1])
    with pytest.raises(UserError, match="tensor 'w'"):
        uopc.onnx.load(tmp_path / "m.onnx")


# ---------------------------------------------------------------- attention of 16 bits
def test_excluded_attentions_are_nearer_to_float64() -> None:
    """Than the results that ONNX's tests ask for, which differ from ours by one unit."""
    from tests.onnx_nodes.cases import _results, _value

    for name in [n for n in excluded() if "attention" in n and not n.endswith("expanded")]:
        case = cases()[name]
        wide = onnx.ModelProto()
        wide.CopyFrom(case.model)
        for v in [*wide.graph.input, *wide.graph.output]:
            if v.type.tensor_type.elem_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
                v.type.tensor_type.elem_type = TensorProto.DOUBLE
        ((inputs, outputs),) = case.data_sets
        given = {i.name: _value(v) for i, v in zip(case.model.graph.input, inputs)}
        doubles = {
            k: v.astype(np.float64) if v.dtype.name in ("float16", "bfloat16") else v
            for k, v in given.items()
        }  # fmt: skip
        exact = ReferenceEvaluator(wide).run(None, doubles)[0]
        ours, theirs = _results(case.model, given)[0], _value(outputs[0])
        errors = [np.abs(v.astype(np.float64) - exact) for v in (ours, theirs)]
        assert errors[0].max() < errors[1].max() and errors[0].mean() < errors[1].mean(), name


# ---------------------------------------------------------------- strings
def test_strings_are_known_while_a_model_is_read() -> None:
    m = model(
        """g (float[2] x) => (string[1, 2] s, int64[2] c, float[2] y)
        <string[2] a = {"x y", "z"}, string[1] b = {" w"}, int64[2] t = {1, 2}> {
        j = StringConcat(a, b)  p, c = StringSplit(j)
        r = Reshape(j, t)  s = Identity(r)  y = Neg(x) }"""
    )
    got = uopc.onnx.load(m)(np.array([1, 2], np.float32))
    assert got["s"].tolist() == [["x y w", "z w"]] and got["c"].tolist() == [3, 2]
    assert got["y"].tolist() == [-1, -2]


def test_an_input_of_strings_is_a_constant() -> None:
    m = model('g (string[n] s) => (int64[n] y) { y = ai.onnx.ml.LabelEncoder'
              '<keys_strings=["a", "b"], values_int64s=[7, 8]>(s) }')  # fmt: skip
    with pytest.raises(Unsupported, match="input 's' has strings: pass it by constants="):
        uopc.onnx.load(m)
    for s in (["b", "a", "c"], np.array([b"b", b"a", b"c"]), np.array(["b", "a", "c"], object)):
        assert uopc.onnx.load(m, constants={"s": np.asarray(s)})().tolist() == [8, 7, -1]
    with pytest.raises(UserError, match="must have strings only"):
        uopc.onnx.load(m, constants={"s": np.array([object()])})


@pytest.mark.parametrize(("number", "given", "wanted"), [
    (1, ["3.5", "-INF", "NaN", "1e3"], [3.5, -np.inf, np.nan, 1000]), (7, ["12", "-3"], [12, -3]),
])  # fmt: skip
def test_strings_and_numbers(number: int, given: list[str], wanted: list[float]) -> None:
    listed = ", ".join([f'"{s}"' for s in given])
    m = model(f"""g () => (float[n] y, string[n] t) <string[{len(given)}] s = {{{listed}}}> {{
        y = Cast<to={number}>(s)  t = Cast<to=8>(y) }}""")
    got = uopc.onnx.load(m)()
    np.testing.assert_array_equal(got["y"], wanted)
    assert [float(s) for s in got["t"]] == pytest.approx(wanted, nan_ok=True)


def test_a_string_that_is_no_number() -> None:
    m = model('g () => (float[1] y) <string[1] s = {"one"}> { y = Cast<to=1>(s) }')
    with pytest.raises(UserError, match="'one'"):
        uopc.onnx.load(m)


def test_strings_do_not_fill_the_memory() -> None:
    """A string that is doubled again and again, and one long string beside many short ones."""
    lines = " ".join([f"s{i + 1} = StringConcat(s{i}, s{i})" for i in range(60)])
    with pytest.raises(UserError, match="characters"):
        uopc.onnx.load(model(f'g () => (string[1] s60) <string[1] s0 = {{"ab"}}> {{ {lines} }}'))
    words = numpy_helper.from_array(np.array(["x" * 10_000] + ["y"] * 10_000, object), "s")
    m = model("g () => (string[n] y) { y = Identity(s) }")
    m.graph.initializer.append(words)
    with pytest.raises(UserError, match="characters"):
        uopc.onnx.load(m)


# ---------------------------------------------------------------- outputs
def test_a_sequence_is_a_list() -> None:
    m = model("""g (float[6] x) => (seq(float[2]) parts, float[6] y) <int64 each = {2}> {
        parts = SplitToSequence(x, each)  y = Neg(x) }""")
    x = np.arange(6, dtype=np.float32)
    f = uopc.onnx.load(m)
    got = f(x)
    assert [p.tolist() for p in got["parts"]] == [[0, 1], [2, 3], [4, 5]]
    assert got["y"].tolist() == (-x).tolist()
    assert list(f.graph.nodes) == ["parts[0]", "parts[1]", "parts[2]", "y"]


def test_labels_that_the_program_chooses() -> None:
    m = model("""g (float[n, 3] x) => (string[n, 1] y) <int64[2] shape = {-1, 1}> {
        k = ArgMax<axis=1, keepdims=0>(x)
        s = ai.onnx.ml.LabelEncoder<keys_int64s=[0, 2], values_strings=["low", "high"]>(k)
        y = Reshape(s, shape) }""")
    x = np.array([[3, 1, 2], [0, 1, 2], [0, 9, 2]], np.float32)
    assert uopc.onnx.load(m)(x).tolist() == [["low"], ["high"], ["_Unused"]]


def test_two_outputs_of_one_name() -> None:
    m = model("g (float[3] x) => (float[3] y) { y = Neg(x) }")
    m.graph.output.append(m.graph.output[0])
    with pytest.raises(UserError, match="different names"):
        uopc.onnx.load(m)


def test_branches_of_other_shapes_ask_for_the_condition() -> None:
    m = model("""g (float[3] x, bool c) => (float[n] y) {
        y = If(c) <then_branch = t () => (float[3] a) { a = Neg(x) },
                   else_branch = e () => (float[6] b) { b = Concat<axis=0>(x, x) }> }""")
    with pytest.raises(Decides, match="'c': pass constants"):
        uopc.onnx.load(m)
    x = np.arange(3, dtype=np.float32)
    for c, wanted in ((True, -x), (False, np.tile(x, 2))):
        f = uopc.onnx.load(m, constants={"c": np.array(c)})
        np.testing.assert_array_equal(f(x), wanted)


def test_helper_types_are_those_of_onnx() -> None:
    """The numbers of types of few bits, beside ONNX's own names."""
    from uopc.onnx.narrow import NARROW

    few = {n for n in range(1, 40) if _bits(n) < 8} | {TensorProto.FLOAT8E8M0}
    assert few == NARROW


def _bits(number: int) -> int:
    try:
        name = helper.tensor_dtype_to_np_dtype(number).name
    except (KeyError, TypeError):
        return 8
    return 4 if "4" in name[:7] and "64" not in name else 2 if name.endswith("int2") else 8
