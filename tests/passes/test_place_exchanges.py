"""Exchanges of a mesh on the workloads of `benchmarks/devices.py`: kinds, numbers and bytes."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import uopc
from tests import ROOT
from uopc import P, dtypes, make_mesh
from uopc.backends.exchange.device_memory import ResultMemory

sys.path.append(str(ROOT / "benchmarks"))
import device_workloads

rng = np.random.default_rng(0)


def compiled(work, p, outputs=None):
    mesh = make_mesh((p,), (work.axis,))
    return uopc.compile(
        outputs or work.outputs, verify=True,
        sharding=uopc.Sharding(mesh, work.in_specs, work.out_spec, explicit=True),
    )  # fmt: skip


# Of each workload: Megatron's two, one bucket, and a row for each neighbour and step.
_KINDS = {
    "mlp": ["allreduce"], "block": ["allreduce"] * 2, "stencil": ["permute_ranks"] * 6,
    "sum": ["allreduce"],
}  # fmt: skip


@pytest.mark.parametrize("name", device_workloads.ALL)
@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.few(3)
def test_kinds_bytes_and_results(name, p):
    work = device_workloads.ALL[name](**device_workloads.SMALL[name])
    f, arrays = compiled(work, p), work.arrays()
    assert [e.kernel for e in f.exchanges] == _KINDS[name]
    assert sum(e.bytes for e in f.exchanges) == work.least(p) <= work.wired(p)
    if name == "stencil":
        assert {e.sent for e in f.exchanges} == {(1, 24)}
    for got, wanted in zip(f(**arrays), uopc.compile(work.outputs)(**arrays), strict=True):
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-4)


def test_results_of_a_bucket_lie_side_by_side():
    """The exchange is one range of memory, to which nothing is copied."""
    work = device_workloads.ALL["mlp"](**device_workloads.SMALL["mlp"])
    f, arrays = compiled(work, 2), work.arrays()
    (bucket,) = f.exchanges
    memory = ResultMemory.of(f._runner.plan, {}, 0).make()
    begin = {a.ctypes.data - at for a, at in zip(_in_order(f, bucket, memory), bucket.offsets)}
    assert len(begin) == 1
    assert sum(bucket.nbytes) * 1.1 > bucket.sent[0] * 4
    first = f(**arrays)
    again = f(**arrays, out=[np.empty_like(a) for a in first])
    assert [a.tobytes() for a in first] == [a.tobytes() for a in again]


def _in_order(f, bucket, memory):
    first = len(f._runner.plan.arguments)
    return [memory[w.base - first] for w in bucket.words]


@pytest.mark.parametrize("t", [dtypes.float32, dtypes.float64, dtypes.int32, dtypes.float16])
def test_a_bucket_of_results_and_of_intermediates(t):
    """Values that the program reads again, and results, whichever have more bytes."""
    mesh, n = make_mesh((3,), ("m",)), 12
    x = uopc.param("x", (n, 5), t)
    a = rng.integers(-4, 5, (n, 5)).astype(t.numpy)
    small, large = x.sum(), (x.reshape(n, 5, 1) * x.reshape(n, 1, 5)).sum(axis=0)
    for outputs in ([small, large], [small * 3 + 1, large], [small, large * 3 + 1]):
        f = uopc.compile(outputs, verify=True, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
        assert [e.kernel for e in f.exchanges] == ["allreduce"]
        for got, wanted in zip(f(a), uopc.compile(outputs)(a), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_what_waits_or_differs_is_apart():
    mesh, x = make_mesh((2,), ("m",)), uopc.param("x", (8, 3))
    a = rng.standard_normal((8, 3)).astype("f4")
    outputs = [x.sum(axis=0), x.max(axis=0), x.cast(dtypes.float64).sum(axis=0)]
    f = uopc.compile(outputs, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    assert [(e.op, e.dtype.name) for e in f.exchanges] == [
        ("add", "float32"), ("max", "int32"), ("add", "float64"),
    ]  # fmt: skip
    variance = [x.var(axis=0), (x * x).sum(axis=0)]
    g = uopc.compile(variance, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    assert [len(e.offsets) for e in g.exchanges] == [2, 0]
    for got, wanted in zip(g(a), uopc.compile(variance)(a), strict=True):
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-5)


def test_sums_before_and_after_a_write_are_apart():
    """A bucket that waited for the write would make the first reader of x wait for itself."""
    mesh = make_mesh((2,), ("m",))
    x, y = uopc.param("x", (8,)), uopc.param("y", (8,))
    first = y.sum()
    z = x * first
    outputs = [z, x.assign(x * 2).sum()]
    a, b = rng.standard_normal((2, 8)).astype("f4")
    one = a.copy()
    wanted = uopc.compile(outputs)(one, b)
    f = uopc.compile(outputs, verify=True, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    for got, w in zip(f(a, b), wanted, strict=True):
        np.testing.assert_allclose(got, w, 1e-5, 1e-5)
    np.testing.assert_array_equal(a, one)


def test_a_partial_sum_waits_for_what_makes_it_larger():
    mesh, x = make_mesh((2,), ("m",)), uopc.param("x", (8,))
    a = np.array([3e38, 0, 0, 0, -3e38, 0, 0, 5], "f4")
    f = uopc.compile([x.sum() * 2.0], sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    assert f(a) == [0.0]
    mean = uopc.compile(x.mean(), sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    assert [e.reason for e in mean.exchanges] == ["output"]


def test_what_takes_whole_arrays_gathers_and_says_why():
    """Sorts, loops of launches, and kernels written by hand."""
    mesh, x = make_mesh((4,), ("m",)), uopc.param("x", (8, 6))
    i, o, k = uopc.UOp.range(48), uopc.kernel_param(0, (48,)), uopc.kernel_param(1, (48,))
    kernel = o[i].store(k[i] * 2).end(i).sink(name="twice")
    (twice,) = kernel.call(uopc.buffer((48,), dtypes.float32), (x + 1).reshape(48))
    last, rows = uopc.scan(lambda c, row: (c * 0.5 + row, c.sum()), x[0] * 0, x)
    a = rng.standard_normal((8, 6)).astype("f4")
    for outputs in ([x.sort(axis=0)], [twice], [last, rows]):
        f = uopc.compile(outputs, verify=True, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
        gathers = [e for e in f.exchanges if e.kernel == "allgather"]
        assert [e.reason for e in gathers] == ["argument of a kernel"]
        assert all("test_place_exchanges.py" in e.line for e in gathers)
        for got, wanted in zip(f(a), uopc.compile(outputs)(a), strict=True):
            np.testing.assert_allclose(got, wanted, 1e-5, 1e-5)
    total = uopc.compile(x.cumsum(axis=0), sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    assert [e.kernel for e in total.exchanges] == ["allgather"]
    np.testing.assert_allclose(total(a), a.cumsum(axis=0), 1e-4, 1e-4)
