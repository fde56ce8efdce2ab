"""PACK: any operand before any loop keeps the numbers, or is refused."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.by_hand import apply_opt, plain_kernel
from tests.machines import only_lowered
from tests.passes.optimize.opts.test_opts import results
from tests.reference import numbers
from uopc.backends import detect
from uopc.backends.llvm import scratch
from uopc.driver import lower_only
from uopc.errors import UserError
from uopc.ir.builder import rebuild
from uopc.ir.core import shapes
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.index import affine, compare
from uopc.ir.interpret import interpreter
from uopc.ir.nest.nest import nest_of
from uopc.passes import PIPELINE
from uopc.passes.analysis.loops import make_range
from uopc.passes.contract import Context
from uopc.passes.optimize.opts import packing
from uopc.passes.optimize.opts.legality import Refused

DIMS = st.integers(1, 7)


def matmul(m, k, n, transposed):
    b = uopc.param("b", (n, k)).permute(1, 0) if transposed else uopc.param("b", (k, n))
    return uopc.param("a", (m, k)) @ b, [(m, k), (n, k) if transposed else (k, n)]


def conv(c, o, size, taps, stride, pad):
    x, w = uopc.param("x", (1, c, size, size + 1)), uopc.param("w", (o, c, taps, taps))
    return x.conv2d(w, stride=stride, padding=pad), [shapes.shape(x), shapes.shape(w)]


@st.composite
def contractions(draw):
    if draw(st.booleans()):
        return matmul(draw(DIMS), draw(DIMS), draw(DIMS), draw(st.booleans()))
    taps, pad = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    size = draw(st.integers(taps, 7))
    return conv(draw(st.integers(1, 3)), draw(st.integers(1, 3)), size, taps,
                draw(st.integers(1, 3)), pad)  # fmt: skip


def simplified(graph):
    """The one kernel of a graph as the optimiser gets it when it is compiled on its own."""
    found = plain_kernel(graph)
    for p in [p for _, p in PIPELINE if p.name in ("collapse-reduces", "simplify-ranges")]:
        found = p.run(found, Context(detect.host()))
    return found


@settings(max_examples=60, deadline=None)
@given(contractions(), st.data())
def test_a_staged_operand_keeps_the_numbers(contraction, data):
    """After lanes, copies and changes of place; one stage or two."""
    graph, dims = contraction
    base = kernel = simplified(graph)
    if len(dims) != sum(u.op is Ops.PARAM for u in base.toposort()) - 1:
        return  # an operand is not read at all
    opts = []
    for _ in range(data.draw(st.integers(2, 6))):
        op = data.draw(
            st.sampled_from(["PACK", "PACK", "SWAP", "VECTOR", "PADTO", "TILE", "SPLIT"])
        )
        axis = data.draw(st.integers(0, max(0, len(nest_of(kernel).axes) - 1)))
        opt = Opt(op, axis, data.draw(st.integers(0, 4)))
        try:
            kernel = apply_opt(kernel, opt)
        except Refused:
            continue
        opts.append(opt)
    arrays = [numbers(*d) for d in dims]
    wanted = results(graph, arrays, [])
    np.testing.assert_array_equal(results(graph, arrays, opts), wanted, str(opts))


def test_what_windows_share_is_stored_once():
    graph, _ = conv(2, 3, 6, 3, 1, 1)
    staged = apply_opt(plain_kernel(graph), Opt("PACK", 0, 0))
    (buffer,) = [u for u in staged.toposort() if u.op is Ops.BUFFER]
    assert shapes.shape(buffer) == (2 * (6 + 2) * (7 + 2),)


@pytest.mark.parametrize("joined", [False, True])
def test_windows_of_an_enlarged_image_are_stored_once(joined, without_predictions):
    """Their places are quotients of sums with the taps; beside them another image, as it is."""
    x, other = uopc.param("x", (1, 3, 4, 9)), uopc.param("other", (1, 2, 8, 18))
    large = x.reshape((1, 3, 4, 1, 9, 1)).expand((1, 3, 4, 2, 9, 2)).reshape((1, 3, 8, 18))
    large = large.cat(other, axis=1) if joined else large
    channels = 5 if joined else 3
    graph = large.conv2d(uopc.param("w", (4, channels, 3, 3)), padding=1)
    kernel = simplified(graph)
    found = [n for n, (v, _) in enumerate(packing.operands(kernel)) if v.op is not Ops.INDEX]
    staged = apply_opt(kernel, Opt("PACK", 0, found[0]))
    (buffer,) = [u for u in staged.toposort() if u.op is Ops.BUFFER]
    assert shapes.shape(buffer) == (channels * (8 + 2) * (18 + 2),)


LENGTHS = (3, 4, 5)
LOOPS = tuple(make_range(n, (i,), "loop") for i, n in enumerate(LENGTHS))


@st.composite
def places(draw):
    """An index of three loops: sums, products, quotients and remainders of sums."""
    factor, n = st.integers(-3, 3), st.integers(2, 5)
    found = affine.const(draw(st.integers(-4, 4)))
    for r in LOOPS:
        found = affine.add(found, affine.scaled(r, draw(factor)))
    for op in draw(st.lists(st.sampled_from(("div", "mod", "mul", "add")), max_size=3)):
        if op in ("div", "mod"):
            found = affine.divmod_(found, affine.const(draw(n)))[op == "mod"]
        else:
            r = draw(st.sampled_from(LOOPS))
            other = affine.scaled(r, draw(factor))
            found = affine.mul(found, other) if op == "mul" else affine.add(found, other)
    return found


@settings(max_examples=300, deadline=None)
@given(places(), st.integers(1, 4), st.booleans(), st.booleans())
def test_a_value_that_is_said_to_depend_on_a_sum_only_does(place, factor, third, compared):
    """All iterations are tried."""
    unit, other, _ = LOOPS
    factors = {unit: 1, other: factor} | ({LOOPS[2]: 2} if third else {})
    value = compare.less(place, affine.const(2)) if compared else place
    digit = packing.Digit(unit, factors, affine.const(40), 1)
    if not packing._is_through_sum(value, digit) and not packing._cancels(value, digit):
        return
    seen = {}
    for at in itertools.product(*map(range, LENGTHS)):
        now = dict(zip(LOOPS, at))
        rest = [k for r, k in now.items() if r not in factors]
        key = (sum([f * now[r] for r, f in factors.items()]), *rest)
        got = rebuild.rebuild(value, {r: affine.const(k) for r, k in now.items()})
        assert got.op is Ops.CONST
        assert seen.setdefault(key, got.arg) == got.arg, (value.render(), at)


@pytest.mark.parametrize("divided", ["no", "quotient", "remainder", "two factors"])
def test_windows_of_a_flat_image_share_their_elements(divided):
    """An element at row + tap, or at remainders and quotients of it, depends on the sum only; so
    does one at the remainder of the row alone, if it divides the taps' factor."""
    row, tap, _ = LOOPS
    whole = affine.add(row, affine.scaled(tap, 16))
    half = affine.divmod_(row, affine.const(2))[1]
    value = {
        "no": whole,
        "quotient": affine.divmod_(whole, affine.const(5))[0],
        "remainder": affine.add(whole, affine.scaled(half, 64)),
        "two factors": affine.add(affine.scaled(row, 2), half),
    }[divided]
    expected = divided != "two factors"
    digit = packing.Digit(row, {row: 1, tap: 16}, affine.const(51), 1)
    through = packing._is_through_sum(value, digit)
    assert (through or packing._cancels(value, digit)) is expected
    assert through is (divided in ("no", "remainder"))


def test_lanes_with_a_stride_read_neighbours():
    graph, _ = conv(1, 2, 8, 3, 2, 0)
    lowered = lower_only(graph, opts=(Opt("VECTOR", 2, 4), Opt("PACK", 0, 0)))
    (kernel,) = lowered.kernels
    wide = [u for u in kernel.src if u.op is Ops.LOAD and u.dtype.lanes == 4]
    assert wide and not any(u.op is Ops.STACK and len(set(u.src)) > 1 for u in kernel.src)


def test_a_large_tile_is_in_scratch_memory():
    """Of each chunk its own, also where chunks run at the same time."""
    graph, dims = matmul(8, 256, 64, False)
    opts = [Opt("THREAD", 0, 4), Opt("PACK", 1, 1)]
    arrays = [numbers(*d) for d in dims]
    (kernel,) = lower_only(graph, opts=tuple(opts), threads=4).kernels
    places, nbytes = scratch.offsets(kernel)
    assert list(places.values()) == [0] and nbytes == (256 + 16) * 64 * 4  # rows of a line more
    np.testing.assert_array_equal(results(graph, arrays, opts), results(graph, arrays, []))


@pytest.mark.parametrize("n", [0, 1])
def test_a_panel_as_deep_as_a_free_size(n):
    """The tile has room for the most; each call fills and reads as much as it has."""
    depth = uopc.variable("depth", 1, 9)
    a, b = uopc.param("a", (4, depth)), uopc.param("b", (depth, 8))
    program = uopc.compile((a.exp() @ b.exp()).contiguous((Opt("PACK", 0, n),)))
    assert any(u.op is Ops.BUFFER for u in program.kernels[0].uops.toposort())
    for length in (1, 5, 9):
        x, y = numbers(4, length), numbers(length, 8)
        np.testing.assert_allclose(program(x, y), np.exp(x) @ np.exp(y), rtol=1e-5)


REFUSED = [
    (lambda: matmul(3, 4, 5, False)[0], Opt("PACK", 0, 4), "below 2, the number of operands"),
    (lambda: matmul(3, 4, 5, False)[0], Opt("PACK", 2, 0), "the same in all iterations"),
    (lambda: uopc.param("a", (3, 4)).sum(axis=1) * 2.0, Opt("PACK", 0, 2), "below 1, the number"),
    (
        lambda: matmul(4096, 4096, 8, False)[0], Opt("PACK", 0, 0),
        "a tile of 16842752 elements is too large",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "opt", "reason"), REFUSED, ids=[r for _, _, r in REFUSED])
def test_refusals(make, opt, reason):
    with pytest.raises(UserError, match=reason):
        lower_only(make(), opts=(opt,))


@pytest.mark.parametrize(("channels", "shared"), [(8, [4]), (5, [4, 1]), (1, [1, 1, 1])])
def test_channels_are_packed_under_one_guard(channels, shared):
    """Elements of joined rows have a guard that computes their column: one for four channels. A
    single channel has neighbours in copies."""
    graph = uopc.param("x", (1, channels, 24, 24)).conv2d(
        uopc.param("w", (64, channels, 3, 3)), padding=1
    )
    with only_lowered("server"):
        (kernel,) = lower_only(graph, threads=1).kernels
    guards = [u.src[1] for u in kernel.src if u.op is Ops.LOAD and len(u.src) > 1]
    assert list(Counter(guards).values()) == shared
    random = np.random.default_rng(3)
    x, w = [
        random.integers(-3, 4, dims).astype("f4")
        for dims in ((channels, 24, 24), (64, channels, 3, 3))
    ]
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    got = uopc.compile(graph, inputs=["x", "w"], threads=1, verify=True)(x[None], w)
    np.testing.assert_array_equal(got[0], np.einsum("cyxij,ocij->oyx", seen, w))


@pytest.mark.parametrize("opts", [("UNROLL", 1, 0), ("UNROLL", 1, 2)], ids=str)
def test_a_tile_that_copies_fill_is_filled_in_each_turn_of_the_loops_around(opts):
    """The first copy of a channel names no loop, but stands in that of the images."""
    a, b = uopc.param("a", (2, 3, 6, 5)), uopc.param("b", (4, 3, 3, 3))
    graph = a.conv2d(b, padding=1)
    program = uopc.compile(graph.contiguous((Opt("PACK", 2, 1), Opt(*opts))), verify=True)
    arrays = [numbers(*p.shape) for p in (a, b)]
    wanted = interpreter.evaluate(graph, {"a": arrays[0], "b": arrays[1]})
    np.testing.assert_allclose(program(*arrays), wanted, 1e-5, 1e-5)
