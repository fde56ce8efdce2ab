"""Sparse Jacobians by products with seeds: a seed for each colour, all in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.derivatives import batch, functions, walk
from uopc.derivatives.values import filled
from uopc.ir.builder import fold, leaves, movement, operands
from uopc.ir.core import shapes
from uopc.ir.core.uop import UOp
from uopc.sparse import colouring
from uopc.sparse.propagate import size
from uopc.sparse.reading import ArrayReader
from uopc.sparse.sparsity import Layout, Places, Sparse, Sparsity

# Operations of a product with a seed for each operation of the graph: from the right, and the left.
_OF_A_PUSH, _OF_A_PULL = 2, 3


def elements(vector: UOp, at: Places) -> UOp:
    """The elements of a vector at known positions."""
    return ArrayReader().taken(vector, at)


def jacobian(
    outputs: Sequence[UOp], inputs: Sequence[UOp], mode: str, structure: Sparsity
) -> Sparse:
    """The Jacobian of a structure by a product for each colour of columns ("fwd"), of rows ("rev"),
    of both ("bidirectional"), or of the vertices of a symmetric structure ("star")."""
    row, col, (m, n) = structure.row, structure.col, structure.shape
    if not structure.nnz:
        return Sparse(leaves.full(leaves.const(outputs[0].dtype, 0), (0,)), Layout(structure))
    lines: list[UOp] = []
    if mode == "star":
        colours = colouring.star(row, col, n)
        place, seeds = _symmetric_places(row, col, colours, n)
        lines.append(_products(outputs, inputs, seeds, forward=True))
        used: Any = int(colours.max()) + 1
    else:
        by_row, down, across = _colours(row, col, m, n, mode)
        place, at = np.zeros(structure.nnz, np.int64), 0
        counts = []
        for mine, colours, own, other, length, forward in (
            (~by_row, across, col, row, m, True), (by_row, down, row, col, n, False),
        ):  # fmt: skip
            seeds = _seeds(colours, own[mine])
            counts.append(len(seeds))
            if len(seeds):
                lines.append(_products(outputs, inputs, seeds, forward))
                place[mine] = at + colours[own[mine]] * length + other[mine]
                at += len(seeds) * length
        used = counts[0] if mode == "fwd" else counts[1] if mode == "rev" else tuple(counts)
    flat = [movement.reshape(line, (shapes.size(shapes.shape(line)),)) for line in lines]
    whole = movement.cat(*flat, axis=0) if len(flat) > 1 else flat[0]
    return Sparse(elements(whole, place), Layout(structure, None, {"colours": used}))


def _colours(
    row: Places, col: Places, m: int, n: int, mode: str
) -> tuple[npt.NDArray[np.bool_], Places, Places]:
    if mode == "bidirectional":
        by_row, down, across = colouring.both(row, col, m, n)
        return by_row.astype(np.bool_), down, across
    nothing = np.zeros(0, np.int64)
    if mode == "fwd":
        return np.zeros(row.size, np.bool_), nothing, colouring.columns(row, col, n)
    return np.ones(row.size, np.bool_), colouring.columns(col, row, m), nothing


def _symmetric_places(
    row: Places, col: Places, colours: Places, n: int
) -> tuple[Places, npt.NDArray[np.float64]]:
    """For each entry, the position in the products of the entry or of its mirror image."""
    count = int(colours.max()) + 1
    keys, times = np.unique(row * count + colours[col], return_counts=True)
    alone = times[np.searchsorted(keys, row * count + colours[col])] == 1
    place = np.where(alone, colours[col] * n + row, colours[row] * n + col)
    return place, _seeds(colours, np.arange(n))


def _seeds(colours: Places, used: Places) -> npt.NDArray[np.float64]:
    """For each colour, a row with ones at the columns of the colour."""
    if not used.size:
        return np.zeros((0, colours.size))
    seeds = np.zeros((int(colours[used].max()) + 1, colours.size))
    seeds[colours[used], used] = 1
    return seeds


def _products(
    outputs: Sequence[UOp], inputs: Sequence[UOp], seeds: npt.NDArray[np.float64], forward: bool
) -> UOp:
    """The products with all seeds: (seeds, rows) from the right, (seeds, columns) from the left."""
    given, wanted = (inputs, outputs) if forward else (outputs, inputs)
    marks = {u: functions.seed(u) for u in dict.fromkeys(given)}
    if forward:
        found = walk.pushed(outputs, marks)
    else:
        found = walk.pulled(outputs, inputs, [marks[u] for u in outputs])
    parts = [filled(v, u) for v, u in zip(found, wanted)]
    line = [movement.reshape(v, (size(u),)) for v, u in zip(parts, wanted)]
    flat = movement.cat(*line, axis=0) if len(line) > 1 else line[0]
    values, at = {}, 0
    for u in given:
        part = np.ascontiguousarray(seeds[:, at : at + size(u)])
        dims = (len(seeds), *shapes.shape(u))
        values[marks[u]] = fold.cast(operands.constant(part.reshape(dims)), u.dtype)
        at += size(u)
    return batch.mapped([flat], values)[0]


# ---------------------------------------------------------------- which mode
def chosen_mode(
    structure: Sparsity, direct: int | None, once: int, symmetric: bool, reverse: bool
) -> tuple[Any, dict[str, int]]:
    """The mode with the fewest operations, and the operations of each mode: `direct`, or for each
    colour `once`, all operations of the graph. `reverse`: True if mode "rev" is possible."""
    row, col, (m, n) = structure.row, structure.col, structure.shape
    cost = {} if direct is None else {"direct": direct}
    if direct is None or direct > _OF_A_PUSH * once:  # else no colouring has fewer
        across = int(colouring.columns(row, col, n).max(initial=0)) + 1
        down = int(colouring.columns(col, row, m).max(initial=0)) + 1
        cost |= {"fwd": _OF_A_PUSH * across * once}
        cost |= {"rev": _OF_A_PULL * down * once} if reverse else {}
        if symmetric:
            stars = int(colouring.star(row, col, n).max(initial=0)) + 1
            cost["star"] = _OF_A_PUSH * stars * once
    return min(cost, key=lambda name: cost[name]), cost
