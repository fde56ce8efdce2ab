"""Code for other processors: run by qemu where it is installed, bits equal to this machine's."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from tests.exporting.corpus import GOOD
from tests.exporting.test_c import named
from tests.exporting.test_export import CASES, network, run, streamed
from uopc.backends import elf
from uopc.errors import Unsupported
from uopc.exporting import shared_library

KINDS = {
    "static": ("f_test.c", "f.a", "-static"),
    "shared": ("f_test.c", "f.so", "-Wl,-rpath,$ORIGIN"),
    "c": ("f_test.c", "f.c", "-static"),
}
MACHINES = {"aarch64": 183, "riscv64": 243}  # numbers of ELF
each_target = pytest.mark.parametrize("target", MACHINES)


def tools(target: str) -> tuple[str, str]:
    """The compiler and the emulator. The test is skipped where one is missing, or the C library."""
    compiler, emulator = f"{target}-linux-gnu-gcc", f"qemu-{target}"
    if shutil.which(compiler) is None or shutil.which(emulator) is None:
        pytest.skip(f"{compiler} or {emulator} is not installed")
    if not Path(f"/usr/{target}-linux-gnu/include/stdio.h").exists():
        pytest.skip(f"{compiler} has no C library: libc6-dev-*-cross")
    return compiler, emulator


@each_target
@pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
@pytest.mark.few(2)
def test_the_bits_of_this_machine(make: Any, target: str, tmp_path: Path) -> None:
    compiler, emulator = tools(target)
    case = make()
    for kind, files in KINDS.items():
        uopc.export(case.graph, tmp_path / "f", kind=kind, target=target, examples=named(case))
        run(compiler, "-std=c11", "-O1", *files, "-o", "test", folder=tmp_path)
        made = run(emulator, "-L", f"/usr/{target}-linux-gnu", "./test", folder=tmp_path)
        assert GOOD in made


@pytest.mark.parametrize("signs", ["uint8 int8", "int8 int8", "uint8 uint8"])
@pytest.mark.parametrize("level", ["i8mm", "dotprod"])
@pytest.mark.few(3)
def test_dot_products_of_bytes_on_arm(level: str, signs: str, tmp_path: Path) -> None:
    """Of matrices, and along rows; the greatest products among them."""
    compiler, emulator = tools("aarch64")
    random = np.random.default_rng(21)
    types = signs.split()
    arrays = {
        name: random.choice([np.iinfo(t).min, np.iinfo(t).max, 3], dims).astype(t)
        for name, t, dims in zip("ab", types, ((13, 70), (70, 21)))
    }
    a, b = [uopc.param(n, v.shape, v.dtype).cast("int32") for n, v in arrays.items()]
    graph = a @ b, a @ b[:, 0]
    with uopc.options(dot_products=True):
        uopc.export(graph, tmp_path / "f", target=f"aarch64-{level}", examples=arrays)
    run(compiler, "-std=c11", "-O1", *KINDS["static"][:1], "f.o", "-static", "-o", "test",
        folder=tmp_path)  # fmt: skip
    made = run(emulator, "-cpu", "max", "./test", folder=tmp_path)
    assert GOOD in made


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_floats_become_integers_on_arm(name: str, tmp_path: Path) -> None:
    """All kinds of NaN are 0, and numbers that no integer holds the nearest that one does."""
    compiler, emulator = tools("aarch64")
    words = np.random.default_rng(3).bytes(8 * 512)
    signalling = {"float16": 0x7C01, "float32": 0x7F800001, "float64": 0x7FF0000000000001}[name]
    edges = [0.0, -0.0, np.nan, np.inf, -np.inf, -0.5, 127.5, 255.0, 256.0, -129.0, 65535.0]
    edges += [] if name == "float16" else [2.0**31, 2.0**32, -(2.0**31), 2.0**63, 2.0**64]
    bits = np.array([signalling], f"u{np.dtype(name).itemsize}").view(name)
    with np.errstate(over="ignore"):
        x = np.concatenate([np.frombuffer(words, name), np.array(edges, name), bits, bits])
    a = uopc.param("x", x.shape, x.dtype)
    integers = [f"{sign}int{n}" for sign in ("", "u") for n in (8, 16, 32, 64)]
    graph = [a.cast(t) for t in integers] + [a[-1:].cast(t) for t in integers]
    uopc.export(graph, tmp_path / "f", target="aarch64", examples={"x": x})
    run(compiler, "-std=c11", "-O1", *KINDS["static"][:1], "f.o", "-static", "-o", "test",
        folder=tmp_path)  # fmt: skip
    assert GOOD in run(emulator, "./test", folder=tmp_path)


OBJDUMP = "aarch64-linux-gnu-objdump"


@pytest.mark.skipif(shutil.which(OBJDUMP) is None, reason=f"{OBJDUMP} is not installed")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("sizes", [(512, 512, 512), (211, 307, 401), (5000, 64, 48)])
@pytest.mark.few(3)
def test_tiles_stay_in_the_registers_of_arm(
    dtype: str, sizes: tuple[int, int, int], tmp_path: Path
) -> None:
    """LLVM loads the elements of all rows of a tile before it multiplies: they take registers."""
    n, m, k = sizes
    graph = uopc.param("a", (n, m), dtype) @ uopc.param("b", (m, k), dtype)
    made = uopc.export(graph, tmp_path / "f", target="aarch64")
    loop = inner_loop(run(OBJDUMP, "-d", "--no-show-raw-insn", made.files[-1].name,
                          folder=tmp_path))  # fmt: skip
    assert sum("fmla" in line for line in loop) >= 12
    moved = [line for line in loop if line.startswith(("mov\tv", "str", "stp", "stur"))]
    assert moved == []


def inner_loop(listing: str) -> list[str]:
    """The instructions of the innermost loop with the most multiply-adds."""
    found = re.findall(r"^ +([0-9a-f]+):\t(\S+\s*.*)$", listing, re.M)
    at = {place: i for i, (place, _) in enumerate(found)}
    loops = []
    for i, (_, text) in enumerate(found):
        jump = re.match(r"(?:b\.\w+|cbnz|tbnz|b)\s.*?\b([0-9a-f]+) <", text)
        if jump and at.get(jump[1], i) < i:
            loops.append((at[jump[1]], i))
    inner = [(a, b) for a, b in loops if not any(a < c < b for c, _ in loops)]
    texts = [[text for _, text in found[a:b]] for a, b in inner]
    return max(texts, key=lambda loop: sum("fmla" in line for line in loop))


@each_target
@pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
@pytest.mark.few(7)
def test_objects_need_no_other_file(make: Any, target: str, tmp_path: Path) -> None:
    made = uopc.export(make().graph, tmp_path / "f", target=target)
    found = elf.read(made.files[-1].read_bytes())
    assert (found.machine, found.undefined) == (MACHINES[target], [])
    assert made.manifest["target"]["triple"] == f"{target}-unknown-linux-gnu"


@each_target
def test_stores_past_the_caches_have_no_fence_of_another_processor(
    target: str, tmp_path: Path
) -> None:
    """LLVM would end the process."""
    made = uopc.export(streamed().graph, tmp_path / "f", target=target)
    assert elf.read(made.files[-1].read_bytes()).undefined == []


# Another compiler's code: calls, and a table read and copied by distances in parts.
CALLS = """
static const long table[8] __attribute__((aligned(64))) = {3, 1, 4, 1, 5, 9, 2, 6};
const char own_id[4] = "abc";
static __attribute__((noinline)) long sum(const long *x)
{
    return x[0] * table[0] + x[1] * table[1] + x[2] * table[2] + x[3] * table[3];
}
long weighted(const long *x, long n) { return sum(x) + table[n]; }
"""
LOADS = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(void)
{
    void *library = dlopen("./f.so", RTLD_NOW);
    if (library == NULL) { puts(dlerror()); return 1; }
    long (*weighted)(const long *, long) = (long (*)(const long *, long))dlsym(library, "weighted");
    const char *id = dlsym(library, "own_id");
    const long x[4] = {10, 20, 30, 40};
    printf("%ld %s\n", weighted(x, 4), id);
    return 0;
}
"""


@pytest.mark.parametrize("target, flags", [("aarch64", ()), ("riscv64", ("-mno-relax",))])
def test_a_library_of_an_object_that_another_compiler_made(
    target: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    compiler, emulator = tools(target)
    (tmp_path / "f.c").write_text(CALLS, "utf-8")
    (tmp_path / "main.c").write_text(LOADS, "utf-8")
    hidden = ("-O1", "-fPIC", "-fno-asynchronous-unwind-tables")
    run(compiler, *hidden, *flags, "-c", "f.c", "-o", "f.o", folder=tmp_path)
    made = shared_library.shared((tmp_path / "f.o").read_bytes(), "f.so")
    (tmp_path / "f.so").write_bytes(made)
    run(compiler, "main.c", "-o", "main", "-ldl", folder=tmp_path)
    said = run(emulator, "-L", f"/usr/{target}-linux-gnu", "./main", folder=tmp_path)
    assert said == f"{10 * 3 + 20 + 30 * 4 + 40 + 5} abc\n"


def test_what_no_library_is_made_for(tmp_path: Path) -> None:
    made = uopc.export(network().graph, tmp_path / "f", target="cortex-m7")
    with pytest.raises(Unsupported, match="shared libraries are not supported for this machine"):
        shared_library.shared(made.files[-1].read_bytes(), "f.so")


def test_a_library_of_another_machine_is_not_loaded(tmp_path: Path) -> None:
    uopc.export(network().graph, tmp_path / "f", kind="shared", target="aarch64")
    with pytest.raises(uopc.errors.UserError, match=r"f\.so: the code is for aarch64"):
        uopc.load_exported(tmp_path / "f.so")
    module = uopc.export(network().graph, tmp_path / "g", kind="shared", target="wasm32")
    with pytest.raises(uopc.errors.UserError, match=r"g\.wasm: the code is for wasm32"):
        uopc.load_exported(module.files[-1])
