"""Stores in one form: to views without BITCASTs, and none that changes nothing.

Before (tensor)                         After (tensor)
  %1 = param x : f32[4]                   %1 = param x : f32[4]
  %2 = param v : i32[4]                   %2 = param v : i32[4]
  %3 = bitcast %1 : i32[4]                %3 = bitcast %2 : f32[4]
  %4 = store %3, %2                       %4 = store %1, %3
  %5 = after %3, %4 : i32[4]              %5 = after %1, %4 : f32[4]
  %6 = store %1, %1                       %6 = bitcast %5 : i32[4]
  sink %5, %6                             sink %6
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Mapping

from uopc.ir.builder import alu, fold, leaves, movement, rebuild
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.user_opts import has_opts
from uopc.passes.effects.versions import EffectsBelow
from uopc.passes.effects.views import effects_by_root, roots_of_views


# ---------------------------------------------------------------- BITCASTs
def store_below_bitcasts(u: UOp, src: tuple[UOp, ...], plain: Container[UOp]) -> UOp:
    """store (bitcast x), v  →  store x, (bitcast v)

    `plain`: AFTERs without a BITCAST below, so that long chains of stores are not walked. Where a
    view above the BITCAST shows a part of x, and elements have another size, all of x is stored,
    with that part replaced.
    """
    path = _views(src[0], plain)
    if all([v.op is not Ops.BITCAST for v in path]):
        return intern(Ops.STORE, u.dtype, src, u.arg, u.tag)
    target = path[-1].src[0]
    value, *gates = [movement.expand(s, shapes.shape(src[0])) for s in src[1:]]
    while any([_resizes(v) for v in path]):
        while not _resizes(v := path.pop(0)):
            value, gates = _under(v, value), [_under(v, g) for g in gates]
            if v.op is Ops.SHRINK and not gates:
                everywhere = leaves.full(leaves.const(dtypes.bool_, True), shapes.shape(v))
                gates = [_under(v, everywhere)]
        value = fold.bitcast(alu.where(gates[0], value, v) if gates else value, v.src[0].dtype)
        gates = []
    for v in reversed(path):
        if v.op is not Ops.BITCAST:
            target = intern(v.op, target.dtype, (target, *v.src[1:]), v.arg)
    value = fold.bitcast(value, target.dtype)
    return intern(Ops.STORE, u.dtype, (target, value, *gates), u.arg, u.tag)


def after_below_bitcasts(u: UOp, src: tuple[UOp, ...], plain: set[UOp]) -> UOp:
    """after (bitcast x), effect  →  bitcast (after x, effect)

    The AFTER that is made is one of the `plain` ones.
    """
    path = _views(src[0], plain)
    found = [i for i, v in enumerate(path) if v.op is Ops.BITCAST]
    effects = [_effect(s) for s in src[1:]]
    under = path[found[-1]].src[0] if found else src[0]
    made = intern(Ops.AFTER, under.dtype, (under, *effects), u.arg, u.tag)
    plain.add(made)
    if not found:
        return made
    for v in reversed(path[: found[-1] + 1]):
        made = intern(v.op, v.dtype, (made, *v.src[1:]), v.arg)
    return made


def _effect(u: UOp) -> UOp:
    """An operand of an AFTER; the AFTER under a BITCAST stands for that above it."""
    while u.op is Ops.BITCAST or u.op.movement:
        u = u.src[0]
    return u


def _views(view: UOp, stop: Container[UOp] = ()) -> list[UOp]:
    """The views that lead to storage, or a value, or one of `stop`, outer first."""
    path: list[UOp] = []
    while (view.op.movement or view.op in (Ops.BITCAST, Ops.AFTER)) and view not in stop:
        path.append(view)
        view = view.src[0]
    return path


def _resizes(v: UOp) -> bool:
    return v.op is Ops.BITCAST and v.dtype.itemsize != v.src[0].dtype.itemsize


def _under(v: UOp, value: UOp) -> UOp:
    """`movement.under`, also of a BITCAST."""
    if v.op is Ops.BITCAST and value.dtype is v.dtype:
        return fold.bitcast(value, v.src[0].dtype)
    return movement.under(v, value)


# ---------------------------------------------------------------- stores that change nothing
def without_needless_stores(graph: UOp) -> UOp:
    """store x, (x as it is then)  →  nothing

    Also a store of a value where a store has just put it. `graph`: without functions.
    """
    if Ops.STORE not in walk.ops(graph):
        return graph
    order = walk.nodes(graph)
    plain = _plain_views(order)
    suspects = [u for u in order if _is_same(u, plain)]
    needless = _needless(order, suspects) if suspects else set()
    if not needless:
        return graph

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u in needless:
            before = [*_effects(src[0]), *_effects(_copied(src[1]))]
            return intern(Ops.GROUP, dtypes.void, tuple(before))
        if u.op is Ops.AFTER and any([s.op is Ops.GROUP for s in src[1:]]):
            return _after_groups(u, src)
        return None

    return rebuild.rewritten(graph, change, outside_kernels=True)


def _plain_views(order: Iterable[UOp]) -> dict[UOp, UOp]:
    """Views without their AFTERs, by the view, where it has some."""
    plain: dict[UOp, UOp] = {}
    for u in order:
        if u.op is Ops.AFTER:
            plain[u] = plain.get(u.src[0], u.src[0])
        elif u.op.movement and u.src[0] in plain:
            plain[u] = intern(u.op, u.dtype, (plain[u.src[0]], *u.src[1:]), u.arg, u.tag)
    return plain


def _effects(view: UOp) -> list[UOp]:
    """The effects of the AFTERs of a view."""
    return [e for w in _views(view) if w.op is Ops.AFTER for e in w.src[1:]]


def _after_groups(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """An AFTER of the effects in its GROUPs, without those that its value is after."""
    made = [e for s in src[1:] for e in (s.src if s.op is Ops.GROUP else (s,))]
    known = set(_effects(src[0]))
    effects = [e for e in dict.fromkeys(made) if e not in known]
    if not effects and known:
        return src[0]
    none = intern(Ops.GROUP, dtypes.void, ())
    return intern(Ops.AFTER, u.dtype, (src[0], *(effects or [none])), u.arg, u.tag)


def _is_same(u: UOp, plain: Mapping[UOp, UOp]) -> bool:
    """True if a STORE stores a view to itself, or a value where an earlier STORE put it, and
    nothing else writes there in between."""
    if u.op is not Ops.STORE:
        return False
    target, value = u.src[0], _copied(u.src[1])
    place = plain.get(target, target)
    if plain.get(value, value) is place:
        return True
    if target.op is not Ops.AFTER or len(target.src) != 2:
        return False
    last = target.src[1]
    at = last.src[0] if last.op is Ops.STORE else last
    return plain.get(at, at) is place and last.src[1:] == u.src[1:]


def _copied(value: UOp) -> UOp:
    """The value under a CONTIGUOUS."""
    return value.src[0] if value.op is Ops.CONTIGUOUS and not has_opts(value) else value


def _needless(order: list[UOp], suspects: list[UOp]) -> set[UOp]:
    """The suspects that store the last state of storage with a single history."""
    roots, below = roots_of_views(order), EffectsBelow(order)
    written = effects_by_root(order, roots, written_only=True)
    found: set[UOp] = set()
    for u in suspects:
        target, value = u.src[0], _copied(u.src[1])
        root = roots.get(target, target)
        effects = sorted(written[root], key=below.numbers.__getitem__)
        shown = value if roots.get(value, value) is root else target
        before = [e for e in effects if e is not u and below.sees(u, (e,))]
        in_turn = all([below.sees(b, (a,)) for a, b in itertools.pairwise(effects)])
        if in_turn and below.sees(shown, before):
            found.add(u)
    return found
