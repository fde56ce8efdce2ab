"""The rule of a loop: its tangents are a second loop, its cotangents a loop backwards.

    c, y[t] = body(c, x[t], k)    forward:   c, c', y[t], y'[t] = body and its jvp
                                  backward:  the carried values are kept, c[t]; then from the end
                                             c~, x~[t], k~ += the vjp of the body at c[t], x[t], k
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from uopc.derivatives import functions
from uopc.derivatives.rule import DerivativeRule, OfBody
from uopc.derivatives.values import Value, filled, fit, total
from uopc.errors import Unsupported
from uopc.ir.builder import alu, movement, rebuild
from uopc.ir.core import calls, dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.tensor.loops import bodies, scan

Nodes = list[UOp]


class ScanParts:
    """The parts of a loop."""

    def __init__(self, details: tuple[int, ...], operands: Sequence[UOp]) -> None:
        self.count, inputs, reverse, fixed, every, unroll = details[1:]
        self.way = scan.Way(bool(reverse), every, unroll)
        self.each = self.way._replace(every=0)
        self.body, *rest = operands
        self.length: Dim = fixed if fixed >= 0 else rest.pop()
        self.first, self.xs = rest[: self.count], rest[self.count : self.count + inputs]
        self.constants = rest[self.count + inputs :]

    def seeds(self) -> tuple[Nodes, Nodes]:
        """PARAMs for the carried values and for the elements of xs in one step."""
        elements = [functions.seed_of(x.dtype, shapes.shape(x)[1:]) for x in self.xs]
        return [functions.seed(c) for c in self.first], elements

    def outputs(self, carried: Nodes, elements: Nodes, constants: Nodes) -> Nodes:
        """The results of the body for these values."""
        return bodies.results(self.body, [*carried, *elements, *constants])


    def in_segments(self, operands: Nodes) -> Nodes:
        """The results, by a loop over segments of `every` steps and a loop over the rest."""
        n, m = self.count, self.count + len(self.xs)
        first, xs, constants = operands[:n], operands[n:m], operands[m:]
        assert isinstance(self.length, int)
        every, reverse = self.way.every, self.way.reverse
        segments, rest = divmod(self.length, every)
        begin = rest if reverse else 0
        rows = [
            movement.reshape(_rows(x, begin, self.length - rest), (segments, every, *d))
            for x in xs for d in [shapes.shape(x)[1:]]
        ]  # fmt: skip
        carried = [functions.seed(c) for c in first]
        elements = [functions.seed_of(r.dtype, shapes.shape(r)[1:]) for r in rows]
        inner = scan.scan(self.body, carried, elements, constants, every, self.each)
        body, taken = bodies.closed(inner, [*carried, *elements])
        made = scan.scan(body, first, rows, taken, segments, scan.Way(reverse))
        last, ys = made[:n], [_merge_first_dimensions(y) for y in made[n:]]
        if not rest:
            return [*last, *ys]
        end = 0 if reverse else self.length - rest
        left = [_rows(x, end, rest) for x in xs]
        made = scan.scan(self.body, last, left, constants, rest, self.each)
        pairs = [(b, a) if reverse else (a, b) for a, b in zip(ys, made[n:])]
        return [*made[:n], *[movement.cat(*pair) for pair in pairs]]


class Scan(OfBody):
    """Operands: the body, the first carried values, xs, constants, and a length if it is
    symbolic."""

    def push_joint(self, u: UOp, tangents: Sequence[Value]) -> list[Value]:
        loop = ScanParts(u.arg.details, u.src[1:])
        given = list(tangents[2:])
        n, m = loop.count, loop.count + len(loop.xs)
        first, xs, constants = given[:n], given[n:m], given[m : m + len(loop.constants)]
        carried, elements = loop.seeds()
        outputs = loop.outputs(carried, elements, loop.constants)
        beside = [None if t is None else functions.seed(e) for t, e in zip(xs, elements)]
        masks = functions.supports(dict(enumerate(xs)), outputs)
        flags = {i: _flag(m) for i, m in masks.items()}
        known = {k: t for k, t in zip(loop.constants, constants) if t is not None}
        known |= {
            e: functions.shielded(t, flags.get(i))
            for i, (e, t) in enumerate(zip(elements, beside)) if t is not None
        }  # fmt: skip
        begun = dict(enumerate(first))
        seeds, found = _active(type(self), outputs, carried, known, begun)
        ys = [i for i, t in enumerate(found) if t is not None and i >= n]
        results = [*outputs[:n], *[filled(found[i], loop.first[i]) for i in seeds]]
        results += [*[t for t in (found[i] for i in ys) if t is not None]]
        inputs = [*[t for t in beside if t is not None], *flags.values()]
        body, taken = bodies.closed(results, [*carried, *seeds.values(), *elements, *inputs])
        made = scan.scan(
            body, [*loop.first, *[filled(first[i], loop.first[i]) for i in seeds]],
            [*loop.xs, *[t for t in xs if t is not None], *masks.values()],
            taken, loop.length, loop.way,
        )  # fmt: skip
        where = dict(zip([*seeds, *ys], made[n:]))
        return [where.get(i) for i in range(len(outputs))]

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        return self.push_joint(u, tangents)[int(u.arg.details[0])]

    def pull_joint(
        self, u: UOp, cotangents: Mapping[int, Value], wanted: Sequence[bool]
    ) -> list[Value]:
        loop = ScanParts(u.arg.details, u.src[1:])
        if loop.way.every and isinstance(loop.length, int) and loop.length > loop.way.every:
            return self._in_segments(loop, cotangents, wanted)
        carried, elements = loop.seeds()
        outputs = loop.outputs(carried, elements, loop.constants)
        n = loop.count
        floats = [i for i, c in enumerate(loop.first) if c.dtype.is_float]
        # By operand of the loop: the node of its body whose cotangent is wanted.
        rows = {2 + i: carried[i] for i in floats}
        # A constant that is there twice has one cotangent.
        places = {k: i for i, k in enumerate(loop.constants, 2 + n + len(loop.xs))}
        shared = {i: k for k, i in places.items() if wanted[i] and k.dtype.is_float}
        each = {i: x for i, x in enumerate(elements, 2 + n) if wanted[i] and x.dtype.is_float}
        targets = rows | shared | each
        known = [i for i, c in cotangents.items() if c is not None]
        given = {i: functions.seed(outputs[i]) for i in known if i >= n}
        begun = {i for i in known if i < n}
        masks = functions.supports({i: cotangents[i] for i in given}, outputs)
        flags = {i: _flag(m) for i, m in masks.items()}
        shielded = {i: functions.shielded(s, flags.get(i)) for i, s in given.items()}
        back, found = self._active_back(outputs, targets, floats, shielded, begun)
        sums = {i: functions.seed(k) for i, k in shared.items() if found[i] is not None}
        kinds = [[2 + i for i in back], sums, [i for i in each if found[i] is not None]]
        of = [i for kind in kinds for i in kind]
        results = [
            _sum(sums[i], found[i]) if i in sums else filled(found[i], targets[i]) for i in of
        ]
        # The values that a linear body carried and read are not needed.
        used = set(calls.graph_order(results)).intersection((*carried, *elements))
        numbers = [i for i, c in enumerate(carried) if c in used]
        history = dict(zip([carried[i] for i in numbers], self._history(loop, numbers)))
        read = [(e, x) for e, x in zip(elements, loop.xs) if e in used]
        inputs = [*back.values(), *sums.values(), *history, *[e for e, _ in read]]
        inputs += [*given.values(), *flags.values()]
        body, taken = bodies.closed(results, inputs)
        made = scan.scan(
            body,
            [*[filled(cotangents.get(i), loop.first[i]) for i in back],
             *[filled(None, shared[i]) for i in sums]],
            [*history.values(), *[x for _, x in read], *[filled(cotangents[i], u) for i in given],
             *masks.values()],
            taken, loop.length, loop.each._replace(reverse=not loop.way.reverse),
        )  # fmt: skip
        answer: list[Value] = [None] * len(u.src)
        for i, value in zip(of, made):
            answer[i] = value
        return answer

    def _active_back(
        self, outputs: Nodes, targets: Mapping[int, UOp], floats: Sequence[int],
        given: Mapping[int, UOp], begun: set[int],
    ) -> tuple[dict[int, UOp], dict[int, Value]]:  # fmt: skip
        """The carried cotangents by their stand-ins, and the cotangents of the targets. A carried
        value has a cotangent if its last value or a step's result passes a cotangent to it."""
        while True:
            back = {i: functions.seed(outputs[i]) for i in floats if i in begun}
            values = [back.get(i, given.get(i)) for i in range(len(outputs))]
            pulled = type(self).pull_all(outputs, list(targets.values()), values)
            found = dict(zip(targets, pulled))
            more = {i for i in floats if found[2 + i] is not None} - begun
            if not more:
                return back, found
            begun = begun | more

    def _in_segments(
        self, loop: ScanParts, cotangents: Mapping[int, Value], wanted: Sequence[bool]
    ) -> list[Value]:
        """The cotangents by a loop over segments, each of which is a loop. Only the carried values
        at the begin of each segment are kept, and the values of one segment at a time."""
        given = [*loop.first, *loop.xs, *loop.constants]
        seeds = [functions.seed(a) for a in given]
        results = loop.in_segments(seeds)
        asked = [s for s, w in zip(seeds, wanted[2:]) if w and s.dtype.is_float]
        values = [cotangents.get(i) for i in range(len(results))]
        found = dict(zip(asked, type(self).pull_all(results, asked, values)))
        full = {s: c for s, c in found.items() if c is not None}
        root = intern(Ops.TUPLE, dtypes.void, tuple(full.values()))
        made = dict(zip(full, rebuild.rebuild(root, dict(zip(seeds, given))).src))
        return [None, None, *[made.get(s) for s in seeds]]

    def _history(self, loop: ScanParts, wanted: Sequence[int]) -> Nodes:
        """The carried values with these numbers before each step."""
        if not wanted:
            return []
        carried, elements = loop.seeds()
        outputs = loop.outputs(carried, elements, loop.constants)[: loop.count]
        kept = [carried[i] for i in wanted]
        body, taken = bodies.closed([*outputs, *kept], [*carried, *elements])
        made = scan.scan(body, loop.first, loop.xs, taken, loop.length, loop.each)
        return made[loop.count :]

    # ------------------------------------------------------------ batches
    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        details = (0, *u.arg.details[1:])
        made = _of_batch(details, u.src[1:], tuple(operands), tuple(batched), n)
        return made[int(u.arg.details[0])]


@functools.lru_cache(maxsize=4)  # the results of a loop are requested one at a time
def _of_batch(
    details: tuple[int, ...], own: tuple[UOp, ...], operands: tuple[UOp, ...],
    batched: tuple[bool, ...], n: Any,
) -> Nodes:  # fmt: skip
    one, all_ = ScanParts(details, own), ScanParts(details, operands)
    _, *flags = batched
    of_xs = flags[one.count : one.count + len(one.xs)]
    of_constants = flags[one.count + len(one.xs) :]
    carried, elements = one.seeds()
    wide = [functions.seed_of(c.dtype, (n, *shapes.shape(c))) for c in carried]
    rows = [
        functions.seed_of(e.dtype, (n, *shapes.shape(e))) if b else e
        for e, b in zip(elements, of_xs)
    ]
    constants = [
        functions.seed(k) if b else k for k, b in zip(one.constants, of_constants)
    ]
    outputs = one.outputs(carried, elements, constants)
    taken = dict(zip(carried, wide))
    taken |= {e: r for e, r in zip(elements, rows) if e is not r}
    taken |= {c: k for c, k, b in zip(constants, all_.constants, of_constants) if b}
    body, closed = bodies.closed(Scan.mapped(outputs, taken), [*wide, *rows])
    first = [
        fit(c, (n, *shapes.shape(o))) for c, o in zip(all_.first, one.first)
    ]
    xs = [movement.swapped(x) if b else x for x, b in zip(all_.xs, of_xs)]
    made = scan.scan(body, first, xs, closed, one.length, one.way)
    return [*made[: one.count], *map(movement.swapped, made[one.count :])]


def _flag(mask: UOp) -> UOp:
    """Make a PARAM for the support of one row."""
    return functions.seed_of(mask.dtype, shapes.shape(mask)[1:])


def _sum(a: UOp, b: Value) -> UOp:
    found = total([a, b])
    assert found is not None
    return found


def _rows(a: UOp, begin: int, count: int) -> UOp:
    """Slice `count` rows from `begin` on."""
    dims = shapes.shape(a)
    if count == dims[0]:
        return a
    return movement.window(a, (begin, *(0,) * (len(dims) - 1)), (count, *dims[1:]))


def _merge_first_dimensions(a: UOp) -> UOp:
    """Merge the first two dimensions."""
    n, m, *rest = shapes.shape(a)
    return movement.reshape(a, (n * m, *rest))


class While(OfBody):
    """Operands: the body, the first carried values, and constants. The last carried value is True
    while the loop continues."""

    def push_joint(self, u: UOp, tangents: Sequence[Value]) -> list[Value]:
        body, n = u.src[1], int(u.arg.details[1])
        first, constants = u.src[2 : 2 + n], u.src[2 + n :]
        carried = [functions.seed(c) for c in first]
        known = {k: t for k, t in zip(constants, tangents[2 + n :]) if t is not None}
        outputs = bodies.results(body, [*carried, *constants])
        begun = dict(enumerate(tangents[2 : 2 + n]))
        seeds, found = _active(type(self), outputs, carried, known, begun)
        beside = [filled(found[i], first[i]) for i in seeds]
        made_body, taken = bodies.closed(
            [*outputs[:-1], *beside, outputs[-1]], [*carried[:-1], *seeds.values(), carried[-1]]
        )
        before = [*first[:-1], *[filled(begun[i], first[i]) for i in seeds], first[-1]]
        made = scan.while_loop(made_body, before, taken)
        where = dict(zip(seeds, made[n - 1 :]))
        return [where.get(i) for i in range(n)]

    def pull_joint(
        self, u: UOp, cotangents: Mapping[int, Value], wanted: Sequence[bool]
    ) -> list[Value]:
        raise Unsupported(
            "reverse mode through a while_loop is not supported, because its number of steps is not"
            " known: use forward mode (jvp, jacfwd), or scan or fori_loop, whose number of steps"
            f" is given{made_at(u)}"
        )

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        """Batch the loop: each row stops by itself, and the loop runs until all rows stopped."""
        body, count = u.src[1], int(u.arg.details[1])
        own, constants = u.src[2 : 2 + count], u.src[2 + count :]
        first, given = operands[1 : 1 + count], operands[1 + count :]
        flags = batched[1 + count :]
        carried = [functions.seed(c) for c in own]
        wide = [functions.seed_of(c.dtype, (n, *shapes.shape(c))) for c in own]
        outputs = bodies.results(body, [*carried, *constants])
        taken = dict(zip(carried, wide)) | {c: k for c, k, b in zip(constants, given, flags) if b}
        found = type(self).mapped(outputs, taken)
        going = wide[-1]
        kept = [
            alu.where(movement.reshape(going, (n, *(1,) * len(shapes.shape(c)))), v, w)
            for c, v, w in zip(own, found, wide)
        ][:-1]
        going = alu.alu(going, Ops.AND, found[-1])
        made_body, closed = bodies.closed(
            [*kept, going, _any(going)], [*wide, functions.seed(own[-1])]
        )
        before = [fit(c, (n, *shapes.shape(o))) for c, o in zip(first, own)]
        made = scan.while_loop(made_body, [*before, _any(before[-1])], closed)
        return made[int(u.arg.details[0])]


def _any(flags: UOp) -> UOp:
    """True if any of the bools is True."""
    return movement.reduce(flags.cast(dtypes.int64), "add", (0,)) > 0


def _active(
    rule: type[OfBody], outputs: Nodes, carried: Nodes, known: Mapping[UOp, UOp],
    first: Mapping[int, Value],
) -> tuple[dict[int, UOp], list[Value]]:  # fmt: skip
    """The carried tangents by their stand-ins, and the tangents of the results of a body. A carried
    value has a tangent if its first value, or a value that it depends on, has a tangent."""
    active = {i for i, t in first.items() if t is not None}
    while True:
        seeds = {i: functions.seed(carried[i]) for i in sorted(active)}
        found = rule.push_all(outputs, {**known, **{carried[i]: s for i, s in seeds.items()}})
        more = {i for i in first if found[i] is not None} - active
        if not more:
            return seeds, found
        active |= more


RULES: dict[str, DerivativeRule] = {"scan": Scan(), "while": While()}
