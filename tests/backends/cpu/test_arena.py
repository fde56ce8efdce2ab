"""The scratch memory of programs."""

from __future__ import annotations

import ctypes
import mmap
import sys

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
