"""Builders of scalar and elementwise nodes. Constants and identities fold as nodes are made.

Free functions on UOps; `uop.py` makes them methods. Integers of dtype index are kept in the normal
form of `affine.py`. Floats fold only what is exact: x·1, x − 0.0, constants with constants.
"""

from __future__ import annotations

import operator
import sys
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks as arguments
from uopc.ir.core import analysis, dtypes, node, semantics
from uopc.ir.core.construct import const_value, wrap
from uopc.ir.core.dtypes import DType
from uopc.ir.core.node import Node, intern
from uopc.ir.core.ops import Op, Ops
from uopc.ir.index import affine

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

Scalar = bool | int | float
Operand = Any  # UOp | Scalar | NumPy scalar or array

_record_origins = True
_MOST_PLACES = 10_000  # kept alive: the code of as many lines at most
_places: dict[tuple[CodeType, int], tuple[CodeType, int]] = {}


def record_origins(on: bool) -> None:
    """Whether public builders note the user's source line on new nodes."""
    global _record_origins
    _record_origins = on


def located(u: UOp) -> UOp:
    """Note the user's source line on a node that has none (the first to build it wins)."""
    if u.origin is None and _record_origins and not node.in_arena():
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("uopc."):
            frame = frame.f_back
        place = (frame.f_code, frame.f_lineno)
        if len(_places) > _MOST_PLACES:
            _places.clear()
        u.origin = _places.setdefault(place, place)  # the nodes of one line share it
    return u


# ---------------------------------------------------------------- constants
def const(dtype: DType, value: Any) -> UOp:
    """A constant, its value converted to the dtype; a tuple gives one value a lane."""
    if isinstance(value, tuple):
        dtype = dtype.vec(len(value))
    return intern(Ops.CONST, dtype, (), const_value(dtype, value))


def const_like(u: UOp, value: Any) -> UOp:
    """A constant with the dtype and shape of `u`."""
    return filled(const(u.dtype.scalar, value), analysis.shape(u))


def filled(value: UOp, dims: analysis.Shape) -> UOp:
    """A scalar value in every element of a shape."""
    if not dims:
        return value
    arg, symbolic = split_dims(dims)
    return intern(Ops.EXPAND, value.dtype, (value, *symbolic), arg)


def split_dims(dims: analysis.Shape) -> tuple[tuple[int | None, ...], tuple[UOp, ...]]:
    """Dimensions as an arg (None for symbolic ones) and the symbolic ones as sources."""
    arg = tuple([d if isinstance(d, int) else None for d in dims])
    return arg, tuple([d for d in dims if not isinstance(d, int)])


def as_dim(d: Any) -> analysis.Dim:
    """A dimension given by the user: an int, or a UOp of dtype index (constants become ints)."""
    if isinstance(d, Node):
        if d.dtype is not dtypes.index:
            raise UserTypeError(f"a dimension must be an int or of dtype index, got {d.dtype}")
        return d.arg if d.op is Ops.CONST else d
    try:
        return operator.index(d)
    except TypeError:
        raise UserTypeError(f"a dimension must be an int or a variable, got {d!r}") from None


def dim_uop(d: analysis.Dim) -> UOp:
    """A dimension as a UOp."""
    return affine.const(d) if isinstance(d, int) else d


def variable(name: str, low: int, high: int) -> UOp:
    """A named integer with inclusive bounds: a symbolic size or a scalar argument."""
    if not isinstance(name, str) or not name.isidentifier():
        raise UserError(f"variable: the name must be an identifier, got {name!r}")
    if not (isinstance(low, int) and isinstance(high, int)) or low > high:
        raise UserError(f"variable {name}: needs integer bounds low ≤ high, got {low!r}, {high!r}")
    from uopc.ir.core.args import VariableArg

    return located(intern(Ops.VARIABLE, dtypes.index, (), VariableArg(name, low, high)))


# ---------------------------------------------------------------- operands
def as_uop(value: Operand, like: DType | None = None) -> UOp:
    """A UOp from anything an operator accepts. Python scalars are weak: they take `like`."""
    if isinstance(value, Node):
        return value  # type: ignore[return-value]
    if isinstance(value, (bool, int, float)) and type(value) in (bool, int, float):
        return const(_weak_dtype(value, like), value)
    if isinstance(value, (np.ndarray, np.generic)):
        from uopc.tensor import creation as sources

        return sources.constant(value)
    raise UserTypeError(f"expected a UOp, a number or a NumPy array, got {type(value).__name__}")


def _weak_dtype(value: Scalar, like: DType | None) -> DType:
    if type(value) is bool:
        return dtypes.bool_ if like is None else like
    if type(value) is int:
        if like is None:
            return dtypes.int32 if -(1 << 31) <= value < 1 << 31 else dtypes.int64
        if like is dtypes.bool_:
            return dtypes.int64
        if like.is_int and not like.bounds[0] <= value <= like.bounds[1]:
            raise UserError(f"the integer {value} does not fit {like.name}")
        return like
    if like is None:
        return dtypes.float32
    return like if like.is_float else dtypes.float64


def paired(a: Operand, b: Operand) -> tuple[UOp, UOp]:
    """Two operands in their common dtype."""
    if isinstance(a, Node) and isinstance(b, Node) and a.dtype.scalar is b.dtype.scalar:
        return a, b  # type: ignore[return-value]
    x = as_uop(a, b.dtype.scalar if isinstance(b, Node) else None)
    y = as_uop(b, x.dtype.scalar)
    if x.dtype.scalar is not y.dtype.scalar:
        if x.op is Ops.INVALID or y.op is Ops.INVALID:
            return x, y
        common = dtypes.promote(x.dtype.scalar, y.dtype.scalar)
        x, y = cast(x, common), cast(y, common)
    return x, y


# ---------------------------------------------------------------- elementwise
def alu(a: UOp, op: Op, *others: Operand) -> UOp:
    """An elementwise op on operands of one dtype (WHERE: the condition first), folding constants.

    Shapes broadcast as in NumPy; UserError when they do not.
    """
    if type(op) is not Op or not op.is_alu:
        raise UserTypeError(f"alu: expected an elementwise one of Ops, got {op!r}")
    src = (a, *[as_uop(o, a.dtype.scalar) for o in others])
    if op is Ops.WHERE:
        return where(*src)
    if a.dtype.scalar is dtypes.index and op in affine.OPS and _all_index(src):
        return spread(affine.OPS[op](*src), src)
    folded = fold(op, src)
    if folded is not None:
        return folded
    lanes = max([s.dtype.lanes for s in src])
    out = dtypes.bool_ if op.dtype == "bool" else a.dtype.scalar
    made = intern(op, out.vec(lanes), src)
    analysis.shape(made)  # a mismatch is reported here, at the user's line
    return located(made)


def spread(made: UOp, src: tuple[UOp, ...]) -> UOp:
    """`made` in the common shape of the operands: the normal form may have dropped some."""
    shapes = [shape for s in src if (shape := analysis.shape(s))]
    if not shapes:
        return made
    dims = analysis.broadcast(shapes)
    return made if analysis.shape(made) == dims else filled(made, dims)


def _all_index(src: tuple[UOp, ...]) -> bool:
    return all(s.dtype.scalar is dtypes.index and s.op is not Ops.INVALID for s in src)


def fold(op: Op, src: tuple[UOp, ...]) -> UOp | None:
    """The value of an op on constants, or the operand an identity leaves; None otherwise."""
    if op.evaluate is None:
        return None
    if len(src) != 2:
        if all([s.op is Ops.CONST for s in src]):
            return _fold_constants(op, src)
        return src[0] if op in _ROUNDING and not src[0].dtype.is_float else None
    a, b = src
    if b.op is Ops.CONST:
        if a.op is Ops.CONST:
            return _fold_constants(op, src)
        return _identity(op, a, b, right=True) if type(b.arg) is not tuple else None
    if a.op is Ops.CONST and type(a.arg) is not tuple:
        return _identity(op, b, a, right=False)
    return None


# What leaves an integer as it is.
_ROUNDING = frozenset((Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND))


def _fold_constants(op: Op, src: tuple[UOp, ...]) -> UOp | None:
    t = src[0].dtype.scalar
    if any(type(s.arg) is tuple for s in src):
        return None
    out = dtypes.bool_ if op.dtype == "bool" else t
    if op.fold is not None and not t.is_float and t.kind != "bool":
        value = op.fold(*[s.arg for s in src])
        return intern(Ops.CONST, out, (), wrap(out, value) if out.is_int else value)
    assert op.evaluate is not None
    with np.errstate(all="ignore"):
        value = op.evaluate(*[np.asarray(s.arg, s.dtype.numpy) for s in src])
    return const(out, value.item() if out.kind != "float" else float(value))


def _identity(op: Op, x: UOp, c: UOp, right: bool) -> UOp | None:
    """x ∘ c (or c ∘ x) where the constant makes the op vanish."""
    t, v = x.dtype, c.arg
    if t.lanes < c.dtype.lanes:
        return None
    if t.is_float:
        vanishes = (op is Ops.MUL and v == 1) or (op is Ops.FDIV and right and v == 1)
        # x + (-0.0) and x - 0.0 are x for every x; x + 0.0 is not (-0.0).
        vanishes |= op is Ops.ADD and v == 0 and str(v) == "-0.0"
        vanishes |= op is Ops.SUB and right and v == 0 and str(v) == "0.0"
        return x if vanishes else None
    return _integer_identity(op, x, c, right)


def _integer_identity(op: Op, x: UOp, c: UOp, right: bool) -> UOp | None:
    t, v = x.dtype, c.arg
    every_bit = True if t.kind == "bool" else t.bounds[1] if t.kind == "uint" else -1
    if op is Ops.ADD or op is Ops.OR or op is Ops.XOR:
        if not v:
            return x
        return const_like(x, v) if op is Ops.OR and v == every_bit else None
    if op is Ops.MUL:
        return const_like(x, 0) if not v else x if v == 1 else None
    if op is Ops.AND:
        return const_like(x, 0) if not v else x if v == every_bit else None
    if not right:
        return None
    if op in (Ops.SUB, Ops.SHL, Ops.SHR) and not v:
        return x
    if op in (Ops.FLOORDIV, Ops.CDIV) and v == 1:
        return x
    return const_like(x, 0) if op in (Ops.FLOORMOD, Ops.CMOD) and v == 1 else None


def binary(op: Op, a: Operand, b: Operand) -> UOp:
    """An elementwise op of two operands after promotion."""
    x, y = paired(a, b)
    return alu(x, op, y)


def unary_float(op: Op, a: UOp) -> UOp:
    """A float function; integers become float32 (64-bit ones float64), as NumPy does by size."""
    return alu(as_float(a), op)


def as_float(a: UOp) -> UOp:
    """`a` as a float: integers become float64, bool and small integers float32."""
    if a.dtype.is_float:
        return a
    wide = a.dtype.bits > 16 or a.dtype is dtypes.index
    return cast(a, dtypes.float64 if wide else dtypes.float32)


def where(condition: UOp, a: Operand, b: Operand) -> UOp:
    """a where the condition holds, else b."""
    x, y = paired(a, b)
    if condition.dtype.scalar is not dtypes.bool_:
        raise UserTypeError(f"where: the condition must be bool, got {condition.dtype.name}")
    if x is y and not analysis.shape(condition):
        return x
    if condition.op is Ops.CONST and type(condition.arg) is bool:
        chosen = x if condition.arg else y
        if analysis.shape(chosen) == analysis.broadcast([analysis.shape(x), analysis.shape(y)]):
            return chosen
    lanes = max(condition.dtype.lanes, x.dtype.lanes, y.dtype.lanes)
    t = y.dtype if x.op is Ops.INVALID else x.dtype
    made = intern(Ops.WHERE, t.scalar.vec(lanes), (condition, x, y))
    analysis.shape(made)
    return located(made)


def cast(a: UOp, dtype: DType) -> UOp:
    """The values of `a` converted: see the op table for rounding and overflow."""
    arguments.any_dtype("cast", dtype)
    target = dtype.scalar.vec(a.dtype.lanes)
    if a.dtype is target:
        return a
    if a.op is Ops.CONST and type(a.arg) is not tuple:
        return const(target.scalar, _cast_value(a, target.scalar))
    if a.op is Ops.INVALID:
        return intern(Ops.INVALID, target)
    return located(intern(Ops.CAST, target, (a,)))


def _cast_value(a: UOp, target: DType) -> Scalar:
    if a.dtype.is_float:
        with np.errstate(all="ignore"):
            value = semantics.cast(np.asarray(a.arg, a.dtype.numpy), a.dtype, target)
        return float(value) if target.is_float else value.item()
    return a.arg  # type: ignore[no-any-return]


def bitcast(a: UOp, dtype: DType) -> UOp:
    """The bits of `a` read as another dtype; a different item size scales the last dimension."""
    arguments.any_dtype("bitcast", dtype)
    if a.dtype.scalar is dtype:
        return a
    made = intern(Ops.BITCAST, dtype.scalar.vec(a.dtype.lanes), (a,))
    before, after = a.dtype.itemsize, dtype.itemsize
    if before != after:
        dims = analysis.shape(a)
        if not dims or (isinstance(dims[-1], int) and dims[-1] * before % after):
            raise UserError(f"bitcast: {a.dtype.name}{analysis.show(dims)} does not fit {dtype}")
    return located(made)


# ---------------------------------------------------------------- evaluation of scalar graphs
def evaluate(u: UOp) -> Scalar:
    """The value of a scalar graph of constants. UserError when it depends on anything else."""
    value = simplify(u)
    if value.op is not Ops.CONST or type(value.arg) is tuple:
        raise UserError(f"{render(u)} is not a constant")
    return value.arg  # type: ignore[no-any-return]


def simplify(u: UOp) -> UOp:
    """An equal graph, smaller or the same: symbolic rules to a fixed point, written short."""
    from uopc.ir.symbolic import shorten as compact
    from uopc.ir.symbolic import simplify as symbolic

    return compact.compact(symbolic.simplify(u), u)


_simplified = simplify  # `render` has a parameter of that name


def render(u: UOp, simplify: bool = True) -> str:
    """An infix expression such as `(n*4)+3`; what has no infix form prints as `str` does."""
    from uopc.ir.text import printer as text

    return text.render(_simplified(u) if simplify else u)
