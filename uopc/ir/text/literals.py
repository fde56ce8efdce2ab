"""Values in the text form (args, tags, constants), and the reader of one line.

    value  = "none" | "true" | "false" | number | word | string | tuple | call
    tuple  = "(" [value {"," value} [","]] ")"
    call   = word "(" [item {"," item}] ")"      item = value | word "=" value
    number = decimal integer or float | "inf" | "-inf" | "nan" | "-nan"

A string is bare where it is a word that means nothing else, and otherwise quoted as in JSON. The
calls are `dtype(f32)`, a record of args.py by field (`ReduceArg(op=add, axes=(1,))`), and an Opt
by what it prints as (`UPCAST(0, 4)`).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import types
import typing
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from uopc.errors import InvalidIR, UserTypeError
from uopc.ir.core import args, dtypes
from uopc.ir.core.args import Opt
from uopc.ir.core.constants import float_text
from uopc.ir.core.dtypes import DType

T = TypeVar("T")

_WORD = re.compile(r"[^\W\d]\w*")
RESERVED = frozenset(("none", "true", "false", "inf", "nan", "invalid", "over"))
RECORDS: dict[str, type] = {
    name: cls
    for name, cls in vars(args).items()
    if isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls is not args.DataArg
}
_WORDS: dict[str, bool | None] = {"none": None, "true": True, "false": False}
_CALLS = frozenset((*RECORDS, *_WORDS, "dtype", "opaque"))  # names that an Opt must not print as
_fields = functools.cache(dataclasses.fields)
_hints = functools.cache(typing.get_type_hints)
_DEEPEST = 50  # nested values: far more than any arg has, far less than Python's stack


# ---------------------------------------------------------------- writing
def write_value(value: Any) -> str:
    """A value as text that reads back as an equal value of the same types."""
    kind = type(value)
    if kind is int:
        return repr(value)
    if kind is float:
        return float_text(value)
    if value is None or kind is bool:
        return str(value).lower()
    if kind is str:
        return write_string(value)
    if kind is tuple:
        inner = ", ".join([write_value(v) for v in value])
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if kind is DType:
        return f"dtype({value.short})"
    if kind is Opt and _is_word(value.op) and value.op not in _CALLS:
        return f"{value.op}({write_value(value.axis)}, {write_value(value.arg)})"
    if kind.__name__ in RECORDS:
        inner = ", ".join([f"{k}={write_value(v)}" for k, v in written_fields(value)])
        return f"{kind.__name__}({inner})"
    return f"opaque({write_string(repr(value))})"  # for people; the reader refuses it


_ENDS_A_NODE = re.compile("(?<= ):(?= )")


def _is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None and text not in RESERVED


def write_string(text: str) -> str:
    """Write an ordinary word bare; quote any other text, without ` : ` and ` //`, which end parts.
    """
    if _is_word(text):
        return text
    return _ENDS_A_NODE.sub(r"\\u003a", json.dumps(text).replace("/", "\\/"))


def written_fields(record: Any) -> list[tuple[str, Any]]:
    """The fields of a record that are required or not at their default."""
    values = [(f.name, getattr(record, f.name), f.default) for f in _fields(record.__class__)]
    return [(k, v) for k, v, default in values if default is dataclasses.MISSING or v != default]


# ---------------------------------------------------------------- records
Fits = Callable[[Any], bool]


def misfit(record: Any) -> str | None:
    """A field of a record with a value that is not of the declared type; None if all fit."""
    cls: type = type(record)
    for name, hint, fits in _checked_fields(cls):
        value = getattr(record, name)
        if type(value) is not hint and not fits(value):
            return f"{name} must be {_show_hint(hint)}, got {value!r}"
    return None


@functools.cache
def _checked_fields(cls: type) -> list[tuple[str, Any, Fits]]:
    return [(name, hint, _fits(hint)) for name, hint in _hints(cls).items() if name != "array"]


def make_record(cls: type, fields: dict[str, Any]) -> Any:
    """Make a record of args.py. InvalidIR for a field that is unknown, missing, or of the wrong
    type."""
    hints = _hints(cls)
    for name, value in fields.items():
        if name not in hints:
            raise InvalidIR(f"{cls.__name__} has no field {name!r}: expected {', '.join(hints)}")
        if not _fits(hints[name])(value):
            raise InvalidIR(f"{name} must be {_show_hint(hints[name])}, got {write_value(value)}")
    for f in _fields(cls):
        if f.default is dataclasses.MISSING and f.name not in fields:
            raise InvalidIR(f"expected {f.name}=...")
    return cls(**fields)


@functools.cache
def _fits(hint: Any) -> Fits:
    """The test that a value has the type of a hint."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return lambda value: value in args
    if origin is typing.Union or origin is types.UnionType:
        plain = {h for h in args if isinstance(h, type)}
        others = [_fits(h) for h in args if h not in plain]
        return lambda value: type(value) in plain or any([fits(value) for fits in others])
    if origin is tuple:
        item = _fits(args[0])
        return lambda value: type(value) is tuple and all([item(v) for v in value])
    return lambda value: type(value) is hint


def _show_hint(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(typing.get_args(hint))
    return hint.__name__ if isinstance(hint, type) and hint.__module__ == "builtins" else str(hint)


# ---------------------------------------------------------------- reading
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<name>%\w+)
    | (?P<number>-?(?:\d[\d.]*(?:e[+-]?\d+)?|(?:inf|nan)\b))
    | (?P<word>[^\W\d]\w*)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<key>@\w+)
    | (?P<mark>[=,:()\[\]{}.])
    | (?P<bad>\S)
    )""",
    re.VERBOSE,
)


def fail(line: str, number: int, column: int, message: str) -> NoReturn:
    """InvalidIR that shows the line and points at the column."""
    shown = line.rstrip("\n").replace("\t", " ")
    raise InvalidIR(
        f"line {number}, column {column + 1}: {message}\n  {shown}\n  {' ' * column}^"
    ) from None


class TokenReader:
    """A cursor over the tokens of a part of one line."""

    __slots__ = ("_at", "_depth", "line", "number", "tokens")

    def __init__(self, line: str, number: int, start: int, stop: int) -> None:
        self.line, self.number = line, number
        self.tokens: list[tuple[str, str, int]] = []
        self._at, self._depth = 0, 0
        for m in _TOKEN.finditer(line, start, stop):
            kind = m.lastgroup or "bad"
            column = m.start(kind)
            if kind == "bad":
                fail(line, number, column, f"unexpected {m[kind]!r}")
            self.tokens.append((kind, m[kind], column))
        self.tokens.append(("end", "", stop))

    def peek(self) -> tuple[str, str]:
        """Kind and text of the next token; kind `end` at the end."""
        return self.tokens[self._at][:2]

    def ahead(self) -> str:
        """The text of the token after the next one."""
        return "" if self.peek()[0] == "end" else self.tokens[self._at + 1][1]

    def take(self) -> str:
        """Take the next token; its text."""
        kind, text = self.peek()
        self._at += kind != "end"
        return text

    def accept(self, mark: str) -> bool:
        """Take the next token if it is this mark or word; else return False."""
        kind, text, _ = self.tokens[self._at]
        if text == mark and kind in ("mark", "word"):
            self._at += 1
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.accept(mark):
            self.expected(repr(mark))

    def column(self) -> int:
        """The column of the next token."""
        return self.tokens[self._at][2]

    def fail(self, message: str, column: int | None = None) -> NoReturn:
        fail(self.line, self.number, self.column() if column is None else column, message)

    def expected(self, what: str) -> NoReturn:
        got = self.tokens[self._at][1]
        self.fail(f"expected {what}, got {got or 'the end'}")

    # ------------------------------------------------------------ values
    def value(self, hole: Callable[[], Any] | None = None) -> Any:
        """Read a value. `hole`: reads a symbolic dimension, if allowed."""
        kind, text = self.peek()
        if hole is not None and (kind == "name" or (kind == "number" and self.ahead() == ":")):
            return hole()
        if kind == "number":
            return self.literal(_parse_number, "a number")
        if kind == "string":
            return str(self.literal(json.loads, "a string as in JSON"))
        if text == "(":
            return tuple(self._list(lambda: self.value(hole)))
        if kind != "word":
            self.expected("a value")
        self.take()
        if text in _WORDS:
            return _WORDS[text]
        if self.peek()[1] != "(":
            return text
        column = self.column()
        return self.checked(column, _called, text, self._list(self._item))

    def literal(self, read: Callable[[str], T], expected: str) -> T:
        """The next token as a value; `read` raises ValueError for an unexpected text."""
        try:
            value = read(self.peek()[1])
        except ValueError:
            self.expected(expected)
        self.take()
        return value

    def checked(self, column: int, make: Callable[..., T], *given: Any) -> T:
        """The result of `make`, whose InvalidIR is reported at the column."""
        try:
            return make(*given)
        except InvalidIR as error:
            self.fail(str(error), column)

    def deeper(self, by: int) -> None:
        """Count a bracket opened or closed. InvalidIR if values nest too deep."""
        self._depth += by
        if self._depth > _DEEPEST:
            self.fail(f"values nest deeper than {_DEEPEST}")

    def _list(self, item: Callable[[], T]) -> list[T]:
        """Read items in round brackets, with a comma after each; optional after the last."""
        self.expect("(")
        self.deeper(1)
        items = []
        while not self.accept(")"):
            items.append(item())
            if not self.accept(",") and self.peek()[1] != ")":
                self.expected("',' or ')'")
        self.deeper(-1)
        return items

    def _item(self) -> tuple[str, Any]:
        """Read the name (empty without one) and the value of an item of a call."""
        name = ""
        if self.peek()[0] == "word" and self.ahead() == "=":
            name = self.take()
            self.take()
        return name, self.value()


def _parse_number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def read_int(text: str) -> int:
    """Decimal digits as a number; InvalidIR for more digits than Python reads."""
    try:
        return int(text)
    except ValueError as error:
        raise InvalidIR(str(error)) from None


def _called(name: str, given: list[tuple[str, Any]]) -> Any:
    items = [value for key, value in given if not key]
    fields = {key: value for key, value in given if key}
    if name == "opaque":
        raise InvalidIR("an opaque value cannot be parsed: it is for reading only")
    if name == "dtype" and len(items) == 1 and not fields:
        return read_dtype(str(items[0]))
    if name in RECORDS and not items:
        return make_record(RECORDS[name], fields)
    if name not in _CALLS and len(items) == 2 and not fields:
        return make_record(Opt, {"op": name, "axis": items[0], "arg": items[1]})
    raise InvalidIR(f"expected the fields of {name} as name=value, or OPT(axis, amount)")


def read_dtype(text: str) -> DType:
    """`f32`, `float32` or `f32x8`; InvalidIR if there is no such type."""
    try:
        return dtypes.by_name(text)
    except UserTypeError:
        raise InvalidIR(f"expected a dtype, got {text or 'nothing'}") from None
