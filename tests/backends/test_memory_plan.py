"""Places of intermediates in the arena: nothing alive overlaps, and little is wasted."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from uopc.backends.memory_plan import ALIGNMENT, LARGE, PAGE, Lifetime, _Timeline, plan


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
    timeline = _Timeline([*blocks, block])
    for i in range(len(blocks)):
        timeline.add(i)
    wanted = {i for i, b in enumerate(blocks) if b.first <= block.last and block.first <= b.last}
    found = timeline.overlapping(len(blocks))
    assert sorted(found) == sorted(wanted)


def test_a_chain_needs_two_blocks():
    """Each value is read by the next launch alone."""
    chain = [Lifetime(1024, i, i + 1) for i in range(50)]
    assert plan(chain)[1] == 2 * 1024


def test_a_gap_is_used_again():
    made = [Lifetime(1000, 0, 9), Lifetime(600, 0, 3), Lifetime(300, 4, 6), Lifetime(280, 5, 9)]
    assert plan(made)[1] == 1024 + 640
