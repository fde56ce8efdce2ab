"""Device memory that is reused in the order of one stream.

Freed memory may be reused at once: kernels that still read it were launched before those that will
write it. So nothing waits, and only the first calls ask the driver for memory.
"""

from __future__ import annotations

import threading
from typing import Any

from uopc.backends.cuda.binding import driver, translate

_SMALL = 512  # every allocation is a multiple of this, and aligned to it
_STEPS = 8  # sizes between two powers of two


def size_class(nbytes: int) -> int:
    """The size of the allocation for a request: at most an eighth more, for large ones."""
    if nbytes <= _SMALL * _STEPS:
        return max(_SMALL, -(-nbytes // _SMALL) * _SMALL)
    step = 1 << max(9, (nbytes - 1).bit_length() - 4)
    return -(-nbytes // step) * step


class Allocation:
    """Memory on a device, which returns to its pool with its last reference."""

    __slots__ = ("__weakref__", "address", "nbytes", "pool")

    def __init__(self, address: int, nbytes: int, pool: MemoryPool) -> None:
        self.address, self.nbytes, self.pool = address, nbytes, pool

    def __del__(self) -> None:
        self.pool.release(self.address, self.nbytes)


class MemoryPool:
    """The memory of one device; its context must be current during calls."""

    def __init__(self) -> None:
        self._free: dict[int, list[int]] = {}
        self._owned: dict[int, Any] = {}  # address → pycuda's allocation
        self._lock = threading.Lock()
        self.held = 0  # bytes allocated by the driver

    def acquire(self, nbytes: int) -> Allocation:
        """At least `nbytes` of memory. Raises DeviceMemoryError where no memory is left."""
        return self.acquire_class(size_class(nbytes))

    def acquire_class(self, size: int) -> Allocation:
        """Memory of exactly the size of a class."""
        with self._lock:
            waiting = self._free.get(size)
            address = waiting.pop() if waiting else None
        return Allocation(self._allocate(size) if address is None else address, size, self)

    def _allocate(self, size: int) -> int:
        drv = driver()
        try:
            made = drv.mem_alloc(size)
        except drv.Error:
            self.trim()  # return unused memory to the driver, then try again
            try:
                made = drv.mem_alloc(size)
            except drv.Error as error:
                free, total = drv.mem_get_info()
                doing = f"allocating {size} bytes ({free} of {total} are free)"
                raise translate(error, doing) from error
        address = int(made)
        with self._lock:
            self._owned[address] = made
            self.held += size
        return address

    def release(self, address: int, size: int) -> None:
        """Make memory free for reuse."""
        with self._lock:
            self._free.setdefault(size, []).append(address)

    def trim(self) -> int:
        """Return unused memory to the driver. Returns its bytes."""
        with self._lock:
            nbytes = sum(size * len(waiting) for size, waiting in self._free.items())
            self.held -= nbytes
            allocations = [self._owned.pop(a) for waiting in self._free.values() for a in waiting]
            self._free.clear()
        for allocation in allocations:
            allocation.free()
        return nbytes


class Pinned:
    """Page-locked memory of the host, for copies that the device makes by itself."""

    def __init__(self) -> None:
        self._free: dict[int, list[Any]] = {}
        self._lock = threading.Lock()

    def acquire(self, nbytes: int) -> Any:
        """A uint8 array of at least `nbytes`, to be released after the copy."""
        size = size_class(nbytes)
        with self._lock:
            waiting = self._free.get(size)
            if waiting:
                return waiting.pop()
        return driver().pagelocked_empty(size, "uint8")

    def release(self, buffer: Any) -> None:
        """The copy is over."""
        with self._lock:
            self._free.setdefault(len(buffer), []).append(buffer)

    def clear(self) -> None:
        """Free unused memory."""
        with self._lock:
            self._free.clear()
