"""The outline of a kernel: its loops, references and operations as plain data, for a cost.

    for i < 8: for j < 64: y[64·i + j] = x[j] + 1       j with 16 lanes: VECTOR(1, 16)

    bodies      i: 8 iterations; j: 4 iterations inside of i, each one addition of 16 lanes
    references  x: 1 element per lane and 16 per step of j; y: the same, 64 per step of i, written

`ir/nest/describe.py` makes the outline of a kernel, before or after its Opts. Ranges of the kinds
lane, upcast and unroll are no loops here, but the lanes and copies of a statement. An outline
depends on no machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import Literal, NamedTuple

from uopc.ir.records import dataclass

# An `fmul` is a product that a sum may take in, a `quotient` an integer division by a constant,
# an `index` an operation on indices that an address does not take in.
UnitKind = Literal[
    "alu", "fmul", "div", "compare", "shuffle", "quotient", "index", "dot4", "dot2"
]  # fmt: skip


class Unit(NamedTuple):
    """Operations of one kind: the lanes, and the bits of a lane."""

    kind: UnitKind
    lanes: int
    bits: int


class Accumulator(NamedTuple):
    """The sums of a REDUCE that a loop carries: lanes and bits of each, sums beside each other,
    copies of each sum, and whether each step is a multiply-add or a dot product."""

    lanes: int
    bits: int
    sums: int
    copies: int
    fused: bool


class Held(NamedTuple):
    """Values from outside that a loop keeps in registers: lanes and bits of each, and copies."""

    lanes: int
    bits: int
    copies: int


class Dim(NamedTuple):
    """A dimension of a reference: its length, and the elements per step; None if a step varies."""

    length: float
    stride: int | None


class Spread(NamedTuple):
    """The elements that lanes at computed places touch: how many, in how many runs of neighbours,
    and from the first to the last."""

    elements: int
    runs: int
    span: int


@dataclass
class Body:
    """A loop, or the code outside of all loops: the mean number of iterations, the loops around it
    (outer first), and what an iteration does by itself, without the loops inside."""

    length: float = 1.0
    around: tuple[int, ...] = ()
    units: Counter[Unit] = field(default_factory=Counter)
    chain: float = 0.0  # cycles of the longest chain of operations that wait for each other
    carried: float = 0.0  # cycles from an accumulator to its next value
    accumulators: list[Accumulator] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)


@dataclass
class Reference:
    """The accesses of a body to one storage whose indices differ by constants, the offsets."""

    storage: int
    size: int  # elements of the storage
    item: int  # bytes of an element
    local: bool  # the storage is the kernel's own
    written: bool
    body: int  # the innermost loop around the accesses; OUTSIDE: none
    lanes: tuple[Dim, ...]
    copies: tuple[Dim, ...]
    strides: dict[int, int | None]  # by loop that the accesses move with
    offsets: list[int]
    masked: bool = False  # some lanes are left out
    skipped: bool = False  # some iterations are left out
    streamed: bool = False  # stored past the caches
    spread: Spread | None = None


OUTSIDE = -1  # the number of the body outside of all loops


@dataclass
class Outline:
    """The loops of a kernel in the order of their numbers, the code outside of loops, the
    references in the order of their code, the bytes of each storage, and the threads among which
    the kernel is divided: loops that they share count for one of them."""

    bodies: list[Body]
    outside: Body
    references: list[Reference]
    storages: list[int]
    threads: int = 1

    def body(self, number: int) -> Body:
        """A loop by its number, or the code outside of all loops."""
        return self.outside if number == OUTSIDE else self.bodies[number]

    def path(self, number: int) -> tuple[int, ...]:
        """The loops around the statements of a body, outer first, with the body itself."""
        return () if number == OUTSIDE else (*self.bodies[number].around, number)
