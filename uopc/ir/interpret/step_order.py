"""The order in which a graph of loops is run: blocks of steps, where a step may be a loop.

A node is in the block of the loops that it depends on (`ranges.ranges`), and outside of all other
loops. A read of storage sees only the stores below it in the graph, through AFTER, and the stores
of earlier iterations of its loops. If another store ran before the read, the read takes a copy.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Union

from uopc.errors import InvalidIR, Unsupported
from uopc.ir.builder import index_maps
from uopc.ir.core import ranges, walk
from uopc.ir.core.calls import graph_order, operands
from uopc.ir.core.ops import Ops
from uopc.ir.core.serialize import content
from uopc.ir.core.storage import before_effects, storage_root, written_arguments
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.records import dataclass
from uopc.ir.verify.nodes import describe

Ranges = frozenset[UOp]
Step = Union[UOp, "Loop"]
# A read: the nodes below which are the stores that it sees, and the storage.
Read = tuple[tuple[UOp, ...], UOp]
Accesses = tuple[list[Read], set[UOp]]  # the reads of a step, and the storage that it writes
NUMBERS = frozenset((Ops.CONST, Ops.VARIABLE, Ops.BIND))  # arguments of a call without storage
LOADS = (Ops.LOAD, Ops.TILE_LOAD)
_EFFECTS = frozenset((Ops.STORE, Ops.CALL, Ops.END))
_BUNDLES = frozenset((Ops.SINK, Ops.GROUP, Ops.BARRIER, Ops.COMMIT, Ops.AFTER))
_TEAMS = frozenset(("local", "group", "grouptop"))


@dataclass(eq=False)
class StepBlock:
    """Steps in order, and all the accesses to storage in them and in their loops.

    `hidden`: (step, storage that it reads) → earlier steps whose stores to the storage the step
    must not see. `writes`: storage.
    """

    steps: list[Step] = field(default_factory=list)
    hidden: dict[tuple[UOp, UOp], set[UOp]] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    writes: set[UOp] = field(default_factory=set)


@dataclass(eq=False)
class Loop:
    """Ranges that run together over `body`; `node` is the END or REDUCE that closes the ranges.

    `fold`: for a REDUCE, the node whose value is combined. `carries`: each register with its next
    value. `in_order`: an iteration may depend on the previous iteration.
    """

    node: UOp
    ranges: tuple[UOp, ...]
    body: StepBlock
    fold: UOp | None = None
    carries: tuple[tuple[UOp, UOp], ...] = ()
    in_order: bool = False


# ---------------------------------------------------------------- storage accesses
def storage(u: UOp) -> UOp:
    """The PARAM, BUFFER or DATA under an address or a view; InvalidIR if there is no such storage.
    """
    root = storage_root(u.src[0] if u.op in LOADS else u)
    if not root.op.is_storage:
        raise InvalidIR(f"{u.op!r}: reads or writes {root.op!r}, which is not storage")
    return root


def indices(u: UOp) -> tuple[UOp, ...]:
    """All indices of an address, through INDEX of INDEX, outer dimension first."""
    out: tuple[UOp, ...] = ()
    while u.op in (Ops.AFTER, Ops.INDEX):
        out = (*u.src[1:], *out) if u.op is Ops.INDEX else out
        u = u.src[0]
    return out


def targets(call: UOp) -> set[UOp]:
    """The storage that a CALL of a kernel writes."""
    return set(map(storage, written_arguments(call)))


# ---------------------------------------------------------------- effects
def effects_of(effect: UOp) -> Iterator[UOp]:
    """The STOREs, CALLs and ENDs in a bundle of effects."""
    stack = [effect]
    while stack:
        u = stack.pop()
        if u.op in _BUNDLES:
            stack.extend(reversed(u.src))
        elif u.op in _EFFECTS:
            yield u


def sources(u: UOp) -> Sequence[UOp]:
    """The nodes that run before a step. For an END, the nodes before the effects that it closes."""
    if u.op is not Ops.END:
        return operands(u)
    return [*u.src[1:], *[s for effect in effects_of(u.src[0]) for s in sources(effect)]]


def _in_axis_order(loops: Sequence[UOp]) -> list[UOp]:
    return sorted(loops, key=lambda r: (r.arg.axis, content(r)))


def _groups(closer: UOp, loops: Sequence[UOp]) -> list[list[UOp]]:
    """Ranges, outer first, in groups: no end depends on another range of its group, and no effect
    stands inside some ranges of a group, and outside of others."""
    order = _in_axis_order(loops)
    last = {max(map(order.index, e)) for e in _inside(closer, frozenset(loops))}
    out: list[list[UOp]] = [[]]
    for number, r in enumerate(order):
        if number - 1 in last or any(other in ranges.ranges(r) for other in out[-1]):
            out.append([])
        out[-1].append(r)
    return out


def _inside(closer: UOp, loops: Ranges) -> set[Ranges]:
    """For each effect below a closer's effects: the loops around that effect."""
    if len(loops) < 2:
        return set()
    nodes = graph_order(sources(closer), sources, lambda u: ranges.ranges(u).isdisjoint(loops))
    return {ranges.ranges(u) & loops for u in nodes if u.op in _EFFECTS} - {frozenset()}


# ---------------------------------------------------------------- planning
class BlockBuilder:
    """Blocks of steps for graphs with ranges (levels indexed, kernel, vector)."""

    def __init__(self, root: UOp) -> None:
        # Addresses that stand for their element: operands of nodes that are not memory accesses.
        self.as_values: set[UOp] = set()
        for u in graph_order([root]):
            for i, s in enumerate(operands(u)):
                access = i == 0 and u.op in (Ops.STORE, Ops.INDEX, Ops.AFTER, *LOADS)
                if not access and before_effects(s).op is Ops.INDEX:
                    self.as_values.add(s)

    def program(self, root: UOp) -> StepBlock:
        """The block of a whole SINK; InvalidIR when a range in it is not closed."""
        effects = list(effects_of(root))
        for e in effects:
            for r in _in_axis_order(list(ranges.ranges(e))):
                raise InvalidIR(f"range {r.arg.axis} of {r.arg.kind} kind is never closed")
        return self.block(effects, frozenset(), None, frozenset(effects))

    def block(
        self, roots: Sequence[UOp], opened: Ranges, outer: Ranges | None, own: frozenset[UOp]
    ) -> StepBlock:
        """The block of nodes that depend on `opened` ranges, but not on `outer` ranges alone; and
        `own`."""

        def outside(u: UOp) -> bool:
            return outer is not None and u not in own and ranges.ranges(u) <= outer

        nodes = graph_order(roots, sources, outside)
        steps: dict[UOp, Step] = {}
        for u in nodes:
            if u.op is Ops.RANGE or outside(u):
                continue
            if u in own or ranges.ranges(u) <= opened:
                steps[u] = self._step(u, opened)
        out = StepBlock(list(steps.values()))
        accesses = {u: self._accesses(u, step) for u, step in steps.items()}
        for reads, writes in accesses.values():
            out.reads += reads
            out.writes |= writes
        if out.writes:
            out.hidden = _hidden(nodes, accesses)
        return out

    def _step(self, u: UOp, opened: Ranges) -> Step:
        if u.op is Ops.BARRIER and any(r.arg.kind in _TEAMS for r in ranges.ranges(u)):
            raise Unsupported("the interpreter does not run barriers between work-items yet")
        if u.op is not Ops.END and u.op is not Ops.REDUCE:
            return u
        closed = ranges.closed_ranges(u)
        for r in closed:
            if r in opened:
                raise InvalidIR(f"{u.op!r} closes range {r.arg.axis}, which is open around it")
        return self._loop(u, _groups(u, closed), opened) if closed or u.op is Ops.END else u

    def _loop(self, u: UOp, groups: list[list[UOp]], opened: Ranges) -> Loop:
        """The nest of a closer: one Loop per group of ranges, the first one outermost."""
        group, *inner = groups
        inside = opened.union(group)
        own = list(effects_of(u.src[0])) if u.op is Ops.END and not inner else []
        if inner:
            body = self.block(sources(u), inside, opened, frozenset())
            nest = self._loop(u, inner, inside)
            body.steps.append(nest)
            body.reads += nest.body.reads
            body.writes |= nest.body.writes
        else:
            body = self.block(own or u.src[:1], inside, opened, frozenset(own))
        fold = None if u.op is Ops.END else u if inner else u.src[0]
        in_order = any(base in body.writes for _, base in body.reads) or _collide(body)
        return Loop(u, tuple(group), body, fold, in_order=in_order)

    def _accesses(self, u: UOp, step: Step) -> Accesses:
        if isinstance(step, Loop):
            return step.body.reads, step.body.writes
        if u.op is Ops.CALL:
            return [(u.src[1:], storage(a)) for a in u.src[1:] if a.op not in NUMBERS], targets(u)
        if u.op is Ops.STORE:
            return [], {storage(u.src[0])}
        if u.op not in LOADS and u not in self.as_values:
            return [], set()
        view = u.src[0] if u.op in LOADS else u
        while view.op is Ops.INDEX:
            view = view.src[0]
        return [((view,), storage(u))], set()


def _collide(body: StepBlock) -> bool:
    """True if two stores of a loop may write one element, in different iterations."""
    known: dict[UOp, list[UOp]] = {}
    for u in _stores(body):
        target = before_effects(u.src[0])
        others = known.setdefault(storage(target), [])
        if not all([_apart(target, other) for other in others]):
            return True
        others.append(target)
    return False


def _stores(body: StepBlock) -> Iterator[UOp]:
    for step in body.steps:
        if isinstance(step, Loop):
            yield from _stores(step.body)
        elif step.op is Ops.STORE:
            yield step


def _apart(a: UOp, b: UOp) -> bool:
    """True if two addresses differ in an index for all values of their loops: 4·i and 4·j + 1."""
    one, two = indices(a), indices(b)
    for i, (x, y) in enumerate(zip(one, two)):
        (c, terms), (d, more) = (affine.form(index_maps.ungated(v)[0]) for v in (x, y))
        last = i == len(one) - 1
        wide, other = (a.dtype.lanes, b.dtype.lanes) if last else (1, 1)
        period = math.gcd(*terms.values(), *more.values())
        ahead = (d - c) % period if period else d - c
        if (ahead >= wide and (not period or ahead + other <= period)) or -ahead >= other:
            return len(one) == len(two)
    return False


def _hidden(nodes: list[UOp], accesses: dict[UOp, Accesses]) -> dict[tuple[UOp, UOp], set[UOp]]:
    """The earlier stores that steps must not see, for `StepBlock.hidden`.

    InvalidIR if a step reads storage both before and after a store.
    """
    writers: dict[UOp, list[UOp]] = {}  # storage → the steps that write it
    for u, (_, writes) in accesses.items():
        for base in writes:
            writers.setdefault(base, []).append(u)
    marked = [u for u, (_, writes) in accesses.items() if writes]
    bit = {u: 1 << i for i, u in enumerate(marked)}
    below = walk.marks_below(nodes, bit, sources)
    out: dict[tuple[UOp, UOp], set[UOp]] = {}
    done: set[UOp] = set()
    for u, (reads, _) in accesses.items():
        seen: dict[UOp, list[set[UOp]]] = {}
        for views, base in reads:
            known = functools.reduce(operator.or_, [below.get(v, 0) for v in views], 0)
            others = [w for w in writers.get(base, ()) if w is not u]
            seen.setdefault(base, []).append({w for w in others if known & bit[w]})
        for base, sets in seen.items():
            if any([s != sets[0] for s in sets]):
                raise InvalidIR(
                    f"{describe(u)}: reads storage both before and after a store to it"
                )
            hidden = done.intersection(writers.get(base, ())) - sets[0]
            if hidden:
                out[u, base] = hidden
        done.add(u)
    return out


# ---------------------------------------------------------------- level linear
def linear(root: UOp) -> StepBlock:
    """The plan of a LINEAR: its list, with a loop from each RANGE to its END, or InvalidIR."""
    top = StepBlock()
    stack: list[tuple[UOp | None, StepBlock]] = [(None, top)]
    for u in root.src:
        if u.op is Ops.RANGE:
            stack.append((u, StepBlock()))
        elif u.op is Ops.END:
            opened, body = stack.pop()
            if opened is None or u.src[0] is not opened:
                raise InvalidIR("END closes a loop that is not the innermost open one")
            pairs = tuple(zip(u.src[1::2], u.src[2::2]))
            stack[-1][1].steps.append(Loop(u, (opened,), body, carries=pairs, in_order=True))
        else:  # a node without sources has one value everywhere
            (stack[-1][1] if u.src else top).steps.append(u)
    if len(stack) > 1:
        raise InvalidIR(f"{len(stack) - 1} loops are never ended")
    return top
