"""The loops of a kernel as a tree: each node of the kernel is placed in its innermost loop.

    y = (Σ over k of a[k]) · (Σ over k of b[k])      one RANGE k, two loops

A range that several REDUCEs or ENDs close is a loop for each.
"""

from __future__ import annotations

import itertools

import numpy as np

from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.evaluate import Array, evaluate
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.loops import by_axis, most_of
from uopc.ir.nest.nest import Nest
from uopc.ir.nest.outline import OUTSIDE, Body

# Ranges whose iterations run at the same time: a thread runs one.
_PARALLEL = ("thread", "global", "local", "group", "grouptop", "warp")
_LOOPS = ("loop", "reduce", "outer", *_PARALLEL)
_SAMPLES = 24  # values of each loop on which a loop's length depends
_LEAVES = frozenset((Ops.CONST, Ops.RANGE))

Path = tuple[UOp, ...]  # the ranges around code, outer first


class Places:
    """The loops of a kernel, numbered in the order in which nodes of the kernel need them."""

    def __init__(self, nest: Nest) -> None:
        self.bodies: list[Body] = []
        self.outside = Body()
        self._numbers: dict[Path, int] = {}
        self._paths: list[Path] = []
        self._chains: dict[frozenset[UOp], Path] = {}
        self._found: dict[frozenset[UOp], int] = {}
        # By REDUCE or END: the loops around it, and the loops that it closes.
        self._closers: list[tuple[frozenset[UOp], list[UOp]]] = []
        for u in (*nest.reduces, *nest.ends):
            closed = sorted(filter(is_loop, ranges.closed_ranges(u)), key=by_axis)
            self._closers.append((frozenset(filter(is_loop, ranges.ranges(u))), closed))

    def of(self, u: UOp) -> int:
        """The innermost loop around a node."""
        return self.of_ranges(ranges.ranges(u))

    def of_ranges(self, around: frozenset[UOp]) -> int:
        """The innermost loop around code in these ranges."""
        if around not in self._found:
            loops = frozenset(filter(is_loop, around))
            self._found[around] = self._number(self._chain(loops))
        return self._found[around]

    def body(self, number: int) -> Body:
        """A loop by its number, or the code outside of all loops."""
        return self.outside if number == OUTSIDE else self.bodies[number]

    def numbers(self, number: int) -> dict[UOp, int]:
        """The loops around the statements of a body, by their ranges."""
        path = () if number == OUTSIDE else self._paths[number]
        return {r: self._numbers[path[: i + 1]] for i, r in enumerate(path)}

    def _chain(self, loops: frozenset[UOp]) -> Path:
        """The loops around code that needs some: the least nest that has all of these."""
        if not loops or loops in self._chains:
            return self._chains.get(loops, ())
        self._chains[loops] = tuple(sorted(loops, key=by_axis))  # for a nest that needs itself
        found: list[Path] = []
        for outer, closed in self._closers:
            if not loops.isdisjoint(closed) and loops <= outer | set(closed):
                last = max(i for i, r in enumerate(closed) if r in loops)
                found.append((*self._chain(outer), *closed[: last + 1]))
        self._chains[loops] = min(found, key=len, default=self._chains[loops])
        return self._chains[loops]

    def _number(self, path: Path) -> int:
        if not path:
            return OUTSIDE
        if path not in self._numbers:
            around = tuple([self._number(path[:i]) for i in range(1, len(path))])
            self._numbers[path] = len(self.bodies)
            self._paths.append(path)
            self.bodies.append(Body(_length(path[-1]), around))
        return self._numbers[path]


def is_loop(r: UOp) -> bool:
    """True for a range that is a loop of code, not lanes or copies of a statement."""
    return r.arg.kind in _LOOPS


def _length(r: UOp) -> float:
    """The mean number of iterations of a loop, over the iterations of the loops around it."""
    if r.arg.kind in _PARALLEL:
        return 1.0
    outer = sorted(ranges.ranges(r.src[0]), key=by_axis)[:2]
    found = values_at(r.src[0], outer, [_sample(most_of(q)) for q in outer]) if outer else None
    return float(most_of(r)) if found is None else float(np.maximum(found, 0).mean())


def _sample(length: int) -> list[int]:
    """Values of a loop, some of them if there are many, with the first and the last."""
    if length <= _SAMPLES:
        return list(range(length))
    return sorted({i * (length - 1) // (_SAMPLES - 1) for i in range(_SAMPLES)})


def values_at(index: UOp, loops: list[UOp], turns: list[list[int]]) -> Array | None:
    """The values of an index for all combinations of the iterations of some loops, other loops at
    0. None if storage or a variable decides."""
    nodes = walk.toposort(index)
    if any(not (u.op in _LEAVES or u.op.is_alu or u.op is Ops.CAST) for u in nodes):
        return None
    points = np.array(list(itertools.product(*turns)), dtypes.index.numpy)
    known = {u: np.zeros(len(points)) for u in nodes if u.op is Ops.RANGE}
    known |= {r: points[:, i] for i, r in enumerate(loops)}
    return np.broadcast_to(evaluate(index, known)[0], len(points))
