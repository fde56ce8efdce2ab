"""Graphs written element by element, before and after `reroll`: the same bits, and one kernel."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.interpret import interpreter
from uopc.ir.verify import verifier
from uopc.passes.contract import Context
from uopc.passes.reroll.reroll import reroll

VALUES = np.array([-0.0, 0.0, 1.5, -2.25, np.inf, -np.inf, np.nan, 3e-45], "f4")


def rerolled(*outputs):
    graph = intern(Ops.SINK, dtypes.void, outputs)
    after = reroll(graph, Context(None, True, 1))
    verifier.verify(after, TENSOR, "reroll")
    return after.src


def same_bits(outputs, arrays):
    for before, after in zip(outputs, rerolled(*outputs)):
        a, b = interpreter.evaluate(before, arrays), interpreter.evaluate(after, arrays)
        assert a.dtype == b.dtype and a.shape == b.shape
        assert np.array_equal(np.isnan(a), np.isnan(b))
        kept = ~np.isnan(a)
        assert np.array_equal(np.signbit(a[kept]), np.signbit(b[kept]))
        assert np.array_equal(a[kept], b[kept])


def part(draw, x, n):
    """A function from (place, number) to an expression of one form over windows of `x`."""
    width = draw(st.integers(1, 3))
    steps = draw(st.lists(st.sampled_from("cnmrwsz"), max_size=4))

    def build(at, number):
        y = x[at : at + width]
        for s in steps:
            if s == "c":
                y = y * number
            elif s == "n":
                y = -y
            elif s == "m":
                y = y.maximum(x[0]) + y
            elif s == "r":
                y = y.reshape(1, width).sum(axis=0)
            elif s == "w":
                y = uopc.where(y < number, y, x[1:2])
            elif s == "s":
                y = uopc.stack(y, y + 1).permute(1, 0)[:, 1]
            else:
                y = y.pad(((1, 1),))[:width]
        return y

    return build, width


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_parts_that_are_alike(data):
    n = data.draw(st.integers(4, 20))
    x = uopc.param("x", (12,))
    build, width = part(data.draw, x, n)
    places = data.draw(st.lists(st.integers(0, 12 - width), min_size=n, max_size=n))
    numbers = data.draw(st.lists(st.sampled_from([0.0, -0.0, 2.0, -3.5]), min_size=n, max_size=n))
    parts = [build(at, c) for at, c in zip(places, numbers)]
    joined = uopc.stack(*parts) if data.draw(st.booleans()) else uopc.cat(*parts)
    values = data.draw(st.lists(st.sampled_from(VALUES.tolist()), min_size=12, max_size=12))
    same_bits([joined], {"x": np.array(values, "f4")})


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_sums_of_pads(data):
    x = uopc.param("x", (6,))
    at, terms = 0, []
    for _ in range(data.draw(st.integers(1, 8))):
        at += data.draw(st.integers(-1 if at else 0, 2))
        width = data.draw(st.integers(1, 3))
        begin = data.draw(st.integers(0, 6 - width))
        number = uopc.full((width,), data.draw(st.sampled_from([0.0, -0.0, 1.0])))
        terms.append((at, width, data.draw(st.sampled_from([x[begin : begin + width], number]))))
        at += width
    total = max(a + w for a, w, _ in terms)
    padded = [t.pad(((a, total - a - w),)) for a, w, t in data.draw(st.permutations(terms))]
    joined = padded[0]
    for p in padded[1:]:
        joined = joined + p
    values = data.draw(st.lists(st.sampled_from(VALUES.tolist()), min_size=6, max_size=6))
    same_bits([joined, joined[:1] * 2], {"x": np.array(values, "f4")})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_constants_are_what_the_interpreter_gives(data):
    numbers = data.draw(st.lists(st.sampled_from(VALUES[:4].tolist()), min_size=6, max_size=6))
    u = uopc.stack(*[uopc.full((), v) for v in numbers])
    for step in data.draw(st.lists(st.sampled_from("rpfsanmwec"), max_size=5)):
        k = shapes.shape(u)[0]
        u = {
            "r": lambda u=u: u.reshape(-1, 2) if u.shape[-1] % 2 == 0 else u,
            "p": lambda u=u: u.transpose() if len(u.shape) > 1 else u,
            "f": lambda u=u: u.flip(0),
            "s": lambda u=u, k=k: u[k // 2 :],
            "a": lambda u=u: u + u.flip(0),
            "n": lambda u=u: -u * 2,
            "m": lambda u=u: u.maximum(0.5),
            "w": lambda u=u: uopc.where(u < 0, u, 1.0),
            "e": lambda u=u: u.pad([(1, 0)] + [(0, 0)] * (len(u.shape) - 1)),
            "c": lambda u=u: u.cast(dtypes.int32).cast(dtypes.float32),
        }[step]()
    x = uopc.param("x", ())
    same_bits([u * x, u], {"x": np.array(2.0, "f4")})


def test_many_elements_are_one_kernel():
    x = uopc.param("x", (500,))
    rng = np.random.default_rng(0)
    places, numbers = rng.integers(0, 500, 300), rng.integers(2, 9, 300)
    y = uopc.stack(*[(x[int(p)] * float(c)).exp() for p, c in zip(places, numbers)])
    program = uopc.compile(y)
    assert len(program.kernels) == 1 and program.stats["launches"] == 1
    values = rng.standard_normal(500).astype("f4") / 9
    expected = np.exp(values[places] * numbers.astype("f4"))
    assert np.allclose(program(values), expected, rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_parts_of_several_forms(data):
    n = data.draw(st.integers(8, 24))
    x = uopc.param("x", (12,))
    build = {
        "a": lambda i: x[i] * (i + 2.0), "b": lambda i: x[i].maximum(x[0]),
        "c": lambda i: uopc.full((), float(i)), "d": lambda i: x[3],
    }  # fmt: skip
    forms = data.draw(st.lists(st.sampled_from("abcd"), min_size=n, max_size=n))
    if data.draw(st.booleans()):
        forms.sort()
    parts = [build[f](data.draw(st.integers(0, 11))) for f in forms]
    values = data.draw(st.lists(st.sampled_from(VALUES.tolist()), min_size=12, max_size=12))
    joined = uopc.stack(*parts) if data.draw(st.booleans()) else uopc.cat(*[p[None] for p in parts])
    same_bits([joined], {"x": np.array(values, "f4")})


def test_one_part_in_three_is_different():
    x = uopc.param("x", (300,))
    y = uopc.stack(*[x[i] * 3.0 if i % 3 else x[i].exp() for i in range(300)])
    program = uopc.compile(y)
    assert program.stats["launches"] <= 3
    values = np.random.default_rng(0).standard_normal(300).astype("f4")
    expected = np.where(np.arange(300) % 3, values * np.float32(3), np.exp(values))
    assert np.allclose(program(values), expected, rtol=1e-6)


@pytest.mark.parametrize("n", [100, 400])
def test_graph_size_after_does_not_depend_on_the_number_of_parts(n):
    x = uopc.param("x", (n + 1,))
    columns = uopc.stack(*[x[i] * x[i + 1] + float(i * i) for i in range(n)])
    (after,) = rerolled(columns)
    assert len(walk.toposort(after)) < 30


@pytest.mark.slow
def test_a_long_chain_in_every_part():
    x = uopc.param("x", (4,))
    parts = []
    for i in range(4):
        y = x[i]
        for k in range(5000):
            y = y + float(k)
        parts.append(y)
    (after,) = rerolled(uopc.stack(*parts))
    assert 5000 < len(walk.toposort(after)) < 10020


def test_elements_at_irregular_places_have_one_array_of_places():
    """Of two axes, and of a value that is computed first: counted as they lie in memory."""
    rng = np.random.default_rng(8)
    a = rng.random((6, 9), dtype=np.float32)
    x = uopc.param("x", a.shape)
    places = [(int(k) // 9, int(k) % 9) for k in rng.integers(0, 54, 40)]
    for value, wanted in ((x, a), (x.exp(), np.exp(a))):
        f = uopc.compile(uopc.stack(*[value[i, j] for i, j in places]), verify=True)
        np.testing.assert_allclose(f(a), [wanted[i, j] for i, j in places], rtol=1e-6)
        stage = f.stages["reroll"]
        assert stage.count("i32[40]") == 1 and stage.count("index[40]") == 1, stage


def test_constants_that_are_one_number_join_the_others():
    """Columns put together from numbers, some of them the same number throughout: one array."""
    x = uopc.param("x", (5,))
    filled = [0.0, 1.0, 0.0, 2.5, -0.0, 0.0]
    numbers = [[uopc.constant(np.float32(f * (i < 3))) for i in range(5)] for f in filled]
    columns = [uopc.stack(*n) for n in numbers]
    graph = uopc.stack(*[x * (c * -1.0) for c in columns])
    (after,) = rerolled(graph)
    assert not any(u.op in (Ops.STACK, Ops.CAT) for u in after.toposort())
    same_bits([graph], {"x": VALUES[2:7]})
