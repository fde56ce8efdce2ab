"""The most threads that a launch takes in this process, as threadpoolctl sets it.

threadpoolctl finds libraries among the shared objects of the process, by prefixes of their names.
The runtime is machine code in memory and no shared object, so its controller stands beside a file
that is loaded wherever uopc is: the core of NumPy.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from uopc import config

limit: int | None = None  # None: each program takes as many threads as it was compiled for
on_change: list[Callable[[], None]] = []


def usual() -> int:
    """The threads of a program that is compiled without `threads=`."""
    from uopc.backends import detect  # the import of uopc needs no facts of processors

    return config.from_environment().threads or detect.cores()


def set_limit(threads: int) -> None:
    """Let launches use at most this number of threads; `usual()` and more set no limit."""
    global limit
    limit = None if threads >= usual() else max(1, threads)
    for tell in on_change:
        tell()


def register(version: str) -> None:
    """Make the limit known to threadpoolctl, if it is installed."""
    if importlib.util.find_spec("threadpoolctl") is None:
        return
    import threadpoolctl

    if not hasattr(threadpoolctl, "register"):  # before 3.2
        return
    base: Any = threadpoolctl.LibController

    class Controller(base):  # type: ignore[misc]
        """The threads of CPU programs."""

        user_api = internal_api = "uopc"
        filename_prefixes = ("_multiarray_umath",)

        def get_num_threads(self) -> int:
            return usual() if limit is None else limit

        def set_num_threads(self, num_threads: int) -> None:
            set_limit(num_threads)

        def get_version(self) -> str:
            return version

    threadpoolctl.register(Controller)
