"""`linalg` of the Array API (`uopc.numpy.linalg`): products, norms, factors, equations.

Left out are eigenvalues and singular values, and the norms and ranks that need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from uopc.errors import UserError
from uopc.ir.builder import fold, leaves
from uopc.ir.builder.movement import normal_axes, normal_axis
from uopc.ir.builder.operands import as_dim
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.numpy.array import promoted, same_kind, uop_of
from uopc.numpy.manipulation import matrix_transpose
from uopc.numpy.reductions import sum as _sum
from uopc.tensor import linear_algebra, nn
from uopc.tensor.einsum import einsum as _einsum
from uopc.tensor.signals import convolution

__all__ = [
    "cholesky", "cross", "det", "diagonal", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_transpose", "outer", "qr", "slogdet", "solve", "solve_triangular", "tensordot", "trace",
    "vecdot", "vector_norm",
]  # fmt: skip


def matmul(x1: Any, x2: Any, /) -> Any:
    """The matrix product of the last two dimensions.

    (..., n, k) times (..., k, m) gives (..., n, m), with batches that broadcast; a vector (k,) on a
    side drops n or m. In the dtype that both promote to. UserError for a scalar, and where the
    lengths that are summed over differ.

    Examples:
        >>> a = unp.asarray([[1, 2], [3, 4]])
        >>> np.asarray(unp.matmul(a, unp.asarray([10, 1])))
        array([12, 34])
    """
    (a, b), _ = promoted("matmul", x1, x2)
    for u in (a, b):
        if not shapes.shape(u):
            raise UserError("matmul: an operand without dimensions; use multiply")
    made = nn.matmul(a, b)
    return same_kind(fold.cast(made, a.dtype), (x1, x2))


def dot(x1: Any, x2: Any, /) -> Any:
    """NumPy's dot: over the last axis of x1 and the last but one of x2 (the last of a vector).

    The dtypes promote. UserError where the lengths that are summed over differ.

    Examples:
        >>> int(unp.dot(unp.asarray([1, 2, 3]), unp.asarray([1, 0, 10])))
        31
    """
    (a, b), _ = promoted("dot", x1, x2)
    ranks = len(shapes.shape(a)), len(shapes.shape(b))
    if 0 in ranks:
        return same_kind(a * b, (x1, x2))
    if ranks[1] <= 2:
        return matmul(x1, x2)
    return tensordot(x1, x2, axes=((-1,), (-2,)))


def tensordot(x1: Any, x2: Any, /, axes: Any = 2) -> Any:
    """Sums of products over some axes of both: the last `axes` of x1 and first of x2, or a pair of
    sequences.

    The result has the other axes of x1, then those of x2, in the dtype that both promote to.
    UserError where the axes are not as many, or not as long.

    Examples:
        >>> a, b = unp.arange(6).reshape(2, 3), unp.arange(3)
        >>> np.asarray(unp.tensordot(a, b, axes=1))
        array([ 5, 14])
    """
    (a, b), _ = promoted("tensordot", x1, x2)
    rank_a, rank_b = len(shapes.shape(a)), len(shapes.shape(b))
    if isinstance(axes, int):
        if not 0 <= axes <= min(rank_a, rank_b):
            raise UserError(f"tensordot: axes={axes} of {rank_a} and {rank_b} dimensions")
        pair: Any = (range(rank_a - axes, rank_a), range(axes))
    else:
        pair = [(v,) if isinstance(v, int) else v for v in axes]
    left = [normal_axis(i, rank_a, "tensordot") for i in pair[0]]
    right = [normal_axis(i, rank_b, "tensordot") for i in pair[1]]
    if len(left) != len(right):
        raise UserError(f"tensordot: {len(left)} axes of one, {len(right)} of the other")
    free_a = [i for i in range(rank_a) if i not in left]
    free_b = [i for i in range(rank_b) if i not in right]
    dims_a, dims_b = shapes.shape(a), shapes.shape(b)
    for i, j in zip(left, right):
        if dims_a[i] != dims_b[j]:
            raise UserError(f"tensordot: axis {i} has {dims_a[i]} elements, axis {j} {dims_b[j]}")
    kept_a, kept_b = [dims_a[i] for i in free_a], [dims_b[i] for i in free_b]
    inner = shapes.size(tuple([dims_a[i] for i in left]))
    rows, columns = shapes.size(tuple(kept_a)), shapes.size(tuple(kept_b))
    flat_a = a.permute([*free_a, *left]).reshape(rows, inner)
    flat_b = b.permute([*right, *free_b]).reshape(inner, columns)
    made = nn.matmul(flat_a, flat_b).reshape(*kept_a, *kept_b) if kept_a or kept_b else (
        nn.matmul(flat_a, flat_b).reshape(()))  # fmt: skip
    return same_kind(fold.cast(made, a.dtype), (x1, x2))


def einsum(subscripts: str, /, *operands: Any, optimize: Any = True) -> Any:
    """The sum of products that the subscripts name, such as "ij,jk->ik". The order of products is
    chosen here: `optimize` is there for NumPy's callers.

    As in NumPy, "..." stands for further axes, and without "->" the result has the letters that
    occur once, in alphabetical order. UserError for subscripts that do not fit the operands.

    Examples:
        >>> a, b = unp.asarray([[1, 2], [3, 4]]), unp.asarray([10, 1])
        >>> np.asarray(unp.einsum("ij,j->i", a, b))
        array([12, 34])
    """
    del optimize
    uops, _ = promoted("einsum", *operands)
    return same_kind(_einsum(subscripts, *uops), operands)


def convolve(x1: Any, x2: Any, /, mode: Any = "full") -> Any:
    """NumPy's convolve of two vectors: "full", "same" or "valid".

    Lengths n and m give n + m - 1, max(n, m), or max(n, m) - min(n, m) + 1 numbers, in the dtype
    that both promote to. UserError for another mode, and for anything but two vectors.

    Examples:
        >>> np.asarray(unp.convolve(unp.asarray([1, 2, 3]), unp.asarray([1, 10])))
        array([ 1, 12, 23, 30])
    """
    (a, b), _ = promoted("convolve", x1, x2)
    return same_kind(convolution.convolve(a, b, mode), (x1, x2))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The sum of products along one axis.

    The other axes broadcast, and the dtypes promote. `axis` counts from the last one, -1; UserError
    where the lengths differ.

    Examples:
        >>> a = unp.asarray([[1, 2], [3, 4]])
        >>> np.asarray(unp.vecdot(a, a))
        array([ 5, 25])
    """
    (a, b), _ = promoted("vecdot", x1, x2)
    least = min(len(shapes.shape(a)), len(shapes.shape(b)))
    if not -least <= axis < 0:
        raise UserError(f"vecdot: axis must be -{least} to -1, got {axis}")
    if shapes.shape(a)[axis] != shapes.shape(b)[axis]:
        raise UserError(f"vecdot: {shapes.shape(a)[axis]} and {shapes.shape(b)[axis]} elements")
    return same_kind(fold.cast((a * b).sum(axis), a.dtype), (x1, x2))


def outer(x1: Any, x2: Any, /) -> Any:
    """The product of each element of one vector with each of the other.

    (n,) and (m,) give (n, m), in the dtype that both promote to. UserError unless both have one
    dimension.

    Examples:
        >>> np.asarray(unp.outer(unp.asarray([1, 2]), unp.asarray([10, 1])))
        array([[10,  1],
               [20,  2]])
    """
    (a, b), _ = promoted("outer", x1, x2)
    if len(shapes.shape(a)) != 1 or len(shapes.shape(b)) != 1:
        raise UserError("outer: needs two vectors")
    return same_kind(a.reshape(-1, 1) * b, (x1, x2))


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The cross product of vectors of 3 elements along an axis.

    The other axes broadcast, and the dtypes promote. UserError where the axis has another length.

    Examples:
        >>> np.asarray(unp.linalg.cross(unp.asarray([1, 0, 0]), unp.asarray([0, 1, 0])))
        array([0, 0, 1])
    """
    (a, b), _ = promoted("cross", x1, x2)
    shape = shapes.broadcast([shapes.shape(a), shapes.shape(b)])
    axis = normal_axis(axis, len(shape), "cross")
    a, b = a.expand(shape), b.expand(shape)
    if shape[axis] != 3:
        raise UserError(f"cross: axis {axis} has {shape[axis]} elements, not 3")
    before = (slice(None),) * axis
    p, q = ([u[(*before, i)] for i in range(3)] for u in (a, b))
    parts = [p[i - 2] * q[i - 1] - p[i - 1] * q[i - 2] for i in range(3)]
    return same_kind(parts[0].stack(*parts[1:], axis=axis), (x1, x2))


def diagonal(x: Any, /, offset: int = 0) -> Any:
    """The elements of the diagonal `offset` above the main one, of the last two dimensions.

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
    row, column = max(-offset, 0), max(offset, 0)
    count = _least(n - row, m - column)
    places = leaves.iota(count) * (m + 1) + (row * m + column)
    flat = u.reshape(*rest, n * m)
    return flat[(*(slice(None),) * len(rest), fold.cast(places, dtypes.int64))]


def _least(a: shapes.Dim, b: shapes.Dim) -> shapes.Dim:
    """The smaller size, at least 0."""
    return as_dim(dim_uop(a).minimum(dim_uop(b)).maximum(0))


def trace(x: Any, /, offset: int = 0, dtype: Any = None) -> Any:
    """The sum of a diagonal of the last two dimensions; of integers in 64 bits.

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

    Over all axes, one or several (`axis`), which the result lacks, or has with size 1 (`keepdims`).
    In the dtype of x; of integers in float64.

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
    """An operand; of integers and bools in float64."""
    u = uop_of(x)
    return u if u.dtype.is_float else fold.cast(u, dtypes.float64)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norm of matrices, the last two dimensions: "fro", 1, -1, inf or -inf.

    x has shape (..., m, n), the result (...), or (..., 1, 1) with keepdims, in the dtype of x (of
    integers in float64). UserError for another order, which needs singular values.

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
    else:
        raise UserError(f"matrix_norm: ord {ord!r} needs singular values, which uopc has not")
    return same_kind(made, (x,))


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


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """The lower triangles L of x = L·Lᵀ, or the upper ones of x = Uᵀ·U, of which x has the same
    triangle. A matrix that is not positive definite gives NaN.

    x has shape (..., n, n), and so has the result, in its dtype (float64 for integers). UserError
    for other shapes. See `UOp.cholesky` for the method.

    Examples:
        >>> np.asarray(unp.linalg.cholesky(unp.asarray([[4.0, 2.0], [2.0, 5.0]])))
        array([[2., 0.],
               [1., 2.]])
    """
    return same_kind(linear_algebra.cholesky(uop_of(x, "cholesky"), upper), (x,))


def qr(x: Any, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """q with orthonormal columns, and upper triangles r, of x = q·r.

    x has shape (..., m, n): q has k = min(m, n) columns and r as many rows, or m with "complete",
    in the dtype of x (float64 for integers). UserError for another mode or fewer dimensions. See
    `UOp.qr` for the method.

    Examples:
        >>> q, r = unp.linalg.qr(unp.asarray([[3.0], [4.0]]))
        >>> np.asarray(abs(r))
        array([[5.]])
    """
    made = linear_algebra.qr(uop_of(x, "qr"), mode)
    return QRResult(*same_kind(list(made), (x,)))


def solve(x1: Any, x2: Any, /) -> Any:
    """x of x1·x = x2. x2 is one vector, or holds matrices; batches broadcast. A singular matrix
    gives infinities or NaN.

    x1 has shape (..., n, n), x2 and the result (n,) or (..., n, m), in the dtype that both promote
    to (float64 for integers). UserError for other shapes. See `UOp.solve` for the method.

    Examples:
        >>> a, b = unp.asarray([[0.0, 1.0], [1.0, 1.0]]), unp.asarray([2.0, 3.0])
        >>> np.asarray(unp.linalg.solve(a, b))
        array([1., 2.])
    """
    (a, b), _ = promoted("solve", x1, x2)
    return same_kind(linear_algebra.solve(a, b), (x1, x2))


def solve_triangular(
    a: Any, b: Any, /, *, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Any:
    """x of a·x = b for triangles a, as `jax.scipy.linalg.solve_triangular`: the other triangle is
    not read. `trans` (1 or "T") solves aᵀ·x = b; batches broadcast.

    a has shape (..., n, n), b and the result (n,) or (..., n, m), in the dtype that both promote to
    (float64 for integers); `unit_diagonal`: the diagonals count as 1. UserError for other shapes.

    Examples:
        >>> a, b = unp.asarray([[2.0, 0.0], [1.0, 4.0]]), unp.asarray([2.0, 5.0])
        >>> np.asarray(unp.linalg.solve_triangular(a, b, lower=True))
        array([1., 1.])
    """
    (left, right), _ = promoted("solve_triangular", a, b)
    made = linear_algebra.solve_triangular(left, right, lower, trans, unit_diagonal)
    return same_kind(made, (a, b))


def inv(x: Any, /) -> Any:
    """The inverse matrices. A singular matrix gives infinities or NaN.

    x and the result have shape (..., n, n) and one dtype (float64 for integers). UserError for
    other shapes. See `UOp.inv` for the method.

    Examples:
        >>> np.asarray(unp.linalg.inv(unp.asarray([[0.0, 2.0], [1.0, 0.0]])))
        array([[0. , 1. ],
               [0.5, 0. ]])
    """
    return same_kind(linear_algebra.inv(uop_of(x, "inv")), (x,))


def det(x: Any, /) -> Any:
    """The determinants of matrices.

    x has shape (..., n, n), the result (...), in the dtype of x (float64 for integers). UserError
    for other shapes. See `UOp.det` for the method.

    Examples:
        >>> float(unp.linalg.det(unp.asarray([[0.0, 2.0], [3.0, 1.0]])))
        -6.0
    """
    return same_kind(linear_algebra.det(uop_of(x, "det")), (x,))


def slogdet(x: Any, /) -> SlogdetResult:
    """The signs of the determinants and the logarithms of their magnitudes: 0 and -inf for a
    singular matrix.

    x has shape (..., n, n), both results (...), in the dtype of x (float64 for integers). UserError
    for other shapes.

    Examples:
        >>> sign, logarithm = unp.linalg.slogdet(unp.asarray([[0.0, 1.0], [1.0, 0.0]]))
        >>> float(sign), float(logarithm)
        (-1.0, 0.0)
    """
    made = linear_algebra.slogdet(uop_of(x, "slogdet"))
    return SlogdetResult(*same_kind(list(made), (x,)))


def matrix_power(x: Any, n: int, /) -> Any:
    """The n-th power of matrices; of the inverse for a negative n.

    x and the result have shape (..., k, k) and one dtype (floats for a negative n). UserTypeError
    unless n is an int, UserError for other shapes.

    Examples:
        >>> np.asarray(unp.linalg.matrix_power(unp.asarray([[1, 1], [0, 1]]), 3))
        array([[1, 3],
               [0, 1]])
    """
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
