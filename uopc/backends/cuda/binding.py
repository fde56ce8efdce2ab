"""pycuda, imported for the first program for a device; its errors become ours.

All calls of the driver go through the module that `driver()` returns.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any

from uopc.errors import DeviceError, DeviceMemoryError

_lock = threading.Lock()
_driver: Any = None


def driver() -> Any:
    """pycuda.driver, initialised. DeviceError says what is missing."""
    global _driver
    with _lock:
        if _driver is None:
            _driver = _load_library()
        return _driver


def _load_library() -> Any:
    try:
        import pycuda.driver as found
    except ImportError as error:
        if "libcuda" in str(error):
            raise DeviceError(f"device 'cuda': no NVIDIA driver here ({error})") from None
        if getattr(error, "name", None) in ("pycuda", "pycuda.driver"):
            raise DeviceError(
                "device 'cuda' needs pycuda: pip install uopc[cuda]"
                " (without a CUDA toolkit: .ci/build-pycuda-wheel)"
            ) from None
        raise DeviceError(f"device 'cuda': pycuda cannot be imported: {error}") from error
    try:
        found.init()
    except found.Error as error:
        raise DeviceError(f"device 'cuda': the driver does not start: {error}") from error
    return found


def library() -> Any:
    """libcuda, which pycuda has loaded by this name; None where it is not loaded."""
    try:
        return ctypes.PyDLL("libcuda.so.1")
    except OSError:
        return None


def check(entry: str, code: int) -> None:
    """Raise DeviceError for a failure code of libcuda."""
    if code:
        text = ctypes.c_char_p()
        library().cuGetErrorString(code, ctypes.byref(text))
        words = (text.value or b"").decode() or f"error {code}"
        raise translate(RuntimeError(words), entry)


def translate(error: Exception, doing: str) -> DeviceError:
    """The exception that a caller sees for a failure of the driver."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or "out of memory" in text:
        return DeviceMemoryError(f"{doing}: the device is out of memory ({text})")
    if "illegal" in text or "misaligned" in text or "launch failed" in text:
        return DeviceError(
            f"{doing}: a kernel failed on the device ({text});"
            " its context cannot be used any more in this process"
        )
    return DeviceError(f"{doing}: {text}")


@contextlib.contextmanager
def failures(doing: str) -> Iterator[None]:
    """Turn errors of the driver into DeviceError; `doing` names the attempt in the message."""
    try:
        yield
    except driver().Error as error:
        raise translate(error, doing) from error
