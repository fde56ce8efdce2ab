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
from uopc.cost.parts import UNKNOWN, Alternative, Comparison, Cost
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

# Gives the predicted cost of a program in which these of its values in doubt are stored or not.
CostOf = Callable[[UOp, Mapping[UOp, bool]], Cost]


class Doubt(NamedTuple):
    """A value in doubt: the values and stores that read it, whether it is stored so far, and the
    most cycles that its kernels save if it is not."""

    readers: set[UOp]
    stored: bool
    saved: float


class Decided(NamedTuple):
    """The choice for a value in doubt, and the ways that were compared for its group."""

    stored: bool
    comparison: Comparison


class Neighbours(NamedTuple):
    """Values in doubt, and the program of their kernels: its values by those of the graph."""

    doubts: list[UOp]
    program: UOp
    local: Mapping[UOp, UOp]


def decided(
    doubts: Mapping[UOp, Doubt], order: Sequence[UOp], stored: Mapping[UOp, str],
    cost_of: CostOf,
) -> dict[UOp, Decided]:  # fmt: skip
    """The values in doubt whose kernels are compared, each with the cheaper choice. `stored`: all
    values that have storage so far."""
    found: dict[UOp, Decided] = {}
    known: dict[UOp, Choice] = {}  # by program
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
            choice = Choice(near.program, {near.local[u]: doubts[u] for u in near.doubts}, cost_of)
            choice.decide()
            known[near.program] = choice
            asked += len(choice.tried)
        choice = known[near.program]
        comparison = choice.comparison({near.local[u]: u for u in near.doubts})
        for u in near.doubts:
            found[u] = Decided(doubts[u].stored != (near.local[u] in choice.best), comparison)
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

    def __init__(self, program: UOp, doubts: Mapping[UOp, Doubt], cost_of: CostOf) -> None:
        self.program, self.doubts, self.cost_of = program, doubts, cost_of
        self.tried: dict[frozenset[UOp], Cost] = {}  # values that change -> the program's cost
        self.best = frozenset[UOp]()  # the values that change

    def decide(self) -> None:
        """Find the values that change: none, one after the other while it pays, all, all that are
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
        self.best = best

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
                self.tried[turned] = self.cost_of(self.program, chosen)
            except Error:
                self.tried[turned] = UNKNOWN
        return self.tried[turned].cycles

    def comparison(self, names: Mapping[UOp, UOp]) -> Comparison:
        """The ways that were tried. `names`: the values of the graph by those of the program."""
        ways = []
        for turned, cost in self.tried.items():
            stored = tuple([names[u] for u, d in self.doubts.items() if d.stored != (u in turned)])
            words = "stored" if stored else "computed again"
            if stored and len(self.doubts) > 1:
                words = "all stored" if len(stored) == len(self.doubts) else "stored alone:"
            values = stored if words.endswith(":") else ()
            ways.append(Alternative(words, cost, values))
        usual, taken = self.tried[frozenset()].cycles, self.tried[self.best].cycles
        why = f"no other way saves {GAIN:.0%}"
        if self.best:
            saved = 1.0 if usual == math.inf else 1.0 - taken / usual
            why = f"saves {saved:.0%}"
        return Comparison(tuple(ways), list(self.tried).index(self.best), why)


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
