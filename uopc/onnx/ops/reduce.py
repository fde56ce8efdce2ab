"""Reductions, and operators along an axis that are made of reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import uopc
from uopc import UOp, dtypes
from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.index.dims import dim_uop
from uopc.onnx.node import Node, along, dims, normal
from uopc.onnx.registry import op
from uopc.onnx.values import is_known
from uopc.tensor import table
from uopc.tensor.sorts import compaction

Reduce = Callable[[UOp, tuple[int, ...], bool], UOp]


def _kept(f: Reduce) -> Reduce:
    """Cast the result to the dtype of the operand, as ONNX's reductions of integers do."""
    return lambda x, axes, keep: f(x, axes, keep).cast(x.dtype)


def _mean_of_integers(x: UOp, axes: tuple[int, ...], keep: bool) -> UOp:
    """Divide the sum, in the dtype of x, by the count; round towards 0."""
    count = dim_uop(shapes.size(tuple([x.shape[a] for a in axes])))
    return x.sum(axes, keep).cast(x.dtype).alu(Ops.CDIV, count.cast(x.dtype))


# Without axes these are still functions of each element.
_OF_ELEMENTS = ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum")


def _reduce(name: str, f: Reduce) -> None:
    def made(n: Node) -> UOp:
        x = n.x(0)
        rank = len(x.shape)
        axes = n.ints_of(1, "axes")
        if not axes and n.attr("noop_with_empty_axes", 0):
            return f(x, (), True) if name in _OF_ELEMENTS else x
        chosen = tuple(sorted({normal(a, rank) for a in axes})) if axes else tuple(range(rank))
        return f(x, chosen, bool(n.attr("keepdims", 1)))

    op(name)(made)


for _name, _f in {
    **{row.onnx: _kept(row.function) for row in table.REDUCTIONS if row.onnx},
    "ReduceMean": lambda x, a, k: x.mean(a, k) if x.dtype.is_float else _mean_of_integers(x, a, k),
    "ReduceL1": _kept(lambda x, a, k: x.abs().sum(a, k)),
    "ReduceL2": _kept(lambda x, a, k: (x * x).sum(a, k).cast(_float(x)).sqrt()),
    "ReduceLogSum": _kept(lambda x, a, k: x.sum(a, k).cast(_float(x)).log()),
    "ReduceSumSquare": _kept(lambda x, a, k: (x * x).sum(a, k)),
}.items():  # fmt: skip
    _reduce(_name, _f)


def _float(x: UOp) -> dtypes.DType:
    return x.dtype if x.dtype.is_float else dtypes.float64


def _best(n: Node, f: Callable[[UOp, int], UOp]) -> UOp:
    x = n.x(0)
    axis, size = n.axis(0, len(x.shape)), x.shape[n.axis(0, len(x.shape))]
    if n.attr("select_last_index", 0):
        found = (size - 1) - f(x.flip(axis), axis).cast(dtypes.int64)
    else:
        found = f(x, axis).cast(dtypes.int64)
    made: UOp = found.unsqueeze(axis) if n.attr("keepdims", 1) else found
    return made


op("ArgMax")(lambda n: _best(n, UOp.argmax))
op("ArgMin")(lambda n: _best(n, UOp.argmin))


def _running(n: Node, f: Callable[[UOp, int], UOp], first: int) -> UOp:
    x, given = n.x(0), n.first(1)
    assert given is not None
    axis = normal(int(given), len(x.shape))
    x = x.flip(axis) if n.attr("reverse", 0) else x
    if n.attr("exclusive", 0):
        widths = [(1, 0) if i == axis else (0, 0) for i in range(len(x.shape))]
        key = tuple([slice(0, -1) if i == axis else slice(None) for i in range(len(x.shape))])
        x = x.pad(widths, first)[key]
    found = f(x, axis).cast(x.dtype)
    return found.flip(axis) if n.attr("reverse", 0) else found


op("CumSum")(lambda n: _running(n, UOp.cumsum, 0))
op("CumProd")(lambda n: _running(n, UOp.cumprod, 1))


# ---------------------------------------------------------------- along an axis
def _flat(n: Node, f: Callable[[UOp, int], UOp]) -> UOp:
    """Apply f with the dimensions from the axis on merged into one, as old versions define."""
    x = n.x(0)
    axis = n.axis(1, len(x.shape))
    if axis == len(x.shape) - 1:
        return f(x, axis)
    lead, rest = shapes.size(x.shape[:axis]), shapes.size(x.shape[axis:])
    return f(x.reshape(lead, rest), 1).reshape(x.shape)


def _hardmax(x: UOp, axis: int) -> UOp:
    top = x.argmax(axis, keepdims=True)
    every = along(uopc.arange(x.shape[axis]), axis, len(x.shape))
    return every.eq(top).cast(x.dtype)


def _wide(f: Callable[[UOp, int], UOp]) -> Callable[[UOp, int], UOp]:
    return lambda x, axis: f(x, axis).cast(x.dtype)


def _along(name: str, f: Callable[[UOp, int], UOp]) -> None:
    op(name, since=13)(lambda n: f(n.x(0), n.axis(-1, len(n.x(0).shape))))
    op(name)(lambda n: _flat(n, f))


_along("Softmax", _wide(UOp.softmax))
_along("LogSoftmax", _wide(UOp.log_softmax))
_along("Hardmax", _hardmax)


@op("TopK")
def top_k(n: Node) -> Any:
    """The greatest or least elements along an axis, in order, and their indices."""
    x = n.x(0)
    axis = n.axis(-1, len(x.shape))
    if n.has(1) and not is_known(n.raw(1)):
        given = [compaction.length("k", n.x(1).reshape(()), dims(x)[axis])]
    else:
        given = (n.ints(1) if n.has(1) else None) or [n.attr("k", 1)]
    values, places = x.top_k(given[0], axis, bool(n.attr("largest", 1)))
    return values, places.cast(dtypes.int64)
