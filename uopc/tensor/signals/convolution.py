"""Convolutions of images with a weight, and their transposes, in any number of dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from uopc.errors import UserError
from uopc.ir.builder import alu, movement, operands
from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, show
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp
from uopc.tensor import examples
from uopc.tensor.examples import with_name
from uopc.tensor.matrices.products import product_sum
from uopc.tensor.signals.geometry import (
    Windows,
    counted,
    edges,
    images,
    moved_edges,
    per_axis,
    strided,
)


# ---------------------------------------------------------------- of vectors
def convolve(a: UOp, v: Operand, mode: Literal["full", "same", "valid"] = "full") -> UOp:
    """The convolution of two vectors, as `numpy.convolve`."""
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
    w = Windows("convolve", (n,), (m,), 1, 0 if mode == "valid" else m - 1, 1)
    (before, after), (count,) = w.edges[0], w.counts
    padded = movement.pad(x, ((before, after),))
    out = product_sum(movement.index(padded, w.axis(0, 0)), movement.flip(y, (0,)), (1,))
    begin = (m - 1) // 2 if mode == "same" else 0
    return movement.shrink(out, ((begin, begin + n if mode == "same" else count),))


# ---------------------------------------------------------------- of images
def conv(
    a: UOp, w: Operand, bias: Operand = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> UOp:  # fmt: skip
    """Cross-correlation in any number of dimensions, as torch's conv1d, conv2d and conv3d.

    `a` has shape (batch, channels, sizes…), w (out, channels per group, sizes…), bias (out,).
    stride and dilation are ints, or one for each size. padding is an int, one for each size, or
    pairs (before, after); or "valid" (none), "same" (a window at every stride; of an odd number one
    more after than before) or "same_lower" (one more before). The result has shape (batch, out,
    …) and the common dtype; sums are in float32 at least. UserError where shapes do not fit.

    Examples:
        >>> signal = uopc.constant([[[1.0, 2.0, 4.0, 8.0]]])
        >>> step = np.array([[[-1.0, 1.0]]])
        >>> uopc.compile(signal.conv(step, padding=((1, 0),)))()[0, 0]
        array([1., 1., 2., 4.])
    """
    return _conv("conv", None, a, w, bias, stride, padding, dilation, groups)


def _of_rank(
    rank: int, of: str, sizes: str, given: str, rest: str, result: str
) -> Callable[..., UOp]:
    """Make `conv` for arrays of this rank; the example uses `given`, and the arguments after it."""
    name = f"conv{rank}d"

    def function(
        a: UOp, w: Operand, bias: Operand = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> UOp:  # fmt: skip
        return _conv(name, rank, a, w, bias, stride, padding, dilation, groups)

    doc = (
        f"`conv` of {of}: (batch, channels, {sizes}) with w (out, channels per group, {sizes})."
        "\n\nThe other arguments are those of `conv`. UserError for another number of dimensions."
    ) + examples.of_method(name, (given, rest, result))
    return with_name(function, __name__, name, doc)


conv1d = _of_rank(
    1, "signals", "length", "[[[1.0, 2.0, 4.0, 8.0]]]", "np.array([[[1.0, 1.0]]]), stride=2",
    "array([[[ 3., 12.]]])",
)  # fmt: skip
conv2d = _of_rank(
    2, "images", "rows, columns", "np.arange(6.0).reshape(1, 1, 2, 3)",
    "np.array([[[[1.0, -1.0]]]])", "array([[[[-1., -1.],\n         [-1., -1.]]]])",
)  # fmt: skip
conv3d = _of_rank(
    3, "volumes", "planes, rows, columns", "np.arange(8.0).reshape(1, 1, 2, 2, 2)",
    "np.ones((1, 1, 2, 2, 2))", "array([[[[[28.]]]]])",
)  # fmt: skip


def _conv(
    who: str, rank: int | None, a: UOp, w: Operand, bias: Operand, stride: Any, padding: Any,
    dilation: Any, groups: int,
) -> UOp:  # fmt: skip
    x, y = operands.paired(a, w)
    batch, channels, *sizes = images(x, who, rank)
    outs, depth, *kernel = images(y, f"{who}: the weight", len(sizes))
    _check_groups(who, channels, outs, depth, groups)
    g = Windows(who, tuple(sizes), tuple(kernel), stride, padding, dilation)
    out = _summed(g, g.padded(x), y, groups)
    return _with_bias(who, movement.reshape(out, (batch, outs, *g.counts)), bias)


def _summed(g: Windows, x: UOp, w: UOp, groups: int) -> UOp:
    """Multiply the elements under the windows by the weight, and sum the products."""
    rank, grouped = len(g.kernel), groups > 1
    outs, depth, *kernel = shapes.shape(w)
    # Axes: batch, (group,) out, places… | channel, kernel…. Those behind the line are summed.
    channel = counted(depth, rank)
    if grouped:
        channel = strided(counted(groups, 2 * rank + 2), depth, channel)
    image = counted(shapes.shape(x)[0], 2 * rank + 2 + grouped)
    seen = movement.index(x, image, channel, *[g.axis(i, 1) for i in range(rank)])
    split = (groups, outs // groups) if grouped else (outs,)
    weight = movement.reshape(w, (*split, *[1] * rank, depth, *kernel))
    first = len(split) + 1 + rank
    return product_sum(seen, weight, tuple(range(first, first + 1 + rank)))


def _with_bias(who: str, out: UOp, bias: Operand) -> UOp:
    if bias is None:
        return out
    outs, rank = shapes.shape(out)[1], len(shapes.shape(out)) - 2
    b = operands.as_uop(bias, out.dtype)
    if shapes.shape(b) != (outs,):
        given = show(shapes.shape(b))
        raise UserError(f"{who}: the bias must have shape {show((outs,))}, got {given}")
    return alu.binary(Ops.ADD, out, movement.reshape(b, (outs, *[1] * rank)))


def _check_groups(who: str, channels: Dim, outs: Dim, depth: Dim, groups: Any) -> None:
    _positive(who, groups)
    wanted = depth * groups
    if wanted != channels:
        raise UserError(
            f"{who}: {channels} channels in {groups} groups, but the weight has {depth} per group"
        )
    if groups > 1 and (not isinstance(outs, int) or outs % groups):
        raise UserError(f"{who}: {outs} outputs do not divide into {groups} groups")


def _positive(who: str, groups: Any) -> None:
    if type(groups) is not int or groups < 1:
        raise UserError(f"{who}: groups must be a positive int, got {groups!r}")


# ---------------------------------------------------------------- transposed
def conv_transpose(
    a: UOp, w: Operand, bias: Operand = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> UOp:  # fmt: skip
    """The transpose of `conv` as a linear function, as torch's conv_transpose1d, 2d and 3d: each
    element of `a` adds its multiple of the weight to the result, `stride` apart.

    `a` has shape (batch, channels, sizes…), w (channels, out per group, sizes…), bias (out,).
    padding (an int, one for each size, or pairs) is removed from the ends of the result,
    output_padding added to its far ends: an axis has (size - 1) * stride + dilation * (kernel - 1)
    + 1 - before - after + output_padding elements. UserError where shapes do not fit.

    A stride of s is s convolutions with every s-th element of the weight; their results alternate
    (W. Shi et al., Is the deconvolution layer the same as a convolutional layer?, 2016).

    Examples:
        >>> signal = uopc.constant([[[1.0, 10.0]]])
        >>> weight = np.array([[[1.0, 2.0, 3.0]]])
        >>> uopc.compile(signal.conv_transpose(weight, stride=2))()[0, 0]
        array([ 1.,  2., 13., 20., 30.])
    """
    who = "conv_transpose"
    x, y = operands.paired(a, w)
    batch, channels, *sizes = images(x, who)
    rank = len(sizes)
    inner, depth, *kernel = images(y, f"{who}: the weight", rank)
    _positive(who, groups)
    if inner != channels:
        raise UserError(f"{who}: {channels} channels, but the weight is for {inner}")
    if groups > 1 and (not isinstance(inner, int) or inner % groups):
        raise UserError(f"{who}: {inner} channels do not divide into {groups} groups")
    steps = per_axis(stride, rank, f"{who}: stride", 1)
    apart = per_axis(dilation, rank, f"{who}: dilation", 1)
    more = per_axis(output_padding, rank, f"{who}: output_padding", 0)
    cut = edges(padding, rank, f"{who}: padding")
    if not all(isinstance(k, int) and k > 0 for k in kernel):
        raise UserError(f"{who}: the weight must have elements, got {show(shapes.shape(y))}")
    for i, step in enumerate(steps):  # zeros between the elements of the weight
        if step > 1 and apart[i] > 1:
            y, kernel[i], apart[i] = _dilated(y, 2 + i, apart[i])
    # Each of `step` phases has the weight's elements phase, phase + step, …, backwards.
    parts = [-(-k // s) for k, s in zip(kernel, steps)]
    phases = _phases(y, groups, steps, parts)
    reach = [(p - 1) * d for p, d in zip(parts, apart)]
    g = Windows(who, tuple(sizes), tuple(parts), 1, reach, apart)
    out = _interleaved(_summed(g, g.padded(x), phases, groups), batch, groups * depth, steps, g)
    ends = [
        (-before, o - after - (s * p - k))  # the phases of the last element may have more
        for (before, after), o, k, s, p in zip(cut, more, kernel, steps, parts)
    ]
    return _with_bias(who, _ended(who, out, ends), bias)


def _dilated(w: UOp, axis: int, apart: int) -> tuple[UOp, int, int]:
    """Insert zeros between the weight's elements; also return its new size along the axis, and a
    dilation of 1."""
    dims = list(shapes.shape(w))
    k = dims[axis]
    wide = movement.reshape(w, (*dims[: axis + 1], 1, *dims[axis + 1 :]))
    gaps = [(0, apart - 1 if i == axis + 1 else 0) for i in range(len(dims) + 1)]
    wide = movement.pad(wide, gaps)
    dims[axis] = k * apart
    span = (k - 1) * apart + 1
    kept = [(0, span if i == axis else n) for i, n in enumerate(dims)]
    return movement.shrink(movement.reshape(wide, tuple(dims)), kept), span, 1


def _phases(w: UOp, groups: int, steps: list[int], parts: list[int]) -> UOp:
    """(groups * depth * phases, inner per group, parts…): the weights of all phases."""
    inner, depth, *kernel = shapes.shape(w)
    rank, own = len(kernel), inner // groups
    more = [(0, s * p - k) for s, p, k in zip(steps, parts, kernel)]
    w = movement.pad(w, [(0, 0), (0, 0), *more])
    split = [n for s, p in zip(steps, parts) for n in (p, s)]
    w = movement.reshape(w, (groups, own, depth, *split))
    part, phase = range(3, 3 + 2 * rank, 2), range(4, 3 + 2 * rank, 2)
    w = movement.permute(movement.flip(w, tuple(part)), (0, 2, *phase, 1, *part))
    return movement.reshape(w, (groups * depth * math.prod(steps), own, *parts))


def _interleaved(out: UOp, batch: Dim, outs: Dim, steps: list[int], g: Windows) -> UOp:
    """(batch, outs, sizes…): interleave the phases of each place."""
    rank = len(steps)
    out = movement.reshape(out, (batch, outs, *steps, *g.counts))
    order = [axis for i in range(rank) for axis in (2 + rank + i, 2 + i)]
    out = movement.permute(out, (0, 1, *order))
    return movement.reshape(out, (batch, outs, *[c * s for c, s in zip(g.counts, steps)]))


def _ended(who: str, out: UOp, by: list[tuple[int, int]]) -> UOp:
    for n, (before, after) in zip(shapes.shape(out)[2:], by):
        if isinstance(n, int) and n + before + after < 0:
            raise UserError(f"{who}: padding removes more than the {n} elements of an axis")
    return moved_edges(out, by)
