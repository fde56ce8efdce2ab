"""Read the text form back: `printer.py` has the grammar."""

from __future__ import annotations

import functools
import re
from typing import Any, NoReturn

from uopc.errors import InvalidIR, UserTypeError
from uopc.ir.core import dtypes, uop
from uopc.ir.core.dtype_rules import derived
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.text import op_syntax
from uopc.ir.text.literals import RESERVED, TokenReader, fail, read_dtype, read_int
from uopc.ir.text.op_syntax import Arrays, Statement
from uopc.ir.text.types import TypeText

_HEADER = re.compile(r"//\s*([a-z][\w-]*):\s*(.*)")
_START = re.compile(r"\s*(let\s+)?(?:(%\w+)\s*=\s*)?([a-z_]\w*)(?=[\s.]|$)\s*")
_REFERENCE = re.compile(r"\s*(%\w+)\s*$")
_NAME = re.compile(r"%\w+")
_COMMENT = re.compile(r"(?:^|\s)//")
_TYPE = re.compile(r"\s*(\w+)(?:\[(.*)\])?(!?)\s*$")
_OPS: dict[str, Op] = {op.name: op for op in Op.all()}


def parse(text: str, arrays: Arrays | None = None) -> UOp:
    """The root of the graph in the text: the node of the last line.

    `arrays`: constant arrays by content hash; other arrays must be alive in the process.
    UserTypeError unless `text` is a text. InvalidIR, with the line and a caret, if the text is not
    in the grammar, if an operand is not defined above, or if a type does not agree with the
    operands.

    Examples:
        >>> n = uopc.variable("n", 1, 8)
        >>> uopc.parse(uopc.print_graph(n * 4 + 1)) is n * 4 + 1
        True
    """
    if not isinstance(text, str):
        raise UserTypeError(f"parse: expected a text, got {type(text).__name__}")
    return _Parser({} if arrays is None else arrays).run(text)


def parse_header(text: str) -> dict[str, str]:
    """The `// key: value` lines before the first statement, as a dictionary."""
    found: dict[str, str] = {}
    for line in map(str.strip, text.splitlines()):
        if line and not line.startswith("//"):
            break
        m = _HEADER.match(line)
        if m is not None:
            found.setdefault(m[1], m[2].strip())
    return found


class _LinearText:
    """A LINEAR being read: its name, its fields and list so far, and its first line."""

    def __init__(self, name: str | None, statement: Statement, line: str, number: int) -> None:
        self.name, self.statement, self.line, self.number = name, statement, line, number


class _Parser:
    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.nodes: dict[str, UOp] = {}
        self.names: dict[UOp, str] = {}
        self.operands: dict[str, UOp] = {}  # by their text: names, constants
        self.types = TypeText(self.names)
        self.type_texts: dict[str, tuple[DType, tuple[Any, ...]]] = {}
        self.block: _LinearText | None = None
        self.last: UOp | None = None
        self.unnamed: tuple[str, int] | None = None  # the last statement without a name
        self.line, self.number = "", 0

    def run(self, text: str) -> UOp:
        for number, line in enumerate(text.splitlines(), 1):
            self.line, self.number = line, number
            if "//" in line:
                m = _COMMENT.search(line)
                line = line if m is None else line[: m.start()]
            if line and not line.isspace():
                self._entry(line)
        if self.block is not None:
            fail(self.block.line, self.block.number, 0, "expected '}' that closes this block")
        if self.last is None:
            fail(self.line, max(self.number, 1), 0, "expected a statement: the text has no nodes")
        return self.last

    def _fail(self, column: int, message: str) -> NoReturn:
        fail(self.line, self.number, column, message)

    # ------------------------------------------------------------ lines
    def _entry(self, line: str) -> None:
        m = _START.match(line)
        if m is None:
            self._other_entry(line)
            return
        let, name, word = m.groups()
        op = _OPS.get(word)
        if op is None:
            self._fail(m.start(3), f"expected an op, got {word}")
        if let is not None and self.block is None:
            self._fail(m.start(1), "'let' is for a node inside a block that is not in its list")
        if op is Ops.LINEAR and line.rstrip().endswith("{"):
            self._open(line, m.end(), name)
            return
        u = self._statement(line, m, op)
        self._define(name, u, m.start(2))
        if self.block is not None and let is None:
            self.block.statement.operands.append(u)

    def _other_entry(self, line: str) -> None:
        column = len(line) - len(line.lstrip())
        if line.strip() == "}":
            self._close(column)
            return
        m = _REFERENCE.match(line)
        if m is None:
            self._fail(column, "expected a statement: [%name =] op operands [: type]")
        u = self.nodes.get(m[1])
        if u is None or self.block is None:
            self._fail(column, f"expected a statement or, in a block, a node; got {m[1]}")
        self.block.statement.operands.append(u)

    def _define(self, name: str | None, u: UOp, column: int = 0) -> None:
        if self.unnamed is not None:
            fail(*self.unnamed, 0, "expected a name: only the last statement needs none")
        if name is None:
            if self.block is None:
                self.unnamed = self.line, self.number
        else:
            found = self.nodes.setdefault(name, u)
            if found is not u:
                self._fail(column, f"{name} is defined above as another node")
            self.operands[name] = u
            self.names.setdefault(u, name)
        self.last = u

    def _open(self, line: str, start: int, name: str | None) -> None:
        if self.block is not None:
            self._fail(start, "blocks do not nest")
        statement = Statement(Ops.LINEAR)
        reader = TokenReader(line, self.number, start, line.rindex("{"))
        self._fields(reader, statement)
        if reader.peek()[0] != "end":
            reader.expected("a field or '{'")
        self.block = _LinearText(name, statement, self.line, self.number)

    def _close(self, column: int) -> None:
        block, self.block = self.block, None
        if block is None:
            self._fail(column, "'}' closes nothing")
        try:
            u = op_syntax.read(block.statement)
        except InvalidIR as error:
            fail(block.line, block.number, 0, str(error))
        self._define(block.name, u)

    # ------------------------------------------------------------ statements
    def _statement(self, line: str, m: re.Match[str], op: Op) -> UOp:
        start = m.end()
        colon = line.rfind(" : ", m.end(3))
        stop = len(line) if colon < 0 else colon
        kind = "" if colon < 0 else line[colon + 3 :].strip()
        dtype, dims = (None, None) if colon < 0 else self._type(kind, colon + 3)
        src = self._plain(line[start:stop].rstrip(), op)
        statement = Statement(op, dtype=dtype, type_dims=dims, arrays=self.arrays)
        if src is None:
            self._read(TokenReader(line, self.number, start, max(start, stop)), statement)
        try:
            if src is not None:
                u = uop.checked(op, dtype, src, None, None)
            else:
                u = op_syntax.read(statement)
        except InvalidIR as error:
            self._fail(m.start(3), str(error))
        if colon >= 0 and self.types.text(u) != kind:
            self._check_type(u, kind, colon + 3)
        return u

    def _plain(self, body: str, op: Op) -> tuple[UOp, ...] | None:
        """The operands of a statement with known operands only; None if there is more to read."""
        if type(None) not in op.arg:
            return None
        known = self.operands
        src = [known.get(word) for word in body.split(", ")] if body else []
        return None if None in src else tuple(src)  # type: ignore[arg-type]

    def _read(self, reader: TokenReader, statement: Statement) -> None:
        if reader.accept("."):
            statement.suffix = reader.take()
        kind, text = reader.peek()
        if kind == "key" or (_is_labelled(statement.op, kind, text) and reader.ahead() != "="):
            statement.label = reader.take() if kind == "key" else reader.value()
            kind, text = reader.peek()
        if kind in ("name", "number") or text in ("(", "true", "false", "invalid"):
            statement.operands = self._operands(reader)
        if reader.peek()[1] == "(":
            statement.dims = reader.value(functools.partial(self._operand, reader))
        if reader.accept("over"):
            statement.over = self._operands(reader)
        self._fields(reader, statement)
        if reader.peek()[0] != "end":
            reader.expected(
                "a field or the end" if statement.operands else "operands, fields or the end"
            )

    def _fields(self, reader: TokenReader, statement: Statement) -> None:
        while reader.peek()[0] == "word" and reader.ahead() == "=":
            column = reader.column()
            name = reader.take()
            if name in statement.fields:
                reader.fail(f"{name} is given twice", column)
            reader.expect("=")
            if statement.op is Ops.RANGE and name == "axis" and reader.peek()[0] == "number":
                statement.fields[name] = reader.literal(_axis, "an axis such as 0 or 0.1")
            else:
                hole = functools.partial(self._operand, reader)
                statement.fields[name] = reader.value(hole if name in ("begin", "size") else None)

    # ------------------------------------------------------------ operands
    def _operands(self, reader: TokenReader) -> list[UOp]:
        found = [self._operand(reader)]
        while reader.accept(","):
            found.append(self._operand(reader))
        return found

    def _operand(self, reader: TokenReader) -> UOp:
        kind, text = reader.peek()
        if kind != "name":
            return self._constant(reader)
        u = self.nodes.get(text)
        if u is None:
            reader.expected("an operand defined above")
        reader.take()
        if not reader.accept("["):
            return u
        reader.deeper(1)
        indices = self._operands(reader)
        reader.expect("]")
        reader.deeper(-1)
        dtype = _dtype(reader) or u.dtype
        return uop.checked(Ops.INDEX, dtype, (u, *indices), None, None)

    def _constant(self, reader: TokenReader) -> UOp:
        kind, text = reader.peek()
        if kind != "number" and text not in ("(", "true", "false", "invalid"):
            reader.expected("an operand: %name or a constant")
        column = reader.column()
        # A shape in brackets may follow `invalid`, which is no name of a record.
        value = reader.take() if text == "invalid" else reader.value()
        dtype = _dtype(reader)
        if value == "invalid":
            u = intern(Ops.INVALID, dtype or dtypes.index)
        else:
            u = reader.checked(column, op_syntax.constant, value, dtype)
        self.operands.setdefault(op_syntax.literal(u), u)
        return u

    # ------------------------------------------------------------ types
    def _type(self, text: str, column: int) -> tuple[DType, tuple[Any, ...]]:
        """dtype and dimensions: integers, nodes, or the text of an expression."""
        found = self.type_texts.get(text)
        if found is not None:
            return found
        m = _TYPE.match(text)
        if m is None:
            self._fail(column, "expected a type such as f32[4, %n]")
        try:
            dtype = read_dtype(m[1])
            dims = () if m[2] is None else tuple([self._dim(d) for d in _split(m[2])])
        except InvalidIR as error:
            self._fail(column, str(error))
        found = self.type_texts[text] = dtype, dims
        return found

    def _dim(self, text: str) -> Any:
        if text.isdecimal():
            return read_int(text)
        if _NAME.fullmatch(text):
            if text not in self.nodes:
                raise InvalidIR(f"expected a dimension defined above, got {text}")
            return self.nodes[text]
        value, colon, dtype = text.partition(":")
        if colon and value.lstrip("-").isdecimal():
            return op_syntax.constant(read_int(value), read_dtype(dtype.strip()))
        return text.replace(" ", "")

    def _check_type(self, u: UOp, text: str, column: int) -> None:
        """InvalidIR if the type differs from the derived type, apart from its wording."""
        given = self.types.text(u)
        _, dims = self._type(text, column)
        shape = u._shape
        same = shape is not None and len(shape) == len(dims)
        for said, d in zip(dims, shape or ()):
            text_alike = type(said) is str and said == self.types.dim(d).replace(" ", "")
            same &= text_alike or said is d or (type(said) is type(d) is int and said == d)
        if given.endswith("!") and not text.endswith("!"):
            try:  # the node has the dtype of the text, which is not that of its operands
                given = derived(u.op, u.dtype, u.src, u.arg).short + given[len(u.dtype.short) : -1]
            except InvalidIR as problem:
                self._fail(column, f"the type is {text}, but {problem}")
            same = False
        if not same or text.endswith("!") != given.endswith("!"):
            self._fail(column, f"the type is {text}, but the operands give {given or 'void'}")


def _is_labelled(op: Op, kind: str, text: str) -> bool:
    """True if the token after the op is its label and not an operand."""
    if op is Ops.CONST:
        return kind in ("number", "word") or kind == "mark"
    is_name = kind == "string" or (kind == "word" and text not in RESERVED)
    return is_name and op_syntax.has_label(op)


def _dtype(reader: TokenReader) -> DType | None:
    """The dtype after a colon, if there is one."""
    if not reader.accept(":"):
        return None
    return reader.checked(reader.column(), read_dtype, reader.take())


def _axis(text: str) -> tuple[int, ...]:
    return tuple([int(number) for number in text.split(".")])


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    out, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            out.append(text[start:i].strip())
            start = i + 1
    out.append(text[start:].strip())
    return out
