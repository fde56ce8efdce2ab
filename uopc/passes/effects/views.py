"""Views of storage: their roots, and the effects they come after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from uopc.ir.builder import index_maps
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects, whole_root, written_slots
from uopc.ir.core.uop import UOp
from uopc.passes.effects.versions import EffectsBelow

Effects = Mapping["UOp", set["UOp"]]


def stores_in(effect: UOp) -> tuple[UOp, ...]:
    """The STOREs that a closed store stands for: an END may be around a GROUP of them."""
    body = effect.src[0] if effect.op is Ops.END else effect
    return body.src if body.op is Ops.GROUP else (body,)


def is_local(storage: UOp) -> bool:
    """True if storage is a tile of the kernel that reads it. An AFTER says that it is filled."""
    tile = storage.src[0] if storage.op is Ops.AFTER else storage
    return tile.op is Ops.BUFFER and tile.arg.space != "global"


def closed_effects(graph: UOp) -> list[UOp]:
    """The closed stores and calls of a graph with loops, each after the effects that write its
    operands."""
    effects: dict[UOp, None] = {}
    for u in walk.nodes(graph):
        after = u.op is Ops.AFTER and not is_local(u)
        roots = u.src[1:] if after else u.src if u is graph else ()
        effects |= {e: None for e in roots if e.op in (Ops.END, Ops.STORE, Ops.CALL)}
    return list(effects)


def is_view(v: UOp) -> bool:
    """True if a node computes nothing: it is storage, a constant, or a movement of them."""
    plain = v.op in (Ops.AFTER, Ops.CONST, Ops.IOTA, Ops.VARIABLE)
    return plain or v.op.movement or v.op.is_storage


def reshaped_base(v: UOp) -> UOp:
    """The value under RESHAPEs."""
    while v.op is Ops.RESHAPE:
        v = v.src[0]
    return v


def roots_of_views(order: Iterable[UOp]) -> dict[UOp, UOp]:
    """The value or storage under the movement and AFTER of each view, nodes given sources first."""
    found: dict[UOp, UOp] = {}
    for u in order:
        if (u.op.movement or u.op is Ops.AFTER) and u.src:
            found[u] = found.get(u.src[0], u.src[0])
    return found


def written_views(effect: UOp) -> list[UOp]:
    """The views, or storage, that a STORE or a CALL of a kernel writes."""
    if effect.op is Ops.STORE:
        return [effect.src[0]]
    slots = written_slots(effect.src[0])
    return [a for slot, a in enumerate(effect.src[1:]) if slot in slots]


def effects_by_root(
    order: list[UOp], roots: Mapping[UOp, UOp], written_only: bool = False
) -> dict[UOp, set[UOp]]:
    """The STOREs and CALLs on each value that is written, or passed to a kernel."""
    found: dict[UOp, set[UOp]] = {}
    for u in order:
        if u.op in (Ops.STORE, Ops.CALL):
            whole = u.op is Ops.CALL and not written_only
            for v in u.src[1:] if whole else written_views(u):
                found.setdefault(roots.get(v, v), set()).add(u)
    return found


def root_index(view: UOp, index: Index, known: dict[UOp, UOp]) -> tuple[UOp, Index, UOp]:
    """The root of a view, the index into it, and the guard of PADs between them; `known` as for
    `before_effects`."""
    guard = index_maps.true()
    view = before_effects(view, known)
    while view.op.movement:
        index, more = index_maps.source_index(view, index)
        guard = guard if more is None else index_maps.both(guard, more)
        view = before_effects(view.src[0], known)
    return view, index, guard


def is_final_storage(v: UOp, effects: Effects, below: EffectsBelow) -> bool:
    """True if a value is a whole storage as the program leaves it. A PARAM that nothing writes is
    the caller's array: its value is copied, unless it is the result of an assignment to itself."""
    root = whole_root(v)
    if root.op.movement or root.op in (Ops.CONST, Ops.DATA, Ops.IOTA, Ops.VARIABLE):
        return False
    written = effects.get(root, set())
    if root.op in (Ops.PARAM, Ops.BUFFER) and not written:
        return reshaped_base(v).op is Ops.AFTER
    return below.sees(v, written)
