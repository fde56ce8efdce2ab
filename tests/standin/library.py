"""A libcuda.so.1 built of a few lines of C, in which every call goes to Python: for real pycuda.

The process must not have loaded another libcuda before: tests run this in one of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.standin.driver import NOT_SUPPORTED, SUCCESS, Driver, DriverError
from uopc.backends.cuda import graphs

built: Library | None = None  # where this process runs on one
_ARGUMENTS = 11  # as many as cuLaunchKernel takes
_Hook = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_void_p] * _ARGUMENTS)


def reason_not() -> str:
    """The reason why this machine cannot do it, or nothing."""
    if importlib.util.find_spec("pycuda") is None:
        return "pycuda is not installed"
    if shutil.which("gcc") is None or shutil.which("nm") is None:
        return "there is no gcc"
    return ""


def entry_points() -> list[str]:
    """The functions of libcuda that the installed pycuda calls, and that we do."""
    spec = importlib.util.find_spec("pycuda")
    assert spec is not None and spec.origin is not None
    (binary,) = Path(spec.origin).parent.glob("_driver*.so")
    found = subprocess.run(["nm", "-D", "--undefined-only", binary], capture_output=True,
                           text=True, check=True)  # fmt: skip
    return sorted({*re.findall(r"\bU (cu[A-Z]\w*)", found.stdout), *graphs.ENTRIES})


def build(folder: Path) -> Path:
    """Compile the library."""
    names = entry_points()
    numbers = ", ".join(f"long a{i}" for i in range(_ARGUMENTS))
    given = ", ".join(f"a{i}" for i in range(_ARGUMENTS))
    code = [f"typedef long (*hook)({numbers});", f"hook hooks[{len(names)}];"]
    code += ["int succeed(void) { return 0; }"]
    code += [
        f"int {n}({numbers}) {{ return hooks[{i}] ? (int)hooks[{i}]({given}) : {NOT_SUPPORTED}; }}"
        for i, n in enumerate(names)
    ]
    source, made = folder / "libcuda.c", folder / "libcuda.so.1"
    source.write_text("\n".join(code), "utf-8")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o", made, source],
        check=True,
    )
    return made


def load(made: Path) -> Library:
    """Load a library that was built, so that pycuda finds it where it looks for libcuda.so.1."""
    return Library(ctypes.CDLL(str(made), mode=ctypes.RTLD_GLOBAL), entry_points())


def _write(pointer: int, value: int, kind: Any = ctypes.c_uint64) -> None:
    kind.from_address(pointer).value = value


class Library:
    """The loaded library with a Driver behind it."""

    def __init__(self, loaded: ctypes.CDLL, names: list[str]) -> None:
        self.driver = Driver()
        self.kept: list[Any] = []
        self.names = names
        self.succeed = ctypes.cast(loaded.succeed, ctypes.c_void_p).value
        self.table = table = (ctypes.c_void_p * len(names)).in_dll(loaded, "hooks")
        for i, name in enumerate(names):
            function = getattr(self, name, None)
            if function is not None:
                hook = _Hook(self._guard(name, function))
                self.kept.append(hook)
                table[i] = ctypes.cast(hook, ctypes.c_void_p).value

    @contextlib.contextmanager
    def silent(self, *names: str) -> Iterator[None]:
        """These entry points succeed without a word to Python: for timing what is above them."""
        where = [self.names.index(n) for n in names]
        before = [self.table[i] for i in where]
        for i in where:
            self.table[i] = self.succeed
        yield
        for i, address in zip(where, before):
            self.table[i] = address

    def _guard(self, name: str, function: Any) -> Any:
        count = function.__code__.co_argcount - 1

        def hook(*args: int | None) -> int:
            try:
                self.driver.enter(name)
                function(*[a or 0 for a in args[:count]])
            except DriverError as error:
                return error.code
            return SUCCESS

        return hook

    # -------------------------------------------------------- devices and contexts
    def cuInit(self, flags: int) -> None: ...

    def cuDriverGetVersion(self, out: int) -> None:
        _write(out, 13000, ctypes.c_int)

    def cuDeviceGetCount(self, out: int) -> None:
        _write(out, self.driver.devices, ctypes.c_int)

    def cuDeviceGet(self, out: int, ordinal: int) -> None:
        _write(out, ordinal & 0xFFFF, ctypes.c_int)

    def cuDeviceGetName(self, out: int, size: int, device: int) -> None:
        ctypes.memmove(out, self.driver.name.encode() + b"\0", len(self.driver.name) + 1)

    def cuDeviceGetAttribute(self, out: int, attribute: int, device: int) -> None:
        major, minor = self.driver.capability
        _write(out, {75: major, 76: minor}.get(attribute & 0xFFFF, 1), ctypes.c_int)

    def cuDeviceComputeCapability(self, major: int, minor: int, device: int) -> None:
        _write(major, self.driver.capability[0], ctypes.c_int)
        _write(minor, self.driver.capability[1], ctypes.c_int)

    def cuDeviceTotalMem_v2(self, out: int, device: int) -> None:
        _write(out, self.driver.total)

    def cuDevicePrimaryCtxRetain(self, out: int, device: int) -> None:
        _write(out, 0x1000)

    def cuDevicePrimaryCtxRelease_v2(self, device: int) -> None: ...

    def cuCtxPushCurrent_v2(self, context: int) -> None:
        self.driver.contexts.append(context)

    def cuCtxPopCurrent_v2(self, out: int) -> None:
        popped = self.driver.contexts.pop()
        if out:
            _write(out, popped)

    def cuCtxGetDevice(self, out: int) -> None:
        _write(out, 0, ctypes.c_int)

    def cuCtxGetApiVersion(self, context: int, out: int) -> None:
        _write(out, 13000, ctypes.c_uint)

    def cuCtxSynchronize(self) -> None: ...

    def cuGetErrorString(self, code: int, out: int) -> None:
        from tests.standin.driver import MESSAGES

        text = ctypes.create_string_buffer(MESSAGES.get(code, f"error {code}").encode())
        self.kept.append(text)
        _write(out, ctypes.addressof(text))

    # -------------------------------------------------------- memory
    def cuMemAlloc_v2(self, out: int, nbytes: int) -> None:
        _write(out, self.driver.allocate(nbytes))

    def cuMemFree_v2(self, address: int) -> None:
        self.driver.free(address)

    def cuMemGetInfo_v2(self, free: int, total: int) -> None:
        _write(free, self.driver.total - sum(self.driver.sizes.values()))
        _write(total, self.driver.total)

    def cuMemHostAlloc(self, out: int, nbytes: int, flags: int) -> None:
        buffer = ctypes.create_string_buffer(nbytes)
        self.kept.append(buffer)
        _write(out, ctypes.addressof(buffer))

    def cuMemFreeHost(self, address: int) -> None: ...

    def cuMemcpyHtoD_v2(self, to: int, source: int, nbytes: int) -> None:
        self.driver.copy_in(to, ctypes.string_at(source, nbytes))

    def cuMemcpyHtoDAsync_v2(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self.driver.copy_in(to, ctypes.string_at(source, nbytes))

    def cuMemcpyDtoH_v2(self, to: int, source: int, nbytes: int) -> None:
        ctypes.memmove(to, self.driver.copy_out(source, nbytes), nbytes)

    def cuMemcpyDtoHAsync_v2(self, to: int, source: int, nbytes: int, stream: int) -> None:
        ctypes.memmove(to, self.driver.copy_out(source, nbytes), nbytes)

    def cuMemcpyDtoD_v2(self, to: int, source: int, nbytes: int) -> None:
        self.driver.copy_in(to, self.driver.copy_out(source, nbytes))

    # -------------------------------------------------------- modules and launches
    def cuModuleLoadDataEx(self, out: int, image: int, n: int, options: int, values: int) -> None:
        _write(out, self.driver.load(ctypes.string_at(image).decode()))

    def cuModuleGetFunction(self, out: int, module: int, name: int) -> None:
        _write(out, self.driver.function(module, ctypes.string_at(name).decode()))

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        self.driver.set_attribute(function, attribute & 0xFFFFFFFF, value & 0xFFFFFFFF)

    def cuModuleUnload(self, module: int) -> None: ...

    def cuLaunchKernel(self, function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int,
                       shared: int, stream: int, params: int, extra: int) -> None:  # fmt: skip
        words = ctypes.cast(extra, ctypes.POINTER(ctypes.c_void_p))
        given = {words[i]: words[i + 1] for i in (0, 2)}  # 1: the buffer, 2: its size
        size = ctypes.c_size_t.from_address(given[2]).value
        args = ctypes.string_at(given[1], size)
        dims = [(v & 0xFFFFFFFF) for v in (gx, gy, gz, bx, by, bz)]
        shared &= 0xFFFFFFFF
        self.driver.launch(function, tuple(dims[:3]), tuple(dims[3:]), shared, args, stream)

    # -------------------------------------------------------- graphs
    def cuStreamCreate(self, out: int, flags: int) -> None:
        _write(out, 0x3000)

    def cuStreamDestroy_v2(self, stream: int) -> None: ...

    def cuStreamBeginCapture_v2(self, stream: int, mode: int) -> None:
        self.driver.begin_capture(stream)

    def cuStreamEndCapture(self, stream: int, out: int) -> None:
        _write(out, self.driver.end_capture(stream))

    def cuGraphInstantiateWithFlags(self, out: int, graph: int, flags: int) -> None:
        _write(out, graph)

    def cuGraphLaunch(self, graph: int, stream: int) -> None:
        self.driver.launch_graph(graph)

    def cuGraphDestroy(self, graph: int) -> None: ...

    def cuGraphExecDestroy(self, graph: int) -> None: ...

    # -------------------------------------------------------- events
    def cuEventCreate(self, out: int, flags: int) -> None:
        _write(out, 0x2000)

    def cuEventRecord(self, event: int, stream: int) -> None: ...

    def cuEventSynchronize(self, event: int) -> None: ...

    def cuEventElapsedTime_v2(self, out: int, begin: int, end: int) -> None:
        ctypes.c_float.from_address(out).value = 0.5

    def cuEventDestroy_v2(self, event: int) -> None: ...
