"""Products on tensor cores: a tile per block, its parts for the warps.

Both operands of a block's tile go through shared memory, a slice of the depth at a time. All
threads fill a slice with 16-byte accesses.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from uopc.ir.core import ranges, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices.tensor_cores import Tile
from uopc.ir.nest.contractions import Contraction
from uopc.ir.nest.loops import length_of, most_of, trips
from uopc.ir.nest.nest import nest_of
from uopc.ir.records import dataclass
from uopc.passes.analysis.shared_tiles import filled_together
from uopc.passes.optimize.opts import tensor_cores as tensor_tiling
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.schedule import gpu_thresholds
from uopc.passes.optimize.schedule.scheduler import Scheduler


@dataclass(frozen=True)
class WarpBlocking:
    """The tensor-core tiles of each warp, down and across, and the warps of a block."""

    down: int
    across: int
    warps_down: int
    warps_across: int
    on_outer_columns: bool = False  # the warps across are of another loop of columns

    @property
    def threads(self) -> int:
        return 32 * self.warps_down * self.warps_across

    @property
    def tiles(self) -> tuple[int, int]:
        """The tiles of a block, down and across."""
        across = 1 if self.on_outer_columns else self.warps_across
        return self.down * self.warps_down, self.across * across

    def registers(self, tile: Tile) -> int:
        """The approximate registers of a thread, for its sums and for the factors of one step."""
        a, b, c = tile.counts
        size = self.down * self.across * c * tile.result.itemsize
        size += (self.down * a + self.across * b) * tile.operand.itemsize
        return size // 4 + gpu_thresholds.OTHER_REGISTERS

    def sizes(self, tile: Tile) -> tuple[int, int, int]:
        """The fewest rows, columns and depth of a block."""
        (down, across), (m, n, k) = self.tiles, tile.shape
        return down * m, across * n, k


# 64 by 64 elements per warp: 128 accumulators per thread, and each value from shared memory is used
# 4 or 8 times. Two blocks of 4 warps on a multiprocessor are faster than one of 8, which waits for
# the slowest warp (docs/lab/gpu.md). Smaller blockings are for products that would not fill the
# device.
BLOCKINGS = (
    WarpBlocking(4, 8, 2, 2), WarpBlocking(2, 8, 2, 2), WarpBlocking(4, 4, 2, 2),
    WarpBlocking(2, 4, 2, 2), WarpBlocking(2, 2, 2, 2), WarpBlocking(1, 2, 2, 2),
)  # fmt: skip
# Slices of the depth in shared memory at a time: one is read, the others are being loaded. The next
# one is found with a mask, so this is a power of two.
STAGES = (4, 2)
# Tiles of the depth in a slice.
SLICES = (2, 1)


def choose(s: Scheduler) -> bool:
    """Schedule one sum of products that has a tensor-core tile. False for any other kernel."""
    k = s.nest
    if k.contraction is None:
        return False
    found: list[tuple[float, WarpBlocking, tuple[int, Tile, list[UOp]]]] = []
    for r in k.contraction.depth:
        for amount in _amounts(s):
            try:
                tile, *loops = tensor_tiling.tile_loops(s.kernel, r, amount)
            except Refused:
                continue
            found += [(cost, b, (amount, tile, loops)) for cost, b in _costs(s, tile, loops)]
            break
    before = s.state
    for _, blocking, product in sorted(found, key=lambda f: f[0]):
        if _padded(s, *product, blocking) and _blocked(s, blocking):
            return True
        s.state = before
    return False


def _amounts(s: Scheduler) -> list[int]:
    """The amounts of TC to try: exact tiles, the largest if the GPU has them, then rounded ones."""
    exact = tensor_tiling.LARGEST if s.gpu.has_large_tiles else 0
    return [exact, *[tensor_tiling.ROUNDED] * s.context.options.tf32]


def _costs(s: Scheduler, tile: Tile, loops: list[UOp]) -> list[tuple[float, WarpBlocking]]:
    """The blockings of a product that pay, each with its approximate time."""
    gpu = s.gpu
    lengths = [most_of(q) for q in loops]
    around = trips([q for q in s.nest.outputs if q not in loops])
    columns = [length_of(q) or 1 for q in _other_columns(s.kernel, loops[1])]
    itemsize = tile.operand.itemsize

    def cost(b: WarpBlocking, padded: list[int]) -> float:
        down, across, _ = b.sizes(tile)
        blocks = around * (padded[0] // down) * (padded[1] // across)
        if b.on_outer_columns:
            blocks, across = blocks // b.warps_across, across * b.warps_across
        rate = s.gpu.tensor_rate * 2 / itemsize
        read = (down + across) * itemsize / s.gpu.l2_rate
        step = max(down * across / rate, read) * -(-blocks // gpu.multiprocessors)
        return float(step * padded[2] / lengths[2])

    found = []
    for b in BLOCKINGS:
        b = _fitted(b, -(-lengths[1] // tile.shape[1]), columns)
        if b.registers(tile) > gpu.registers_per_thread:
            continue
        padded = [-(-n // size) * size for n, size in zip(lengths, b.sizes(tile))]
        if math.prod(padded) <= gpu_thresholds.MOST_PADDING * math.prod(lengths):
            found.append((cost(b, padded), b))
    return found


def _fitted(b: WarpBlocking, tiles: int, columns: list[int]) -> WarpBlocking:
    """The blocking; its tiles across divide `tiles` if another column loop can feed the warps."""
    even = max(n for n in range(1, b.across + 1) if tiles % n == 0)
    feeds_warps = any(n % b.warps_across == 0 for n in columns)
    if tiles % b.tiles[1] and 2 * even >= b.across and feeds_warps:
        return replace(b, across=even, on_outer_columns=True)
    return b


def _other_columns(kernel: UOp, column: UOp) -> list[UOp]:
    """The other output loops, innermost first, of the operand that uses the columns."""
    (reduce,) = nest_of(kernel).reduces
    c = Contraction.of(reduce, reduce.src[0])
    columns = c.columns if column in ranges.ranges(c.b) else c.rows
    return [r for r in reversed(columns) if r is not column]


def _padded(
    s: Scheduler, amount: int, tile: Tile, loops: list[UOp], blocking: WarpBlocking
) -> bool:
    """Apply TC to the product after padding its loops to multiples of the block's tile."""
    padded = [s.padded(q, size) for q, size in zip(loops, blocking.sizes(tile))]
    return None not in padded and s.attempt("TC", padded[-1], amount)


def _blocked(s: Scheduler, blocking: WarpBlocking) -> bool:
    """Apply a blocking to the product's loops, and put slices of its operands in shared memory."""
    (product,) = [u for u in walk.order(s.kernel) if u.op is Ops.SHAPED_WMMA]
    row, column, depth = product.src[2:]
    for inner, copies, warps in (
        (row, blocking.down, blocking.warps_down),
        (column, blocking.across, blocking.warps_across),
    ):
        for op, n in (("UPCAST", copies), ("LOCAL", warps)):
            outer = _tile_loop(s, inner)
            if op == "LOCAL" and inner is column and blocking.on_outer_columns:
                loops = _other_columns(s.kernel, column)
                outer = next((q for q in loops if (length_of(q) or 1) % n == 0), None)
            if n > 1 and not s.attempt(op, outer, n):
                return False
    for q in [q for q in s.nest.outputs if q.arg.kind == "loop"]:
        s.attempt("GRID", q, 0)
    room = gpu_thresholds.shared_room(s.gpu, blocking.threads)
    slices, stages = _slicing(s, product, blocking, room)
    if slices > 1:
        s.attempt("UNROLL", _tile_loop(s, depth), slices)
    for operand in (0, 1):
        loops = s.added("PACK", _slice_loop(s, depth), operand)
        if loops and not share_fill(s, loops, product.src[operand].dtype, blocking.threads):
            return False  # without loops, all of the depth is taken at once: the lanes read memory
    tiles = filled_together(walk.order(s.kernel))
    used: int = sum(t.arg.dims[0] * t.dtype.itemsize for t in tiles)
    while stages > 1 and used * stages > room:
        stages //= 2
    if used <= room and stages > 1:
        s.attempt("PIPELINE", _slice_loop(s, depth), stages)
    return used <= room


def _slicing(s: Scheduler, product: UOp, blocking: WarpBlocking, room: int) -> tuple[int, int]:
    """The most tiles of the depth per slice, and the most slices, that fit in shared memory."""
    outer = _tile_loop(s, product.src[4])
    count = 1 if outer is None else length_of(outer) or 1
    down, across = [n * size for n, size in zip(blocking.tiles, product.arg)]
    tile = (down + across) * product.arg[2] * product.src[0].dtype.itemsize
    for stages, slices in itertools.product((*STAGES, 1), SLICES):
        fits = tile * slices * stages <= room
        if fits and count % slices == 0 and count >= slices * stages:
            return slices, stages
    return 1, 1


def _tile_loop(s: Scheduler, inner: UOp) -> UOp | None:
    """The remaining loop over tiles that was split from the same loop as `inner`."""
    axis = inner.arg.axis[:-1]
    found = [q for q in s.axes if q.arg.axis[: len(axis)] == axis]
    return next((q for q in found if q.arg.kind in ("loop", "reduce")), None)


def _slice_loop(s: Scheduler, depth: UOp) -> UOp | None:
    """The loop over slices of the depth, or the outermost of the reduce's other loops."""
    outer = _tile_loop(s, depth)
    others = [q for q in s.axes if q.arg.kind == "reduce"]
    return min(others, key=lambda q: q.arg.axis, default=None) if outer is None else outer


def share_fill(s: Scheduler, loops: list[UOp], dtype: DType, threads: int) -> bool:
    """Let all threads of a block fill a tile: vectors innermost, then threads, then copies."""
    left, rest = threads, []
    for i, q in enumerate(reversed(loops)):
        inner: UOp | None = q
        if i == 0 and s.attempt("VECTOR", q, max(1, gpu_thresholds.ACCESS_BYTES // dtype.itemsize)):
            inner = s.part(q, 0)
        n = 1 if inner is None else math.gcd(left, length_of(inner) or 1)
        n &= -n  # the greatest power of two
        if n > 1:
            if not s.attempt("LOCAL", inner, n):
                return False
            inner, left = s.part(inner, 0), left // n
        rest.append(inner)
    for part in rest:
        if part is not None and (length_of(part) or 1) > 1:
            s.attempt("UPCAST", part, length_of(part) or 1)
    return True
