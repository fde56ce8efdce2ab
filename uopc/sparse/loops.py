"""The entries of loops: the columns that each result depends on, by the structure of the body.

    c = A c + x[t]      y[t] depends on the columns of c after t steps: sets of columns go through
                        the structure of the body, step after step, until the last step

A set is an integer whose bits are columns. For a `while_loop`, with an unknown number of steps, the
sets grow until they stay the same. Values are tangents of the loop, by colour of columns.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from uopc.derivatives import functions
from uopc.derivatives.rule import operands
from uopc.derivatives.scan_rule import ScanParts
from uopc.ir.core import calls, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.sparse.boxes import Box
from uopc.sparse.sparsity import Places
from uopc.tensor.loops import bodies

MOST_UNIONS = 1 << 22  # of sets; a loop that takes more has all columns in each row
Sets = list[int]  # for each element the bits of its columns
Pattern = Callable[[Sequence[UOp], Sequence[UOp]], tuple[Places, Places]]


class ColumnBits:
    """The columns of some boxes, sorted; bit i of a set is column i."""

    def __init__(self, boxes: Iterable[Box]) -> None:
        found = [np.zeros(0, np.int64), *[b.cols.reshape(-1) for b in boxes]]
        self.all: Places = np.unique(np.concatenate(found))

    def sets(self, boxes: Sequence[Box], size: int) -> Sets:
        """The set of columns of each element of a node."""
        made = [0] * size
        for box in boxes:
            bits = np.searchsorted(self.all, box.cols.reshape(-1))
            for row, bit in zip(box.rows.reshape(-1).tolist(), bits.tolist()):
                made[row] |= 1 << bit
        return made

    def entries(self, sets: Sets) -> tuple[Places, Places]:
        """The rows and columns of all entries of these sets."""
        width = (self.all.size + 7) // 8
        lines = [np.frombuffer(s.to_bytes(width, "little"), np.uint8) for s in sets]
        if not lines or not width:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        bits = np.unpackbits(np.stack(lines), axis=1, bitorder="little")
        row, bit = np.nonzero(bits)
        return row.astype(np.int64), self.all[bit]


class _BodySparsity:
    """The structure of a body: the elements of its arguments that each result depends on."""

    def __init__(self, results: Sequence[UOp], arguments: Sequence[UOp], pattern: Pattern) -> None:
        self.sizes = [_size(u) if u.dtype.is_float else 0 for u in results]
        floats = [u for u in results if u.dtype.is_float]
        known = [a for a in arguments if a.dtype.is_float]
        row, col = pattern(floats, known) if floats and known else (np.zeros(0, np.int64),) * 2
        order = np.lexsort((col, row))
        ends = np.searchsorted(row[order], np.arange(sum(self.sizes) + 1))
        cols = col[order].tolist()
        self.read = [tuple(cols[a:b]) for a, b in zip(ends.tolist(), ends[1:].tolist())]
        self.unions = sum(map(len, set(self.read)))

    def __call__(self, given: Sets) -> Sets:
        """The sets of the results from the sets of the arguments."""
        known: dict[tuple[int, ...], int] = {}
        for places in self.read:
            if places not in known:
                known[places] = functools.reduce(operator.or_, [given[i] for i in places], 0)
        return [known[places] for places in self.read]


def scan_sets(u: UOp, sets: Callable[[UOp], Sets], pattern: Pattern) -> dict[int, Sets] | None:
    """The columns of each result of a scan, by the result's number; None if that takes too long."""
    loop = ScanParts(u.arg.details, u.src[1:])
    if not isinstance(loop.length, int):
        return None
    carried, elements = loop.seeds()
    results = loop.outputs(carried, elements, loop.constants)
    body = _BodySparsity(results, [*carried, *elements, *loop.constants], pattern)
    if body.unions * loop.length > MOST_UNIONS:
        return None
    n = loop.count
    now = _flat([sets(c) for c in loop.first if c.dtype.is_float])
    xs = [(sets(x), _size(e)) for x, e in zip(loop.xs, elements) if x.dtype.is_float]
    fixed = _flat([sets(k) for k in loop.constants if k.dtype.is_float])
    ends = np.cumsum([0, *body.sizes]).tolist()
    rows: dict[int, dict[int, Sets]] = {i: {} for i in range(n, len(results))}
    steps = range(loop.length)
    for t in reversed(steps) if loop.way.reverse else steps:
        here = [s for of, size in xs for s in of[t * size : (t + 1) * size]]
        made = body([*now, *here, *fixed])
        now = made[: ends[n]]
        for i, found in rows.items():
            found[t] = made[ends[i] : ends[i + 1]]
    last = {i: now[ends[i] : ends[i + 1]] for i in range(n)}
    return last | {i: _flat([found[t] for t in steps]) for i, found in rows.items()}


def while_sets(u: UOp, sets: Callable[[UOp], Sets], pattern: Pattern) -> dict[int, Sets] | None:
    """The columns of each result of a loop whose number of steps is unknown."""
    n = int(u.arg.details[1])
    first, constants = u.src[2 : 2 + n], u.src[2 + n :]
    carried = [functions.seed(c) for c in first]
    results = bodies.results(u.src[1], [*carried, *constants])
    body = _BodySparsity(results, [*carried, *constants], pattern)
    now = _flat([sets(c) for c in first if c.dtype.is_float])
    fixed = _flat([sets(k) for k in constants if k.dtype.is_float])
    while True:
        made = [a | b for a, b in zip(now, body([*now, *fixed]))]
        if made == now:
            break
        now = made
    ends = np.cumsum([0, *body.sizes]).tolist()
    return {i: now[ends[i] : ends[i + 1]] for i in range(n)}


def _flat(parts: Iterable[Sets]) -> Sets:
    return [s for part in parts for s in part]


def _size(u: UOp) -> int:
    return int(shapes.size(shapes.shape(u)))


# ---------------------------------------------------------------- operations
def operations(outputs: Sequence[UOp], inputs: Sequence[UOp]) -> int:
    """The elements computed between inputs and outputs. A loop counts all its steps, or one step if
    their number is unknown."""
    nodes = calls.graph_order(outputs, operands, stop=set(inputs).__contains__)
    counted, seen = 0, set()
    for u in nodes:
        if u.op is Ops.PRIMITIVE and u.arg.name in ("scan", "while"):
            key = u.arg.details[1:], u.src[1:]
            counted += 0 if key in seen else _of_steps(u)
            seen.add(key)
        elif u.dtype.is_float and (u.op.is_alu or u.op is Ops.REDUCE):
            counted += _size(u.src[0] if u.op is Ops.REDUCE else u)
    return counted


def _of_steps(u: UOp) -> int:
    once = operations(u.src[1].src, bodies.params(u.src[1]))
    steps = ScanParts(u.arg.details, u.src[1:]).length if u.arg.name == "scan" else 1
    return once * steps if isinstance(steps, int) else once


def has_while(outputs: Sequence[UOp]) -> bool:
    """True if the graph has a `while_loop`, for which there is no reverse mode."""
    nodes = calls.graph_order(outputs, lambda u: u.src)
    return any([u.op is Ops.PRIMITIVE and u.arg.name == "while" for u in nodes])
