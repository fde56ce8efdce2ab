"""The cofactors of matrices, and their derivatives of any order.

    det(A)' = sum of C(A) A';   C(A)' = C(A, A');   C(A, X)' = C(A, A', X) + C(A, X')

C(A, X, ...) is the derivative of the cofactors along X, ...: the order of these does not matter,
and C(A, X) is its own transpose in X. All are polynomials of the elements, so they are finite where
A has no inverse. With d, E, F of `diagonalized`, C(A, X) is E^T C(diag(d), E X F) F^T, and a minor
of a diagonal is a product: nothing is divided by a d.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from uopc.derivatives.rule import DerivativeRule
from uopc.derivatives.values import Value, fit, negative, summed_to, total
from uopc.ir.builder import alu, leaves, movement
from uopc.ir.core import shapes
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp
from uopc.tensor.matrices import matrix_kernels, products
from uopc.tensor.matrices.linear_algebra import mirrored
from uopc.tensor.primitive import primitive


class Cofactors(DerivativeRule):
    """Operands: A and any number of directions, whose batches broadcast."""

    kind = "linear"

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        _, t, *others = tangents
        _, a, *along = u.src
        terms = [None if t is None else cofactors(a, *along, t)]
        for i, other in enumerate(others):
            if other is not None:
                terms.append(cofactors(a, *along[:i], other, *along[i + 1 :]))
        return total([None if v is None else fit(v, shapes.shape(u)) for v in terms])

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        _, a, *along = u.src
        found: list[Value] = [None, cofactors(a, *along, cotangent) if wanted[1] else None]
        for i, is_wanted in enumerate(wanted[2:]):
            others = (*along[:i], cotangent, *along[i + 1 :])
            found.append(cofactors(a, *others) if is_wanted else None)
        return [
            None if v is None else summed_to(v, shapes.shape(s)) for v, s in zip(found, u.src)
        ]

    def batch_dimensions(self, u: UOp) -> int:
        dims = shapes.shape(u)
        return len(dims) - 2 if all([shapes.shape(s) == dims for s in u.src[1:]]) else 0

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        given = [
            a if b else movement.reshape(a, (1, *shapes.shape(a)))
            for a, b in zip(operands, batched)
        ]
        return cofactors(*given)


def cofactors(a: UOp, *along: UOp) -> UOp:
    """The cofactors of matrices, or their derivative along each of the directions in turn."""
    dims = shapes.shape(a)
    if 0 in dims:
        return a  # it has no elements
    flat = movement.reshape(a, (shapes.size(dims[:-2]), *dims[-2:]))
    d, e, f = matrix_kernels.diagonalized(flat)
    e, f = movement.reshape(e, dims), movement.reshape(f, dims)
    inner = [product(product(e, x), f) for x in along]
    minors = _of_diagonal(movement.reshape(d, dims[:-1]), inner)
    made = product(product(mirrored(e), minors), mirrored(f))
    return primitive(made, "cofactors", a, *along)


def product(a: UOp, b: UOp) -> UOp:
    return products.matmul(a, b).cast(a.dtype)


def _of_diagonal(d: UOp, along: Sequence[UOp]) -> UOp:
    """The derivative of the cofactors of diag(d).

    With p - 1 directions X, its element at row i[p] and column i[s(p)] is the sum over permutations
    s of p and over indices i of sign(s) times X[i[k], i[s(k)]] for each direction, times `_others`.
    """
    last, n = len(along), shapes.shape(d)[-1]
    weight = _others(d, last + 1)
    terms: list[Value] = []
    for order in itertools.permutations(range(last + 1)):
        term = weight
        for k, x in enumerate(along):
            term = term * _placed(x, k, order[k], last + 1)
        first = len(shapes.shape(term)) - last - 1
        added = [first + k for k in range(last) if k != order[last]]
        term = movement.reduce(term, "add", tuple(added)) if added else term
        if order[last] == last:
            term = alu.where(_same(n, 0, 1, 2), movement.reshape(term, (*shapes.shape(term), 1)), 0)
        else:
            term = mirrored(term)
        is_odd = sum([a > b for a, b in itertools.combinations(order, 2)]) % 2
        terms.append(negative(term) if is_odd else term)
    found = total(terms)
    assert found is not None
    return found


def _others(d: UOp, count: int) -> UOp:
    """For each tuple of `count` indices, the product of d at other indices; 0 if two are equal."""
    *batch, n = shapes.shape(d)
    kept: UOp = movement.reshape(d, (*batch, *(1,) * count, n))
    for k in range(count):
        kept = alu.where(_same(n, k, count, count + 1), 1, kept)
    found = movement.reduce(kept, "mul", len(batch) + count)
    for i, k in itertools.combinations(range(count), 2):
        found = alu.where(_same(n, i, k, count), 0, found)
    return found


def _same(n: Dim, i: int, k: int, count: int) -> UOp:
    """For each tuple of `count` indices, 1 if indices i and k are equal, else 0."""
    one, other = [
        movement.reshape(leaves.iota(n), tuple([n if axis == own else 1 for axis in range(count)]))
        for own in (i, k)
    ]
    return one.eq(other)


def _placed(x: UOp, i: int, k: int, count: int) -> UOp:
    """For each tuple of `count` indices, the element of x at row index i and column index k."""
    *batch, n, _ = shapes.shape(x)
    if i == k:
        x = movement.reduce(alu.where(_same(n, 0, 1, 2), x, 0), "add", len(batch) + 1)
    elif i > k:
        x = mirrored(x)
    return movement.reshape(x, (*batch, *[n if axis in (i, k) else 1 for axis in range(count)]))
