"""UNROLL of a loop whose iterations keep their order: n of them become one.

    for t < 7: s = f(s, t)   →   for o < 2: s = f(s, 3·o), s = f(s, 3·o + 1), s = f(s, 3·o + 2)
                                 for t < 1: s = f(s, 6 + t)

Each copy of the body comes after the copy before, and so do its accesses to storage that the loop
writes.
"""

from __future__ import annotations

from uopc.ir.builder import rebuild
from uopc.ir.core import bounds, ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis.loops import ended, make_range
from uopc.passes.optimize.opts.legality import Refused, check_amount, check_free, known_length
from uopc.passes.optimize.opts.substitution import copies


def unroll_steps(kernel: UOp, r: UOp, n: int) -> UOp:
    """Make n iterations (0: all) of an ordered loop one, and loop over the remaining iterations."""
    n = n or known_length(r)
    check_amount(n)
    check_free(kernel, r)
    count, rest = affine.divmod_(r.src[0], affine.const(n))
    if bounds.bounds(count)[1] == 0:
        raise Refused(f"the range is shorter than {n}")
    (end,) = nest_of(kernel).closers(r)  # each other loop with r in it is inside of r
    inner = tuple([q for q in end.src[1:] if q.arg.axis > r.arg.axis])
    outer = tuple([q for q in end.src[1:] if q is not r and q not in inner])
    steps = _Steps(kernel, r, ended(end.src[0], *inner), (*outer, *ranges.ranges(end)))
    made = steps.loop(affine.const(0), count, n, 0, None)
    if bounds.bounds(rest)[1]:
        made = steps.loop(affine.scaled(count, n), rest, 1, n, made)
    return rebuild.rebuild(kernel, {end: ended(made, *outer)})


class _Steps:
    """Copies of the body of a loop, one after another."""

    def __init__(self, kernel: UOp, r: UOp, body: UOp, outer: tuple[UOp, ...]) -> None:
        self._r, self._body, self._number = r, body, len(nest_of(kernel).axes)
        self._outer = outer  # the loops around r: each turn of theirs begins with the first copy
        stores = [u for u in nest_of(kernel).stores if r in ranges.ranges(u)]
        self._written = {storage_root(u.src[0]) for u in stores}

    def loop(self, start: UOp, count: UOp, n: int, first: int, before: UOp | None) -> UOp:
        """Make a loop of `count` times n iterations of r, beginning at `start`, after the effect
        `before`. `first` numbers the first copy."""
        axis = (*self._r.arg.axis, int(first > 0))
        around: tuple[UOp, ...] = (make_range(count, axis, self._r.arg.kind),)
        if count.op is Ops.CONST and count.arg == 1:
            around = ()
        for r in around:
            start = affine.add(start, affine.scaled(r, n))
        effect = before
        for i in range(n):
            effect = self._copy(affine.plus(start, i), around, effect, first + i)
        assert effect is not None
        return ended(effect, *around)

    def _copy(self, step: UOp, around: tuple[UOp, ...], before: UOp | None, number: int) -> UOp:
        """Copy the body for the iteration `step` of r. Accesses to written storage wait for
        `before` and the loops `around`; without both, for the loops around r."""
        r = self._r
        around = around if around or before is not None else self._outer
        names = copies(self._body, r, [], self._number + number) if number else {}
        # Of a place that was r // n a constant may be left: it is one of an iteration all the same.
        waits = (*(() if before is None else (before,)), *around)

        def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if u is r or u in names:
                return step if u is r else names[u]
            if r not in ranges.ranges(u):
                return None
            if u.op is Ops.AFTER:
                effects = [new for old, new in zip(u.src[1:], src[1:]) if old is not r]
                return _after(src[0], *effects, *(around if r in u.src[1:] else ()))
            if u.op is Ops.INDEX and storage_root(u) in self._written:
                return _waiting(rebuild.remake(u, src), waits)
            if u.op is Ops.STORE and r not in ranges.ranges(u.src[0]):
                return rebuild.remake(u, (_waiting(src[0], waits), *src[1:]))
            return None

        return rebuild.rewritten(self._body, change)


def _after(storage: UOp, *effects: UOp) -> UOp:
    return intern(Ops.AFTER, storage.dtype, (storage, *effects)) if effects else storage


def _waiting(access: UOp, effects: tuple[UOp, ...]) -> UOp:
    """Make an INDEX come after these effects."""
    storage, *index = access.src
    return intern(access.op, access.dtype, (_after(storage, *effects), *index), access.arg)
