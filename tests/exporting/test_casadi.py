"""`abi="casadi"`: CasADi loads what is exported, IPOPT solves with our function and Jacobian."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from tests import ROOT
from tests.exporting.test_c import WARNINGS
from tests.exporting.test_export import CC, needs_c, run
from uopc import dtypes
from uopc.cli import main as cli
from uopc.errors import Unsupported, UserError

RNG = np.random.default_rng(5)
F8 = dtypes.float64


def graph() -> tuple[dict[str, Any], list[Any], list[Any]]:
    """Matrices, a column, a row, scalars and a sparse matrix; arguments of a call."""
    a, x = uopc.param("a", (2, 3), F8), uopc.param("x", (3,), F8)
    s, z, row = uopc.param("s", (), F8), uopc.param("z", (5,), F8), uopc.param("row", (1, 4), F8)
    sparse = uopc.jacobian(unp.sin(z[1:] * z[:-1]), z, format="csc")
    results = {"y": a @ x * s, "b": a * 2 + s, "n": x.sum(), "j": sparse, "r": row * 3}
    arrays = [RNG.normal(size=shape) for shape in ((2, 3), (3,), (), (5,), (1, 4))]
    return results, [a, x, s, z, row], arrays


def library(folder: Path, kind: str, name: str = "f") -> str:
    """The library of an export: of C, by a compiler."""
    if kind == "c":
        flags = (*WARNINGS, "-O2", "-shared", "-fPIC")
        run(CC, *flags, f"{name}.c", "-o", f"{name}.so", folder=folder)
    return str(folder / f"{name}.so")


@needs_c
@pytest.mark.parametrize("kind", ["shared", "c"])
def test_casadi_calls_it(kind: str, tmp_path: Path) -> None:
    ca = pytest.importorskip("casadi")
    results, inputs, arrays = graph()
    uopc.export(results, tmp_path / "f", kind=kind, abi="casadi", inputs=inputs)
    f = ca.external("f", library(tmp_path, kind))
    assert str(f) == "f:(a[2x3],x[3],s,z[5],row[1x4])->(y[2],b[2x3],n,j[4x5,8nz],r[1x4]) External"
    wanted = uopc.compile(results, inputs=inputs)(*arrays)
    structure = results["j"].sparsity
    dense = np.zeros(structure.shape)
    dense[structure.row, structure.col] = wanted["j"]
    got = [np.array(ca.DM(v)) for v in f(*arrays)]
    for name, value in zip(results, got):
        other = dense if name == "j" else wanted[name]
        np.testing.assert_allclose(value.reshape(other.shape), other, rtol=1e-14, atol=1e-15)
    assert ca.DM(f(*arrays)[3]).sparsity() == f.sparsity_out(3)


@needs_c
@pytest.mark.parametrize("kind", ["shared", "c"])
def test_what_casadi_leaves_out(kind: str, tmp_path: Path) -> None:
    """A missing input is 0; a missing output is computed into w, and nothing else is written."""
    x, y = uopc.param("x", (3,), F8), uopc.param("y", (3,), F8)
    results = {"sum": x + y + 1, "product": x * y}
    uopc.export(results, tmp_path / "f", kind=kind, abi="casadi")
    f = ctypes.CDLL(library(tmp_path, kind))
    sizes = (ctypes.c_longlong * 4)()
    at = [ctypes.byref(sizes, 8 * i) for i in range(4)]
    assert f.f_work(*at) == 0 and list(sizes) == [2, 2, 0, 6]
    assert f.f_work_bytes(*at) == 0 and list(sizes) == [16, 16, 0, 48]
    assert f.f_work(None, None, None, None) == 0
    f.f_n_in.restype = ctypes.c_longlong
    f.f_name_out.restype = f.f_sparsity_in.restype = ctypes.c_void_p
    names = [f.f_name_out(ctypes.c_longlong(i)) for i in (0, 1)]
    assert [ctypes.string_at(n) for n in names] == [b"sum", b"product"]
    assert f.f_n_in() == 2 and f.f_name_out(ctypes.c_longlong(2)) is None
    given, out, work = np.array([1.0, 2.0, 3.0]), np.full(5, 7.0), np.full(8, 7.0)
    pointer = lambda a: ctypes.c_void_p(a.ctypes.data)  # noqa: E731
    arg = (ctypes.c_void_p * 2)(given.ctypes.data, None)
    res = (ctypes.c_void_p * 2)(out[1:].ctypes.data, None)
    assert f.f(arg, res, None, pointer(work[1:]), 0) == 0
    assert out.tolist() == [7, 2, 3, 4, 7] and work[0] == work[7] == 7
    assert f.f_checkout() == f.f_init_mem(0) == 0


@needs_c
def test_ipopt_solves_with_our_function_and_its_jacobian(tmp_path: Path) -> None:
    """min |x|² so that a chain of pendulum steps ends at rest; CasADi's own graph is the oracle."""
    ca = pytest.importorskip("casadi")
    n = 6
    x = uopc.param("x", (3 * n,), F8)
    v = x.reshape(n, 3)
    place, speed, push = v[:, 0], v[:, 1], v[:, 2]
    gap = [place[1:] - place[:-1] - 0.3 * speed[:-1],
           speed[1:] - speed[:-1] - 0.3 * (push[:-1] - unp.sin(place[:-1]))]  # fmt: skip
    ends = uopc.stack(place[0] - 1.0, speed[0], place[n - 1], speed[n - 1])
    rows = gap[0].cat(gap[1], ends)
    out = uopc.param("out_g", rows.shape, F8)
    uopc.export({"g": rows}, tmp_path / "g", abi="casadi")
    jacobian = {"jac_g_x": uopc.jacobian(rows, x, format="csc")}
    uopc.export(jacobian, tmp_path / "jac_g", abi="casadi", inputs=[x, out])
    run(CC, "-shared", "g.o", "jac_g.o", "-o", "g.so", folder=tmp_path)
    ours = ca.external("g", str(tmp_path / "g.so"))
    assert ours.jacobian().sparsity_out(0).nnz() == jacobian["jac_g_x"].sparsity.nnz

    def own(u: Any) -> Any:
        w = ca.reshape(u, 3, n).T
        p, q, f = w[:, 0], w[:, 1], w[:, 2]
        first = p[1:] - p[:-1] - 0.3 * q[:-1]
        second = q[1:] - q[:-1] - 0.3 * (f[:-1] - ca.sin(p[:-1]))
        return ca.vertcat(first, second, p[0] - 1.0, q[0], p[n - 1], q[n - 1])

    found = []
    for g in (ours, own):
        u = ca.MX.sym("u", 3 * n)
        problem = {"x": u, "f": ca.sumsqr(u), "g": g(u)}
        options = {"ipopt.print_level": 0, "print_time": 0, "ipopt.sb": "yes",
                   "ipopt.hessian_approximation": "limited-memory"}  # fmt: skip
        solver = ca.nlpsol("solver", "ipopt", problem, options)
        found.append(np.array(solver(x0=0.1, lbg=0, ubg=0)["x"]).ravel())
        assert solver.stats()["success"]
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-9)


@needs_c
def test_integers_of_acados(tmp_path: Path) -> None:
    """acados compiles with another type for CasADi's integers."""
    results, inputs, _ = graph()
    uopc.export(results, tmp_path / "f", kind="c", abi="casadi", inputs=inputs)
    flags = (*WARNINGS, "-O1", "-Dcasadi_int=int", "-shared", "-fPIC")
    run(CC, *flags, "f.c", "-o", "f.so", folder=tmp_path)
    f = ctypes.CDLL(str(tmp_path / "f.so"))
    f.f_sparsity_out.restype = ctypes.POINTER(ctypes.c_int)
    words = f.f_sparsity_out(3)
    structure = results["j"].sparsity
    wanted = [4, 5, *structure.indptr.tolist(), *structure.row.tolist()]
    assert [words[i] for i in range(len(wanted))] == wanted


@needs_c
def test_acados_calling_convention(tmp_path: Path) -> None:
    """A program that calls as acados does, written here: its own code is on no registry."""
    results, inputs, arrays = graph()
    uopc.export(results, tmp_path / "f", kind="c", abi="casadi", inputs=inputs)
    names = {"NAME": "f", "WORK": "f_work", "SPARSITY_IN": "f_sparsity_in",
             "SPARSITY_OUT": "f_sparsity_out", "N_IN": "f_n_in", "N_OUT": "f_n_out"}  # fmt: skip
    flags = ("-std=c11", "-Wall", "-O1", "-fsanitize=address")
    calls = ROOT / "tests" / "standin" / "acados_calls.c"
    run(CC, *flags, *[f"-D{k}={v}" for k, v in names.items()], "-c", calls, "-o", "calls.o",
        folder=tmp_path)  # fmt: skip
    run(CC, *flags, "-Dcasadi_int=int", "calls.o", "f.c", "-o", "test", folder=tmp_path)
    given = [repr(float(v)) for a in arrays for v in np.asarray(a).T.ravel()]
    rows = run("./test", *given, folder=tmp_path).splitlines()
    wanted = uopc.compile(results, inputs=inputs)(*arrays)
    structure = results["j"].sparsity
    dense = np.zeros(structure.shape)
    dense[structure.row, structure.col] = wanted["j"]
    for row, name in zip(rows, results, strict=True):
        other = dense if name == "j" else wanted[name]
        got = np.array(row.split(), "f8")
        np.testing.assert_allclose(got, np.asarray(other).T.ravel(), rtol=1e-14, atol=1e-15)


@needs_c
@pytest.mark.parametrize("kind", ["shared", "c"])
def test_sparse_inputs(kind: str, tmp_path: Path) -> None:
    """Only the entries are passed, in the order of csc; a whole matrix is a dense one."""
    ca = pytest.importorskip("casadi")
    rows, columns = [0, 2, 1, 2], [0, 0, 2, 2]
    values, whole = uopc.param("values", (4,), F8), uopc.param("whole", (6,), F8)
    inputs = [
        uopc.Sparse(values, uopc.Sparsity(rows, columns, (3, 3), "csc")),
        uopc.Sparse(whole, uopc.Sparsity([0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 2], (2, 3), "csc")),
    ]
    results = {"twice": uopc.Sparse(values * 2, inputs[0].sparsity), "all": whole.sum()}
    uopc.export(results, tmp_path / "f", kind=kind, abi="casadi", inputs=inputs)
    f = ca.external("f", library(tmp_path, kind))
    assert str(f) == "f:(values[3x3,4nz],whole[2x3])->(twice[3x3,4nz],all) External"
    a = ca.DM.triplet(rows, columns, [1.0, 2.0, 3.0, 4.0], 3, 3)
    twice, total = f(a, np.arange(6.0).reshape(2, 3))
    assert twice.nonzeros() == [2.0, 4.0, 6.0, 8.0] and float(total) == 15
    with pytest.raises(UserError, match="a sparse input needs abi='casadi'"):
        uopc.export(results, tmp_path / "g", inputs=inputs)
    wrong = [uopc.Sparse(values * 2, inputs[0].sparsity), whole]
    with pytest.raises(UserError, match=r"must be a param of shape \(4,\), its entries"):
        uopc.export(results, tmp_path / "g", abi="casadi", inputs=wrong)


def test_refusals(tmp_path: Path) -> None:
    x, n = uopc.param("x", (3,), F8), uopc.variable("n", 1, 9)
    by_rows = {"j": uopc.jacobian(x * x, x, format="csr")}
    cases = [
        (UserError, "CasADi refuses a function called 'jac'", x * 2, {"name": "jac"}),
        (UserError, "CasADi refuses a function called 'a__b'", x * 2, {"name": "a__b"}),
        (Unsupported, "y must be float64 for CasADi, got float32", uopc.param("y", (3,)) * 2, {}),
        (Unsupported, "z must be a matrix of known sizes", uopc.param("z", (n,), F8) * 2, {}),
        (Unsupported, "must not write an input", x.assign(x * 2), {}),
        (UserError, "j must be csc for CasADi, got csr", by_rows, {}),
        (UserError, "unknown abi 'matlab'; choose uopc, casadi", x * 2, {"abi": "matlab"}),
        (UserError, "examples need abi='uopc'", x * 2, {"examples": [np.ones(3)]}),
    ]
    for error, words, made, options in cases:
        with pytest.raises(error, match=words):
            uopc.export(made, tmp_path / "f", **({"abi": "casadi"} | options))
    assert not list(tmp_path.iterdir())


def test_command(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'import uopc\ngraph = uopc.param("x", (3,), uopc.dtypes.float64) * 2\n'
    Path("model.py").write_text(text, "utf-8")
    assert cli.main(["export", "model.py", "-o", "f", "--abi", "casadi"]) == 0
    assert "casadi_int f_n_in(void);" in Path("f.h").read_text("utf-8")
