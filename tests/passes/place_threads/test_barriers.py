"""Barriers and waits of compiled kernels: each is needed, and its absence is noticed.

The PTX machine runs a kernel as it is; then each barrier, and each wait for asynchronous copies, is
taken out of the text, one at a time, and the machine must name a race. The interpreter runs the
linear program with blocks, threads and barriers, and must do the same with a barrier taken out.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import uopc
from tests.backends.cuda.test_cuda_programs import PROGRAMS, arrays
from tests.ir.interpret.test_stages import copies, stages
from tests.ptx import machine, parse
from tests.ptx.memory import Memory
from uopc import driver, dtypes
from uopc.ir.interpret.interpreter import evaluate

BF16, F16 = dtypes.bfloat16, dtypes.float16


def param(name, *shape, dtype=dtypes.float32):
    return uopc.param(name, shape, dtype)


def reads_its_norm():
    x = param("x", 3, 5000)
    return (x - x.max(axis=1, keepdims=True)).exp() * x.sum(axis=1, keepdims=True)


def loop_of_reduces():
    """A block adds up 32 columns after 32 others, in the same shared memory."""
    return uopc.parse("""
        %1 = param sums slot=0 : f32[96]
        %2 = param x slot=1 : f32[384]
        %3 = range 32 axis=0 kind=local : index
        %4 = range 3 axis=1 kind=loop : index
        %5 = range 4 axis=2 kind=grouptop : index
        %6 = mul %4, 32 : index
        %7 = add %3, %6 : index
        %8 = mul %5, 96 : index
        %9 = add %7, %8 : index
        %10 = index %2, %9 : f32
        %11 = reduce.add %10 over %5 : f32
        %12 = index %1, %7 : f32
        %13 = store %12, %11
        %14 = end %13, %3, %4
        sink %14 name=sums opts=()""")


KERNELS = {
    "loop of reduces": loop_of_reduces,
    "rows of a block": lambda: param("x", 3, 5000).softmax(axis=-1),
    "two reduces": reads_its_norm,
    "columns": lambda: param("x", 512, 64).sum(axis=0),
    "all": lambda: param("x", 3000).sum(),
    "product": lambda: param("a", 128, 320, dtype=BF16) @ param("b", 320, 128, dtype=BF16),
    "one slice": lambda: param("a", 64, 32, dtype=BF16) @ param("b", 32, 64, dtype=BF16),
    "scaled": lambda: (param("a", 64, 96, dtype=BF16) * 0.5) @ param("b", 96, 64, dtype=BF16),
    "convolution": lambda: param("x", 1, 32, 12, 24, dtype=F16).conv2d(
        param("k", 32, 32, 3, 3, dtype=F16), padding=1
    ),
}  # fmt: skip
_WAITS = re.compile(r"\n\s*(?:bar\.sync|barrier\.cta|cp\.async\.wait_group)[^;]*;")


def execute(program, launch, text):
    """One launch on random numbers."""
    plan, memory, random = program.plan, Memory(), np.random.default_rng(0)
    kernel = parse.parse(text)[launch.kernel]
    made = [random.standard_normal(v.shape).astype(v.dtype) for v in (*plan.arguments, *plan.fresh)]
    made.append(random.standard_normal(plan.arena_bytes // 4 + 4).astype(np.float32))
    places = [memory.place(np.ascontiguousarray(a)) for a in (*made, *plan.constants)]
    words = [places[w.base] + w.offset if hasattr(w, "base") else w.value for w in launch.words]
    args = machine.pack(kernel, words)
    machine.run(kernel, launch.grid, launch.block, args, memory, launch.dynamic_shared)


@pytest.mark.parametrize("part", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.few(4)
def test_every_wait_is_needed(name, part):
    program = uopc.compile(KERNELS[name](), device=f"cuda:{part}")
    texts = {k.name: k.asm for k in program.kernels}
    found = 0
    for launch in program.plan.launches:
        text = texts[launch.kernel]
        execute(program, launch, text)
        for wait in _WAITS.finditer(text):
            found += 1
            with pytest.raises(parse.PtxError, match=r"no barrier between|cp\.async"):
                execute(program, launch, text[: wait.start()] + text[wait.end() :])
    assert found


# ---------------------------------------------------------------- the interpreter
INTERPRETED = (
    "exp", "half", "rows", "columns", "softmax", "layer_norm", "conv", "attention", "crossed",
    "several", "rows_inside", "columns_few", "all", "one slice",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", INTERPRETED)
def test_every_stage_means_the_same(name):
    """Threads, barriers, shared memory and tensor cores at every level, down to the linear one."""
    graph = (PROGRAMS | KERNELS)[name]()
    roots = list(graph) if isinstance(graph, tuple) else [graph]
    on_cpu = uopc.compile(graph)
    given = {v.name: a for v, a in zip(on_cpu.inputs, arrays(on_cpu), strict=True)}
    want = evaluate(roots, copies(given))
    results = stages(driver.lower_only(roots, device="cuda:sm_90a"), given)
    assert len(results) > 10 and "linearize" in dict(results)
    for stage, got in results:
        for a, b in zip(want, got, strict=True):
            a, b = np.asarray(a, "f8"), np.reshape(b, np.shape(a)).astype("f8")
            eps = 2.0**-7 if roots[0].dtype.itemsize < 4 else 2.0**-13
            scale = max(1.0, float(np.nanmax(np.abs(a), initial=0)))
            np.testing.assert_allclose(b, a, rtol=eps, atol=eps * scale, err_msg=stage)
