"""Indices in lanes are divided without an instruction for it: by multiplying, or as floats."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc.ir import affine, build, remake
from uopc.ir.ops import Ops
from uopc.passes import decompose

EDGE = 1 << 48


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_quotient_is_exact(data):
    d = data.draw(st.one_of(st.integers(3, 100), st.integers(3, 1 << 40)), "d")
    low = data.draw(st.integers(-EDGE, EDGE), "low")
    high = data.draw(st.one_of(st.integers(low, EDGE), st.integers(low, min(EDGE, low + 5000))))
    a = uopc.variable("a", low, high)
    quotient = decompose.by_multiplication(a, d)
    assert quotient is not None
    around = [k * d + i for k in (low // d, high // d, 0, -1, 1) for i in (-1, 0, 1)]
    places = [low, high, data.draw(st.integers(low, high), "at"), *around]
    for at in places:
        if low <= at <= high:
            value = remake.rebuild(quotient, {a: build.const(a.dtype, at)})
            assert value is affine.const(at // d), at


def test_indices_too_large_are_divided_by_the_machine():
    assert decompose.by_multiplication(uopc.variable("a", 0, EDGE + 1), 3) is None


def test_gathers_through_reshapes_have_no_vector_division():
    x = uopc.param("x", (23, 29))
    moved = x.permute(1, 0).reshape(667)[1:].reshape(37, 18).permute(1, 0).reshape(666) + 1
    program = uopc.compile(moved)
    assert not [k for k in program.kernels for w in ("sdiv <", "srem <") if w in k.source]
    given_x = np.random.default_rng(0).standard_normal((23, 29)).astype("f4")
    expected = given_x.T.reshape(667)[1:].reshape(37, 18).T.reshape(666) + 1
    assert np.array_equal(program(given_x), expected)


def test_what_a_reshape_does_not_fit_is_divided_again_in_small_numbers():
    """A sum of a quotient and its remainder: no quotient of the whole by the product."""
    x = uopc.variable("x", 0, 23 * 25 - 1)
    moved = x // 28 + (x % 28) * 25
    q, r = affine.divmod_(moved, affine.const(27))
    assert r.op is Ops.FLOORMOD and q.op is Ops.FLOORDIV and q.src == r.src
    assert (x // 4 + 5) // 7 is (x + 20) // 28  # without a remainder it is one division
    for at in range(23 * 25):
        whole = at // 28 + at % 28 * 25
        for form, expected in ((q, whole // 27), (r, whole % 27)):
            assert remake.rebuild(form, {x: affine.const(at)}) is affine.const(expected)
