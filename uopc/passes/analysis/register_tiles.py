"""Tiles of accumulators in registers: the rows and vectors that cost least per step of a reduce."""

from __future__ import annotations

import functools
import math

from uopc.cost.machine import LINE, MachineFacts
from uopc.ir.core.data import blocks
from uopc.passes.analysis import thresholds
from uopc.passes.analysis.lanes import covering


@functools.lru_cache(maxsize=4096)  # few tiles fit the registers, and each contraction tries all
def step_cycles(
    rows: int, vectors: int, vector_bytes: int, m: MachineFacts, from_l2: bool = False
) -> float:
    """Cycles of one step of a reduce over a tile of `rows` by `vectors` accumulators. `from_l2`:
    vectors come from the second-level cache while the arithmetic runs."""
    arithmetic = max(rows * vectors / m.multiply_adds(vector_bytes), m.latency)
    loads = rows / m.units + vectors / m.vector_loads(vector_bytes)
    if from_l2:
        loads = max(loads, m.caches[0].far * vectors * vector_bytes / LINE)
    overhead = m.step_begin + m.step_line * m.caches[0].stream * vectors + m.step_row * rows
    return max(arithmetic, loads) + overhead


def register_tile(
    rows: int | None, columns: int | None, lanes: int, registers: int, row_step: int,
    machine: MachineFacts, masked: bool = False, widest: int | None = None,
    vectors_in_l1: float = math.inf, shorter: tuple[int, int] = (0, 0),
) -> tuple[int, int, float]:  # fmt: skip
    """The cheapest tile for a result of `rows` (`row_step` bytes apart) by `columns`, None if free:
    its rows, its vectors of accumulators (`widest` at most), and the cycles of one step over all
    tiles, for a free size those of a typical one. `masked`: partial vectors are read under a mask,
    which takes a register. A tile with all rows may exceed MOST_VECTORS: no other tile reads its
    panel, and long rows stream faster. `vectors_in_l1`: the vectors across a panel that stay in the
    nearest cache while tiles read the panel again. `shorter`: the rows and columns in the shorter
    chunks of threads, for whose edges the code has tiles, too; 0 if all chunks are equal.

    333 x 555 in 16 lanes: 6 x 4 takes 56 · 9 tiles (with 3 rows and 43 columns at the edges).
    """
    best = (float("inf"), 1, 1)
    aliased = row_step % blocks.ALIASED == 0
    free, sizes = (rows is None, columns is None), _sizes(rows, columns)
    rows, columns = rows or thresholds.TYPICAL_LENGTH, columns or thresholds.TYPICAL_LENGTH
    most = min(rows, thresholds.MOST_ALIASED_ROWS if aliased else thresholds.MOST_ROWS)
    widest = widest or max(thresholds.MOST_VECTORS, thresholds.COLUMN_VECTORS)
    for vectors in range(1, min(widest, -(-columns // lanes)) + 1):
        rest = columns % (vectors * lanes)
        ragged = masked and rest % covering(lanes, rest, 2) > 0 and -(-rest // lanes) == vectors
        for high in range(1 if vectors <= thresholds.MOST_VECTORS else rows, most + 1):
            elements = high if machine.loads_ahead else 1
            if high * vectors + vectors + elements + ragged > registers:
                break
            kinds = _edges((rows, shorter[0]), high, 1)
            kinds += _edges((columns, shorter[1]), vectors * lanes, lanes)
            edges = 1 + thresholds.EDGE * kinds
            cost = 0.0
            for size in sizes:  # each counts by its time per element
                r, c = [
                    -(-n // tile) * tile if masked_rest else n
                    for n, tile, masked_rest in zip(size, (high, vectors * lanes), free)
                ]
                each = _cover(r, c, high, vectors, lanes, machine, vectors_in_l1)
                cost += each * (rows * columns / (math.prod(size) * len(sizes)))
            best = min(best, (edges * cost, high * vectors, high))
    cycles, sums, high = best
    return high, sums // high, cycles


def _sizes(rows: int | None, columns: int | None) -> list[tuple[int, int]]:
    """The sizes of a result for which a tile is chosen: for a free size TYPICAL_LENGTH and its
    halves, down to a few."""
    if rows is not None and columns is not None:
        return [(rows, columns)]
    halves = [thresholds.TYPICAL_LENGTH >> k for k in range(7)]
    return [(n if rows is None else rows, n if columns is None else columns) for n in halves]


def _edges(lengths: tuple[int, int], tile: int, unit: int) -> int:
    """The kinds of tiles at an edge: the sizes, in units, of what each length leaves over."""
    return len({-(-(n % tile) // unit) for n in lengths} - {0})


def _cover(
    rows: int, columns: int, high: int, vectors: int, lanes: int, m: MachineFacts,
    vectors_in_l1: float,
) -> float:  # fmt: skip
    """Cycles of one step over all tiles, with those at the edges. The first tile of a panel loads
    the panel, unless all columns are in the nearest cache."""
    full_panels, rest = divmod(columns, vectors * lanes)
    narrow, width = covering(lanes, rest, 2), m.vector_bytes
    parts = [(full_panels, vectors, width), (1, -(-rest // narrow), width * narrow // lanes)]
    total = 0.0
    for many, v, size in parts:
        reread = v > vectors_in_l1
        tiles = ((1, high, columns > vectors_in_l1 * lanes), (rows // high - 1, high, reread))
        for count, h, from_l2 in (*tiles, (1, rows % high, reread)):
            if many and v and count and h:
                total += count * many * step_cycles(h, v, size, m, from_l2)
    return total
