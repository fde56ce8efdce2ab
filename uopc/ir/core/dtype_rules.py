"""The dtype of a node, by the rule that its op's row names.

A rule takes the requested dtype of the node (None: not requested), the operands and the arg. It
returns the dtype that fits them; InvalidIR if no dtype fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from uopc.errors import InvalidIR
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import DTypeRule, Op, Ops


class TypedOperand(Protocol):
    """The fields of an operand that rules read."""

    op: Op
    dtype: DType
    src: tuple[Any, ...]


Operands = tuple[TypedOperand, ...]
Rule = Callable[[DType | None, Operands, Any], DType]
_MOST_FETCHED = 1 << 20  # elements of a FETCH: more than a cache shall hold besides what is used


def derived(op: Op, own: DType | None, src: Operands, arg: Any) -> DType:
    """The dtype of a node; `own` if the rule leaves a choice. InvalidIR on a misfit."""
    rule, least = _ROWS[op]
    if len(src) < least or not isinstance(arg, op.arg):  # a broken node
        rule = _any
    return rule(own, src, arg)


# ---------------------------------------------------------------- checks
def _lanes(src: Operands) -> int:
    return max([s.dtype.lanes for s in src], default=1)


def _scalar(values: Operands) -> DType:
    """The scalar dtype that all values have; an INVALID may have any."""
    first = values[0].dtype.scalar
    if all([s.dtype.scalar is first for s in values]):
        return first
    typed = [s.dtype.scalar for s in values if not is_invalid(s)]
    for t in typed:
        if t is not typed[0]:
            raise InvalidIR(f"an operand is {t.name}, expected {typed[0].name} as the others")
    return typed[0] if typed else first


def is_invalid(u: Any) -> bool:
    """True for an INVALID, also with a shape."""
    while u.op.movement:
        u = u.src[0]
    return u.op is Ops.INVALID


def _wide(scalar: DType, src: Operands) -> DType:
    """The vector type as wide as the widest operand; scalar operands repeat."""
    lanes = _lanes(src)
    for s in src:
        if s.dtype.lanes not in (1, lanes):
            raise InvalidIR(f"an operand has {s.dtype.lanes} lanes, expected 1 or {lanes}")
    return scalar.vec(lanes)


def _check_bool(who: str, conditions: Operands) -> None:
    for s in conditions:
        if s.dtype.scalar is not dtypes.bool_:
            raise InvalidIR(f"the {who} is {s.dtype.name}, expected bool")


def _one_bool(condition: TypedOperand) -> DType:
    if condition.dtype is not dtypes.bool_:
        name = condition.dtype.name
        raise InvalidIR(f"the condition is {name}, expected one bool for all lanes")
    return dtypes.bool_


# ---------------------------------------------------------------- a rule per name
def _any(own: DType | None, src: Operands, arg: Any) -> DType:
    if own is None:
        raise InvalidIR("the dtype must be given")
    return own


def _given(own: DType | None, src: Operands, arg: Any) -> DType:
    if own is None or own is dtypes.void:
        raise InvalidIR("the dtype must be given, and must not be void")
    return own


def _common(own: DType | None, src: Operands, arg: Any) -> DType:
    for s in src:
        if s.dtype is not own:
            break
    else:
        if own is not None:
            return own  # mostly
    return _wide(_scalar(src), src)


def _compared(own: DType | None, src: Operands, arg: Any) -> DType:
    _scalar(src)
    return _wide(dtypes.bool_, src)


def _float32(own: DType | None, src: Operands, arg: Any) -> DType:
    """Check two operands of one dtype, and a third with the dtype of the result."""
    _scalar(src[:2])
    for s in src[2:]:
        if s.dtype.scalar is not dtypes.float32:
            raise InvalidIR(f"operand 2 is {s.dtype.scalar.name}, expected float32")
    return _wide(dtypes.float32, src)


def _where(own: DType | None, src: Operands, arg: Any) -> DType:
    _check_bool("condition", src[:1])
    return _wide(_scalar(src[1:]), src)


def _branch(own: DType | None, src: Operands, arg: Any) -> DType:
    before, inside = src[0].dtype, src[2].dtype
    _one_bool(src[1])
    if before is not inside:
        raise InvalidIR(f"the values are {before.name} and {inside.name}, expected one dtype")
    return before


def _variable(own: DType | None, src: Operands, arg: Any) -> DType:
    """Index; with lanes only while the simplifier lets a variable replace a vector."""
    return dtypes.index if own is None or own.scalar is not dtypes.index else own


def _range(own: DType | None, src: Operands, arg: Any) -> DType:
    end = src[0].dtype
    if not end.is_integral or end.lanes > 1:
        raise InvalidIR(f"the end is {end.name}, expected index")
    return end


def _bitcast(own: DType | None, src: Operands, arg: Any) -> DType:
    before, after = src[0].dtype, _given(own, src, arg)
    many = before.lanes > 1 or after.lanes > 1
    if many and before.lanes * before.itemsize != after.lanes * after.itemsize:
        raise InvalidIR(f"{after.name} has not as many bits as {before.name}")
    return after


def _stack(own: DType | None, src: Operands, arg: Any) -> DType:
    """A vector of all lanes. Scalars may also make a tensor with one more dimension."""
    scalar = _scalar(src)
    if _lanes(src) == 1 and (own is None or own.lanes == 1):
        return scalar
    return scalar.vec(sum([s.dtype.lanes for s in src]))


def _element(own: DType | None, src: Operands, arg: Any) -> DType:
    """A vector with one element per index. A single index may also begin a vector of neighbours."""
    wide = _lanes(src[1:])
    return src[0].dtype.scalar.vec(wide) if wide > 1 else _loaded(own, src, arg)


def _loaded(own: DType | None, src: Operands, arg: Any) -> DType:
    found = src[0].dtype
    return found if own is None or own is found else found.scalar.vec(own.lanes)


def _load(own: DType | None, src: Operands, arg: Any) -> DType:
    _check_bool("gate", src[1:])
    return src[0].dtype


def _store(own: DType | None, src: Operands, arg: Any) -> DType:
    _scalar(src[:2])
    target, value = src[0].dtype.lanes, src[1].dtype.lanes
    if value not in (1, target):
        raise InvalidIR(f"the value has {value} lanes, expected 1 or {target} as the address")
    _check_bool("gate", src[2:])
    return dtypes.void


def _numbered(own: DType | None, src: Operands, arg: Any) -> DType:
    scalar = _given(own, src, arg).scalar
    if not scalar.is_integral:
        raise InvalidIR(f"the dtype is {scalar.name}, expected integers")
    return scalar.vec(arg)


def _hreduce(own: DType | None, src: Operands, arg: Any) -> DType:
    lanes = 1 if own is None else own.lanes
    if src[0].dtype.lanes % lanes:
        raise InvalidIR(f"{src[0].dtype.lanes} lanes do not combine to {lanes}")
    return src[0].dtype.scalar.vec(lanes)


def _part(own: DType | None, src: Operands, arg: Any) -> DType:
    values = tuple_elements(src[0])
    found: DType = values[arg].dtype if 0 <= arg < len(values) else _given(own, src, arg)
    return found


def _applied(own: DType | None, src: Operands, arg: Any) -> DType:
    function = src[0]
    if function.op is not Ops.FUNCTION or len(function.src) != 1:
        raise InvalidIR(f"operand 0 is {function.op.name}, expected a FUNCTION of one output")
    return _common(function.src[0].dtype, function.src, None)


def _fetched(own: DType | None, src: Operands, arg: Any) -> DType:
    load, ahead = src
    while load.op is Ops.FETCH and ahead.op is Ops.INDEX:
        load = load.src[0]
    if load.op is not Ops.LOAD:
        raise InvalidIR(f"operand 0 is {load.op.name}, expected a LOAD")
    base = load.src[0]
    while base.src and not base.op.is_storage:
        base = base.src[0]
    if base.op is Ops.BUFFER and base.arg.space == "reg":
        raise InvalidIR("operand 0 is a LOAD of a register, expected one of memory")
    if ahead.dtype is not dtypes.index and ahead.op is not Ops.INDEX:
        raise InvalidIR(f"the distance is {ahead.dtype.name}, expected index")
    if not 1 <= arg <= _MOST_FETCHED:
        raise InvalidIR(f"the size is {arg}, expected 1 to {_MOST_FETCHED} elements")
    return load.dtype


def _looked_up(own: DType | None, src: Operands, arg: Any) -> DType:
    table, index = [s.dtype for s in src]
    if table.lanes < 2 or table.lanes & (table.lanes - 1):
        raise InvalidIR(f"the table has {table.lanes} lanes, expected a power of two above 1")
    if index.kind not in ("int", "uint"):
        raise InvalidIR(f"the index is {index.name}, expected integers")
    return table.scalar.vec(index.lanes)


def tuple_elements(u: TypedOperand) -> tuple[Any, ...]:
    """The values of a TUPLE, or those of the FUNCTION that a CALL calls."""
    if u.op is Ops.CALL:
        return tuple_elements(u.src[0])
    return u.src if u.op in (Ops.TUPLE, Ops.FUNCTION) else ()


RULES: dict[DTypeRule, Rule] = {
    "given": _given,
    "any": _any,
    "void": lambda own, src, arg: dtypes.void,
    "index": lambda own, src, arg: dtypes.index,
    "variable": _variable,
    "first": lambda own, src, arg: src[0].dtype,
    "common": _common,
    "bool": _compared,
    "float32": _float32,
    "where": _where,
    "branch": _branch,
    "if": lambda own, src, arg: _one_bool(src[0]),
    "range": _range,
    "cast": lambda own, src, arg: _given(own, src, arg).scalar.vec(src[0].dtype.lanes),
    "bitcast": _bitcast,
    "stack": _stack,
    "cat": lambda own, src, arg: _scalar(src),
    "element": _element,
    "load": _load,
    "loaded": _loaded,
    "store": _store,
    "lanes": _numbered,
    "lane": lambda own, src, arg: src[0].dtype.scalar,
    "shuffle": lambda own, src, arg: _scalar(src).vec(len(arg)),
    "looked_up": _looked_up,
    "hreduce": _hreduce,
    "part": _part,
    "applied": _applied,
    "fetched": _fetched,
}
_ROWS: dict[Op, tuple[Rule, int]] = {op: (RULES[op.dtype], op.arity[0]) for op in Op.all()}
