"""CUDA graphs: launches captured from a stream, which one call of the driver starts.

pycuda has no function for it, so we call libcuda directly, in the current context. A driver that
lacks one of the entry points launches the kernels one by one.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from uopc.backends.cuda import binding
from uopc.backends.cuda.binding import check

# The method of a kernel, grid, block, packed arguments, shared memory, stream (None: the default).
Ready = tuple[Any, tuple[int, int, int], tuple[int, int, int], bytes, int, None]

ENTRIES = (
    "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
    "cuGraphLaunch", "cuGraphDestroy", "cuGraphExecDestroy",
)  # fmt: skip
_THIS_THREAD = 1  # a capture ignores calls of other threads
_NON_BLOCKING = 1  # a stream that does not wait for the default one
_NOT_SUPPORTED = 801


class CudaGraph:
    """Launches with all their arguments, ready to be started on the default stream."""

    __slots__ = ("_destroy", "_handle", "_start")

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:
        self._start, self._destroy = library.cuGraphLaunch, library.cuGraphExecDestroy
        self._handle = handle

    def launch(self) -> None:
        """Queue all launches. Raises DeviceError where the driver refuses."""
        check("cuGraphLaunch", self._start(self._handle, None))

    def __del__(self) -> None:
        self._destroy(self._handle)  # the driver waits if it still runs


class Graphs:
    """Makes graphs of launches on one device."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: Any = None
        self._library: Any = None
        self._missing = False

    def capture(self, launches: Sequence[Ready]) -> CudaGraph | None:
        """The launches as a graph; None where the driver has no graphs. Nothing runs."""
        with self._lock:
            if self._library is None and not self._missing:
                self._library = binding.library()
                self._missing = not all(hasattr(self._library, e) for e in ENTRIES)
                self._stream = None if self._missing else binding.driver().Stream(_NON_BLOCKING)
            return None if self._missing else self._captured(launches)

    def _captured(self, launches: Sequence[Ready]) -> CudaGraph | None:
        library, stream = self._library, ctypes.c_void_p(self._stream.handle)
        code = library.cuStreamBeginCapture_v2(stream, _THIS_THREAD)
        if code == _NOT_SUPPORTED:
            self._missing = True
            return None
        check("cuStreamBeginCapture", code)
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            for launch, grid, block, buffer, shared, _ in launches:
                launch(grid, block, buffer, shared, self._stream)
        finally:
            code = library.cuStreamEndCapture(stream, ctypes.byref(graph))
        check("cuStreamEndCapture", code)
        code = library.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, ctypes.c_uint64(0))
        check("cuGraphDestroy", library.cuGraphDestroy(graph))
        check("cuGraphInstantiate", code)
        return CudaGraph(library, made)
