"""Reports of users of other compilers: sizes that asserted, graphs too large, masks."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc.driver import lower_only

BOTH = pytest.mark.parametrize("optimize", [True, False])
EACH_FLOAT = pytest.mark.parametrize("dtype", ["float32", "float64"])


def arrays(seed, **dims):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(d) for name, d in dims.items()}


def param(name, dims, dtype):
    return uopc.param(name, dims, getattr(uopc.dtypes, dtype))


# ---------------------------------------------------------------- stages of a control problem
STAGE, STATES = 10, 4


def horizon(z, p, cat, stack):
    """Equalities, cost and inequalities of n stages of ten variables, for UOps and arrays."""
    before = cat(p.reshape(1, STATES), z[:-1, :STATES], 0)
    equal = cat(z[:, :STATES] - before, z[:, 6:], 1)
    cost = (z[:, :STATES] * z[:, :STATES]).sum(1)
    return equal, cost, stack(z[:, 0], z[:, 1], 1)


def one_by_one(z, p, n, cat, stack):
    """The same, stage by stage."""
    equal, costs, bounds = [], [], []
    for k in range(n):
        here = z[k]
        before = p if k == 0 else z[k - 1, :STATES]
        equal.append(cat(here[:STATES] - before, here[6:], 0))
        costs.append((here[:STATES] * here[:STATES]).sum(0))
        bounds.append(stack(here[0], here[1], 0))
    return tuple([stack(*parts, 0) for parts in (equal, costs, bounds)])


def graph_cat(a, b, axis):
    return a.cat(b, axis=axis)


def graph_stack(*parts_and_axis):
    *parts, axis = parts_and_axis
    return parts[0].stack(*parts[1:], axis=axis)


def array_cat(a, b, axis):
    return np.concatenate([a, b], axis)


def array_stack(*parts_and_axis):
    *parts, axis = parts_and_axis
    return np.stack(parts, axis)


@EACH_FLOAT
@pytest.mark.parametrize("n", range(10, 25))
@pytest.mark.few(3)
def test_every_number_of_stages(n, dtype):
    """Batched, stage by stage, and the entries of the cost's sparse Jacobian by gathers."""
    given = {k: a.astype(dtype) for k, a in arrays(n, z=(n, STAGE), p=(STATES,)).items()}
    z, p = param("z", (n, STAGE), dtype), param("p", (STATES,), dtype)
    flat = np.arange(n * STAGE).reshape(n, STAGE)
    entries = flat[:, :STATES].reshape(-1)  # where d cost / d z is not zero
    jacobian = (z.reshape(-1) * 2.0).take(entries, 0)
    wanted = horizon(given["z"], given["p"], array_cat, array_stack)
    batched = uopc.compile((*horizon(z, p, graph_cat, graph_stack), jacobian), verify=True)
    got = batched(**given)
    for a, b in zip(got[:3], wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6 if dtype == "float32" else 1e-14)
    np.testing.assert_array_equal(got[3], 2 * given["z"].reshape(-1)[entries])
    unrolled = uopc.compile(one_by_one(z, p, n, graph_cat, graph_stack))(**given)
    for a, b in zip(unrolled, got[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6 if dtype == "float32" else 1e-14)


# ---------------------------------------------------------------- large graphs
@BOTH
def test_a_hundred_doublings(optimize):
    """x + x a hundred times is a hundred additions, not 2^100."""
    x = uopc.param("x", (3,))
    y = x
    for _ in range(100):
        y = y + y
    a = np.array([1.0, -3.0, 0.5], "f4")
    np.testing.assert_array_equal(uopc.compile(y, optimize=optimize)(a), a * 2.0**100)


def test_a_stack_of_6131_values():
    n = 6131
    rows = [uopc.param(f"r{i}", (2,)) for i in range(n)]
    stacked = rows[0].stack(*rows[1:])
    given = {f"r{i}": np.array([i, -i], "f4") for i in range(n)}
    program = uopc.compile(stacked)
    np.testing.assert_array_equal(program(**given), np.stack(list(given.values())))
    assert len(program.kernels) <= 4


def test_a_stack_of_6131_elements_of_one_array():
    n = 6131
    x = uopc.param("x", (n,))
    order = np.random.default_rng(0).permutation(n)
    parts = [x[int(i)] for i in order]
    a = np.arange(n, dtype="f4")
    np.testing.assert_array_equal(uopc.compile(parts[0].stack(*parts[1:]))(a), a[order])


# ---------------------------------------------------------------- masks
@BOTH
def test_rows_that_are_wholly_masked(optimize):
    """A row of -inf has no softmax: NaN, as in NumPy, and only in that row."""
    n, d = 5, 3
    q, k, v = [uopc.param(name, (n, d)) for name in "qkv"]
    mask = uopc.param("mask", (n, n), uopc.dtypes.bool_)
    scores = uopc.where(mask, q @ k.transpose(), -np.inf)
    program = uopc.compile(scores.softmax(-1) @ v, optimize=optimize)
    given = {name: a.astype("f4") for name, a in arrays(1, q=(n, d), k=(n, d), v=(n, d)).items()}
    allowed = np.tril(np.ones((n, n), bool), -1)
    got = program(**given, mask=allowed)
    with np.errstate(all="ignore"):
        s = np.where(allowed, given["q"] @ given["k"].T, -np.inf).astype("f8")
        e = np.exp(s - s.max(-1, keepdims=True))
        wanted = (e / e.sum(-1, keepdims=True)) @ given["v"]
    assert np.isnan(got[0]).all() and not np.isnan(got[1:]).any()
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


# ---------------------------------------------------------------- reduces, remainders
@BOTH
@pytest.mark.parametrize("op", ["sum", "prod", "max", "mean"])
def test_a_reduce_over_an_axis_that_only_repeats(op, optimize):
    x = uopc.param("x", (3, 1), uopc.dtypes.float64)
    a = np.array([[2.0], [-1.0], [0.5]])
    graph = getattr(x.expand(3, 7), op)(axis=1)
    wanted = getattr(np.broadcast_to(a, (3, 7)), op)(axis=1)
    np.testing.assert_allclose(uopc.compile(graph, optimize=optimize)(a), wanted, rtol=1e-14)
    assert len(lower_only(graph).calls) == 1


@BOTH
@EACH_FLOAT
def test_remainders_and_quotients_of_zero_and_infinity(dtype, optimize):
    """`%` floors, CMOD truncates (C's fmod); by zero both are NaN, and / is infinite."""
    corners = np.array([0.0, -0.0, 1.0, -1.0, 5.5, -5.5, np.inf, -np.inf, np.nan, 1e-310], dtype)
    a, b = [x.reshape(-1) for x in np.meshgrid(corners, corners)]
    x, y = param("a", a.shape, dtype), param("b", b.shape, dtype)
    graphs = (x % y, x.alu(uopc.Ops.CMOD, y), x / y, x // y)
    got = uopc.compile(graphs, optimize=optimize)(a, b)
    with np.errstate(all="ignore"):
        wanted = (np.mod(a, b), np.fmod(a, b), a / b, np.floor_divide(a, b))
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(g, w)


@BOTH
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_integers_divided_by_zero_give_zero(dtype, optimize):
    info = np.iinfo(dtype)
    a = np.array([info.min, info.max, 0, 7, 100], dtype)
    b = np.array([0, 0, 0, 3, 0], dtype)
    x, y = param("a", a.shape, dtype), param("b", b.shape, dtype)
    graphs = (x // y, x % y, x.alu(uopc.Ops.CDIV, y), x.alu(uopc.Ops.CMOD, y))
    for got, at_seven in zip(uopc.compile(graphs, optimize=optimize)(a, b), (2, 1, 2, 1)):
        np.testing.assert_array_equal(got, np.array([0, 0, 0, at_seven, 0], dtype))


# ---------------------------------------------------------------- steps that read two places
def steps(take, x, n, kind):
    """n steps, each of which reads the one before at two places."""
    for i in range(n):
        if kind == "slices":
            x = x[1:] * 0.5 + x[:-1]
        elif kind == "turned":
            x = take(x) * 0.5 + x
        else:
            x = x[::-1] * 0.5 + x[:, ::-1] * float(i % 3)
    return x


@pytest.mark.parametrize("kind", ["slices", "turned", "flips"])
def test_steps_that_read_two_places_are_stored_now_and_then(kind):
    """Computed again by each reader, a value n steps back would be computed 2ⁿ times."""
    a = np.random.default_rng(1).standard_normal((80, 80)).astype("f4")
    n = 60
    graph = steps(lambda x: x.permute(1, 0), uopc.param("x", a.shape), n, kind)
    program = uopc.compile(graph)
    assert n // 10 <= program.stats["launches"] <= n // 4
    want = steps(lambda x: x.T, a.astype("f8"), n, kind)
    np.testing.assert_allclose(program(a), want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("n", [2, 9, pytest.param(70, marks=pytest.mark.slow)])
def test_gathers_one_after_another(n):
    """By one index array: places found in memory are places of the next read."""
    rng = np.random.default_rng(0)
    a, at = rng.standard_normal(128).astype("f4"), rng.integers(0, 128, 128).astype("i4")
    x, places = uopc.param("x", (128,)), uopc.param("at", (128,), uopc.dtypes.int32)
    want = a.astype("f8")
    for i in range(n):
        x, want = x.take(places, 0) * 0.9 + float(i % 3), want[at] * 0.9 + float(i % 3)
    np.testing.assert_allclose(uopc.compile(x, verify=True)(a, at), want, rtol=1e-5)
