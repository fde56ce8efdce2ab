"""The iterations at which a comparison of a loop with sizes or the loops around changes: SPLIT_AT.

    for i: for j < 64: y[i, j] = j < i ? x[i, j] : 0
    →  for i: for j < 8·⌊i / 8⌋: y[i, j] = x[i, j]
              for j < 8:         y[i, j'] = j' < i ? x[i, j'] : 0    with j' = 8·⌊i / 8⌋ + j
              for j < …:         y[i, j'] = 0

Each part is a number of whole blocks of n iterations, so that vectors stay whole. The comparison
stays only in the blocks in which its value changes. Masked elements are not read, and a reduce has
no loop over terms that are its identity.
"""

from __future__ import annotations

import functools

from uopc.ir.builder import leaves
from uopc.ir.core import bounds, dtypes, ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, closed
from uopc.ir.nest.nest import nest_of
from uopc.ir.records import dataclass
from uopc.passes.optimize.opts.lengths import quotient_up


@dataclass(frozen=True)
class Breakpoint:
    """A comparison that is `before` in the iterations of a loop below `first`, and the opposite
    from iteration `end` on, for all iterations of the loops inside."""

    comparison: UOp
    before: bool
    first: UOp
    width: int

    @property
    def end(self) -> UOp:
        return affine.plus(self.first, self.width)

    def value(self, before: bool) -> UOp:
        """The value of the comparison before the breakpoint, or after it."""
        return leaves.const(dtypes.bool_, self.before is before)


def breakpoints(kernel: UOp, r: UOp) -> list[Breakpoint]:
    """The comparisons that change once in the loop r, at an iteration that depends on the loops
    around. They are sorted: a split at the first leaves the fewest comparisons in the other parts.
    """
    comparisons = nest_of(kernel).comparisons
    found = [b for u in comparisons if (b := _breakpoint(kernel, u, r)) is not None]
    length = int(bounds.bounds(r.src[0])[1])
    places = {b: int(min(bounds.bounds(b.first)[1], length)) for b in found}
    ends = list(places.values())

    @functools.cache
    def comparisons_left(at: int) -> int:
        before, after = sum([p < at for p in ends]), sum([p > at for p in ends])
        return at * before + (length - at) * after

    return sorted(found, key=lambda b: comparisons_left(places[b]))


def _breakpoint(kernel: UOp, u: UOp, r: UOp) -> Breakpoint | None:
    """The breakpoint of a comparison Σ < 0 in r; None if neither the loops around nor sizes decide
    it."""
    if u.op not in (Ops.CMPLT, Ops.CMPLE) or r not in ranges.ranges(u):
        return None
    constant, terms = affine.form(affine.sub(*u.src))
    constant -= u.op is Ops.CMPLE
    step = terms.get(r, 0)
    others = {m: k for m, k in terms.items() if m is not r}
    around = {m: k for m, k in others.items() if _is_around(kernel, m, r)}
    inside = {m: k for m, k in others.items() if m not in around}
    # A part of a loop may be compared with a number: its length depends on the loops around.
    decided = around or any(q.arg.kind == "loop" for q in ranges.ranges(r.src[0]))
    if not step or not decided or any(r in ranges.ranges(m) for m in others):
        return None
    low, high = affine.interval(constant, inside)
    if step > 0:  # holds while step·r < -Σ, to the end for the least Σ
        minus = affine.scaled(affine.build(0, around), -1)
        first, last = [quotient_up(affine.plus(minus, -end), step) for end in (high, low)]
    else:  # holds as soon as |step|·r > Σ
        first, last = [
            affine.plus(affine.floordiv(affine.build(end, around), affine.const(-step)), 1)
            for end in (low, high)
        ]
    # ⌊(e + n) / k⌋ - ⌊e / k⌋ ≤ ⌈n / k⌉, of which bounds may know less where k does not divide e.
    most = -((low - high) // abs(step))
    width = min(bounds.bounds(affine.sub(last, first))[1], most) if low < high else 0
    return Breakpoint(u, step > 0, first, width)


def _is_around(kernel: UOp, m: UOp, r: UOp) -> bool:
    """True if a value is the same in all iterations of r, in every order of loops with it."""
    found = ranges.ranges(m)
    if not found:
        return closed.is_closed(m)
    if any(q.arg.kind not in ("loop", "thread") for q in found):
        return False
    return all(
        q in ranges.ranges(u) or (u.op is Ops.END and q in u.src[1:] and q.arg.axis < r.arg.axis)
        for u in nest_of(kernel).closers(r) for q in found
    )  # fmt: skip
