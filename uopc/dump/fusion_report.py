"""Why each value of a tensor graph is stored or computed again: the notes of place-stages as text.

One line per node: its readers, its shape, the index of each read, and the decision. An index
combines the reader's loops: `r0_1` is the loop over axis 1 of the stored value that is being
computed, `r3` the loop of a reduce.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uopc.dump.columns import columns
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.text import op_syntax
from uopc.ir.text.infix import infix
from uopc.ir.text.printer import Namer

_MOST_SHOWN = 4  # consumers or reads of one node
_INDEX_CHARACTERS = 48


def report(graph: UOp, notes: Mapping[str, Any], names: Namer) -> list[str]:
    """The lines, with the names that the text of `graph` has; none if there are no notes."""
    if "placement" not in notes:
        return []
    notes = notes["placement"]()
    order = walk.nodes(graph)
    known: dict[UOp, str] = {}  # an index, as text
    consumers: dict[UOp, list[str]] = {}
    for u in order:
        for s in dict.fromkeys(u.src):
            consumers.setdefault(s, []).append("sink" if u is graph else names.name(u))
    texts: dict[shapes.Shape, str] = {}
    rows = [("node", "consumers", "shape", "read at", "stored?")]
    for u in order:
        if u is graph or op_syntax.is_literal(u) or u.dtype is dtypes.void:
            continue
        readers = _listed(consumers.get(u, []))
        reads = _reads(u, notes["demands"], known)
        dims = shapes.shape(u)
        if dims not in texts:
            texts[dims] = shapes.show(dims)
        name = f"{names.name(u)} {u.op.name}"
        rows.append((name, readers, texts[dims], reads, _decision(u, notes)))
    title = "decisions of place-stages, node by node (names as in canonicalize):"
    return [title, *columns(rows)]


def _listed(items: list[str]) -> str:
    more = len(items) - _MOST_SHOWN
    return " ".join(items[:_MOST_SHOWN]) + (f" +{more}" if more > 0 else "")


def _reads(u: UOp, demands: Mapping[UOp, Mapping[Any, Any]], known: dict[UOp, str]) -> str:
    found: dict[str, None] = {}
    for demand in demands.get(u, {}).values():
        for x in demand.index:
            if x not in known:
                known[x] = infix(x, _INDEX_CHARACTERS) or "…"
        found["[" + ", ".join([known[x] for x in demand.index]) + "]"] = None
    return _listed(list(found))


def _decision(u: UOp, notes: Mapping[str, Any]) -> str:
    if u.op.is_storage:
        return "is storage"
    if u in notes["stored"]:
        return f"yes: {notes['stored'][u]}"
    if u in notes["storage"]:
        return f"no: {notes['storage'][u]}"
    if u.op.movement or u.op in (Ops.AFTER, Ops.IOTA, Ops.VARIABLE):
        return "no: only an index"
    return "no: nothing reads it"
