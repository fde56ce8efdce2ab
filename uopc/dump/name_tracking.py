"""Keep the names of values from one stage to the next, so that a reader can follow them.

A node that a pass did not change is the same object and keeps its name. A new node takes the name
of the old node that it stands for: the node with the same op and element type and the most common
operands, where a new operand counts as the old node that it stands for. Nodes that only forward a
value (movement, storage, loads) stand for the value. Other new nodes get new names.
"""

from __future__ import annotations

from uopc.ir.core import walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.ir.text.printer import Namer

# Ops that forward their first operand's value. An AFTER forwards the value that its effect stored.
_FORWARDING = frozenset((
    Ops.INDEX, Ops.LOAD, Ops.STAGE, Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY, Ops.STACK, Ops.LANE,
))  # fmt: skip
_MAY_FORWARD = _FORWARDING.union([op for op in Op.all() if op.movement], [Ops.AFTER])
_MOST_TRIED = 16  # users of one value that are compared


def carry_names_over(old: dict[UOp, None], new: dict[UOp, None], names: Namer) -> dict[UOp, str]:
    """Give each new node the name of the old node it stands for. Both lists come sources first.

    Return the new nodes whose old node gave its name to another node, with that name.
    """
    successors = _Successors(old, old.keys() - new.keys())
    stands_for = successors.stands_for
    fresh = [u for u in new if u not in old]
    for u in fresh:
        if u.op is Ops.CALL:
            successors.stand_params(u)
    kept = new.keys() & old.keys()
    stands_for.update(zip(kept, kept))
    copies: list[tuple[UOp, UOp]] = []
    for u in fresh:
        taken = successors.find(u)
        if taken is not None:
            names.hand_on(taken, u)
        elif u in stands_for:
            copies.append((u, stands_for[u]))
    known = [(u, names.known(s)) for u, s in copies]
    return {u: name for u, name in known if name is not None}


class _Successors:
    """The old node that each new node stands for, and the names that are still free."""

    def __init__(self, old: dict[UOp, None], free: set[UOp]) -> None:
        self.free = free
        self.stands_for: dict[UOp, UOp] = {}
        self.forwarding: dict[tuple[Op, object, UOp], UOp] = {}
        self.exact: dict[tuple[Op, DType, tuple[UOp, ...]], UOp] = {}  # by op, type and sources
        self.params: dict[UOp, list[UOp]] = {}  # by kernel
        self.value = value = dict(zip(old, old))
        for u in old:
            op = u.op
            if op in _MAY_FORWARD and (forwarded := _forwarded(u)) is not None:
                value[u] = value[forwarded]
                self.forwarding.setdefault((op, u.arg, value[u]), u)
            elif u in free and u.src:
                key = op, u.dtype.scalar, tuple([value[s] for s in u.src])
                self.exact.setdefault(key, u)

    @cached_property
    def users(self) -> dict[UOp, list[UOp]]:
        """The old nodes that use each value, for inexact matches."""
        found: dict[UOp, list[UOp]] = {}
        value = self.value
        for u in value:
            if value[u] is u:
                for s in dict.fromkeys([value[s] for s in u.src]):
                    found.setdefault(s, []).append(u)
        return found

    def find(self, u: UOp) -> UOp | None:
        """Note which old node a new node stands for; return the old node if its name is free."""
        op, stands_for, value = u.op, self.stands_for, self.value
        if op in _MAY_FORWARD and (forwarded := _forwarded(u)) is not None:
            if forwarded not in stands_for:
                return None
            stands_for[u] = found = value[stands_for[forwarded]]
            best = self.forwarding.get((op, u.arg, found))
        elif not u.src:
            return None
        else:
            known = [value[stands_for[s]] if s in stands_for else None for s in u.src]
            best = None
            if None not in known:
                best = self.exact.get((op, u.dtype.scalar, tuple(known)))  # type: ignore[arg-type]
            if best is None or best not in self.free:
                best = self._most_alike(u, known)
            if best is not None:
                stands_for[u] = best
        if best is None or best not in self.free:  # another one took its name
            return None
        self.free.discard(best)
        return best

    def _most_alike(self, u: UOp, sources: list[UOp | None]) -> UOp | None:
        """The first old node of the op and element type of `u` with the most of these sources."""
        best, most = None, 0
        op, scalar = u.op, u.dtype.scalar
        users = [self.users[s] for s in sources[:_MOST_TRIED] if s in self.users]
        users.sort(key=len)  # a short list finds a full match sooner
        for candidates in users:
            for c in candidates[:_MOST_TRIED]:
                if c.op is op and c.dtype.scalar is scalar:
                    same = sum([self.value[a] is b for a, b in zip(c.src, sources)])
                    alike = 2 * same + (c in self.free) if same else 0
                    if alike > most:
                        best, most = c, alike
                        if most > 2 * len(sources):  # no other is better
                            return best
        return best

    def stand_params(self, call: UOp) -> None:
        """Let the parameters of a kernel stand for the arguments of its call."""
        body, *args = call.src
        if body not in self.params:
            self.params[body] = [p for p in walk.toposort(body) if p.op is Ops.PARAM]
        for p in self.params[body]:
            if 0 <= p.arg.slot < len(args):
                root = storage_root(args[p.arg.slot])
                if root in self.value:
                    self.stands_for.setdefault(p, root)


def _forwarded(u: UOp) -> UOp | None:
    """The value that a node of an op in _MAY_FORWARD forwards."""
    if not u.src:
        return None
    if u.op is Ops.AFTER:
        effect = u.src[1] if len(u.src) > 1 else u.src[0]
        while effect.op in (Ops.END, Ops.AFTER) and effect.src:
            effect = effect.src[0]
        return effect.src[1] if effect.op is Ops.STORE else u.src[0]
    return u.src[0]
