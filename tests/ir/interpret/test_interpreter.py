"""The reference interpreter against NumPy written by hand, level by level."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.by_hand import F32, I32, INDEX, VOID, Array, after, at, floats, invalid, param, store
from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, fold, kernel, leaves, movement, operands
from uopc.ir.core import dtypes
from uopc.ir.core.args import FunctionArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop
from uopc.ir.interpret.interpreter import evaluate, evaluate_with_effects
from uopc.tensor import creation

# ---------------------------------------------------------------- tensor: elementwise
INPUTS: dict[str, Array] = {"x": floats(3, 4), "y": floats(4)}


def xy() -> tuple[UOp, UOp]:
    return creation.param("x", (3, 4)), creation.param("y", (4,))


def test_arithmetic_broadcasts() -> None:
    x, y = xy()
    a, b = INPUTS["x"], INPUTS["y"]
    np.testing.assert_array_equal(evaluate(x * y + 1.0, INPUTS), a * b + np.float32(1))
    np.testing.assert_array_equal(evaluate(x < y, INPUTS), a < b)
    got = evaluate([x, y], INPUTS)
    assert isinstance(got, list) and got[0] is not a
    np.testing.assert_array_equal(got[1], b)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint64])
def test_integers_wrap_and_divide_by_zero_to_zero(dtype: dtypes.DType) -> None:
    low, high = dtype.bounds
    a = np.array([low, high, high, 5, 7], dtype.numpy)
    b = np.array([1, high, 0, 3, 0], dtype.numpy)
    p, q = creation.param("a", (5,), dtype), creation.param("b", (5,), dtype)
    data = {"a": a, "b": b}
    wrap = [leaves.const(dtype, int(v) + int(w)).arg for v, w in zip(a, b)]
    assert np.asarray(evaluate(p + q, data)).tolist() == wrap
    floor = [int(v) // int(w) if w else 0 for v, w in zip(a, b)]
    assert np.asarray(evaluate(p // q, data)).tolist() == floor
    assert np.asarray(evaluate(p % q, data)).tolist() == [
        int(v) % int(w) if w else 0 for v, w in zip(a, b)
    ]


@pytest.mark.parametrize("dtype", dtypes.ARRAY_TYPES, ids=lambda t: t.name)
def test_every_dtype_passes_through_sum_and_maximum(dtype: dtypes.DType) -> None:
    a = np.array([[1, 0, 1], [1, 1, 0]], dtype.numpy)
    p = creation.param("a", (2, 3), dtype)
    for op in ("add", "mul", "max", "min"):
        got = np.asarray(evaluate(movement.reduce(p, op, (1,)), {"a": a}))  # type: ignore[arg-type]
        wide = a.astype(np.float64)
        want = {"add": wide.sum(1), "mul": wide.prod(1), "max": wide.max(1), "min": wide.min(1)}
        assert got.dtype == dtype.numpy
        np.testing.assert_array_equal(got, want[op].astype(dtype.numpy))


def test_reductions_over_nothing_give_the_identity() -> None:
    p, q = creation.param("a", (2, 0)), creation.param("b", (2, 0), dtypes.int8)
    data = {"a": np.zeros((2, 0), "f4"), "b": np.zeros((2, 0), "i1")}
    both = [movement.reduce(u, op, (1,)) for u in (p, q) for op in ("add", "mul", "max", "min")]  # type: ignore[arg-type]
    got = [np.asarray(v).tolist()[0] for v in evaluate(both, data)]
    assert got == [0.0, 1.0, -np.inf, np.inf, 0, 1, -128, 127]


def test_narrow_floats_round_and_casts_saturate() -> None:
    p = creation.param("a", (4,), F32)
    a = np.array([1e6, np.nan, -300.7, 2.5], "f4")
    assert np.asarray(evaluate(p.cast(dtypes.int8), {"a": a})).tolist() == [127, 0, -128, 2]
    fp8 = np.asarray(evaluate(p.cast(dtypes.fp8e4m3), {"a": a}))
    assert fp8.dtype == ml_dtypes.float8_e4m3fn and float(fp8[0]) == 448.0
    half = np.asarray(evaluate(p.cast(dtypes.bfloat16) + 1.0, {"a": a}))
    want = a.astype(ml_dtypes.bfloat16) + ml_dtypes.bfloat16(1)
    np.testing.assert_array_equal(half.astype("f4"), want.astype("f4"))


def test_bitcast_scales_the_last_dimension() -> None:
    x, _ = xy()
    a = INPUTS["x"]
    got = evaluate(fold.bitcast(x, dtypes.uint8), INPUTS)
    np.testing.assert_array_equal(got, a.view(np.uint8))
    again = fold.bitcast(fold.bitcast(x, dtypes.uint16), F32)
    np.testing.assert_array_equal(evaluate(again, INPUTS), a)


def test_long_sums_are_accurate() -> None:
    a = np.full(1 << 20, 0.1, "f4")
    got = evaluate(movement.reduce(creation.param("a", a.shape), "add"), {"a": a})
    assert abs(float(np.asarray(got)) - 0.1 * len(a)) < 0.1


@pytest.mark.slow
def test_deep_graphs_do_not_recurse() -> None:
    _, y = xy()
    u = y
    for _ in range(100_000):
        u = intern(Ops.ADD, F32, (u, y))
    got = evaluate(u, {"y": np.ones(4, "f4")})
    assert np.asarray(got).tolist() == [100_001.0] * 4


# ---------------------------------------------------------------- tensor: movement
@st.composite
def moved(draw: st.DrawFn) -> tuple[UOp, Array]:
    """A chain of movement ops on an array, and what NumPy makes of it."""
    dims = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    a = np.arange(1, 1 + int(np.prod(dims)), dtype=np.int32).reshape(dims)
    u, want = creation.param("a", tuple(dims), I32), a
    for _ in range(draw(st.integers(1, 5))):
        u, want = _move(draw, u, want)
    assume(any([p.op is Ops.PARAM for p in u.toposort()]))  # a window of padding is a constant
    return u, want


def _move(draw: st.DrawFn, u: UOp, a: Array) -> tuple[UOp, Array]:
    rank = a.ndim
    kind = draw(st.sampled_from(["reshape", "permute", "flip", "pad", "shrink", "expand"]))
    if kind == "reshape":
        return movement.reshape(u, (a.size,)), a.reshape(-1)
    if kind == "permute":
        axes = tuple(draw(st.permutations(range(rank))))
        return movement.permute(u, axes), a.transpose(axes)
    if kind == "flip":
        axis = draw(st.integers(0, rank - 1))
        return movement.flip(u, (axis,)), np.flip(a, axis)
    if kind == "pad":
        widths = [draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in range(rank)]
        return movement.pad(u, widths), np.pad(a, widths)
    if kind == "shrink":
        bounds = []
        for d in a.shape:
            begin = draw(st.integers(0, d - 1))
            bounds.append((begin, draw(st.integers(begin + 1, d))))
        return movement.shrink(u, bounds), a[tuple([slice(b, e) for b, e in bounds])]
    return movement.expand(u, (2, *a.shape)), np.broadcast_to(a, (2, *a.shape))


@settings(max_examples=150, deadline=None)
@given(moved())
def test_movement_is_numpys(case: tuple[UOp, Array]) -> None:
    u, want = case
    dims = next(p for p in u.toposort() if p.op is Ops.PARAM).shape
    a = np.arange(1, 1 + int(np.prod(dims)), dtype=np.int32).reshape(dims)
    np.testing.assert_array_equal(evaluate(u, {"a": a}), want)


@settings(max_examples=150, deadline=None)
@given(moved(), st.integers(0, 99))
def test_a_store_to_a_view_changes_what_the_view_looks_at(
    case: tuple[UOp, Array], seed: int
) -> None:
    """Store fresh numbers through a view: the view then shows them where it shows storage once."""
    u, _ = case
    base = next(p for p in u.toposort() if p.op is Ops.PARAM)
    a = np.arange(1, 1 + int(np.prod(base.shape)), dtype=np.int32).reshape(base.shape)
    places = np.asarray(evaluate(u, {"a": a.copy()}))  # element numbers; 0 is padding
    value = np.random.default_rng(seed).integers(100, 1000, places.shape).astype(np.int32)
    want = np.concatenate([[0], a.reshape(-1)])
    want[places.reshape(-1)] = value.reshape(-1)  # of repeated places the last one stays
    stored = operands.constant(value) if value.ndim else leaves.const(I32, int(value))
    effect = intern(Ops.STORE, VOID, (u, stored))
    got, final = np.zeros(0), a.copy()
    got = np.asarray(evaluate(after(base, effect), {"a": final}))
    np.testing.assert_array_equal(got.reshape(-1), want[1:])
    np.testing.assert_array_equal(final, got)


def test_stack_cat_and_gather() -> None:
    x, _ = xy()
    a = INPUTS["x"]
    np.testing.assert_array_equal(evaluate(movement.stack(x, x + 1.0), INPUTS), [a, a + 1])
    joined = movement.cat(x, movement.shrink(x, ((0, 1), (0, 4))))
    np.testing.assert_array_equal(evaluate(joined, INPUTS), np.concatenate([a, a[:1]]))
    i = creation.param("i", (2, 2), dtypes.int64)
    data = INPUTS | {"i": np.array([[0, 2], [1, 1]])}
    np.testing.assert_array_equal(evaluate(at(x, i), data), a[data["i"]])
    np.testing.assert_array_equal(evaluate(at(x, i, 1), data), a[data["i"], 1])


def test_an_index_from_data_that_is_outside_reads_0() -> None:
    x, _ = xy()
    i = creation.param("i", (2,), dtypes.int64)
    for bad in (3, -1):
        got = evaluate(at(x, i), INPUTS | {"i": np.array([0, bad])})
        np.testing.assert_array_equal(got, [INPUTS["x"][0], np.zeros(4)])


# ---------------------------------------------------------------- tensor: symbolic sizes
def test_sizes_come_from_the_arrays() -> None:
    n = operands.variable("n", 1, 8)
    z = creation.param("z", (n * 2 + 1, 4))
    a = floats(7, 4)
    tail = movement.shrink(z, ((n, n * 2 + 1), (0, 4)))
    np.testing.assert_array_equal(evaluate(movement.reshape(tail, (-1,)), {"z": a}), a[3:].ravel())
    ramp = leaves.iota(n).cast(I32)
    np.testing.assert_array_equal(evaluate([ramp, z], {"z": a})[0], np.arange(3))
    np.testing.assert_array_equal(evaluate(ramp, {}, {"n": 5}), np.arange(5))


def test_sizes_that_do_not_fit_are_errors() -> None:
    n = operands.variable("n", 1, 8)
    y, z = creation.param("y", (n,)), creation.param("z", (n * 2,))
    with pytest.raises(UserError, match="variable n is both 3 and 2"):
        evaluate([y, z], {"y": floats(3), "z": floats(4)})
    with pytest.raises(UserError, match="z: expected shape"):
        evaluate(z, {"z": floats(5)}, {"n": 2})
    with pytest.raises(UserError, match=r"n = 9 is outside of 1\.\.8"):
        evaluate(y, {"y": floats(9)})
    with pytest.raises(UserError, match="n has no value"):
        evaluate(n.cast(I32), {})


def test_a_bound_variable_has_its_value_everywhere() -> None:
    n = operands.variable("n", 1, 8)
    bound = intern(Ops.BIND, INDEX, (n, dim_uop(5)))
    assert np.asarray(evaluate(bound.cast(I32) + n.cast(I32), {})).item() == 10


def test_arguments_are_checked() -> None:
    x, y = xy()
    with pytest.raises(UserError, match="parameter y got no array"):
        evaluate(x + y, {"x": INPUTS["x"]})
    with pytest.raises(UserError, match=r"x: expected shape \(3, 4\), got \(4, 3\)"):
        evaluate(x, {"x": floats(4, 3)})
    with pytest.raises(UserTypeError, match="x: expected dtype float32, got float64"):
        evaluate(x, {"x": INPUTS["x"].astype("f8")})
    with pytest.raises(UserTypeError, match="x: expected an array, got list"):
        evaluate(x, {"x": [1.0]})  # type: ignore[dict-item]


# ---------------------------------------------------------------- tensor: effects
def test_storage_before_and_after_a_store() -> None:
    """PARAM is what was there first, AFTER what is there then; the caller's array changes last."""
    x, y = xy()
    row = movement.shrink(x, ((1, 2), (0, 4)))
    stored = after(x, intern(Ops.STORE, VOID, (row, y * 2.0)))
    a = INPUTS["x"].copy()
    want = INPUTS["x"].copy()
    want[1] = INPUTS["y"] * 2
    got, before = evaluate([stored, x + 0.0], {"x": a, "y": INPUTS["y"]})
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(before, INPUTS["x"])
    np.testing.assert_array_equal(a, want)


def test_stores_happen_once_each_in_order() -> None:
    x, _ = xy()
    u = x
    for _ in range(50):
        u = after(u, intern(Ops.STORE, VOID, (u, u * 2.0 + 1.0)))
    a, want = np.zeros((3, 4), "f4"), 0.0
    for _ in range(50):
        want = want * 2 + 1
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(evaluate(u, {"x": a}), np.float32(want))
    np.testing.assert_allclose(a, np.float32(want))


def test_independent_stores_do_not_see_each_other_but_all_arrive() -> None:
    x, y = xy()
    first = intern(Ops.STORE, VOID, (movement.shrink(x, ((0, 1), (0, 4))), y))
    second = intern(Ops.STORE, VOID, (movement.shrink(x, ((2, 3), (0, 4))), y))
    a = np.zeros((3, 4), "f4")
    one, two, both = evaluate(
        [after(x, first), after(x, second), after(x, first, second)], INPUTS | {"x": a}
    )
    line = INPUTS["y"]
    zero = np.zeros(4, "f4")
    np.testing.assert_array_equal(one, [line, zero, zero])
    np.testing.assert_array_equal(two, [zero, zero, line])
    np.testing.assert_array_equal(both, [line, zero, line])
    np.testing.assert_array_equal(a, both)


def test_a_store_through_a_bitcast_and_a_gather() -> None:
    x, _ = xy()
    words = fold.bitcast(x, dtypes.uint32)
    target = at(movement.reshape(words, (12,)), operands.constant(np.array([5, 0])))
    bits = np.array([1.5, -2.0], "f4").view("u4")
    u = after(x, intern(Ops.STORE, VOID, (target, operands.constant(bits))))
    want = INPUTS["x"].copy()
    want.reshape(-1)[[5, 0]] = [1.5, -2.0]
    np.testing.assert_array_equal(evaluate(u, {"x": INPUTS["x"].copy()}), want)


def test_invalid_elements_are_not_stored() -> None:
    x, y = xy()
    keep = y > 0.0
    value = alu.where(keep, y, invalid(F32)) * 3.0 + 1.0
    u = after(x, intern(Ops.STORE, VOID, (x, value)))
    gate = after(x, intern(Ops.STORE, VOID, (x, y * 3.0 + 1.0, keep)))
    b = INPUTS["y"]
    want = np.where(b > 0, b * np.float32(3) + np.float32(1), INPUTS["x"])
    for graph in (u, gate):
        np.testing.assert_array_equal(evaluate(graph, INPUTS | {"x": INPUTS["x"].copy()}), want)
    picked = alu.where(keep, value, 7.0)  # WHERE looks only at what it picks
    np.testing.assert_array_equal(
        evaluate(picked, INPUTS), np.where(b > 0, b * np.float32(3) + 1, np.float32(7))
    )


def test_an_invalid_index_reads_zero() -> None:
    _, y = xy()
    i = alu.where(y > 0.0, leaves.iota(4), invalid(INDEX))
    b = INPUTS["y"]
    np.testing.assert_array_equal(evaluate(at(y, i), INPUTS), np.where(b > 0, b, 0))


def test_a_buffer_is_undefined_until_it_is_stored_to() -> None:
    buf = creation.buffer((2, 2), F32)
    half = movement.shrink(buf, ((0, 1), (0, 2)))
    u = after(buf, store(half, leaves.const_like(half, 3.0)))
    value, finals = evaluate_with_effects(u, {})
    assert np.isnan(np.asarray(value)[1]).all() and (np.asarray(value)[0] == 3).all()
    assert list(finals) == [buf]


def test_read_only_arrays_cannot_be_stored_to() -> None:
    _, y = xy()
    b = INPUTS["y"].copy()
    b.flags.writeable = False
    with pytest.raises(UserError, match="y is stored to, but its array is read-only"):
        evaluate(after(y, store(y, y + 1.0)), {"y": b})


# ---------------------------------------------------------------- tensor: calls
def test_functions_are_called_with_their_arguments_by_slot() -> None:
    n = operands.variable("n", 1, 9)
    p = creation.kernel_param(0, (n,), F32)
    q = creation.kernel_param(1, (n,), F32)
    body = intern(Ops.FUNCTION, VOID, (p + q, movement.reduce(p * q, "add")), FunctionArg("f"))
    x, y = xy()
    row = movement.reshape(movement.shrink(x, ((0, 1), (0, 4))), (4,))
    call = intern(Ops.CALL, VOID, (body, row, y))
    parts = [intern(Ops.GETTUPLE, F32, (call,), i) for i in (0, 1)]
    plus, dot = evaluate(parts, INPUTS)
    a, b = INPUTS["x"][0], INPUTS["y"]
    np.testing.assert_array_equal(plus, a + b)
    np.testing.assert_allclose(dot, a @ b, rtol=1e-6)


def test_a_function_may_store_to_its_arguments() -> None:
    p = creation.kernel_param(0, (4,), F32)
    body = intern(Ops.FUNCTION, VOID, (after(p, store(p, p + 1.0)),), FunctionArg("bump"))
    x, _ = xy()
    row = movement.reshape(movement.shrink(x, ((1, 2), (0, 4))), (4,))
    call = intern(Ops.CALL, VOID, (body, row))
    a = INPUTS["x"].copy()
    got = evaluate(after(x, call), {"x": a})
    want = INPUTS["x"].copy()
    want[1] += 1
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(a, want)


def test_a_kernel_in_a_tensor_graph_writes_its_arguments() -> None:
    i = kernel.range(4)
    out, given = param(0, 4), param(1, 4)
    body = kernel.sink(kernel.end(store(at(out, i), at(given, i) * 2.0), i), name="double")
    _, y = xy()
    buf = creation.buffer((4,), F32)
    call = intern(Ops.CALL, VOID, (body, buf, y + 1.0))
    got = evaluate(after(buf, call) + 0.5, INPUTS)
    np.testing.assert_array_equal(got, (INPUTS["y"] + 1) * 2 + np.float32(0.5))
