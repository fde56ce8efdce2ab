"""Arrays on a device, shared with other libraries without a copy.

Both directions of `__cuda_array_interface__` (version 3) and DLPack. Our work runs on the legacy
default stream; for another stream the call waits.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import ml_dtypes
import numpy as np

from uopc.backends.cuda.device import Device
from uopc.backends.plan import AnyArray, AnyDtype
from uopc.errors import UserError, UserTypeError

_CUDA = 2  # kDLCUDA
_KINDS = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4
_BF16: AnyDtype = np.dtype(ml_dtypes.bfloat16)
_LEGACY_STREAM = 1


class _DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DLType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", _DLDevice), ("ndim", ctypes.c_int32),
        ("dtype", _DLType), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # of the address of a managed tensor


class _DLManaged(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


class DeviceArray:
    """Contiguous memory on a device as an array: `numpy()` copies it to the host."""

    __slots__ = ("__weakref__", "address", "device", "dtype", "owner", "shape")

    def __init__(
        self, address: int, shape: tuple[int, ...], dtype: AnyDtype, device: Device, owner: object
    ) -> None:
        self.address, self.shape, self.dtype = address, shape, dtype
        self.device, self.owner = device, owner

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numpy(self) -> AnyArray:
        """A copy on the host, once everything before has run."""
        used: list[Any] = []
        with self.device:
            raw = self.device.download(self.address, self.nbytes, used)
            self.device.synchronize()
            out = np.array(raw[: self.nbytes]).view(self.dtype).reshape(self.shape)
            self.device.release(used)
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        if copy is False:
            raise ValueError("copy=False: NumPy needs a copy of an array on a device")
        made = self.numpy()
        return made if dtype is None else made.astype(dtype)

    def __getitem__(self, part: slice | tuple[slice, ...]) -> DeviceArray:
        """The same memory, of fewer elements along the first axis. UserError for another part."""
        given = part if isinstance(part, tuple) else (part,)
        fits = len(given) <= self.ndim and all([isinstance(s, slice) for s in given])
        ends = [s.indices(n) for s, n in zip(given, self.shape)] if fits else []
        whole = [(0, n, 1) for n in self.shape[1:]]
        if not ends or ends[0][2] != 1 or ends[1:] != whole[: len(ends) - 1]:
            raise UserError(
                f"an index of an array on a device may cut its first axis only, got {part!r}: use"
                " numpy()"
            )
        begin, end, _ = ends[0]
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        shape = (max(0, end - begin), *self.shape[1:])
        return DeviceArray(self.address + begin * row, shape, self.dtype, self.device, self)

    def reshape(self, shape: tuple[int, ...]) -> DeviceArray:
        """The same memory under another shape of as many elements."""
        return DeviceArray(self.address, shape, self.dtype, self.device, self)

    def __repr__(self) -> str:
        return f"<uopc array {self.dtype.name}{list(self.shape)} on cuda:{self.device.ordinal}>"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # A typestr has no name for bfloat16 and 8-bit floats: they are passed as raw bytes.
        known = self.dtype.kind in "iufb" and self.dtype.isbuiltin == 1
        typestr = self.dtype.str if known else f"<V{self.dtype.itemsize}"
        return {
            "shape": self.shape, "typestr": typestr, "data": (self.address, False),
            "strides": None, "version": 3, "stream": _LEGACY_STREAM,
        }  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self.device.ordinal

    def __dlpack__(self, *, stream: int | None = None, **_: object) -> Any:
        """A capsule that keeps the memory alive. Another stream than the default waits."""
        if stream not in (None, -1, _LEGACY_STREAM):
            with self.device:
                self.device.synchronize()
        return _export(self)


# ---------------------------------------------------------------- DLPack out
_exported: dict[int, object] = {}  # address of a managed tensor → objects that must live as long
_forget = _Deleter(lambda address: _exported.pop(address, None))


def _dl_type(dtype: AnyDtype) -> _DLType:
    bits = dtype.itemsize * 8
    if dtype == _BF16:
        return _DLType(_BFLOAT, bits, 1)
    if dtype.isbuiltin != 1:
        raise BufferError(f"DLPack has no code for {dtype.name}")
    return _DLType(_KINDS[dtype.kind], bits, 1)


def _export(array: DeviceArray) -> Any:
    shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
    tensor = _DLTensor(
        array.address, _DLDevice(_CUDA, array.device.ordinal), array.ndim, _dl_type(array.dtype),
        shape, None, 0,
    )  # fmt: skip
    managed = _DLManaged(tensor, None, _forget)
    where = ctypes.addressof(managed)
    _exported[where] = (managed, shape, array)
    new = ctypes.pythonapi.PyCapsule_New
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    new.restype = ctypes.py_object
    return new(where, b"dltensor", ctypes.cast(_drop_capsule_in_c, ctypes.c_void_p))


def _drop_capsule(capsule: int) -> None:
    """Free the tensor of a capsule that no consumer took."""
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    if valid(capsule, b"dltensor"):
        get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", ctypes.pythonapi)
        )
        _exported.pop(get(capsule, b"dltensor"), None)


_drop_capsule_in_c = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_drop_capsule)


# ---------------------------------------------------------------- in
def is_on_device(value: object) -> bool:
    """True if an argument's memory is on a device."""
    if isinstance(value, DeviceArray) or hasattr(value, "__cuda_array_interface__"):
        return True
    where = getattr(value, "__dlpack_device__", None)
    return where is not None and where()[0] == _CUDA


def from_device(label: str, value: Any, device: Device, expected: AnyDtype) -> DeviceArray:
    """Any contiguous array on this device as a DeviceArray; raises UserError for others."""
    if isinstance(value, DeviceArray):
        found = value
    elif hasattr(value, "__cuda_array_interface__"):
        found = _from_interface(label, value, device, expected)
    else:
        found = _from_dlpack(label, value, device)
    _check_ordinal(label, found.device.ordinal, device)
    return found


def _check_ordinal(label: str, ordinal: int, device: Device) -> None:
    if ordinal != device.ordinal:
        raise UserError(f"{label} is on cuda:{ordinal}, the program runs on cuda:{device.ordinal}")


def _from_interface(label: str, value: Any, device: Device, expected: AnyDtype) -> DeviceArray:
    facts = value.__cuda_array_interface__
    dtype = np.dtype(facts["typestr"])
    if dtype.kind == "V" and dtype.itemsize == expected.itemsize:
        dtype = expected
    shape = tuple(int(d) for d in facts["shape"])
    strides = facts.get("strides")
    _check_contiguous(label, shape, strides, dtype.itemsize)
    if facts.get("mask") is not None:
        raise UserTypeError(f"{label}: a masked array is not accepted")
    if facts.get("stream") not in (None, _LEGACY_STREAM):
        device.synchronize()
    return DeviceArray(int(facts["data"][0] or 0), shape, dtype, device, value)


def _check_contiguous(label: str, shape: tuple[int, ...], strides: Any, step: int) -> None:
    """Raise UserError where strides in bytes, if there are any, leave gaps between elements."""
    if strides is None or 0 in shape:
        return
    for size, stride in zip(reversed(shape), reversed(tuple(strides))):
        if size != 1 and stride != step:
            raise UserError(f"{label}: an array on the device must be contiguous")
        step *= size


class _Borrowed:
    """A DLPack tensor of another library, released with its last reference."""

    def __init__(self, managed: Any) -> None:
        self.managed = managed

    def __del__(self) -> None:
        if self.managed.contents.deleter:
            self.managed.contents.deleter(ctypes.addressof(self.managed.contents))


def _from_dlpack(label: str, value: Any, device: Device) -> DeviceArray:
    _check_ordinal(label, value.__dlpack_device__()[1], device)
    capsule = value.__dlpack__(stream=_LEGACY_STREAM)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.argtypes, get.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    managed = ctypes.cast(get(capsule, b"dltensor"), ctypes.POINTER(_DLManaged))
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
    rename(capsule, _USED)
    t = managed.contents.tensor
    dtype = _numpy_type(label, t.dtype)
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = [t.strides[i] * dtype.itemsize for i in range(t.ndim)] if t.strides else None
    _check_contiguous(label, shape, strides, dtype.itemsize)
    return DeviceArray((t.data or 0) + t.byte_offset, shape, dtype, device, _Borrowed(managed))


_USED = b"used_dltensor"  # a capsule keeps a pointer to its name


def _numpy_type(label: str, t: _DLType) -> AnyDtype:
    if t.lanes == 1 and t.code == _BFLOAT and t.bits == 16:
        return _BF16
    kind = {code: k for k, code in _KINDS.items()}.get(t.code)
    if kind is None or t.lanes != 1:
        raise UserTypeError(f"{label}: DLPack type {t.code}:{t.bits}x{t.lanes} is not known")
    return np.dtype("bool" if kind == "b" else f"{kind}{t.bits // 8}")
