"""Updates of rows at computed places, by a kernel whose time grows with the number of updates.

    for i: for j: out[place[i], j] = combine(out[place[i], j], value[i, j])

The loop over i keeps its order, so that the result does not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, kernel, leaves, movement, operands
from uopc.ir.builder.fold import bitcast, cast
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.shapes import show
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop, place_dtype
from uopc.tensor import creation, elementwise, indexing
from uopc.tensor.primitive import primitive


def scatter(a: UOp, places: UOp, value: UOp, op: Op | None) -> UOp:
    """Combine rows of `a`, one after another, with rows of the value; without op, replace the rows.

    Update i changes row places[i]. If the place is outside, the kernel rewrites a row unchanged,
    which costs less than a branch; if `a` may have no rows, it branches. The value is a number, or
    has the shape of the places and that of a row of `a`. Sums and products of narrow floats
    accumulate in float32, and are rounded once.
    """
    dims, (updates,) = shapes.shape(a), shapes.shape(places)
    rows, width = dims[0], shapes.size(dims[1:])
    if 0 in (rows, width, updates):
        return a
    form = (rows, width)
    rounded = op in (Ops.ADD, Ops.MUL) and a.dtype.is_float
    held = dtypes.accumulator(a.dtype) if rounded else a.dtype
    storage = creation.buffer(form, held)
    filled = kernel.after(storage, kernel.store(storage, cast(movement.reshape(a, form), held)))
    known = cast(places, place_dtype(rows)) if places.dtype is dtypes.index else places
    given = [elementwise.contiguous(known)]
    if value.op is not Ops.CONST:
        given.append(elementwise.contiguous(movement.reshape(value, (updates, width))))
    out, place, *values = [
        creation.kernel_param(n, shapes.shape(g), g.dtype) for n, g in enumerate([storage, *given])
    ]
    i, j = kernel.range(updates, 0), kernel.range(width, 1)
    row = _row(movement.index(place, i), rows)
    at = row.minimum(rows - 1)
    if bounds.bounds(dim_uop(rows))[0] < 1:  # there may be no row at all
        at = indexing.between(row, rows)
    old = movement.index(kernel.after(out, i), at, j)  # in the loop, also where `at` is not
    new = cast(movement.index(values[0], i, j) if values else value, held)
    new = new if op is None else alu.binary(op, old, new)
    stored = kernel.store(movement.index(out, at, j), alu.where(row < rows, new, old))
    name = f"scatter_{op.name if op else 'set'}_{held.short}"
    sink = kernel.sink(kernel.end(stored, i, j), name=name)
    call = leaves.located(intern(Ops.CALL, dtypes.void, (sink, filled, *given)))
    made = cast(movement.reshape(kernel.after(storage, call), dims), a.dtype)
    return primitive(made, f"scatter_{op.name if op else 'set'}", a, places, value)


def _row(place: UOp, rows: shapes.Dim) -> UOp:
    """The row at a place, as an index; for a place outside, the row after the last."""
    if place.dtype.bits < 64 and bounds.max_dim(rows) <= 1 << 31:
        # As an unsigned number a negative one is behind the last row.
        return cast(bitcast(cast(place, dtypes.int32), dtypes.uint32), dtypes.index)
    number = bitcast(cast(place, dtypes.int64), dtypes.uint64)
    return cast(number.minimum(cast(dim_uop(rows), dtypes.uint64)), dtypes.index)


def inside(place: UOp, n: shapes.Dim) -> UOp:
    """True where 0 <= place < n."""
    low = alu.binary(Ops.CMPLE, affine.const(0), place)
    return alu.alu(low, Ops.AND, alu.binary(Ops.CMPLT, place, dim_uop(n)))


def bincount(a: UOp, weights: Any = None, *, length: Any) -> UOp:
    """The number of times that each of 0 … length - 1 occurs in an array of integers, as int64;
    with weights of the array's shape, their sums, in the dtype of the weights (narrow floats are
    rounded once). Other integers are not counted. UserTypeError unless `a` holds integers,
    UserError for weights of another shape.

    Examples:
        >>> x = uopc.param("x", (4,), dtypes.int32)
        >>> uopc.compile(x.bincount(length=3))(np.array([2, 0, 2, 7], "i4"))
        array([1, 0, 2])
    """
    if a.dtype.kind not in ("int", "uint", "index"):
        raise UserTypeError(f"bincount: needs integers, got {a.dtype.name}")
    dims, n = shapes.shape(a), operands.as_dim(length)
    v = operands.constant(np.int64(1)) if weights is None else operands.as_uop(weights)
    if weights is not None and shapes.shape(v) != dims:
        raise UserError(f"bincount: weights {show(shapes.shape(v))} for integers {show(dims)}")
    size = shapes.size(dims)
    place = movement.reshape(cast(a, dtypes.int64) if a.dtype is dtypes.index else a, (size,))
    value = v if weights is None else movement.reshape(v, (size,))
    return scatter(leaves.full(leaves.const(v.dtype, 0), (n,)), place, value, Ops.ADD)
