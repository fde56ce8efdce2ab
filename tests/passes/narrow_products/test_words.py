"""Bytes that are read as the words of 32 bits that they lie in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uopc
from tests.machines import described, lowered_for
from tests.passes.narrow_products.test_byte_products import extremes
from uopc import dtypes
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

BYTES = {"u1": dtypes.uint8, "i1": dtypes.int8}
WEIGHTS = (1.0, -2.0, 4.0, 0.5)
MACHINES = ["old", "laptop", "workstation"]


def weighted(t, rows):
    """Rows of four bytes, and their sum with a weight for each: exact in float32."""
    x = extremes(t, rows, 4)
    p = uopc.param("x", x.shape, BYTES[t])
    terms = [p[:, i].cast(dtypes.float32) * w for i, w in enumerate(WEIGHTS)]
    return x, sum(terms[1:], terms[0]), x.astype("f8") @ np.array(WEIGHTS)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("t", BYTES)
@pytest.mark.parametrize("rows", [1, 7, 16, 37, 128])
@pytest.mark.few(8)
def test_bytes_of_words(machine, t, rows):
    """Also where the rest of a loop is a narrower vector, or no vector."""
    x, graph, wanted = weighted(t, rows)
    with described(machine):
        program = uopc.compile(graph, verify=True)
    np.testing.assert_array_equal(program(x), wanted)
    np.testing.assert_array_equal(interpreter.evaluate(graph, {"x": x}), wanted)


@given(st.integers(1, 70), st.integers(1, 6), st.sampled_from(list(BYTES)), st.data())
def test_any_columns(rows, columns, t, data):
    """Of rows that are a word, or less, or more."""
    order = data.draw(st.lists(st.integers(0, columns - 1), min_size=1, max_size=4))
    x = extremes(t, rows, columns)
    p = uopc.param("x", x.shape, BYTES[t])
    graph = uopc.stack(*[p[:, i].cast(dtypes.float32) for i in order])
    with described("laptop"):
        program = uopc.compile(graph)
    np.testing.assert_array_equal(program(x), x[:, order].T.astype("f4"))


@pytest.mark.parametrize(("machine", "lanes"), [("laptop", 32), ("workstation", 64)])
def test_the_bytes_of_words_are_loaded_at_once(machine, lanes):
    _, graph, _ = weighted("u1", 256)
    (run,) = [r for r in lowered_for(machine, graph).runs if r.name == "devectorize"]
    loads = [u for u in walk.order(run.after[0]) if u.op is Ops.LOAD]
    assert [u.dtype.lanes for u in loads] == [lanes]
