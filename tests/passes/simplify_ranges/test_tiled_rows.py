"""Loops with divisors become loops of rows where vectors would cross the ends of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
import uopc.numpy as unp
from tests.backends.c.test_kernel import by_gcc, needs_gcc
from tests.machines import runnable
from uopc.driver import lower_only
from uopc.ir.core import dtypes

SIZES = st.sampled_from([0, 1, 2, 3, 5, 7, 13, 16, 24, 31, 48, 65, 97])
TARGETS = runnable("", "x86-64-v3", "x86-64-v4")
MOVES = {
    "tile": lambda m, x: m.tile(x, (2, 3)),
    "tile in a row": lambda m, x: m.tile(m.reshape(x, (-1,)), (3,)),
    "repeat": lambda m, x: m.repeat(x, 3, axis=1),
    "repeat rows": lambda m, x: m.reshape(m.repeat(x, 5, axis=0), (-1,)),
    "flatten columns": lambda m, x: m.reshape(m.permute_dims(x, (1, 0)), (-1,)),
    "add": lambda m, x: m.tile(x, (1, 4)) + m.tile(m.flip(x, axis=1), (1, 4)),
    "from the second on": lambda m, x: m.tile(x, (1, 4))[:, 1:],
}
TYPES = ("bool", "uint8", "int16", "float32", "float64")


def array(shape, t):
    return np.random.default_rng(sum(shape)).integers(0, 2 if t == "bool" else 50, shape).astype(t)


def compiled(move, x, target, **options):
    graph = MOVES[move](unp, uopc.param("x", x.shape, dtypes.from_numpy(x.dtype)))
    with uopc.options(target_cpu=target):
        return uopc.compile(graph, **options)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(list(MOVES)), SIZES, SIZES, st.sampled_from(TYPES),
       st.sampled_from(TARGETS), st.integers(1, 3))  # fmt: skip
def test_they_hold_what_numpy_has(move, rows, columns, t, target, threads):
    x = array((rows, columns), t)
    program = compiled(move, x, target, threads=threads, verify=True)
    np.testing.assert_array_equal(program(x), MOVES[move](np, x))


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.few(4)
def test_threads_share_them(move, threads):
    x = array((1004, 333), "float32")
    program = compiled(move, x, "", threads=threads, verify=True)
    np.testing.assert_array_equal(program(x), MOVES[move](np, x))


@needs_gcc
@pytest.mark.parametrize("t", ["bool", "float32"])
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.few(3)
def test_in_c(move: str, t: str, tmp_path: Path) -> None:
    x = array((29, 67), t)
    program = by_gcc(compiled(move, x, "", threads=1), tmp_path)
    np.testing.assert_array_equal(program(x), MOVES[move](np, x))


def rows_of(graph):
    """The lengths of rows that loops are cut in, with vectors of 16 floats."""
    with uopc.options(target_cpu="x86-64-v4"):
        kernels = lower_only(graph, threads=1).kernels
    return [o.arg for k in kernels for o in k.arg.opts if o.op == "TILE"]


def floats(*shape):
    return uopc.param("x", shape)


def test_rows_whose_ends_vectors_cross():
    assert rows_of(unp.tile(floats(100, 50), (2, 3))) == [50]
    assert rows_of(unp.repeat(floats(100, 50), 3, axis=1)) == [3]
    assert rows_of(unp.tile(uopc.param("x", (100, 50), dtypes.bool_), (1, 3))) == [50]
    assert rows_of(floats(100, 50).permute(1, 0).reshape(5000)) == [100]


def test_vectors_that_cross_none_stay():
    assert not rows_of(unp.tile(floats(100, 64), (2, 3)))  # each is in one row
    assert not rows_of(unp.repeat(floats(100, 50), 4, axis=1))  # each has whole rows
    assert not rows_of(unp.tile(floats(100, 5), (1, 4)))  # one vector and a rest: no quotient


def test_rows_that_fill_no_vector_stay_where_arithmetic_is_dear():
    assert not rows_of(unp.repeat(floats(100, 50), 3, axis=1).exp())
    assert rows_of(unp.repeat(floats(100, 50), 48 + 1, axis=1).exp()) == [49]
