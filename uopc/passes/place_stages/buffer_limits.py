"""More values are stored where a kernel would take more arguments than its device allows.

    a + b + c + d + e, at most 4 buffers in a kernel  →  t = a + b + c; t + d + e

Values are visited sources first. If the code of a value would read too many arrays, a value below
it may be stored that is the only reader of some of them (a dominator of these arrays): the one that
costs the fewest bytes per array saved. A single operation on several arrays takes them all,
whatever the limit; the parts of a STACK or CAT are stored one by one.
"""

from __future__ import annotations

from collections.abc import Callable

from uopc.ir.core import shapes, walk
from uopc.ir.core.bounds import most_elements
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.argument_limits import Limit
from uopc.passes.analysis.parts import is_stored_by_part

Bits = int  # a set of arguments: bit i is argument number i


class BufferLimit:
    """The arguments below each value, as bits. `stored` grows as values get stored."""

    def __init__(
        self, order: list[UOp], stored: dict[UOp, str], limit: Limit,
        may_store: Callable[[UOp], bool],
    ) -> None:  # fmt: skip
        """`may_store(u)`: whether a computed value can have storage of its own."""
        self.order, self.stored, self.limit, self.may_store = order, stored, limit, may_store
        self.reason = f"a kernel here takes at most {limit.words}"
        self.numbers: dict[UOp, int] = {}
        self.variables: Bits = 0
        self.below: dict[UOp, Bits] = {}  # the arguments that the code of a value takes
        self.known: dict[UOp, UOp] = {}  # as for `before_effects`
        self.added: dict[UOp, str] = {}

    def applied(self) -> dict[UOp, str]:
        """Store values until all kernels that can fit the limit do. Returns the reasons."""
        found = -1
        while found < len(self.added):  # a stored value may be one argument more elsewhere
            found = len(self.added)
            for u in self.order:
                if u.op is not Ops.SINK and u.op is not Ops.CALL:
                    self._visit(u)
        return self.added

    def _visit(self, u: UOp) -> None:
        """Set the arguments of a value; if there are too many, store values below first."""
        by_part = u in self.added and u.op in (Ops.STACK, Ops.CAT)
        if u in self.stored:
            checked = not (by_part or is_stored_by_part(u))
        else:
            checked = not self._is_leaf(u)
        if checked and not self._fits(u):
            self._narrow(u)
        self.below[u] = self._seen(u)

    def _is_leaf(self, u: UOp) -> bool:
        """True if a reader's code ends here."""
        leaf = u.op.is_storage or u.op in (Ops.VARIABLE, Ops.AFTER)
        return leaf or u in self.stored

    def _code(self, u: UOp) -> Bits:
        """The arguments that the code of a value takes if the value is computed in its reader."""
        bits = 0
        for s in u.src[:1] if u.op is Ops.AFTER else u.src:
            bits |= self.below.get(s, 0)
        return bits

    def _seen(self, u: UOp) -> Bits:
        """The arguments that a value adds to its reader."""
        if u.op is Ops.VARIABLE:
            self.variables |= self._bit(u)
            return self._bit(u)
        if u in self.stored:
            bits = self._bit(u)
            for d in shapes.shape(u):
                bits |= 0 if isinstance(d, int) else self.below.get(d, 0)
            return bits
        return self._code(u) | (self._bit(u) if u.op.is_storage else 0)

    def _bit(self, u: UOp) -> Bits:
        return 1 << self.numbers.setdefault(u, len(self.numbers))

    def _fits(self, u: UOp) -> bool:
        """True if a kernel that computes the value is within the limit."""
        bits, result = self._code(u), u.op is not Ops.STORE  # a STORE's target is a source
        buffers = (bits & ~self.variables).bit_count() + result
        within = buffers <= self.limit.buffers
        return within and buffers + (bits & self.variables).bit_count() <= self.limit.arguments

    def _narrow(self, u: UOp) -> None:
        """Store values below a value until its code fits the limit."""
        while not self._fits(u):
            cone = list(walk.toposort(u, lambda v: v is u or not self._is_leaf(v)))
            best = self._cheapest(u, cone)
            if best is None:
                best = self._cheapest_operand(u)
            if best is None:
                if u.op in (Ops.STACK, Ops.CAT) and u not in self.stored and self.may_store(u):
                    self.stored[u] = self.added[u] = self.reason  # part by part
                return
            self.stored[best] = self.added[best] = self.reason
            for v in cone[:-1]:
                self.below[v] = self._seen(v)

    def _cheapest(self, u: UOp, cone: list[UOp]) -> UOp | None:
        """The value below `u` whose storage costs the fewest bytes per argument saved."""
        computed = [v for v in cone[:-1] if not self._is_leaf(v)]
        above: dict[UOp, UOp] = {}  # the immediate dominator: every way up goes through it
        depth = {u: 0}
        for v in (u, *reversed(computed)):
            if v is not u:
                depth[v] = depth[above[v]] + 1
            for s in v.src:
                s = before_effects(s, self.known)  # storage after effects is the same argument
                above[s] = self._common(above[s], v, above, depth) if s in above else v
        only = dict.fromkeys((u, *computed), 0)  # arguments that are read through a value alone
        for s in above.keys() - depth.keys():
            only[above[s]] += 1
        best, price = None, float("inf")
        for v in computed:
            if only[v] > 1 and self.may_store(v) and _bytes(v) / (only[v] - 1) < price:
                best, price = v, _bytes(v) / (only[v] - 1)
            only[above[v]] += only[v]
        return best

    @staticmethod
    def _common(a: UOp, b: UOp, above: dict[UOp, UOp], depth: dict[UOp, int]) -> UOp:
        """The nearest value through which all ways up from both values go."""
        while a is not b:
            if depth[a] < depth[b]:
                a, b = b, a
            a = above[a]
        return a

    def _cheapest_operand(self, u: UOp) -> UOp | None:
        """The operand of fewest bytes among those that take several arguments."""
        several = [
            s for s in u.src
            if not self._is_leaf(s) and self.below[s].bit_count() > 1 and self.may_store(s)
        ]  # fmt: skip
        return min(several, key=_bytes, default=None)


def _bytes(u: UOp) -> float:
    return most_elements(shapes.shape(u)) * u.dtype.itemsize


