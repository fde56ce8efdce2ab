"""Calls of programs that compute sizes: the launches up to where a size is known, its value from
memory, then those that need it.

A result whose shape depends on such a size is made once that is known: it owns exactly its memory.
"""

from __future__ import annotations

import ctypes
from array import array as packed
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from uopc.backends import memory_plan
from uopc.backends.cpu.arguments import BoundArguments, check_bounds, check_condition, shape_of
from uopc.backends.cpu.array_memory import NOTHING, new_result
from uopc.backends.cpu.layout import data_address
from uopc.backends.cpu.native import install
from uopc.backends.plan import Dim, DimValue, Length, Plan, ResultArray, Variable, value_of

# Runs the launches of a call: the address of the bases, and the values of the variables.
Observer = Callable[[int, Mapping[str, int]], None]


class LaunchRun(NamedTuple):
    """Launches that run without a stop. `results`: the fresh results, by number, whose sizes are
    known before them. `table`: the words of the launches, with 0 for the `sizes` of a call, which
    have places in it. `lengths`: those known after the launches."""

    results: list[tuple[int, ResultArray]]
    table: npt.NDArray[np.int64]
    sizes: list[tuple[int, DimValue]]
    lengths: list[Length]


def launch_runs(plan: Plan, words: Callable[..., list[Dim]]) -> list[LaunchRun]:
    """The launches of a program, cut where lengths become known; `words` makes those of a table."""
    made, begin, left = [], 0, dict(enumerate(plan.fresh))
    unknown = {x.name for x in plan.lengths}
    for end in (*dict.fromkeys([x.launch for x in plan.lengths]), len(plan.launches)):
        inside = [r for r in plan.repeats if begin <= r.first and r.end <= end]
        repeats = [replace(r, first=r.first - begin, end=r.end - begin) for r in inside]
        found = words(plan.launches[begin:end], tuple(repeats))
        known = [i for i, r in left.items() if unknown.isdisjoint(_names(r.shape))]
        lengths = [x for x in plan.lengths if x.launch == end and x.name in unknown]
        made.append(LaunchRun(
            [(i, left.pop(i)) for i in known],
            np.array([w if isinstance(w, int) else 0 for w in found], np.int64),
            [(i, w) for i, w in enumerate(found) if not isinstance(w, int)], lengths,
        ))  # fmt: skip
        unknown -= {x.name for x in lengths}
        begin = end
    return made


def _names(dims: Iterable[Dim]) -> set[str]:
    """The variables of sizes."""
    return {name for d in dims if not isinstance(d, int) for name in d.variables}


class SizedCall:
    """One call: the sizes that are known so far, and the results that they allow to make."""

    def __init__(
        self, plan: Plan, bound: BoundArguments, arena: int, constants: Sequence[int]
    ) -> None:
        self.plan, self.bound, self.values = plan, bound, dict(bound.values)
        self.origins = dict.fromkeys(bound.values, "the arguments")
        self.outs = [o for r, o in zip(plan.results, bound.outs) if r.source is None]
        arrays = [*bound.arrays, *self.outs]
        given = [data_address(a) if a is not None and a.size else NOTHING for a in arrays]
        self.bases = packed("q", [*given, arena, *constants])
        self.read = [data_address(a) for a in bound.arrays if a.nbytes >= memory_plan.LARGE]

    def run(self, runs: Sequence[LaunchRun], through: Observer | None) -> object:
        """The value of the call. `through` runs all launches once more, when all sizes are known;
        arrays that the program writes are then as they were before."""
        written = [
            a for a, given in zip(self.bound.arrays, self.plan.arguments)
            if given.writable and through is not None
        ]  # fmt: skip
        before = [a.copy() for a in written]
        bases, _ = self.bases.buffer_info()
        native = install().run if self.plan.nogil else install().run_holding
        for results, table, sizes, lengths in runs:
            self._make(results)
            if sizes:
                table = table.copy()
                for place, size in sizes:
                    table[place] = size.evaluate(self.values)
            native(data_address(table), bases)
            self._note(lengths)
        if through is not None:
            for array, old in zip(written, before):
                array[...] = old
            through(bases, self.values)
        shapes = [shape_of(r.shape, self.values) for r in self.plan.results]
        return self.bound.results(self.plan, shapes, self.outs, self.bound.arrays.__getitem__)

    def _make(self, results: Iterable[tuple[int, ResultArray]]) -> None:
        """Make results whose sizes are known."""
        for i, result in results:
            if self.outs[i] is None:
                shape = shape_of(result.shape, self.values)
                made = self.outs[i] = new_result(self.plan.name, shape, result.dtype, self.read)
                at = len(self.plan.arguments) + i
                self.bases[at] = data_address(made) if made.size else NOTHING

    def _note(self, lengths: Sequence[Length]) -> None:
        """Read lengths from memory. UserError for one out of its bounds, and where a condition of
        the graph does not hold."""
        for x in lengths:
            address = self.bases[x.at.base] + value_of(x.at.offset, self.values)
            value = ctypes.c_int64.from_address(address).value
            check_bounds(Variable(x.name, x.lo, x.hi), value, "the program")
            self.values[x.name], self.origins[x.name] = value, "the program"
        names, known = {x.name for x in lengths}, self.values.keys()
        for c in self.plan.conditions if lengths else ():
            needed = _names((c.left, c.right))
            if needed & names and needed <= known:
                check_condition(c, self.values, self.origins)
