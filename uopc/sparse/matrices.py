"""Sparse Jacobians and Hessians: their structure, and their values in the order of a format."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from uopc.derivatives.values import number_in
from uopc.errors import UserError
from uopc.ir.builder import leaves, rebuild
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.sparse import coloured, loops
from uopc.sparse.boxes import Box
from uopc.sparse.packing import by_shape, packed, sums
from uopc.sparse.propagate import Propagation, boxes_of, size
from uopc.sparse.reading import Mask
from uopc.sparse.sparsity import FORMATS, Format, Layout, Places, Sparse, Sparsity

Part = Literal["full", "lower", "upper"]
Mode = Literal["auto", "direct", "fwd", "rev", "bidirectional", "star"]
# More boxes need more code than products with seeds: an unrolled recurrence has n² boxes.
MOST_BOXES = 1000
_MODES = ("auto", "direct", "fwd", "rev", "bidirectional")


def _full(row: Places, col: Places) -> Mask:
    return np.ones(row.shape, np.bool_)


def _lower(row: Places, col: Places) -> Mask:
    return row >= col


def _upper(row: Places, col: Places) -> Mask:
    return row <= col


_PARTS: dict[str, Callable[[Places, Places], Mask]] = {
    "full": _full, "lower": _lower, "upper": _upper
}  # fmt: skip


class _Entries:
    """The entries of all outputs; the rows of one output follow the rows of the previous output."""

    def __init__(
        self, outputs: Sequence[UOp], found: Sequence[Sequence[Box]], columns: int
    ) -> None:
        self.boxes: list[Box] = []
        rows: list[Places] = []
        at = 0
        for u, boxes in zip(outputs, found):
            self.boxes += boxes
            rows += [b.rows.reshape(-1) + at for b in boxes]
            at += size(u)
        self.shape = at, columns
        self.rows, self.cols = rows, [b.cols.reshape(-1) for b in self.boxes]

    def only(self, part: Part) -> None:
        """Drop boxes that have no entry in a part of the matrix."""
        test = _PARTS[part]
        self._take([i for i in range(len(self.boxes)) if test(self.rows[i], self.cols[i]).any()])

    def _take(self, kept: Sequence[int]) -> None:
        self.boxes = [self.boxes[i] for i in kept]
        self.rows, self.cols = [self.rows[i] for i in kept], [self.cols[i] for i in kept]

    def arrange(self) -> None:
        """Sort the boxes in the order in which `packed` computes their values."""
        self._take(by_shape(self.boxes))

    def without_numbers(self) -> tuple[Places, Any] | None:
        """Remove entries that are only numbers; return their keys (column, then row) and values."""
        numbers = [None if b.value is None else number_in(b.value) for b in self.boxes]
        keys = [c * self.shape[0] + r for r, c in zip(self.rows, self.cols)]
        alone = [i for i, n in enumerate(numbers) if n is not None]
        while True:  # numbers stay if an entry also has other values, or numbers that stay
            left = [i for i in range(len(keys)) if i not in alone]
            met = np.concatenate([np.zeros(0, np.int64), *[keys[i] for i in left]])
            before, alone = alone, [i for i in alone if not np.isin(keys[i], met).any()]
            if len(alone) == len(before):
                break
        if not alone:
            return None
        found = np.concatenate([keys[i] for i in alone])
        values = np.concatenate([np.full(keys[i].size, numbers[i]) for i in alone])
        unique, inverse = np.unique(found, return_inverse=True)
        self._take(left)
        return unique, np.bincount(inverse, values)


def check(
    who: str, format: Any, mode: Any = "auto", part: Any = "full", constants: Any = None
) -> None:
    """UserError for an unknown option."""
    modes = (*_MODES, "star") if who == "hessian" else _MODES
    for name, value, allowed in (
        ("format", format, FORMATS), ("mode", mode, modes), ("part", part, tuple(_PARTS)),
        ("constants", constants, (None, "split")),
    ):  # fmt: skip
        if value not in allowed:
            listed = ", ".join(map(repr, allowed))
            raise UserError(f"{who}: {name} must be one of {listed}, got {value!r}")


def sparsity(outputs: Sequence[UOp], inputs: Sequence[UOp], format: Format = "csc") -> Sparsity:
    """The entries of the Jacobian of the outputs by the inputs that may not be zero, without
    computing values."""
    run, found, _ = boxes_of(outputs, inputs, values=False)
    return _structure(_Entries(outputs, found, run.columns), format)[0]


def _structure(
    entries: _Entries, format: Format, part: Part = "full"
) -> tuple[Sparsity, Places, Places]:
    """The structure, the entry of each value of the boxes, and the values inside the part."""
    m, n = entries.shape
    nothing = np.zeros(0, np.int64)
    rows = np.concatenate([nothing, *entries.rows])
    cols = np.concatenate([nothing, *entries.cols])
    chosen = np.flatnonzero(_PARTS[part](rows, cols))
    rows, cols = rows[chosen], cols[chosen]
    keys = cols * m + rows if format == "csc" else rows * n + cols
    unique, first, group = np.unique(keys, return_index=True, return_inverse=True)
    if format == "triplet":
        at = np.argsort(first, kind="stable")
        renamed = np.empty_like(at)
        renamed[at] = np.arange(at.size)
        unique, group = unique[at], renamed[group]
    row, col = (unique % max(m, 1), unique // max(m, 1)) if format == "csc" else (
        unique // max(n, 1), unique % max(n, 1)
    )  # fmt: skip
    return Sparsity(row, col, (m, n), format), group.reshape(-1), chosen


def sparse_jacobian(
    outputs: Sequence[UOp], inputs: Sequence[UOp], format: Format, mode: Mode = "auto",
    part: Part = "full", constants: Literal["split"] | None = None, symmetric: bool = False,
) -> Sparse:  # fmt: skip
    """The Jacobian: its rows are the elements of all outputs, its columns those of all inputs."""
    why: dict[str, Any] = {"mode": mode}
    run, found, given = boxes_of(outputs, inputs, values=mode in ("auto", "direct"))
    entries = _Entries(outputs, found, run.columns)
    if mode != "direct":
        whole = _structure(entries, "csc")[0]
        if mode == "auto":
            once, reverse = loops.operations(outputs, inputs), not loops.has_while(outputs)
            direct = run.tools.work + whole.nnz if len(entries.boxes) <= MOST_BOXES else None
            mode, costs = coloured.chosen_mode(whole, direct, once, symmetric, reverse)
            why = {"mode": mode, "operations": costs}
        if mode != "direct":
            made = coloured.jacobian(outputs, inputs, mode, whole)
            return _reordered(made, format, part, why)
    why |= {"boxes": len(entries.boxes), "computed": sum([b.size for b in entries.boxes])}
    entries.only(part)
    if format == "triplet":
        entries.arrange()
    return _assembled(run, entries, outputs, format, part, constants, why, given)


def _assembled(
    run: Propagation, entries: _Entries, outputs: Sequence[UOp], format: Format, part: Part,
    constants: Literal["split"] | None, why: dict[str, Any], given: Any,
) -> Sparse:  # fmt: skip
    made, group, chosen = _structure(entries, format, part)
    whole, fixed = made, entries.without_numbers() if constants == "split" else None
    if fixed is not None:
        made, group, chosen = _structure(entries, format, part)
    dtype = functools.reduce(dtypes.promote, [u.dtype for u in outputs])
    if made.nnz:
        values = packed(entries.boxes, dtype, in_order=format == "triplet")
        places = np.concatenate(values.places)[chosen]
        data = sums(run.tools, values.vector, places, group, made.nnz)
    else:
        data = leaves.full(leaves.const(dtype, 0), (0,))
    data = rebuild.rebuild(intern(Ops.SINK, dtypes.void, (data,)), given).src[0]
    numbers = None
    if constants == "split":
        keys = whole.col * max(whole.shape[0], 1) + whole.row
        none = np.zeros(0, np.int64), np.zeros(0, dtype.numpy)
        if fixed is None:
            numbers = none
        else:
            order = np.argsort(keys, kind="stable")
            inside = np.isin(fixed[0], keys)
            at = order[np.searchsorted(keys[order], fixed[0][inside])]
            numbers = at, fixed[1][inside].astype(dtype.numpy)
    return Sparse(data, Layout(whole, numbers, why))


def _reordered(made: Sparse, format: Format, part: Part, why: dict[str, Any]) -> Sparse:
    """Sort the entries of a matrix for a format, and keep a part."""
    s = made.sparsity
    at = s.order(format)
    at = at[_PARTS[part](s.row[at], s.col[at])]
    structure = Sparsity(s.row[at], s.col[at], s.shape, format)
    data = coloured.elements(made.data, at)
    return Sparse(data, Layout(structure, None, {**made.statistics, **why}))
