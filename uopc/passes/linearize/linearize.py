"""Put a kernel in execution order: RANGE … END is a loop, IF … ENDIF a branch, CARRY a register.

Before (vector)                            After (linear)
  %1 = param "" slot=0 : f32[1]              linear name=r_8 opts=() units=(vmaskmov,) {
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

`blocks.py` says in which loop or branch each value stands. Inside a block the order is that of a
depth-first walk from the stores: an operand stands shortly before its first use. A loop of at most
one iteration becomes a branch. `registers.py` says which storage becomes registers, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from uopc.ir.builder import leaves
from uopc.ir.core import bounds, dtypes, semantics
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.passes.contract import Context
from uopc.passes.linearize.blocks import Blocks
from uopc.passes.linearize.registers import Element, elements

_NO_STATEMENTS = frozenset((Ops.END, Ops.GROUP, Ops.SINK, Ops.BRANCH))  # of their own
_BARRIERS = frozenset((Ops.BARRIER, Ops.COMMIT))
_DONE_AGAIN = frozenset((Ops.LOAD, Ops.STORE, Ops.TILE_LOAD, *_BARRIERS))


class _Linearizer:
    """Makes the ordered list, with reduces and a thread's storage as carried registers."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.before = blocks.edges()
        self.out: list[UOp] = [*blocks.functions]
        self.made: dict[UOp, UOp] = {u: u for u in blocks.functions}
        self.reduces: defaultdict[UOp, list[UOp]] = defaultdict(list)  # by the loops they close
        self.number = 0  # of the latest CARRY, IF, or statement that is done again
        for u, closed in blocks.closed.items():
            for r in closed if u.op is Ops.REDUCE else ():
                self.reduces[r].append(u)
        self.carried: dict[tuple[UOp, UOp | None], UOp] = {}
        self.elements = elements(blocks.order)
        self.held: dict[Element, UOp] = {}  # the value in each
        self.changed: defaultdict[UOp, dict[Element, UOp]] = defaultdict(dict)  # block -> at first
        self._find_changed()
        self.latest: dict[UOp, UOp] = {}  # such a REDUCE -> its sum so far
        self.opened: dict[UOp, UOp] = {}  # block that is a branch -> its IF
        self.scope: dict[UOp, UOp | None] = {}  # statement -> the block it stands in
        self.block: UOp | None = None  # the innermost open one
        self.ended: set[UOp | None] = set()

    def _find_changed(self) -> None:
        """The elements that each block stores to, with the 0 that no kernel may rely on."""
        for u, element in self.elements.items():
            block = self.blocks.home[u] if u.op is Ops.STORE else None
            while element is not None and block is not None:
                if block.op is not Ops.RANGE or block.arg.kind != "thread":  # they share nothing
                    self.changed[block][element] = leaves.const(u.src[1].dtype, 0)
                block = self.blocks.loops.parent[block]

    def run(self) -> list[UOp]:
        """Walk the blocks with a stack of iterators: loops may nest deeper than Python's stack."""
        first = iter(self.blocks.sorted_block(None, self.before))
        stack: list[tuple[UOp | None, Iterator[UOp]]] = [(None, first)]
        while stack:
            block, items = stack[-1]
            self.block = block
            for u in items:
                if u in self.blocks.loops.parent:
                    self._open(u)
                    stack.append((u, iter(self.blocks.sorted_block(u, self.before))))
                    break
                self._emit(u)
            else:
                stack.pop()
                if block is not None:
                    self._close(block)
        return self.out

    def _append(self, u: UOp, again: bool = False) -> UOp:
        """Add a statement, or find the one that computes it where it is still known.

        `again`: it is done once more, as it may be after another store, loop or barrier.
        """
        if u in self.scope and (again or (u.src and self.scope[u] in self.ended)):
            self.number += 1
            u = intern(u.op, u.dtype, u.src, u.arg, self.number)
        if u not in self.scope:
            self.out.append(u)
            self.scope[u] = self.block
        return u

    def _open(self, r: UOp) -> None:
        if _is_branch(r):
            self._open_branch(r)
        else:
            src = tuple([self.made[s] for s in r.src])
            self.made[r] = self._append(intern(Ops.RANGE, r.dtype, src, r.arg), True)
        outer = self.blocks.loops.parent[r]
        for u in self.reduces[r]:
            inside = outer is not None and outer in u.src[1:]  # the same reduce has opened `outer`
            initial = self.carried[(u, outer)] if inside else self._first(u)
            if r in self.opened:
                self.carried[(u, r)] = initial
                continue
            self.carried[(u, r)] = self._carry(initial, r)
        for element, unset in self.changed[r].items():
            if element not in self.held:
                self.held[element] = self._constant(unset)
            initial = self.changed[r][element] = self.held[element]
            if r not in self.opened:
                carry = self._carry(initial, r)
                self.changed[r][element] = self.held[element] = carry

    def _carry(self, initial: UOp, r: UOp) -> UOp:
        """A register of a loop."""
        self.number += 1
        made = intern(Ops.CARRY, initial.dtype, (initial, self.made[r]), self.number)
        return self._append(made)

    def _open_branch(self, r: UOp) -> None:
        """Open a branch, or a loop of at most one iteration as a branch: its counter is 0."""
        end = r.src[0]
        if r.op is Ops.RANGE:
            self.made[r] = self._constant(leaves.const(r.dtype, 0))
        if end.op is Ops.CAST and end.src[0].dtype is dtypes.bool_:
            end = end.src[0]
        condition = self.made[end]
        if end.dtype is not dtypes.bool_:
            test = intern(Ops.CMPLT, dtypes.bool_, (self.made[r], condition))
            condition = self._append(test)
        self.number += 1
        opened = intern(Ops.IF, dtypes.bool_, (condition,), self.number)
        self.opened[r] = self._append(opened)

    def _constant(self, value: UOp) -> UOp:
        if value not in self.made:
            self.made[value] = self._append(value)
        return value

    def _first(self, u: UOp) -> UOp:
        """The value of a REDUCE's register before its loops."""
        value = leaves.const(u.dtype.scalar, semantics.reduce_identity(u.arg.op, u.dtype.scalar))
        if u.dtype.lanes > 1:
            arg = value.arg if _is_tile(u) else (value.arg,) * u.dtype.lanes
            value = intern(Ops.CONST, u.dtype, (), arg)
        return self._constant(value)

    def _close(self, r: UOp) -> None:
        pairs: list[UOp] = []
        for u in self.reduces[r]:
            inner = next((q for q in u.src[1:] if self.blocks.loops.parent[q] is r), None)
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
        before = self.changed[r]
        if r not in self.opened:
            for element, carry in before.items():
                pairs += [carry, self.held[element]]
            self.held |= before
            self._end(r, intern(Ops.END, dtypes.void, (self.made[r], *pairs)))
            return
        self._end(r, intern(Ops.ENDIF, dtypes.void, (self.opened[r],)))
        for u, outside, inside in zip(self.reduces[r], pairs[::2], pairs[1::2]):
            self.carried[(u, r)] = self._joined(outside, r, inside)
        for element, outside in before.items():
            self.held[element] = self._joined(outside, r, self.held[element])
        for u in self.blocks.joined.get(r, ()):
            self.made[u] = self._joined(self.made[u.src[0]], r, self.made[u.src[2]])
            set_origin(self.made[u], u.origin)

    def _end(self, r: UOp, closer: UOp) -> None:
        self._append(closer)
        self.ended.add(r)
        self.block = self.blocks.loops.parent[r]

    def _joined(self, before: UOp, block: UOp, inside: UOp) -> UOp:
        """The BRANCH after an IF: the value from before it, or the one from inside."""
        src = (before, self.opened[block], inside)
        return self._append(intern(Ops.BRANCH, before.dtype, src))

    def _emit(self, u: UOp) -> None:
        op, operands, made_of = u.op, u.src, self.made
        if op in _NO_STATEMENTS:
            return
        if u in self.elements:
            self._access(u, self.elements[u])
            return
        if op is Ops.REDUCE:
            outer = min(operands[1:], key=lambda r: self.blocks.loops.depth[r])
            made_of[u] = self.carried[(u, outer)]
            return
        if op in _BARRIERS:  # the ends of loops and groups are known now
            operands = tuple([s for s in operands if s in made_of])
        elif op is Ops.AFTER:
            operands = (operands[0], *_loops_entered(u))
            if len(operands) == 1:
                made_of[u] = made_of[operands[0]]
                return
        total = self.blocks.adding.get(u)
        if total is not None and op is Ops.ADD:  # its terms were added up one by one
            made_of[u] = self.latest[total]
            return
        src = tuple([made_of[s] for s in operands])
        if total is not None and op is Ops.WMMA:
            src = (*src, self._sum_so_far(total))
        made = u if src == u.src else intern(op, u.dtype, src, u.arg, u.tag)
        made = self._append(made, op in _DONE_AGAIN)
        if made is not u:
            set_origin(made, u.origin)
            made_of[made] = made
        made_of[u] = made
        if total is not None:
            self.latest[total] = made if op is Ops.WMMA else self._added(total, made)

    def _added(self, total: UOp, product: UOp) -> UOp:
        """The sum so far and one more product."""
        src = (self._sum_so_far(total), product)
        made = self._append(intern(Ops.ADD, product.dtype, src))
        set_origin(made, total.origin)
        return made

    def _sum_so_far(self, total: UOp) -> UOp:
        """The sum of a chain so far: at first, the register of the loop."""
        if total in self.latest:
            return self.latest[total]
        return self.carried[(total, self.blocks.inside_of(total))]

    def _access(self, u: UOp, element: Element | None) -> None:
        """Load from or store to an element that a register holds."""
        if element is None:
            return
        if u.op is Ops.STORE:
            self.held[element] = self.made[u.src[1]]
            return
        if element not in self.held:
            self.held[element] = self._constant(leaves.const(u.dtype, 0))
        self.made[u] = self.held[element]


def _is_tile(u: UOp) -> bool:
    """True for a sum of products of tiles, which a CPU's matrix unit has in a register."""
    if u.src[0].op is not Ops.WMMA:
        return False
    from uopc.ir.devices import tensor_cores  # few kernels have any

    return tensor_cores.is_tile(u.dtype)


def _is_branch(block: UOp) -> bool:
    """True if the statements of a block run at most once."""
    return block.op is Ops.IF or bounds.bounds(block.src[0]) == (0, 1)


def _loops_entered(after: UOp) -> list[UOp]:
    """The loops that an AFTER keeps a value in. An AFTER of an address or of effects is only about
    order, which is decided by now."""
    base = before_effects(after)
    if base.op.is_storage or base.op is Ops.INDEX:
        return []
    return [s for s in after.src[1:] if s.op is Ops.RANGE and not _is_branch(s)]


def linearize(kernel: UOp, context: Context) -> UOp:
    """The lines of a kernel in an order that can run."""
    blocks = Blocks(kernel, context.target.gpu is not None)
    target = context.target
    arg = replace(
        kernel.arg, stack_bytes=target.stack_bytes, index_bits=target.index_bits, units=target.units
    )
    return intern(Ops.LINEAR, dtypes.void, tuple(_Linearizer(blocks).run()), arg)
