"""A long branch is a function of the module, which LLVM compiles once however often it stands.

    if any lane of %c: %r = 110 statements on %x    →    if …: %r = call @branch_5f3a…(%x)

Every float64 sine of a width has the same one, for huge angles. A Jacobian has fifteen sines and
cosines: LLVM took 0.27 s for it with all of them in place, 0.08 with two functions. A call that is
not taken still makes a loop 4 to 9 % slower, as no vector register survives a call: so a branch
stays in place where it stands only a few times. (`preserve_allcc` would keep them, but LLVM 22 ends
its functions with `vzeroupper`.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from uopc.backends.llvm.emitter import Emitter, Rule
from uopc.backends.llvm.types import llvm_type
from uopc.ir.core import analysis
from uopc.ir.core.ops import Ops

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

SHORTEST = 32  # statements; a function has some 10 of its own
FEWEST = 4  # places
_IN_PLACE = frozenset((Ops.CONST, Ops.CARRY))  # stand between the beginning of a loop and its body


class Branch(NamedTuple):
    """What is computed in a branch."""

    range: UOp
    body: tuple[UOp, ...]
    operands: tuple[UOp, ...]  # what it uses from outside
    results: tuple[UOp, ...]  # what its registers hold afterwards

    def key(self) -> object:
        """The same for branches that are one function."""
        names: dict[UOp, object] = {u: -1 - i for i, u in enumerate(self.operands)}
        names |= {u: i for i, u in enumerate((self.range, *self.body))}
        rows = [(u.op, u.dtype, u.arg, *[names.get(s, s) for s in u.src]) for u in self.body]
        types = tuple([u.dtype for u in self.operands])
        return types, tuple(rows), tuple([names[u] for u in self.results])


def branches(statements: tuple[UOp, ...]) -> dict[UOp, Branch]:
    """The long branches of a list, by the END that closes them: arithmetic, no memory, no loops."""
    found: dict[UOp, Branch] = {}
    begin = 0
    opened: UOp | None = None
    for i, u in enumerate(statements):
        if u.op is Ops.RANGE:
            begin, opened = i + 1, u if analysis.bounds(u.src[0]) == (0, 1) else None
        elif u.op is Ops.END and u.src[0] is opened:
            branch = _branch(statements[begin:i], u)
            if branch is not None:
                found[u] = branch
        elif not (u.op.is_alu or u.op in _VALUES):
            opened = None
    return found


_VALUES = _IN_PLACE | {
    Ops.CAST, Ops.BITCAST, Ops.AFTER, Ops.STACK, Ops.LANE, Ops.LANES, Ops.SHUFFLE, Ops.HREDUCE,
}  # fmt: skip


def _branch(statements: tuple[UOp, ...], end: UOp) -> Branch | None:
    body = tuple([u for u in statements if u.op not in _IN_PLACE])
    if len(body) < SHORTEST:
        return None
    inside = {*body, end.src[0]}
    operands = {s: None for u in body for s in u.src if s not in inside and s.op is not Ops.CONST}
    results = tuple([u for u in dict.fromkeys(end.src[2::2]) if u in inside])
    return Branch(end.src[0], body, tuple(operands), results)


class CallingEmitter(Emitter):
    """Code in which branches that stand often are calls."""

    def __init__(self, name: str, kernel: UOp) -> None:
        super().__init__(name, kernel)
        self.branches: dict[UOp, Branch] = {}
        self.functions: dict[object, str] = {}  # by key

    def emit(self, statements: Iterable[UOp]) -> None:
        here = tuple(statements)
        found: dict[object, dict[UOp, Branch]] = {}
        for end, branch in branches(here).items():
            found.setdefault(branch.key(), {})[end] = branch
        elsewhere: set[UOp] = set()
        for key, same in found.items():
            if len(same) >= FEWEST:
                self.functions[key] = _define(self, next(iter(same.values())))
                self.branches.update(same)
                elsewhere.update([u for b in same.values() for u in b.body])
        super().emit([u for u in here if u not in elsewhere])

    def rule(self, u: UOp) -> Rule | None:
        return _call_and_end if u in self.branches else super().rule(u)


def _call_and_end(e: Emitter, u: UOp) -> str | None:
    assert isinstance(e, CallingEmitter)
    branch = e.branches[u]
    _call(e, branch, e.functions[branch.key()])
    end = Emitter.rule(e, u)
    return end(e, u) if end is not None else None


def _call(e: Emitter, branch: Branch, function: str) -> None:
    """The call of a branch's function, where its body would stand; the results get names."""
    result = _result(branch)
    operands = ", ".join([f"{llvm_type(u.dtype)} {e.of(u)}" for u in branch.operands])
    got = e.value(f"call {result} @{function}({operands}) cold")
    for i, u in enumerate(branch.results):
        e.names[u] = e.value(f"extractvalue {result} {got}, {i}")


def _result(branch: Branch) -> str:
    return "{ " + ", ".join([llvm_type(u.dtype) for u in branch.results]) + " }"


def _define(e: Emitter, branch: Branch) -> str:
    """The name of a branch's function, which is among what the kernel needs declared."""
    inner = Emitter("", e.kernel)
    inner.names = {u: f"%a{i}" for i, u in enumerate(branch.operands)}
    inner.names[branch.range] = "0"
    inner.emit(branch.body)
    result, whole = _result(branch), "poison"
    for i, u in enumerate(branch.results):
        part = f"{llvm_type(u.dtype)} {inner.of(u)}"
        whole = inner.value(f"insertvalue {result} {whole}, {part}, {i}")
    given = ", ".join([f"{llvm_type(u.dtype)} %a{i}" for i, u in enumerate(branch.operands)])
    text = "\n".join([f"({given}) {{", "entry:", *inner.lines, f"  ret {result} {whole}", "}"])
    name = "branch_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    e.declared.update(inner.declared)
    e.declared[f"define internal {result} @{name}{text}"] = None
    return name
