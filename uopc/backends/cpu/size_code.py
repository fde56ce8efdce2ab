"""Sizes that a call decides, as instructions that the native entry evaluates.

A program has registers of 64 bits: its variables, then constants and the results of instructions.
`evaluate` runs the instructions, checks that the required registers are not zero, and copies
registers to the words that depend on them. It gives up where 64 bits do not hold a result: Python
computes sizes exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

from uopc.backends.cpu.structs import STATE, UNKNOWN, WORDS
from uopc.backends.llvm import sizes
from uopc.backends.llvm.builder import I1, I64, Builder, Operand, PointerTo, function
from uopc.backends.plan import Dim, Variable
from uopc.ir.core.ops import Ops

_OPERATION_NUMBERS = {op.name: number for number, op in enumerate(sizes.OPERATIONS)}


@function(I1, PointerTo(STATE), WORDS, I64)
def evaluate(b: Builder, state: Operand, inputs: Operand, variables: Operand) -> None:
    """True if the sizes of a call with these inputs are known, checked and in place."""
    evaluated, registers, instructions = state.evaluated, state.registers, state.instructions
    required, patches, no = state.required, state.patches, b.block()
    evaluated[0] = UNKNOWN  # until all is in place, no call has these sizes
    with b.count_to(variables) as i:
        value = inputs[i]
        registers[i] = value
        b.leave(value.eq(UNKNOWN), no)
    with b.count_to(state.instructions_count) as i:
        instruction, result = instructions.at(i), b.block(I64)
        operands = [registers[number] for number in (instruction.a, instruction.b, instruction.c)]
        blocks = [b.block() for _ in sizes.OPERATIONS]
        b.switch(instruction.op, {n: [block] for n, block in enumerate(blocks)}, no)
        for op, block in zip(sizes.OPERATIONS, blocks):
            b.begin(block)
            made = sizes.computed(op, operands[: op.arity[0]], no)
            b.go(result, made if made.t is I64 else made.to(I64, "zext"))
        (value,) = b.begin(result)
        registers[instruction.result] = value
    with b.count_to(state.required_count) as i:
        b.leave(registers[required[i]].eq(0), no)
    with b.count_to(state.patches_count) as i:
        patch = patches.at(i)
        patch.word[0] = registers[patch.register]
    with b.count_to(variables) as i:
        evaluated[i] = inputs[i]
    b.ret(True)
    b.begin(no)
    b.ret(False)


_RELATIONS = {
    "equal": Ops.CMPEQ.name, "at most": Ops.CMPLE.name, "below": Ops.CMPLT.name,
}  # fmt: skip
_MOST = (1 << 63) - 1


# A size, or the product of some.
Size: TypeAlias = Dim | tuple[Dim, ...]


def fixed(size: Size) -> int | None:
    """The value of a size that depends on no variable."""
    factors = size if isinstance(size, tuple) else (size,)
    numbers = [d for d in factors if isinstance(d, int)]
    return math.prod(numbers) if len(numbers) == len(factors) else None


class SizeCode:
    """The sizes of a program that depend on its variables, in the order of `variables`."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.registers = [UNKNOWN] * len(variables)
        self.instructions: list[tuple[int, ...]] = []  # operation, three operands, result
        self.required: list[int] = []
        self.patches: list[tuple[int, int]] = []  # a register, and the address of a word
        self._numbers: dict[object, int] = {v.name: i for i, v in enumerate(variables)}
        for v in variables:
            self.require(Ops.CMPLE.name, self.constant(v.lo), self._numbers[v.name])
            self.require(Ops.CMPLE.name, self._numbers[v.name], self.constant(v.hi))

    def require(self, op: str, left: int, right: int) -> None:
        """Let calls for which this is 0 go to Python. Operands are registers."""
        self.required.append(self._result(op, (left, right)))

    def require_relation(self, relation: str, left: Size, right: Size) -> None:
        """Let calls to which a relation does not apply go to Python, and those for which 64 bits do
        not hold a side, which need no other check of that."""
        if relation == "at most" and (left == -(1 << 63) or right == _MOST):
            self.register(right if left == -(1 << 63) else left)
        else:
            self.require(_RELATIONS[relation], self.register(left), self.register(right))

    def constant(self, value: int) -> int:
        """The register of a number. OverflowError if it needs more than 64 bits."""
        if abs(value) > _MOST:
            raise OverflowError(value)
        return self._numbered((value,), value)

    def register(self, size: Size) -> int:
        """The register of a size."""
        if isinstance(size, int):
            return self.constant(size)
        if isinstance(size, tuple):
            factors = map(self.register, size)
            return reduce(lambda a, b: self._result(Ops.MUL.name, (a, b)), factors)
        found: list[int] = []
        for op, known, operands in size.instructions:
            if op == Ops.CONST.name:
                found.append(self.constant(int(known or 0)))
            elif op == Ops.VARIABLE.name:
                found.append(self._numbers[known])
            else:
                found.append(self._result(op, tuple([found[o] for o in operands])))
        return found[-1]

    def place(self, size: Size, address: int) -> None:
        """Write a size to a word of the program, once it is known."""
        self.patches.append((self.register(size), address))

    def _result(self, op: str, operands: tuple[int, ...]) -> int:
        key = op, *operands
        if key not in self._numbers:
            three = (*operands, 0, 0)[:3]
            made = self._numbered(key, UNKNOWN)
            self.instructions.append((_OPERATION_NUMBERS[op], *three, made))
        return self._numbers[key]

    def _numbered(self, key: object, value: int) -> int:
        number = self._numbers.setdefault(key, len(self.registers))
        if number == len(self.registers):
            self.registers.append(value)
        return number
