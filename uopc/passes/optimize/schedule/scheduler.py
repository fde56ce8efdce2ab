"""A schedule is a table of steps; each step tries Opts, which apply where they are legal."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from uopc.cost.machine import machine_of
from uopc.ir.core.args import Opt
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.nest.loops import is_free, length_of, longest_of
from uopc.ir.nest.nest import Nest, nest_of
from uopc.passes.analysis.lanes import fitting
from uopc.passes.contract import Context
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.substitution import Tiled
from uopc.passes.optimize.opts.table import apply
from uopc.target import Gpu

Option = TypeVar("Option")


class Offer(NamedTuple):
    """A decision that a step asked for, with its options, the first of which the schedule takes by
    itself, and the state before that step."""

    name: str
    options: tuple[Any, ...]
    step: int
    before: Scheduler


class Scheduler:
    """The Opts chosen so far, and the kernel with them applied."""

    decisions: tuple[Offer, ...] = ()  # with alternatives, in the order in which steps asked
    picked: Mapping[str, Any] = MappingProxyType({})  # the options that are not the first
    at: tuple[int, Scheduler] | None = None  # the number of the step that runs, the state before

    def __init__(self, kernel: UOp, context: Context) -> None:
        self.tiled, self.context, self.target = Tiled(kernel), context, context.target
        self.machine = machine_of(context.target)
        self.opts: tuple[Opt, ...] = ()

    @property
    def state(self) -> tuple[Tiled, tuple[Opt, ...]]:
        """The Opts so far with their kernel. Assign an earlier state to undo later Opts."""
        return self.tiled, self.opts

    @state.setter
    def state(self, before: tuple[Tiled, tuple[Opt, ...]]) -> None:
        self.tiled, self.opts = before

    @property
    def kernel(self) -> UOp:
        """The current kernel. Reading this property applies all noted Parts, in one walk."""
        return self.tiled.kernel

    @property
    def gpu(self) -> Gpu:
        """The described GPU, in a schedule for a GPU."""
        assert self.machine.gpu is not None
        return self.machine.gpu

    @property
    def nest(self) -> Nest:
        """The loop nest of the current kernel."""
        return nest_of(self.kernel)

    @property
    def axes(self) -> list[UOp]:
        """The ranges that an Opt can name."""
        return self.tiled.axes

    def pick(self, name: str, *options: Option) -> Option:
        """The chosen option of a decision: the first, unless `alternatives` asks for another. A
        name stands for one decision of the schedule."""
        if self.at is not None and len(options) > 1:
            self.decisions += (Offer(name, options, *self.at),)
        chosen: Option = self.picked.get(name, options[0])
        return chosen

    def attempt(self, op: str, r: UOp | None, n: int) -> bool:
        """Apply an Opt to a range if there is one and it is legal; return True if so."""
        if r is None or r not in self.axes:
            return False
        opt = Opt(op, self.axes.index(r), n)
        try:
            self.tiled = apply(self.tiled, opt)
        except Refused:
            return False
        self.opts += (opt,)
        return True

    def added(self, op: str, r: UOp | None, n: int) -> list[UOp]:
        """Apply an Opt and return the ranges that it adds; none if the Opt is not legal."""
        before = set(self.axes)
        return [q for q in self.axes if q not in before] if self.attempt(op, r, n) else []

    def family(self, r: UOp) -> list[UOp]:
        """The loops that replace r: r itself, or its parts and copies."""
        n = len(r.arg.axis)
        return [q for q in self.axes if q.arg.axis[:n] == r.arg.axis and q.arg.kind == r.arg.kind]

    def part(self, r: UOp | None, which: int) -> UOp | None:
        """The first (0) or second (1) part of r after an Opt split it."""
        axis = None if r is None else (*r.arg.axis, which)
        return next((q for q in self.axes if q.arg.axis == axis), None)

    def outer(self, r: UOp) -> UOp:
        """The first part of r; r itself where no Opt split it."""
        part = self.part(r, 0)
        return r if part is None else part

    def inner(self, r: UOp) -> UOp:
        """The second part of r; r itself where no Opt split it."""
        part = self.part(r, 1)
        return r if part is None else part

    def cut(self, r: UOp, op: str, n: int) -> UOp:
        """Apply an Opt and return the first part of r; r itself if the Opt is not legal."""
        return self.outer(r) if self.attempt(op, r, n) else r

    def swapped(self, r: UOp, other: UOp) -> tuple[UOp, UOp]:
        """Swap two output loops and return both; unchanged if a SWAP is not legal."""
        axes = self.axes
        if other not in axes or not self.attempt("SWAP", r, axes.index(other)):
            return r, other
        found = {q.arg.axis: q for q in self.axes}
        return found[other.arg.axis], found[r.arg.axis]

    def split(self, r: UOp, n: int) -> tuple[UOp | None, UOp | None]:
        """Split r at the last multiple of n, into two parts; (r, None) if that is not legal."""
        return (self.part(r, 0), self.part(r, 1)) if self.attempt("SPLIT", r, n) else (r, None)

    def padded(self, r: UOp, n: int) -> UOp | None:
        """Pad r to a multiple of n; return the loop that replaces r, None if that is not legal."""
        if affine.is_multiple(r.src[0], n):
            return r
        if not self.attempt("PADTO", r, n):
            return None
        piece = self.part(r, 1)  # of a free rest, which is one piece or none
        return self.part(r, 0) if piece is None else piece

    def widen(self, r: UOp | None, op: str, n: int) -> UOp | None:
        """Apply `op` by n to r, after a SPLIT if n does not divide r; return the outer range."""
        if n <= 1:
            return r
        if self.attempt(op, r, n):
            return self.part(r, 0)
        before = self.state
        if self.attempt("SPLIT", r, n) and self.attempt(op, first := self.part(r, 0), n):
            return self.part(first, 0)
        self.state = before
        return None

    def copy(self, r: UOp, n: int) -> None:
        """Make up to n copies of the body of r, or of each of its parts."""
        for q in self.family(r):
            self.widen(q, "UPCAST", fitting(n, length_of(q)))

    def vectorise(self, r: UOp | None, lanes: int) -> UOp | None:
        """Put lanes on r, and a narrower vector on the rest, or a masked one if the rest is free;
        return the range around lanes."""
        outer = self.widen(r, "VECTOR", lanes)
        rest = self.part(r, 1)
        for q in [] if rest is None or rest.arg.kind == "lane" else self.cases(rest):
            if (length := length_of(q)) is not None:
                self.attempt("VECTOR", q, length)
            elif is_free(q) and self._masks_all():
                self.attempt("VECTOR", self.padded(q, lanes), lanes)
        return outer

    def _masks_all(self) -> bool:
        """True if the machine masks all accesses. Else each lane would have a branch."""
        return all([self.target.masks(8 * a.itemsize) for a in self.nest.accesses])

    def cases(self, r: UOp) -> list[UOp]:
        """The loops of known length that replace a thread's chunk of two lengths, of which one
        runs; any other loop unchanged."""
        if length_of(r) is None and (longest := longest_of(r)) is not None:
            return [q for q in self.split(r, longest) if q is not None]
        return [r]


State = TypeVar("State", bound=Scheduler)


class Step(NamedTuple, Generic[State]):
    """A named step of a schedule. `run` returns True if the schedule is complete after it."""

    name: str
    run: Callable[[State], bool | None]
    why: str  # the reason for its place


def run(steps: Sequence[Step[State]], s: State, first: int = 0) -> None:
    """Run the steps from number `first` on, until one completes the schedule."""
    for i in range(first, len(steps)):
        s.at = None
        s.at = (i, copy.copy(s))
        if steps[i].run(s):
            break
