"""Keep the names of values from one stage to the next, so that a reader can follow them.

A node that a pass left alone is the same object and keeps its name. A new node takes the name of
the old node it stands for: the one with the same op and element type that shares most operands,
where a new operand counts as the old node it stands for. Nodes that only forward a value (movement,
storage, loads) stand for the value. A node without such an old node gets a name of its own.
"""

from __future__ import annotations

from uopc.ir.core import walk
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp
from uopc.ir.text.printer import Namer

# Ops that forward their first operand's value. An AFTER forwards the value that its effect stored.
_FORWARDING = frozenset((
    Ops.INDEX, Ops.LOAD, Ops.STAGE, Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY, Ops.STACK, Ops.LANE,
))  # fmt: skip
_MOST_TRIED = 16  # users of one value that are compared


def carry_names_over(
    old: dict[UOp, None], new: dict[UOp, None], names: Namer
) -> dict[UOp, str]:
    """Give new nodes the names of the old ones they stand for. Both come sources first.

    Returns the nodes that stand for an old one whose name went to another, with that name.
    """
    successors = _Successors(old, {u for u in old if u not in new})
    for u in new:
        if u.op is Ops.CALL and u not in old:
            successors.stand_params(u)
    copies: list[tuple[UOp, UOp]] = []
    stands_for = successors.stands_for
    for u in new:
        if u in old:
            stands_for[u] = u
        else:
            taken = successors.find(u)
            if taken is not None:
                names.hand_on(taken, u)
            elif u in stands_for:
                copies.append((u, stands_for[u]))
    known = [(u, names.known(s)) for u, s in copies]
    return {u: name for u, name in known if name is not None}


class _Successors:
    """The old node that each new one stands for, and the names that are still free."""

    def __init__(self, old: dict[UOp, None], free: set[UOp]) -> None:
        self.free = free
        self.stands_for: dict[UOp, UOp] = {}
        self.users: dict[UOp, list[UOp]] = {}
        self.forwarding: dict[tuple[Op, object, UOp], UOp] = {}
        self.params: dict[UOp, list[UOp]] = {}  # by kernel
        value: dict[UOp, UOp] = {}
        for u in old:
            value[u] = value[forwarded] if (forwarded := _forwarded(u)) is not None else u
            if value[u] is not u:
                self.forwarding.setdefault((u.op, u.arg, value[u]), u)
            else:
                for s in dict.fromkeys([value[s] for s in u.src]):
                    self.users.setdefault(s, []).append(u)
        self.value = value

    def find(self, u: UOp) -> UOp | None:
        """The old node whose name a new one takes. Notes what the new one stands for."""
        forwarded = _forwarded(u)
        if forwarded is not None:
            if forwarded not in self.stands_for:
                return None
            value = self.stands_for[u] = self.value[self.stands_for[forwarded]]
            best = self.forwarding.get((u.op, u.arg, value))
        else:
            known = [self.stands_for.get(s) for s in u.src]
            best = self._most_alike(u, [None if k is None else self.value[k] for k in known])
            if best is not None:
                self.stands_for[u] = best
        if best is None or best not in self.free:  # another one took its name
            return None
        self.free.discard(best)
        return best

    def _most_alike(self, u: UOp, sources: list[UOp | None]) -> UOp | None:
        """The first old node with the op and element type of `u` that uses most of the sources."""
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
    op: Op = u.op
    if not u.src:
        return None
    if op is Ops.AFTER:
        effect = u.src[1] if len(u.src) > 1 else u.src[0]
        while effect.op in (Ops.END, Ops.AFTER) and effect.src:
            effect = effect.src[0]
        return effect.src[1] if effect.op is Ops.STORE else u.src[0]
    return u.src[0] if op.movement or op in _FORWARDING else None
