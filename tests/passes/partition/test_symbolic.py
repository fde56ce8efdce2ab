"""Dimensions of a symbolic size that are cut over a mesh: all sizes, and results as NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import P, make_mesh
from uopc.distributed import Link, Machine

rng = np.random.default_rng(0)
N = uopc.variable("n", 0, 64)
X, W = uopc.param("x", (N, 8), "f8"), uopc.param("w", (8, 6), "f8")
ROWS = X.pad(((1, 1), (0, 0)))


def shifted(x):
    return np.pad(x, ((1, 1), (0, 0)))


def softmax(x):
    e = np.exp(x - x.max(0, initial=-np.inf))
    return e / e.sum(0)


SIZES = (0, 1, 2, 3, 4, 5, 7, 12, 61, 64)  # below the number of devices, even, prime, most


# By name: outputs, their layouts, NumPy's results, the kinds of the exchanges.
CASES = {
    "elementwise": ([X * 2 + 1], None, lambda x, w: [x * 2 + 1], []),
    "the size as a value": ([X * N.cast("f8")], None, lambda x, w: [x * len(x)], []),
    "sums": ([X.sum(axis=0), X.sum(), X.sum(axis=1)], None,
             lambda x, w: [x.sum(0), x.sum(), x.sum(1)], ["allreduce"]),
    "product of rows": ([(X @ W).relu()], None, lambda x, w: [np.maximum(x @ w, 0)], []),
    "product over the cut": ([X.transpose(0, 1) @ X], None, lambda x, w: [x.T @ x], ["allreduce"]),
    "both sides": ([X @ X.transpose(0, 1)], None, lambda x, w: [x @ x.T], ["allgather"]),
    "gradient": ([uopc.grad(((X @ W) ** 2).sum(), W)], None,
                 lambda x, w: [2 * x.T @ (x @ w)], ["allreduce"]),
    "gathered": ([X * 2], [P()], lambda x, w: [x * 2], ["allgather"]),
    "reshaped": ([(X * 2).reshape(N * 8), (X + 1).reshape(N, 2, 4), X.reshape(N, 1, 8) * 3], None,
                 lambda x, w: [(x * 2).ravel(), (x + 1).reshape(-1, 2, 4), x[:, None] * 3], []),
    "cut elsewhere": ([X.shard(P(None, "m")) * 2], None, lambda x, w: [x * 2], ["alltoall"]),
    "turned": ([X[::-1] * 2], None, lambda x, w: [x[::-1] * 2], ["allgather"]),
    "turned around": ([unp.roll(X, 2, axis=0) + X], None,
                      lambda x, w: [np.roll(x, 2, 0) + x], ["allgather"]),
    "neighbours": ([ROWS[:-2] + ROWS[2:]], None,
                   lambda x, w: [shifted(x)[:-2] + shifted(x)[2:]], ["permute_ranks"] * 2),
    "softmax": ([X.softmax(axis=0)], None, lambda x, w: [softmax(x)], ["allreduce"] * 2),
    "running totals": ([X.cumsum(axis=0), X.cumsum(axis=1), X.cumprod(axis=0), (-X).cummax(axis=0)],
                       None, lambda x, w: [x.cumsum(0), x.cumsum(1), x.cumprod(0),
                                           np.maximum.accumulate(-x, 0)], ["allgather"] * 3),
    "joined": ([uopc.cat(X, X * 2, axis=1)], None,
               lambda x, w: [np.concatenate([x, x * 2], 1)], []),
    "written": ([X.assign(X + 1)], None, lambda x, w: [x + 1], []),
}  # fmt: skip


def named(*sizes):
    """The devices of this process that such a mesh has."""
    return [f"cpu:{i}" for i in range(np.prod(sizes))]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("p", "devices"), [
    (2, None), (4, None), (2, named(2)), pytest.param(4, named(4), marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.few(3)
def test_results_are_those_of_numpy(name, p, devices):
    outs, layouts, wanted, kinds = CASES[name]
    f = uopc.compile(
        outs, verify=True,
        sharding=uopc.Sharding(make_mesh((p,), ("m",), devices=devices), {"x": P("m")}, layouts),
    )  # fmt: skip
    found = [e.kernel for e in f.exchanges]
    assert found == kinds or (devices and {*found} == {*kinds})  # copies are in no buckets
    names = [v.name for v in f.inputs]
    for rows in SIZES:
        given = {"x": rng.standard_normal((rows, 8)), "w": rng.standard_normal((8, 6))}
        expected = wanted(**given)
        got = f(**{n: given[n].copy() for n in names})
        for g, w in zip(got, expected, strict=True):
            assert g.shape == w.shape
            np.testing.assert_allclose(g, w, 1e-10, 1e-10)


@pytest.mark.parametrize("devices", [None, named(2)])
def test_sorts_take_whole_arrays(devices):
    mesh = make_mesh((2,), ("m",), devices=devices)
    f = uopc.compile([X.sort(axis=0) * 2], sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    for rows in SIZES:
        a = rng.standard_normal((rows, 8))
        np.testing.assert_array_equal(f(a)[0], np.sort(a, 0) * 2)


def test_a_result_is_scattered_along_it():
    outs = [X.sum(axis=1), X * 1]
    f = uopc.compile(
        outs,
        sharding=uopc.Sharding(make_mesh((4,), ("m",)), {"x": P(None, "m")}, [P("m"), P("m")]),
    )  # fmt: skip
    assert sorted(e.kernel for e in f.exchanges) == ["alltoall", "reduce_scatter"]
    a = rng.standard_normal((20, 8))
    for g, w in zip(f(a), [a.sum(1), a], strict=True):
        np.testing.assert_allclose(g, w, 1e-12)


@pytest.mark.parametrize("devices", [None, named(4)])
def test_a_size_out_of_bounds_is_refused_before_anything_runs(devices):
    mesh = make_mesh((4,), ("m",), devices=devices)
    f = uopc.compile(X.assign(X + 1), sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    a = np.ones((68, 8))
    for call in (lambda: f(a), lambda: f.bind(n=68)):
        with pytest.raises(uopc.UserError, match="'n' is 68"):
            call()
    assert (a == 1).all()


@pytest.mark.parametrize("devices", [None, named(4)])
def test_what_is_written_in_place_and_bound(devices, tmp_path):
    mesh = make_mesh((4,), ("m",), devices=devices)
    with uopc.options(cache_dir=str(tmp_path), programs=0):
        made = [uopc.compile(
            X.assign(X + 1), sharding=uopc.Sharding(mesh, in_shardings=P("m"))
        ) for _ in range(2)]
    assert [f.stats["cache"] for f in made] == ["", "disk"]
    for f in made:
        for rows in SIZES:
            a = np.ones((rows, 8))
            f(a)
            f.bind(n=rows)(a)
            assert a.shape == (rows, 8) and (a == 3).all()


def test_threads_that_store_to_parts_of_a_result_do_not_wait():
    mesh = make_mesh((4,), ("m",), devices=named(4))
    for made in (X * 2 + 1, (X @ W)[:, ::-1], X.sum(axis=1)):
        f = uopc.compile(made, sharding=uopc.Sharding(mesh, in_shardings={"x": P("m")}))
        assert -1 not in sum(f._runner.plan.rows, ())
        assert all(f._runner.plan.rows)
    back = uopc.compile(
        [X[::-1] * 2, X.sum(axis=0)], sharding=uopc.Sharding(mesh, in_shardings={"x": P("m")})
    )
    assert -1 in back._runner.plan.rows[0]  # others' parts are read


@pytest.mark.parametrize("devices", [None, named(2, 3)])
def test_two_variables_and_several_axes(devices):
    n, m = uopc.variable("n", 1, 40), uopc.variable("m", 1, 40)
    x, y = uopc.param("x", (n, m), "f8"), uopc.param("y", (2 * m, n), "f8")
    mesh = make_mesh((2, 3), ("a", "b"), devices=devices)
    f = uopc.compile(
        [x.sum(axis=1), y.sum(axis=0) + x.max(axis=1), x * 2],
        sharding=uopc.Sharding(mesh, in_shardings={"x": P("a", "b"), "y": P("b")}),
    )  # fmt: skip
    for rows, columns in ((2, 3), (40, 39), (1, 1), (7, 5), (3, 40)):
        a, b = rng.standard_normal((rows, columns)), rng.standard_normal((2 * columns, rows))
        for g, w in zip(f(a, b), [a.sum(1), b.sum(0) + a.max(1), a * 2], strict=True):
            np.testing.assert_allclose(g, w, 1e-10)


@pytest.mark.parametrize("devices", [None, named(2, 2)])
def test_a_window_where_another_dimension_is_cut_along_another_axis(devices):
    x = uopc.param("x", (N, 2 * N), "f8")
    mesh = make_mesh((2, 2), ("a", "b"), devices=devices)
    f = uopc.compile(
        x.pad(((1, 1), (0, 0)))[:-2], sharding=uopc.Sharding(mesh, in_shardings=P("a", "b"))
    )
    for rows in SIZES:
        a = rng.standard_normal((rows, 2 * rows))
        np.testing.assert_array_equal(f(a), np.pad(a, ((1, 0), (0, 0)))[:rows])


def test_bound_cached_and_deterministic_programs(tmp_path):
    mesh, a = make_mesh((2,), ("m",)), rng.standard_normal((16, 8))
    with uopc.options(cache_dir=str(tmp_path), programs=0):
        made = [uopc.compile(
            X.sum(axis=0), sharding=uopc.Sharding(mesh, in_shardings=P("m"))
        ) for _ in range(2)]
    assert [f.stats["cache"] for f in made] == ["", "disk"]
    first = made[0](a)
    assert made[1](a).tobytes() == first.tobytes() == made[1].bind(n=16)(a).tobytes()
    blocks = uopc.compile(
        X.sum(axis=0), sharding=uopc.Sharding(mesh, in_shardings=P("m"), deterministic=True)
    )
    np.testing.assert_allclose(blocks(a), a.sum(0), 1e-12)
    np.testing.assert_allclose(blocks(a[:13]), a[:13].sum(0), 1e-12)
    four = uopc.compile(
        X.sum(axis=0),
        sharding=uopc.Sharding(make_mesh((4,), ("m",)), in_shardings=P("m"), deterministic=True),
    )
    assert four(a[:13]).tobytes() == blocks(a[:13]).tobytes()


def test_predictions_take_the_size():
    machine = Machine(operations=1e9, bandwidth=1e9, link=Link(1e-6, 1e9), launch=1e-12)
    f = uopc.compile(X * 2, sharding=uopc.Sharding(make_mesh((4,), ("m",)), in_shardings=P("m")))
    half, most = f.predict(machine, n=32).kernels, f.predict(machine).kernels
    assert most == pytest.approx(2 * half, rel=0.01)
    assert most == pytest.approx(2 * 64 * 8 * 8 / 4 / 1e9, rel=0.05)


def test_as_tasks_of_dask():
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    f = uopc.compile(
        X - X.mean(axis=0), sharding=uopc.Sharding(make_mesh((4,), ("m",)), in_shardings=P("m"))
    )
    a = rng.standard_normal((24, 8))
    lazy = uopc.distributed.on_dask(f, da.from_array(a, chunks=(5, 8)))
    assert lazy.chunks[0] == (6,) * 4
    np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), a - a.mean(0), 1e-10)
    uneven = uopc.distributed.on_dask(f, a[:22])
    assert uneven.chunks[0] == (6, 6, 6, 4)
    np.testing.assert_allclose(
        uneven.compute(scheduler="synchronous"), a[:22] - a[:22].mean(0), 1e-10
    )
