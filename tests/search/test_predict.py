"""Predicted times: the cost of exchanges by formulas, and of kernels by rates."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

import uopc
from uopc import P, distributed, make_mesh
from uopc.backends.exchange import cost
from uopc.distributed import Cache, Link, Machine, measure

LINK, CACHE = Link(1e-6, 1e9), Cache(1 << 20, 6e10, 3e10)
NODE = Machine(operations=1e10, bandwidth=1e9, link=LINK, launch=1e-9, exchange=1e-9)


@pytest.mark.parametrize("p", [2, 3, 8, 1024])
@pytest.mark.parametrize("nbytes", [4, 1 << 16, 1 << 28])
def test_exchanges_by_the_best_algorithm(p, nbytes):
    """As in Thakur, Rabenseifner and Gropp, 2005: rounds of the latency, and bytes by the rate."""
    rounds, each = math.ceil(math.log2(p)), nbytes / 1e9
    halves = 2 * rounds * 1e-6 + 2 * (p - 1) / p * each
    wanted = {
        "allreduce": min(rounds * (1e-6 + each), halves),
        "broadcast": min(rounds * (1e-6 + each), halves),
        "reduce_scatter": rounds * 1e-6 + (p - 1) / p * each,
        "allgather": rounds * 1e-6 + (p - 1) * each,
        "alltoall": min((p - 1) * (1e-6 + each / p), rounds * (1e-6 + each / 2)),
        "permute_ranks": 1e-6 + each,
    }
    for kind, seconds in wanted.items():
        assert cost.of_kind(kind, nbytes, p, LINK) == pytest.approx(seconds)
        assert cost.of_kind(kind, nbytes, 1, LINK) == 0


def test_kernels_by_operations_or_by_memory():
    x, a, b = uopc.param("x", (1000,)), uopc.param("a", (64, 64)), uopc.param("b", (64, 64))
    found = uopc.compile(x * 2).predict(NODE)
    assert found.seconds == pytest.approx(8e-6 + 1e-9) and found.exchanges == 0
    slow = Machine(operations=1e6, bandwidth=1e12, link=LINK)
    product = uopc.compile(a @ b).predict(slow)
    assert product.kernels == pytest.approx(2 * 64**3 / 1e6, rel=0.02)
    assert len(product.launches) == 1


def test_a_device_of_a_mesh_has_its_part_of_the_work():
    x = uopc.param("x", (1 << 16,))
    for p in (2, 8, 64):
        mesh = make_mesh((p,), ("m",))
        f = uopc.compile((x * x).sum(), sharding=uopc.Sharding(mesh, in_shardings=P("m")))
        found = f.predict(NODE)
        assert found.kernels == pytest.approx(4 * (1 << 16) / p / 1e9, rel=0.05)
        assert found.exchanges == pytest.approx(math.log2(p) * (1e-6 + 4e-9) + 1e-9)
        assert [name for name, _ in found.launches][-1] == "allreduce"


def test_links_by_mesh_axis():
    mesh, x = make_mesh((2, 2), ("node", "core")), uopc.param("x", (64, 64))
    near = Machine(1e10, 1e9, LINK, {"core": Link(1e-9, 1e12)})
    times = [
        uopc.compile(
            x.sum(axis=0), sharding=uopc.Sharding(mesh, in_shardings=P(axes))
        ).predict(near).exchanges
        for axes in ("node", "core", ("node", "core"))
    ]
    assert times[1] < times[0] < times[2]


def test_symbolic_sizes_and_loops():
    n = uopc.variable("n", 1, 4000)
    f = uopc.compile(uopc.param("x", (n,)) * 2)
    assert f.predict(NODE, n=1000).seconds == pytest.approx(8e-6, rel=0.01)
    assert f.predict(NODE).seconds == pytest.approx(32e-6, rel=0.01)
    with pytest.raises(uopc.UserError, match="unknown variable 'm'; choose n"):
        f.predict(NODE, m=3)
    with pytest.raises(uopc.UserError, match="n must be an integer"):
        f.predict(NODE, n=2.5)
    with pytest.raises(uopc.UserError, match=r"n is 5000, expected 1\.\.4000"):
        f.predict(NODE, n=5000)


def test_a_program_from_the_cache_is_predicted():
    f = uopc.compile(uopc.param("x", (1000,)) * 2)
    again = uopc.compile(uopc.param("x", (1000,)) * 2)
    assert again.predict(NODE) == f.predict(NODE)


def test_rates_of_a_program_that_was_measured():
    f = uopc.compile(uopc.param("x", (1000,)) * 2)
    fitted = NODE.fitted(f, 4e-5)
    assert f.predict(fitted).seconds == pytest.approx(4e-5)
    assert fitted.link == NODE.link


def test_what_is_refused():
    f = uopc.compile(uopc.param("x", (8,)) * 2)
    for call, words in (
        (lambda: f.predict(3), "expected a uopc.distributed.Machine"),
        (lambda: Link(0, 1e9), "latency must be a positive number"),
        (lambda: Link(1e-6, math.inf), "bandwidth must be a positive number"),
        (lambda: Machine(-1, 1e9, LINK), "operations must be a positive number"),
        (lambda: Machine(1e9, "fast", LINK), "bandwidth must be a positive number"),
        (lambda: Machine(1e9, 1e9, 1e-6), "expected a uopc.distributed.Link, got 1e-06"),
        (lambda: Machine(1e9, 1e9, LINK, caches=CACHE), "caches as a tuple of Caches, got .*Cache"),
        (lambda: Machine(1e9, 1e9, LINK, links=LINK), "links as a mapping of mesh axes to Links"),
        (lambda: Machine(1e9, 1e9, LINK, caches=(3,)), "expected a uopc.distributed.Cache, got 3"),
        (lambda: NODE.fitted(f, 0), "seconds must be a positive number"),
        (lambda: NODE.fitted(3, 1), "expected a uopc.Program, got 3"),
        (lambda: measure(3), "expected a uopc.Mesh"),
    ):
        with pytest.raises(uopc.UserError, match=words):
            call()


@pytest.mark.parametrize("p", [2, 4])
def test_devices_of_this_process_run_at_once_and_wait(p):
    n, names = uopc.variable("n", 0, 1 << 16), [f"cpu:{i}" for i in range(p)]
    x, mesh = uopc.param("x", (n,)), make_mesh((p,), ("m",), devices=names)
    whole = 8 * (1 << 16) / 1e9
    found = {}
    for threads in (1, p):
        f = uopc.compile(x * 2, threads=threads, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
        found[threads] = f.predict(NODE)
        assert len(found[threads].launches) == p and found[threads].exchanges == 0
        assert f.predict(NODE, n=3).kernels < found[threads].kernels
        assert f.predict(NODE, n=1 << 15).kernels < 0.51 * found[threads].kernels
    assert found[p].seconds == pytest.approx(whole / p, rel=0.01)
    assert found[1].seconds == pytest.approx(whole, rel=0.01)
    total = uopc.compile(
        x.sum(), threads=p, sharding=uopc.Sharding(mesh, in_shardings=P("m"))
    ).predict(NODE)
    assert total.exchanges == pytest.approx(1e-6)  # all wait once, for the parts of the sum
    assert total.kernels == pytest.approx(whole / 2 / p, rel=0.01)


@pytest.mark.parametrize("p", [1, 2, 8])
def test_blocks_are_computed_one_after_the_other_and_gathered(p):
    x, mesh = uopc.param("x", (1 << 16,)), make_mesh((p,), ("m",))
    found = uopc.compile(
        x * 2, sharding=uopc.Sharding(mesh, in_shardings=P("m"), deterministic=True)
    ).predict(NODE)
    assert found.kernels == pytest.approx(8 * (1 << 16) / p / 1e9, rel=0.01)
    f = uopc.compile(x.sum(), sharding=uopc.Sharding(mesh, in_shardings=P("m"), deterministic=True))
    got = f.predict(NODE).exchanges
    sent = math.log2(p) * 1e-6 + (p - 1) * (8 // p) * 4e-9  # each has 8 / p of 8 floats
    made = 1e-9 + (8 // p) * (8 + 1) * 4e-9
    assert got == pytest.approx(sent + made)


def test_measured_rates_are_of_this_machine():
    machine = measure(make_mesh((2,), ("m",)))
    f = uopc.compile(uopc.param("x", (1 << 16,)) * 2)
    assert f.predict(machine).seconds > 0
    assert np.isfinite(f.predict(machine).seconds)


def test_what_is_written_has_a_rate_of_its_own():
    node = Machine(operations=1e15, bandwidth=1e9, link=LINK, launch=1e-9, writing=5e8)
    x = uopc.param("x", (1000,))
    assert uopc.compile(x * 2).predict(node).seconds == pytest.approx(4e-6 + 8e-6 + 1e-9)
    assert uopc.compile((x * x).sum()).predict(node).seconds == pytest.approx(4e-6, rel=0.01)
    assert uopc.compile(x.assign(x + 1)).predict(node).seconds == pytest.approx(8e-6, rel=0.01)
    faster = node.fitted(uopc.compile(x * 2), 6e-6)
    assert faster.writing == pytest.approx(1e9, rel=1e-3)
    for wrong in (0, "fast", True):
        with pytest.raises(uopc.UserError, match="writing must be a positive number"):
            Machine(1e9, 1e9, LINK, writing=wrong)


def test_rates_of_devices_of_this_process_are_those_of_all_at_once(monkeypatch):
    monkeypatch.setattr(distributed, "_CACHES", (1 << 18,))
    monkeypatch.setattr(distributed, "_MEMORY", 1 << 20)
    asked, best = [], distributed._best

    def seen(run, count=0):
        asked.append(threading.current_thread())
        return best(run, count)

    monkeypatch.setattr(distributed, "_best", seen)
    mesh = make_mesh((2,), ("m",), devices=("cpu:0", "cpu:1"))
    machine = measure(mesh)
    others = [t for t in asked if t is not threading.main_thread()]
    assert len(others) == 2 * 5 and len(asked) == len(others) + 2  # a product, two of two sizes
    assert 0 < machine.link.latency < 1 and machine.between(("m",)) == machine.link
    x = uopc.param("x", (1 << 16,))
    f = uopc.compile(x.sum(), threads=2, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    assert f.predict(machine).exchanges == pytest.approx(machine.link.latency)
