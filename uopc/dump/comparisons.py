"""The ways that a pass compared, as text: a line each, and why one of them was taken."""

from __future__ import annotations

from typing import NamedTuple

from uopc.cost.parts import Comparison
from uopc.ir.text.printer import Namer


class WayText(NamedTuple):
    """One of the ways: in words, with its cycles, and with all that is known of it."""

    short: str
    whole: str


def texts_of(comparison: Comparison | None, names: Namer) -> tuple[WayText, ...]:
    """A text for each of the ways that were compared, with the names of values."""
    found = []
    for i, way in enumerate(() if comparison is None else comparison.ways):
        words = " ".join([way.words, *[names.name(u) for u in way.values]])
        short = f"{words}: {way.cost.cycles:,.0f} cycles"
        taken = f": taken, {comparison.why}" if comparison and i == comparison.taken else ""
        found.append(WayText(short, f"{words}: {way.cost}{taken}"))
    return tuple(found)
