"""Operators on tensors whose sizes a model leaves free, beside ONNX's own evaluator at sizes that a
test chooses: no operator needs to know a size on which only the amount of work depends."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import uopc.onnx
from uopc.errors import UserError

NUMPY = {"float": np.float32, "int64": np.int64}


def model(inputs: str, body: str, opset: int = 18) -> onnx.ModelProto:
    head = f'<ir_version: 8, opset_import: ["": {opset}]>'
    outputs = ", ".join([f"float {name}" for name in re.findall(r"\b[yzw]\b(?=[^=)]*=)", body)])
    return parser.parse_model(f"{head} g ({inputs}) => ({outputs}) {{ {body} }}")


def arrays(inputs: str, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Numbers for each input; integers are below the least size of any."""
    made, draws = {}, np.random.default_rng(0)
    for kind, dims, name in re.findall(r"(\w+)\[([^]]*)\] (\w+)", inputs):
        shape = [sizes[d] if d in sizes else int(d) for d in dims.replace(" ", "").split(",")]
        if kind == "int64":
            made[name] = draws.permuted(np.arange(np.prod(shape, dtype=int))).reshape(shape)
        else:
            made[name] = draws.standard_normal(shape).astype(NUMPY[kind])
    return made


def agree(made: onnx.ModelProto, inputs: str, sizes: list[dict[str, int]], **dims: object) -> None:
    """Load a model once, and compare its results at each choice of sizes."""
    f = uopc.onnx.load(made, dims=dims or dict.fromkeys(sizes[0], (0, 40)))
    reference = ReferenceEvaluator(made)
    for chosen in sizes:
        given = arrays(inputs, chosen)
        got = f(**given)
        got = list(got.values()) if isinstance(got, dict) else [got]
        for a, b in zip(got, reference.run(None, given), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), chosen
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5, err_msg=str(chosen))


ONE = [{"n": n} for n in (1, 3, 7)]
OF_ONE_AXIS = [  # inputs, body, opset
    ("float[n, 8] x",
     'p = Constant<value = int64[4] {0, 2, 0, 1}>() y = Pad<mode = "MODE">(x, p)', 19),
    ("float[n, 8] x", "p = Constant<value = int64[4] {1, 2, 2, 0}>() y = Pad(x, p)", 18),
    ("float[n, 7] x", "y, z, w = Split<axis = 1, num_outputs = 3>(x)", 18),
    ("float[2, n] x", "t = Concat<axis = 1>(x, x, x) y, z, w = Split<axis = 1>(t)", 13),
    ("float[7, n] x", "y, z = Split<axis = 1, num_outputs = 2>(x)", 18),
    ("float[n, 6] x", "y = LogSoftmax<axis = 1>(x)", 11),
    ("float[n, 6, n] x", "y = Hardmax<axis = 2>(x)", 11),
    ("float[n, 5, 3] x, int64[n, 1] i", "y = GatherND(x, i)", 13),
    ("float[9, 2] x, int64[n, 1] i, float[n, 2] u", "y = ScatterND(x, i, u)", 16),
    ("float[n, 2, 5, 4] x, float[n, 3, n, 2] g", "y = GridSample(x, g)", 20),
    ("float[2, 2, 3, n] x, float[2, 3, 3, 2] g",
     'y = GridSample<padding_mode = "reflection">(x, g)', 20),
    ("float[2, 2, 3, n] x, float[2, 3, 3, 2] g",
     'y = GridSample<padding_mode = "border">(x, g)', 20),
    ("float[n, n] x", "y = EyeLike(x)", 9),
    *[("float[2, 1, n] x, float[3, 1, 3] w",
       f'y = Conv<auto_pad = "{p}", strides = [{s}]>(x, w)', 13)
      for p, s in (("SAME_UPPER", 2), ("SAME_LOWER", 2), ("SAME_UPPER", 5))],
    *[("float[1, 1, n, 4] x", f'y = {op}<auto_pad = "SAME_UPPER", strides = [2, 3],'
       " kernel_shape = [3, 2]>(x)", 13) for op in ("MaxPool", "AveragePool")],
    ("float[1, 2, n, 3] x", "s = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>() r ="
     ' Constant<value = float[0] {}>() y = Resize<mode = "nearest">(x, r, s)', 13),
    ("float[1, 1, n] x, float[1, 1, 5] w",
     'q = Shape(w) y = Resize<mode = "linear">(x, , , q)', 13),
    ("float[1, 1, n, 3] x", "s = Constant<value = float[4] {1.0, 1.0, 3.0, 1.0}>() y = Upsample(x,"
     " s)", 9),
]  # fmt: skip


@pytest.mark.parametrize("inputs, body, opset", OF_ONE_AXIS)
@pytest.mark.few(6)
def test_an_operator_takes_free_sizes(inputs: str, body: str, opset: int) -> None:
    for mode in ("reflect", "edge", "wrap") if "MODE" in body else ("",):
        agree(model(inputs, body.replace("MODE", mode), opset), inputs, ONE)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_a_free_axis_is_padded_by_its_own_elements(mode: str) -> None:
    body = f'p = Constant<value = int64[4] {{0, 2, 0, 3}}>() y = Pad<mode = "{mode}">(x, p)'
    made = model("float[2, n] x", body, 19)
    f = uopc.onnx.load(made, dims={"n": (1, 40)})
    for n in (1, 2, 4, 7):
        x = arrays("float[2, n] x", {"n": n})["x"]
        np.testing.assert_array_equal(f(x), np.pad(x, ((0, 0), (2, 3)), mode))


def lrn(x: np.ndarray, size: int) -> np.ndarray:
    edges = [(0, 0), ((size - 1) // 2, size // 2), (0, 0)]
    near = np.lib.stride_tricks.sliding_window_view(np.pad(x * x, edges), size, 1)
    return x / (1 + 1e-4 / size * near.sum(-1)) ** np.float32(0.75)


def softmax(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    powers = np.exp(x - x.max(axes, keepdims=True))
    return powers / powers.sum(axes, keepdims=True)


BESIDE_NUMPY = [  # where ONNX's evaluator computes something else, or nothing
    ("float[n, 4, 2] x", "y = LRN<size = 3>(x)", 13, lambda x: lrn(x, 3)),
    ("float[2, n, 2] x", "y = LRN<size = 4>(x)", 13, lambda x: lrn(x, 4)),
    ("float[n, 4, 2] x", "y = Softmax<axis = 1>(x)", 11, lambda x: softmax(x, (1, 2))),
    ("float[2, n, 3] x", "y = Softmax<axis = 2>(x)", 11, lambda x: softmax(x, (2,))),
    ("float[2, n, 3] x", "y = Softmax<axis = 0>(x)", 11, lambda x: softmax(x, (0, 1, 2))),
    ("float[5, n] x", "p = Constant<value = int64[4] {1, -1, 0, 2}>() y = Pad(x, p)", 18,
     lambda x: np.pad(x, ((1, 0), (0, 2)))[:, 1:]),
]  # fmt: skip


@pytest.mark.parametrize("inputs, body, opset, want", BESIDE_NUMPY)
@pytest.mark.few(3)
def test_an_operator_takes_free_sizes_beside_numpy(
    inputs: str, body: str, opset: int, want: Callable[[np.ndarray], np.ndarray]
) -> None:
    f = uopc.onnx.load(model(inputs, body, opset), dims={"n": (1, 40)})
    for sizes in ONE:
        x = arrays(inputs, sizes)["x"]
        np.testing.assert_allclose(f(x), want(x), rtol=2e-5, atol=2e-5)


# ---------------------------------------------------------------- sizes that agree at the call
AGREE = [  # inputs, body, sizes that agree, sizes that do not
    ("float[n, 4] x, float[m, 4] u", "y = Add(x, u)", {"n": 3, "m": 3}, {"n": 3, "m": 2}),
    ("float[n, 4] x, float[m, 4] u", "y = Concat<axis = 1>(x, u)", {"n": 7, "m": 7},
     {"n": 3, "m": 2}),
    ("float[n, 4] x, float[k, n] u", "y = MatMul(x, u)", {"n": 3, "k": 4}, {"n": 3, "k": 5}),
    ("float[n, m] x, float[m, k] u", "y = MatMul(x, u) z = Add(x, u)", {"n": 3, "m": 3, "k": 3},
     {"n": 3, "m": 4, "k": 4}),
    ("float[n, 4] x, float[6, 4] u", "a = Constant<value = int64[1] {0}>() s = Shape(x)"
     " l = Gather(s, a) t = Slice(u, a, l) y = Add(x, t)", {"n": 6}, {"n": 7}),
    ("float[1, 1, n] x, float[1, 1, 3] w", "a = Conv<strides = [2], pads = [1, 1]>(x, w)"
     " b = Conv<strides = [2], pads = [1, 1]>(a, w)"
     " s = Constant<value = float[3] {1.0, 1.0, 2.0}>() r = Resize(b, , s)"
     " z = Concat<axis = 1>(r, a) y = Mul(a, r)", {"n": 12}, {"n": 13}),
]  # fmt: skip


@pytest.mark.parametrize("inputs, body, good, bad", AGREE)
def test_sizes_that_an_operator_needs_equal(
    inputs: str, body: str, good: dict[str, int], bad: dict[str, int]
) -> None:
    made = model(inputs, body)
    agree(made, inputs, [good])
    f = uopc.onnx.load(made)
    with pytest.raises(UserError, match=r"expected"):
        f(**arrays(inputs, bad))


def test_a_size_that_the_model_does_not_have_is_named() -> None:
    made = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[n, 4] x, float[k, 4] u) => (float y)'
        " { y = Concat<axis = 0>(x, u) }"
    )
    made.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "?"
    with pytest.raises(UserError, match=r"no dimension '\?'; free ones: 'n', 'u_0'"):
        uopc.onnx.load(made, dims={"?": 3})
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    f = uopc.onnx.load(made, dims={"x_0": (0, 4)})
    assert f(np.zeros((3, 4), "f4"), np.zeros((2, 4), "f4")).shape == (5, 4)


# ---------------------------------------------------------------- branches and loops by sizes
def loop_over(size: str) -> onnx.ModelProto:
    """A loop that ends where a float counter reaches a size, as tf2onnx writes each recurrence."""
    return parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 13]> g (float[n, 3] x) => (float y, float z) {{
            zero = Constant<value = int64 {{0}}>()  none = Constant<value = float {{0.0}}>()
            s = Shape(x)  n = Gather(s, zero)  m = {size}  f = Cast<to = 1>(m)
            goes = Less(none, f)  first = Constant<value = float[3] {{0.0, 0.0, 0.0}}>()
            at, y, z = Loop<body = step (int64 i, bool c, int64 at, float[3] sum)
                => (bool more, int64 next, float[3] out, float[3] row) {{
                    row = Gather(x, at)  out = Add(sum, row)  one = Constant<value = int64 {{1}}>()
                    next = Add(at, one)  g = Cast<to = 1>(next)  more = Less(g, f)
                }}> (, goes, zero, first)
        }}""")


@pytest.mark.parametrize("size", ["Identity(n)", "Div(n, n)", "Sub(n, zero)"])
@pytest.mark.few(2)
def test_a_loop_ends_where_its_counter_reaches_a_size(size: str) -> None:
    agree(loop_over(size), "float[n, 3] x", ONE, n=(1, 40))


def test_a_branch_that_needs_a_size_is_a_condition_of_the_call() -> None:
    made = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 13]> g (float[n] x) => (float y) {
            q = Constant<value = int64[3] {1, 1, -1}>()  l = Reshape(x, q)
            w = Constant<value = float[1, 1, 3] {1.0, 2.0, 3.0}>()
            c = Conv<strides = [4]>(l, w)
            s = Shape(c)  two = Constant<value = int64 {2}>()  d = Gather(s, two)
            one = Constant<value = int64 {1}>()  e = Equal(d, one)
            axes = Constant<value = int64[1] {2}>()
            b = If(e) <then_branch = a () => (float[1, 1] r) { r = Squeeze(c, axes) },
                       else_branch = b () => (float[1, 1, k] t) { t = Identity(c) }>
            m = Constant<value = float[1, 2] {1.0, 2.0}>()  y = MatMul(b, m)
        }""")
    f = uopc.onnx.load(made)
    for n in (3, 5, 6):
        np.testing.assert_allclose(f(np.ones(n, "f4")), [[6, 12]])
    with pytest.raises(UserError, match="expected"):
        f(np.ones(7, "f4"))
