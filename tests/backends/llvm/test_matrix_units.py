"""Matrix units of CPUs: pairs of bfloat16 (DOT2, AVX512-BF16) and tiles of words (AMX).

Whole kernels run here, with functions in place of the instructions (`matrix_units.py`), and are
compared with NumPy: products of integers exactly, those of bfloat16 within the bound of a float32
sum of exact products.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import uopc
from tests.backends.llvm.matrix_units import executed
from tests.machines import _OWN as own_machine
from tests.machines import MACHINES, described, lowered_for, only_lowered
from uopc import dtypes
from uopc.backends import detect, tile_permission
from uopc.backends.llvm import jit
from uopc.driver import lower_only
from uopc.exporting import exported, machines
from uopc.ir.core import walk
from uopc.ir.core.levels import KERNEL, LINEAR, VECTOR
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

F32, I32 = dtypes.float32, dtypes.int32
BF16 = np.dtype(ml_dtypes.bfloat16)


def halves(seed, *dims):
    """Random bfloat16, and the parameter for them as float32."""
    array = np.random.default_rng(seed).standard_normal(dims).astype(BF16)
    return array, uopc.param("ab"[seed % 2], dims, dtypes.bfloat16).cast(F32)


def whole(t, name, *dims):
    """Bytes with many extreme values, and the parameter for them as int32."""
    limits = np.iinfo(t)
    random = np.random.default_rng(len(dims) + dims[0])
    array = random.choice([limits.min, limits.max, 0, 1, 77], dims).astype(t)
    return array, uopc.param(name, dims, array.dtype).cast(I32)


def ops_of(machine, graph, threads=1):
    """The ops of the linear kernels of a graph."""
    return {u.op for k in lowered_for(machine, graph, threads).kernels for u in k.src}


def run(graph, threads=1, machine="matrix", changes=None, **arrays):
    """A program for a machine with units, executed here, all of its stages verified."""
    with executed(machine, **(changes or {})):
        program = uopc.compile(graph, threads=threads, verify=True)
    return program(**arrays)


def has_pairs():
    """True if this processor has the instruction for pairs of bfloat16."""
    return "vpdpbf16ps" in own_machine().units


def check(graph, a, b, threads=1, machine="matrix", changes=None, tiles=True, **more):
    """A product of bfloat16 against NumPy's of float64, and the sums' bound; by a processor that
    has the instruction, the same bits."""
    got = run(graph, threads, machine, changes, a=a, b=b, **more)
    if machine == "pairs" and has_pairs():
        with described(machine):
            program = uopc.compile(graph, threads=threads)
        np.testing.assert_array_equal(program(a=a, b=b, **more), got)
    assert (Ops.WMMA in ops_of(machine, graph, threads)) == tiles
    x, y = a.astype("f8"), b.astype("f8")
    bound = (a.shape[-1] + 8) * 2.0**-24 * (np.abs(x) @ np.abs(y)) + 1e-30
    assert np.all(np.abs(got - x @ y) <= bound)


# ---------------------------------------------------------------- the op
def dot2(a, b, c=0.0):
    """The sum of products of pairs, by ml_dtypes and NumPy, in float64."""
    pairs = [v.reshape(-1, 1).view(BF16).astype("f8") for v in (a, b)]
    return (pairs[0] * pairs[1]).sum(1).reshape(a.shape) + c


@pytest.mark.parametrize("machine", ["laptop", "matrix"])
@pytest.mark.parametrize("n", [1, 3, 13, 64])
def test_the_op_on_any_length(machine, n):
    a, b = (halves(i, 2 * n)[0].view("i4") for i in range(2))
    c = np.random.default_rng(n).standard_normal(n).astype("f4")
    x, y = (uopc.param(name, (n,), I32) for name in "xy")
    z = uopc.param("z", (n,))
    one = x.alu(Ops.DOT2, y)
    assert one.dtype is F32
    graph = one, z + one, z - one, x.alu(Ops.DOT2, y, z)
    wanted = dot2(a, b), dot2(a, b, c), c - dot2(a, b), dot2(a, b, c)
    with executed("matrix") if machine == "matrix" else described(machine):
        program = uopc.compile(graph, verify=True)
    assert (Ops.DOT2 in ops_of(machine, graph)) == (machine == "matrix")
    for got, g, exact in zip(program(x=a, y=b, z=c), graph, wanted):
        given = {p.arg.name: {"x": a, "y": b, "z": c}[p.arg.name] for p in walk.order(g)
                 if p.op is Ops.PARAM}  # fmt: skip
        for made in (got, interpreter.evaluate(g, given)):
            np.testing.assert_allclose(made, exact, rtol=1e-5, atol=1e-6)


def test_bad_operands_of_the_op():
    x, f = uopc.param("x", (4,), I32), uopc.param("f", (4,))
    with pytest.raises(uopc.errors.InvalidIR, match="the operands are float32, expected int32"):
        uopc.compile(f.alu(Ops.DOT2, f))
    with pytest.raises(uopc.errors.InvalidIR, match="operand 2 is int32, expected float32"):
        uopc.compile(x.alu(Ops.DOT2, x, x))


def test_constants_fold():
    word = int(np.array([1.5, -2.0], BF16).view("i4")[0])
    one = uopc.constant(word, I32).alu(Ops.DOT2, uopc.constant(word, I32))
    assert one.op is Ops.CONST and one.dtype is F32 and one.arg == 6.25


def test_the_derivative_is_that_of_the_sum():
    """Words are integers, through which nothing flows."""
    x, z = uopc.param("x", (4,), I32), uopc.param("z", (4,))
    (slope,) = uopc.grad(x.alu(Ops.DOT2, x, z).sum(), [z])
    assert uopc.compile(slope)().tolist() == [1.0] * 4


# ---------------------------------------------------------------- pairs of bfloat16
SMALL = [(1, 5, 7), (3, 2, 9), (5, 7, 33), (13, 20, 300), (33, 17, 8)]
THIN = [(1, 64, 70), (5, 64, 64), (5, 130, 33), (17, 100, 129), (40, 65, 63), (9, 16, 8)]


@pytest.mark.parametrize(("m", "n", "k"), SMALL)
def test_products_of_pairs(m, n, k):
    (a, x), (b, y) = halves(0, m, k), halves(1, k, n)
    check(x @ y, a, b, machine="pairs", tiles=False)
    if k >= 8 and min(m, n) > 1:
        assert Ops.DOT2 in ops_of("pairs", x @ y)


@pytest.mark.parametrize(("m", "n", "k"), THIN)
@pytest.mark.few(3)
def test_weights_of_each_output_in_a_row(m, n, k):
    """Words lie in memory; odd rows end with half of one."""
    (a, x), (b, y) = halves(0, m, k), halves(1, n, k)
    turned = np.ascontiguousarray(b.T)
    got = run(x @ y.permute((1, 0)), machine="pairs", a=a, b=b)
    bound = (k + 8) * 2.0**-24 * (np.abs(a.astype("f8")) @ np.abs(turned.astype("f8")))
    assert np.all(np.abs(got - a.astype("f8") @ turned.astype("f8")) <= bound)
    if has_pairs():
        with described("pairs"):
            program = uopc.compile(x @ y.permute((1, 0)), threads=1)
        np.testing.assert_array_equal(program(a=a, b=b), got)


def random_words(seed, n):
    """Bits of all kinds: any, small numbers and sums that leave the normal ones, extremes."""
    random = np.random.default_rng(seed)
    bits = random.integers(0, 1 << 32, n, np.uint32)
    kind = random.integers(0, 4, n)
    low, lower = bits & np.uint32(0x8FFF_9FFF), bits & np.uint32(0x80FF_80FF)
    near = (bits & np.uint32(0x83FF_83FF)) | np.uint32(0x2000_2000)  # products near 2^-126
    return np.choose(kind, [bits, low, lower, near])


def added_once(a, b, c):
    """a*b + c of float32, rounded once: to an odd float64 first."""
    with np.errstate(all="ignore"):
        product, c = a.astype("f8") * b.astype("f8"), c.astype("f8")
        total = product + c
        back = total - product
        lost = (product - (total - back)) + (c - back)
        bits = total.view("i8")
        moved = np.where((lost > 0) == (total > 0), bits + 1, bits - 1)
        inexact = np.isfinite(total) & np.isfinite(lost) & (lost != 0) & (bits % 2 == 0)
        return np.where(inexact, moved, bits).view("f8").astype("f4")


def without_subnormals(a):
    return np.where(np.abs(a) < 2.0**-126, np.copysign(np.float32(0), a), a).astype("f4")


def pairs_by_the_manual(a, b, c):
    """VDPBF16PS in NumPy, of words as uint32: the high numbers, then the low ones."""
    parts = [((v & np.uint32(0xFFFF0000)).view("f4"), (v << np.uint32(16)).view("f4"))
             for v in (a, b)]  # fmt: skip
    total = without_subnormals(c)
    for x, y in zip(*parts):
        total = without_subnormals(added_once(without_subnormals(x), without_subnormals(y), total))
    return total


@pytest.mark.parametrize("seed", range(3))
def test_the_instruction_on_any_bits(seed):
    """The function in its place, and the processor where it has it: operands and sums below the
    least normal number are 0, each sum rounds once, infinities and NaN go through."""
    n = 1 << 12
    a, b = random_words(seed, n), random_words(seed + 10, n)
    c = random_words(seed + 20, n).view("f4")
    x, y, z = uopc.param("x", (n,), I32), uopc.param("y", (n,), I32), uopc.param("z", (n,))
    graph, exact = x.alu(Ops.DOT2, y, z), pairs_by_the_manual(a, b, c)
    for machine in [executed, described] if has_pairs() else [executed]:
        with machine("pairs"):
            program = uopc.compile(graph)
        got = program(x=a.view("i4"), y=b.view("i4"), z=c)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
        numbers = ~np.isnan(exact)
        np.testing.assert_array_equal(got[numbers].view("u4"), exact[numbers].view("u4"))


def test_what_has_no_pairs():
    """Other machines, other dtypes, sums that share nothing, and where the user says so."""
    (_, x), (_, y) = halves(0, 64, 64), halves(1, 64, 64)
    half = uopc.param("h", (64, 64), dtypes.float16).cast(F32)
    single, wide = uopc.param("s", (64, 64)), x.cast(dtypes.float64)
    assert Ops.DOT2 in ops_of("pairs", x @ y)
    for graph in (x @ half, half @ half, x @ single, wide @ wide, (x * y).sum(1), (x * 2) @ y):
        assert ops_of("matrix", graph).isdisjoint((Ops.DOT2, Ops.WMMA))
    for machine in ("laptop", "workstation", "dots", "server"):
        assert ops_of(machine, x @ y).isdisjoint((Ops.DOT2, Ops.WMMA))
    with uopc.options(dot_products=False):
        assert ops_of("matrix", x @ y).isdisjoint((Ops.DOT2, Ops.WMMA))


def test_infinity_and_nan():
    """Zeros complete odd sums on both sides, so that no infinity meets one."""
    (a, x), (b, y) = halves(0, 17, 33), halves(1, 33, 18)
    a[3, 32], a[4, 5], b[7, 2] = np.inf, np.nan, -np.inf
    for machine in ("pairs", "matrix"):
        got = run(x @ y, machine=machine, a=a, b=b)
        with np.errstate(invalid="ignore"):
            wanted = a.astype("f8") @ b.astype("f8")
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(wanted))


def test_subnormal_numbers_are_zeros():
    """As the instructions have it; elsewhere, and in the interpreter, they count."""
    a, b = np.full((16, 32), 2.0**-130, BF16), np.full((32, 16), 2.0**100, BF16)
    x, y = (uopc.param(n, v.shape, dtypes.bfloat16).cast(F32) for n, v in (("a", a), ("b", b)))
    for machine in ("pairs", "matrix"):
        assert not run(x @ y, machine=machine, a=a, b=b).any()
    assert interpreter.evaluate(x @ y, {"a": a, "b": b})[0, 0] == np.float32(2.0**-25)
    with described("laptop"):
        assert uopc.compile(x @ y)(a=a, b=b)[0, 0] == np.float32(2.0**-25)


@pytest.mark.parametrize("n", [31, 32])
def test_a_softmax_of_rows_of_odd_length(n):
    """The zero that completes a word has no maximum and no sum of its own."""
    (q, x), (k, y), (v, z) = halves(0, 20, 24), halves(1, n, 24), halves(2, n, 24)
    z = uopc.param("v", v.shape, dtypes.bfloat16).cast(F32)
    scores = (x @ y.permute((1, 0))).softmax(axis=-1).cast(dtypes.bfloat16).cast(F32)
    graph = scores @ z
    (stage,) = [r for r in lowered_for("pairs", graph).runs if r.name == "rangeify"]
    reduces = [u.arg.op for u in walk.order(stage.after[0]) if u.op is Ops.REDUCE]
    assert sorted(reduces) == ["add", "add", "add", "max"]
    exact = np.exp(q.astype("f8") @ k.astype("f8").T)
    exact = (exact / exact.sum(1, keepdims=True)) @ v.astype("f8")
    with described("pairs"):
        program = uopc.compile(graph, threads=1, verify=True)
    np.testing.assert_allclose(program(a=q, b=k, v=v), exact, atol=0.02)


@pytest.mark.parametrize("machine", ["laptop", "pairs"])
@pytest.mark.parametrize(("m", "n", "k"), [(40, 50, 64), (33, 17, 70), (20, 64, 31)])
def test_rows_that_lie_across(machine, m, n, k):
    """The first factor has its rows in columns: blocks are turned over where they are packed."""
    a, b = (np.random.default_rng(i).standard_normal(s).astype(BF16)
            for i, s in enumerate([(k, m), (k, n)]))  # fmt: skip
    x = uopc.param("a", a.shape, dtypes.bfloat16).cast(F32).permute((1, 0))
    graph = x @ uopc.param("b", b.shape, dtypes.bfloat16).cast(F32)
    with described(machine):
        program = uopc.compile(graph, verify=True)
    exact = a.astype("f8").T @ b.astype("f8")
    np.testing.assert_allclose(program(a=a, b=b), exact, atol=1e-4)
    if machine == "pairs":
        np.testing.assert_allclose(run(graph, machine=machine, a=a, b=b), exact, atol=1e-4)


# ---------------------------------------------------------------- tiles
EDGES = [(64, 64, 64), (16, 16, 64), (17, 33, 40), (70, 33, 100), (16, 100, 2048), (100, 31, 65)]


@pytest.mark.parametrize(("m", "n", "k"), EDGES)
@pytest.mark.few(3)
def test_tiles_of_bfloat16(m, n, k):
    (a, x), (b, y) = halves(0, m, k), halves(1, k, n)
    check(x @ y, a, b)


def by_the_manual(a, b, name):
    """A product of 16 rows by 16 columns, step by step as the instruction has it, in NumPy."""
    x, y = (v.astype("f4") for v in (a, b))
    total = np.zeros((16, 16), np.float32)
    for k in range(0, x.shape[1], 32):
        even, odd = np.zeros_like(total), np.zeros_like(total)
        for i in range(k, k + 32, 2):
            low, high = (x[:, i + h, None] * y[None, i + h] for h in (0, 1))
            if name == "tdpbf16ps":
                even, odd = even + low, odd + high
            else:
                total = total + high + low
        total = total + (even + odd)
    return total


@pytest.mark.parametrize(("machine", "name"), [("matrix", "tdpbf16ps"), ("pairs", "vdpbf16ps")])
def test_the_order_of_sums_is_that_of_the_manual(machine, name):
    """Bit for bit: the functions that stand for instructions, and the steps of the kernels."""
    (a, x), (b, y) = halves(0, 16, 96), halves(1, 96, 16)
    np.testing.assert_array_equal(run(x @ y, machine=machine, a=a, b=b), by_the_manual(a, b, name))


@pytest.mark.few(3)
@pytest.mark.parametrize("m, n, k", [
    (m, n, (33, 62, 64, 97)[(i + j) % 4])  # each two of their sizes meet
    for i, m in enumerate((15, 16, 31, 32, 48, 49, 65)) for j, n in enumerate((16, 31, 33, 64))
])  # fmt: skip
def test_tiles_at_every_edge(m, n, k):
    (a, x), (b, y) = halves(0, m, k), halves(1, k, n)
    check(x @ y, a, b)


@pytest.mark.few(3)
@pytest.mark.parametrize("types", ["u1 i1", "i1 i1", "i1 u1", "u1 u1"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 48, 128), (35, 70, 260)])
def test_tiles_of_bytes(types, m, n, k):
    first, second = types.split()
    (a, x), (b, y) = whole(first, "a", m, k), whole(second, "b", k, n)
    got = run(x @ y, a=a, b=b)
    np.testing.assert_array_equal(got, a.astype("i8") @ b.astype("i8"))
    if types == "u1 i1":
        assert Ops.WMMA in ops_of("matrix", x @ y)


def test_sums_of_bytes_wrap():
    a, b = np.full((16, 1 << 17), 255, "u1"), np.full((1 << 17, 32), 127, "i1")
    x, y = uopc.param("a", a.shape, "uint8").cast(I32), uopc.param("b", b.shape, "int8").cast(I32)
    wrapped = (255 * 127 << 17) % (1 << 32)
    with uopc.options(split_reduces=False):
        assert Ops.WMMA in ops_of("matrix", x @ y)
        got = run(x @ y, a=a, b=b)
    np.testing.assert_array_equal(got, wrapped - (1 << 32) * (wrapped >> 31))


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_large_operands(threads):
    """Caches of a small machine: blocks of rows and of columns, the last ones shorter."""
    (a, x), (b, y) = halves(0, 200, 70), halves(1, 70, 170)
    small = {"l2_bytes": 1 << 15, "last_cache_bytes": 1 << 17}
    check(x @ y, a, b, threads, changes=small)
    with executed("matrix", **small):
        (kernel,) = lower_only(x @ y, threads=threads).kernels
    assert [o.op for o in kernel.arg.opts].count("BLOCK") == 2


def test_the_order_of_operands_in_memory():
    (a, x), (b, y) = halves(0, 40, 96), halves(1, 50, 96)
    got = run(x @ y.permute((1, 0)), a=a, b=b)
    np.testing.assert_allclose(got, a.astype("f8") @ b.astype("f8").T, atol=1e-4)
    (a, x), (b, y) = halves(0, 96, 40), halves(1, 96, 50)
    got = run(x.permute((1, 0)) @ y, a=a, b=b)
    np.testing.assert_allclose(got, a.astype("f8").T @ b.astype("f8"), atol=1e-4)


def test_batches():
    (a, x), (b, y) = halves(0, 3, 40, 96), halves(1, 3, 96, 50)
    check(x @ y, a, b)
    (b, y) = halves(1, 96, 50)
    check(x @ y, a, b)
    (a, x), (b, y) = halves(0, 40, 2, 48), halves(1, 2, 48, 50)
    total = (x.reshape((40, 1, 2, 48)) * y.permute((2, 0, 1)).reshape((1, 50, 2, 48))).sum((2, 3))
    wanted = np.einsum("iab,abj->ij", a.astype("f8"), b.astype("f8"))
    np.testing.assert_allclose(run(total, a=a, b=b), wanted, atol=1e-4)


def test_what_stands_around_a_product():
    """Values that are multiplied are computed once, before; what follows reads the sums."""
    (a, x), (b, y) = halves(0, 40, 96), halves(1, 96, 50)
    c = np.random.default_rng(3).standard_normal(50).astype("f4")
    z = uopc.param("c", (50,))
    exact = a.astype("f8") @ b.astype("f8")
    got = run((x @ y + z).relu() * 2, a=a, b=b, c=c)
    np.testing.assert_allclose(got, np.maximum(exact + c, 0) * 2, atol=1e-4)
    narrow = uopc.param("a", a.shape, dtypes.bfloat16) @ uopc.param("b", b.shape, dtypes.bfloat16)
    got = run(narrow, a=a, b=b)
    assert got.dtype == BF16
    np.testing.assert_allclose(got.astype("f8"), exact, rtol=2.0**-8, atol=1e-4)
    clipped = x.relu().cast(dtypes.bfloat16).cast(F32)
    got = run(clipped @ y, a=a, b=b)
    np.testing.assert_allclose(got, np.maximum(a.astype("f8"), 0) @ b.astype("f8"), atol=1e-4)
    assert Ops.WMMA in ops_of("matrix", clipped @ y)


def test_rows_that_are_computed():
    """A value that a whole row needs, as the norm of a layer, is computed once before its tiles."""
    (a, x), (b, y) = halves(0, 40, 96), halves(1, 96, 50)
    moved = x - x.mean(1).reshape((40, 1))
    scaled = moved / ((moved * moved).mean(1).reshape((40, 1)) + 1e-5).sqrt()
    product = scaled.cast(dtypes.bfloat16).cast(F32) @ y
    assert Ops.WMMA in ops_of("matrix", product)
    rows = a.astype("f4") - a.astype("f4").mean(1, keepdims=True)
    rows = rows / np.sqrt((rows * rows).mean(1, keepdims=True) + np.float32(1e-5))
    exact = rows.astype(BF16).astype("f8") @ b.astype("f8")
    np.testing.assert_allclose(run(product, a=a, b=b), exact, atol=2.0**-7)


def test_a_symbolic_number_of_rows():
    n = uopc.variable("n", 1, 200)
    x = uopc.param("a", (n, 96), dtypes.bfloat16).cast(F32)
    b, y = halves(1, 96, 50)
    assert Ops.WMMA in ops_of("matrix", x @ y)
    with executed("matrix"):
        program = uopc.compile(x @ y, verify=True)
    a = halves(0, 200, 96)[0]
    for rows in (1, 16, 17, 200):
        exact = a[:rows].astype("f8") @ b.astype("f8")
        np.testing.assert_allclose(program(a=a[:rows], b=b), exact, atol=1e-4)


def test_what_has_no_tiles():
    """A unit without the dtype, short sums, few rows, several reduces: vectors multiply these."""

    def product(m, n, k):
        return halves(0, m, k)[1] @ halves(1, k, n)[1]

    assert Ops.WMMA in ops_of("matrix", product(64, 64, 64))
    for graph in (product(64, 64, 8), product(7, 64, 64), product(64, 7, 64)):
        assert Ops.WMMA not in ops_of("matrix", graph) and Ops.DOT2 in ops_of("matrix", graph)


# ---------------------------------------------------------------- Opts and stages
def test_the_opts_are_recorded_and_replayed():
    """On a machine without the unit the same Opts are loops, with the same sums."""
    (a, x), (b, y) = halves(0, 48, 64), halves(1, 64, 32)
    (kernel,) = lowered_for("matrix", x @ y).kernels
    names = [o.op for o in kernel.arg.opts]
    assert {"TC", "DISTRIBUTE"} < set(names) and names.count("PACK") == 2
    with only_lowered("matrix"):
        assert lower_only(x @ y, threads=1, opts=kernel.arg.opts).kernels[0] is kernel
    with only_lowered("pairs"):
        (other,) = lower_only(x @ y, threads=1, opts=kernel.arg.opts).kernels
    assert Ops.WMMA not in {u.op for u in other.src} and other.arg.opts == kernel.arg.opts
    exact = a.astype("f8") @ b.astype("f8")
    for k in (kernel, other):
        got = np.zeros((48, 32), np.float32)
        interpreter.run_kernel(k, [got, a, b])
        np.testing.assert_allclose(got, exact, atol=1e-4)


@pytest.mark.parametrize(("m", "n", "k"), [(33, 20, 70), (16, 32, 64)])
def test_every_stage_has_the_meaning_of_the_first(m, n, k):
    """Kernels with tiles in the interpreter, stage by stage: words, tiles, vectors, statements."""
    (a, x), (b, y) = halves(0, m, k), halves(1, k, n)
    seen: set[str] = set()
    for stage in lowered_for("matrix", x @ y).runs:
        if stage.level in (KERNEL, VECTOR, LINEAR):
            seen |= {u.op.name for u in walk.order(stage.after[0])}
            got = np.zeros((m, n), np.float32)
            interpreter.run_kernel(stage.after[0], [got, a, b])
            np.testing.assert_allclose(got, a.astype("f8") @ b.astype("f8"), atol=1e-4)
    assert {"dot2", "shaped_wmma", "wmma"} < seen


def assembly_of(graph, machine="matrix"):
    if not detect.this_machine().has("sse2"):
        pytest.skip("LLVM makes code for the processors of another kind here")
    with executed(machine):
        (kernel,) = uopc.compile(graph, threads=1).kernels
    target = MACHINES[machine].target
    return jit.assembly(kernel.source, target.cpu, target.features)


def test_the_code_of_a_product_in_tiles():
    """Four sums and four operands in the eight registers, configured once: none goes to memory."""
    (_, x), (_, y) = halves(0, 128, 128), halves(1, 128, 128)
    code = assembly_of((x @ y).relu())
    names = ("ldtilecfg", "tilerelease", "tilezero", "tileloadd", "tdpbf16ps", "tilestored")
    found = {n: len(re.findall(rf"\b{n}\b", code)) for n in names}
    assert found == {"ldtilecfg": 1, "tilerelease": 1, "tilezero": 4, "tileloadd": 4,
                     "tdpbf16ps": 4, "tilestored": 4}  # fmt: skip
    (_, x), (_, y) = whole("u1", "a", 64, 256), whole("i1", "b", 256, 64)
    assert len(re.findall("tdpbusd", assembly_of(x @ y))) == 4


def test_the_code_of_a_product_in_pairs():
    (_, x), (_, y) = halves(0, 64, 64), halves(1, 64, 64)
    code = assembly_of(x @ y, "pairs")
    assert len(re.findall(r"vdpbf16ps\s.*%zmm", code)) >= 8 and "vfmadd" not in code


@pytest.mark.parametrize("k", [64, 65])
def test_words_of_weights_in_rows_are_read_whole(k):
    """No element is loaded alone, but for the last of odd rows."""
    (_, x), (_, y) = halves(0, 24, k), halves(1, 64, k)
    with only_lowered("pairs"):
        (kernel,) = lower_only(x @ y.permute((1, 0)), threads=1).kernels
    alone = [u for u in kernel.src if u.op is Ops.LOAD and u.dtype is dtypes.bfloat16]
    assert len(alone) <= 80 * (k % 2)


# ---------------------------------------------------------------- permission, exports
@pytest.mark.parametrize("granted", [True, False])
@pytest.mark.machine("this")
def test_the_kernel_is_asked(granted, monkeypatch):
    """A processor with AMX whose kernel refuses it is one without."""
    name, features = detect.processor()
    others = [f for f in features.split(",") if "amx" not in f]
    have = ",".join([*others, "+amx-tile", "+amx-bf16", "+amx-int8"])
    monkeypatch.setattr(detect, "processor", lambda: detect.Processor(name, have))
    monkeypatch.setattr(tile_permission, "is_granted", lambda: granted)
    detect.this_machine.cache_clear()
    made = detect.this_machine()
    detect.this_machine.cache_clear()
    assert made.has_tiles == made.has("amx-bf16") == granted
    assert ("-amx-tile" in made.features) != granted
    assert made.has("sse2") or not own_machine().has("sse2")


def test_the_request_is_one_system_call():
    """In a process of its own: the answer is that of a processor with or without tiles."""
    code = "from uopc.backends.tile_permission import is_granted; print(is_granted())"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() in ("True", "False")
    if own_machine().has_tiles:
        assert made.stdout.strip() == "True"


def test_no_kernel_is_asked_elsewhere(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: pytest.fail("a library was opened"))
    assert tile_permission.is_granted.__wrapped__() is False


def test_exports_have_no_tiles():
    """Exported code does not ask the kernel, so it has vectors of pairs."""
    (_, x), (_, y) = halves(0, 64, 64), halves(1, 64, 64)
    with only_lowered("matrix"):
        request = exported.request_for(x @ y, None, True, "f", 1, detect.host())
        made = exported.lowered_for(request, machines.machine("host"), "f")
    used = {u.op for k in made.kernels.values() for u in k.linear.src}
    assert Ops.DOT2 in used and Ops.WMMA not in used


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i1"])
def test_vectors_as_long_as_a_tile_are_vectors(dtype):
    """1 KiB of other values, as a user's Opts may ask for."""
    t = np.dtype(dtype)
    lanes = 1024 // t.itemsize
    values = np.arange(6 * lanes).astype(t).reshape(3, 2 * lanes) % 5
    x = uopc.param("x", values.shape, t)
    most = (x + x).max(axis=0).contiguous((uopc.Opt("VECTOR", 0, lanes),))
    np.testing.assert_array_equal(uopc.compile(most)(values), (values + values).max(0))
