"""Sizes that a call decides, as instructions that the native entry evaluates.

A program has registers of 64 bits: its variables, then constants and the results of instructions.
`CODE` is the function that runs the instructions, checks that the required registers are not zero,
and copies registers to the words that depend on them. It gives up where 64 bits do not hold a
result: Python computes sizes exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

from uopc.backends.plan import Dim, Variable
from uopc.ir.core.ops import Ops

_CHECKED = """
  %{name}_pair = call {{i64, i1}} @llvm.{sign}.with.overflow.i64(i64 {left}, i64 {right})
  %{name}_result = extractvalue {{i64, i1}} %{name}_pair, 0
  %{name}_overflow = extractvalue {{i64, i1}} %{name}_pair, 1
  br i1 %{name}_overflow, label %no, label %store"""
_PLAIN = """
  %{name}_result = {operation}
  br label %store"""
# The remainder has the sign of the dividend, the quotient is rounded towards 0. By -1 it divides
# only the numbers that have a negative.
_DIVIDED = """
  %{name}_zero = icmp eq i64 %b, 0
  %{name}_minus = icmp eq i64 %b, -1
  %{name}_either = or i1 %{name}_zero, %{name}_minus
  %{name}_safe = select i1 %{name}_either, i64 1, i64 %b
  %{name}_by = sdiv i64 %a, %{name}_safe
  %{name}_negative = sub i64 0, %a
  %{name}_signed = select i1 %{name}_minus, i64 %{name}_negative, i64 %{name}_by
  %{name}_quotient = select i1 %{name}_zero, i64 0, i64 %{name}_signed
  %{name}_rest = srem i64 %a, %{name}_safe
  %{name}_mixed = xor i64 %{name}_rest, %b
  %{name}_opposite = icmp slt i64 %{name}_mixed, 0
  %{name}_exact = icmp eq i64 %{name}_rest, 0
  %{name}_inexact = xor i1 %{name}_exact, true
  %{name}_beyond = and i1 %{name}_inexact, %{name}_opposite
  %{name}_one = zext i1 %{name}_beyond to i64
  %{name}_more = select i1 %{name}_beyond, i64 %b, i64 0
  %{name}_result = {operation}
  %{name}_least = icmp eq i64 %a, {{unknown}}
  %{name}_wraps = and i1 %{name}_minus, %{name}_least
  br i1 %{name}_wraps, label %no, label %store"""


def _compared(name: str, relation: str) -> str:
    return f"""
  %{name}_bit = icmp {relation} i64 %a, %b
  %{name}_result = zext i1 %{name}_bit to i64
  br label %store"""


def _checked(name: str, sign: str, left: str = "%a", right: str = "%b") -> str:
    return _CHECKED.format(name=name, sign=sign, left=left, right=right)


def _plain(name: str, operation: str, form: str = _PLAIN) -> str:
    return form.format(name=name, operation=operation)


# The operations on %a, %b and %c, as blocks that end with a branch to %store. Their numbers are
# those of the instructions.
_OPERATIONS = {
    Ops.ADD.name: _checked("add", "sadd"),
    Ops.SUB.name: _checked("sub", "ssub"),
    Ops.MUL.name: _checked("mul", "smul"),
    Ops.NEG.name: _checked("neg", "ssub", "0", "%a"),
    Ops.ABS.name: _plain("abs", "call i64 @llvm.abs.i64(i64 %a, i1 false)"),
    Ops.CDIV.name: _plain("cdiv", "add i64 %cdiv_quotient, 0", _DIVIDED),
    Ops.CMOD.name: _plain("cmod", "select i1 %cmod_zero, i64 0, i64 %cmod_rest", _DIVIDED),
    Ops.FLOORDIV.name: _plain(
        "floordiv", "sub i64 %floordiv_quotient, %floordiv_one", _DIVIDED
    ),
    Ops.FLOORMOD.name: _plain("floormod", "add i64 %floormod_rest, %floormod_more", _DIVIDED),
    Ops.MAX.name: _plain("max", "call i64 @llvm.smax.i64(i64 %a, i64 %b)"),
    Ops.MIN.name: _plain("min", "call i64 @llvm.smin.i64(i64 %a, i64 %b)"),
    Ops.AND.name: _plain("and", "and i64 %a, %b"),
    Ops.OR.name: _plain("or", "or i64 %a, %b"),
    Ops.XOR.name: _plain("xor", "xor i64 %a, %b"),
    Ops.CMPLT.name: _compared("cmplt", "slt"),
    Ops.CMPLE.name: _compared("cmple", "sle"),
    Ops.CMPEQ.name: _compared("cmpeq", "eq"),
    Ops.CMPNE.name: _compared("cmpne", "ne"),
    Ops.WHERE.name: """
  %where_bit = icmp ne i64 %a, 0
  %where_result = select i1 %where_bit, i64 %b, i64 %c
  br label %store""",
}  # fmt: skip
_OPERATION_NUMBERS = {name: number for number, name in enumerate(_OPERATIONS)}


_cases = "\n".join([f"    i64 {i}, label %{name}" for name, i in _OPERATION_NUMBERS.items()])
_blocks = "".join([f"\n{name}:{block}" for name, block in _OPERATIONS.items()])
_results = ", ".join([f"[%{name}_result, %{name}]" for name in _OPERATIONS])
CODE = f"""
; True if the sizes of a call with these inputs are known, checked and in place.
define internal i1 @evaluate(ptr %state, ptr %inputs, i64 %variables) {{
start:
  %evaluated = field ptr %state {{s.evaluated}}
  %registers = field ptr %state {{s.registers}}
  %instructions = field ptr %state {{s.instructions}}
  %count = field i64 %state {{s.instructions_count}}
  %required = field ptr %state {{s.required}}
  %required_count = field i64 %state {{s.required_count}}
  %patches = field ptr %state {{s.patches}}
  %patches_count = field i64 %state {{s.patches_count}}
  ; Until all is in place, no call has these sizes.
  store i64 {{unknown}}, ptr %evaluated
  br label %input
input:
  loop %v = 0 to %variables from %start, %take do %take else %instruction
take:
  %input_value = item i64 %inputs %v
  put i64 %input_value %registers %v
  if eq i64 %input_value, {{unknown}} then %no else %input
instruction:
  loop %i = 0 to %count from %input, %store do %decode else %check
decode:
  %instruction_at = getelementptr [5 x i64], ptr %instructions, i64 %i
  %operation = field i64 %instruction_at 0
  %a_number = field i64 %instruction_at 8
  %b_number = field i64 %instruction_at 16
  %c_number = field i64 %instruction_at 24
  %a = item i64 %registers %a_number
  %b = item i64 %registers %b_number
  %c = item i64 %registers %c_number
  switch i64 %operation, label %no [
{_cases}
  ]
{_blocks}
store:
  %result = phi i64 {_results}
  %result_number = field i64 %instruction_at 32
  put i64 %result %registers %result_number
  br label %instruction
check:
  loop %r = 0 to %required_count from %instruction, %check_one do %check_one else %patch
check_one:
  %required_number = item i64 %required %r
  %holds = item i64 %registers %required_number
  if eq i64 %holds, 0 then %no else %check
patch:
  loop %p = 0 to %patches_count from %check, %patch_one do %patch_one else %keep
patch_one:
  %patch_at = getelementptr [2 x i64], ptr %patches, i64 %p
  %patch_number = field i64 %patch_at 0
  %word = field ptr %patch_at 8
  %patched = item i64 %registers %patch_number
  store i64 %patched, ptr %word
  br label %patch
keep:
  loop %k = 0 to %variables from %patch, %keep_one do %keep_one else %yes
keep_one:
  %kept = item i64 %inputs %k
  put i64 %kept %evaluated %k
  br label %keep
yes:
  ret i1 true
no:
  ret i1 false
}}
"""
RELATIONS = {
    "equal": Ops.CMPEQ.name, "at most": Ops.CMPLE.name, "below": Ops.CMPLT.name,
}  # fmt: skip
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
# The value of a variable that no call has given. No variable's range has it: of a size below it
# nothing could be computed.
UNKNOWN = _LEAST


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

    def constant(self, value: int) -> int:
        """The register of a number. OverflowError if it needs more than 64 bits."""
        if not _LEAST < value <= _MOST:
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
