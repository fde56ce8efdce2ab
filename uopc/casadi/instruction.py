"""An instruction of an MX Function, as the rules of operations read it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import casadi as ca

from uopc.casadi import errors
from uopc.casadi.serialized import SerializedFields
from uopc.errors import Unsupported
from uopc.ir.records import dataclass


@dataclass(frozen=True, eq=False)
class Instruction:
    """An operation of MX with its place: instruction `number` of `function`."""

    function: ca.Function
    number: int
    op: int

    @cached_property
    def mx(self) -> ca.MX:
        """The node of CasADi."""
        return self.function.instruction_MX(self.number)

    @cached_property
    def info(self) -> dict[str, Any]:
        """The constants of the operation, as CasADi names them."""
        found: dict[str, Any] = self.mx.info()
        return found

    @cached_property
    def fields(self) -> SerializedFields:
        """The constants that `info` lacks."""
        return SerializedFields(self.mx)

    @property
    def structure(self) -> ca.Sparsity:
        """The structure of the result."""
        return self.mx.sparsity()

    def of(self, i: int) -> ca.Sparsity:
        """The structure of operand i."""
        return self.mx.dep(i).sparsity()

    def unsupported(self, *reason: str, **way: str) -> Unsupported:
        """The error for an operation that has no graph."""
        return errors.unsupported(self.function, self.op, *reason, **way)
