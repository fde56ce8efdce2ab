"""Programs for several devices of this process: values that are on all of them, exchanges as copies
and sums, devices that run at the same time."""

from __future__ import annotations

import os
import pickle
import threading

import numpy as np
import pytest

import uopc
from tests import mesh_fuzz
from tests.meshes import block, r, rng
from uopc import Ops, P, UOp, dtypes, make_mesh
from uopc.ir.core.args import ExchangeArg
from uopc.ir.index import affine
from uopc.ir.interpret import interpreter
from uopc.passes.order_launches import _are_apart


def devices(count):
    return [f"cpu:{i}" for i in range(count)]


def stacked(count, dims, t=dtypes.float32):
    """A value on several devices, of an argument each."""
    parts = [uopc.param(f"x{i}", dims, t).copy(f"cpu:{i}") for i in range(count)]
    return UOp(Ops.MSTACK, t, tuple(parts))


def select(u, i):
    return UOp(Ops.MSELECT, u.dtype, (u,), i)


def exchange(row, u, parts, **fields):
    return UOp(row, u.dtype, (u,), ExchangeArg(("m",), parts, **fields))


def run(outs, arrays, threads=4):
    """The results of the compiled graph, which are those of the interpreter."""
    f = uopc.compile(outs, verify=True, threads=threads)
    wanted = interpreter.evaluate(outs, arrays)
    got = f(**arrays)
    for g, w in zip(got, wanted, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w, 1e-5, 1e-6)
    return got


# ---------------------------------------------------------------- graphs that users write
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("dims", [(), (1,), (5, 3), (0, 4), (130, 130)], ids=str)
@pytest.mark.few(5)
def test_allreduce(count, dims):
    """Small values are combined on each device, large ones by shares."""
    value = stacked(count, dims)
    arrays = {f"x{i}": r(*dims) for i in range(count)}
    ops = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}
    for op, combine in ops.items() if dims == (5, 3) else [("add", np.add)]:
        total = exchange(Ops.ALLREDUCE, value * 2, count, op=op)
        got = run([*[select(total, i) for i in range(count)], (total + 1).copy("cpu")], arrays)
        wanted = combine.reduce([2 * a for a in arrays.values()])
        np.testing.assert_allclose(got[0], wanted, 1e-5, 1e-6)
        np.testing.assert_allclose(got[-1], wanted + 1, 1e-5, 1e-5)
        assert len({g.tobytes() for g in got[:count]}) == 1


@pytest.mark.parametrize("count", [2, 3])
def test_the_other_exchanges(count):
    value = stacked(count, (count, 4))
    arrays = {f"x{i}": r(count, 4) for i in range(count)}
    given = list(arrays.values())
    rows = {
        Ops.ALLGATHER: ({}, [np.stack(given)] * count),
        Ops.REDUCE_SCATTER: ({"op": "add"}, list(np.add.reduce(given))),
        Ops.ALLTOALL: ({}, [np.stack([g[i] for g in given]) for i in range(count)]),
        Ops.BROADCAST: ({"root": count - 1}, [given[-1]] * count),
        Ops.PERMUTE_RANKS: ({"shift": 1}, [np.zeros((count, 4)), *given[:-1]]),
    }
    for row, (fields, wanted) in rows.items():
        made = exchange(row, value, count, **fields)
        for g, w in zip(run([select(made, i) for i in range(count)], arrays), wanted):
            np.testing.assert_allclose(g, w, 1e-5, 1e-6)
    around = exchange(Ops.PERMUTE_RANKS, value, count, shift=1, wrap=True)
    got = run([select(around, i) for i in range(count)], arrays)
    for g, w in zip(got, [given[-1], *given[:-1]]):
        np.testing.assert_allclose(g, w, 1e-5, 1e-6)
    mirrored = exchange(Ops.PERMUTE_RANKS, value + 1, count, mirror=True)
    got = run([select(mirrored, i) for i in range(count)], arrays)
    for g, w in zip(got, given[::-1]):
        np.testing.assert_array_equal(g, w + 1)


_SOME = [dtypes.float16, dtypes.bfloat16, dtypes.int8, dtypes.uint64, dtypes.bool_]


@pytest.mark.parametrize("t", _SOME, ids=str)
def test_dtypes(t):
    value = stacked(3, (7,), t)
    low, high = (0, 2) if t.kind == "bool" else (0, 30)
    arrays = {f"x{i}": rng.integers(low, high, 7).astype(t.numpy) for i in range(3)}
    outs = [select(exchange(Ops.ALLREDUCE, value, 3, op=op), 1) for op in ("add", "max", "mul")]
    for g, w in zip(uopc.compile(outs)(**arrays), interpreter.evaluate(outs, arrays)):
        np.testing.assert_array_equal(g, w)


def test_stores_to_a_value_on_several_devices():
    value = stacked(2, (6,))
    copied = value.contiguous()
    store = UOp(Ops.STORE, dtypes.void, (copied, value * 3))
    after = UOp(Ops.AFTER, value.dtype, (copied, store))
    arrays = {"x0": r(6), "x1": r(6)}
    got = run([select(after, 0), select(after, 1), select(after + value, 1)], arrays)
    np.testing.assert_allclose(got[2], arrays["x1"] * 4, 1e-6)


def test_text_round_trips():
    value = exchange(Ops.ALLREDUCE, stacked(2, (4,)), 2, op="add")
    graph = UOp(Ops.SINK, dtypes.void, (select(value, 1),))
    text = uopc.print_graph(graph)
    assert 'copy %1 device="cpu:1"' in text.replace("%3", "%1") and "mselect" in text
    assert uopc.parse(text) is graph


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAX, "min"])
def test_an_allreduce_of_an_op_is_among_all_devices_of_its_operand(op):
    count = 3
    arrays = {f"x{i}": r(5) for i in range(count)}
    total = UOp(Ops.ALLREDUCE, None, (stacked(count, (5,)) * 2,), op)
    outs = [select(total, i) for i in range(count)]
    how = {Ops.ADD: np.sum, Ops.MUL: np.prod, Ops.MAX: np.max}.get(op, np.min)
    wanted = how(np.stack([a * 2 for a in arrays.values()]), axis=0)
    first = total.copy("cpu:0")
    for got in (*run([*outs, first], arrays), *interpreter.evaluate(outs, arrays)):
        np.testing.assert_allclose(got, wanted, 1e-6)
    assert uopc.parse(uopc.print_graph(total)) is total


def test_what_an_allreduce_of_an_op_refuses():
    value, x = stacked(2, (4,)), uopc.param("x0", (4,))
    for arg, words in (
        (Ops.SUB, "Ops.SUB does not combine values: add, mul, max, min"), ("sum", "'sum' does not"),
        ((Ops.ADD, "cpu:1"), r"the arg is an op, such as Ops.ADD; .*\.copy\(device\)"),
    ):  # fmt: skip
        with pytest.raises(uopc.InvalidIR, match=words):
            UOp(Ops.ALLREDUCE, None, (value,), arg)
    with pytest.raises(uopc.UserError, match="allreduce: the exchange needs a value on several"):
        uopc.compile(select(UOp(Ops.ALLREDUCE, None, (x,), Ops.ADD), 0))


def test_copies_to_a_device_beside_a_mesh_are_refused_in_plain_words():
    mesh, x = make_mesh((2,), ("m",)), uopc.param("x", (4,))
    y = uopc.param("y", (8,)).shard(P("m"))
    for copies in ([x.copy("cpu:1")], [x.copy("cpu:1") * 2, (x + 1).copy("cpu:1")]):
        with pytest.raises(uopc.Unsupported, match="a program for cpu cannot copy to cpu:1: "):
            uopc.compile([y.sum(), *copies], sharding=uopc.Sharding(mesh))


def test_what_is_refused():
    value, x = stacked(2, (4,)), uopc.param("x0", (4,))
    total = exchange(Ops.ALLREDUCE, value, 3, op="add")
    same = UOp(Ops.MSTACK, x.dtype, (x.copy("cpu:1"), (x * 2).copy("cpu:1")))
    for graph, words in (
        (value * 2, "output 0 is on cpu, cpu:1: use MSELECT, or"),
        (select(total, 0), "allreduce: expected a part per device, got 3 for 2 devices"),
        (exchange(Ops.ALLREDUCE, x.copy("cpu:1"), 2, op="add"), "got 2 for 1 device"),
        (exchange(Ops.ALLREDUCE, x, 2, op="add"), "output 0 is on 2 devices"),
        (select(exchange(Ops.BROADCAST, value, 2, root=2), 0), "root must be 0 to 1, got 2"),
        (select(same, 0), "mstack: each part needs a device of its own, two are on cpu:1"),
        (select(x.copy("cpu:1"), 1), "mselect: a value on one device has part 0 only, got 1"),
        (select(value, 2), "part must be below 2"),
        (select(value, 0) + select(value, 1), "use .copy"),
    ):
        with pytest.raises(uopc.UserError, match=words):
            uopc.compile(graph)
    assert uopc.compile(select(x, 0) + 1)(np.ones(4, "f4")).tolist() == [2.0] * 4


# ---------------------------------------------------------------- meshes that name their devices
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.few(3)
def test_a_block(count, threads):
    """Devices run at the same time where there are as many threads, else one after the other."""
    y, arrays = block()
    mesh = make_mesh((count,), ("m",), devices=devices(count))
    f = uopc.compile([y, y.sum()], verify=True, threads=threads, sharding=uopc.Sharding(mesh))
    for _ in range(20):
        for got, wanted in zip(f(*arrays), uopc.compile([y, y.sum()])(*arrays)):
            np.testing.assert_allclose(got, wanted, 1e-5, 1e-5)
    assert [(e.kernel, e.reason) for e in f.exchanges] == [("allreduce", "operand of add")]
    assert "meshes.py" in f.exchanges[0].line
    plan = f._runner.plan
    assert len(plan.rows) == count and plan.together == (threads == 4)
    assert {row.count(-1) for row in plan.rows} == {plan.rows[0].count(-1)}
    again = pickle.loads(pickle.dumps(f))
    assert again(*arrays)[0].tobytes() == f(*arrays)[0].tobytes()


def test_each_device_runs_its_own_launches():
    x = uopc.param("x", (64, 8))
    mesh = make_mesh((4,), ("m",), devices=devices(4))
    f = uopc.compile((x * 2).exp(), threads=4, sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    assert [len(row) for row in f._runner.plan.rows] == [1] * 4 and len(f.kernels) == 1
    a = r(64, 8)
    out = np.empty_like(a)
    assert f(a, out=out) is out
    np.testing.assert_allclose(out, np.exp(a * 2), 1e-5)


@pytest.mark.parametrize("n", [12, 13])
def test_a_stencil_steps_in_place(n):
    x = uopc.param("x", (n, 6))
    q = x.pad(((1, 1), (0, 0)))
    step = x.assign(0.5 * q[:-2] + 0.5 * q[2:])
    mesh = make_mesh((4,), ("m",), devices=devices(4))
    f = uopc.compile(
        step, threads=4, verify=True, sharding=uopc.Sharding(mesh, in_shardings={"x": P("m")})
    )
    a = r(n, 6)
    b = a.copy()
    for _ in range(3):
        assert f(a) is a
        padded = np.pad(b, ((1, 1), (0, 0)))
        b = np.float32(0.5) * padded[:-2] + np.float32(0.5) * padded[2:]
    np.testing.assert_allclose(a, b, 1e-6, 1e-6)


def test_symbolic_sizes():
    n, k = uopc.variable("n", 1, 64), uopc.variable("k", 0, 9)
    x, w = uopc.param("x", (n, 8)), uopc.param("w", (8, 6))
    y = (x.shard(P(None, "m")) @ w + k).sum(axis=1)
    f = uopc.compile(
        y, threads=4, sharding=uopc.Sharding(make_mesh((4,), ("m",), devices=devices(4)))
    )
    for size in (1, 5, 64):
        a, b = r(size, 8), r(8, 6)
        np.testing.assert_allclose(f(a, b, k=3), (a @ b + 3).sum(1), 1e-4, 1e-4)


@pytest.mark.few(8)
@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed):
    case = mesh_fuzz.Case(seed)
    sizes, names = case.mesh.axis_sizes, case.mesh.axis_names
    mesh = make_mesh(sizes, names, devices=devices(case.mesh.size))
    arrays = case.arrays_used()
    f = uopc.compile(
        case.outputs, verify=True, threads=mesh.size,
        sharding=uopc.Sharding(mesh, case.in_specs_used(), case.out_specs),
    )  # fmt: skip
    wanted = uopc.compile(case.outputs)(**arrays)
    for _ in range(3):
        for g, w in zip(f(**arrays), wanted):
            np.testing.assert_allclose(g, w, 1e-4, 1e-4)


@pytest.mark.parametrize("specs", [None, [P("m"), P(), P("m")]], ids=str)
def test_a_value_that_is_a_result_more_than_once(specs):
    mesh, x = make_mesh((2,), ("m",), devices=devices(2)), uopc.param("x", (7,))
    for y in (x, x * 2, x.assign(x + 1)):
        f = uopc.compile(
            [y, x - 3, y], sharding=uopc.Sharding(mesh, in_shardings=P("m"), out_shardings=specs)
        )
        a = r(7)
        wanted = uopc.compile([y, x - 3, y])(a.copy())
        for g, w in zip(f(a), wanted, strict=True):
            np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("n", [1, 7, 8])
def test_a_result_that_all_devices_compute_alike_is_stored_by_each(n):
    mesh, k = make_mesh((2,), ("m",), devices=devices(2)), uopc.variable("k", 0, 9)
    outs = [uopc.full((n, 2), 3.0), (k + 1).cast("float32").expand(n), uopc.arange(2 * n)[:n]]
    f = uopc.compile(outs, verify=True, sharding=uopc.Sharding(mesh, out_shardings=[P("m")] * 3))
    wanted = uopc.compile(outs)(k=4)
    memory = [np.full_like(w, 77) for w in wanted]
    for g, w in zip(f(k=4, out=memory), wanted, strict=True):
        np.testing.assert_array_equal(g, w)


def test_a_mesh_of_devices_that_there_are_not():
    for given, words in (
        (["cpu:0"], "expected 2 different devices"), (["cpu:0", "cpu"], "2 different devices"),
        (["cpu:0", "cuda:0"], "unknown CPU device"), (["cpu:0", "cpu:64"], "cpu:0 to cpu:63"),
        ("cpu", "names of devices"), ([1, 2], "names of devices"),
    ):  # fmt: skip
        with pytest.raises(uopc.UserError, match=words):
            make_mesh((2,), ("m",), devices=given)


def test_blocks_are_not_shared_by_devices_with_names():
    x, mesh = uopc.param("x", (8,)), make_mesh((2,), ("m",), devices=devices(2))
    with pytest.raises(uopc.Unsupported, match="deterministic needs a mesh without"):
        uopc.compile(x.sum(), sharding=uopc.Sharding(mesh, deterministic=True))


# ---------------------------------------------------------------- the runtime
def test_calls_from_several_threads_at_once():
    """One call has the devices' workers; another one at the same time runs alone."""
    y, arrays = block()
    f = uopc.compile(
        y, threads=2, sharding=uopc.Sharding(make_mesh((2,), ("m",), devices=devices(2)))
    )
    wanted, wrong = f(*arrays), []

    def calls():
        for _ in range(200):
            if f(*arrays).tobytes() != wanted.tobytes():
                wrong.append(1)

    started = [threading.Thread(target=calls) for _ in range(4)]
    for t in started:
        t.start()
    for t in started:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_call_after_a_fork():
    y, arrays = block()
    f = uopc.compile(
        y, threads=3, sharding=uopc.Sharding(make_mesh((3,), ("m",), devices=devices(3)))
    )
    wanted = f(*arrays).tobytes()
    child = os.fork()
    if not child:
        os._exit(0 if f(*arrays).tobytes() == wanted and f(*arrays).tobytes() == wanted else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_kernels_by_hand_on_several_devices():
    """A mesh that names its devices runs them on whole arrays. Devices may not write one array."""
    o, a = [uopc.kernel_param(slot, (4, 8), "f4") for slot in (0, 1)]
    kernel = o.store(a * 2).sink(name="twice")
    x, out, b = uopc.param("x", (4, 8)), uopc.buffer((4, 8)), r(4, 8)

    def twice(value):
        return out.after(UOp(Ops.CALL, dtypes.void, (kernel, out, value.contiguous())))

    both = UOp(Ops.MSTACK, x.dtype, (x, (x * 3).copy("cpu:1")))
    with pytest.raises(uopc.UserError, match="2 devices would write one argument 0: call"):
        uopc.compile(UOp(Ops.MSELECT, x.dtype, (twice(both + 1),), 0))
    mesh = make_mesh((2,), ("m",), devices=devices(2))
    on_mesh = uopc.compile(
        twice(x + 1) + x, verify=True, sharding=uopc.Sharding(mesh, in_shardings=P("m"))
    )
    np.testing.assert_allclose(on_mesh(b), (b + 1) * 2 + b, 1e-6)


def test_stores_that_cannot_meet():
    """The elements that loops give are told apart as a list of all of them does."""
    def listed(form):
        start, loops = form
        found = {start}
        for stride, length in loops:
            found = {v + stride * i for v in found for i in range(length)}
        return found

    def nodes(form):
        start, loops = form
        return affine.const(start), tuple([(s, affine.const(n)) for s, n in loops])

    for _ in range(2000):
        forms = []
        for _ in range(2):
            strides = [int(rng.integers(-9, 10)) or 1 for _ in range(rng.integers(0, 4))]
            loops = tuple([(s, int(rng.integers(1, 5))) for s in strides])
            forms.append((int(rng.integers(-20, 21)), loops))
        apart = listed(forms[0]).isdisjoint(listed(forms[1]))
        assert not _are_apart(*map(nodes, forms)) or apart
    # Halves of the columns of an array.
    columns = [nodes((6 * d, ((12, 8), (1, 6)))) for d in range(2)]
    assert _are_apart(*columns) and not _are_apart(columns[0], columns[0])
