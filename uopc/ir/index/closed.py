"""Index expressions over variables alone, as lists of instructions: a size known at the call."""

from __future__ import annotations

from collections.abc import Mapping

from uopc.ir.core import dtypes, walk
from uopc.ir.core.ops import GroupOp, Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import monomials

# An op, the value of a constant or the name of a variable, and the operands by instruction number.
Instruction = tuple[str, int | str | None, tuple[int, ...]]


def is_closed(u: UOp) -> bool:
    """True if the value follows from the values of variables."""
    return all([_is_known(n) for n in walk.toposort(u, gate=_has_operands)])


def _has_operands(u: UOp) -> bool:
    return u.op is not Ops.BIND  # it has its variable's value


def _is_known(u: UOp) -> bool:
    if u.op is Ops.CONST:
        return type(u.arg) in (int, bool)
    return u.op in (Ops.VARIABLE, Ops.BIND, Ops.WHERE) or u.op.fold is not None


def instructions(u: UOp) -> tuple[Instruction, ...]:
    """The instructions for a closed expression; the last one gives its value."""
    number_of: dict[UOp, int] = {}
    made: list[Instruction] = []
    for n in walk.toposort(u, gate=_has_operands):
        if monomials.is_condition(n):  # it has the condition's number, 0 or 1
            number_of[n] = number_of[n.src[0]]
            continue
        number_of[n] = len(made)
        variable = n.src[0] if n.op is Ops.BIND else n
        if variable.op is Ops.VARIABLE:
            made.append((Ops.VARIABLE.name, variable.arg.name, ()))
        else:
            known = int(n.arg) if n.op is Ops.CONST else None
            made.append((n.op.name, known, tuple([number_of[s] for s in n.src])))
    return tuple(made)


def expression(program: tuple[Instruction, ...], variables: Mapping[str, UOp]) -> UOp:
    """The expression of instructions over these variables: what `instructions` has read."""
    made: list[UOp] = []
    for name, known, operands in program:
        op, src = Op.by_name(name), tuple([made[i] for i in operands])
        if op is Ops.VARIABLE:
            made.append(variables[str(known)])
        elif op is Ops.CONST:
            made.append(intern(op, dtypes.index, (), int(known or 0)))
        else:
            bools = bool(src) and all([s.dtype.kind == "bool" for s in src])
            boolean = op in GroupOp.Comparison or bools
            made.append(intern(op, dtypes.bool_ if boolean else dtypes.index, src))
    return made[-1]


def value(program: tuple[Instruction, ...], values: Mapping[str, int]) -> int:
    """The value of an expression, given every variable's value. It never wraps."""
    results: list[int] = []
    for name, known, src in program:
        op, operands = Op.by_name(name), [results[i] for i in src]
        if op is Ops.CONST:
            results.append(int(known or 0))
        elif op is Ops.VARIABLE:
            results.append(values[str(known)])
        elif op is Ops.WHERE:
            results.append(operands[1] if operands[0] else operands[2])
        else:
            assert op.fold is not None
            results.append(int(op.fold(*operands)))
    return results[-1]


def show(program: tuple[Instruction, ...]) -> str:
    """An expression as text, such as `n+1`."""
    texts: list[str] = []
    for name, known, src in program:
        op, operands = Op.by_name(name), [texts[i] for i in src]
        if not src:
            texts.append(str(known))
        elif op.symbol and len(operands) == 2:
            texts.append(f"({op.symbol.join(operands)})")
        else:
            texts.append(f"{name}({', '.join(operands)})")
    whole = texts[-1]
    return whole[1:-1] if whole.startswith("(") else whole
