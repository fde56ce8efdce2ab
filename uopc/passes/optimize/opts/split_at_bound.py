"""SPLIT_AT: index-set splitting where a comparison with the loops around turns.

    for i: for j < 64: y[i, j] = j < i ? x[i, j] : 0
    →  for i: for j < 8·⌊i / 8⌋: y[i, j] = x[i, j]
              for j < 8:         y[i, j'] = j' < i ? x[i, j'] : 0    with j' = 8·⌊i / 8⌋ + j
              for j < …:         y[i, j'] = 0

Each part is a number of whole blocks of n iterations, so that vectors stay whole. The comparison
stays only in the blocks in which it turns. Masked elements are not read, and a reduce has no loop
over terms that are its identity.
"""

from __future__ import annotations

from dataclasses import dataclass

from uopc.ir.builder import leaves
from uopc.ir.core import bounds, dtypes, ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.loops import closers, parts
from uopc.passes.optimize.opts.legality import Refused, check_amount
from uopc.passes.optimize.opts.split import LoopPart, in_parts
from uopc.passes.optimize.opts.strip_mining import quotient_up

_AROUND = ("loop", "thread")


@dataclass(frozen=True)
class Turn:
    """A comparison with the value `before` in the iterations of a loop below `first`, and the other
    value from `end` on, for all iterations of the loops inside."""

    comparison: UOp
    before: bool
    first: UOp
    width: int

    @property
    def end(self) -> UOp:
        return affine.plus(self.first, self.width)


def split_at(kernel: UOp, r: UOp, n: int) -> UOp:
    """Split r, in blocks of n, before and after the blocks in which a comparison turns."""
    check_amount(n)
    length = r.src[0]
    if not affine.is_multiple(length, n):
        raise Refused(f"the range is not known to be a multiple of {n}")
    turns = find_turns(kernel, r)
    if not turns:
        raise Refused("it is compared with no loop around it")
    turn = turns[0]
    blocks, middle = affine.floordiv(length, affine.const(n)), -(-turn.width // n) + (n > 1)
    least, most = bounds.bounds(blocks)
    if middle >= most:
        raise Refused(f"the comparison turns in all blocks of {n}")
    at = _least(affine.floordiv(turn.first, affine.const(n)), affine.plus(blocks, -middle))
    if bounds.bounds(at)[0] < 0:
        at = intern(Ops.MAX, dtypes.index, (at, affine.const(0)))
    between = affine.const(middle)
    if least < middle:
        between = _least(between, affine.sub(blocks, at))
    start, size = affine.scaled(at, n), affine.scaled(between, n)
    rest = affine.sub(affine.sub(length, start), size)
    before = {t: t.before for t in turns if affine.at_most(turn.first, t.first)}
    behind = {t: not t.before for t in turns if affine.at_most(t.end, turn.end)}
    inner = [LoopPart(size)] if middle else []
    return in_parts(kernel, r, [_part(start, before), *inner, _part(rest, behind)])


def _part(length: UOp, decided: dict[Turn, bool]) -> LoopPart:
    known = {t.comparison: leaves.const(dtypes.bool_, v) for t, v in decided.items()}
    return LoopPart(length, known)


def _least(a: UOp, b: UOp) -> UOp:
    return a if affine.at_most(a, b) else intern(Ops.MIN, dtypes.index, (a, b))


def find_turns(kernel: UOp, r: UOp) -> list[Turn]:
    """The comparisons that turn once in the loop r, at an iteration that the loops around decide.
    A split at the first of them leaves the fewest comparisons in the other parts."""
    found = [t for u in parts(kernel).comparisons if (t := _turn(kernel, u, r)) is not None]
    if len(found) < 2:
        return found
    length = int(bounds.bounds(r.src[0])[1])
    places = [int(min(bounds.bounds(t.first)[1], length)) for t in found]

    def left(at: int) -> int:
        before, behind = sum([p < at for p in places]), sum([p > at for p in places])
        return at * before + (length - at) * behind

    costs = {at: left(at) for at in set(places)}
    order = sorted(range(len(found)), key=lambda i: costs[places[i]])
    return [found[i] for i in order]


def _turn(kernel: UOp, u: UOp, r: UOp) -> Turn | None:
    """The turn of a comparison Σ < 0 in the loop r; None if the loops around do not decide it."""
    if u.op not in (Ops.CMPLT, Ops.CMPLE) or r not in ranges.ranges(u):
        return None
    constant, terms = affine.form(affine.sub(*u.src))
    constant -= u.op is Ops.CMPLE
    step = terms.get(r, 0)
    others = {m: k for m, k in terms.items() if m is not r}
    around = {m: k for m, k in others.items() if _is_around(kernel, m, r)}
    inside = {m: k for m, k in others.items() if m not in around}
    if not step or not around or any(r in ranges.ranges(m) for m in others):
        return None
    low, high = affine.interval(constant, inside)
    if step > 0:  # holds while step·r < -Σ, to the end for the least Σ
        first, last = [quotient_up(_sum(around, -end, -1), step) for end in (high, low)]
    else:  # holds as soon as |step|·r > Σ
        first, last = [
            affine.plus(affine.floordiv(_sum(around, end, 1), affine.const(-step)), 1)
            for end in (low, high)
        ]
    width = bounds.bounds(affine.sub(last, first))[1] if low < high else 0
    return Turn(u, step > 0, first, width)


def _sum(terms: dict[UOp, int], constant: int, sign: int) -> UOp:
    return affine.build(constant, {m: sign * k for m, k in terms.items()})


def _is_around(kernel: UOp, m: UOp, r: UOp) -> bool:
    """True if a value is the same in all iterations of r, in every order of loops with it."""
    found = ranges.ranges(m)
    if not found or any(q.arg.kind not in _AROUND for q in found):
        return False
    for u in closers(kernel, r):
        before = [q for q in u.src[1:] if u.op is Ops.END and q.arg.axis < r.arg.axis]
        if not found <= ranges.ranges(u).union(before):
            return False
    return True
