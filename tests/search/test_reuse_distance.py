"""The bytes touched since an access: by the formula, and byte by byte in a stack of all bytes."""

from __future__ import annotations

import random

import numpy as np
import pytest

import uopc
from uopc import P, make_mesh
from uopc.distributed import Cache, Link, Machine
from uopc.program.speed.reuse_distance import Region, Reused, distances

NEAR = Machine(
    operations=1e15, bandwidth=1e9, link=Link(1e-6, 1e9), launch=1e-12, writing=5e8,
    caches=(Cache(1 << 14, 8e9, 4e9), Cache(1 << 16, 4e9, 2e9)),
)  # fmt: skip


def of_stack(launches, order):
    """The mean distance of each region, where launches go through all their regions side by side:
    of two calls the second one. The bytes of a stack above a byte were touched since it was."""
    stack, found = [], []
    for number in order * 2:
        steps = [
            ((byte - r.first) / (r.end - r.first), place, (r.base, byte))
            for place, r in enumerate(launches[number])
            for byte in range(r.first, r.end)
        ]
        away = {}
        for _, place, key in sorted(steps):
            if key in stack:
                at = stack.index(key)
                away.setdefault(place, []).append(len(stack) - at)
                del stack[at]
            stack.append(key)
        found.append({place: np.mean(own) for place, own in away.items()})
    return found[len(order) :]


def test_distances_are_those_of_a_stack():
    """Regions of one size that do not overlap, as most launches have."""
    pick, size = random.Random(0), 40
    for _ in range(60):
        count = pick.randint(1, 5)
        launches = {
            i: [
                Region(base, 0, size, i == 0)
                for i, base in enumerate(pick.sample("abcdef", pick.randint(1, 3)))
            ]
            for i in range(count)
        }
        order = [pick.randrange(count) for _ in range(pick.randint(1, 6))]
        for now, wanted in zip(distances(launches, order), of_stack(launches, order), strict=True):
            assert [t.nbytes for t in now] == [size] * len(wanted)
            got = [t.distance for t in now]
            np.testing.assert_allclose(got, list(wanted.values()), atol=4 + 0.02 * max(got))


def test_regions_that_share_memory_are_touched_in_pieces():
    launches = {0: [Region(0, 0, 60, True)], 1: [Region(0, 40, 100, False)], 2: []}
    first, second, nothing = distances(launches, [0, 1, 2])
    assert first == [Reused(40, True, 100), Reused(20, True, 60)]
    assert second == [Reused(20, False, 60), Reused(40, False, 100)]
    assert nothing == []
    (both,) = distances({0: [Region(0, 0, 8, False), Region(0, 0, 8, True)]}, [0])
    assert both == [Reused(8, True, 8)]


def test_what_one_launch_writes_is_near_for_the_next_one():
    """Three buffers of 16 KiB: one is written and read again, with half of each other in between;
    the other two are touched once in a call, with all of the others in between."""
    u = uopc.param("u", (64, 64))
    for _ in range(2):
        q = u.pad(((1, 1), (0, 0)))
        u = (q[:-2] + q[2:]).contiguous()
    found, size = uopc.compile(u).predict(NEAR), 1 << 14
    near, far = 2 * size, 3 * size
    wanted = [
        NEAR.moving(size, False, far) + NEAR.moving(size, True, near),
        NEAR.moving(size, False, near) + NEAR.moving(size, True, far),
    ]
    assert [seconds for _, seconds in found.launches] == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("n", [1 << 12, 1 << 14, 1 << 20])
def test_parts_that_fit_a_cache_are_faster_than_the_whole(n):
    """A sum of squares touches its argument again and again: half of it comes from nearer."""
    x = uopc.param("x", (n,))
    whole = uopc.compile((x * x).sum()).predict(NEAR).kernels
    mesh = make_mesh((2,), ("m",))
    half = uopc.compile(
        (x * x).sum(), sharding=uopc.Sharding(mesh, in_shardings=P("m"))
    ).predict(NEAR).kernels
    for got, nbytes in ((whole, 4 * n), (half, 2 * n)):
        assert got == pytest.approx(NEAR.moving(nbytes, False, nbytes), rel=0.01)
    assert whole / half > (2.1 if n == 1 << 14 else 1.9)


def test_rates_between_sizes():
    assert NEAR.moving(8, False, 0) == NEAR.moving(8, False, 1 << 14) == pytest.approx(1e-9)
    assert NEAR.moving(8, False, 1 << 15) == pytest.approx((1e-9 + 2e-9) / 2)
    assert NEAR.moving(8, True, 1 << 16) == pytest.approx(4e-9)
    assert NEAR.moving(8, True, 1 << 17) == NEAR.moving(8, True) == pytest.approx(16e-9)
    faster = NEAR.faster(2)
    for distance in (1, 1 << 15, 1 << 30):
        for written in (False, True):
            wanted = NEAR.moving(8, written, distance) / 2
            assert faster.moving(8, written, distance) == pytest.approx(wanted)
    assert faster.link == NEAR.link and faster.launch == NEAR.launch / 2


def test_sizes_known_at_the_call():
    n = uopc.variable("n", 1, 1 << 16)
    f = uopc.compile(uopc.param("x", (n,)) * 2)
    for size in (100, 1 << 13, 1 << 16):
        wanted = NEAR.moving(4 * size, False, 8 * size) + NEAR.moving(4 * size, True, 8 * size)
        assert f.predict(NEAR, n=size).seconds == pytest.approx(wanted, rel=1e-3)


def test_what_is_refused():
    cache = Cache(1, 1, 1)
    for call, words in (
        (lambda: Cache(0, 1e9, 1e9), "nbytes must be a positive number, got 0"),
        (lambda: Cache(8, 1e9, None), "writing must be a positive number, got None"),
        (lambda: Machine(1, 1, Link(1, 1), caches=(cache, cache)), "caches must grow from near"),
        (lambda: Machine(1, 1, Link(1, 1), caches=(3,)), r"expected a uopc.distributed.Cache"),
        (lambda: NEAR.faster(0), "times must be a positive number, got 0"),
    ):
        with pytest.raises(uopc.UserError, match=words):
            call()
