"""Exchanges that are started, and awaited after other launches: memory, order, where it pays."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest

import uopc
from tests import ROOT, mesh_fuzz
from uopc import P, make_mesh
from uopc.backends.exchange import cost, lockstep
from uopc.backends.exchange.device_call import Await, ExchangeStep
from uopc.backends.exchange.device_memory import ResultMemory
from uopc.backends.exchange.device_run import DeviceRun
from uopc.distributed import Link, Machine
from uopc.ir.core import dtypes
from uopc.ir.devices import parts
from uopc.program import planner
from uopc.tensor import creation

sys.path.append(str(ROOT / "benchmarks"))
import device_workloads

FAST = Link(1e-6, 1e9, beside=0.9)
NODE = Machine(operations=1e10, bandwidth=1e9, link=FAST)


def late(f, arrays):
    """The results of each device, if exchanges happen as late as they may: the values that one
    sends are kept from its start, and its memory holds garbage until its end, as all memory does
    first."""
    plan = f._runner.plan
    mesh = plan.mesh.mesh
    names = [a.name for a in plan.arguments]
    calls, made, kept = [], [], []
    for rank in range(mesh.size):
        device = DeviceRun(plan, f._runner.image, rank)
        own = [
            np.ascontiguousarray(parts.part(arrays[n], mesh, cut.spec, rank)).copy()
            for n, cut in zip(names, plan.mesh.arguments)
        ]
        outs = ResultMemory.of(plan, {}, rank).make()
        for a in outs:
            a.reshape(-1).view(np.uint8)[...] = 0xFF
        arena = np.full(device.arena_bytes({}) + 64, 0xFF, np.uint8)
        begin = -(-arena.ctypes.data // 64) * 64
        calls.append(device.call(own, outs, {}, begin))
        made.append(outs)
        kept += [arena, own]
    sent = {}
    for at in zip(*[c.parts for c in calls], strict=True):
        if isinstance(at[0], ExchangeStep):
            number = len(sent)
            sent[number] = at, [s.sent.copy() for s in at]
            for s in at:
                s.got.reshape(-1).view(np.uint8)[...] = 0xFF
            if not at[0].exchange.beside:
                _over(mesh, *sent[number])
        elif isinstance(at[0], Await):
            _over(mesh, *sent[at[0].number])
        else:
            for act in at:
                act()
    return made


def _over(mesh, steps, sent):
    for step, array in zip(steps, lockstep.exchange_values(mesh, steps[0].exchange, sent)):
        step.got[...] = array
        for act in step.after:
            act()


def both(work, p, overlap=True):
    """A workload without and with it."""
    mesh = make_mesh((p,), (work.axis,))
    return [
        uopc.compile(
            work.outputs, verify=True,
            sharding=uopc.Sharding(mesh, work.in_specs, work.out_spec, overlap=chosen),
        )
        for chosen in (False, overlap)
    ]  # fmt: skip


@pytest.mark.parametrize("p", [2, 3])
@pytest.mark.parametrize("name", device_workloads.ALL)
@pytest.mark.few(2)
def test_memory_stays_until_an_exchange_is_over(name, p, monkeypatch):
    monkeypatch.setattr(cost, "BUCKET", 2000)
    work = device_workloads.ALL[name](**device_workloads.SMALL[name])
    plain, f = both(work, p)
    arrays = work.arrays()
    wanted = late(plain, arrays)
    got = late(f, arrays)
    for own, right in zip(got, wanted, strict=True):
        for g, w in zip(own, right, strict=True):
            np.testing.assert_array_equal(g, w)
    whole = [np.asarray(v) for v in f(**arrays)]
    for g, w in zip(whole, uopc.compile(work.outputs)(**arrays), strict=True):
        np.testing.assert_allclose(g, w, 1e-4, 1e-4)


def test_the_planner_keeps_memory_until_an_exchange_is_over():
    """The exchange, call 1, runs beside calls 2 and 3."""
    a, b, c = [creation.buffer((100,), dtypes.float32) for _ in range(3)]
    calls = [(0, [a]), (0, [b, a]), (0, [c]), (0, [c]), (0, [c])]
    blocks, _ = planner.arena(calls, (), busy={1: 3})
    alive = {block.storage: (block.alive.first, block.alive.last) for block in blocks}
    assert alive == {a: (0, 3), b: (1, 3), c: (2, 4)}


def test_gradients_start_before_the_last_one_is_ready(monkeypatch):
    monkeypatch.setattr(cost, "BUCKET", 2000)
    work = device_workloads.ALL["mlp"](**device_workloads.SMALL["mlp"])
    plain, f = both(work, 2)
    (one,) = plain.exchanges
    assert one.beside == 0 and len(f.exchanges) == 2
    first, last = f.exchanges
    assert first.beside > 0 and last.beside == 0
    assert sum(e.bytes for e in f.exchanges) == one.bytes
    names = [launch.kernel for launch in f._runner.plan.launches]
    at = names.index("allreduce")
    assert at < len(names) - 2 and names[-1] == "allreduce"
    assert first.beside == len(names) - 1 - at  # both are results, awaited at the end
    assert f"beside {first.beside} launches" in str(first)


def test_what_waits_for_an_exchange_comes_after_what_does_not():
    """Two products, one of which needs a sum: the other one runs beside it."""
    mesh = make_mesh((2,), ("m",))
    x, w = uopc.param("x", (64, 32)), uopc.param("w", (32, 32))
    mean = (x * x).sum(axis=0).contiguous()
    outputs = [(mean.reshape(1, 32) @ w) + 1, x @ w]
    f = uopc.compile(
        outputs, verify=True, sharding=uopc.Sharding(mesh, in_shardings={"x": P("m")}, overlap=True)
    )  # fmt: skip
    assert [(e.kernel, e.beside) for e in f.exchanges] == [("allreduce", 1)]
    rng = np.random.default_rng(0)
    a, b = rng.random((64, 32), "f4"), rng.random((32, 32), "f4")
    for g, wanted in zip(f(a, b), uopc.compile(outputs)(a, b), strict=True):
        np.testing.assert_allclose(g, wanted, 1e-4)


def test_an_argument_that_is_written_waits():
    """A value that is sent, and then overwritten, is sent as it was."""
    mesh, x = make_mesh((2,), ("m",)), uopc.param("x", (8, 4))
    q = x.pad(((1, 1), (0, 0)))
    outputs = [q[:-2] + q[2:], x.sum(), x.assign(x * 2)]
    f = uopc.compile(
        outputs, verify=True, sharding=uopc.Sharding(mesh, in_shardings=P("m"), overlap=True)
    )
    one, a = uopc.compile(outputs), np.arange(32, dtype="f4").reshape(8, 4)
    b = a.copy()
    for _ in range(3):
        for g, wanted in zip(f(a), one(b), strict=True):
            np.testing.assert_array_equal(g, wanted)
        np.testing.assert_array_equal(a, b)


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(200, 230))
def test_random_graphs(seed, monkeypatch):
    monkeypatch.setattr(cost, "BUCKET", 16)
    case = mesh_fuzz.Case(seed)
    given = case.arrays_used()
    f = uopc.compile(
        case.outputs, verify=True,
        sharding=uopc.Sharding(case.mesh, in_shardings=case.in_specs_used(), overlap=True),
    )
    found = late(f, given)
    for i, wanted in enumerate(uopc.compile(case.outputs)(**given)):
        spec = f._runner.plan.mesh.results[i].spec
        number = [r.source for r in f._runner.plan.results[:i]].count(None)
        if f._runner.plan.results[i].source is None:
            every = [own[number] for own in found]
            whole = parts.join_parts(every, case.mesh, spec, wanted.shape)
            np.testing.assert_allclose(whole, wanted, 1e-4, 1e-4)


# ---------------------------------------------------------------- where it pays
def test_a_machine_says_where_it_pays():
    assert cost.bucket_bytes(NODE, ("m",)) == 16 * 1000
    assert cost.bucket_bytes(True, ("m",)) == cost.BUCKET and not cost.bucket_bytes(False, ())
    cores = dataclasses.replace(NODE, link=Link(1e-6, 1e9))
    assert cost.bucket_bytes(cores, ("m",)) == 0  # its cores move the bytes
    assert cost.pays_beside(NODE, ("m",), 1 << 20)
    assert not cost.pays_beside(NODE, ("m",), 4)  # 0.9 of a latency is less than another one
    assert cost.pays_beside(True, ("m",), 4)


def test_programs_follow_the_machine():
    work = device_workloads.ALL["mlp"]()
    mesh = make_mesh((2,), (work.axis,))

    def exchanges(overlap):
        f = uopc.compile(
            work.outputs, sharding=uopc.Sharding(mesh, work.in_specs, P(), overlap=overlap)
        )  # fmt: skip
        return f, [e.beside for e in f.exchanges]

    slow = dataclasses.replace(NODE, link=Link(1e-3, 1e9, 0.9))
    f, found = exchanges(dataclasses.replace(NODE, link=Link(1e-5, 6e9, 0.9)))
    assert len(found) == 3 and found[0] > 0 and found[-1] == 0
    assert exchanges(dataclasses.replace(NODE, link=Link(1e-6, 1e9)))[1] == [0]
    assert len(exchanges(slow)[1]) == 1
    alone, beside = [
        f.predict(dataclasses.replace(NODE, link=Link(1e-5, 6e9, share))) for share in (0.0, 0.5)
    ]
    assert alone.kernels == beside.kernels
    assert 0.5 * alone.exchanges < beside.exchanges < alone.exchanges


def test_what_is_refused():
    x = uopc.param("x", (8,))
    mesh, named = make_mesh((2,), ("m",)), make_mesh((2,), ("m",), devices=("cpu:0", "cpu:1"))
    for words, given in (
        ("overlap need a mesh", {"overlap": True}),
        ("overlap must be True, False or", {"overlap": 1, "mesh": mesh}),
        ("overlap must be True, False or", {"overlap": None, "mesh": mesh}),
        ("on a mesh that names its devices", {"overlap": True, "mesh": named}),
        ("supported with deterministic", {"overlap": NODE, "mesh": mesh, "deterministic": True}),
    ):
        with pytest.raises((uopc.UserError, uopc.Unsupported), match=words):
            uopc.compile(x.sum(), **given)
    for share in (-0.1, 1.5, "all", True):
        with pytest.raises(uopc.UserError, match="beside must be a number from 0 to 1"):
            Link(1e-6, 1e9, share)
