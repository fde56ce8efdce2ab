"""Movement that does not fit: its indices are looked up, and what NumPy gives comes out."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

import uopc
from uopc.ir.builder import index_maps, lookup_tables
from uopc.ir.core import bounds, walk
from uopc.ir.core.ops import Ops
from uopc.ir.index import affine

Array = npt.NDArray[Any]
KINDS = ("pad", "shrink", "flip", "permute", "reshape", "expand", "add", "negate", "where", "sum")


def factors(n: int) -> list[tuple[int, int]]:
    return [(d, n // d) for d in range(1, n + 1) if n % d == 0]


def step(draw: Any, kind: str, x: uopc.UOp, a: Array) -> tuple[uopc.UOp, Array]:
    """One more operation on a value and on what it is worth."""
    dims = a.shape
    if kind == "pad" and a.size < 200:
        widths = [(draw(st.integers(0, 2)), draw(st.integers(0, 1))) for _ in dims]
        return x.pad(tuple(widths)), np.pad(a, widths)
    if kind == "shrink":
        cut = [(draw(st.integers(0, d // 3)), draw(st.integers(d - d // 3, d))) for d in dims]
        return x.shrink(tuple(cut)), a[tuple([slice(b, e) for b, e in cut])]
    if kind == "flip":
        axis = draw(st.integers(0, len(dims) - 1))
        return x.flip((axis,)), np.flip(a, axis)
    if kind == "permute":
        order = tuple(draw(st.permutations(range(len(dims)))))
        return x.permute(order), a.transpose(order)
    if kind == "reshape":
        made = draw(st.sampled_from(factors(a.size)))
        return x.reshape(made), a.reshape(made)
    if kind == "expand" and a.size < 200:
        more = (draw(st.integers(1, 3)), *dims)
        return x.reshape((1, *dims)).expand(more), np.broadcast_to(a, more)
    if kind == "add":
        return x + 1, a + a.dtype.type(1)
    if kind == "negate":
        return -x, -a
    if kind == "where":
        return (x < 3).where(x, 5), np.where(a < 3, a, a.dtype.type(5))
    if kind == "sum" and dims[0] <= 8 and math.prod(dims[1:]) > 4 and a.dtype.kind == "i":
        return x.sum(0, keepdims=True), a.sum(0, keepdims=True, dtype=a.dtype)
    return x, a


@st.composite
def chains(draw: Any) -> tuple[uopc.UOp, Array, Array]:
    dims = draw(st.sampled_from(((6, 4), (5, 7), (24,), (3, 4, 5), (2, 2, 2, 3))))
    dtype = draw(st.sampled_from((uopc.dtypes.float32, uopc.dtypes.int32)))
    given_ = (np.arange(math.prod(dims)) * 7 % 13).reshape(dims).astype(dtype.numpy)
    x, a = uopc.param("x", dims, dtype), given_
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=4, max_size=30)):
        x, a = step(draw, kind, x, a)
    return x, a, given_


@given(chains())
@settings(max_examples=60, deadline=None)
def test_chains_of_movement(chain: tuple[uopc.UOp, Array, Array]) -> None:
    graph, wanted, x = chain
    np.testing.assert_array_equal(uopc.compile(graph, verify=True)(x=x), wanted)


def scrambled(layers: int, n: int = 6, fill: bool = True) -> uopc.UOp:
    """Layers of pad, transpose, reshape to what was before, shrink, flip and add."""
    x = uopc.param("x", (n, n))
    for i in range(n, n + layers):
        x = x.pad(((1, 2), (0, 1))).permute((1, 0)).reshape((i + 3, i + 1))
        x = x.shrink(((1, i + 2), (0, i + 1))).flip((0,))
        x = x + 1.0 if fill else x
    return x


def expected(layers: int, a: Array, fill: bool = True) -> Array:
    n = len(a)
    for i in range(n, n + layers):
        a = np.pad(a, ((1, 2), (0, 1))).transpose().reshape(i + 3, i + 1)[1 : i + 2][::-1]
        a = a + np.float32(1) if fill else a
    return a


@pytest.mark.parametrize("fill", [True, False])
@pytest.mark.parametrize("layers", [1, 2, 3, 5, 20])
def test_a_deep_chain_is_one_kernel_of_tables(layers: int, fill: bool) -> None:
    a = np.random.default_rng(layers).uniform(-1, 1, (6, 6)).astype(np.float32)
    graph = scrambled(layers, fill=fill)
    f = uopc.compile(graph, verify=True)
    np.testing.assert_array_equal(f(x=a), expected(layers, a, fill))
    assert len(f.kernels) == 1
    divisions = f.stages["split-kernels"].count("floormod")
    assert divisions == 0 if layers > 1 else divisions > 0
    assert f.stages["split-kernels"].count(" data ") == (1 + fill if layers > 1 else 0)


@pytest.mark.slow
@pytest.mark.parametrize("optimize", [True, False])
def test_long_loops_are_computed(optimize: bool) -> None:
    """A table of all iterations would be too large: the value is stored now and then."""
    a = np.random.default_rng(3).uniform(-1, 1, (200, 200)).astype(np.float32)
    f = uopc.compile(scrambled(6, 200), verify=True, optimize=optimize)
    np.testing.assert_array_equal(f(x=a), expected(6, a))
    assert " data " not in f.stages["split-kernels"]


def test_variables_are_not_looked_up() -> None:
    at = uopc.variable("at", 0, 4)
    x = uopc.param("x", (12, 6)).shrink(((at, at + 6), (0, 6)))
    graph = x
    for _ in range(4):
        graph = graph.reshape((9, 4)).permute((1, 0)).reshape((6, 6))
    a = np.arange(72, dtype=np.float32).reshape(12, 6)
    wanted = a[3:9]
    for _ in range(4):
        wanted = wanted.reshape(9, 4).transpose().reshape(6, 6)
    np.testing.assert_array_equal(uopc.compile(graph, verify=True)(x=a, at=3), wanted)


def test_two_arrays_under_masks_of_their_own() -> None:
    """Where neither is read the value is a number of a table; a mask of one alone is looked up."""
    a = np.random.default_rng(5).uniform(-1, 1, (2, 6, 6)).astype(np.float32)
    x, y = uopc.param("x", (6, 6)), uopc.param("y", (6, 6))

    def chain(u: Any, turns: int) -> Any:
        for _ in range(turns):
            if isinstance(u, uopc.UOp):
                u = u.pad(((1, 1), (1, 1))).reshape((4, 16)).permute((1, 0))
            else:
                u = np.pad(u, 1).reshape(4, 16).transpose()
            u = u.reshape((8, 8))[1:7, 1:7]
        return u

    got = uopc.compile(chain(x, 4) + chain(y, 3), verify=True)(x=a[0], y=a[1])
    np.testing.assert_array_equal(got, chain(a[0], 4) + chain(a[1], 3))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_stay_where_nothing_is_read(dtype: str) -> None:
    """exp is not computed here: its masks are looked up, and bits are those of the backend."""
    t = getattr(uopc.dtypes, dtype)
    a = np.random.default_rng(5).uniform(-1, 1, (6, 6)).astype(dtype)
    x, wanted = uopc.param("x", (6, 6), t), a
    for _ in range(5):
        x = x.pad(((1, 1), (1, 1))).reshape((4, 16)).permute((1, 0)).reshape((8, 8))[1:7, 1:7]
        x = (x * 0.5).exp()
        wanted = np.pad(wanted, 1).reshape(4, 16).transpose().reshape(8, 8)[1:7, 1:7]
        wanted = np.exp(wanted * wanted.dtype.type(0.5))
    f = uopc.compile(x, verify=True)
    np.testing.assert_allclose(f(x=a), wanted, rtol=100 * np.finfo(dtype).eps)


def test_values_of_every_iteration() -> None:
    (i, j), _ = index_maps.loop_index((4, 3))
    iterations = lookup_tables.Iterations((j, i))
    mod = affine.floormod(affine.add(affine.scaled(i, 5), j), affine.const(7))
    counted = (np.arange(4)[:, None] * 5 + np.arange(3)) % 7
    found = iterations.array(mod)
    assert found is not None
    np.testing.assert_array_equal(found, counted)
    assert iterations.array(uopc.param("x", ())) is None


def test_places_that_move_evenly_along_a_loop() -> None:
    """Rows in any order: the table has a place for each row, and neighbours stay neighbours."""
    (i, j), _ = index_maps.loop_index((4, 3))
    iterations = lookup_tables.Iterations((i, j))
    rows = np.array([3, 0, 2, 1])[:, None] * 3
    place, scattered = iterations.as_index(rows + np.arange(3), np.asarray(True))
    assert not scattered
    table = next(u for u in walk.toposort(place) if u.op is Ops.DATA)
    assert table.arg.dims == (4,)
    live = np.arange(3) < 2
    place, scattered = iterations.as_index(np.where(live, rows + np.arange(3), 99), live[None])
    assert not scattered
    assert affine.form(place)[1][j] == 1
    place, scattered = iterations.as_index(rows + np.array([0, 2, 1]), rows > 0)
    assert scattered
    assert bounds.bounds(place)[0] == -1
