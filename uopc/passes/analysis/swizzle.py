"""The order of a shared tile's pieces of 16 bytes in the banks: a property of its layout.

Shared memory has 32 banks of 4 bytes, a line of 128. Pieces of one column of a tile, or 4 rows of
two pieces, would be asked of the same banks; so in each line they stand in another order:

    piece c of line r is where piece c ^ turned(r) would be, turned(r) = 2r + r // 4 (mod 8)

Of any 8 lines that follow, each has another order, and of 4 each puts a pair of pieces elsewhere.
Rows shorter than a line share one, and have as many orders as pieces. Until threads are placed,
indices are those of the plain layout; here they become places. A vector is inside of a piece.
"""

from __future__ import annotations

from dataclasses import replace

from uopc.ir.builder import alu
from uopc.ir.builder import index_maps as indexing
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine

PIECE, LINE = 16, 128


def can_be_swizzled(row: int) -> bool:
    """Whether rows of so many bytes can: a power of two of pieces, or whole lines."""
    return row in (2 * PIECE, 4 * PIECE) or (row > 0 and row % LINE == 0)


def in_places(kernel: UOp) -> UOp:
    """The kernel whose accesses to swizzled tiles are where their elements are."""
    order = list(walk.order(kernel))
    wanted = {u for u in order if u.op is Ops.BUFFER and u.arg.swizzle}
    if not wanted:
        return kernel
    accesses = [u for u in order if u.op is Ops.INDEX and storage_root(u) in wanted]
    crossing = {storage_root(u) for u in accesses if not _is_inside(u)}

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u in wanted:
            return u.replace(arg=replace(u.arg, swizzle=0))
        if u.op is not Ops.INDEX or storage_root(u) not in wanted - crossing:
            return None
        flat, gate = indexing.ungated(src[1])
        size = storage_root(u).dtype.itemsize
        there = place(flat, storage_root(u).arg.swizzle, size)
        index = (there,) if gate is None else indexing.gated((there,), gate)
        return intern(Ops.INDEX, u.dtype, (src[0], *index))

    return remake.rewritten(kernel, change)


def place(index: UOp, row: int, itemsize: int) -> UOp:
    """Where an element of a tile with rows of `row` elements is."""
    piece, line = PIECE // itemsize, max(row, LINE // itemsize)
    orders = min(LINE // PIECE, row * itemsize // PIECE)
    span, n = affine.const(piece * orders), affine.const(orders)
    whole, rest = affine.divmod_(index, span)
    column, inside = affine.divmod_(rest, affine.const(piece))
    number = affine.floordiv(index, affine.const(line))
    turned = affine.add(
        affine.floormod(affine.scaled(number, 2), n),
        affine.floormod(affine.floordiv(number, affine.const(orders // 2)), affine.const(2)),
    )
    moved = alu.alu(column, Ops.XOR, turned)
    return affine.add(
        affine.mul(whole, span), affine.add(affine.scaled(moved, piece), inside)
    )


def _is_inside(u: UOp) -> bool:
    """Whether an access has all its lanes in one piece."""
    lanes, flat = u.dtype.lanes, indexing.ungated(u.src[1])[0]
    if lanes == 1 or flat.dtype.lanes == lanes:
        return True
    if lanes * u.dtype.itemsize > PIECE:
        return False
    return affine.is_multiple(flat, lanes)
