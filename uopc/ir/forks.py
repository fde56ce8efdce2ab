"""Values and locks that stay valid in a forked child: it has one thread, so nobody frees a held
lock.

A value that an object computes once needs no lock. Locks that are held for a moment are free in the
child: the fork waits for them, and for imports of the package's modules, as in the first compile.
The owners of other locks make new locks in the child.
"""

from __future__ import annotations

import _imp
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")

_PACKAGES = ("uopc", "llvmlite", "numpy", "ml_dtypes")
_MOST_SECONDS = 10.0  # longest wait of a fork for an import, perhaps the forking thread's own


class cached_property(Generic[T]):
    """A value that is computed when an attribute is first read, and then kept.

    Threads that first read it at the same time may each compute it, and get one object.
    `functools.cached_property` of Python 3.11 meanwhile holds a lock of the whole class: the child
    of a process that forks then would wait forever.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.func, self.name = function, function.__name__
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object, owner: type | None = None) -> cached_property[T] | T:
        if instance is None:
            return self
        known: dict[str, T] = instance.__dict__
        return known.setdefault(self.name, self.func(instance))


_locks: dict[Any, bool] = {}  # True for a lock that may be held for long
_held: dict[int, list[Any]] = {}  # by the thread that forks


def wait_for(lock: threading.Lock | threading.RLock, long: bool = False) -> None:
    """Let each fork wait until no thread holds a lock. `long`: the lock may be held for more than a
    moment, but never by a thread that imports a module or forgets a node."""
    _locks[lock] = long


# A fork waits for the module that LLVM compiles, say of a program that failed since: nothing would
# release the lock of llvmlite in the child. Who calls LLVM holds this one.
llvm = threading.RLock()
wait_for(llvm, long=True)


def _before() -> None:
    """Acquire the locks while no module of the package is imported (Python has a lock for each). No
    deadlock: threads that this thread waits for never wait for its locks."""
    end = time.monotonic() + _MOST_SECONDS
    while True:
        held = [lock for lock, long in _locks.items() if long and lock.acquire()]
        _imp.acquire_lock()
        brief = [lock for lock, long in _locks.items() if not long]
        held += [lock for lock in brief if lock.acquire(blocking=False)]
        importing = any(map(_is_importing, list(sys.modules))) and time.monotonic() < end
        if len(held) == len(_locks) and not importing:
            _held[threading.get_ident()] = held
            return
        _release(held)
        time.sleep(0.001)


def _release(held: list[Any]) -> None:
    for lock in held:
        lock.release()
    _imp.release_lock()


def _after() -> None:
    _release(_held.pop(threading.get_ident()))


def _is_importing(name: str) -> bool:
    if name.partition(".")[0] not in _PACKAGES:
        return False
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
