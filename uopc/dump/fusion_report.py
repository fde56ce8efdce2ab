"""The reasons why values are stored or computed again: the notes of place-stages as text.

One line per node: its readers, its shape, the index of each read, the decision, and two costs in
the unit of `place_stages/fusion_cost.py`: of computing the value again for each reader, and of
storing it and reading it back. An index combines the reader's loops: `r0_1` is the loop over axis 1
of the stored value that is being computed, `r3` the loop of a reduce.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uopc.cost.parts import Comparison
from uopc.dump.comparisons import WayText, texts_of
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.text import op_syntax
from uopc.ir.text.columns import columns
from uopc.ir.text.infix import infix
from uopc.ir.text.printer import Namer

_MOST_SHOWN = 4  # consumers or reads of one node
_INDEX_CHARACTERS = 48
_STORAGE = "is storage"


class Decision(NamedTuple):
    """A value of a tensor graph, its readers and reads, and the reason why it is stored or not."""

    name: str
    op: str
    readers: list[str]
    shape: str
    reads: list[str]
    stored: bool
    reason: str
    costs: tuple[float, float] | None  # of computing it again, and of storing it
    ways: tuple[WayText, ...] = ()  # that were compared by predicted cycles

    @property
    def explanation(self) -> str:
        """The reason, with the costs if known."""
        if self.ways:
            return f"{self.reason} ({'; '.join([way.short for way in self.ways])})"
        if self.costs is None:
            return self.reason
        return f"{self.reason} (again {self.costs[0]:.2g}, stored {self.costs[1]:.2g})"


def decisions(
    graph: UOp, notes: Mapping[str, Any], names: Namer, compared: Mapping[UOp, Comparison]
) -> list[Decision]:  # fmt: skip
    """The decisions, with the names in the text of `graph`; none if there are no notes."""
    if "placement" not in notes:
        return []
    found = notes["placement"]()
    notes = {**found, "stored": {**found["stored"], **notes.get("splits", {})}}
    order = walk.nodes(graph)
    known: dict[UOp, str] = {}  # an index, as text
    readers: dict[UOp, list[str]] = {}
    for u in order:
        name = "" if not u.src else "sink" if u is graph else names.name(u)
        for s in dict.fromkeys(u.src):
            readers.setdefault(s, []).append(name)
    shown: dict[shapes.Shape, str] = {}
    found = []
    for u in order:
        if u is graph or op_syntax.is_literal(u) or u.dtype is dtypes.void:
            continue
        dims = shapes.shape(u)
        if dims not in shown:
            shown[dims] = shapes.show(dims)
        reads = _reads(u, notes["demands"], known)
        decided = *_decided(u, notes), texts_of(compared.get(u), names)
        found.append(
            Decision(names.name(u), u.op.name, readers.get(u, []), shown[dims], reads, *decided)
        )
    return found


def report(found: Sequence[Decision]) -> list[str]:
    """The decisions as a table of text."""
    if not found:
        return []
    rows = [("node", "consumers", "shape", "read at", "stored?")]
    for d in found:
        decided = f"{'yes' if d.stored else 'no'}: {d.explanation}"
        decided = d.reason if d.reason == _STORAGE else decided
        rows.append((f"{d.name} {d.op}", _listed(d.readers), d.shape, _listed(d.reads), decided))
    title = "decisions of place-stages, node by node (names as in canonicalize):"
    return [title, *columns(rows)]


def orders(notes: Mapping[str, Any], names: Namer) -> list[str]:
    """A table of the values that `order-storage` stores in another order than their shape's; empty
    if there are none."""
    found = notes.get("orders", {})
    if not found:
        return []
    rows = [("value", "shape", "axes in storage", "cycles of its writers and readers")]
    for u, choice in found.items():
        least = f"at least {choice.before:.3g} in the order of its shape"
        cycles = f"{least}, {choice.after:.3g} in this one"
        rows.append((names.name(u), shapes.show(u.shape), str(choice.order), cycles))
    return ["values that order-storage stores in another order:", *columns(rows)]


def _listed(items: list[str]) -> str:
    more = len(items) - _MOST_SHOWN
    return " ".join(items[:_MOST_SHOWN]) + (f" +{more}" if more > 0 else "")


def _reads(u: UOp, demands: Mapping[UOp, Mapping[Any, Any]], known: dict[UOp, str]) -> list[str]:
    found: dict[str, None] = {}
    for demand in demands.get(u, {}).values():
        for x in demand.index:
            if x not in known:
                known[x] = infix(x, _INDEX_CHARACTERS) or "…"
        found["[" + ", ".join([known[x] for x in demand.index]) + "]"] = None
    return list(found)


def _decided(u: UOp, notes: Mapping[str, Any]) -> tuple[bool, str, tuple[float, float] | None]:
    choice = notes["choices"].get(u)
    costs = (choice.recomputed, choice.once) if choice is not None and choice.once else None
    if u.op.is_storage:
        return False, _STORAGE, None
    if u in notes["stored"]:
        return True, notes["stored"][u], costs
    if choice is not None:
        return False, choice.reason, costs
    index = u.op.movement or u.op in (Ops.AFTER, Ops.IOTA, Ops.VARIABLE)
    return False, "only an index" if index else "nothing reads it", None
