"""Code for Cortex-M: what it needs, and runs on bare machines of qemu with the bits of this one."""

from __future__ import annotations

import contextlib
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
from tests.exporting.corpus import GOOD
from tests.exporting.test_c import named
from tests.exporting.test_export import CASES, Case, floats, run, symbolic
from tests.exporting.test_options import packed
from uopc import dtypes
from uopc.backends import elf
from uopc.errors import Unsupported
from uopc.exporting import machines, square_root

BARE = Path(__file__).parent / "bare"
GCC, QEMU = "arm-none-eabi-gcc", "qemu-system-arm"
# The board of qemu, gcc's flags, and the floats that the processor computes itself.
CORTEX: dict[str, tuple[str, tuple[str, ...], tuple[Any, ...]]] = {
    "cortex-m3": ("mps2-an385", ("-mcpu=cortex-m3",), ()),
    "cortex-m4f": ("mps2-an386", ("-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
                   (dtypes.float32,)),
    "cortex-m7": ("mps2-an500", ("-mcpu=cortex-m7", "-mfloat-abi=hard", "-mfpu=fpv5-d16"),
                  (dtypes.float32, dtypes.float64)),
}  # fmt: skip
each_processor = pytest.mark.parametrize("target", CORTEX)
MOST_STACK = 3 << 10  # of a kernel's own memory, 1 KiB, and what the test and calls need


def roots() -> Case:
    """Square roots, rounding, and products and sums that round once, of both floats."""
    x, y = uopc.param("x", (50,), dtypes.float64), uopc.param("y", (50,))
    graph = [x.sqrt(), y.sqrt(), x.floor(), y.round(), x.mulacc(x, x), y.mulacc(y, y), y.exp()]
    arrays = [np.concatenate([floats(45, dtype=t), [0.0, -0.0, np.inf, np.nan, 1e-40]])
              for t in ("f8", "f4")]  # fmt: skip
    return Case(graph, [a.astype(t) for a, t in zip(arrays, ("f8", "f4"))])


def casts() -> Case:
    """Between integers of 64 bits and floats, which no instruction converts."""
    i, x = uopc.param("i", (9,), dtypes.int64), uopc.param("x", (9,), dtypes.float64)
    graph = [i.cast(dtypes.float64), i.cast(dtypes.float32), x.cast(dtypes.int64), i // 7, i % 3,
             x.cast(dtypes.float16), x.cast(dtypes.uint64), x.cast(dtypes.uint8)]  # fmt: skip
    return Case(graph, [np.arange(9) * 10**17 - 3, floats(9, dtype="f8") * 1000])


def functions() -> Case:
    """Of both floats, which consist of products and sums that round once."""
    x, y = uopc.param("x", (20,), dtypes.float64), uopc.param("y", (20,))
    graph = [x.sin() + x.cos(), x.tan(), x.log(), x.mulacc(x, x), y.sin(), y.exp(), y.mulacc(y, y)]
    return Case(graph, [floats(20, dtype="f8") * 9, floats(20) * 9])


MAKERS = (*[c for c in CASES if c.__name__ != "long_kernel"], roots, casts, functions, packed)
# Those without long emulated arithmetic; in C, roots are a library's on a Cortex-M3.
IN_C = [c for c in MAKERS if c.__name__ not in ("network", "loops", "sparse", "roots")]
each_case = pytest.mark.parametrize("make", MAKERS, ids=lambda c: c.__name__)


@each_processor
@pytest.mark.parametrize("make", [symbolic, roots, casts], ids=lambda c: c.__name__)
def test_objects_need_the_arithmetic_of_compilers_alone(
    make: Any, target: str, tmp_path: Path
) -> None:
    """And none of it for floats that the processor computes."""
    made = uopc.export(make().graph, tmp_path / "f", target=target)
    found = elf.read(made.files[-1].read_bytes())
    assert found.machine == elf.ARM
    assert sorted(s.name for s in found.symbols if s.is_global) == ["f", "f_id", "f_work_bytes"]
    assert not [s.name for s in found.sections if s.flags & elf.WRITE and s.size]
    assert all(name.startswith("__aeabi_") for name in found.undefined)
    own = CORTEX[target][2]
    for t, letter in ((dtypes.float32, "f"), (dtypes.float64, "d")):
        called = [n for n in found.undefined if re.match(rf"__aeabi_{letter}(add|sub|mul|cmp)", n)]
        assert not (t in own and called)
    if make is roots and not own:
        assert {"__aeabi_fadd", "__aeabi_dmul"} <= set(found.undefined)


@pytest.mark.parametrize(
    ("target", "fused"),
    [("cortex-m3", ()), ("cortex-m4f", ("f4",)), ("cortex-m7", ("f4", "f8"))],
)
def test_products_are_fused_in_the_floats_that_the_processor_computes(
    target: str, fused: tuple[str, ...], tmp_path: Path
) -> None:
    """A Cortex-M4F has an instruction for a product and a sum of 32 bits alone: `vfma.f32`."""
    for t in ("f4", "f8"):
        x, y, z = [uopc.param(n, (7,), dtypes.from_numpy(np.dtype(t))) for n in "xyz"]
        uopc.export(x * y + z, tmp_path / "f", kind="c", target=target)
        text = (tmp_path / "f.c").read_text("utf-8")
        assert bool(re.search(r"\bUOPC_FMAF?\(\w", text.split("int f(")[0])) == (t in fused), t


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
@each_processor
def test_objects_link_with_both_conventions_for_floats(target: str, tmp_path: Path) -> None:
    """The linker refuses to mix those that say they are for one; binutils reads the attribute."""
    made = uopc.export(functions().graph, tmp_path / "f", target=target)
    command = ["readelf", "--arch-specific", str(made.files[-1])]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Tag_ABI_VFP_args: compatible" in said


@each_processor
def test_sizes_have_32_bits(target: str, tmp_path: Path) -> None:
    made = uopc.export(symbolic().graph, tmp_path / "f", target=target)
    assert "int32_t n, int32_t k, void *work);" in made.files[0].read_text("utf-8")
    x = uopc.param("x", (uopc.variable("n", 1, 1 << 31),))
    with pytest.raises(Unsupported, match=r"n is 1 to 2147483648, but .* closer bounds"):
        uopc.export(x * 2, tmp_path / "g", target=target)
    y = uopc.param("y", (1 << 20,))
    much = (y.reshape(1 << 20, 1) + uopc.param("z", (1 << 10,))).contiguous()
    with pytest.raises(Unsupported, match="the function needs"):
        uopc.export(much.sum(axis=0) + much.sum(axis=1)[: 1 << 10], tmp_path / "g", target=target)


@each_processor
def test_libraries_are_static(target: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="choose object or static"):
        uopc.export(uopc.param("x", (3,)) * 2, tmp_path / "f", kind="shared", target=target)


def test_casadi_has_no_object_code_here(tmp_path: Path) -> None:
    """Its functions return floats, for which there are two conventions."""
    x = uopc.param("x", (3,), dtypes.float64)
    with pytest.raises(Unsupported, match="64 bits: choose kind='c'"):
        uopc.export(x * 2, tmp_path / "f", target="cortex-m7", abi="casadi")


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    for name in "ab":
        uopc.export(roots().graph, tmp_path / name / "f", kind="static", target="cortex-m4f")
    for file in ("f.a", "f.h", "f.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


ROOTS = """
define double @f64(double %x) {
  %r = call double @llvm.sqrt.f64(double %x)
  ret double %r
}
define float @f32(float %x) {
  %r = call float @llvm.sqrt.f32(float %x)
  ret float %r
}
declare double @llvm.sqrt.f64(double)
declare float @llvm.sqrt.f32(float)
"""


@contextlib.contextmanager
def by_this_machine(text: str) -> Iterator[Any]:
    """The functions of LLVM IR by name, of floats: each takes and gives numbers of a type of C."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    with llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine) as engine:
        engine.finalize_object()
        yield lambda name, *types: ctypes.CFUNCTYPE(*types)(engine.get_function_address(name))


def assert_same_bits(got: Any, want: Any) -> None:
    """One NaN is as good as another."""
    word = f"u{want.itemsize}"
    same = (got.view(word) == want.view(word)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), int((~same).sum())


def test_square_roots_in_integers_are_those_of_numpy() -> None:
    """The same text, run by this machine: random bits, squares, and the ends of each range."""
    text = square_root.without_instruction(ROOTS, "k", machines.machine("cortex-m3"))
    assert "llvm.sqrt" not in text
    rng = np.random.default_rng(3)
    ends = [0.0, -0.0, -1, np.inf, -np.inf, np.nan, 5e-324, 2.3e-308, 1.79e308, 1, 2, 3, 4,
            1 - 2.0**-53, 1 + 2.0**-52, 4 - 2.0**-51]  # fmt: skip
    with by_this_machine(text) as found:
        for t, c in (("f8", ctypes.c_double), ("f4", ctypes.c_float)):
            drawn = rng.integers(0, 256, (8000, np.dtype(t).itemsize), np.uint8).view(t).ravel()
            with np.errstate(all="ignore"):
                more = np.array([*np.arange(1.0, 2000) ** 2, *ends]).astype(t)
            x = np.concatenate([drawn, more])
            function = found(f"f{8 * x.itemsize}", c, c)
            with np.errstate(all="ignore"):
                wanted = np.sqrt(x)
            assert_same_bits(np.array([function(v) for v in x], t), wanted)


def built(target: str, folder: Path, *files: str) -> str:
    """The output of a program on a bare machine."""
    if shutil.which(GCC) is None or shutil.which(QEMU) is None:
        pytest.skip(f"{GCC} or {QEMU} is not installed")
    board, flags, _ = CORTEX[target]
    command = (GCC, "-std=gnu11", "-ffreestanding", "-O1", "-mthumb", *flags, "-nostdlib",
               "-T", BARE / "link.ld", BARE / "start.c", *files, "-lgcc", "-o", "test.elf")
    run(*command, folder=folder)
    return run(QEMU, "-M", board, "-nographic", "-monitor", "none", "-serial", "none",
               "-chardev", "stdio,id=said", "-semihosting-config",
               "enable=on,target=native,chardev=said", "-kernel", "test.elf",
               folder=folder)  # fmt: skip


@pytest.mark.slow
@each_processor
@each_case
def test_bare_machines_compute_the_same_bits(make: Any, target: str, tmp_path: Path) -> None:
    """From object code; each result and all memory around it, twice, on a painted stack."""
    case = make()
    uopc.export(case.graph, tmp_path / "f", kind="static", target=target, examples=named(case))
    said = built(target, tmp_path, "f_test.c", "f.a")
    assert GOOD in said
    assert 0 < int(said.split("stack ")[1]) < MOST_STACK


@pytest.mark.slow
@each_processor
@pytest.mark.parametrize("make", IN_C, ids=lambda c: c.__name__)
def test_bare_machines_run_the_c_source(make: Any, target: str, tmp_path: Path) -> None:
    """Compiled by gcc: for any machine, and for this one."""
    case = make()
    for name in ("c11", target):
        uopc.export(case.graph, tmp_path / "f", kind="c", target=name, examples=named(case))
        said = built(target, tmp_path, "f_test.c", "f.c")
        assert GOOD in said
        assert name == "c11" or 0 < int(said.split("stack ")[1]) < MOST_STACK


@pytest.mark.slow
def test_a_wrong_bit_is_seen(tmp_path: Path) -> None:
    x = uopc.param("x", (8,))
    uopc.export(x * 2, tmp_path / "f", target="cortex-m3", examples=[floats(8)])
    text = (tmp_path / "f_test.c").read_text("utf-8")
    uopc.export(x * 3, tmp_path / "f", target="cortex-m3")
    (tmp_path / "f_test.c").write_text(text, "utf-8")
    with pytest.raises(AssertionError, match="16 wrong bytes or elements"):
        built("cortex-m3", tmp_path, "f_test.c", "f.o")
