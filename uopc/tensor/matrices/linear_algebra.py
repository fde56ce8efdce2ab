"""Factors of matrices, and equations: cholesky, qr, solve, inv, det and the like, for batches.

The last two dimensions are a matrix, those before them a batch. Integers are taken as float64;
float16 and bfloat16 are computed in float32 and rounded once. No program raises an error for the
values of a matrix: where IEEE arithmetic gives infinities and NaN, the result has them.
"""

from __future__ import annotations

from typing import Any, Literal

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, movement, operands
from uopc.ir.builder.fold import cast
from uopc.ir.builder.operands import as_dim
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Shape, show
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.tensor import creation, elementwise, indexing
from uopc.tensor.matrices import matrix_kernels, products
from uopc.tensor.primitive import primitive


# ---------------------------------------------------------------- arguments
def _matrices(who: str, a: UOp, square: bool = True) -> tuple[UOp, DType]:
    """Cast the matrices to the dtype to compute in; also return the dtype of the result."""
    dims = shapes.shape(a)
    if len(dims) < 2:
        raise UserError(f"{who}: needs matrices, 2 dimensions or more, got {show(dims)}")
    if square and dims[-1] != dims[-2]:
        raise UserError(f"{who}: the matrices must be square, got {show(dims)}")
    x = a if a.dtype.is_float else cast(a, dtypes.float64)
    return cast(x, dtypes.accumulator(x.dtype)), x.dtype


def _flat(a: UOp, rank: int = 2) -> UOp:
    """Reshape an array to one batch dimension."""
    dims = shapes.shape(a)
    kept = len(dims) - rank
    return movement.reshape(a, (shapes.size(dims[:kept]), *dims[kept:]))


def mirrored(a: UOp) -> UOp:
    """Transpose the matrices."""
    return indexing.transpose(a, -1, -2)


def _system(who: str, a: UOp, b: Operand) -> tuple[UOp, UOp, Shape, DType]:
    """Return the matrices and right-hand sides of equations in one dtype, each with one batch
    dimension; the shape and the dtype of the solution."""
    left, right = operands.paired(a, operands.as_uop(b, a.dtype), who)
    left, t = _matrices(who, left)
    right = cast(right, left.dtype)
    *batch, n, _ = dims = shapes.shape(left)
    given = shapes.shape(right)
    vector = len(given) == 1
    if vector:
        right = movement.reshape(right, (*given, 1))
    *others, rows, m = shapes.shape(right) if len(given) else (0, 0)
    if not given or rows != n:
        raise UserError(f"{who}: matrices {show(dims)}, right-hand sides {show(given)}")
    both = shapes.broadcast([tuple(batch), tuple(others)], who)
    left = movement.expand(left, (*both, n, n))
    right = movement.expand(right, (*both, n, m))
    return _flat(left), _flat(right), (*both, n) if vector else (*both, n, m), t


def _is_empty(dims: Shape) -> bool:
    return 0 in dims


# ---------------------------------------------------------------- Cholesky, QR
def cholesky(a: UOp, upper: bool = False) -> UOp:
    """The lower triangles L of a = L·Lᵀ; with `upper`, the upper triangles U of a = Uᵀ·U."""
    checks.flag("cholesky", "upper", upper)
    x, t = _matrices("cholesky", a)
    dims = shapes.shape(x)
    if _is_empty(dims):
        return cast(x, t)
    flat = _flat(mirrored(x) if upper else x)
    lower = primitive(matrix_kernels.cholesky(flat), "cholesky", flat)
    made = movement.reshape(lower, dims)
    return cast(mirrored(made) if upper else made, t)


def qr(a: UOp, mode: Literal["reduced", "complete"] = "reduced") -> tuple[UOp, UOp]:
    """Orthonormal columns q and upper triangles r of a = q·r."""
    if mode not in ("reduced", "complete"):
        raise UserError(f"qr: the mode must be reduced or complete, got {mode!r}")
    x, t = _matrices("qr", a, square=False)
    *batch, m, n = shapes.shape(x)
    least = as_dim(dim_uop(m).minimum(dim_uop(n)))
    columns = m if mode == "complete" else least
    q_dims, r_dims = (*batch, m, columns), (*batch, columns, n)
    if _is_empty((*batch, least)):
        eye = creation.eye(m, columns, dtype=t)
        return movement.expand(eye, q_dims), creation.zeros(r_dims, t)
    flat, complete = _flat(x), mode == "complete"
    q, r = [
        primitive(made, f"qr_{name}", flat, details=(int(complete),))
        for name, made in zip("qr", matrix_kernels.qr(flat, complete))
    ]
    return cast(movement.reshape(q, q_dims), t), cast(movement.reshape(r, r_dims), t)


# ---------------------------------------------------------------- equations
def solve_triangular(
    a: UOp, b: Operand, lower: bool = False, trans: Any = 0, unit_diagonal: bool = False
) -> UOp:
    """Solve a·x = b for triangular a."""
    who = "solve_triangular"
    is_lower = checks.flag(who, "lower", lower)
    unit = checks.flag(who, "unit_diagonal", unit_diagonal)
    if type(trans) not in (int, str) or trans not in (0, 1, 2, "N", "T", "C"):
        raise UserError(f"{who}: trans must be 0, 1, 2, N, T or C, got {trans!r}")
    left, right, dims, t = _system(who, a, b)
    if trans not in (0, "N"):
        left, is_lower = mirrored(left), not is_lower
    if _is_empty(dims):
        return creation.zeros(dims, t)
    if not is_lower:  # rows and columns backwards are a lower triangle
        left, right = movement.flip(left, (1, 2)), movement.flip(right, 1)
    made = matrix_kernels.forward_substitution(left, right, unit)
    made = primitive(made, "forward_substitution", left, right, details=(int(unit),))
    if not is_lower:
        made = movement.flip(made, 1)
    return cast(movement.reshape(made, dims), t)


def solve(a: UOp, b: Operand) -> UOp:
    """Solve a·x = b for x."""
    left, right, dims, t = _system("solve", a, b)
    if _is_empty(dims):
        return creation.zeros(dims, t)
    made = primitive(matrix_kernels.solve(left, right), "solve", left, right)
    return cast(movement.reshape(made, dims), t)


def inv(a: UOp) -> UOp:
    """The inverse matrices of a."""
    x, t = _matrices("inv", a)
    return cast(solve(x, creation.eye(shapes.shape(x)[-1], dtype=x.dtype)), t)


# ---------------------------------------------------------------- determinants
def _pivots(who: str, a: UOp) -> tuple[UOp, UOp, DType]:
    """Return numbers along the last axis that multiply to the determinant; the matrices; the dtype
    of the result."""
    x, t = _matrices(who, a)
    *batch, n, _ = dims = shapes.shape(x)
    if _is_empty(dims):
        return creation.zeros((*batch, n), x.dtype), x, t
    return movement.reshape(matrix_kernels.signed_pivots(_flat(x)), (*batch, n)), x, t


def det(a: UOp) -> UOp:
    """The determinants of matrices."""
    pivots, x, t = _pivots("det", a)
    return cast(primitive(movement.reduce(pivots, "mul", -1), "det", x), t)


def slogdet(a: UOp) -> tuple[UOp, UOp]:
    """The signs of the determinants and the logarithms of their magnitudes."""
    pivots, x, t = _pivots("slogdet", a)
    signs = movement.reduce(elementwise.sign(pivots), "mul", -1)
    sizes = alu.alu(elementwise.absolute(pivots), Ops.LOG)
    size = primitive(movement.reduce(sizes, "add", -1), "log_det", x)
    return cast(primitive(signs, "det_sign", x), t), cast(size, t)


# ---------------------------------------------------------------- powers
def matrix_power(a: UOp, n: int) -> UOp:
    """The n-th power of matrices."""
    if isinstance(n, bool) or not isinstance(n, int):
        raise UserTypeError(f"matrix_power: the exponent must be an int, got {n!r}")
    _matrices("matrix_power", a)
    dims = shapes.shape(a)
    if n == 0:
        return movement.expand(creation.eye(dims[-1], dtype=a.dtype), dims)
    return products.by_squares(
        inv(a) if n < 0 else a, abs(n), lambda x, y: cast(products.matmul(x, y), y.dtype)
    )
