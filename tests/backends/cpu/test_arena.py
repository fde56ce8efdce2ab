"""The scratch memory of programs."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading

import numpy as np
import pytest

import uopc
from uopc.backends.cpu.elf_loader import address_of
from uopc.backends.cpu.runner import Arena

PAGE = mmap.PAGESIZE


@pytest.mark.skipif(sys.platform != "linux", reason="mincore says which pages there are")
@pytest.mark.parametrize("nbytes", [1, 100, PAGE, 3 * PAGE + 1, 1 << 20])
def test_the_arena_has_pages_beside_it(nbytes):
    """Lanes without elements before the first value, and behind the last one, meet pages that are
    there: as many bytes as the values have, or four pages."""
    arena = Arena(nbytes)
    assert arena.memory is not None
    begin, size = address_of(arena.memory), len(arena.memory)
    first = int(arena.words[1])
    margin = min(nbytes, 4 * PAGE)
    assert first - begin >= margin and begin + size - (first + nbytes) >= margin
    pages = (ctypes.c_ubyte * -(-size // PAGE))()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(begin), ctypes.c_size_t(size), pages) == 0
    there = [bool(p & 1) for p in pages]
    touched = (first - begin) // PAGE
    assert all(there[:touched]) and all(there[-touched:])


def attention(x):
    """Three values that a call must store."""
    weights = (x @ x.T).exp().contiguous()
    return (weights / weights.sum(axis=1, keepdims=True)).contiguous() @ x


@pytest.mark.parametrize("most", [64, 4096, 1 << 28])
def test_memory_follows_the_sizes_of_a_call(most):
    """Whatever the bounds are, and it grows with the calls."""
    n, m = uopc.variable("n", 1, most), uopc.variable("m", 1, most)
    f = uopc.compile(attention(uopc.param("x", (n, m))), threads=1)
    held = []
    for rows in (3, 40, 5):
        x = np.random.default_rng(rows).random((rows, 7), "f4")
        e = np.exp(x @ x.T)
        np.testing.assert_allclose(f(x), e / e.sum(1, keepdims=True) @ x, rtol=1e-5)
        held.append(len(f._runner.arena.memory))
    assert held[0] <= held[1] == held[2] < 1 << 20
    assert "n*n" in f.stats["arena"].render()


@pytest.mark.parametrize("rows", [64, uopc.variable("n", 1, 1 << 20)], ids=str)
@pytest.mark.parametrize("mesh", [False, True])
def test_trim_gives_the_memory_back(rows, mesh):
    """The next calls, by machine code or by Python, take it anew."""
    x = uopc.param("x", (rows, 64))
    way = uopc.Sharding(uopc.make_mesh((2,), ("m",)), in_shardings={"x": uopc.P("m")})
    given = np.random.default_rng(0).random((64, 64), "f4")
    e = np.exp(given @ given.T)
    want = e / e.sum(1, keepdims=True) @ given
    f = uopc.compile(attention(x), threads=1, sharding=way if mesh else None)
    assert f.trim() in (0, 2 * given.nbytes)  # nothing yet where the call decides
    for _ in range(3):
        for _ in range(3):
            np.testing.assert_allclose(f(given), want, rtol=1e-5)
        assert f.trim() >= given.nbytes and f.trim() == 0
    bound = f.bind(x=given)
    np.testing.assert_allclose(bound(), want, rtol=1e-5)
    assert bound.trim() >= given.nbytes


def test_trim_closes_the_memory():
    f = uopc.compile(attention(uopc.param("x", (64, 64))), threads=1)
    memory = f._runner.arena.memory
    f.trim()
    assert memory.closed
    assert f(np.zeros((64, 64), "f4")).shape == (64, 64) and not f._runner.arena.memory.closed


@pytest.mark.parametrize("size", [256, uopc.variable("n", 1, 1 << 20)], ids=str)
def test_trim_beside_calls(size):
    """A call keeps the memory that it has; all results are right."""
    f = uopc.compile(attention(uopc.param("x", (size, 16))), threads=1)
    sizes = (256,) if isinstance(size, int) else (3, 100, 256, 40)
    given = [np.random.default_rng(n).random((n, 16), "f4") for n in sizes]
    want = [f(x) for x in given]
    wrong, freed, stop = [], [], threading.Event()

    def calls():
        for _ in range(60):
            wrong.extend([i for i, x in enumerate(given) if not np.array_equal(f(x), want[i])])

    def trims():
        while not stop.is_set():
            freed.append(f.trim())

    trimming, *calling = [threading.Thread(target=t) for t in (trims, calls, calls)]
    for t in (trimming, *calling):
        t.start()
    for t in calling:
        t.join()
    stop.set()
    trimming.join()
    assert not wrong and max(freed) > 0


def test_sizes_that_grow_step_by_step_find_room():
    """Few of the calls take new memory."""
    f = uopc.compile(attention(uopc.param("x", (uopc.variable("n", 1, 4096), 16))), threads=1)
    seen = []
    for n in range(200, 300):
        f(np.ones((n, 16), "f4"))
        seen.append(f._runner.arena.memory)
    assert len({id(m) for m in seen}) < 10
