"""Operators whose results are as long as their values say, beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.onnx

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

Array = Any
HEAD = '<ir_version: 9, opset_import: ["": 20]>\n'
RNG = np.random.default_rng(3)
SOME = np.maximum(RNG.standard_normal((3, 5)), 0).astype("f4")
VALUES = RNG.integers(0, 6, 30).astype("f4")


def same(text: str, *calls: dict[str, Array]) -> None:
    """The results of each call equal ONNX Runtime's, in shape, dtype and value."""
    model = onnx.parser.parse_model(HEAD + text)
    program = uopc.onnx.load(model)
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    for inputs in calls:
        made: Any = program(*inputs.values())
        expected = theirs.run(None, inputs)
        for got, wanted in zip(made.values() if type(made) is dict else [made], expected):
            assert got.shape == wanted.shape and got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_nonzero_and_what_follows() -> None:
    calls = [{"x": a} for a in (SOME, SOME * 0, SOME + 1)]
    same("g (float[3,5] x) => (int64[r,c] y) { y = NonZero(x) }", *calls)
    # As exporters write x[x > 0]: the places as columns, then GatherND.
    same(
        "g (float[3,5] x) => (float[c] y, float z, int64[one] n) {"
        " zero = Constant<value_float=0.0>() m = Greater(x, zero) i = NonZero(m)"
        " t = Transpose(i) y = GatherND(x, t) z = ReduceSum<keepdims=0>(y) n = Shape(y) }",
        *calls,
    )


def test_compress() -> None:
    calls = [
        {"x": SOME, "c": np.array(c, bool)} for c in ([1, 0, 1, 1, 0], [0] * 5, [1] * 5)
    ]
    same(
        "g (float[3,5] x, bool[5] c) => (float[a,b] y, float[k] z) {"
        " y = Compress<axis=1>(x, c) z = Compress(x, c) }",
        *calls,
    )


@pytest.mark.parametrize("attributes", ["", "<sorted=0>"])
def test_unique(attributes: str) -> None:
    same(
        "g (float[30] x) => (float[a] y, int64[b] i, int64[c] j, int64[d] k)"
        f" {{ y, i, j, k = Unique{attributes}(x) }}",
        {"x": VALUES}, {"x": VALUES * 0}, {"x": np.arange(30, dtype="f4")[::-1].copy()},
    )  # fmt: skip


def test_top_k_of_a_value() -> None:
    same(
        "g (float[3,5] x, int64[1] k) => (float[a,b] y, int64[c,d] i) { y, i = TopK(x, k) }",
        *[{"x": SOME + np.arange(5, dtype="f4"), "k": np.array([k])} for k in (0, 1, 5)],
    )


@pytest.mark.parametrize("n", [1, 20, 150])
@pytest.mark.parametrize("centred", [0, 1])
def test_non_max_suppression(n: int, centred: int) -> None:
    calls = [
        {
            "b": RNG.random((2, n, 4)).astype("f4"), "s": RNG.random((2, 3, n)).astype("f4"),
            "m": np.array([most]), "t": np.array([overlap], "f4"), "l": np.array([least], "f4"),
        }
        for most, overlap, least in ((3, 0.5, 0.2), (1000, 0.3, 0.5), (0, 0.5, 0.1), (5, 0, 2))
    ]  # fmt: skip
    same(
        f"g (float[2,{n},4] b, float[2,3,{n}] s, int64[1] m, float[1] t, float[1] l)"
        " => (int64[k,c] y)"
        f" {{ y = NonMaxSuppression<center_point_box={centred}>(b, s, m, t, l) }}",
        *calls,
    )


def test_a_detector_gathers_the_boxes_that_are_kept() -> None:
    """The end of a detector: the kept boxes and scores, for a free number of boxes."""
    model = onnx.parser.parse_model(
        HEAD + "g (float[1,n,4] b, float[1,2,n] s) => (float[k,4] y, float[k] z)"
        " <int64[1] m = {10}, float[1] t = {0.5}, float[1] l = {0.3}, int64[1] two = {2},"
        " int64[1] three = {3}, int64[1] axis = {1}, int64[1] zero = {0}> {"
        " r = NonMaxSuppression(b, s, m, t, l) i = Slice(r, two, three, axis)"
        " f = Squeeze(i, axis) all = Squeeze(b, zero) y = Gather<axis=0>(all, f)"
        " z = GatherND(s, r) }"
    )
    program = uopc.onnx.load(model, dims={"n": (1, 60)})
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    for n in (1, 7, 60):
        inputs = {
            "b": RNG.random((1, n, 4)).astype("f4"), "s": RNG.random((1, 2, n)).astype("f4")
        }  # fmt: skip
        made: Any = program(*inputs.values())
        for got, wanted in zip(made.values(), theirs.run(None, inputs)):
            assert got.shape == wanted.shape
            np.testing.assert_array_equal(got, wanted)


DETECTOR = """g (float[1, 40, 4] boxes, float[1, 3, 40] scores)
    => (int64[k, 3] picked, float[m] best, int64[u] unique)
    <int64 most = {10}, float iou = {0.5}, float low = {0.3}, float half = {0.5},
     int64[1] s = {120}, float ten = {5}>
    { picked = NonMaxSuppression(boxes, scores, most, iou, low)
      flat = Reshape(scores, s)  mask = Greater(flat, half)  best = Compress<axis=0>(flat, mask)
      scaled = Mul(flat, ten)  whole = Cast<to=7>(scaled)  unique = Unique<sorted=1>(whole) }"""


@pytest.mark.parametrize("level", [0.0, 0.4, 1.0])
def test_a_detector_is_exported_with_its_suppression(tmp_path: Path, level: float) -> None:
    """No, some or all boxes are left. The length `boxes` has the name of an argument."""
    centre, half = RNG.random((1, 40, 2)), RNG.random((1, 40, 2)) * 0.3
    boxes = np.concatenate([centre - half, centre + half], 2).astype("f4")
    scores = (RNG.random((1, 3, 40)) * level).astype("f4")
    same(DETECTOR, {"boxes": boxes, "scores": scores})
    program = uopc.onnx.load(onnx.parser.parse_model(HEAD + DETECTOR))
    uopc.export(program, tmp_path / "f", kind="shared")
    found = uopc.load_exported(tmp_path / "f.so")(boxes, scores)
    for name, wanted in program(boxes, scores).items():
        assert found[name].shape == wanted.shape
        np.testing.assert_array_equal(found[name], wanted)
