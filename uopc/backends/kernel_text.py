"""The text of a linear kernel in any language: one walk, which knows order, loops and branches.

    range %r, 8          begin_loop(%r, [%c])             for (…) {      head0: phi …, phi …
    %c = carry 0, %r                                          …
    …                    the rule of each op                  …              …
    end %r, %c, %d       end_loop(loop, [(%c, %d)])       }              br … ; exit0:
    if %p                begin_branch(%p, [%b])           if (p) {       br … ; inside1:
    …                    the rule of each op                  …              …
    endif                end_branch(branch, [%b])         }              br … ; done1: phi …
    %b = branch %a, %d

A language is a subclass. It prints these four and has a rule for each other op. What it returns
when a block begins comes back to it when the block ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from uopc.errors import Unsupported
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp

Rule = Callable[[Any, UOp], "str | None"]  # the name of a node's value, if it has one
_REGISTERS = frozenset((Ops.CARRY, Ops.BRANCH))
LoopText = TypeVar("LoopText")
BranchText = TypeVar("BranchText")


class KernelText(ABC, Generic[LoopText, BranchText]):
    """Builds the text of one kernel, line by line."""

    language: ClassVar[str]  # in messages
    chunk: ClassVar[str]  # the name of the number of the part that a thread runs

    def __init__(self, name: str, kernel: UOp) -> None:
        self.name, self.kernel = name, kernel
        self.lines: list[str] = []
        self.names: dict[UOp, str] = {}
        self.count = 0  # of the names made so far
        self.loops: list[LoopText] = []  # that are open, the outermost first
        self.branches: list[BranchText] = []  # that are open
        self.registers: dict[UOp, list[UOp]] = {}  # RANGE -> its CARRYs; IF -> its BRANCHes

    def emit(self, statements: Sequence[UOp]) -> None:
        """Append the code of some nodes, in order."""
        for u in [u for u in statements if u.op in _REGISTERS]:
            self.registers.setdefault(u.src[1], []).append(u)
        rule_of, names = self.rule, self.names
        for u in statements:
            rule = rule_of(u)
            if rule is None:
                raise Unsupported(
                    f"{self.language}: no code for {u.op!r} ({u.dtype.name}): pass decompose"
                    " replaces it, and no rule of a later pass may make it"
                )
            made = rule(self, u)
            if made is not None:
                names[u] = made

    @abstractmethod
    def rule(self, u: UOp) -> Rule | None:
        """The function that prints a node; None where the language has no code for its op."""

    @abstractmethod
    def begin_loop(self, r: UOp, carries: Sequence[UOp]) -> LoopText:
        """Open the loop of a RANGE, give it its name, and its registers theirs."""

    @abstractmethod
    def end_loop(self, loop: LoopText, pairs: Sequence[tuple[UOp, UOp]]) -> None:
        """Close the innermost loop: registers, each with its value in the next turn."""

    @abstractmethod
    def begin_branch(self, condition: UOp, joined: Sequence[UOp]) -> BranchText:
        """Open a block that runs where a condition holds; `joined`: the BRANCHes behind it."""

    @abstractmethod
    def end_branch(self, branch: BranchText, joined: Sequence[UOp]) -> None:
        """Close the innermost branch, and give the BRANCHes behind it their names."""


def _range(e: KernelText[Any, Any], u: UOp) -> str | None:
    if u.arg.kind == "thread":
        return e.chunk
    e.loops.append(e.begin_loop(u, e.registers.get(u, ())))
    return None


def _end(e: KernelText[Any, Any], u: UOp) -> None:
    if u.src[0].arg.kind != "thread":
        e.end_loop(e.loops.pop(), list(zip(u.src[1::2], u.src[2::2])))


def _if(e: KernelText[Any, Any], u: UOp) -> None:
    e.branches.append(e.begin_branch(u.src[0], e.registers.get(u, ())))


def _endif(e: KernelText[Any, Any], u: UOp) -> None:
    e.end_branch(e.branches.pop(), e.registers.get(u.src[0], ()))


def _nothing(e: KernelText[Any, Any], u: UOp) -> None:
    """A node without code, or with code where another node stands."""


CONTROL: dict[Op, Rule] = {
    Ops.RANGE: _range,
    Ops.END: _end,
    Ops.IF: _if,
    Ops.ENDIF: _endif,
    **dict.fromkeys(
        (Ops.CARRY, Ops.BRANCH, Ops.PARAM, Ops.VARIABLE, Ops.NUMBER, Ops.CONST, Ops.NOOP),
        _nothing,
    ),
}
