"""`kernel.c`: gcc takes it without a warning, and a program of it gives the bits of the program."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from tests import export_corpus, machines
from tests.conformance import corpus
from tests.test_export import CASES, Case, assert_same, called, floats, narrow_floats
from tests.test_export_c import vectors
from tests.test_recorded import recorded_sample
from uopc import dtypes
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
            if make is narrow_floats and target != "x86-64":
                continue  # by an instruction: see IN_HARDWARE
            is_slow = target != V3 and (make not in (narrow_floats, vectors) or "v4" in target)
            marks = [pytest.mark.skipif(not machines.runnable(target), reason=f"no {target} here")]
            marks += [pytest.mark.slow] * is_slow
            yield pytest.param(make, target, marks=marks, id=f"{make.__name__}-{target}")


@needs_gcc
@pytest.mark.parametrize(("make", "target"), list(levels()))
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


X, WHOLE = uopc.param("x", (16,), dtypes.float16), uopc.param("i", (16,), dtypes.int8)
IN_HARDWARE = (X * 2, X.cast(dtypes.float32), X < 0, X.cast(dtypes.bool_), X.sum(), X.maximum(0),
               WHOLE.cast(dtypes.float16), X[:3].cast(dtypes.int8))  # fmt: skip


@needs_v3
@pytest.mark.parametrize("graph", IN_HARDWARE, ids=range(len(IN_HARDWARE)))
def test_floats_of_16_bits_in_hardware_are_refused(graph: Any) -> None:
    kernel = compiled(graph, V3).kernels[0]
    with pytest.raises(Unsupported, match=f"{kernel.name}: c: .* C11 has no floats of less"):
        _ = kernel.c


@needs_v3
def test_floats_of_16_bits_that_are_moved_have_code() -> None:
    assert "uint16_t *restrict out" in compiled(X[::-1].contiguous(), V3).kernels[0].c


def test_a_kernel_of_a_gpu_is_refused() -> None:
    kernel = uopc.compile(uopc.param("x", (64,)) * 2, device="cuda:sm_80").kernels[0]
    with pytest.raises(Unsupported, match=f"{kernel.name}: .* GPU"):
        _ = kernel.c


def test_it_reads_as_the_user_wrote_it() -> None:
    scale = uopc.param("scale", (uopc.variable("rows", 1, 9), 1))
    (kernel,) = uopc.compile(uopc.param("x", (1, 5)) * scale, optimize=False).kernels
    assert f"/* {kernel.name}: test_kernel_c.py:" in kernel.c
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
    try:
        made = by_gcc(program, tmp_path, f"-march={target}")
    except Unsupported as error:
        pytest.skip(str(error))
    results = zip(called(made, given), called(program, given), strict=True)
    valid = [arrays.get(f"valid{k}", True) for k in range(len(program.outputs))]
    for (got, wanted), known in zip(results, valid, strict=True):  # others are undefined
        nothing = np.zeros((), wanted.dtype)
        assert_same(np.where(known, got, nothing), np.where(known, wanted, nothing))
