"""Weights of 8 and 4 bits times a vector: one kernel, exact where the sums are of integers."""

from __future__ import annotations

import re

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import uopc
from tests.backends.c.test_kernel import by_gcc, needs_gcc
from tests.machines import MACHINES, described, lowered_for, only_lowered
from tests.passes.narrow_products.test_byte_products import TYPES, extremes
from uopc import UOp, UPat, dtypes, target
from uopc.backends import detect
from uopc.backends.llvm import jit, split_function
from uopc.cache import memory
from uopc.driver import lower_only
from uopc.errors import InvalidIR
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

RNG = np.random.default_rng(153)
SIZES = [(1, 1), (9, 16), (11, 261)]
GROUPS = [(1, 1, 8), (9, 3, 16), (17, 20, 32)]  # rows, groups, weights of a group
INTEGERS = TYPES | {"i2": dtypes.int16}
KINDS = ["u1 i1", "i1 u1", "i1 i1", "u1 u1"]


@pytest.fixture(autouse=True)
def _dot_products():
    with uopc.options(dot_products=True):
        yield


def bytes_times_bytes(kinds, rows, columns):
    """Arrays, and their product as int32."""
    a, b = (extremes(t, *d) for t, d in zip(kinds.split(), ((rows, columns), (columns,))))
    w, x = (uopc.param(n, v.shape, INTEGERS[t]) for n, v, t in zip("wx", (a, b), kinds.split()))
    return {"w": a, "x": b}, w.cast(dtypes.int32) @ x.cast(dtypes.int32)


def packed(rows, groups, of_a_group):
    """Bytes with two weights each, as `weights` reads them, and the weights."""
    w = RNG.integers(0, 256, (rows, groups, of_a_group // 2), np.uint8)
    return w, np.stack((w & 15, w >> 4), 2).astype("i1") - np.int8(8)


def weights(w):
    """Weights of -8 to 7 in halves of bytes: the first half of a group is in the low ones."""
    return uopc.stack(w & 15, w >> 4, axis=2).cast(dtypes.int8) - 8


def kernel_code(machine, graph):
    """The assembly of a graph's one kernel on a described machine."""
    (kernel,) = lowered_for(machine, graph).kernels
    target = MACHINES[machine].target
    function, declared = split_function.render("product", kernel)
    if not detect.this_machine().has("sse2"):
        pytest.skip("LLVM makes code for the processors of another kind here")
    return jit.assembly("\n".join((function, *declared)), target.cpu, target.features)


# ---------------------------------------------------------------- bytes times bytes
@pytest.mark.parametrize("machine", ["dots", "client"])
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize(("rows", "columns"), SIZES)
@pytest.mark.few(6)
def test_sums_of_bytes_along_rows(machine, kinds, rows, columns):
    given, graph = bytes_times_bytes(kinds, rows, columns)
    wanted = given["w"].astype("i8") @ given["x"].astype("i8")
    with described(machine):
        program = uopc.compile(graph, verify=True)
    np.testing.assert_array_equal(program(**given), wanted)
    np.testing.assert_array_equal(interpreter.evaluate(graph, given), wanted)


@pytest.mark.parametrize("machine", ["dots", "client"])
@pytest.mark.parametrize("kinds", KINDS)
def test_each_stage_means_the_same(machine, kinds):
    """The interpreter on what each pass leaves, also where this machine has no such instruction."""
    given, graph = bytes_times_bytes(kinds, 10, 138)
    wanted = given["w"].astype("i8") @ given["x"].astype("i8")
    ran = set()
    for run in lowered_for(machine, graph).runs:
        if run.name in ("optimize", "expand", "devectorize", "decompose", "linearize"):
            (kernel,), out = run.after, np.zeros(10, "i4")
            ran |= walk.ops(kernel)
            interpreter.run_kernel(kernel, [out, given["w"], given["x"]])
            np.testing.assert_array_equal(out, wanted)
    assert Ops.DOT4 in ran


def test_symbolic_lengths():
    n, k = uopc.variable("n", 1, 50), uopc.variable("k", 1, 300)
    w, x = uopc.param("w", (n, k), dtypes.int8), uopc.param("x", (k,), dtypes.uint8)
    program = uopc.compile(w.cast(dtypes.int32) @ x.cast(dtypes.int32), verify=True)
    for rows, columns in ((1, 1), (7, 64), (50, 299)):
        a, b = extremes("i1", rows, columns), extremes("u1", columns)
        np.testing.assert_array_equal(program(a, b), a.astype("i8") @ b.astype("i8"))


@pytest.mark.parametrize("machine", ["laptop", "dots", "old"])
@pytest.mark.parametrize("kinds", ["i2 i2", "i2 u1", "i1 i2", "i1 u1"])
@pytest.mark.few(3)
def test_pairs_of_16_bits_along_rows(machine, kinds):
    """They are added up in pairs; what leaves int32 wraps, also that of one pair."""
    for rows, columns in ((1, 1), (9, 38), (9, 82), (11, 261)):
        given, graph = bytes_times_bytes(kinds, rows, columns)
        given["w"][0] = np.iinfo(given["w"].dtype).min
        wanted = (given["w"].astype("i8") @ given["x"].astype("i8")).astype("i4")
        with described(machine), uopc.options(dot_products=False):
            program = uopc.compile(graph, verify=True)
        np.testing.assert_array_equal(program(**given), wanted)
        np.testing.assert_array_equal(interpreter.evaluate(graph, given), wanted)


@pytest.mark.parametrize(
    ("machine", "kinds", "instruction"),
    [("dots", "i2 i2", r"vpdpwssd\s.*%zmm"), ("workstation", "i2 i2", r"vpmaddwd\s.*%zmm"),
     ("laptop", "i2 i2", r"vpmaddwd\s.*%ymm"), ("laptop", "i1 u1", r"vpmaddwd\s.*%ymm"),
     ("old", "i2 i2", r"pmaddwd\s.*%xmm")],
)  # fmt: skip
def test_code_of_pairs_along_rows(machine, kinds, instruction):
    """LLVM finds them in products whose neighbours are added first."""
    _, graph = bytes_times_bytes(kinds, 64, 1024)
    code = kernel_code(machine, graph)
    assert len(re.findall(instruction, code)) >= 8
    assert "pmulld" not in code


@pytest.mark.parametrize(("machine", "register"), [("dots", "zmm"), ("client", "ymm")])
@pytest.mark.parametrize("kinds", KINDS)
def test_code_of_bytes_along_rows(machine, register, kinds):
    """Eight rows at a time, whose bytes are loaded as they lie in memory."""
    _, graph = bytes_times_bytes(kinds, 64, 1024)
    code = kernel_code(machine, graph)
    assert len(re.findall(rf"vpdpbusd\s.*%{register}", code)) >= 8
    assert not re.search(r"vpmulld|vpinsrb|vpmov[sz]xb", code)


def test_without_dot_products():
    given, graph = bytes_times_bytes("i1 i1", 9, 128)
    with uopc.options(dot_products=False):
        assert Ops.DOT4 not in walk.ops(lowered_for("dots", graph).kernels[0])
        np.testing.assert_array_equal(
            uopc.compile(graph)(**given), given["w"].astype("i8") @ given["x"].astype("i8")
        )


# ---------------------------------------------------------------- float32 activations
@pytest.mark.parametrize("machine", ["laptop", "workstation"])
@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_a_scale_for_each_row(machine, rows, columns):
    a, x = extremes("i1", rows, columns), RNG.standard_normal(columns).astype("f4")
    s = RNG.uniform(0.01, 0.02, rows).astype("f4")
    w = uopc.param("w", a.shape, dtypes.int8)
    graph = (w.cast(dtypes.float32) @ uopc.param("x", x.shape)) * uopc.param("s", s.shape)
    with described(machine):
        program = uopc.compile(graph, verify=True)
    assert len(program.kernels) == 1
    wanted = (a.astype("f8") @ x.astype("f8")) * s
    bound = 1e-6 * (np.abs(a.astype("f8")) @ np.abs(x)) * s + 1e-30
    assert (np.abs(program(w=a, x=x, s=s) - wanted) <= bound).all()


@pytest.mark.parametrize("machine", ["laptop", "workstation"])
@pytest.mark.parametrize(("rows", "groups", "size"), GROUPS)
def test_two_weights_a_byte_with_scales_of_groups(machine, rows, groups, size):
    w, q = packed(rows, groups, size)
    x = RNG.standard_normal((groups, 2, size // 2)).astype("f4")
    s = RNG.uniform(0.01, 0.02, (rows, groups, 1, 1)).astype("f4")
    numbers = weights(uopc.param("w", w.shape, dtypes.uint8)).cast(dtypes.float32)
    graph = (numbers * uopc.param("s", s.shape) * uopc.param("x", x.shape)).sum((1, 2, 3))
    with described(machine):
        program = uopc.compile(graph, verify=True)
    assert len(program.kernels) == 1
    terms = q.astype("f8") * s * x
    bound = 1e-6 * np.abs(terms).sum((1, 2, 3)) + 1e-30
    assert (np.abs(program(w=w, s=s, x=x) - terms.sum((1, 2, 3))) <= bound).all()


@pytest.mark.parametrize("machine", ["laptop", "dots", "client"])
@pytest.mark.parametrize(("rows", "groups", "size"), GROUPS)
@pytest.mark.few(4)
def test_two_weights_a_byte_times_bytes(machine, rows, groups, size):
    w, q = packed(rows, groups, size)
    x = extremes("i1", groups, 2, size // 2)
    numbers = weights(uopc.param("w", w.shape, dtypes.uint8)).cast(dtypes.int32)
    graph = (numbers * uopc.param("x", x.shape, dtypes.int8).cast(dtypes.int32)).sum((1, 2, 3))
    with described(machine):
        program = uopc.compile(graph, verify=True)
    assert len(program.kernels) == 1
    np.testing.assert_array_equal(program(w=w, x=x), (q.astype("i8") * x).sum((1, 2, 3)))


# ---------------------------------------------------------------- tables in registers
def signed(w):
    """Weights with a sign in halves of bytes."""
    return uopc.stack((w << 4) >> 4, w >> 4, axis=2)


def with_zeros(w):
    """Weights with a zero point for each group, which is four bits, too."""
    zero = uopc.param("z", (*w.shape[:2], 1, 1), dtypes.uint8)
    return uopc.stack(w & 15, (w & 0xF0) >> 4, axis=2).cast(dtypes.float32) - zero


BOOK = np.sort(RNG.standard_normal(16)).astype("f4")


def of_a_book(w):
    """The numbers that the four bits stand for, as in NF4."""
    return uopc.constant(BOOK)[uopc.stack(w & 15, w >> 4, axis=2)]


CODES = {
    "offset": (weights, "u1", lambda w, z: np.stack((w & 15, w >> 4), 2).astype("f8") - 8),
    "signed": (signed, "i1", lambda w, z: np.stack(((w << 4).astype("i1") >> 4, w >> 4), 2)),
    "zeros": (with_zeros, "u1", lambda w, z: np.stack((w & 15, w >> 4), 2) - z.astype("f8")),
    "book": (of_a_book, "u1", lambda w, z: BOOK.astype("f8")[np.stack((w & 15, w >> 4), 2)]),
}
SCALES = {"f4": dtypes.float32, "f2": dtypes.float16}


def product_of_codes(kind, scale, rows, groups, size):
    """A graph, its arguments, and the exact terms of its sums."""
    numbers, t, exact = CODES[kind]
    w = RNG.integers(0, 256, (rows, groups, size // 2), np.uint8).view(t)
    z = RNG.integers(0, 16, (rows, groups, 1, 1), np.uint8)
    x = RNG.standard_normal((groups, 2, size // 2)).astype("f4")
    s = RNG.uniform(0.01, 0.02, (rows, groups, 1, 1)).astype(scale)
    params = [uopc.param("w", w.shape, INTEGERS[t]), uopc.param("s", s.shape, SCALES[scale]),
              uopc.param("x", x.shape)]  # fmt: skip
    scaled = numbers(params[0]).cast(dtypes.float32) * params[1].cast(dtypes.float32)
    given = {"w": w, "s": s, "x": x} | ({"z": z} if kind == "zeros" else {})
    return (scaled * params[2]).sum((1, 2, 3)), given, exact(w, z) * s.astype("f8") * x


def in_order(kernel, arrays):
    """Arrays as the arguments of a kernel, which differ in dtype or size."""
    kinds = {(a.dtype, a.size): a for a in arrays}
    params = [u for u in walk.order(kernel) if u.op is Ops.PARAM and u.arg.slot]
    params.sort(key=lambda u: u.arg.slot)
    return [kinds[np.dtype(u.dtype.numpy), u.shape[0]] for u in params]


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize(("scale", "groups", "size"), [("f4", 9, 64), ("f2", 3, 66)])
def test_each_stage_with_tables_means_the_same(kind, scale, groups, size):
    """Also where this machine has no such instruction; a group of 33 bytes leaves lanes over."""
    graph, given, terms = product_of_codes(kind, scale, 9, groups, size)
    bound = 2e-6 * np.abs(terms).sum((1, 2, 3)) + 1e-30
    run = {r.name: r for r in lowered_for("workstation", graph).runs}
    for stage in ("devectorize", "decompose", "linearize"):
        (kernel,), out = run[stage].after, np.zeros(9, "f4")
        assert (Ops.LOOKUP in walk.ops(kernel)) == (stage != "devectorize")
        interpreter.run_kernel(kernel, [out, *in_order(kernel, [*given.values(), BOOK])])
        assert (np.abs(out - terms.sum((1, 2, 3))) <= bound).all()
    for machine in ("workstation", "old"):
        with described(machine):
            program = uopc.compile(graph)
        assert (np.abs(program(**given) - terms.sum((1, 2, 3))) <= bound).all()


@pytest.mark.parametrize("kind", CODES)
def test_tables_have_the_bits_of_their_functions(kind, monkeypatch):
    """The same sums with tables and without, where this machine has them."""
    graph, given, _ = product_of_codes(kind, "f4", 16, 4, 128)
    made = []
    for lanes in (16, 0):
        memory.clear()
        monkeypatch.setattr(target.Target, "lookup_lanes", lanes)
        with described("workstation"):
            made.append(uopc.compile(graph)(**given))
    memory.clear()
    np.testing.assert_array_equal(*made)


@pytest.mark.parametrize("kind", CODES)
def test_code_of_tables(kind):
    """One lookup for 16 weights, one shift for the upper half, and no conversion in the loop."""
    graph, _, _ = product_of_codes(kind, "f4", 16, 32, 128)
    loop = inner_loop(graph)
    assert len(re.findall(r"vperm(d|ps)\s.*%zmm", loop)) == loop.count("vfmadd") == 16
    assert len(re.findall(r"vps(rl|ra)d\s.*%zmm", loop)) == 8
    assert not re.search(r"vcvt|vmulps|vpadd|vpand", loop)


def inner_loop(graph):
    """The part of a kernel that has most multiply-adds."""
    code = kernel_code("workstation", graph)
    return max(re.split(r"\.LBB\d+_\d+:", code), key=lambda part: part.count("vfmadd"))


@pytest.mark.parametrize("t", ["u1", "i1", "i2"])
@pytest.mark.parametrize("form", ["masked", "shifted", "masked before", "with a sign"])
def test_four_bits_of_any_integers(t, form):
    """Wherever they are, and whatever is beside them. All results are exact."""
    w = extremes(t, 3, 64)
    bits = 8 * w.itemsize
    made = {
        "masked": lambda w: (w >> (bits - 6)) & 15,
        "shifted": lambda w: w >> (bits - 4),
        "masked before": lambda w: (w & 0x3C) >> 2,
        "with a sign": lambda w: (w << (bits - 4)) >> (bits - 4),
    }[form]
    x = uopc.param("w", w.shape, INTEGERS[t])
    graph = (made(x).cast(dtypes.float32) - 5.0) * 3.0
    (run,) = [r for r in lowered_for("workstation", graph).runs if r.name == "linearize"]
    (kernel,), out = run.after, np.zeros(w.size, "f4")
    assert Ops.LOOKUP in walk.ops(kernel)
    interpreter.run_kernel(kernel, [out, w])
    np.testing.assert_array_equal(out.reshape(w.shape), (made(w).astype("f4") - 5) * 3)


@pytest.mark.parametrize(
    ("size", "count", "wanted"), [(16, 16, True), (20, 16, True), (15, 15, False), (16, 17, False)]
)
def test_arrays_that_are_tables(size, count, wanted):
    """They have an element for each lane of a register, and no index beyond these."""
    book, w = RNG.standard_normal(size).astype("f4"), RNG.integers(0, 256, (4, 64), np.uint8)
    index = uopc.param("w", w.shape, dtypes.uint8).minimum(count - 1)
    graph = uopc.param("t", (size,))[index] * 2
    (run,) = [r for r in lowered_for("workstation", graph).runs if r.name == "linearize"]
    (kernel,), out = run.after, np.zeros(w.size, "f4")
    assert (Ops.LOOKUP in walk.ops(kernel)) == wanted
    interpreter.run_kernel(kernel, [out, *in_order(kernel, [w, book, book[:16]])])
    indices = np.minimum(w, count - 1)
    clipped = np.where(indices < size, book[np.minimum(indices, size - 1)], 0)
    np.testing.assert_array_equal(out.reshape(w.shape), clipped * 2)
    np.testing.assert_array_equal(uopc.compile(graph, verify=True)(w=w, t=book), clipped * 2)


@pytest.mark.parametrize(("rows", "wanted"), [(31, False), (32, True)])
def test_integers_of_four_bits_alone(rows, wanted):
    """A table would take as many operations as a conversion, but for bytes that are not widened."""
    w, x = uopc.param("w", (rows, 512), dtypes.uint8), uopc.param("x", (512,))
    graph = (w & 15).cast(dtypes.float32) @ x
    assert (Ops.LOOKUP in walk.ops(lowered_for("workstation", graph).kernels[0])) == wanted


@pytest.mark.parametrize(
    ("dtype", "lanes", "index", "reason"),
    [(dtypes.float32, 1, dtypes.int32, "the table has 1 lanes, expected a power of two above 1"),
     (dtypes.float32, 6, dtypes.int32, "the table has 6 lanes, expected a power of two above 1"),
     (dtypes.float32, 4, dtypes.float32, "the index is float32, expected integers")],
)  # fmt: skip
def test_tables_that_are_none(dtype, lanes, index, reason):
    values = (1.0,) * lanes if lanes > 1 else 1.0
    src = UOp(Ops.CONST, dtype.vec(lanes), (), values), UOp.const(index, 1)
    with pytest.raises(InvalidIR, match=reason):
        UOp(Ops.LOOKUP, None, src)


def looking_up(table):
    """Rules: the bits of x xor 77 become the bits of the lane of a table that x numbers."""
    t = next(t for t in (dtypes.float32, dtypes.int32) if t.numpy == table.dtype)
    values = UOp(Ops.CONST, t.vec(table.size), (), tuple(table.tolist()))

    def change(x):
        return UOp(Ops.LOOKUP, None, (values, x)).bitcast(dtypes.int32)

    pattern = UPat(Ops.XOR, src=(UPat.var("x"), UPat.const(None, 77)))
    return uopc.PatternMatcher([(pattern, change)])


@pytest.mark.parametrize(("size", "machine"), [(1, "laptop"), (3, "laptop"), (64, "workstation")])
@pytest.mark.parametrize("table", [np.linspace(-1, 1, 16, dtype="f4"), np.arange(4, dtype="i4")])
def test_lookups_in_any_table(size, machine, table):
    """By `vpermps` where there is one, else lane by lane; numbers of lanes wrap around."""
    index = RNG.integers(-100, 100, size).astype("i4")
    with described(machine):
        graph = uopc.param("x", (size,), dtypes.int32) ^ 77
        program = uopc.compile(graph, rules=looking_up(table), verify=True)
    assert Ops.LOOKUP in walk.ops(program.kernels[0].uops)
    wanted = table[index % table.size].view("i4")
    np.testing.assert_array_equal(program(index), wanted)
    out = np.zeros(size, "i4")
    interpreter.run_kernel(program.kernels[0].uops, [out, index])
    np.testing.assert_array_equal(out, wanted)


@needs_gcc
@pytest.mark.parametrize("size", [1, 3, 64])
def test_lookups_in_c(size, tmp_path):
    table, index = np.linspace(-1, 1, 16, dtype="f4"), RNG.integers(-100, 100, size).astype("i4")
    graph = uopc.param("x", (size,), dtypes.int32) ^ 77
    program = uopc.compile(graph, rules=looking_up(table))
    made = by_gcc(program, tmp_path)(index)
    np.testing.assert_array_equal(made, table[index % 16].view("i4"))


def sums(machine, rows):
    """The accumulators of a product of codes after `expand`."""
    graph, _, _ = product_of_codes("offset", "f4", rows, 8, 64)
    (run,) = [r for r in lowered_for(machine, graph).runs if r.name == "expand"]
    return len([u for u in walk.order(run.after[0]) if u.op is Ops.REDUCE])


def test_halves_share_an_accumulator_where_registers_run_short():
    """Eight rows of two halves would take 16 of 32 or 16 registers; a row alone takes two."""
    assert sums("workstation", 8) == sums("laptop", 8) == 8
    assert sums("workstation", 1) == 2


# ---------------------------------------------------------------- words as they lie in memory
@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize(("rows", "groups", "size"), [(64, 1, 128), (70, 3, 128), (64, 2, 256)])
@pytest.mark.few(4)
def test_codes_in_words(kind, rows, groups, size):
    """Each stage means the same, also where this machine has no lookups."""
    graph, given, terms = product_of_codes(kind, "f4", rows, groups, size)
    wanted, bound = terms.sum((1, 2, 3)), 2e-6 * np.abs(terms).sum((1, 2, 3)) + 1e-30
    run = {r.name: r for r in lowered_for("workstation", graph).runs}
    assert "PACK" in [o.op for o in run["optimize"].after[0].arg.opts]
    for stage in ("optimize", "expand", "devectorize", "decompose", "linearize"):
        (kernel,), out = run[stage].after, np.zeros(rows, "f4")
        interpreter.run_kernel(kernel, [out, *in_order(kernel, [*given.values(), BOOK])])
        assert (np.abs(out - wanted) <= bound).all()
    for threads in (1, 3):
        with described("workstation"):
            program = uopc.compile(graph, threads=threads, verify=True)
        assert (np.abs(program(**given) - wanted) <= bound).all()


@hypothesis.given(
    st.sampled_from(list(CODES)), st.integers(1, 80), st.integers(1, 18),
    st.sampled_from([2, 32, 64, 66, 96, 128, 192, 256]), st.sampled_from(["f4", "f2"]),
)  # fmt: skip
def test_codes_of_any_size(kind, rows, groups, size, scale):
    graph, given, terms = product_of_codes(kind, scale, rows, groups, size)
    with described("workstation"):
        program = uopc.compile(graph)
    bound = 2e-6 * np.abs(terms).sum((1, 2, 3)) + 1e-30
    assert (np.abs(program(**given) - terms.sum((1, 2, 3))) <= bound).all()


@pytest.mark.parametrize("t", ["u1", "i1"])
@pytest.mark.parametrize("bits", [2, 3])
def test_codes_of_fewer_bits_in_words(t, bits):
    """The last ones of a byte end before four bits do; the next byte is no part of them."""
    w = RNG.integers(0, 256, (64, 4, 64), np.uint8).view(t)
    x = RNG.integers(-8, 8, (4, 2, 64)).astype("f4")  # all sums are exact
    low, high = (1 << bits) - 1, 8 - bits
    param = uopc.param("w", w.shape, INTEGERS[t])
    codes = uopc.stack(param & low, param >> high, axis=2).cast(dtypes.float32)
    graph = ((codes - 1.5) * uopc.param("x", x.shape)).sum((1, 2, 3))
    wanted = ((np.stack((w & low, w >> high), 2) - 1.5) * x).sum((1, 2, 3))
    (kernel,), out = lowered_for("workstation", graph).kernels, np.zeros(64, "f4")
    assert Ops.LOOKUP in walk.ops(kernel) and "PACK" in [o.op for o in kernel.arg.opts]
    interpreter.run_kernel(kernel, [out, *in_order(kernel, [w, x])])
    np.testing.assert_array_equal(out, wanted)
    with described("workstation"):
        program = uopc.compile(graph, verify=True)
    np.testing.assert_array_equal(program(w=w, x=x), wanted)


def test_symbolic_rows_of_codes():
    n = uopc.variable("n", 1, 200)
    w, x = uopc.param("w", (n, 3, 64), dtypes.uint8), uopc.param("x", (3, 2, 64))
    graph = (weights(w).cast(dtypes.float32) * x).sum((1, 2, 3))
    assert "PACK" in [op for op, _ in chosen("workstation", graph)]
    with described("workstation"):
        program = uopc.compile(graph, verify=True)
    v = RNG.integers(-8, 8, (3, 2, 64)).astype("f4")  # all sums are exact
    for rows in (1, 8, 77):
        codes, numbers = packed(rows, 3, 128)
        np.testing.assert_array_equal(program(codes, v), (numbers * v).sum((1, 2, 3)))


@pytest.mark.parametrize("kind", CODES)
def test_code_of_words(kind):
    """A lookup and a multiply-add for 16 weights, a shift for all but the first of a word; nothing
    is widened. The tables of eight rows are made once in a group."""
    graph, _, _ = product_of_codes(kind, "f4", 64, 32, 128)
    loop = inner_loop(graph)
    assert len(re.findall(r"vperm(d|ps)\s.*%zmm", loop)) == loop.count("vfmadd") == 64
    assert len(re.findall(r"vpsrld\s.*%zmm", loop)) == 56
    assert loop.count("vmulps") == 8 and "vpmovzx" not in loop


@needs_gcc
@pytest.mark.parametrize("kind", CODES)
@pytest.mark.few(1)
def test_words_in_c(kind, tmp_path):
    graph, given, terms = product_of_codes(kind, "f4", 40, 3, 128)
    assert "PACK" in [op for op, _ in chosen("workstation", graph)]
    with described("workstation"):
        program = uopc.compile(graph, threads=1)
    made = by_gcc(program, tmp_path)(*[given[i.name] for i in program.inputs])
    bound = 2e-6 * np.abs(terms).sum((1, 2, 3)) + 1e-30
    assert (np.abs(made - terms.sum((1, 2, 3))) <= bound).all()


# ---------------------------------------------------------------- the schedule
def chosen(machine, graph):
    """The Opts of a graph's one kernel."""
    (kernel,) = lowered_for(machine, graph).kernels
    return [(o.op, o.arg) for o in kernel.arg.opts]


@pytest.mark.parametrize("of_a_group", [16, 32, 64])
def test_lanes_are_along_short_groups_too(of_a_group):
    """Lanes of rows would gather bytes. Eight rows share the vectors of x."""
    w, _ = packed(64, 2048 // of_a_group, of_a_group)
    numbers = weights(uopc.param("w", w.shape, dtypes.uint8)).cast(dtypes.float32)
    scaled = numbers * uopc.param("s", (*w.shape[:2], 1, 1))
    graph = (scaled * uopc.param("x", (w.shape[1], 2, w.shape[2]))).sum((1, 2, 3))
    opts = chosen("laptop", graph)
    assert ("VECTOR", 8) in opts and ("UPCAST", 8) in opts


def test_rows_of_computed_weights_share_a_vector():
    w, x = uopc.param("w", (64, 512), dtypes.int8), uopc.param("x", (512,))
    assert chosen("laptop", w.cast(dtypes.float32) @ x) == [("VECTOR", 8), ("UPCAST", 8)]
    few = uopc.param("w", (4, 512), dtypes.int8)
    assert ("UPCAST", 8) not in chosen("laptop", few.cast(dtypes.float32) @ x)


WORDS = [("UNROLL", 4), ("VECTOR", 16), ("PACK", 1), ("VECTOR", 16), ("UPCAST", 8)]


@pytest.mark.parametrize(
    ("machine", "kind", "rows", "groups", "size", "wanted"),
    [("workstation", "offset", 64, 4, 128, True), ("workstation", "book", 32, 4, 128, True),
     ("workstation", "offset", 31, 4, 128, False), ("workstation", "offset", 64, 4, 64, False),
     ("laptop", "offset", 64, 4, 128, False), ("workstation", "offset", 64, 16, 128, True)],
)  # fmt: skip
def test_codes_are_read_as_words(machine, kind, rows, groups, size, wanted):
    """Of enough rows, where a group is whole vectors of them. Groups stay a loop."""
    graph, _, _ = product_of_codes(kind, "f4", rows, groups, size)
    assert (chosen(machine, graph)[1:] == WORDS) == wanted


def test_scales_of_single_weights_are_not_read_as_words():
    w, s = uopc.param("w", (64, 512), dtypes.uint8), uopc.param("s", (64, 512))
    opts = chosen("workstation", ((w & 15).cast(dtypes.float32) * s) @ uopc.param("x", (512,)))
    assert ("VECTOR", 16) in opts and "PACK" not in [name for name, _ in opts]


def test_short_sums_alone_become_straight_code():
    """Sums of 16 neighbours without a longer sum around them: lanes are rows."""
    x = uopc.param("x", (4096, 16))
    assert ("UNROLL", 0) in chosen("laptop", x.sum(1))


# ---------------------------------------------------------------- what is fetched ahead
def fetched(graph, machine="dots", optimize=True):
    """The distances at which elements of w are fetched ahead; none where none are."""
    with only_lowered(machine):
        kernels = lower_only(graph, optimize=optimize).kernels
    found = [u for kernel in kernels for u in kernel.src if u.op is Ops.FETCH]
    assert all([u.arg == u.dtype.lanes for u in found])
    return {u.src[1].arg for u in found}


def product(rows, columns, t=dtypes.int32):
    """Bytes times numbers of a type: of floats they make floats."""
    w, x = uopc.param("w", (rows, columns), dtypes.int8), uopc.param("x", (columns,), t)
    return w.cast(t) @ x


def test_rows_of_a_large_array_are_fetched_ahead():
    """Those of the next turn of the loop over eight rows, if the second-level cache does not hold
    the array, and a quarter of it holds them."""
    assert fetched(product(1024, 4096)) == {8 * 4096}
    assert fetched(product(512, 4096)) == set()
    assert fetched(product(64, 1 << 17)) == set()
    assert fetched(product(1024, 4096), "laptop") == {8 * 4096}
    assert fetched(product(1024, 4096), optimize=False) == set()
    assert fetched(product(uopc.variable("n", 1, 1 << 20), 4096)) == {8 * 4096, 4096}


@pytest.mark.machine("laptop")
def test_rows_of_weights_are_fetched_ahead_from_a_16th_of_the_cache_on():
    """Of integers that become floats or choose them, side by side."""
    f = dtypes.float32
    assert fetched(product(40, 4096, f)) == {8 * 4096}
    assert fetched(product(32, 4096, f)) == set()  # 2 MiB / 16
    for kind in CODES:
        assert fetched(product_of_codes(kind, "f4", 128, 32, 128)[0], "workstation") == {8 * 2048}
    assert fetched(uopc.param("w", (40, 4096), dtypes.int8).cast(f).sum(1)) == set()
    assert fetched(uopc.param("w", (40, 4096)) @ uopc.param("x", (4096,))) == set()
    assert fetched(uopc.param("w", (40, 4096), dtypes.float16).cast(f).sum(1)) == set()


def test_code_that_fetches_ahead():
    """One line for each load, at the distance of eight rows."""
    w, x = uopc.param("w", (1024, 4096), dtypes.int8), uopc.param("x", (4096,), dtypes.uint8)
    code = kernel_code("dots", w.cast(dtypes.int32) @ x.cast(dtypes.int32))
    assert len(re.findall(r"prefetcht1\s", code)) == len(re.findall(r"vpdpbusd\s", code)) == 8


def test_the_distance_in_machine_code():
    """Eight rows of 16 KiB."""
    graph = uopc.param("w", (1024, 4096)) @ uopc.param("x", (4096,))
    (kernel,) = lowered_for("dots", graph).kernels
    text, _ = split_function.render("product", kernel)
    ahead = re.findall(r"= getelementptr float, ptr %v\d+, i64 (\d+)\n.*prefetch", text)
    assert ahead == [str(8 * 4096)] * 8
