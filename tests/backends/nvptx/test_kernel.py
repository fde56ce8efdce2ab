"""PTX text: what is in it, that ptxas takes it for every part, and what the plan says beside it."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import uopc
from uopc import target
from uopc.backends.nvptx.calls import Calls
from uopc.backends.nvptx.kernel import GpuEmitter
from uopc.backends.nvptx.ptxas import assemble, find_ptxas
from uopc.ir.builder import kernel
from uopc.ir.core import dtypes
from uopc.ir.core.args import Opt, ParamArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.interpret import interpreter

GPUS = tuple(target.GPUS)
needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="no ptxas: see the extra `test-full`")


def ptx_of(graph, device="cuda:sm_90", **options):
    program = uopc.compile(graph, device=device, verify=True, **options)
    return program, "\n".join([k.asm for k in program.kernels])


def softmax():
    return uopc.param("x", (6, 70)).softmax(-1)


@pytest.mark.parametrize("part", GPUS)
def test_every_part_has_text(part):
    _, ptx = ptx_of(softmax(), f"cuda:{part}")
    assert f".target {part}\n" in ptx and ".visible .entry r_6_70" in ptx
    assert ".extern .func" not in ptx


HALVES = [uopc.param(n, (256, 256), dtypes.bfloat16) for n in "ab"]
# Features of every part, each with a graph that needs it, and an instruction that shows it.
OF_EVERY_PART = {
    "a reduce of warps": (softmax, "shfl.sync.bfly"),
    "a reduce of blocks": (lambda: uopc.param("x", (3, 5000)).softmax(-1), "bar.sync"),
    "a tensor core": (lambda: HALVES[0] @ HALVES[1], "mma.sync"),
    "copies ahead": (lambda: HALVES[0] @ HALVES[1], "cp.async"),
    "matrices": (lambda: HALVES[0] @ HALVES[1], "ldmatrix"),
    "doubles": (lambda: uopc.param("x", (300,), dtypes.float64).sin(), "fma.rn.f64"),
    "a gate": (lambda: uopc.param("x", (999,)).pad(((2, 3),)), "bra"),
    "vectors": (lambda: uopc.param("x", (4096,)) * 2, "ld.global.nc.v4"),
}


@needs_ptxas
@pytest.mark.parametrize("name", OF_EVERY_PART)
@pytest.mark.parametrize("part", GPUS)
@pytest.mark.few(3)
def test_every_part_assembles(part, name):
    make, instruction = OF_EVERY_PART[name]
    _, ptx = ptx_of(make(), f"cuda:{part}")
    assert instruction in ptx and f".target {part}\n" in ptx
    (usage,) = assemble(ptx, part).kernels.values()
    assert usage.spill_stores == usage.spill_loads == 0


@needs_ptxas
@pytest.mark.parametrize("t", [dtypes.fp8e4m3, dtypes.fp8e5m2])
@pytest.mark.parametrize("part", GPUS)
def test_conversions_of_8_bits_are_the_parts_own(part, t):
    """An instruction from sm_89 on, integer arithmetic before; no call either way."""
    x, y = uopc.param("x", (512,)), uopc.param("y", (512,), t)
    _, ptx = ptx_of((x.cast(t), y.cast(dtypes.float32)), f"cuda:{part}")
    kind = t.name.removeprefix("fp8")
    native = (f"cvt.rn.satfinite.{kind}x2.f32" in ptx, f"cvt.rn.f16x2.{kind}x2" in ptx)
    assert native == ((target.GPUS[part].version >= 89,) * 2) and "call" not in ptx
    assemble(ptx_module(ptx), part)


@pytest.mark.parametrize(
    "part, name, words",
    [
        *[("sm_90a", f"llvm.{f}.f32", "no instruction for") for f in
          ("log", "log2", "exp", "exp10", "pow", "sin", "tan", "acos", "masked.load.v4")],
        ("sm_90a", "llvm.exp2.f64", "no instruction for"),
        ("sm_90a", "llvm.sqrt.f8", "no instruction for"),
        ("sm_86", "llvm.nvvm.ff.to.e4m3x2.rn", r"needs sm_89 and PTX 8\.1"),
        ("sm_80", "llvm.nvvm.e5m2x2.to.f16x2.rn", r"needs sm_89 and PTX 8\.1"),
    ],
)  # fmt: skip
@pytest.mark.few(5)
def test_what_ends_the_process_inside_llvm_is_refused_before(part, name, words):
    """Intrinsics that LLVM cannot select abort: none reaches it that the table does not have."""
    program, _ = ptx_of(softmax(), f"cuda:{part}")
    emitter = GpuEmitter("k", program.kernels[0].uops, target.gpu_target(part), Calls())
    with pytest.raises(uopc.Unsupported, match=words):
        emitter.intrinsic("float", name, [("float", "%x")])


def test_calling_text_is_refused():
    program, _ = ptx_of(softmax())
    with pytest.raises(uopc.Unsupported, match="is PTX text"):
        program(np.zeros((6, 70), np.float32))


def test_unknown_part_is_refused():
    with pytest.raises(uopc.UserError, match=r"unknown GPU 'sm_10'; choose sm_80"):
        uopc.compile(softmax(), device="cuda:sm_10")


def test_block_is_what_the_entry_requires():
    program, ptx = ptx_of(uopc.param("x", (5000,)) * 2)
    (launch,), (kernel,) = program.plan.launches, program.kernels
    assert f".reqntid {', '.join(map(str, launch.block))}" in ptx
    assert launch.block == kernel.block and launch.kernel == kernel.name
    blocks = [int(d) for d in launch.grid]
    assert np.prod(blocks) * np.prod(launch.block) >= 5000 / 4


def test_words_are_parameters_in_order():
    n = uopc.variable("n", 1, 4096)
    program, ptx = ptx_of(uopc.param("x", (n,)) * n)
    (launch,) = program.plan.launches
    params = re.findall(r"\.param (\.\w+)", ptx.partition(")")[0])
    assert params == [".u64"] * len(launch.words)
    assert launch.grid[0].evaluate({"n": 1000}) == -(-1000 // launch.block[0])


def test_what_nothing_writes_is_read_through_the_cache():
    x, y = uopc.param("x", (512,)), uopc.param("y", (512,))
    _, ptx = ptx_of(x + y)
    assert ptx.count("ld.global.nc") == len(re.findall(r"ld\.global", ptx)) > 0
    _, ptx = ptx_of(x.assign(x + y))
    assert ptx.count("ld.global.nc") < len(re.findall(r"ld\.global", ptx))


DTYPES = [
    dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32,
    dtypes.uint32, dtypes.int64, dtypes.uint64, dtypes.float16, dtypes.bfloat16, dtypes.float32,
    dtypes.float64, dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.fp8e4m3fnuz, dtypes.fp8e5m2fnuz,
]  # fmt: skip


@needs_ptxas
@pytest.mark.parametrize("t", DTYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("part", (pytest.param("sm_80", marks=pytest.mark.slow), "sm_90a"))
@pytest.mark.few(2)
def test_every_dtype_and_conversion(t, part):
    x, y = uopc.param("x", (99,), t), uopc.param("y", (99,), t)
    outputs = [x + y, x * y, x.maximum(y), x < y, x.sum(), *[x.cast(u) for u in DTYPES]]
    if t.kind != "bool":
        outputs += [x // y, x % y, -x, abs(x)]
    if t.is_float:
        outputs += [x.exp(), x.sin(), x.log(), x.sqrt(), x.floor(), x / y]
    if t.is_int:
        outputs += [x << y, x >> y, x & y, x**3]
    _, ptx = ptx_of(tuple(outputs), f"cuda:{part}")
    assert ".extern .func" not in ptx
    assemble(ptx_module(ptx), part)


def ptx_module(ptx):
    """Several modules as one: the head of the first alone."""
    head, *rest = ptx.split("//\n// Generated by LLVM NVPTX Back-End\n//\n")[1:]
    return head + "".join([re.sub(r"\.(version|target|address_size) .*\n", "", r) for r in rest])


# ---------------------------------------------------------------- what the heuristic makes
@pytest.mark.parametrize("t", [dtypes.float32, dtypes.float16, dtypes.int8, dtypes.float64])
def test_copies_are_16_bytes_wide(t):
    """Nothing but 16-byte accesses: what a memory-bound kernel needs."""
    _, ptx = ptx_of(uopc.param("x", (1 << 16,), t) + 1)
    loads, stores = (re.findall(rf"{op}\.global\S*", ptx) for op in ("ld", "st"))
    assert loads and stores
    for access in loads + stores:
        count, bits = re.search(r"(?:\.v(\d))?\.b(\d+)$", access).groups()
        assert int(count or 1) * int(bits) == 128, access


def test_unaligned_rows_are_not_read_as_vectors():
    _, ptx = ptx_of(uopc.param("x", (64, 1001)).exp().sum(1))
    assert "ld.global.nc.b32" in ptx and ".v4" not in ptx


def rows_of_rows_of_sines():
    """Sums of 5 sines and logarithms, of each of 100 columns."""
    x = uopc.param("x", (20, 5, 100))
    return ((x.sin() * x.log()).sqrt() * x.cos()).sum(1)


@needs_ptxas
@pytest.mark.parametrize("part", ("sm_80", "sm_90a"))
def test_lanes_are_fewer_where_they_compute_much(part):
    """Arithmetic is the limit there, and copies of it would fill the registers."""
    _, ptx = ptx_of(rows_of_rows_of_sines(), f"cuda:{part}")
    (usage,) = assemble(ptx, part).kernels.values()
    assert usage.registers <= 96 and usage.spill_stores == 0
    assert "st.global.v4" not in ptx
    _, light = ptx_of(uopc.param("x", (20, 5, 100)).sum(1), f"cuda:{part}")
    assert "st.global.v4" in light


@pytest.mark.parametrize("columns", [128, 500, 1000, 4096])
def test_rows_are_reduced_by_their_block(columns):
    program, ptx = ptx_of(uopc.param("x", (7, columns)).softmax(-1))
    (kernel,) = program.kernels
    assert [int(d) for d in program.plan.launches[0].grid] == [7, 1, 1]
    assert kernel.block[0] >= 32 and "shfl.sync.bfly" in ptx
    assert ("bar.sync" in ptx) == (kernel.block[0] > 32) == (kernel.shared_bytes > 0)


@needs_ptxas
@pytest.mark.parametrize("part", ("sm_80", "sm_90a"))
def test_a_product_is_tiled_in_registers(part):
    a, b = uopc.param("a", (512, 512)), uopc.param("b", (512, 512))
    program, ptx = ptx_of(a @ b, f"cuda:{part}")
    (usage,) = assemble(ptx, part).kernels.values()
    assert usage.spill_stores == usage.spill_loads == 0 and usage.registers <= 128
    assert ptx.count("fma.rn.f32") >= 32 and program.kernels[0].block[:2] == (8, 8)


def test_places_beyond_two_to_the_31_are_reached():
    """Block and thread are widened before they are multiplied, and bytes are added in 64 bits."""
    program, ptx = ptx_of(uopc.param("x", (3 << 30,), dtypes.int8) + 1)
    blocks, threads = program.plan.launches[0].grid[0], program.kernels[0].block[0]
    each = 3 * (1 << 30) // (blocks * threads)
    assert each * blocks * threads == 3 << 30
    step = each * threads
    widened = rf"mul\.wide\.u32 \t%rd\d+, %r\d+, {step};|shl\.b64 .*, {step.bit_length() - 1};"
    assert re.search(widened, ptx)
    thread = re.search(r"mov\.u32 \t(%r\d+), %tid\.x;", ptx)[1]  # its part is small
    for narrow in re.findall(r"(?:mul\.lo|shl|mad)\S*\.[bsu]32 \t%r\d+, (%r\d+),", ptx):
        assert narrow == thread


def test_guarded_reads_are_behind_a_branch():
    _, ptx = ptx_of(uopc.param("x", (1000,)).pad(((3, 5),)) * 2)
    body = ptx[ptx.index("{") :]
    read = body.index("ld.global")
    assert "@%p" in body[:read] and "bra" in body[:read] and body.count("ld.global") == 1


def test_a_block_is_at_most_what_the_part_has():
    with pytest.raises(uopc.Unsupported, match="a block has 2048 threads, expected at most 1024"):
        ptx_of(hand_written(4096, (Opt("LOCAL", 0, 2048),)))


def hand_written(n, opts):
    """exp of n elements, with Opts of its own."""

    def storage(slot):
        return intern(Ops.PARAM, dtypes.float32, (), ParamArg(f"p{slot}", (n,), slot))

    def at(slot, i):
        return intern(Ops.INDEX, dtypes.float32, (storage(slot), i))

    i = kernel.range(n)
    stored = kernel.store(at(0, i), kernel.load(at(1, i)).exp())
    return kernel.sink(kernel.end(stored, i), opts=opts)


def test_linear_program_runs_with_its_threads():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 70)).astype(np.float32)
    program, _ = ptx_of(softmax())
    out = np.zeros_like(x)
    interpreter.run_kernel(program.kernels[0].uops, [out.reshape(-1), x.reshape(-1)], {})
    e = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(-1, keepdims=True), rtol=1e-5)


def layout(graph):
    """Blocks and threads of each launch."""
    program = uopc.compile(graph, device="cuda:sm_90a")
    return [(math.prod(map(int, x.grid)), math.prod(x.block)) for x in program.plan.launches]


def test_a_long_reduce_fills_the_device():
    """In pieces, over two kernels; the values before it are not done by one block either."""
    x = uopc.param("x", (1 << 22,))
    for graph in (x.sum(), x.argmax(), x.var(), (x * uopc.param("y", (1 << 22,))).sum()):
        large = [n for n in layout(graph) if n[0] > 1]
        assert large and all(blocks * threads >= 1 << 17 for blocks, threads in large)
    assert all(n[0] * n[1] >= 1 << 17 for n in layout(x.reshape(1, -1).softmax(-1)) if n[1] > 32)


def test_few_columns_share_their_rows():
    ((blocks, threads),) = layout(uopc.param("x", (4096, 4096)).sum(0))
    assert blocks >= 64 and threads == 1024


@pytest.mark.parametrize(
    "graph, wide",
    [
        (uopc.param("x", (1 << 24,)).sum(), "v4.b32"),
        (uopc.param("x", (8192, 4096)).sum(0), "b32"),
        (uopc.param("x", (4096, 8192), dtypes.float16).sum(1), "v4.b32"),
    ],
)  # fmt: skip
def test_a_thread_of_a_reduce_waits_for_several_loads(graph, wide):
    """64 bytes of them without a branch between; so a device is never idle for latency."""
    _, ptx = ptx_of(graph, "cuda:sm_90a")
    bodies = re.split(r"\n\$\w+:|\bbra\b", ptx)
    most = max(len(re.findall(rf"ld\.global(?:\.nc)?\.{wide}", body)) for body in bodies)
    assert most * (16 if wide.startswith("v4") else 4) == 64


@pytest.mark.parametrize("part", ("sm_80", "sm_86", "sm_90a"))
def test_short_rows_share_a_block(part):
    """Blocks of one warp are too few for an SM; few rows stay alone, so that all SMs have some."""
    for rows, together in ((1 << 16, 8), (64, 1), (1 << 16 | 1, 1)):
        program, _ = ptx_of(uopc.param("x", (rows, 64)).softmax(-1), f"cuda:{part}")
        (launch,) = program.plan.launches
        assert launch.block == (32, together, 1) and launch.grid[0] == rows // together


def test_a_transposed_read_is_whole_sectors():
    """Loads and stores of 16 bytes, both ways neighbours."""
    _, ptx = ptx_of(uopc.param("x", (512, 512)).transpose().contiguous(), "cuda:sm_90a")
    loads = re.findall(r"ld\.global\S*", ptx)
    assert len(loads) == 4 and all(".v4.b32" in t for t in loads)
    assert ptx.count("st.global.v4.b32") == 4
    _, odd = ptx_of(uopc.param("x", (511, 513)).transpose().contiguous(), "cuda:sm_90a")
    assert ".reqntid 8, 32" in odd


def test_a_convolution_has_rows_of_filters():
    """A tile is of pixels and of filters, so that what is read is used by all of it."""
    x, w = uopc.param("x", (4, 32, 56, 56)), uopc.param("w", (64, 32, 3, 3))
    program, ptx = ptx_of(x.conv2d(w, padding=1), "cuda:sm_90a")
    assert ptx.count("fma.rn.f32") >= 80 and math.prod(program.kernels[0].block) == 256


def test_a_row_stays_in_registers():
    """Each value of a softmax is read once, and its exponential is computed once."""
    program, ptx = ptx_of(uopc.param("x", (64, 1024)).softmax(-1), "cuda:sm_90a")
    (kernel,) = program.kernels
    values = 1024 // math.prod(kernel.block)
    assert ptx.count("ld.global") * 4 == values
    assert ptx.count("0f3FB8AA3B") == values  # 1 / ln 2, once for an exponential


def test_what_a_product_reads_is_stored():
    """A normalisation is no part of each of a product's columns."""
    x, w = uopc.param("x", (1024, 512)), uopc.param("w", (512, 1024))
    program, _ = ptx_of(x.layer_norm() @ w, "cuda:sm_90a")
    assert len(program.plan.launches) == 2
    program, _ = ptx_of(x.relu() @ w, "cuda:sm_90a")
    assert len(program.plan.launches) == 1


def test_a_number_is_compared_with_lanes():
    """Only scalars are compared in 32 bits: the other operand may be a vector."""
    x, counted = uopc.param("x", (4,)), uopc.arange(4)
    chosen = (counted < counted.reshape(4, 1) + 1).where(x.reshape(1, 4), 0.0)
    graph = chosen.sum(axis=1) + uopc.param("y", (4,))
    assert uopc.compile(graph, device="cuda:sm_80").kernels
