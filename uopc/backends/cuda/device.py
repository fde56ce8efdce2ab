"""One NVIDIA device: its primary context, loaded modules, memory, and copies.

The context is the one that other libraries in the process use too. It is current only inside
`with device:`, so theirs stays in place outside. All work goes to the legacy default stream, which
orders itself after and before the other (blocking) streams of the context.
"""

from __future__ import annotations

import atexit
import hashlib
import threading
from typing import Any

import numpy as np

from uopc.backends.cuda.binding import driver, failures
from uopc.backends.cuda.graphs import Graphs
from uopc.backends.cuda.pool import Allocation, MemoryPool, Pinned
from uopc.backends.plan import AnyArray
from uopc.errors import DeviceError, InvalidIR

# Host arrays up to this size go through page-locked memory; the driver splits larger ones.
PINNED_LIMIT = 16 << 20


class Device:
    """A device by number. Made once: see `device()`."""

    def __init__(self, ordinal: int) -> None:
        drv = self.driver = driver()
        self.pop = drv.Context.pop  # the end of what `context.push()` begins
        count = drv.Device.count()
        if not 0 <= ordinal < count:
            here = f"there are {count}, the first is cuda:0" if count else "there are none"
            raise DeviceError(f"no device cuda:{ordinal}: {here}")
        with failures(f"opening cuda:{ordinal}"):
            found = drv.Device(ordinal)
            self.ordinal, self.name = ordinal, str(found.name())
            major, minor = found.compute_capability()
            self.capability = (int(major), int(minor))
            self.context = found.retain_primary_context()
        self.pool, self.pinned, self.graphs = MemoryPool(), Pinned(), Graphs()
        self._modules: dict[bytes, Any] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Device:
        self.context.push()
        return self

    def __exit__(self, *_: object) -> None:
        self.pop()

    def load(self, ptx: str) -> Any:
        """A module of PTX text, assembled by the driver once in this process."""
        key = hashlib.sha256(ptx.encode()).digest()
        with self._lock:
            module = self._modules.get(key)
            if module is None:
                try:
                    module = self.driver.module_from_buffer(ptx.encode() + b"\0")
                except self.driver.LogicError as error:
                    raise InvalidIR(f"cuda:{self.ordinal} refuses the PTX: {error}") from error
                self._modules[key] = module
            return module

    def synchronize(self) -> None:
        """Wait for everything on this device; errors of kernels appear here."""
        driver().Context.synchronize()

    # -------------------------------------------------------- copies
    def upload(self, array: AnyArray, address: int, used: list[Any]) -> None:
        """Start to copy a contiguous host array; `used` must live until the copy is done."""
        source = array.reshape(-1).view(np.uint8)
        if not source.size:
            return
        if source.size > PINNED_LIMIT:
            driver().memcpy_htod(address, source)
            return
        buffer = self.pinned.acquire(source.size)
        used.append(buffer)
        buffer[: source.size] = source
        driver().memcpy_htod_async(address, buffer[: source.size], None)

    def download(self, address: int, nbytes: int, used: list[Any]) -> Any:
        """Start to copy from the device; the bytes are valid after `synchronize`."""
        if nbytes > PINNED_LIMIT:
            whole = np.empty(nbytes, np.uint8)
            driver().memcpy_dtoh(whole, address)
            return whole
        buffer = self.pinned.acquire(max(1, nbytes))
        used.append(buffer)
        if nbytes:
            driver().memcpy_dtoh_async(buffer[:nbytes], address, None)
        return buffer[:nbytes]

    def release(self, used: list[Any]) -> None:
        """Return buffers whose copies are done."""
        for buffer in used:
            self.pinned.release(buffer)
        used.clear()

    def constant(self, array: AnyArray) -> Allocation:
        """A copy of a host array that stays on the device."""
        memory = self.pool.acquire(array.nbytes)
        used: list[Any] = []
        self.upload(array, memory.address, used)
        self.synchronize()
        self.release(used)
        return memory

    def close(self) -> None:
        """Free everything while the driver is still loaded."""
        with self:
            self._modules.clear()
            self.pinned.clear()
            self.pool.trim()


def count() -> int:
    """The number of devices."""
    return int(driver().Device.count())


_devices: dict[int, Device] = {}
_devices_lock = threading.Lock()


def device(ordinal: int) -> Device:
    """The device of a number. DeviceError where there is no driver or no such device."""
    with _devices_lock:
        found = _devices.get(ordinal)
        if found is None:
            found = _devices[ordinal] = Device(ordinal)
        return found


@atexit.register
def close_all() -> None:
    """Close all devices at the end of the process, before the driver shuts down."""
    with _devices_lock:
        for opened in _devices.values():
            opened.close()
        _devices.clear()
