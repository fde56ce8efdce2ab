"""What the compiler tells the runtime about one program: plain data, no behaviour.

Storage is named by *base* number: first the arguments, then the fresh results in order, then the
arena (always counted, even when empty), then the constants.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

AnyDtype: TypeAlias = np.dtype[Any]
AnyArray: TypeAlias = npt.NDArray[Any]


class SymbolicDim(Protocol):
    """A number known only at the call: a variable, or an expression over variables."""

    @property
    def variable(self) -> str | None:
        """The variable's name when this is just a variable, else None."""

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The number, given every variable's value."""


Dim: TypeAlias = int | SymbolicDim
Dims3: TypeAlias = tuple[Dim, Dim, Dim]
Shape: TypeAlias = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """An array the caller passes, by position or by name."""

    name: str
    dtype: AnyDtype
    shape: Shape
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """An integer within lo..hi: bound by the shapes of arrays where it can be, else by name, else
    its default."""

    name: str
    lo: int
    hi: int
    default: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """An array handed back: fresh memory, or (source = index) that argument itself."""

    dtype: AnyDtype
    shape: Shape
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Pointer:
    """A kernel word: the address of a base plus an offset in bytes."""

    base: int
    offset: Dim = 0


@dataclass(frozen=True, slots=True)
class Scalar:
    """A kernel word: a 64-bit integer."""

    value: Dim


Word: TypeAlias = Pointer | Scalar


@dataclass(frozen=True, slots=True)
class Launch:
    """Call `kernel(words, chunk)` for every chunk in 0..chunks-1, in any order when parallel."""

    kernel: str
    words: tuple[Word, ...]
    chunks: Dim = 1
    parallel: bool = False


@dataclass(frozen=True, slots=True)
class GpuLaunch(Launch):
    """Run `kernel` on a grid of blocks: parameter i is word i, 8 bytes; x is the first of three.

    Nothing runs where a size of the grid is 0. `dynamic_shared` is what the launch must ask for of
    shared memory, in bytes: 0 where the kernel declares what it needs. Pointers are
    multiples of the kernel's alignment: `Calls` of `nvptx.py`.
    """

    grid: Dims3 = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    dynamic_shared: int = 0


Structure: TypeAlias = Literal["single", "tuple", "list", "dict"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One program. `keys` are the names of a dict's results; `arena_bytes` includes padding.

    The compiler promises that every word stays inside its base and that launches which run in
    parallel write disjoint memory; nothing here can check that.
    """

    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    launches: tuple[Launch, ...]
    variables: tuple[Variable, ...] = ()
    structure: Structure = "single"
    keys: tuple[Hashable, ...] = ()
    arena_bytes: Dim = 0
    constants: tuple[AnyArray, ...] = ()
    nogil: bool = False
    threads: int = 1
    name: str = "program"

    @property
    def fresh(self) -> tuple[Result, ...]:
        """The results that need memory, in base order."""
        return tuple(result for result in self.results if result.source is None)

    @property
    def arena_base(self) -> int:
        """The base number of the arena."""
        return len(self.arguments) + len(self.fresh)
