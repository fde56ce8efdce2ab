"""The elements of values that are computed from constants alone, and of sums of disjoint PADs.

A vector made of single numbers (STACK, CAT, or one PAD a number, added up) is one array. Only ops
whose result is the same everywhere are evaluated, so an array is what the interpreter gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uopc.ir.builder import leaves, movement
from uopc.ir.core import arrays, dtypes, shapes
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


@dataclass(frozen=True)
class PadSum:
    """A sum of PADs along one axis: all of `first` is before `second`; or one PAD, of `value`."""

    axis: int
    begin: int
    end: int
    value: UOp | None  # of one PAD; else None
    first: PadSum | None = None
    second: PadSum | None = None
    count: int = 1

    def leaves(self) -> list[PadSum]:
        """The PADs in order, without recursion."""
        found: list[PadSum] = []
        stack = [self]
        while stack:
            p = stack.pop()
            if p.first is None or p.second is None:
                found.append(p)
            else:
                stack += (p.second, p.first)
        return found


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
            summed = u in self.pads and self.pads[u].count >= FEWEST_PARTS
            if made or summed or any(s in self.irregular for s in u.src):
                self.irregular.add(u)

    def _is_constant(self, u: UOp) -> bool:
        if u.op is Ops.DATA:
            return bool(u.arg.array.size <= MOST_DATA)
        if u.op is Ops.CONST:
            return type(u.arg) is not tuple
        evaluated = u.op.movement or u.op in EXACT or u.op in JOINED
        if not evaluated or not u.src or any(s not in self.constant for s in u.src):
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
        return PadSum(a.axis, a.begin, b.end, None, a, b, a.count + b.count)

    def array(self, u: UOp) -> Array:
        """The elements of a constant."""
        arrays = self.arrays
        stack = [u]
        while stack:
            v = stack[-1]
            if v in arrays:
                stack.pop()
                continue
            pads = self.pads.get(v)
            parts = pads.leaves() if pads is not None else None
            sources = [p.value for p in parts if p.value is not None] if parts else list(v.src)
            missing = [s for s in sources if s not in arrays]
            if missing:
                stack += missing
                continue
            found = [arrays[s] for s in sources]
            with np.errstate(all="ignore"):
                arrays[v] = _filled(v, parts, found) if parts else compute(v, found)
            stack.pop()
        return arrays[u]

    def literal(self, u: UOp) -> UOp:
        """A constant as one node: an array, or one repeated number."""
        return array_node(self.array(u), u.dtype)


def array_node(array: Array, dtype: dtypes.DType) -> UOp:
    """A constant of the graph with the elements of an array; a number if all have equal bits."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if (flat.view(f"V{flat.itemsize}") == flat[:1].view(f"V{flat.itemsize}")).all():
        value = flat[0].item() if flat.size else 0
        return leaves.filled(leaves.const(dtype, value), array.shape)
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
    return PadSum(axis, begins[axis], begins[axis] + dims[axis], u.src[0])


def _filled(u: UOp, parts: list[PadSum], values: list[Array]) -> Array:
    """The elements of a sum of PADs. Adding the zeros of others turns -0.0 into 0.0."""
    out = np.zeros(shapes.shape(u), u.dtype.numpy)
    axis = parts[0].axis
    for part, value in zip(parts, values):
        place = (slice(None),) * axis + (slice(part.begin, part.end),)
        out[place] = value
    return out + out.dtype.type(0) if len(parts) > 1 and u.dtype.is_float else out


def concatenation(pads: PadSum, length: int) -> UOp:
    """A sum of PADs without overlap as one CAT."""
    axis = pads.axis
    parts: list[UOp] = []
    at = 0
    for leaf in pads.leaves():
        assert leaf.value is not None
        parts += _zeros(leaf.value, axis, leaf.begin - at)
        parts.append(leaf.value)
        at = leaf.end
    return movement.cat(*parts, *_zeros(parts[0], axis, length - at), axis=axis)


def _zeros(like: UOp, axis: int, length: int) -> list[UOp]:
    if not length:
        return []
    dims = list(shapes.shape(like))
    dims[axis] = length
    return [leaves.filled(leaves.const(like.dtype, 0), tuple(dims))]
