"""`kernel.c`: gcc takes it without a warning, and a program of it gives the bits of the program."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from tests import machines
from tests.conformance import corpus
from tests.exporting import corpus as export_corpus
from tests.exporting.test_c import vectors
from tests.exporting.test_export import CASES, Case, assert_same, called, floats, narrow_floats
from tests.kinds.test_ptx_opcodes import rounded
from tests.kinds.test_recorded import recorded_sample
from uopc import dtypes
from uopc.backends.c.prelude import Prelude
from uopc.backends.cpu.callables import ProgramBase, make_callable
from uopc.backends.cpu.elf_loader import Image
from uopc.backends.llvm import scratch
from uopc.errors import Unsupported
from uopc.ir.core import storage

GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="there is no gcc")
FLAGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC")
V3 = "x86-64-v3"
needs_v3 = pytest.mark.skipif(not machines.runnable(V3), reason=f"no {V3} here")


def of_words(kernel: Any, number: int) -> str:
    """A function that runs a kernel as machine code is called: with the words of a launch. An
    array is the address in a word, a number the low bytes of one."""
    linear = kernel.uops
    places = sorted(storage.word_places(linear).values())
    places += [scratch.word(linear)] * bool(scratch.offsets(linear)[1])
    head = re.search(rf"^void {kernel.name}\(([^)]*)\)", kernel.c, re.MULTILINE)
    assert head is not None
    declared = [p for p in head[1].split(",") if p != "void"]
    given = [
        f"(void *)words[{place}]" if "*" in p else f"*({p.rpartition(' ')[0]} *)&words[{place}]"
        for p, place in zip(declared, places)
    ]
    given += ["chunk"] * (len(declared) > len(places))
    assert len(given) == len(declared)
    return (
        f"void run{number}(uint64_t *, int64_t);\n"
        f"void run{number}(uint64_t *words, int64_t chunk)\n"
        f"{{\n    (void)words;\n    (void)chunk;\n    {kernel.name}({', '.join(given)});\n}}\n"
    )


def by_gcc(program: Any, folder: Path, *flags: str) -> Any:
    """The program with kernels that gcc compiled."""
    names = []
    for number, kernel in enumerate(program.kernels):
        source = folder / f"{number}.c"
        source.write_text(f"{kernel.c}\n{of_words(kernel, number)}", "utf-8")
        names.append(str(source))
    library = folder / "kernels.so"
    command = [str(GCC), *FLAGS, "-fno-strict-aliasing", *flags, *names, "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    code = ctypes.CDLL(str(library))
    symbols = {
        k.name: ctypes.cast(code[f"run{i}"], ctypes.c_void_p).value or 0
        for i, k in enumerate(program.kernels)
    }
    return make_callable(program._runner.plan, Image(symbols, code), ProgramBase)


def compiled(graph: Any, target: str, **given: Any) -> Any:
    with uopc.options(target_cpu=target):
        return uopc.compile(graph, **given)


def levels() -> Iterator[Any]:
    """Each case for a level of x86-64; those of v3 run by default, and what is another way in C."""
    for target in ("x86-64", V3, "x86-64-v4"):
        for make in (*CASES, vectors):
            is_slow = target != V3 and (make not in (narrow_floats, vectors) or "v4" in target)
            marks = [pytest.mark.skipif(not machines.runnable(target), reason=f"no {target} here")]
            marks += [pytest.mark.slow] * is_slow
            yield pytest.param(make, target, marks=marks, id=f"{make.__name__}-{target}")


@needs_gcc
@pytest.mark.parametrize(("make", "target"), list(levels()))
@pytest.mark.few(3)
def test_the_bits_of_machine_code(make: Any, target: str, tmp_path: Path) -> None:
    case = make()
    program = compiled(case.graph, target, threads=1)
    assert_same(called(by_gcc(program, tmp_path, f"-march={target}"), case), called(program, case))


def tiles() -> Case:
    """A product whose operand is copied to memory for tiles, in parts for threads."""
    x, w = uopc.param("x", (64, 512)), uopc.param("w", (512, 512))
    return Case((x @ (w * 2)).relu(), [floats(64, 512), floats(512, 512)])


def equal_kernels() -> Case:
    """Launches that share a kernel and pass it their constants, and one array twice."""
    x = uopc.param("x", (64,), dtypes.float64)
    rows = [((x * float(k)).sum() + k).contiguous() for k in range(1, 4)]
    y = (x + x.flip(0)).contiguous()
    return Case([*rows, y * y.flip(0)], [floats(64, dtype="f8")])


def odd_names() -> Case:
    """Of arrays and sizes: what C, and the text itself, call something else."""
    names = ["int", "input.1", "größe", "f32x8", "UOPC_FMAF", "r_20", "scratch", "v1", "i"]
    n = uopc.variable("chunk", 1, 50)
    arrays = [uopc.param(name, (n, 20)) for name in names]
    total = arrays[0] * 2
    for x in arrays[1:]:
        total = total * x + n
    return Case(total.sum(axis=1), [floats(3, 20) for _ in names])


@needs_gcc
@needs_v3
@pytest.mark.parametrize("make", [tiles, equal_kernels, odd_names], ids=lambda c: c.__name__)
def test_parts_tiles_and_constants(make: Any, tmp_path: Path) -> None:
    case = make()
    program = compiled(case.graph, V3, threads=2)
    if make is tiles:
        assert re.search(r"unsigned char \*scratch,\s+int64_t chunk\)", program.kernels[0].c)
    if make is equal_kernels:
        assert len(program.kernels) < len(program.launches)
        assert any(", double c" in k.c for k in program.kernels)
    assert_same(called(by_gcc(program, tmp_path, f"-march={V3}"), case), called(program, case))


def halves(n: int) -> dict[str, Any]:
    """Results of float16 of a length."""
    x, y = uopc.param("x", (n,), dtypes.float16), uopc.param("y", (n,), dtypes.float16)
    i, j = uopc.param("i", (n,), dtypes.int8), uopc.param("j", (n,), dtypes.int64)
    z, d = uopc.param("z", (n,)), uopc.param("d", (n,), dtypes.float64)
    return {
        "sum": x + y, "quotient": x / y, "steps": x * y + 3.1 - x, "fused": x.mulacc(y, x),
        "sine": x.sin(), "negative": -x, "size": x.abs(), "most": x.maximum(y),
        "least": x.minimum(0.1), "true": x.cast(dtypes.bool_), "chosen": (x > 0.5).where(x, y),
        "total": x.sum(), "greatest": x.max(), "double": x.cast(dtypes.float64),
        "byte": x.cast(dtypes.int8), "long": x.cast(dtypes.int64), "brain": x.cast(dtypes.bfloat16),
        "from_byte": i.cast(dtypes.float16), "from_long": j.cast(dtypes.float16),
        "from_single": z.cast(dtypes.float16), "from_double": d.cast(dtypes.float16),
        "from_bool": (x < y).cast(dtypes.float16), "flipped": x[::-1] * 2,
    }  # fmt: skip


def narrow(n: int) -> dict[str, Any]:
    """Arguments: numbers of all sizes, and what is no number."""
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519, 65520, 6e-8, 3e-8, 6.1e-5, 1e-40]
    rng = np.random.default_rng(n)
    with np.errstate(over="ignore"):
        z = (rng.normal(size=n) * 10.0 ** rng.integers(-8, 6, n)).astype("f4")
        z[: len(odd)] = odd[:n]
        x = rng.permutation(z).astype("f2")
        x.view("u2")[np.isnan(x)] = 0x7D01  # a signalling one
        return {"x": x, "y": rng.permutation(z).astype("f2"),
                "i": rng.integers(-128, 128, n).astype("i1"), "z": z,
                "j": rng.integers(-99999, 99999, n), "d": z.astype("f8") * 1.0001}  # fmt: skip


LENGTHS = [(7, "-march=x86-64-v2"), (16, "-march=x86-64-v3")]  # no vector, whole vectors
OTHERS = [(n, f"-march=x86-64-{v}") for n in (1, 4, 7, 16, 40) for v in ("v2", "v3")]
OTHERS = [pytest.param(*row, marks=pytest.mark.slow) for row in OTHERS if row not in LENGTHS]


@needs_gcc
@needs_v3
@pytest.mark.parametrize("n, flags", [*LENGTHS, *OTHERS])
def test_floats_of_16_bits(n: int, flags: str, tmp_path: Path) -> None:
    """By the processor's conversions, and spelt out for a compiler that may not use them."""
    graph, given = halves(n), narrow(n)
    program = compiled(graph, V3, threads=1)
    case = Case(graph, [given[p.name] for p in program.inputs])
    assert_same(called(by_gcc(program, tmp_path, flags), case), called(program, case))


CONVERSIONS = r"""
#include <stdint.h>
#include <stdbool.h>
void all(uint32_t *wide, uint16_t *half, const float *x, const uint16_t *rows, int64_t n);
void all(uint32_t *wide, uint16_t *half, const float *x, const uint16_t *rows, int64_t n)
{
    for (uint32_t i = 0; i < 65536u; ++i) {
        union { float number; uint32_t bits; } both;
        both.number = uopc_wide((uint16_t)i);
        wide[i] = both.bits;
    }
    for (int64_t i = 0; i < n; ++i) { half[i] = uopc_half(x[i]); }
    for (int64_t i = 0; i < n / 3; ++i) {
        half[n + i] = uopc_fmah(rows[3 * i], rows[3 * i + 1], rows[3 * i + 2]);
    }
}
"""


@needs_gcc
@pytest.mark.parametrize("flags", ["-march=x86-64", "-march=x86-64-v3"])
def test_conversions_of_all_16_bits(flags: str, tmp_path: Path) -> None:
    """Against NumPy's conversions, and exact products and sums of fractions."""
    if flags.endswith("v3") and not machines.runnable(V3):
        pytest.skip(f"no {V3} here")
    prelude = Prelude()
    prelude.fused_halves(dtypes.float16)
    (tmp_path / "f.c").write_text("#include <stdint.h>\n#include <stdbool.h>\n" + prelude.text()
                                  + CONVERSIONS, "utf-8")  # fmt: skip
    command = [str(GCC), *FLAGS, flags, "-Wno-psabi", "f.c", "-o", "f.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    rng = np.random.default_rng(5)
    every = np.arange(65536, dtype="u2")
    exact = every.view("f2").astype("f4")
    ties = (exact[:31743] + exact[1:31744]) / 2  # between neighbours, the greatest too
    with np.errstate(invalid="ignore"):
        x = np.concatenate([exact, ties, -ties, np.nextafter(ties, np.float32(0)),
                            np.nextafter(ties, np.float32(np.inf)),
                            rng.integers(0, 1 << 32, 99999, dtype="u4").view("f4")])  # fmt: skip
        x = x[: len(x) // 3 * 3]
    rows = rng.integers(0, 65536, (len(x) // 3, 3)).astype("u2")
    rows[::2] = (rng.normal(size=rows[::2].shape) * 2.0 ** rng.integers(-9, 3, rows[::2].shape)
                 ).astype("f2").view("u2")  # fmt: skip
    wide, half = np.zeros(65536, "u4"), np.zeros(len(x) + len(rows), "u2")
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (wide, half, x, rows)]
    ctypes.CDLL(str(tmp_path / "f.so")).all(*pointers, ctypes.c_int64(len(x)))
    nan = np.isnan(exact)
    wanted = every[nan].astype("u4")
    assert (wide[~nan] == exact[~nan].view("u4")).all()
    assert (wide[nan] == ((wanted & 0x8000) << 16 | 0x7FC00000 | (wanted & 0x3FF) << 13)).all()
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        nan, wanted = np.isnan(x), x.astype("f2").view("u2")
    bits = x.view("u4")[nan]
    assert (half[: len(x)][~nan] == wanted[~nan]).all()
    assert (half[: len(x)][nan] == (bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x3FF)).all()
    a, b, c = rows.view("f2").T.astype("f8")
    with np.errstate(all="ignore"):  # longdouble holds any such product and sum but a few
        total = a.astype("g") * b + c
        got = half[len(x) :].view("f2")
        for k in np.flatnonzero(np.isfinite(total))[:3000]:
            exact = Fraction(a[k]) * Fraction(b[k]) + Fraction(c[k])
            assert got[k] == np.float16(rounded(exact, "f16")), rows[k]
        other = ~np.isfinite(total)
        np.testing.assert_array_equal(got[other].astype("f8"), total[other].astype("f8"))


@needs_v3
def test_floats_of_16_bits_that_are_moved_have_code() -> None:
    x = uopc.param("x", (16,), dtypes.float16)
    assert "uint16_t *restrict out" in compiled(x[::-1].contiguous(), V3).kernels[0].c


def test_a_kernel_of_a_gpu_is_refused() -> None:
    kernel = uopc.compile(uopc.param("x", (64,)) * 2, device="cuda:sm_80").kernels[0]
    with pytest.raises(Unsupported, match=f"{kernel.name}: .* GPU"):
        _ = kernel.c


def test_it_reads_as_the_user_wrote_it() -> None:
    scale = uopc.param("scale", (uopc.variable("rows", 1, 9), 1))
    (kernel,) = uopc.compile(uopc.param("x", (1, 5)) * scale, optimize=False).kernels
    assert f"/* {kernel.name}: test_kernel.py:" in kernel.c
    assert "float *restrict out, const float *restrict x, const float *restrict scale" in kernel.c
    assert "for (int64_t i = 0; i < rows; ++i) {" in kernel.c


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("place", recorded_sample(40), ids=lambda p: f"{p.group}-{p.id[:12]}")
def test_recorded_graphs(place: corpus.Place, tmp_path: Path) -> None:
    outputs, inputs, sizes, arrays = export_corpus.recorded(place)
    target = machines.runnable("x86-64", "x86-64-v3")[-1]
    program = compiled(outputs, target)
    given = Case(None, [inputs[a.name] for a in program.inputs], sizes)
    if not program.kernels:
        pytest.skip("its results are its arguments")
    made = by_gcc(program, tmp_path, f"-march={target}")
    results = zip(called(made, given), called(program, given), strict=True)
    valid = [arrays.get(f"valid{k}", True) for k in range(len(program.outputs))]
    for (got, wanted), known in zip(results, valid, strict=True):  # others are undefined
        nothing = np.zeros((), wanted.dtype)
        assert_same(np.where(known, got, nothing), np.where(known, wanted, nothing))
