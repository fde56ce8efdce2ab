"""COMPUTE_AT: a row of a stencil's producer is computed once per block of rows. Against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc import UOp
from uopc.ir.core.args import Opt

Stencil = Callable[[Any], Any]
RANDOM = np.random.default_rng(0)


def blur(x: Any) -> Any:
    wide = (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) * (1 / 3)
    return (wide[:-2] + wide[1:-1] + wide[2:]) * (1 / 3)


def cross(x: Any) -> Any:
    return x[2:, 1:-1] + x[:-2, 1:-1] - x[1:-1, 2:] * 2.0 + x[1:-1, :-2]


def corners(x: Any) -> Any:
    return x[:-2, :-2] + x[2:, 2:] - x[:-2, 2:] * 2.0 + x[2:, :-2]


def names(program: uopc.Program) -> set[str]:
    return {o.op for k in program.kernels for o in k.opts}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(258, 258), (100, 37), (50, 1030), (66, 19)])
@pytest.mark.few(3)
def test_chosen_by_cost(shape: tuple[int, int], threads: int) -> None:
    x = uopc.param("x", shape)
    value = RANDOM.uniform(-3, 3, shape).astype("f4")
    program = uopc.compile(blur(x.sin()), threads=threads, verify=True)
    assert "COMPUTE_AT" in names(program) and len(program.kernels) == 1
    np.testing.assert_allclose(program(value), blur(np.sin(value)), rtol=1e-4, atol=1e-6)


def test_a_cheap_producer_is_computed_at_each_place() -> None:
    x = uopc.param("x", (258, 258))
    assert "COMPUTE_AT" not in names(uopc.compile(cross(x * 2.0)))


def test_a_row_may_choose_what_is_computed() -> None:
    """The first operand of such a value is a comparison, which reads nothing: that was a crash."""

    def of(x: Any, is_even: Any, where: Any, sin: Any, exp: Any) -> Any:
        made = where(is_even.reshape(64, 1), sin(x), exp(x))
        return made[:, :-2] + made[:, 1:-1] + made[:, 2:]

    x, value = uopc.param("x", (64, 66)), RANDOM.uniform(-3, 3, (64, 66)).astype("f4")
    graph = of(x, (uopc.arange(64) % 2).eq(0), UOp.where, UOp.sin, UOp.exp)
    wanted = of(value, np.arange(64) % 2 == 0, np.where, np.sin, np.exp)
    program = uopc.compile(graph, verify=True)
    np.testing.assert_allclose(program(value), wanted, rtol=1e-5, atol=1e-6)


def on_request(graph: UOp, *opts: tuple[str, int, int]) -> uopc.Program:
    return uopc.compile(graph.contiguous(tuple([Opt(*o) for o in opts])), verify=True)


@pytest.mark.parametrize("number", range(4))
def test_on_request(number: int) -> None:
    """Number n is one of the values: the function, or a sum of some."""
    x = uopc.param("x", (34, 34))
    value = RANDOM.uniform(-3, 3, (34, 34)).astype("f4")
    program = on_request(blur(x * 2.0), ("TILE", 0, 4), ("COMPUTE_AT", 0, number))
    assert "local" in program.stages["optimize"]
    np.testing.assert_allclose(program(value), blur(value * 2), rtol=1e-5, atol=1e-6)


def test_each_row_is_computed_once_per_block() -> None:
    x = uopc.param("x", (18, 10))
    program = on_request(corners(x.exp()), ("TILE", 0, 4), ("COMPUTE_AT", 0, 0))
    text = program.stages["optimize"]
    assert text.count("= exp ") == 1 and "range 6 axis=1.0" in text and "range 10 axis=1.1" in text


def test_elements_read_across_memory() -> None:
    """The tile has the order of the loops, and is filled in the order of memory."""
    x = uopc.param("x", (12, 20, 8))
    value = RANDOM.uniform(-3, 3, (12, 20, 8)).astype("f4")
    program = on_request(x.permute(2, 1, 0) * 2.0, ("TILE", 0, 4), ("COMPUTE_AT", 0, 0))
    text = program.stages["optimize"]
    for loop in ("range 12 axis=1.0", "range 20 axis=1.1", "range 4 axis=1.2"):
        assert loop in text
    np.testing.assert_array_equal(program(value), value.transpose(2, 1, 0) * 2)


@pytest.mark.parametrize(
    ("graph", "opts", "why"),
    [
        (lambda x: x.exp() + 1.0, (("COMPUTE_AT", 0, 0),), "below 0, the number of values"),
        (lambda x: x.permute(1, 0) * 2.0, (("COMPUTE_AT", 1, 0),), "below 0, the number of values"),
        (lambda x: x.permute(1, 0) * 2.0, (("COMPUTE_AT", 0, 1),), "below 0, the number of values"),
        (lambda x: cross(x.exp()), (("COMPUTE_AT", 0, 99),), "the number of values"),
        (lambda x: cross(x.exp()), (("COMPUTE_AT", 0, -1),), "the number of values"),
        (lambda x: x.sum(axis=1), (("COMPUTE_AT", 1, 0),), "for output loops"),
    ],
)
def test_refused(graph: Stencil, opts: Any, why: str) -> None:
    with pytest.raises(uopc.Error, match=why):
        on_request(graph(uopc.param("x", (18, 18))), *opts)


def test_the_block_around_all_places_must_be_inside() -> None:
    """The kernel gets the array from the first element on that it reads: corners are outside."""
    with pytest.raises(uopc.Error, match="from outside of the storage"):
        x = uopc.param("x", (18, 10))
        on_request(cross(x.exp()), ("TILE", 0, 4), ("COMPUTE_AT", 0, 0))


@pytest.mark.parametrize(("height", "threads", "rows"), [(19, 5, 4), (35, 4, 8), (67, 8, 8)])
def test_threads_whose_chunks_have_other_numbers_of_blocks(
    height: int, threads: int, rows: int
) -> None:
    """Some chunks have a row more than others, and only these a whole block."""
    opts = ("THREAD", 0, threads), ("SPLIT", 1, rows), ("TILE", 1, rows), ("COMPUTE_AT", 1, 0)
    value = RANDOM.uniform(-3, 3, (height, 20)).astype("f4")

    def of(x: Any) -> Any:
        return (x[:-1] + x[1:])[:, :-1] + (x[:-1] + x[1:])[:, 1:]

    program = on_request(of(uopc.param("x", value.shape).sin()), *opts)
    np.testing.assert_allclose(program(value), of(np.sin(value)), rtol=1e-4, atol=1e-6)


def test_symbolic_rows() -> None:
    n = uopc.variable("n", 3, 300)
    x = uopc.param("x", (n, 40))
    program = uopc.compile(blur(x.sin()), verify=True)
    for size in (3, 4, 10, 11, 18, 300):
        value = RANDOM.uniform(-3, 3, (size, 40)).astype("f4")
        np.testing.assert_allclose(program(value), blur(np.sin(value)), rtol=1e-4, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_random_stencils(data: Any) -> None:
    height, width = data.draw(st.integers(4, 40)), data.draw(st.integers(4, 70))
    places = data.draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=2, max_size=7)
    )
    scale = data.draw(st.booleans())
    weights = [0.5 + i for i in range(len(places))]

    def stencil(x: Any, bias: Any) -> Any:
        y = x * bias if scale else x
        parts = [y[i : height - 2 + i, j : width - 3 + j] * w for (i, j), w in zip(places, weights)]
        return sum(parts[1:], parts[0])

    x, bias = uopc.param("x", (height, width)), uopc.param("b", (width,))
    value = RANDOM.uniform(-2, 2, (height, width)).astype("f4")
    factors = RANDOM.uniform(1, 2, width).astype("f4")
    graph = stencil(x.sin(), bias)
    program = uopc.compile(graph, verify=True)
    given_arrays = {"x": value, "b": factors} if scale else {"x": value}
    want = stencil(np.sin(value), factors)
    np.testing.assert_allclose(program(**given_arrays), want, rtol=1e-4, atol=1e-5)
