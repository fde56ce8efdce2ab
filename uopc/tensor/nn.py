"""Linear algebra and neural-network methods, built of movement, gather, elementwise and reduce.

Products of float16, bfloat16 and fp8 accumulate in float32 and are rounded once to their dtype.
"""

from __future__ import annotations

from typing import Any, Literal

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, leaves, movement, operands
from uopc.ir.builder.fold import cast
from uopc.ir.builder.operands import Operand, as_dim
from uopc.ir.core import dtypes, intervals, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, show
from uopc.ir.core.uop import UOp
from uopc.tensor import elementwise
from uopc.tensor.elementwise import rounded_once
from uopc.tensor.float_functions import isfinite
from uopc.tensor.reductions import along, average


# ---------------------------------------------------------------- normalisation
def _shifted(a: UOp, axis: Any) -> UOp:
    """Minus the maximum, so that the exponential cannot overflow."""
    most = elementwise.detach(movement.reduce(a, "max", axis, keepdims=True))
    return alu.binary(Ops.SUB, a, most)


@rounded_once
def softmax(a: UOp, axis: Any = -1) -> UOp:
    """e^a over its sum along the axis (or axes).

    The result has the shape of `a`; integers are made floats first.

    Examples:
        >>> x = uopc.constant([[0.0, 0.0], [0.0, np.log(3.0)]])
        >>> uopc.compile(x.softmax())()
        array([[0.5 , 0.5 ],
               [0.25, 0.75]])
    """
    axis = movement.normal_axes(axis, len(shapes.shape(a)), "softmax")
    weight = alu.alu(_shifted(a, axis), Ops.EXP)
    total = movement.reduce(weight, "add", axis, keepdims=True)
    return alu.alu(weight, Ops.MUL, alu.alu(total, Ops.RECIPROCAL))


@rounded_once
def log_softmax(a: UOp, axis: Any = -1) -> UOp:
    """The logarithm of softmax, accurate where softmax is near 0.

    The result has the shape of `a`; integers are made floats first.

    Examples:
        >>> x = uopc.constant([0.0, 1000.0])
        >>> uopc.compile(x.log_softmax())()
        array([-1000.,     0.])
    """
    axis = movement.normal_axes(axis, len(shapes.shape(a)), "log_softmax")
    x = _shifted(a, axis)
    total = movement.reduce(alu.alu(x, Ops.EXP), "add", axis, keepdims=True)
    return alu.binary(Ops.SUB, x, alu.alu(total, Ops.LOG))


def logsumexp(a: UOp, axis: Any = None, keepdims: bool = False) -> UOp:
    """log of the sum of e^a along the axes (all without `axis`), without overflow in between.

    -inf over no elements.

    Examples:
        >>> x = uopc.constant([1000.0, 1000.0])
        >>> uopc.compile(x.logsumexp())()
        array(1000.69314718)
    """
    axes = movement.normal_axes(axis, len(shapes.shape(a)), "logsumexp")
    return _logsumexp(a, axes, checks.flag("logsumexp", "keepdims", keepdims))


@rounded_once
def _logsumexp(a: UOp, axes: tuple[int, ...], keepdims: bool) -> UOp:
    most = elementwise.detach(movement.reduce(a, "max", axes, keepdims=True))
    base = alu.where(isfinite(most), most, leaves.const(a.dtype, 0))
    weight = alu.alu(alu.binary(Ops.SUB, a, base), Ops.EXP)
    total = alu.alu(movement.reduce(weight, "add", axes, keepdims=True), Ops.LOG)
    whole = alu.binary(Ops.ADD, total, base)
    if keepdims:
        return whole
    kept = [d for i, d in enumerate(shapes.shape(a)) if i not in axes]
    return movement.reshape(whole, tuple(kept))


def layer_norm(a: UOp, weight: Operand = None, bias: Operand = None, eps: float = 1e-5) -> UOp:
    """(a - mean) / sqrt(variance + eps) over the last axis, times weight, plus bias.

    weight and bias broadcast to the shape of `a`; UserError where they do not, or for a scalar. (J.
    L. Ba, J. R. Kiros and G. E. Hinton, 2016.)

    Examples:
        >>> x = uopc.constant([[1.0, 3.0], [5.0, 5.0]])
        >>> uopc.compile(x.layer_norm(bias=np.array([10.0, 20.0])))().round(3)
        array([[ 9., 21.],
               [10., 20.]])
    """
    x, given, last = _wide_with("layer_norm", a, weight, bias)
    away = alu.binary(Ops.SUB, x, average(x, last, keepdims=True))
    return cast(_scaled(away, last, weight, bias, eps), given)


def rms_norm(a: UOp, weight: Operand = None, eps: float = 1e-6) -> UOp:
    """a / sqrt(mean of a² + eps) over the last axis, times weight.

    weight broadcasts to the shape of `a`; UserError where it does not, or for a scalar. (B. Zhang
    and R. Sennrich, 2019.)

    Examples:
        >>> x = uopc.constant([3.0, 4.0])
        >>> uopc.compile(x.rms_norm())().round(4)
        array([0.8485, 1.1314])
    """
    x, given, last = _wide_with("rms_norm", a, weight)
    return cast(_scaled(x, last, weight, None, eps), given)


def _wide_with(who: str, a: UOp, *others: Operand) -> tuple[UOp, DType, tuple[int, ...]]:
    """`a` in the dtype to compute in, the dtype of the result, and the last axis."""
    rank = len(shapes.shape(a))
    if not rank:
        raise UserError(f"{who}: a scalar has no last axis")
    given = elementwise.as_float(a).dtype
    for o in others:
        if o is not None:
            given = dtypes.promote(given, operands.as_uop(o, given).dtype)
    return cast(a, dtypes.accumulator(given)), given, (rank - 1,)


def _scaled(x: UOp, last: tuple[int, ...], weight: Operand, bias: Operand, eps: float) -> UOp:
    """x over the root of its mean square, times weight, plus bias."""
    square = average(alu.alu(x, Ops.MUL, x), last, keepdims=True)
    root = alu.alu(alu.binary(Ops.ADD, square, eps), Ops.SQRT)
    out = alu.alu(x, Ops.MUL, alu.alu(root, Ops.RECIPROCAL))
    for op, other in ((Ops.MUL, weight), (Ops.ADD, bias)):
        if other is not None:
            out = alu.alu(out, op, cast(operands.as_uop(other, x.dtype), x.dtype))
    if shapes.shape(out) != shapes.shape(x):
        raise UserError(
            f"weight and bias must broadcast to {show(shapes.shape(x))},"
            f" together they give {show(shapes.shape(out))}"
        )
    return out


# ---------------------------------------------------------------- products
def product_sum(x: UOp, y: UOp, axes: tuple[int, ...]) -> UOp:
    """Σ x·y over the axes of the common shape."""
    wide = dtypes.accumulator(x.dtype) if x.dtype.is_float else x.dtype
    product = alu.alu(cast(x, wide), Ops.MUL, cast(y, wide))
    return cast(movement.reduce(product, "add", axes), x.dtype)


def matmul(a: Operand, b: Operand) -> UOp:
    """The matrix product as numpy.matmul: vectors, matrices, batches that broadcast.

    The dtype is the common one; integers wrap in it.

    UserError for a scalar, and where the lengths that are summed over differ.

    Examples:
        >>> a, b = uopc.constant([[1, 2], [3, 4]]), uopc.constant([10, 1])
        >>> uopc.compile(a.matmul(b))()
        array([12, 34])
    """
    x, y = operands.paired(a, b, "matmul")
    left, right = shapes.shape(x), shapes.shape(y)
    if not left or not right:
        raise UserError("matmul: scalars have no rows; use *")
    depth = right[-2] if len(right) > 1 else right[0]
    if left[-1] != depth:
        columns, rows = show((left[-1],))[1:-1], show((depth,))[1:-1]
        sizes = f"the left has {columns} columns, the right {rows} rows"
        raise UserError(f"matmul: {show(left)} @ {show(right)}: {sizes}")
    shapes.broadcast([left[:-2], right[:-2]], "matmul")
    if len(right) > 1:  # both as (…, i, j, k), the missing axes of size 1
        rank = len(right)
        y = movement.permute(y, (*range(rank - 2), rank - 1, rank - 2))
        x = movement.reshape(x, (*left[:-1], 1, depth))
        if len(left) > 1:
            y = movement.reshape(y, (*right[:-2], 1, right[-1], depth))
    last = max(len(shapes.shape(x)), len(shapes.shape(y))) - 1
    return product_sum(x, y, (last,))


def convolve(a: UOp, v: Operand, mode: Literal["full", "same", "valid"] = "full") -> UOp:
    """The convolution of two vectors, as `numpy.convolve`: out[i] is the sum of a[i - j] v[j].

    "full": wherever they overlap, "same": the middle of it, as long as the longer vector, "valid":
    where one covers the other. UserError for another rank, no elements, or variables as sizes.

    The dtypes are promoted.

    Examples:
        >>> x = uopc.constant([1, 2, 3])
        >>> uopc.compile(x.convolve(np.array([1, 10])))()
        array([ 1, 12, 23, 30])
    """
    x, y = operands.paired(a, v, "convolve")
    sizes = [shapes.shape(x), shapes.shape(y)]
    if any(len(s) != 1 or not isinstance(s[0], int) or s[0] == 0 for s in sizes):
        given = " and ".join(map(show, sizes))
        raise UserError(f"convolve: needs two vectors of fixed size with elements, got {given}")
    if mode not in ("full", "same", "valid"):
        raise UserError(f'convolve: mode must be "full", "same" or "valid", got {mode!r}')
    n, m = max(sizes)[0], min(sizes)[0]
    if sizes[0] < sizes[1]:
        x, y = y, x
    edge = 0 if mode == "valid" else m - 1
    padded = movement.pad(x, ((edge, edge),))
    count, place = _window_axis(n + 2 * edge, m, 1, 1, 1, 0, "convolve")
    out = product_sum(movement.index(padded, place), movement.flip(y, (0,)), (1,))
    begin = (m - 1) // 2 if mode == "same" else 0
    return movement.shrink(out, ((begin, begin + n if mode == "same" else count),))


# ---------------------------------------------------------------- windows over images
def _pair(value: Any, who: str, least: int) -> tuple[int, int]:
    """An int for both axes, or one for each."""
    both = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2 or not all(type(v) is int for v in both):
        raise UserTypeError(f"{who} must be an int or a pair of ints, got {value!r}")
    if min(both) < least:
        raise UserError(f"{who} must be at least {least}, got {value!r}")
    return both


def _axis(n: Dim, after: int) -> UOp:
    """0 … n-1 along an axis with `after` axes behind it."""
    return along(leaves.iota(n), after)


def _strided(outer: UOp, stride: Dim, inner: UOp) -> UOp:
    return alu.binary(Ops.ADD, alu.binary(Ops.MUL, outer, stride), inner)


def _window_axis(
    size: Dim, kernel: Dim, stride: int, dilation: int, after: int, inside: int, who: str
) -> tuple[Dim, UOp]:
    """The number of windows that fit on an axis, and the index of each of their elements. `after`
    axes are behind that of the windows, `inside` behind that of their elements."""
    span = size - dilation * (kernel - 1) - 1
    if isinstance(span, int) and span < 0:
        raise UserError(f"{who}: a window of {kernel} (dilation {dilation}) exceeds {size}")
    count = as_dim(span // stride + 1)
    element = alu.binary(Ops.MUL, _axis(kernel, inside), dilation)
    return count, _strided(_axis(count, after), stride, element)


def _images(a: UOp, who: str) -> shapes.Shape:
    dims = shapes.shape(a)
    if len(dims) != 4:
        raise UserError(f"{who}: needs (batch, channels, rows, columns), got {show(dims)}")
    return dims


def conv2d(
    a: UOp, w: Operand, bias: Operand = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> UOp:  # fmt: skip
    """Cross-correlation of images (batch, channels, rows, columns) with w (out, channels per group,
    rows, columns), as torch's conv2d; stride, padding and dilation are ints or (rows, columns).

    The result has shape (batch, out, rows, columns); bias has shape (out,). UserError where shapes
    do not fit.

    Examples:
        >>> image = uopc.constant(np.arange(9.0).reshape(1, 1, 3, 3))
        >>> edges = np.array([[[[1.0, -1.0]]]])
        >>> uopc.compile(image.conv2d(edges))()[0, 0]
        array([[-1., -1.],
               [-1., -1.],
               [-1., -1.]])
    """
    x, y = operands.paired(a, w)
    batch, channels, height, width = _images(x, "conv2d")
    outs, depth, kh, kw = _images(y, "conv2d: the weight")
    _check_groups(channels, outs, depth, groups)
    sy, sx = _pair(stride, "conv2d: stride", 1)
    dy, dx = _pair(dilation, "conv2d: dilation", 1)
    py, px = _pair(padding, "conv2d: padding", 0)
    # Axes: batch, (group,) out, oh, ow | channel, kh, kw. The last three are summed.
    oh, row = _window_axis(height + 2 * py, kh, sy, dy, 4, 1, "conv2d")
    ow, column = _window_axis(width + 2 * px, kw, sx, dx, 3, 0, "conv2d")
    channel = _axis(depth, 2)
    if groups > 1:
        channel = _strided(_axis(groups, 6), depth, channel)
    grouped = (groups, outs // groups) if groups > 1 else (outs,)
    image = _axis(batch, 6 + (groups > 1))
    padded = movement.pad(x, ((0, 0), (0, 0), (py, py), (px, px)))
    seen = movement.index(padded, image, channel, row, column)
    weight = movement.reshape(y, (*grouped, 1, 1, depth, kh, kw))
    rank = len(grouped) + 6
    out = product_sum(seen, weight, (rank - 3, rank - 2, rank - 1))
    out = movement.reshape(out, (batch, outs, oh, ow))
    if bias is None:
        return out
    b = operands.as_uop(bias, out.dtype)
    if shapes.shape(b) != (outs,):
        given = show(shapes.shape(b))
        raise UserError(f"conv2d: the bias must have shape {show((outs,))}, got {given}")
    return alu.binary(Ops.ADD, out, movement.reshape(b, (outs, 1, 1)))


def _check_groups(channels: Dim, outs: Dim, depth: Dim, groups: Any) -> None:
    if type(groups) is not int or groups < 1:
        raise UserError(f"conv2d: groups must be a positive int, got {groups!r}")
    wanted = depth * groups
    if wanted != channels:
        raise UserError(
            f"conv2d: {channels} channels in {groups} groups, but the weight has {depth} per group"
        )
    if groups > 1 and (not isinstance(outs, int) or outs % groups):
        raise UserError(f"conv2d: {outs} outputs do not split in {groups} groups")


def _windows(a: UOp, kernel_size: Any, stride: Any, padding: Any, fill: Any, who: str) -> UOp:
    """(batch, channels, oh, ow, kh, kw): the elements under each window."""
    batch, channels, height, width = _images(a, who)
    kh, kw = _pair(kernel_size, f"{who}: kernel_size", 1)
    sy, sx = _pair(kernel_size if stride is None else stride, f"{who}: stride", 1)
    py, px = _pair(padding, f"{who}: padding", 0)
    _, row = _window_axis(height + 2 * py, kh, sy, 1, 3, 1, who)
    _, column = _window_axis(width + 2 * px, kw, sx, 1, 2, 0, who)
    padded = movement.pad(a, ((0, 0), (0, 0), (py, py), (px, px)), fill)
    return movement.index(padded, _axis(batch, 5), _axis(channels, 4), row, column)


def max_pool2d(a: UOp, kernel_size: Any, stride: Any = None, padding: Any = 0) -> UOp:
    """The greatest element under each window (stride: the kernel size by default); NaN if there is
    one. Padding counts as the least value of the dtype.

    `a` has shape (batch, channels, rows, columns).

    Examples:
        >>> image = uopc.constant(np.arange(16).reshape(1, 1, 4, 4))
        >>> uopc.compile(image.max_pool2d(2))()[0, 0]
        array([[ 5,  7],
               [13, 15]])
    """
    least = intervals.of_type(a.dtype)[0]
    seen = _windows(a, kernel_size, stride, padding, least, "max_pool2d")
    return movement.reduce(seen, "max", (4, 5))


def avg_pool2d(a: UOp, kernel_size: Any, stride: Any = None, padding: Any = 0) -> UOp:
    """The mean of the elements under each window, padding counted as zeros; of integers float32.

    `a` has shape (batch, channels, rows, columns).

    Examples:
        >>> image = uopc.constant(np.arange(16.0).reshape(1, 1, 4, 4))
        >>> uopc.compile(image.avg_pool2d(2))()[0, 0]
        array([[ 2.5,  4.5],
               [10.5, 12.5]])
    """
    given = a.dtype if a.dtype.is_float else dtypes.float32
    x = cast(a, dtypes.accumulator(given))
    seen = _windows(x, kernel_size, stride, padding, 0, "avg_pool2d")
    return cast(average(seen, (4, 5), keepdims=False), given)
