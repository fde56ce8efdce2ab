"""Outlining: a long branch that occurs several times becomes a function, which LLVM compiles once.

    if any lane of %c: %r = 110 statements on %x    →    if …: %r = call @branch_5f3a…(%x)

All float64 sines of one width have the same branch, for huge angles. Outlining makes compilation
faster but loops slower, even where the branch is not taken, because no vector register survives a
call: a branch that occurs only a few times stays in place. (`preserve_allcc` would keep registers,
but LLVM 22 ends its functions with `vzeroupper`.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from uopc.backends.llvm.emitter import Emitter, Rule
from uopc.backends.llvm.statements import CpuEmitter
from uopc.backends.llvm.types import llvm_type
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

SHORTEST = 28  # statements of an outlined branch; a function adds about 10
FEWEST = 4  # occurrences of an outlined branch


class Branch(NamedTuple):
    """The statements of a branch, and what a function of it takes and gives."""

    body: tuple[UOp, ...]
    again: tuple[UOp, ...]  # values from outside that the function computes again
    operands: tuple[UOp, ...]
    results: tuple[UOp, ...]

    def key(self) -> object:
        """Equal for branches that are one function."""
        code = (*self.again, *self.body)
        names: dict[UOp, object] = {u: -1 - i for i, u in enumerate(self.operands)}
        names |= {u: i for i, u in enumerate(code)}
        rows = [(u.op, u.dtype, u.arg, *[names.get(s, s) for s in u.src]) for u in code]
        types = tuple([u.dtype for u in self.operands])
        return types, tuple(rows), tuple([names[u] for u in self.results])


def branches(statements: tuple[UOp, ...]) -> dict[UOp, Branch]:
    """The long branches of a list, by their IF: arithmetic, no memory, no other blocks."""
    bodies: dict[UOp, tuple[UOp, ...]] = {}
    results: dict[UOp, dict[UOp, None]] = {}
    begin = 0
    opened: UOp | None = None
    for i, u in enumerate(statements):
        if u.op is Ops.IF:
            begin, opened = i + 1, u
        elif u.op is Ops.ENDIF and u.src[0] is opened:
            body = [v for v in statements[begin:i] if v.op is not Ops.CONST]
            if len(body) >= SHORTEST:
                bodies[opened], results[opened] = tuple(body), {}
        elif u.op is Ops.BRANCH and u.src[1] in bodies:
            results[u.src[1]][u.src[2]] = None
        elif not u.op.pure and u.op is not Ops.CONST:
            opened = None
    return {u: _branch(body, results[u]) for u, body in bodies.items()}


def _branch(body: tuple[UOp, ...], joined: Iterable[UOp]) -> Branch:
    """An operand that follows from other operands in one operation is computed again: so no masks
    of lanes are passed, for which calls have no registers."""
    inside = set(body)
    operands = {s: None for u in body for s in u.src if s not in inside and s.op is not Ops.CONST}
    follows = {
        s for s in operands
        if s.op.pure and all([v.op is Ops.CONST or v in operands for v in s.src])
    }  # fmt: skip
    order: dict[UOp, None] = {}
    for s in operands:  # the same order in the same branch elsewhere
        walk.toposort(s, gate=follows.__contains__, done=order)
    again = tuple([u for u in order if u in follows])
    taken = tuple([s for s in operands if s not in follows])
    return Branch(body, again, taken, tuple([u for u in joined if u in inside]))


class CallingEmitter(CpuEmitter):
    """Emits a call for each branch that occurs often."""

    def __init__(self, name: str, kernel: UOp) -> None:
        super().__init__(name, kernel)
        self.outlined: dict[UOp, tuple[Branch, str]] = {}  # by IF, with the function's name

    def emit(self, statements: Iterable[UOp]) -> None:
        here = tuple(statements)
        found: dict[object, dict[UOp, Branch]] = {}
        for opened, branch in branches(here).items():
            found.setdefault(branch.key(), {})[opened] = branch
        elsewhere: set[UOp] = set()
        for same in found.values():
            if len(same) >= FEWEST:
                name = _define(self, next(iter(same.values())))
                self.outlined |= {u: (branch, name) for u, branch in same.items()}
                elsewhere.update([u for b in same.values() for u in b.body])
        super().emit([u for u in here if u not in elsewhere])

    def rule(self, u: UOp) -> Rule | None:
        return _open_and_call if u in self.outlined else super().rule(u)


def _open_and_call(e: Emitter, u: UOp) -> str | None:
    """An IF, with a call of its function in place of its statements."""
    assert isinstance(e, CallingEmitter)
    opening = CpuEmitter.rule(e, u)
    assert opening is not None
    opening(e, u)
    branch, name = e.outlined[u]
    result = _result(branch)
    operands = ", ".join([f"{llvm_type(s.dtype)} {e.of(s)}" for s in branch.operands])
    got = e.value(f"call {result} @{name}({operands}) cold")
    for i, r in enumerate(branch.results):
        e.names[r] = e.value(f"extractvalue {result} {got}, {i}")
    return None


def _result(branch: Branch) -> str:
    return "{ " + ", ".join([llvm_type(u.dtype) for u in branch.results]) + " }"


def _define(e: Emitter, branch: Branch) -> str:
    """Define the function of a branch, as a declaration that the kernel needs; returns its name."""
    inner = CpuEmitter("", e.kernel)
    inner.names = {u: f"%a{i}" for i, u in enumerate(branch.operands)}
    inner.emit((*branch.again, *branch.body))
    result, whole = _result(branch), "poison"
    for i, u in enumerate(branch.results):
        part = f"{llvm_type(u.dtype)} {inner.of(u)}"
        whole = inner.value(f"insertvalue {result} {whole}, {part}, {i}")
    given = ", ".join([f"{llvm_type(u.dtype)} %a{i}" for i, u in enumerate(branch.operands)])
    lines = ["entry:", *inner.entry, *inner.lines, f"  ret {result} {whole}"]
    text = "\n".join([f"({given}) {{", *lines, "}"])
    name = "branch_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    e.declared.update(inner.declared)
    e.declared[f"define internal {result} @{name}{text}"] = None
    return name
