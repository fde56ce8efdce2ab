"""The interface of ONNX Runtime beside ONNX Runtime itself, where it is installed."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, parser

import uopc.onnx
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.onnx import InferenceSession
from uopc.onnx.runtime import deciding
from uopc.onnx.signature import ModelSignature

HEAD = '<ir_version: 8, opset_import: ["": 18], producer_name: "made", model_version: 3>'
NET = HEAD + """g (float[n, 2] x, int64[k, ?] i) => (float[n, 2] y, int64 z)
    <float[2] w = {2, 3}> { y = Mul(x, w)  z = ReduceSum<keepdims=0>(i) }"""


def model(text: str = NET) -> bytes:
    made: bytes = parser.parse_model(text).SerializeToString()
    return made


def feed(n: int = 3) -> dict[str, np.ndarray]:
    return {"x": np.arange(2 * n, dtype="f4").reshape(n, 2), "i": np.arange(4).reshape(2, 2)}


def runtime(content: bytes) -> Any:
    ort = pytest.importorskip("onnxruntime", reason="the oracle is ONNX Runtime")
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


# ---------------------------------------------------------------- what a model is
KINDS = HEAD + """g (float[n, 2, ?] x, bool b, int8[0] c, string[1] s, optional(float16[q]) o,
    seq(double[2]) l) => (seq(double[2]) m, string[1] t) { m = Identity(l)  t = Identity(s) }"""


@pytest.mark.parametrize("text", [NET, KINDS])
def test_the_signature_is_that_of_onnx_runtime(text: str) -> None:
    content = model(text)
    own, other = ModelSignature.of(content), runtime(content)
    for mine, theirs in ((own.inputs, other.get_inputs()), (own.outputs, other.get_outputs())):
        assert [(a.name, a.type) for a in mine] == [(a.name, a.type) for a in theirs]
        tensors = [(a.shape, b.shape) for a, b in zip(mine, theirs) if a.type[:6] == "tensor"]
        assert all(a == b for a, b in tensors)
    mine, theirs = own.metadata, other.get_modelmeta()
    assert vars(mine) == {name: getattr(theirs, name) for name in vars(mine)}


def test_metadata_and_inputs_with_values() -> None:
    made = parser.parse_model(NET)
    helper.set_model_props(made, {"names": "a\nb", "empty": ""})
    made.graph.input.append(helper.make_tensor_value_info("w", 1, [2]))
    made.doc_string, made.domain = "what it is", "somewhere"
    content = made.SerializeToString()
    session, other = InferenceSession(content), runtime(content)
    assert vars(session.get_modelmeta()) == {
        name: getattr(other.get_modelmeta(), name) for name in vars(session.get_modelmeta())
    }
    assert [i.name for i in session.get_inputs()] == ["x", "i"]
    assert [i.name for i in session.get_overridable_initializers()] == ["w"]


def test_sizes_that_exporters_write_for_no_name() -> None:
    """A negative number and `?` are sizes without a name, each of its own."""
    made = parser.parse_model(HEAD + "g (float[n, m] x) => (float[n, m] y) { y = Relu(x) }")
    first, second = made.graph.input[0].type.tensor_type.shape.dim
    first.dim_value, second.dim_param = -1, "?"
    content = made.SerializeToString()
    assert list(ModelSignature.of(content).inputs[0].sizes.values()) == ["x_0", "x_1"]
    x = np.ones((2, 3), "f4")
    np.testing.assert_array_equal(InferenceSession(content).run(None, {"x": x})[0], x)


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 40, b"\x08\x07"])
def test_bytes_that_are_no_model(content: bytes) -> None:
    with pytest.raises(UserError, match="not an ONNX model"):
        InferenceSession(content)


def test_files_that_cannot_be_read(tmp_path: Any) -> None:
    with pytest.raises(UserError, match="cannot read"):
        InferenceSession(tmp_path / "missing.onnx")
    with pytest.raises(UserTypeError, match="path of an ONNX model"):
        InferenceSession(3)  # type: ignore[arg-type]


# ---------------------------------------------------------------- runs
def test_runs_of_several_sizes(tmp_path: Any) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(model())
    session, other = InferenceSession(str(path)), runtime(model())
    for n in (3, 1, 5, 3):
        for names in (None, [], ["z"], ["z", "y"]):
            got, wanted = session.run(names, feed(n)), other.run(names, feed(n))
            assert [v.dtype for v in got] == [v.dtype for v in wanted]
            for a, b in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(a, b)


def test_what_is_taken_for_an_array() -> None:
    session = InferenceSession(model())
    wanted = session.run(["y"], feed())[0]
    x = feed()["x"]
    for given in (x.tolist(), x.astype(">f4"), np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2]):
        made = session.run(["y"], feed() | {"x": given})[0]  # type: ignore[dict-item]
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize(
    ("names", "changed", "message"),
    [
        (["q"], {}, "no output 'q'; there are y, z"),
        ("y", {}, "a list of names"),
        (None, {"w": np.ones(2)}, "no input 'w'; there are x, i"),
        (None, {"x": None}, "the feed lacks 'x'"),
        (None, {"x": np.ones((3, 2))}, r"'x': expected tensor\(float\).* got float64"),
        (None, {"x": [["a", "b"]]}, r"'x': expected tensor\(float\)"),
        (None, {"x": np.ones((3, 3), "f4")}, r"'x': axis 1 must be 2, got 3: \(n, 2\)"),
        (None, {"x": np.ones(3, "f4")}, "'x': expected 2 dimensions"),
    ],
)
def test_bad_feeds(names: Any, changed: dict[str, Any], message: str) -> None:
    """ONNX Runtime refuses each of these, too."""
    given = {k: v for k, v in (feed() | changed).items() if v is not None}
    with pytest.raises(ValueError, match=message):
        InferenceSession(model()).run(names, given)
    with pytest.raises(Exception, match=r"."):
        runtime(model()).run(names, given)


def test_sizes_of_one_name_agree() -> None:
    text = HEAD + "g (float[n] x, float[n] y) => (float[n] z) { z = Add(x, y) }"
    x = np.ones(3, "f4")
    with pytest.raises(UserError, match=r"'y': the size 'n' \(axis 0\) must be 3, got 4"):
        InferenceSession(model(text)).run(None, {"x": x, "y": np.ones(4, "f4")})


CHOICE = HEAD + """g (float[n] x, int64 rate) => (float[m] y) <int64 fast = {16000}> {
    c = Equal(rate, fast)
    y = If (c) <then_branch = a () => (float[m] p) { two = Constant<value_ints=[2]>()
                                                     p = Tile(x, two) },
                else_branch = b () => (float[m] q) { s = Constant<value_ints=[2, 2]>()
                                                     q = Reshape(x, s) }> }"""


def test_values_that_decide_shapes_are_those_of_the_call() -> None:
    """The branch that is not taken may not fit; each value has a program of its own."""
    content = model(CHOICE)
    session, x = InferenceSession(content), np.arange(3, dtype="f4")
    for _ in range(2):
        (made,) = session.run(None, {"x": x, "rate": np.int64(16000)})
        np.testing.assert_array_equal(made, [0, 1, 2, 0, 1, 2])
        (made,) = session.run(None, {"x": np.arange(4, dtype="f4"), "rate": np.int64(8000)})
        np.testing.assert_array_equal(made, [[0, 1], [2, 3]])


def test_inputs_that_decide_shapes_are_known_to_later_sessions(tmp_path: Any) -> None:
    """They are kept for the file as it is, and a session of a changed file finds them anew."""
    file, x = tmp_path / "m.onnx", np.arange(3, dtype="f4")
    file.write_bytes(model(CHOICE))
    given = {"x": x, "rate": np.int64(16000)}
    with uopc.options(cache_dir=str(tmp_path / "cache")):
        assert deciding.known(file) == ()
        wanted = InferenceSession(file).run(None, given)
        assert deciding.known(file) == deciding.known(str(file)) == ("rate",)
        np.testing.assert_array_equal(InferenceSession(file).run(None, given), wanted)
        file.write_bytes(model(NET))
        assert deciding.known(file) == () == deciding.known(model(NET))
        InferenceSession(file).run(None, feed())
    with uopc.options(cache_dir=""):
        deciding.keep(file, ["x"])
        assert deciding.known(file) == ()


def test_results_that_are_no_tensors() -> None:
    text = HEAD + """g (float[2] x) => (seq(float[2]) l, string[2] s)
        <string[2] w = {"a", "b"}> { l = SequenceConstruct(x, x)  s = Identity(w) }"""
    given = {"x": np.ones(2, "f4")}
    (first, second), strings = InferenceSession(model(text)).run(None, given)
    (wanted, _), other = runtime(model(text)).run(None, given)
    np.testing.assert_array_equal(first, wanted)
    np.testing.assert_array_equal(second, wanted)
    assert strings.dtype == other.dtype
    assert strings.tolist() == other.tolist()


def test_threads_that_run_at_once() -> None:
    """Several sizes are new to several threads at the same time."""
    session, wrong = InferenceSession(model()), []

    def runs(k: int) -> None:
        for i in range(40):
            given = feed(1 + (i + k) % 4)
            given["x"] = given["x"] + np.float32(k)
            y, z = session.run(None, given)
            if z != 6 or not np.array_equal(y, given["x"] * np.float32([2, 3])):
                wrong.append((k, i))

    own = [threading.Thread(target=runs, args=(k,)) for k in range(4)]
    for t in own:
        t.start()
    for t in own:
        t.join()
    assert not wrong
    assert session._program.cache_info().currsize == 4


# ---------------------------------------------------------------- options, providers, bindings
def test_options() -> None:
    options = uopc.onnx.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 2
    options.graph_optimization_level = uopc.onnx.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.execution_mode = uopc.onnx.ExecutionMode.ORT_PARALLEL
    options.add_session_config_entry("session.use_env_allocators", "1")
    assert options.get_session_config_entry("session.use_env_allocators") == "1"
    options.add_free_dimension_override_by_name("n", 3)
    session = InferenceSession(model(), options)
    run = uopc.onnx.RunOptions()
    run.add_run_config_entry("a", "b")
    assert session.run(["y"], feed(3), run)[0].shape == (3, 2)
    with pytest.raises(UserError, match=r"'n'.* must be 3, got 4"):
        session.run(None, feed(4))
    with pytest.raises(AttributeError):
        options.intra_op_threads = 2  # type: ignore[attr-defined]
    with pytest.raises(UserTypeError, match="SessionOptions"):
        InferenceSession(model(), {"threads": 1})  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="custom operators"):
        options.register_custom_ops_library("ops.so")


def test_the_options_are_those_of_onnx_runtime() -> None:
    ort = pytest.importorskip("onnxruntime", reason="the oracle is ONNX Runtime")
    for name in ("SessionOptions", "RunOptions"):
        own, other = getattr(uopc.onnx, name)(), getattr(ort, name)()
        fields = [f for f in type(own).__dataclass_fields__ if f[0] != "_"]
        for f in set(fields) - {"sizes", "training_mode"}:
            assert getattr(own, f) == getattr(other, f) or int(getattr(own, f)) == int(
                getattr(other, f)
            )
    for name in ("GraphOptimizationLevel", "ExecutionMode"):
        other = getattr(ort, name).__members__
        assert {k: int(v) for k, v in other.items()} == {
            v.name: int(v) for v in getattr(uopc.onnx, name)
        }


def test_providers() -> None:
    cpu = "CPUExecutionProvider"
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not available"):
        session = InferenceSession(model(), providers=["CUDAExecutionProvider", (cpu, {"a": 1})])
    assert session.get_providers() == [cpu] == uopc.onnx.get_available_providers()
    assert session.get_provider_options() == {cpu: {"a": "1"}}
    with pytest.raises(UserError, match="as many elements"):
        InferenceSession(model(), providers=[cpu], provider_options=[{}, {}])


def test_bindings() -> None:
    session, given = InferenceSession(model()), feed()
    wanted = session.run(["z", "y"], given)
    binding = session.io_binding()
    binding.bind_cpu_input("x", given["x"])
    binding.bind_ortvalue_input("i", uopc.onnx.OrtValue.ortvalue_from_numpy(given["i"]))
    binding.bind_output("z")
    memory = uopc.onnx.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    binding.bind_ortvalue_output("y", memory)
    session.run_with_iobinding(binding)
    for made in (binding.copy_outputs_to_cpu(), [v.numpy() for v in binding.get_outputs()]):
        for a, b in zip(made, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(memory.numpy(), wanted[1])
    assert (memory.data_type(), memory.shape(), memory.device_name()) == (
        "tensor(float)", [3, 2], "cpu",
    )  # fmt: skip
    x, y = np.full((3, 2), 4, "f4"), np.empty((3, 2), "f4")
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, onnx.TensorProto.FLOAT, y.shape, y.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y, x * np.float32([2, 3]))
    binding.bind_ortvalue_output("y", uopc.onnx.OrtValue.ortvalue_from_numpy(np.ones(2, "f4")))
    with pytest.raises(UserError, match=r"output 'y' is float32\[3, 2\], its memory float32\[2\]"):
        session.run_with_iobinding(binding)
    with pytest.raises(Unsupported, match="'cuda'"):
        binding.bind_output("y", "cuda")


def test_another_name_in_sys_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """How an application gets it without a change of its own."""
    monkeypatch.setitem(sys.modules, "onnxruntime", uopc.onnx)
    from onnxruntime import InferenceSession as Session
    from onnxruntime import get_device

    assert Session is InferenceSession
    assert get_device() == "CPU"
