"""The rules of all operations of MX that make one value. `code.py` reads the others: inputs,
outputs, calls, and those that only put vectors of nonzeros together or take them apart."""

from __future__ import annotations

from collections.abc import Callable

from uopc.casadi.elementwise import BINARY, UNARY
from uopc.casadi.instruction import Instruction
from uopc.casadi.matrix_ops import MATRIX_OPS, Rule
from uopc.casadi.nonzero_ops import NONZERO_OPS
from uopc.casadi.splines import SPLINE_OPS
from uopc.ir.core.uop import UOp


def _elementwise(function: Callable[..., UOp]) -> Rule:
    return lambda node, *operands: function(*operands)


RULES: dict[int, Rule] = {
    **{op: _elementwise(function) for op, function in UNARY.items()},
    **{op: _elementwise(function) for op, function in BINARY.items()},
    **MATRIX_OPS,
    **NONZERO_OPS,
    **SPLINE_OPS,
}


def value_of(node: Instruction, operands: list[UOp]) -> UOp:
    """The nonzeros of the result. Unsupported for an operation without a rule."""
    if node.op not in RULES:
        raise node.unsupported()
    return RULES[node.op](node, *operands)
