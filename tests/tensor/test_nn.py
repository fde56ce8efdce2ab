"""Normalisation, products, convolution and pooling against NumPy, through the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import uopc
from tests.reference import as_param, run, same, values
from uopc.errors import UserTypeError
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter


# ---------------------------------------------------------------- normalisation
@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, axis):
    a = values((3, 4, 5), "f8", -50, 50)
    expected = getattr(scipy.special, name)(a, axis=axis)
    same(run(lambda x: getattr(x, name)(axis), a), expected, 1e-13)
    large = a.astype("f4") * 1000
    assert np.isfinite(run(lambda x: getattr(x, name)(axis), large)).all()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 1)])
def test_softmax_of_little(shape):
    a = values(shape)
    same(run(lambda x: x.softmax(), a), np.ones(shape, "f4"))
    same(run(lambda x: x.log_softmax(), a), np.zeros(shape, "f4"))


def test_narrow_softmax_rounds_once():
    a = values((4, 100), "f2")
    wide = scipy.special.softmax(a.astype("f8"), -1)
    np.testing.assert_allclose(run(lambda x: x.softmax(), a), wide, 2**-11)


def layer_norm(a, w, b, eps):
    a = a.astype("f8")
    away = a - a.mean(-1, keepdims=True)
    return away / np.sqrt((away**2).mean(-1, keepdims=True) + eps) * w + b


def rms_norm(a, w, eps):
    a = a.astype("f8")
    return a / np.sqrt((a**2).mean(-1, keepdims=True) + eps) * w


@pytest.mark.parametrize("t", ["float16", "float32", "float64"])
def test_layer_norm_and_rms_norm(t):
    a, w, b = values((2, 3, 7), t), values((7,), t), values((7,), t)
    tolerance = {"float16": 5e-3, "float32": 1e-5, "float64": 1e-13}[t]
    same(run(lambda x: x.layer_norm(), a), layer_norm(a, 1, 0, 1e-5).astype(t), tolerance)
    out = run(lambda x, y, z: x.layer_norm(y, z, 1e-3), a, w, b)
    same(out, layer_norm(a, w, b, 1e-3).astype(t), tolerance)
    same(run(lambda x: x.rms_norm(), a), rms_norm(a, 1, 1e-6).astype(t), tolerance)
    same(run(lambda x, y: x.rms_norm(y, 0.1), a, w), rms_norm(a, w, 0.1).astype(t), tolerance)


def test_norms_promote():
    h, w = uopc.param("h", (3, 4), dtypes.float16), uopc.param("w", (4,))
    assert h.layer_norm(w).dtype is dtypes.float32
    assert w.layer_norm(bias=h[0]).dtype is dtypes.float32
    assert uopc.param("i", (3, 4), dtypes.int32).rms_norm().dtype is dtypes.float64


def test_layer_norm_is_two_pass():
    a = (values((1, 512), "f4", 0, 1) + np.float32(4096)).astype("f4")
    same(run(lambda x: x.layer_norm(), a), layer_norm(a, 1, 0, 1e-5).astype("f4"), 5e-3)


def test_norm_errors():
    with pytest.raises(uopc.UserError, match="layer_norm: a scalar has no last axis"):
        uopc.param("x").layer_norm()
    with pytest.raises(uopc.UserError, match=r"must broadcast to the shape \(3, 4\)"):
        uopc.param("x", (3, 4)).rms_norm(uopc.param("w", (2, 3, 4)))


# ---------------------------------------------------------------- matmul
@settings(max_examples=200, deadline=None)
@given(shapes=hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, min_side=0,
                                                max_side=6, max_dims=3),
       t=st.sampled_from(["float32", "float64", "int8", "uint32", "int64"]))  # fmt: skip
def test_matmul(shapes, t):
    a, b = (values(s, t) for s in shapes.input_shapes)
    same(run(lambda x, y: x @ y, a, b), np.asarray(np.matmul(a, b)), 1e-5 if t[0] == "f" else 0)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 17, 31, 64, 65])
def test_square_matmul(n):
    a, b = values((n, n), "f8"), values((n, n), "f8")
    same(run(lambda x, y: x @ y, a, b), a @ b, 1e-13)


def test_matmul_of_narrow_floats_accumulates_in_float32():
    a, b = values((3, 2000), "f2"), values((2000, 4), "f2")
    exact = (a.astype("f8") @ b.astype("f8")).astype("f2")
    same(run(lambda x, y: x @ y, a, b), exact, 2e-3)


def test_matmul_promotes_and_wraps():
    a, b = np.full((2, 3), 100, "i1"), np.full((3, 2), 100, "i1")
    same(run(lambda x, y: x @ y, a, b), a @ b)
    same(run(lambda x, y: x @ y, a, b.astype("f4")), a @ b.astype("f4"))
    same(run(lambda x, y: x @ y, a > 0, b > 0), np.ones((2, 2), bool))
    assert (uopc.param("h", (2, 3), dtypes.float16) @ uopc.param("w", (3,))).dtype is dtypes.float32


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ((), (3,), "scalars have no rows"),
        ((2, 3), (4, 5), r"\(2, 3\) @ \(4, 5\): the left has 3 columns, the right 4 rows"),
        ((2, 3), (4,), "the left has 3 columns, the right 4 rows"),
        ((5, 2, 3), (4, 3, 2), "matmul: shapes .* do not broadcast"),
    ],
)
def test_matmul_errors(left, right, message):
    with pytest.raises(uopc.UserError, match=message):
        uopc.param("a", left) @ uopc.param("b", right)


def test_matmul_with_symbolic_sizes():
    n, k = uopc.variable("n", 1, 50), uopc.variable("k", 0, 50)
    graph = uopc.param("a", (n, k), dtypes.float64) @ uopc.param("b", (k, 3), dtypes.float64)
    for sizes in ((1, 1), (7, 0), (13, 50)):
        a, b = values(sizes, "f8"), values((sizes[1], 3), "f8")
        same(interpreter.evaluate(graph, {"a": a, "b": b}), a @ b, 1e-13)
    with pytest.raises(uopc.UserError, match="columns"):
        uopc.param("a", (2, n)) @ uopc.param("b", (k, 3))


# ---------------------------------------------------------------- convolution and pooling
def windows(a, kernel, stride, dilation=(1, 1)):
    """(batch, channels, oh, ow, kh, kw)"""
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    view = np.lib.stride_tricks.sliding_window_view(a, span, (2, 3))
    view = view[:, :, :: stride[0], :: stride[1]]
    return view[..., :: dilation[0], :: dilation[1]]


def conv2d(a, w, stride, padding, dilation, groups):
    a = np.pad(a, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2)).astype("f8")
    seen = windows(a, w.shape[2:], stride, dilation)
    seen = seen.reshape(seen.shape[0], groups, w.shape[1], *seen.shape[2:])
    split = w.astype("f8").reshape(groups, w.shape[0] // groups, *w.shape[1:])
    out = np.einsum("ngcyxij,gocij->ngoyx", seen, split)
    return out.reshape(out.shape[0], w.shape[0], *out.shape[3:])


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=150, deadline=None)
@given(
    batch=st.integers(0, 2), depth=st.integers(1, 3), outs=st.integers(1, 3),
    groups=st.integers(1, 3), kernel=pairs, stride=pairs, dilation=pairs,
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    extra=st.tuples(st.integers(0, 5), st.integers(0, 5)),
)  # fmt: skip
def test_conv2d(batch, depth, outs, groups, kernel, stride, dilation, padding, extra):
    size = [max(1, (k - 1) * d + 1 + e - 2 * p)
            for k, d, e, p in zip(kernel, dilation, extra, padding)]  # fmt: skip
    a = values((batch, depth * groups, *size), "f8")
    w = values((outs * groups, depth, *kernel), "f8")
    out = run(lambda x, y: x.conv2d(y, None, stride, padding, dilation, groups), a, w)
    same(out, conv2d(a, w, stride, padding, dilation, groups), 1e-12)


def test_conv2d_with_bias_and_ints():
    a, w, b = values((2, 3, 8, 9)), values((4, 3, 3, 2)), values((4,))
    out = run(lambda x, y, z: x.conv2d(y, z, stride=2, padding=1), a, w, b)
    expected = conv2d(a, w, (2, 2), (1, 1), (1, 1), 1) + b[:, None, None]
    same(out, expected.astype("f4"), 1e-5)


def test_conv2d_indexes_the_image_affinely():
    x, w = uopc.param("x", (1, 2, 8, 8)), uopc.param("w", (3, 2, 3, 3))
    graph = x.conv2d(w, stride=2, padding=1, dilation=2)
    (read,) = [u for u in graph.toposort() if u.op is Ops.INDEX]
    below = {s.op for i in read.src[1:] for s in i.toposort()}
    assert below <= {Ops.IOTA, Ops.RESHAPE, Ops.ADD, Ops.MUL, Ops.CONST}


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((3, 8, 8), {}, "conv2d: needs"),
        ((1, 4, 8, 8), {}, "4 channels in 1 groups, but the weight has 3"),
        ((1, 6, 8, 8), {"groups": 2}, "5 outputs do not divide into 2 groups"),
        ((1, 3, 8, 8), {"groups": 0}, "positive int"),
        ((1, 3, 2, 8), {}, "a window of 3 .dilation 1. exceeds the 2"),
        ((1, 3, 8, 8), {"dilation": 4}, "exceeds the 8 elements"),
        ((1, 3, 8, 8), {"stride": 0}, "stride must be at least 1"),
        ((1, 3, 8, 8), {"padding": -1}, "padding must be at least 0"),
        ((1, 3, 8, 8), {"padding": "full"}, "padding must be numbers"),
        ((1, 3, 8, 8), {"stride": (1, 1, 1)}, "stride must be an int or 2 ints"),
        ((1, 3, 8, 8), {"bias": np.ones(4, "f4")}, r"bias must have shape \(5\), got \(4\)"),
    ],
)
def test_conv2d_errors(shape, options, message):
    with pytest.raises(uopc.UserError, match=message):
        uopc.param("x", shape).conv2d(uopc.param("w", (5, 3, 3, 3)), **options)


@settings(max_examples=150, deadline=None)
@given(
    kernel=pairs, stride=st.none() | pairs, padding=st.integers(0, 1),
    extra=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    t=st.sampled_from(["float32", "float64", "int8", "uint8"]),
)  # fmt: skip
def test_pooling(kernel, stride, padding, extra, t):
    padding = padding if min(kernel) > 1 else 0
    a = values((2, 3, kernel[0] + extra[0], kernel[1] + extra[1]), t)
    edges = ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2)
    least = -np.inf if a.dtype.kind == "f" else np.iinfo(t).min
    padded = np.pad(a, edges, constant_values=np.dtype(t).type(least))
    expected = windows(padded, kernel, stride or kernel).max((-1, -2))
    same(run(lambda x: x.max_pool2d(kernel, stride, padding), a), expected)
    expected = windows(np.pad(a, edges).astype("f8"), kernel, stride or kernel).mean((-1, -2))
    given_type = t if t[0] == "f" else "f4"
    out = run(lambda x: x.avg_pool2d(kernel, stride, padding), a)
    same(out, expected.astype(given_type), 1e-5)


def test_max_pool_propagates_nan():
    a = values((1, 1, 4, 4))
    a[0, 0, 1, 1] = np.nan
    out = run(lambda x: x.max_pool2d(2), a)
    assert np.isnan(out[0, 0]).tolist() == [[True, False], [False, False]]


def test_pooling_errors():
    x = uopc.param("x", (1, 1, 4, 4))
    with pytest.raises(uopc.UserError, match="max_pool2d: a window of 5"):
        x.max_pool2d(5)
    with pytest.raises(UserTypeError, match="avg_pool2d: kernel_size must be an int or 2 ints"):
        x.avg_pool2d(2.0)
    with pytest.raises(uopc.UserError, match="max_pool2d: needs"):
        x[0].max_pool2d(2)


def test_images_of_symbolic_size():
    h = uopc.variable("h", 3, 40)
    x = uopc.param("x", (1, 2, h, 8), dtypes.float64)
    w = values((3, 2, 3, 3), "f8")
    a = values((1, 2, 11, 8), "f8")
    out = interpreter.evaluate(x.conv2d(w, stride=2, padding=1), {"x": a})
    same(out, conv2d(a, w, (2, 2), (1, 1), (1, 1), 1), 1e-12)
    out = interpreter.evaluate(x.max_pool2d(2), {"x": a})
    same(out, windows(a, (2, 2), (2, 2)).max((-1, -2)))


def test_a_small_network():
    x, w, b = values((4, 6)), values((6, 3)), values((3,))
    labels = np.array([0, 2, 1, 1])

    def loss(x, w, b, labels):
        return -(((x @ w + b).log_softmax() * labels.one_hot(3)).sum(-1)).mean()

    z = scipy.special.log_softmax(x.astype("f8") @ w + b, -1)
    expected = -z[np.arange(4), labels].mean()
    same(run(loss, x, w, b, labels), np.asarray(expected, "f4"), 1e-5)
    assert as_param(x).shape == (4, 6)
