"""Matrices as vectors of their nonzeros, in the order of CSC: selections that structures decide.

A selection is an array of indices into such a vector; -1 selects the number 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np
import numpy.typing as npt

from uopc.ir.builder import movement
from uopc.ir.builder.operands import constant
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.uop import UOp
from uopc.sparse.sparsity import Sparsity
from uopc.tensor import creation

F8 = dtypes.float64
Indices = npt.NDArray[np.int64]


def numbers(values: Any) -> UOp:
    """A constant vector."""
    found = np.asarray(values, np.float64).reshape(-1)
    return constant(found, F8) if found.size else zeros(0)


def zeros(n: int) -> UOp:
    """A vector of zeros."""
    return creation.zeros((n,), F8)


def length(x: UOp) -> int:
    """The number of nonzeros."""
    n = shapes.shape(x)[0]
    assert isinstance(n, int)
    return n


def joined(parts: Sequence[UOp]) -> UOp:
    """Vectors one after another."""
    kept = [p for p in parts if length(p)]
    if not kept:
        return zeros(0)
    return movement.cat(*kept, axis=0) if len(kept) > 1 else kept[0]


def places(s: ca.Sparsity) -> Indices:
    """The index of each nonzero in the dense matrix, counted by columns."""
    return rows(s) + columns(s) * int(s.size1())


def rows(s: ca.Sparsity) -> Indices:
    """The row of each nonzero."""
    return np.array(s.row(), np.int64).reshape(-1)


def columns(s: ca.Sparsity) -> Indices:
    """The column of each nonzero."""
    return np.array(s.get_col(), np.int64).reshape(-1)


def structure(s: ca.Sparsity) -> Sparsity:
    """The same structure for `uopc.Sparse`."""
    return Sparsity(rows(s), columns(s), (s.size1(), s.size2()), "csc")


def selection(old: ca.Sparsity, new: ca.Sparsity) -> Indices:
    """For each nonzero of one structure, the nonzero at its place in another, or -1."""
    have, want = places(old), places(new)
    if not have.size:
        return np.full(want.size, -1)
    at = np.minimum(np.searchsorted(have, want), have.size - 1)
    return np.where(have[at] == want, at, -1)


def taken(x: UOp, index: Any) -> UOp:
    """The selected elements: a view where they stand at even distances, or a gather."""
    at = np.asarray(index, np.int64).reshape(-1)
    if not at.size:
        return zeros(0)
    if at.min() < 0:
        x, at = joined([x, numbers([0.0])]), np.where(at < 0, length(x), at)
    steps = np.diff(at)
    step = int(steps[0]) if at.size > 1 else 1
    if step > 0 and (steps == step).all():
        begin, end = int(at[0]), int(at[-1]) + 1
        return x if (begin, end, step) == (0, length(x), 1) else x[begin:end:step]
    return x[at]


def projected(x: UOp, old: ca.Sparsity, new: ca.Sparsity) -> UOp:
    """The nonzeros for another structure: those that it lacks are dropped, new ones are 0."""
    return x if old == new else taken(x, selection(old, new))


def by_columns(x: UOp, s: ca.Sparsity) -> UOp:
    """The dense matrix, transposed: an array of its columns."""
    full = projected(x, s, ca.Sparsity.dense(s.size1(), s.size2()))
    return full.reshape(s.size2(), s.size1())
