"""Exported files: bits equal to the JIT's, no need of other libraries, refusals, stable bytes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from tests.ir.index.test_size_conditions import RELIES, arguments
from tests.reference import flat
from uopc import dtypes
from uopc.backends import elf
from uopc.backends.c.names import identifier
from uopc.cli import main as cli
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.exporting import export, shared_library
from uopc.exporting.object_code import archive

CC = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
CXX = shutil.which("g++") or shutil.which("clang++")
needs_c = pytest.mark.skipif(CC is None, reason="there is no C compiler")
WARNINGS = ("-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow")
RNG = np.random.default_rng(19)


@dataclass
class Case:
    """A graph and the arguments of a call."""

    graph: Any
    arrays: list[Any]
    sizes: dict[str, int] = field(default_factory=dict)


def floats(*shape: int, dtype: Any = "f4") -> Any:
    return RNG.uniform(-2, 2, shape).astype(dtype)


def elementwise() -> Case:
    a, b = (uopc.param(n, (5, 7), dtypes.float64) for n in "ab")
    return Case((a * b + b.exp()) / (1 + a.abs()), [floats(5, 7, dtype="f8") for _ in "ab"])


def network() -> Case:
    x = uopc.param("x", (16, 32))
    w1, w2 = uopc.constant(floats(32, 64)), uopc.constant(floats(64, 10))
    return Case({"p": ((x @ w1).tanh() @ w2).softmax(axis=-1)}, [floats(16, 32)])


def convolution() -> Case:
    x, w = uopc.param("x", (2, 3, 12, 12)), uopc.param("w", (4, 3, 3, 3))
    y = x.conv2d(w, padding=1).relu().max_pool2d(2)
    return Case(y, [floats(2, 3, 12, 12), floats(4, 3, 3, 3)])


def narrow_floats() -> Case:
    x, y = uopc.param("x", (9,), dtypes.float16), uopc.param("y", (9,), dtypes.bfloat16)
    z = uopc.param("z", (9,), dtypes.fp8e4m3)
    arrays = [floats(9, dtype="f2"), floats(9).astype(ml_dtypes.bfloat16)]
    arrays.append(floats(9).astype(ml_dtypes.float8_e4m3fn))
    return Case((x * 2, y + y, z.cast(dtypes.float32) * 3), arrays)


def integers() -> Case:
    a, b = uopc.param("a", (33,), dtypes.int32), uopc.param("b", (33,), dtypes.int8)
    p = uopc.param("p", (33,), dtypes.bool_)
    arrays = [RNG.integers(-99, 99, 33).astype("i4"), RNG.integers(-9, 9, 33).astype("i1"),
              RNG.integers(0, 2, 33).astype("?")]  # fmt: skip
    results = [a // b.cast(dtypes.int32), a % 7, p & (a > 0), a.cumsum(axis=0), a.argmax()]
    return Case(results, arrays)


def symbolic() -> Case:
    n, k = uopc.variable("n", 1, 60), uopc.variable("k", 1, 40)
    x, y = uopc.param("x", (n, k), dtypes.float64), uopc.param("y", (k, 3), dtypes.float64)
    z = uopc.param("z", (n // 2 + 1,), dtypes.float64)
    arrays = [floats(7, 5, dtype="f8"), floats(5, 3, dtype="f8"), floats(4, dtype="f8")]
    return Case({"xy": x @ y, "z": z[1:].sum() * n, "short": x.sum(axis=1)[: n // 2]}, arrays)


def in_place() -> Case:
    cache, k = uopc.param("cache", (8, 4)), uopc.param("k", (1, 4))
    pos = uopc.variable("pos", 0, 7)
    new = cache[pos : pos + 1].assign(k)
    return Case(new.sum(), [floats(8, 4), floats(1, 4)], {"pos": 3})


def loops() -> Case:
    x0 = uopc.param("x0", (3,), dtypes.float64)
    step = lambda x, u: (x + 0.1 * unp.sin(x) + u, x)  # noqa: E731
    us = uopc.param("us", (20, 3), dtypes.float64)
    last, path = uopc.scan(step, x0, us)
    return Case((last, path), [floats(3, dtype="f8"), floats(20, 3, dtype="f8")])


def launches_in_loops() -> Case:
    n = uopc.variable("n", 0, 30)
    x0 = uopc.param("x0", (70,), dtypes.float64)
    us = uopc.param("us", (n, 4, 70), dtypes.float64)

    def inner(x, u):
        return unp.sort(x * 0.5 + u), x.sum()

    last, sums = uopc.scan(lambda x, u: uopc.scan(inner, x, u), x0, us)
    return Case((last, sums, last[:n]), [floats(70, dtype="f8"), floats(5, 4, 70, dtype="f8")])


def sparse() -> Case:
    z = uopc.param("z", (30,), dtypes.float64)
    y = unp.sin(z[1:]) * z[:-1] + z[1:] ** 2
    return Case({"jac": uopc.jacobian(y, z, format="csc")}, [floats(30, dtype="f8")])


def long_kernel() -> Case:
    x = uopc.param("x", (40,), dtypes.float64)
    ys = []
    for i in range(40):
        y = x[i]
        for k in range(40):
            y = y * (1.0 + 0.01 * i) + 0.5 * k if k % 3 else y.sin()
        ys.append(y)
    return Case(uopc.stack(*ys), [floats(40, dtype="f8")])


def streamed() -> Case:
    x = uopc.param("x", (1 << 24,))
    return Case(x * 2 + 1, [np.arange(1 << 24, dtype="f4")])


def nothing() -> Case:
    x = uopc.param("x", (0, 3))
    return Case((x.sum(axis=0), x * 2), [np.zeros((0, 3), "f4")])


def odd_names() -> Case:
    x, y = uopc.param("class", (3,)), uopc.param("größe", (3,))
    return Case({"new": x + y, "out put": x * y, "work": x - y}, [floats(3), floats(3)])


CASES = (elementwise, network, convolution, narrow_floats, integers, symbolic, in_place, loops,
         launches_in_loops, sparse, long_kernel, nothing, odd_names)  # fmt: skip
each_case = pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)


def assert_same(got: Any, wanted: Any) -> None:
    """The same structure, shapes, dtypes and bits."""
    assert type(got) is type(wanted)
    if isinstance(wanted, dict):
        assert list(got) == [str(key) for key in wanted]
    for a, b in zip(flat(got), flat(wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.tobytes() == b.tobytes()


def program(case: Case) -> Any:
    return uopc.compile(case.graph, threads=1)


def called(f: Any, case: Case) -> Any:
    return f(*[a.copy() for a in case.arrays], **case.sizes)


def run(*command: Any, folder: Path) -> str:
    done = subprocess.run([str(c) for c in command], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@each_case
@pytest.mark.few(3)
def test_a_shared_library_gives_the_bits_of_the_jit(make, tmp_path):
    case = make()
    made = uopc.export(case.graph, tmp_path / "f", kind="shared")
    f = uopc.load_exported(made.files[-1])
    wanted = called(program(case), case)
    assert_same(called(f, case), wanted)
    assert_same(called(f, case), wanted)


def test_stores_past_the_caches_have_the_same_bits(tmp_path):
    case = streamed()
    uopc.export(case.graph, tmp_path / "f", kind="shared")
    assert_same(called(uopc.load_exported(tmp_path / "f.so"), case), called(program(case), case))


@needs_c
@each_case
@pytest.mark.few(3)
def test_the_self_test_passes_with_a_linked_object(make, tmp_path):
    """And the object needs no symbol of another file, and no library."""
    case = make()
    named = dict(zip([p.name for p in program(case).inputs], case.arrays)) | case.sizes
    made = uopc.export(case.graph, tmp_path / "f", kind="static", examples=named)
    assert elf.read(made_object(made)).undefined == []
    run(CC, *WARNINGS, "f_test.c", "f.a", "-o", "test", folder=tmp_path)
    assert "f: 0 wrong bytes or elements, sizes checked" in run("./test", folder=tmp_path)


def made_object(made: Any) -> bytes:
    """The one object file of an archive."""
    data = made.files[-1].read_bytes()
    begin = data.index(b"\x7fELF")
    return data[begin : begin + int(data[begin - 12 : begin - 2])]


@needs_c
def test_a_wrong_result_fails_the_self_test(tmp_path):
    x = uopc.param("x", (8,))
    uopc.export(x * 2, tmp_path / "g" / "f", examples=[floats(8)])
    uopc.export(x * 3, tmp_path / "f")
    run(CC, "-I.", "g/f_test.c", "f.o", "-o", "test", folder=tmp_path)
    assert subprocess.run([tmp_path / "test"], capture_output=True, check=False).returncode == 1


# A function that is right as long as its arguments are two arrays.
APART = """
#include "f.h"
const char f_id[] = "";
size_t f_work_bytes(void) { return 0; }
int f(const float *x, const float *y, float *out, void *work)
{
    (void)work;
    for (int i = 0; i < 8; ++i) {
        out[i] = %s ? 1.0f : x[i] - y[i];
    }
    return 0;
}
"""


@needs_c
@pytest.mark.parametrize(("test", "code"), [("0", 0), ("x == y", 1)])
def test_arrays_that_are_read_may_be_one(test, code, tmp_path):
    """The self-test calls with one array, and compares with what machine code gives for that."""
    x, y = uopc.param("x", (8,)), uopc.param("y", (8,))
    uopc.export(x - y, tmp_path / "f", examples=[floats(8), floats(8)])
    (tmp_path / "f.c").write_text(APART % test, "utf-8")
    run(CC, *WARNINGS, "-ffp-contract=off", "f_test.c", "f.c", "-o", "test", folder=tmp_path)
    done = subprocess.run([tmp_path / "test"], capture_output=True, check=False)
    assert done.returncode == code


def test_what_is_written_or_unlike_has_its_own_array(tmp_path):
    x, y, z = (uopc.param(n, (8,), t) for n, t in zip("xyz", ("float32", "int32", "float32")))
    v = uopc.param("v", (8,))
    graph = v.assign(x * z + y.cast(dtypes.float32))
    given = [floats(8), np.arange(8, dtype="i4"), floats(8), floats(8)]
    uopc.export(graph, tmp_path / "f", inputs=[x, y, z, v], examples=given)
    text = (tmp_path / "f_test.c").read_text("utf-8")
    call = text.partition("run_shared(")[2].partition("f(")[2].partition(") != 0")[0]
    assert re.findall(r"mem_(\w+)", call) == ["x", "y", "x", "v", "work"]


@needs_c
@each_case
@pytest.mark.few(4)
def test_headers_are_c89_and_cpp(make, tmp_path):
    uopc.export(make().graph, tmp_path / "f")
    (tmp_path / "h.c").write_text('#include "f.h"\n#include "f.h"\nint x = F_ABI;\n', "utf-8")
    flags = ("-Wall", "-Wextra", "-pedantic", "-Werror", "-c", "h.c", "-o", "h.o")
    run(CC, "-std=c89", "-Wno-long-long", *flags, folder=tmp_path)
    if CXX is not None:
        run(CXX, "-x", "c++", *flags, folder=tmp_path)


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("make", [network, sparse, narrow_floats], ids=lambda c: c.__name__)
@pytest.mark.few(3)
def test_each_level_of_x86_has_the_bits_of_its_jit(make, target, tmp_path):
    case = make()
    made = uopc.export(case.graph, tmp_path / "f", kind="shared", target=target)
    assert made.manifest["target"]["cpu"] == target
    f = uopc.load_exported(tmp_path / "f.so")
    try:
        with uopc.options(target_cpu=target):
            wanted = called(program(case), case)
    except UserError:
        pytest.skip(f"this machine does not run {target}")
    assert_same(called(f, case), wanted)


@pytest.mark.few(4)
@each_case
def test_one_element_at_a_time_is_close(make, tmp_path):
    case = make()
    uopc.export(case.graph, tmp_path / "f", kind="shared", vectors=False)
    got, wanted = called(uopc.load_exported(tmp_path / "f.so"), case), called(program(case), case)
    for a, b in zip(flat(got), flat(wanted), strict=True):
        np.testing.assert_allclose(a.astype("f8"), b.astype("f8"), rtol=1e-5, atol=1e-6)


SAME = """
import sys, numpy as np, uopc
x, n = uopc.param("x", (16, 32)), uopc.variable("n", 1, 9)
w = uopc.constant(np.arange(320, dtype="f4").reshape(32, 10))
y = uopc.param("y", (n,), uopc.dtypes.float64)
graph = {"p": (x @ w).softmax(axis=-1), "q": y.sin().sum()}
for kind in ("object", "static", "shared"):
    uopc.export(graph, f"{sys.argv[1]}/{kind}/f", kind=kind, target="x86-64-v3",
                examples=[np.ones((16, 32), "f4"), np.ones(4)])
"""


def test_the_same_graph_gives_the_same_bytes(tmp_path):
    """In processes with other hashes, in other folders. Nothing names a folder."""
    found = []
    for seed in ("1", "77"):
        folder = tmp_path / seed
        env = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", SAME, str(folder)]
        done = subprocess.run(command, env=env, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        assert len(files) == 12
        found.append({p.relative_to(folder): p.read_bytes() for p in files})
    assert found[0] == found[1]
    assert not any(str(tmp_path).encode() in data for data in found[0].values())


def test_sizes_are_checked_before_anything_is_written(tmp_path):
    n, m = uopc.variable("n", 2, 6), uopc.variable("m", 0, 9)
    x, y = uopc.param("x", (n,), dtypes.float64), uopc.param("y", (m,), dtypes.float64)
    made = uopc.export(x.reshape(m) + y, tmp_path / "f", kind="shared")
    assert made.manifest["conditions"] == ["n equal m"]
    f = uopc.load_exported(tmp_path / "f.so")
    assert f(np.ones(3), np.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(UserError, match=r"variable 'n' is 7 .*expected 2\.\.6"):
        f(np.ones(7), np.ones(7))
    with pytest.raises(UserError, match="it must hold that n equal m"):
        f(np.ones(3), np.ones(4))
    import ctypes

    memory = np.zeros(9)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (np.ones(9), np.ones(9), memory)]
    library = ctypes.CDLL(str(tmp_path / "f.so"))
    for sizes, code in (((1, 1), 1), ((7, 7), 1), ((3, -1), 2), ((3, 4), 3), ((3, 3), 0)):
        given = map(ctypes.c_int64, sizes)
        assert library.f(*pointers, *given, None) == code
        assert memory.any() == (code == 0)


@pytest.mark.parametrize("graph, good, bad", [r[:3] for r in RELIES])
def test_each_condition_on_sizes_is_checked(graph, good, bad, tmp_path):
    uopc.export(graph, tmp_path / "f", kind="shared")
    f = uopc.load_exported(tmp_path / "f.so")
    wanted = uopc.compile(graph, threads=1)(**arguments(graph, good))
    assert_same(f(**arguments(graph, good)), wanted)
    with pytest.raises(UserError, match=r"it must hold that|expected \d+\.\.\d+"):
        f(**arguments(graph, bad))


def test_a_size_that_may_not_fit_64_bits_is_refused(tmp_path):
    n, m = (uopc.variable(name, 1, 1 << 40) for name in "nm")
    x = uopc.param("x", (uopc.variable("k", 1, 1 << 40),))
    with pytest.raises(Unsupported, match="may not fit 64 bits"):
        uopc.export(x.reshape(n, m) + 1, tmp_path / "f")


# ---------------------------------------------------------------- calls from Python
def loaded(tmp_path: Path) -> Any:
    n = uopc.variable("n", 1, 8)
    x, y = uopc.param("x", (n,)), uopc.param("y", (2, n))
    uopc.export([x * y, y.assign(y + x)], tmp_path / "f", kind="shared")
    return uopc.load_exported(tmp_path / "f")


def test_bad_calls_are_errors_that_name_the_array(tmp_path):
    f = loaded(tmp_path)
    x, y = np.ones(3, "f4"), np.ones((2, 3), "f4")
    assert "f(x, y)" in repr(f)
    for error, words, arrays, named in (
        (UserTypeError, "missing 1 argument: 'y'", (x,), {}),
        (UserTypeError, "takes 2 arrays .x, y., 3 were given", (x, y, y), {}),
        (UserTypeError, "'x' by position and by name", (x, y), {"x": x}),
        (UserTypeError, "no argument 'z'", (x, y), {"z": x}),
        (UserTypeError, r"'x': expected float32\[n\], got float64", (np.ones(3), y), {}),
        (UserError, r"'y': expected float32\[2, n\]", (x, np.ones((2, 4), "f4")), {}),
        (UserError, "'y' is written", (x, np.ones((3, 2), "f4").T), {}),
        (UserError, "overlaps", (y[0], y), {}),
        (UserTypeError, "out: expected a list of 2 arrays", (x, y), {"out": y}),
    ):
        with pytest.raises(error, match=words):
            f(*arrays, **named)
    uopc.export(uopc.full((2,), 1.0) * 3, tmp_path / "none", kind="shared")
    with pytest.raises(UserTypeError, match="takes no arrays, 1 were given"):
        uopc.load_exported(tmp_path / "none")(x)
    product, changed = f(y=y, x=x)
    assert product.tolist() == [[1, 1, 1]] * 2 and changed is y and y.tolist() == [[2, 2, 2]] * 2
    out = np.zeros((2, 3), "f4")
    assert f(x, y, out=[out, None])[0] is out and out.tolist() == [[2, 2, 2]] * 2


def test_a_changed_manifest_or_library_is_refused(tmp_path):
    f = loaded(tmp_path)
    assert f.manifest["work"]["bytes"] == 0
    file, library = tmp_path / "f.json", tmp_path / "f.so"
    text, code = file.read_text("utf-8"), library.read_bytes()
    whole = json.loads(text)
    changes = [("format", 2), ("abi", 0), ("name", "g"), ("graph", "0"), ("files", {}),
               ("dimensions", []), ("arrays", whole["arrays"][:1]), ("files", None),
               ("arrays", [a | {"shape": [8]} for a in whole["arrays"]])]  # fmt: skip
    for key, value in changes:
        file.write_text(json.dumps(whole | {key: value}), "utf-8")
        with pytest.raises(UserError):
            uopc.load_exported(library)
    for damaged in ("", "{", "[]", text.replace('"low": 1', '"low": -9')):
        file.write_text(damaged, "utf-8")
        with pytest.raises(UserError):
            uopc.load_exported(library)
    file.write_text(text, "utf-8")
    library.unlink()  # it is mapped
    library.write_bytes(code[:-1] + b"x")
    with pytest.raises(UserError, match="is not the library"):
        uopc.load_exported(library)
    library.unlink()
    with pytest.raises(UserError, match=r"f\.so"):
        uopc.load_exported(library)
    file.unlink()
    with pytest.raises(UserError, match=r"^\S*f\.json: No such file or directory$"):
        uopc.load_exported(library)


# ---------------------------------------------------------------- arguments of export
@pytest.mark.parametrize(
    ("error", "words", "arguments"),
    [
        (UserError, "unknown kind 'dll'", {"kind": "dll"}),
        (UserError, "unknown target 'z80'", {"target": "z80"}),
        (UserError, "cannot be called 'int'", {"name": "int"}),
        (UserError, "cannot be called '2x'", {"name": "2x"}),
        (UserTypeError, "name must be a string", {"name": 3}),
        (UserTypeError, "examples must be", {"examples": 3}),
        (UserTypeError, "missing 1 argument: 'x'", {"examples": []}),
        (UserTypeError, "vectors", {"vectors": "no"}),
    ],
)
def test_bad_arguments(error, words, arguments, tmp_path):
    with pytest.raises(error, match=words):
        uopc.export(uopc.param("x", (3,)) * 2, tmp_path / "f", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_library_in_use_is_replaced(tmp_path):
    """A process that has it keeps what it has; the next one that loads it gets the new code."""
    x, found = uopc.param("x", (3,)), []
    for factor in (2, 3):
        uopc.export(x * factor, tmp_path / "f", kind="shared")
        found.append(uopc.load_exported(tmp_path / "f.so"))
    assert [f(np.ones(3, "f4"))[0] for f in found] == [2, 3]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.h", "f.json", "f.so"]


def test_bad_paths(tmp_path):
    graph = uopc.param("x", (3,)) * 2
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file" / "f", ""):
        with pytest.raises(UserError):
            uopc.export(graph, path)
    with pytest.raises(UserTypeError):
        uopc.export(graph, 3)


def test_a_program_is_exported_as_its_graph(tmp_path):
    x = uopc.param("x", (3,))
    made = uopc.export(uopc.compile({"y": x + 1}), tmp_path / "f", kind="shared")
    assert uopc.load_exported(made.files[-1])(np.zeros(3, "f4"))["y"].tolist() == [1, 1, 1]
    with pytest.raises(UserTypeError, match="leave inputs out"):
        uopc.export(uopc.compile(x), tmp_path / "f", inputs=["x"])


def test_the_manifest_says_where_a_kernel_comes_from(tmp_path):
    made = uopc.export(uopc.param("from_here", (3,)) * 2, tmp_path / "f")
    ((lines,),) = made.manifest["kernels"].values()
    assert lines.startswith("test_export.py:")


def test_identifiers():
    taken = {"x"}
    got = [identifier(t, taken) for t in ("x", "x", "int", "größe", "3", "", "_a", "a b", "f64x4")]
    assert got == ["x_2", "x_3", "int_", "gr__e", "a3", "a", "a_2", "a_b", "f64x4_"]


# ---------------------------------------------------------------- files
def test_weights_are_never_text(tmp_path):
    """16 MiB of them cost little time."""
    weights = floats(1 << 11, 1 << 11)
    x = uopc.param("x", (1 << 11,))
    made = uopc.export(uopc.constant(weights) @ x, tmp_path / "f", kind="shared")
    assert made.files[-1].read_bytes().count(weights.tobytes()[:4096]) == 1
    f, given = uopc.load_exported(made.files[-1]), floats(1 << 11)
    assert_same(f(given), uopc.compile(uopc.constant(weights) @ x, threads=1)(given))


@needs_c
def test_linkers_take_the_libraries(tmp_path):
    """As they take those of gcc: by name from the `.so`, and from an archive of two."""
    x = uopc.param("x", (3,), dtypes.float64)
    for name, graph in (("double_it", x * 2), ("root", x.sqrt())):
        uopc.export(graph, tmp_path / name)
        uopc.export(graph, tmp_path / f"lib{name}", name=name, kind="shared")
    members = {f"{n}.o": (tmp_path / f"{n}.o").read_bytes() for n in ("double_it", "root")}
    (tmp_path / "libboth.a").write_bytes(archive(members))
    (tmp_path / "main.c").write_text(
        '#include "double_it.h"\n#include "root.h"\n#include <stdio.h>\n'
        "int main(void) { double a[3] = {1, 4, 9}, b[3]; root(a, b, 0); double_it(b, a, 0);"
        ' printf("%g %g %g", a[0], a[1], a[2]); return 0; }\n', "utf-8")  # fmt: skip
    for libraries in (["-lboth"], ["-ldouble_it", "-lroot"]):
        run(CC, "main.c", "-L.", *libraries, "-Wl,-rpath,.", "-o", "main", folder=tmp_path)
        assert run("./main", folder=tmp_path) == "2 4 6"


def test_what_a_library_cannot_hold_is_refused():
    assert shared_library.symbol_hash("printf") == 0x077905A6
    with pytest.raises(uopc.InvalidIR, match="not an ELF object"):
        shared_library.shared(b"MZ", "f.so")


def test_the_code_has_no_data_that_it_writes_and_no_unwind_tables(tmp_path):
    made = uopc.export(network().graph, tmp_path / "f")
    found = elf.read(made.files[-1].read_bytes())
    assert not [s.name for s in found.sections if s.flags & elf.WRITE and s.size]
    assert not [s.name for s in found.sections if s.name.startswith(".eh_frame")]
    assert sorted(s.name for s in found.symbols if s.is_global) == ["f", "f_id", "f_work_bytes"]


# ---------------------------------------------------------------- the command
def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(
        "import uopc\nx = uopc.param('x', (3,))\ngraph = {'y': x * 2}\n"
        "program = uopc.compile(x + 1)\n", "utf-8")  # fmt: skip
    np.savez("one.npz", x=np.ones(3, "f4"))
    arguments = ["export", "model.py", "-o", "out/f", "--kind", "shared", "--test", "one.npz"]
    assert cli.main(arguments) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert rows == ["file", "out/f.h", "out/f_test.c", "out/f.json", "out/f.so"]
    assert uopc.load_exported("out/f.so")(np.ones(3, "f4"))["y"].tolist() == [2, 2, 2]
    assert cli.main(["export", "model.py:program", "-o", "g", "--no-vectors"]) == 0
    assert cli.main(["export", "model.py", "-o", "f", "--test", "model.py"]) == 1
    assert "--test: model.py" in capsys.readouterr().err


def test_kinds_are_listed_once():
    assert list(export.KINDS) == ["c", "object", "static", "shared"]


def test_an_argument_in_another_shape_is_a_result(tmp_path: Path) -> None:
    """A call gives the shape of the graph, and the memory of the argument."""
    n = uopc.variable("n", 1, 9)
    x, y = uopc.param("x", (2, 6)), uopc.param("y", (n, 3))
    graph = [x.assign(x * 2).reshape(12), y.assign(y + 1).reshape(3 * n, 1), x.sum()]
    uopc.export(graph, tmp_path / "f", kind="shared")
    wanted = uopc.compile(graph)(*[np.ones(s, "f4") for s in ((2, 6), (4, 3))])
    given = [np.ones(s, "f4") for s in ((2, 6), (4, 3))]
    got = uopc.load_exported(tmp_path / "f.so")(*given)
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == other.shape and one.tobytes() == other.tobytes()
    assert np.shares_memory(got[0], given[0])
