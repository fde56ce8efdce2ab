"""Choose a contraction's Opts for tensor cores: a tile for each block, its parts for the warps.

Both operands of a block's tile go through shared memory, a slice of the depth at a time, filled by
all threads with 16-byte accesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uopc.ir import analysis
from uopc.ir.ops import Ops
from uopc.passes.chooser import Chooser
from uopc.passes.kernel_facts import KernelFacts, length_of
from uopc.passes.shared_tiles import filled_together

if TYPE_CHECKING:
    from uopc.ir.uop import UOp


@dataclass(frozen=True)
class Blocking:
    """How a block's tile is cut: tiles of the tensor core in each warp, down, across and along
    the depth, and warps, down and across."""

    down: int
    across: int
    depth: int
    warps_down: int
    warps_across: int

    @property
    def threads(self) -> int:
        return 32 * self.warps_down * self.warps_across


# Largest first. 64 by 64 elements a warp: 128 accumulators a thread, and each value that comes from
# shared memory is used 4 or 8 times.
BLOCKINGS = (
    Blocking(4, 8, 2, 2, 2),
    Blocking(2, 4, 2, 2, 2),
    Blocking(1, 2, 1, 2, 2),
)
ACCESS_BYTES = 16
# Slices of the depth in shared memory at a time: one is read, the others are on their way.
MOST_STAGES = 4


def choose(chooser: Chooser) -> bool:
    """Opts for tensor cores, where the kernel is one sum of products that has a tile; whether."""
    k = KernelFacts(chooser.kernel)
    if len(k.reduces) != 1 or k.reduces[0].src[0].op is not Ops.MUL:
        return False
    closed = analysis.closed_ranges(k.reduces[0])
    for r in sorted(closed, key=lambda r: r.arg.axis, reverse=True):
        for blocking in BLOCKINGS:
            kernel, opts = chooser.kernel, list(chooser.opts)
            if _blocked(chooser, r, blocking):
                return True
            chooser.kernel, chooser.opts = kernel, opts
    return False


def _blocked(chooser: Chooser, r: UOp, blocking: Blocking) -> bool:
    """A blocking, if the kernel's loops are multiples of it."""
    if not chooser.attempt("TC", r, 0):
        return False
    (product,) = [u for u in analysis.order(chooser.kernel) if u.op is Ops.SHAPED_WMMA]
    row, column, depth = product.src[2:]
    for inner, copies, warps in (
        (row, blocking.down, blocking.warps_down),
        (column, blocking.across, blocking.warps_across),
    ):
        for op, n in (("UPCAST", copies), ("LOCAL", warps)):
            outer = _beside(chooser, inner)
            if n > 1 and (
                outer is None or (length_of(outer) or 1) % n or not chooser.attempt(op, outer, n)
            ):
                return False
    outer = _beside(chooser, depth)
    if outer is None or (length_of(outer) or 1) % blocking.depth:
        return False
    if blocking.depth > 1 and not chooser.attempt("UNROLL", outer, blocking.depth):
        return False
    for q in [q for q in KernelFacts(chooser.kernel).outputs if q.arg.kind == "loop"]:
        chooser.attempt("GRID", q, 0)
    if not all(_packed(chooser, depth, n, blocking.threads) for n in (0, 1)):
        return False
    around = _beside(chooser, depth)
    if around is not None:
        chooser.attempt("STAGES", around, _stages(chooser, around))
    return True


def _stages(chooser: Chooser, around: UOp) -> int:
    """As many stages as there is room for, and iterations."""
    gpu = chooser.context.target.gpu
    assert gpu is not None
    tiles = filled_together(analysis.order(chooser.kernel))
    used = sum(t.arg.dims[0] * t.dtype.itemsize for t in tiles)
    return int(min(MOST_STAGES, gpu.static_shared // max(1, used), length_of(around) or 1))


def _beside(chooser: Chooser, inner: UOp) -> UOp | None:
    """The loop over tiles that is left of the loop that `inner` was cut from."""
    axis = inner.arg.axis[:-1]
    found = [q for q in KernelFacts(chooser.kernel).axes if q.arg.axis[: len(axis)] == axis]
    return next((q for q in found if q.arg.kind in ("loop", "reduce")), None)


def _packed(chooser: Chooser, depth: UOp, operand: int, threads: int) -> bool:
    """An operand in shared memory, filled by all threads."""
    around = _beside(chooser, depth)
    before = set(KernelFacts(chooser.kernel).axes)
    if around is None or not chooser.attempt("PACK", around, operand):
        return True  # a single slice of the depth: the lanes read memory
    loops = [q for q in KernelFacts(chooser.kernel).axes if q not in before]
    tile = next(
        u
        for u in analysis.order(chooser.kernel)
        if u.op is Ops.AFTER and set(loops) <= set(analysis.closed_ranges(u.src[1]))
    )
    return _filled(chooser, loops, max(1, ACCESS_BYTES // tile.dtype.itemsize), threads)


def _filled(chooser: Chooser, loops: list[UOp], wide: int, threads: int) -> bool:
    """The loops of a fill, fastest last: vectors, then threads, then copies."""
    left, rest = threads, []
    for i, q in enumerate(reversed(loops)):
        inner: UOp | None = q
        if i == 0 and wide > 1:
            if not chooser.attempt("VECTOR", q, wide):
                return False
            inner = chooser.part(q, 0)
        n = 1
        while inner is not None and left % (2 * n) == 0 and (length_of(inner) or 1) % (2 * n) == 0:
            n *= 2
        if n > 1 and inner is not None:
            if not chooser.attempt("LOCAL", inner, n):
                return False
            inner, left = chooser.part(inner, 0), left // n
        if inner is not None:
            rest.append(inner)
    for q in rest:
        if (length_of(q) or 1) > 1:
            chooser.attempt("UPCAST", q, length_of(q) or 1)
    return True
