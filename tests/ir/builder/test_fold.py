"""Constants with a shape fold as scalars do, when they are built and when a pass remakes them."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc import dtypes
from uopc.ir.builder import rebuild
from uopc.ir.builder.leaves import constant_in
from uopc.ir.core.ops import Ops
from uopc.ir.interpret.interpreter import evaluate

INTEGERS = (dtypes.int32, dtypes.uint8, dtypes.int64, dtypes.int16)
FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.fp8e5m2)
N = uopc.variable("n", 0, 9)


def is_constant(u: uopc.UOp, value: object, shape: tuple[object, ...]) -> bool:
    """True if every element of u is the value, and no operation is left."""
    found = constant_in(u)
    return found is not None and found.arg == value and u.shape == shape


@pytest.mark.parametrize("t", (*INTEGERS, *FLOATS, dtypes.bool_))
@pytest.mark.parametrize("value", [np.float64(1), np.array(1), np.array(True), np.float32(1)])
def test_an_array_without_axes_stays_one(t, value):
    made = uopc.constant(value, t)
    assert (made.op, made.dtype, made.shape) == (Ops.CONST, t, ())


@pytest.mark.parametrize("shape", [(3, 4), (N, 2), (0, 2)])
@pytest.mark.parametrize("t", (*INTEGERS, dtypes.bool_))
def test_identities_of_integers(t, shape):
    x = uopc.param("x", shape, t)
    zero, one = x.const_like(0), x.const_like(1)
    assert is_constant(zero * x, 0, shape)
    assert zero + x is x is x + zero
    assert x * one is x
    assert x | zero is x
    assert is_constant(x & zero, 0, shape)


@pytest.mark.parametrize("t", FLOATS)
def test_identities_of_floats_are_those_of_ieee(t):
    x = uopc.param("x", (3, 4), t)
    zero, one = x.const_like(0.0), x.const_like(1.0)
    assert x * one is x is x / one is x - zero is x + x.const_like(-0.0)
    assert (x * zero).op is Ops.MUL  # inf * 0 is NaN
    assert (x + zero).op is Ops.ADD  # -0.0 + 0.0 is 0.0
    assert (zero - x).op is Ops.SUB
    assert uopc.param("y", (4,), t) * one is not one  # it broadcasts
    natural = uopc.param("b", (3, 4), dtypes.bool_).cast(t)
    assert is_constant(natural * zero, 0.0, (3, 4))  # finite and not negative
    signed = uopc.param("i", (3, 4), dtypes.int8).cast(t)
    assert (signed * zero).op is Ops.MUL  # -1 * 0.0 is -0.0


def test_the_smaller_operand_is_repeated():
    y = uopc.param("y", (4,), dtypes.int32)
    made = y + uopc.full((3, 4), 0)
    assert made.op is Ops.EXPAND and made.src[0] is y and made.shape == (3, 4)
    assert is_constant(uopc.full((3, 1), 2) + uopc.full((1, 4), 5), 7, (3, 4))


@pytest.mark.parametrize("t", (*INTEGERS, *FLOATS, dtypes.bool_))
def test_constants_fold(t):
    a, b = uopc.full((2, 3), 1, dtype=t), uopc.full((3,), 0, dtype=t)
    assert is_constant(a + b, 1, (2, 3))
    assert is_constant(a.maximum(b), 1, (2, 3))
    assert is_constant(a > b, True, (2, 3))
    assert is_constant((a > b).where(a, b), 1, (2, 3))
    assert is_constant(a.cast(dtypes.float64), 1.0, (2, 3))
    assert is_constant(a.reshape(3, 2).permute(1, 0).flip(0)[:1], 1, (1, 3))
    assert is_constant(a.expand(4, 2, 3), 1, (4, 2, 3))
    assert is_constant(b.pad([(1, 2)]), 0, (6,))
    assert is_constant(a.pad([(1, 2), (0, 0)], value=1), 1, (5, 3))
    assert a.pad([(1, 2), (0, 0)]).op is Ops.PAD
    assert is_constant(a.cat(a), 1, (4, 3))
    assert is_constant(a.stack(a), 1, (2, 2, 3))
    assert a.cat(b.expand(2, 3)).op is Ops.CAT


def test_a_pad_with_the_other_zero_stays():
    zeros, negative = uopc.full((2,), 0.0), uopc.full((2,), -0.0)
    assert negative.pad([(1, 1)]).op is Ops.PAD
    assert zeros.pad([(1, 1)], value=-0.0).op is Ops.WHERE
    assert is_constant(zeros.pad([(1, 1)]), 0.0, (4,))


@pytest.mark.parametrize("name", ("sum", "prod", "max", "min", "any", "all", "mean"))
@pytest.mark.parametrize("value", (0, 1, 3, -2, 0.1, -0.0, np.inf, -np.inf, np.nan))
@pytest.mark.parametrize("t", (dtypes.int8, dtypes.int64, dtypes.float32, dtypes.float64))
@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (2, 0), (700, 3)])
def test_reduces_fold(name, value, t, shape):
    if not t.is_float and not isinstance(value, int):
        return
    full = uopc.full(shape, value, dtype=t)
    made = getattr(full, name)(0)
    x = uopc.param("x", shape, t)
    read = getattr(x, name)(0)
    assert made.dtype is read.dtype and made.shape == read.shape
    assert constant_in(made) is not None
    with np.errstate(all="ignore"):
        wanted = evaluate(read, {"x": np.full(shape, value, t.numpy)})
        tolerance = 1e-5 if t is dtypes.float32 else 1e-12
        np.testing.assert_allclose(evaluate(made, {}), wanted, rtol=tolerance)
    np.testing.assert_array_equal(np.signbit(evaluate(made, {})), np.signbit(wanted))


@pytest.mark.parametrize("optimize", (True, False))
@pytest.mark.parametrize("name", ("sum", "prod", "max", "min"))
def test_reduces_over_a_size_that_may_be_0_stay(name, optimize):
    made = getattr(uopc.full((N, 3), 5), name)((0, 1))
    assert made.op is Ops.REDUCE
    f = uopc.compile(made, optimize=optimize)
    for n in (0, 1, 4):
        empty = {"sum": 0, "prod": 1, "max": -(1 << 31), "min": (1 << 31) - 1}[name]
        wanted = getattr(np.full((n, 3), 5, "i4"), name)() if n else empty
        assert int(f(n=n)) == int(np.int64(wanted).astype("i4"))
    m = uopc.variable("m", 1, 9)
    assert is_constant(uopc.full((m, 3), 5).max(0), 5, (3,))


def test_a_window_folds_where_it_surely_stays_inside():
    i = uopc.variable("i", 0, 6)
    inside, outside = (uopc.full((n,), 5).shrink([(i, i + 4)]) for n in (10, 8))
    assert is_constant(inside, 5, (4,))
    assert outside.op is Ops.SHRINK
    f = uopc.compile(outside)  # where it leaves the constant, it reads zeros
    for k in range(7):
        np.testing.assert_array_equal(f(i=k), ([5] * (8 - k) + [0] * 4)[:4])


def test_what_a_pass_remakes_folds():
    zeros = uopc.param("z", (2, 3), dtypes.int32)
    graph = (zeros.permute(1, 0) * 2 + 1).reshape(6)
    made = rebuild.rebuild(graph, {zeros: uopc.full((2, 3), 4)})
    assert is_constant(made, 9, (6,))
