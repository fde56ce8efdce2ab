"""Offsets of the fields of CPython's and NumPy's objects.

Their public headers fix these offsets beyond the object header, whose size differs between builds.
They are compared with live objects before anything relies on them.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from uopc.backends.plan import AnyArray, AnyDtype

_HEAD = object.__basicsize__
OFFSETS = {
    "head": _HEAD,
    "type": _HEAD - 8,
    "tuple_items": tuple.__basicsize__,
    "list_items": _HEAD + 8,
    "data": _HEAD,
    "ndim": _HEAD + 8,
    "dims": _HEAD + 16,
    "strides": _HEAD + 24,
    "dtype": _HEAD + 40,
    "flags": _HEAD + 48,
    "memory_handler": _HEAD + 72,
    "byte_order": _HEAD + 10,
    "type_number": _HEAD + 12,
}


_GET_HANDLER = 305


def _usual_handler() -> object:
    """The handler that gives new arrays their memory."""
    return ctypes.PYFUNCTYPE(ctypes.py_object)(numpy_item(_GET_HANDLER))()


@cache
def is_layout_known() -> bool:
    """True if live objects have their fields at the offsets in OFFSETS."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    array = np.zeros((3, 5), np.float32)[1:, :]
    names = ["first", "second"]

    def field(thing: object, name: str, kind: type[ctypes.c_int64 | ctypes.c_int32]) -> int:
        return kind.from_address(id(thing) + OFFSETS[name]).value

    word, half = ctypes.c_int64, ctypes.c_int32
    agrees = (
        np.ndarray.__basicsize__ >= OFFSETS["flags"] + 8
        and field(array, "type", word) == id(np.ndarray)
        and field(array, "data", word) == array.__array_interface__["data"][0]
        and field(array, "ndim", half) == 2
        and field(array, "dtype", word) == id(array.dtype)
        and field(array, "flags", half) == array.flags.num
        and field(array.base, "memory_handler", word) == id(_usual_handler())
        and field(names, "head", word) == 2
        and field(tuple(names), "tuple_items", word) == id(names[0])
        and word.from_address(field(names, "list_items", word)).value == id(names[0])
        and field(array.dtype, "type_number", half) == array.dtype.num
        and ctypes.c_char.from_address(id(array.dtype) + OFFSETS["byte_order"]).value == b"="
    )
    both = {"dims": array.shape, "strides": array.strides}
    return agrees and all(
        [tuple((word * 2).from_address(field(array, f, word))) == both[f] for f in both]
    )


@cache
def _numpy_interface() -> Any:
    package = "numpy._core" if hasattr(np, "_core") else "numpy.core"
    core = import_module(f"{package}._multiarray_umath")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.argtypes, get.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    return ctypes.cast(get(core._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))


def numpy_item(index: int) -> int:
    """The address of a function or a variable of NumPy's C interface, by its number there, which
    never changes."""
    address = _numpy_interface()[index]
    assert address is not None
    return int(address)


_word_at, _DATA = ctypes.c_int64.from_address, OFFSETS["data"]


def data_address(array: AnyArray) -> int:
    """The address of an array's data. NumPy's own functions for it take a microsecond."""
    if is_layout_known():
        return _word_at(id(array) + _DATA).value
    address: int = array.__array_interface__["data"][0]
    return address


@cache
def scalar_class(dtype: AnyDtype) -> type | None:
    """NumPy's class of single numbers of a dtype, if they have their value after the head."""
    one = dtype.type(1)
    content = ctypes.string_at(id(one) + OFFSETS["head"], dtype.itemsize)
    return type(one) if content == np.ones((), dtype).tobytes() else None
