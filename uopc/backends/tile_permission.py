"""The request to the kernel for AMX: Linux saves registers of tiles only for processes that ask.

A process asks once. The answer holds for all of its threads, those to come included, and for the
children that it forks; a program that it executes asks again.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys

_ARCH_PRCTL = 158  # the number of the system call on x86-64
_ARCH_REQ_XCOMP_PERM, _XTILEDATA = 0x1023, 18


@functools.cache
def is_granted() -> bool:
    """True where instructions on tiles do not end this process. Linux before 5.16 refuses, a
    sandbox may, and so does a thread whose stack for signals is too small for the registers."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    arguments = map(ctypes.c_long, (_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA))
    return bool(call(*arguments) == 0)
