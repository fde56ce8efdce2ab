"""`shard_map` and what devices exchange in it, against JAX on four devices of one process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import uopc
from tests.meshes import check
from tests.tracing import jax_shard_map as work
from uopc import P, dtypes, make_mesh
from uopc.ir.builder.pytrees import flatten, unflatten

MESH = make_mesh((4,), ("m",))
CASES = work.cases(work.Uopc())
RING = work.RING
CUT, WHOLE = P("m"), P()
SIZE = uopc.variable("n", 4, 8)


@pytest.fixture(scope="module")
def of_jax(tmp_path_factory):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    file = tmp_path_factory.mktemp("jax") / "found.npz"
    flags = "--xla_force_host_platform_device_count=4"
    subprocess.run(
        [sys.executable, str(Path(work.__file__)), str(file)], check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}, timeout=300,
    )  # fmt: skip
    return np.load(file)


def test_results_are_those_of_jax(of_jax):
    found = work.results(work.Uopc())
    assert sorted(found) == sorted(of_jax.files) and len(found) > 30
    for name, got in found.items():
        wanted = of_jax[name]
        assert got.dtype == wanted.dtype and got.shape == wanted.shape, name
        np.testing.assert_allclose(got, wanted, 1e-6, 1e-6, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_on_a_mesh_as_on_one_device(name):
    """The graph of one device on a lockstep interpreter, against the graph without a mesh."""
    f, mesh, ins, outs, specs = CASES[name]
    mesh = work.Uopc().mesh[mesh]
    leaves, structure = flatten(tuple(specs))
    arrays = [work.made(s, np.random.default_rng(i)) for i, (_, s) in enumerate(leaves)]
    params = [uopc.param(f"p{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    made = uopc.shard_map(f, mesh, ins, outs)(*unflatten(structure, params))
    results = [u for _, u in flatten(made)[0]]
    check(results, {f"p{i}": a for i, a in enumerate(arrays)}, mesh)


def exchanged(f, ins=CUT, outs=CUT, mesh=MESH, dims=(8, 4), explicit=True):
    """The kinds of the exchanges of a compiled program, and their bytes."""
    x = uopc.param("x", dims)
    program = uopc.compile(
        uopc.shard_map(f, mesh, ins, outs)(x), verify=True,
        sharding=uopc.Sharding(mesh, explicit=explicit),
    )
    for e in program.exchanges:
        assert "test_shard_map.py" in e.line
    return [(e.kernel, e.axes, e.bytes) for e in program.exchanges]


def test_each_name_is_one_exchange():
    m, part = ("m",), 2 * 4 * 4
    assert exchanged(lambda x: x * 2 + x.sum()) == []
    assert exchanged(lambda x: uopc.psum(x, "m"), outs=P()) == [("allreduce", m, part * 6 // 4)]
    assert exchanged(lambda x: uopc.pmax(x, "m"), outs=P()) == [("allreduce", m, part * 6 // 4)]
    assert exchanged(lambda x: uopc.all_gather(x, "m"), outs=P()) == [("allgather", m, part * 3)]
    assert exchanged(
        lambda x: uopc.psum_scatter(x, "m", scatter_dimension=1, tiled=True), outs=P(None, "m")
    ) == [("reduce_scatter", m, part * 3 // 4)]
    assert exchanged(
        lambda x: uopc.all_to_all(x, "m", 1, 0, tiled=True), outs=P(None, "m")
    ) == [("alltoall", m, part * 3 // 4)]
    right = [(0, 1), (1, 2), (2, 3)]
    assert exchanged(lambda x: uopc.ppermute(x, "m", right)) == [("permute_ranks", m, part)]
    for perm in (RING, [(t, s) for s, t in RING], [(0, 2), (2, 0)], [(0, 3)]):
        assert exchanged(lambda x, p=perm: uopc.ppermute(x, "m", p)) == [("permute_ranks", m, part)]
    assert exchanged(lambda x: x + uopc.axis_index("m").cast(dtypes.float32)) == []


def test_axes_that_are_combined_together_are_one_exchange():
    mesh = make_mesh((2, 2), ("a", "b"))
    found = exchanged(lambda x: uopc.psum(x.sum(), ("a", "b")), P("a", "b"), P(), mesh)
    assert [(k, axes) for k, axes, _ in found] == [("allreduce", ("a", "b"))]
    both = P(("a", "b"))
    assert exchanged(lambda x: x * 2, both, both, mesh) == []
    found = exchanged(lambda x: uopc.psum(x, "b"), P("a", "b"), P("a"), mesh)
    assert [(k, axes) for k, axes, _ in found] == [("allreduce", ("b",))]


def test_gradients_of_a_loss_on_parts():
    """Data parallel by hand: the gradient of each device, then one sum; and through shard_map."""
    rng = np.random.default_rng(0)
    x, t, w = rng.random((8, 3)), rng.random(8), rng.random(3)

    def step(w, x, t):
        return uopc.psum(uopc.grad(lambda w: ((x @ w - t) ** 2).sum())(w), "m")

    wanted = 2 * x.T @ (x @ w - t)
    inside = uopc.shard_map(step, MESH, (P(), P("m"), P("m")), P())
    np.testing.assert_allclose(inside(w, x, t), wanted, 1e-12)

    loss = uopc.shard_map(
        lambda w, x, t: uopc.psum(((x @ w - t) ** 2).sum(), "m"), MESH, (P(), P("m"), P("m")), P()
    )
    np.testing.assert_allclose(uopc.grad(loss)(w, x, t), wanted, 1e-12)


def test_nan_reaches_all_devices():
    f = uopc.shard_map(lambda x: (uopc.pmax(x, "m"), uopc.pmin(x, "m")), MESH, P("m"), P())
    for at in range(4):
        a = np.arange(4.0)
        a[at] = np.nan
        assert all(np.isnan(v) for v in f(a))


def test_a_function_may_be_jitted_and_its_parts_primitives():
    f = uopc.shard_map(
        lambda x: uopc.psum(x, "m").cumsum() + x.cumsum(), MESH, P("m"), P("m")
    )
    a = np.arange(8.0)
    parts = a.reshape(4, 2)
    wanted = (parts.sum(0).cumsum() + parts.cumsum(1)).reshape(-1)
    np.testing.assert_array_equal(f(a), wanted)
    np.testing.assert_array_equal(uopc.jit(f)(a), wanted)
    np.testing.assert_array_equal(uopc.jit(f, mesh=MESH)(a), wanted)


@pytest.mark.parametrize("t", ["f2", "f4", "f8", "i1", "u4", "i8"])
def test_dtypes(t):
    def f(x):
        return uopc.psum(x, "m"), uopc.ppermute(x, "m", RING), uopc.pmax(x, "m")

    a = np.arange(12).astype(t)
    found = uopc.shard_map(f, MESH, P("m"), (P(), P("m"), P()))(a)
    parts = a.reshape(4, 3)
    for got, wanted in zip(found, (parts.sum(0, dtype=t), np.roll(a, 3), parts.max(0))):
        assert got.dtype == a.dtype
        np.testing.assert_array_equal(got, wanted)


def test_what_it_refuses():
    a = np.zeros((8, 4))

    def on(f, ins=CUT, outs=CUT, *given):
        return lambda: uopc.shard_map(f, MESH, ins, outs)(*(given or (a,)))

    def same(x):
        return x

    for call, words in (
        (on(same, P(None, None, "m")), "3 entries for 2 dimensions"),
        (on(same, P("n")), "unknown mesh axis 'n'; choose 'm'"),
        (on(same, P("m"), P("n")), "unknown mesh axis 'n'"),
        (on(same, P("m"), P("m"), np.zeros(6)), r"argument 0: \(6\) .* 4 must divide .*; marks"),
        (on(same, P("m"), P("m"), uopc.param("s", (SIZE,))), "must be a number; marks"),
        (on(same, P("m"), P()), "differs between devices along 'm'"),
        (on(same, (P("m"), P())), "must have the containers"),
        (on(lambda x: x.shard(P("m")), P(), P(), uopc.param("x", (4,))), "values inside are parts"),
        (on(lambda x: uopc.psum(x, "n")), "psum: unknown mesh axis 'n'"),
        (on(lambda x: uopc.psum(x, ("m", "m"))), "names an axis twice"),
        (on(lambda x: uopc.psum_scatter(x, "m")), "dimension 0 of .* must be 4, the size"),
        (on(lambda x: uopc.all_to_all(x, "m", 0, 1, tiled=True)), "must be a multiple of 4"),
        (on(lambda x: uopc.all_gather(x, "m", axis=3)), "axis 3 is out of range"),
        (on(lambda x: uopc.ppermute(x, "m", [(0, 4)])), "the devices 0 to 3"),
        (on(lambda x: uopc.ppermute(x, "m", [(0, 1), (2, 1)])), "twice"),
        (on(lambda x: uopc.ppermute(x, "m", [3])), "expected pairs"),
        (on(lambda x: uopc.ppermute(x, "m", 3)), "expected pairs"),
        (on(lambda x: uopc.pmean(x, "m"), P(), P(), np.arange(4)), "pmean: expected floats"),
        (lambda: uopc.psum(np.ones(2), "m"), "outside of a function given to shard_map"),
        (lambda: uopc.shard_map(same, 3, P(), P()), "mesh must be a uopc.Mesh"),
        (lambda: uopc.shard_map(3, MESH, P(), P()), "expected a UOp or a function"),
        (lambda: uopc.shard_map(same, MESH, P(), P())(x=a), "pass arguments by position"),
    ):
        with pytest.raises(uopc.UserError, match=words):
            call()
    again = uopc.shard_map(uopc.shard_map(same, MESH, P("m"), P("m")), MESH, P("m"), P("m"))
    with pytest.raises(uopc.Unsupported, match="inside a function of shard_map"):
        again(a)
    with pytest.raises(uopc.Unsupported, match="expected one mesh axis"):
        mesh = make_mesh((2, 2), ("a", "b"))
        uopc.shard_map(lambda x: uopc.ppermute(x, ("a", "b"), []), mesh, P("a"), P("a"))(a)
    with pytest.raises(uopc.Unsupported, match="an exchange"):
        on(lambda x: uopc.while_loop(lambda c: c.sum() < 1, lambda c: uopc.psum(c, "m"), x))()
