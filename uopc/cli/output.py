"""What a command prints: lines and tables, in colour on a terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from uopc import config

Refuse = Callable[[str], NoReturn]  # ends the process: a wrong usage


class Output:
    """Lines to stdout. They are coloured on a terminal unless NO_COLOR is set."""

    def __init__(self) -> None:
        self._console: Any = None
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an arrow is no reason to fail
        if sys.stdout.isatty() and not config.current().no_color:
            from rich.console import Console

            self._console = Console(highlight=False, soft_wrap=True)

    def line(self, text: str = "", style: str = "") -> None:
        """One line (or a text of several), in a style of rich."""
        if self._console is None:
            print(text)
        else:
            from rich.text import Text

            self._console.print(Text(text, style))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns as wide as their widest cell, under bold heads."""
        widths = [max(map(len, column)) for column in zip(heads, *rows)]
        for number, row in enumerate((heads, *rows)):
            text = "  ".join([cell.ljust(width) for cell, width in zip(row, widths)])
            self.line(text.rstrip(), "" if number else "bold")


def count(n: int, one: str, many: str = "") -> str:
    """A number of things: `1 kernel`, `2 kernels`."""
    return f"{n} {one if n == 1 else many or one + 's'}"
