"""Elements of a thread's own storage that values in registers replace.

t[0] = 0; for i < 8: t[0] = t[0] + x[i]; y[0] = t[0]  →  for i < 8: carry c: c + x[i]; y[0] = c

All places in the storage must be constants, and nothing but LOADs and STOREs of single elements
may use them.
"""

from __future__ import annotations

from typing import TypeAlias

from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects, storage_root
from uopc.ir.core.uop import UOp

# The storage, and the place in it.
Element: TypeAlias = tuple[UOp, int]


def elements(order: list[UOp]) -> dict[UOp, Element | None]:
    """Each LOAD and STORE of such an element -> the element; the storage and its addresses -> None.
    None of them becomes a statement."""
    kept = {u for u in order if u.op is Ops.BUFFER and u.arg.space == "reg"}
    if not kept:
        return {}
    found: dict[UOp, Element | None] = dict.fromkeys(kept)
    for u in order:
        for s in u.src:
            if found.get(s, u) is not None:
                continue
            root, place = storage_root(s), before_effects(s)
            if u.src[0] is s and (u.op is Ops.AFTER or _is_element(u, root)):
                found[u] = None
            elif u.src[0] is s and place.op is Ops.INDEX and _is_access(u, root):
                found[u] = root, int(place.src[1].arg)
            else:
                kept.discard(root)
    return {u: e for u, e in found.items() if (e[0] if e else storage_root(u)) in kept}


def _is_element(u: UOp, storage: UOp) -> bool:
    """True if u is the address of one element, at a place that is known."""
    known = u.op is Ops.INDEX and len(u.src) == 2 and u.src[1].op is Ops.CONST
    return known and u.dtype is storage.dtype


def _is_access(u: UOp, storage: UOp) -> bool:
    """True if u loads or stores one element, under no condition."""
    if u.op is Ops.LOAD:
        return len(u.src) == 1 and u.dtype is storage.dtype
    return u.op is Ops.STORE and len(u.src) == 2 and u.src[1].dtype is storage.dtype
