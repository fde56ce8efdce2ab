"""Storage under views and effects, the slots that a kernel reads and writes, and its words in
order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

# The arguments of a call that are variables: one of the program's, or bound to a stored value.
VARIABLES = (Ops.VARIABLE, Ops.BIND)
_THROUGH = frozenset((Ops.AFTER, Ops.INDEX, Ops.SLICE))


def storage_root(u: UOp) -> UOp:
    """The storage or value below an address, a view or a SLICE, and below AFTERs."""
    while u.op in _THROUGH or u.op.movement:
        u = u.src[0]
    return u


def base(u: UOp) -> UOp:
    """The node under the movement ops.

    Examples:
        >>> x = uopc.param("x", (2, 3))
        >>> x.reshape(3, 2).permute(1, 0).base is x
        True
    """
    while u.op.movement:
        u = u.src[0]
    return u


def before_effects(u: UOp, known: dict[UOp, UOp] | None = None) -> UOp:
    """The node below nested AFTERs. `known` keeps the answers, because thousands may be nested."""
    if known is None:
        known = {}
    path: list[UOp] = []
    while u.op is Ops.AFTER and u not in known:
        path.append(u)
        u = u.src[0]
    base = known.get(u, u)
    known.update(dict.fromkeys(path, base))
    return base


def awaited(u: UOp) -> Iterator[UOp]:
    """The effects and loops that nested AFTERs wait for, beginning with the outer AFTER."""
    while u.op is Ops.AFTER:
        yield from u.src[1:]
        u = u.src[0]


def whole_root(u: UOp) -> UOp:
    """The node whose elements a view shows, all and in order, below RESHAPE and AFTER. A movement
    op if the view shows only some elements, or another order."""
    while u.op is Ops.RESHAPE or u.op is Ops.AFTER:
        u = u.src[0]
    return u


def is_program(body: UOp) -> bool:
    """True for a LINEAR of CALLs, False for the LINEAR of a kernel."""
    return body.op is Ops.LINEAR and bool(body.src) and body.src[0].op is Ops.CALL


def outer_ranges(call: UOp) -> tuple[UOp, ...]:
    """The loops around a CALL in a program, outermost first: its last operands."""
    return tuple([s for s in call.src[1:] if s.op is Ops.RANGE])


def arguments(call: UOp) -> tuple[UOp, ...]:
    """The storage, numbers and variables that a CALL passes to its body."""
    return tuple([s for s in call.src[1:] if s.op is not Ops.RANGE])


def _slots_of_calls(program: UOp, slots: Callable[[UOp], list[int]]) -> list[int]:
    """The slots of a program's PARAMs that its CALLs pass in the slots that `slots` lists by
    kernel."""
    taken = [storage_root(c.src[1 + slot]) for c in program.src for slot in slots(c.src[0])]
    return [p.arg.slot for p in dict.fromkeys(taken) if p.op is Ops.PARAM]


def written_slots(kernel: UOp) -> list[int]:
    """The slots of the PARAMs that a kernel, or a program, stores to, in the order of stores."""
    if is_program(kernel):
        return _slots_of_calls(kernel, written_slots)
    nodes = kernel.src if kernel.op is Ops.LINEAR else walk.toposort(kernel)
    roots = dict.fromkeys([storage_root(u.src[0]) for u in nodes if u.op is Ops.STORE])
    return [p.arg.slot for p in roots if p.op is Ops.PARAM]


def written_arguments(call: UOp) -> list[UOp]:
    """The arguments of a CALL that its body stores to, in the order of stores."""
    return [call.src[1 + slot] for slot in written_slots(call.src[0])]


def read_slots(kernel: UOp) -> list[int]:
    """The slots of the PARAMs whose elements a kernel or a program reads, not only stores to."""
    if is_program(kernel):
        return _slots_of_calls(kernel, read_slots)
    param: dict[UOp, UOp] = {}  # of an address, or a view
    found: dict[UOp, None] = {}
    for u in walk.toposort(kernel):
        through = u.op.movement or u.op in (Ops.INDEX, Ops.AFTER)
        if u.op is Ops.PARAM:
            param[u] = u
        elif through and u.src[0] in param:
            param[u] = param[u.src[0]]
        order_only = u.op in (Ops.SINK, Ops.LINEAR, Ops.GROUP, Ops.END, Ops.AFTER)
        for s in u.src[through or u.op is Ops.STORE :]:
            if s in param and not order_only:
                found[param[s]] = None
    return [p.arg.slot for p in found]


def word_places(kernel: UOp) -> dict[UOp, int]:
    """The places of a linear kernel's arguments: storage and numbers by slot, then its remaining
    variables by name."""
    slots = {u: int(u.arg.slot) for u in kernel.src if u.op in (Ops.PARAM, Ops.NUMBER)}
    known = 1 + max(slots.values(), default=-1)
    named = sorted((u for u in kernel.src if u.op is Ops.VARIABLE), key=lambda u: str(u.arg.name))
    return slots | {u: known + i for i, u in enumerate(named)}
