"""Who wants to know of rewrites: listeners of this thread, and what they are told.

A rule of a PatternMatcher, or the function of a pass that changed a node, is named by its place in
the source. It costs nothing while nobody listens.
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
    """What made a rewrite: a rule, or a function of a pass."""

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
        """The function that was written down, where some of its arguments are given already."""
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
    """Call `listener` with every rewrite made meanwhile by this thread; `list.append` will do."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def current_listener() -> Listener | None:
    """Who is to be told of rewrites in this thread."""
    return _listener.get()
