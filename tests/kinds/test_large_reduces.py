"""The interpreter of recorded graphs: operands that are not made, and sums too long to add up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.conformance import large_reduces, perturb
from tests.conformance.constant_sums import path_to_constant, sum_of_constant
from tests.conformance.loader import Graph
from uopc.ir.builder import alu, leaves, movement
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.tensor import creation

Array = Any
F32, U32 = dtypes.float32, dtypes.uint32
RANDOM = np.random.default_rng(0)
K = uopc.param("k", (6,), dtypes.int32)
W, V = uopc.param("w9", (9, 5), dtypes.float64), uopc.param("v", (6, 5), dtypes.float64)


def evaluate(graph: UOp, inputs: dict[str, Array]) -> Array:
    """The value of a graph; elements that do not exist are 0."""
    found = perturb.interpret(Graph([graph]), inputs, {})
    return np.where(found.get("valid0", np.True_), found["out0"], 0).astype(graph.dtype.numpy)


def numbers(*shape: int) -> Array:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


# ---------------------------------------------------------------- sums of products
def _graphs() -> dict[str, UOp]:
    a, b = uopc.param("a", (6, 8), dtypes.float64), uopc.param("b", (8, 5), dtypes.float64)
    x = uopc.param("x", (2, 3, 9, 9), dtypes.float64)
    w = uopc.param("w", (4, 3, 3, 3), dtypes.float64)
    q = uopc.param("q", (3, 4, 8), dtypes.float64)
    return {
        "product": a @ b,
        "convolution": x.conv2d(w, padding=1),
        "batched": q @ q.transpose(1, 2),
        "repeated": (a.reshape(6, 8, 1) * b.reshape(1, 8, 5).expand(6, 8, 5)).sum(axis=(0, 1)),
        "picked": alu.where(K.reshape(6, 1).eq(uopc.arange(9)).reshape(6, 9, 1),
                              W.reshape(1, 9, 5), 0.0).sum(axis=1),
        "scattered": alu.where(K.reshape(6, 1).eq(uopc.arange(9)).reshape(6, 9, 1),
                                 V.reshape(6, 1, 5), 0.0).transpose(0, 2).sum(axis=(2,)),
        "neither": (a.reshape(6, 8, 1).expand(6, 8, 7) * 2.0).sum(axis=(1, 2)),
    }


@pytest.mark.parametrize("name", list(_graphs()))
def test_contraction(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _graphs()[name]
    params = {u.arg.name: u for u in graph.toposort() if u.op.name == "param"}
    inputs = {k: RANDOM.standard_normal(p.arg.dims) for k, p in params.items() if k != "k"}
    inputs["k"] = np.array([0, 3, 3, 8, -1, 5], np.int32)
    plain = evaluate(graph, inputs)
    monkeypatch.setattr(large_reduces, "MOST_ELEMENTS", 16)
    calls: list[int] = []
    whole = large_reduces._sum_of_products
    monkeypatch.setattr(
        large_reduces, "_sum_of_products", lambda *a: calls.append(1) or whole(*a)
    )
    np.testing.assert_allclose(evaluate(graph, inputs), plain, rtol=1e-12, atol=1e-12)
    assert calls


def test_what_is_not_picked_may_be_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row sums what its key picks: infinities of one sign, of both, NaN, nothing."""
    monkeypatch.setattr(large_reduces, "MOST_ELEMENTS", 4)
    keys, terms = uopc.param("k", (5,), dtypes.int32), uopc.param("t", (5, 2), dtypes.float32)
    one_hot = keys.reshape(1, 5).eq(uopc.arange(6).cast(dtypes.int32).reshape(6, 1))
    graph = alu.where(one_hot.reshape(6, 5, 1), terms.reshape(1, 5, 2), 0.0).sum(axis=1)
    k = np.array([0, 0, 1, 2, 4], np.int32)
    t = np.array([[1, np.inf], [np.inf, -np.inf], [2, 3], [np.nan, 4], [-np.inf, 5]], np.float32)
    want = np.zeros((6, 2), np.float32)
    with np.errstate(invalid="ignore"):
        np.add.at(want, k, t)
    np.testing.assert_array_equal(evaluate(graph, {"k": k, "t": t}), want)


# ---------------------------------------------------------------- long sums
def raw(op: Any, u: UOp, arg: tuple[int, ...]) -> UOp:
    """A node as it is written, which the builders would fold."""
    return intern(op, u.dtype, (u,), arg)


def triangle(n: int, value: int = 1, dtype: dtypes.DType = U32) -> UOp:
    """1 … n times a value, as the sum of a triangle."""
    u = raw(Ops.EXPAND, leaves.const(dtype, value), (n,))
    u = raw(Ops.PAD, u, (n - 1, 2 * n - 1))
    u = raw(Ops.EXPAND, raw(Ops.RESHAPE, u, (1, 2 * n - 1)), (n + 1, 2 * n - 1))
    u = raw(Ops.SHRINK, raw(Ops.RESHAPE, u, ((n + 1) * (2 * n - 1),)), (0, 2 * n * n))
    u = raw(Ops.SHRINK, raw(Ops.RESHAPE, u, (n, 2 * n)), (0, 0, n, n))
    u = raw(Ops.PERMUTE, u, (1, 0))
    return intern(Ops.REDUCE, dtype, (u,), ReduceArg("add", (1,)))


@pytest.mark.parametrize("n", [1, 2, 7, 100, 300_000])
def test_an_arange_of_any_length(n: int) -> None:
    np.testing.assert_array_equal(evaluate(triangle(n), {}), np.arange(1, n + 1, dtype=np.uint32))


def test_a_long_sum_wraps() -> None:
    n = 6000
    got = evaluate(triangle(n, 100, dtypes.uint8), {})
    np.testing.assert_array_equal(got, (np.arange(1, n + 1) * 100).astype(np.uint8))


def test_a_long_sum_counts_what_is_there() -> None:
    rows = raw(Ops.EXPAND, leaves.const(U32, 1), (6000, 6000))
    total = intern(
        Ops.REDUCE, U32, (raw(Ops.SHRINK, rows, (1, 0, 5999, 6000)),), ReduceArg("add", (0,))
    )
    np.testing.assert_array_equal(evaluate(total, {}), np.full(6000, 5999, np.uint32))


def factors(n: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of n elements."""
    divisors = [d for d in range(1, n + 1) if n % d == 0] if n else [0]
    return st.sampled_from(divisors).map(lambda d: (d, n // d if d else 3))


@st.composite
def sums(draw: st.DrawFn) -> UOp:
    """A constant that is moved some times, then summed."""
    u = leaves.const(dtypes.int32, draw(st.integers(-3, 3)))
    dims: tuple[int, ...] = ()
    for _ in range(draw(st.integers(1, 7))):
        op = draw(st.sampled_from((Ops.RESHAPE, Ops.EXPAND, Ops.PAD, Ops.SHRINK)))
        if op is Ops.RESHAPE:
            dims = arg = draw(factors(math.prod(dims)))
        elif op is Ops.EXPAND:
            wider = [draw(st.integers(0, 4)) if d == 1 else d for d in dims]
            leading = draw(st.lists(st.integers(1, 3), max_size=max(0, 3 - len(dims))))
            dims = arg = (*leading, *wider)
        elif op is Ops.PAD:
            begins = [draw(st.integers(0, 2)) for _ in dims]
            dims = tuple([b + d + draw(st.integers(0, 2)) for b, d in zip(begins, dims)])
            arg = (*begins, *dims)
        else:
            begins = [draw(st.integers(0, d)) for d in dims]
            dims = tuple([draw(st.integers(0, d - b)) for b, d in zip(begins, dims)])
            arg = (*begins, *dims)
        if math.prod(dims) > 5000:
            break
        u = raw(op, u, arg)
    dims = shapes.shape(u)
    for _ in range(draw(st.integers(0, 2))):
        u = raw(Ops.PERMUTE, u, tuple(draw(st.permutations(range(len(dims))))))
    axes = tuple(i for i in range(len(dims)) if draw(st.booleans()))
    return intern(Ops.REDUCE, u.dtype, (u,), ReduceArg("add", axes))


@settings(max_examples=300, deadline=None)
@given(sums())
def test_counting_gives_what_adding_gives(u: UOp) -> None:
    assert path_to_constant(u) is not None
    got = sum_of_constant(u, lambda nodes: [])
    wanted = evaluate(u, {})
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


# ---------------------------------------------------------------- operands that are not made
@pytest.mark.parametrize("most", [1, 7, 50, 1 << 24])
@pytest.mark.parametrize("op", ["add", "max"])
def test_blocks_give_what_the_whole_gives(
    monkeypatch: pytest.MonkeyPatch, most: int, op: str
) -> None:
    a, b = creation.param("a", (5, 6)), creation.param("b", (6, 7))
    product = movement.reshape(a, (5, 6, 1)) * movement.reshape(b, (1, 6, 7))
    moved = movement.permute(alu.where(product < 0.0, product, -product), (2, 1, 0))
    arrays = {"a": numbers(5, 6) - 9.5, "b": numbers(6, 7) - 20.5}
    terms = -np.abs(arrays["a"][:, :, None] * arrays["b"]).transpose(2, 1, 0)
    monkeypatch.setattr(large_reduces, "MOST_ELEMENTS", most)
    for axes in ((1,), (0, 2), (0, 1, 2), (2,)):
        u = intern(Ops.REDUCE, F32, (moved,), ReduceArg(op, axes))  # type: ignore[arg-type]
        wanted = terms.sum(axes) if op == "add" else terms.max(axes)
        np.testing.assert_allclose(evaluate(u, arrays), wanted, rtol=1e-5)
        sums, count = large_reduces.magnitude(u, {v: arrays_of(v, arrays) for v in below(u)})
        np.testing.assert_allclose(sums, np.abs(terms).sum(axes), rtol=1e-6)
        assert count == math.prod([terms.shape[axis] for axis in axes])


def below(u: UOp) -> list[UOp]:
    return [*large_reduces.leaves(u), u.src[0]]


def arrays_of(u: UOp, arrays: dict[str, Array]) -> Array:
    return evaluate(u, {k: a for k, a in arrays.items() if k in names(u)})


def names(u: UOp) -> set[str]:
    return {v.arg.name for v in walk.toposort(u) if v.op is Ops.PARAM}


def test_a_large_operand_with_missing_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A REDUCE over an element that does not exist does not exist: it reads as 0."""
    a = creation.param("a", (4, 5))
    hole = alu.where(a < 3.0, intern(Ops.INVALID, F32), a)
    monkeypatch.setattr(large_reduces, "MOST_ELEMENTS", 6)
    u = intern(Ops.REDUCE, F32, (hole,), ReduceArg("add", (1,)))
    rows = numbers(4, 5)
    np.testing.assert_array_equal(evaluate(u, {"a": rows}), [0, *rows.sum(1)[1:]])
