"""The elements of values that are computed from constants alone, and of sums of disjoint PADs.

A vector made of single numbers (STACK, CAT, or a sum of one PAD per number) is one array. Only ops
whose result is the same everywhere are evaluated, so an array holds what the interpreter computes.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import numpy as np

from uopc.ir.builder import leaves, movement
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.data import arrays
from uopc.ir.core.evaluate import EXACT, Array, compute
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern

# A value of more elements is computed at run time: as an array it would make the program large.
MOST_ELEMENTS = 1 << 20
# The most elements of a user's array that takes part.
MOST_DATA = 1 << 12
# A constant of at least this many parts is an array rather than an expression.
FEWEST_PARTS = 4

JOINED = (Ops.STACK, Ops.CAT)
_DTYPES = frozenset((dtypes.float32, dtypes.float64, dtypes.bool_))


class PadSum(NamedTuple):
    """A sum of PADs along one axis that do not overlap: the elements that are not all padding, and
    the number of PADs."""

    axis: int
    begin: int
    end: int
    pads: int = 1


class Constants:
    """The constants of a graph and their elements. Nodes are noted in order, sources first."""

    def __init__(self) -> None:
        self.constant: set[UOp] = set()
        self.irregular: set[UOp] = set()  # constants without a short expression
        self.pads: dict[UOp, PadSum] = {}
        self.arrays: dict[UOp, Array] = {}

    def note(self, u: UOp) -> None:
        """Note a node, after its sources."""
        if u in self.constant or u.dtype is dtypes.void:
            return
        if (pads := self._pad_sum(u)) is not None:
            self.pads[u] = pads
        if self._is_constant(u):
            self.constant.add(u)
            made = u.op in JOINED and len(u.src) >= FEWEST_PARTS
            summed = u in self.pads and self.pads[u].pads >= FEWEST_PARTS
            if made or summed or any(s in self.irregular for s in u.src):
                self.irregular.add(u)

    def _is_constant(self, u: UOp) -> bool:
        if u.op is Ops.DATA:
            return bool(u.arg.array.size <= MOST_DATA)
        if u.op is Ops.CONST:
            return type(u.arg) is not tuple
        if not u.src or not self.constant.issuperset(u.src):
            return False
        if not (u.op.movement or u.op in EXACT or u.op in JOINED):
            return False
        if not (u.dtype in _DTYPES or u.dtype.is_int):
            return False
        dims = shapes.shape(u)
        return all(isinstance(d, int) for d in dims) and bool(shapes.size(dims) <= MOST_ELEMENTS)

    def _pad_sum(self, u: UOp) -> PadSum | None:
        if u.op is Ops.PAD and len(u.src) == 1:
            return _one_pad(u)
        if u.op is not Ops.ADD:
            return None
        a, b = self.pads.get(u.src[0]), self.pads.get(u.src[1])
        if a is None or b is None or a.axis != b.axis:
            return None
        if shapes.shape(u.src[0]) != shapes.shape(u.src[1]):
            return None
        if b.end <= a.begin:
            a, b = b, a
        if a.end > b.begin:
            return None
        return PadSum(a.axis, a.begin, b.end, a.pads + b.pads)

    def _padded(self, u: UOp) -> list[UOp]:
        """The PADs of a sum, in the order of their places."""
        found: list[UOp] = []
        stack = [u]
        while stack:
            v = stack.pop()
            if v.op is Ops.PAD:
                found.append(v)
            else:
                stack += v.src
        return sorted(found, key=lambda v: self.pads[v].begin)

    def array(self, u: UOp) -> Array:
        """The elements of a constant."""
        return walk.computed(u, self._elements, self.arrays)

    def _elements(self, u: UOp) -> Generator[list[UOp], list[Array], Array]:
        if u not in self.pads:
            sources = yield list(u.src)
            with np.errstate(all="ignore"):
                return compute(u, sources)
        parts = self._padded(u)
        values = yield [p.src[0] for p in parts]
        out = np.zeros(shapes.shape(u), u.dtype.numpy)
        for part, value in zip(parts, values):
            axis, begin, end, _ = self.pads[part]
            out[(slice(None),) * axis + (slice(begin, end),)] = value
        with np.errstate(all="ignore"):  # adding the zeros of others turns -0.0 into 0.0
            return out + out.dtype.type(0) if len(parts) > 1 and u.dtype.is_float else out

    def concatenation(self, u: UOp) -> UOp:
        """A sum of PADs as one CAT."""
        parts: list[UOp] = []
        axis, at = self.pads[u].axis, 0
        for part in self._padded(u):
            parts += _zeros(part.src[0], axis, self.pads[part].begin - at)
            parts.append(part.src[0])
            at = self.pads[part].end
        return movement.cat(*parts, *_zeros(parts[0], axis, shapes.shape(u)[axis] - at), axis=axis)


def array_node(array: Array, dtype: dtypes.DType) -> UOp:
    """A constant of the graph with the elements of an array; a number if all have equal bits."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if (flat.view(f"V{flat.itemsize}") == flat[:1].view(f"V{flat.itemsize}")).all():
        number = leaves.const_of_bits(dtype, flat[0]) if flat.size else leaves.const(dtype, 0)
        if number is not None:
            return leaves.full(number, array.shape)
    return intern(Ops.DATA, dtype, (), arrays.register(array))


def _one_pad(u: UOp) -> PadSum | None:
    """A PAD along one axis only."""
    begins, sizes = shapes.window(u)
    dims = shapes.shape(u.src[0])
    if not all(isinstance(d, int) for d in (*begins, *sizes, *dims)):
        return None
    moved = [i for i, (d, n) in enumerate(zip(dims, sizes)) if d != n]
    if len(moved) != 1 or dims[moved[0]] == 0:
        return None
    axis = moved[0]
    return PadSum(axis, begins[axis], begins[axis] + dims[axis])


def _zeros(like: UOp, axis: int, length: int) -> list[UOp]:
    if not length:
        return []
    dims = list(shapes.shape(like))
    dims[axis] = length
    return [leaves.full(leaves.const(like.dtype, 0), tuple(dims))]
