"""A bar on stderr for a compile of more than two seconds, if a person is watching."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

from uopc import config
from uopc.passes.contract import watch

SECONDS: Final = 2.0
_LEAST_PAUSE: Final = 0.1  # seconds between two pictures of the bar


class Bar:
    """A bar for the current step of a compile and the fraction that is done."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next = time.perf_counter() + SECONDS
        self._shown: Any = None
        self._task: Any = None
        self._most = 0.0

    def __call__(self, step: str, share: float) -> None:
        self._most = max(self._most, share)  # a compile inside another one begins at 0
        now = time.perf_counter()
        if now < self._next:
            return
        self._next = now + _LEAST_PAUSE
        if self._shown is None:
            from rich.console import Console
            from rich.progress import Progress

            console = Console(stderr=True, no_color=config.current().no_color or None)
            self._shown = Progress(console=console, transient=True, auto_refresh=False)
            self._shown.start()
            self._task = self._shown.add_task("", total=1.0)
        text = f"uopc: {self._name}: {step}"
        self._shown.update(self._task, completed=self._most, description=text, refresh=True)

    def close(self) -> None:
        """Remove the bar."""
        if self._shown is not None:
            self._shown.stop()


@contextlib.contextmanager
def shown(name: str) -> Iterator[None]:
    """Show a bar for the compile inside."""
    bar = Bar(name)
    token = watch.set(bar)
    try:
        yield
    finally:
        watch.reset(token)
        bar.close()
