"""The checks of a node against its op's row, by invariant."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np

from uopc.errors import InvalidIR, UserError
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.arena import memo
from uopc.ir.core.args import Opt
from uopc.ir.core.data import blocks
from uopc.ir.core.dtype_rules import derived, is_invalid, tuple_elements
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import DOTS, ArgKind, Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp
from uopc.ir.text import literals

_REDUCES: Final = ("add", "mul", "max", "min")
_WIDE: Final = ("upcast", "unroll", "lane")


def verify_node(u: UOp) -> None:
    """InvalidIR if a node does not fit its op's row, at any level."""
    broken = misfit(u)
    if broken is not None:
        raise InvalidIR(f"invariant {broken[0]}: {broken[1]}\n  {describe(u)}{made_at(u)}")


OF_ROW: Final = ("operand-count", "arg-type", "result-dtype")


@memo  # a pass leaves most nodes as they are
def misfit(u: UOp) -> tuple[str, str] | None:
    """The first invariant of OF_ROW that a node breaks, at any level, and the fault."""
    for name in OF_ROW:
        problem = CHECKS[name](u)
        if problem is not None:
            return name, problem
    return None


def describe(u: UOp, root: UOp | None = None) -> str:
    """The node as one line of text, numbered as in the text of `root`."""
    from uopc.ir.text import printer

    names = printer.Namer()
    if root is not None:
        printer.print_graph(root, names)
    lines = printer.print_graph(u, names).splitlines()
    return lines[-1].strip() if u.op is not Ops.LINEAR else f"linear of {len(u.src)} nodes"


# Each check gives the problem and what was expected, or None.
# ---------------------------------------------------------------- operand-count
def _operand_count(u: UOp) -> str | None:
    if u.op.takes(len(u.src)):
        return None
    names = " ".join(u.op.operands)
    return f"{len(u.src)} operands, expected {u.op.arity_text} ({names})"


# ---------------------------------------------------------------- arg-type
def _arg_type(u: UOp) -> str | None:
    if u.arg is None and u.op.kind == "none":
        return None
    if not isinstance(u.arg, u.op.arg) or (type(u.arg) is bool and bool not in u.op.arg):
        wanted = " or ".join([t.__name__ for t in u.op.arg])
        return f"the arg is {type(u.arg).__name__} {u.arg!r}, expected {wanted}"
    check = _name_arg if u.op is Ops.SPECIAL else _ARGS.get(u.op.kind)
    return None if check is None else check(u)


def _const_arg(u: UOp) -> str | None:
    kind = {"bool": bool, "float": float}.get(u.dtype.kind, int)
    values = u.arg if type(u.arg) is tuple else (u.arg,)
    if type(u.arg) is tuple and len(values) != u.dtype.lanes:
        return f"{len(values)} values, expected {u.dtype.lanes}: one per lane"
    bad = [v for v in values if type(v) is not kind]
    if bad:
        return f"the value is {bad[0]!r}, expected {kind.__name__}"
    wide = [v for v in values if kind is int and not _fits_dtype(v, u.dtype)]
    return f"the value {wide[0]} does not fit {u.dtype.scalar.name}" if wide else None


def _fits_dtype(value: int, dtype: DType) -> bool:
    low, high = dtype.bounds
    return low <= value <= high


def _storage_arg(u: UOp) -> str | None:
    if u.dtype.lanes > 1 or u.dtype.kind == "void":
        return f"the elements are {u.dtype.name}, expected scalars"
    problem = _record_arg(u) or _dims_arg(u.arg.dims, u.src)
    if problem:
        return problem
    try:
        shapes.check_size(tuple([d for d in u.arg.dims if d is not None]))
    except UserError as error:
        return str(error)
    return None


def _data_arg(u: UOp) -> str | None:
    array = u.arg.array
    if not isinstance(array, np.ndarray):
        return f"the array is {type(array).__name__}, expected one of NumPy"
    problem = _record_arg(u)
    if problem:
        return problem
    if array.shape != u.arg.dims or array.dtype != u.dtype.numpy or u.dtype.lanes > 1:
        return f"the array is {array.dtype.name}{array.shape}, expected {u.dtype.name}{u.arg.dims}"
    return None if array.flags.c_contiguous else "the array is not contiguous"


def _iota_arg(u: UOp) -> str | None:
    count = len(u.arg)
    return _dims_arg(u.arg, u.src) if count == 1 else f"{count} dimensions, expected 1"


def _record_arg(u: UOp) -> str | None:
    return None if u.arg is None else literals.misfit(u.arg)


def _variable_arg(u: UOp) -> str | None:
    problem = _record_arg(u)
    if problem:
        return problem
    low, high = u.arg.low, u.arg.high
    if low > high or not _fits_dtype(low, dtypes.index) or not _fits_dtype(high, dtypes.index):
        return f"the bounds are {low} and {high}, expected low ≤ high in 64 bits"
    return None


def _range_arg(u: UOp) -> str | None:
    problem = _record_arg(u)
    if problem is None and u.arg.kind in _WIDE and u.src[0].op is not Ops.CONST:
        return f"the range is of kind {u.arg.kind}, expected a number as its end"
    return problem


def _name_arg(u: UOp) -> str | None:
    known = re.fullmatch(r"[gl]?idx\d", u.arg)
    return None if known else f"the name is {u.arg!r}, expected one such as gidx0 or lidx1"


_DIM_TYPES: Final = {int, type(None)}


def _dims_arg(dims: object, sources: tuple[UOp, ...]) -> str | None:
    """Check the arg: integers, and None for each source."""
    if not isinstance(dims, tuple) or not _DIM_TYPES.issuperset(map(type, dims)):
        return f"the dimensions are {dims!r}, expected integers or None"
    if dims.count(None) != len(sources):
        return f"{len(sources)} symbolic dimensions given, expected {dims.count(None)}"
    bad = [s.dtype.name for s in sources if s.dtype is not dtypes.index]
    return f"a dimension is {bad[0]}, expected index" if bad else None


def _integers_arg(u: UOp) -> str | None:
    integers = all(type(a) is int for a in u.arg)
    return None if integers else f"the arg is {u.arg!r}, expected integers"


def _opts_arg(u: UOp) -> str | None:
    given = u.arg or ()
    return None if all(type(o) is Opt for o in given) else f"the arg is {given!r}, expected Opts"


def _reduce_arg(u: UOp) -> str | None:
    name = u.arg if isinstance(u.arg, str) else u.arg.op
    problem = None if isinstance(u.arg, str) else literals.misfit(u.arg)
    if problem:
        return problem
    return None if name in _REDUCES else f"the op is {name!r}, expected one of {_REDUCES}"


def _lane_arg(u: UOp) -> str | None:
    lanes = u.src[0].dtype.lanes
    return None if 0 <= u.arg < lanes else f"lane {u.arg}, expected one of {lanes}"


def _shuffle_arg(u: UOp) -> str | None:
    lanes = u.src[0].dtype.lanes + u.src[1].dtype.lanes
    known = all(type(i) is int and 0 <= i < lanes for i in u.arg)
    return None if known else f"lanes {u.arg}, expected numbers below {lanes}"


def _part_arg(u: UOp) -> str | None:
    count = len(tuple_elements(u.src[0]))
    return None if 0 <= u.arg < count else f"part {u.arg}, expected one of {count}"


_ARGS: dict[ArgKind, Callable[[UOp], str | None]] = {
    "const": _const_arg,
    "storage": _storage_arg,
    "data": _data_arg,
    "iota": _iota_arg,
    "record": lambda u: _variable_arg(u) if u.op is Ops.VARIABLE else _record_arg(u),
    "range": _range_arg,
    "dims": lambda u: _dims_arg(u.arg, u.src[1:]),
    "window": lambda u: _dims_arg(u.arg, u.src[1:]),
    "integers": _integers_arg,
    "opts": _opts_arg,
    "reduce": _reduce_arg,
    "hreduce": _reduce_arg,
    "lane": _lane_arg,
    "shuffle": _shuffle_arg,
    "part": _part_arg,
}


# ---------------------------------------------------------------- result-dtype
def _result_dtype(u: UOp) -> str | None:
    try:
        wanted = derived(u.op, u.dtype, u.src, u.arg)
    except InvalidIR as error:
        return str(error)
    if u.dtype is not wanted:
        return f"the dtype is {u.dtype.name}, expected {wanted.name}"
    return _no_value(u) or (_operand_kind(u) if u.op.is_alu else None)


# Ops that take effects, which have no value.
_TAKES_EFFECTS = frozenset((
    Ops.SINK, Ops.GROUP, Ops.END, Ops.AFTER, Ops.CALL, Ops.GETTUPLE, Ops.LINEAR, Ops.BARRIER,
    Ops.COMMIT, Ops.ENDIF, Ops.FUNCTION, Ops.APPLY, Ops.TUPLE, Ops.RANGE, Ops.NOOP, Ops.PRIMITIVE,
))  # fmt: skip


def _no_value(u: UOp) -> str | None:
    if u.op not in _TAKES_EFFECTS:
        for i, s in enumerate(u.src):
            if s.dtype.kind == "void" or s.op is Ops.NOOP:
                return f"operand {i} is {s.op.name}, which has no value"
    for s in u.src[1:] if u.op is Ops.AFTER else ():
        # The loops that it is inside of may be sums of others.
        if s.dtype.kind not in ("void", "index") and s.op not in (Ops.RANGE, Ops.AFTER):
            return f"an operand of after is {s.op.name}, expected an effect"
    return None


_NO_BOOL = frozenset((
    Ops.ABS, Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD, Ops.POW, Ops.MULACC, Ops.SHL,
    Ops.SHR,
))  # fmt: skip
_FLOATS = frozenset((
    Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TAN, Ops.TANH, Ops.ERF, Ops.SQRT,
    Ops.RECIPROCAL, Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND, Ops.FDIV, Ops.SCALE,
))  # fmt: skip
_NO_FLOAT = frozenset((Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR))


def _operand_kind(u: UOp) -> str | None:
    """Check that an elementwise op has a meaning for the dtypes."""
    t, wanted = u.src[0].dtype.scalar, ""
    if is_invalid(u.src[0]):
        return None
    if u.op in _NO_BOOL and t.kind == "bool":
        wanted = "numbers"
    elif u.op in _FLOATS and not t.is_float:
        wanted = "floats"
    elif u.op in _NO_FLOAT and t.is_float:
        wanted = "integers or bool"
    elif u.op is Ops.THREEFRY and t is not dtypes.uint64:
        wanted = "uint64"
    elif u.op in DOTS and t is not dtypes.int32:
        wanted = "int32"
    return f"the operands are {t.name}, expected {wanted}" if wanted else None


# ---------------------------------------------------------------- shape-rule
def _shape_rule(u: UOp) -> str | None:
    if u.dtype.lanes > 1:
        return f"the value has {u.dtype.lanes} lanes, expected a scalar dtype"
    if u.op in (Ops.RANGE, Ops.SPECIAL) and shapes.shape(u.src[0]):
        return f"the end has shape {shapes.show(shapes.shape(u.src[0]))}, expected one number"
    rank = len(shapes.shape(u.src[0])) if u.op is Ops.INDEX else 0
    if u.op is Ops.INDEX and len(u.src) - 1 > rank:
        return f"{len(u.src) - 1} indices, expected at most {rank}"
    for i, s in enumerate(u.src[1:] if u.op is Ops.INDEX else ()):
        if not s.dtype.is_integral and not is_invalid(s):
            return f"index {i} is {s.dtype.name}, expected integers"
    try:
        if u._shape is None:
            shapes.shape(u)
        else:
            shapes.RULES[u.op.shape](u)  # a pass may have noted a shape that is wrong
        dims = shapes.shape(u)
        if all([dims is not s._shape for s in u.src]):  # the check of the source is enough
            shapes.check_size(dims)
    except UserError as error:
        return str(error)
    return None


# ---------------------------------------------------------------- scalar levels
def _scalar_values(u: UOp) -> str | None:
    for i, s in enumerate(u.src):
        storage = s.op.is_storage or (s.op is Ops.AFTER and before_effects(s).op.is_storage)
        if storage and i >= u.op.takes_storage:
            return f"operand {i} is storage, expected an INDEX of it"
    return None


def _index_count(u: UOp) -> str | None:
    if u.op is not Ops.INDEX:
        return None
    base = u.src[0]
    if not base.op.is_storage and base.op is not Ops.AFTER and base.op is not Ops.INDEX:
        return f"{base.op.name} is indexed, expected storage"
    count, rank = len(u.src) - 1, len(shapes.shape(base))
    if base.op is not Ops.INDEX:
        rank = max(1, rank)  # a scalar is indexed by 0
    return f"{count} indices, expected at most {rank}" if count > rank else None


def _index_dtype(u: UOp) -> str | None:
    if u.op is not Ops.INDEX:
        return None
    for i, s in enumerate(u.src[1:]):
        if s.dtype.scalar is not dtypes.index and s.op is not Ops.INVALID:
            return f"index {i} is {s.dtype.name}, expected index"
    return None


def _flat_index(u: UOp) -> str | None:
    if u.op is not Ops.INDEX:
        return None
    if len(u.src) != 2:
        return f"{len(u.src) - 1} indices, expected 1"
    if not u.src[0].op.is_storage and u.src[0].op is not Ops.AFTER:
        return f"{u.src[0].op.name} is indexed, expected storage"
    return None


def _explicit_loads(u: UOp) -> str | None:
    if u.op is Ops.LINEAR:
        return None
    for i, s in enumerate(u.src):
        if s.op is Ops.INDEX and (i > 0 or not u.op.is_access) and u.op is not Ops.FETCH:
            return f"operand {i} is an address, expected a LOAD of it"
    if u.op.is_access and u.src[0].op not in (Ops.INDEX, Ops.AFTER):
        return f"the address is {u.src[0].op.name}, expected an INDEX"
    return None


def _no_wide_ranges(u: UOp) -> str | None:
    wide = u.op is Ops.RANGE and u.arg.kind in _WIDE
    return f"the range is of kind {u.arg.kind}, expected it to be expanded" if wide else None


def _storage_spaces(u: UOp) -> str | None:
    if u.op is Ops.PARAM and u.arg.space != "global":
        return f"an argument is in the space {u.arg.space}, expected global"
    if u.op is Ops.BUFFER and u.arg.space != "global" and None in u.arg.dims:
        return f"the size of storage in the space {u.arg.space} is not a number"
    if u.op is Ops.PARAM and u.arg.order and not blocks.fits(u.arg.order, u.arg.dims):
        return f"an argument of dimensions {u.arg.dims} has no order {u.arg.order}"
    return None


CHECKS: dict[str, Callable[[UOp], str | None]] = {
    "operand-count": _operand_count,
    "arg-type": _arg_type,
    "result-dtype": _result_dtype,
    "shape-rule": _shape_rule,
    "scalar-values": _scalar_values,
    "index-count": _index_count,
    "index-dtype": _index_dtype,
    "flat-index": _flat_index,
    "explicit-loads": _explicit_loads,
    "no-wide-ranges": _no_wide_ranges,
    "storage-spaces": _storage_spaces,
}
