"""The user's source lines that made nodes, as text."""

from __future__ import annotations

import os
from collections.abc import Sequence

from uopc.ir.core.uop import UOp


def source_lines(nodes: Sequence[UOp]) -> list[str]:
    """The user's source lines of nodes, by file: `model.py:12-14,20`."""
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
