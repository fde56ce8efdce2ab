"""Arrays between pages that no program may touch: an access outside of one ends the process."""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
import os
import traceback
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.backends.cpu import runner
from uopc.backends.plan import Plan
from uopc.program.artifact import Artifact
from uopc.program.request import Request

Array = npt.NDArray[Any]
_PAGE = mmap.PAGESIZE
_NONE, _READ, _BOTH = 0, 1, 3  # protections
_PRIVATE = 0x22  # of no file
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Region:
    """`nbytes` of memory with a page before and after it that nobody may read or write.

    `at_end`: the memory ends where the last page begins (less what `align` asks), else it begins
    where the first one ends.
    """

    def __init__(self, nbytes: int, at_end: bool = True, align: int = 1) -> None:
        self.body = max(_PAGE, -(-nbytes // _PAGE) * _PAGE)
        total = self.body + 2 * _PAGE
        base = _libc.mmap(None, total, _BOTH, _PRIVATE, -1, 0)
        if base in (None, 2**64 - 1):
            raise MemoryError(f"mmap of {total} bytes")
        self.begin = base + _PAGE
        _libc.mprotect(base, _PAGE, _NONE)
        _libc.mprotect(self.begin + self.body, _PAGE, _NONE)
        last = self.begin + self.body - nbytes
        self.address = last // align * align if at_end else self.begin
        weakref.finalize(self, _libc.munmap, base, total)

    def __len__(self) -> int:
        return self.body

    def make_read_only(self) -> None:
        _libc.mprotect(self.begin, self.body, _READ)


def guarded(array: Array, at_end: bool = True, read_only: bool = False) -> Array:
    """A copy of an array between guard pages. Writing to a read-only one ends the process."""
    region = Region(array.nbytes, at_end, array.itemsize)
    memory: Any = (ctypes.c_char * array.nbytes).from_address(region.address)
    memory.region = region  # lives as long as the array
    made = np.ndarray(array.shape, array.dtype, memory)
    made[...] = array
    if read_only:
        region.make_read_only()
    return made


class _GuardedNumpy:
    """NumPy, as the runner sees it: the memory of results lies between guard pages."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, shape: Any, dtype: Any) -> Array:
        return guarded(np.empty(shape, dtype))


def guard_programs() -> None:
    """From now on in this process: guard pages around what programs own, and results."""
    if runner._scratch is not _scratch:
        # Doubles: a Region between guard pages for an mmap, and a module with another `empty`.
        runner._scratch = _scratch  # type: ignore[assignment]
        runner.np = _GuardedNumpy()  # type: ignore[assignment]
        Artifact.plan_for = _plan  # type: ignore[method-assign]


def _scratch(nbytes: int) -> tuple[int, Region]:
    region = Region(nbytes, align=64)
    return region.address, region


_plan_for = Artifact.plan_for


def _plan(self: Artifact, request: Request, arrays: Mapping[str, Array]) -> Plan:
    plan = _plan_for(self, request, arrays)
    constants = tuple([guarded(c, read_only=True) for c in plan.constants])
    return dataclasses.replace(plan, constants=constants)


def passes_in_a_child(test: Callable[[], None]) -> None:
    """Run a function in a process of its own, whose arrays are between guard pages. Whatever the
    function raises ends that process, which must not go on with other tests."""
    pid = os.fork()
    if not pid:
        try:
            guard_programs()
            test()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
