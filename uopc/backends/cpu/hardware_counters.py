"""Hardware counters: cycles, instructions, cache misses and branch misses of a piece of work.

On Linux `perf_event_open` opens one counter of each event for each thread of the process, in user
mode only. A counter that the processor shares with others runs part of the time, and its count is
scaled to all of it. Where the system or the machine has no counters, `Unavailable` says why.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from uopc.errors import Error


class Unavailable(Error):
    """The counters cannot be read here; the text says why."""


class Event(NamedTuple):
    """An event as the kernel numbers it."""

    name: str
    type: int
    config: int


# fmt: off
EVENTS: Final = (
    Event("cycles",        0, 0),
    Event("instructions",  0, 1),
    Event("cache_misses",  0, 3),
    Event("branch_misses", 0, 5),
)
# fmt: on
_SYSCALLS: Final = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
# type, size, config, period, sample type, read format, flags, wakeup, breakpoint type and address
_ATTRIBUTES: Final = struct.Struct("=IIQQQQQIIQ")
_TIMES: Final = 0b11  # read the times for which a counter was enabled, and ran
_DISABLED, _NO_KERNEL, _NO_HYPERVISOR = 1 << 0, 1 << 5, 1 << 6
_ENABLE, _DISABLE = 0x2400, 0x2401
_COUNT: Final = struct.Struct("=QQQ")
_PARANOID: Final = Path("/proc/sys/kernel/perf_event_paranoid")


def _open(event: Event, thread: int) -> int:
    """The file of a counter of one thread on any processor. OSError where the system refuses."""
    attributes = _ATTRIBUTES.pack(
        event.type, _ATTRIBUTES.size, event.config, 0, 0, _TIMES,
        _DISABLED | _NO_KERNEL | _NO_HYPERVISOR, 0, 0, 0,
    )  # fmt: skip
    system = ctypes.CDLL(None, use_errno=True)
    given = ctypes.create_string_buffer(attributes, len(attributes))
    number = ctypes.c_long(_SYSCALLS[platform.machine()])
    # this thread, any processor, no group, closed on exec
    file = int(system.syscall(number, given, thread, -1, -1, ctypes.c_ulong(1 << 3)))
    if file < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return file


def _threads() -> list[int]:
    """The threads of this process."""
    return [int(name) for name in os.listdir("/proc/self/task")]


class Counters:
    """The open counters of all threads that the process has now. `opened` makes and closes them."""

    def __init__(self, files: dict[str, list[int]]) -> None:
        self._files = files

    def of(self, work: Callable[[], object]) -> dict[str, float]:
        """The number of each event while `work` runs, in all threads together."""
        import fcntl  # of Unix alone, as these counters are

        before = self._read()
        for command in (_ENABLE, _DISABLE):
            for file in self._all():
                fcntl.ioctl(file, command, 0)
            if command == _ENABLE:
                work()
        after = self._read()
        return {name: max(0.0, after[name] - before[name]) for name in self._files}

    def _all(self) -> list[int]:
        return [file for files in self._files.values() for file in files]

    def _read(self) -> dict[str, float]:
        return {name: sum(map(_read_counter, files)) for name, files in self._files.items()}


def _read_counter(file: int) -> float:
    """The count, scaled to all of the time if the counter ran for a part of it."""
    value, enabled, running = _COUNT.unpack(os.read(file, _COUNT.size))
    return value * enabled / running if running else 0.0


@contextlib.contextmanager
def opened() -> Iterator[Counters]:
    """Counters of all events that the machine has. Unavailable if there are none, or none may be
    read."""
    if not sys.platform.startswith("linux"):
        raise Unavailable(f"only Linux has perf_event_open, and this is {sys.platform}")
    if platform.machine() not in _SYSCALLS:
        raise Unavailable(f"uopc knows no perf_event_open of {platform.machine()} processors")
    files: dict[str, list[int]] = {}
    refused: OSError | None = None
    try:
        for event in EVENTS:
            made = files.setdefault(event.name, [])
            for thread in _threads():
                try:
                    made.append(_open(event, thread))
                except ProcessLookupError:  # the thread has ended
                    continue
                except OSError as error:
                    refused = error
                    break
            if not made:
                del files[event.name]
        if not files:
            raise Unavailable(_why(refused))
        yield Counters(files)
    finally:
        for file in [f for found in files.values() for f in found]:
            os.close(file)


def _why(error: OSError | None) -> str:
    if error is None:
        return "no thread of the process could be counted"
    if error.errno in (errno.EACCES, errno.EPERM):
        try:
            paranoid = _PARANOID.read_text("utf-8").strip()
            level = f"; kernel.perf_event_paranoid is {paranoid}, 2 allows it"
        except OSError:
            level = ""
        return f"the system forbids perf_event_open here, as containers do{level}"
    if error.errno == errno.ENOSYS:
        return "this system has no perf_event_open"
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return "this machine shows no hardware counters, as virtual machines do"
    return f"perf_event_open: {error.strerror}"
