"""Exported C as people compile it: each compiler's default standard, processors with arithmetic of
float16, C++, cross compilers; constants of all kinds, every op on every dtype."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from tests.exporting import ops as export_ops
from tests.exporting.corpus import GOOD, WARNINGS, compiled_and_run
from uopc import dtypes

IS_X86 = platform.machine() in ("x86_64", "AMD64")
CC = next((cc for cc in ("gcc", "clang") if shutil.which(cc)), None)
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
FLOATS = [t for t in dtypes.ARRAY_TYPES if t.is_float]
MIXED = (dtypes.bool_, dtypes.int8, dtypes.uint32, dtypes.int64, dtypes.fp8e4m3, dtypes.bfloat16,
         dtypes.float16, dtypes.float32, dtypes.float64)  # fmt: skip
ON_X86 = ("-march=native", "-march=x86-64-v3", "-march=sapphirerapids")
ON_ARM = ("-march=armv8-a", "-march=armv8.2-a+fp16")
needs_a_compiler = pytest.mark.skipif(CC is None, reason="there is no C compiler")


def commands() -> list[list[str]]:
    """The compiler calls of users."""
    found = [[cc, *more] for cc in ("gcc", "clang") for more in (
        [], ["-std=gnu17"], ["-std=c11"],
        *[[march] for march in ON_X86 if IS_X86])]  # fmt: skip
    found += [[cc, "-x", "c++", *more] for cc in ("g++", "clang++") for more in (
        [], ["-std=c++11"], *[[march] for march in ON_X86[1:] if IS_X86])]  # fmt: skip
    found += [["aarch64-linux-gnu-gcc", march, *more] for march in ON_ARM
              for more in ((), ("-std=c11",))]  # fmt: skip
    return found


def mixed(length: int = 37) -> dict[str, Any]:
    """A few results of some dtypes, with constants that are no finite number."""
    found = {}
    for t in MIXED:
        x, y = uopc.param(f"x_{t.name}", (length,), t), uopc.param(f"y_{t.name}", (length,), t)
        array = uopc.constant(export_ops.values(t)[:length])
        for name, made in (("sum", x + y), ("chosen", (x < y).where(x, array)),
                           ("greater", x.maximum(array)), ("equal", x.eq(y))):  # fmt: skip
            found[f"{name}_{t.name}"] = made
        if t.is_float:
            found[f"root_{t.name}"] = (abs(x) * y + array).sqrt()
            found[f"whole_{t.name}"] = x.cast(dtypes.int32)
            found[f"sign_{t.name}"] = x.sign()
        if t.is_float and t.bits > 8:
            found[f"next_{t.name}"] = x.nextafter(y)
    return found


def arguments(length: int = 37) -> dict[str, Any]:
    return {f"{name}_{t.name}": export_ops.values(t, start)[:length]
            for t in MIXED for start, name in enumerate("xy")}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: Any) -> Path:
    """The mixed graph as plain C, and with vectors for x86-64-v3 and AArch64."""
    folder: Path = tmp_path_factory.mktemp("written")
    uopc.export(mixed(), folder / "f", kind="c", examples=arguments())
    short = mixed(9)
    for target in ("x86-64-v3", "aarch64"):
        uopc.export(short, folder / f"f_{target[:3]}", kind="c", target=target)
    return folder


@pytest.mark.parametrize("command", commands(), ids=" ".join)
@pytest.mark.few(6)
def test_each_compiler_takes_it_without_a_warning(command: list[str], written: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    is_arm = command[0].startswith("aarch64") or not IS_X86
    for name in ("f", "f_aar" if is_arm else "f_x86"):
        done = subprocess.run(
            [*command, *STRICT, "-c", f"{name}.c", "-o", "/dev/null"], cwd=written,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if re.search("unknown target CPU|bad value .* for .?-march", done.stderr):
            pytest.skip(f"{command[0]} does not know this processor")
        assert done.returncode == 0, done.stderr[:2000]


@needs_a_compiler
@pytest.mark.skipif(not IS_X86, reason="-march=x86-64-v3 is for a compiler of x86-64")
@pytest.mark.parametrize("dtype", (dtypes.int64, dtypes.float32, dtypes.float64), ids=str)
def test_no_pointer_lies_outside_of_the_storage(dtype: dtypes.DType, tmp_path: Path) -> None:
    """A part of a CAT is read by a mask that leaves out lanes before its first element."""
    x = uopc.param("x", (5,), dtype)
    graph = uopc.cat(x, uopc.constant(np.arange(7, 12)).cast(dtype)).cast(dtypes.float64).exp()
    uopc.export(graph, tmp_path / "f", kind="c", target="x86-64-v3")
    assert "uopc_load_" in (tmp_path / "f.c").read_text("utf-8")
    command = [str(CC), "-O3", "-march=x86-64-v3", *STRICT, "-c", "f.c", "-o", "/dev/null"]
    subprocess.run(command, cwd=tmp_path, check=True)


@needs_a_compiler
@pytest.mark.parametrize("flags", [(), ("-std=gnu17", "-march=native"), ("-x", "c++")], ids=str)
def test_the_bits_do_not_depend_on_the_standard(flags: tuple[str, ...], written: Path) -> None:
    cc = "g++" if "c++" in flags else str(CC)
    if shutil.which(cc) is None:
        pytest.skip(f"{cc} is not installed")
    program = f"test{len(flags)}"
    command = [cc, *flags, "-O1", "f.c", "f_test.c", "-o", program]
    if "c++" in flags:  # the test is C
        made = [[cc, *flags, "-O1", "-c", "f.c", "-o", "across.o"],
                [str(CC), "f_test.c", "across.o", "-o", program]]  # fmt: skip
    else:
        made = [command]
    for one in made:
        subprocess.run(one, cwd=written, check=True)
    done = subprocess.run([f"./{program}"], cwd=written, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert GOOD in done.stdout


@pytest.mark.parametrize("march", ON_ARM)
def test_the_bits_on_a_processor_with_float16(march: str, written: Path) -> None:
    """`FLT_EVAL_METHOD` is 16 there in gcc's default standard: the arithmetic is that of float."""
    cc, emulator = "aarch64-linux-gnu-gcc", shutil.which("qemu-aarch64")
    if shutil.which(cc) is None or emulator is None:
        pytest.skip(f"{cc} or qemu-aarch64 is not installed")
    program = f"arm{len(march)}"
    command = [cc, march, "-O1", "-static", "f.c", "f_test.c", "-o", program]
    subprocess.run(command, cwd=written, check=True)
    done = subprocess.run([emulator, "-cpu", "max", f"./{program}"], cwd=written,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert GOOD in done.stdout


@needs_a_compiler
@pytest.mark.skipif(not IS_X86, reason="the x87 is a part of x86")
@pytest.mark.parametrize("flags", [("-mfpmath=387",), ("-mfpmath=sse,387",)], ids=str)
def test_arithmetic_of_the_x87_is_refused(flags: tuple[str, ...], written: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    command = ["gcc", "-std=c11", *flags, "-fsyntax-only", "f.c"]
    done = subprocess.run(command, cwd=written, capture_output=True, text=True, check=False)
    assert done.returncode and "each operation must round to its own type" in done.stderr


def special(t: Any) -> Any:
    """Infinities, zeros, and NaN with each sign; for wide types with payloads too."""
    with np.errstate(all="ignore"):
        found = np.array([np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 1.5]).astype(t.numpy)
    if t.bits < 32:
        return found
    quiet, sign = (22, 31) if t.bits == 32 else (51, 63)
    infinity = int(np.array([np.inf], t.numpy).view(f"u{t.itemsize}")[0])
    words = np.array([infinity | 5, infinity | 1 << quiet | 5], f"u{t.itemsize}")
    negative = words | words.dtype.type(1 << sign)
    return np.concatenate([found, words.view(t.numpy), negative.view(t.numpy)])


@needs_a_compiler
@pytest.mark.parametrize("weights", ["inline", "file"])
@pytest.mark.parametrize("t", FLOATS, ids=lambda t: t.name)
@pytest.mark.few(6)
def test_constant_arrays_keep_their_bits(t: Any, weights: str, tmp_path: Path) -> None:
    """Elements that are copied, beside some that are computed."""
    array = special(t)
    n = len(array)
    index = uopc.param("index", (n,), dtypes.int32)
    x = uopc.param("x", (n,), t)
    graph = {"copied": uopc.constant(array).take(index, 0), "more": x + uopc.constant(array)}
    uopc.export(graph, tmp_path / "f", kind="c", weights=weights)
    sources = ["f.c", *(["f_data.S"] if weights == "file" else [])]
    flags = [f for f in WARNINGS if f != "-pedantic"]
    command = [str(CC), *flags, "-shared", "-fPIC", *sources, "-o", "f.so"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    order = np.arange(n, dtype="i4")[::-1].copy()
    copied, more = np.zeros(n, t.numpy), np.zeros(n, t.numpy)
    arrays = {"index": order, "x": array}
    program = uopc.compile(graph)
    given = [arrays[p.name] for p in program.inputs]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*given, copied, more)]
    assert ctypes.CDLL(str(tmp_path / "f.so")).f(*pointers, None) == 0
    assert copied.tobytes() == array[order].tobytes()
    wanted = np.asarray(program(**arrays)["more"])
    np.testing.assert_array_equal(np.isnan(more), np.isnan(wanted))
    np.testing.assert_array_equal(more[~np.isnan(wanted)], wanted[~np.isnan(wanted)])


@needs_a_compiler
@pytest.mark.parametrize("t", dtypes.ARRAY_TYPES, ids=lambda t: t.name)
@pytest.mark.few(2)
def test_ops_with_each_kind_of_constant(t: Any, tmp_path: Path) -> None:
    """Every sixth of them; `python -m tests.exporting.ops` checks all, for any target."""
    whole = list(export_ops.outputs(t))
    graph = {f"r{i}": u for i, (_, u) in enumerate(whole[len(t.name) % 6 :: 6])}
    read = {p.arg.name for u in graph.values() for p in u.toposort() if p.op.name == "param"}
    given = {name: a for name, a in export_ops.arguments(t).items() if name in read}
    uopc.export(graph, tmp_path / "f", kind="c", examples=given)
    assert not compiled_and_run(tmp_path, str(CC))


@needs_a_compiler
@pytest.mark.parametrize("target", ["c11", "x86-64-v3"])
@pytest.mark.few(1)
def test_text_that_says_nothing_gives_no_warning(target: str, tmp_path: Path) -> None:
    """Arguments that simplification removes, comparisons that come to one of a bool with itself,
    bits of a comparison that are stored."""
    graph = {}
    for t in (dtypes.float32, dtypes.bfloat16, dtypes.fp8e4m3):
        x = uopc.param(f"x_{t.name}", (19,), t)
        graph |= {f"{name}_{t.name}": u for name, u in (
            ("quotient", x // x), ("rest", x % x), ("finite", x.ne(np.inf)), ("own", x.eq(x)),
        )}  # fmt: skip
    i = uopc.param("i", (19,), dtypes.int32)
    constant = uopc.constant(np.arange(19, dtype="i4"))
    graph |= {"gone": uopc.where(i.eq(i), constant, i), "negative": i.signbit()}
    graph["read"] = uopc.param("j", (19,), dtypes.int32) + 1
    uopc.export(graph, tmp_path / "f", kind="c", target=target)
    for cc in [c for c in ("gcc", "clang") if shutil.which(c)]:
        done = subprocess.run([cc, *WARNINGS, "-fsyntax-only", "f.c"], cwd=tmp_path,
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr[:2000]
    alone = uopc.where(i.eq(i), constant, i)
    uopc.export(alone, tmp_path / "f", kind="c")
    assert "(void)i;" in (tmp_path / "f.c").read_text("utf-8")
    done = subprocess.run([str(CC), *WARNINGS, "-fsyntax-only", "f.c"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[:2000]
