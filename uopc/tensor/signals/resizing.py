"""Arrays of other sizes: each new element is an old one, or a mean of its neighbours.

Along an axis of n elements, a new element stands at a place between 0 and n - 1; the axes are
independent. ONNX's operator Resize defines the places and the weights.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, leaves, movement, operands
from uopc.ir.builder.fold import cast
from uopc.ir.builder.movement import normal_axis
from uopc.ir.builder.operands import as_dim
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.shapes import Dim, Shape, show
from uopc.ir.core.uop import UOp
from uopc.tensor import indexing
from uopc.tensor.signals import free_resizing
from uopc.tensor.signals.free_resizing import FreeAxis

Floats = npt.NDArray[np.float64]
_REACH: Final = {"linear": 1, "cubic": 2}  # the neighbours on each side
_ROUNDINGS: Final[dict[str, Callable[[Floats], Floats]]] = {
    "floor": np.floor, "ceil": np.ceil, "round_prefer_floor": lambda v: np.ceil(v - 0.5),
    "round_prefer_ceil": lambda v: np.floor(v + 0.5),
}  # fmt: skip


class _ResizedAxis(NamedTuple):
    """An axis that is resized from `size` to `length` elements; `scale` is about length / size."""

    size: int
    length: int
    scale: float
    crop: tuple[float, float]

    @property
    def whole(self) -> float:
        """The length before rounding down."""
        return self.scale * self.size


def resize(
    a: UOp, sizes: Any = None, scales: Any = None, axes: Any = None, mode: str = "linear",
    coordinates: str = "half_pixel", rounding: str = "round_prefer_floor", cubic: float = -0.75,
    antialias: bool = False, exclude_outside: bool = False, crop: Any = None, outside: float = 0.0,
) -> UOp:  # fmt: skip
    """`a` with other sizes along `axes` (by default the last ones), as ONNX's Resize.

    sizes: a size for each axis; without them, the old ones times `scales`, rounded down. scales: by
    default the quotients of the sizes. mode: "nearest" (one of the elements, by `rounding`: floor,
    ceil, round_prefer_floor or round_prefer_ceil), "linear", or "cubic" (with the coefficient
    `cubic`; R. Keys, Cubic convolution interpolation for digital image processing, 1981).

    coordinates: where new element i stands among the old: half_pixel, (i + 0.5) / scale - 0.5;
    pytorch_half_pixel, 0 for a single element; half_pixel_symmetric; tf_half_pixel_for_nn, (i +
    0.5) / scale; asymmetric, i / scale; align_corners, where first and last elements meet; or
    tf_crop_and_resize, within `crop`, a pair for each axis of which 0 to 1 is all of it, with
    `outside` as the value of elements that stand outside of `a`.

    antialias: the mean reaches as far as elements are left out. exclude_outside: neighbours that do
    not exist have no weight; otherwise they are those at the ends.

    The result has the dtype of `a` for "nearest", else integers are made float32. UserError for
    names, sizes and axes that there are not; of free axes for crop, and antialias between sizes.

    Examples:
        >>> x = uopc.constant([10.0, 20.0, 40.0])
        >>> uopc.compile(x.resize(5, coordinates="align_corners"))()
        array([10., 15., 20., 30., 40.])
        >>> uopc.compile(x.resize(6, mode="nearest"))()
        array([10., 10., 20., 20., 40., 40.])
    """
    choose, weigh = _choose_rounding(mode, rounding), _REACH.get(mode)
    aliased = checks.flag("resize", "antialias", antialias)
    excluded = checks.flag("resize", "exclude_outside", exclude_outside)
    coefficient, beyond = checks.number("resize", cubic), checks.number("resize", outside)
    found, which = _axes(a, sizes, scales, axes, crop)
    given = a.dtype if mode == "nearest" or a.dtype.is_float else dtypes.float32
    x = a if mode == "nearest" else cast(a, dtypes.accumulator(given))
    for axis, along in zip(which, found):
        if isinstance(along, FreeAxis):
            if weigh is None:
                x = free_resizing.nearest(x, axis, along, coordinates, rounding)
                continue
            shrunk = _free_shrinkage(axis, along) if aliased else 1.0
            weight = functools.partial(_weight, reach=weigh, coefficient=coefficient)
            x = free_resizing.mean(x, axis, along, coordinates, weigh, shrunk, weight, excluded)
            continue
        if along.length == along.size and along.scale == 1.0 and along.crop == (0.0, 1.0):
            continue
        at = _places(along, coordinates)
        if choose is not None:
            index = choose(at).astype(np.int64).clip(0, along.size - 1)
            made = indexing.take(x, operands.constant(index), axis)
        else:
            assert weigh is not None
            shrunk = min(along.scale, 1.0) if aliased else 1.0
            index, weights = _taps(at, along.size, weigh, shrunk, coefficient, excluded)
            made = _mean(x, axis, index, weights)
        x = _within(made, axis, at, along, beyond) if coordinates == _CROPPED else made
    return cast(x, given)


_CROPPED: Final = "tf_crop_and_resize"


def _free_shrinkage(axis: int, along: FreeAxis) -> float:
    """The scale of an axis of free size, at most 1. UserError if it is a quotient of sizes."""
    if not isinstance(along.wide, int):
        raise UserError(f"resize: antialias needs a number as the scale of axis {axis}")
    scale: float = along.wide / along.narrow
    return min(scale, 1.0)


# ---------------------------------------------------------------- arguments
def _choose_rounding(mode: Any, rounding: Any) -> Callable[[Floats], Floats] | None:
    """Return the rounding of mode "nearest"; None for the other modes, which take means."""
    if mode not in ("nearest", *_REACH):
        raise UserError(f"resize: mode must be nearest, linear or cubic, got {mode!r}")
    if rounding not in _ROUNDINGS:
        known = ", ".join(_ROUNDINGS)
        raise UserError(f"resize: rounding must be one of {known}, got {rounding!r}")
    return _ROUNDINGS[rounding] if mode == "nearest" else None


def _each(value: Any, what: str, kinds: tuple[type, ...]) -> list[Any]:
    each = list(value) if isinstance(value, (tuple, list)) else [value]
    if not all(isinstance(v, kinds) and not isinstance(v, bool) for v in each):
        raise UserTypeError(f"resize: {what} must be numbers, got {value!r}")
    return each


def _axes(
    a: UOp, sizes: Any, scales: Any, axes: Any, crop: Any
) -> tuple[list[_ResizedAxis | FreeAxis], Sequence[int]]:
    if sizes is None and scales is None:
        raise UserError("resize: sizes or scales must be given")
    counts = None if sizes is None else [as_dim(d) for d in _each(sizes, "sizes", (int, UOp))]
    factors = None if scales is None else _each(scales, "scales", (int, float))
    n = len(counts if counts is not None else factors or ())
    dims, rank = shapes.shape(a), len(shapes.shape(a))
    named = range(rank - n, rank) if axes is None else _each(axes, "axes", (int,))
    which = [normal_axis(i, rank, "resize") for i in named]
    if len(set(which)) != len(which):
        raise UserError(f"resize: axes must be different, got {axes}")
    boxes = [(0.0, 1.0)] * n if crop is None else checks.pairs("resize: crop", crop, n)
    for what, given in (("sizes", counts), ("scales", factors)):
        if given is not None and len(given) != len(which):
            raise UserError(f"resize: {len(given)} {what} for {len(which)} axes")
        known = [v for v in given or () if not isinstance(v, UOp)]
        if not all(0 < v < math.inf for v in known):
            raise UserError(f"resize: {what} must be more than 0, got {given}")
    found: list[_ResizedAxis | FreeAxis] = []
    for k, axis in enumerate(which):
        count = None if counts is None else counts[k]
        scale = None if factors is None else float(factors[k])
        begin, end = (checks.number("resize: crop", v) for v in boxes[k])
        found.append(_axis(dims, axis, count, scale, (begin, end)))
    return found, which


def _axis(
    dims: Shape, i: int, count: Dim | None, scale: float | None, crop: tuple[float, float]
) -> _ResizedAxis | FreeAxis:
    """Resize axis i to `count` elements, or by the scale."""
    size = dims[i]
    if isinstance(size, UOp) or isinstance(count, UOp):
        if crop != (0.0, 1.0):
            raise UserError(f"resize: crop needs numbers as sizes, got {show(dims)}")
        if count is not None:
            return FreeAxis.to_length(size, count)
        assert scale is not None
        return FreeAxis.by_scale(size, scale)
    if size == 0:
        raise UserError(f"resize: axis {i} of {show(dims)} must have a size above 0")
    if count is None:
        assert scale is not None
        count = math.floor(size * scale)
        if count < 1:
            raise UserError(f"resize: scale {scale} leaves no element of axis {i} of {show(dims)}")
    return _ResizedAxis(size, count, count / size if scale is None else scale, crop)


# ---------------------------------------------------------------- places and weights
def _places(a: _ResizedAxis, coordinates: str) -> Floats:
    i = np.arange(a.length, dtype=np.float64)
    centre = (i + 0.5) / a.scale
    ends = (0.0, 1.0) if coordinates == "align_corners" else a.crop
    if coordinates in ("align_corners", _CROPPED):
        begin, end = ends[0] * (a.size - 1), ends[1] * (a.size - 1)
        if a.length == 1:
            alone = 0.0 if coordinates == "align_corners" else (begin + end) / 2
            return np.full(a.length, alone)
        return begin + i * ((end - begin) / (a.whole - 1))
    named = {
        "half_pixel": centre - 0.5, "tf_half_pixel_for_nn": centre, "asymmetric": i / a.scale,
        "pytorch_half_pixel": centre - 0.5 if a.length > 1 else np.zeros(1),
        "half_pixel_symmetric": a.size / 2 * (1 - a.length / a.whole) + centre - 0.5,
    }  # fmt: skip
    if coordinates not in named:
        known = ", ".join([*named, "align_corners", _CROPPED])
        raise UserError(f"resize: coordinates must be one of {known}, got {coordinates!r}")
    return named[coordinates]


def _taps(
    at: Floats, size: int, reach: int, shrunk: float, coefficient: float, excluded: bool
) -> tuple[npt.NDArray[np.int64], Floats]:
    """The elements that each place reads, and their weights: two arrays of shape (count, taps)."""
    first = math.floor(-reach / shrunk) + 1
    index = np.floor(at).astype(np.int64)[:, None] + np.arange(first, 2 * reach - first)
    d = np.abs(at[:, None] - index) * shrunk
    weights = _weight(d, reach, coefficient, np.where)
    if excluded:
        weights = np.where((index < 0) | (index >= size), 0.0, weights)
    weights = weights / weights.sum(1, keepdims=True)
    read = weights.any(0)
    return index[:, read].clip(0, size - 1), weights[:, read]


def _weight(d: Any, reach: int, coefficient: float, where: Any = alu.where) -> Any:
    """The weight of an element at distance d."""
    c = coefficient
    if reach == 1:
        return where(d < 1, 1 - d, 0.0)
    near = ((c + 2) * d - (c + 3)) * d * d + 1
    far = ((c * d - 5 * c) * d + 8 * c) * d - 4 * c
    return where(d <= 1, near, where(d < 2, far, 0.0))


def _line(values: npt.NDArray[Any], axis: int, rank: int) -> UOp:
    """Make a constant along one axis."""
    dims = [values.size if i == axis else 1 for i in range(rank)]
    return movement.reshape(operands.constant(values), tuple(dims))


def _mean(x: UOp, axis: int, index: npt.NDArray[np.int64], weights: Floats) -> UOp:
    parts = []
    for tap, weight in zip(index.T, weights.T):
        factor = _line(weight.astype(x.dtype.numpy), axis, len(shapes.shape(x)))
        parts.append(indexing.take(x, operands.constant(np.ascontiguousarray(tap)), axis) * factor)
    return functools.reduce(operator.add, parts)


def _within(x: UOp, axis: int, at: Floats, a: _ResizedAxis, beyond: float) -> UOp:
    out = (at < 0) | (at > a.size - 1)
    if not out.any():
        return x
    return alu.where(_line(out, axis, len(shapes.shape(x))), leaves.const(x.dtype, beyond), x)
