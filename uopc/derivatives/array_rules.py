"""The rules of functions of whole arrays: sort, and the updates of rows."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.derivatives import accumulate, gather
from uopc.derivatives.rule import DerivativeRule
from uopc.derivatives.values import Mask, Value, filled, one_over, stored, times, total
from uopc.ir.builder import alu, fold, leaves, movement
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop, place_dtype
from uopc.tensor import indexing
from uopc.tensor.scatter import inside, scatter
from uopc.tensor.sorts import sorting


class SortRule(DerivativeRule):
    """Tangents take the order of the values. `details`: the axis from the end, and descending."""

    kind = "linear"

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        return None if tangents[1] is None else gather.read(self._read(u), tangents[1])

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        return [None, gather.transposed(self._read(u), cotangent)]

    def batch_dimensions(self, u: UOp) -> int:
        return len(shapes.shape(u)) + int(u.arg.details[0])

    def _read(self, u: UOp) -> UOp:
        a, (axis, descending) = u.src[1], u.arg.details
        axis += len(shapes.shape(a))
        return indexing.gather(a, axis, sorting.argsort(a, axis, bool(descending)))

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        axis, descending = u.arg.details
        return sorting.sort(operands[0], axis, bool(descending))


class ArgSort(DerivativeRule):
    """Indices have no derivative."""

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        axis, descending = u.arg.details
        return sorting.argsort(operands[0], axis, bool(descending))


class Scatter(DerivativeRule):
    """Updates of rows of an array. Operands: the array, the rows' indices, and the new rows."""

    kind = "linear"
    op: Op | None = None

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        a, places, value = operands
        rows, *rest = shapes.shape(u)
        (count,) = shapes.shape(u.src[2])
        a = a if batched[0] else movement.expand(a, (n, rows, *rest))
        scalar = value.op is Ops.CONST
        if not scalar:
            value = value if batched[2] else movement.expand(value, (n, count, *rest))
        if not batched[1]:  # the batch is part of the rows
            value = value if scalar else movement.swapped(value)
            return movement.swapped(scatter(movement.swapped(a), places, value, self.op))
        place = fold.cast(places, dtypes.index)
        first = movement.reshape(leaves.iota(n) * rows, (n, 1))
        place = alu.where(inside(place, rows), place + first, dim_uop(n * rows))
        front = movement.reshape(a, (n * rows, *rest))
        value = value if scalar else movement.reshape(value, (n * count, *rest))
        found = scatter(front, movement.reshape(place, (n * count,)), value, self.op)
        return movement.reshape(found, (n, rows, *rest))


def _rows_at(a: UOp, u: UOp) -> UOp:
    """The rows of a value at the indices of an update; 0 for an index out of range."""
    place = fold.cast(u.src[2], dtypes.index)
    nothing = intern(Ops.INVALID, dtypes.index)
    return gather.read(
        movement.index(a, alu.where(inside(place, shapes.shape(a)[0]), place, nothing)), a
    )


class Add(Scatter):
    """Linear in the array and in the rows."""

    op = Ops.ADD

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        _, a, _, value = tangents
        if value is None:
            return a
        return scatter(filled(a, u), u.src[2], value, Ops.ADD)

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        return [None, cotangent, None, _rows_at(cotangent, u) if wanted[3] else None]


class Set(Scatter):
    """If several rows have the same index, only the last row has an effect."""

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        _, a, _, value = tangents
        if value is None:
            value = leaves.const(u.dtype, 0)
        return scatter(filled(a, u), u.src[2], value, None)

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        zero = leaves.const(u.dtype, 0)
        a = scatter(cotangent, u.src[2], zero, None) if wanted[1] else None
        return [None, a, None, self._to_rows(u, cotangent) if wanted[3] else None]

    def _to_rows(self, u: UOp, cotangent: UOp) -> Value:
        (count,) = shapes.shape(u.src[2])
        rows, *rest = shapes.shape(u)
        number = fold.cast(leaves.iota(count), place_dtype(count))
        nobody = leaves.full(leaves.const(number.dtype, -1), (rows,))
        last = _rows_at(scatter(nobody, u.src[2], number, None), u)
        counts = movement.reshape(last.eq(number), (count, *(1,) * len(rest)))
        return times(_rows_at(cotangent, u), Mask(counts))


class Greatest(Scatter):
    """max and min: all operands that equal the result share the derivative."""

    def __init__(self, op: Op) -> None:
        self.op = op

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        _, a, _, value = tangents
        kept, chosen, share = self._shares(u)
        mine = times(a, Mask(kept, scale=share))
        theirs = times(value, Mask(chosen, scale=_rows_at(share, u)))
        if theirs is None:
            return mine
        return total([mine, scatter(filled(None, u), u.src[2], theirs, Ops.ADD)])

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        kept, chosen, share = self._shares(u)
        a = times(cotangent, Mask(kept, scale=share)) if wanted[1] else None
        scaled = times(_rows_at(cotangent, u), Mask(chosen, scale=_rows_at(share, u)))
        return [None, a, None, scaled if wanted[3] else None]

    def _shares(self, u: UOp) -> tuple[UOp, UOp, UOp]:
        """Return a bool for each element of the array (True if it equals the result), a bool for
        each update, and 1 / the number of operands that equal the result."""
        places = u.src[2]
        a, value = stored(u.src[1]), stored(u.src[3])
        best = scatter(a, places, value, self.op)
        kept = alu.alu(a, Ops.CMPEQ, best)
        result = _rows_at(best, u)
        chosen = alu.alu(movement.expand(value, shapes.shape(result)), Ops.CMPEQ, result)
        whole = place_dtype(shapes.shape(places)[0] + 1)
        count = scatter(fold.cast(kept, whole), places, fold.cast(chosen, whole), Ops.ADD)
        return kept, chosen, one_over(count.maximum(1), u.dtype)


class Multiply(Scatter):
    """Linear in the array and in each factor. The derivative by a factor is the row times all other
    factors of that row, so nothing is divided by zero."""

    op = Ops.MUL

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        _, a, _, value = tangents
        found = None if a is None else scatter(a, u.src[2], u.src[3], Ops.MUL)
        if value is None:
            return found
        scaled = accumulate.product(value, self._others(u))
        return total([found, scatter(filled(None, u), u.src[2], scaled, Ops.ADD)])

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        a = scatter(cotangent, u.src[2], u.src[3], Ops.MUL) if wanted[1] else None
        rows = accumulate.product(_rows_at(cotangent, u), self._others(u)) if wanted[3] else None
        return [None, a, None, rows]

    def _others(self, u: UOp) -> UOp:
        """For each factor, its row times the other factors of that row: sort factors by index, then
        multiply the factors before and after each."""
        _, a, places, value = u.src
        order = sorting.argsort(places)
        place, factors = places[order], value[order]
        parts = []
        for back in (False, True):
            same = accumulate.before(place, 0, back).eq(place)
            same &= accumulate.before(leaves.const_like(same, True), 0, back, False)
            same = movement.reshape(same, (*shapes.shape(same), *(1,) * (len(value.shape) - 1)))
            near = same.where(accumulate.before(factors, 0, back), 0.0)
            parts.append(accumulate.recurrence(near, same.where(0.0, near + 1), 0, back))
        others = accumulate.product(*parts)[sorting.argsort(order)]
        return accumulate.product(_rows_at(a, u), others)


RULES: dict[str, DerivativeRule] = {
    "sort": SortRule(),
    "argsort": ArgSort(),
    "scatter_add": Add(),
    "scatter_set": Set(),
    "scatter_mul": Multiply(),
    "scatter_max": Greatest(Ops.MAX),
    "scatter_min": Greatest(Ops.MIN),
}
