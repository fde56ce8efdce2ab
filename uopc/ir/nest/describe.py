"""Makes the outline of a kernel at level `kernel`, before or after its Opts, in one walk.

Before: a kernel, with its ranges of the kinds loop, reduce, lane, upcast, unroll and so on.
After: an `Outline`, plain data without nodes.
"""

from __future__ import annotations

import math

from uopc.ir.core import dtypes, ranges
from uopc.ir.core.ops import DOTS, GroupOp, Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.arithmetic import DIVISIONS, chain, is_function, latency
from uopc.ir.nest.contractions import term
from uopc.ir.nest.loops import trips
from uopc.ir.nest.nest import Nest, nest_of
from uopc.ir.nest.outline import OUTSIDE, Accumulator, Held, Outline, Unit, UnitKind
from uopc.ir.nest.places import Places, is_loop
from uopc.ir.nest.references import COPIES, References

_QUOTIENTS = frozenset((Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD))
_KINDS: dict[Op, UnitKind] = {
    **dict.fromkeys(GroupOp.Comparison, "compare"), **dict.fromkeys(DIVISIONS, "div"),
    **dict.fromkeys(_QUOTIENTS, "quotient"), Ops.DOT4: "dot4", Ops.DOT2: "dot2",
}  # fmt: skip
# Operations on indices that an address does not take in; it takes sums and products.
_INDEX_OPS = frozenset((
    *GroupOp.Comparison, *_QUOTIENTS, Ops.WHERE, Ops.MIN, Ops.MAX, Ops.AND, Ops.OR, Ops.CAST,
))  # fmt: skip
_JOINS = frozenset((Ops.AND, Ops.OR, Ops.NEG))  # of conditions
_DOT_BITS = 32  # of a lane of DOT4 and DOT2
_SHUFFLE = 3.0  # cycles until lanes of a vector have changed places


def outline_of(kernel: UOp) -> Outline:
    """The outline of a kernel at level `kernel`, before or after its Opts."""
    walk = _Walk(nest_of(kernel))
    for u in walk.nest.order:
        walk.visit(u)
    walk.hold()
    walk.finish_chains()
    places, references = walk.places, walk.references
    shared = [r for r in walk.nest.ranges if r.arg.kind == "thread"]
    return Outline(
        places.bodies, places.outside, references.found, references.storages, int(trips(shared))
    )


class _Walk:
    """The nodes of a kernel, sources first: each adds what it does to the body that it is in."""

    def __init__(self, nest: Nest) -> None:
        self.nest, self.places = nest, Places(nest)
        self.references = References(self.places)
        self._accesses = {a.node: a for a in nest.accesses if len(a.index) == 1}
        self._users: dict[UOp, list[UOp]] = {}
        for u in nest.order:
            for s in dict.fromkeys(u.src):
                self._users.setdefault(s, []).append(u)
        self._conditions: set[UOp] = set()  # of indices
        # By value: the cycles from the beginning of an iteration of its body.
        self._since: dict[UOp, float] = {}

    def visit(self, u: UOp) -> None:
        """Add a node, after its sources."""
        if u.op is Ops.STORE and u.src[0] in self._accesses:
            self.references.add(self._accesses[u.src[0]], streamed=u.arg == "stream")
        elif u.op is Ops.INDEX:
            if u in self._accesses and not self._accesses[u].written:
                self.references.add(self._accesses[u])
                self._since[u] = self._before(u) + Ops.LOAD.latency
        elif u.op is Ops.REDUCE:
            self._reduce(u)
        elif self._is_condition(u):
            self._conditions.add(u)
            self._index(u)
        elif u.dtype.scalar is dtypes.index:
            self._index(u)
        elif u.op.is_alu or u.op is Ops.CAST:
            self._operation(u)

    # ------------------------------------------------------------ operations
    def _is_condition(self, u: UOp) -> bool:
        """True for a comparison of indices, and for what joins such comparisons."""
        if u.op in GroupOp.Comparison:
            return u.src[0].dtype.scalar is dtypes.index
        joins = u.op in _JOINS and u.dtype.kind == "bool"
        return joins and any(s in self._conditions for s in u.src)

    def _index(self, u: UOp) -> None:
        is_guard = u.op is Ops.WHERE and u.src[2].op is Ops.INVALID  # its condition counts
        if u.op in _INDEX_OPS and not is_guard:
            self._add(u, "quotient" if u.op in _QUOTIENTS else "index", 32)

    def _operation(self, u: UOp) -> None:
        """Add an operation on elements."""
        before, bits = self._before(u), _bits(u)
        if is_function(u):
            c = chain(u)
            self._add(u, "alu", bits, c.operations - c.divisions)
            self._add(u, "div", bits, c.divisions)
            self._since[u] = before + c.cycles
            return
        widest = max([bits, *map(_bits, u.src)])
        self._since[u] = before + latency(u)
        if self._joins_a_sum(u):
            self._add(u, "fmul", bits)
            self._since[u] = before
        elif u.op is Ops.CAST:
            narrow = u.dtype.scalar is dtypes.bfloat16 or u.dtype.scalar.itemsize == 1
            same = u.dtype.scalar.itemsize == u.src[0].dtype.scalar.itemsize
            self._add(u, "alu" if same else "shuffle", widest)
            self._add(u, "alu", widest, int(narrow))
        elif u.op is not Ops.BITCAST:
            kind = _KINDS.get(u.op, "alu")
            self._add(u, kind, bits if kind == "div" else _DOT_BITS if u.op in DOTS else widest)

    def _joins_a_sum(self, u: UOp) -> bool:
        """True for a product that one sum alone takes in: a multiply-add, if there are any."""
        users = self._users.get(u, [])
        if u.op is not Ops.MUL or not u.dtype.is_float or len(users) != 1:
            return False
        return users[0].op in (Ops.ADD, Ops.SUB)

    def _add(self, u: UOp, kind: UnitKind, bits: int, count: int = 1) -> None:
        """Add `count` operations for each copy of a node."""
        if count:
            unit = Unit(kind, _many(u, "lane"), bits)
            self.places.body(self.places.of(u)).units[unit] += count * _many(u, *COPIES)

    def _before(self, u: UOp) -> float:
        """The cycles until the operands of a node are there, within an iteration of its body."""
        mine = self.places.of(u)
        return max([self._since.get(s, 0.0) for s in u.src if self.places.of(s) == mine], default=0)

    # ------------------------------------------------------------ reduces
    def _reduce(self, u: UOp) -> None:
        """Add the accumulators of a REDUCE to its innermost loop, and what joins them after it."""
        closed = ranges.closed_ranges(u)
        looped = frozenset(filter(is_loop, closed))
        joined = trips([r for r in closed if r.arg.kind == "lane"])
        copies = trips([r for r in closed if r.arg.kind in COPIES])
        lanes, sums, bits = _many(u, "lane") * joined, _many(u, *COPIES), _bits(u)
        outside = self.places.body(self.places.of(u))
        inside = self.places.body(self.places.of_ranges(ranges.ranges(u) | looped))
        kind = self._fused_kind(u)
        added = sums * copies
        if not looped:  # the first copy has nothing to add to, but a multiply-add is counted whole
            added -= 0 if kind else sums
        inside.units[Unit(kind or "alu", lanes, bits)] += added
        wait = latency(u)
        if looped:
            inside.carried = max(inside.carried, wait)
            inside.accumulators.append(Accumulator(lanes, bits, sums, copies, kind is not None))
            outside.units[Unit("alu", lanes, bits)] += sums * (copies - 1)
        halvings = int(math.log2(joined))
        for name in ("shuffle", "alu") if halvings else ():
            outside.units[Unit(name, lanes, bits)] += sums * halvings
        tree = wait * math.ceil(math.log2(copies)) + (wait + _SHUFFLE) * halvings
        self._since[u] = self._before(u) + tree

    def _fused_kind(self, u: UOp) -> UnitKind | None:
        """The kind of the multiply-adds or dot products that a sum is made of; None of another
        REDUCE. The product is then no operation of its own."""
        value = term(u)
        product = value.op is Ops.MUL and value.dtype.is_float
        dot = value.op in DOTS
        if u.arg.op != "add" or not (product or dot) or len(self._users[value]) != 1:
            return None
        kind = _KINDS.get(value.op, "alu")
        bits = _DOT_BITS if dot else _bits(u)
        self._add(value, kind, bits, -1)
        if product:
            self._add(value, "fmul", bits)
        return kind

    # ------------------------------------------------------------ after the walk
    def hold(self) -> None:
        """Add to each loop the values from outside that it uses."""
        for u in self.nest.order:
            if not u.dtype.is_float or not (u.op.is_alu or u.op in (Ops.INDEX, Ops.REDUCE)):
                continue
            if u in self._accesses and self._accesses[u].written:
                continue
            mine = self.places.of(u)
            users = [v for v in self._users.get(u, []) if v.op is not Ops.STORE]
            for place in {self.places.of(v) for v in users} - {mine, OUTSIDE}:
                loop = self.places.bodies[place]
                if mine == OUTSIDE or mine in loop.around:
                    bits = u.dtype.scalar.itemsize * 8
                    loop.held.append(Held(_many(u, "lane"), bits, _many(u, *COPIES)))

    def finish_chains(self) -> None:
        """Set the longest chain of each body."""
        for u, cycles in self._since.items():
            body = self.places.body(self.places.of(u))
            body.chain = max(body.chain, cycles)


def _many(u: UOp, *kinds: str) -> int:
    """The combinations of the ranges of some kinds around a node."""
    return trips([r for r in ranges.ranges(u) if r.arg.kind in kinds])


def _bits(u: UOp) -> int:
    return max(8, u.dtype.scalar.itemsize * 8) if u.dtype.kind != "void" else 0
