"""The program of each rank of a job whose GPUs are stand-ins: see test_nccl.py. `CASE[,CASE]`."""

from __future__ import annotations

import os
import sys
import time

import numpy as np
import pytest

import uopc
from tests.standin import module, nccl
from tests.standin.driver import Driver
from uopc import P, distributed
from uopc.backends.cuda.arrays import DeviceArray

DRIVER = Driver()
DRIVER.capability = (8, 0)
BINDINGS = nccl.Bindings(DRIVER)
rng = np.random.default_rng(0)


def compiled(outputs, mesh, specs, **more):
    return uopc.compile(
        outputs, device="cuda", sharding=uopc.Sharding(mesh, in_shardings=specs, **more)
    )


def same(f, outputs, *arrays):
    """The program gives what one CPU gives."""
    got = f(*[a.copy() for a in arrays])
    for g, wanted in zip(got, uopc.compile(outputs)(*[a.copy() for a in arrays]), strict=True):
        np.testing.assert_allclose(np.asarray(g), wanted, 1e-5, 1e-5)
    return got


def kinds():
    """Each kind of exchange, with and without launches beside it."""
    n = distributed.process_count()
    mesh = uopc.make_mesh((n,), ("m",))
    x = uopc.param("x", (4 * n, 4))
    q = x.pad(((1, 1), (0, 0)))
    outs = [
        x.sum(axis=0), q[:-2] + q[2:], x.max(), x[::-1] * 2, x[1:2] + 1,
        (x * 3).shard(P(None, "m")), x.cast("float64").sum(), x * 2,
    ]  # fmt: skip
    a = rng.standard_normal((4 * n, 4)).astype("f4")
    found, plain = set(), None
    for overlap in (False, True):
        f = compiled(outs, mesh, P("m"), overlap=overlap)
        got = same(f, outs, a)
        assert isinstance(got[-1], uopc.ShardedArray)
        assert isinstance(got[-1].held(rank()), DeviceArray)
        bits = [np.asarray(g).tobytes() for g in got]
        assert plain in (None, bits)
        plain = bits
        found |= {e.kernel for e in f.exchanges}
        assert any(e.beside for e in f.exchanges) is overlap

    def by_hand(x, w):
        part = uopc.psum_scatter(x @ w, "m", tiled=True) + uopc.all_gather(x, "m").sum()
        return part, uopc.all_to_all(x, "m", 1, 0, tiled=True)

    y, w = uopc.param("y", (12 * n, 2 * n)), uopc.param("w", (2 * n, 3))
    whole = uopc.shard_map(by_hand, mesh, (P("m"), P()), (P("m"), P(None, "m")))
    outs = list(whole(y, w))
    f = uopc.compile(outs, device="cuda", sharding=uopc.Sharding(mesh))
    b = rng.standard_normal((12 * n, 2 * n)).astype("f4")
    same(f, outs, b, np.ones((2 * n, 3), "f4"))
    found |= {e.kernel for e in f.exchanges}
    names = {"all_reduce", "all_gather", "broadcast", "group", "allto_all", "reduce_scatter"}
    assert names <= set(BINDINGS.calls), BINDINGS.calls
    return " ".join(sorted(found))


def rank():
    return distributed.process_index()


def buckets():
    """Gradients are one exchange of memory side by side; steps in place on parts that stay."""
    n = distributed.process_count()
    mesh = uopc.make_mesh((n,), ("m",))
    x, w, v = uopc.param("x", (4 * n, 5)), uopc.param("w", (5, 6)), uopc.param("v", (6, 2))
    loss = (((x @ w).relu() @ v) ** 2).mean()
    outs = [loss, *uopc.grad(loss, [w, v])]
    f = compiled(outs, mesh, {"x": P("m")}, explicit=True)
    (bucket,) = f.exchanges
    assert len(bucket.offsets) == 3
    arrays = [rng.standard_normal(p.shape).astype("f4") for p in (x, w, v)]
    for _ in range(3):
        BINDINGS.calls.clear()
        same(f, outs, *arrays)
        assert BINDINGS.calls[-1:] == ["all_reduce"] and BINDINGS.calls.count("all_reduce") == 1
    u = uopc.param("u", (4 * n + 1, 3))
    q = u.pad(((1, 1), (0, 0)))
    made = 0.5 * u + 0.25 * (q[:-2] + q[2:])
    step = compiled([u.assign(made)], mesh, P("m"))
    one, start = uopc.compile([u.assign(made)]), compiled([u * 1], mesh, P("m"))
    a = rng.standard_normal((4 * n + 1, 3)).astype("f4")
    b, (on_gpus,) = a.copy(), start(a)
    for _ in range(3):
        one(b)
        assert step(on_gpus)[0] is on_gpus  # in place
    np.testing.assert_allclose(np.asarray(on_gpus), b, 1e-6)
    begin = min(len(b), -(-len(b) // n) * rank())
    np.testing.assert_allclose(on_gpus.part.numpy(), b[begin : begin + on_gpus.part.shape[0]], 1e-6)
    whole = a.copy()
    step(whole)
    one(a)
    np.testing.assert_allclose(whole, a, 1e-6)
    plain = uopc.compile(u * 2, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    try:
        plain(on_gpus)
    except uopc.UserError as error:
        assert "is on a GPU, but the program is for CPUs" in str(error)
    else:
        raise AssertionError
    np.testing.assert_allclose(np.asarray(plain(np.asarray(on_gpus))), 2 * b, 1e-6)
    m = uopc.variable("rows", 0, 64)
    z = uopc.param("z", (m, 3))
    symbolic = compiled([z.sum(axis=0), z * 2], mesh, P("m"))
    for rows in (0, 4, 12):
        same(symbolic, [z.sum(axis=0), z * 2], rng.standard_normal((rows, 3)).astype("f4"))
    return "buckets"


def failing(how):
    """Rank 1 does not come; or its communicator says that it failed."""
    x = uopc.param("x", (8,))
    f = compiled([x.sum()], uopc.make_mesh((distributed.process_count(),), ("m",)), P("m"))
    a = np.ones(8, "f4")
    f(a)
    if how == "fault" and rank() == 0:
        BINDINGS.failing = 6
        query = sys.modules["pycuda.driver"].Event
        query.query = lambda self: False
    elif rank() == 1:
        time.sleep(60)
        return "never"
    while how == "sleep" or rank() == 0:
        f(a)
        time.sleep(0.2 if how == "sleep" else 0)
    return "never"


_CASES = {"kinds": kinds, "buckets": buckets}

if __name__ == "__main__":
    module.install(DRIVER, pytest.MonkeyPatch())
    BINDINGS.install()
    distributed.initialize(timeout=float(os.environ.get("JOB_TIMEOUT", "60")))
    for case in sys.argv[1].split(","):
        text = _CASES[case]() if case in _CASES else failing(case)
        print(f"rank {rank()} done: {text}", flush=True)
