"""The text form of each kind of arg: an `OpSyntax` writes and reads a statement.

A statement without its name and type is

    op ["." suffix] [label] [operands] [dims] ["over" operands] {field "=" value}

and an OpSyntax puts the operands and the arg into some of these parts. If it cannot express a node,
because the arg is not as in the op's row, the statement shows all operands and `arg=value`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uopc.errors import InvalidIR
from uopc.ir.core import constants, dtypes, uop
from uopc.ir.core.args import RangeArg, ReduceArg
from uopc.ir.core.data import arrays
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import ArgKind, Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.records import dataclass
from uopc.ir.text.literals import make_record, misfit, write_string, write_value, written_fields

OperandText = Callable[["UOp"], str]
Arrays = Mapping[str, npt.NDArray[Any]]
Read = tuple[tuple[UOp, ...], Any]  # the sources and the arg


class Written(NamedTuple):
    """A statement in parts: `head operands tail`."""

    head: str
    operands: tuple[UOp, ...]
    tail: str = ""


@dataclass(slots=True)
class Statement:
    """A statement as read. An OpSyntax takes parts out; leftover parts are an error."""

    op: Op
    suffix: str | None = None
    label: Any = None
    operands: list[UOp] = dataclasses.field(default_factory=list)
    dims: Any = None
    over: list[UOp] | None = None
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    # The parts of the type: None where there is none; dims as ints and UOps.
    dtype: DType | None = None
    type_dims: tuple[Any, ...] | None = None
    arrays: Arrays = dataclasses.field(default_factory=dict)

    def leftover(self) -> str | None:
        """The name, for messages, of a leftover part."""
        if self.operands:
            return "operands"
        if self.suffix is not None:
            return f"suffix .{self.suffix}"
        if self.label is not None:
            return write_value(self.label)
        if self.dims is not None or self.over is not None:
            return "tuple of dimensions" if self.dims is not None else "'over'"
        return f"field {next(iter(self.fields))!r}" if self.fields else None


class OpSyntax(NamedTuple):
    """The syntax of ops. `write` returns None for a node that it cannot express; `read` raises
    InvalidIR."""

    write: Callable[[UOp, OperandText], Written | None]
    read: Callable[[Statement], Read]


def write(u: UOp, operand: OperandText, shape_known: bool = True) -> Written:
    """A node's statement; `operand` gives the text of an operand.

    If the type cannot show the shape, a storage node shows its dimensions.
    """
    made = FORMS[u.op].write(u, operand) if shape_known or u.op.kind not in _IN_TYPE else None
    if made is None:
        made = Written(u.op.name, u.src, f" arg={write_value(u.arg)}")
    if u.tag is not None:
        made = made._replace(tail=f"{made.tail} tag={write_value(u.tag)}")
    return made


def read(statement: Statement) -> UOp:
    """The node of a statement. InvalidIR; the caller adds the line and column."""
    tag = statement.fields.pop("tag", None)
    if "arg" in statement.fields:
        src, arg = _operands(statement), statement.fields.pop("arg")
        if statement.op is Ops.CONST:
            arg = constant(arg, statement.dtype).arg
    else:
        src, arg = FORMS[statement.op].read(statement)
    left = statement.leftover()
    if left is not None:
        raise InvalidIR(f"{statement.op.name} takes no {left}")
    return uop.checked(statement.op, statement.dtype, src, arg, tag)


def _operands(statement: Statement) -> tuple[UOp, ...]:
    taken, statement.operands = tuple(statement.operands), []
    return taken


# ---------------------------------------------------------------- constants and types
def literal(u: UOp, always_typed: bool = False) -> str:
    """A CONST or INVALID as an operand: `3` (index), `true`, `2.0:f32`, `(1, 2):i32x2`."""
    value = "invalid" if u.op is Ops.INVALID else write_value(u.arg)
    plain = u.dtype is dtypes.index or (u.dtype is dtypes.bool_ and type(u.arg) is bool)
    return value if plain and not always_typed else f"{value}:{u.dtype.short}"


def constant(value: Any, dtype: DType | None) -> UOp:
    """The node of a literal; without a dtype an integer is an index, true and false are bool."""
    if dtype is None:
        if type(value) is float:
            raise InvalidIR(f"a float needs a dtype: {value}:f32")
        dtype = dtypes.bool_ if type(value) is bool else dtypes.index
    numbers = value if type(value) is tuple else (value,)
    if not numbers or not all(type(v) in (bool, int, float) for v in numbers):
        raise InvalidIR(f"expected a constant, got {write_value(value)}")
    _check_constant(numbers, dtype)
    return intern(Ops.CONST, dtype, (), constants.const_value(dtype, value))


def _check_constant(numbers: tuple[Any, ...], dtype: DType) -> None:
    """InvalidIR for a literal that is not a value of its dtype: nothing is truncated or wrapped."""
    for v in numbers:
        if dtype.is_float:
            fits = type(v) is float or (type(v) is int and abs(v) < 1 << 1000)
        elif type(v) is int and dtype.is_int:
            fits = dtype.bounds[0] <= v <= dtype.bounds[1]
        else:
            fits = dtype.kind == {bool: "bool", int: "index"}.get(type(v))
        if not fits:
            raise InvalidIR(f"{write_value(v)} is not a value of {dtype.short}")


# ---------------------------------------------------------------- forms
def _read_const(statement: Statement) -> Read:
    value, statement.label = statement.label, None
    return (), constant(value, statement.dtype).arg


def _scalar(op: Op) -> OpSyntax:
    """The syntax for no arg, or an arg of one value: `lane %v at=3`."""
    field, optional = op.field, type(None) in op.arg

    def write_scalar(u: UOp, operand: OperandText) -> Written | None:
        if u.arg is None and optional:
            return Written(op.name, u.src)
        fits = type(u.arg) in op.arg
        return Written(op.name, u.src, f" {field}={write_value(u.arg)}") if fits else None

    def read_scalar(statement: Statement) -> Read:
        if field not in statement.fields and not optional:
            raise InvalidIR(f"{op.name}: expected {field}=...")
        return _operands(statement), statement.fields.pop(field, None)

    return OpSyntax(write_scalar, read_scalar)


# A movement op: `reshape %a (4, %n)`, `pad %a begin=(0, 1) size=(4, %n)`.
def _holes(dims: tuple[Any, ...], symbolic: tuple[UOp, ...], operand: OperandText) -> str | None:
    """A tuple as text, with a source in place of each None; None if their numbers differ."""
    if sum([d is None for d in dims]) != len(symbolic) or not all(map(_is_dim, symbolic)):
        return None
    shown = [literal(s, always_typed=True) if is_literal(s) else operand(s) for s in symbolic]
    items = [shown.pop(0) if d is None else write_value(d) for d in dims]
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _is_dim(u: UOp) -> bool:
    """True if a tuple or a type can show this source: a number of dtype index, or a node."""
    return not is_literal(u) or (u.dtype is dtypes.index and type(u.arg) is int)


def is_literal(u: UOp) -> bool:
    """True if a node is written as a constant wherever it is an operand."""
    return (u.op is Ops.CONST or u.op is Ops.INVALID) and u.tag is None and not u.src


def _with_holes(items: Any) -> Read:
    """The sources and the arg of a tuple with holes."""
    if type(items) is not tuple:
        raise InvalidIR("expected a tuple such as (4, %n)")
    holes = tuple([d for d in items if isinstance(d, UOp)])
    return holes, tuple([None if isinstance(d, UOp) else d for d in items])


def _write_moved(u: UOp, operand: OperandText) -> Written | None:
    if type(u.arg) is not tuple or not u.src:
        return None
    text = _holes(u.arg, u.src[1:], operand)
    return None if text is None else Written(u.op.name, u.src[:1], " " + text)


def _read_moved(statement: Statement) -> Read:
    symbolic, arg = _with_holes(statement.dims)
    statement.dims = None
    return (*_operands(statement), *symbolic), arg


def _write_window(u: UOp, operand: OperandText) -> Written | None:
    if type(u.arg) is not tuple or not u.src or len(u.arg) % 2:
        return None
    half = len(u.arg) // 2
    begins, sizes = u.arg[:half], u.arg[half:]
    cut = 1 + sum([d is None for d in begins])
    begin, size = _holes(begins, u.src[1:cut], operand), _holes(sizes, u.src[cut:], operand)
    if begin is None or size is None:
        return None
    return Written(u.op.name, u.src[:1], f" begin={begin} size={size}")


def _read_window(statement: Statement) -> Read:
    first, begin = _with_holes(statement.fields.pop("begin", None))
    second, size = _with_holes(statement.fields.pop("size", None))
    if len(begin) != len(size):
        raise InvalidIR(f"{statement.op.name}: {len(begin)} begins but {len(size)} sizes")
    return (*_operands(statement), *first, *second), begin + size


# Storage: its dimensions are those of its type.
def _in_type(dims: Any, src: tuple[UOp, ...], operand: OperandText) -> bool:
    if type(dims) is not tuple or sum([d is None for d in dims]) != len(src):
        return False
    # An INDEX that stands inside its user has no name to give.
    return all(_is_dim(s) and not operand(s).endswith("]") for s in src)


def _from_type(statement: Statement) -> Read:
    if statement.dtype is None or statement.type_dims is None:
        name = statement.op.name
        raise InvalidIR(f"{name}: expected a type with dimensions, such as : f32[4, 8]")
    for d in statement.type_dims:
        if isinstance(d, str):
            raise InvalidIR(f"expected a number or a node as a dimension, got {d}")
    return _with_holes(statement.type_dims)


def _write_iota(u: UOp, operand: OperandText) -> Written | None:
    return Written(u.op.name, ()) if _in_type(u.arg, u.src, operand) else None


def _read_data(statement: Statement) -> Read:
    label, statement.label = statement.label, None
    if not isinstance(label, str) or not label.startswith("@"):
        raise InvalidIR("expected the content hash of an array, such as @9f8a0c2b51d7e346")
    key = label[1:]
    found = statement.arrays.get(key)
    arg = arrays.by_key(key) if found is None else arrays.register(np.asarray(found))
    if arg.key != key:
        raise InvalidIR(f"the array given for {key} has the content hash {arg.key}")
    if statement.dtype is not None and dtypes.from_numpy(arg.array.dtype) is not statement.dtype:
        raise InvalidIR(f"array {label} holds {arg.array.dtype.name}, not {statement.dtype.name}")
    return (), arg


# Records: the fields of the arg by name. A name that must be given stands first, without `name=`.
@functools.cache
def has_label(op: Op) -> bool:
    """True if the first field of the arg is a required name."""
    cls = op.arg[-1]
    first = dataclasses.fields(cls)[0] if dataclasses.is_dataclass(cls) else None
    return first is not None and first.name == "name" and first.default is dataclasses.MISSING


def _write_record(u: UOp, operand: OperandText) -> Written | None:
    if u.arg is None and type(None) in u.op.arg:
        return Written(u.op.name, u.src)
    record: Any = u.op.arg[-1]
    if type(u.arg) is not record:
        return None
    head, src, fields = u.op.name, u.src, written_fields(u.arg)
    if has_label(u.op) and type(fields[0][1]) is not str:
        return None
    if u.op.is_storage:
        if not _in_type(u.arg.dims, src, operand):
            return None
        src, fields = (), [(k, v) for k, v in fields if k != "dims"]
    if not fields and type(None) in u.op.arg:  # tell an arg of defaults from no arg
        fields = [(f.name, f.default) for f in dataclasses.fields(record)[:1]]
    if has_label(u.op):
        head += " " + write_string(fields.pop(0)[1])
    return Written(head, src, "".join([f" {k}={write_value(v)}" for k, v in fields]))


def _read_record(statement: Statement) -> Read:
    fields, statement.fields = statement.fields, {}
    if has_label(statement.op) and statement.label is not None:
        fields["name"], statement.label = statement.label, None
    if statement.op.is_storage:
        src, fields["dims"] = _from_type(statement)
    else:
        src = _operands(statement)
    if not fields and type(None) in statement.op.arg:
        return src, None
    return src, make_record(statement.op.arg[-1], fields)


def _write_range(u: UOp, operand: OperandText) -> Written | None:
    arg = u.arg
    if type(arg) is not RangeArg or misfit(arg):
        return None
    dotted = arg.axis and all(a >= 0 for a in arg.axis)
    axis = ".".join(map(str, arg.axis)) if dotted else write_value(arg.axis)
    return Written("range", u.src, f" axis={axis} kind={write_value(arg.kind)}")


def _write_reduce(u: UOp, operand: OperandText) -> Written | None:
    arg = u.arg
    if type(arg) is not ReduceArg or not u.src:
        return None
    tail = " over " + ", ".join([operand(s) for s in u.src[1:]]) if len(u.src) > 1 else ""
    if arg.axes:
        tail += f" axes={write_value(arg.axes)}"
    return Written(f"{u.op.name}.{arg.op}", u.src[:1], tail)


def _read_reduce(statement: Statement) -> Read:
    axes = statement.fields.pop("axes", ())
    arg = make_record(ReduceArg, {"op": _suffix(statement), "axes": axes})
    over, statement.over = statement.over or [], None
    return (*_operands(statement), *over), arg


def _suffix(statement: Statement) -> str:
    suffix, statement.suffix = statement.suffix, None
    if suffix is None:
        raise InvalidIR(f"{statement.op.name} needs the op that combines, such as .add")
    return suffix


def _is_name(arg: Any) -> bool:
    return type(arg) is str and arg.isidentifier()


_MOVED = OpSyntax(_write_moved, _read_moved)
_FORMS: dict[ArgKind, OpSyntax] = {
    "const": OpSyntax(
        lambda u, operand: None if u.src else Written(f"const {write_value(u.arg)}", ()),
        _read_const,
    ),
    "storage": OpSyntax(_write_record, _read_record),
    "data": OpSyntax(lambda u, operand: Written(f"data @{u.arg.key}", u.src), _read_data),
    "iota": OpSyntax(_write_iota, _from_type),
    "dims": _MOVED,
    "integers": _MOVED,
    "window": OpSyntax(_write_window, _read_window),
    "record": OpSyntax(_write_record, _read_record),
    "range": OpSyntax(_write_range, _read_record),
    "reduce": OpSyntax(_write_reduce, _read_reduce),
    "hreduce": OpSyntax(
        lambda u, operand: Written(f"{u.op.name}.{u.arg}", u.src) if _is_name(u.arg) else None,
        lambda statement: (_operands(statement), _suffix(statement)),
    ),
}
# The arg of another kind is one value, or none.
FORMS: dict[Op, OpSyntax] = {op: _FORMS.get(op.kind) or _scalar(op) for op in Op.all()}
# Ops whose statement without an arg is their name and operands.
PLAIN = frozenset([op for op in Op.all() if op.kind not in _FORMS and type(None) in op.arg])
_IN_TYPE = frozenset(("storage", "iota"))
