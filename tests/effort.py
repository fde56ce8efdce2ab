"""The cost of a function without a limit in seconds, which depends on the machine and its load."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from uopc.ir.core import uop
from uopc.ir.core.ops import Op

T = TypeVar("T")


def cpu_seconds(run: Callable[..., object], *arguments: Any) -> float:
    """CPU time of this process in one call."""
    begin = time.process_time()
    run(*arguments)
    return time.process_time() - begin


def grows_less(run: Callable[[T], object], small: T, large: T, most: float) -> bool:
    """True if run(large) takes less than `most` times the CPU time of run(small), in turns. One of
    three rounds is enough: noise makes one ratio larger, a slower algorithm all of them."""
    return any(cpu_seconds(run, large) < most * cpu_seconds(run, small) for _ in range(3))


def calls(run: Callable[[], object]) -> int:
    """The number of calls of Python and C functions in run()."""
    count = 0

    def event(frame: object, kind: str, arg: object) -> None:
        nonlocal count
        count += kind in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(event)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


@contextlib.contextmanager
def births() -> Iterator[list[Op]]:
    """The list of the ops of all nodes that are made meanwhile."""
    made: list[Op] = []
    gc.collect()  # nodes of graphs in circles, which need not be made again
    uop.check_construction(lambda u: made.append(u.op))
    try:
        yield made
    finally:
        uop.check_construction(None)
