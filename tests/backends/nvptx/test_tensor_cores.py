"""Products on tensor cores: chosen and given Opts, against NumPy, on the PTX machine; assembled."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import uopc
from tests.ptx import machine, parse
from tests.ptx.corpus import join
from tests.ptx.memory import Memory
from tests.standin import module
from uopc import dtypes
from uopc.backends.nvptx import ptxas
from uopc.errors import UserError
from uopc.ir.core.args import Opt

RNG = np.random.default_rng(41)
KINDS = {
    "bf16": (dtypes.bfloat16, r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32"),
    "f16": (dtypes.float16, r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32"),
    "i8": (dtypes.int8, r"mma\.sync\.aligned\.m16n8k32\.row\.col\.s32\.s8\.s8\.s32"),
    "f64": (dtypes.float64, r"mma\.sync\.aligned\.m(8n8k4|16n8k4)\.row\.col\.f64"),
}


def numbers(shape, dtype):
    """Small integers: their sums of products are exact in any order."""
    return RNG.integers(-3, 4, shape).astype(dtype.numpy)


def run(graph, given, part="sm_90a"):
    """The program for a part, its text, and what the machine computes."""
    with module.installed(part) as driver:
        program = uopc.compile(graph, device="cuda", verify=True)
        got = program(*[a.copy() for a in given])
    return program, join(driver.texts), np.asarray(got, np.float64)


def exact(a, b):
    return a.astype(np.float64) @ b.astype(np.float64)


def assembled(text, part):
    if ptxas.find_ptxas() is None:
        return
    for kernel, used in ptxas.assemble(text, part).kernels.items():
        assert not used.spill_stores and not used.spill_loads, kernel


@pytest.mark.parametrize("part", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(3)
def test_a_product(kind, part):
    """Chosen without being asked: in shared memory, on tensor cores, and right."""
    dtype, instruction = KINDS[kind]
    a, b = numbers((128, 128), dtype), numbers((128, 128), dtype)
    wide = dtypes.int32 if kind == "i8" else dtype
    graph = uopc.param("a", a.shape, dtype).cast(wide) @ uopc.param("b", b.shape, dtype).cast(wide)
    _, text, got = run(graph, [a, b], part)
    assert re.search(instruction, text) and re.search(r"ldmatrix|ld\.shared", text)
    assert np.array_equal(got, exact(a, b).astype(graph.dtype.numpy).astype(np.float64))
    assert kind != "f64" or ("m16n8k4" in text) is (part == "sm_90a")
    assembled(text, part)


# Shapes of two operands, and which of them are read transposed.
LAYOUTS = {
    "left": ((64, 128), (64, 64), (True, False)),
    "right": ((64, 32), (128, 32), (False, True)),
    "both": ((32, 64), (64, 32), (True, True)),
    "batched": ((3, 64, 32), (3, 32, 64), (False, False)),
    "one right": ((2, 64, 32), (32, 64), (False, False)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name):
    left, right, transposed = LAYOUTS[name]
    given = [numbers(shape, dtypes.bfloat16) for shape in (left, right)]
    params = [uopc.param(n, a.shape, dtypes.bfloat16) for n, a in zip("ab", given)]
    p, q = [x.transpose() if t else x for x, t in zip(params, transposed)]
    a, b = [x.T if t else x for x, t in zip(given, transposed)]
    _, text, got = run(p @ q, given)
    assert "mma.sync" in text
    assert np.array_equal(got, exact(a, b).astype(ml_dtypes.bfloat16).astype(np.float64))


@pytest.mark.parametrize("part", ["sm_80", "sm_90a"])
def test_odd_sizes(part):
    """Padded in all loops. A loop's end stands before its beginning in the text: lanes that skip a
    load and others meet again at the product."""
    a, b = numbers((67, 37), dtypes.float64), numbers((37, 33), dtypes.float64)
    graph = uopc.param("a", a.shape, dtypes.float64) @ uopc.param("b", b.shape, dtypes.float64)
    _, text, got = run(graph, [a, b], part)
    assert "mma.sync" in text and np.array_equal(got, exact(a, b))


def bf16(name, *shape):
    return uopc.param(name, shape, dtypes.bfloat16)


def test_slices_are_copied_ahead():
    """Copies that go on by themselves, and one wait a slice; the machine checks who waited."""
    given = [numbers((128, 320), dtypes.bfloat16), numbers((320, 128), dtypes.bfloat16)]
    _, text, got = run(bf16("a", 128, 320) @ bf16("b", 320, 128), given)
    assert text.count("cp.async.wait_group") == 1 and "cp.async.cg.shared.global" in text
    assert text.count("bar.sync") + text.count("barrier.sync") == 1 and "ldmatrix" in text
    assert np.array_equal(got, exact(*given).astype(ml_dtypes.bfloat16).astype(np.float64))


def test_a_wait_too_few_is_found():
    """The checker of the machine: with a wait taken out, the same text is an error."""
    graph = bf16("a", 128, 320) @ bf16("b", 320, 128)
    program = uopc.compile(graph, device="cuda:sm_90a")
    (kernel,), launch = program.kernels, program.plan.launches[0]
    broken = re.sub(r"cp\.async\.wait_group\s+\d+;", "", kernel.asm)
    parsed, memory = parse.parse(broken)[kernel.name], Memory()
    sizes = [128 * 128, 128 * 320, 320 * 128]
    args = machine.pack(parsed, [memory.place(np.zeros(n, np.uint16)) for n in sizes])
    with pytest.raises(parse.PtxError, match=r"cp\.async has not been waited for"):
        machine.run(parsed, launch.grid, launch.block, args, memory)


REFUSED = {
    "float32": (uopc.param("a", (32, 32)) @ uopc.param("b", (32, 32)), "rounded to tf32"),
    "edge": (bf16("a", 30, 32) @ bf16("b", 32, 32), "16 does not divide the range of 30"),
    "depth": (bf16("a", 32, 30) @ bf16("b", 30, 32), "16 does not divide the range of 30"),
    "no product": (bf16("a", 32, 32, 32).max(1), "not a sum of products"),
    "unlike": (
        (uopc.param("a", (32, 32), dtypes.float16).cast(dtypes.float32).reshape(32, 32, 1)
         * bf16("b", 32, 32).cast(dtypes.float32).reshape(1, 32, 32)).sum(1),
        "no tensor core multiplies",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name):
    graph, words = REFUSED[name]
    with pytest.raises(UserError, match=words):
        uopc.compile(graph.contiguous([Opt("TC", 2, 0)]), device="cuda:sm_90a")


def test_the_same_opts_on_a_cpu():
    """Where there are no tensor cores, their tiles are loops."""
    given = [numbers((32, 32), dtypes.bfloat16) for _ in "ab"]
    graph = (bf16("a", 32, 32) @ bf16("b", 32, 32)).contiguous([Opt("TC", 2, 0)])
    got = uopc.compile(graph, verify=True)(*given)
    assert np.array_equal(got.astype(np.float64), exact(*given).astype(ml_dtypes.bfloat16))
