"""The program of each rank of an MPI job: see test_mpi.py. `python mpi_job.py CASE[,CASE]`."""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import sys
import threading
import time

import numpy as np

import uopc
from tests import mesh_fuzz
from uopc import P, distributed
from uopc.backends.exchange import mesh_runner, ranks


def block(mesh, overlap=False):
    x, w, v = uopc.param("x", (8, 12)), uopc.param("w", (12, 16)), uopc.param("v", (16, 12))
    y = x + (x @ w.shard(P(None, "m"))).gelu() @ v.shard(P("m"))
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(d).astype("f4") for d in ((8, 12), (12, 16), (16, 12))]
    return y, uopc.compile(y, sharding=uopc.Sharding(mesh, overlap=overlap)), arrays


def right(overlap=False):
    """Programs of every exchange give what one device gives; runs are equal bit for bit."""
    mesh = uopc.make_mesh((distributed.process_count(),), ("m",))
    y, f, arrays = block(mesh, overlap)
    first = f(*arrays)
    np.testing.assert_allclose(first, uopc.compile(y)(*arrays), 1e-5, 1e-5)
    assert all(f(*arrays).tobytes() == first.tobytes() for _ in range(20))
    kept = [f(scale * arrays[0], *arrays[1:]) for scale in (1, 2, 3)]  # each in memory of its own
    for scale, got in enumerate(kept, 1):
        wanted = uopc.compile(y)(scale * arrays[0], *arrays[1:])
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-4)
    x = uopc.param("x", (9, 4))
    q = x.pad(((1, 1), (0, 0)))
    outs = [
        q[:-2] + q[2:], x.max(), x.min(axis=0), x[::-1] * 2, x[3:4] + 1, x.shard(P(None, "m")) * 3,
        x.sum(axis=1), (x > 0).all(axis=0),
    ]  # fmt: skip
    g = uopc.compile(outs, sharding=uopc.Sharding(mesh, in_shardings=P("m"), overlap=overlap))
    for at in (0, 4, 8):
        a = np.random.default_rng(at).standard_normal((9, 4)).astype("f4")
        a[at, 1] = np.nan
        for got, wanted in zip(g(a), uopc.compile(outs)(a)):  # sums of rows in another order
            np.testing.assert_allclose(got, wanted, 1e-6, 1e-6)
    step = x.assign(0.5 * q[:-2] + 0.5 * q[2:])
    s = uopc.compile(step, sharding=uopc.Sharding(mesh, in_shardings=P("m"), overlap=overlap))
    one = uopc.compile(step)
    a = np.random.default_rng(7).standard_normal((9, 4)).astype("f4")
    b = a.copy()
    for _ in range(3):
        s(a)
        one(b)
    np.testing.assert_allclose(a, b, 1e-6)
    sums = [x.sum(), (x * x).sum(axis=0), x.mean() + 1]
    bucket = uopc.compile(sums, sharding=uopc.Sharding(mesh, in_shardings=P("m"), overlap=overlap))
    assert len(bucket.exchanges) == 1 and bucket.exchanges[0].offsets
    for got, wanted in zip(bucket(b), uopc.compile(sums)(b)):
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-5)
    n = uopc.variable("n", 0, 64)
    z = uopc.param("z", (n, 3))
    outs = [z.sum(axis=0), z * 2]
    symbolic = uopc.compile(
        outs, sharding=uopc.Sharding(mesh, in_shardings=P("m"), overlap=overlap)
    )
    for rows in (0, 4, 60):
        c = np.random.default_rng(rows).standard_normal((rows, 3)).astype("f4")
        for got, wanted in zip(symbolic(c), (c.sum(axis=0), c * 2)):
            np.testing.assert_allclose(np.asarray(got), wanted, 1e-5, 1e-5)
    every = [e for p in (f, g, s) for e in p.exchanges]
    assert any(e.beside for e in every) is overlap
    return f"{len({e.kernel for e in every})} kinds"


def overlap():
    """The same with exchanges that run beside launches, of which kinds that one device makes."""
    mesh, n = uopc.make_mesh((distributed.process_count(),), ("m",)), distributed.process_count()

    def f(x, w):
        turned = uopc.all_to_all(x, "m", 1, 0, tiled=True)
        part = uopc.psum_scatter(uopc.all_gather(x, "m").sum(0) @ w, "m", tiled=True)
        return turned, part, uopc.psum(x, "m"), x * 2 + uopc.axis_index("m").astype(np.float32)

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((12 * n, 2 * n)).astype("f4"), np.ones((2 * n, 3), "f4")
    whole = uopc.shard_map(f, mesh, (P("m"), P()), (P(None, "m"), P("m"), P(), P("m")))
    x, w = uopc.param("x", a.shape), uopc.param("w", b.shape)
    outs = list(whole(x, w))
    beside = uopc.compile(outs, sharding=uopc.Sharding(mesh, overlap=True))
    assert {e.kernel for e in beside.exchanges if e.beside} >= {"alltoall", "allgather"}
    for _ in range(3):
        for got, wanted in zip(beside(a, b), uopc.compile(outs)(a, b), strict=True):
            np.testing.assert_allclose(np.asarray(got), wanted, 1e-5, 1e-5)
    machine = distributed.measure(mesh)
    assert 0 <= machine.link.beside <= 1 and machine.between(("m",)) == machine.link
    uopc.compile(outs, sharding=uopc.Sharding(mesh, overlap=machine))(a, b)
    return right(True)


def by_part():
    """A result that stays cut is a ShardedArray, which goes into programs without moving."""
    n, me = distributed.process_count(), distributed.process_index()
    mesh = uopc.make_mesh((n,), ("m",))
    read = []

    def rows(index):
        read.append(index)
        return np.arange(30, dtype="f4").reshape(10, 3)[index]

    whole = rows((slice(0, 10),))
    x = uopc.make_array_from_callback((10, 3), uopc.NamedSharding(mesh, P("m")), rows)
    size = -(-10 // n)
    own = slice(min(10, size * me), min(10, size * (me + 1)))
    assert read[1:] == [(own, slice(0, 3))]
    p = uopc.param("x", (10, 3))
    double = uopc.compile(p * 2, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    y = double(x)
    assert isinstance(y, uopc.ShardedArray) and y.spec == P("m") and y.shape == (10, 3)
    np.testing.assert_array_equal(y.part, 2 * whole[own])
    assert not own.stop - own.start or np.shares_memory(np.from_dlpack(y), y.part)
    z = double(y)
    np.testing.assert_array_equal(np.asarray(z), 4 * whole)
    again = pickle.loads(pickle.dumps(y))
    np.testing.assert_array_equal(again.part, y.part)
    np.testing.assert_array_equal(double(again).whole(), 4 * whole)
    try:
        ranks.of_pickle(me + 1, n)
        raise AssertionError
    except uopc.UserError as error:
        assert f"a pickle of rank {me + 1} of {n}" in str(error)
    total, kept = uopc.compile(
        [p.sum(), p + 1], sharding=uopc.Sharding(mesh, out_shardings=[P(), P()])
    )(whole)
    assert type(total) is type(kept) is np.ndarray and total == whole.sum()
    out = np.zeros((10, 3), "f4")
    assert double(z, out=out) is out
    np.testing.assert_array_equal(out, 8 * whole)
    w = uopc.param("w", (10, 3))
    weighted = uopc.compile(
        [(p * w).sum(), p * w], sharding=uopc.Sharding(mesh, in_shardings=P("m"))
    )
    for given in (x, whole):
        got = weighted.bind(w=given)(y)
        np.testing.assert_allclose(got[0], (2 * whole * whole).sum(), 1e-5)
        np.testing.assert_array_equal(np.asarray(got[1]), 2 * whole * whole)
    step = uopc.compile(p.assign(p + 1), sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    assert step(z) is z
    np.testing.assert_array_equal(z.whole(), 4 * whole + 1)
    try:
        other = uopc.make_mesh((n + 1,), ("m",))
        uopc.make_array_from_callback((10, 3), uopc.NamedSharding(other, P("m")), rows)
    except uopc.UserError as error:
        assert f"the job {n}" in str(error)
        return "by part"
    raise AssertionError


def once():
    """The first rank of a machine compiles, the others load."""
    folder = os.environ["JOB_CACHE"]
    with uopc.options(cache_dir=folder, programs=0):
        _, f, arrays = block(uopc.make_mesh((distributed.process_count(),), ("m",)))
        f(*arrays)
    wanted = "" if distributed.process_index() == 0 else "disk"
    assert f.stats["cache"] == wanted, f.stats["cache"]
    try:  # an error of a compile is one of all ranks
        uopc.compile(
            uopc.param("x", (4,)),
            sharding=uopc.Sharding(f._source.request.mesh.mesh, in_shardings=P("no")),
        )
    except uopc.UserError:
        return "once"
    raise AssertionError


def by_hand():
    """Functions on parts give on all ranks what one device gives."""
    n = distributed.process_count()
    mesh, ring = uopc.make_mesh((n,), ("m",)), [(i, (i + 1) % n) for i in range(n)]

    def f(x, w):
        moved = uopc.ppermute(x, "m", ring) + uopc.axis_index("m").astype(np.float32)
        turned = uopc.all_to_all(moved, "m", 1, 0, tiled=True)
        part = uopc.psum_scatter(uopc.all_gather(x, "m").sum(0) @ w, "m", tiled=True)
        return moved, turned, part, uopc.psum(x.sum(), "m"), uopc.pmax(x, "m")

    specs = P("m"), P(None, "m"), P("m"), P(), P()
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((12 * n, 2 * n)).astype("f4"), np.ones((2 * n, 3), "f4")
    on_parts = uopc.shard_map(f, mesh, (P("m"), P()), specs)
    for got, wanted in zip(on_parts(*arrays), uopc.jit(on_parts)(*arrays), strict=True):
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-5)
    return "by hand"


def loops():
    """Loops whose steps exchange give on all ranks what one device gives."""
    n = distributed.process_count()
    mesh, ring = uopc.make_mesh((n,), ("m",)), [(i, (i + 1) % n) for i in range(n)]

    def train(w, x, t):
        def step(both, _):
            w, moving = both
            loss = uopc.psum(((x @ w - t) ** 2).sum(), "m")
            own = uopc.grad(lambda w: ((x @ w - t) ** 2).sum())(w)
            return (w - 0.01 * uopc.psum(own, "m"), uopc.ppermute(moving, "m", ring)), loss

        return uopc.scan(step, (w, x), None, 5)

    rng = np.random.default_rng(0)
    arrays = [rng.random(3), rng.random((4 * n, 3)), rng.random(4 * n)]
    specs = (P(), P("m"), P("m")), ((P(), P("m")), P())
    params = [uopc.param(f"p{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    (w, moving), losses = uopc.shard_map(train, mesh, *specs)(*params)
    f = uopc.compile([w, moving, losses], sharding=uopc.Sharding(mesh))
    assert f._runner.plan.repeats and f.exchanges
    for _ in range(2):  # in memory of its own
        kept = [f(*[scale * a for a in arrays]) for scale in (1, 0.5)]
        for scale, found in zip((1, 0.5), kept):
            wanted = uopc.compile([w, moving, losses])(*[scale * a for a in arrays])
            for got, right in zip(found, wanted, strict=True):
                np.testing.assert_allclose(np.asarray(got), right, 1e-10)
    return "loops"


def threads():
    """Threads of a rank that call at once get what they get one after the other."""
    mesh = uopc.make_mesh((distributed.process_count(),), ("m",))
    _, f, arrays = block(mesh)
    wanted, found = f(*arrays).tobytes(), []

    def calls():
        for _ in range(30):
            found.append(f(*arrays).tobytes() == wanted)

    started = [threading.Thread(target=calls) for _ in range(3)]
    for t in started:
        t.start()
    for t in started:
        t.join()
    assert len(found) == 90 and all(found)
    return "threads"


def blocks(mesh):
    """The bits of results that do not depend on the number of ranks; the block of `block`, sums,
    a stencil and an array that is written."""
    y, _, arrays = block(mesh)
    results = [uopc.compile(y, sharding=uopc.Sharding(mesh, deterministic=True))(*arrays)]
    x = uopc.param("x", (37, 4))
    q = x.pad(((1, 1), (0, 0)))
    outs = [x.sum(axis=0), q[:-2] + q[2:], x.max(), x.assign(x * 2)]
    a = np.random.default_rng(3).standard_normal((37, 4)).astype("f4")
    f = uopc.compile(outs, sharding=uopc.Sharding(mesh, in_shardings=P("m"), deterministic=True))
    results += [*f(a), a]
    return hashlib.sha256(b"".join([np.asarray(v).tobytes() for v in results])).hexdigest()[:16]


def same():
    """The digest of these results."""
    return "bits " + blocks(uopc.make_mesh((distributed.process_count(),), ("m",)))


def fuzz():
    """Random graphs, on meshes with as many devices as there are ranks."""
    count, done, seed = distributed.process_count(), 0, 0
    while done < 6:
        case, seed = mesh_fuzz.Case(seed), seed + 1
        if case.mesh.size != count or seed % 5:
            continue
        given = case.arrays_used()
        f = uopc.compile(
            case.outputs, sharding=uopc.Sharding(case.mesh, in_shardings=case.in_specs_used())
        )
        for got, wanted in zip(f(**given), uopc.compile(case.outputs)(**given)):
            np.testing.assert_allclose(got, wanted, 1e-4, 1e-4)
        done += 1
    return f"{done} graphs"


def failing(how):
    """The last rank fails, while the others exchange."""
    mesh = uopc.make_mesh((distributed.process_count(),), ("m",))
    last = distributed.process_index() == distributed.process_count() - 1
    if how == "other" and last:
        x = uopc.param("x", (8,))
        uopc.compile(x.sum(), sharding=uopc.Sharding(mesh, in_shardings=P("m")))
        return "never"
    how, _, between = how.partition("_")
    if between == "last":  # no exchange is left
        if last:
            os._exit(0)
        return "the others have nothing more to do"
    if between:
        return dies_between(mesh, how, last)
    _, f, arrays = block(mesh)
    f(*arrays)
    if last:
        if how == "raise":
            raise ValueError("on purpose")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if how == "leave":
            os._exit(0)
        if how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(20)
    while True:
        f(*arrays)


def dies_between(mesh, how, last):
    """The last rank is lost between the start of an exchange and where it is awaited."""
    x, w = uopc.param("x", (64, 32)), uopc.param("w", (32, 32))
    outputs = [(x * x).sum(axis=0).contiguous() + 1, x @ w]
    f = uopc.compile(
        outputs, sharding=uopc.Sharding(mesh, in_shardings={"x": P("m")}, overlap=True)
    )
    assert [e.beside for e in f.exchanges] == [1]
    ranks = mesh_runner.ranks
    begun = ranks._begun

    def begin(group, step):
        start = begun(group, step)

        def lost():
            wait = start()
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(20)
            return wait

        return lost

    if last:
        ranks._begun = begin
    while True:
        f(np.ones((64, 32), "f4"), np.ones((32, 32), "f4"))


_CASES = {
    "right": right, "same": same, "fuzz": fuzz, "by_hand": by_hand, "by_part": by_part,
    "once": once, "threads": threads, "overlap": overlap, "loops": loops,
}  # fmt: skip

if __name__ == "__main__":
    distributed.initialize(timeout=float(os.environ.get("JOB_TIMEOUT", "60")))
    for case in sys.argv[1].split(","):
        text = _CASES[case]() if case in _CASES else failing(case)
        print(f"rank {distributed.process_index()} done: {text}", flush=True)
