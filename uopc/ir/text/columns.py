"""Words and tables of plain text."""

from __future__ import annotations

from collections.abc import Container, Sequence


def columns(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """A line per row, with the cells of a column below each other; `right` columns end alike."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join([
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ]).rstrip()
        for row in rows
    ]  # fmt: skip


def plural(n: int, one: str, many: str = "") -> str:
    """A number of things: `1 kernel`, `2 kernels`."""
    return f"{n} {one if n == 1 else many or one + 's'}"
