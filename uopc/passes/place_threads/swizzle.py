"""The order of a shared tile's 16-byte pieces in the banks of shared memory.

Shared memory has 32 banks of 4 bytes, which make a line of 128 bytes. The pieces of one column of a
tile, or of 4 rows of two pieces, would be in the same banks. So each line has its own order:

    piece c of line r is stored at piece c ^ turned(r), turned(r) = 2r + r // 4 (mod 8)

Any 8 neighbouring lines have different orders, and any 4 put a pair of pieces at different banks.
Rows shorter than a line share one, and have as many orders as pieces. Earlier passes use indices of
the plain layout. A vector never crosses a piece.
"""

from __future__ import annotations

from dataclasses import replace

from uopc.ir.builder import alu, index_maps, rebuild
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.shared_tiles import LINE, PIECE


def swizzled(kernel: UOp) -> UOp:
    """Swizzle the indices into tiles that ask for it. If a vector would cross a piece, the tile
    keeps the plain layout."""
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
        flat, gate = index_maps.ungated(src[1])
        tile = storage_root(u)
        index = (swizzled_index(flat, tile.arg.swizzle, tile.dtype.itemsize),)
        gated = index if gate is None else index_maps.gated(index, gate)
        return intern(Ops.INDEX, u.dtype, (src[0], *gated))

    return rebuild.rewritten(kernel, change)


def swizzled_index(index: UOp, row: int, itemsize: int) -> UOp:
    """The index of an element in the swizzled layout of a tile with rows of `row` elements."""
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
    """True if all lanes of an access are in one piece."""
    lanes, flat = u.dtype.lanes, index_maps.ungated(u.src[1])[0]
    if lanes == 1 or flat.dtype.lanes == lanes:
        return True
    return lanes * u.dtype.itemsize <= PIECE and affine.is_multiple(flat, lanes)
