"""Products without tensor cores on a GPU: tiles of sums in registers, slices of the factors shared.

The threads of a block share slices of both operands in shared memory while the next slices are
loaded. A thread holds a tile of sums in registers. Its rows are spaced by the number of threads
down the block, so that a warp's threads read different banks; its columns are vectors.
"""

from __future__ import annotations

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.contractions import Contraction
from uopc.ir.nest.loops import length_of, trips
from uopc.ir.records import dataclass
from uopc.passes.analysis.lanes import fitting
from uopc.passes.optimize.schedule import gpu_thresholds
from uopc.passes.optimize.schedule.gpu_tensor_cores import share_fill
from uopc.passes.optimize.schedule.scheduler import Scheduler


@dataclass(frozen=True)
class ThreadBlocking:
    """The rows and vectors of columns that a thread sums, and the threads of a block."""

    rows: int
    vectors: int
    threads_down: int
    threads_across: int

    @property
    def threads(self) -> int:
        return self.threads_down * self.threads_across

    def sizes(self, lanes: int) -> tuple[int, int]:
        """The rows and columns of a block."""
        return self.rows * self.threads_down, self.vectors * lanes * self.threads_across


BLOCKINGS = (
    ThreadBlocking(8, 2, 16, 16), ThreadBlocking(8, 2, 16, 8), ThreadBlocking(8, 1, 8, 8),
    ThreadBlocking(4, 1, 8, 8),
)  # fmt: skip


def choose(s: Scheduler, lanes: int) -> bool:
    """Schedule one sum of products of known sizes: register tiles with vectors of `lanes`, and
    slices in shared memory. False for any other kernel."""
    product = s.nest.contraction
    if product is None or product.reduce.src[0].op is not Ops.MUL:
        return False
    loops = _loops(s, product)
    if loops is None or any(length_of(q) is None for q in loops):
        return False
    costs = [(cost, b) for b in BLOCKINGS if (cost := _cost(s, b, loops, lanes)) is not None]
    before = s.state
    for _, blocking in sorted(costs, key=lambda c: c[0]):
        if _blocked(s, product, loops, blocking, lanes):
            return True
        s.state = before
    return False


def _loops(s: Scheduler, product: Contraction) -> tuple[UOp, UOp, UOp] | None:
    """The innermost row loop, the column loop of neighbouring writes, and the depth loop."""
    depth = [q for q in product.depth if q.arg.kind == "reduce"]
    tile = s.nest.tile_of(product)
    return None if tile is None or len(depth) != 1 else (*tile[1:], depth[0])


def _cost(s: Scheduler, b: ThreadBlocking, loops: tuple[UOp, UOp, UOp], lanes: int) -> float | None:
    """The cost of a step of the depth on the busiest multiprocessor: each thread reads the factors
    of its tile and multiplies them. If threads are few, they wait as long as more threads would
    work. None if most of the tiles would be padding."""
    row, column = [length_of(q) or 1 for q in loops[:2]]
    down, across = b.sizes(lanes)
    blocks = -(-row // down) * -(-column // across)
    if blocks * down * across > gpu_thresholds.MOST_PADDING * row * column:
        return None
    blocks *= trips([q for q in s.nest.outputs if q not in loops])
    threads = max(-(-blocks // s.gpu.multiprocessors) * b.threads, gpu_thresholds.BUSY)
    factors = gpu_thresholds.FACTOR * (b.rows + b.vectors)
    return float(threads * (b.rows * b.vectors * lanes + factors))


def _blocked(
    s: Scheduler, product: Contraction, loops: tuple[UOp, UOp, UOp], b: ThreadBlocking, lanes: int
) -> bool:
    """Apply a blocking to the product's loops, with slices of the operands in shared memory."""
    steps = _slice(length_of(loops[2]) or 1, b.rows * b.vectors * lanes)
    row, column, depth = [s.padded(q, size) for q, size in zip(loops, (*b.sizes(lanes), steps))]
    if row is None or column is None or depth is None:
        return False
    of_columns = ("VECTOR", lanes), ("LOCAL", b.threads_across), ("UPCAST", b.vectors)
    of_rows = ("LOCAL", b.threads_down), ("UPCAST", b.rows)
    for q, opts in ((column, of_columns), (row, of_rows)):
        for op, n in opts:
            if n > 1 and not s.attempt(op, q, n):
                return False
            q = s.outer(q)
    for q in [q for q in s.nest.outputs if q.arg.kind == "loop"]:
        s.attempt("GRID", q, 0)
    if not s.attempt("UNROLL", depth, steps):
        return False
    for operand in (0, 1):
        fill = s.added("PACK", s.outer(depth), operand)
        if not fill or not share_fill(s, fill, product.reduce.dtype, b.threads):
            return False
    s.attempt("PIPELINE", s.outer(depth), gpu_thresholds.SLICES)  # if there are as many
    return True


def _slice(depth: int, sums: int) -> int:
    """The steps of one of several slices: they are straight code for all sums."""
    steps = fitting(gpu_thresholds.SLICE, gpu_thresholds.SLICE_PRODUCTS // sums)
    while steps > 1 and steps * gpu_thresholds.SLICES > depth:
        steps //= 2
    return steps
