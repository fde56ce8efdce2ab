"""The cost of a node: bytes of a graph, and of all that a compile holds, per live node."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest

import uopc
from tests import ROOT
from uopc.driver import lower_only
from uopc.ir.core import arena

sys.path.append(str(ROOT / "benchmarks"))
from growth import GROWTH

from tests.kinds.test_growth import OPERATORS

pytestmark = pytest.mark.slow
MOST = 600  # bytes per live node: itself, its key, sources and shape, its entry in the table


@pytest.fixture
def traced():
    """Counts nodes and bytes from here on."""
    gc.collect()
    tracemalloc.start()
    yield len(arena.table)
    tracemalloc.stop()


@pytest.mark.parametrize("name, size", [("chain", 100_000), ("transformer", 120), ("stack", 4_000)])
def test_a_graph_takes_few_bytes_a_node(name, size, traced):
    graph = GROWTH[name][0](OPERATORS, size)
    gc.collect()
    made = len(arena.table) - traced
    assert made > 2_000 and graph is not None
    assert tracemalloc.get_traced_memory()[0] / made <= MOST


@pytest.mark.parametrize("name, size", [("chain", 3_000), ("updates", 400)])
def test_a_compile_holds_few_bytes_a_node(name, size):
    with uopc.options(cache_dir="", programs=0):
        lower_only(GROWTH[name][0](OPERATORS, 8), verify=False)  # what a process loads once
    gc.collect()
    before = len(arena.table)
    tracemalloc.start()
    try:
        with arena.arena():
            graph = GROWTH[name][0](OPERATORS, size)
            lowered = lower_only(graph, verify=False)
            made, held = len(arena.table) - before, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert lowered.kernels and made > size
    assert held / made <= MOST, held / made
