"""Programs for a mesh as tasks of Dask: results are NumPy's, wherever and however often tasks run.

Skipped where Dask is not installed: `pip install 'uopc[dask]'`.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import uopc
from tests import mesh_fuzz
from uopc import P, distributed, dtypes, make_mesh

dask = pytest.importorskip("dask", reason="dask is not installed")
da = pytest.importorskip("dask.array", reason="dask[array] is not installed")

rng = np.random.default_rng(0)
MESHES = make_mesh((2,), ("m",)), make_mesh((4,), ("m",)), make_mesh((2, 2), ("m", "k"))


def every_exchange(rows=9):
    """Outputs that take every kind of exchange between them, and what NumPy gives."""
    x, w = uopc.param("x", (rows, 4), "f8"), uopc.param("w", (4, 5), "f8")
    q = x.pad(((1, 1), (0, 0)))
    outputs = {
        "product": (x @ w.shard(P(None, "m"))), "neighbours": q[:-2] + q[2:], "greatest": x.max(),
        "turned": x[::-1] * 2, "moved": x.shard(P(None, "m")) * 3, "one": x[3:4] + 1,
        "centred": x - x.mean(axis=0), "written": x.assign(x + 1),
    }  # fmt: skip

    def wanted(x, w):
        q = np.pad(x, ((1, 1), (0, 0)))
        return {
            "product": x @ w, "neighbours": q[:-2] + q[2:], "greatest": x.max(),
            "turned": x[::-1] * 2, "moved": x * 3, "one": x[3:4] + 1,
            "centred": x - x.mean(axis=0), "written": x + 1,
        }  # fmt: skip

    return outputs, wanted


def check(got, wanted, tolerance=1e-12):
    for name, value in wanted.items():
        assert got[name].shape == value.shape and got[name].dtype == value.dtype, name
        np.testing.assert_allclose(got[name], value, tolerance, tolerance, err_msg=name)


@pytest.mark.parametrize("mesh", MESHES, ids=lambda m: "x".join(map(str, m.axis_sizes)))
def test_every_exchange_gives_what_numpy_gives(mesh):
    outputs, wanted = every_exchange()
    f = uopc.compile(outputs, sharding=uopc.Sharding(mesh, in_shardings={"x": P("m")}))
    kinds = {e.kernel for e in f.exchanges}
    assert {"allreduce", "permute_ranks", "allgather", "alltoall"} <= kinds
    x, w = rng.standard_normal((9, 4)), rng.standard_normal((4, 5))
    before = x.copy()
    lazy = distributed.on_dask(f, x, w)
    for _ in range(2):  # tasks may run again
        check(dask.compute(lazy, scheduler="synchronous")[0], wanted(x, w))
        np.testing.assert_array_equal(x, before)
    blocks = da.from_array(x, chunks=(4, 3))
    lazy = distributed.on_dask(f, blocks, w=da.from_array(w, chunks=2))
    check(dask.compute(lazy, scheduler="threads")[0], wanted(x, w))
    assert lazy["centred"].chunks[0] == ((5, 4) if mesh.shape["m"] == 2 else (3, 3, 3))


def test_nan_travels_and_bits_are_those_of_a_call():
    x = uopc.param("x", (7, 3))
    mesh = make_mesh((4,), ("m",))
    a = rng.standard_normal((7, 3)).astype("f4")
    a[5, 1] = np.nan
    outputs = [x.max(axis=0), x.sum(), (x * x).sum(axis=0), x.softmax(axis=0)]
    for deterministic in (False, True):
        f = uopc.compile(
            outputs, sharding=uopc.Sharding(mesh, in_shardings=P("m"), deterministic=deterministic)
        )
        got = dask.compute(distributed.on_dask(f, a), scheduler="synchronous")[0]
        assert [v.tobytes() for v in got] == [np.asarray(v).tobytes() for v in f(a)]
        np.testing.assert_array_equal(got[0], a.max(axis=0))


@pytest.mark.parametrize("t", ["bool", "int8", "uint64", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.few(9)
def test_dtypes_and_sizes(t, n):
    kind = getattr(dtypes, "bool_" if t == "bool" else t)
    x = uopc.param("x", (n, 2), kind)
    f = uopc.compile(
        [x.max(axis=0), x[::-1]],
        sharding=uopc.Sharding(make_mesh((4,), ("m",)), in_shardings=P("m")),
    )  # fmt: skip
    a = rng.integers(0, 2, (n, 2)).astype(kind.numpy)
    got = dask.compute(distributed.on_dask(f, a), scheduler="synchronous")[0]
    np.testing.assert_array_equal(got[0], a.max(axis=0))
    np.testing.assert_array_equal(got[1], a[::-1])


def test_variables_and_what_is_bound():
    k, x = uopc.variable("k", 0, 9), uopc.param("x", (6,), "f8")
    f = uopc.compile(
        x * k.cast("f8") + x.sum(), sharding=uopc.Sharding(MESHES[0], in_shardings=P("m"))
    )
    a = np.arange(6.0)
    for lazy in (distributed.on_dask(f, a, k=3), distributed.on_dask(f.bind(k=3), a)):
        np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), a * 3 + 15)
    cut = uopc.make_array_from_callback(
        (6,), uopc.NamedSharding(MESHES[0], P("m")), lambda i: a[i]
    )
    lazy = distributed.on_dask(f, cut, k=1)
    np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), a + 15)


def test_a_task_sends_its_exchange_alone():
    """Only the array of the exchange goes to another device, without its device's memory."""
    x = uopc.param("x", (64, 32))
    f = uopc.compile(x - x.sum(axis=0), sharding=uopc.Sharding(MESHES[1], in_shardings=P("m")))
    lazy = distributed.on_dask(f, np.ones((64, 32), "f4"))
    names = [key if isinstance(key, str) else key[0] for key in lazy.dask]
    count = {kind: sum(n.startswith(kind) for n in names) for kind in ("phase", "combined")}
    assert count == {"phase": 2 * 4, "combined": 1}


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed):
    case = mesh_fuzz.Case(seed)
    given = case.arrays_used()
    f = uopc.compile(
        case.outputs, sharding=uopc.Sharding(case.mesh, in_shardings=case.in_specs_used())
    )
    got = dask.compute(distributed.on_dask(f, **given), scheduler="synchronous")[0]
    for g, w in zip(got, uopc.compile(case.outputs)(**given), strict=True):
        np.testing.assert_allclose(g, w, 1e-4, 1e-4)


def test_what_is_refused():
    x, mesh = uopc.param("x", (4,), "f8"), make_mesh((2,), ("m",))
    a = np.ones(4)
    f = uopc.compile(x * 2, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    named = uopc.compile(
        x * 2, sharding=uopc.Sharding(make_mesh((2,), ("m",), devices=("cpu:0", "cpu:1")))
    )
    unknown = da.from_array(a, chunks=2)
    for call, words in (
        (lambda: distributed.on_dask(uopc.compile(x * 2), a), "a program for a mesh that names no"),
        (lambda: distributed.on_dask(named, a), "a program for a mesh that names no devices"),
        (lambda: distributed.on_dask(np.sin, a), "a program for a mesh that names no devices"),
        (lambda: distributed.on_dask(f, a, out=a), "there is no out="),
        (lambda: distributed.on_dask(f), "missing 1 argument"),
        (lambda: distributed.on_dask(f, da.ones(5, chunks=2)), r"expected float64\[4\]"),
        (lambda: distributed.on_dask(f, da.ones(4, chunks=2, dtype="f4")), "expected float64"),
        (lambda: distributed.on_dask(f, unknown[unknown > 0]), "Dask array must be known"),
    ):
        with pytest.raises(uopc.UserError, match=words):
            call()
    kernel = uopc.compile(
        [x.sum(), x.assign(x + 1)], sharding=uopc.Sharding(mesh, in_shardings=P("m"))
    )
    assert len(distributed.on_dask(kernel, a)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES[:2], ids=["2", "4"])
def test_workers_run_the_phases(mesh):
    """On processes of their own, and again where one of them was lost."""
    from dask.distributed import Client

    outputs, wanted = every_exchange(64)
    f = uopc.compile(outputs, sharding=uopc.Sharding(mesh, in_shardings={"x": P("m")}))
    x, w = rng.standard_normal((64, 4)), rng.standard_normal((4, 5))
    with Client(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    ) as client:
        lazy = distributed.on_dask(f, da.from_array(x, chunks=(16, 4)), w)
        check(client.compute(lazy).result(timeout=120), wanted(x, w))
        kept = client.persist(lazy["centred"])
        client.restart_workers(list(client.scheduler_info()["workers"])[:1], timeout=60)
        np.testing.assert_allclose(kept.compute(timeout=120), wanted(x, w)["centred"])


def test_devices_are_unpickled_once():
    from uopc.backends.exchange import dask_tasks

    x = uopc.param("x", (4,))
    f = uopc.compile(x.sum(), sharding=uopc.Sharding(MESHES[0], in_shardings=P("m")))
    content = pickle.dumps(dask_tasks.Devices(lambda: f))
    first, second = pickle.loads(content), pickle.loads(content)
    assert first is second and first.device(1) is second.device(1)
    assert pickle.loads(pickle.dumps(first)) is first


def test_a_phase_needs_nothing_but_what_it_is_given():
    """Phases of two calls, one after the other on the same devices: both have values that are
    stored before the exchange and read after it."""
    from uopc.backends.exchange import dask_tasks

    x, w = uopc.param("x", (8, 4), "f8"), uopc.param("w", (4, 5), "f8")
    y = (x @ w).contiguous()
    f = uopc.compile(
        y - y.mean(axis=0), sharding=uopc.Sharding(MESHES[0], in_shardings={"x": P("m")})
    )
    (exchange,) = f.exchanges
    devices, b = dask_tasks.Devices(lambda: f), rng.standard_normal((4, 5))
    arrays = [rng.standard_normal((8, 4)) for _ in range(2)]
    parts = [[(a[:4], b), (a[4:], b)] for a in arrays]
    first = [
        [dask_tasks.phase(devices, r, 0, {}, own[r], None, None) for r in range(2)] for own in parts
    ]
    assert all(memory.intermediates.size for _, memory in first[0])
    for a, own, made in zip(arrays, parts, first):
        got = dask_tasks.combined(exchange, [sent for sent, _ in made])
        last = [
            dask_tasks.phase(devices, r, 1, {}, own[r], made[r][1], got[r]) for r in range(2)
        ]  # fmt: skip
        found = np.concatenate([memory.results[0] for _, memory in last])
        np.testing.assert_allclose(found, a @ b - (a @ b).mean(0), 1e-12, 1e-12)


def test_loops_that_exchange_are_tasks_step_by_step():
    mesh, a = make_mesh((2,), ("m",)), np.arange(8.0)
    x = uopc.param("x", (8,), "f8")

    def f(x):
        return uopc.fori_loop(0, 3, lambda i, c: c * 0.5 + uopc.psum(c, "m"), x)

    made = uopc.shard_map(f, mesh, P("m"), P("m"))(x)
    got = distributed.on_dask(uopc.compile(
        made, sharding=uopc.Sharding(mesh)
    ), a).compute(scheduler="sync")
    parts = a.reshape(2, 4)
    for _ in range(3):
        parts = 0.5 * parts + parts.sum(0)
    np.testing.assert_allclose(got, parts.reshape(-1), 1e-12)
