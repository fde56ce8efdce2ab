"""New arrays of NumPy that begin at a cache line and own their memory, from Python."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from functools import cache

import numpy as np

from uopc.backends import memory_plan
from uopc.backends.cpu.elf_loader import function_address, keep_for_ever
from uopc.backends.cpu.layout import data_address, is_layout_known, numpy_item
from uopc.backends.cpu.native import Runtime, install
from uopc.backends.cpu.structs import FUNCTIONS, RECORD
from uopc.backends.plan import AnyArray, AnyDtype
from uopc.errors import UserError
from uopc.ir.core.data import blocks

# Numbers in NumPy's C interface.
_NEW_FROM_DESCR, _NEW_COPY, _USUAL_HANDLER = 94, 85, 306
# NumPy's PyDataMem_Handler: its name, its version, and what its functions take first; then they.
_HANDLER = struct.Struct("@127sBN4N")
_FUNCTIONS = ("allocate", "allocate_zeros", "reallocate", "free")
_CAPSULE = b"mem_handler"
_TOO_LARGE = 1 << 63  # bytes


@cache
def known_interpreter() -> Runtime | None:
    """The runtime, with the functions of the interpreter and of NumPy that its code calls. None if
    their structs are laid out otherwise than it expects."""
    if not is_layout_known():
        return None
    runtime = install()
    for name, (function, _) in FUNCTIONS.items():
        runtime.set_global(name, function_address(ctypes.pythonapi, function))
    runtime.set_global("new_array", numpy_item(_NEW_FROM_DESCR))
    runtime.set_global("new_copy", numpy_item(_NEW_COPY))
    runtime.set_global("ndarray", id(np.ndarray))
    _set_handler(runtime)
    return runtime


def _set_handler(runtime: Runtime) -> None:
    """Make the handler of results' memory. Its blocks are from NumPy's usual one."""
    usual = ctypes.py_object.from_address(numpy_item(_USUAL_HANDLER)).value
    get, make = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
    get.argtypes, get.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    make.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    make.restype = ctypes.py_object
    content = ctypes.string_at(get(usual, _CAPSULE), _HANDLER.size)
    _, version, allocator, allocate, _, _, free = _HANDLER.unpack(content)
    runtime.set_global("allocator", allocator)
    runtime.set_global("allocate", allocate)
    runtime.set_global("free", free)
    functions = [runtime.image.symbols[name] for name in _FUNCTIONS]
    handler = ctypes.create_string_buffer(_HANDLER.pack(b"uopc", version, 0, *functions))
    capsule = make(ctypes.addressof(handler), _CAPSULE, None)
    runtime.set_global("memory_handler", id(capsule))
    keep_for_ever(handler, capsule, runtime.image.memory)


def new_array(shape: Sequence[int], dtype: AnyDtype, read: Sequence[int] = ()) -> AnyArray:
    """An array with any content that begins at a cache line; a large one where stores to it do not
    delay loads from the addresses `read` on (see `memory_plan.py`).

    ValueError for a shape that no array has, MemoryError without memory.
    """
    runtime, nbytes = known_interpreter(), math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or nbytes >= _TOO_LARGE:
        raise ValueError("a negative dimension" if nbytes < _TOO_LARGE else "it is too large")
    if runtime is None:
        return blocks.new_array(shape, dtype)
    dims = np.array(shape or (0,), np.int64)
    record = {
        "dtype": id(dtype), "ndim": len(shape), "nbytes": nbytes, "dims": data_address(dims),
    }  # fmt: skip
    words = np.array([record.get(name, 0) for name in RECORD.fields], np.int64)
    begins = np.array(read or (0,), np.int64)
    ends = begins + memory_plan.LARGE
    made: AnyArray = runtime.new_result(*map(data_address, (words, begins, ends)), len(read))
    return made


def new_result(
    program: str, shape: tuple[int, ...], dtype: AnyDtype, read: Sequence[int]
) -> AnyArray:
    """The array of a result of a program."""
    try:
        return new_array(shape, dtype, read)
    except ValueError as error:
        raise UserError(f"{program}: no array has the shape {shape}: {error}") from None


# The memory of arrays without elements: where a guard does not hold, a kernel may read the
# first element of an array in vain.
_nothing = np.zeros(64, np.int64)
_nothing.flags.writeable = False
NOTHING = data_address(_nothing)
