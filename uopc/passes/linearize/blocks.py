"""The blocks of a kernel: its loops and branches, and the statements of each, in order.

A value stands in the innermost loop that it depends on; a loop stands in the innermost loop that
its contents depend on: work is done as far outside as possible. A value that only the last
operands of BRANCHes need stands inside their IF.
"""

from __future__ import annotations

from uopc.errors import InvalidIR
from uopc.ir.builder.rebuild import rebuild, renamed_ranges
from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.calls import applied, operands, outside_functions
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.branches import waits
from uopc.passes.analysis.stable_order import stable_order
from uopc.passes.linearize.list_schedule import by_latency
from uopc.passes.linearize.sum_chains import accumulating, in_turns

_MOVED = 3  # in the axis of a range: a copy for another place in the nest
_CLOSERS = frozenset((Ops.REDUCE, Ops.END))


class LoopTree:
    """The tree of loops: the parent of each range follows from the dependencies of its closers."""

    def __init__(self, order: list[UOp]) -> None:
        self.parent: dict[UOp, UOp | None] = {}
        self.depth: dict[UOp | None, int] = {None: 0}
        self.misplaced: dict[UOp | None, list[UOp]] = {}  # closers, by the parent they want
        self._innermost: dict[frozenset[UOp], UOp] = {}
        # Users come before their operands here, so outer loops are placed before inner ones.
        for u in reversed(order):
            if u.op in _CLOSERS and (closed := ranges.closed_ranges(u)):
                self._insert(u, sorted(closed, key=lambda r: r.arg.axis))

    def _insert(self, u: UOp, closed: list[UOp]) -> None:
        around = set().union(*[ranges.ranges(r) for r in closed], ranges.ranges(u.src[0]))
        parent = self.innermost(u, frozenset(around.difference(closed)))
        if self.parent.get(closed[0], parent) is not parent:
            self.misplaced.setdefault(parent, []).append(u)
            return
        for r in closed:
            self.parent[r] = parent
            self.depth[r] = self.depth[parent] + 1
            parent = r

    def innermost(self, u: UOp, ranges: frozenset[UOp]) -> UOp | None:
        """The deepest of some ranges, which must be one inside the other."""
        if not ranges:
            return None
        found = self._innermost.get(ranges)
        if found is None:
            missing = [r for r in ranges if r not in self.depth]
            if missing:
                raise InvalidIR(f"linearize: {missing[0]!r} must be closed around {u.op!r}")
            found = max(ranges, key=lambda r: (self.depth[r], r.arg.axis))
            self._innermost[ranges] = found
        return found


def separated(sink: UOp) -> tuple[UOp, LoopTree]:
    """The kernel with a separate loop for each position in the nest where a range is closed.

    Copies of a reduce share its range. A copy that no longer depends on an outer loop moves out of
    it, and then needs a loop of its own.
    """
    number = 0
    while True:
        loops = LoopTree(list(walk.order(sink)))
        if not loops.misplaced:
            return sink, loops
        closers = next(iter(loops.misplaced.values()))
        number += 1
        closed = [r for u in closers for r in ranges.closed_ranges(u)]
        renamed = renamed_ranges({r: (*r.arg.axis, _MOVED, number) for r in closed})
        group = intern(Ops.GROUP, dtypes.void, tuple(closers))
        sink = rebuild(sink, dict(zip(closers, rebuild(group, renamed).src)))


class Blocks:
    """The nodes of each block, in order; an inner block is an item of the block around it."""

    def __init__(self, sink: UOp, gpu: bool) -> None:
        self.gpu = gpu  # a GPU's assembler orders statements itself
        sink, self.loops = separated(sink)
        order = outside_functions(sink)
        self.adding = accumulating(order, gpu)  # products, and sums of them -> their REDUCE
        self.order = in_turns(order, self.adding)
        self.functions = applied(sink)
        self.closed = {
            u: c for u in self.order if u.op in _CLOSERS and (c := ranges.closed_ranges(u))
        }
        loops = self.loops
        self.home: dict[UOp, UOp | None] = {
            u: loops.parent.get(u) if u.op is Ops.RANGE else loops.innermost(u, ranges.ranges(u))
            for u in self.order
        }
        self.joined: dict[UOp, list[UOp]] = {}  # IF -> the BRANCHes after it
        self._insert_branches()
        self.rank = self._ranks()
        self.blocks: dict[UOp | None, list[UOp]] = {None: []}
        for u in (*self.joined, *self.order):
            if u.op.opens:
                self.blocks.setdefault(u, [])
            self.blocks.setdefault(self.home[u], []).append(u)

    def _insert_branches(self) -> None:
        """Open an IF per group of BRANCHes, and put inside what only their last operands need."""
        branches = [u for u in self.order if u.op is Ops.BRANCH]
        if not branches:
            return
        shared = len({u.src[1] for u in branches}) < len(branches)
        below = waits(self.order) if shared else {}
        opened: dict[object, UOp] = {}  # BRANCHes with equal keys share an IF
        used: dict[UOp, UOp | None] = {}  # the innermost block around all users
        for u in reversed(self.order):
            if u in used and u.op.pure:
                self.home[u] = self._innermost_if(used[u], self.home[u])
            block = self.inside_of(u)
            for s in u.src[:2] if u.op is Ops.BRANCH else operands(u):
                if used.setdefault(s, block) is not block:
                    used[s] = self._common(used[s], block)
            if u.op is Ops.BRANCH:
                key = u.src[1], self.home[u], below.get(u)
                if key not in opened:
                    opened[key] = self._opened(u, len(opened))
                made, s = opened[key], u.src[2]
                self.joined[made].insert(0, u)
                self.closed[u] = (made,)
                used[s] = self._common(used[s], made) if s in used else made

    def _opened(self, branch: UOp, number: int) -> UOp:
        """The IF of a BRANCH, in the block where it stands."""
        made = intern(Ops.IF, branch.src[1].dtype, branch.src[1:2], number)
        home = self.home[made] = self.loops.parent[made] = self.home[branch]
        self.loops.depth[made] = self.loops.depth[home] + 1
        self.joined[made] = []
        return made

    def _innermost_if(self, block: UOp | None, home: UOp | None) -> UOp | None:
        """The innermost block, from `block` outward, that stands in the same loops as `home`."""
        found = block
        while block is not home:
            assert block is not None
            outer = self.loops.parent[block]
            found = outer if block.op is Ops.RANGE else found
            block = outer
        return found

    def edges(self) -> dict[UOp, set[UOp]]:
        """item -> items of its block that must come before it. Operands in the same block are left
        out, because they come first in the depth-first walk anyway."""
        before: dict[UOp, set[UOp]] = {}
        home = self.home
        for u in self.order:
            closed, inside = self.closed.get(u), self.inside_of(u)
            for s in operands(u):
                if closed is None and home[s] is inside and s.op is not Ops.RANGE:
                    continue
                block = self._common(inside, home[s])
                if inside is block and home[u] is not block:
                    continue  # `u` closes the block itself
                x, y = self._item(u, inside, block), self._item(s, home[s], block)
                if x is not y:
                    before.setdefault(x, set()).add(y)
            if closed is not None:  # it is done once its outermost loop has ended
                outer = min(closed, key=lambda r: self.loops.depth[r])
                before.setdefault(u, set()).add(outer)
        return before

    def _item(self, u: UOp, inside: UOp | None, block: UOp | None) -> UOp:
        """The item of a block that contains a node: the node itself, or a block inside."""
        while inside is not block:
            assert inside is not None
            u, inside = inside, self.loops.parent[inside]
        return u

    def inside_of(self, u: UOp) -> UOp | None:
        """The block in which a node uses its operands. For a closer, the block that it closes."""
        closed = self.closed.get(u)
        return max(closed, key=lambda r: self.loops.depth[r]) if closed else self.home[u]

    def _common(self, a: UOp | None, b: UOp | None) -> UOp | None:
        """The innermost block around two others."""
        depth, parent = self.loops.depth, self.loops.parent
        while a is not b:
            if depth[a] < depth[b]:
                a, b = b, a
            assert a is not None
            a = parent[a]
        return a

    def sorted_block(self, block: UOp | None, before: dict[UOp, set[UOp]]) -> list[UOp]:
        """The items in topological order, as near to the depth-first walk as possible; usually the
        walk itself, unless an edge contradicts it."""
        items = sorted(self.blocks[block], key=self.rank.__getitem__)
        index = {u: i for i, u in enumerate(items)}
        if any([index.get(s, -1) >= index[u] for u in items for s in before.get(u, ())]):
            needed: dict[UOp, list[UOp]] = {}
            for u in items:
                operands = () if u in self.closed else [s for s in u.src if s.op is not Ops.RANGE]
                needed[u] = [s for s in {*before.get(u, ()), *operands} if s in index]
            items = stable_order(needed, index.__getitem__)
            if len(items) < len(index):
                raise InvalidIR("linearize: loops that share a range wait for each other")
        return items if self.gpu else by_latency(items, block)

    def _ranks(self) -> dict[UOp, int]:
        """The index in the depth-first walk; for a block, that of the last node that closes it."""
        rank = {u: i for i, u in enumerate(self.order)}
        for u, closed in self.closed.items():
            for r in closed:
                rank[r] = max(rank.get(r, 0), rank[u])
        return rank
