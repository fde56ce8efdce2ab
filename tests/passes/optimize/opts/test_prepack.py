"""Constant arrays in the order in which the tiles of kernels read them."""

from __future__ import annotations

import gc
import itertools
import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.by_hand import apply_opt, plain_kernel
from tests.exporting.test_c import checked
from tests.exporting.test_export import assert_same, needs_c
from tests.passes.optimize.schedule.test_contractions import plain_conv
from tests.reference import numbers
from uopc import UOp, dtypes
from uopc.errors import InvalidIR, UserError
from uopc.ir.builder import rebuild
from uopc.ir.core import walk
from uopc.ir.core.args import Opt, ParamArg
from uopc.ir.core.data import blocks
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.index import affine
from uopc.ir.interpret import interpreter
from uopc.ir.interpret.machine import run_kernel
from uopc.ir.text.printer import parse, print_graph
from uopc.ir.verify.verifier import verify
from uopc.passes import mark_constants
from uopc.passes.optimize.opts.legality import Refused
from uopc.program import artifact

RNG = np.random.default_rng(17)
FAR = 1 << 62  # more bytes than any array has: all stay as they are


def prepacked(program: uopc.Program) -> list[str]:
    opts = [o for k in program.kernels for o in k.opts]
    return [str(o) for o in opts if o.op == "PREPACK"]


def orders(program: uopc.Program) -> list[tuple[int, ...]]:
    nodes = [u for k in program.kernels for u in k.uops.src]
    return [u.arg.order for u in nodes if u.op is Ops.PARAM and u.arg.order]


def in_file_order(monkeypatch: pytest.MonkeyPatch, graph: UOp) -> uopc.Program:
    """The program whose kernels read all arrays as they are."""
    monkeypatch.setattr(mark_constants, "LEAST_BYTES", FAR)
    with uopc.options(programs=0, cache_dir=""):
        return uopc.compile(graph)


# ---------------------------------------------------------------- the order
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "float16"])
@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (3, 1, 7, 5), (2, 3, 8, 1), (1, 2, 13, 6)])
def test_each_element_is_where_the_order_says(dims: tuple[int, ...], dtype: str) -> None:
    outer, chunks, length, inner = dims
    array = RNG.integers(0, 100, dims).astype(dtype)
    for n in (1, 2, 3, 4, 8, 16):
        order = (*dims, n)
        made = blocks.blocked(array, order)
        assert made.shape == (blocks.size(order),) and made.dtype == array.dtype
        assert made.ctypes.data % 64 == 0
        rows = range(-(-length // n) * n)
        want = [
            array[o, c, b * n + lane, i] if b * n + lane < length else 0
            for c, b, o, i, lane in itertools.product(
                range(chunks), range(len(rows) // n), range(outer), range(inner), range(n)
            )
        ]
        np.testing.assert_array_equal(made, np.array(want, dtype))


def product(
    rows: int, depth: int, columns: int, left: bool, turned: bool
) -> tuple[UOp, np.ndarray, list[int]]:
    """A product of a constant and an argument, the constant, and the dims of the argument."""
    dims = [rows, depth] if left else [depth, columns]
    w = numbers(*(dims[::-1] if turned else dims))
    c = uopc.constant(w)
    w, c = (w.T, c.permute(1, 0)) if turned else (w, c)
    other = [depth, columns] if left else [rows, depth]
    x = uopc.param("x", tuple(other))
    return (c @ x if left else x @ c), w, other


SIZES = [
    (96, 64, 96), (97, 67, 101), (128, 96, 40), (13, 512, 512), (40, 331, 128), (130, 1024, 50),
]  # fmt: skip


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.few(3)
def test_products_have_the_bits_of_the_order_of_the_file(
    size: tuple[int, int, int], left: bool, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are added up in the same order; NumPy says what they are."""
    graph, w, other = product(*size, left, turned)
    program = uopc.compile(graph)
    given = RNG.standard_normal(other).astype(np.float32)
    want = w @ given if left else given @ w
    np.testing.assert_allclose(program(given), want, rtol=2e-5, atol=1e-3)
    plain = in_file_order(monkeypatch, graph)
    assert prepacked(plain) == []
    np.testing.assert_array_equal(program(given), plain(given))


@pytest.mark.machine("laptop")
def test_the_shapes_above_are_in_blocks() -> None:
    """Rows of the left operand, and columns of the right one where they were packed."""
    graph, _, _ = product(96, 64, 96, left=True, turned=False)
    assert [o.partition("(")[0] for o in prepacked(uopc.compile(graph))] == ["PREPACK"]
    graph, _, _ = product(128, 512, 512, left=False, turned=False)
    program = uopc.compile(graph)
    assert prepacked(program) and not [o for k in program.kernels for o in k.opts if o.op == "PACK"]


def convolution(
    c: int, o: int, size: int, taps: int, stride: int = 1, groups: int = 1
) -> tuple[UOp, Callable[[np.ndarray], np.ndarray]]:
    w, pad = numbers(o, c // groups, taps, taps), taps // 2
    x = uopc.param("x", (1, c, size, size))
    graph = x.conv2d(uopc.constant(w), stride=stride, padding=pad, groups=groups).relu()
    return graph, lambda x: np.maximum(plain_conv(x, w, stride, pad, groups), 0)


@pytest.mark.parametrize(
    "case",
    [(64, 64, 14, 1), (32, 40, 20, 3), (16, 66, 9, 3, 2), (96, 96, 7, 1, 1, 2), (64, 256, 7, 1, 2)],
    ids=str,
)
@pytest.mark.parametrize("threads", [1, 2])
def test_convolutions(case: tuple[int, ...], threads: int) -> None:
    graph, want = convolution(*case)
    program = uopc.compile(graph, threads=threads)
    x = numbers(1, case[0], case[2], case[2])
    np.testing.assert_array_equal(program(x), want(x))
    assert prepacked(program)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int16", "float16", "int8"])
@pytest.mark.parametrize("left", [True, False])
def test_dtypes(dtype: str, left: bool) -> None:
    t = getattr(dtypes, dtype)
    w, x = numbers(160, 160, dtype=dtype), uopc.param("x", (160, 160), t)
    c = uopc.constant(w)
    program = uopc.compile(c @ x if left else x @ c)
    given = numbers(160, 160, dtype=dtype)
    want = (w.astype(np.int64) @ given.astype(np.int64)) if left else (
        given.astype(np.int64) @ w.astype(np.int64)
    )  # fmt: skip
    np.testing.assert_array_equal(program(given), want.astype(program(given).dtype))


def test_a_symbolic_number_of_rows() -> None:
    w = numbers(256, 320)
    n = uopc.variable("n", 1, 300)
    program = uopc.compile(uopc.param("x", (n, 256)) @ uopc.constant(w))
    for rows in (1, 97, 300):
        x = numbers(rows, 256)
        np.testing.assert_array_equal(program(x), x @ w)
    assert prepacked(program)


@settings(max_examples=25, deadline=None)
@given(st.integers(33, 140), st.integers(8, 70), st.integers(17, 150), st.booleans(), st.booleans(),
       st.integers(1, 3))  # fmt: skip
def test_no_division_is_left_in_a_tile(
    rows: int, depth: int, columns: int, left: bool, turned: bool, threads: int
) -> None:
    """The block of the order is that of the tile, whatever the lengths are."""
    graph, w, other = product(rows, depth, columns, left, turned)
    with uopc.options(programs=0, cache_dir=""):
        program = uopc.compile(graph, threads=threads)
    for u in [u for k in program.kernels for u in k.uops.src]:
        if u.op is Ops.INDEX and u.src[0].op is Ops.PARAM and u.src[0].arg.order:
            assert {Ops.FLOORDIV, Ops.FLOORMOD, Ops.SHR, Ops.AND}.isdisjoint(walk.ops(u.src[1]))
    given = numbers(*other)
    np.testing.assert_array_equal(program(given), w @ given if left else given @ w)


# ---------------------------------------------------------------- who holds the arrays
@pytest.mark.machine("laptop")
def test_kernels_that_read_one_array_in_different_orders() -> None:
    w = numbers(192, 192)
    c, x, y = uopc.constant(w), uopc.param("x", (192, 192)), uopc.param("y", (256, 192))
    program = uopc.compile([c @ x, y @ c, c.sum(axis=0), c[:, 3]])
    assert len(set(orders(program))) == 3
    a, b = numbers(192, 192), numbers(256, 192)
    for got, want in zip(program(a, b), [w @ a, b @ w, w.sum(axis=0), w[:, 3]]):
        np.testing.assert_array_equal(got, want)


@pytest.mark.machine("laptop")
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_bring_the_weights_of_a_model_in_order(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side if a program has several threads; the caller's own thread otherwise."""
    by: set[str] = set()
    plain = blocks.blocked

    def noted(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
        by.add(threading.current_thread().name)
        return plain(array, order)

    monkeypatch.setattr(blocks, "blocked", noted)
    layers = [numbers(520, 520) for _ in range(4)]
    x = uopc.param("x", (64, 520))
    graph = [x @ uopc.constant(w) for w in (*layers, layers[0])]
    with uopc.options(programs=0, cache_dir=""):
        program = uopc.compile(graph, threads=threads)
    assert len(prepacked(program)) >= 1
    own = threading.current_thread().name
    assert by == {own} if threads == 1 else by and own not in by
    a = numbers(64, 520)
    for got, w in zip(program(a), (*layers, layers[0]), strict=True):
        np.testing.assert_array_equal(got, a @ w)


@pytest.mark.machine("laptop")
def test_programs_share_an_array_while_one_of_them_lives() -> None:
    w = numbers(224, 224)
    before = set(artifact._in_orders.keys())

    def make(add: float) -> uopc.Program:
        return uopc.compile(uopc.constant(w) @ (uopc.param("x", (224, 224)) + add))

    one, two = make(1.0), make(2.0)
    key = uopc.constant(w).arg.key
    new = [k for k in artifact._in_orders if k not in before and k[0] == key]
    assert len(new) == 1, new
    held = artifact._in_orders[new[0]]
    assert any(held is c for c in one._runner.plan.constants)
    assert any(held is c for c in two._runner.plan.constants)
    assert not held.flags.writeable
    x = numbers(224, 224)
    np.testing.assert_array_equal(two(x), w @ (x + 2))
    del one, two, held
    gc.collect()
    assert new[0] not in artifact._in_orders


def test_an_array_in_a_file_is_not_copied(tmp_path: Path) -> None:
    w = numbers(256, 256)
    path = tmp_path / "weights"
    path.write_bytes(w.tobytes())
    mapped = uopc.file(path, np.float32, (256, 256))
    program = uopc.compile(uopc.constant(mapped) @ uopc.param("x", (256, 200)))
    assert orders(program) == []
    x = numbers(256, 200)
    np.testing.assert_array_equal(program(x), w @ x)


@pytest.mark.parametrize("size", [15, 63])
def test_small_arrays_stay_as_they_are(size: int) -> None:
    """63 x 63 floats are less than 16 KiB."""
    w = numbers(size, size)
    program = uopc.compile(uopc.constant(w) @ uopc.param("x", (size, 200)))
    assert orders(program) == []


@pytest.mark.machine("laptop")
@pytest.mark.parametrize(("depth", "blocked"), [(1000, True), (1023, True), (1024, False)])
def test_rows_of_a_page_are_streams_of_their_own(depth: int, blocked: bool) -> None:
    """Rows of 4 KiB and more stay as they are."""
    graph, w, other = product(64, depth, 96, left=True, turned=False)
    program = uopc.compile(graph, threads=1)
    assert bool(orders(program)) is blocked
    given = numbers(*other)
    np.testing.assert_array_equal(program(given), w @ given)


def test_unoptimised_programs_read_the_file_order() -> None:
    graph, w, other = product(128, 128, 128, left=True, turned=False)
    program = uopc.compile(graph, optimize=False)
    assert orders(program) == []
    given = numbers(*other)
    np.testing.assert_array_equal(program(given), w @ given)


@pytest.mark.machine("laptop")
def test_pickles_and_files_of_programs() -> None:
    graph, w, other = product(200, 200, 200, left=False, turned=False)
    program = uopc.compile(graph)
    assert orders(program)
    given = numbers(*other)
    again = pickle.loads(pickle.dumps(program))
    np.testing.assert_array_equal(again(given), given @ w)
    assert orders(again) == orders(program)


_OTHER = """
import numpy as np, uopc
w = np.arange(200 * 200, dtype=np.float32).reshape(200, 200) % 7 - 3
x = w.T[::-1].copy()
program = uopc.compile(uopc.param("x", (200, 200)) @ uopc.constant(w))
assert np.array_equal(program(x), x @ w)
"""


def test_another_process_takes_the_program_from_the_disk(tmp_path: Path) -> None:
    """The record has no copy of the array: the next process puts it in order again."""
    env = dict(os.environ, UOPC_CACHE_DIR=str(tmp_path / "cache"))
    for _ in range(2):
        subprocess.run([sys.executable, "-c", _OTHER], check=True, env=env)
    entries = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert entries and max([p.stat().st_size for p in entries]) < 200 * 200 * 4


@pytest.mark.machine("laptop")
@pytest.mark.parametrize("left", [True, False])
def test_exports(left: bool, tmp_path: Path) -> None:
    graph, _, other = product(130, 120, 150, left, turned=False)
    assert prepacked(uopc.compile(graph, threads=1))
    x = RNG.standard_normal(other).astype(np.float32)
    wanted = uopc.compile(graph, threads=1)(x)
    made = uopc.export(graph, tmp_path / "f", kind="shared")
    assert_same(uopc.load_exported(made.files[-1])(x), wanted)


@needs_c
def test_c_code_has_the_array_in_blocks(tmp_path: Path) -> None:
    graph, _, other = product(130, 120, 150, left=True, turned=False)
    uopc.export(graph, tmp_path / "f", kind="c", examples={"x": numbers(*other)})
    checked(tmp_path)


@pytest.mark.machine("laptop")
def test_a_launch_takes_the_array_in_the_order_of_its_kernel() -> None:
    graph, w, other = product(100, 90, 110, left=True, turned=False)
    (launch,) = uopc.compile(graph).launches
    (constant,) = [b for b in launch.buffers if b.kind == "constant"]
    (order,) = orders(uopc.compile(graph))
    assert constant.shape == (blocks.size(order),)
    x, out = numbers(*other), np.zeros((100, 110), np.float32)
    arrays = {"constant": blocks.blocked(w, order), "input": x, "output": out}
    launch.run(*[arrays[b.kind] for b in launch.buffers])
    np.testing.assert_array_equal(out, w @ x)


@pytest.mark.slow
def test_a_search_takes_the_kernel_without_its_constants() -> None:
    graph, w, other = product(96, 64, 80, left=True, turned=False)
    with uopc.options(programs=0):
        program = uopc.compile(graph, threads=1, beam=1)
    given = numbers(*other)
    np.testing.assert_array_equal(program(given), w @ given)


# ---------------------------------------------------------------- the Opt
def marked(graph: UOp) -> UOp:
    """The kernel of a graph, whose arguments named w are constants in all launches."""
    kernel = plain_kernel(graph)
    params = [u for u in walk.order(kernel) if u.op is Ops.PARAM and u.arg.slot == 1]
    made = [intern(u.op, u.dtype, u.src, ParamArg("", u.arg.dims, 1, order=())) for u in params]
    return rebuild.rebuild(kernel, dict(zip(params, made)))


def sums(rows: int = 12, depth: int = 10) -> UOp:
    return (uopc.param("w", (rows, depth)) * uopc.param("x", (depth,))).sum(1)


@pytest.mark.parametrize("n", [2, 3, 5, 12, 16])
def test_the_interpreter_reads_the_blocks(n: int) -> None:
    kernel = apply_opt(marked(sums()), Opt("PREPACK", 0, n))
    w, x = numbers(12, 10), numbers(10)
    out = np.zeros(12, np.float32)
    run_kernel(kernel, [out, w, x])
    np.testing.assert_array_equal(out, w @ x)
    assert parse(print_graph(kernel)) is kernel


def test_an_array_that_is_read_under_a_guard() -> None:
    kernel = marked(sums(13))
    for opt in (Opt("PADTO", 0, 8), Opt("PREPACK", 1, 4)):
        kernel = apply_opt(kernel, opt)
    w, x, out = numbers(13, 10), numbers(10), np.zeros(13, np.float32)
    run_kernel(kernel, [out, w, x])
    np.testing.assert_array_equal(out, w @ x)


@pytest.mark.parametrize(
    ("graph", "opt", "reason"),
    [
        (lambda: marked(sums()), Opt("PREPACK", 0, 1), "the amount 1 is too small"),
        (lambda: plain_kernel(sums()), Opt("PREPACK", 0, 4), "no dimension of a constant"),
        (lambda: marked((uopc.param("w", (12,)) * 2.0).sum(0)), Opt("PREPACK", 0, 4), "dimension"),
        (
            lambda: apply_opt(marked(sums()), Opt("PREPACK", 0, 4)),
            Opt("PREPACK", 0, 2),
            "no dimension",
        ),
        (
            lambda: apply_opt(marked(sums()), Opt("TILE", 0, 4)),
            Opt("PREPACK", 1, 2),
            None,
        ),
        (
            lambda: marked(uopc.param("w", (uopc.variable("n", 1, 9), 4)).sum(1)),
            Opt("PREPACK", 0, 2),
            "not known",
        ),
    ],
)  # fmt: skip
def test_refusals(graph: Callable[[], UOp], opt: Opt, reason: str | None) -> None:
    if reason is None:  # a part of the rows is a dimension of its own
        w, x, out = numbers(12, 10), numbers(10), np.zeros(12, np.float32)
        run_kernel(apply_opt(graph(), opt), [out, w, x])
        np.testing.assert_array_equal(out, w @ x)
        return
    with pytest.raises(Refused, match=reason):
        apply_opt(graph(), opt)


def test_a_user_who_asks_for_it_without_a_constant_is_told() -> None:
    value = sums().contiguous(opts=(Opt("PREPACK", 0, 4),))
    with pytest.raises(UserError, match="PREPACK\\(0, 4\\): no dimension of a constant array"):
        uopc.compile(value)


def test_a_user_may_ask_for_another_block() -> None:
    w = numbers(64, 80)
    x = uopc.param("x", (80,))
    opts = Opt("PREPACK", 0, 8), Opt("VECTOR", 0, 8)
    value = (uopc.constant(w) * x).sum(1).contiguous(opts=opts)
    program = uopc.compile(value)
    assert orders(program) == [(1, 1, 64, 80, 8)]
    given = numbers(80)
    np.testing.assert_array_equal(program(given), w @ given)
    np.testing.assert_array_equal(interpreter.evaluate(value, {"x": given}), w @ given)


@pytest.mark.parametrize(
    "order",
    [(1, 2, 3), (1, 12, 10, 4), (1, 1, 12, 10, 0), (1, 1, 12, 10, 5), (1, 2, 12, 10, 4)],
    ids=str,
)
def test_an_order_that_does_not_fit_is_no_ir(order: tuple[int, ...]) -> None:
    kernel = marked(sums(12, 10))
    text = print_graph(kernel).replace("order=()", f"order={order}")
    if math.prod(order[:4]) == 120 and order[4:] == (5,):
        text = text.replace("[120]", "[119]")
    bad = parse(text)
    with pytest.raises(InvalidIR, match="has no order"):
        verify(bad, uopc.ir.core.levels.KERNEL, "here")


# ---------------------------------------------------------------- threads
@pytest.mark.machine("laptop")
@pytest.mark.parametrize("rows", [1, 2, 5, 8])
@pytest.mark.parametrize("columns", [512, 640, 1000])
def test_a_thread_reads_one_stream(rows: int, columns: int) -> None:
    """Its columns of a constant lie by themselves, and those of a tile in one panel after the
    other, also where no panel ends with the chunk. Chunks of two lengths do so if they begin at a
    panel."""
    depth = 400
    w, x = numbers(depth, columns), numbers(rows, depth)
    program = uopc.compile(uopc.param("x", (rows, depth)) @ uopc.constant(w), threads=2)
    np.testing.assert_array_equal(program(x), x @ w)
    (kernel,) = program.kernels
    if columns == 1000:  # chunks of 504 and 496
        assert orders(program) == ([(depth, 1, 1000, 1, 24)] if rows == 8 else [])
        return
    ((outer, chunks, length, inner, n),) = orders(program)
    assert (outer, chunks, length, inner) == (depth, 2, columns // 2, 1)
    reads = [u for u in kernel.uops.src if u.op is Ops.INDEX and u.src[0].arg.order]
    for steps in [affine.form(u.src[1])[1] for u in reads]:
        by = {r.arg.kind: steps[r] for r in steps if r.op is Ops.RANGE}
        assert by["reduce"] == n and by["thread"] == -(-length // n) * depth * n


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 9), st.integers(64, 100), st.integers(2, 6), st.integers(2, 10),
    st.integers(2, 9), st.sampled_from(["float32", "float64", "int32"]),
)  # fmt: skip
def test_equal_chunks(
    rows: int, depth: int, threads: int, chunk: int, block: int, dtype: str
) -> None:
    w, x = numbers(depth, threads * chunk, dtype=dtype), numbers(rows, depth, dtype=dtype)
    value = uopc.param("x", x.shape, getattr(dtypes, dtype)) @ uopc.constant(w)
    opts = Opt("SWAP", 0, 1), Opt("THREAD", 0, threads), Opt("PREPACK", 1, block)
    graph = value.contiguous(opts=opts)
    program = uopc.compile(graph, threads=threads)
    ((outer, chunks, length, *_),) = orders(program)
    assert (outer, chunks, length) == (depth, threads, chunk)
    np.testing.assert_array_equal(interpreter.evaluate(graph, {"x": x}), x @ w)
    np.testing.assert_array_equal(program(x), x @ w)
