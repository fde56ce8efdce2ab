"""Sizes as values of a model: dtypes, quotients and moves of what Shape gives, against ONNX's own
evaluator; and squeezes of axes whose size is free."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, parser
from onnx.reference import ReferenceEvaluator

import uopc.onnx
from uopc.errors import UserError


def model(body: str, inputs: str = "float[n, 4] x") -> onnx.ModelProto:
    constants = """
        zero = Constant<value = int64 {0}>()  one = Constant<value = int64 {1}>()
        two = Constant<value = float {2.0}>()  four = Constant<value = int64 {4}>()
        minus = Constant<value = int64 {-3}>()  ten = Constant<value = int64 {10}>()
        first = Constant<value = int64[1] {0}>()  s = Shape(x)  n = Gather(s, zero)"""
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g ({inputs}) => (float y) {{{constants} {body}}}'
    )


# Sizes are arrays of whole numbers with a dtype; what is no whole number is a tensor.
OF_SIZES = [
    "y = Cast<to = 1>(s)", "y = Cast<to = 6>(s)", "y = Cast<to = 9>(n)", "y = Cast<to = 10>(n)",
    "y = Cast<to = 2>(n)", "y = CastLike(s, two)", "b = Cast<to = 9>(n)  y = Not(b)",
    "c = Cast<to = 1>(s)  y = ReduceMean<keepdims = 0>(c)", "y = ReduceMean<keepdims = 0>(s)",
    "c = Cast<to = 1>(s)  y = Div(c, two)", "c = Cast<to = 1>(n)  y = Div(x, c)",
    "c = Cast<to = 1>(n)  q = Sqrt(c)  y = Div(x, q)", "z = Size(x)  y = Cast<to = 11>(z)",
    "d = Sub(n, ten)  y = Div(d, four)", "d = Sub(n, ten)  y = Mod(d, four)",
    "d = Sub(n, ten)  y = Mod<fmod = 1>(d, four)", "y = Div(ten, n)", "y = Mod(n, minus)",
    "y = Mod<fmod = 1>(n, minus)", "y = Div(n, minus)", "d = Sub(n, ten)  y = Max(d, zero)",
    "c = Cast<to = 1>(n)  d = Sub(c, two)  y = Mod<fmod = 1>(d, c)",
    "y = Greater(s, four)", "e = Equal(n, four)  y = Where(e, n, ten)",
    "c = Cast<to = 6>(s)  y = ReduceProd<keepdims = 0>(c)", "y = ReduceProd(s)",
    "c = Cast<to = 12>(n)  m = Cast<to = 12>(ten)  y = Sub(c, m)",
    "c = Cast<to = 3>(n)  m = Mul(c, c)  y = Mul(m, m)",
    # Behind casts a size is still known: it can be a shape, a bound, the length of a range.
    "c = Cast<to = 6>(s)  t = Gather(c, first)  l = Cast<to = 7>(t)  y = ConstantOfShape(l)",
    "c = Cast<to = 1>(n)  f = Floor(c)  i = Cast<to = 7>(f)  y = Range(zero, i, one)",
    "c = Cast<to = 6>(n)  z = Cast<to = 6>(zero)  o = Cast<to = 6>(one)  y = Range(z, c, o)",
    "c = Cast<to = 11>(s)  i = Cast<to = 7>(c)  r = Gather(i, first)  m = Constant<value = int64[1]"
    " {-1}>()  t = Concat<axis = 0>(r, m)  y = Reshape(x, t)",
    "d = Sub(n, ten)  q = Div(d, four)  e = Unsqueeze(q, first)  y = Slice(x, first, e)",
    "g = LessOrEqual(s, four)  y = Not(g)",
    "e = Equal(n, four)  g = Greater(n, one)  y = Xor(e, g)",
    "e = Equal(n, four)  g = Less(n, one)  o = Or(e, g)  y = And(o, e)",
    "e = Equal(n, four)  w = Where(e, ten, n)  u = Unsqueeze(w, first)  y = ConstantOfShape(u)",
    "e = GreaterOrEqual(n, ten)  c = Cast<to = 7>(e)  u = Unsqueeze(c, first)  y = Tile(u, u)",
    "y = ReduceMax<keepdims = 0>(s)", "y = ReduceSum(s)", "y = ReduceMin(s)", "y = Neg(s)",
    "k = Min(n, four)  u = Unsqueeze(k, first)  y = Slice(x, first, u)",
    "d = Sub(n, ten)  y = Range(d, n, four)", "d = Sub(n, ten)  y = Range(n, d, minus)",
    "f = Cast<to = 1>(n)  z = Cast<to = 1>(one)  y = Range(z, f, two)",
    "m = Constant<value = int64[3] {2, -1, 4}>()  o = Constant<value = int64[3] {1, 1, 1}>()"
    " w = Concat<axis = 0>(first, s)  e = Equal(w, m)  h = Where(e, o, w)  y = Neg(h)",
    "t = Constant<value = int64[2] {2, 1}>()  r = Reshape(s, t)  p = Transpose<perm = [1, 0]>(r)"
    " y = Mul(p, four)",
    "t = Constant<value = int64[2] {2, 2}>()  r = Expand(s, t)"
    " b = Constant<value = int64[1] {-1}>()"
    " l = Constant<value = int64[1] {-9}>()  y = Slice(r, b, l, first, b)",
    "i = Sub(n, one)  y = Gather(x, i)", "f = Gather(s, one)  y = Mul(f, n)",
]  # fmt: skip


@pytest.mark.parametrize("body", OF_SIZES)
@pytest.mark.few(12)
def test_sizes_are_those_of_onnx(body: str) -> None:
    made = model(body)
    f = uopc.onnx.load(made, dims={"n": (1, 12)})
    for n in (1, 3, 12):
        x = np.arange(4.0 * n, dtype="f4").reshape(n, 4)
        (want,) = ReferenceEvaluator(made).run(None, {"x": x})
        got = np.asarray(f(x))
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_size_beyond_the_digits_of_a_float_is_rounded() -> None:
    f = uopc.onnx.load(model("c = Cast<to = 10>(n)  y = Cast<to = 7>(c)"), dims={"n": (1, 9000)})
    for n in (2047, 4095, 8191):
        assert int(f(np.zeros((n, 4), "f4"))) == int(np.float16(n))


@pytest.mark.parametrize("inputs", ["float[n, 4] x", "float[n, m] x"])
def test_an_axis_that_is_squeezed_has_size_1(inputs: str) -> None:
    f = uopc.onnx.load(model("y = Squeeze(x, first)", inputs), dims={"n": (1, 9)})
    assert f(np.ones((1, 4), "f4")).shape == (4,)
    with pytest.raises(UserError, match="n = 3 from dimension 0"):
        f(np.ones((3, 4), "f4"))


def test_a_free_size_of_1_is_refused_where_all_such_axes_go() -> None:
    f = uopc.onnx.load(model("y = Squeeze(x)", "float[1, n, 4] x"), dims={"n": (1, 9)})
    assert f(np.ones((1, 3, 4), "f4")).shape == (3, 4)
    with pytest.raises(UserError, match="n = 1 from dimension 1"):
        f(np.ones((1, 1, 4), "f4"))
    f = uopc.onnx.load(model("y = Squeeze(x)", "float[1, n, 4] x"), dims={"n": 1})
    assert f(np.ones((1, 1, 4), "f4")).shape == (4,)


@pytest.mark.parametrize("body", [
    "y = Shape(q)", "y = Size(q)", "h = Shape(q)  g = Gather(h, zero)  y = Cast<to = 1>(g)",
    "h = Shape(q)  y = ConstantOfShape(h)", "h = Shape(q)  a = Shape(h)  y = Add(a, h)",
])  # fmt: skip
def test_a_free_size_of_1_is_refused_where_only_the_shape_is_read(body: str) -> None:
    made = model("q = Squeeze(x)  " + body, "float[1, n, 4] x")
    f = uopc.onnx.load(made, dims={"n": (1, 9)})
    x = np.ones((1, 3, 4), "f4")
    np.testing.assert_array_equal(f(x), ReferenceEvaluator(made).run(None, {"x": x})[0])
    with pytest.raises(UserError, match="n = 1 from dimension 1"):
        f(np.ones((1, 1, 4), "f4"))
    f = uopc.onnx.load(model("q = Squeeze(x, first)  " + body), dims={"n": (1, 9)})
    f(np.ones((1, 4), "f4"))
    with pytest.raises(UserError, match="n = 3 from dimension 0"):
        f(np.ones((3, 4), "f4"))


def test_a_shape_of_fractions_of_sizes_names_the_way_out() -> None:
    body = "c = Cast<to = 1>(s)  h = Div(c, two)  i = Cast<to = 7>(h)  y = ConstantOfShape(i)"
    with pytest.raises(UserError, match="give these sizes as numbers by dims="):
        uopc.onnx.load(model(body), dims={"n": (1, 9)})
    assert uopc.onnx.load(model(body), dims={"n": 6})(np.ones((6, 4), "f4")).shape == (3, 2)


@pytest.mark.parametrize("t", ["f2", "f4", "f8"])
def test_the_remainder_of_floats_is_exact(t: str) -> None:
    a = np.array([1e4, -1e4, 5.5, -7.5, 0.0, -0.0, np.inf, 3, np.nan, 1, 6e4], t)
    b = np.array([0.3, 3, np.inf, 2, 3, 3, 1, 0, 1, np.nan, -0.7], t)
    if t != "f2":
        a = np.append(a, np.array([1e30, 1e38, 1e-40], t))
        b = np.append(b, np.array([7, 3e-39, 3e-42], t))
    kind = {"f2": "float16", "f4": "float", "f8": "double"}[t]
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g ({kind}[{a.size}] a, {kind}[{a.size}] b)'
        f" => ({kind}[{a.size}] y) {{ y = Mod<fmod = 1>(a, b) }}"
    )
    got = uopc.onnx.load(made)(a, b)
    with np.errstate(all="ignore"):
        want = np.fmod(a, b)
    np.testing.assert_array_equal(got, want)
    there = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(want)[there])


@pytest.mark.parametrize("t", ["int32", "int64"])
def test_the_mean_of_integers_is_rounded_to_0(t: str) -> None:
    text = f'<ir_version: 8, opset_import: ["": 18]> g ({t}[n, 3] x) => ({t}[n] y)'
    made = parser.parse_model(
        text + "{ a = Constant<value = int64[1] {1}>() y = ReduceMean<keepdims = 0>(x, a) }"
    )
    x = np.array([[2, 2, 4], [-2, -2, -4], [2**25 + 1, 2**25 + 1, 2**25 + 1]], t)
    got = uopc.onnx.load(made, dims={"n": (1, 9)})(x)
    np.testing.assert_array_equal(got, [2, -2, 2**25 + 1])
    assert got.dtype == x.dtype


# ---------------------------------------------------------------- drawn arithmetic of sizes
OPERATIONS = ["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Equal", "Less", "Where"]


@given(st.data())
@settings(max_examples=24)
def test_drawn_arithmetic_of_sizes(data: st.DataObject) -> None:
    """Graphs of whole numbers and conditions, at sizes 0, 1 and a prime."""
    numbers, conditions, body = ["n", "m", "zero", "one", "four", "minus"], [], []
    for k in range(data.draw(st.integers(1, 6))):
        op = data.draw(st.sampled_from(OPERATIONS))
        a, b = data.draw(st.sampled_from(numbers)), data.draw(st.sampled_from(numbers))
        if op == "Where":
            chosen = data.draw(st.sampled_from([*conditions, "yes"]))
            body.append(f"v{k} = Where({chosen}, {a}, {b})")
        else:
            b = data.draw(st.sampled_from(["four", "minus"])) if op in ("Div", "Mod") else b
            body.append(f"v{k} = {op}({a}, {b})")
        (conditions if op in ("Equal", "Less") else numbers).append(f"v{k}")
    body += [f"w = Where(yes, {numbers[-1]}, zero)  c = Max(w, zero)  d = Min(c, ten)",
             "u = Unsqueeze(d, first)  z = Slice(x, first, u)  y = Neg(w)"]  # fmt: skip
    made = model("m = Gather(s, one) yes = Less(minus, zero) " + "  ".join(body), "float[n, m] x")
    made.graph.output.add().CopyFrom(helper.make_tensor_value_info("z", 1, ["k", "m"]))
    f = uopc.onnx.load(made, dims={"n": (0, 12), "m": (0, 12)})
    for n, m in ((0, 1), (1, 0), (7, 11)):
        x = np.arange(1.0 * n * m, dtype="f4").reshape(n, m)
        for got, want in zip(f(x).values(), ReferenceEvaluator(made).run(None, {"x": x})):
            np.testing.assert_array_equal(got, want)
