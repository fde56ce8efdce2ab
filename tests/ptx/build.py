"""One instruction on its way to an action: modifiers, getters of operands, setters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tests.ptx.memory import Array
from tests.ptx.parse import Address, Immediate, Instruction, Operand, PtxError, Reg, Symbol, Vector

if TYPE_CHECKING:
    from tests.ptx.machine import Lanes, Launch

NUMPY = {
    "b8": np.uint8, "u8": np.uint8, "s8": np.int8, "b16": np.uint16, "u16": np.uint16,
    "s16": np.int16, "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "b64": np.uint64,
    "u64": np.uint64, "s64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "bf16": ml_dtypes.bfloat16, "pred": np.bool_,
}  # fmt: skip


class Unknown(PtxError):
    """An opcode, or a form of one, that the machine does not know."""


class Modifiers:
    """The dotted words of an opcode, used up one by one: what is left is an error."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction, self.left = instruction, list(instruction.modifiers)

    def take(self, *words: str) -> bool:
        """True if one of the words is there; it is used up then."""
        for w in words:
            if w in self.left:
                self.left.remove(w)
                return True
        return False

    def choose(self, words: Sequence[str], default: str | None = None) -> str:
        """The next modifier, which must be one of the words."""
        if self.left and self.left[0] in words:
            return self.left.pop(0)
        if default is None:
            raise Unknown(f"{self.instruction.text}: expected one of {', '.join(words)}")
        return default

    def type(self, allowed: Sequence[str]) -> str:
        """The last modifier, a type."""
        if not self.left or self.left[-1] not in allowed:
            raise Unknown(f"{self.instruction.text}: this type is not known here")
        return self.left.pop()

    def done(self) -> None:
        if self.left:
            words = ".".join(self.left)
            raise Unknown(f"{self.instruction.text}: .{words} is not known")


Getter = Callable[["Lanes"], Array]
Action = Callable[["Lanes"], None]


class Build:
    """One instruction on its way to an action: getters for operands, a setter for results."""

    def __init__(self, launch: Launch, instruction: Instruction) -> None:
        self.launch, self.instruction = launch, instruction
        self.modifiers = Modifiers(instruction)
        self.operands = [launch.resolve(o) for o in instruction.operands]

    def get(self, at: int, type_name: str) -> Getter:
        """Operand `at` as values of a PTX type."""
        return self.value(self.operands[at], type_name)

    def value(self, o: Operand | None, type_name: str) -> Getter:
        dtype = np.dtype(NUMPY[type_name])
        if isinstance(o, Immediate):
            fixed = immediate(o, dtype)
            return lambda lanes: fixed
        if isinstance(o, Symbol):
            return self._symbol(o, dtype)
        if isinstance(o, Reg):
            return self._register(o, dtype)
        raise Unknown(f"{self.instruction.text}: an operand of a form that is not known")

    def _symbol(self, o: Symbol, dtype: Any) -> Getter:
        if o.name.startswith("%"):
            return lambda lanes: lanes.here(lanes.special(o.name)).astype(dtype)
        address = self.launch.address_of(o.name)
        fixed = np.array([address]).astype(np.uint64).astype(dtype)
        return lambda lanes: fixed

    def _register(self, o: Reg, dtype: Any) -> Getter:
        kind, name, size = self.launch.kind_of(o.name), o.name, dtype.itemsize
        if dtype == np.bool_:
            if kind != np.bool_:
                raise PtxError(f"{self.instruction.text}: {name} is no predicate")
            if o.negated:
                return lambda lanes: ~lanes.here(lanes.register(name))
            return lambda lanes: lanes.here(lanes.register(name))
        if kind == np.bool_ or kind.itemsize < size:
            raise PtxError(f"{self.instruction.text}: {name} is too narrow")
        if kind.itemsize == size:
            return lambda lanes: lanes.here(lanes.register(name)).view(dtype)
        narrow = np.dtype(f"u{size}")
        return lambda lanes: lanes.here(lanes.register(name)).astype(narrow).view(dtype)

    def set(self, o: Operand | None) -> Callable[[Lanes, Array], None]:
        """A writer of one register."""
        if o is None:
            return lambda lanes, value: None
        if not isinstance(o, Reg):
            raise Unknown(f"{self.instruction.text}: a result that is no register")
        name = o.name
        return lambda lanes, value: lanes.put(name, value)

    def items(self, at: int) -> tuple[Operand | None, ...]:
        """A vector operand's parts, or the operand alone."""
        o = self.operands[at]
        return tuple(map(self.launch.resolve, o.items)) if isinstance(o, Vector) else (o,)

    def address(self, at: int) -> Getter:
        """The 64-bit addresses of a memory operand."""
        o = self.operands[at]
        if not isinstance(o, Address):
            raise Unknown(f"{self.instruction.text}: expected an address")
        base = self.launch.resolve(o.base)
        offset = np.array([o.offset]).astype(np.int64).view(np.uint64)
        if isinstance(base, Reg) and self.launch.kind_of(base.name).itemsize == 4:
            short, step = self.value(base, "u32"), offset.astype(np.uint32)  # wraps
            return lambda lanes: np.broadcast_to(
                (short(lanes) + step).astype(np.uint64), (lanes.width,)
            )
        get = self.value(base, "u64")
        return lambda lanes: np.broadcast_to(get(lanes).astype(np.uint64) + offset, (lanes.width,))


def immediate(o: Immediate, dtype: Any) -> Array:
    """A literal as one value of a type."""
    if o.float_bytes and dtype.kind != "b" and dtype.itemsize != o.float_bytes:
        if o.float_bytes == 8 and dtype == np.float32:
            return np.array([o.value], np.uint64).view(np.float64).astype(np.float32)
        raise PtxError(f"a float literal of {o.float_bytes} bytes as {dtype}")
    if dtype == np.bool_:
        return np.array([bool(o.value)])
    bits = o.value & ((1 << 8 * dtype.itemsize) - 1)
    return np.array([bits], f"u{dtype.itemsize}").view(dtype)


Builder = Callable[[Build], Action]
