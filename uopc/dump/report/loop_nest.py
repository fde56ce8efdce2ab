"""A kernel as indented pseudo-code: its loops, by kind, and the statements of each loop.

    for i in 64                      thread
      %7 = 0.0
      for k in 400                   reduce
        %7 += x[i*400 + k] * w[k]
      out[i] = max(%7 + b[i], 0.0)

A value with several readers, or with a long expression, has its own line and its name in the
stages; other values are inlined.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from uopc.ir.core import dtypes, walk
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.text import op_syntax
from uopc.ir.text.columns import plural
from uopc.ir.text.infix import infix
from uopc.ir.text.literals import write_value
from uopc.ir.text.printer import Namer
from uopc.passes.linearize.blocks import Blocks

MOST_NODES: Final = 1200  # a larger kernel is shown by its loops alone
_MOST_CHARACTERS: Final = 76  # of an expression inside another
_SHARED_CHARACTERS: Final = 28  # of an expression with several users
_LETTERS: Final = "ijklmnopqrstuv"

# The precedence of operators; a comparison binds least, a name or a call most.
_TIGHT: Final = {
    "|": 2, "^": 3, "&": 4, "<<": 5, ">>": 5, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7,
    "**": 9,
}  # fmt: skip
_LOOSEST, _COMPARISON, _PREFIX, _ATOM = 0, 1, 8, 10
_REDUCED = {"add": "{} += {}", "mul": "{} *= {}", "max": "{0} = max({0}, {1})"}
_EMPTY = {"add": "0", "mul": "1", "max": "-inf", "min": "inf"}
# Ops that are shown as their first operand.
_THROUGH = frozenset((Ops.LOAD, Ops.AFTER, Ops.CONTIGUOUS))


class Line(NamedTuple):
    """A line of a nest. `kind`: the kind of a loop, empty for a statement, `note` for text."""

    depth: int
    kind: str
    text: str


def loop_nest(kernel: UOp, names: Namer, storage: Mapping[int, str]) -> list[Line]:
    """The lines of a linear kernel, or of a kernel before its copies and lanes are expanded.

    names: the names of values in the stages. storage: the name of a kernel's PARAM by slot.
    """
    if kernel.op is Ops.LINEAR:
        return _linear_loops(kernel)
    if len(walk.order(kernel)) > MOST_NODES:
        return []
    return list(_NestLines(kernel, names, storage).lines())


def _linear_loops(kernel: UOp) -> list[Line]:
    """The loops of a list in execution order, with the number of statements between loops."""
    lines: list[Line] = []
    depth = loops = 0
    counts = {"value": 0, "store": 0}

    def note() -> None:
        found = [plural(n, what) for what, n in counts.items() if n]
        if found:
            lines.append(Line(depth, "note", ", ".join(found)))
        counts.update(value=0, store=0)

    for u in kernel.src:
        if u.op.opens:
            note()
            text = f"for {_letter(loops)} in {_length(u)}" if u.op is Ops.RANGE else u.op.name
            lines.append(Line(depth, u.arg.kind if u.op is Ops.RANGE else "loop", text))
            depth, loops = depth + 1, loops + 1
        elif u.op.closes:
            note()
            depth = max(0, depth - 1)
        elif u.src:
            counts["store" if u.op is Ops.STORE else "value"] += 1
    note()
    return lines


def _length(u: UOp) -> str:
    """The number of iterations of a range."""
    size = u.src[0]
    return str(size.arg) if size.op is Ops.CONST else infix(size, _SHARED_CHARACTERS) or "…"


def _letter(number: int) -> str:
    turn, at = divmod(number, len(_LETTERS))
    return _LETTERS[at] + (str(turn) if turn else "")


class _NestLines:
    """The lines of one kernel."""

    def __init__(self, kernel: UOp, names: Namer, storage: Mapping[int, str]) -> None:
        self.names, self.storage = names, storage
        self.blocks = blocks = Blocks(kernel, gpu=True)
        self.before = blocks.edges()
        self.shown: dict[UOp, tuple[str, int]] = {}  # text, and how tightly it binds
        taken = {u.arg.name for u in walk.variables(kernel)} | set(storage.values())
        self.letters = (x for x in map(_letter, itertools.count()) if x not in taken)
        self.users: dict[UOp, int] = {}
        self.begun: dict[UOp, list[UOp]] = {}  # reduces by the outermost loop that they close
        self.ended: dict[UOp, list[UOp]] = {}  # and by the innermost
        depth = blocks.loops.depth
        for u in blocks.order:
            for s in dict.fromkeys(u.src):
                self.users[s] = self.users.get(s, 0) + 1
            closed = blocks.closed.get(u)
            if u.op is Ops.REDUCE and closed:
                self.begun.setdefault(min(closed, key=depth.__getitem__), []).append(u)
                self.ended.setdefault(max(closed, key=depth.__getitem__), []).append(u)

    def lines(self) -> Iterator[Line]:
        """All lines. The stack holds the blocks around the current line."""
        stack: list[tuple[UOp | None, Iterator[UOp]]] = [(None, iter(self._items(None)))]
        while stack:
            block, items = stack[-1]
            depth = len(stack) - 1
            for u in items:
                if u.op.opens:
                    for r in self.begun.get(u, ()):
                        yield Line(depth, "", f"{self._named(r)} = {_EMPTY[r.arg.op]}")
                    yield self._opening(u, depth)
                    stack.append((u, iter(self._items(u))))
                    break
                text = self._statement(u)
                if text:
                    yield Line(depth, "", text)
            else:
                for r in self.ended.get(block, ()) if block is not None else ():
                    form = _REDUCED.get(r.arg.op, "{0} = min({0}, {1})")
                    yield Line(depth, "", form.format(self._named(r), self._text(r.src[0])))
                stack.pop()

    def _items(self, block: UOp | None) -> list[UOp]:
        return self.blocks.sorted_block(block, self.before)

    def _opening(self, u: UOp, depth: int) -> Line:
        if u.op is not Ops.RANGE:
            return Line(depth, "loop", f"if {self._text(u.src[0])}")
        letter = next(self.letters)
        self.shown[u] = letter, _ATOM
        return Line(depth, u.arg.kind, f"for {letter} in {self._text(u.src[0])}")

    def _named(self, u: UOp) -> str:
        name = self.names.known(u) or self.names.name(u)
        self.shown[u] = name, _ATOM
        return name

    def _text(self, u: UOp, tight: int = _LOOSEST) -> str:
        """A node as an operand; in parentheses if it binds less tightly than `tight`."""
        if u not in self.shown:
            self.shown[u] = self._expression(u)
        text, own = self.shown[u]
        return f"({text})" if own < tight else text

    def _statement(self, u: UOp) -> str:
        """The line of a node; empty for a node that is inlined."""
        if u.op is Ops.STORE:
            mode = f"  # {u.arg}" if u.arg else ""
            guard = f" if {self._text(u.src[2])}" if len(u.src) > 2 else ""
            return f"{self._text(u.src[0])} = {self._text(u.src[1])}{guard}{mode}"
        if u.op is Ops.BUFFER and u.arg.space != "global":
            size = "×".join(map(str, u.arg.dims))
            return f"{self._text(u)} = {u.arg.space} memory, {u.dtype.short} × {size}"
        if u in self.blocks.closed and u.op is Ops.REDUCE:
            return ""
        if u.dtype is dtypes.void or u.op.is_storage:
            return ""
        text, _ = self.shown[u] = self._expression(u)
        address = u.dtype.scalar is dtypes.index or u.op is Ops.INDEX
        most = _SHARED_CHARACTERS if self.users.get(u, 0) > 1 and not address else _MOST_CHARACTERS
        if len(text) <= most or u.op in _THROUGH:
            return ""
        return f"{self._named(u)} = {text}"

    def _expression(self, u: UOp) -> tuple[str, int]:
        op, src = u.op, u.src
        if op_syntax.is_literal(u):
            return ("invalid" if op is Ops.INVALID else write_value(u.arg)), _ATOM
        if op is Ops.RANGE:  # a loop that this kernel does not open
            return self.names.name(u), _ATOM
        if op is Ops.PARAM:
            return self.storage.get(u.arg.slot) or u.arg.name or f"arg{u.arg.slot}", _ATOM
        if op is Ops.BUFFER:
            return ("tile" if u.arg.space == "local" else u.arg.space) + str(u.arg.slot), _ATOM
        if op is Ops.VARIABLE:
            return u.arg.name, _ATOM
        if op in _THROUGH:
            return self._text(src[0]), self.shown[src[0]][1]
        if op is Ops.INDEX:
            inner = ", ".join([self._text(s) for s in src[1:]])
            return f"{self._text(src[0], _ATOM)}[{inner}]", _ATOM
        return self._operation(u, op)

    def _operation(self, u: UOp, op: Op) -> tuple[str, int]:
        src = u.src
        if op is Ops.WHERE:
            yes, no = self._text(src[1], _COMPARISON), self._text(src[2], _COMPARISON)
            return f"{yes} if {self._text(src[0], _COMPARISON)} else {no}", _LOOSEST
        if op is Ops.NEG:
            sign = "not " if u.dtype.kind == "bool" else "-"
            return sign + self._text(src[0], _PREFIX), _PREFIX
        if op.symbol is not None and len(src) == 2:
            own = _TIGHT.get(op.symbol, _COMPARISON)
            left, right = self._text(src[0], own), self._text(src[1], own + (not op.commutes))
            close = own >= _TIGHT["*"] and u.dtype is dtypes.index
            return f"{left}{op.symbol if close else f' {op.symbol} '}{right}", own
        if op is Ops.CAST:
            return f"{u.dtype.short}({self._text(src[0])})", _ATOM
        name = f"reduce.{u.arg.op}" if op is Ops.REDUCE else op.name
        return f"{name}({', '.join([self._text(s) for s in src])})", _ATOM

