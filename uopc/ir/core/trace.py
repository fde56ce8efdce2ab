"""Report rewrites to a listener of this thread.

A rewrite names its cause, a rule of a PatternMatcher or the function of a pass, by its line in the
source. Without a listener, reports cost nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from uopc.ir.core.uop import UOp, set_origin


class Cause(Protocol):
    """The cause of a rewrite: a rule, or a function of a pass."""

    @property
    def label(self) -> str:
        """A name and the source line."""


class PassFunction(NamedTuple):
    """The function that a pass calls with each node of a graph."""

    function: Callable[..., UOp | None]

    @property
    def label(self) -> str:
        """The function's name and source line."""
        plain = self.function
        while isinstance(plain, functools.partial):
            plain = plain.func
        code = getattr(plain, "__code__", None)
        line = f"{code.co_filename}:{code.co_firstlineno}" if code else ""
        name = getattr(plain, "__qualname__", repr(self.function))
        return f"{name.replace('.<locals>', '')} ({line})"


class Fired(NamedTuple):
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


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Call no listener with rewrites of this thread in the block."""
    token = _listener.set(None)
    try:
        yield
    finally:
        _listener.reset(token)


def current_listener() -> Listener | None:
    """The listener of this thread, or None."""
    return _listener.get()


def standing_for(u: UOp, made: UOp) -> UOp:
    """Give a new node the user's line of the node that it replaces."""
    if made.origin is None:
        set_origin(made, u.origin)
    return made


def made_at(u: UOp) -> str:
    """The user's line that made a node, as the end of a message; "" if unknown."""
    if u.origin is None:
        return ""
    code, line = u.origin
    return f"\n  made at {code.co_filename}:{line} in {code.co_name}"
