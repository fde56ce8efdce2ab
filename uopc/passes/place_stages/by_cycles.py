"""Values whose storage is decided by the predicted cycles of the kernels that result.

    conv(x) + conv(y)  →  stored: three kernels, two of them with tiles; computed in the sum: one
                          kernel without; the cheaper of both is taken

Where a value with a sum inside would be computed in another loop nest, its kernel may lose its
tile, which no rule about single values foresees. Such values are in doubt. They are stored unless
the kernels around them are cheaper without: values in doubt that have a reader in common are
decided together. Their kernels make a small program with all else as inputs, which the passes lower
up to the Opts of the schedule. Equal programs are asked once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from uopc.cost.machine import MachineFacts
from uopc.errors import Error
from uopc.ir.builder import leaves, rebuild
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern

# Another choice must save this share of the cycles: a cost that claims less says nothing.
GAIN = 0.03
# A sum is stored without asking if that takes at most this share of the time of its arithmetic.
CHEAP = 0.02
# Larger groups and programs are not asked, nor more programs of a group, or of a graph.
MOST_TOGETHER, MOST_NODES, MOST_OF_GROUP, MOST_OF_GRAPH = 8, 400, 12, 60
# Constants of more elements than this are inputs of the small program.
MOST_CONSTANT = 64

# Gives the predicted cycles of a program in which these of its values in doubt are stored or not.
Cycles = Callable[[UOp, Mapping[UOp, bool]], float]


class Doubt(NamedTuple):
    """A value in doubt: the values and stores that read it, whether it is stored so far, and the
    most cycles that its kernels save if it is not."""

    readers: set[UOp]
    stored: bool
    saved: float


class Decision(NamedTuple):
    """Whether a value in doubt is stored, and the predicted cycles of the kernels around it if it
    is, and if it is not, with all other values as decided; None for what was not asked."""

    stored: bool
    if_stored: float | None
    if_again: float | None


class Neighbours(NamedTuple):
    """Values in doubt, and the program of their kernels: its values by those of the graph."""

    doubts: list[UOp]
    program: UOp
    local: Mapping[UOp, UOp]


def decided(
    doubts: Mapping[UOp, Doubt], order: Sequence[UOp], stored: Mapping[UOp, str],
    cycles: Cycles,
) -> dict[UOp, Decision]:  # fmt: skip
    """The decisions on the values in doubt whose kernels are asked. `stored`: all values that have
    storage so far."""
    found: dict[UOp, Decision] = {}
    known: dict[UOp, dict[UOp, Decision]] = {}  # by program
    places = {u: i for i, u in enumerate(order)}
    asked = 0
    for group in _groups(doubts):
        if len(group) > MOST_TOGETHER:
            continue
        near = _neighbours(group, doubts, places, stored)
        if near is None:
            continue
        if near.program not in known:
            if asked > MOST_OF_GRAPH:
                continue
            choice = Choice(near.program, {near.local[u]: doubts[u] for u in near.doubts}, cycles)
            known[near.program] = choice.decisions()
            asked += len(choice.tried)
        found |= {u: known[near.program][near.local[u]] for u in near.doubts}
    return found


def _groups(doubts: Mapping[UOp, Doubt]) -> Iterator[list[UOp]]:
    """The values in doubt, those together that share a kernel."""
    inside: dict[UOp, list[UOp]] = {}  # reader -> the values in doubt in its kernel
    for u, doubt in doubts.items():
        for r in (u, *doubt.readers):
            inside.setdefault(r, []).append(u)
    seen: set[UOp] = set()
    for u in doubts:
        if u in seen:
            continue
        seen.add(u)
        group = [u]
        for v in group:  # which grows
            for r in (v, *doubts[v].readers):
                more = [w for w in inside.pop(r, ()) if w not in seen]
                seen.update(more)
                group += more
        yield group


def _neighbours(
    group: list[UOp], doubts: Mapping[UOp, Doubt], places: Mapping[UOp, int],
    stored: Mapping[UOp, str],
) -> Neighbours | None:  # fmt: skip
    """The program of a group of values; None if it is too large, or has sizes that vary. `places`:
    of each value in the order of the graph."""
    members = set(group)
    readers = set[UOp]().union(*[doubts[u].readers for u in group]) - members
    roots = {u.src[1] if u.op is Ops.STORE else u for u in readers}
    inner = members | roots
    sorted_roots = sorted([u for u in roots if u in places], key=places.__getitem__)
    nodes: dict[UOp, None] = {}

    def is_leaf(u: UOp) -> bool:
        return u not in inner and (u.op.is_storage or u.op is Ops.AFTER or u in stored)

    for u in sorted_roots:
        walk.toposort(u, lambda v: not is_leaf(v), nodes)
    if len(nodes) > MOST_NODES:
        return None
    done: dict[UOp, UOp] = {}
    for u in nodes:
        if not all([isinstance(d, int) for d in shapes.shape(u)]) or u.dtype is dtypes.void:
            return None
        if is_leaf(u) and not _is_small_constant(u):
            i = len(done)
            done[u] = leaves.param(i, u.dtype, shapes.shape(u), f"v{i}")
    outputs = [rebuild.rebuild_more(u, done) for u in sorted_roots]
    program = intern(Ops.SINK, dtypes.void, tuple(outputs))
    found = [u for u in nodes if u in members]
    return Neighbours(found, program, {u: done.get(u, u) for u in found})


def _is_small_constant(u: UOp) -> bool:
    return u.op is Ops.DATA and (not u.dtype.is_float or u.arg.array.size <= MOST_CONSTANT)


class Choice:
    """The choice for the values of a program that are in doubt."""

    def __init__(self, program: UOp, doubts: Mapping[UOp, Doubt], cycles: Cycles) -> None:
        self.program, self.doubts, self.cycles = program, doubts, cycles
        self.tried: dict[frozenset[UOp], float] = {}  # values that change -> cycles

    def decisions(self) -> dict[UOp, Decision]:
        """The cheapest choice for each value, and what it was compared with."""
        best = self.cheapest()
        found = {}
        for u, d in self.doubts.items():
            stored = d.stored != (u in best)
            own, other = self.tried.get(best), self.tried.get(best ^ {u})
            found[u] = Decision(stored, *((own, other) if stored else (other, own)))
        return found

    def cheapest(self) -> frozenset[UOp]:
        """The values that change: none, one after the other while it pays, all, all that are
        stored, or all that are not."""
        best = frozenset[UOp]()
        stored = frozenset([u for u, d in self.doubts.items() if d.stored])
        while len(self.tried) < MOST_OF_GROUP:
            more = [best ^ {u} for u in self.doubts]
            if not best:
                more += [stored, frozenset(self.doubts) - stored, frozenset(self.doubts)]
            more = [turned for turned in more if self._may_pay(turned, best)]
            least = min(more, key=self.ask, default=best)
            if self.ask(least) > (1.0 - GAIN) * self.ask(best):
                break
            best = least
        return best

    def _may_pay(self, turned: frozenset[UOp], best: frozenset[UOp]) -> bool:
        """True if the change may save a gain: less storage saves no more than the storing took."""
        change = turned ^ best
        removed = [u for u in change if self.doubts[u].stored == (u in turned)]
        saved = sum([self.doubts[u].saved for u in removed])
        return bool(change) and (len(removed) < len(change) or saved > GAIN * self.ask(best))

    def ask(self, turned: frozenset[UOp]) -> float:
        """The cycles of the program if these values change."""
        if turned not in self.tried:
            chosen = {u: d.stored != (u in turned) for u, d in self.doubts.items()}
            try:
                self.tried[turned] = self.cycles(self.program, chosen)
            except Error:
                self.tried[turned] = math.inf
        return self.tried[turned]


def storing(nbytes: float, machine: MachineFacts) -> float:
    """The cycles that storing a value and reading it back take at most."""
    taken = machine.launch + 2 * nbytes / machine.store_bytes + nbytes / machine.load_bytes
    for c in machine.caches:
        if not c.is_of_pages and nbytes > c.nbytes / 2:
            taken += nbytes / c.line * (2 * c.stream + c.written)
    return taken


def is_cheap_store(
    elements: float, evaluations: float, term_bytes: float, stored: float, machine: MachineFacts
) -> bool:
    """True if storing a value with a sum takes far less time than its sum, whatever the kernels.
    `stored`: the cycles of storing; `term_bytes`: of the terms of an element."""
    one = term_bytes / machine.multiply_bytes
    return evaluations >= elements and stored <= (evaluations - elements * (1.0 - CHEAP)) * one
