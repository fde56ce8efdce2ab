"""Products of rows that leave L2 by columns that fit it: blocks of rows around all columns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.machines import runnable
from tests.reference import numbers
from uopc.driver import lower_only

TARGETS = runnable("", "x86-64-v3")
of_a_desktop = pytest.mark.machine("desktop")  # its caches decide what is chosen


def blocks(graph):
    """The Opt that cuts the rows, and whether a change of places puts its blocks outside."""
    opts = lower_only(graph, threads=1).kernels[0].arg.opts
    names = [o.op for o in opts]
    at = next((i for i, name in enumerate(names) if name in ("TILE", "BLOCK")), None)
    return None if at is None else (names[at], opts[at].arg, names[at + 1] == "SWAP")


@of_a_desktop
@pytest.mark.parametrize(
    ("rows", "depth", "columns", "chosen"),
    [
        (3136, 64, 256, ("TILE", 28, True)), (2063, 40, 256, ("BLOCK", 24, True)),
        (4096, 32, 1024, None), (200, 64, 256, None), (3136, 300, 256, None),
        (3136, 64, 250, None), (40_000, 16, 8, None),
    ],
    ids=["a divisor", "a prime", "blocks of too few rows", "L2 holds rows", "far columns",
         "ragged columns", "one panel"],
)  # fmt: skip
def test_blocks_of_rows_are_around_the_columns_where_both_do_not_fit(rows, depth, columns, chosen):
    a, b, c = numbers(rows, depth), numbers(depth, columns), numbers(rows, columns)
    graph = (uopc.param("a", a.shape) @ uopc.constant(b) + uopc.param("c", c.shape)).relu()
    found = blocks(graph)
    assert found == chosen
    for threads in (1, 2) if chosen else ():
        program = uopc.compile(graph, threads=threads, verify=True)
        np.testing.assert_array_equal(program(a, c), np.maximum(a @ b + c, 0))


@of_a_desktop
@settings(max_examples=8, deadline=None)
@given(st.integers(1000, 1400), st.integers(1, 40), st.integers(4, 9), st.booleans(),
       st.sampled_from(["float32", "float64", "int32"]), st.sampled_from(TARGETS))  # fmt: skip
def test_rows_of_any_length(m, k, parts, constant, dtype, target):
    a, b = numbers(m, k, dtype=dtype), numbers(k, 64 * parts, dtype=dtype)
    kind = getattr(uopc.dtypes, dtype)
    right = uopc.constant(b) if constant else uopc.param("b", b.shape, kind)
    left = uopc.param("a", a.shape, kind)
    inputs = [left] if constant else [left, right]
    with uopc.options(target_cpu=target):
        program = uopc.compile(left @ right, inputs=inputs, threads=1, verify=True)
    np.testing.assert_array_equal(program(*[a, b][: len(inputs)]), a @ b)


@of_a_desktop
def test_columns_that_share_cache_sets_are_packed_once_for_all_rows():
    a, b = numbers(2048, 48), numbers(48, 768)
    graph = uopc.param("a", a.shape) @ uopc.param("b", b.shape)
    assert blocks(graph) is not None
    names = [o.op for o in lower_only(graph, threads=1).kernels[0].arg.opts]
    assert "PACK" in names
    np.testing.assert_array_equal(uopc.compile(graph, threads=1, verify=True)(a, b), a @ b)


@of_a_desktop
def test_both_products_of_a_sum_pass_over_the_rows_once():
    a, b = numbers(2304, 40), numbers(2304, 48)
    left, right = numbers(40, 256), numbers(48, 256)
    graph = uopc.param("a", a.shape) @ uopc.constant(left)
    graph = graph + uopc.param("b", b.shape) @ uopc.constant(right)
    assert blocks(graph) is not None
    program = uopc.compile(graph, threads=1, verify=True)
    np.testing.assert_array_equal(program(a, b), a @ left + b @ right)
