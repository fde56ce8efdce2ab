"""Places of intermediates in the arena: nothing alive overlaps, and little is wasted."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import uopc
from uopc.backends import memory_expressions
from uopc.backends.memory_plan import ALIGNMENT, LARGE, PAGE, Lifetime, Timeline, plan
from uopc.ir.core.ops import Ops
from uopc.ir.index import affine, closed, monomials, polynomials
from uopc.ir.index.dims import dim_uop, typical


@st.composite
def blocks(draw):
    made = []
    for _ in range(draw(st.integers(0, 12))):
        first = draw(st.integers(0, 8))
        nbytes = draw(st.sampled_from((1, 63, 64, 65, 200, 4096, LARGE - 64, LARGE, LARGE + 1)))
        made.append(Lifetime(nbytes, first, first + draw(st.integers(0, 4))))
    return made


def alive(blocks, launch):
    return [i for i, b in enumerate(blocks) if b.first <= launch <= b.last]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(blocks=blocks())
def test_blocks_of_one_launch_do_not_overlap(blocks):
    """Read in the launch in which another one is written: both are alive in it."""
    offsets, total = plan(blocks)
    assert len(offsets) == len(blocks)
    for launch in range(14):
        for i, j in itertools.combinations(alive(blocks, launch), 2):
            a, b = sorted(((offsets[i], blocks[i]), (offsets[j], blocks[j])), key=lambda x: x[0])
            assert a[0] + a[1].nbytes <= b[0]
    assert all(at % (PAGE if b.nbytes >= LARGE else ALIGNMENT) == 0
               for at, b in zip(offsets, blocks))  # fmt: skip
    assert all(at + b.nbytes <= total for at, b in zip(offsets, blocks))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(blocks=blocks())
def test_the_arena_is_no_larger_than_all_of_them(blocks):
    _, total = plan(blocks)
    page = [PAGE for b in blocks if b.nbytes >= LARGE]
    assert total <= sum(-(-b.nbytes // ALIGNMENT) * ALIGNMENT for b in blocks) + sum(page)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(blocks=blocks(), block=blocks().filter(bool).map(lambda made: made[0]))
def test_the_blocks_that_overlap_one(blocks, block):
    """The tree finds the same blocks as a comparison with each of them."""
    timeline = Timeline([*blocks, block])
    for i in range(len(blocks)):
        timeline.add(i)
    wanted = {i for i, b in enumerate(blocks) if b.first <= block.last and block.first <= b.last}
    found = timeline.overlapping(len(blocks))
    assert sorted(found) == sorted(wanted)


# ---------------------------------------------------------------- sizes that a call decides
N, M = uopc.variable("n", 0, (1 << 63) - 1), uopc.variable("m", 1, 50)
T, B = uopc.variable("t", 3, 1 << 31), uopc.variable("b", -4, 9)


HALF = affine.floordiv(affine.plus(T, 1), affine.const(2))
# -HALF, and numbers from -17 to -1
DOWN, FEW = [affine.floordiv(affine.scaled(v, -1), affine.const(n)) for v, n in ((T, 2), (M, 3))]


def least(a, b):
    return monomials.node(Ops.MIN, a, b)


def greatest(a, b):
    return monomials.node(Ops.MAX, a, b)


SIZES = [
    N, affine.mul(N, M), affine.mul(affine.mul(N, T), M), affine.plus(T, 2), affine.plus(T, -3),
    affine.mul(affine.plus(T, 3), affine.plus(M, -1)), affine.plus(B, 4),
    affine.mul(affine.plus(B, 5), N), HALF,
    affine.mul(affine.floordiv(affine.plus(HALF, -1), affine.const(3)), M), affine.sub(T, HALF),
    affine.floormod(T, affine.const(7)), affine.floormod(N, M), affine.floordiv(N, M),
    least(N, affine.const(16)), greatest(affine.plus(B, 2), affine.const(0)),
    affine.sub(greatest(N, T), least(N, T)),
    affine.mul(least(HALF, M), N),
    # products that are never negative of factors that are
    affine.mul(affine.mul(FEW, FEW), T), affine.mul(affine.mul(DOWN, FEW), T),
    affine.mul(affine.floordiv(affine.scaled(T, -1), M), affine.mul(FEW, M)),
    affine.scaled(affine.mul(DOWN, N), -1), affine.add(affine.mul(B, HALF), affine.scaled(T, 4)),
]  # fmt: skip
VALUES = st.fixed_dictionaries({
    "n": st.one_of(st.integers(0, 300), st.integers(0, 1 << 40)), "m": st.integers(1, 50),
    "t": st.one_of(st.integers(3, 300), st.integers(3, 1 << 31)), "b": st.integers(-4, 9),
})  # fmt: skip


def value(size, values):
    return closed.value(closed.instructions(dim_uop(size)), values)


def most_of(bound, values):
    """The value of a polynomial without its negative terms, rounded up."""
    return value(polynomials.expression(polynomials.whole(polynomials.greatest([bound]))), values)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(size=st.sampled_from(SIZES), values=VALUES, k=st.integers(1, 9))
@example(size=SIZES[-1], values={"n": 0, "m": 1, "t": 4, "b": -4}, k=1)
def test_a_polynomial_bounds_a_size(size, values, k):
    bound = polynomials.at_most(affine.scaled(size, k))
    assert value(size, values) * k <= most_of(bound, values)


@pytest.mark.parametrize("size", SIZES[:8], ids=str)
def test_a_size_without_quotients_is_its_own_bound(size):
    assert value(polynomials.expression(polynomials.at_most(size)), {
        "n": 1000, "m": 7, "t": 41, "b": 3,
    }) == value(size, {"n": 1000, "m": 7, "t": 41, "b": 3})  # fmt: skip


def test_a_quotient_rounded_up_has_one_bound():
    """Sizes of (t + 1) // 2 and of -(-t // 2) take the same memory."""
    for more in (affine.const(1), N, affine.mul(N, M), affine.mul(N, HALF)):
        up, down = affine.mul(HALF, more), affine.scaled(affine.mul(DOWN, more), -1)
        assert polynomials.at_most(up) == polynomials.at_most(down)


@st.composite
def free_blocks(draw):
    """Blocks of which some have sizes of the call."""
    made, sizes = [], []
    for block in draw(blocks()):
        size = dim_uop(block.nbytes)
        for _ in range(draw(st.integers(0, 2))):
            k = draw(st.sampled_from((1, 4, 64, 4096)))
            more = affine.scaled(draw(st.sampled_from(SIZES)), k)
            size = affine.add(size if draw(st.booleans()) else affine.const(0), more)
        sizes.append(size)
        if not affine.is_const(size):
            alignment = draw(st.sampled_from((ALIGNMENT, PAGE)))
            bound = polynomials.at_most(size)
            block = Lifetime(typical(size), block.first, block.last, bound, alignment)
        made.append(block)
    return made, sizes


@settings(max_examples=300, deadline=None, derandomize=True)
@given(drawn=free_blocks(), every=st.lists(VALUES, min_size=3, max_size=3))
def test_blocks_of_all_sizes_do_not_overlap(drawn, every):
    """The plan is right for each call: nothing alive overlaps, and all lies in the arena, which
    takes no more than all blocks."""
    made, sizes = drawn
    offsets, total = memory_expressions.plan(made)
    for values in every:
        begins = [value(at, values) for at in offsets]
        ends = [at + value(size, values) for at, size in zip(begins, sizes)]
        for launch in range(14):
            for i, j in itertools.combinations(alive(made, launch), 2):
                assert ends[i] <= begins[j] or ends[j] <= begins[i]
        assert max(ends, default=0) <= value(total, values)
        assert all(at % b.alignment == 0 for at, b in zip(begins, made))
        bounds = [b.nbytes if b.bound is None else most_of(b.bound, values) for b in made]
        most = [-(-n // ALIGNMENT) * ALIGNMENT + PAGE for n in bounds]
        assert value(total, values) <= sum(most) + 1


@settings(max_examples=100, deadline=None, derandomize=True)
@given(drawn=blocks(), n=st.integers(1, 1 << 40))
def test_one_size_takes_what_numbers_take(drawn, n):
    """Blocks that are multiples of one size lie as the plan of numbers lays them. Since the size
    may be 0, a line follows the last."""
    sizes = [affine.scaled(N, b.nbytes * PAGE) for b in drawn]
    made = [
        Lifetime(typical(size), b.first, b.last, polynomials.at_most(size), PAGE)
        for b, size in zip(drawn, sizes)
    ]  # fmt: skip
    numbers = [Lifetime(value(size, {"n": n}), b.first, b.last) for b, size in zip(drawn, sizes)]
    offsets, total = memory_expressions.plan(made)
    whole = value(total, {"n": n}) - (ALIGNMENT if made else 0)
    assert ([value(at, {"n": n}) for at in offsets], whole) == plan(numbers)


def test_a_chain_needs_two_blocks():
    """Each value is read by the next launch alone."""
    chain = [Lifetime(1024, i, i + 1) for i in range(50)]
    assert plan(chain)[1] == 2 * 1024


def test_a_gap_is_used_again():
    made = [Lifetime(1000, 0, 9), Lifetime(600, 0, 3), Lifetime(300, 4, 6), Lifetime(280, 5, 9)]
    assert plan(made)[1] == 1024 + 640
