"""Panels of weights that come from memory are fetched while the panel before is used."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from tests.machines import lowered_for
from uopc import UOp
from uopc.backends.llvm import split_function
from uopc.errors import InvalidIR
from uopc.ir.builder.leaves import const
from uopc.ir.core import ranges, walk
from uopc.ir.core.args import BufferArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.index import affine
from uopc.ir.interpret.machine import run_kernel
from uopc.ir.text.printer import parse, print_graph
from uopc.ir.verify import nodes

pytestmark = pytest.mark.machine("laptop")
RNG = np.random.default_rng(173)
DEPTH, COLUMNS = 128, 1024  # more than the second-level cache of the machine "laptop"


def product(rows: int, dtype: str = "float32", columns: int = COLUMNS) -> tuple[UOp, np.ndarray]:
    w = RNG.integers(-3, 4, (DEPTH, columns)).astype(dtype)
    return uopc.param("x", (rows, DEPTH), getattr(uopc.dtypes, dtype)) @ w, w


def compiled(graph: UOp, threads: int = 1) -> uopc.Program:
    with uopc.options(programs=0, cache_dir=""):
        return uopc.compile(graph, threads=threads)


def fetches(program: uopc.Program) -> list[UOp]:
    return [u for k in program.kernels for u in k.uops.src if u.op is Ops.FETCH]


def values(u: UOp, at: dict[UOp, int]) -> int:
    constant, terms = affine.form(u)
    return constant + sum(n * at[r] for r, n in terms.items())


def loops_of(fetch: UOp) -> list[UOp]:
    found = [r for u in (fetch.src[0].src[0].src[1], fetch.src[1]) for r in affine.form(u)[1]]
    return sorted(dict.fromkeys(found), key=lambda r: r.arg.axis)


# ---------------------------------------------------------------- what is fetched
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("rows", [16, 24, 64])
def test_all_of_the_next_panel_is_fetched_in_equal_parts(rows: int, dtype: str) -> None:
    """In order, an element or more each step; what rounding up adds is of the panel behind it."""
    (fetch,) = fetches(compiled(product(rows, dtype)[0]))
    load, ahead = fetch.src
    panel, again, step = loops_of(fetch)
    block = affine.form(load.src[0].src[1])[1][panel]
    turns, steps = again.src[0].arg, step.src[0].arg
    assert block // steps <= turns * fetch.arg < block // steps + turns
    assert (ahead.dtype, load.op) == (uopc.dtypes.index, Ops.LOAD)
    for p in (0, 1):
        places = [
            values(load.src[0].src[1], at) + values(ahead, at) + i
            for j, k in itertools.product(range(turns), range(steps))
            for at in [{panel: p, again: j, step: k}]
            for i in range(fetch.arg)
        ]
        begin = (p + 1) * block
        assert places == list(range(begin, begin + turns * steps * fetch.arg))


def test_what_a_row_computes_once_does_not_fetch_for_the_loop_inside() -> None:
    """The greatest scores and their sums are of a row; its quotients come in a loop behind."""
    s, v = uopc.param("s", (8, 512, 512)), uopc.param("v", (8, 512, 64))
    program = compiled(s.softmax(-1) @ v)
    assert all([affine.is_const(u.src[1]) for u in fetches(program)])
    a, b = RNG.standard_normal((2, 8, 512, 512), np.float32)
    e = np.exp(a - a.max(-1, keepdims=True))
    want = e / e.sum(-1, keepdims=True) @ b[..., :64]
    np.testing.assert_allclose(program(a, b[..., :64].copy()), want, rtol=1e-5, atol=1e-6)


def test_weights_that_the_cache_holds_are_not_fetched() -> None:
    assert fetches(compiled(product(64)[0]))
    assert not fetches(compiled(product(64, columns=24)[0]))
    assert not fetches(compiled(product(1024)[0]))  # the first of so many rows is a small part


def test_what_nobody_reads_is_not_fetched() -> None:
    """16 of 256 columns: no turn fetches its part of all of them (twice the time). The columns of
    another thread lie apart."""
    x, w = uopc.param("x", (1, 8, 64, 1)), uopc.param("w", (256, 1, 64, 256))
    graph = (x * w[..., :16]).sum(2)
    found = [u for k in lowered_for("laptop", graph).kernels for u in k.src if u.op is Ops.FETCH]
    assert [u for u in found if u.arg > u.dtype.lanes] == []
    graph = uopc.param("x", (64, 768)) @ np.zeros((768, 3072), "f4")
    (kernel,) = lowered_for("dots", graph, threads=2).kernels
    (fetch,) = [u for u in kernel.src if u.op is Ops.FETCH]
    (thread,) = [r for r in ranges_of(fetch) if r.arg.kind == "thread"]
    assert affine.form(fetch.src[0].src[0].src[1])[1][thread] == 768 * 3072 // 2


def ranges_of(fetch: UOp) -> list[UOp]:
    return [r for r in affine.form(fetch.src[0].src[0].src[1])[1] if r.op is Ops.RANGE]


@pytest.mark.parametrize("columns", [1024, 1009, 67])
def test_one_stream_needs_no_fetch(columns: int) -> None:
    """Sums of rows, one row after the other; not where a row is read twice and computed with, nor,
    if a vector is a line or rows are short, in part, or beside seven others."""
    x, v = uopc.param("x", (9000, columns)), uopc.param("v", (columns,))
    assert fetches(compiled(x.max(1))) == []
    assert fetches(compiled(x.softmax(-1)))
    for graph in (x @ v, x[:, : columns - 8].sum(1)):
        (kernel,) = lowered_for("server", graph).kernels
        assert any([u.op is Ops.FETCH for u in kernel.src])
        assert bool(fetches(compiled(graph))) is (columns == 67)


# ---------------------------------------------------------------- several loops of a turn
def layer_norm(x: UOp) -> UOp:
    d = x - x.mean(-1, keepdims=True)
    return d / ((d * d).mean(-1, keepdims=True) + 1.0).sqrt()


@pytest.mark.parametrize("kind", ["softmax", "layer_norm"])
def test_the_loop_that_computes_most_fetches(kind: str) -> None:
    """The next row to read it, once; and the row of the result, before the loop that writes it."""
    x = uopc.param("x", (777, 512))
    graph = x.softmax(-1) if kind == "softmax" else layer_norm(x)
    program = compiled(graph)
    (kernel,) = lowered_for("laptop", graph).kernels
    found = [u for u in kernel.src if u.op is Ops.FETCH]
    written = [u for u in found if u.src[1].op is Ops.INDEX]
    read = [u for u in found if u not in written]
    assert {u.src[1].arg for u in read} == {512} and written
    outputs = {s.src[0].src[0] for s in kernel.src if s.op is Ops.STORE}
    assert {u.src[1].src[0] for u in written} <= outputs
    loops = []
    for fetched in (read, written):
        (inner,) = {max(ranges.ranges(u.src[0]), key=lambda r: r.arg.axis) for u in fetched}
        assert sum([u.dtype.lanes for u in fetched]) * inner.src[0].arg == 512
        loops.append(inner)
    assert (loops[0] is loops[1]) is (kind == "softmax")  # whose exponentials take most
    a = RNG.standard_normal((777, 512)).astype("f4")
    e = np.exp(a - a.max(-1, keepdims=True))
    d = a - a.mean(-1, keepdims=True)
    wanted = {
        "softmax": e / e.sum(-1, keepdims=True),
        "layer_norm": d / np.sqrt((d * d).mean(-1, keepdims=True) + 1.0),
    }
    np.testing.assert_allclose(program(a), wanted[kind], rtol=1e-4, atol=1e-5)


def test_short_rows_are_fetched() -> None:
    """Of 4 lines, eight side by side: the processor begins anew at each row."""
    graphs = [uopc.param("x", (8192 * 64 // n, n)) @ uopc.param("v", (n,)) for n in (64, 1024)]
    assert [bool(fetches(compiled(graph))) for graph in graphs] == [True, False]


def test_rows_that_the_cache_holds_are_not_fetched() -> None:
    """128 KiB of 256; and a result of few bytes beside long rows."""
    assert fetches(compiled(uopc.param("x", (64, 512)).softmax(-1))) == []
    x = uopc.param("x", (777, 512))
    graph = x.softmax(-1)[:, :8]
    assert all([u.src[1].op is not Ops.INDEX for u in fetches(compiled(graph))])


# ---------------------------------------------------------------- gathered rows
def gathered(rows: int, columns: int, dtype: str = "float32") -> tuple[UOp, np.ndarray]:
    table = RNG.integers(-3, 4, (rows, columns)).astype(dtype)
    return uopc.param("table", (rows, columns), getattr(uopc.dtypes, dtype)), table


@pytest.mark.parametrize("bags", [(40, 64), (3, 7), (1, 1), (5, 1), (0, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [64, 37])
def test_sums_of_gathered_rows_are_numpys(columns: int, dtype: str, bags: tuple[int, int]) -> None:
    """Places from the end, and outside, where there are zeros; the last places have none after."""
    table, t = gathered(5000, columns, dtype)
    places = uopc.param("places", bags, uopc.dtypes.int32)
    n = RNG.integers(-5000, 5000, bags, "i4")
    for graph, want in (
        (table.take(places, axis=0).sum(1), t[n].sum(1)),
        (table.take(places, axis=0), t[n]),
    ):
        program = compiled(graph)
        np.testing.assert_array_equal(program(t, n), want)
        assert fetches(program) or n.size < 20
    far = compiled(table.take(places, axis=0))(t, np.full(bags, 1 << 30, "i4"))
    np.testing.assert_array_equal(far, np.zeros((*bags, columns), dtype))


def test_the_row_of_sixteen_places_later_is_fetched_to_the_nearest_cache() -> None:
    """No place is read behind the last one."""
    table, t = gathered(5000, 32)
    places = uopc.param("places", (9, 50), uopc.dtypes.int32)
    program = compiled(table.take(places, axis=0).sum(1))
    kernel = program.kernels[0].uops
    later = [u.src[0].src[1] for u in kernel.src if u.op is Ops.LOAD]
    later = [u for u in later if u.op is Ops.MIN]
    assert {u.src[1].arg for u in later} == {449}
    assert sorted([affine.form(u.src[0])[0] for u in later]) == [16, 17]  # two rows a turn
    asm = program.kernels[0].asm
    assert "prefetcht0" in asm and "prefetcht1" not in asm
    n = RNG.integers(-5000, 5000, (9, 50), "i4")
    out = np.zeros((9, 32), "f4")
    run_kernel(kernel, [out, n, t] if kernel_order(kernel) else [out, t, n])
    np.testing.assert_array_equal(out, t[n].sum(1))


def kernel_order(kernel: UOp) -> bool:
    """True if the places are the second argument of a kernel."""
    return any([u.op is Ops.PARAM and u.arg.slot == 1 and u.dtype.is_integral for u in kernel.src])


def test_which_gathered_rows_are_not_fetched() -> None:
    """Those of a table that the cache holds, short or very long ones, and at places of a list whose
    length is a variable."""
    few, long = (300, 64), (300, 2100)
    listed = uopc.param("places", (40, 64), uopc.dtypes.int32)
    n = uopc.variable("n", 1, 64)
    symbolic = uopc.param("places", (40, n), uopc.dtypes.int32)
    assert fetches(compiled(gathered(5000, 64)[0].take(listed, axis=0).sum(1)))
    for (rows, columns), places in (
        (few, listed), ((50_000, 8), listed), (long, listed), ((5000, 64), symbolic),
    ):  # fmt: skip
        table = uopc.param("table", (rows, columns))
        assert fetches(compiled(table.take(places, axis=0).sum(1))) == []


def test_a_symbolic_number_of_rows_fetches_nothing_in_parts() -> None:
    n = uopc.variable("n", 16, 64)
    w = RNG.standard_normal((DEPTH, COLUMNS)).astype("f4")
    x = RNG.standard_normal((37, DEPTH)).astype("f4")
    f = compiled(uopc.param("x", (n, DEPTH)) @ w)
    np.testing.assert_allclose(f(x), x.astype("f8") @ w, atol=1e-3)


# ---------------------------------------------------------------- the result
@pytest.mark.few(8)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS + 1, 1021])
@pytest.mark.parametrize("rows", [1, 9, 16, 61, 64])
def test_products_are_numpys(rows: int, columns: int, threads: int) -> None:
    """Small integers: exact in any order. What is fetched behind the last panel harms nothing."""
    graph, w = product(rows, columns=columns)
    x = RNG.integers(-3, 4, (rows, DEPTH)).astype("f4")
    np.testing.assert_array_equal(compiled(graph, threads)(x), x @ w)


@pytest.mark.parametrize("rows", [9, pytest.param(16, marks=pytest.mark.slow)])
def test_the_interpreter_has_the_result_of_numpy(rows: int) -> None:
    """It takes the weights in the order of the file, and puts them in blocks itself."""
    graph, w = product(rows)
    program = compiled(graph)
    kernel = program.kernels[0].uops
    x, out = RNG.integers(-3, 4, (rows, DEPTH)).astype("f4"), np.zeros((rows, COLUMNS), "f4")
    (packed,) = [u.arg.slot for u in kernel.src if u.op is Ops.PARAM and u.arg.order]
    run_kernel(kernel, [out, *((x, w) if packed == 2 else (w, x))])
    assert fetches(program)
    np.testing.assert_array_equal(out, x @ w)
    np.testing.assert_array_equal(program(x), out)
    assert parse(print_graph(kernel)) is kernel


def test_an_exported_product_is_numpys(tmp_path: Path) -> None:
    graph, w = product(16)
    x = RNG.integers(-3, 4, (16, DEPTH)).astype("f4")
    assert fetches(compiled(graph))
    made = uopc.export(graph, tmp_path / "f", kind="shared", index_bits=32)
    np.testing.assert_array_equal(uopc.load_exported(made.files[-1])(x), x @ w)


# ---------------------------------------------------------------- rules that fetch
def fetching(size: int, *extra: UOp) -> Any:
    """A rule that fetches for the operands of sums, at a distance that moves with everything."""

    def rule(u: UOp) -> UOp | None:
        if u.op is not Ops.ADD or u.dtype.is_integral or u.src[0].op is not Ops.LOAD:
            return None
        ahead = affine.const(-5)
        moving = [*sorted(ranges.ranges(u.src[0]), key=lambda r: r.arg.axis), *extra]
        for factor, r in zip((1 << 40, 8, -3, 2), moving):
            ahead = affine.add(ahead, affine.scaled(r, factor))
        fetch = UOp(Ops.FETCH, None, (u.src[0], ahead), size)
        return u.replace(src=(fetch, *u.src[1:]))

    return {"fetch-ahead": rule}


@pytest.mark.parametrize("size", [1, 40, 1000])
def test_a_distance_may_be_any_index(size: int) -> None:
    """Far outside of the arrays, of sizes that are symbols."""
    n = uopc.variable("n", 1, 90)
    x, y = uopc.param("x", (n, 7)), uopc.param("y", (7,))
    with uopc.options(programs=0, cache_dir=""):
        f = uopc.compile(x + y, rules=fetching(size, n), verify=True, threads=1)
    found = fetches(f)
    assert found and all([n in walk.order(u.src[1]) for u in found])
    for rows in (1, 11, 90):
        a, b = RNG.standard_normal((rows, 7)).astype("f4"), RNG.standard_normal(7).astype("f4")
        np.testing.assert_array_equal(f(a, b), a + b)


def test_a_gpu_fetches_nothing() -> None:
    x, y = uopc.param("x", (100, 7)), uopc.param("y", (7,))
    with uopc.options(programs=0, cache_dir=""):
        plain, ruled = [
            uopc.compile(x + y, rules=rules, device="cuda:sm_90", verify=True)
            for rules in ({}, fetching(40))
        ]
    assert fetches(ruled) and not fetches(plain)
    assert ruled.kernels[0].asm == plain.kernels[0].asm


# ---------------------------------------------------------------- the code
def test_one_instruction_a_step() -> None:
    program = compiled(product(64)[0])
    assert len(re.findall(r"prefetcht1\s", program.kernels[0].asm)) == len(fetches(program)) == 1


def test_many_elements_are_several_lines() -> None:
    """A third of a panel, or half of one, in each step is more than a line of 16 floats."""
    (kernel,) = lowered_for("dots", product(12, columns=8192)[0]).kernels
    (fetch,) = [u for u in kernel.src if u.op is Ops.FETCH]
    text, _ = split_function.render("product", kernel)
    assert 16 < fetch.arg <= 32 and text.count("call void @llvm.prefetch") == 2


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_c_is_the_same_without_fetching(tmp_path: Path) -> None:
    """Nothing of the distance is left in C, which has no warnings."""
    source = compiled(product(64)[0]).kernels[0].c
    assert "prefetch" not in source
    (tmp_path / "kernel.c").write_text(source, "utf-8")
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-mavx2", "-mfma", "-c"]
    made = subprocess.run(
        ["gcc", *flags, "kernel.c", "-o", "kernel.o"], cwd=tmp_path, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


# ---------------------------------------------------------------- the verifier
F32, FOUR = uopc.dtypes.float32, affine.const(4)


def loaded(space: str = "global") -> UOp:
    storage = intern(Ops.BUFFER, F32, (), BufferArg(0, (8,), "", space))
    return intern(Ops.LOAD, F32, (intern(Ops.INDEX, F32, (storage, FOUR)),))


@pytest.mark.parametrize(
    ("operands", "size", "reason"),
    [
        ((const(F32, 1), FOUR), 2, "operand 0 is const, expected a LOAD"),
        ((const(F32, 1), loaded().src[0]), 2, "operand 0 is const, expected a LOAD"),
        ((UOp(Ops.FETCH, None, (loaded(), FOUR), 2), FOUR), 2,
         "operand 0 is fetch, expected a LOAD"),
        ((loaded("reg"), FOUR), 2, "operand 0 is a LOAD of a register, expected one of memory"),
        ((loaded(), const(F32, 4)), 2, "the distance is float32, expected index"),
        ((loaded(), const(uopc.dtypes.int32, 4)), 2, "the distance is int32, expected index"),
        ((loaded(), intern(Ops.LANES, affine.const(0).dtype.vec(4), (), 4)), 2,
         "the distance is indexx4, expected index"),
        ((loaded(), FOUR), 0, "the size is 0, expected 1 to 1048576 elements"),
        ((loaded(), FOUR), -1, "the size is -1, expected 1 to 1048576 elements"),
        ((loaded(), FOUR), 1 << 40, "the size is 1099511627776, expected 1 to 1048576 elements"),
    ],
)  # fmt: skip
def test_what_is_no_fetch(operands: tuple[UOp, ...], size: int, reason: str) -> None:
    """The constructor and the verifier say the same."""
    assert nodes.CHECKS["result-dtype"](intern(Ops.FETCH, F32, operands, size)) == reason
    with pytest.raises(InvalidIR, match=re.escape(reason)):
        UOp(Ops.FETCH, None, operands, size)
    fetch = UOp(Ops.FETCH, None, (loaded(), FOUR), 2)
    assert UOp(Ops.FETCH, None, (fetch, loaded().src[0]), 2).dtype is fetch.dtype is F32
