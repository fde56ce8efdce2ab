"""The boxes of every node between the columns and the outputs, sources first.

    x (2, 50)          1 box of 100 entries
    x[0]               1 of 50                 a slice, and all that moves elements: other rows
    x[0] * x[1]        2 of 50                 values times a factor, read at the rows
    (x[0] * x[1])[1:]  2 of 49

A node has as few boxes as kinds of entries, whatever the sizes are, and every value is an entry: no
seeds, no colours. If an op has no rule of its own, each of its rows has all columns of its
operands; the columns of a loop are found step by step (`loops.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from uopc.derivatives import batch, effects, functions, movement_rules, walk
from uopc.derivatives.gather import rearranged
from uopc.derivatives.rule import DerivativeRule, Partials, operands
from uopc.derivatives.values import Value, filled
from uopc.errors import Unsupported
from uopc.ir.builder import alu, fold, leaves, movement, rebuild
from uopc.ir.core import calls, dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.sparse import colouring, loops
from uopc.sparse.boxes import Box, Boxes, strides
from uopc.sparse.packing import Coloured, Columns, column_tangents
from uopc.sparse.reading import Dims, guarded
from uopc.sparse.sparsity import Places

# The longest axis of a table of readers along which each index gets its own boxes.
MOST_READERS = 32
_LOOPS = {"scan": loops.scan_sets, "while": loops.while_sets}
_SAME = frozenset((
    Ops.CONTIGUOUS, Ops.COPY, Ops.STAGE, Ops.SHARD, Ops.BIND, Ops.CONTIGUOUS_BACKWARD,
))  # fmt: skip
_MOVES = frozenset((Ops.PERMUTE, Ops.FLIP, Ops.PAD, Ops.SHRINK))


def size(u: UOp) -> int:
    """The number of elements of a node; Unsupported if symbolic."""
    dims = shapes.shape(u)
    if not all([isinstance(d, int) for d in dims]):
        raise Unsupported(
            f"a sparse derivative needs known sizes: bind the variables first{made_at(u)}"
        )
    return math.prod(dims)


class Propagation:
    """The boxes of nodes. Columns are the elements of the inputs, one after another."""

    def __init__(self, inputs: Sequence[UOp], values: bool) -> None:
        self.tools = Boxes(values)
        self.columns = 0
        self._results: dict[object, list[UOp]] = {}  # by loop, its used results
        self.found: dict[UOp, list[Box]] = {}
        for u in inputs:
            n = size(u)
            self.found[u] = [self.tools.leaf(u, self.columns)] if n else []
            self.columns += n

    def run(self, outputs: Sequence[UOp]) -> list[list[Box]]:
        """The boxes of the outputs, which must be free of effects and calls."""
        self._propagate(outputs)
        return [[self.tools.settled(b) for b in self._of(u)] for u in outputs]

    def _propagate(self, outputs: Sequence[UOp]) -> None:
        order = calls.graph_order(outputs, operands, stop=self.found.__contains__)
        for u in order:
            if u.op is Ops.PRIMITIVE and u.arg.name in _LOOPS and u.dtype.is_float:
                self._results.setdefault(_loop(u), []).append(u)
        needed = walk.needed_of(outputs, order)
        for u in order:
            if u in self.found or u not in needed or not u.dtype.is_float or u.op in walk.ZERO:
                continue
            if any([self.found.get(s) for s in operands(u)]) and size(u):
                made = [b for b in self._rule(u) if b.size]
                if made:
                    self.found[u] = made

    def _of(self, u: UOp) -> list[Box]:
        return self.found.get(u, [])

    def _rule(self, u: UOp) -> list[Box]:
        op = u.op
        rule = None if op is Ops.GETTUPLE else walk.rule_of(u)
        if rule is not None and rule.kind == "zero":
            return []
        if isinstance(rule, Partials):
            return self._elementwise(u, rule)
        if op in (Ops.STACK, Ops.CAT):
            return self._joined(u)
        if op is Ops.REDUCE:
            return self._reduce(u)
        if op in _SAME or op is Ops.RESHAPE:
            return self._of(u.src[0])
        if op is Ops.EXPAND:
            own, dims = _dims(u.src[0]), _dims(u)
            return [self.tools.expanded(b, own, dims) for b in self._of(u.src[0])]
        if op in _MOVES:
            a = u.src[0]
            sources = rearranged(np.arange(size(a)).reshape(_dims(a)), u, -1)
            return self._moved(a, _table(sources, np.arange(size(u)).reshape(_dims(u)), size(a)))
        if op is Ops.INDEX:
            return self._index(u)
        if op is Ops.ACCUMULATE and u.arg.op == "add":
            return self._running_sum(u)
        if op is Ops.PRIMITIVE and u.arg.name in ("scatter_set", "scatter_add"):
            found = self._updated(u)
            if found is not None:
                return found
        if op is Ops.PRIMITIVE and u.arg.name == "branches":
            self._propagate([u.src[0]])  # a choice selects values, so hidden values do not matter
            return self._of(u.src[0])
        if op is Ops.PRIMITIVE and u.arg.name in _LOOPS:
            known = self._loop_results(u)
            if known is not None:
                return known
        return self._dense(u, DerivativeRule() if rule is None else rule)

    # ------------------------------------------------------------ rules
    def _elementwise(self, u: UOp, rule: Partials) -> list[Box]:
        dims, out = _dims(u), []
        for i, s in enumerate(u.src):
            for box in self._of(s) if s in operands(u) else ():
                wide = self.tools.expanded(box, _dims(s), dims)
                made = self.tools.scaled(wide, rule.factor(u, i), dims)
                if made is not None:
                    out.append(self._cast(made, u))
        return self.tools.merged(out)

    def _cast(self, box: Box, u: UOp) -> Box:
        if box.value is None or box.value.dtype is u.dtype:
            return box
        return Box(box.rows, box.cols, fold.cast(box.value, u.dtype))

    def _moved(self, s: UOp, table: Places) -> list[Box]:
        made = [self.tools.moved(b, table) for b in self._of(s)]
        return [b for b in made if b is not None]

    def _joined(self, u: UOp) -> list[Box]:
        places = np.arange(size(u)).reshape(_dims(u))
        axis, at, out = 0 if u.op is Ops.STACK else u.arg, 0, []
        for s in u.src:
            n = 1 if u.op is Ops.STACK else _dims(s)[axis]
            out += self._moved(s, places.take(range(at, at + n), axis).reshape(-1))
            at += n
        return out

    def _reduce(self, u: UOp) -> list[Box]:
        a, axes = u.src[0], u.arg.axes
        dims, factor = _dims(a), movement_rules.share(u)
        kept = tuple([1 if i in axes else d for i, d in enumerate(dims)])
        table = np.broadcast_to(np.arange(size(u)).reshape(kept), dims).reshape(-1)
        out = []
        for box in self._of(a):
            made = self.tools.scaled(box, factor, dims)
            moved = None if made is None else self.tools.moved(made, table)
            if moved is not None:
                out.append(moved)
        return self.tools.merged(out)

    def _running_sum(self, u: UOp) -> list[Box]:
        """Repeat each entry in all later rows."""
        dims, out = _dims(u), []
        (axis,) = u.arg.axes
        n, step = dims[axis], strides(dims)[axis]
        for box in self._of(u.src[0]):
            own = box.rows // step % n
            wide = self.tools.repeated(Box(box.rows - own * step, box.cols, box.value), [(n, step)])
            after = np.arange(n) >= own[..., None]
            made = self.tools.kept(wide, after.reshape(wide.rows.shape))
            assert made is not None
            out.append(self.tools.box(made.rows, made.cols, made.value))
        return self.tools.merged(out)

    def _index(self, u: UOp) -> list[Box]:
        indices = u.src[1:]
        if not all([i in self.tools.known for i in indices]):
            return self._anywhere(u)
        a, dims = u.src[0], _dims(u.src[0])
        lead = [np.asarray(self.tools.known.array(i), np.int64) for i in indices]
        flat: Places = np.zeros((), np.int64)
        outside = np.zeros((), np.bool_)
        for k, d in zip(lead, dims):
            outside = outside | (k < 0) | (k >= d)
            flat = flat * d + k
        rest = math.prod(dims[len(indices) :])
        places = np.where(outside, -1, flat)[..., None] * rest + np.arange(rest)
        places[np.broadcast_to(outside[..., None], places.shape)] = -1
        return self._gathered(a, places.reshape(_dims(u)))

    def _updated(self, u: UOp) -> list[Box] | None:
        """The boxes of rows that are set or added at known indices; None for unknown indices."""
        _, a, places, rows = u.src
        if places not in self.tools.known:
            return None
        at = np.asarray(self.tools.known.array(places), np.int64).reshape(-1)
        count = _dims(u)[0]
        here = (at >= 0) & (at < count)
        rest = size(u) // max(count, 1)
        added, kept = at, np.arange(count)
        if u.arg.name == "scatter_set":
            last = np.full(count, -1, np.int64)
            last[at[here]] = np.flatnonzero(here)  # of several rows at one index, the last counts
            kept = np.where(last < 0, kept, -1)
            added = np.where(here & (last[np.where(here, at, 0)] == np.arange(at.size)), at, -1)
        out = [
            box for source, table in ((a, kept), (rows, np.where(here, added, -1)))
            for box in self._moved(source, _rows(table, rest))
        ]  # fmt: skip
        return self.tools.merged(out)

    def _gathered(self, a: UOp, sources: Places) -> list[Box]:
        """The boxes of `a` read at these positions (-1: none); axes of constant positions
        repeat."""
        dims = sources.shape
        still = [
            axis for axis, n in enumerate(dims)
            if n > 1 and (sources == sources.take([0], axis)).all()
        ]  # fmt: skip
        once = tuple([slice(0, 1) if i in still else slice(None) for i in range(len(dims))])
        first, targets = sources[once], np.arange(sources.size).reshape(dims)[once]
        tables = _tables(first, targets, size(a))
        if tables is None:
            out = [self._read_often(b, first.reshape(-1), targets.reshape(-1)) for b in self._of(a)]
        else:
            out = [b for table in tables for b in self._moved(a, table)]
        far = strides(dims)
        more = [(dims[axis], far[axis]) for axis in still]
        return self.tools.merged([self.tools.repeated(b, more) for b in out] if more else out)

    def _read_often(self, box: Box, sources: Places, targets: Places) -> Box:
        """Repeat each entry for each reader of its row."""
        read = np.flatnonzero(sources >= 0)
        counts = np.bincount(sources[read], minlength=int(box.rows.max()) + 1)
        order = targets[read[np.argsort(sources[read], kind="stable")]]
        rows = box.rows.reshape(-1)
        entry = np.repeat(np.arange(box.size), counts[rows])
        ends = np.cumsum(counts[rows])
        number = np.arange(entry.size) - np.repeat(ends - counts[rows], counts[rows])
        found = self.tools.listed(box, entry)
        at = order[(np.cumsum(counts) - counts)[found.rows] + number]
        return self.tools.box(at, found.cols, found.value)

    def _anywhere(self, u: UOp) -> list[Box]:
        """A gather from positions that only the running program knows: each entry appears in all
        rows that may read it, with its value or 0."""
        a, indices = u.src[0], u.src[1:]
        dims = _dims(a)
        block: Dims = shapes.broadcast([shapes.shape(i) for i in indices])
        rest, count = math.prod(dims[len(indices) :]), math.prod(block)
        place, valid = _flat_place(indices, dims, block)
        out = []
        for box in self._of(a):
            lead, inner = box.rows // rest, box.rows % rest
            grid = (count, *box.rows.shape)
            rows = np.arange(count).reshape(count, *(1,) * box.rows.ndim) * rest + inner
            value = box.value
            if value is not None:
                one = (count, *(1,) * box.rows.ndim)
                here = alu.alu(movement.reshape(place, one), Ops.CMPEQ, guarded(lead))
                here = here & movement.reshape(valid, one)
                value = alu.where(here, value, leaves.const(value.dtype, 0))
            out.append(self.tools.box(rows, np.broadcast_to(box.cols, grid), value))
        return self.tools.merged(out)

    def _loop_results(self, u: UOp) -> list[Box] | None:
        """The boxes of a result of a loop, made with the boxes of all used results; None if the
        structure takes too long. No result has two columns of one colour, so these share a
        tangent."""
        given = [s for s in dict.fromkeys(operands(u)) if self._of(s)]
        columns = loops.ColumnBits([b for s in given for b in self._of(s)])
        known = functools.cache(lambda s: columns.sets(self._of(s), size(s)))
        found = _LOOPS[u.arg.name](u, known, _pattern)
        if found is None:
            return None
        results = [v for v in dict.fromkeys(self._results[_loop(u)]) if size(v)]
        entries = [columns.entries(found[v.arg.details[0]]) for v in results]
        colours: Places = np.zeros(0, np.int64)
        values: list[Value] = [None] * len(results)
        if self.tools.values:
            starts = np.cumsum([0, *[size(v) for v in results]])
            row = np.concatenate([r + at for (r, _), at in zip(entries, starts)])
            colours = colouring.columns(row, np.concatenate([c for _, c in entries]), self.columns)
            values = [*self._coloured(results, given, colours)]
        for v, (row, col), value in zip(results, entries, values):
            if not row.size:
                continue
            if value is not None:
                flat = movement.reshape(value, (int(shapes.size(shapes.shape(value))),))
                value = self.tools.reader.taken(flat, colours[col] * size(v) + row)
            self.found[v] = [self.tools.box(row, col, value)]
        return self._of(u)

    def _coloured(
        self, results: Sequence[UOp], given: Sequence[UOp], colours: Places
    ) -> list[UOp]:
        """The tangents of the results of a loop: a row for each colour of the columns."""
        count = int(colours.max(initial=0)) + 1
        seeds = {s: functions.seed(s) for s in given}
        pushed = walk.pushed(results, seeds)
        found = [filled(t, v) for t, v in zip(pushed, results)]
        batches = {
            seeds[s]: column_tangents(self.tools, self._of(s), Coloured(colours), count, 1, s)
            for s in given
        }
        self.tools.work += count * loops.operations(results[:1], given)
        return batch.mapped(found, batches)

    def _dense(self, u: UOp, rule: DerivativeRule) -> list[Box]:
        """All columns of the operands in all rows, by a batch of tangents.

        If the op applies one function at each of some leading positions, columns of different
        positions share a tangent: tangent t has column t of each position.
        """
        given = [s for s in dict.fromkeys(operands(u)) if self._of(s)]
        dims = _dims(u)
        lead = dims[: rule.batch_dimensions(u)]
        lead = lead if all([_dims(s)[: len(lead)] == lead for s in given]) else ()
        count, rest = math.prod(lead), math.prod(dims[len(lead) :])
        of_place = Columns(self.columns)
        for s in given:
            each = size(s) // count
            for b in self._of(s):
                of_place.add(b.rows // each, b.cols)
        tangents, cols = of_place.table(count)
        rows = np.arange(count * rest).reshape(1, count, rest)
        value = None
        if self.tools.values:
            seeds = {s: functions.seed(s) for s in given}
            found = filled(walk.pushed([u], seeds)[0], u)
            batches = {
                seeds[s]: column_tangents(self.tools, self._of(s), of_place, tangents, count, s)
                for s in given
            }
            whole = batch.mapped([found], batches)[0]
            value = movement.reshape(whole, (tangents, count, rest))
        self.tools.work += tangents * rows.size
        full = np.broadcast_to(cols[..., None], (tangents, count, rest))
        box = Box(np.broadcast_to(rows, full.shape), full, value)
        made = self.tools.kept(box, full >= 0)
        return [] if made is None else [self.tools.box(made.rows, made.cols, made.value)]


def _loop(u: UOp) -> object:
    """A key that only the results of the same loop share."""
    return u.arg.name, u.arg.details[1:], u.src[1:]


def _pattern(outputs: Sequence[UOp], inputs: Sequence[UOp]) -> tuple[Places, Places]:
    """The entries of a body: its results by its arguments."""
    _, found, _ = boxes_of(outputs, inputs, values=False)
    nothing, at = np.zeros(0, np.int64), 0
    rows, cols = [nothing], [nothing]
    for u, boxes in zip(outputs, found):
        rows += [b.rows.reshape(-1) + at for b in boxes]
        cols += [b.cols.reshape(-1) for b in boxes]
        at += size(u)
    both = np.unique(np.stack([np.concatenate(rows), np.concatenate(cols)]), axis=1)
    return both[0], both[1]


def _dims(u: UOp) -> Dims:
    size(u)
    return shapes.shape(u)


# ---------------------------------------------------------------- tables
def _tables(sources: Places, targets: Places, n: int) -> list[Places] | None:
    """Tables that send each of n elements to its readers, -1 for none: one table if no element has
    two readers, a table for each index of a short axis that separates readers, or None."""
    lines = [(sources, targets)]
    for axis in (None, *sorted(range(sources.ndim), key=lambda k: sources.shape[k])):
        if axis is not None:
            if sources.shape[axis] > MOST_READERS:
                return None
            lines = [
                (np.asarray(sources.take(i, axis)), np.asarray(targets.take(i, axis)))
                for i in range(sources.shape[axis])
            ]
        if all([np.bincount(s[s >= 0].reshape(-1)).max(initial=0) <= 1 for s, _ in lines]):
            return [_table(s, t, n) for s, t in lines]
    return None


def _table(sources: Places, targets: Places, n: int) -> Places:
    """For each of n elements its single reader, or -1."""
    found = np.full(n, -1, np.int64)
    read = sources >= 0
    found[sources[read]] = targets[read]
    return found


def _rows(table: Places, rest: int) -> Places:
    """Expand a table of rows to a table of elements, with `rest` elements in a row."""
    found = table[:, None] * rest + np.arange(rest)
    found[table < 0] = -1
    return found.reshape(-1)


def _flat_place(indices: Sequence[UOp], dims: Dims, block: Dims) -> tuple[UOp, UOp]:
    """The flat position that indices read, and whether it is valid, both as vectors."""
    place: UOp | None = None
    valid: UOp = leaves.const(dtypes.bool_, True)
    for i, d in zip(indices, dims):
        while i.op is Ops.WHERE and i.src[2].op is Ops.INVALID:
            valid, i = valid & i.src[0], i.src[1]
        valid = valid & alu.binary(Ops.CMPLE, 0, i) & alu.binary(Ops.CMPLT, i, d)
        place = i if place is None else place * d + i
    assert place is not None
    n = math.prod(block)
    both = [movement.reshape(movement.expand(v, block), (n,)) for v in (place, valid)]
    return both[0], both[1]


# ---------------------------------------------------------------- graphs
def prepared(outputs: Sequence[UOp], inputs: Sequence[UOp]) -> tuple[list[UOp], dict[UOp, UOp]]:
    """Remove effects and calls from the outputs, and compute by arrays whatever was written element
    by element. The inputs become PARAMs."""
    outputs, nodes = effects.pure(outputs, inputs)
    seeds = {u: functions.seed(u) for u in nodes}
    root = rebuild.rebuild(intern(Ops.SINK, dtypes.void, tuple(outputs)), seeds)
    root = _without_calls(root)
    from uopc.passes.reroll.reroll import rolled

    root = rolled(root)
    return list(root.src), {seeds[u]: x for u, x in zip(nodes, inputs)}


def _without_calls(root: UOp) -> UOp:
    """Replace calls of functions by the values that they compute; loops, which repeat, stay."""

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        value = functions.inlined(src[0], u.arg) if u.op is Ops.GETTUPLE else None
        return None if value is None else _without_calls(value)

    if not any([u.op is Ops.CALL for u in calls.graph_order([root])]):
        return root
    return rebuild.rewritten(root, change, outside_kernels=True)


def boxes_of(
    outputs: Sequence[UOp], inputs: Sequence[UOp], values: bool
) -> tuple[Propagation, list[list[Box]], Mapping[UOp, UOp]]:
    """The boxes of the outputs, and the inputs by the PARAMs that replace them."""
    made, given = prepared(outputs, inputs)
    run = Propagation(list(given), values)
    return run, run.run(made), given
