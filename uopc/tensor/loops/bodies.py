"""The bodies of loops and branches: a FUNCTION of arguments and of values from outside."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.ir.builder import leaves, rebuild
from uopc.ir.core import calls, dtypes, storage, walk
from uopc.ir.core.args import FunctionArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.tensor import functions

# The slots of a body are its own: a kernel inside of it has params, too, and a body inside of it
# has slots of a lower level.
_FIRST_SLOT = 1 << 50
_SLOTS = 1 << 20  # of a level


def closed(results: Sequence[UOp], arguments: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
    """Return the FUNCTION of the results, and the values from outside that it needs. The first
    slots are the arguments in order, the others the values from outside. A value that does not
    depend on the arguments is computed once, outside, unless it is bytes in wider integers: the
    body takes the bytes, whose products are faster (`passes/narrow_products`)."""
    given = frozenset(arguments)
    inside = set(given)
    # Bodies inside are closed, but may fill the same storage.
    nodes = calls.graph_order(results, calls.outside_bodies, inside.__contains__)
    for u in nodes:
        if u not in inside and not inside.isdisjoint(calls.outside_bodies(u)):
            inside.add(u)
            if u.op is Ops.CALL:
                inside.update(_filled_storage(u))
    # A place is not passed to a body, but the values are that it is computed from; so with bytes.
    computed = {u for u in nodes if u in inside and u not in given}
    for u in reversed(nodes):
        if u in computed:
            more = [s for s in calls.outside_bodies(u) if s.dtype is dtypes.index or _is_wide(s)]
            computed.update([s for s in more if s not in inside])
    read = [s for u in nodes if u in computed for s in calls.outside_bodies(u)]
    taken = dict.fromkeys([s for s in (*read, *results) if _is_taken(s, inside | computed)])
    root = intern(Ops.TUPLE, dtypes.void, tuple(results))
    below = walk.toposort(root)
    inner = [u.arg.slot for u in below if u.op is Ops.PARAM]
    first = (max([_FIRST_SLOT - _SLOTS, *inner]) // _SLOTS + 1) * _SLOTS
    slots = {p: functions.param(first + i, p) for i, p in enumerate([*arguments, *taken])}
    kept = {u: u for u in below if u.op in (Ops.FUNCTION, *walk.CALLED)}  # with params of their own
    made = rebuild.rebuild(root, kept | slots).src
    body = intern(Ops.FUNCTION, dtypes.void, made, FunctionArg("body"))
    return leaves.located(body), list(taken)


def _filled_storage(call: UOp) -> list[UOp]:
    """The buffers passed to a kernel, and the effects that fill them. The kernel may write to a
    buffer, so each step needs a new one."""
    found: list[UOp] = []
    for a in call.src[1:]:
        row = [a]
        while row[-1].op is Ops.AFTER or row[-1].op.movement:
            row.append(row[-1].src[0])
        if row[-1].op is Ops.BUFFER:
            found += [*row, *[e for u in row if u.op is Ops.AFTER for e in u.src[1:]]]
    return found


def params(body: UOp) -> list[UOp]:
    """The params of a body, except params of inner bodies."""
    return [p for p in calls.params(body) if is_slot(p)]


def slot_of(param: UOp) -> int:
    """The number of a param among the arguments of a body."""
    return int(param.arg.slot) % _SLOTS


def is_slot(param: UOp) -> bool:
    """True if a param belongs to a body."""
    return int(param.arg.slot) >= _FIRST_SLOT


def level_of(param: UOp) -> int:
    """The depth of the nesting of bodies inside the body that a param belongs to."""
    return int(param.arg.slot) // _SLOTS


def results(body: UOp, arguments: Sequence[UOp]) -> list[UOp]:
    """Substitute these arguments into a body, and return its results."""
    mapping = {u: arguments[slot_of(u)] for u in params(body)}
    root = intern(Ops.TUPLE, dtypes.void, body.src)
    return list(rebuild.rebuild(root, mapping).src)


def _is_taken(u: UOp, inside: set[UOp]) -> bool:
    if u in inside or u.dtype is dtypes.void or u.dtype is dtypes.index:
        return False
    return leaves.constant_in(u) is None


def _is_wide(u: UOp) -> bool:
    """True for a view of bytes, perhaps minus others, in wider integers."""
    base = storage.base(u)
    if base.op is Ops.SUB:
        return all(map(_is_wide, base.src))
    if base.op is not Ops.CAST or not (base.dtype.is_int and base.src[0].dtype.is_int):
        return False
    return base.dtype.bits > 8 == base.src[0].dtype.bits
