"""Opts: every vector width at every length, each Opt legal or refused with its reason, replay."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from tests.by_hand import apply_opt, at, param, plain_kernel, store, with_opts
from tests.reference import numbers
from uopc.backends import detect
from uopc.driver import lower_only
from uopc.errors import UserError
from uopc.ir.builder import kernel
from uopc.ir.core import bounds, dtypes
from uopc.ir.core.args import FORMER_OPTS, KernelArg, Opt
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.interpret import interpreter
from uopc.ir.nest.nest import nest_of
from uopc.ir.text.parser import parse
from uopc.ir.text.printer import print_graph
from uopc.passes import PIPELINE
from uopc.passes.contract import Context
from uopc.passes.optimize import optimize
from uopc.passes.optimize.opts import table
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.substitution import Tiled

MARGIN = 512  # elements around an output that no kernel may touch


def results(graph, arrays, opts):
    """The result of a one-kernel graph with exactly these Opts, by machine code."""
    asked = with_opts(plain_kernel(graph), opts)
    slots = {u.arg.slot: u for u in asked.toposort() if u.op is Ops.PARAM}
    program = uopc.compile(asked, verify=True)
    room = np.full(slots[0].shape[0] + 2 * MARGIN, 77, slots[0].dtype.numpy)
    out = room[MARGIN:-MARGIN]
    flat = {f"s{i}": np.ascontiguousarray(a).reshape(-1) for i, a in enumerate(arrays, 1)}
    # A kernel sees the part of an array that its indices reach.
    program(s0=out, **{k: a[: slots[int(k[1:])].shape[0]] for k, a in flat.items()})
    assert program.kernels[0].opts == tuple(opts)
    assert (room[:MARGIN] == 77).all() and (room[-MARGIN:] == 77).all(), "written out of bounds"
    return out.copy()


# ---------------------------------------------------------------- widths and lengths
@pytest.mark.parametrize("width", [2, 4, 8, 16])
@pytest.mark.few(2)
def test_vectors_of_every_length(width):
    """Whole vectors where the width divides the length; else a cut, and the rest one by one."""
    for n in range(2, 41):
        a, b = numbers(n), numbers(n)
        graph = uopc.param("a", (n,)) * uopc.param("b", (n,)) - 1.0
        opts = [Opt("VECTOR", 0, width)]
        if n < width:
            with pytest.raises(UserError, match=f"{width} does not divide"):
                results(graph, [a, b], opts)
            continue
        if n % width:
            opts = [Opt("SPLIT", 0, width), Opt("VECTOR", 0, width)]
        np.testing.assert_array_equal(results(graph, [a, b], opts), a * b - 1)


@pytest.mark.parametrize("width", [2, 4, 8, 16])
@pytest.mark.few(2)
def test_vector_sums_of_every_length(width):
    for n in range(width, 41):
        a = numbers(n)
        opts = [Opt("VECTOR", 0, width)]
        if n % width:
            opts = [Opt("SPLIT", 0, width), Opt("VECTOR", 0, width)]
        assert results(uopc.param("a", (n,)).sum(), [a], opts)[0] == a.sum()


@pytest.mark.parametrize("width", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.float16, dtypes.float32, dtypes.float64])
@pytest.mark.few(4)
def test_masked_vectors_of_every_width(dtype, width):
    """Wider than a register too, where some of the registers have no open lane."""
    for inside in sorted({1, width // 2, width - 1}):
        x = uopc.param("x", (3, inside), dtype)
        array = numbers(3 * inside).reshape(3, inside).astype(x.dtype.numpy)
        padded = ((1, 1), (0, width - inside)), ((1, 1), (width - inside, 0))
        for pads in padded:
            graph = (x.pad(pads) + x.pad(pads).flip(1)).contiguous([Opt("VECTOR", 1, width)])
            program = uopc.compile(graph, threads=1)
            assert program.kernels[0].opts == (Opt("VECTOR", 1, width),)
            want = np.pad(array, pads)
            np.testing.assert_array_equal(program(array), want + want[:, ::-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "opts", [[], [Opt("SWAP", 1, 2)], [Opt("SWAP", 1, 2), Opt("BLOCK", 1, 3), Opt("SWAP", 0, 1)]]
)
@pytest.mark.parametrize("n", [2, 4, 7])
def test_blocks_of_every_length(n, opts):
    for rows in range(n + 1, 23):
        a, graph = numbers(5, rows), uopc.param("a", (5, rows)).permute(1, 0) * 2.0
        got = results(graph, [a], [Opt("BLOCK", 0, n), *opts])
        np.testing.assert_array_equal(got.reshape(rows, 5), a.T * 2)


@pytest.mark.parametrize("width", [2, 4, 8, 16])
@pytest.mark.few(2)
def test_overlapping_vectors_of_every_length(width):
    for n in range(2, 41):
        a, b = numbers(n), numbers(n)
        graph = uopc.param("a", (n,)) * uopc.param("b", (n,)) - 1.0
        opts = [Opt("OVERLAP", 0, width)]
        if n < width or n % width == 0:
            with pytest.raises(UserError, match="and must not divide the range"):
                results(graph, [a, b], opts)
            continue
        np.testing.assert_array_equal(results(graph, [a, b], opts), a * b - 1)


def test_what_is_written_in_place_does_not_overlap():
    x = uopc.param("x", (7,))
    kernel_graph = plain_kernel(x.assign(x * 2.0))
    with pytest.raises(Refused, match="the kernel reads the storage that it writes"):
        apply_opt(kernel_graph, Opt("OVERLAP", 0, 4))


def test_lengths_as_compile_chooses():
    for n in range(41):
        a = numbers(n)
        x = uopc.param("a", (n,))
        both = uopc.compile((x + 1.0, x.sum(), x.flip(0) * 2.0), verify=True)(a)
        for got, wanted in zip(both, (a + 1, a.sum(), a[::-1] * 2), strict=True):
            np.testing.assert_array_equal(got, wanted)


# ---------------------------------------------------------------- legal or refused
GRAPHS = {
    "elementwise": (lambda: uopc.param("a", (3, 16)).permute(1, 0) * 2.0, [(3, 16)]),
    "row-sums": (lambda: uopc.param("a", (6, 16)).sum(axis=1), [(6, 16)]),
    "matmul": (lambda: uopc.param("a", (4, 6)) @ uopc.param("b", (6, 8)), [(4, 6), (6, 8)]),
    "row-softmax": (
        lambda: (lambda x: x - x.max(axis=1, keepdims=True) + x.sum(axis=1, keepdims=True))(
            uopc.param("a", (4, 8))
        ),
        [(4, 8)],
    ),
    "padded": (lambda: uopc.param("a", (5, 6)).pad(((1, 2), (2, 0))), [(5, 6)]),
    "gather": (lambda: uopc.param("a", (6, 4)).take(uopc.arange(6)[::-1] % 5, 0), [(6, 4)]),
    "flattened": (lambda: uopc.param("a", (4, 6)).permute(1, 0).reshape(24) + 1.0, [(4, 6)]),
}  # fmt: skip
EVERY_OPT = [
    Opt(op, axis, n) for op in table.OPTS for axis in range(4) for n in (-1, 0, 1, 2, 4)
]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.few(2)
def test_each_opt_is_refused_with_a_reason_or_keeps_the_numbers(name):
    make, dims = GRAPHS[name]
    graph, arrays = make(), [numbers(*d) for d in dims]
    wanted = results(graph, arrays, [])
    base = plain_kernel(graph)
    applied = refused = 0
    for opt in EVERY_OPT:
        try:
            after = apply_opt(base, opt)
        except Refused as why:
            assert str(why).startswith(f"{opt}: ") and len(str(why)) > len(str(opt)) + 12
            refused += 1
            continue
        assert after is not base
        applied += 1
        np.testing.assert_array_equal(results(graph, arrays, [opt]), wanted, str(opt))
    assert applied >= 4 and refused >= 4, (applied, refused)


@pytest.mark.others(14)
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.few(5)
def test_opts_one_after_another_keep_the_numbers(name, seed):
    """Random legal sequences: each sees the kernel as the ones before left it."""
    make, dims = GRAPHS[name]
    graph, arrays = make(), [numbers(*d) for d in dims]
    rng = np.random.default_rng([seed, *name.encode()])
    kernel_now, opts = plain_kernel(graph), []
    for _ in range(12):
        op = str(rng.choice(list(table.OPTS)))
        opt = Opt(op, int(rng.integers(0, 5)), int(rng.choice([0, 2, 3, 4, 8])))
        try:
            kernel_now = apply_opt(kernel_now, opt)
        except Refused:
            continue
        opts.append(opt)
        if len(opts) == 4:
            break
    np.testing.assert_array_equal(
        results(graph, arrays, opts), results(graph, arrays, []), str(opts)
    )


@pytest.mark.parametrize("opts", [
    [Opt("THREAD", 1, 7), Opt("SPLIT", 0, 4)],
    [Opt("BLOCK", 1, 7), Opt("SPLIT", 0, 4)],
], ids=str)  # fmt: skip
def test_copied_loops_are_as_long_as_those_around_the_copy_say(opts):
    """A chunk of a loop is as long as its place says: of the copy, by the copied loop."""
    graph, array = uopc.param("a", (44, 6)).permute(1, 0) + 1.0, numbers(44, 6)
    got = results(graph, [array], opts)
    np.testing.assert_array_equal(got.reshape(6, 44), array.T + 1)


def outcome(change, *given):
    """The result of an Opt, and the reason if it is refused."""
    try:
        return change(*given), None
    except Refused as why:
        return given[0], str(why)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("seed", range(8))
def test_loops_cut_in_one_walk_are_as_cut_one_by_one(name, seed):
    """The same kernels, and the same refusals with their reasons."""
    rng = np.random.default_rng([seed, *name.encode()])
    one_by_one = plain_kernel(GRAPHS[name][0]())
    noted = Tiled(one_by_one)
    for _ in range(16):
        op = str(rng.choice(["VECTOR", "UPCAST", "UNROLL", "TILE", "TILE", "SPLIT"]))
        opt = Opt(op, int(rng.integers(0, 5)), int(rng.choice([0, 1, 2, 3, 4])))
        one_by_one, why = outcome(apply_opt, one_by_one, opt)
        noted, also_why = outcome(table.apply, noted, opt)
        assert also_why == why
        assert noted.axes == nest_of(one_by_one).axes
    assert noted.kernel is one_by_one


def test_a_part_of_a_loop_need_not_move_what_is_stored():
    """for i < 16: y[i // 4] = x[i]: the inner of two loops writes to one place, in its order."""
    i = kernel.range(16, axis=0)
    body = store(at(param(0, 4), i // 4), at(param(1, 16), i))
    noted = table.apply(Tiled(kernel.sink(kernel.end(body, i))), Opt("TILE", 0, 4))
    assert noted.parts
    with pytest.raises(Refused, match="write to one element"):
        table.apply(noted, Opt("UPCAST", 1, 2))
    table.apply(noted, Opt("UPCAST", 0, 2))


REFUSED = [
    (lambda: uopc.param("a", (6,)) + 1.0, [Opt("VECTOR", 0, 4)], "4 does not divide the range"),
    (lambda: uopc.param("a", (6,)) + 1.0, [Opt("VECTOR", 1, 2)], "the kernel has 1 ranges"),
    (lambda: uopc.param("a", (6,)) + 1.0, [Opt("UNROLL", 0, 2)], "UNROLL is for reduce loops"),
    (lambda: uopc.param("a", (6,)).sum(), [Opt("UPCAST", 0, 2)], "UPCAST is for output loops"),
    (
        lambda: uopc.param("a", (44, 6)).permute(1, 0) + 1.0,
        [Opt("BLOCK", 1, 7), Opt("SWAP", 2, 0)],
        "depends on a loop that would be inside",
    ),
    (lambda: uopc.param("a", (6,)) + 1.0, [Opt("SPLIT", 0, 3)], "3 divides the range"),
    (lambda: uopc.param("a", (6,)) + 1.0, [Opt("SPLIT", 0, 8)], "shorter than 8"),
    (lambda: uopc.param("a", (6,)).sum(), [Opt("THREAD", 0, 2)], "only an output loop"),
    (lambda: uopc.param("a", (6,)) + 1.0, [Opt("VECTOR", 0, 1)], "the amount 1 is too small"),
    (lambda: uopc.param("a", (6,)) + 1.0, [Opt("SPLIT", 0, 0)], "the amount 0 is too small"),
    (lambda: uopc.param("a", (6,)) + 1.0, [Opt("BLOCK", 0, 0)], "the amount 0 is too small"),
    (lambda: uopc.param("a", (6,)) + 1.0, [Opt("BLOCK", 0, 6)], "longer than a block"),
    (lambda: uopc.param("a", (6,)).sum(), [Opt("BLOCK", 0, 4)], "BLOCK is for output loops"),
    (
        lambda: uopc.param("a", (6, 6)).tril(), [Opt("SPLIT_AT", 1, 2), Opt("BLOCK", 0, 4)],
        "the length of another loop depends on this range",
    ),
    (
        lambda: uopc.param("a", (6, 6)).permute(1, 0) + 1.0,
        [Opt("BLOCK", 0, 4), Opt("SWAP", 0, 1)], "one range depends on the other",
    ),
    (
        lambda: uopc.param("a", (6, 6)).permute(1, 0) + 1.0,
        [Opt("BLOCK", 0, 4), Opt("SWAP", 0, 2)], "a third range depends on one of",
    ),
    (lambda: uopc.param("a", (6,)) + 1.0, [Opt("COALESCE", 0, 1)], "the number of another range"),
    (lambda: uopc.param("a", (6, 4)).sum(axis=1), [Opt("COALESCE", 0, 1)], "only output loops are"),
    (
        lambda: uopc.param("a", (6, 6)).permute(1, 0) + 1.0, [Opt("COALESCE", 1, 0)],
        "range 0 is not the next range inside",
    ),
    (
        lambda: uopc.param("a", (3, 4, 5)).permute(2, 0, 1).permute(0, 2, 1) + 1.0,
        [Opt("COALESCE", 0, 2)], "range 2 is not the next range inside",
    ),
    (
        lambda: uopc.param("a", (5, 6)).permute(1, 0) + 1.0,
        [Opt("BLOCK", 0, 4), Opt("COALESCE", 0, 1)], "the length of the range is not known",
    ),
    (
        lambda: uopc.param("a", (6, 7)).permute(1, 0) + 1.0,
        [Opt("SPLIT", 1, 4), Opt("COALESCE", 0, 1)], "the ranges are not closed together",
    ),
    (lambda: uopc.param("a", (6,)) + 1.0, [Opt("PEEL", 0, 6)], "at least 1 and less"),
    (lambda: uopc.param("a", (6, 6)) + 1.0, [Opt("SPLIT_AT", 0, 2)], "compared with no loop"),
    (lambda: uopc.param("a", (6, 6)).tril(), [Opt("SPLIT_AT", 1, 4)], "be a multiple of 4"),
    (lambda: uopc.param("a", (6, 6)).tril(), [Opt("SPLIT_AT", 1, 6)], "changes in all blocks of 6"),
    (lambda: uopc.param("a", (6, 6)).tril(), [Opt("SPLIT_AT", 1, 0)], "the amount 0 is too small"),
    (lambda: uopc.param("a", (6, 6)).tril(), [Opt("SPLIT_AT", 0, 2)], "compared with no loop"),
    (
        lambda: uopc.param("a", (6, 6)).tril(), [Opt("SPLIT_AT", 1, 2), Opt("TILE", 0, 2)],
        "the length of another loop depends on this range",
    ),
    (lambda: uopc.param("a", (6,)) + 1.0, [Opt("SWAP", 0, 1)], "the number of another range"),
    (
        lambda: uopc.param("a", (3, 4)).permute(1, 0) + 1.0,
        [Opt("THREAD", 0, 2), Opt("THREAD", 1, 2)],
        "shared among threads already",
    ),
    (
        lambda: uopc.param("a", (uopc.variable("n", 1, 8),)).sum(), [Opt("UNROLL", 0, 0)],
        "the length of the range is not known",
    ),
    (
        lambda: uopc.param("a", (8,)) + 1.0, [Opt("VECTOR", 0, 8), Opt("UPCAST", 0, 2)],
        "range 0 is already lane",
    ),
    (lambda: uopc.param("a", (7,)).sum(), [Opt("OVERLAP", 0, 4)], "would add terms twice"),
    (lambda: uopc.param("a", (4, 8)).softmax(), [Opt("REUSE", 0, 0)], "REUSE is for reduce loops"),
    (lambda: uopc.param("a", (4, 8)).sum(axis=1), [Opt("REUSE", 1, 0)], "no other loop computes"),
    (lambda: uopc.param("a", (4, 8)).softmax(), [Opt("REUSE", 3, 1)], "amount is 1, expected 0"),
    (
        lambda: uopc.param("a", (4, 8)).softmax(), [Opt("UPCAST", 0, 2), Opt("REUSE", 3, 0)],
        "copies of the loop would share the tile",
    ),
    (
        lambda: uopc.param("a", (4, 8)).softmax(), [Opt("REUSE", 3, 0), Opt("UPCAST", 0, 2)],
        "write to one element",
    ),
    (lambda: uopc.param("a", (4, 8)).softmax(), [Opt("DISTRIBUTE", 0, 1)], "DISTRIBUTE is for"),
    (lambda: uopc.param("a", (4, 8)).sum(axis=1), [Opt("DISTRIBUTE", 1, 0)], "amount 0 is too"),
    (lambda: uopc.param("a", (4, 8)).sum(axis=1), [Opt("DISTRIBUTE", 1, 1)], "no loop around"),
    (
        lambda: uopc.param("a", (4, 8)).sum(axis=1).exp().sum(),
        [Opt("UNROLL", 0, 2), Opt("DISTRIBUTE", 2, 1)], "inside another",
    ),
    (
        lambda: uopc.param("a", (4, 8)).sum(axis=1), [Opt("VECTOR", 0, 4), Opt("VECTOR", 1, 8)],
        "already have lanes",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "opts", "reason"), REFUSED, ids=[r for _, _, r in REFUSED])
def test_refusals(make, opts, reason):
    with pytest.raises(UserError, match=reason) as error:
        lower_only(make(), opts=tuple(opts))
    assert str(opts[-1]) in str(error.value)


@pytest.mark.parametrize("rows", [3, 100, 333, 777, 4095, 1 << 20])
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_chunks_are_about_as_long(rows, threads):
    shared = apply_opt(plain_kernel(uopc.param("a", (rows,)) + 1.0),
                                Opt("THREAD", 0, threads))  # fmt: skip
    longest = bounds.bounds(nest_of(shared).axes[1].src[0])[1]
    assert longest <= max(-(-rows // threads), rows / threads * (1 + 1 / 32) + 1)
    assert rows < 1 << 12 or longest % 64 == 0


def test_a_range_that_is_not_around_everything_is_not_shared():
    cut = apply_opt(plain_kernel(uopc.param("a", (11,)) + 1.0), Opt("SPLIT", 0, 4))
    with pytest.raises(Refused, match="must be around the whole kernel"):
        apply_opt(cut, Opt("THREAD", 0, 2))


@pytest.mark.parametrize(("n", "threads"), [(262145, 128), (300001, 16), (262145, 3)])
def test_empty_chunks_do_nothing(n, threads):
    """Rounded up, chunks may begin behind the end; an update in place shows what runs twice."""
    a = uopc.param("a", (n,))
    program = uopc.compile(a.assign((a + 1.0) * 2.0), threads=threads, verify=True)
    assert Opt("THREAD", 0, threads) in program.kernels[0].opts
    array = np.arange(n, dtype="f4")
    wanted = (array + 1) * 2
    program(array)
    np.testing.assert_array_equal(array, wanted)


def test_former_names_of_opts_replay():
    for former, name in FORMER_OPTS.items():
        assert name in table.OPTS and former not in table.OPTS
        assert Opt(former, 2, 1) == Opt(name, 2, 1) and str(Opt(former, 2, 1)) == f"{name}(2, 1)"
    text = [
        '%1 = param "" slot=0 : f32[8]', "%2 = range 8 axis=0 kind=loop : index",
        "%3 = store %1[%2], 1.0:f32", "%4 = end %3, %2", "sink %4 opts=(CUT(0, 2), STREAM(1, 0))",
    ]  # fmt: skip
    stored = parse("\n".join(text))
    assert "opts=(PEEL(0, 2), NONTEMPORAL(1, 0))" in print_graph(stored)
    made = optimize.optimize(stored, lower_only(uopc.param("a", (8,)) + 1.0).context)
    assert made.arg.opts == (Opt("PEEL", 0, 2), Opt("NONTEMPORAL", 1, 0))
    assert [r.src[0].arg for r in nest_of(made).axes] == [2, 6]


def test_an_opt_that_does_not_exist():
    with pytest.raises(UserError, match=r"unknown Opt 'FOLD'; choose VECTOR, OVERLAP"):
        lower_only(uopc.param("a", (8,)) + 1.0, opts=(Opt("FOLD", 0, 2),))


# ---------------------------------------------------------------- replay
REPLAYED = [
    lambda x: x.exp() * 2.0,
    lambda x: x.sum(axis=1),
    lambda x: x.softmax(axis=-1),
    lambda x: x @ x.permute(1, 0),
    lambda x: x.pad(((1, 1), (2, 3))),
]


@pytest.mark.parametrize("make", REPLAYED)
@pytest.mark.parametrize("dims", [(4, 8), (17, 33), (64, 64), (513, 7)])
@pytest.mark.few(9)
def test_replayed_opts_give_the_same_kernel(make, dims):
    """The recorded list on the unoptimised kernel gives the same object."""
    graph = make(uopc.param("x", dims))
    lowered = lower_only(graph, threads=4)
    for k in lowered.kernels:
        if len(lowered.kernels) == 1:
            again = lower_only(graph, threads=4, opts=k.arg.opts)
            assert again.kernels == [k]
        assert all(isinstance(o, Opt) for o in k.arg.opts)


@pytest.mark.parametrize("make", REPLAYED)
def test_replay_on_a_kernel_alone(make):
    """The SINK a kernel started as, with the recorded list in its arg, becomes the same kernel."""
    lowered = lower_only(make(uopc.param("x", (40, 24))), threads=4)
    before = next(r.before for r in lowered.runs if r.name == "optimize")
    names = [p.name for _, p in PIPELINE]
    passes = [p for _, p in PIPELINE[names.index("optimize") :]]
    context = Context(detect.host(), optimize=False, threads=1)
    assert len(before) == len(lowered.kernels)
    for start, final in zip(before, lowered.kernels):
        now = intern(start.op, start.dtype, start.src, KernelArg(final.arg.name, final.arg.opts))
        for p in passes:
            now = p.run(now, context)
        assert now is final


def test_opts_of_a_kernel_written_by_hand():
    a, o = uopc.param("a", (24,)), None
    i = kernel.range(24, axis=0)
    a = intern(Ops.PARAM, a.dtype, (), type(a.arg)("a", (24,), 1))
    o = intern(Ops.PARAM, a.dtype, (), type(a.arg)("o", (24,), 0))
    body = kernel.end(kernel.store(o.index(i), a.index(i) * 2.0), i)
    opts = (Opt("VECTOR", 0, 8), Opt("UPCAST", 0, 3))
    (made,) = lower_only(kernel.sink(body, name="twice", opts=opts)).kernels
    assert (made.arg.name, made.arg.opts) == ("twice", opts)
    assert not any(u.op is Ops.RANGE for u in made.src)
    given, out = numbers(24), np.zeros(24, "f4")
    interpreter.run_kernel(made, [out, given])
    np.testing.assert_array_equal(out, given * 2)


def test_axes_are_numbered_outputs_first():
    axes = nest_of(plain_kernel(uopc.param("a", (3, 4, 5)).sum(axis=1))).axes
    assert [(r.src[0].arg, r.arg.kind) for r in axes] == [(3, "loop"), (5, "loop"), (4, "reduce")]


# ---------------------------------------------------------------- reduces that grow
GROWN = {
    "sum": lambda x: x.sum(axis=1),
    "sum of a function": lambda x: (x + 3.0).sum(axis=1),
    "product": lambda x: x.prod(axis=1),
    "greatest": lambda x: x.max(axis=1),
    "least": lambda x: x.min(axis=1),
    "of products": lambda x: (x * x).sum(axis=1),
    "of products with what is the same in all": lambda x: (x * x[:, :1]).sum(axis=1),
}


@pytest.mark.parametrize("name", GROWN)
@pytest.mark.few(3)
def test_reduces_grow(name):
    """Elements that a reduce combines beyond its end change nothing."""
    make = GROWN[name]
    for n in (5, 7, 9, 13):
        a = numbers(3, n)
        expected = uopc.compile(make(uopc.param("a", a.shape)), optimize=False)(a)
        got = results(make(uopc.param("a", a.shape)), [a], [Opt("PADTO", 1, 8)])
        np.testing.assert_array_equal(got, expected)
        got = results(
            make(uopc.param("a", a.shape)), [a], [Opt("PADTO", 1, 4), Opt("VECTOR", 1, 4)]
        )
        np.testing.assert_array_equal(got, expected)


def test_an_infinity_is_not_multiplied_by_what_is_not_there():
    a, b = np.abs(numbers(2, 13)) + 1, np.full((2, 1), np.inf, "f4")
    graph = (uopc.param("a", (2, 13)) * uopc.param("b", (2, 1))).sum(axis=1)
    got = results(graph, [a, b], [Opt("PADTO", 1, 8)])
    assert (got == np.inf).all()
