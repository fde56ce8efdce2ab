"""The type of a node as text: `f32`, `f32[4, %n]`; nothing for an effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uopc.errors import InvalidIR
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtype_rules import derived
from uopc.ir.core.dtypes import DType
from uopc.ir.core.shapes import Shape
from uopc.ir.core.uop import UOp
from uopc.ir.text import op_syntax
from uopc.ir.text.infix import infix

_DIM_CHARACTERS = 200  # a symbolic dimension longer than this is shown as `?`


class TypeText:
    """Types in a text. `names`: the names of symbolic dimensions in the text; `known`: types
    without such names, to share with other texts of the same nodes.

    `!` follows a dtype that the op's rule does not give; `[?]` is a shape that fails.
    """

    def __init__(self, names: Mapping[UOp, str], known: dict[UOp, str] | None = None) -> None:
        self._names = names
        self._known = {} if known is None else known
        self._written: dict[tuple[DType, Shape | None], tuple[str, bool]] = {}
        self._broken: set[UOp] = set()

    def text(self, u: UOp) -> str:
        """The type after ` : `; an empty string if the op's rule gives void."""
        found = self._known.get(u)
        if found is not None:
            return found
        try:
            mark = "" if derived(u.op, u.dtype, u.src, u.arg) is u.dtype else "!"
        except InvalidIR:
            mark = "!"
        if u.dtype is dtypes.void and not mark:
            self._known[u] = ""
            return ""
        dims = self._shape(u)
        written = self._written.get((u.dtype, dims))
        if written is None:
            written = self._write(u.dtype, dims)
            if all([type(d) is int or d in self._names for d in dims or ()]):  # else it gets a name
                self._written[u.dtype, dims] = written
        text, is_fixed = written
        if mark:
            text += mark
        if is_fixed:
            self._known[u] = text
        return text

    def _write(self, dtype: DType, dims: Shape | None) -> tuple[str, bool]:
        """A type, and True if it has no names and so is the same in every text."""
        inner = self._listed(dims)
        is_fixed = dims is None or all([type(d) is int for d in dims])
        return f"{dtype.short}[{inner}]" if inner else dtype.short, is_fixed

    def dims(self, u: UOp) -> str:
        """The dimensions of a node, such as `4, n`; `?` if the op's rule fails."""
        return self._listed(self._shape(u))

    def _listed(self, dims: Shape | None) -> str:
        if dims is None or not all([isinstance(d, (int, UOp)) for d in dims]):
            return "?"
        return ", ".join([self.dim(d) for d in dims])

    def _shape(self, u: UOp) -> Shape | None:
        """The shape; None if the op's rule fails."""
        if u._shape is not None:
            return u._shape  # type: ignore[no-any-return]
        if self._broken and any(s in self._broken for s in u.src):
            self._broken.add(u)
            return None
        try:
            return shapes.shape(u)
        except Exception:
            # Messages about broken graphs print them: their shapes may fail, their text must not.
            self._broken.add(u)
            return None

    def dim(self, d: Any) -> str:
        """A dimension: a number, the name of a node, or an expression."""
        if isinstance(d, int):
            return str(d)
        if op_syntax.is_literal(d):
            return op_syntax.literal(d, always_typed=True)
        found = self._names.get(d) or infix(d, _DIM_CHARACTERS) or "?"
        return "?" if '"' in found else found  # a quoted name has no place in a type
