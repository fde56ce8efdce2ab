"""Rows of the stage table, the levels of a stage, and the user's source lines as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from uopc.ir.core.uop import UOp


@dataclass(frozen=True)
class Row:
    """A line of the stage table. Sizes count nodes (of all kernels together), or lines of text."""

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


def source_lines(nodes: Sequence[UOp]) -> list[str]:
    """The user's source lines of nodes that have some, by file: `model.py:12-14,20`."""
    lines: dict[str, set[int]] = {}
    for u in nodes:
        code, line = u.origin
        lines.setdefault(code.co_filename, set()).add(line)
    return [f"{os.path.basename(f)}:{_spans(sorted(n))}" for f, n in sorted(lines.items())]


def _spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as text, with neighbours as `12-14`."""
    ends = [a for a, b in zip(numbers, [*numbers[1:], 0]) if b != a + 1]
    begins = [b for a, b in zip([-2, *numbers], numbers) if b != a + 1]
    return ",".join([f"{a}-{b}" if a < b else f"{a}" for a, b in zip(begins, ends)])
