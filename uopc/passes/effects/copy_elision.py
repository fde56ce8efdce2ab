"""Copy elision: CONTIGUOUS and COPY that change nothing, and values that are only overwritten.

A COPY on the only device of a program is its source unless something is written to it. A
CONTIGUOUS of neighbouring elements of storage is a view of them, if nothing overwrites them later
and it has no Opts. A computed value that one STORE overwrites as a whole is replaced by the stored
value: nothing else knows its storage.
"""

from __future__ import annotations

from collections.abc import Mapping

from uopc.ir.builder import index_maps, movement, rebuild
from uopc.ir.core import shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import whole_root
from uopc.ir.core.uop import UOp
from uopc.ir.devices import device as devices
from uopc.ir.index import affine
from uopc.passes.analysis.user_opts import has_opts
from uopc.passes.effects.versions import EffectsBelow
from uopc.passes.effects.views import Effects, effects_by_root, is_view, roots_of_views


def without_needless_copies(graph: UOp) -> UOp:
    """contiguous (shrink (param x))  →  shrink (param x), if its elements are neighbours."""
    order, ops = walk.nodes(graph), walk.ops(graph)
    if ops.isdisjoint((Ops.CONTIGUOUS, Ops.COPY, Ops.AFTER)):
        return graph
    roots = roots_of_views(order)
    effects = effects_by_root(order, roots)
    written = effects_by_root(order, roots, written_only=True)
    below = EffectsBelow(order)
    places = devices.on_several(graph)
    needless = {u for u in order if _is_needless(u, effects, written, below, places)}
    plain = Ops.INVALID not in ops  # else some elements may stay as they are
    replaced = {u for u in order if plain and _is_replaced(u, effects, roots)}
    if not needless and not replaced:
        return graph

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u in replaced:
            return movement.expand(src[1].src[1], shapes.shape(u))
        return src[0] if u in needless else None

    return rebuild.rewritten(graph, change, outside_kernels=True)


def _is_replaced(u: UOp, effects: Effects, roots: Mapping[UOp, UOp]) -> bool:
    """after x, (store x, v)  →  v, where x is computed and this is its only effect"""
    if u.op is not Ops.AFTER or len(u.src) != 2:
        return False
    target, store = u.src
    if store.op is not Ops.STORE or len(store.src) != 2 or store.src[0] is not target:
        return False
    root = roots.get(target, target)
    only = not root.op.is_storage and not is_view(root) and effects.get(root) == {store}
    return only and whole_root(target) is root


def _is_needless(
    u: UOp, effects: Effects, written: Effects, below: EffectsBelow,
    places: Mapping[UOp, devices.Device],
) -> bool:  # fmt: skip
    """True if a COPY or CONTIGUOUS is its source. `written`: the effects that write each root.
    `places`: in a program for several devices."""
    if u in written or u.op not in (Ops.COPY, Ops.CONTIGUOUS) or has_opts(u):
        return False
    if u in effects and whole_root(u.src[0]).op.movement:
        return False
    if u.op is Ops.COPY:
        return places.get(u) == places.get(u.src[0])
    view = u.src[0]
    root = _subview(view)
    while root is not None and root.op is Ops.BITCAST and root not in effects:
        root = _subview(root.src[0])
    if root is None:
        return False
    stored = root.op in (Ops.PARAM, Ops.DATA, Ops.CONTIGUOUS) or root in effects
    return stored and below.sees(view, written.get(root, set()))


def _subview(view: UOp) -> UOp | None:
    """The root of a view that shows neighbouring elements of it in order; otherwise None."""
    index, _ = index_maps.loop_index(shapes.shape(view))
    flat = index_maps.flat_index(shapes.shape(view), index)
    while view.op.movement or view.op is Ops.AFTER:
        if view.op is Ops.PAD:
            return None
        index, _ = index_maps.source_index(view, index)
        view = view.src[0]
    under = index_maps.flat_index(shapes.shape(view), index)
    return view if affine.sub(under, flat).op is Ops.CONST else None
