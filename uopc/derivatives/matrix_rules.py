"""The rules of factors of matrices, equations and determinants, of shape (batch, n, m).

Sources: M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008); I. Murray, "Differentiation of the Cholesky decomposition" (2016); S. F.
Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions" (2010) for QR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uopc.derivatives import cofactors
from uopc.derivatives.cofactors import product
from uopc.derivatives.rule import DerivativeRule, Pushed
from uopc.derivatives.values import Value, fit, total
from uopc.errors import Unsupported
from uopc.ir.builder import leaves, movement
from uopc.ir.core import shapes
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp
from uopc.tensor.matrices import linear_algebra
from uopc.tensor.matrices.linear_algebra import mirrored

Kernel = Callable[[UOp, Sequence[UOp]], UOp]


class _Batched(DerivativeRule):
    """A function of matrices that `kernel` computes from the node and operands."""

    kind = "linear"
    kernel: Kernel

    def batch_dimensions(self, u: UOp) -> int:
        return 1

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        flat = []
        for a, b in zip(operands, batched):
            batch, *rest = shapes.shape(a)[1:] if b else shapes.shape(a)
            flat.append(movement.reshape(fit(a, (n, batch, *rest)), (n * batch, *rest)))
        return movement.reshape(self.kernel(u, flat), (n, *shapes.shape(u)))


class _FactorizationRule(_Batched, Pushed):
    """`tangent` computes the tangent from the node and the tangents of its operands."""

    def __init__(
        self, tangent: Callable[[UOp, Sequence[Value]], Value], kernel: Kernel
    ) -> None:
        self._tangent, self.kernel = tangent, kernel

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        return self._tangent(u, tangents[1:])


def _lower_triangle(a: UOp, diagonal: float) -> UOp:
    """The strictly lower part, plus the diagonal times a factor."""
    n, m = shapes.shape(a)[-2:]
    row, column = movement.reshape(leaves.iota(n), (n, 1)), leaves.iota(m)
    weight = leaves.const(a.dtype, diagonal)
    inner = row.eq(column).where(a * weight, 0.0)
    return (column < row).where(a, inner)


# ---------------------------------------------------------------- Cholesky, QR
def _cholesky(u: UOp, tangents: Sequence[Value]) -> Value:
    """L' = L below(L^-1 A' L^-T), with A' made symmetric."""
    (t,) = tangents
    if t is None:
        return None
    inner = _forward(u, (t + mirrored(t)) * 0.5)
    both = mirrored(_forward(u, mirrored(inner)))
    return product(u, _lower_triangle(both, 0.5))


def _forward(lower: UOp, b: UOp) -> UOp:
    return linear_algebra.solve_triangular(lower, b, lower=True)


def _qr(which: int) -> Callable[[UOp, Sequence[Value]], Value]:
    """Q' and R' of A = Q R of full rank. If A is wide, its leading square block gives Q', and R' of
    other columns is Q'^T A + Q^T A'. A complete Q of a tall A is not unique: Unsupported."""

    def tangent(u: UOp, tangents: Sequence[Value]) -> Value:
        (t,), (complete,) = tangents, u.arg.details
        if t is None:
            return None
        a = u.src[1]
        _, rows, columns = shapes.shape(a)
        wide = _is_wide(rows, columns, complete)
        q, r = _factors(u, a)
        own, mine = (r[:, :, :rows], t[:, :, :rows]) if wide else (r, t)
        right = mirrored(_forward(mirrored(own), mirrored(mine)))  # A' R^-1
        inner = product(mirrored(q), right)
        low = _lower_triangle(inner, 0.0)
        turned = low - mirrored(low)
        q_change = product(q, turned - inner) + right
        if which == 0:
            return q_change
        found = product(inner - turned, own)
        if not wide:
            return found
        rest, change = a[:, :, rows:], t[:, :, rows:]
        more = product(mirrored(q_change), rest) + product(mirrored(q), change)
        return movement.cat(found, more, axis=2)

    return tangent


def _is_wide(rows: Dim, columns: Dim, complete: int) -> bool:
    """True if a matrix has more columns than rows. Unsupported if the QR has no derivative."""
    if rows is columns:
        return False
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise Unsupported("the derivative of qr needs matrices with known rows and columns")
    if complete and rows > columns:
        raise Unsupported("the derivative of a complete qr of tall matrices is not supported")
    return rows < columns


def _qr_kernel(which: int) -> Kernel:
    def kernel(u: UOp, operands: Sequence[UOp]) -> UOp:
        return _factors(u, operands[0])[which]

    return kernel


def _factors(u: UOp, a: UOp) -> tuple[UOp, UOp]:
    return linear_algebra.qr(a, "complete" if u.arg.details[0] else "reduced")


# ---------------------------------------------------------------- equations
class _Equations(_Batched):
    """X = A^-1 B:  X' = A^-1 (B' - A' X);  backwards, B' = A^-T X' and A' = -B' X^T."""

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        _, a, b = tangents
        right = total([b, None if a is None else -product(self._read(u, a), u)])
        return None if right is None else self.kernel(u, (u.src[1], right))

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        b = self._mirrored(u, cotangent)
        a = -self._read(u, product(b, mirrored(u))) if wanted[1] else None
        return [None, a, b if wanted[2] else None]

    def kernel(self, u: UOp, operands: Sequence[UOp]) -> UOp:
        return linear_algebra.solve(*operands)

    def _mirrored(self, u: UOp, b: UOp) -> UOp:
        return linear_algebra.solve(mirrored(u.src[1]), b)

    def _read(self, u: UOp, a: UOp) -> UOp:
        """The part of A that the equations read."""
        return a


class _LowerEquations(_Equations):
    def kernel(self, u: UOp, operands: Sequence[UOp]) -> UOp:
        a, b = operands
        return self._substituted(u, a, b, trans=0)

    def _mirrored(self, u: UOp, b: UOp) -> UOp:
        return self._substituted(u, u.src[1], b, trans=1)

    def _read(self, u: UOp, a: UOp) -> UOp:
        return _lower_triangle(a, 0.0 if u.arg.details[0] else 1.0)

    def _substituted(self, u: UOp, a: UOp, b: UOp, trans: int) -> UOp:
        unit = bool(u.arg.details[0])
        return linear_algebra.solve_triangular(a, b, lower=True, trans=trans, unit_diagonal=unit)


# ---------------------------------------------------------------- determinants
def _log_det(u: UOp, tangents: Sequence[Value]) -> Value:
    """The trace of A^-1 A'."""
    (t,) = tangents
    if t is None:
        return None
    rank = len(shapes.shape(t))
    inverse = mirrored(linear_algebra.inv(u.src[1]))
    return movement.reduce(inverse * t, "add", (rank - 2, rank - 1))


def _det(u: UOp, tangents: Sequence[Value]) -> Value:
    """The sum of the cofactors times A'."""
    (t,) = tangents
    if t is None:
        return None
    rank = len(shapes.shape(t))
    return movement.reduce(cofactors.cofactors(u.src[1]) * t, "add", (rank - 2, rank - 1))


class _Determinant(_FactorizationRule):
    """Its operand may have any batch."""

    def batch_dimensions(self, u: UOp) -> int:
        return len(shapes.shape(u))

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        return self.kernel(u, operands)


class _Sign(DerivativeRule):
    """The sign of a determinant has no derivative."""

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        return linear_algebra.slogdet(operands[0])[0]


RULES: dict[str, DerivativeRule] = {
    "cholesky": _FactorizationRule(_cholesky, lambda u, a: linear_algebra.cholesky(a[0])),
    "qr_q": _FactorizationRule(_qr(0), _qr_kernel(0)),
    "qr_r": _FactorizationRule(_qr(1), _qr_kernel(1)),
    "solve": _Equations(),
    "forward_substitution": _LowerEquations(),
    "cofactors": cofactors.Cofactors(),
    "det": _Determinant(_det, lambda u, a: linear_algebra.det(a[0])),
    "det_sign": _Sign(),
    "log_det": _Determinant(_log_det, lambda u, a: linear_algebra.slogdet(a[0])[1]),
}
