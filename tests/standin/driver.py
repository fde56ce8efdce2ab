"""The base of both stand-ins: memory, modules and launches, and failures on demand."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ptx import machine, parse
from tests.ptx.memory import Memory
from tests.ptx.parse import PtxError
from uopc import target

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NO_DEVICE = 0, 1, 2, 100
INVALID_PTX, NOT_FOUND, ILLEGAL_ADDRESS, NOT_SUPPORTED = 218, 500, 700, 801
MESSAGES = {
    INVALID_VALUE: "invalid argument", OUT_OF_MEMORY: "out of memory",
    NO_DEVICE: "no CUDA-capable device is detected", INVALID_PTX: "a PTX JIT compilation failed",
    NOT_FOUND: "named symbol not found",
    NOT_SUPPORTED: "operation not supported",
    ILLEGAL_ADDRESS: "an illegal memory access was encountered",
}  # fmt: skip
STATIC_SHARED = 48 << 10  # more only where a function's attribute allows it
MAX_DYNAMIC_SHARED = 8  # the number of that attribute


class DriverError(Exception):
    """A result code of the driver other than success."""

    def __init__(self, code: int, what: str = "", why: object = "") -> None:
        super().__init__(f"{what} failed: {MESSAGES[code]}{why and f' [{why}]'}")
        self.code = code


class Driver:
    """The device: `failing` maps an entry point to the code that it fails with."""

    name, capability, total = "Stand-in", (9, 0), 1 << 30

    def __init__(self, devices: int = 1) -> None:
        self.devices = devices
        self.memory = Memory()
        self.sizes: dict[int, int] = {}
        self.modules: list[dict[str, parse.Kernel]] = []
        self.functions: list[parse.Kernel] = []
        self.contexts: list[Any] = []  # the last one is current
        self.captured: dict[int, list[Any]] = {}  # stream → launches that it only notes
        self.graphs: list[list[Any]] = []
        self.dynamic: dict[int, int] = {}  # function → dynamic shared memory it may have
        self.failing: dict[str, int] = {}
        self.fault: PtxError | None = None  # of a kernel: every later call fails
        self.calls: dict[str, int] = {}
        self.launches: list[tuple[str, Any, Any]] = []
        self.texts: list[str] = []  # of the modules that were loaded
        self.approximate: set[str] = set()  # opcodes that ran and that hardware approximates
        self.work = 0  # instructions of single threads, over all launches

    def reset(self) -> None:
        """Forget calls, launches and failures; memory stays."""
        self.failing, self.fault, self.calls, self.launches = {}, None, {}, []
        self.captured.clear()

    def enter(self, name: str) -> None:
        """Count a call, and fail where that is asked for or a kernel has failed before."""
        self.calls[name] = self.calls.get(name, 0) + 1
        if name in self.failing:
            raise DriverError(self.failing[name], name)
        if self.fault is not None and name.startswith(("cuMemcpy", "cuCtxSynchronize", "cuEventS")):
            raise DriverError(ILLEGAL_ADDRESS, name, self.fault)

    def allocate(self, nbytes: int) -> int:
        if sum(self.sizes.values()) + nbytes > self.total:
            raise DriverError(OUT_OF_MEMORY, "cuMemAlloc")
        address = self.memory.allocate(nbytes)
        self.sizes[address] = nbytes
        return address

    def free(self, address: int) -> None:
        self.memory.free(address)
        del self.sizes[address]

    def copy_in(self, address: int, data: Any) -> None:
        self.memory.bytes_at(address, len(data))[:] = np.frombuffer(data, np.uint8)

    def copy_out(self, address: int, nbytes: int) -> bytes:
        return self.memory.bytes_at(address, nbytes).tobytes()

    def load(self, text: str) -> int:
        """The number of a module."""
        self.texts.append(text)
        try:
            self.modules.append(parse.parse(text))
        except PtxError as error:
            raise DriverError(INVALID_PTX, "cuModuleLoadDataEx", error) from error
        return len(self.modules)

    def function(self, module: int, name: str) -> int:
        kernel = self.modules[module - 1].get(name)
        if kernel is None:
            raise DriverError(NOT_FOUND, "cuModuleGetFunction")
        self.functions.append(kernel)
        return len(self.functions)

    def set_attribute(self, function: int, attribute: int, value: int) -> None:
        """Set the most dynamic shared memory of a kernel's launches."""
        declared = self.functions[function - 1].shared_bytes
        part = target.gpu_target(target.gpu_name(self.capability)).gpu
        assert part is not None
        if attribute != MAX_DYNAMIC_SHARED or declared + value > part.shared_per_block:
            raise DriverError(INVALID_VALUE, "cuFuncSetAttribute")
        self.dynamic[function] = value

    def begin_capture(self, stream: int) -> None:
        """From now on launches on this stream are only noted."""
        if not stream or stream in self.captured:
            raise DriverError(INVALID_VALUE, "cuStreamBeginCapture")
        self.captured[stream] = []

    def end_capture(self, stream: int) -> int:
        """The number of a graph of what was launched there."""
        self.graphs.append(self.captured.pop(stream))
        return len(self.graphs)

    def launch_graph(self, number: int) -> None:
        """Everything that was noted, now."""
        for launch in self.graphs[number - 1]:
            self.launch(*launch)

    def launch(self, function: int, grid: Any, block: Any, shared: int, args: bytes,
               stream: int = 0) -> None:  # fmt: skip
        """Execute a kernel at once; what goes wrong shows at the next wait, as on a device."""
        if stream in self.captured:
            self.captured[stream].append((function, grid, block, shared, args))
            return
        kernel = self.functions[function - 1]
        if shared > self.dynamic.get(function, STATIC_SHARED - kernel.shared_bytes):
            raise DriverError(INVALID_VALUE, "cuLaunchKernel")
        self.launches.append((kernel.name, grid, block))
        try:
            report = machine.run(kernel, grid, block, args, self.memory, shared)
            self.approximate |= report.approximate
            self.work += report.work
        except PtxError as error:
            self.fault = error
