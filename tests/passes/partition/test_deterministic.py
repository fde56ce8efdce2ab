"""Programs whose results do not depend on how many devices a mesh has, bit for bit."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import uopc
from tests import ROOT, mesh_fuzz
from uopc import P, dtypes, make_mesh

sys.path.append(str(ROOT / "benchmarks"))
import device_workloads

rng = np.random.default_rng(0)


def bits(outputs, arrays, sizes, axes=("m",), deterministic=True, **specs):
    mesh = make_mesh(sizes, axes)
    f = uopc.compile(outputs, sharding=uopc.Sharding(mesh, deterministic=deterministic, **specs))
    results = f(**arrays)
    every = results if isinstance(results, (list, tuple)) else [results]
    return b"".join(np.asarray(v).tobytes() for v in every)


@pytest.mark.parametrize("name", device_workloads.ALL)
def test_workloads_on_all_meshes(name):
    work = device_workloads.ALL[name](**device_workloads.SMALL[name])
    arrays = work.arrays()
    specs = {"in_shardings": work.in_specs, "out_shardings": work.out_spec}
    found = {bits(work.outputs, arrays, (p,), (work.axis,), **specs) for p in (1, 2, 4, 8)}
    assert len(found) == 1
    f = uopc.compile(
        work.outputs,
        sharding=uopc.Sharding(make_mesh((2,), (work.axis,)), deterministic=4, **specs),
    )
    for got, wanted in zip(f(**arrays), uopc.compile(work.outputs)(**arrays), strict=True):
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("t", [dtypes.float32, dtypes.float64, dtypes.float16], ids=str)
def test_sums_differ_without_it(t):
    """The last bits of a sum depend on its parts, unless these are blocks."""
    x = uopc.param("x", (5000,), t)
    a = {"x": rng.standard_normal(5000).astype(t.numpy)}
    outs, cut = [x.sum(), (x * 3).exp().mean()], {"in_shardings": P("m")}
    assert len({bits(outs, a, (p,), **cut) for p in (1, 2, 4, 8)}) == 1
    if t is not dtypes.float16:
        assert len({bits(outs, a, (p,), deterministic=False, **cut) for p in (1, 2, 4, 8)}) > 1


def test_two_axes():
    x, w = uopc.param("x", (24, 40)), uopc.param("w", (40, 16))
    a = {n: rng.standard_normal(d).astype("f4") for n, d in (("x", (24, 40)), ("w", (40, 16)))}
    cut = {"in_shardings": {"x": P("data", "model"), "w": P("model")}}
    sizes = [(1, 1), (2, 1), (1, 4), (2, 2)]
    outs = [(x @ w).softmax(axis=1), (x @ w).sum(axis=0)]
    assert len({bits(outs, a, s, ("data", "model"), 4, **cut) for s in sizes}) == 1


@pytest.mark.parametrize("seed", range(300, 306))
def test_random_graphs(seed):
    case = mesh_fuzz.Case(seed)
    arrays = case.arrays_used()
    cut, axes = {"in_shardings": case.in_specs_used()}, case.mesh.axis_names
    found = {bits(case.outputs, arrays, (p,) * len(axes), axes, 4, **cut) for p in (1, 2, 4)}
    assert len(found) == 1


def test_what_is_refused():
    x = uopc.param("x", (8,))
    for given, words in (
        ({"mesh": make_mesh((3,), ("m",)), "deterministic": True}, "pass determin"),
        ({"mesh": make_mesh((2,), ("m",)), "deterministic": 0}, "a number of blocks, got 0"),
        ({"mesh": make_mesh((2,), ("m",)), "deterministic": "yes"}, "a number of blocks, got"),
        ({"deterministic": True}, "need a mesh"),
    ):
        with pytest.raises(uopc.UserError, match=words):
            uopc.compile(x.sum(), **given)


def test_parts_of_a_sharding_as_arguments_are_noted_and_work():
    mesh, x = make_mesh((2,), ("m",)), uopc.param("x", (4,))
    with pytest.warns(DeprecationWarning, match=r"Sharding\(mesh, in_shardings=...\)"):
        f = uopc.compile(x * 2, mesh=mesh, in_shardings=P("m"))
    np.testing.assert_array_equal(f(np.ones(4, "f4")), np.full(4, 2, "f4"))
    with pytest.raises(uopc.UserError, match="into sharding="):
        uopc.compile(x, mesh=mesh, sharding=uopc.Sharding(mesh))
    with pytest.raises(TypeError, match="unexpected keyword argument 'meshes'"):
        uopc.compile(x, meshes=mesh)
    with pytest.raises(TypeError, match=r"must be a uopc\.Sharding"):
        uopc.compile(x, sharding=mesh)
