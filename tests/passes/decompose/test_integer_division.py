"""Indices in lanes are divided without an instruction for it: by multiplying, or as floats."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc.ir.builder import leaves, rebuild
from uopc.ir.core.ops import Ops
from uopc.ir.index import affine
from uopc.passes.decompose.integers import integer_division

EDGE = 1 << 48


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_quotient_is_exact(data):
    d = data.draw(st.one_of(st.integers(3, 100), st.integers(3, 1 << 40)), "d")
    low = data.draw(st.integers(-EDGE, EDGE), "low")
    high = data.draw(st.one_of(st.integers(low, EDGE), st.integers(low, min(EDGE, low + 5000))))
    a = uopc.variable("a", low, high)
    quotient = integer_division.by_multiplication(a, d)
    assert quotient is not None
    around = [k * d + i for k in (low // d, high // d, 0, -1, 1) for i in (-1, 0, 1)]
    places = [low, high, data.draw(st.integers(low, high), "at"), *around]
    for at in places:
        if low <= at <= high:
            value = rebuild.rebuild(quotient, {a: leaves.const(a.dtype, at)})
            assert value is affine.const(at // d), at


def test_indices_too_large_are_divided_by_the_machine():
    assert integer_division.by_multiplication(uopc.variable("a", 0, EDGE + 1), 3) is None


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
            assert rebuild.rebuild(form, {x: affine.const(at)}) is affine.const(expected)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_nested_divisions_by_divisors_of_any_size(data):
    """Quotients and remainders of one another, in numbers where divisors are not merged too."""
    most = data.draw(st.sampled_from([100, 1 << 14, 1 << 30, 1 << 40]), "most")
    x, y = uopc.variable("x", 0, most), uopc.variable("y", 0, 1000)
    factor, steps = data.draw(st.integers(1, 9), "factor"), []
    form = x * factor
    for _ in range(data.draw(st.integers(1, 4))):
        n = data.draw(st.one_of(st.integers(1, 64), st.integers(1, 1 << 25)))
        steps.append((data.draw(st.sampled_from(["//", "%", "+"])), n))
    for op, n in steps:
        form = form // n if op == "//" else form % n if op == "%" else form + y * n
    for at in [0, 1, most, *data.draw(st.lists(st.integers(0, most), min_size=4, max_size=4))]:
        beside = at % 1001
        value = at * factor
        for op, n in steps:
            value = value // n if op == "//" else value % n if op == "%" else value + beside * n
        made = rebuild.rebuild(form, {x: affine.const(at), y: affine.const(beside)})
        assert made is affine.const(value), (steps, at)


def test_a_window_of_a_reshape_with_large_strides():
    """Divisors beyond 2^24: a quotient of a quotient was taken for one of a remainder."""
    x = uopc.param("x", (2, 5, 4, 583, 2), uopc.dtypes.int32)
    array = np.arange(46640, dtype=np.int32).reshape(2, 5, 4, 583, 2)
    moved = x.reshape(212, 55, 4)[2:210, 2:55, 1:3].permute(2, 0, 1).reshape(689, 32)
    expected = array.reshape(212, 55, 4)[2:210, 2:55, 1:3].transpose(2, 0, 1).reshape(689, 32)
    for optimize in (True, False):
        program = uopc.compile(moved, optimize=optimize, verify=True)
        assert np.array_equal(program(array), expected)
