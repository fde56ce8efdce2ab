"""A tile: local storage that an Opt adds to a kernel, with the loops that fill it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from uopc.ir.builder import index_maps
from uopc.ir.core import dtypes, walk
from uopc.ir.core.args import BufferArg
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.nest.nest import nest_of
from uopc.ir.records import dataclass
from uopc.passes.optimize.opts.legality import Refused

# The largest tile, in bytes. A larger one would leave every cache.
MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class LocalTile:
    """A new BUFFER of the given dimensions. `effects` happen before the tile is accessed."""

    buffer: UOp
    dims: tuple[int, ...]
    effects: tuple[UOp, ...] = ()

    def at(self, index: Sequence[UOp]) -> UOp:
        """The element at an index, which has one component per dimension."""
        base = self.buffer
        if self.effects:
            base = intern(Ops.AFTER, base.dtype, (base, *self.effects))
        return intern(Ops.INDEX, base.dtype, (base, index_maps.flat_index(self.dims, tuple(index))))

    def fill(self, index: Sequence[UOp], value: UOp, *outer: UOp) -> LocalTile:
        """Store the value in loops over the index, inside of `outer`; return the filled tile."""
        store = intern(Ops.STORE, dtypes.void, (self.at(index), value))
        loops = [q for q in index if q.op is Ops.RANGE]
        return replace(self, effects=(intern(Ops.END, dtypes.void, (store, *outer, *loops)),))


def local_tile(
    kernel: UOp, dtype: DType, dims: Sequence[int], *, swizzle: int = 0, most: int = MOST_BYTES,
    tiles_before: int = 0,
) -> LocalTile:  # fmt: skip
    """Make a tile whose name is new to the kernel, to which the same Opt has added
    `tiles_before` tiles; Refused if the tile has more than `most` bytes."""
    size = math.prod(dims)
    if size * dtype.itemsize > most:
        raise Refused(f"a tile of {size} elements is too large")
    slot = tiles_before + sum(u.op is Ops.BUFFER for u in walk.order(kernel))
    arg = BufferArg(slot, (size,), space="local", swizzle=swizzle)
    return LocalTile(intern(Ops.BUFFER, dtype, (), arg), tuple(dims))


def next_nest(kernel: UOp) -> int:
    """The first axis component of a new loop nest after all loops of the kernel."""
    return 1 + max([int(q.arg.axis[0]) for q in nest_of(kernel).axes])
