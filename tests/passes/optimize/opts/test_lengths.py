"""Chunks of loops whose length no number of threads divides: each has one of two known lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.by_hand import apply_opt, plain_kernel
from tests.machines import THIS, lowered_for
from tests.passes.optimize.opts.test_opts import results
from tests.reference import numbers
from uopc import UOp
from uopc.config import MOST_THREADS
from uopc.errors import UserError
from uopc.ir.core import walk
from uopc.ir.core.args import Opt
from uopc.ir.core.levels import KERNEL
from uopc.ir.core.ops import Ops
from uopc.ir.index import affine
from uopc.ir.interpret import interpreter
from uopc.ir.verify.in_bounds import verify_bounds
from uopc.passes.optimize.opts.lengths import CHUNK_MULTIPLE, MOST_UNEVEN, Chunks, chunks_of
from uopc.passes.optimize.opts.substitution import Part, substituted

RNG = np.random.default_rng(245)
COPIES = ("upcast", "lane")


def product(m: int, k: int, n: int) -> UOp:
    return uopc.param("a", (m, k)) @ uopc.param("b", (k, n))


# ---------------------------------------------------------------- the cut
@settings(max_examples=500, deadline=None)
@given(st.integers(1, 5000), st.integers(1, MOST_THREADS))
def test_chunks_are_all_of_the_loop_and_none_is_much_longer(length: int, threads: int) -> None:
    cut, share = chunks_of(length, threads), -(-length // threads)
    assert 1 <= cut.count <= threads and cut.size > 0 and cut.last > 0
    assert cut.size * (cut.count - 1) + cut.last == length
    assert (cut.longest - share) * MOST_UNEVEN <= share


def test_vectors_of_the_first_chunks_are_whole() -> None:
    assert chunks_of(517, 2) == Chunks(2, 256, 261)  # the last one longer than the others
    assert chunks_of(50_257, 2).size % (3 * CHUNK_MULTIPLE) == 0
    assert chunks_of(7, 2) == Chunks(2, 4, 3)
    assert chunks_of(4095, 2) == Chunks(2, 2048, 2047)


@pytest.mark.parametrize("threads", [2, 3, 5, 64])
def test_every_element_belongs_to_one_chunk(threads: int) -> None:
    """Each chunk alone, by the interpreter: no two write the same element."""
    for n in [*range(1, 12), 63, 64, 65, 127]:
        kernel = plain_kernel(uopc.param("a", (n,)) * 2.0)
        for opts in [[], [Opt("SPLIT", 1, 4)], [Opt("SPLIT", 1, 4), Opt("UPCAST", 1, 4)]]:
            try:
                made = apply_opt(kernel, Opt("THREAD", 0, threads))
                for opt in opts:
                    made = apply_opt(made, opt)
            except uopc.errors.Error:
                continue
            (thread,) = [r for r in walk.order(made)
                         if r.op is Ops.RANGE and r.arg.kind == "thread"]  # fmt: skip
            written = np.zeros(n, int)
            for number in range(thread.src[0].arg):
                alone = substituted(made, {thread: Part(affine.const(number), ())})
                out = np.full(n, np.nan, "f4")
                interpreter.run_kernel(alone, [out, np.ones(n, "f4")])
                written += ~np.isnan(out)
            assert (written == 1).all(), (n, opts)


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.few(2)
def test_opts_on_chunks_of_every_length(threads: int) -> None:
    for n in range(2, 41):
        a = numbers(n)
        graph = uopc.param("a", (n,)) * 3.0 - 1.0
        for rest in [[], ["SPLIT"], ["SPLIT", "VECTOR"], ["SPLIT", "UPCAST"], ["PADTO"],
                     ["OVERLAP"], ["REPEAT"]]:  # fmt: skip
            opts = [Opt("THREAD", 0, threads), *[Opt(op, 1, 4) for op in rest]]
            try:
                got = results(graph, [a], opts)
            except UserError as refused:
                assert rest and "THREAD" not in str(refused)
                continue
            np.testing.assert_array_equal(got, a * 3 - 1)


def test_a_symbolic_loop_has_chunks_of_any_length() -> None:
    n = uopc.variable("n", 0, 9000)
    x = uopc.param("x", (n, 96))
    program = uopc.compile(x.exp().sum(axis=1), threads=3, verify=True)
    for rows in (0, 1, 2, 5, 8999):
        a = numbers(rows, 96)
        np.testing.assert_allclose(program(a), np.exp(a).sum(axis=1), rtol=1e-5)


# ---------------------------------------------------------------- what the schedule makes of it
def accumulators(kernel: UOp) -> list[int]:
    """The copies and lanes of each sum of a product."""
    found = []
    for u in walk.order(kernel):
        if u.op is Ops.REDUCE:
            copies = [r.src[0].arg for r in u.toposort() if r.op is Ops.RANGE
                      and r.arg.kind in COPIES]  # fmt: skip
            found.append(int(np.prod(copies)))
    return sorted(found)


def test_all_rows_of_an_odd_layer_are_one_tile() -> None:
    """The columns are shared, in whole panels but for the last thread's rest."""
    (run,) = [r for r in lowered_for("dots", product(7, 333, 517), threads=2).runs
              if r.name == "optimize"]  # fmt: skip
    (kernel,) = run.after
    assert accumulators(kernel) == [7 * 8, 7 * 32]


def test_a_rest_of_rows_is_a_tile_of_its_own() -> None:
    graph = uopc.param("x", (1001, 37)) @ uopc.param("w", (37, 16))
    (run,) = [r for r in lowered_for("dots", graph, threads=2).runs if r.name == "optimize"]
    one, two = accumulators(run.after[0])[:2]
    assert one % 16 == two % 16 == 0 and one > 16


@pytest.mark.machine("dots")
def test_columns_of_constants_are_shared_in_panels() -> None:
    """GPT-2's words for few rows: each thread reads its half of the weights, in order."""
    w = numbers(96, 50_257)
    graph = uopc.param("x", (64, 96)) @ uopc.constant(w)
    (kernel,) = lowered_for("dots", graph, threads=2).kernels
    assert [o.op for o in kernel.arg.opts][:3] == ["SWAP", "THREAD", "PREPACK"]
    (order,) = {u.arg.order for u in walk.order(kernel) if u.op is Ops.PARAM and u.arg.order}
    assert order[:4] == (96, 1, 50_257, 1)
    a = numbers(64, 96)
    with uopc.options(programs=0, cache_dir=""):
        np.testing.assert_array_equal(uopc.compile(graph, threads=2)(a), a @ w)


@pytest.mark.parametrize("dims", [(7, 333, 517), (31, 129, 77), (1001, 37, 19), (49, 64, 257)])
@pytest.mark.parametrize("threads", [2, 3])
def test_every_access_is_proved_to_be_inside(dims: tuple[int, int, int], threads: int) -> None:
    graphs = [product(*dims), uopc.param("a", dims[:2]) @ np.ones(dims[1:], "f4")]
    for graph in graphs:
        runs = lowered_for("dots", graph, threads=threads).runs
        for run in [r for r in runs if r.level & KERNEL]:
            for kernel in run.after:
                assert not verify_bounds(kernel, run.name)


# ---------------------------------------------------------------- numbers
SIZES = st.integers(1, 70)
THREADS = st.sampled_from([2, 3, 5])


@pytest.mark.machine(THIS)
@settings(max_examples=12, deadline=None)
@given(SIZES, st.integers(1, 40), SIZES, THREADS, st.sampled_from(["float32", "float64"]),
       st.booleans())  # fmt: skip
def test_products(
    rows: int, depth: int, columns: int, threads: int, dtype: str, constant: bool
) -> None:
    depth = -(-(1 << 18) // (rows * columns)) + depth if rows * columns > 300 else depth
    a, b = numbers(rows, depth, dtype=dtype), numbers(depth, columns, dtype=dtype)
    x = uopc.param("x", a.shape, getattr(uopc.dtypes, dtype))
    right = uopc.constant(b) if constant else uopc.param("b", b.shape, x.dtype)
    with uopc.options(programs=0, cache_dir=""):
        program = uopc.compile((x @ right).relu(), threads=threads, verify=True)
    got = program(a) if constant else program(a, b)
    np.testing.assert_array_equal(got, np.maximum(a @ b, 0))


@pytest.mark.machine(THIS)
@settings(max_examples=6, deadline=None)
@given(st.integers(3, 19), st.integers(3, 19), st.integers(7, 41), st.integers(7, 41), THREADS,
       st.sampled_from([1, 2]))  # fmt: skip
def test_convolutions(
    channels: int, results: int, rows: int, columns: int, threads: int, stride: int
) -> None:
    w, image = numbers(results, channels, 3, 3), numbers(1, channels, rows, columns)
    x = uopc.param("x", image.shape)
    program = uopc.compile(x.conv2d(w, padding=1, stride=stride), threads=threads, verify=True)
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    np.testing.assert_array_equal(program(image), np.einsum("nchwij,kcij->nkhw", windows, w))


@pytest.mark.machine(THIS)
@settings(max_examples=6, deadline=None)
@given(st.integers(1, 900), st.integers(1, 600), THREADS)
def test_rows_that_are_normalised_in_place_and_elsewhere(
    rows: int, columns: int, threads: int
) -> None:
    x = uopc.param("x", (rows, columns))
    program = uopc.compile([x.softmax(axis=1), x.assign(x.tanh() * 2)], threads=threads)
    a = RNG.standard_normal((rows, columns)).astype("f4")
    e = np.exp(a - a.max(axis=1, keepdims=True))
    wanted = np.tanh(a) * 2
    got = program(a)[0]
    np.testing.assert_allclose(got, e / e.sum(axis=1, keepdims=True), rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(a, wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.machine(THIS)
def test_each_matrix_is_computed_once() -> None:
    """Three matrices for two threads."""
    a, b = numbers(3, 65, 129), numbers(3, 129, 257)
    graph = uopc.param("a", a.shape) @ uopc.param("b", b.shape)
    np.testing.assert_array_equal(uopc.compile(graph, threads=2, verify=True)(a, b), a @ b)
