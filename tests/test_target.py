"""The CPU that code is for: names, what runs here, and vectors of 64 bytes on any machine."""

from __future__ import annotations

import contextlib
import dataclasses
import re

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc import target
from uopc.backends import detect
from uopc.backends.llvm import jit
from uopc.driver import lower_only
from uopc.errors import UserError
from uopc.ir.core.ops import Ops
from uopc.ir.interpret.interpreter import run_kernel
from uopc.passes.devectorize import devectorize

X = uopc.param("x", (1000,))


def test_a_cpu_that_does_not_exist():
    with uopc.options(target_cpu="z80"), pytest.raises(UserError, match="unknown CPU 'z80'"):
        uopc.compile(X + 1.0)


@pytest.mark.machine("this")
def test_code_that_does_not_run_here_is_shown_only(monkeypatch):
    bits, registers, needs = target.CPUS["x86-64-v3"]
    later = {"x86-64-v3": (bits, registers, (*needs, "avx1024"))}
    monkeypatch.setattr(target, "CPUS", target.CPUS | later)
    with uopc.options(target_cpu="x86-64-v3"):
        with pytest.raises(UserError, match="has no avx1024; `uopc dump` shows it"):
            uopc.compile(X + 1.0)
        assert lower_only(X + 1.0).kernels
    with uopc.options(target_cpu="x86-64-v2"):
        assert uopc.compile(X + 1.0)(np.zeros(1000, np.float32)).tolist() == [1.0] * 1000


@pytest.mark.machine("this")
def test_this_machine_by_name_is_this_machine():
    """Also where it lacks what others of that name have (AVX-512 under a hypervisor)."""
    array = np.linspace(0, 1, 1000, dtype=np.float32)
    with uopc.options(target_cpu=llvm.get_host_cpu_name()):
        named = uopc.compile(X.exp() * 2.0)
    alone = uopc.compile(X.exp() * 2.0)
    assert named.kernels[0].asm == alone.kernels[0].asm
    np.testing.assert_array_equal(named(array), alone(array))


@pytest.mark.parametrize(("cpu", "register"), [("x86-64-v2", "%xmm"), ("x86-64-v3", "%ymm")])
def test_assembly_is_of_the_cpu(cpu, register):
    with uopc.options(target_cpu=cpu):
        (kernel,) = uopc.compile(X * 2.0 + 1.0).kernels
    assert register in kernel.asm and ("%ymm" in kernel.asm) == (register == "%ymm")


def bits(a):
    """The bits of floats; every NaN alike."""
    return np.where(np.isnan(a), 1, a.view(f"u{a.itemsize}"))


HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
# Singles and doubles around integers, around what float16 rounds to, and of any bits.
SINGLES = np.float32([
    *np.arange(-12, 13) / 4, 0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-25, 1.001 * 2.0**-25,
    65504, 65519.99, 65520, 2.0**23, 2.0**23 - 0.5, 0.5 - 2.0**23, 2.0**52 - 0.5, -(2.0**60),
    *np.random.default_rng(0).integers(0, 1 << 32, 960, np.uint32).view(np.float32),
])  # fmt: skip
with np.errstate(invalid="ignore"):  # some are signalling NaN
    DOUBLES = np.concatenate([SINGLES, [2.0**52 - 0.5, -(2.0**51) - 0.5, 65519.9999999]])


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v2", "x86-64-v3"])
def test_old_processors_give_the_same_numbers(cpu):
    """Conversions of float16 came with F16C (v3), rounding to integers with SSE4.1 (v2)."""
    names = ("floor", "ceil", "trunc", "round")
    h = uopc.param("h", HALVES.shape, uopc.dtypes.float16)
    f, d = uopc.param("f", SINGLES.shape), uopc.param("d", DOUBLES.shape, uopc.dtypes.float64)
    outputs = [
        h.cast(uopc.dtypes.float32), h.cast(uopc.dtypes.float64), f.cast(uopc.dtypes.float16),
        d.cast(uopc.dtypes.float16), h + h.flip(0), h.sqrt(), uopc.where(h < 1, h, h.flip(0)),
        *[getattr(u, name)() for u in (h, f, d) for name in names],
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        wanted = [
            HALVES.astype("f4"), HALVES.astype("f8"), SINGLES.astype("f2"), DOUBLES.astype("f2"),
            HALVES + HALVES[::-1], np.sqrt(HALVES), np.where(HALVES < 1, HALVES, HALVES[::-1]),
            *[getattr(np, name)(a) for a in (HALVES, SINGLES, DOUBLES) for name in names],
        ]  # fmt: skip
    with uopc.options(target_cpu=cpu):
        program = uopc.compile(outputs)
    got = program(h=HALVES, f=SINGLES, d=DOUBLES)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(bits(a), bits(b))


INTEGERS = [f"{sign}int{n}" for sign in ("", "u") for n in (8, 16, 32, 64)]


@pytest.mark.machine("this")
@pytest.mark.parametrize("dtype", INTEGERS)
def test_every_float16_as_an_integer(dtype):
    """LLVM makes -32768 of NaN in `llvm.fptosi.sat.v8i16.v8f16` for AVX512-FP16: not emitted."""
    integer = getattr(uopc.dtypes, dtype)
    x = uopc.param("x", HALVES.shape, uopc.dtypes.float16)
    program = uopc.compile(x.cast(integer))
    low, high = integer.bounds
    wanted = [0 if v != v else int(max(low, min(high, np.trunc(v)))) for v in HALVES.astype(float)]
    np.testing.assert_array_equal(program(HALVES), np.array(wanted, dtype))
    source = program.kernels[0].source
    assert "fpext" in source and "f16" not in source
    others = (("x86-64-v4", "+avx512fp16"), ("sapphirerapids", ""))
    for cpu, features in others if detect.this_machine().has("sse2") else ():
        code = jit.assembly(source, cpu, features)
        assert "vcvtph2ps" in code and not re.search("vcvtt[ps]h2", code)


# ---------------------------------------------------------------- vectors of 64 bytes
@contextlib.contextmanager
def wide():
    """This machine with the Opts of one whose vectors have 64 bytes: LLVM cuts them to its own."""
    own = detect.this_machine()
    described = dataclasses.replace(own, vector_bits=512, registers=32)
    with pytest.MonkeyPatch.context() as patch, uopc.options(cache_dir=""):
        patch.setattr(detect, "this_machine", lambda: described)
        # Instructions of AVX-512, and masks that are wider than a register, LLVM cannot cut.
        patch.setattr(target.Target, "has_scale", False)
        patch.setattr(target.Target, "lookup_lanes", 0)
        begin = devectorize._AccessFolder.__init__
        patch.setattr(devectorize._AccessFolder, "__init__", lambda self, _: begin(self, own))
        yield


def normal(*dims):
    return np.random.default_rng(dims).standard_normal(dims).astype(np.float32)


def relu_of_convolution(x, w):
    return x.conv2d(w, padding=1).relu()


def plain_convolution(x, w):
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    pieces = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", pieces, w), 0)


def plain_softmax(x):
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


PROGRAMS = {
    "product": (lambda a, b: a @ b, lambda a, b: a @ b.astype(np.float64), [(37, 65), (65, 129)]),
    "large product": (
        lambda a, b: a @ b, lambda a, b: a @ b.astype(np.float64), [(200, 333), (333, 250)]
    ),
    "softmax": (lambda x: x.softmax(), plain_softmax, [(33, 199)]),
    "causal": (
        lambda x: uopc.where(uopc.arange(90) <= uopc.arange(90).reshape(90, 1), x, -1e9).softmax(),
        lambda x: plain_softmax(np.where(np.tril(np.ones((90, 90), bool)), x, np.float32(-1e9))),
        [(90, 90)],
    ),
    "attention": (
        lambda q, k, v: (q @ k.transpose()).softmax() @ v,
        lambda q, k, v: plain_softmax(q @ k.T) @ v,
        [(50, 20), (70, 20), (70, 24)],
    ),
    "convolution": (relu_of_convolution, plain_convolution, [(2, 5, 19, 23), (9, 5, 3, 3)]),
    "columns": (lambda x: x.sum(0), lambda x: x.astype(np.float64).sum(0), [(500, 20)]),
    "transpose": (lambda x, y: x.transpose() + y, lambda x, y: x.T + y, [(70, 45), (45, 70)]),
    "pad": (lambda x: x.pad(((1, 2), (3, 30))) * 2.0,
            lambda x: np.pad(x, ((1, 2), (3, 30))) * 2, [(30, 61)]),
    "functions": (lambda x: x.sin() * x.exp() + x.tanh(),
                  lambda x: np.sin(x) * np.exp(x) + np.tanh(x), [(1003,)]),
}  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.few(3)
def test_programs_in_vectors_of_64_bytes(name, threads):
    graph, plain, shapes = PROGRAMS[name]
    arrays = [normal(*dims) for dims in shapes]
    params = [uopc.param(f"x{i}", dims) for i, dims in enumerate(shapes)]
    with wide():
        program = uopc.compile(graph(*params), verify=True, threads=threads)
    assert any("<16 x float>" in k.source for k in program.kernels)
    np.testing.assert_allclose(program(*arrays), plain(*arrays), rtol=2e-5, atol=2e-5)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 70), st.integers(1, 70))
def test_products_of_any_size_in_vectors_of_64_bytes(m, k, n):
    a, b = uopc.param("a", (m, k)), uopc.param("b", (k, n))
    x, y = (np.random.default_rng(n).integers(-4, 5, d).astype("f4") for d in ((m, k), (k, n)))
    with wide():
        program = uopc.compile(a @ b, verify=True, threads=1)
    np.testing.assert_array_equal(program(x, y), x @ y)


@pytest.mark.parametrize("name", ["exp", "exp2"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_by_the_instruction_that_scales(name, dtype):
    """The interpreter runs code that no machine here may have: at the edges, and masked."""
    with uopc.options(target_cpu="x86-64-v4"):
        x = uopc.param("x", (32,), getattr(uopc.dtypes, dtype))
        (kernel,) = lower_only(getattr(x, name)(), threads=1).kernels
    assert any(u.op is Ops.SCALE for u in kernel.src)
    edges = [0, 1, 50, 88, 90, 710, 1025, 1e30, np.inf, 100, 104, 110, 150, 180, 746, 1100]
    values = np.array([np.nan, 0.5, *edges[1:], *(-v for v in edges[1:])], dtype)
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(values.astype(np.float128)).astype(dtype)
    out = np.zeros_like(values)
    run_kernel(kernel, [out, values])
    np.testing.assert_allclose(out, wanted, rtol=4 * np.finfo(dtype).eps, atol=5e-45)
