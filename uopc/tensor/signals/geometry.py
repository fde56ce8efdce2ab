"""Windows along the axes behind (batch, channels): where each begins, and the elements under it."""

from __future__ import annotations

from typing import Any

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, leaves, movement
from uopc.ir.builder.operands import as_dim
from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, show
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import maximum, minimum
from uopc.tensor.reductions import along

Edges = list[tuple[Dim, Dim]]  # elements put before and after an axis; taken away if negative
_SHARES = ("same", "same_lower")


# ---------------------------------------------------------------- arguments
def images(a: UOp, who: str, rank: int | None = None) -> shapes.Shape:
    """Check and return the shape (batch, channels, sizes…), with `rank` sizes or any number."""
    dims = shapes.shape(a)
    if len(dims) < 3 or rank not in (None, len(dims) - 2):
        names = {1: "length", 2: "rows, columns", 3: "planes, rows, columns"}
        wanted = "sizes…" if rank is None else names[rank]
        raise UserError(f"{who}: needs (batch, channels, {wanted}), got {show(dims)}")
    return dims


def per_axis(value: Any, rank: int, what: str, least: int) -> list[int]:
    """Expand an int, or one for each axis, to a list with an int for each axis."""
    each = list(value) if isinstance(value, (tuple, list)) else [value] * rank
    if len(each) != rank or not all(type(v) is int for v in each):
        raise UserTypeError(f"{what} must be an int or {_ints(rank)}, got {value!r}")
    if min(each) < least:
        raise UserError(f"{what} must be at least {least}, got {value!r}")
    return each


def _ints(rank: int) -> str:
    return f"{rank} ints" if rank > 1 else "a tuple of one"


def edges(value: Any, rank: int, what: str) -> Edges:
    """Expand an int, or an int or a pair for each axis, to a pair (before, after) for each axis."""
    each = list(value) if isinstance(value, (tuple, list)) else [value] * rank
    pairs = [tuple(v) if isinstance(v, (tuple, list)) else (v, v) for v in each]
    if len(pairs) != rank or not all(len(p) == 2 and type(v) is int for p in pairs for v in p):
        how = f"an int, or an int or a pair (before, after) for each of {rank} axes"
        raise UserTypeError(f"{what} must be {how}, got {value!r}")
    if min(v for p in pairs for v in p) < 0:
        raise UserError(f"{what} must be at least 0, got {value!r}")
    return [(before, after) for before, after in pairs]


def moved_edges(a: UOp, by: Edges) -> UOp:
    """Add zeros, or remove elements, at the ends of the axes behind (batch, channels)."""
    dims = shapes.shape(a)
    kept = [(max(-p, 0), n - max(-q, 0)) for n, (p, q) in zip(dims[2:], by)]
    a = movement.shrink(a, ((0, dims[0]), (0, dims[1]), *kept))
    more = [(max(p, 0), max(q, 0)) for p, q in by]
    return movement.pad(a, ((0, 0), (0, 0), *more))


# ---------------------------------------------------------------- windows
class Windows:
    """The windows of one call, for each axis: its size, the kernel, stride and dilation, the
    requested edges, the count of windows, and the elements that the last window needs beyond the
    edges."""

    def __init__(
        self, who: str, sizes: shapes.Shape, kernel: shapes.Shape, stride: Any, padding: Any,
        dilation: Any, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        rank = len(sizes)
        self.who, self.sizes, self.kernel = who, sizes, kernel
        self.stride = per_axis(stride, rank, f"{who}: stride", 1)
        self.dilation = per_axis(dilation, rank, f"{who}: dilation", 1)
        self.has_all = padding in _SHARES  # a window at every stride
        self.edges = self._edges(padding)
        self.counts = [self._count(i, ceil_mode) for i in range(rank)]
        self.beyond = [self._beyond(i) if ceil_mode else 0 for i in range(rank)]

    def span(self, i: int) -> Dim:
        """The distance from the first to behind the last element of a window."""
        return (self.kernel[i] - 1) * self.dilation[i] + 1

    def _edges(self, padding: Any) -> Edges:
        rank = len(self.sizes)
        if not isinstance(padding, str):
            return edges(padding, rank, f"{self.who}: padding")
        if padding == "valid":
            return [(0, 0)] * rank
        if padding not in _SHARES:
            named = "valid, same or same_lower"
            raise UserError(f"{self.who}: padding must be numbers, {named}, got {padding!r}")
        found = []
        for i in range(rank):
            total = self._shared(i)
            less, more = as_dim(total // 2), as_dim((total + 1) // 2)
            found.append((less, more) if padding == "same" else (more, less))
        return found

    def _shared(self, i: int) -> Dim:
        """The padding of an axis, both ends together, for a window at every stride."""
        size, step = self.sizes[i], self.stride[i]
        return maximum(self.span(i) - step + size * (step - 1) % step, 0)

    def _count(self, i: int, ceil_mode: bool) -> Dim:
        before, after = self.edges[i]
        if self.has_all:
            return as_dim((self.sizes[i] + self.stride[i] - 1) // self.stride[i])
        room = self.sizes[i] + (before + after) - self.span(i)
        if isinstance(room, int) and room < 0:
            window = f"a window of {self.kernel[i]} (dilation {self.dilation[i]})"
            raise UserError(
                f"{self.who}: {window} exceeds the {self.sizes[i] + before + after} elements"
            )
        step = self.stride[i]
        if not ceil_mode:
            return as_dim(room // step + 1)
        some, most = -(-room // step) + 1, -(-(self.sizes[i] + before) // step)
        return minimum(some, most)  # the last window begins before the elements end

    def _beyond(self, i: int) -> Dim:
        """The number of elements that the last window needs beyond the edges."""
        wide = self.sizes[i] + sum(self.edges[i])
        return maximum((self.counts[i] - 1) * self.stride[i] + self.span(i) - wide, 0)

    def padded(self, a: UOp, fill: Any = 0) -> UOp:
        """Pad the array by its edges."""
        more = [(before, after + far) for (before, after), far in zip(self.edges, self.beyond)]
        return movement.pad(a, ((0, 0), (0, 0), *more), fill)

    def axis(self, i: int, behind: int) -> UOp:
        """The index into axis i of each element of each window: shape (count, 1…, kernel, 1…), with
        `behind` more axes between those of the places and those of the kernel."""
        rest = len(self.sizes) - 1 - i
        element = alu.binary(Ops.MUL, counted(self.kernel[i], rest), self.dilation[i])
        place = counted(self.counts[i], rest + behind + len(self.sizes))
        return strided(place, self.stride[i], element)

    def seen(self, a: UOp, fill: Any) -> UOp:
        """(batch, channels, places…, kernel…): the elements under each window."""
        rank, dims = len(self.sizes), shapes.shape(a)
        lead = counted(dims[0], 2 * rank + 1), counted(dims[1], 2 * rank)
        axes = [self.axis(i, 0) for i in range(rank)]
        return movement.index(self.padded(a, fill), *lead, *axes)


def counted(n: Dim, after: int) -> UOp:
    """0 … n-1 along an axis, followed by `after` axes of size 1."""
    return along(leaves.iota(n), after)


def strided(outer: UOp, stride: Dim, inner: UOp) -> UOp:
    """outer * stride + inner."""
    return alu.binary(Ops.ADD, alu.binary(Ops.MUL, outer, stride), inner)


def windows(
    a: UOp, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, value: Any = 0,
) -> UOp:  # fmt: skip
    """(batch, channels, places…, kernel…): the elements under each window of `a`, of shape (batch,
    channels, sizes…). A reduction over the last axes is a pool of any kind.

    kernel_size, stride and dilation are ints, or one for each size; padding is an int, one for each
    size or pairs (before, after), or "valid", "same" or "same_lower"; padded elements are `value`.
    With ceil_mode the last windows may reach beyond the edges. UserError for a window that exceeds
    the array.

    Examples:
        >>> x = uopc.constant([[[1, 2, 4, 8]]])
        >>> uopc.compile(x.windows(2, stride=2))()[0, 0]
        array([[1, 2],
               [4, 8]])
    """
    sizes = images(a, "windows")[2:]
    kernel = tuple(per_axis(kernel_size, len(sizes), "windows: kernel_size", 1))
    ceil = checks.flag("windows", "ceil_mode", ceil_mode)
    return Windows("windows", sizes, kernel, stride, padding, dilation, ceil).seen(a, value)
