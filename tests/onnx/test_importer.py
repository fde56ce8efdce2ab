"""Models: ONNX's own node tests, symbolic sizes, weights in files, names, and hostile models."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import uopc
import uopc.onnx
from tests.onnx_nodes.cases import cases, excluded, run
from uopc.errors import Unsupported, UserError
from uopc.onnx.node import Decides

HEAD = '<ir_version: 8, opset_import: ["": 18]>'


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


# ---------------------------------------------------------------- ONNX's tests
@pytest.mark.parametrize("part", range(118))
@pytest.mark.few(2)
def test_node_tests(part: int) -> None:
    known = excluded()
    wrong = {}
    for name in cases():
        if zlib.crc32(name.encode()) % 118 == part:
            outcome = run(cases()[name])
            if (outcome == "passed") == (name in known):
                wrong[name] = outcome
    assert not wrong


def test_every_excluded_test_exists_and_has_a_reason() -> None:
    assert excluded().keys() <= cases().keys()
    assert all(excluded().values())


# ---------------------------------------------------------------- what users do
def test_one_program_for_each_batch() -> None:
    f = uopc.onnx.load(model("g (float[n, 3] x) => (float[n] y) { y = ReduceSum<keepdims=0>(x, a) }"
                             .replace("{ y", "<int64[1] a = {1}> { y")))  # fmt: skip
    for n in (1, 2, 7):
        x = np.random.default_rng(n).random((n, 3), np.float32)
        np.testing.assert_allclose(f(x), x.sum(1), rtol=1e-6)


def test_shapes_of_symbolic_sizes() -> None:
    """As exporters write a flatten of all but the first dimension."""
    text = """g (float[n, 3, k] x) => (float[n, m] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}> {
        s = Shape(x)  a = Slice(s, zero, one)  b = Slice(s, one, three)
        p = ReduceProd<keepdims=1>(b)  t = Concat<axis=0>(a, p)  y = Reshape(x, t) }"""
    f = uopc.onnx.load(model(text), dims={"n": (1, 9), "k": (1, 9)})
    for n, k in ((1, 1), (4, 5), (9, 2)):
        x = np.random.default_rng(n).random((n, 3, k), np.float32)
        np.testing.assert_array_equal(f(x), x.reshape(n, 3 * k))


def test_names_are_the_models() -> None:
    nodes = [helper.make_node("Add", ["input.1", "/a"], ["/layer.0/out"], name="/layer.0/Add")]
    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("input.1", "/a")]
    out = [helper.make_tensor_value_info("/layer.0/out", TensorProto.FLOAT, [2])]
    f = uopc.onnx.load(helper.make_model(helper.make_graph(nodes, "g", kinds, out)))
    assert (f.inputs, f.outputs) == (["input.1", "/a"], ["/layer.0/out"])
    x, y = np.ones(2, np.float32), np.arange(2, dtype=np.float32)
    np.testing.assert_array_equal(f(**{"/a": y, "input.1": x}), x + y)
    with pytest.raises(UserError, match=r"no input 'b'; there are input\.1, /a"):
        f(x, b=y)


def test_several_outputs_are_a_dict() -> None:
    text = "g (float[3] x) => (float[3] a, float[3] b) { a = Neg(x) b = Abs(a) }"
    f = uopc.onnx.load(model(text))
    got = f(np.array([1, -2, 3], np.float32))
    assert list(got) == ["a", "b"] and got["b"].tolist() == [1, 2, 3]


def test_a_shape_that_hangs_on_an_input() -> None:
    text = "g (float[6] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }"
    with pytest.raises(Decides, match=r"Reshape -> \['y'\] of the model: .* 's': pass constants"):
        uopc.onnx.load(model(text))
    f = uopc.onnx.load(model(text), constants={"s": np.array([2, 3])})
    assert f(np.arange(6, dtype=np.float32)).shape == (2, 3)


def test_a_model_is_a_graph() -> None:
    g = uopc.onnx.graph(model("g (float[3] x) => (float[3] y) { h = Sin(x) y = Mul(h, x) }"))
    x, y = g.inputs["x"], g.outputs["y"]
    slope = uopc.compile(uopc.grad(y.sum(), x))
    at = np.array([0.1, 1.0, 2.0], np.float32)
    np.testing.assert_allclose(slope(at), np.sin(at) + at * np.cos(at), rtol=1e-5)
    assert set(g.operators.values()) == {"native"}


def test_onnx_is_not_imported_by_uopc() -> None:
    code = "import sys, uopc; sys.exit('onnx' in sys.modules or 'uopc.onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from uopc.cli.main import main

    file = tmp_path / "net.onnx"
    onnx.save(model("g (float[3] x) => (float[3] y) { y = Sin(x) }"), file)
    assert main(["dump", str(file), "--at", "input"]) == 0
    assert "= sin" in capsys.readouterr().out


# ---------------------------------------------------------------- weights
def with_weights(folder: Path, location: str = "w.bin", offset: int = 0, length: int = 24) -> Path:
    """A model whose weight lies in a file."""
    m = model("g (float[2, 3] x) => (float[2, 3] y) <float[2, 3] w> { y = Add(x, w) }")
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3])
    w.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        w.external_data.add(key=key, value=str(value))
    del m.graph.initializer[:]
    m.graph.initializer.append(w)
    (folder / "w.bin").write_bytes(bytes(3) + np.arange(8, dtype=np.float32).tobytes())
    path = folder / "m.onnx"
    path.write_bytes(m.SerializeToString())
    return path


@pytest.mark.parametrize("offset", [3, 7])
def test_weights_in_a_file(tmp_path: Path, offset: int) -> None:
    """Also at places that are no multiples of the item's size."""
    f = uopc.onnx.load(with_weights(tmp_path, offset=offset))
    want = np.arange(8, dtype=np.float32)[(offset - 3) // 4 :][:6].reshape(2, 3)
    np.testing.assert_array_equal(f(np.zeros((2, 3), np.float32)), want)


@pytest.mark.parametrize(("given", "message"), [
    ({"location": "../secret"}, "outside of the model's folder"),
    ({"location": "/etc/passwd"}, "outside of the model's folder"),
    ({"location": "none.bin"}, "cannot read the weights"),
    ({"offset": 30}, "bytes 30 to 54 are not in the 35 bytes"), ({"offset": -8}, "bytes -8"),
    ({"length": 20}, "has 20 bytes, its shape"),
])  # fmt: skip
def test_weights_that_are_not_there(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        uopc.onnx.load(with_weights(tmp_path, **given))


# ---------------------------------------------------------------- hostile models
HOSTILE = {
    "a circle": ("g (float[2] x) => (float[2] y) { y = Add(x, z)  z = Neg(y) }", "'z', which"),
    "no such input": ("g (float[2] x) => (float[2] y) { y = Neg(q) }", "reads 'q', which no node"),
    "no such output": ("g (float[2] x) => (float[2] y) { z = Neg(x) }", "the output of the graph"),
    "an unknown operator": (
        "g (float[2] x) => (float[2] y) { y = Nonsense(x) }",
        "no operator Nonsense of version .*: define a function of this name"),
    "a misspelled operator": (
        "g (float[2] x) => (float[2] y) { y = Rellu(x) }", r"did you mean Relu\?"),
    "an operator by a value": (
        "g (float[2] x) => (float[n] y) { a = Cast<to=7>(x)  y = Expand(x, a) }",
        r"the value of 'x': pass constants=\{'x': array\}"),
    "shapes that do not fit": (
        "g (float[2] x, float[3] z) => (float[2] y) { y = Add(x, z) }", r"Add -> \['y'\] of the"),
    "an axis that is none": (
        "g (float[2] x) => (float[2] y) { y = Softmax<axis=7>(x) }", "axis 7 is out of range"),
    "a missing input": ("g (float[2] x) => (float[2] y) { y = Add(x) }", "input 1 is missing"),
    "a string": ("g (string[2] x) => (string[2] y) { y = Identity(x) }", "has strings: pass it"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_models(name: str) -> None:
    text, message = HOSTILE[name]
    with pytest.raises((UserError, Unsupported), match=message):
        uopc.onnx.load(model(text))


def test_tensors_that_lie() -> None:
    m = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    m.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    m.graph.initializer[0].dims[0] = 1 << 40
    with pytest.raises(UserError, match=r"tensor 'w' has 8 bytes, its shape \(1099511627776,\)"):
        uopc.onnx.load(m)
    m.graph.initializer[0].dims[0] = -1
    with pytest.raises(UserError, match="negative size"):
        uopc.onnx.load(m)


def test_functions_without_end() -> None:
    text = """<ir_version: 8, opset_import: ["": 18, "me": 1]>
        g (float[2] x) => (float[2] y) { y = me.f(x) }
        <domain: "me", opset_import: ["me": 1]> f (x) => (y) { y = me.f(x) }"""
    with pytest.raises(UserError, match="64 deep"):
        uopc.onnx.load(parser.parse_model(text))


@pytest.mark.parametrize("data", [b"", b"no model", b"\x08\x08"])
def test_no_models(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not an ONNX model"):
        uopc.onnx.load(data)
    with pytest.raises(UserError, match="cannot read"):
        uopc.onnx.load(tmp_path / "none.onnx")


def test_dims_and_constants_are_checked() -> None:
    text = "g (float[n, 3] x) => (float[n, 3] y) { y = Neg(x) }"
    with pytest.raises(UserError, match="no dimension 'k'"):
        uopc.onnx.load(model(text), dims={"k": 3})
    with pytest.raises(UserError, match="no input 'z'"):
        uopc.onnx.load(model(text), constants={"z": np.ones(3)})
    for size in ((1, 2, 3), "many", None):
        with pytest.raises(UserError, match="'n' must be a number or"):
            uopc.onnx.load(model(text), dims={"n": size})


def test_nodes_have_the_models_as_their_origin(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    m = model("g (float[29] u) => (float[29] y) { h = Sin(u) y = Mul(h, u) }")
    m.graph.node[0].name = "/wave/Sin"
    onnx.save(m, file)
    f = uopc.onnx.load(file)
    assert f.program.kernels[0].origin == f"{file}:1, {file}:2"
    code, line = f.graph.outputs["y"].src[0].origin
    assert (code.co_name, line) == ("Sin '/wave/Sin'", 1)


def test_inputs_sizes_and_outputs_without_a_node_have_no_origin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from uopc.cli.main import main

    file = tmp_path / "net.onnx"
    text = "g (float[h, 3] x) => (float[h, 3] y, float[2] w) <float[2] w = {1, 2}> { y = Exp(x) }"
    onnx.save(model(text), file)
    assert main(["dump", str(file), "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert [k["origin"] for k in kernels] == [["net.onnx:1"], []]
    x = uopc.param("x", (uopc.variable("h", 1, 4096), 3)) + 1  # a line takes what has none
    assert x.src[0].origin[0].co_filename == __file__


def test_arrays_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from uopc.cli.main import main

    file, x = tmp_path / "net.onnx", np.array([1, -2, 3], np.float32)
    onnx.save(model("g (float[3] x) => (float[3] y) { y = Abs(x) }"), file)
    np.save(tmp_path / "x.npy", x)
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path / "out")]
    assert main(["run", str(file), "--repeat", "1", *given]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "0.npy"), np.abs(x))
    assert main(["run", str(file), "--input", "x=none.npy"]) == 1
    assert "none.npy" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", str(file), "--input", "z=x.npy"])
    assert "no input 'z'; there are x" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", str(file), "--input", "x"])
    assert "expected NAME=FILE, got 'x'" in capsys.readouterr().err


def test_an_array_from_a_file_gives_the_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from uopc.cli.main import main

    file, x = tmp_path / "net.onnx", np.arange(-3, 3, dtype=np.float32).reshape(3, 2)
    onnx.save(model("g (float[batch, 2] x) => (float[batch, 2] y) { y = Abs(x) }"), file)
    np.save(tmp_path / "x.npy", x)
    given = ["run", str(file), "--repeat", "1", "--input", f"x={tmp_path / 'x.npy'}"]
    assert main([*given, "--output", str(tmp_path / "out")]) == 0
    assert "batch = 3" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "0.npy"), np.abs(x))
    assert main([*given, "--set", "batch=4"]) == 1
    assert "'batch' is 4 by name, but 3" in capsys.readouterr().err


# ---------------------------------------------------------------- regions
def test_regions_of_older_models() -> None:
    """Before version 16 boxes are of whole pixels: those of the whole image give it back."""
    text = """<ir_version: 8, opset_import: ["": 12]>
        g (float[1, 1, 4, 4] x, float[1, 4] r, int64[1] i) => (float[1, 1, 2, 2] y) {
        y = RoiAlign<output_height=2, output_width=2, sampling_ratio=1>(x, r, i) }"""
    x = np.arange(16, dtype="f4").reshape(1, 1, 4, 4)
    f = uopc.onnx.load(parser.parse_model(text))
    got = f(x, np.array([[0, 0, 4, 4]], "f4"), np.zeros(1, np.int64))
    np.testing.assert_array_equal(got[0, 0], x[0, 0, 1::2, 1::2])


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("how", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("samples", [2, 0])
@pytest.mark.few(3)
def test_regions(mode: str, how: str, samples: int) -> None:
    """Boxes that are partly or wholly outside, too, against ONNX's evaluator; with as many samples
    for all boxes, or as many as a box has pixels."""
    m = model(f"""g (float[2, 3, 7, 9] x, float[5, 4] r, int64[5] i) => (float[5, 3, 3, 2] y) {{
        y = RoiAlign<output_height=3, output_width=2, sampling_ratio={samples}, spatial_scale=0.5,
            mode="{mode}", coordinate_transformation_mode="{how}">(x, r, i) }}""")
    rng = np.random.default_rng(0)
    x = rng.random((2, 3, 7, 9), np.float32)
    boxes = [[0, 0, 17, 13], [2, 3, 6, 9], [-8, -8, 4, 5], [12, 9, 40, 30], [5, 5, 5, 5]]
    given = (x, np.array(boxes, "f4"), np.array([0, 1, 0, 1, 1]))
    (wanted,) = ReferenceEvaluator(m).run(None, dict(zip("xri", given)))
    np.testing.assert_allclose(uopc.onnx.load(m)(*given), wanted, 1e-5, 1e-5)


# ---------------------------------------------------------------- loops

def loop_model(
    count: str, condition: str, body: str, outs: str, inputs: str = ""
) -> onnx.ModelProto:
    """A loop over a state `s`, whose body gives `go`, `so` and maybe a row `r`."""
    rows = ", float[n, 4] rows" if "rows" in outs else ""
    made = ", float[4] r" if "rows" in outs else ""
    return model(f"""g (float[4] x{inputs}) => (float[4] last{rows})
        <int64 count = {{{count}}}, bool yes = {{1}}, float half = {{0.5}}, float most = {{3.0}}> {{
        {outs} = Loop (count, {condition}, x) <body = b (int64 i, bool c, float[4] s)
            => (bool go, float[4] so{made}) {{ {body} }}> }}""")


def reference(proto: onnx.ModelProto, **given: Any) -> list[Any]:
    return ReferenceEvaluator(proto).run(None, given)


@pytest.mark.parametrize("count", [0, 1, 7, 5000])
def test_a_loop_is_one_of_the_graph(count: int) -> None:
    proto = loop_model(
        str(count), "yes",
        """t = Mul(s, half) f = Cast<to=1>(i) k = Sin(f) u = Add(t, k) so = Add(u, x)
        go = Identity(c) r = Sub(so, s)""", "last, rows",
    )  # fmt: skip
    x = np.random.default_rng(0).random(4, np.float32)
    f = uopc.onnx.load(proto)
    wanted = reference(proto, x=x) if count else [x, np.zeros((0, 4), np.float32)]
    for got, one in zip(f(x).values(), wanted, strict=True):
        np.testing.assert_allclose(got, one, rtol=2e-5, atol=1e-6)
    assert len(f.program.kernels) < 6


def test_a_loop_that_a_value_ends() -> None:
    proto = loop_model(
        "100", "yes", """so = Add(s, half) m = ReduceMax<keepdims=0>(so)
        go = Less(m, most)""", "last",
    )  # fmt: skip
    x = np.random.default_rng(0).random(4, np.float32)
    np.testing.assert_allclose(uopc.onnx.load(proto)(x), reference(proto, x=x)[0])
    capped = loop_model("2", "yes", "so = Add(s, half) m = ReduceMax<keepdims=0>(so) "
                        "go = Less(m, most)", "last")  # fmt: skip
    np.testing.assert_allclose(uopc.onnx.load(capped)(x), reference(capped, x=x)[0])


def test_a_loop_whose_begin_is_an_input() -> None:
    proto = loop_model("3", "maybe", "so = Add(s, half) go = Identity(c)", "last", ", bool maybe")
    x = np.random.default_rng(0).random(4, np.float32)
    f = uopc.onnx.load(proto)
    for begins in (True, False):
        maybe = np.array(begins)
        np.testing.assert_allclose(f(x, maybe), reference(proto, x=x, maybe=maybe)[0])


def test_a_loop_around_a_sort_is_launched_again_and_again() -> None:
    proto = model("""g (float[n, 100] x) => (float[100] last, float[n, 100] rows)
        <bool yes = {1}, int64[1] k = {100}, int64[1] zero = {0}, int64[1] one = {1}> {
        sizes = Shape(x) a = Slice(sizes, zero, one) e = Squeeze(a, zero)
        first = ReduceSum<keepdims=0>(x, zero)
        last, rows = Loop (e, yes, first) <body = b (int64 i, bool c, float[100] s)
            => (bool go, float[100] so, float[100] r) {
            v = Gather<axis=0>(x, i) t = Add(s, v) so, where = TopK(t, k)
            go = Identity(c) r = Sub(so, s) }> }""")
    f = uopc.onnx.load(proto)
    for n in (1, 5):
        x = np.random.default_rng(n).random((n, 100), np.float32)
        for got, wanted in zip(f(x).values(), reference(proto, x=x), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    (loop,) = f.program._runner.plan.repeats
    assert loop.times.variable == "n"


def test_scans_of_their_own_lengths() -> None:
    """Version 8, by its text: ONNX's evaluator has no such scan."""
    proto = parser.parse_model("""<ir_version: 3, opset_import: ["": 8]>
        g (int64[3] n, float[3, 2] s, float[3, 5, 2] x) => (float[3, 2] last, float[3, 5, 2] rows) {
        last, rows = Scan<num_scan_inputs=1, body = b (float[2] a, float[2] v)
            => (float[2] t, float[2] r) { t = Add(a, v) r = Sub(t, v) }>(n, s, x) }""")
    rng = np.random.default_rng(0)
    s, x = rng.random((3, 2), np.float32), rng.random((3, 5, 2), np.float32)
    lengths = np.array([5, 0, 3])
    got = uopc.onnx.load(proto)(lengths, s, x)
    for b, length in enumerate(lengths):
        steps = np.cumsum(np.concatenate([s[b : b + 1], x[b]]), 0)
        np.testing.assert_allclose(got["last"][b], steps[length], rtol=1e-6)
        np.testing.assert_allclose(got["rows"][b, :length], steps[:length], rtol=1e-5, atol=1e-6)
        assert not got["rows"][b, length:].any()


def test_a_loop_whose_steps_change_a_shape() -> None:
    proto = model("""g (float[4] x) => (float[n] last)
        <int64 count = {3}, bool yes = {1}> {
        last = Loop (count, yes, x) <body = b (int64 i, bool c, float[m] s)
            => (bool go, float[k] so) { so = Concat<axis=0>(s, x) go = Identity(c) }> }""")
    x = np.random.default_rng(0).random(4, np.float32)
    np.testing.assert_array_equal(uopc.onnx.load(proto)(x), np.tile(x, 4))


def test_what_is_known_stays_known_behind_a_loop() -> None:
    """A shape that a loop computes."""
    proto = model("""g (float[4] x) => (float[n, m] y)
        <int64 count = {2}, bool yes = {1}, int64[2] one = {1, 1}, int64[2] start = {4, 1}> {
        shape = Loop (count, yes, start) <body = b (int64 i, bool c, int64[2] s)
            => (bool go, int64[2] so) { so = Mul(s, one) go = Identity(c) }>
        y = Reshape(x, shape) }""")
    assert uopc.onnx.load(proto)(np.ones(4, np.float32)).shape == (4, 1)


def test_a_loaded_model_is_exported(tmp_path: Path) -> None:
    """As its program is."""
    f = uopc.onnx.load(model("g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    uopc.export(f, tmp_path / "m", kind="c")
    uopc.export(f.program, tmp_path / "n" / "m", kind="c")
    assert (tmp_path / "m.c").read_text("utf-8") == (tmp_path / "n" / "m.c").read_text("utf-8")
