"""Adding 0.0 goes where nobody can tell, and every bit that is stored stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc import UOp, dtypes
from uopc.ir.core.ops import Ops

VALUES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -3.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.0])
A, B, C = (g.ravel() for g in np.meshgrid(VALUES, VALUES, VALUES))
x, y, z = (uopc.param(n, (A.size,), dtypes.float64) for n in "xyz")


def zeros_added(value: UOp) -> int:
    """The number of additions of 0.0 that are left."""
    text = uopc.compile(value).stages["linearize"]
    return sum("add" in line and ", 0.0:f64" in line for line in text.splitlines())


@pytest.mark.parametrize("made, left", [
    (lambda: x + 0.0, 1),
    (lambda: (x + 0.0) + 0.0, 1),
    (lambda: x * (y + 0.0), 1),
    (lambda: x * (y + 0.0) + 1.0, 0),
    (lambda: ((x + 0.0) + (y + 0.0) * 2.0) + (z + 0.0), 1),
    (lambda: (x + 0.0) - y, 1),
    (lambda: 1.0 - (y + 0.0), 0),
    (lambda: x - (y + 0.0), 1),
    (lambda: (x + 0.0).abs(), 0),
    (lambda: (x + 0.0).reciprocal(), 1),
    (lambda: (x + 0.0) / y, 1),
    (lambda: (x + 0.0 < y).where(y, z), 0),
    (lambda: (x < y).where(y + 0.0, z) + 1.0, 0),
    (lambda: (x < y).where(y + 0.0, z), 1),
    (lambda: (x + 0.0).bitcast(dtypes.int64), 1),
    (lambda: (x + 0.0).cast(dtypes.int32), 0),
])  # fmt: skip
def test_what_is_left(made, left):
    value = made()
    assert zeros_added(value) == left
    assert_bits(value)


def assert_bits(value: UOp) -> None:
    """The same as without optimising, to the sign of zero."""
    arrays = {n: a for n, a in zip("xyz", (A, B, C)) if n in reads(value)}
    with np.errstate(all="ignore"):
        got = uopc.compile(value)(**arrays)
        wanted = uopc.compile(value, optimize=False)(**arrays)
    np.testing.assert_array_equal(got, wanted)
    if got.dtype.kind == "f":
        there = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(wanted)[there])


def reads(value: UOp) -> set[str]:
    return {u.arg.name for u in value.toposort() if u.op is Ops.PARAM}


UNARY = [abs, UOp.sqrt, UOp.sin, UOp.reciprocal, lambda a: -a]
BINARY = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b,
    lambda a, b: a.maximum(b), lambda a, b: (a < b).where(a, b),
]  # fmt: skip


@st.composite
def expressions(draw) -> UOp:
    """Trees that add 0.0 and other numbers in many places; products that contract stay exact."""
    made = [x, y, z]
    for _ in range(draw(st.integers(2, 12))):
        a, b = (draw(st.sampled_from(made)) for _ in range(2))
        which = draw(st.integers(0, 3))
        if which == 0:
            made.append(draw(st.sampled_from([a + 0.0, 0.0 + a, a + 1.0, a * -1.0, a - 0.0])))
        elif which == 1:
            made.append(draw(st.sampled_from(UNARY))(a) + 0.0)
        else:
            made.append(draw(st.sampled_from(BINARY))(a, b))
    return made[-1]


@settings(max_examples=60, deadline=None)
@given(expressions())
def test_every_bit_that_is_stored_stays(value):
    if reads(value):
        assert_bits(value)
