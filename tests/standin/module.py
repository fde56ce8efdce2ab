"""A module in place of pycuda.driver: the part of it that the runtime uses, on a Driver."""

from __future__ import annotations

import contextlib
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.standin.driver import (
    MAX_DYNAMIC_SHARED,
    MESSAGES,
    OUT_OF_MEMORY,
    SUCCESS,
    Driver,
    DriverError,
)  # fmt: skip


class Error(Exception):
    pass


class LogicError(Error):
    pass


class RuntimeError_(Error):
    pass


class MemoryError_(Error):
    pass


def make(driver: Driver) -> types.ModuleType:
    """pycuda.driver on a stand-in."""
    return _Module(driver).module


def install(driver: Driver, patch: Any) -> types.ModuleType:
    """Put the stand-in where `import pycuda.driver` finds it, until the test is over."""
    from uopc.backends.cuda import binding

    package, module, libcuda = types.ModuleType("pycuda"), make(driver), Libcuda(driver)
    package.__path__ = []  # type: ignore[attr-defined]
    package.driver = module  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "pycuda", package)
    patch.setitem(sys.modules, "pycuda.driver", module)
    patch.setattr(binding, "library", lambda: libcuda)
    return module


@contextlib.contextmanager
def installed(part: str) -> Iterator[Driver]:
    """A new device of a part (sm_80) under the runtime, for a block."""
    from uopc.backends.cuda import binding, device

    driver = Driver()
    driver.capability = (int(part[3]), int(part[4]))
    with pytest.MonkeyPatch.context() as patch:
        install(driver, patch)
        patch.setattr(binding, "_driver", None)
        patch.setattr(device, "_devices", {})
        yield driver


class _Module:
    """Names of the module, each bound to the driver."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        m = self.module = types.ModuleType("pycuda.driver")
        names: dict[str, Any] = {
            "Error": Error, "LogicError": LogicError, "RuntimeError": RuntimeError_,
            "MemoryError": MemoryError_, "init": self.init, "Device": self._device(),
            "Context": self._context(), "module_from_buffer": self.module_from_buffer,
            "mem_alloc": self.mem_alloc, "mem_get_info": self.mem_get_info,
            "memcpy_htod": self.memcpy_htod, "memcpy_dtoh": self.memcpy_dtoh,
            "memcpy_htod_async": lambda to, a, stream: self.memcpy_htod(to, a),
            "memcpy_dtoh_async": lambda a, source, stream: self.memcpy_dtoh(a, source),
            "memcpy_dtod": self.memcpy_dtod, "pagelocked_empty": self.pagelocked_empty,
            "memset_d8_async": self.memset_d8_async,
            "Event": self._event(), "Stream": _Stream, "get_version": lambda: (13, 0, 0),
            "get_driver_version": lambda: 13000,
            "function_attribute": types.SimpleNamespace(
                MAX_DYNAMIC_SHARED_SIZE_BYTES=MAX_DYNAMIC_SHARED
            ),
        }  # fmt: skip
        for name, value in names.items():
            setattr(m, name, value)

    def ask(self, entry: str, function: Any, *args: Any) -> Any:
        """Call the driver; its codes become pycuda's exceptions. A context must be current."""
        if not self.driver.contexts and entry not in ("cuInit", "cuDeviceGetCount"):
            raise LogicError(f"{entry} failed: invalid device context")
        try:
            self.driver.enter(entry)
            return function(*args)
        except DriverError as error:
            kind = {OUT_OF_MEMORY: MemoryError_, 1: LogicError, 218: LogicError, 500: LogicError}
            raise kind.get(error.code, RuntimeError_)(str(error)) from None

    def init(self) -> None:
        self.ask("cuInit", lambda: None)

    def mem_get_info(self) -> tuple[int, int]:
        return self.driver.total - sum(self.driver.sizes.values()), self.driver.total

    def mem_alloc(self, nbytes: int) -> Any:
        return _Allocation(self, self.ask("cuMemAlloc_v2", self.driver.allocate, nbytes))

    def memcpy_htod(self, to: int, array: Any) -> None:
        self.ask("cuMemcpyHtoD_v2", self.driver.copy_in, int(to), memoryview(array).cast("B"))

    def memcpy_dtoh(self, array: Any, source: int) -> None:
        data = self.ask("cuMemcpyDtoH_v2", self.driver.copy_out, int(source), array.nbytes)
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)

    def memcpy_dtod(self, to: int, source: int, nbytes: int) -> None:
        data = self.ask("cuMemcpyDtoD_v2", self.driver.copy_out, int(source), nbytes)
        self.driver.copy_in(int(to), data)

    def memset_d8_async(self, to: int, value: int, count: int, stream: Any) -> None:
        self.ask("cuMemsetD8Async", self.driver.copy_in, int(to), bytes([value]) * count)

    def pagelocked_empty(self, shape: Any, dtype: Any) -> Any:
        self.ask("cuMemHostAlloc", lambda: None)
        return np.empty(shape, dtype)

    def module_from_buffer(self, image: bytes, **_: Any) -> Any:
        text = bytes(image).rstrip(b"\0").decode()
        number = self.ask("cuModuleLoadDataEx", self.driver.load, text)
        made = types.SimpleNamespace()
        made.get_function = lambda name: _Function(
            self, self.ask("cuModuleGetFunction", self.driver.function, number, name)
        )
        return made

    def _device(self) -> Any:
        outer = self

        class Device:
            def __init__(self, ordinal: int) -> None:
                self.ordinal = ordinal

            @staticmethod
            def count() -> int:
                return int(outer.ask("cuDeviceGetCount", lambda: outer.driver.devices))

            def name(self) -> str:
                return outer.driver.name

            def compute_capability(self) -> tuple[int, int]:
                return outer.driver.capability

            def total_memory(self) -> int:
                return outer.driver.total

            def retain_primary_context(self) -> Any:
                outer.driver.enter("cuDevicePrimaryCtxRetain")
                return outer.module.Context()  # type: ignore[attr-defined]

        return Device

    def _context(self) -> Any:
        outer = self

        class Context:
            def push(self) -> None:
                outer.driver.contexts.append(self)

            @staticmethod
            def pop() -> None:
                outer.driver.contexts.pop()

            @staticmethod
            def synchronize() -> None:
                outer.ask("cuCtxSynchronize", lambda: None)

            def detach(self) -> None:
                """Nothing is kept."""

        return Context

    def _event(self) -> Any:
        outer = self

        class Event:
            at = 0.0

            def record(self, stream: Any = None) -> None:
                self.at = time.perf_counter()

            def synchronize(self) -> None:
                outer.ask("cuEventSynchronize", lambda: None)

            def query(self) -> bool:
                return True  # all work is done at once

            def time_till(self, end: Any) -> float:
                return (end.at - self.at) * 1e3

        return Event


class _Stream:
    def __init__(self, flags: int = 0) -> None:
        self.handle = 0x3000 + flags

    def wait_for_event(self, event: Any) -> None:
        """All work is done at once."""


class Libcuda:
    """The entry points that the runtime calls by ctypes, with pointers as ctypes makes them."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def _ask(self, entry: str, function: Any, *args: Any, out: Any = None) -> int:
        try:
            self.driver.enter(entry)
            made = function(*args)
        except DriverError as error:
            return error.code
        if out is not None:
            out._obj.value = made
        return SUCCESS

    def cuGetErrorString(self, code: int, out: Any) -> int:
        out._obj.value = MESSAGES[code].encode()
        return SUCCESS

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:
        return self._ask("cuStreamBeginCapture_v2", self.driver.begin_capture, stream.value)

    def cuStreamEndCapture(self, stream: Any, out: Any) -> int:
        return self._ask("cuStreamEndCapture", self.driver.end_capture, stream.value, out=out)

    def cuGraphInstantiateWithFlags(self, out: Any, graph: Any, flags: Any) -> int:
        return self._ask("cuGraphInstantiateWithFlags", lambda: graph.value, out=out)

    def cuGraphLaunch(self, graph: Any, stream: Any) -> int:
        return self._ask("cuGraphLaunch", self.driver.launch_graph, graph.value)

    def cuGraphDestroy(self, graph: Any) -> int:
        return self._ask("cuGraphDestroy", lambda: None)

    def cuGraphExecDestroy(self, graph: Any) -> int:
        return self._ask("cuGraphExecDestroy", lambda: None)


class _Allocation:
    def __init__(self, module: _Module, address: int) -> None:
        self.module, self.address = module, address

    def __int__(self) -> int:
        return self.address

    def free(self) -> None:
        self.module.ask("cuMemFree_v2", self.module.driver.free, self.address)


class _Function:
    def __init__(self, module: _Module, number: int) -> None:
        self.module, self.number = module, number

    def set_attribute(self, attribute: int, value: int) -> None:
        change = self.module.driver.set_attribute
        self.module.ask("cuFuncSetAttribute", change, self.number, attribute, value)

    def _launch_kernel(self, grid: Any, block: Any, args: bytes, shared: int, stream: Any) -> None:
        launch, on = self.module.driver.launch, stream.handle if stream is not None else 0
        self.module.ask("cuLaunchKernel", launch, self.number, grid, block, shared, bytes(args), on)
