"""Put a kernel in execution order: RANGE opens a loop, END closes it, registers carry reduces.

Before (vector)                            After (linear)
  %1 = param "" slot=0 : f32[1]              linear name=r_8 opts=() {
  %2 = param "" slot=1 : f32[8]                %1 = param "" slot=0 : f32[1]
  %3 = range 8 axis=1 kind=reduce : index      %2 = const 0 : index
  %4 = load %2[%3] : f32                       %3 = index %1, 0 : f32
  %5 = reduce.add %4 over %3 : f32             %4 = param "" slot=1 : f32[8]
  %6 = store %1[0], %5                         %5 = const 8 : index
  sink %6 name=r_8 opts=()                     %6 = range 8 axis=1 kind=reduce : index
                                                 %7 = const 0.0 : f32
                                                 %8 = carry 0.0:f32, %6 id=1 : f32
                                                 %9 = index %4, %6 : f32
                                                 %10 = load %9 : f32
                                                 %11 = add %8, %10 : f32
                                               end %6, %8, %11
                                               store %3, %8
                                             }

A value stands in the innermost loop that it depends on; a loop stands in the innermost loop that
what it computes depends on, so work is done as far outside as it can. Inside a loop the order is
that of a depth-first walk from the stores: an operand stands shortly before its first use.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from uopc.errors import InvalidIR
from uopc.ir.builder import leaves
from uopc.ir.builder.rebuild import rebuild, renamed_ranges
from uopc.ir.core import bounds, dtypes, ranges, semantics, walk
from uopc.ir.core.levels import LINEAR, VECTOR
from uopc.ir.core.ops import PURE, Op, Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.branches import waits
from uopc.passes.contract import Context, Pass
from uopc.passes.linearize.list_schedule import by_latency
from uopc.passes.linearize.wmma_chains import accumulating

_MOVED = 3  # in the axis of a range: a copy for another place in the nest
_CLOSERS = frozenset((Ops.REDUCE, Ops.END))
_NO_STATEMENTS = frozenset((Ops.END, Ops.GROUP, Ops.SINK, Ops.BRANCH))  # of their own
_MEETINGS = frozenset((Ops.BARRIER, Ops.COMMIT))
_DONE_AGAIN = frozenset((Ops.LOAD, Ops.TILE_LOAD, *_MEETINGS))


class _Loops:
    """The tree of loops: the parent of each range, found from what its closers depend on."""

    def __init__(self, order: list[UOp]) -> None:
        self.parent: dict[UOp, UOp | None] = {}
        self.depth: dict[UOp | None, int] = {None: 0}
        self.misplaced: dict[UOp | None, list[UOp]] = {}  # closers, by the parent they want
        self._innermost: dict[frozenset[UOp], UOp] = {}
        # Users come before their operands here, so outer loops are placed before inner ones.
        for u in reversed(order):
            if u.op in _CLOSERS and (closed := ranges.closed_ranges(u)):
                self._place(u, sorted(closed, key=lambda r: r.arg.axis))

    def _place(self, u: UOp, closed: list[UOp]) -> None:
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
                raise InvalidIR(f"linearize: {missing[0]!r} is never closed around {u.op!r}")
            found = max(ranges, key=lambda r: (self.depth[r], r.arg.axis))
            self._innermost[ranges] = found
        return found


def separated(sink: UOp) -> tuple[UOp, _Loops]:
    """The kernel with a loop of its own for each place in the nest where a range is closed.

    Copies of a reduce share its range; one that stopped depending on an outer loop moves out of
    it, and then needs another loop than the rest.
    """
    number = 0
    while True:
        loops = _Loops(list(walk.order(sink)))
        if not loops.misplaced:
            return sink, loops
        closers = next(iter(loops.misplaced.values()))
        number += 1
        closed = [r for u in closers for r in ranges.closed_ranges(u)]
        renamed = renamed_ranges({r: (*r.arg.axis, _MOVED, number) for r in closed})
        group = intern(Ops.GROUP, dtypes.void, tuple(closers))
        sink = rebuild(sink, dict(zip(closers, rebuild(group, renamed).src)))


class _Schedule:
    """Nodes by loop, and loops as items of the loop around them, each block in order."""

    def __init__(self, sink: UOp, gpu: bool) -> None:
        self.gpu = gpu  # its assembler orders statements itself
        sink, self.loops = separated(sink)
        self.order = list(walk.order(sink))
        self.closed = {
            u: c for u in self.order if u.op in _CLOSERS and (c := ranges.closed_ranges(u))
        }
        self.home: dict[UOp, UOp | None] = {}
        for u in self.order:
            is_loop = u.op is Ops.RANGE
            innermost = self.loops.innermost
            self.home[u] = self.loops.parent.get(u) if is_loop else innermost(u, ranges.ranges(u))
        self.joined: dict[UOp, list[UOp]] = {}  # IF -> the BRANCHes behind it
        self._place_branches()
        self.rank = self._ranks()
        self.blocks: dict[UOp | None, list[UOp]] = {None: []}
        for u in (*self.joined, *self.order):
            if u.op.opens:
                self.blocks.setdefault(u, [])
            self.blocks.setdefault(self.home[u], []).append(u)

    def _place_branches(self) -> None:
        """Put BRANCHes behind IFs, and inside an IF what only its BRANCHes need of it."""
        branches = [u for u in self.order if u.op is Ops.BRANCH]
        if not branches:
            return
        below = waits(self.order)
        opened: dict[object, UOp] = {}
        used: dict[UOp, UOp | None] = {}  # the innermost block around all users
        for u in reversed(self.order):
            if u in used and u.op in PURE:
                self.home[u] = self._innermost_if(used[u], self.home[u])
            inside = home = self.home[u]
            if u.op is Ops.BRANCH:
                condition = u.src[1]
                block = opened.setdefault(
                    (condition, home, below[u]),
                    intern(Ops.IF, condition.dtype, (condition,), len(opened)),
                )
                self.home[block] = self.loops.parent[block] = home
                self.loops.depth[block] = self.loops.depth[home] + 1
                self.joined.setdefault(block, []).insert(0, u)
                self.closed[u] = (block,)
            elif u in self.closed:
                inside = self.inside_of(u)
            for i, s in enumerate(u.src):
                where = self.closed[u][0] if u.op is Ops.BRANCH and i == 2 else inside
                used[s] = self._common(used[s], where) if s in used else where

    def _innermost_if(self, block: UOp | None, home: UOp | None) -> UOp | None:
        """The innermost of the blocks around `block` that is in no other loop than `home` is."""
        found = block
        while block is not home:
            assert block is not None
            outer = self.loops.parent[block]
            found = outer if block.op is Ops.RANGE else found
            block = outer
        return found

    def item(self, u: UOp, block: UOp | None) -> UOp:
        """What stands for a node in a block around it: itself, or the loop it is in."""
        child, home = u, self.home[u]
        while home is not block:
            assert home is not None
            child, home = home, self.loops.parent[home]
        return child

    def edges(self) -> dict[UOp, set[UOp]]:
        """item -> the items of its block that come before it, without operands in the same block,
        which come before it in the depth-first walk anyway."""
        before: dict[UOp, set[UOp]] = {}
        home = self.home
        for u in self.order:
            closed = self.closed.get(u)
            inside = home[u] if closed is None else self.inside_of(u)
            for s in u.src:
                if closed is not None or home[s] is not inside or s.op is Ops.RANGE:
                    self._link(before, u, s)
            if closed is not None:  # it has happened when its outermost loop has ended
                outer = min(closed, key=lambda r: self.loops.depth[r])
                before.setdefault(u, set()).add(outer)
        return before

    def _link(self, before: dict[UOp, set[UOp]], user: UOp, source: UOp) -> None:
        a, b = self.inside_of(user), self.home[source]
        block = self._common(a, b)
        x = self._item_from(user, a, block)
        y = self.item(source, block)
        if x is not y and x is not None:
            before.setdefault(x, set()).add(y)

    def inside_of(self, u: UOp) -> UOp | None:
        """The loop in which a node uses its operands: closers use them inside their loops."""
        closed = self.closed.get(u)
        return max(closed, key=lambda r: self.loops.depth[r]) if closed else self.home[u]

    def _common(self, a: UOp | None, b: UOp | None) -> UOp | None:
        depth, parent = self.loops.depth, self.loops.parent
        while a is not b:
            if depth[a] >= depth[b]:
                assert a is not None
                a = parent[a]
            else:
                assert b is not None
                b = parent[b]
        return a

    def _item_from(self, user: UOp, inside: UOp | None, block: UOp | None) -> UOp | None:
        if inside is block:
            return user if self.home[user] is block else None
        child = inside
        while child is not None and self.loops.parent[child] is not block:
            child = self.loops.parent[child]
        return child

    def sorted_block(self, block: UOp | None, before: dict[UOp, set[UOp]]) -> list[UOp]:
        """Topological order; among what is ready, the order of the depth-first walk. Mostly it is
        that order: then the edges that it does not imply say so."""
        items = sorted(self.blocks[block], key=self.rank.__getitem__)
        place = {u: i for i, u in enumerate(items)}
        for u in items:
            if u in before and any([place.get(s, -1) >= place[u] for s in before[u]]):
                items = self._reordered(self.blocks[block], before)
                break
        return items if self.gpu else by_latency(items, block)

    def _reordered(self, items: list[UOp], before: dict[UOp, set[UOp]]) -> list[UOp]:
        """The items of a block where loops stand elsewhere than in the depth-first walk."""
        members = set(items)
        users: dict[UOp, list[UOp]] = {u: [] for u in items}
        waiting: dict[UOp, int] = {}
        for u in items:
            operands = () if u in self.closed else [s for s in u.src if s.op is not Ops.RANGE]
            needed = [s for s in {*before.get(u, ()), *operands} if s in members]
            waiting[u] = len(needed)
            for s in needed:
                users[s].append(u)
        rank = self.rank
        ready = [(rank[u], i) for i, u in enumerate(items) if not waiting[u]]
        number = {u: i for i, u in enumerate(items)}
        heapq.heapify(ready)
        out: list[UOp] = []
        while ready:
            u = items[heapq.heappop(ready)[1]]
            out.append(u)
            for v in users[u]:
                waiting[v] -= 1
                if not waiting[v]:
                    heapq.heappush(ready, (rank[v], number[v]))
        if len(out) < len(items):
            raise InvalidIR("linearize: loops that share a range wait for each other")
        return out

    def _ranks(self) -> dict[UOp, int]:
        """The place in the depth-first walk; a loop's is that of the last node that closes it."""
        rank = {u: i for i, u in enumerate(self.order)}
        for u, closed in self.closed.items():
            for r in closed:
                rank[r] = max(rank.get(r, 0), rank[u])
        return rank


class _Emitter:
    """The ordered list, with reduces as carried registers."""

    def __init__(self, schedule: _Schedule) -> None:
        self.schedule = schedule
        self.before = schedule.edges()
        self.made: dict[UOp, UOp] = {}
        self.out: list[UOp] = []
        self.carries: dict[UOp, list[tuple[UOp, UOp]]] = {}
        self.reduces: dict[UOp, list[UOp]] = {}
        self.number = 0
        for u, closed in schedule.closed.items():
            if u.op is Ops.REDUCE:
                for r in closed:
                    self.reduces.setdefault(r, []).append(u)
        self.carried: dict[tuple[UOp, UOp], UOp] = {}
        self.adding = accumulating(schedule.order)  # WMMAs, and sums of them -> their REDUCE
        self.latest: dict[UOp, UOp] = {}  # what such a REDUCE has added up so far
        self.opened: dict[UOp, UOp] = {}  # block that is a branch -> its IF
        self.scope: dict[UOp, UOp | None] = {}  # the loop that what was made stands in
        self.ended: set[UOp | None] = set()

    def run(self) -> list[UOp]:
        """Blocks are walked with a stack of iterators: loops may nest deeper than Python does."""
        stack: list[tuple[UOp | None, Iterator[UOp]]] = []
        stack.append((None, iter(self.schedule.sorted_block(None, self.before))))
        while stack:
            block, items = stack[-1]
            for u in items:
                if u in self.schedule.loops.parent:
                    self._open(u)
                    stack.append((u, iter(self.schedule.sorted_block(u, self.before))))
                    break
                self._emit(u)
            else:
                stack.pop()
                if block is not None:
                    self._close(block)
        return self.out

    def _append(self, u: UOp) -> UOp:
        self.out.append(u)
        return u

    def _open(self, r: UOp) -> None:
        if _is_branch(r):
            self._open_branch(r)
        else:
            src = tuple([self.made[s] for s in r.src])
            self.made[r] = self._append(intern(Ops.RANGE, r.dtype, src, r.arg))
        for u in self.reduces.get(r, ()):
            outer = self._around(u, r)
            initial = self.carried[(u, outer)] if outer is not None else self._first(u)
            if r in self.opened:
                self.carried[(u, r)] = initial
                continue
            self.number += 1
            made = intern(Ops.CARRY, u.dtype, (initial, self.made[r]), self.number)
            self.carried[(u, r)] = self._append(made)

    def _open_branch(self, r: UOp) -> None:
        """An IF, or a RANGE that is one: its only number is 0."""
        end = r.src[0]
        if r.op is Ops.RANGE:
            zero = self.made[r] = self._constant(leaves.const(r.dtype, 0))
            if end.op is Ops.CAST and end.src[0].dtype is dtypes.bool_:
                condition = self.made[end.src[0]]
            else:
                test = intern(Ops.CMPLT, dtypes.bool_, (zero, self.made[end]))
                condition = self._append(test)
        else:
            condition = self.made[end]
        self.number += 1
        opened = intern(Ops.IF, dtypes.bool_, (condition,), self.number)
        self.opened[r] = self._append(opened)

    def _constant(self, value: UOp) -> UOp:
        if value not in self.made:
            self.made[value] = self._append(value)
        return value

    def _first(self, u: UOp) -> UOp:
        """What the register of a REDUCE holds before its loops."""
        value = leaves.const(u.dtype.scalar, semantics.reduce_identity(u.arg.op, u.dtype.scalar))
        if u.dtype.lanes > 1:
            value = intern(Ops.CONST, u.dtype, (), (value.arg,) * u.dtype.lanes)
        return self._constant(value)

    def _around(self, u: UOp, r: UOp) -> UOp | None:
        """The next outer loop of the same reduce."""
        parent = self.schedule.loops.parent[r]
        return parent if parent is not None and parent in u.src[1:] else None

    def _so_far(self, total: UOp) -> UOp:
        """What a REDUCE has added up by now in its innermost loop."""
        if total in self.latest:
            return self.latest[total]
        inside = self.schedule.inside_of(total)
        assert inside is not None
        return self.carried[(total, inside)]

    def _close(self, r: UOp) -> None:
        self.ended.add(r)
        pairs: list[UOp] = []
        for u in self.reduces.get(r, ()):
            inner = next((q for q in u.src[1:] if self.schedule.loops.parent[q] is r), None)
            carry = self.carried[(u, r)]
            if inner is not None:
                following = self.carried[(u, inner)]
            elif u in self.latest:
                following = self.latest[u]
            else:
                op, value = Op.by_name(u.arg.op), self.made[u.src[0]]
                # Code for extremes looks at the first operand for NaN: not at the carried one, on
                # which the next iteration waits.
                pair = (value, carry) if op in (Ops.MAX, Ops.MIN) else (carry, value)
                following = self._append(intern(op, u.dtype, pair))
            pairs += [carry, following]
        if r not in self.opened:
            self._append(intern(Ops.END, dtypes.void, (self.made[r], *pairs)))
            return
        self._append(intern(Ops.ENDIF, dtypes.void, (self.opened[r],)))
        for u, before, inside in zip(self.reduces.get(r, ()), pairs[::2], pairs[1::2]):
            self.carried[(u, r)] = self._joined(before, r, inside)
        for u in self.schedule.joined.get(r, ()):
            self.made[u] = self._joined(self.made[u.src[0]], r, self.made[u.src[2]])
            self.made[u].origin = u.origin

    def _joined(self, before: UOp, block: UOp, inside: UOp) -> UOp:
        """The value behind a branch: from before it, or from inside."""
        src = (before, self.opened[block], inside)
        return self._append(intern(Ops.BRANCH, before.dtype, src))

    def _emit(self, u: UOp) -> None:
        op, operands, made_of = u.op, u.src, self.made
        if op in _NO_STATEMENTS:
            return
        if op is Ops.REDUCE:
            outer = min(operands[1:], key=lambda r: self.schedule.loops.depth[r])
            made_of[u] = self.carried[(u, outer)]
            return
        if op in _MEETINGS:  # where loops and bundles end is known now
            operands = tuple([s for s in operands if s.op not in (Ops.END, Ops.GROUP)])
        elif op is Ops.AFTER:
            operands = (operands[0], *_loops_entered(u))
            if len(operands) == 1:
                made_of[u] = made_of[operands[0]]
                return
        total = self.adding.get(u)
        if total is not None and op is Ops.ADD:  # its terms were added up one by one
            made_of[u] = self.latest[total]
            return
        src = tuple([made_of[s] for s in operands])
        if total is not None:
            src = (*src, self._so_far(total))
        made = u if src == u.src else intern(op, u.dtype, src, u.arg, u.tag)
        again = op in _DONE_AGAIN and made in made_of
        if again or self.scope.get(made) in self.ended:
            self.number += 1  # the same place, after another store or loop; another meeting
            made = intern(op, u.dtype, src, u.arg, self.number)
        if total is not None:
            self.latest[total] = made
        if made is u or made not in made_of:
            self.out.append(made)
            self.scope[made] = self.schedule.home[u]
        if made is not u:
            made.origin = u.origin
            made_of[made] = made
        made_of[u] = made


def _is_branch(block: UOp) -> bool:
    """Whether the statements of a block run at most once."""
    return block.op is Ops.IF or bounds.bounds(block.src[0]) == (0, 1)


def _loops_entered(after: UOp) -> list[UOp]:
    """The loops that a value is said to be used in: what is computed from it stays there. An AFTER
    of a place in memory, or of effects, is about order, and that is known now."""
    base = before_effects(after)
    if base.op.is_storage or base.op is Ops.INDEX:
        return []
    return [s for s in after.src[1:] if s.op is Ops.RANGE and not _is_branch(s)]


def linearize(kernel: UOp, context: Context) -> UOp:
    schedule = _Schedule(kernel, context.target.gpu is not None)
    return intern(Ops.LINEAR, dtypes.void, tuple(_Emitter(schedule).run()), kernel.arg)


PASS = Pass("linearize", VECTOR, LINEAR, linearize, "kernel", reassociates=True)
