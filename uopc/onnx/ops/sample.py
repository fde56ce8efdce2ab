"""Images sampled at computed places, boxes, and values put back where windows took them."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported
from uopc.ir.core.dtypes import DType
from uopc.onnx.node import Node, dims, few, fixed
from uopc.onnx.ops.windows import windows_of
from uopc.onnx.registry import op
from uopc.onnx.values import is_known
from uopc.tensor.sorts.suppression import suppressed

# For each axis of an image: whole places, and the weight of each (None: 1).
Taps = list[list[tuple[UOp, Any]]]
# The most samples along an axis of a cell, where a box says how many.
MOST_SAMPLES = 1 << 15


@op("GridSample")
def grid_sample(n: Node) -> UOp:
    """Sample an image at the places of a grid, x first; -1 and 1 are the ends of the image."""
    x, grid = n.x(0), n.x(1)
    sizes = _numbers(dims(x)[2:], grid.dtype)
    rank = len(sizes)
    mode = n.attr("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    corners = bool(n.attr("align_corners", 0))
    at = []
    for i, size in enumerate(sizes):
        v = grid[..., rank - 1 - i]
        at.append((v + 1) * ((size - 1) / 2) if corners else ((v + 1) * size - 1) * 0.5)
    padding = n.attr("padding_mode", "zeros")
    if padding != "zeros" and mode != "cubic":
        at = [_inside(v, size, padding, corners) for v, size in zip(at, sizes)]
    taps: Taps = []
    for v in at:
        if mode == "nearest":
            taps.append([(v.round(), None)])
        elif mode == "linear":
            taps += _linear([v])
        elif mode == "cubic":
            taps.append([(v.floor() + (k - 1), w) for k, w in enumerate(_cubic(v - v.floor()))])
        else:
            raise Unsupported(f"mode {mode} is not supported")
    return _added(_weighted_elements(x, taps, padding, corners)).cast(x.dtype)


def _linear(at: list[UOp]) -> Taps:
    """The two neighbours along each axis, and their weights."""
    return [[(v.floor(), 1 - (v - v.floor())), (v.floor() + 1, v - v.floor())] for v in at]


def _added(parts: list[UOp]) -> UOp:
    return functools.reduce(operator.add, parts)


def _weighted_elements(x: UOp, taps: Taps, padding: str, corners: bool) -> list[UOp]:
    """The elements at all combinations of taps, each multiplied by the weights of its taps."""
    parts = []
    for chosen in _combined(taps):
        part = _pixel(x, [c[0] for c in chosen], padding, corners)
        for _, weight in chosen:
            part = part if weight is None else part * weight.unsqueeze(1)
        parts.append(part)
    return parts


def _combined(taps: list[list[tuple[UOp, Any]]]) -> list[list[tuple[UOp, Any]]]:
    found: list[list[tuple[UOp, Any]]] = [[]]
    for axis in taps:
        found = [[*row, tap] for row in found for tap in axis]
    return found


def _cubic(t: UOp) -> list[UOp]:
    a = -0.75

    def far(d: UOp) -> UOp:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

    def near(d: UOp) -> UOp:
        return ((d * (a + 2) - (a + 3)) * d) * d + 1

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _numbers(sizes: Any, dtype: DType) -> list[Any]:
    """Sizes as floats, or as UOps of a float dtype."""
    return [float(d) if isinstance(d, int) else d.cast(dtype) for d in sizes]


def _inside(v: UOp, size: Any, padding: str, corners: bool) -> UOp:
    """Move a place into the image: to the border, or by reflection."""
    if padding == "border":
        return v.clip(0.0, size - 1.0)
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    span = high - low
    if isinstance(span, UOp):
        span = span.maximum(0.5)  # of one pixel, where all turns end in it
    elif span <= 0:
        return v * 0
    d = (v - low).abs()
    turns = (d / span).floor()
    rest = d - turns * span
    odd = (turns - 2 * (turns / 2).floor()) > 0
    return (uopc.where(odd, span - rest, rest) + low).clip(0.0, size - 1.0)


def _pixel(x: UOp, at: list[UOp], padding: str, corners: bool) -> UOp:
    """(batch, channels, places...): the elements at integer places, 0 outside of the image."""
    sizes = _numbers(dims(x)[2:], at[0].dtype)
    if padding != "zeros":
        at = [_inside(v, size, padding, corners) for v, size in zip(at, sizes)]
    valid = functools.reduce(
        operator.and_, [(v >= 0) & (v <= size - 1) for v, size in zip(at, sizes)]
    )
    keys = [v.clip(0.0, size - 1.0).cast(dtypes.int64) for v, size in zip(at, sizes)]
    batch, channels = dims(x)[:2]
    lead = [1] * (len(keys[0].shape) - 1)
    first = uopc.arange(batch, dtype=dtypes.int64).reshape(batch, 1, *lead)
    second = uopc.arange(channels, dtype=dtypes.int64).reshape(1, channels, *lead)
    found = x[(first, second, *[k.unsqueeze(1) for k in keys])]
    return uopc.where(valid.unsqueeze(1), found, 0.0)


# ---------------------------------------------------------------- regions
@op("RoiAlign", since=16)
def roi_align(n: Node) -> UOp:
    """The mean, or the greatest weighted pixel, of samples in each cell of a grid over each box."""
    x, boxes, image = n.x(0), n.x(1), n.x(2)
    half = n.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    cells = n.attr("output_height", 1), n.attr("output_width", 1)
    sides = []
    for i in range(2):
        begin, end = (boxes[:, k] * n.number("spatial_scale", 1.0) - 0.5 * half
                      for k in (1 - i, 3 - i))  # fmt: skip
        sides.append((begin, end - begin if half else (end - begin).maximum(1.0)))
    many, of_box = n.attr("sampling_ratio", 0), x.take(image, 0)
    greatest = n.attr("mode", "avg") == "max"
    if many < 1:
        return _as_many_as_pixels(of_box, sides, cells, greatest).cast(x.dtype)
    at = []
    for i, ((begin, length), count) in enumerate(zip(sides, cells)):
        few(count * many, "RoiAlign")
        share = (np.arange(count * many) + 0.5) / (count * many)
        v = begin.unsqueeze(1) + length.unsqueeze(1) * uopc.constant(share.astype("f4"))
        at.append(v.unsqueeze(2 - i))  # (boxes, rows, 1) and (boxes, 1, columns)
    found, inside = _sampled(of_box, at, greatest)
    found = uopc.where(inside, found, 0.0)
    found = found.reshape(*dims(found)[:2], cells[0], many, cells[1], many)
    found = found.max((3, 5)) if greatest else found.mean((3, 5))
    return found.cast(x.dtype)


def _sampled(x: UOp, at: list[UOp], greatest: bool) -> tuple[UOp, UOp]:
    """Combine the four pixels around each place; also return which places are in the image."""
    sizes = _numbers(dims(x)[2:], at[0].dtype)
    inside = [(v >= -1.0) & (v <= size) for v, size in zip(at, sizes)]
    near = [v.clip(0.0, size - 1.0) for v, size in zip(at, sizes)]
    parts = _weighted_elements(x, _linear(near), "zeros", False)
    found = functools.reduce(UOp.maximum, parts) if greatest else _added(parts)
    return found, (inside[0] & inside[1]).unsqueeze(1)


def _as_many_as_pixels(
    x: UOp, sides: list[tuple[UOp, UOp]], cells: tuple[int, int], greatest: bool
) -> UOp:
    """Loop over the samples of all cells at once; a cell has as many samples as pixels."""
    each = [length / cell for (_, length), cell in zip(sides, cells)]
    counts = [v.ceil().clip(0.0, float(MOST_SAMPLES)).cast(dtypes.int32) for v in each]
    if dims(x)[0] == 0:
        return uopc.full((0, dims(x)[1], *cells), 0.0, x.dtype)
    rows, columns = (c.max() for c in counts)
    none = -math.inf if greatest else 0.0

    def goes(state: Any) -> Any:
        return state[0] < rows * columns

    def after(state: Any) -> Any:
        number, total = state
        at, steps = [], (number // columns, number % columns)
        for i, step in enumerate(steps):
            share = (step.cast(dtypes.float32) + 0.5) * each[i]
            share = share / counts[i].maximum(1).cast(dtypes.float32)
            cell = uopc.arange(cells[i]).cast(dtypes.float32) * each[i].unsqueeze(1)
            at.append((sides[i][0].unsqueeze(1) + cell + share.unsqueeze(1)).unsqueeze(2 - i))
        valid = (steps[0] < counts[0]) & (steps[1] < counts[1])
        found, inside = _sampled(x, at, greatest)
        found = uopc.where(inside, found, 0.0)
        found = uopc.where(valid.reshape(-1, 1, 1, 1), found, none).cast(dtypes.float32)
        return number + 1, total.maximum(found) if greatest else total + found

    start = uopc.full((*dims(x)[:2], *cells), none, dtypes.float32)
    _, made = uopc.while_loop(goes, after, (uopc.constant(0, dtypes.int32), start))
    total: UOp = made
    if greatest:
        return uopc.where(total.isinf(), 0.0, total)
    return total / (counts[0] * counts[1]).maximum(1).cast(dtypes.float32).reshape(-1, 1, 1, 1)


@op("RoiAlign")
def roi_align_10(n: Node) -> Any:
    """Versions before 16: the boxes have whole pixels."""
    n.attributes |= {"coordinate_transformation_mode": "output_half_pixel"}
    return roi_align(n)


@op("DeformConv")
def deform_conv(n: Node) -> UOp:
    """Convolve, reading each element at a place with an offset, and multiply it by a mask."""
    x, w, offset, mask = n.x(0), n.x(1), n.x(2), n.maybe(4)
    batch, channels, *sizes = dims(x)
    kernel = [fixed(d, "DeformConv: a size of the kernel") for d in dims(w)[2:]]
    rank, parts = len(sizes), n.attr("offset_group", 1)
    places = list(dims(offset)[2:])
    how = windows_of(n, rank)
    by = offset.reshape(batch * parts, *kernel, rank, *places)
    at = []
    for i in range(rank):
        line, across = [1] * (2 * rank), [1] * (2 * rank)
        line[i], across[rank + i] = kernel[i], places[i]
        tap = np.arange(kernel[i]).reshape(line) * how["dilation"][i] - how["padding"][i][0]
        place = uopc.arange(places[i], dtype=dtypes.int64).reshape(across) * how["stride"][i]
        own = by[(slice(None),) * (1 + rank) + (i,)]
        at.append(own + (place + uopc.constant(tap)).cast(x.dtype))
    split = x.reshape(batch * parts, channels // parts, *sizes)
    seen = _added(_weighted_elements(split, _linear(at), "zeros", True))
    if mask is not None:
        seen = seen * mask.reshape(batch * parts, 1, *kernel, *places)
    groups, outs = n.attr("group", 1), dims(w)[0]
    inner = channels // groups * math.prod(kernel)
    columns = seen.reshape(batch, groups, inner, math.prod(places))
    made = w.reshape(groups, outs // groups, -1).matmul(columns).reshape(batch, outs, *places)
    bias = n.maybe(3)
    return made if bias is None else made + bias.reshape(-1, *[1] * rank)


@op("NonMaxSuppression")
def non_max_suppression(n: Node) -> Any:
    """Select the best boxes of each class that do not overlap better ones."""
    if not all([is_known(n.raw(k)) for k in range(5)]):
        return _suppressed(n)
    boxes, scores, least = n.known(0), n.known(1), n.first(4)
    assert boxes is not None and scores is not None
    limit, allowed = int(n.first(2) or 0), float(n.first(3) or 0)
    found = []
    for batch in range(boxes.shape[0]):
        corners = _corners(boxes[batch], bool(n.attr("center_point_box", 0)))
        for c in range(scores.shape[1]):
            kept: list[int] = []
            for i in np.argsort(-scores[batch, c], kind="stable"):
                if len(kept) >= limit:
                    break
                if least is not None and scores[batch, c, i] <= least:
                    break
                if all([_shared(corners[i], corners[k]) <= allowed for k in kept]):
                    kept.append(int(i))
            found += [[batch, c, i] for i in kept]
    return np.asarray(found, np.int64).reshape(-1, 3)


def _suppressed(n: Node) -> UOp:
    """`non_max_suppression` of values."""
    boxes, scores = n.x(0).cast(dtypes.float32), n.x(1).cast(dtypes.float32)
    first, last = boxes[..., :2], boxes[..., 2:]
    low, high = first.minimum(last), first.maximum(last)
    if n.attr("center_point_box", 0):
        x, y, w, h = [boxes[..., k] for k in range(4)]
        low, high = (uopc.stack(y + s * h / 2, x + s * w / 2, axis=-1) for s in (-1, 1))
    limit = n.x(2) if n.has(2) else uopc.constant(np.int64(0))
    allowed = n.x(3) if n.has(3) else uopc.constant(np.float32(0))
    least = n.x(4) if n.has(4) else uopc.constant(np.float32(-np.inf))
    numbers = [v.reshape(()) for v in (limit.cast(dtypes.int64), allowed, least)]
    return suppressed(low, high, scores, *numbers)


def _corners(boxes: Any, centred: bool) -> Any:
    if centred:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], 1)


def _shared(a: Any, b: Any) -> float:
    """The area of the intersection of two boxes, divided by the area of their union."""
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    both = float(np.prod(np.maximum(high - low, 0)))
    whole = float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - both
    return both / whole if whole > 0 else 0.0


# ---------------------------------------------------------------- windows, put back
@op("Col2Im")
def col2im(n: Node) -> UOp:
    """Add up columns of windows where windows overlap: the transpose of taking windows."""
    x, image, block = n.x(0), n.ints(1), n.ints(2)
    assert image is not None and block is not None
    batch, rows = dims(x)[:2]
    rank = len(block)
    channels = rows // math.prod(block)
    whole = uopc.zeros((batch, channels, *image), x.dtype)
    seen, transposed = uopc.vjp(lambda a: a.windows(block, **windows_of(n, rank)), whole)
    columns = x.reshape(batch, channels, *block, *dims(seen)[2 : 2 + rank])
    places = range(2 + rank, 2 + 2 * rank)
    made: UOp = transposed(columns.permute(0, 1, *places, *range(2, 2 + rank)))[0]
    return made


@op("MaxUnpool")
def max_unpool(n: Node) -> UOp:
    """Put elements back where MaxPool found them; zeros elsewhere."""
    x, places, wanted = n.x(0), n.x(1), n.ints(2)
    own = dims(x)
    kernel = n.attr("kernel_shape", [])
    rank = len(kernel)
    strides, pads = n.attr("strides", [1] * rank), n.attr("pads", [0] * (2 * rank))
    inner = [
        (own[2 + i] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i] for i in range(rank)
    ]
    shape = [*own[:2], *inner]
    flat = uopc.full((math.prod(shape),), 0.0, x.dtype).at[places.reshape(-1)].set(x.reshape(-1))
    image: UOp = flat.reshape(tuple(shape))
    if wanted is not None and list(wanted) != shape:
        image = image.pad([(0, w - s) for w, s in zip(wanted, shape)])
    return image
