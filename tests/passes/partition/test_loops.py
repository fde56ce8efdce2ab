"""Loops whose steps exchange: on a mesh in lockstep, compiled, and on one device, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from tests.meshes import check
from uopc import P, make_mesh

MESH = make_mesh((4,), ("m",))
RNG = np.random.default_rng(0)
X, T, W = RNG.random((8, 3)), RNG.random(8), RNG.random(3)
RING = [(i, (i + 1) % 4) for i in range(4)]
RATE = 0.02


def gradient(w, x, t):
    return uopc.grad(lambda w: ((x @ w - t) ** 2).sum())(w)


def trained(steps):
    """Gradient descent by NumPy: the weights, and the loss before each step."""
    w, losses = W, []
    for _ in range(steps):
        losses.append(((X @ w - T) ** 2).sum())
        w = w - RATE * 2 * X.T @ (X @ w - T)
    return w, np.array(losses)


def on_both(f, ins, outs, arrays, mesh=MESH, **options):
    """The results of a function on the parts of arrays: on a mesh, which one device gives, too, and
    the interpreter in lockstep. And the program for the mesh."""
    params = [uopc.param(f"p{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    made = uopc.shard_map(f, mesh, ins, outs)(*params)
    results = list(made) if isinstance(made, tuple) else [made]
    check(results, {f"p{i}": a for i, a in enumerate(arrays)}, mesh, tolerance=1e-9)
    program = uopc.compile(results, verify=True, sharding=uopc.Sharding(mesh, **options))
    given = {f"p{i}": a for i, a in enumerate(arrays)}
    given = {v.name: given[v.name] for v in program.inputs}  # a loop of no steps reads none of some
    got = program(**given)
    for a, b in zip(got, uopc.compile(results)(**given), strict=True):
        np.testing.assert_allclose(a, b, 1e-9, 1e-12)
    return got, program


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_data_parallel_training_in_a_loop(steps, overlap):
    def train(w, x, t):
        return uopc.fori_loop(
            0, steps, lambda i, w: w - RATE * uopc.psum(gradient(w, x, t), "m"), w
        )

    (got,), program = on_both(train, (P(), P("m"), P("m")), P(), (W, X, T), overlap=overlap)
    np.testing.assert_allclose(got, trained(steps)[0], 1e-12)
    if steps:
        (exchange,) = program.exchanges
        assert exchange.kernel == "allreduce" and exchange.sent == (3,) and not exchange.beside
        assert "test_loops.py" in exchange.line
        (row,) = program._runner.plan.repeats
        assert row.times == steps and row.first <= row.end - 3


def test_a_scan_that_keeps_the_loss_of_each_step():
    def train(w, x, t):
        def step(w, _):
            loss = uopc.psum(((x @ w - t) ** 2).sum(), "m")
            return w - RATE * uopc.psum(gradient(w, x, t), "m"), loss

        return uopc.scan(step, w, None, 5)

    got, program = on_both(train, (P(), P("m"), P("m")), (P(), P()), (W, X, T))
    for a, b in zip(got, trained(5)):
        np.testing.assert_allclose(a, b, 1e-12)
    assert len(program.exchanges) == 1  # the loss and the gradient are one bucket


def test_rows_of_steps_that_are_cut():
    """Each step has a batch, of which each device has some rows; what a step gives is cut."""
    batches = RNG.random((3, 8, 3))

    def train(w, batches):
        def step(w, x):
            y = x @ w
            return w + uopc.pmean(x.sum(0), "m") * 0.1, y

        return uopc.scan(step, w, batches)

    got, _ = on_both(train, (P(), P(None, "m")), (P(), P(None, "m")), (W, batches))
    w, ys = W, []
    for x in batches:
        ys.append(x @ w)
        w = w + x.sum(0) / 4 * 0.1
    np.testing.assert_allclose(got[0], w, 1e-12)
    np.testing.assert_allclose(got[1], np.array(ys), 1e-12)


def test_a_ring_and_a_value_that_comes_to_differ():
    """The carried value is the same on all devices at first; each then has another one."""

    def f(x, u):
        def step(i, both):
            moving, own = both
            return uopc.ppermute(moving, "m", RING) * 1.5, own + moving.sum() + uopc.axis_index("m")

        return uopc.fori_loop(0, 3, step, (x, u))

    u = np.zeros(2)
    got, program = on_both(f, (P("m"), P()), (P("m"), P("m")), (np.arange(8.0), u))
    moving, own = np.arange(8.0).reshape(4, 2), np.zeros((4, 2))
    for _ in range(3):
        own = own + moving.sum(1, keepdims=True) + np.arange(4)[:, None]
        moving = np.roll(moving, 1, 0) * 1.5
    np.testing.assert_allclose(got[0], moving.reshape(-1), 1e-12)
    np.testing.assert_allclose(got[1], own.reshape(-1), 1e-12)
    assert [e.kernel for e in program.exchanges] == ["permute_ranks"]


def test_loops_in_loops_over_two_axes():
    mesh = make_mesh((2, 2), ("a", "b"))

    def f(x):
        def outer(i, c):
            inner = uopc.fori_loop(0, 2, lambda j, v: 0.5 * v + uopc.psum(v, "a") * 0.1, c)
            return inner + uopc.pmax(inner, "b")

        return uopc.fori_loop(0, 3, outer, x)

    a = RNG.random((4, 6))
    (got,), program = on_both(f, P("a", "b"), P("a", "b"), (a,), mesh)
    parts = a.reshape(2, 2, 2, 3)
    for _ in range(3):
        for _ in range(2):
            parts = 0.5 * parts + 0.1 * parts.sum(0, keepdims=True)
        parts = parts + parts.max(2, keepdims=True)
    np.testing.assert_allclose(got, parts.reshape(4, 6), 1e-12)
    assert sorted([(e.kernel, e.axes) for e in program.exchanges]) == [
        ("allreduce", ("a",)), ("allreduce", ("b",))
    ]


def test_gathers_and_scatters_in_a_loop():
    def f(x):
        def step(i, c):
            whole = uopc.all_gather(c, "m", tiled=True)
            turned = uopc.all_to_all(whole.reshape(4, 2), "m", 0, 1, tiled=True)
            return uopc.psum_scatter(whole, "m", tiled=True) * 0.1 + turned.reshape(8)[:2]

        return uopc.fori_loop(0, 3, step, x)

    a = RNG.random(8)
    (got,), _ = on_both(f, P("m"), P("m"), (a,))
    c = a
    for _ in range(3):
        rows = c.reshape(4, 2)
        # Device i has row i of each device, all of which are the same.
        turned = np.stack([np.tile(rows[i], 4)[:2] for i in range(4)])
        c = (4 * rows * 0.1 + turned).reshape(-1)
    np.testing.assert_allclose(got, c, 1e-12)


def test_derivatives_of_a_loop_that_exchanges():
    def f(w, x):
        total = uopc.fori_loop(0, 3, lambda i, c: c * uopc.psum((x @ w).sum(), "m"), w)
        return uopc.psum(total.sum(), "m")

    whole = uopc.shard_map(f, MESH, (P(), P("m")), P())
    got = uopc.grad(whole)(W, X)
    s = (X @ W).sum()
    wanted = 4 * (s**3 + W.sum() * 3 * s**2 * X.sum(0))
    np.testing.assert_allclose(got, wanted, 1e-12)


@pytest.mark.parametrize("spec", [P(), P("m"), P(None, "m")], ids=str)
def test_layouts_of_carried_values_without_shard_map(spec):
    """Marks alone: what a step hands on keeps a layout in which the body makes it."""
    a, b = RNG.random((8, 4)), RNG.random((4, 4)) / 4
    x, w = uopc.param("x", (8, 4), "f8"), uopc.param("w", (4, 4), "f8")
    y, sums = uopc.scan(lambda c, _: ((c @ w).shard(spec), c.sum()), x, None, 4)
    for given in (P(), P("m")):
        check([y, sums], {"x": a, "w": b}, MESH, {"x": given}, tolerance=1e-9)
        got = uopc.compile(
            [y, sums], verify=True, sharding=uopc.Sharding(MESH, in_shardings={"x": given})
        )(a, b)
        c, wanted = a, []
        for _ in range(4):
            wanted.append(c.sum())
            c = c @ b
        np.testing.assert_allclose(got[0], c, 1e-12)
        np.testing.assert_allclose(got[1], wanted, 1e-12)


def test_loops_of_a_mesh_that_names_its_devices_take_whole_arrays():
    """Marks, and what devices exchange, by hand: also in a loop in a loop."""
    mesh = make_mesh((2,), ("m",), devices=("cpu:0", "cpu:1"))

    def f(x):
        def outer(i, c):
            inner = uopc.fori_loop(0, 2, lambda j, v: 0.5 * v + uopc.psum(v, "m") * 0.1, c)
            return inner + uopc.ppermute(inner, "m", [(0, 1), (1, 0)])

        return uopc.fori_loop(0, 3, outer, x)

    x = uopc.param("x", (8, 3), "f8")
    marked, _ = uopc.scan(lambda c, _: ((c * 0.5 + 1).shard(P(None, "m")), None), x, None, 2)
    by_hand = uopc.shard_map(f, mesh, P("m"), P("m"))(x)
    got = uopc.compile(
        [by_hand, marked], verify=True, sharding=uopc.Sharding(mesh, in_shardings=P("m"))
    )(X)
    parts = X.reshape(2, 4, 3)
    for _ in range(3):
        for _ in range(2):
            parts = 0.5 * parts + 0.1 * parts.sum(0)
        parts = parts + parts[::-1]
    np.testing.assert_allclose(got[0], parts.reshape(8, 3), 1e-12)
    np.testing.assert_allclose(got[1], X / 4 + 1.5, 1e-12)


def test_large_steps_on_a_mesh_are_launches():
    a, b = RNG.random((16, 512)).astype("f4"), RNG.random((512, 512)).astype("f4") / 300
    x, w = uopc.param("x", a.shape), uopc.param("w", b.shape)
    y, _ = uopc.scan(lambda c, _: (c @ w, None), x, None, 3)
    program = uopc.compile(y, sharding=uopc.Sharding(MESH, in_shardings={"x": P("m")}))
    assert program.exchanges == () and len(program._runner.plan.repeats) == 1
    np.testing.assert_allclose(program(a, b), a @ b @ b @ b, 1e-4)
    named = make_mesh((2,), ("m",), devices=("cpu:0", "cpu:1"))
    threads = uopc.compile(y, sharding=uopc.Sharding(named, in_shardings={"x": P("m")}))
    np.testing.assert_allclose(threads(a, b), a @ b @ b @ b, 1e-4)


def test_a_symbolic_number_of_steps():
    n = uopc.variable("n", 0, 9)
    w, x, t = [uopc.param(k, a.shape, "f8") for k, a in (("w", W), ("x", X), ("t", T))]

    def train(w, x, t):
        return uopc.fori_loop(0, n, lambda i, w: w - RATE * uopc.psum(gradient(w, x, t), "m"), w)

    made = uopc.shard_map(train, MESH, (P(), P("m"), P("m")), P())(w, x, t)
    program = uopc.compile(made, sharding=uopc.Sharding(MESH))
    for steps in (0, 1, 6):
        np.testing.assert_allclose(program(W, X, T, n=steps), trained(steps)[0], 1e-12)


def test_predictions_count_each_step():
    from uopc.distributed import Link, Machine

    node = Machine(operations=1e10, bandwidth=1e9, link=Link(1e-6, 1e9), launch=1e-9)
    params = [uopc.param(k, a.shape, "f8") for k, a in (("w", W), ("x", X), ("t", T))]

    def train(steps):
        return lambda w, x, t: uopc.fori_loop(
            0, steps, lambda i, w: w - RATE * uopc.psum(gradient(w, x, t), "m"), w
        )

    found = [
        uopc.compile(
            uopc.shard_map(train(k), MESH, (P(), P("m"), P("m")), P())(*params),
            sharding=uopc.Sharding(MESH),
        ).predict(node).exchanges
        for k in (1, 10)
    ]  # fmt: skip
    assert found[1] == pytest.approx(10 * found[0])


def test_a_while_loop_does_not_exchange():
    def f(x):
        return uopc.while_loop(lambda v: v.sum() < 10, lambda v: v + uopc.psum(v, "m"), x)

    with pytest.raises(uopc.Unsupported, match="while_loop: a sort, a kernel or an exchange"):
        uopc.shard_map(f, MESH, P("m"), P("m"))(np.ones(8))
