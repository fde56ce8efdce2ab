"""Exported sparse results: a caller has the places of the values, whatever language and target."""

from __future__ import annotations

import ctypes
import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from tests import pages
from tests.exporting.corpus import WARNINGS
from tests.exporting.test_export import CC, CXX, RNG, needs_c, run
from tests.exporting.test_wasm import Host
from uopc import dtypes
from uopc.backends import elf
from uopc.cli import main as cli
from uopc.errors import Unsupported, UserError
from uopc.sparse.sparsity import Layout, Sparse, Sparsity

F8 = dtypes.float64
WARNINGS_CXX = ("-std=c++17", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wconversion",
                "-Wshadow")  # fmt: skip
# What a caller prints of a matrix: its shape, then a line of row, column and value for each entry.
SHOW = """
#define SHOW(name, NAME, values) \\
    printf("%ld %ld %ld\\n", (long)NAME##_ROWS, (long)NAME##_COLS, (long)NAME##_NNZ); \\
    for (long k = 0; k < (long)NAME##_NNZ; ++k) { \\
        printf("%ld %ld %.17g\\n", (long)name##_row[k], (long)name##_col[k], (double)values[k]); \\
    }
"""
OTHER = '#include "f.h"\nint32_t other(void);\nint32_t other(void) { return f_csc_row[0]; }\n'


def chain(n: int) -> tuple[Any, Any]:
    """A vector, and one of products of neighbours."""
    z = uopc.param("z", (n,), F8)
    return z, unp.sin(z[1:]) * z[:-1] + z[1:] ** 2


def several() -> tuple[dict[str, Any], Any]:
    """Matrices in each format beside a vector, and the argument."""
    z, y = chain(9)
    graph: dict[str, Any] = {f: uopc.jacobian(y, z, format=f) for f in ("csc", "csr", "coo")}
    graph["y"] = y
    graph["lower half"] = uopc.hessian((y * y).sum(), z, format="triplet", part="lower")
    return graph, RNG.normal(size=9)


def matrices(printed: str) -> list[Any]:
    """The matrices that SHOW prints, by SciPy."""
    sparse = pytest.importorskip("scipy.sparse")
    lines, found = printed.splitlines(), []
    while lines:
        rows, columns, count = map(int, lines.pop(0).split())
        entries = np.array([line.split() for line in lines[:count]], "f8").reshape(count, 3)
        places = entries[:, :2].astype(int).T
        found.append(sparse.coo_array((entries[:, 2], tuple(places)), (rows, columns)))
        del lines[:count]
    return found


def main(before: str, shown: str) -> str:
    return f'#include <stdio.h>\n#include "f.h"\n{SHOW}\nint main(void)\n{{\n{before}\n{shown}\n' \
           "    return 0;\n}\n"  # fmt: skip


def numbers(array: Any) -> str:
    return ", ".join([repr(float(v)) for v in array])


def calls(point: Any) -> str:
    """A program that calls the function of `several` and shows its matrices."""
    names = {"csc": "F_CSC", "csr": "F_CSR", "coo": "F_COO", "lower_half": "F_LOWER_HALF"}
    lines = [f"    const double z[9] = {{{numbers(point)}}};", "    double y[8];",
             "    static double work[F_WORK_BYTES / 8 + 1];"]  # fmt: skip
    lines += [f"    double {n}[{macro}_NNZ];" for n, macro in names.items()]
    lines.append("    if (f(z, csc, csr, coo, y, lower_half, work) != 0) { return 1; }")
    shown = [f"    SHOW(f_{n}, {macro}, {n})" for n, macro in names.items()]
    return main("\n".join(lines), "\n".join(shown))


@needs_c
@pytest.mark.parametrize("kind", ["c", "object", "static", "shared"])
def test_a_c_program_has_the_places(kind: str, tmp_path: Path) -> None:
    """Two files read the header; nothing warns; the matrices are those of the program."""
    graph, point = several()
    code = uopc.export(graph, tmp_path / "f", kind=kind).files[-1].name
    (tmp_path / "main.c").write_text(calls(point), "utf-8")
    (tmp_path / "other.c").write_text(OTHER, "utf-8")
    run(CC, *WARNINGS, "main.c", "other.c", code, "-Wl,-rpath,$ORIGIN", "-o", "main",
        folder=tmp_path)  # fmt: skip
    wanted = uopc.compile(graph, threads=1)(point)
    found = matrices(run("./main", folder=tmp_path))
    for name, made in zip(("csc", "csr", "coo", "lower half"), found, strict=True):
        s = graph[name].sparsity
        np.testing.assert_array_equal(np.array([made.row, made.col]), [s.row, s.col])
        assert made.shape == s.shape
        if kind != "c":  # whose vectors have another width
            np.testing.assert_array_equal(made.data, wanted[name])
    u = point
    dense = np.zeros((8, 9))
    dense[range(8), range(8)] = np.sin(u[1:])
    dense[range(8), range(1, 9)] = np.cos(u[1:]) * u[:-1] + 2 * u[1:]
    for made in found[:3]:
        np.testing.assert_allclose(made.toarray(), dense, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(found[3].toarray(), np.tril(found[3].toarray()))


@pytest.mark.skipif(CXX is None, reason="there is no compiler of C++")
def test_a_cpp_program_has_the_places(tmp_path: Path) -> None:
    graph, point = several()
    uopc.export(graph, tmp_path / "f", kind="static")
    (tmp_path / "main.cpp").write_text(calls(point), "utf-8")
    (tmp_path / "other.cpp").write_text(OTHER, "utf-8")
    run(CXX, *WARNINGS_CXX, "main.cpp", "other.cpp", "f.a", "-o", "main", folder=tmp_path)
    for made in matrices(run("./main", folder=tmp_path))[:3]:
        np.testing.assert_array_equal(made.toarray() != 0, graph["csc"].sparsity.todense())


def in_library(library: Path, name: str, count: int, t: Any = ctypes.c_int32) -> list[Any]:
    return list((t * count).in_dll(ctypes.CDLL(str(library)), name))


def test_compressed_columns_are_those_of_scipy(tmp_path: Path) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    graph, point = several()
    library = uopc.export(graph, tmp_path / "f", kind="shared").files[-1]
    values = uopc.load_exported(library)(point)
    for kind, row in (("csc", "row"), ("csr", "col")):
        indptr = in_library(library, f"f_{kind}_indptr", 10 if kind == "csc" else 9)
        places = in_library(library, f"f_{kind}_{row}", 16)
        made = getattr(sparse, f"{kind}_array")((values[kind], places, indptr), (8, 9))
        np.testing.assert_array_equal(made.toarray(), graph[kind].todense(values[kind]))
    header = (tmp_path / "f.h").read_text("utf-8")
    assert "coo_indptr" not in header and "half_indptr" not in header


def declared(header: str) -> list[str]:
    """The names of the arrays of a header, without the digest."""
    return re.findall(r"^extern const \w+ (\w+)\[[^]]", header, re.MULTILINE)


@needs_c
@pytest.mark.parametrize("kind", ["c", "object"])
def test_names_follow_from_those_of_results(kind: str, tmp_path: Path) -> None:
    """Keywords, names that C makes equal, names whose capitals are equal; and no names."""
    z, y = chain(4)
    j = uopc.jacobian(y, z, format="coo")
    cases = [
        (j, ["out"]), ([y, j, j], ["out1", "out2"]), ((j, y), ["out0"]),
        ({"class": j, "a b": j, "a_b": j, "A_b": j, "id": j, "": y, "INT32_MAX": j, "SIZE_MAX": y},
         ["class", "a_b", "a_b_2", "A_b", "id", "INT32_MAX"]),
    ]  # fmt: skip
    for graph, names in cases:
        uopc.export(graph, tmp_path / "f", kind=kind)
        header = (tmp_path / "f.h").read_text("utf-8")
        assert declared(header) == [f"f_{n}_{end}" for n in names for end in ("row", "col")]
        macros = re.findall(r"^#define (\w+)", header, re.MULTILINE)
        assert len(set(macros)) == len(macros) and f"F_{names[0].upper()}_NNZ" in macros
        (tmp_path / "g.c").write_text('#include "f.h"\n', "utf-8")
        run(CC, *WARNINGS, "-c", *(["f.c", "g.c"] if kind == "c" else ["g.c"]), folder=tmp_path)


def test_graphs_without_sparse_results_have_no_places(tmp_path: Path) -> None:
    z, y = chain(4)
    made = uopc.export({"y": y, "dense": uopc.jacobian(y, z)}, tmp_path / "f")
    assert declared(made.files[0].read_text("utf-8")) == [] and made.manifest["sparse"] == []


@needs_c
@pytest.mark.parametrize("kind", ["c", "static"])
@pytest.mark.parametrize("dtype", [F8, dtypes.float32, dtypes.float16])
def test_entries_that_are_numbers(kind: str, dtype: Any, tmp_path: Path) -> None:
    """`constants="split"`: the function computes some entries, and the header has the others."""
    x = uopc.param("x", (6,), dtype)
    y = x[1:] * x[1:] - x[:-1] * 3
    j = uopc.jacobian(y, x, format="csc", mode="direct", constants="split")
    assert j.constants is not None and len(j.constants[0]) == 5
    made = uopc.export({"j": j}, tmp_path / "f", kind=kind)
    values = uopc.compile(j, threads=1)(np.arange(6, dtype=dtype.numpy))
    at = ", ".join([str(v) for v in values.view("u2" if dtype is dtypes.float16 else values.dtype)])
    c = {F8: "double", dtypes.float32: "float"}.get(dtype, "uint16_t")
    before = [f"    {c} all[F_J_NNZ], j[5] = {{{at}}};",
              "    for (int k = 0; k < F_J_NNZ; ++k) { all[k] = f_j_constants[k]; }",
              "    for (int k = 0; k < F_J_COMPUTED; ++k) { all[f_j_computed[k]] = j[k]; }",
              ]  # fmt: skip
    (tmp_path / "main.c").write_text(main("\n".join(before), "    SHOW(f_j, F_J, all)"), "utf-8")
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror")
    run(CC, *flags, "main.c", made.files[-1].name, "-o", "main", folder=tmp_path)
    (found,) = matrices(run("./main", folder=tmp_path))
    if c == "uint16_t":
        found.data = found.data.astype("u2").view("f2").astype("f8")
    np.testing.assert_array_equal(found.toarray(), j.todense(values))
    s = made.manifest["sparse"][0]
    assert s["constants"] == {"entries": j.constants[0].tolist(), "values": [-3.0] * 5}


@needs_c
@pytest.mark.parametrize("kind", ["c", "static", "shared"])
def test_matrices_without_entries(kind: str, tmp_path: Path) -> None:
    """No entries, no rows, no columns: C has no arrays of length 0."""
    x, none = uopc.param("x", (3,), F8), uopc.param("none", (0,), F8)
    fixed = uopc.constant(np.ones(2))
    cases = {"zero": (fixed, x), "rows": (x[:0] * 2, x), "columns": (x * 2, none)}
    graph: dict[str, Any] = {
        n: uopc.jacobian(y, z, format=f) for n, (y, z) in cases.items() for f in ["csc"]
    }
    graph["any"] = uopc.jacobian(fixed, x, format="triplet")
    split = uopc.jacobian(x * 2, x, format="csr", constants="split", mode="direct")
    code = uopc.export(graph | {"all": split}, tmp_path / "f", kind=kind).files[-1].name
    shown = [f"    SHOW(f_{n}, F_{n.upper()}, nothing)" for n in graph]
    shown.append("    SHOW(f_all, F_ALL, f_all_constants)")
    end = "(int)f_zero_indptr[3] + (int)f_rows_indptr[3] + F_ALL_COMPUTED + 7"
    before = f'    const double nothing[1] = {{0.0}};\n    printf("0 %d 0\\n", {end});'
    (tmp_path / "main.c").write_text(main(before, "\n".join(shown)), "utf-8")
    run(CC, *WARNINGS, "main.c", code, "-Wl,-rpath,$ORIGIN", "-o", "main", folder=tmp_path)
    first, *found, whole = matrices(run("./main", folder=tmp_path))
    assert first.shape == (0, 7)
    assert [m.shape for m in found] == [(2, 3), (0, 3), (3, 0), (2, 3)]
    assert not any([m.nnz for m in found])
    np.testing.assert_array_equal(whole.toarray(), 2 * np.eye(3))


def test_blocks_of_any_number_of_stages(tmp_path: Path) -> None:
    """Values of a symbolic number of matrices, each row of one structure."""
    n = uopc.variable("n", 1, 50)
    z, y = chain(4)
    block = uopc.jacobian(y, z, format="csc")
    zs = uopc.param("zs", (n, 4), F8)
    batch = replace(block, data=uopc.vmap(block.data, {z: zs}))
    made = uopc.export({"j": batch}, tmp_path / "f", kind="shared")
    header = made.files[0].read_text("utf-8")
    assert "j (out): float64[n, 6]" in header and "rows of values, each of a sparse" in header
    points = RNG.normal(size=(3, 4))
    f = uopc.load_exported(tmp_path / "f.so")
    got, wanted = f(points)["j"], uopc.compile({"j": batch}, threads=1)(points)["j"]
    np.testing.assert_array_equal(got, wanted)
    rows = in_library(made.files[-1], "f_j_row", 6)
    assert rows == block.row.tolist() and got.shape == (3, 6)
    for wrong in (batch.data.reshape(-1), batch.data.sum(), block.data[1:]):
        with pytest.raises(UserError, match=r"j.* must have the 6 values of <Sparsity 3x4"):
            uopc.export({"j": replace(block, data=wrong)}, tmp_path / "g")
    assert not (tmp_path / "g.h").exists()
    with pytest.raises(Unsupported, match="leave constants= out"):
        uopc.export({"j": batch}, tmp_path / "g", abi="casadi")


def test_entries_at_one_place_are_said_to_be_added(tmp_path: Path) -> None:
    data = uopc.param("data", (3,), F8) * 1
    twins = Sparse(data, Layout(Sparsity([0, 1, 1], [2, 0, 0], (2, 3))))
    header = uopc.export({"m": twins}, tmp_path / "f").files[0].read_text("utf-8")
    assert "Those at one place are added." in header
    alone = Sparse(data, Layout(Sparsity([0, 1, 1], [2, 0, 1], (2, 3))))
    assert "added" not in uopc.export({"m": alone}, tmp_path / "f").files[0].read_text("utf-8")


def test_an_argument_that_is_the_result(tmp_path: Path) -> None:
    """Its places have the name of the result, and the header names the parameter."""
    kept, new = uopc.param("kept", (2,), F8), uopc.param("new", (2,), F8)
    m = Sparse(kept.assign(new * 2), Layout(Sparsity([0, 1], [2, 0], (2, 3))))
    made = uopc.export({"m": m, "t": replace(m.T, data=new)}, tmp_path / "f")
    header = made.files[0].read_text("utf-8")
    assert declared(header) == ["f_m_row", "f_m_col", "f_t_row", "f_t_col"]
    text = " ".join(header.split())
    assert "kept[k] stands at row f_m_row[k]" in text and "t[k] stands at row f_t_row[k]" in text


def test_many_entries(tmp_path: Path) -> None:
    """The header has a line for each array, however long, and the manifest short lines."""
    z, y = chain(8001)
    j = uopc.jacobian(y, z, format="csc")
    made = uopc.export({"j": j}, tmp_path / "f", kind="shared")
    assert len(made.files[0].read_text("utf-8").splitlines()) < 60
    text = (tmp_path / "f.json").read_text("utf-8")
    assert max(map(len, text.splitlines()[20:])) < 101 and len(text.splitlines()) < 6000
    for name, wanted in (("row", j.row), ("col", j.col), ("indptr", j.indptr)):
        assert in_library(made.files[-1], f"f_j_{name}", wanted.size) == wanted.tolist()
    point = RNG.normal(size=8001)
    got = uopc.load_exported(tmp_path / "f.so")(point)["j"]
    np.testing.assert_array_equal(got, uopc.compile(j, threads=1)(point))


@needs_c
def test_a_linker_leaves_out_what_is_not_read(tmp_path: Path) -> None:
    graph, _ = several()
    uopc.export(graph, tmp_path / "f", kind="static")
    text = '#include "f.h"\nint main(void) { return f_csc_col[0]; }\n'
    (tmp_path / "main.c").write_text(text, "utf-8")
    run(CC, "main.c", "f.a", "-Wl,--gc-sections", "-o", "main", folder=tmp_path)
    kept = re.findall(r" (f_\w+_(?:row|col|indptr))$", run("nm", "main", folder=tmp_path), re.M)
    assert kept == ["f_csc_col"]


@pytest.mark.parametrize("target", ["x86-64", "aarch64", "riscv64", "cortex-m3", "cortex-m7"])
def test_objects_for_other_processors_have_them(target: str, tmp_path: Path) -> None:
    graph, _ = several()
    found = elf.read(uopc.export(graph, tmp_path / "f", target=target).files[-1].read_bytes())
    symbols = {s.name: s for s in found.symbols if s.is_global}
    for end, wanted in (("row", graph["csc"].row), ("col", graph["csc"].col)):
        s = symbols[f"f_csc_{end}"]
        content = found.sections[s.section].data[s.value : s.value + s.size]
        assert np.frombuffer(content, "<i4").tolist() == wanted.tolist()


def test_a_file_for_several_levels_has_them_once(tmp_path: Path) -> None:
    graph, point = several()
    levels = ["x86-64", "x86-64-v2"]
    found = elf.read(uopc.export(graph, tmp_path / "f", target=levels).files[-1].read_bytes())
    assert len([s for s in found.symbols if s.name.endswith("csr_col")]) == 1
    made = uopc.export(graph, tmp_path / "f", kind="shared", target=levels)
    assert in_library(made.files[-1], "f_csr_col", 16) == graph["csr"].col.tolist()
    assert len(uopc.load_exported(made.files[-1])(point)["csr"]) == 16


def test_a_module_of_webassembly_has_them(tmp_path: Path) -> None:
    graph, _ = several()
    made = uopc.export(graph, tmp_path / "f", kind="shared", target="wasm32")
    host = Host(made.files[-1].read_bytes())
    for name in ("row", "col", "indptr"):
        wanted = getattr(graph["csc"], name).astype("<i4")
        at = host.exports[f"f_csc_{name}"].value(host.store)
        assert host.read(at, wanted.nbytes) == wanted.tobytes()


def test_the_manifest_has_them_and_promises_them(tmp_path: Path) -> None:
    graph, point = several()
    made = uopc.export(graph, tmp_path / "f", kind="shared")
    keys = list(graph)
    for s in made.manifest["sparse"]:
        sparsity = uopc.Sparsity(s["row"], s["col"], s["shape"], s["format"])
        assert sparsity == graph[s["name"]].sparsity and keys[s["result"]] == s["name"]
        assert f"{s['c_name']}_row" in declared(made.files[0].read_text("utf-8"))
    got = uopc.load_exported(tmp_path / "f.so")(point)
    for key, value in uopc.compile(graph, threads=1)(point).items():
        np.testing.assert_array_equal(got[key], value)
    file = tmp_path / "f.json"
    whole = json.loads(file.read_text("utf-8"))
    whole["sparse"][0]["row"][0] = 1
    file.write_text(json.dumps(whole), "utf-8")
    with pytest.raises(UserError, match="was changed: the library"):
        uopc.load_exported(tmp_path / "f.so")


def test_programs_keep_them(tmp_path: Path) -> None:
    """Of a compiled graph, its pickle, and of all of a nonlinear program."""
    graph, _ = several()
    program = uopc.compile(graph)
    texts = []
    for i, given in enumerate((graph, program, pickle.loads(pickle.dumps(program)))):
        made = uopc.export(given, tmp_path / str(i) / "f", kind="c")
        texts.append([f.read_text("utf-8") for f in made.files])
    assert texts[0] == texts[1] == texts[2]
    z, y = chain(6)
    nlp = uopc.nlp({"x": z, "f": (z * z).sum(), "g": y})
    header = uopc.export(nlp.program, tmp_path / "n").files[0].read_text("utf-8")
    assert [n for n in declared(header) if n.endswith("_row")] == ["n_jac_g_row", "n_hess_lag_row"]


def test_programs_of_functions_have_them(tmp_path: Path) -> None:
    """Of `jit`, in nested containers; a call gives the same Sparse as before."""
    x = np.arange(4.0)
    f = uopc.jit(lambda x: {"a": x * 2, "b": [uopc.jacobian(unp.sin, format="coo")(x), x]})
    result, program = f(x), f.program(x)
    np.testing.assert_array_equal(result["b"][0].todense(), np.diag(np.cos(x)))
    np.testing.assert_array_equal(result["a"], x * 2)
    made = uopc.export(program, tmp_path / "f", kind="shared")
    assert declared(made.files[0].read_text("utf-8")) == ["f_out1_row", "f_out1_col"]
    assert in_library(made.files[-1], "f_out1_col", 4) == [0, 1, 2, 3]
    np.testing.assert_array_equal(uopc.load_exported(made.files[-1])(x)[1], result["b"][0].data)


@needs_c
def test_a_kernel_may_have_the_name_of_an_array_of_places(tmp_path: Path) -> None:
    o, x = (uopc.kernel_param(i, (4,), F8, "ox"[i]) for i in range(2))
    z, y = chain(4)
    (twice,) = o.store(x * 2.0).sink(name="j_row").call(uopc.buffer((4,), F8), z)
    graph = {"j": uopc.jacobian(y, z, format="coo"), "twice": twice}
    made = uopc.export(graph, tmp_path / "f", kind="c")
    assert {"f_j_row_2"} <= set(made.manifest["kernels"])
    run(CC, *WARNINGS, "-c", "f.c", folder=tmp_path)
    library = uopc.export(graph, tmp_path / "f", kind="shared").files[-1]
    assert in_library(library, "f_j_row", 6) == graph["j"].row.tolist()
    np.testing.assert_array_equal(uopc.load_exported(library)(np.ones(4))["twice"], np.full(4, 2.0))


def test_the_command_line_takes_sparse_results(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import uopc\nx = uopc.param('x', (3,))\n_j = uopc.jacobian(x * x, x, format='csc')\n"
    ends = ("graph = _j", "graph = {'j': _j, 'x': x * 2}", "def made():\n    return [_j]", "j = _j")
    for end in ends:
        Path("model.py").write_text(f"{text}{end}\n", "utf-8")
        assert cli.main(["export", "model.py", "-o", "f"]) == 0
        assert len(declared(Path("f.h").read_text("utf-8"))) == 3
        assert cli.main(["dump", "model.py"]) == 0


def test_casadi_has_them_of_programs_too_and_refuses_others(tmp_path: Path) -> None:
    z, y = chain(5)
    j = uopc.jacobian(y, z, format="csc")
    for i, graph in enumerate((j, uopc.compile(j))):
        made = uopc.export(graph, tmp_path / str(i) / "f", kind="shared", abi="casadi")
        library = ctypes.CDLL(str(made.files[-1]))
        library.f_sparsity_out.restype = ctypes.POINTER(ctypes.c_longlong)
        wanted = [4, 5, *j.indptr.tolist(), *j.row.tolist()]
        assert library.f_sparsity_out(ctypes.c_longlong(0))[: len(wanted)] == wanted
        assert in_library(made.files[-1], "f_uopc_out_col", 8) == j.col.tolist()
    split = uopc.jacobian(z * 2 + z * z, z, format="csc", constants="split")
    with pytest.raises(Unsupported, match="leave constants= out"):
        uopc.export(split, tmp_path / "f", abi="casadi")


@needs_c
def test_the_program_of_the_page(tmp_path: Path, monkeypatch: Any) -> None:
    """The page's C program prints the matrix; its header is as the page shows it."""
    monkeypatch.chdir(tmp_path)
    page = pages.ROOT / "docs" / "export.md"
    (source,) = [b for b in pages.blocks(page, "c") if b.title == "dense.c"]
    (export,) = [b for b in pages.blocks(page, "python") if '"out/chain", kind="c"' in b.text]
    names: dict[str, Any] = {"uopc": uopc}
    exec(export.text, names)
    Path("out/dense.c").write_text(source.text, "utf-8")
    run(CC, *WARNINGS, "dense.c", "chain.c", "-o", "dense", folder=Path("out"))
    printed = run("./dense", folder=Path("out"))
    z = np.array([1.0, 2.0, 3.0, 4.0])
    wanted = np.zeros((3, 4))
    wanted[range(3), range(3)], wanted[range(3), range(1, 4)] = z[1:], z[:-1]
    np.testing.assert_array_equal(np.array([r.split() for r in printed.splitlines()], "f8"), wanted)
    text = page.read_text("utf-8")
    assert f"```text\n{printed}```" in text
    (shown,) = [b for b in pages.blocks(page, "c") if "CHAIN_JAC_NNZ 6" in b.text]
    assert shown.text in Path("out/chain.h").read_text("utf-8")
