"""a*b + c with one rounding as a function of exported files, beside that of the C library."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from tests.exporting.test_c import WARNINGS
from tests.exporting.test_cortex import CORTEX, assert_same_bits, by_this_machine, functions
from tests.exporting.test_export import CC, assert_same, needs_c, run
from uopc import dtypes
from uopc import target as targets
from uopc.backends import detect, elf
from uopc.backends.c.prelude import Prelude
from uopc.backends.c.texts import HEAD
from uopc.exporting import machines, mulacc
from uopc.exporting.exported import lowered_for, request_for
from uopc.ir.core.arena import arena

export_module = importlib.import_module("uopc.exporting.export")  # not the function
LIBRARY = ctypes.util.find_library("m")
needs_library = pytest.mark.skipif(LIBRARY is None, reason="there is no C library to compare with")
TYPES = {dtypes.float32: ("fmaf", ctypes.c_float), dtypes.float64: ("fma", ctypes.c_double)}
each_type = pytest.mark.parametrize("t", TYPES, ids=str)
COUNT = 3000


def operands(t: Any) -> list[Any]:
    """Random bits, sums that cancel, results without a first bit, half-way cases, and the ends."""
    t, rng = np.dtype(t), np.random.default_rng(11)
    info = np.finfo(t)
    least = np.sqrt(float(info.tiny))
    with np.errstate(all="ignore"):
        a, b = (rng.standard_normal(COUNT).astype(t) for _ in "ab")
        product = (-(a.astype("f8") * b)).astype(t)
        tiny = np.exp2(rng.uniform(info.minexp - 60, info.minexp + 5, COUNT)).astype(t)
        short = [(rng.integers(-64, 64, COUNT) * np.exp2(rng.integers(-30, 30, COUNT))).astype(t)
                 for _ in "abc"]  # fmt: skip
        ends = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, info.tiny, info.smallest_subnormal,
                info.max, -info.max, 1 + info.eps, 3]  # fmt: skip
        any_bits = rng.integers(0, 256, (3, COUNT, t.itemsize), np.uint8).view(t)[..., 0]
        groups = [
            any_bits, (a, b, product), (a, b, np.nextafter(product, t.type(np.inf))),
            (a * t.type(least), b * t.type(least), np.copysign(tiny, a)), (a, tiny, -tiny * b),
            short, np.array(np.meshgrid(ends, ends, ends)).astype(t).reshape(3, -1),
        ]  # fmt: skip
    return [np.concatenate([g[i] for g in groups]).astype(t) for i in range(3)]


def wanted(t: Any, arrays: Any) -> Any:
    name, c = TYPES[t]
    function = ctypes.CFUNCTYPE(c, c, c, c)((name, ctypes.CDLL(LIBRARY)))
    return np.array([function(*v) for v in zip(*[a.tolist() for a in arrays])], t.numpy)


@needs_library
@each_type
def test_in_integers_by_llvm(t: Any) -> None:
    text = mulacc.in_integers("k", t).replace("define internal", "define")
    text += "\n".join([f"declare i{n} @llvm.ctlz.i{n}(i{n}, i1)" for n in (t.bits, 2 * t.bits)])
    arrays, c = operands(t.numpy), TYPES[t][1]
    with by_this_machine(text) as found:
        function = found(f"k_fma_f{t.bits}", c, c, c, c)
        got = np.array([function(*v) for v in zip(*[a.tolist() for a in arrays])], t.numpy)
    assert_same_bits(got, wanted(t, arrays))


@needs_library
@needs_c
@each_type
@pytest.mark.parametrize("flags", [(), ("-U__GNUC__", "-Wno-unknown-pragmas")])
def test_in_c(flags: tuple[str, ...], t: Any, tmp_path: Path) -> None:
    """Of any compiler: without its builtins, too."""
    prelude, c = Prelude(), TYPES[t][1]
    macro = prelude.known("FMA" if t.bits == 64 else "FMAF")
    of = "double" if t.bits == 64 else "float"
    parameters = f"const {of} *a, const {of} *b, const {of} *c, {of} *y"
    (tmp_path / "f.c").write_text(
        f"#include <stdint.h>\n#include <stddef.h>\n{HEAD}\n{prelude.text()}\n"
        f"void f({parameters}, size_t n);\nvoid f({parameters}, size_t n)\n{{\n"
        f"    for (size_t i = 0; i < n; ++i) {{\n        y[i] = {macro}(a[i], b[i], c[i]);\n"
        "    }\n}\n", "utf-8",
    )  # fmt: skip
    own = ("-O1", "-fPIC", "-shared", "-ffp-contract=off", "-o", "f.so", "f.c")
    run(CC, *WARNINGS, *flags, *own, folder=tmp_path)
    arrays = operands(t.numpy)
    got = np.zeros_like(arrays[0])
    given = [a.ctypes.data_as(ctypes.POINTER(c)) for a in (*arrays, got)]
    ctypes.CDLL(str(tmp_path / "f.so")).f(*given, ctypes.c_size_t(got.size))
    assert_same_bits(got, wanted(t, arrays))


@pytest.mark.parametrize("target", CORTEX)
def test_one_function_of_the_file(target: str, tmp_path: Path) -> None:
    """For each float that functions compute: a MULACC more is a call, it was 800 bytes."""
    uopc.export(functions().graph, tmp_path / "f", target=target)
    found = elf.read((tmp_path / "f.o").read_bytes())
    own = {s.name for s in found.symbols if s.name.startswith("f_fma_")}
    lacks = {"cortex-m3": {"f_fma_f32", "f_fma_f64"}, "cortex-m4f": {"f_fma_f64"}}
    assert own == lacks.get(target, set())
    x = uopc.param("x", (100,), dtypes.float64)
    sizes = []
    for count in (1, 5):
        graph = [x.mulacc(x, x + i) for i in range(count)]
        uopc.export(graph, tmp_path / "f", target=target)
        code = elf.read((tmp_path / "f.o").read_bytes())
        sizes.append(sum([s.size for s in code.sections if s.name.startswith(".text")]))
    assert sizes[1] - sizes[0] < 4 * 200
    uopc.export(functions().graph, tmp_path / "f", kind="c", target=target)
    text = (tmp_path / "f.c").read_text("utf-8")
    assert text.count("static double uopc_fma(") <= 1 and "UOPC_FMA(" in text


@pytest.mark.parametrize("target", CORTEX)
def test_the_function_gives_the_bits_of_the_instruction(target: str, monkeypatch: Any) -> None:
    """Self-tests have the bits of this machine's instruction, if it has one."""
    case = functions()
    made = []
    for host in (detect.host(), targets.cpu_target("x86-64")):
        monkeypatch.setattr(mulacc.detect, "host", lambda h=host: h)
        with arena():
            machine = machines.machine(target)
            request = request_for(case.graph, None, True, "f", 1, machine.target)
            f = lowered_for(request, machine, "f")
            made.append(export_module.in_process(f)(*case.arrays))
    assert_same(made[1], made[0])
