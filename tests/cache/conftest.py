"""A folder of a test's own for programs, and a program in it."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc import cache
from uopc.backends.cpu import native
from uopc.cache import disk

DATA = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def folder(tmp_path):
    """A cache of this test's own; nothing in memory. The runtime is loaded, so it is not stored."""
    native.install()
    cache.clear()
    with uopc.options(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"
    cache.clear()


def graph():
    x = uopc.param("x", (3, 4))
    table = uopc.constant(np.arange(4, dtype=np.float32))
    return (x * 2.0 + table).exp().sum(axis=1)


def wanted():
    return np.exp(DATA * 2 + np.arange(4, dtype=np.float32)).sum(axis=1)


def compiled():
    """As in a new process: nothing in memory. Whatever the disk holds, the numbers are right."""
    cache.clear()
    f = uopc.compile(graph())
    np.testing.assert_allclose(f(DATA), wanted(), rtol=1e-6)
    return f


def entry(folder):
    """The file of the program."""
    (found,) = (folder / disk.FOLDER).glob("*.entry")
    return found


@pytest.fixture
def stored(folder):
    """The file of the program, once it is there."""
    assert compiled().stats["cache"] == ""
    return entry(folder)
