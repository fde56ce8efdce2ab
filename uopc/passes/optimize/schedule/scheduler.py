"""Opts tried one after another: what every part of the heuristic works on."""

from __future__ import annotations

from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.contract import Context
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.strip_mining import Tiled
from uopc.passes.optimize.opts.table import apply
from uopc.passes.optimize.schedule.kernel_facts import KernelFacts, facts


class Chooser:
    """Opts as they are applied: every later choice sees the kernel as it is by then."""

    def __init__(self, kernel: UOp, context: Context) -> None:
        self.tiled, self.context = Tiled(kernel), context
        self.opts: list[Opt] = []

    @property
    def kernel(self) -> UOp:
        """The kernel by now: all loops that were only cut so far are cut in one walk."""
        return self.tiled.kernel

    @property
    def facts(self) -> KernelFacts:
        """What the heuristic reads of the kernel by now."""
        return facts(self.kernel)

    @property
    def axes(self) -> list[UOp]:
        """The ranges that an Opt can name by now."""
        return self.tiled.axes

    def attempt(self, op: str, r: UOp, n: int) -> bool:
        """Apply an Opt to a range where it is legal."""
        if r not in self.axes:
            return False
        opt = Opt(op, self.axes.index(r), n)
        try:
            self.tiled = apply(self.tiled, opt)
        except Refused:
            return False
        self.opts.append(opt)
        return True

    def family(self, r: UOp) -> list[UOp]:
        """The loops that stand where r stood: itself, or its parts and copies after cuts."""
        n = len(r.arg.axis)
        return [
            q
            for q in self.axes
            if q.arg.axis[:n] == r.arg.axis and q.arg.kind == r.arg.kind
        ]

    def part(self, r: UOp, which: int) -> UOp | None:
        """The range that took the place of the first (0) or second (1) part of r."""
        axis = (*r.arg.axis, which)
        return next((q for q in self.axes if q.arg.axis == axis), None)

    def inner(self, r: UOp) -> UOp:
        """The loop inside of blocks of r; r where it is not in blocks."""
        found = self.part(r, 1)
        return r if found is None else found

    def swapped(self, r: UOp, other: UOp) -> tuple[UOp, UOp]:
        """Two output loops after a SWAP, if it is legal; as they were if not."""
        if other not in (axes := self.axes):
            return r, other
        if not self.attempt("SWAP", r, axes.index(other)):
            return r, other
        found = {q.arg.axis: q for q in self.axes}
        return found[other.arg.axis], found[r.arg.axis]

    def widen(self, r: UOp, op: str, n: int) -> UOp | None:
        """Opt `op` by n on r, after cutting off a rest if n does not divide it; the outer range."""
        if n <= 1:
            return r
        if self.attempt(op, r, n):
            return self.part(r, 0)
        tiled, opts = self.tiled, list(self.opts)
        if self.attempt("SPLIT", r, n):
            first = self.part(r, 0)
            if first is not None and self.attempt(op, first, n):
                return self.part(first, 0)
        self.tiled, self.opts = tiled, opts  # a cut that serves nothing is taken back
        return None

    def vectors(self, r: UOp, lanes: int) -> UOp | None:
        """Lanes on r, and one narrower vector for what they leave over; the range outside."""
        outer = self.widen(r, "VECTOR", lanes)
        rest = self.part(r, 1)
        if rest is not None and rest.arg.kind == r.arg.kind and rest.src[0].op is Ops.CONST:
            self.attempt("VECTOR", rest, rest.src[0].arg)
        return outer
