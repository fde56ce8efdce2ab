"""Convolutions, pools and resizing: windows along the spatial axes, in any number of dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported, UserError
from uopc.onnx.node import Node, dims, fixed
from uopc.onnx.registry import op

Pads = list[tuple[int, int]]


class Geometry:
    """Kernel, strides, dilations and pads of a window, as attributes give them."""

    def __init__(self, n: Node, sizes: Sequence[int], kernel: Sequence[int]) -> None:
        rank = len(kernel)
        self.kernel = list(kernel)
        self.strides = list(n.attr("strides", [1] * rank))
        self.dilations = list(n.attr("dilations", [1] * rank))
        self.sizes = list(sizes)
        if min(self.strides + self.dilations + [1]) < 1:
            raise UserError(f"strides {self.strides}, dilations {self.dilations}")
        self.spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations)]
        self.pads = self._pads(n)
        self.ceil = bool(n.attr("ceil_mode", 0))
        if self.ceil:
            self._widen()

    def _pads(self, n: Node) -> Pads:
        mode, rank = n.attr("auto_pad", "NOTSET"), len(self.kernel)
        if mode == "VALID":
            return [(0, 0)] * rank
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            found = []
            for size, span, stride in zip(self.sizes, self.spans, self.strides):
                total = max((-(-size // stride) - 1) * stride + span - size, 0)
                half = total // 2
                found.append((half, total - half) if mode == "SAME_UPPER" else (total - half, half))
            return found
        given = list(n.attr("pads", [0] * (2 * rank)))
        return list(zip(given[:rank], given[rank:]))

    def _widen(self) -> None:
        """More pads at the end, so that the last window begins inside of what there is."""
        for i, (a, b) in enumerate(self.pads):
            room = self.sizes[i] + a + b - self.spans[i]
            count = -(-room // self.strides[i])
            if count * self.strides[i] >= self.sizes[i] + a:
                count -= 1
            self.pads[i] = a, b + max(count * self.strides[i] - room, 0)

    def padded(self, x: UOp, value: Any = 0) -> UOp:
        if not any([a or b for a, b in self.pads]):
            return x
        return x.pad([(0, 0), (0, 0), *self.pads], value)

    def counts(self) -> list[int]:
        return [
            (size + a + b - span) // stride + 1
            for size, (a, b), span, stride in zip(self.sizes, self.pads, self.spans, self.strides)
        ]

    def windows(self, x: UOp, value: Any = 0) -> UOp:
        """(batch, channels, places..., kernel...)"""
        x = self.padded(x, value)
        rank = len(self.kernel)
        keys: list[Any] = [slice(None), slice(None)]
        for i, (count, stride) in enumerate(zip(self.counts(), self.strides)):
            place = uopc.arange(count, dtype=dtypes.int64) * stride
            tap = uopc.arange(self.kernel[i], dtype=dtypes.int64) * self.dilations[i]
            line = [1] * (2 * rank)
            line[i] = count
            across = [1] * (2 * rank)
            across[rank + i] = self.kernel[i]
            keys.append(place.reshape(tuple(line)) + tap.reshape(tuple(across)))
        return x[tuple(keys)]


# ---------------------------------------------------------------- convolutions
def convolved(n: Node, x: UOp, w: UOp, bias: UOp | None = None) -> UOp:
    """Conv of images with a weight, in any number of dimensions."""
    sizes, kernel = fixed_tail(x), fixed(w, "Conv: the weight")[2:]
    if list(n.attr("kernel_shape", kernel)) != list(kernel):
        raise UserError(f"kernel_shape {n.attr('kernel_shape', [])} of a weight {dims(w)}")
    g, groups = Geometry(n, sizes, kernel), n.attr("group", 1)
    rank = len(kernel)
    x = g.padded(x)
    if rank == 1:
        x, w = x.unsqueeze(2), w.unsqueeze(2)
        y = x.conv2d(w, None, (1, g.strides[0]), 0, (1, g.dilations[0]), groups)
        y = y.reshape(dims(y)[0], dims(y)[1], dims(y)[3])
    elif rank == 2:
        y = x.conv2d(w, None, tuple(g.strides), 0, tuple(g.dilations), groups)
    else:
        g.pads, g.sizes = [(0, 0)] * rank, list(fixed_tail(x))
        y = _by_windows(g, x, w, groups)
    return y if bias is None else y + bias.reshape(1, -1, *[1] * rank)


def _by_windows(g: Geometry, x: UOp, w: UOp, groups: int) -> UOp:
    """A sum of products over all windows, for three dimensions and more."""
    seen = g.windows(x)
    rank, counts = len(g.kernel), g.counts()
    batch = dims(x)[0]
    outs, depth = dims(w)[:2]
    seen = seen.reshape(batch, groups, 1, depth, *counts, *g.kernel)
    taps = w.reshape(1, groups, outs // groups, depth, *[1] * rank, *g.kernel)
    axes = (3, *range(4 + rank, 4 + 2 * rank))
    return (seen * taps).sum(axes).reshape(batch, outs, *counts)


def fixed_tail(x: UOp) -> tuple[int, ...]:
    """The spatial sizes of images, which must be numbers."""
    found = dims(x)[2:]
    if not all([isinstance(d, int) for d in found]):
        raise UserError("spatial sizes must be numbers: pass dims=")
    return found


@op("Conv")
def conv(n: Node) -> UOp:
    return convolved(n, n.x(0), n.x(1), n.maybe(2))


@op("ConvTranspose")
def conv_transpose(n: Node) -> UOp:
    """The convolution of what is spread apart with the turned kernel."""
    x, w, bias = n.x(0), n.x(1), n.maybe(2)
    kernel, groups = fixed(w, "ConvTranspose: the weight")[2:], n.attr("group", 1)
    rank, sizes = len(kernel), fixed_tail(x)
    strides = list(n.attr("strides", [1] * rank))
    dilations = list(n.attr("dilations", [1] * rank))
    more = list(n.attr("output_padding", [0] * rank))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    full = [(s - 1) * t + span + o for s, t, span, o in zip(sizes, strides, spans, more)]
    wanted = n.attr("output_shape", None)
    if wanted is not None or n.attr("auto_pad", "NOTSET").startswith("SAME"):
        wanted = [s * t for s, t in zip(sizes, strides)] if wanted is None else wanted[-rank:]
        total = [f - v for f, v in zip(full, wanted)]
        lower = n.attr("auto_pad", "NOTSET") != "SAME_UPPER"
        pads = [(t - t // 2, t // 2) if lower else (t // 2, t - t // 2) for t in total]
    else:
        given = list(n.attr("pads", [0] * (2 * rank)))
        pads = list(zip(given[:rank], given[rank:]))
    inner, depth = dims(w)[:2]
    for i, stride in enumerate(strides):
        x = _spread(x, 2 + i, stride)
    turned = w.flip(*range(2, 2 + rank)).reshape(groups, inner // groups, depth, *kernel)
    turned = turned.permute(0, 2, 1, *range(3, 3 + rank)).reshape(
        groups * depth, inner // groups, *kernel
    )
    x = _moved_edges(x, [(s - 1 - a, s - 1 - b + o)
                         for s, (a, b), o in zip(spans, pads, more)])  # fmt: skip
    plain = Node([], {"dilations": dilations, "group": groups}, 1, n.version, n.run)
    return convolved(plain, x, turned, bias)


def _spread(x: UOp, axis: int, stride: int) -> UOp:
    """Zeros between the elements of an axis."""
    if stride == 1:
        return x
    own = list(dims(x))
    wide = x.unsqueeze(axis + 1).pad(
        [(0, stride - 1) if i == axis + 1 else (0, 0) for i in range(len(own) + 1)]
    )
    own[axis] = own[axis] * stride
    key = [slice(None)] * len(own)
    key[axis] = slice(0, own[axis] - stride + 1)
    return wide.reshape(tuple(own))[tuple(key)]


def _moved_edges(x: UOp, edges: Pads) -> UOp:
    key: list[Any] = [slice(None), slice(None)]
    for (a, b), d in zip(edges, dims(x)[2:]):
        key.append(slice(max(-a, 0), d - max(-b, 0)))
    wide = [(0, 0), (0, 0), *[(max(a, 0), max(b, 0)) for a, b in edges]]
    return x[tuple(key)].pad(wide)


# ---------------------------------------------------------------- pools
def _pooled(n: Node) -> tuple[UOp, Geometry]:
    x = n.x(0)
    return x, Geometry(n, fixed_tail(x), n.attr("kernel_shape", []))


def _least(x: UOp) -> int:
    return int(np.iinfo(str(x.dtype.numpy)).min)


@op("MaxPool")
def max_pool(n: Node) -> Any:
    """The greatest element of each window; the second output says where it stands."""
    x, g = _pooled(n)
    least = float("-inf") if x.dtype.is_float else _least(x)
    rank = len(g.kernel)
    if rank == 2 and n.outputs == 1 and g.dilations == [1, 1]:
        return g.padded(x, least).max_pool2d(tuple(g.kernel), tuple(g.strides))
    seen = g.windows(x, least)
    counts = g.counts()
    flat = seen.reshape(*dims(x)[:2], *counts, math.prod(g.kernel))
    if n.outputs == 1:
        return flat.max(-1)
    places = flat.argmax(-1).cast(dtypes.int64)
    return flat.max(-1), _indices(n, g, x, places)


def _indices(n: Node, g: Geometry, x: UOp, places: UOp) -> UOp:
    """Where the greatest elements stand in the flat array, column by column if so asked."""
    rank = len(g.kernel)
    sizes, counts = g.sizes, g.counts()
    flat: UOp | None = None
    order = range(rank) if not n.attr("storage_order", 0) else reversed(range(rank))
    for i in order:
        tap = places // math.prod(g.kernel[i + 1 :]) % g.kernel[i]
        line = [counts[i] if k == i + 2 else 1 for k in range(rank + 2)]
        first = uopc.arange(counts[i], dtype=dtypes.int64) * g.strides[i] - g.pads[i][0]
        at = first.reshape(tuple(line)) + tap * g.dilations[i]
        flat = at if flat is None else flat * sizes[i] + at
    assert flat is not None
    batch, channels = dims(x)[:2]
    image = uopc.arange(batch * channels, dtype=dtypes.int64) * math.prod(sizes)
    return flat + image.reshape(batch, channels, *[1] * rank)


@op("AveragePool")
def average_pool(n: Node) -> UOp:
    """The mean of each window; `count_include_pad` says whether pads count."""
    x, g = _pooled(n)
    axes = tuple(range(2 + len(g.kernel), 2 + 2 * len(g.kernel)))
    total = g.windows(x).sum(axes)
    ones = np.ones(g.sizes, bool)
    if n.attr("count_include_pad", 0):
        given = _plain_pads(n, len(g.kernel)) if g.ceil else g.pads
        ones = np.pad(ones, given, constant_values=True)
        wider = [(a[0] - b[0], a[1] - b[1]) for a, b in zip(g.pads, given)]
        ones = np.pad(ones, wider)
    else:
        ones = np.pad(ones, g.pads)
    counts = np.zeros(g.counts())
    for tap in itertools.product(*[range(k) for k in g.kernel]):
        key = tuple([
            slice(t * d, t * d + (c - 1) * s + 1, s)
            for t, d, c, s in zip(tap, g.dilations, g.counts(), g.strides)
        ])  # fmt: skip
        counts += ones[key]
    return (total / uopc.constant(counts).cast(total.dtype)).cast(x.dtype)


def _plain_pads(n: Node, rank: int) -> Pads:
    given = list(n.attr("pads", [0] * (2 * rank)))
    return list(zip(given[:rank], given[rank:]))


@op("LpPool")
def lp_pool(n: Node) -> UOp:
    """The p-norm of each window."""
    x, g = _pooled(n)
    axes = tuple(range(2 + len(g.kernel), 2 + 2 * len(g.kernel)))
    p = n.number("p", 2)
    return (g.windows(x).abs() ** p).sum(axes) ** (1.0 / p)


def _all_of_image(x: UOp) -> tuple[int, ...]:
    return tuple(range(2, len(x.shape)))


@op("GlobalAveragePool")
def global_average_pool(n: Node) -> UOp:
    return n.x(0).mean(_all_of_image(n.x(0)), keepdims=True)


@op("GlobalMaxPool")
def global_max_pool(n: Node) -> UOp:
    return n.x(0).max(_all_of_image(n.x(0)), keepdims=True)


@op("GlobalLpPool")
def global_lp_pool(n: Node) -> UOp:
    x, p = n.x(0), n.number("p", 2)
    return (x.abs() ** p).sum(_all_of_image(x), keepdims=True) ** (1.0 / p)


# ---------------------------------------------------------------- resizing
@op("Resize", since=11)
def resize(n: Node) -> UOp:
    return _resized(n, n.x(0), n.known(2), n.ints(3), n.known(1))


@op("Resize", since=10)
def resize_10(n: Node) -> UOp:
    """Before version 11: places are multiples, rounded down."""
    n.attributes.setdefault("coordinate_transformation_mode", "asymmetric")
    n.attributes.setdefault("nearest_mode", "floor")
    return _resized(n, n.x(0), n.known(1), None, None)


@op("Upsample")
def upsample(n: Node) -> UOp:
    """Resize by scales that an attribute or an input gives."""
    n.attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    scales = n.known(1) if n.has(1) else np.asarray(n.attr("scales", []))
    return _resized(n, n.x(0), scales, None, None)


def _resized(n: Node, x: UOp, scales: Any, sizes: Any, roi: Any) -> UOp:
    own, rank = fixed(x, "Resize"), len(x.shape)
    axes = [a % rank for a in n.attr("axes", list(range(rank)))]
    if sizes is not None:
        wanted = {a: int(s) for a, s in zip(axes, sizes)}
        factors = {a: wanted[a] / own[a] for a in axes}
        policy = n.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            best = (min if policy == "not_larger" else max)(factors.values())
            factors = dict.fromkeys(axes, best)
            wanted = {a: math.floor(own[a] * best + 0.5) for a in axes}
    elif scales is not None and scales.size:
        factors = {a: float(s) for a, s in zip(axes, scales.reshape(-1))}
        wanted = {a: math.floor(own[a] * f) for a, f in factors.items()}
    else:
        raise UserError("Resize: scales or sizes must be given")
    boxes = None if roi is None or not roi.size else np.asarray(roi, float).reshape(2, -1)
    made = x
    for k, a in enumerate(axes):
        box = (0.0, 1.0) if boxes is None else (boxes[0, k], boxes[1, k])
        if wanted[a] != own[a] or factors[a] != 1.0 or box != (0.0, 1.0):
            made = _along(n, made, a, wanted[a], factors[a], box)
    return made.cast(x.dtype)


def _along(
    n: Node, x: UOp, axis: int, count: int, scale: float, box: tuple[float, float]
) -> UOp:
    """One axis: the matrix of weights has a few entries in each row."""
    size, mode = x.shape[axis], n.attr("mode", "nearest")
    at, outside = _places(n, size, count, scale, box)
    if mode == "nearest":
        made = x.take(_nearest(n.attr("nearest_mode", "round_prefer_floor"), at, size), axis)
    else:
        index, weights = _taps(n, mode, at, size, scale)
        rank = len(x.shape)
        found: UOp | None = None
        for tap, weight in zip(index.T, weights.T):
            line = [count if i == axis else 1 for i in range(rank)]
            part = x.take(tap, axis) * uopc.constant(weight).cast(_float(x)).reshape(tuple(line))
            found = part if found is None else found + part
        assert found is not None
        made = found
    if outside is None or not outside.any():
        return made
    line = [count if i == axis else 1 for i in range(len(x.shape))]
    value = n.attr("extrapolation_value", 0.0)
    return uopc.where(uopc.constant(outside).reshape(tuple(line)), value, made)


def _float(x: UOp) -> dtypes.DType:
    return x.dtype if x.dtype.is_float else dtypes.float32


def _places(n: Node, size: int, count: int, scale: float, box: tuple[float, float]) -> Any:
    i = np.arange(count, dtype=np.float64)
    mode = n.attr("coordinate_transformation_mode", "half_pixel")
    whole = scale * size  # before it is rounded down
    if mode == "asymmetric":
        return i / scale, None
    if mode == "align_corners":
        return (np.zeros(count) if whole == 1 else i * (size - 1) / (whole - 1)), None
    if mode == "pytorch_half_pixel":
        return ((i + 0.5) / scale - 0.5 if whole > 1 else np.zeros(count)), None
    if mode == "half_pixel_symmetric":
        shift = size / 2 * (1 - count / whole)
        return shift + (i + 0.5) / scale - 0.5, None
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale, None
    if mode == "tf_crop_and_resize":
        a, b = box
        step = (b - a) * (size - 1) / (whole - 1) if whole > 1 else 0.0
        at = a * (size - 1) + i * step if whole > 1 else np.full(count, 0.5 * (a + b) * (size - 1))
        return at, (at < 0) | (at > size - 1)
    if mode != "half_pixel":
        raise Unsupported(f"Resize by {mode}")
    return (i + 0.5) / scale - 0.5, None


def _nearest(mode: str, at: Any, size: int) -> Any:
    rounded: dict[str, Any] = {
        "floor": np.floor, "ceil": np.ceil, "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
    }  # fmt: skip
    return rounded[mode](at).astype(np.int64).clip(0, size - 1)


def _taps(n: Node, mode: str, at: Any, size: int, scale: float) -> tuple[Any, Any]:
    """The elements that each place reads, and their weights."""
    shrunk = min(scale, 1.0) if n.attr("antialias", 0) else 1.0
    reach = 1 if mode == "linear" else 2
    first = math.floor(-reach / shrunk) + 1
    index = np.floor(at).astype(np.int64)[:, None] + np.arange(first, 2 * reach - first)
    d = np.abs(at[:, None] - index) * shrunk
    if mode == "linear":
        weights = np.maximum(1 - d, 0)
    else:
        a = n.attr("cubic_coeff_a", -0.75)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weights = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    if n.attr("exclude_outside", 0):
        weights = np.where((index < 0) | (index >= size), 0.0, weights)
    weights = weights / weights.sum(1, keepdims=True)
    read = weights.any(0)
    return index[:, read].clip(0, size - 1), weights[:, read]
