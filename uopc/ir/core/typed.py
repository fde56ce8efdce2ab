"""Types of the arguments and results of UOp's methods, for modules below the methods' modules.

The stub `uop.pyi` names them, so that type checkers see `ir/core` depend on nothing above it.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

Operand = Any  # UOp | Scalar | NumPy scalar or array

A = TypeVar("A", covariant=True)  # UOp or Array


class Updates(Protocol[A]):
    """`a.at[key]`: each method returns the array with the elements at the key updated."""

    def set(self, value: Any) -> A: ...
    def add(self, value: Any) -> A: ...
    def mul(self, value: Any) -> A: ...
    def min(self, value: Any) -> A: ...
    def max(self, value: Any) -> A: ...


class UpdatesByKey(Protocol[A]):
    """`a.at`, which takes a key in brackets."""

    def __getitem__(self, key: Any) -> Updates[A]: ...
