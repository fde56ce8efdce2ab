"""The rule of a choice between branches: each is differentiated by itself, and one is chosen.

    y = branch[i](x)    forward:   x'   → branch'[i](x, x')
                        backward:  y~   → the vjp of branch i at x: a choice again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uopc.derivatives import functions
from uopc.derivatives.rule import OfBody
from uopc.derivatives.values import Value, filled, fit
from uopc.ir.builder import rebuild
from uopc.ir.core import calls, dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp, intern
from uopc.tensor.loops import bodies, branches


class Branches(OfBody):
    """Operands: the number of the chosen branch, the body, and its arguments. The body gives the
    results of the first branch, then the results of the second, and so on."""

    def _of(self, u: UOp) -> tuple[dict[UOp, UOp], list[Sequence[UOp]]]:
        """Return the arguments by their stand-in PARAMs, and the results of each branch."""
        arguments = u.src[3:]
        seeds = [functions.seed(a) for a in arguments]
        return dict(zip(seeds, arguments)), _results(u, seeds)

    def push_joint(self, u: UOp, tangents: Sequence[Value]) -> list[Value]:
        given, rows = self._of(u)
        beside, moved = _stand_ins(dict(enumerate(tangents[3:])), rows)
        known = {s: beside[i] for i, s in enumerate(given) if i in beside}
        found = [type(self).push_all(row, known) for row in rows]
        return _choose_derivative(u, found, rows[0], given | moved)

    def pull_joint(
        self, u: UOp, cotangents: Mapping[int, Value], wanted: Sequence[bool]
    ) -> list[Value]:
        given, rows = self._of(u)
        asked = [s for s, w in zip(given, wanted[3:]) if w and s.dtype.is_float]
        back, moved = _stand_ins(cotangents, rows)
        values = [back.get(i) for i in range(len(rows[0]))]
        found = [type(self).pull_all(row, asked, values) for row in rows]
        made = dict(zip(asked, _choose_derivative(u, found, asked, given | moved)))
        return [None, None, None, *[made.get(s) for s in given]]

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        """Batch the branches. If each row chooses its own branch, all arguments get the batch, so
        that derivatives choose before they add up rows."""
        which, _, *arguments = operands
        each, _, *flags = batched
        each = each or bool(shapes.shape(u.src[1]))
        plain, rows = self._of(u)
        seeds = [
            functions.seed_of(s.dtype, (n, *shapes.shape(s))) if each or b else s
            for s, b in zip(plain, flags)
        ]
        wide = [
            fit(a, (n, *shapes.shape(s))) if each and not b else a
            for a, s, b in zip(arguments, plain, flags)
        ]
        taken = {s: w for s, w in zip(plain, seeds) if w is not s}
        made = [_mapped(self, row, taken, n) for row in rows]
        cheap = {s: a for s, a, b in zip(plain, arguments, flags) if b}
        known = {s: a for s, a, b in zip(plain, arguments, flags) if not b}
        values = [_closed(_mapped(self, row, cheap, n), known) for row in rows]
        if each:
            which = fit(which, (n, *shapes.shape(u.src[1])))
        results = branches.chosen(which, made, dict(zip(seeds, wide)), values)
        return results[int(u.arg.details[0])]


def _stand_ins(
    values: Mapping[int, Value], rows: Sequence[Sequence[UOp]]
) -> tuple[dict[int, UOp], dict[UOp, UOp]]:
    """Return the stand-ins for values in branches, by number; and the values by their PARAMs."""
    masks = functions.supports(values, [v for row in rows for v in row])
    known = {i: v for i, v in values.items() if v is not None}
    seeds = {i: functions.seed(v) for i, v in known.items()}
    flags = {i: functions.seed(m) for i, m in masks.items()}
    made = {i: functions.shielded(s, flags.get(i)) for i, s in seeds.items()}
    given = {seeds[i]: v for i, v in known.items()}
    return made, given | {flags[i]: m for i, m in masks.items()}


def _results(u: UOp, arguments: Sequence[UOp]) -> list[Sequence[UOp]]:
    """The results of each branch for these arguments."""
    count = int(u.arg.details[1])
    made = bodies.results(u.src[2], arguments)
    return [made[i : i + count] for i in range(0, len(made), count)]


def _closed(values: Sequence[UOp], mapping: Mapping[UOp, UOp]) -> Sequence[UOp]:
    return rebuild.rebuild(intern(Ops.TUPLE, dtypes.void, tuple(values)), mapping).src


def _mapped(
    rule: Branches, row: Sequence[UOp], batched: Mapping[UOp, UOp], n: Dim
) -> Sequence[UOp]:
    if batched:
        return type(rule).mapped(row, batched)
    return [fit(r, (n, *shapes.shape(r))) for r in row]


def _choose_derivative(
    u: UOp, found: Sequence[Sequence[Value]], like: Sequence[UOp], given: Mapping[UOp, UOp]
) -> list[Value]:
    """Choose between the derivatives of the branches; None if all branches give zero."""
    kept = [i for i in range(len(like)) if any([row[i] is not None for row in found])]
    answer: list[Value] = [None] * len(like)
    if kept:
        rows = [[_full(row[i], like[i]) for i in kept] for row in found]
        read = set(calls.graph_order([v for row in rows for v in row]))
        mine = {p: a for p, a in given.items() if p in read}
        for i, value in zip(kept, branches.chosen(u.src[1], rows, mine)):
            answer[i] = value
    return answer


def _full(value: Value, like: UOp) -> UOp:
    return fit(filled(value, like), shapes.shape(like))
