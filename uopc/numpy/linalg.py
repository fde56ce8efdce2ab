"""`linalg` of the Array API (`uopc.numpy.linalg`): products, norms, factors, equations.

It lacks eigenvalues and singular values, and the norms and ranks that need them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from uopc.errors import UserError
from uopc.ir.builder import checks, fold, leaves
from uopc.ir.builder.movement import normal_axes
from uopc.ir.builder.operands import as_dim
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.numpy.array import promoted, same_kind, uop_of
from uopc.numpy.manipulation import matrix_transpose, own_axes
from uopc.numpy.products import cross, dot, einsum, matmul, outer, tensordot, vecdot
from uopc.numpy.reductions import sum as _sum
from uopc.tensor import table
from uopc.tensor.matrices import linear_algebra

__all__ = [
    "cholesky", "cross", "det", "diagonal", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_transpose", "multi_dot", "norm", "outer", "qr", "slogdet", "solve", "solve_triangular",
    "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


def diagonal(x: Any, /, offset: int = 0) -> Any:
    """The elements of the diagonal `offset` above the main diagonal of the last two dimensions.

    A shape (..., m, n) gives (..., count). UserError for fewer than two dimensions.

    Examples:
        >>> np.asarray(unp.linalg.diagonal(unp.asarray([[1, 2], [3, 4]])))
        array([1, 4])
    """
    return same_kind(_diagonal(uop_of(x), offset), (x,))


def _diagonal(u: UOp, offset: int) -> UOp:
    dims = shapes.shape(u)
    if len(dims) < 2:
        raise UserError(f"diagonal: needs 2 dimensions, got {shapes.show(dims)}")
    *rest, n, m = dims
    offset = checks.integer("diagonal", "offset", offset)
    row, column = max(-offset, 0), max(offset, 0)
    count = _least(n - row, m - column)
    places = leaves.iota(count) * (m + 1) + (row * m + column)
    flat = u.reshape(*rest, n * m)
    return flat[(*(slice(None),) * len(rest), fold.cast(places, dtypes.int64))]


def _least(a: shapes.Dim, b: shapes.Dim) -> shapes.Dim:
    """The smaller size, at least 0."""
    return as_dim(dim_uop(a).minimum(dim_uop(b)).maximum(0))


def trace(x: Any, /, offset: int = 0, dtype: Any = None) -> Any:
    """The sum of a diagonal of the last two dimensions; integers are summed in 64 bits.

    A shape (..., m, n) gives (...), in the dtype of x or `dtype`. UserError for fewer dimensions.

    Examples:
        >>> int(unp.linalg.trace(unp.asarray([[1, 2], [3, 4]])))
        5
    """
    return _sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2
) -> Any:
    """The norm of vectors: the root of order `ord` of the sum of powers; 0, inf and -inf too.

    It is over all axes, one or several (`axis`); the result lacks these axes, or with `keepdims`
    has them with size 1. The dtype is that of x; float64 for integers.

    Examples:
        >>> x = unp.asarray([3.0, -4.0])
        >>> float(unp.linalg.vector_norm(x)), float(unp.linalg.vector_norm(x, ord=1))
        (5.0, 7.0)
    """
    u = _floats(x)
    size = abs(u)
    if ord == float("inf"):
        made = size.max(axis, keepdims).maximum(0)  # of no elements, 0
    elif ord == -float("inf"):
        made = size.min(axis, keepdims)
    elif ord == 0:
        made = fold.cast(size.ne(0), u.dtype).sum(axis, keepdims)
    elif ord == 1:
        made = size.sum(axis, keepdims)
    elif ord == 2:
        made = (u * u).sum(axis, keepdims).sqrt()
    else:
        made = (size**ord).sum(axis, keepdims) ** (1.0 / ord)
    return same_kind(fold.cast(made, u.dtype), (x,))


def _floats(x: Any) -> UOp:
    """Convert an operand; integers and bools to float64."""
    u = uop_of(x)
    return u if u.dtype.is_float else fold.cast(u, dtypes.float64)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norm of the matrices in the last two dimensions: "fro", 1, -1, inf or -inf.

    x has shape (..., m, n), the result (...), or (..., 1, 1) with keepdims, in the dtype of x (of
    integers in float64). UserError for another order; 2, -2 and "nuc" need singular values.

    Examples:
        >>> x = unp.asarray([[1.0, -2.0], [2.0, 4.0]])
        >>> float(unp.linalg.matrix_norm(x)), float(unp.linalg.matrix_norm(x, ord=1))
        (5.0, 6.0)
    """
    u = _floats(x)
    rank = len(shapes.shape(u))
    rows, columns = normal_axes((-2, -1), rank, "matrix_norm")
    if ord == "fro":
        made = (u * u).sum((rows, columns), keepdims).sqrt()
    elif ord in (1, -1, float("inf"), -float("inf")):
        summed, over = (rows, columns) if abs(ord) == 1 else (columns, rows)
        totals = abs(u).sum(summed, True)
        made = totals.max(over, True) if ord > 0 else totals.min(over, True)
        if not keepdims:
            made = made.reshape(shapes.shape(u)[: rank - 2])
    elif ord in (2, -2, "nuc"):
        raise UserError(
            f"matrix_norm: ord {ord!r} needs singular values, which uopc does not compute"
        )
    else:
        raise UserError(f"matrix_norm: unknown ord {ord!r}; choose 'fro', 1, -1, inf or -inf")
    return same_kind(made, (x,))


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """NumPy's norm of vectors (one axis), of matrices (two), or of all elements (without `ord`).

    Without an axis x is one vector or matrix; without `ord` the norm is the root of the sum of
    squares. In the dtype of x (float64 for integers). See `vector_norm` and `matrix_norm` for the
    orders. UserError for other orders, for another number of axes, and for orders of matrices that
    need singular values.

    Examples:
        >>> x = unp.asarray([[3.0, -4.0], [0.0, 12.0]])
        >>> float(unp.linalg.norm(x)), np.asarray(unp.linalg.norm(x, axis=1))
        (13.0, array([ 5., 12.]))
    """
    u = uop_of(x, "norm")
    if axis is None and ord is None:
        return vector_norm(x, keepdims=keepdims)
    axes = own_axes(axis, u.ndim, "norm")
    if len(axes) not in (1, 2):
        raise UserError(f"norm: needs 1 or 2 axes, got {len(axes)}")
    if len(axes) == 1:
        if isinstance(ord, str):
            raise UserError(f"norm: a vector has no ord {ord!r}; pass a number")
        return vector_norm(x, axis=axes[0], keepdims=keepdims, ord=2 if ord is None else ord)
    rest = [i for i in range(u.ndim) if i not in axes]
    order = "fro" if ord in (None, "f") else ord
    made = matrix_norm(u.permute((*rest, *axes)), ord=order)
    if keepdims:
        made = made.reshape([1 if i in axes else d for i, d in enumerate(u.shape)])
    return same_kind(made, (x,))


def multi_dot(arrays: Sequence[Any]) -> Any:
    """The product of two or more matrices, in the order with the fewest multiplications.

    The first and the last array may be vectors; the dtypes promote. UserError for fewer than two
    arrays, and where sizes do not fit.

    Examples:
        >>> a, b = unp.asarray([[1, 2], [3, 4]]), unp.asarray([10, 1])
        >>> np.asarray(unp.linalg.multi_dot([a, a, b]))
        array([ 80, 172])
    """
    if len(arrays) == 2:
        return dot(*arrays)
    uops, _ = promoted("multi_dot", *arrays)
    ranks = [u.ndim for u in uops]
    ends = {ranks[0], ranks[-1]} if ranks else set()
    if len(ranks) < 3 or not ends <= {1, 2} or any(r != 2 for r in ranks[1:-1]):
        raise UserError(f"multi_dot: needs two or more matrices, got arrays of {ranks} dimensions")
    if len(uops) > 25:
        raise UserError(f"multi_dot: at most 25 arrays, got {len(uops)}")
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [letters[i : i + 2] for i in range(len(uops))]
    names[0] = names[0][2 - ranks[0] :]
    names[-1] = names[-1][: ranks[-1]]
    kept = names[0][: ranks[0] - 1] + names[-1][1:]
    return same_kind(einsum(f"{','.join(names)}->{kept}", *uops), arrays)


# ---------------------------------------------------------------- factors and equations
class QRResult(NamedTuple):
    """The factors of `qr`: q has orthonormal columns, r is an upper triangle.

    Examples:
        >>> unp.linalg.qr(unp.zeros((3, 2))).Q.shape
        (3, 2)
    """

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its magnitude.

    Examples:
        >>> float(unp.linalg.slogdet(-unp.eye(3)).sign)
        -1.0
    """

    sign: Any
    logabsdet: Any


@table.routine
def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    return same_kind(linear_algebra.cholesky(uop_of(x, "cholesky"), upper), (x,))


@table.routine
def qr(x: Any, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    made = linear_algebra.qr(uop_of(x, "qr"), mode)
    return QRResult(*same_kind(list(made), (x,)))


@table.routine
def solve(x1: Any, x2: Any, /) -> Any:
    (a, b), _ = promoted("solve", x1, x2)
    return same_kind(linear_algebra.solve(a, b), (x1, x2))


@table.routine
def solve_triangular(
    a: Any, b: Any, /, *, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Any:
    (left, right), _ = promoted("solve_triangular", a, b)
    made = linear_algebra.solve_triangular(left, right, lower, trans, unit_diagonal)
    return same_kind(made, (a, b))


@table.routine
def inv(x: Any, /) -> Any:
    return same_kind(linear_algebra.inv(uop_of(x, "inv")), (x,))


@table.routine
def det(x: Any, /) -> Any:
    return same_kind(linear_algebra.det(uop_of(x, "det")), (x,))


@table.routine
def slogdet(x: Any, /) -> SlogdetResult:
    made = linear_algebra.slogdet(uop_of(x, "slogdet"))
    return SlogdetResult(*same_kind(list(made), (x,)))


@table.routine
def matrix_power(x: Any, n: int, /) -> Any:
    return same_kind(linear_algebra.matrix_power(uop_of(x, "matrix_power"), n), (x,))


_BY_ITERATION = (
    "cond", "eig", "eigh", "eigvals", "eigvalsh", "lstsq", "matrix_rank", "pinv", "svd", "svdvals",
)  # fmt: skip


if not TYPE_CHECKING:  # which would allow every name

    def __getattr__(name):
        if name in _BY_ITERATION:
            raise AttributeError(
                f"uopc.numpy.linalg has no {name}: it iterates until values have converged;"
                f" use numpy.linalg.{name} on computed arrays"
            )
        raise AttributeError(f"module 'uopc.numpy.linalg' has no attribute {name!r}")
