"""Pools: the greatest or the mean element under each window, in any number of dimensions."""

from __future__ import annotations

from typing import Any

from uopc.ir.builder import alu, checks, leaves, movement
from uopc.ir.builder.fold import cast
from uopc.ir.core import bounds, dtypes, intervals, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.tensor.signals.geometry import Windows, counted, images, per_axis, strided


def _pool(
    who: str, a: UOp, rank: int | None, kernel_size: Any, stride: Any, padding: Any,
    dilation: Any = 1, ceil_mode: bool = False,
) -> Windows:  # fmt: skip
    sizes = images(a, who, rank)[2:]
    kernel = per_axis(kernel_size, len(sizes), f"{who}: kernel_size", 1)
    step = kernel if stride is None else stride
    ceil = checks.flag(who, "ceil_mode", ceil_mode)
    return Windows(who, sizes, tuple(kernel), step, padding, dilation, ceil)


# ---------------------------------------------------------------- the greatest
def max_pool(
    a: UOp, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> UOp:  # fmt: skip
    """The greatest element under each window; NaN if there is one. Padding counts as the least
    value of the dtype.

    `a` has shape (batch, channels, sizes…). kernel_size, stride (the kernel size by default) and
    dilation are ints or one for each size; padding as in `conv`. With ceil_mode the last windows
    may reach beyond the edges, as long as they begin before `a` ends. UserError for a window that
    exceeds `a`.

    Examples:
        >>> signal = uopc.constant([[[1, 7, 2, 5, 3]]])
        >>> uopc.compile(signal.max_pool(2, ceil_mode=True))()
        array([[[7, 5, 3]]])
    """
    g = _pool("max_pool", a, None, kernel_size, stride, padding, dilation, ceil_mode)
    return _greatest(g, a)


def max_pool2d(a: UOp, kernel_size: Any, stride: Any = None, padding: Any = 0) -> UOp:
    """`max_pool` of images (batch, channels, rows, columns).

    UserError for another number of dimensions.

    Examples:
        >>> image = uopc.constant(np.arange(16).reshape(1, 1, 4, 4))
        >>> uopc.compile(image.max_pool2d(2))()[0, 0]
        array([[ 5,  7],
               [13, 15]])
    """
    return _greatest(_pool("max_pool2d", a, 2, kernel_size, stride, padding), a)


def _greatest(g: Windows, a: UOp) -> UOp:
    least = intervals.of_type(a.dtype)[0]
    return movement.reduce(g.seen(a, least), "max", _under(g))


def _under(g: Windows) -> tuple[int, ...]:
    """The axes of the elements inside windows."""
    rank = len(g.kernel)
    return tuple(range(2 + rank, 2 + 2 * rank))


def max_pool_with_indices(
    a: UOp, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[UOp, UOp]:  # fmt: skip
    """`max_pool`, and the index of the first greatest element (or first NaN) of each window,
    counted along the flattened sizes of its channel.

    The indices are int32, or int64 where the sizes need it; -1 for a window of padding alone.

    Examples:
        >>> image = uopc.constant(np.array([[[[1, 9], [8, 3]]]]))
        >>> values, places = uopc.compile(image.max_pool_with_indices((1, 2)))()
        >>> values.ravel().tolist(), places.ravel().tolist()
        ([9, 8], [1, 2])
    """
    who = "max_pool_with_indices"
    g = _pool(who, a, None, kernel_size, stride, padding, dilation, ceil_mode)
    rank, most = len(g.kernel), shapes.size(g.sizes)
    place: UOp = leaves.const(dtypes.index, 0)
    inside: UOp = leaves.const(dtypes.bool_, True)
    for i, n in enumerate(g.sizes):
        at = alu.binary(Ops.SUB, g.axis(i, 0), g.edges[i][0])
        place = strided(place, n, at)
        inside = inside & (at >= 0) & (at < n)
    best = _greatest(g, a)
    column = movement.reshape(best, (*shapes.shape(best), *[1] * rank))
    seen = g.seen(a, intervals.of_type(a.dtype)[0])
    hit = seen.eq(column)
    if a.dtype.is_float:
        hit = hit | seen.ne(seen)  # there are none unless the greatest is NaN
    narrow = dtypes.int32 if bounds.max_dim(most) < 1 << 31 else dtypes.int64
    last = cast(dim_uop(most), narrow)
    found = movement.reduce(alu.where(hit & inside, cast(place, narrow), last), "min", _under(g))
    return best, alu.where(found.eq(last), leaves.const(narrow, -1), found)


# ---------------------------------------------------------------- the mean
def avg_pool(
    a: UOp, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> UOp:  # fmt: skip
    """The mean of the elements under each window; of integers as float32. Padding counts as zeros,
    or not at all without count_include_pad; elements that ceil_mode adds never count.

    The arguments are those of `max_pool`. NaN for a window of padding alone that does not count.

    Examples:
        >>> signal = uopc.constant([[[2.0, 4.0, 6.0]]])
        >>> uopc.compile(signal.avg_pool(2, padding=1, count_include_pad=False))()
        array([[[2., 5.]]])
    """
    g = _pool("avg_pool", a, None, kernel_size, stride, padding, dilation, ceil_mode)
    return _mean(g, a, checks.flag("avg_pool", "count_include_pad", count_include_pad))


def avg_pool2d(a: UOp, kernel_size: Any, stride: Any = None, padding: Any = 0) -> UOp:
    """`avg_pool` of images (batch, channels, rows, columns), padding counted as zeros.

    UserError for another number of dimensions.

    Examples:
        >>> image = uopc.constant(np.arange(16.0).reshape(1, 1, 4, 4))
        >>> uopc.compile(image.avg_pool2d(2))()[0, 0]
        array([[ 2.5,  4.5],
               [10.5, 12.5]])
    """
    return _mean(_pool("avg_pool2d", a, 2, kernel_size, stride, padding), a, True)


def _mean(g: Windows, a: UOp, include: bool) -> UOp:
    given = a.dtype if a.dtype.is_float else dtypes.float32
    x = cast(a, dtypes.accumulator(given))
    total = movement.reduce(g.seen(x, 0), "add", _under(g))
    fixed, count = 1, None
    for i in range(len(g.kernel)):
        edges = (0, 0) if include else g.edges[i]
        if edges == (0, 0) and g.beyond[i] == 0:
            fixed *= g.kernel[i]
            continue
        each = cast(_counted_inside(g, i, include), x.dtype)
        count = each if count is None else alu.alu(count, Ops.MUL, each)
    whole = leaves.const(x.dtype, fixed)
    return cast(alu.alu(total, Ops.FDIV, whole if count is None else count * whole), given)


def _counted_inside(g: Windows, i: int, include: bool) -> UOp:
    """The number of elements of each window along an axis that lie in the array, or with `include`
    in the array with its edges."""
    before, after = g.edges[i]
    low, high = (0, g.sizes[i] + before + after) if include else (before, g.sizes[i] + before)
    begin = counted(g.counts[i], len(g.kernel) - 1 - i) * g.stride[i]
    first = _steps(low, begin, g.dilation[i]).maximum(0)
    last = _steps(high, begin, g.dilation[i]).minimum(g.kernel[i])
    return alu.binary(Ops.MAX, alu.binary(Ops.SUB, last, first), 0)


def _steps(end: Dim, begin: UOp, apart: int) -> UOp:
    """The number of steps from `begin` before reaching `end`."""
    behind = alu.binary(Ops.FLOORDIV, alu.binary(Ops.SUB, begin, end), apart)
    return alu.binary(Ops.SUB, 0, behind)
