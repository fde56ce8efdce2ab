"""Loops of launches on a mesh: the steps of one device, with what they exchange in the loop.

    for each step:  w = w - 0.1 * grad(w, x)      x is cut: the sum of gradients is combined in each

What a step hands on has the layout in which the body makes it from itself, if there is one; else
that of the first value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from uopc.ir.builder.programs import Schedule, Slots, repeated
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.calls import graph_order, written_slot
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.ir.devices.mesh import Spec
from uopc.ir.records import dataclass
from uopc.passes.partition.exchanges import Exchanges
from uopc.passes.partition.layout import Value

_CARRIED = "carried by a loop"


class Partition(Protocol):
    """The values of a graph on one device: see `Rules`."""

    exchanges: Exchanges

    def add(self, u: UOp) -> None: ...
    def value(self, u: UOp) -> Value: ...
    def of_body(self, readers: Counter[UOp], in_specs: Mapping[int, Spec]) -> Partition: ...


@dataclass(frozen=True)
class LoopMaker:
    """Makes loops of a graph: `schedule` gives the program of a body, `slots` numbers storage."""

    schedule: Schedule | None
    slots: Slots

    def results(self, rules: Partition, call: UOp) -> list[Value]:
        """The results of a CALL that repeats its FUNCTION, on one device."""
        function, *args, times = call.src
        exchanges = rules.exchanges
        values = [exchanges.combined(rules.value(a), _CARRIED) for a in args]
        specs: dict[int, Spec] = {slot: v.spec for slot, v in enumerate(values)}
        body = self._body(rules, function, specs)
        made = _made(body, function)
        if any([specs[slot] != spec for slot, spec in made.items()]):
            other = self._body(rules, function, specs | made)
            if _made(other, function) == made:
                body, specs = other, specs | made
        local = [body.value(v).local for v in function.src]
        own = intern(Ops.FUNCTION, dtypes.void, tuple(local), function.arg)
        given = [exchanges.reshard(v, specs[i], _CARRIED).local for i, v in enumerate(values)]
        effect = intern(Ops.CALL, dtypes.void, (own, *given, times))
        set_origin(effect, call.origin)
        results = repeated(effect, self.schedule, self.slots)
        return [
            Value(made_here, shapes.shape(v), specs[_slot(v)])
            for made_here, v in zip(results, function.src, strict=True)
        ]

    def _body(self, rules: Partition, function: UOp, specs: Mapping[int, Spec]) -> Partition:
        """A step with its arguments in these layouts."""
        order = graph_order(function.src)
        readers = Counter([s for u in order for s in u.src])
        body = rules.of_body(readers, specs)
        for u in order:
            body.add(u)
        return body


def _slot(value: UOp) -> int:
    slot = written_slot(value)
    assert slot is not None
    return slot


def _made(body: Partition, function: UOp) -> dict[int, Spec]:
    """The layout of what a step hands on, by slot; what kernels write is left out."""
    found: dict[int, Spec] = {}
    for v in function.src:
        if v.op is Ops.AFTER and len(v.src) == 2 and v.src[1].op is Ops.STORE:
            found[_slot(v)] = body.value(v.src[1].src[1]).spec
    return found
