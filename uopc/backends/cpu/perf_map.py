"""UOPC_PERF_MAP: the file by which Linux's `perf` names functions that were compiled at run time.

Each line of `/tmp/perf-PID.map` is the address, the size, both in hexadecimal, and the name of a
function. `perf record python program.py; perf report` then shows kernels by name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from uopc.errors import UserError

Function = tuple[str, int, int]  # name, address, size in bytes
_lines: list[str] = []  # for a child after a fork, which has its own file


def path() -> Path:
    """The file of this process. `perf` looks in no other place."""
    return Path(f"/tmp/perf-{os.getpid()}.map")


def add(functions: Iterable[Function]) -> None:
    """Add functions to the file. UserError if it cannot be written, or is not this user's."""
    lines = [f"{address:x} {size:x} uopc:{name}\n" for name, address, size in functions]
    _lines.extend(lines)
    _write(lines)


def _write(lines: list[str]) -> None:
    # The name is known to all users of this system: never follow a link, never write to their file.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(path(), flags, 0o600)
        with os.fdopen(file, "a", encoding="utf-8") as opened:
            found = os.fstat(file)
            if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
                raise OSError(f"it belongs to user {found.st_uid}, or is not a file")
            opened.write("".join(lines))
    except OSError as error:
        raise UserError(
            f"option perf_map (UOPC_PERF_MAP): {path()}: {error.strerror or error}"
        ) from None


def _after_fork_in_child() -> None:
    if _lines:
        _write(_lines)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
