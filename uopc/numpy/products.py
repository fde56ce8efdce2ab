"""Products of matrices and vectors, over axes, correlations of vectors, and what decoders make of
products: turned pairs, and attention."""

from __future__ import annotations

from typing import Any

from uopc.errors import UserError
from uopc.ir.builder import checks, fold
from uopc.ir.builder.movement import normal_axis
from uopc.ir.core import shapes
from uopc.numpy.array import promoted, same_kind, uop_of
from uopc.tensor import nn, table
from uopc.tensor.matrices import products
from uopc.tensor.matrices.einsum import einsum as _einsum
from uopc.tensor.signals import convolution

__all__ = [
    "attention", "convolve", "correlate", "cross", "dot", "einsum", "inner", "kron", "matmul",
    "matvec", "outer", "rotary", "tensordot", "vdot", "vecdot", "vecmat",
]  # fmt: skip


@table.routine
def matmul(x1: Any, x2: Any, /) -> Any:
    (a, b), _ = promoted("matmul", x1, x2)
    for u in (a, b):
        if not shapes.shape(u):
            raise UserError("matmul: an operand has no dimensions; use multiply")
    made = products.matmul(a, b)
    return same_kind(fold.cast(made, a.dtype), (x1, x2))


def dot(x1: Any, x2: Any, /) -> Any:
    """NumPy's dot: over the last axis of x1 and the second-to-last of x2 (of a vector, the last).

    The dtypes promote. UserError if the lengths of these axes differ.

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
    """Sum products over some axes of both: the last `axes` axes of x1 and the first of x2, or a
    pair of sequences of axes.

    The result has the other axes of x1, then those of x2; the dtypes promote. UserError unless both
    have equally many axes of equal lengths.

    Examples:
        >>> a, b = unp.arange(6).reshape(2, 3), unp.arange(3)
        >>> np.asarray(unp.tensordot(a, b, axes=1))
        array([ 5, 14])
    """
    (a, b), _ = promoted("tensordot", x1, x2)
    rank_a, rank_b = len(shapes.shape(a)), len(shapes.shape(b))
    if isinstance(axes, int):
        if not 0 <= axes <= min(rank_a, rank_b):
            raise UserError(f"tensordot: axes must be 0 to {min(rank_a, rank_b)}, got {axes}")
        pair: Any = (range(rank_a - axes, rank_a), range(axes))
    else:
        given = checks.sequence("tensordot", "axes", axes)
        pair = [
            (v,) if isinstance(v, int) else checks.sequence("tensordot", "axes", v) for v in given
        ]
        if len(pair) != 2:
            raise UserError(f"tensordot: axes must be a number or a pair, got {axes!r}")
    left = [normal_axis(i, rank_a, "tensordot") for i in pair[0]]
    right = [normal_axis(i, rank_b, "tensordot") for i in pair[1]]
    if len(left) != len(right):
        raise UserError(f"tensordot: {len(left)} axes of x1, but {len(right)} axes of x2")
    free_a = [i for i in range(rank_a) if i not in left]
    free_b = [i for i in range(rank_b) if i not in right]
    dims_a, dims_b = shapes.shape(a), shapes.shape(b)
    for i, j in zip(left, right):
        if dims_a[i] != dims_b[j]:
            sizes = f"axis {i} of x1 has {dims_a[i]} elements, axis {j} of x2 {dims_b[j]}"
            raise UserError(f"tensordot: {sizes}")
    kept_a, kept_b = [dims_a[i] for i in free_a], [dims_b[i] for i in free_b]
    inner = shapes.size(tuple([dims_a[i] for i in left]))
    rows, columns = shapes.size(tuple(kept_a)), shapes.size(tuple(kept_b))
    flat_a = a.permute([*free_a, *left]).reshape(rows, inner)
    flat_b = b.permute([*right, *free_b]).reshape(inner, columns)
    made = products.matmul(flat_a, flat_b).reshape(*kept_a, *kept_b) if kept_a or kept_b else (
        products.matmul(flat_a, flat_b).reshape(()))  # fmt: skip
    return same_kind(fold.cast(made, a.dtype), (x1, x2))


def einsum(subscripts: str, /, *operands: Any, optimize: Any = True) -> Any:
    """The sum of products that the subscripts name, such as "ij,jk->ik". `optimize` is ignored
    (NumPy's callers pass it): uopc chooses the order of products.

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


@table.routine
def convolve(x1: Any, x2: Any, /, mode: Any = "full") -> Any:
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
        sizes = f"{shapes.shape(a)[axis]} and {shapes.shape(b)[axis]}"
        raise UserError(f"vecdot: the vectors must have one length, got {sizes} elements")
    return same_kind(fold.cast((a * b).sum(axis), a.dtype), (x1, x2))


def outer(x1: Any, x2: Any, /) -> Any:
    """The product of each element of one vector with each of the other.

    (n,) and (m,) give (n, m); the dtypes promote. UserError unless both have one dimension.

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


# ---------------------------------------------------------------- products of NumPy alone
def inner(a: Any, b: Any, /) -> Any:
    """Sums of products over the last axes of both; if one is a number, the product.

    (..., k) and (+++, k) give (..., +++); the dtypes promote. UserError where the lengths differ.

    Examples:
        >>> int(unp.inner(unp.asarray([1, 2, 3]), unp.asarray([1, 0, 10])))
        31
    """
    if not (uop_of(a).ndim and uop_of(b).ndim):
        return dot(a, b)
    return tensordot(a, b, axes=((-1,), (-1,)))


def vdot(a: Any, b: Any, /) -> Any:
    """The sum of the products of all elements; the arrays may differ in shape.

    The dtypes promote. UserError where the numbers of elements differ.

    Examples:
        >>> int(unp.vdot(unp.asarray([[1, 2], [3, 4]]), unp.asarray([[1, 0], [0, 10]])))
        41
    """
    flat = [same_kind(uop_of(v, "vdot").reshape(-1), (v,)) for v in (a, b)]
    return dot(*flat)


def matvec(x1: Any, x2: Any, /) -> Any:
    """The products of matrices and vectors.

    (..., n, k) times (..., k) gives (..., n); batches broadcast, and the dtypes promote. UserError
    where the lengths differ.

    Examples:
        >>> np.asarray(unp.matvec(unp.asarray([[1, 2], [3, 4]]), unp.asarray([10, 1])))
        array([12, 34])
    """
    (a, b), _ = promoted("matvec", x1, x2)
    if a.ndim < 2 or b.ndim < 1:
        raise UserError(f"matvec: needs matrices and vectors, got {a.ndim} and {b.ndim} dimensions")
    made = products.matmul(a, b.reshape((*b.shape, 1)))
    return same_kind(fold.cast(made, a.dtype).reshape(made.shape[:-1]), (x1, x2))


def vecmat(x1: Any, x2: Any, /) -> Any:
    """The products of vectors and matrices.

    (..., k) times (..., k, m) gives (..., m); batches broadcast, and the dtypes promote. UserError
    where the lengths differ.

    Examples:
        >>> np.asarray(unp.vecmat(unp.asarray([10, 1]), unp.asarray([[1, 2], [3, 4]])))
        array([13, 24])
    """
    (a, b), _ = promoted("vecmat", x1, x2)
    if a.ndim < 1 or b.ndim < 2:
        raise UserError(f"vecmat: needs vectors and matrices, got {a.ndim} and {b.ndim} dimensions")
    made = products.matmul(a.reshape((*a.shape[:-1], 1, a.shape[-1])), b)
    dims = made.shape
    return same_kind(fold.cast(made, a.dtype).reshape((*dims[:-2], dims[-1])), (x1, x2))


def kron(a: Any, b: Any, /) -> Any:
    """The Kronecker product: each element of a, multiplied by a copy of b, is a block.

    Each axis has the product of both lengths; the array with fewer dimensions gets axes of size 1
    in front. The dtypes promote.

    Examples:
        >>> np.asarray(unp.kron(unp.asarray([1, 10]), unp.asarray([1, 2])))
        array([ 1,  2, 10, 20])
    """
    (x, y), _ = promoted("kron", a, b)
    rank = max(x.ndim, y.ndim)
    left, right = ((*(1,) * (rank - v.ndim), *v.shape) for v in (x, y))
    rows = x.reshape([s for d in left for s in (d, 1)])
    made = rows * y.reshape([s for d in right for s in (1, d)])
    return same_kind(made.reshape([d * e for d, e in zip(left, right)]), (a, b))


def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    """NumPy's correlate of two vectors: sums of a[n + k] * v[n], "full", "same" or "valid".

    Lengths are those of `convolve`; the dtypes promote. UserError for another mode, and for
    anything but two vectors of known length.

    Examples:
        >>> np.asarray(unp.correlate(unp.asarray([1, 2, 3, 4]), unp.asarray([1, 10])))
        array([21, 32, 43])
    """
    (x, y), _ = promoted("correlate", a, v)
    if any(u.ndim != 1 or not isinstance(u.shape[0], int) for u in (x, y)):
        both = f"{shapes.show(x.shape)} and {shapes.show(y.shape)}"
        raise UserError(f"correlate: needs two vectors of known length, got {both}")
    if mode != "full" and x.shape[0] < y.shape[0]:  # the longer one stays: it runs backwards
        made = convolution.convolve(y, x.flip(0), mode).flip(0)
    else:
        made = convolution.convolve(x, y.flip(0), mode)
    return same_kind(made, (a, v))


@table.routine
def rotary(x: Any, /, cos: Any, sin: Any, *, interleaved: bool = False) -> Any:
    (a, c, s), _ = promoted("rotary", x, cos, sin)
    return same_kind(nn.rotary(a, c, s, interleaved), (x, cos, sin))


@table.routine
def attention(
    x: Any, /, keys: Any, values: Any, *, mask: Any = None, scale: float | None = None,
    cap: float | None = None,
) -> Any:  # fmt: skip
    (q, k, v), _ = promoted("attention", x, keys, values)
    seen = None if mask is None else uop_of(mask, "attention")
    made = nn.attention(q, k, v, seen, scale, cap)
    return same_kind(made, (x, keys, values, mask))
