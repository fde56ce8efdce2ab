"""Tiles in shared memory whose pieces are in an order of their own in each line: the layout itself,
and that no access of a product waits for a bank, counted by the PTX machine."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from tests.ptx import banks, machine, parse
from tests.ptx.memory import Memory
from uopc import dtypes
from uopc.ir.index import affine
from uopc.passes.analysis.shared_tiles import can_be_swizzled
from uopc.passes.place_threads.swizzle import swizzled_index

LANES = np.arange(32)
# Accesses of a warp: byte offsets, bytes of each, and the turns of banks that it takes.
ACCESSES = {
    "neighbours": (4 * LANES, 4, 1),
    "one word": (0 * LANES, 4, 1),
    "bytes": (LANES, 1, 1),
    "every second": (8 * LANES, 4, 2),
    "a column of 128 bytes": (128 * LANES, 4, 32),
    "rows that are padded": (132 * LANES, 4, 1),
    "wide neighbours": (16 * LANES, 16, 4),
    "wide, a column": (128 * LANES, 16, 32),
    "wide, padded": (144 * LANES, 16, 4),
    "half of a warp": (8 * LANES, 8, 2),
    "a few lanes": (128 * LANES[:8], 16, 8),
}


@pytest.mark.parametrize("name", ACCESSES)
def test_turns_of_banks(name):
    offsets, size, expected = ACCESSES[name]
    turns, phases = banks.turns(offsets, LANES[: len(offsets)], size)
    assert turns == expected and phases == -(-len(offsets) * max(4, size) // 128)


def places(row, itemsize, count):
    """The bytes at which the elements of some rows are."""
    made = [swizzled_index(affine.const(i), row, itemsize) for i in range(row * count)]
    return itemsize * np.array([u.arg for u in made]).reshape(count, row)


ROWS = [(row, itemsize) for itemsize in (1, 2, 4, 8) for row in (32, 64, 128, 256, 384)]


@pytest.mark.parametrize("nbytes,itemsize", ROWS)
@pytest.mark.few(5)
def test_the_layout(nbytes, itemsize):
    """Every element has a place of its own, in the line of its row; pieces stay whole; 8 rows of
    a piece, and 4 of a pair, are in different banks."""
    assert can_be_swizzled(nbytes)
    at = places(nbytes // itemsize, itemsize, 16)
    assert sorted(at.reshape(-1)) == list(range(0, 16 * nbytes, itemsize))
    plain = np.arange(0, 16 * nbytes, itemsize).reshape(at.shape)
    assert np.array_equal(at // 128, plain // 128) and np.array_equal(at % 16, plain % 16)
    piece = 16 // itemsize
    for first in range(0, at.shape[1], piece):
        eight = at[:8, first]
        assert banks.turns(eight, np.arange(8), 16) == (1, 1)
    for first in range(0, at.shape[1], 2 * piece):
        four = at[:4, first : first + 2 * piece : piece].reshape(-1)
        assert banks.turns(four, np.arange(8), 16) == (1, 1)


def test_rows_that_cannot():
    assert not any(can_be_swizzled(n) for n in (0, 8, 16, 48, 96, 160, 192))


def counted(graph, part="sm_90a"):
    """The counts of the machine in the first block of a program's one launch, and the launch."""
    program = uopc.compile(graph, device=f"cuda:{part}", verify=True)
    (kernel,), (launch,) = program.kernels, program.plan.launches
    parsed, memory = parse.parse(kernel.asm)[kernel.name], Memory()
    given = [*program.plan.arguments, *program.plan.fresh]
    at = [memory.place(np.zeros(v.shape, v.dtype)) for v in given]
    args = machine.pack(parsed, [at[w.base] for w in launch.words])
    room = launch.dynamic_shared
    report = machine.run(parsed, launch.grid, launch.block, args, memory, room, blocks=1)
    return report, launch


def product(dtype, left=False, right=False, n=128):
    """A product of squares, of which some are read transposed."""
    wide = dtypes.int32 if dtype is dtypes.int8 else dtype
    a, b = [uopc.param(x, (n, n), dtype).cast(wide) for x in "ab"]
    return (a.transpose() if left else a) @ (b.transpose() if right else b)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float64])
@pytest.mark.few(3)
def test_no_conflicts(dtype, left, right):
    report, launch = counted(product(dtype, left, right))
    assert report.turns and not report.conflicts
    tile = report.products // 128
    assert tile * launch.grid[0] * launch.grid[1] == 128 * 128


def test_no_conflicts_of_bytes():
    """Operands of 8 bits whose depth is along memory."""
    report, _ = counted(product(dtypes.int8, right=True))
    assert report.turns and not report.conflicts


def test_large_products_have_large_blocks():
    """128 by 128 in four warps, four slices of the depth in shared memory."""
    program = uopc.compile(product(dtypes.bfloat16, n=4096), device="cuda:sm_90a")
    (launch,) = program.plan.launches
    assert launch.grid == (32, 32, 1) and launch.block == (128, 1, 1)
    stages = [o.arg for o in program.kernels[0].opts if o.op == "PIPELINE"]
    assert stages == [4] and launch.dynamic_shared == 4 * (128 + 128) * 32 * 2
