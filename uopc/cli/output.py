"""The output of a command: lines and tables, in colour on a terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from uopc import config
from uopc.ir.text.columns import columns

Refuse = Callable[[str], NoReturn]  # reports wrong usage and ends the process


class Output:
    """Lines to stdout. They are coloured on a terminal unless NO_COLOR is set."""

    def __init__(self) -> None:
        self._console: Any = None
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # replace a character that the terminal lacks
        if sys.stdout.isatty() and not config.current().no_color:
            from rich.console import Console

            self._console = Console(highlight=False, soft_wrap=True)

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line (or a text of several lines) in a style of rich."""
        if self._console is None:
            print(text)
        else:
            from rich.text import Text

            self._console.print(Text(text, style))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print columns as wide as their widest cell, under bold heads."""
        for number, text in enumerate(columns((heads, *rows))):
            self.line(text, "" if number else "bold")
