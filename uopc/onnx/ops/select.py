"""Operators that read or write elements at computed places."""

from __future__ import annotations

from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import UserError
from uopc.onnx.node import Node, dims, fixed, places
from uopc.onnx.registry import op
from uopc.onnx.values import has_symbols, is_known
from uopc.tensor.sorts import compaction
from uopc.tensor.sorts import unique as runs


def wrapped(index: UOp, size: Any) -> UOp:
    """Count negative indices from the end."""
    return uopc.where(index < 0, index + size, index)


@op("Gather")
def gather(n: Node) -> UOp:
    """Take slices along an axis; indices may be negative."""
    x, axis = n.x(0), n.axis(0, len(n.x(0).shape))
    if is_known(n.raw(1)) and not has_symbols(n.raw(1)):
        known = n.known(1)
        assert known is not None
        return x.take(known, axis)
    return x.take(wrapped(n.x(1), x.shape[axis]), axis)


@op("GatherElements")
def gather_elements(n: Node) -> UOp:
    """Take elements; the index has the shape of the result."""
    x, index = n.x(0), n.x(1)
    axis = n.axis(0, len(x.shape))
    return x.gather(axis, wrapped(index, x.shape[axis]))


@op("GatherND")
def gather_nd(n: Node) -> UOp:
    """Take an element or a slice for each row of the last axis of the indices."""
    x, index, batch = n.x(0), n.x(1), n.attr("batch_dims", 0)
    count = fixed(dims(index)[-1], "GatherND: the last size of the indices")
    lead = dims(index)[:-1]
    keys = [places(lead[i], i, len(lead)) for i in range(batch)]
    keys += [wrapped(index[..., i], x.shape[batch + i]) for i in range(count)]
    return x[tuple([k.expand(lead) if len(k.shape) else k for k in keys])]


# ---------------------------------------------------------------- updates
def _updated(x: UOp, keys: tuple[Any, ...], value: UOp, how: str) -> UOp:
    at = x.at[keys]
    names = {"none": "set", "add": "add", "mul": "mul", "min": "min", "max": "max"}
    if how not in names:
        raise UserError(f"reduction must be one of {', '.join(names)}, got {how!r}")
    made: UOp = getattr(at, names[how])(value)
    return made


def _places_of(own: tuple[Any, ...]) -> list[UOp]:
    """For each axis of a shape, the index of each element along this axis."""
    return [places(d, i, len(own)).expand(own) for i, d in enumerate(own)]


@op("ScatterElements Scatter")
def scatter_elements(n: Node) -> UOp:
    """Put or combine elements at their indices: the opposite of GatherElements."""
    x, index, value = n.x(0), n.x(1), n.x(2)
    axis = n.axis(0, len(x.shape))
    own = dims(index)
    if 0 in own:
        return x
    keys = _places_of(own)
    keys[axis] = wrapped(index.cast(dtypes.int64), x.shape[axis])
    return _updated(x, tuple(keys), value, n.attr("reduction", "none"))


@op("ScatterND")
def scatter_nd(n: Node) -> UOp:
    """Put or combine elements or slices at their indices: the opposite of GatherND."""
    x, index, value = n.x(0), n.x(1), n.x(2)
    if 0 in dims(index):
        return x
    count = fixed(dims(index)[-1], "ScatterND: the last size of the indices")
    keys = [wrapped(index[..., i], x.shape[i]) for i in range(count)]
    return _updated(x, tuple(keys), value, n.attr("reduction", "none"))


@op("Compress")
def compress(n: Node) -> UOp:
    """Keep the slices along an axis, or the elements, where a condition holds."""
    x, axis = n.x(0), n.attr("axis", None)
    if not is_known(n.raw(1)):
        whole = x.reshape(-1) if axis is None else x
        return compaction.compress(whole, n.x(1), 0 if axis is None else n.axis(0, len(x.shape)))
    chosen = np.flatnonzero(np.asarray(n.known(1)))
    return x.take(chosen, None if axis is None else n.axis(0, len(x.shape)))


@op("NonZero")
def nonzero(n: Node) -> Any:
    """The indices of the elements that are not 0, a column for each."""
    if not is_known(n.raw(0)):
        x = n.x(0)
        return uopc.stack(*compaction.nonzero(x if x.shape else x.reshape(1)))
    known = n.known(0)
    assert known is not None
    return np.stack(np.nonzero(np.atleast_1d(known))).astype(np.int64)


@op("Unique")
def unique(n: Node) -> Any:
    """The different elements of an array, or the different slices of a known one."""
    axis = n.attr("axis", None)
    if axis is None and not is_known(n.raw(0)):
        return _unique_values(n.x(0), bool(n.attr("sorted", 1)))
    known = n.known(0)
    assert known is not None
    found = list(np.unique(known, True, True, True, axis=axis))
    if not n.attr("sorted", 1):
        order = np.argsort(found[1])
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        found = [np.take(found[0], order, axis or 0), found[1][order],
                 rank[found[2].reshape(-1)], found[3][order]]  # fmt: skip
    return found[0], *[a.reshape(-1).astype(np.int64) for a in found[1:]]


def _unique_values(x: UOp, in_order: bool) -> tuple[UOp, ...]:
    """The different elements; those that come first are first, unless they are in order."""
    values, first, inverse, counts = runs.unique(x)
    inverse = inverse.reshape(-1)
    if not in_order:
        order = first.argsort()
        rank = uopc.full(order.shape, 0, dtypes.int64).at[order].set(uopc.arange(order.shape[0]))
        values, first, counts = values[order], first[order], counts[order]
        inverse = rank[inverse]
    return values, *[v.cast(dtypes.int64) for v in (first, inverse, counts)]


@op("TensorScatter")
def tensor_scatter(n: Node) -> UOp:
    """Write new rows into a cache at each batch's position; `circular` wraps around at the end."""
    x, new = n.x(0), n.x(1)
    axis = n.axis(-2, len(x.shape))
    batch, length = dims(new)[0], dims(new)[axis]
    first = n.maybe(2)
    first = uopc.full((batch,), 0, dtypes.int64) if first is None else first.cast(dtypes.int64)
    steps = first.unsqueeze(1) + uopc.arange(length, dtype=dtypes.int64)
    if n.attr("mode", "linear") == "circular":
        steps = steps % x.shape[axis]
    line = [batch if i == 0 else length if i == axis else 1 for i in range(len(x.shape))]
    index = steps.reshape(tuple(line)).expand(dims(new))
    keys = _places_of(dims(new))
    keys[axis] = index
    return x.at[tuple(keys)].set(new)
