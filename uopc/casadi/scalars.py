"""SX Functions: lists of scalar instructions, each a node.

    f = Function("f", [x, u], [sin(x) + u])      %a = index x 0
                                              →  %b = sin %a, …, one vector for each output

A sum of many terms, written one after another, is the sum of a vector of them. So the terms of an
objective over all stages are parts that `reroll` finds equal; the order of additions changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import casadi as ca

from uopc.casadi.elementwise import BINARY, UNARY
from uopc.casadi.errors import unsupported
from uopc.casadi.structures import F8, zeros
from uopc.ir.builder import leaves, movement
from uopc.ir.core.uop import UOp

LONG_SUM = 16  # terms


class ScalarCode:
    """The instructions of an SX Function, by number. `operands` are instructions, too: where an
    instruction reads an input or a constant, the one that loads it."""

    def __init__(self, f: ca.Function) -> None:
        self.function = f
        self.ops = [f.instruction_id(k) for k in range(f.n_instructions())]
        self.operands: list[tuple[int, ...]] = []
        maker: dict[int, int] = {}
        for k, op in enumerate(self.ops):
            count = _operand_count(op)
            self.operands.append(tuple([maker[w] for w in f.instruction_input(k)[:count]]))
            if op != ca.OP_OUTPUT:
                maker[f.instruction_output(k)[0]] = k
        self.skipped: set[int] = set()
        self.sums = self._long_sums()

    def _long_sums(self) -> dict[int, list[int]]:
        """The terms of each long sum, by its last instruction; others of the sum are skipped."""
        reads = Counter([k for operands in self.operands for k in operands])
        inner = {
            k for last, op in enumerate(self.ops) if op == ca.OP_ADD
            for k in self.operands[last] if self.ops[k] == ca.OP_ADD and reads[k] == 1
        }  # fmt: skip
        found = {}
        for k, op in enumerate(self.ops):
            if op == ca.OP_ADD and k not in inner:
                terms, within = self._terms(k, inner)
                if len(terms) >= LONG_SUM:
                    found[k] = terms
                    self.skipped |= within
        return found

    def _terms(self, last: int, inner: set[int]) -> tuple[list[int], set[int]]:
        """The terms of a sum in order, and its additions but the last."""
        terms, within, stack = [], set(), [last]
        while stack:
            k = stack.pop()
            if k == last or k in inner:
                stack += reversed(self.operands[k])
                within.add(k)
            else:
                terms.append(k)
        return terms, within - {last}

    def outputs(self, args: Sequence[UOp]) -> list[UOp]:
        """The nonzeros of each output, from the nonzeros of each input."""
        f = self.function
        values: dict[int, UOp] = {}
        made: list[dict[int, UOp]] = [{} for _ in range(f.n_out())]
        for k, op in enumerate(self.ops):
            if op == ca.OP_OUTPUT:
                output, place = f.instruction_output(k)
                made[output][place] = values[self.operands[k][0]]
            elif k not in self.skipped:
                values[k] = self._value(k, op, values, args)
        return [_stacked([m[i] for i in range(len(m))]) for m in made]

    def _value(self, k: int, op: int, values: dict[int, UOp], args: Sequence[UOp]) -> UOp:
        f = self.function
        if op == ca.OP_INPUT:
            given, place = f.instruction_input(k)
            return args[given][place]
        if op == ca.OP_CONST:
            return leaves.const(F8, f.instruction_constant(k))
        if k in self.sums:
            return _stacked([values[i] for i in self.sums[k]]).sum()
        read = [values[i] for i in self.operands[k]]
        if op in UNARY:
            return UNARY[op](read[0])
        if op in BINARY:
            return BINARY[op](read[0], read[1])
        raise unsupported(f, op)


def _operand_count(op: int) -> int:
    """The number of values that an instruction reads; CasADi repeats the operand of a unary one."""
    if op in (ca.OP_INPUT, ca.OP_CONST):
        return 0
    return 2 if op in BINARY else 1


def _stacked(scalars: list[UOp]) -> UOp:
    return movement.stack(*scalars) if scalars else zeros(0)
