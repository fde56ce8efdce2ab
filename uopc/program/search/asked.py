"""A search of several programs that somebody asked for, such as `uopc tune`."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uopc.program.request import Request

if TYPE_CHECKING:  # a program from a cache needs no pass
    from uopc.program.search.beam import Bench


@dataclass(frozen=True)
class Session:
    """`begin` makes the Bench of a kernel, for values of its variables; `width`: the lists that
    stay in each round; `seconds`: the most for a kernel."""

    begin: Callable[[Request, dict[str, int]], Bench]
    width: int
    seconds: float | None = None


running: ContextVar[Session | None] = ContextVar("session", default=None)
