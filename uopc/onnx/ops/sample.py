"""Images at computed places, boxes, and values put back where windows took them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported
from uopc.onnx.node import Node, dims, fixed
from uopc.onnx.ops.windows import Geometry
from uopc.onnx.registry import op


@op("GridSample")
def grid_sample(n: Node) -> UOp:
    """The image at the places of a grid, which has x first; -1 to 1 are its ends."""
    x, grid = n.x(0), n.x(1)
    sizes = fixed(x, "GridSample")[2:]
    rank = len(sizes)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(n.attr("mode", "linear"))
    mode = n.attr("mode", "linear") if mode is None else mode
    corners = bool(n.attr("align_corners", 0))
    at = []
    for i, size in enumerate(sizes):
        v = grid[..., rank - 1 - i]
        at.append((v + 1) * ((size - 1) / 2) if corners else ((v + 1) * size - 1) * 0.5)
    padding = n.attr("padding_mode", "zeros")
    if padding != "zeros" and mode != "cubic":
        at = [_inside(v, size, padding, corners) for v, size in zip(at, sizes)]
    taps: list[list[tuple[UOp, Any]]] = []
    for v in at:
        low = v.floor()
        t = v - low
        if mode == "nearest":
            taps.append([(v.round(), None)])
        elif mode == "linear":
            taps.append([(low, 1 - t), (low + 1, t)])
        elif mode == "cubic":
            taps.append([(low + (k - 1), w) for k, w in enumerate(_cubic(t))])
        else:
            raise Unsupported(f"GridSample by {mode}")
    total: UOp | None = None
    for chosen in _combined(taps):
        part = _pixel(x, [c[0] for c in chosen], sizes, padding, corners)
        for _, weight in chosen:
            part = part if weight is None else part * weight.unsqueeze(1)
        total = part if total is None else total + part
    assert total is not None
    return total.cast(x.dtype)


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


def _inside(v: UOp, size: int, padding: str, corners: bool) -> UOp:
    """A place within the image: at its border, or reflected."""
    if padding == "border":
        return v.clip(0.0, float(size - 1))
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return v * 0
    d = (v - low).abs()
    turns = (d / span).floor()
    rest = d - turns * span
    odd = (turns - 2 * (turns / 2).floor()) > 0
    return (uopc.where(odd, span - rest, rest) + low).clip(0.0, float(size - 1))


def _pixel(x: UOp, at: list[UOp], sizes: Any, padding: str, corners: bool) -> UOp:
    """(batch, channels, places...): the elements at whole places, 0 outside."""
    if padding != "zeros":
        at = [_inside(v, size, padding, corners) for v, size in zip(at, sizes)]
    valid: UOp | None = None
    keys = []
    for v, size in zip(at, sizes):
        here = (v >= 0) & (v <= size - 1)
        valid = here if valid is None else valid & here
        keys.append(v.clip(0.0, float(size - 1)).cast(dtypes.int64))
    assert valid is not None
    batch, channels = dims(x)[:2]
    lead = [1] * (len(keys[0].shape) - 1)
    first = uopc.arange(batch, dtype=dtypes.int64).reshape(batch, 1, *lead)
    second = uopc.arange(channels, dtype=dtypes.int64).reshape(1, channels, *lead)
    found = x[(first, second, *[k.unsqueeze(1) for k in keys])]
    return uopc.where(valid.unsqueeze(1), found, 0.0)


@op("NonMaxSuppression")
def non_max_suppression(n: Node) -> Any:
    """The best boxes of each class that do not overlap better ones, of values known now."""
    boxes, scores, most, overlap, least = (n.known(k) for k in range(5))
    assert boxes is not None and scores is not None
    limit = 0 if most is None else int(most.reshape(-1)[0])
    allowed = 0.0 if overlap is None else float(overlap.reshape(-1)[0])
    found = []
    for batch in range(boxes.shape[0]):
        corners = _corners(boxes[batch], bool(n.attr("center_point_box", 0)))
        for c in range(scores.shape[1]):
            kept: list[int] = []
            for i in np.argsort(-scores[batch, c], kind="stable"):
                if len(kept) >= limit:
                    break
                if least is not None and scores[batch, c, i] <= least.reshape(-1)[0]:
                    break
                if all([_shared(corners[i], corners[k]) <= allowed for k in kept]):
                    kept.append(int(i))
            found += [[batch, c, i] for i in kept]
    return np.asarray(found, np.int64).reshape(-1, 3)


def _corners(boxes: Any, centred: bool) -> Any:
    if centred:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], 1)


def _shared(a: Any, b: Any) -> float:
    """What two boxes share, as a part of what both cover."""
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    both = float(np.prod(np.maximum(high - low, 0)))
    whole = float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - both
    return both / whole if whole > 0 else 0.0


# ---------------------------------------------------------------- windows, put back
@op("Col2Im")
def col2im(n: Node) -> UOp:
    """Columns of windows added up where they overlap."""
    x, image, block = n.x(0), n.ints(1), n.ints(2)
    assert image is not None and block is not None
    g = Geometry(n, image, block)
    batch, rows = dims(x)[:2]
    channels = rows // math.prod(block)
    counts = g.counts()
    wide = [size + a + b for size, (a, b) in zip(g.sizes, g.pads)]
    values = x.reshape(batch, channels, *block, *counts)
    keys: list[Any] = []
    rank = len(block)
    for i in range(rank):
        tap = uopc.arange(block[i], dtype=dtypes.int64) * g.dilations[i]
        place = uopc.arange(counts[i], dtype=dtypes.int64) * g.strides[i]
        line, across = [1] * (2 * rank), [1] * (2 * rank)
        line[i], across[rank + i] = block[i], counts[i]
        keys.append(tap.reshape(tuple(line)) + place.reshape(tuple(across)))
    whole = uopc.full((batch, channels, *wide), 0.0, x.dtype)
    made = whole.at[(slice(None), slice(None), *keys)].add(values)
    inside = tuple([slice(a, a + size) for size, (a, _) in zip(g.sizes, g.pads)])
    found: UOp = made[(slice(None), slice(None), *inside)]
    return found


@op("MaxUnpool")
def max_unpool(n: Node) -> UOp:
    """Elements put back where MaxPool found them, zeros elsewhere."""
    x, places, wanted = n.x(0), n.x(1), n.ints(2)
    own = fixed(x, "MaxUnpool")
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


# ---------------------------------------------------------------- tables of features
@op("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(n: Node) -> UOp:
    """Columns by their numbers."""
    x, places = n.x(0), n.x(1)
    found = x.take(places.reshape(-1), len(x.shape) - 1)
    return found.reshape(1, -1) if len(x.shape) == 1 else found


@op("Binarizer", domain="ai.onnx.ml")
def binarizer(n: Node) -> UOp:
    x = n.x(0)
    return (x > n.number("threshold", 0.0)).cast(x.dtype)
