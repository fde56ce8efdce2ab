"""A schedule is a table of steps; each step tries Opts, which apply where they are legal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.contract import Context
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.strip_mining import Tiled
from uopc.passes.optimize.opts.table import apply
from uopc.passes.optimize.schedule.kernel_facts import KernelFacts, facts
from uopc.target import Gpu


class Scheduler:
    """The Opts chosen so far, and the kernel with them applied."""

    def __init__(self, kernel: UOp, context: Context) -> None:
        self.tiled, self.context, self.target = Tiled(kernel), context, context.target
        self.opts: tuple[Opt, ...] = ()

    @property
    def kernel(self) -> UOp:
        """The current kernel. Asking for it cuts all loops whose cut is due, in one walk."""
        return self.tiled.kernel

    @property
    def gpu(self) -> Gpu:
        """The described part, of a schedule for GPUs."""
        assert self.target.gpu is not None
        return self.target.gpu

    @property
    def facts(self) -> KernelFacts:
        """The facts of the current kernel."""
        return facts(self.kernel)

    @property
    def axes(self) -> list[UOp]:
        """The ranges that an Opt can name."""
        return self.tiled.axes

    def attempt(self, op: str, r: UOp, n: int) -> bool:
        """Apply an Opt to a range where it is legal; whether it is."""
        if r not in self.axes:
            return False
        opt = Opt(op, self.axes.index(r), n)
        try:
            self.tiled = apply(self.tiled, opt)
        except Refused:
            return False
        self.opts += (opt,)
        return True

    @property
    def state(self) -> tuple[Tiled, tuple[Opt, ...]]:
        """The current kernel and Opts. Assigning an earlier state takes back what followed it."""
        return self.tiled, self.opts

    @state.setter
    def state(self, earlier: tuple[Tiled, tuple[Opt, ...]]) -> None:
        self.tiled, self.opts = earlier

    def family(self, r: UOp) -> list[UOp]:
        """The loops that took the place of r: itself, or its parts and copies after cuts."""
        n = len(r.arg.axis)
        return [q for q in self.axes if q.arg.axis[:n] == r.arg.axis and q.arg.kind == r.arg.kind]

    def part(self, r: UOp, which: int) -> UOp | None:
        """The range that took the place of the first (0) or second (1) part of r."""
        axis = (*r.arg.axis, which)
        return next((q for q in self.axes if q.arg.axis == axis), None)

    def outer(self, r: UOp) -> UOp:
        """The first part of r; r itself where no Opt cut it."""
        part = self.part(r, 0)
        return r if part is None else part

    def inner(self, r: UOp) -> UOp:
        """The second part of r; r itself where no Opt cut it."""
        part = self.part(r, 1)
        return r if part is None else part

    def cut(self, r: UOp, op: str, n: int) -> UOp:
        """The first part of r after an Opt; r itself where the Opt is not legal."""
        return self.outer(r) if self.attempt(op, r, n) else r

    def swapped(self, r: UOp, other: UOp) -> tuple[UOp, UOp]:
        """Two output loops after a SWAP, unchanged where it is not legal."""
        axes = self.axes
        if other not in axes or not self.attempt("SWAP", r, axes.index(other)):
            return r, other
        found = {q.arg.axis: q for q in self.axes}
        return found[other.arg.axis], found[r.arg.axis]

    def widen(self, r: UOp, op: str, n: int) -> UOp | None:
        """Opt `op` by n on r, after a SPLIT where n does not divide it; the outer range."""
        if n <= 1:
            return r
        if self.attempt(op, r, n):
            return self.part(r, 0)
        before = self.state
        if self.attempt("SPLIT", r, n):
            first = self.part(r, 0)
            if first is not None and self.attempt(op, first, n):
                return self.part(first, 0)
        self.state = before
        return None

    def vectors(self, r: UOp, lanes: int) -> UOp | None:
        """Lanes on r, and one narrower vector for the rest; the range outside of the lanes."""
        outer = self.widen(r, "VECTOR", lanes)
        rest = self.part(r, 1)
        if rest is not None and rest.arg.kind == r.arg.kind and rest.src[0].op is Ops.CONST:
            self.attempt("VECTOR", rest, rest.src[0].arg)
        return outer


Plan = TypeVar("Plan")


class Step(NamedTuple, Generic[Plan]):
    """A named step of a schedule. `run` is true where the schedule is complete after it."""

    name: str
    run: Callable[[Plan], bool | None]
    why: str  # the reason for its place


def walk(steps: Iterable[Step[Plan]], plan: Plan) -> None:
    """Run the steps in order, up to the one that completes the schedule."""
    for step in steps:
        if step.run(plan):
            return
