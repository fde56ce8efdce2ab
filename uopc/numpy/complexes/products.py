"""Products of complex matrices and vectors: sums of products of their parts.

(A + iB) @ (C + iD)   →   [[A, -B], [B, A]] @ [C; D], one product of real matrices
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from uopc.errors import UserError
from uopc.ir.core import dtypes
from uopc.numpy import linalg, namespace, products
from uopc.numpy.array import Array
from uopc.numpy.complexes import moved
from uopc.numpy.complexes.arrays import ComplexArray, dtype_of, is_complex, real_of
from uopc.numpy.dtype_functions import FORMS
from uopc.tensor.elementwise import contiguous
from uopc.tensor.matrices.products import by_squares

Function = Callable[..., Any]


def _operands(values: Sequence[Any]) -> list[Array]:
    """The operands as Arrays with parts of one dtype; real ones stay real."""
    t = dtype_of(values)
    return [
        moved.astype(v, t) if is_complex(v) else namespace.astype(
            namespace.asarray(v), dtypes.part_of(t)) for v in values
    ]  # fmt: skip


def _stored(a: Array) -> Array:
    return Array(contiguous(a.uop), a.tracing)


def bilinear(function: Function) -> Function:
    """Make a function that is linear in each of two operands, from that of real ones."""

    def form(x1: Any, x2: Any, *args: Any, **named: Any) -> Any:
        a, b = _operands((x1, x2))

        def of(x: Array, y: Array) -> Any:
            return function(x, y, *args, **named)

        if not isinstance(a, ComplexArray):
            assert isinstance(b, ComplexArray)
            return ComplexArray(of(a, b.re), of(a, b.im))
        if not isinstance(b, ComplexArray):
            return ComplexArray(of(a.re, b), of(a.im, b))
        return ComplexArray(of(a.re, b.re) - of(a.im, b.im), of(a.re, b.im) + of(a.im, b.re))

    return form


def matmul(x1: Any, x2: Any, /) -> Any:
    """The product of matrices or vectors."""
    a, b = _operands((x1, x2))
    if not a.ndim or not b.ndim:
        raise UserError("matmul: an operand has no dimensions; use multiply")
    if a.ndim == 1 or b.ndim == 1 or 1 in (a.shape[-2], b.shape[-1]):
        return _of_vectors(a, b)
    if not isinstance(a, ComplexArray):
        assert isinstance(b, ComplexArray)
        return ComplexArray(*[products.matmul(a, _stored(p)) for p in (b.re, b.im)])
    if not isinstance(b, ComplexArray):
        return ComplexArray(*[products.matmul(_stored(p), b) for p in (a.re, a.im)])
    rows = a.shape[-2]
    right = namespace.concat([b.re, b.im], axis=-2)
    found = _stored(products.matmul(_stored(_embedded(a)), _stored(right)))
    return ComplexArray(found[..., :rows, :], found[..., rows:, :])


def _of_vectors(a: Array, b: Array) -> Any:
    """A product that reads each element of a matrix once: a sum of products of elements."""
    if a.shape[-1] != b.shape[max(-2, -b.ndim)]:
        products.matmul(real_of(a), real_of(b))  # which says so
    if b.ndim == 1:
        return namespace.sum(a * b, axis=-1)
    left = a if a.ndim == 1 else namespace.moveaxis(a, -1, -2)
    if a.ndim == 1:
        return namespace.sum(namespace.expand_dims(left, axis=-1) * b, axis=-2)
    return namespace.sum(namespace.expand_dims(a, axis=-1) * namespace.expand_dims(b, axis=-3),
                         axis=-2)  # fmt: skip


def dot(x1: Any, x2: Any, /) -> Any:
    """NumPy's dot."""
    a, b = _operands((x1, x2))
    if not a.ndim or not b.ndim:
        return a * b
    return matmul(a, b) if b.ndim <= 2 else FORMS["tensordot"](a, b, axes=((-1,), (-2,)))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return _vecdot(namespace.conj(x1), x2, axis=axis)


def vdot(x1: Any, x2: Any, /) -> Any:
    flat = [namespace.reshape(namespace.asarray(v), (-1,)) for v in (x1, x2)]
    return dot(namespace.conj(flat[0]), flat[1])


def correlate(x1: Any, x2: Any, /, mode: Any = "valid") -> Any:
    return _correlate(x1, namespace.conj(namespace.asarray(x2)), mode)


def einsum(subscripts: str, /, *operands: Any, optimize: Any = True) -> Any:
    """The sum over the choices of a part of each operand; two imaginary parts give a minus."""
    given = _operands(operands)
    choices = [(v.re, v.im) if isinstance(v, ComplexArray) else (v,) for v in given]
    sums: list[Any] = [None, None]
    for chosen in itertools.product(*[range(len(c)) for c in choices]):
        found = products.einsum(subscripts, *[c[i] for c, i in zip(choices, chosen)])
        count = sum(chosen)
        found = -found if count % 4 in (2, 3) else found
        sums[count % 2] = found if sums[count % 2] is None else sums[count % 2] + found
    return ComplexArray(*sums)


def multi_dot(arrays: Sequence[Any]) -> Any:
    """The product of matrices, from left to right."""
    found = arrays[0]
    for a in arrays[1:]:
        found = dot(found, a)
    return found


# ---------------------------------------------------------------- norms and equations
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Any:
    return linalg.vector_norm(namespace.abs(x), axis=axis, keepdims=keepdims, ord=ord)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return linalg.matrix_norm(namespace.abs(x), keepdims=keepdims, ord=ord)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    return linalg.norm(namespace.abs(x), ord, axis, keepdims)


def _embedded(a: ComplexArray) -> Array:
    """[[re, -im], [im, re]], which multiplies pairs of columns as the complex matrix does."""
    found: Array = namespace.concat([
        namespace.concat([a.re, -a.im], axis=-1), namespace.concat([a.im, a.re], axis=-1)
    ], axis=-2)  # fmt: skip
    return found


def solve(x1: Any, x2: Any, /) -> Any:
    """By the real equations of twice the size."""
    a, b = (moved.astype(v, dtype_of((x1, x2))) for v in (x1, x2))
    n = a.shape[-1]
    right = namespace.concat([b.re, b.im], axis=-1 if b.ndim == 1 else -2)
    found = linalg.solve(_embedded(a), right)
    if b.ndim == 1:
        return ComplexArray(found[..., :n], found[..., n:])
    return ComplexArray(found[..., :n, :], found[..., n:, :])


def inv(x: Any, /) -> Any:
    """The inverse, by that of the real matrix of twice the size."""
    a = moved.asarray(x)
    n = a.shape[-1]
    found = linalg.inv(_embedded(a))
    return ComplexArray(found[..., :n, :n], found[..., n:, :n])


def matrix_power(x: Any, n: int, /) -> Any:
    """The power of a square matrix, by repeated squares."""
    a = moved.asarray(x)
    if not n:
        return moved.astype(linalg.matrix_power(a.re, n), a.dtype)
    return by_squares(inv(a) if n < 0 else a, abs(n), matmul)


def trace(x: Any, /, offset: int = 0, dtype: Any = None) -> Any:
    return FORMS["sum"](FORMS["linalg.diagonal"](x, offset=offset), axis=-1, dtype=dtype)


_vecdot, _correlate = bilinear(products.vecdot), bilinear(products.correlate)
FORMS.update({n: bilinear(getattr(products, n)) for n in (
    "inner", "kron", "outer", "tensordot", "cross", "convolve",
)})  # fmt: skip
FORMS.update({
    "matmul": matmul, "dot": dot, "vecdot": vecdot, "vdot": vdot, "correlate": correlate,
    "einsum": einsum, "multi_dot": multi_dot, "vector_norm": vector_norm,
    "matrix_norm": matrix_norm, "norm": norm, "solve": solve, "inv": inv,
    "matrix_power": matrix_power, "linalg.trace": trace,
    "matvec": lambda a, b: matmul(a, namespace.expand_dims(b, axis=-1))[..., 0],
    "vecmat": lambda a, b: matmul(namespace.expand_dims(namespace.conj(a), axis=-2), b)[..., 0, :],
    "trace": moved.by_parts(namespace.trace, (0, "x")),
})  # fmt: skip
