"""Convolutions, pools and resizing: attributes become arguments of the builders."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import uopc
from uopc import UOp, dtypes
from uopc.errors import UserError
from uopc.ir.builder.operands import as_dim
from uopc.onnx.node import Node, dims, fixed
from uopc.onnx.registry import op

_AUTO = {"VALID": "valid", "SAME_UPPER": "same", "SAME_LOWER": "same_lower"}


def pads_of(n: Node, rank: int) -> Any:
    """The padding of windows: pairs, or a name."""
    mode = n.attr("auto_pad", "NOTSET")
    if mode in _AUTO:
        return _AUTO[mode]
    given = list(n.attr("pads", [0] * (2 * rank)))
    return list(zip(given[:rank], given[rank:]))


def windows_of(n: Node, rank: int) -> dict[str, Any]:
    """The stride, padding and dilation of windows."""
    return {
        "stride": list(n.attr("strides", [1] * rank)), "padding": pads_of(n, rank),
        "dilation": list(n.attr("dilations", [1] * rank)),
    }  # fmt: skip


# ---------------------------------------------------------------- convolutions
def convolved(n: Node, x: UOp, w: UOp, bias: UOp | None = None) -> UOp:
    """Convolve images with a weight, in any number of dimensions."""
    kernel = list(dims(w)[2:])
    if list(n.attr("kernel_shape", kernel)) != kernel:
        raise UserError(
            f"kernel_shape must be {kernel}, as of the weight, got {n.attr('kernel_shape', [])}"
        )
    return x.conv(w, bias, groups=n.attr("group", 1), **windows_of(n, len(kernel)))


op("Conv")(lambda n: convolved(n, n.x(0), n.x(1), n.maybe(2)))


@op("ConvTranspose")
def conv_transpose(n: Node) -> UOp:
    """Transpose a convolution. The shape of the result may determine the padding."""
    x, w = n.x(0), n.x(1)
    kernel, rank = dims(w)[2:], len(dims(w)) - 2
    how = windows_of(n, rank)
    more = list(n.attr("output_padding", [0] * rank))
    wanted, mode = n.attr("output_shape", None), n.attr("auto_pad", "NOTSET")
    if wanted is not None or mode.startswith("SAME"):
        wanted = wanted and wanted[-rank:]
        pads = []
        for i, (size, step, apart) in enumerate(zip(dims(x)[2:], how["stride"], how["dilation"])):
            full = (size - 1) * step + (kernel[i] - 1) * apart + 1 + more[i]
            total = as_dim(full - (size * step if wanted is None else wanted[i]))
            fixed(total, "ConvTranspose: the padding for output_shape")
            more[i] += max(-total, 0)
            half, rest = divmod(max(total, 0), 2)
            pads.append((half, half + rest) if mode == "SAME_UPPER" else (half + rest, half))
        how["padding"] = pads
    elif mode == "VALID":
        how["padding"] = 0
    groups = n.attr("group", 1)
    return x.conv_transpose(w, n.maybe(2), output_padding=more, groups=groups, **how)


# ---------------------------------------------------------------- pools
def _pool(n: Node) -> dict[str, Any]:
    """The arguments of a pool."""
    kernel = list(n.attr("kernel_shape", []))
    ceil = bool(n.attr("ceil_mode", 0))
    return {"kernel_size": kernel, "ceil_mode": ceil, **windows_of(n, len(kernel))}


@op("MaxPool")
def max_pool(n: Node) -> Any:
    """The greatest element of each window; the second output is its index."""
    x = n.x(0)
    if n.outputs == 1:
        return x.max_pool(**_pool(n))
    best, places = x.max_pool_with_indices(**_pool(n))
    batch, channels, *sizes = dims(x)
    rank, places = len(sizes), places.cast(dtypes.int64)
    if n.attr("storage_order", 0):  # the first size counts fastest
        found: Any = 0
        for i in reversed(range(rank)):
            found = found * sizes[i] + places // math.prod(sizes[i + 1 :]) % sizes[i]
        places = found
    image = uopc.arange(batch * channels, dtype=dtypes.int64) * math.prod(sizes)
    return best, places + image.reshape(batch, channels, *[1] * rank)


def averaged(n: Node, x: UOp) -> UOp:
    """The mean of each window; `count_include_pad` says whether padding counts."""
    return x.avg_pool(count_include_pad=bool(n.attr("count_include_pad", 0)), **_pool(n))


op("AveragePool")(lambda n: averaged(n, n.x(0)))


@op("LpPool")
def lp_pool(n: Node) -> UOp:
    """The p-norm of each window."""
    rank, p = len(n.attr("kernel_shape", [])), n.number("p", 2)
    seen = n.x(0).windows(**_pool(n))
    return (seen.abs() ** p).sum(tuple(range(2 + rank, 2 + 2 * rank))) ** (1.0 / p)


def _of_image(n: Node, f: Callable[..., UOp]) -> UOp:
    """Reduce each image over all of its pixels."""
    return f(n.x(0), tuple(range(2, len(n.x(0).shape))), keepdims=True)


op("GlobalAveragePool")(lambda n: _of_image(n, UOp.mean))
op("GlobalMaxPool")(lambda n: _of_image(n, UOp.max))


@op("GlobalLpPool")
def global_lp_pool(n: Node) -> UOp:
    p = n.number("p", 2)
    return _of_image(n, lambda x, axes, keepdims: (x.abs() ** p).sum(axes, keepdims) ** (1.0 / p))


# ---------------------------------------------------------------- resizing
@op("Resize", since=11)
def resize(n: Node) -> UOp:
    """Resize all axes or some, by sizes or scales."""
    scales, sizes, roi = n.known(2), n.ints(3), n.known(1)
    axes = [a % len(dims(n.x(0))) for a in n.attr("axes", list(range(len(dims(n.x(0))))))]
    crop = None if roi is None or not roi.size else roi.reshape(2, -1).T.tolist()
    factors = None if scales is None or not scales.size else scales.reshape(-1).tolist()
    return _resized(n, axes, sizes, factors, crop)


@op("Resize", since=10)
@op("Upsample")
def resize_10(n: Node) -> UOp:
    """Before version 11: indices are multiples, rounded down. Scales may be an attribute."""
    scales: Any = n.known(1) if n.has(1) else n.attr("scales", [])
    n.attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    factors = [float(s) for s in scales]
    return _resized(n, list(range(len(factors))), None, factors, None)


def _resized(n: Node, axes: list[int], sizes: Any, factors: Any, crop: Any) -> UOp:
    x = n.x(0)
    own = [dims(x)[a] for a in axes]
    if sizes is None and factors is None:
        raise UserError("Resize: scales or sizes must be given")
    for what, given in (("sizes", sizes), ("scales", factors), ("boxes", crop)):
        if given is not None and len(given) != len(axes):
            raise UserError(f"Resize: expected {len(axes)} {what}, one per axis, got {len(given)}")
    policy = n.attr("keep_aspect_ratio_policy", "stretch")
    if sizes is not None and policy != "stretch":
        best = (min if policy == "not_larger" else max)([s / d for s, d in zip(sizes, own)])
        sizes = [math.floor(d * best + 0.5) for d in own]
        factors = [best] * len(axes)
    kept = [  # axes whose elements stay; their sizes may be symbolic
        (sizes[k] is own[k] or sizes[k] == own[k] if sizes else factors[k] == 1)
        and (crop is None or crop[k] == [0.0, 1.0])
        for k in range(len(axes))
    ]  # fmt: skip
    sizes, factors, crop, chosen = (
        None if v is None else [e for e, k in zip(v, kept) if not k]
        for v in (sizes, factors, crop, axes)
    )
    made = x.resize(
        sizes, factors, chosen, n.attr("mode", "nearest"),
        coordinates=n.attr("coordinate_transformation_mode", "half_pixel"),
        rounding=n.attr("nearest_mode", "round_prefer_floor"),
        cubic=n.number("cubic_coeff_a", -0.75), antialias=bool(n.attr("antialias", 0)),
        exclude_outside=bool(n.attr("exclude_outside", 0)), crop=crop,
        outside=n.number("extrapolation_value", 0.0),
    )  # fmt: skip
    return made.cast(x.dtype)
