"""Values without effects: a read after a STORE becomes the content of the storage.

    after x[1:3], (store x[1:3], v)     →   where(inside 1:3, pad(v), x)[1:3], which is v
    after x, (store x[1:3], v)          →   where(inside 1:3, pad(v), x)
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc.derivatives.rule import operands
from uopc.derivatives.values import part
from uopc.errors import Unsupported
from uopc.ir.builder import alu, leaves, movement
from uopc.ir.builder.rebuild import remake
from uopc.ir.core import calls, dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp

_VIEWS = frozenset((
    Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, Ops.SHRINK, Ops.PAD, Ops.EXPAND, Ops.DETACH,
))  # fmt: skip
_WRITTEN = _VIEWS - {Ops.EXPAND}  # a PAD is that of a step, and what it adds is not written
_Chain = tuple[UOp, ...]  # views, from the storage on


class _EffectReader:
    """Note the value of each node, in a walk that takes sources first."""

    def __init__(self, nodes: Sequence[UOp]) -> None:
        # Storage that handwritten kernels use stays unchanged.
        calls_ = [u for u in nodes if u.op is Ops.CALL and u.src[0].op is Ops.SINK]
        self._kept = {_storage(a) for u in calls_ for a in u.src[1:]}
        self.value: dict[UOp, UOp] = {}
        self.held: dict[UOp, UOp] = {}  # by storage and its views: the storage's whole content
        self.chain: dict[UOp, _Chain] = {}

    def read(self, u: UOp) -> None:
        stores = self._stores(u) if u.op is Ops.AFTER and u.src[0] in self.held else None
        if stores is not None:
            self._after(u, stores)
            return
        if u.op is Ops.STORE and u.src[0] in self.held:
            return
        src = tuple([self.value.get(s, s) for s in u.src])
        if u.op is Ops.PRIMITIVE:
            src = (u.src[0], *src[1:])
        self.value[u] = u if src == u.src else remake(u, src)
        if u.op.is_storage and u not in self._kept:
            self.held[u], self.chain[u] = u, ()
        elif u.op in _VIEWS and u.src[0] in self.held:
            self.held[u] = self.held[u.src[0]]
            self.chain[u] = (*self.chain[u.src[0]], u)

    def _stores(self, u: UOp) -> list[UOp] | None:
        """The STOREs that an AFTER waits for; None if it waits for other effects."""
        found: list[UOp] = []
        left = list(u.src[1:])[::-1]
        while left:
            e = left.pop()
            if e.op is Ops.STORE and e.src[0] in self.held:
                found.append(e)
            elif e.op in (Ops.AFTER, Ops.GROUP):
                left += (e.src if e.op is Ops.GROUP else e.src[1:])[::-1]
            else:
                return None
        return found

    def _after(self, u: UOp, stores: Sequence[UOp]) -> None:
        x = u.src[0]
        before = held = self.held[x]
        for store in stores:
            target = store.src[0]
            if self.held[target] is not before:  # it comes after another store
                if held is not before:
                    raise Unsupported(
                        "the derivative of stores whose order is not known is not"
                        f" supported{made_at(u)}"
                    )
                held = self.held[target]
            held = self._put(held, self.chain[target], self._stored(store))
        self.held[u], self.chain[u] = held, self.chain[x]
        alone = len(stores) == 1 and stores[0].src[0] is x
        self.value[u] = self._stored(stores[0]) if alone else _seen(held, self.chain[x])

    def _stored(self, store: UOp) -> UOp:
        """The value of a STORE's target after the STORE."""
        target, value, *gate = store.src
        new = movement.expand(self.value.get(value, value), shapes.shape(target))
        if not gate:
            return new
        return alu.where(self.value.get(gate[0], gate[0]), new, self.value[target])

    def _put(self, a: UOp, chain: _Chain, value: UOp) -> UOp:
        """Replace the elements of `a` that a chain of views shows by `value`."""
        if not chain:
            return value
        view = chain[0]
        inner = self._put(_seen(a, chain[:1]), chain[1:], value)
        if view.op not in _WRITTEN:
            raise Unsupported(
                f"the derivative of a store through {view.op.name} is not supported{made_at(view)}"
            )
        whole = movement.under(view, inner)
        if view.op is not Ops.SHRINK:
            return whole
        shown = leaves.full(leaves.const(dtypes.bool_, True), shapes.shape(view))
        return alu.where(movement.under(view, shown), whole, a)


def _storage(u: UOp) -> UOp:
    """The storage under views and effects."""
    while u.op in _VIEWS or u.op is Ops.AFTER:
        u = u.src[0]
    return u


def _seen(a: UOp, chain: _Chain) -> UOp:
    """The elements of a value that a chain of views shows."""
    for view in chain:
        if view.op is Ops.SHRINK:
            a = part(a, *shapes.window(view))
        else:
            a = remake(view, (a, *view.src[1:]))
    return a


def pure(outputs: Sequence[UOp], inputs: Sequence[UOp] = ()) -> tuple[list[UOp], list[UOp]]:
    """Replace outputs, and nodes below them, by equal values without effects."""
    nodes = calls.graph_order([*outputs, *inputs], operands)
    if not any([u.op is Ops.AFTER for u in nodes]):
        return list(outputs), list(inputs)
    reader = _EffectReader(nodes)
    for u in nodes:
        reader.read(u)
    return [reader.value[u] for u in outputs], [reader.value[u] for u in inputs]
