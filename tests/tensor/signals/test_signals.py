"""Convolutions, pools, resizing and Fourier transforms in any number of dimensions: against loops
of NumPy, its FFT and ONNX's reference evaluator, interpreted and compiled."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import uopc
from tests.reference import as_param, run, same, values
from uopc.errors import UserTypeError
from uopc.ir.core import dtypes
from uopc.ir.interpret import interpreter

few = st.integers(1, 3)
PADDINGS = st.tuples(st.integers(0, 2), st.integers(0, 2))


def both(function, *arrays):
    """Interpreted and compiled; the results agree, floats up to what sums of the largest lose."""
    out = run(function, *arrays)
    params = [as_param(a, f"p{i}") for i, a in enumerate(arrays)]
    got = uopc.compile(function(*params), inputs=params)(*arrays)
    if out.dtype.kind == "f":
        scale = np.maximum(np.abs(out.astype("f8")).max(initial=0), 1).astype(out.dtype)
        same(got / scale, out / scale, 1e-5)
    else:
        same(got, out)
    return got


# ---------------------------------------------------------------- loops of NumPy
def windows(a, kernel, stride, padding, dilation, fill=0.0, ceil=False):
    """(batch, channels, places…, kernel…), and which elements are of the array or its padding."""
    rank = len(kernel)
    counts, more = [], []
    for n, k, s, d, (before, after) in zip(a.shape[2:], kernel, stride, dilation, padding):
        span = (k - 1) * d + 1
        count = (n + before + after - span) // s + 1
        if ceil:
            count = math.ceil((n + before + after - span) / s) + 1
            while (count - 1) * s >= n + before:
                count -= 1
        counts.append(count)
        more.append(max(0, (count - 1) * s + span - (n + before + after)))
    edges = [(0, 0)] * 2
    kinds = np.pad(np.full(a.shape[2:], 2), padding, constant_values=1)
    kinds = np.pad(kinds, [(0, m) for m in more])
    edges += [(p[0], p[1] + m) for p, m in zip(padding, more)]
    wide = np.pad(a, edges, constant_values=fill)
    out = np.empty((*a.shape[:2], *counts, *kernel), a.dtype)
    kind = np.empty((*counts, *kernel), int)
    for tap in itertools.product(*map(range, kernel)):
        key = tuple(slice(t * d, t * d + (c - 1) * s + 1, s) if c else slice(0)
                    for t, d, c, s in zip(tap, dilation, counts, stride))  # fmt: skip
        out[(..., *tap)] = wide[(slice(None), slice(None), *key)]
        kind[(..., *tap)] = kinds[key]
    assert out.ndim == 2 + 2 * rank
    return out, kind


def conv(a, w, stride, padding, dilation, groups):
    seen, _ = windows(a, w.shape[2:], stride, padding, dilation)
    rank = w.ndim - 2
    parts = np.split(seen, groups, 1), np.split(w, groups)
    axes = [1, *range(2 + rank, 2 + 2 * rank)], [1, *range(2, 2 + rank)]
    outs = [np.tensordot(s, v, axes) for s, v in zip(*parts)]
    return np.moveaxis(np.concatenate(outs, -1), -1, 1)


def conv_transpose(a, w, stride, padding, more, dilation, groups):
    kernel = w.shape[2:]
    sizes = [(n - 1) * s + (k - 1) * d + 1 + o
             for n, s, k, d, o in zip(a.shape[2:], stride, kernel, dilation, more)]  # fmt: skip
    out = np.zeros((a.shape[0], w.shape[1] * groups, *sizes))
    x, v = np.split(a, groups, 1), np.split(w, groups)
    for tap in itertools.product(*map(range, kernel)):
        key = tuple(slice(t * d, t * d + (n - 1) * s + 1, s)
                    for t, d, n, s in zip(tap, dilation, a.shape[2:], stride))  # fmt: skip
        added = [np.tensordot(p, q[(..., *tap)], (1, 0)) for p, q in zip(x, v)]
        out[(slice(None), slice(None), *key)] += np.moveaxis(np.concatenate(added, -1), -1, 1)
    cut = tuple(slice(p, n - q) for n, (p, q) in zip(sizes, padding))
    return out[(slice(None), slice(None), *cut)]


@st.composite
def geometries(draw):
    rank = draw(few)

    def each(values):
        return [draw(values) for _ in range(rank)]

    kernel, stride, dilation = each(few), each(few), each(st.integers(1, 2))
    padding = [tuple(p) for p in each(PADDINGS)]
    extra = each(st.integers(0, 3))
    size = [max(1, (k - 1) * d + 1 + e - p[0] - p[1])
            for k, d, e, p in zip(kernel, dilation, extra, padding)]  # fmt: skip
    return size, kernel, stride, padding, dilation


# ---------------------------------------------------------------- convolutions
@settings(max_examples=60, deadline=None)
@given(g=geometries(), batch=st.integers(0, 2), depth=few, outs=few, groups=few)
def test_conv(g, batch, depth, outs, groups):
    size, kernel, stride, padding, dilation = g
    a = values((batch, depth * groups, *size), "f8")
    w = values((outs * groups, depth, *kernel), "f8")
    got = both(lambda x, y: x.conv(y, None, stride, padding, dilation, groups), a, w)
    same(got, conv(a, w, stride, padding, dilation, groups), 1e-12)


@settings(max_examples=60, deadline=None)
@given(g=geometries(), depth=few, outs=few, groups=few, more=st.tuples(*[st.integers(0, 1)] * 3))
def test_conv_transpose(g, depth, outs, groups, more):
    size, kernel, stride, padding, dilation = g
    padding = [(min(p, k - 1), min(q, k - 1)) if n == 1 else (p, q)
               for (p, q), k, n in zip(padding, kernel, size)]  # fmt: skip
    a, w = values((2, depth * groups, *size), "f8"), values((depth * groups, outs, *kernel), "f8")
    more = list(more[: len(size)])
    wanted = [(n - 1) * s + (k - 1) * d + 1 - p - q + o for n, s, k, d, (p, q), o
              in zip(size, stride, kernel, dilation, padding, more)]  # fmt: skip

    def made(x, y):
        return x.conv_transpose(y, None, stride, padding, more, dilation, groups)

    if min(wanted) < 0:
        with pytest.raises(uopc.UserError, match="padding removes more than the"):
            run(made, a, w)
        return
    same(both(made, a, w), conv_transpose(a, w, stride, padding, more, dilation, groups), 1e-12)


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d"])
def test_each_rank_has_a_name_and_a_bias(name):
    rank = int(name[4])
    a, w, b = values((2, 3, *(6, 5, 4)[:rank])), values((4, 3, *(2, 3, 1)[:rank])), values((4,))
    got = both(lambda x, y, z: getattr(x, name)(y, z, stride=2, padding=1), a, w, b)
    wide = [v.astype("f8") for v in (a, w)]
    wanted = conv(*wide, [2] * rank, [(1, 1)] * rank, [1] * rank, 1)
    same(got, (wanted + b.reshape(-1, *[1] * rank)).astype("f4"), 1e-5)
    with pytest.raises(uopc.UserError, match=f"{name}: needs"):
        uopc.param("x", (1, 1, 1, 1, 1, 1)).conv3d(w) if rank == 3 else getattr(
            uopc.param("x", (1, 3, 4, 4, 4)), name)(w)  # fmt: skip


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [5, 6, 7])
@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_padding_by_name(stride, size, kernel):
    """A window at every stride; where the edges differ, the far or the near one has one more."""
    a, w = values((1, 2, size), "f8"), values((1, 2, kernel), "f8")
    total = max(0, (math.ceil(size / stride) - 1) * stride + kernel - size)
    half, rest = total // 2, total - total // 2
    for name, pair in {"same": (half, rest), "same_lower": (rest, half), "valid": (0, 0)}.items():
        got = run(lambda x, y, name=name: x.conv(y, None, stride, name), a, w)
        same(got, conv(a, w, [stride], [pair], [1], 1), 1e-12)
        assert name == "valid" or got.shape[2] == math.ceil(size / stride)


@pytest.mark.parametrize("t", ["float16", "float32", "float64", "int8", "int32", "uint16"])
def test_dtypes_of_convolutions(t):
    a, w = values((1, 2, 9), t), values((2, 2, 3), t)
    tolerance = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}.get(t, 0)
    wide = np.float64 if t[0] == "f" else np.int64
    wanted = conv(a.astype(wide), w.astype(wide), [1], [(1, 0)], [1], 1).astype(t)
    same(both(lambda x, y: x.conv(y, padding=((1, 0),)), a, w), wanted, tolerance)
    wanted = conv_transpose(a.astype(wide), w.astype(wide), [2], [(1, 0)], [0], [1], 1)
    wanted = wanted.astype(wide).astype(t)
    same(both(lambda x, y: x.conv_transpose(y, None, 2, ((1, 0),)), a, w), wanted, tolerance)


def test_symbolic_lengths():
    n, b = uopc.variable("n", 3, 40), uopc.variable("b", 1, 4)
    x = uopc.param("x", (b, 2, n), dtypes.float64)
    w, v = values((3, 2, 3), "f8"), values((2, 3, 4), "f8")
    graphs = (
        x.conv(w, stride=2, padding=((2, 1),)), x.conv(w, padding="same"),
        x.conv_transpose(v, stride=3, padding=((1, 2),)), x.max_pool(3, 2, 1, ceil_mode=True),
        x.avg_pool(3, 2, 1, ceil_mode=True, count_include_pad=False),
    )  # fmt: skip
    f = uopc.compile(graphs)
    for sizes in ((1, 3), (4, 10), (3, 11), (2, 40)):
        a = values((sizes[0], 2, sizes[1]), "f8")
        got = f(a)
        same(got[0], conv(a, w, [2], [(2, 1)], [1], 1), 1e-12)
        same(got[1], conv(a, w, [1], [(1, 1)], [1], 1), 1e-12)
        same(got[2], conv_transpose(a, v, [3], [(1, 2)], [0], [1], 1), 1e-12)
        same(got[3], windows(a, [3], [2], [(1, 1)], [1], -np.inf, True)[0].max(-1))
        seen, kind = windows(a, [3], [2], [(1, 1)], [1], 0, True)
        same(got[4], seen.sum(-1) / (kind == 2).sum(-1), 1e-12)


def test_three_free_sizes():
    """Intermediate values with two axes of -(-size // 2) elements lie apart."""
    x = uopc.param("x", [uopc.variable(name, 1, 4096) for name in "bnm"], dtypes.int32)
    f = uopc.compile(x[:, None].max_pool(2, 2, ceil_mode=True).cumsum(2).cumsum(2).cumsum(2))
    for sizes in ((1, 7, 9), (2, 40, 31), (3, 50, 64)):
        a = values(sizes, "i4")[:, None]
        pooled = windows(a, [2, 2], [2, 2], [(0, 0)] * 2, [1, 1], a.min(), True)[0].max((-2, -1))
        same(f(a[:, 0]), pooled.cumsum(2).cumsum(2).cumsum(2).astype("i4"))


IMAGE, WEIGHT = uopc.param("x", (1, 4, 8)), uopc.param("w", (4, 3, 3))


@pytest.mark.parametrize(("call", "message"), [
    (lambda: IMAGE.conv(WEIGHT), "conv: 4 channels in 1 groups, but the weight has 3 per group"),
    (lambda: IMAGE.conv(WEIGHT[:, :, 0]), r"conv: the weight: needs \(batch, channels, length\)"),
    (lambda: IMAGE[0].conv(WEIGHT), "conv: needs .batch, channels, sizes…., got .4, 8."),
    (lambda: IMAGE[:, 1:].conv(WEIGHT, padding="full"), "must be numbers, valid, same or same_lo"),
    (lambda: IMAGE[:, 1:].conv(WEIGHT, padding=((1, 2, 3),)), "padding must be an int, or an int"),
    (lambda: IMAGE.conv(WEIGHT[:, :1], padding=-1, groups=4), "conv: padding must be at least 0"),
    (lambda: IMAGE.conv_transpose(WEIGHT, groups=3), "4 channels do not divide into 3 groups"),
    (lambda: IMAGE.conv_transpose(WEIGHT[:3]), "4 channels, but the weight is for 3"),
    (lambda: IMAGE.conv_transpose(WEIGHT[:, :, :0]), "the weight must have elements"),
    (lambda: IMAGE.conv_transpose(WEIGHT, output_padding=-1), "output_padding must be at least 0"),
    (lambda: IMAGE.conv_transpose(WEIGHT, padding=6), "padding removes more than the"),
    (lambda: IMAGE.conv_transpose(WEIGHT, np.ones(4, "f4")), r"the bias must have shape \(3\)"),
    (lambda: IMAGE.max_pool(9), "max_pool: a window of 9 .dilation 1. exceeds the 8"),
    (lambda: IMAGE.avg_pool(2, ceil_mode=1), "avg_pool: ceil_mode must be True or False"),
    (lambda: IMAGE.windows(0), "windows: kernel_size must be at least 1"),
    (lambda: IMAGE.resize(), "resize: sizes or scales must be given"),
    (lambda: IMAGE.resize((2, 2), scales=(1.0,)), "resize: 1 scales for 2 axes"),
    (lambda: IMAGE.resize(0), "resize: sizes must be more than 0"),
    (lambda: IMAGE.resize(scales=(0.1,)), "scale 0.1 leaves no element of axis 2 of .1, 4, 8."),
    (lambda: IMAGE.resize(2.0), "resize: sizes must be numbers"),
    (lambda: IMAGE.resize((2, 2), axes=(1, 1)), "resize: axes must be different"),
    (lambda: IMAGE.resize(3, mode="area"), "resize: mode must be nearest, linear or cubic"),
    (lambda: IMAGE.resize(3, coordinates="x"), "resize: coordinates must be one of half_pixel"),
    (lambda: IMAGE.resize(3, rounding="up"), "resize: rounding must be one of floor"),
    (lambda: IMAGE.fft(), r"fft: needs pairs in the last axis, got \(1, 4, 8\)"),
    (lambda: IMAGE.rfft(0), "rfft: the length must be a number above 0"),
    (lambda: IMAGE.rfft(2.5), "rfft: n must be an int"),
    (lambda: IMAGE[..., :2].ifft(axis=-1), "ifft: axis 2 has the pairs"),
    (lambda: uopc.param("z", (1, 2)).irfft(), "irfft: one pair gives a result of length 0"),
])  # fmt: skip
def test_errors(call, message):
    with pytest.raises((uopc.UserError, UserTypeError), match=message):
        call()


# ---------------------------------------------------------------- pools
@settings(max_examples=60, deadline=None)
@given(
    g=geometries(), ceil=st.booleans(), t=st.sampled_from(["float32", "float64", "int8", "uint8"])
)
def test_pools(g, ceil, t):
    size, kernel, stride, padding, dilation = g
    a = values((2, 2, *size), t)
    rank, how = len(size), (stride, padding, dilation, ceil)
    axes = tuple(range(-rank, 0))
    least = -np.inf if t[0] == "f" else np.iinfo(t).min
    seen, kind = windows(a, kernel, *how[:3], np.dtype(t).type(least), ceil)
    same(both(lambda x: x.max_pool(kernel, *how), a), seen.max(axes))
    raw, _ = windows(a, kernel, *how[:3], 0, ceil)
    same(run(lambda x: x.windows(kernel, *how), a), raw)
    total = raw.astype("f8").sum(axes)
    given_type = t if t[0] == "f" else "f4"
    for include in (True, False):
        count = (kind >= (1 if include else 2)).sum(axes)
        with np.errstate(invalid="ignore"):
            wanted = (total / count).astype(given_type)
        got = both(lambda x, i=include: x.avg_pool(kernel, *how, count_include_pad=i), a)
        same(got, wanted, 1e-5)


@settings(max_examples=60, deadline=None)
@given(g=geometries(), ceil=st.booleans(), high=st.sampled_from([1, 3]))
def test_indices_of_pools(g, ceil, high):
    """The first of equal ones, and never one of the padding, also where all are -inf."""
    size, kernel, stride, padding, dilation = g
    a = np.random.default_rng(0).integers(0, high, (2, 2, *size)).astype("f4")
    a[a == 0] = -np.inf
    a[1, 1, ..., :1] = np.nan
    how = (stride, padding, dilation, ceil)
    seen, kind = windows(a, kernel, *how[:3], -np.inf, ceil)
    place, _ = windows(np.arange(a[0, 0].size).reshape(1, 1, *size), kernel, *how[:3], -1, ceil)
    flat = seen.reshape(*seen.shape[: 2 + len(size)], -1)
    real = np.broadcast_to(kind.reshape(*kind.shape[: len(size)], -1) == 2, flat.shape)
    best = np.where(np.isnan(flat).any(-1), np.nan, np.where(np.isnan(flat), 0, flat).max(-1))
    hit = real & ((flat == best[..., None]) | np.isnan(flat))
    places = np.broadcast_to(place.reshape(1, 1, *flat.shape[2:]), flat.shape)
    first = np.take_along_axis(places, hit.argmax(-1)[..., None], -1)[..., 0]
    wanted = np.where(hit.any(-1), first, -1).astype("i4")
    x = as_param(a)
    got = uopc.compile(x.max_pool_with_indices(kernel, *how))(a)
    same(got[0], best.astype("f4"))
    same(got[1], wanted)
    same(interpreter.evaluate(x.max_pool_with_indices(kernel, *how)[1], {"x": a}), wanted)


# ---------------------------------------------------------------- resizing
# Of ONNX 23; its evaluator does not know tf_half_pixel_for_nn.
COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
               "asymmetric", "tf_crop_and_resize"]  # fmt: skip


def onnx_resize(a, sizes, scales, crop, **attributes):
    given = {"roi": crop, "scales": scales, "sizes": sizes}
    given = {k: v for k, v in given.items() if v is not None}
    names = ["x", *[k if k in given else "" for k in ("roi", "scales", "sizes")]]
    node = helper.make_node("Resize", names, ["y"], **attributes)
    kinds = {"roi": TensorProto.FLOAT, "scales": TensorProto.FLOAT, "sizes": TensorProto.INT64}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, a.shape)]
    inputs += [helper.make_tensor_value_info(k, kinds[k], v.shape) for k, v in given.items()]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    return ReferenceEvaluator(model).run(None, {"x": a, **given})[0]


@settings(max_examples=80, deadline=None)
@given(
    size=st.tuples(st.integers(1, 6), st.integers(2, 6)),
    wanted=st.tuples(st.integers(1, 9), st.integers(2, 9)),
    mode=st.sampled_from(["nearest", "linear", "cubic"]), coordinates=st.sampled_from(COORDINATES),
    rounding=st.sampled_from(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]),
    antialias=st.booleans(), exclude=st.booleans(), scaled=st.booleans(),
)  # fmt: skip
def test_resize(size, wanted, mode, coordinates, rounding, antialias, exclude, scaled):
    a = values((2, *size))
    antialias = antialias and mode != "nearest"
    exclude = exclude and mode == "cubic"
    crop = np.array([0.0, -0.2, 0.1, 1.0, 1.3, 0.9], "f4")
    scales = np.array([1.0, wanted[0] / size[0], wanted[1] / size[1] * 0.9], "f4")
    sizes = None if scaled else np.array([2, *wanted])
    scales = scales if scaled else None
    counts = np.floor(np.array(a.shape) * scales) if scaled else sizes
    assume(min(counts) >= 1)
    # For one element the evaluator gives other places than the text of ONNX.
    assume(min(counts) > 1 or coordinates not in ("pytorch_half_pixel", "tf_crop_and_resize"))
    cropped = coordinates == "tf_crop_and_resize"
    expected = onnx_resize(
        a, sizes, scales, crop if cropped else None, mode=mode, nearest_mode=rounding,
        coordinate_transformation_mode=coordinates, antialias=int(antialias),
        exclude_outside=int(exclude), extrapolation_value=7.0,
    )  # fmt: skip
    got = both(lambda x: x.resize(
        None if scaled else wanted, scales[1:].tolist() if scaled else None, (1, 2), mode,
        coordinates, rounding, -0.75, antialias, exclude,
        [(float(crop[k]), float(crop[3 + k])) for k in (1, 2)] if cropped else None, 7.0,
    ), a)  # fmt: skip
    same(got, expected.astype("f4"), 2e-5)


def test_places_of_one_element():
    """As ONNX and PyTorch define them."""
    a = np.array([10.0, 20.0, 40.0])
    same(run(lambda x: x.resize(1, coordinates="pytorch_half_pixel"), a), a[:1])
    same(run(lambda x: x.resize(1, coordinates="align_corners"), a), a[:1])
    crop, to = [(0.5, 1.0)], "tf_crop_and_resize"
    same(run(lambda x: x.resize(1, coordinates=to, crop=crop), a), np.array([30.0]))


def test_places_of_older_models():
    a = np.arange(5.0)
    got = run(lambda x: x.resize(7, None, None, "linear", "tf_half_pixel_for_nn"), a)
    same(got, np.minimum((np.arange(7) + 0.5) * 5 / 7, 4), 1e-12)


def test_resize_of_integers_and_narrow_floats():
    a = np.array([[0, 10, 20]], "u1")
    same(both(lambda x: x.resize(2, mode="nearest", coordinates="asymmetric", rounding="floor"), a),
         np.array([[0, 10]], "u1"))  # fmt: skip
    same(run(lambda x: x.resize(5, coordinates="align_corners"), a),
         np.array([[0, 5, 10, 15, 20]], "f4"))  # fmt: skip
    assert run(lambda x: x.resize(5), a.astype("f2")).dtype == "f2"
    n = uopc.variable("n", 1, 9)
    assert uopc.param("x", (n, 3)).resize(6).shape == (n, 6)
    with pytest.raises(uopc.UserError, match=r"axis 0 of \(0, 3\) must have a size"):
        uopc.param("x", (0, 3)).resize(6, axes=(0,))


# ---------------------------------------------------------------- Fourier transforms
LENGTHS = [1, 2, 3, 5, 8, 31, 32, 33, 37, 64, 127, 131, 210, 257, 521, 1000, 1024, 1517, 4096]


def numbers(z):
    return z[..., 0] + 1j * z[..., 1]


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.few(3)
def test_fourier_transforms(n):
    """The error grows as the square root of the logarithm of the length."""
    real, pairs = values((3, n), "f8"), values((2, n, 2), "f8")
    size = np.sqrt(n) * 3
    got = uopc.compile((
        as_param(real).rfft(), as_param(pairs, "z").fft(), as_param(pairs, "z").ifft(),
        as_param(pairs, "z").irfft(2 * n - 1), as_param(pairs, "z").irfft(n + 1),
    ))(real, pairs)  # fmt: skip
    z = numbers(pairs)
    for found, wanted in ((numbers(got[0]), np.fft.rfft(real)), (numbers(got[1]), np.fft.fft(z)),
                          (numbers(got[2]), np.fft.ifft(z)), (got[3], np.fft.irfft(z, 2 * n - 1)),
                          (got[4], np.fft.irfft(z, n + 1))):  # fmt: skip
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, 0, 4e-15 * size)


@pytest.mark.parametrize("axis", [0, 1, -3])
@pytest.mark.parametrize("n", [None, 3, 9])
def test_axes_and_lengths_of_transforms(axis, n):
    real, pairs = values((6, 4, 5), "f8"), values((6, 4, 5, 2), "f8")
    both_of = run(lambda x: x.rfft(n, axis), real)
    np.testing.assert_allclose(numbers(both_of), np.fft.rfft(real, n, axis), 1e-12, 1e-12)
    along = axis if axis >= 0 else axis - 1
    z = numbers(pairs)
    for name in ("fft", "ifft"):
        got = numbers(run(lambda x, name=name: getattr(x, name)(n, along), pairs))
        np.testing.assert_allclose(got, getattr(np.fft, name)(z, n, axis), 1e-12, 1e-12)
    got = run(lambda x: x.irfft(n, along), pairs)
    np.testing.assert_allclose(got, np.fft.irfft(z, n, axis), 1e-12, 1e-12)


@pytest.mark.parametrize("t", ["float16", "float32", "int32", "uint8"])
def test_dtypes_of_transforms(t):
    a = values((64,), t)
    got = both(lambda x: x.rfft(), a)
    assert got.dtype == {"int32": "f8", "uint8": "f4"}.get(t, t)
    tolerance = {"float16": 2e-3, "int32": 1e-13}.get(t, 1e-6)
    wanted = np.fft.rfft(a.astype("f8"))
    np.testing.assert_allclose(numbers(got.astype("f8")), wanted, 0, tolerance * abs(wanted).max())


# ---------------------------------------------------------------- derivatives
@pytest.mark.parametrize("call", [
    lambda x, w: x.conv(w, None, 2, ((1, 2),), 2), lambda x, w: x.conv_transpose(w, None, 2, 1),
    lambda x, w: x.max_pool(3, 2, 1, ceil_mode=True) * w[0, 0, 0],
    lambda x, w: x.avg_pool(2, 1, 1, count_include_pad=False) * w[0, 0, 0],
    lambda x, w: x.resize(13, mode="cubic") * w[0, 0, 1], lambda x, w: x.rfft() * w[0, 0, 0],
    lambda x, w: x.unsqueeze(-1).cat(x.unsqueeze(-1) * w[0, 0, 0], axis=-1).irfft(),
])  # fmt: skip
@pytest.mark.few(3)
def test_derivatives(call):
    """Against differences."""
    a, w = values((1, 2, 9), "f8"), values((2, 2, 3), "f8")
    x, y = as_param(a), as_param(w, "w")
    loss = (call(x, y) ** 2).sum()
    f = uopc.compile(loss, inputs=[x, y])
    slope = uopc.compile(uopc.grad(loss, (x, y)), inputs=[x, y])
    got = slope(a, w)
    step = 1e-6
    for k, at in enumerate((a, w)):
        wanted = np.zeros_like(at)
        for i in np.ndindex(*at.shape):
            moved = [a.copy(), w.copy()]
            moved[k][i] += step
            up = f(*moved)
            moved[k][i] -= 2 * step
            wanted[i] = (up - f(*moved)) / (2 * step)
        np.testing.assert_allclose(got[k], wanted, 1e-5, 1e-5)
