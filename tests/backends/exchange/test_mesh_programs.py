"""Compiled programs for several devices, in one process, against programs for one."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import uopc
from tests import mesh_fuzz
from tests.meshes import block, check, kinds, partitioned, r, rng
from uopc import P, dtypes, make_mesh
from uopc.backends.exchange import mesh_runner
from uopc.ir.core import shapes
from uopc.ir.core.calls import graph_order
from uopc.ir.core.ops import Ops
from uopc.ir.devices import parts
from uopc.ir.interpret import lockstep
from uopc.program import profile


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_a_block_and_its_exchanges(p):
    y, arrays = block()
    mesh = make_mesh((p,), ("m",))
    f = uopc.compile([y, y.sum()], verify=True, sharding=uopc.Sharding(mesh))
    for got, wanted in zip(f(*arrays), uopc.compile([y, y.sum()])(*arrays)):
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-5)
    assert [e.kernel for e in f.exchanges] == (["allreduce"] if p > 1 else [])
    for e in f.exchanges:
        assert e.axes == ("m",) and e.bytes == 2 * 8 * 12 * 4 * (p - 1) // p
        assert "meshes.py" in e.line and e.reason in str(e)


def test_results_are_those_of_each_run_and_go_where_they_are_asked():
    y, arrays = block()
    f = uopc.compile(y, sharding=uopc.Sharding(make_mesh((2,), ("m",)), out_shardings=P("m")))
    first = f(*arrays)
    assert first.tobytes() == f(*arrays).tobytes()
    out = np.zeros((8, 12), "f4")
    assert f(*arrays, out=out) is out and out.tobytes() == first.tobytes()
    assert f(x=arrays[0], w=arrays[1], v=arrays[2]).tobytes() == first.tobytes()
    with pytest.raises(uopc.UserError, match="expected float32"):
        f(arrays[0][:4], arrays[1], arrays[2])


@pytest.mark.parametrize("n", [12, 13])
def test_a_stencil_steps_in_place(n):
    x = uopc.param("x", (n, 6))
    q = x.pad(((1, 1), (0, 0)))
    step = x.assign(0.5 * q[:-2] + 0.5 * q[2:])
    f = uopc.compile(
        step, sharding=uopc.Sharding(make_mesh((4,), ("m",)), in_shardings={"x": P("m")})
    )
    a = r(n, 6)
    b = a.copy()
    for _ in range(3):
        f(a)
        padded = np.pad(b, ((1, 1), (0, 0)))
        b = np.float32(0.5) * padded[:-2] + np.float32(0.5) * padded[2:]
    np.testing.assert_allclose(a, b, 1e-6, 1e-6)


def test_the_same_program_from_caches_has_the_lines_of_its_graph(tmp_path):
    y, arrays = block()
    mesh = make_mesh((2,), ("m",))
    with uopc.options(cache_dir=str(tmp_path), programs=0):
        first = uopc.compile(y, sharding=uopc.Sharding(mesh))
        again = pickle.loads(pickle.dumps(first))
        assert again(*arrays).tobytes() == first(*arrays).tobytes()
        third = uopc.compile(y, sharding=uopc.Sharding(mesh))
        assert third.stats["cache"] == "disk"
        assert [str(e) for e in third.exchanges] == [str(e) for e in first.exchanges]
        other = uopc.compile(y, sharding=uopc.Sharding(make_mesh((4,), ("m",))))
        assert other.exchanges[0].parts == 4


@pytest.mark.parametrize("spec", [P(), P("m"), P(None, ("m",))], ids=str)
def test_specs_and_programs_that_hold_them_are_picklable(spec):
    assert pickle.loads(pickle.dumps(spec)) == copy.deepcopy(spec) == spec
    assert type(copy.copy(spec)) is type(spec)
    a = np.arange(12, dtype="f4").reshape(4, 3)
    f = uopc.compile(
        uopc.param("x", (4, 3)).sum(),
        sharding=uopc.Sharding(make_mesh((2,), ("m",)), in_shardings=spec),
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(f))(a) == f(a) == 66


def test_symbolic_sizes_and_variables():
    n, k = uopc.variable("n", 1, 64), uopc.variable("k", 0, 9)
    x, w = uopc.param("x", (n, 8)), uopc.param("w", (8, 6))
    y = (x.shard(P(None, "m")) @ w + k).sum(axis=1)
    f = uopc.compile(y, sharding=uopc.Sharding(make_mesh((4,), ("m",))))
    for size in (1, 5, 64):
        a, b = r(size, 8), r(8, 6)
        np.testing.assert_allclose(f(a, b, k=3), (a @ b + 3).sum(1), 1e-4, 1e-4)


def test_nan_reaches_the_maximum_of_all_devices():
    x = uopc.param("x", (8,))
    f = uopc.compile(
        [x.max(), x.min()], sharding=uopc.Sharding(make_mesh((4,), ("m",)), in_shardings=P("m"))
    )
    for at in range(8):
        a = r(8)
        a[at] = np.nan
        assert all(np.isnan(v) for v in f(a))
    a = np.array([-0.0, -1, -np.inf, 3, 2, 1, 0, 5], "f4")
    assert [float(v) for v in f(a)] == [5.0, -np.inf]


def test_the_stages_of_a_program_run_in_lockstep():
    """The program of calls, before and after its kernels are lowered, on all devices."""
    y, (a, b, c) = block()
    mesh = make_mesh((2,), ("m",))
    graph, sharding = partitioned([y], mesh, last="share-kernels")
    whole = {"x": a, "w": b, "v": c}
    nodes = [u for u in graph_order(graph.src) if u.op in (Ops.PARAM, Ops.BUFFER)]
    storage = [
        {
            u: parts.part(whole[u.arg.name], mesh, sharding.params[u.arg.name], rank).copy()
            if u.op is Ops.PARAM else np.zeros(shapes.shape(u), "f4")
            for u in nodes
        }
        for rank in range(2)
    ]  # fmt: skip
    lockstep.run_program(graph, mesh, storage)
    wanted = uopc.compile(y)(a, b, c)
    for own in storage:
        results = [v for u, v in own.items() if u.op is Ops.BUFFER and v.shape == (8, 12)]
        assert any(np.allclose(v, wanted, 1e-4, 1e-4) for v in results)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_in_lockstep(seed):
    assert not mesh_fuzz.main(seed, 1)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_more_random_graphs_in_lockstep(first):
    assert not mesh_fuzz.main(first, 100)


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(100, 130))
def test_random_graphs_compiled(seed):
    case = mesh_fuzz.Case(seed)
    wanted = uopc.compile(case.outputs)(**case.arrays_used())
    specs = case.out_specs
    f = uopc.compile(
        case.outputs, verify=True,
        sharding=uopc.Sharding(case.mesh, in_shardings=case.in_specs_used(), out_shardings=specs),
    )  # fmt: skip
    for g, w in zip(f(**case.arrays_used()), wanted):
        np.testing.assert_allclose(g, w, 1e-4, 1e-4)


def test_1024_devices():
    """Data parallel, tensor parallel, a stencil and a sum, on 32 times 32 devices."""
    mesh = make_mesh((32, 32), ("data", "model"))
    x, w, v = uopc.param("x", (64, 32)), uopc.param("w", (32, 64)), uopc.param("v", (64, 32))
    y = (x.shard(P("data")) @ w.shard(P(None, "model"))).relu() @ v.shard(P("model"))
    a = {"x": r(64, 32), "w": r(32, 64), "v": r(64, 32)}
    assert kinds(check(y, a, mesh)) == ["allreduce"]
    both = ("data", "model")
    z = uopc.param("z", (2048, 2))
    q = z.pad(((1, 1), (0, 0)))
    found = check([q[:-2] + q[2:], z.sum()], {"z": r(2048, 2)}, mesh, {"z": P(both)})
    assert kinds(found) == ["allreduce", "permute_ranks", "permute_ranks"]


def test_what_a_mesh_refuses():
    x, mesh = uopc.param("x", (8,)), make_mesh((2,), ("m",))
    for call, words in (
        (lambda: uopc.compile(x, in_shardings=P("m")), "need a mesh"),
        (lambda: uopc.compile(x, sharding=uopc.Sharding(3)), "mesh must be a uopc.Mesh"),
        (lambda: uopc.compile(
            x, sharding=uopc.Sharding(mesh, in_shardings={"y": P("m")})
        ), "unknown param 'y'"),
        (lambda: uopc.compile(
            x, sharding=uopc.Sharding(mesh, in_shardings=("m",))
        ), "expected a uopc.P"),
        (lambda: uopc.compile(
            x, sharding=uopc.Sharding(mesh, out_shardings=[P(), P()])
        ), "1 specs, one per result, got 2"),
        (lambda: uopc.compile(
            x * uopc.variable("at_m", 0, 3), sharding=uopc.Sharding(mesh)
        ), "taken by a mesh axis"),
    ):
        with pytest.raises(uopc.UserError, match=words):
            call()
    with pytest.raises(uopc.errors.UserTypeError, match="expected sequences of sizes and of names"):
        uopc.make_mesh(2, "m")
    with pytest.raises(uopc.Unsupported, match="needs device cpu"):
        uopc.compile(x, device="cuda:sm_90", sharding=uopc.Sharding(mesh, deterministic=True))
    with pytest.raises(uopc.Unsupported, match="beam is not supported on a mesh"):
        uopc.compile(x, beam=2, sharding=uopc.Sharding(mesh))
    f = uopc.compile(x.sum(), sharding=uopc.Sharding(mesh, in_shardings=P("m")))
    with pytest.raises(uopc.Unsupported, match="launches: a program for several devices"):
        _ = f.launches
    with pytest.raises(uopc.Unsupported, match="a program for several devices"):
        uopc.export(f, "never")
    with pytest.raises(uopc.Unsupported, match="a program for several devices"):
        profile.profile(f, (np.zeros(8, "f4"),))


@pytest.mark.parametrize("named", [False, True])
def test_commands(tmp_path, capsys, named):
    """`dump` lists the exchanges; what the others do not do is an error."""
    from uopc.cli import main

    file = tmp_path / "sum.py"
    file.write_text(
        "import uopc\n"
        "x = uopc.param('x', (8, 4))\n"
        "total = x.sum(axis=0)\n"
        f"mesh = uopc.make_mesh((2,), ('m',), devices={['cpu:0', 'cpu:1'] if named else None})\n"
        "program = uopc.compile(total, sharding=uopc.Sharding(mesh, in_shardings=uopc.P('m')))\n",
        "utf-8",
    )
    assert main.main(["dump", f"{file}:program"]) == 0
    text = capsys.readouterr().out
    assert "allreduce add over m  16 bytes  output" in text and "sum.py:3" in text
    with pytest.raises(SystemExit):
        main.main(["run", f"{file}:program"])
    assert "a program for several devices: `uopc dump` lists" in capsys.readouterr().err
    if not named:
        with uopc.options(cache_dir=str(tmp_path)):
            assert main.main(["tune", f"{file}:program"]) != 0
        assert "a mesh must name its devices" in capsys.readouterr().err


_SOME = (dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.int8, dtypes.bool_)


@pytest.mark.parametrize("t", _SOME, ids=str)
def test_dtypes(t):
    x = uopc.param("x", (9, 5), t)
    low, high = (0, 2) if t.kind == "bool" else (-4, 5)
    a = rng.integers(low, high, (9, 5)).astype(t.numpy)
    outs = [x.sum(axis=0), x.max(axis=0), x.min(), x.cat(x, axis=0)]
    f = uopc.compile(outs, sharding=uopc.Sharding(make_mesh((2,), ("m",)), in_shardings=P("m")))
    for g, w in zip(f(a), uopc.compile(outs)(a)):
        np.testing.assert_array_equal(g, w)


def test_what_ranks_compare_tells_apart_what_programs_compute(tmp_path):
    x, mesh = uopc.param("x", (8, 6)), make_mesh((2,), ("m",))

    def compared(y):
        runner = uopc.compile(y, sharding=uopc.Sharding(mesh, in_shardings=P("m")))._runner
        return mesh_runner.fingerprint(runner.plan, runner._names())

    def of_file(name):
        np.ones((8, 6), "f4").tofile(tmp_path / name)
        return compared(x + uopc.constant(uopc.file(tmp_path / name, np.float32, (8, 6))))

    assert len({compared(x.sum(axis=0) * k) for k in (2.0, 3.0)}) == 2
    a = np.ones((8, 6), "f4")
    assert len({compared(x + uopc.constant(a * k)) for k in (1, 2)}) == 2
    assert of_file("one") == of_file("other")  # a machine may have a copy of its own
    n = uopc.variable("n", 1, 64)
    with uopc.options(cache_dir="", programs=0):
        one = compared(uopc.param("rows", (n, 3)) * 2)
        other = compared(uopc.param("rows", (n, 3)) * 2)
    assert one == other  # made at different lines
