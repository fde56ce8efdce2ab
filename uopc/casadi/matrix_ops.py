"""Operations of matrices: products, solutions, norms. A row of `MATRIX_OPS` for each op code.

A rule takes the instruction and the nonzeros of the operands, and gives those of the result.
"""

from __future__ import annotations

import string
from collections.abc import Callable

import casadi as ca
import numpy as np

from uopc.casadi.instruction import Instruction
from uopc.casadi.structures import (
    Indices,
    by_columns,
    columns,
    joined,
    length,
    numbers,
    places,
    projected,
    rows,
    taken,
    zeros,
)
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp
from uopc.tensor.matrices.einsum import einsum

Rule = Callable[..., UOp]


def summed(target: Indices, n: int, term: Callable[[Indices], UOp]) -> UOp:
    """A vector of n sums: element t adds up the terms k for which target[k] is t, in order.

    `term(at)` gives the terms at indices. Sums of equally many terms are one box of terms.
    """
    order, counts = np.argsort(target, kind="stable"), np.bincount(target, minlength=n)
    begins = np.cumsum(counts) - counts
    parts, members = [], []
    for count in np.unique(counts):
        mine = np.flatnonzero(counts == count)
        members.append(mine)
        if not count:
            parts.append(numbers(np.zeros(mine.size)))
            continue
        at = order[begins[mine][:, None] + np.arange(count)]
        parts.append(term(at.reshape(-1)).reshape(mine.size, int(count)).sum(axis=1))
    return taken(joined(parts), np.argsort(np.concatenate(members))) if n else zeros(0)


def _product(node: Instruction, z: UOp, x: UOp, y: UOp) -> UOp:
    """z + X Y at the places of z."""
    zs, xs, ys = node.of(0), node.of(1), node.of(2)
    if xs.is_dense() and ys.is_dense() and zs.is_dense():
        return z + (by_columns(y, ys) @ by_columns(x, xs)).reshape(-1)
    # Nonzero j of Y, in row r, meets each nonzero of column r of X.
    begin, y_rows = np.array(xs.colind(), np.int64), rows(ys)
    counts = np.diff(begin)[y_rows]
    of_y = np.repeat(np.arange(y_rows.size), counts)
    within = np.arange(of_y.size) - np.repeat(np.cumsum(counts) - counts, counts)
    of_x = begin[y_rows[of_y]] + within
    place = rows(xs)[of_x] + columns(ys)[of_y] * zs.size1()
    have = places(zs)
    at = np.searchsorted(have, place)
    kept = np.flatnonzero(np.isin(place, have))
    of_x, of_y, at = of_x[kept], of_y[kept], at[kept]
    return z + summed(at, have.size, lambda k: taken(x, of_x[k]) * taken(y, of_y[k]))


def _transposed(node: Instruction, x: UOp) -> UOp:
    s = node.of(0)
    if s.is_dense():
        return x.reshape(s.size2(), s.size1()).permute(1, 0).reshape(-1)
    return taken(x, np.lexsort((columns(s), rows(s))))


def _solution(node: Instruction, b: UOp, a: UOp) -> UOp:
    matrix = by_columns(a, node.of(1))
    if not node.info["tr"]:
        matrix = matrix.permute(1, 0)
    found = matrix.solve(by_columns(b, node.of(0)).permute(1, 0))
    return found.permute(1, 0).reshape(-1)


def _scalar(x: UOp) -> UOp:
    return x.reshape(1)


def _norm(node: Instruction, x: UOp) -> UOp:
    return _scalar((x * x).sum().sqrt())


def _largest(node: Instruction, x: UOp) -> UOp:
    return _scalar(joined([x.abs(), numbers([0.0])]).max())


def _extreme(choose: Callable[[UOp], UOp], start: float) -> Rule:
    """The rule of the least or the greatest element; NaNs do not count, zeros that have no place
    do."""

    def rule(node: Instruction, x: UOp) -> UOp:
        known = x.ne(x).where(start, x)
        rest = numbers([start if node.of(0).is_dense() else 0.0])
        return _scalar(choose(joined([known, rest])))

    return rule


def _bilinear(node: Instruction, a: UOp, x: UOp, y: UOp) -> UOp:
    s = node.of(0)
    return _scalar((a * taken(x, rows(s)) * taken(y, columns(s))).sum())


def _rank_one(node: Instruction, a: UOp, factor: UOp, x: UOp, y: UOp) -> UOp:
    s = node.structure
    return a + factor * taken(x, rows(s)) * taken(y, columns(s))


def _pairs(inner: ca.Sparsity, whole: ca.Sparsity) -> tuple[Indices, Indices]:
    """For each nonzero of a Kronecker product, its places in the dense factors, by columns."""
    p, q = max(inner.size1(), 1), max(inner.size2(), 1)
    outer_rows = whole.size1() // p
    row, column = rows(whole), columns(whole)
    return row // p + column // q * outer_rows, row % p + column % q * inner.size1()


def _kronecker(node: Instruction, a: UOp, b: UOp) -> UOp:
    outer, inner = _pairs(node.of(1), node.structure)
    of_a, of_b = (
        np.searchsorted(places(node.of(0)), outer),
        np.searchsorted(places(node.of(1)), inner),
    )
    return taken(a, of_a) * taken(b, of_b)


def _kronecker_sums(node: Instruction, whole: UOp, factor: UOp) -> UOp:
    """For each place of one factor of a Kronecker product, the sum of the elements of `whole` times
    those of the other factor."""
    is_inner = node.fields.number("KronContract::inner")  # of the factor that is given
    s = node.structure
    pairs = _pairs(node.of(1) if is_inner else s, node.of(0))
    mine, other = pairs if is_inner else pairs[::-1]
    have, factors = places(s), places(node.of(1))
    kept = np.flatnonzero(np.isin(mine, have) & np.isin(other, factors))
    target = np.searchsorted(have, mine[kept])
    at = np.searchsorted(factors, other[kept])
    return summed(target, have.size, lambda k: taken(whole, kept[k]) * taken(factor, at[k]))


def _einstein(node: Instruction, c: UOp, a: UOp, b: UOp) -> UOp:
    """c + a product of two arrays, summed over the indices that c lacks. An array of CasADi has its
    first index innermost."""
    info = node.info
    indices = dict.fromkeys([*info["a"], *info["b"], *info["c"]])
    letters = dict(zip(indices, string.ascii_letters))
    names = ["".join([letters[i] for i in reversed(info[key])]) for key in "abc"]
    arrays = [x.reshape(*reversed(info[f"dim_{key}"])) for key, x in (("a", a), ("b", b))]
    return c + einsum(f"{names[0]},{names[1]}->{names[2]}", *arrays).reshape(-1)


def _repeated(node: Instruction, x: UOp) -> UOp:
    n = node.structure.nnz() // max(length(x), 1)
    return x.reshape(1, length(x)).expand(n, length(x)).reshape(-1) if n else zeros(0)


def _repetitions_sum(node: Instruction, x: UOp) -> UOp:
    n = node.structure.nnz()
    return x.reshape(length(x) // n, n).sum(axis=0) if n else zeros(0)


def _first(node: Instruction, x: UOp) -> UOp:
    """The row of the first element that is not 0, or the number of rows."""
    s = node.of(0)
    none = numbers([s.size1()])
    return _scalar(joined([x.ne(0.0).where(numbers(rows(s)), none), none]).min())


def _interval(node: Instruction, grid: UOp, x: UOp) -> UOp:
    """The interval of a grid that holds x; the first and the last one go on without an end."""
    inner = grid[1 : max(length(grid) - 1, 1)].reshape(1, -1)
    return (inner <= x.reshape(-1, 1)).cast(dtypes.float64).sum(axis=1)


def _value(node: Instruction, x: UOp, *_: UOp) -> UOp:
    """The value alone: a program prints nothing, and checks nothing."""
    return x


def _convexified(node: Instruction, x: UOp) -> UOp:
    raise node.unsupported("it needs eigenvalues")


def _free(node: Instruction) -> UOp:
    raise node.unsupported(f"{node.mx} is free", way="make it an input of the Function")


MATRIX_OPS: dict[int, Rule] = {
    ca.OP_CONST: lambda node: numbers(node.mx.to_DM().nonzeros()),
    ca.OP_PARAMETER: _free,
    ca.OP_FIND: _first,
    ca.OP_LOW: _interval,
    ca.OP_MTIMES: _product,
    ca.OP_SOLVE: _solution,
    ca.OP_TRANSPOSE: _transposed,
    ca.OP_DETERMINANT: lambda node, x: _scalar(by_columns(x, node.of(0)).det()),
    ca.OP_INVERSE: lambda node, x: by_columns(x, node.of(0)).inv().reshape(-1),
    ca.OP_DOT: lambda node, x, y: _scalar((x * y).sum()),
    ca.OP_BILIN: _bilinear,
    ca.OP_RANK1: _rank_one,
    ca.OP_PROJECT: lambda node, x: projected(x, node.of(0), node.structure),
    ca.OP_ASSERTION: _value,
    ca.OP_MONITOR: _value,
    ca.OP_DUMP: _value,
    ca.OP_NORM1: lambda node, x: _scalar(x.abs().sum()),
    ca.OP_NORM2: _norm,
    ca.OP_NORMF: _norm,
    ca.OP_NORMINF: _largest,
    ca.OP_MMIN: _extreme(UOp.min, np.inf),
    ca.OP_MMAX: _extreme(UOp.max, -np.inf),
    ca.OP_HORZREPMAT: _repeated,
    ca.OP_HORZREPSUM: _repetitions_sum,
    ca.OP_EINSTEIN: _einstein,
    ca.OP_CONVEXIFY: _convexified,
    ca.OP_LOGSUMEXP: lambda node, x: _scalar(x.logsumexp()),
    ca.OP_KRON: _kronecker,
    ca.OP_KRON_CONTRACT: _kronecker_sums,
}
