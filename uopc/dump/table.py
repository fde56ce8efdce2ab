"""Rows of the stage table, and the levels of a stage as text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from uopc.ir.records import dataclass


@dataclass(frozen=True)
class StageRow:
    """A row of the stage table. Sizes count nodes (of all kernels together), or lines of text."""

    number: int
    stage: str
    level: str
    unit: str  # "nodes" or "lines"
    before: int | None
    after: int
    kernels: int | None = None
    changed: bool = True
    rewrites: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The row for `--json`, with milliseconds."""
        shown = asdict(self)
        shown["ms"] = round(shown.pop("seconds") * 1e3, 4)
        return shown


def level_change(before: str, after: str) -> str:
    """The level of a stage, or both levels if it changes them."""
    return after if before == after else f"{before} → {after}"
