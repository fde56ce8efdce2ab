"""Graphs as C11: no warning, no undefined behaviour, no library, and the bits of machine code."""

from __future__ import annotations

import ctypes
import math
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from tests import ROOT, machines
from tests.conformance import corpus
from tests.exporting import corpus as export_corpus
from tests.exporting import misra
from tests.exporting.corpus import WARNINGS, sanitized
from tests.exporting.test_export import CASES, RNG, Case, elementwise, flat, floats, program, run
from tests.kinds.test_recorded import recorded_sample
from uopc import dtypes
from uopc.cli import main as cli
from uopc.errors import Unsupported, UserError

GCC, CLANG = shutil.which("gcc"), shutil.which("clang")
CC = GCC or CLANG
pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")
INTEGERS = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.uint32,
            dtypes.int64, dtypes.uint64)  # fmt: skip
each_case = pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
SCALES = (1.0, 1e-3, 1e8, 1e-80, 1e150, 1e-160)  # some products are less than any float


def named(case: Case) -> dict[str, Any]:
    return dict(zip([p.name for p in program(case).inputs], case.arrays)) | case.sizes


def checked(folder: Path, *flags: str, cc: str | None = CC) -> None:
    """Compile f.c with all warnings and f_test.c, and run the test. No library is needed."""
    wrong = export_corpus.compiled_and_run(folder, str(cc), *flags)
    assert not wrong, wrong


def runs(target: str) -> bool:
    """True if this machine runs code for a level of x86-64."""
    return bool(machines.runnable(target))


def has_fma() -> bool:
    return runs("x86-64-v3")


LEVELS = [pytest.param(t, marks=pytest.mark.skipif(not runs(t), reason=f"no {t} here"))
          for t in ("x86-64", "x86-64-v3", "x86-64-v4")]  # fmt: skip
each_level = pytest.mark.parametrize("target", LEVELS)


@each_case
@pytest.mark.few(2)
def test_the_bits_of_machine_code(make: Any, tmp_path: Path) -> None:
    """The test has the bits that LLVM's code of the same kernels gives in this process."""
    case = make()
    uopc.export(case.graph, tmp_path / "f", kind="c", examples=named(case))
    checked(tmp_path, *sanitized(str(CC)))
    checked(tmp_path, "-O2")
    symbols = run("nm", "-u", "f.o", folder=tmp_path).split()
    assert set(symbols) <= {"U", "memset", "memcpy", "memmove"}


@pytest.mark.slow
@each_level
@pytest.mark.parametrize("vectors", [True, False])
@each_case
def test_for_levels_of_the_machine(make: Any, vectors: bool, target: str, tmp_path: Path) -> None:
    case = make()
    uopc.export(case.graph, tmp_path / "f", kind="c", target=target, vectors=vectors,
                examples=named(case))  # fmt: skip
    text = (tmp_path / "f.c").read_text("utf-8")
    # An instruction for float16 takes a vector, where the compiler says that it has it.
    text = re.sub(r"#if defined\(__F16C__\) && defined\(__GNUC__\).*?#elif", "", text, flags=re.S)
    assert ("vector_size" in text) <= vectors
    checked(tmp_path, "-O2", f"-march={target}")


def test_vectors(tmp_path: Path) -> None:
    """Of all types: masks, conversions, parts of arrays, sums."""
    case = vectors()
    target = "x86-64-v3" if has_fma() else "x86-64"
    uopc.export(case.graph, tmp_path / "f", kind="c", target=target, examples=named(case))
    assert "vector_size" in (tmp_path / "f.c").read_text("utf-8")
    checked(tmp_path, "-O1", f"-march={target}")


@pytest.mark.skipif(not has_fma(), reason="this machine has no FMA")
@pytest.mark.parametrize("t", [dtypes.float16, dtypes.float32], ids=lambda t: t.name)
def test_parts_of_vectors_of_several_lengths(t: Any, tmp_path: Path) -> None:
    """A function for five lanes of eight is none for six of them."""
    graph, arrays = {}, {}
    for n in (37, 38):
        x, y = (uopc.param(f"{name}{n}", (n,), t) for name in "xy")
        graph |= {f"most{n}": x.maximum(y), f"least{n}": x.minimum(y), f"root{n}": abs(x).sqrt(),
                  f"fused{n}": x.mulacc(y, x), f"whole{n}": x.cast(dtypes.int16),
                  f"less{n}": x < y, f"exp{n}": x.exp(), f"most_of{n}": x.max()}  # fmt: skip
        arrays |= {f"{name}{n}": floats(n, dtype="f4").astype(t.numpy) for name in "xy"}
    uopc.export(graph, tmp_path / "f", kind="c", target="x86-64-v3", examples=arrays)
    checked(tmp_path, "-march=x86-64-v3")


@pytest.mark.slow
@pytest.mark.parametrize("cc", [cc for cc in (GCC, CLANG) if cc])
@each_level
def test_vectors_under_sanitizers(target: str, cc: str, tmp_path: Path) -> None:
    flags = sanitized(cc)
    if not flags:
        pytest.skip(f"{cc} has no sanitizers")
    case = vectors()
    uopc.export(case.graph, tmp_path / "f", kind="c", target=target, examples=named(case))
    checked(tmp_path, *flags, f"-march={target}", cc=cc)
    checked(tmp_path, "-O2", f"-march={target}", cc=cc)


@pytest.mark.slow
@pytest.mark.skipif(not has_fma(), reason="this machine has no FMA")
def test_vectors_without_the_flags_of_the_target(tmp_path: Path) -> None:
    """Each lane is computed alone where the compiler may not use an instruction."""
    case = vectors()
    uopc.export(case.graph, tmp_path / "f", kind="c", target="x86-64-v3", examples=named(case))
    checked(tmp_path, "-O1")


@pytest.mark.parametrize("cc", [cc for cc in (GCC, CLANG) if cc])
def test_vectors_of_512_bits_have_no_warnings(cc: str, tmp_path: Path) -> None:
    """Their instructions take a mask of all lanes, whose sign differs between compilers."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("these compilers make code for another processor")
    given = [uopc.param("x", (64,)), uopc.param("y", (64,), dtypes.float64)]
    graph = [f for x in given for f in (x.exp(), x.sqrt(), x.floor(), x.maximum(0))]
    uopc.export(graph, tmp_path / "f", kind="c", target="x86-64-v4")
    assert "_mask(" in (tmp_path / "f.c").read_text("utf-8")
    run(cc, *WARNINGS, "-march=x86-64-v4", "-c", "f.c", folder=tmp_path)


def vectors() -> Case:
    """Operations on vectors: arithmetic, masks, conversions, parts of arrays, sums."""
    x, y = (uopc.param(n, (3, 37), dtypes.float32) for n in "xy")
    d = uopc.param("d", (37,), dtypes.float64)
    i, b = uopc.param("i", (5, 19), dtypes.int32), uopc.param("b", (5, 19), dtypes.uint8)
    p = uopc.param("p", (70,), dtypes.bool_)
    results = [
        x.maximum(y).minimum(1.5), (x > y).where(x.sqrt(), y.abs()), x.floor() + y.round(),
        d.trunc() / d.ceil(), x.cast(dtypes.int32), d.cast(dtypes.int64), y.cast(dtypes.int8),
        d.cast(dtypes.uint64), d.cast(dtypes.float32).exp(), x.sum(axis=1), d.max(), y.exp(),
        i * 3 - (i >> 2), i.cast(dtypes.float64), b.cast(dtypes.float32), b + b, abs(-i), d.sin(),
        i // 7, i.maximum(5), (i << 3) ^ i, ~p, p & p[::-1], p.cast(dtypes.float32).sum(), p.any(),
        p.cast(dtypes.int32), p.all(), x.pad(((0, 0), (2, 3))) * 2, y.transpose() + 1, i.argmax(),
        (i.eq(b.cast(dtypes.int32)) | (i > 3)).sum(axis=1),
    ]  # fmt: skip
    numbers = [np.inf, -np.inf, np.nan, 0.0, -0.0, 300.0, -1e30, 1e-45, 2.5, -2.5, 3e9]
    arrays = [floats(3, 37), floats(3, 37), floats(37, dtype="f8") * 1e3]
    for array in arrays:
        array.reshape(-1)[: len(numbers)] = np.array(numbers).astype(array.dtype)
    arrays += [RNG.integers(-9, 9, (5, 19)).astype(t) for t in ("i4", "u1")]
    arrays.append(RNG.integers(0, 2, 70).astype("?"))
    return Case(results, arrays)


@pytest.mark.skipif(CLANG is None, reason="there is no clang")
@each_case
@pytest.mark.few(3)
def test_clang(make: Any, tmp_path: Path) -> None:
    case = make()
    uopc.export(case.graph, tmp_path / "f", kind="c", examples=named(case))
    checked(tmp_path, "-O2", cc=CLANG)


@pytest.mark.parametrize("place", recorded_sample(400), ids=lambda p: f"{p.group}-{p.id[:12]}")
@pytest.mark.few(3)
def test_recorded_graphs(place: corpus.Place, tmp_path: Path) -> None:
    if why := export_corpus.exported(place, tmp_path, target="c11"):
        pytest.skip(why)
    checked(tmp_path, *sanitized(str(CC)))


@pytest.mark.slow
@pytest.mark.skipif(not has_fma(), reason="this machine has no FMA")
def test_recorded_graphs_with_vectors(capsys: Any) -> None:
    """One of 100; `python -m tests.exporting.corpus` checks all of them."""
    assert export_corpus.main(["--every", "100", "--cc", str(CC)]) == 0, capsys.readouterr().out


def test_products_and_sums_round_once_without_the_instruction(tmp_path: Path) -> None:
    """The software version against fractions, by way of `mulacc`: sizes far apart, sums that
    cancel, infinities and NaN."""
    n = 4000
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(n) * rng.choice(SCALES, n) for _ in "ab")
    with np.errstate(all="ignore"):
        c = -(a * b) * rng.choice([1, 1 + 2.0**-50, 0, 2.0**60, 2.0**-60], n)
    for i, special in enumerate((np.inf, -np.inf, np.nan, 0.0, -0.0, 5e-324, 1.7e308)):
        for array in (a, b, c):
            array[rng.integers(0, n, 20)] = special
        a[i], b[i], c[i] = special, 1.0, -special
    for t, arrays in ((dtypes.float64, [a, b, c]), (dtypes.float32, [
            np.clip(v, -1e30, 1e30).astype("f4") for v in (a, b, c)])):  # fmt: skip
        x, y, z = [uopc.param(name, (n,), t) for name in "xyz"]
        folder = tmp_path / t.name
        uopc.export(x.mulacc(y, z), folder / "f", kind="c", examples=arrays)
        assert "UOPC_FMA" in (folder / "f.c").read_text("utf-8")
        checked(folder, *sanitized(str(CC)))


@pytest.mark.parametrize("t", INTEGERS)
@pytest.mark.few(3)
def test_integers_at_their_limits(t: Any, tmp_path: Path) -> None:
    low, high = np.iinfo(t.numpy).min, np.iinfo(t.numpy).max
    values = [low, low + 1, high, high - 1, 0, 1, high // 2, 7, 3, 2]
    a, b = (np.array(v, t.numpy) for v in zip(*[(x, y) for x in values for y in values]))
    x, y = (uopc.param(name, a.shape, t) for name in "xy")
    results = [x + y, x - y, x * y, -x, abs(x), x // y, x % y, x.maximum(y), x.minimum(y), x & y,
               x | y, x ^ y, x << (y & 7), x >> (y & 7), x < y, x <= y, x.eq(y), x.ne(y),
               x.mulacc(y, x), x.cast(dtypes.float32), x.cast(dtypes.float64), x.cast(dtypes.int8),
               x.cast(dtypes.uint64), (x > y).where(x, y), x.cast(dtypes.bool_)]  # fmt: skip
    uopc.export(results, tmp_path / "f", kind="c", examples=[a, b])
    checked(tmp_path, *sanitized(str(CC)))


@pytest.mark.parametrize("t", [dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.float32,
                               dtypes.float64])  # fmt: skip
@pytest.mark.few(2)
def test_floats_at_their_limits(t: Any, tmp_path: Path) -> None:
    values = [0.0, -0.0, 1.0, -1.5, 2.5, np.inf, -np.inf, np.nan, 300.0, -1e-3, 448.0, 0.49999]
    a, b = (np.array(v).astype(t.numpy) for v in zip(*[(x, y) for x in values for y in values]))
    x, y = (uopc.param(name, a.shape, t) for name in "xy")
    kinds = (dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64,
             dtypes.float16, dtypes.float32, dtypes.float64, dtypes.bool_)  # fmt: skip
    results = [x + y, x - y, x * y, x / y, -x, abs(x), x.maximum(y), x.minimum(y), x.maximum(0.0),
               x.minimum(-0.0), x.floor(), x.ceil(), x.trunc(), x.round(), abs(x).sqrt(), x < y,
               x.ne(y), x.exp(), x.sin(), x.tanh(), x // y, x % y,
               *[x.cast(k) for k in kinds]]  # fmt: skip
    uopc.export(results, tmp_path / "f", kind="c", examples=[a, b])
    checked(tmp_path, *sanitized(str(CC)))


def test_the_text_has_the_users_names_and_lines(tmp_path: Path) -> None:
    n = uopc.variable("rows", 1, 83)
    speed, time = (uopc.param(name, (n,), dtypes.float64) for name in ("speed", "time"))
    uopc.export({"way": speed * time}, tmp_path / "f", kind="c", target="x86-64-v3", vectors=False)
    text = (tmp_path / "f.c").read_text("utf-8")
    assert re.search(r"/\* f_E_83: test_c\.py:\d+", text)
    assert "for (int64_t i = 0; i < rows; ++i) {" in text
    assert "way[i] = speed[i] * time[i];" in text
    assert "if (rows < 1 || rows > 83) {" in text
    assert max(map(len, text.splitlines())) <= 100


def test_names_that_generated_code_uses(tmp_path: Path) -> None:
    names = ("v1", "i", "j", "chunk", "scratch", "arena", "work", "sin", "fmaf", "p0", "f", "bool")
    xs = [uopc.param(name, (4, 5), dtypes.float64) for name in names]
    y = sum(x * k for k, x in enumerate(xs))
    uopc.export({"v2": y.softmax(axis=0), "k": xs[0].sin().sum()}, tmp_path / "f", kind="c",
                examples=[floats(4, 5, dtype="f8") for _ in names])  # fmt: skip
    checked(tmp_path, "-O1")


def test_c_and_machine_code_without_vectors_are_one(tmp_path: Path) -> None:
    """The object for machines without FMA spells products and sums out; C has a function."""
    case = elementwise()
    uopc.export(case.graph, tmp_path / "f", kind="c", examples=named(case))
    uopc.export(case.graph, tmp_path / "g", kind="shared", target="x86-64-v2", vectors=False)
    run(CC, "-std=c11", "-O2", "-shared", "-fPIC", "f.c", "-o", "f.so", folder=tmp_path)
    got = np.empty((5, 7))
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*case.arrays, got)]
    assert ctypes.CDLL(str(tmp_path / "f.so")).f(*pointers, None) == 0
    wanted = uopc.load_exported(tmp_path / "g.so")(*case.arrays)
    assert got.tobytes() == flat(wanted)[0].tobytes()


@pytest.mark.parametrize("t", [dtypes.float32, dtypes.float64])
def test_functions_of_the_c_library(t: Any, tmp_path: Path) -> None:
    """NumPy and `math` are the oracle: all functions are near theirs, and far fewer lines."""
    x = uopc.param("x", (50,), t)
    names = ("exp", "exp2", "log", "log2", "sin", "cos", "tan", "tanh", "erf")
    graph = {name: getattr(x, name)() for name in names} | {"pow": x**x}
    uopc.export(graph, tmp_path / "f", kind="c", math="libm")
    uopc.export(graph, tmp_path / "g", kind="c")
    long, short = ((tmp_path / f"{n}.c").read_text("utf-8").count("\n") for n in "gf")
    assert short < long / 3
    run(CC, *WARNINGS, "-O2", "-shared", "-fPIC", "f.c", "-lm", "-o", "f.so", folder=tmp_path)
    array = np.linspace(0.1, 7, 50).astype(t.numpy)
    results = [np.empty_like(array) for _ in graph]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (array, *results)]
    assert ctypes.CDLL(str(tmp_path / "f.so")).f(*pointers, None) == 0
    wanted = [getattr(np, name)(array) for name in names[:-1]]
    wanted += [np.vectorize(math.erf)(array), array**array]
    for got, want in zip(results, wanted):
        np.testing.assert_allclose(got, want, rtol=4 * np.finfo(t.numpy).eps)


def test_functions_of_the_c_library_are_for_c(tmp_path: Path) -> None:
    x = uopc.param("x", (3,))
    for options in ({}, {"kind": "c", "examples": [floats(3)]}):
        with pytest.raises(Unsupported, match="math='libm' needs kind='c'"):
            uopc.export(x.sin(), tmp_path / "f", math="libm", **options)
    with pytest.raises(UserError, match="unknown math 'fast'; choose own, libm"):
        uopc.export(x.sin(), tmp_path / "f", math="fast")


def test_wrong_flags_do_not_compile(tmp_path: Path) -> None:
    uopc.export(uopc.param("x", (3,)) * 2, tmp_path / "f", kind="c")
    command = [str(CC), "-std=c11", "-ffast-math", "-c", "f.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode and "without -ffast-math" in done.stderr


def test_refusals(tmp_path: Path) -> None:
    x = uopc.param("x", (3,))
    with pytest.raises(UserError, match="c11 has no vectors: choose another target"):
        uopc.export(x, tmp_path / "f", kind="c", vectors=True)
    with pytest.raises(UserError, match="target='c11' needs kind='c'"):
        uopc.export(x, tmp_path / "f", target="c11")


def test_command(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text('import uopc\ngraph = uopc.param("x", (3,)) * 2\n', "utf-8")
    np.savez("one.npz", x=floats(3))
    assert cli.main(["export", "model.py", "-o", "f", "--kind", "c", "--test", "one.npz"]) == 0
    assert "f.c" in capsys.readouterr().out
    checked(tmp_path)


def test_names_of_the_users_are_none_of_the_entry(tmp_path):
    shapes = {"arena": (200,), "chunk": (5, 200), "_run1": (200,), "scratch": (200,), "i": (200,)}
    x = {name: uopc.param(name, shape, dtypes.float64) for name, shape in shapes.items()}
    first = x["arena"] + x["_run1"] * x["scratch"] - x["i"]
    last, rows = uopc.scan(lambda c, v: ((c + v).sort(), c.sum()), first, x["chunk"])
    examples = {name: floats(*shape, dtype="f8") for name, shape in shapes.items()}
    graph = [last, rows, x["arena"] @ x["chunk"].transpose()]
    uopc.export(graph, tmp_path / "f", kind="c", examples=examples)
    checked(tmp_path)


# ---------------------------------------------------------------- goldens
def _decay() -> Any:
    x, rate = uopc.param("x", (2,), dtypes.float64), uopc.param("rate", (), dtypes.float64)
    return {"last": uopc.fori_loop(0, 50, lambda i, v: v - rate * v, x)}


def _dot() -> Any:
    n, k = uopc.variable("n", 1, 60), uopc.variable("k", 1, 40)
    return {"y": uopc.param("a", (n, k)) @ uopc.param("b", (k,))}


def _picked() -> Any:
    table, at = uopc.param("table", (100,)), uopc.param("at", (20,), dtypes.int32)
    return {"picked": table[at]}


def _mean() -> Any:
    pixels = uopc.param("pixels", (8, 3), dtypes.uint8)
    return {"grey": (pixels.cast(dtypes.int32).sum(axis=1) // 3).cast(dtypes.uint8)}


def _clipped() -> Any:
    a, x = uopc.param("a", (), dtypes.float64), uopc.param("x", (9,), dtypes.float64)
    return {"y": (a * x + 1).maximum(0.0).minimum(a)}


def _scaled() -> Any:
    x, y = uopc.param("x", (32,)), uopc.param("y", (32,))
    return {"z": (x > y).where(x * 3 + y, 0.0)}


def _longest() -> Any:
    x = uopc.param("x", (64,), dtypes.float64)
    return {"longest": x.abs().max()}


GOLDENS = {"decay": _decay, "dot": _dot, "picked": _picked, "mean": _mean, "clipped": _clipped,
           "scaled": _scaled, "longest": _longest}  # fmt: skip
WITH_VECTORS = ("scaled", "longest")


@pytest.mark.parametrize("name", GOLDENS)
def test_golden_kernels(name: str, tmp_path: Path, blessed: Any) -> None:
    """The kernels as people read them; `--bless` writes them."""
    graph = GOLDENS[name]()
    plain = name not in WITH_VECTORS
    uopc.export(graph, tmp_path / name, kind="c", target="x86-64-v3", optimize=not plain,
                vectors=not plain)  # fmt: skip
    text = (tmp_path / f"{name}.c").read_text("utf-8")
    kernels = text[text.index(f"/* {name}_") : text.index("const char ")]
    made = re.sub(r"(/\* \w+): [^*]* \*/", r"\1: the user's lines */", kernels)
    assert made.count("\n") <= 40
    path = Path(__file__).parent / "golden_c" / f"{name}.c"
    blessed.check(path, path.read_text("utf-8"), made)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cppcheck") is None, reason="cppcheck is not installed")
def test_each_rule_of_misra_that_is_broken_has_a_reason(tmp_path):
    """And the page of the lab names it."""
    _, counts = misra.found(tmp_path)
    known = misra.REASONS | misra.OTHERS
    assert len(counts) > 5 and not [rule for rule in counts if rule not in known]
    page = (ROOT / "docs" / "lab" / "misra.md").read_text("utf-8")
    assert not [rule for rule in counts if f"| {rule} |" not in page and f"`{rule}`" not in page]
