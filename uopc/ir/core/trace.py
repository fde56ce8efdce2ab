"""Report rewrites to a listener of this thread.

A rewrite names its cause, a rule of a PatternMatcher or the function of a pass, by the place in the
source. Without a listener it costs nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from uopc.ir.core.uop import UOp


class Cause(Protocol):
    """The cause of a rewrite: a rule, or a function of a pass."""

    @property
    def place(self) -> str:
        """file:line"""

    @property
    def label(self) -> str:
        """A name and the place."""


@dataclass(frozen=True, slots=True)
class Step:
    """The function with which a pass goes over the nodes of a graph."""

    function: Callable[..., UOp | None]

    @property
    def _plain(self) -> Callable[..., UOp | None]:
        """The function itself, without the arguments of a `partial`."""
        found = self.function
        while isinstance(found, functools.partial):
            found = found.func
        return found

    @property
    def place(self) -> str:
        """file:line"""
        code = getattr(self._plain, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else ""

    @property
    def label(self) -> str:
        """The function's name and place."""
        name = getattr(self._plain, "__qualname__", repr(self.function))
        return f"{name.replace('.<locals>', '')} ({self.place})"


@dataclass(frozen=True, slots=True)
class Fired:
    """One rewrite, as given to a listener."""

    rewrite: str
    rule: Cause
    before: UOp
    after: UOp

    def __str__(self) -> str:
        return f"{self.rewrite}: {self.rule.label}"


Listener = Callable[[Fired], None]
_listener: contextvars.ContextVar[Listener | None] = contextvars.ContextVar("trace", default=None)


@contextlib.contextmanager
def tracing(listener: Listener) -> Iterator[None]:
    """Call `listener`, `list.append` for one, with every rewrite of this thread in the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def current_listener() -> Listener | None:
    """The listener of this thread, or None."""
    return _listener.get()
