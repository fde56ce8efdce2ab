"""The scratch memory of programs."""

from __future__ import annotations

import ctypes
import mmap
import sys

import pytest

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
