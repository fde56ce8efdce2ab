"""A model file: its graph, its functions, and its weights as views of the file."""

from __future__ import annotations

import math
import mmap
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from uopc.errors import UserError, UserTypeError
from uopc.ir.core.data import files
from uopc.onnx.narrow import NARROW
from uopc.onnx.values import Array, dtype_of, texts
from uopc.onnx.weights import without_weights


class Model:
    """A parsed model, and the folder of its external data."""

    def __init__(self, source: Any) -> None:
        """`source`: a path, bytes, or a ModelProto."""
        self.folder: Path | None = None
        self.file: Path | None = None
        self.name = "model"  # in messages
        if isinstance(source, onnx.ModelProto):
            self.proto = source
        else:
            data = source
            if not isinstance(source, (bytes, bytearray)):
                self.name, self.file = _file(source)
                self.folder = self.file.parent
                data = self._without_weights(self.file)
            self.proto = onnx.ModelProto()
            try:
                self.proto.ParseFromString(bytes(data))
            except Exception as error:  # DecodeError of whichever protobuf is installed
                raise UserError(f"not an ONNX model: {error}") from None
        if not self.proto.HasField("graph"):
            raise UserError("not an ONNX model: the file has no graph")
        self.opsets = {_domain(o.domain): o.version for o in self.proto.opset_import}
        self.functions = {(_domain(f.domain), f.name): f for f in self.proto.functions}
        self._files: dict[Path, Array] = {}  # by their real paths
        self._names: dict[Path, None] = {}  # as the model says where they are

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files read so far. The path of the model's file has its links resolved;
        the paths of weights keep links, which may lead to other files later."""
        own = [] if self.file is None else [self.file]
        return tuple([str(p) for p in dict.fromkeys([*own, *self._names])])

    def _without_weights(self, file: Path) -> bytes:
        try:
            with open(file, "rb") as opened:
                found = os.fstat(opened.fileno())
                regular = stat.S_ISREG(found.st_mode) and found.st_size
                if not regular or not _is_text(file.name):  # a message names files by text
                    return opened.read()
                data = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        except OSError as error:
            raise UserError(f"cannot read {self.name}: {error.strerror}") from None
        return without_weights(data, file.name)

    def array(self, t: Any) -> Array:
        """The array of a tensor; large ones are views of the file or of the model."""
        dims = tuple(t.dims)
        if any([d < 0 for d in dims]):
            raise UserError(f"tensor {t.name!r} has a negative size in its shape {dims}")
        if t.data_type == onnx.TensorProto.STRING:
            found = [s.decode(errors="replace") for s in t.string_data]
            return _shaped(t, texts(found, (len(found),)), dims)
        external = t.data_location == onnx.TensorProto.EXTERNAL
        if t.data_type in NARROW or not (external or t.HasField("raw_data")):
            return self._decoded(t, dims, external)
        dtype = dtype_of(t.data_type).numpy
        raw = self._external(t) if external else np.frombuffer(t.raw_data, np.uint8)
        wanted = math.prod(dims) * dtype.itemsize
        if raw.size != wanted:
            raise UserError(
                f"tensor {t.name!r} has {raw.size} bytes, its shape {dims} needs {wanted}"
            )
        if raw.size and raw.ctypes.data % dtype.itemsize:
            raw = raw.copy()
        return _shaped(t, raw.view(dtype), dims)

    def _decoded(self, t: Any, dims: tuple[int, ...], external: bool) -> Array:
        """Decode a tensor from the fields of the model or from packed bytes."""
        if t.data_type not in NARROW:
            dtype_of(t.data_type)
        if external:
            packed = self._external(t).tobytes()
            t = onnx.TensorProto(name=t.name, data_type=t.data_type, dims=dims, raw_data=packed)
        try:
            found: Array = numpy_helper.to_array(t)
        except (ValueError, TypeError, OverflowError) as error:
            raise UserError(f"tensor {t.name!r} of shape {dims}: {error}") from None
        return _shaped(t, found, dims)

    def _external(self, t: Any) -> Array:
        given = {e.key: e.value for e in t.external_data}
        if self.folder is None:
            raise UserError(f"tensor {t.name!r} lies in a file: load the model from its path")
        named = self.folder / given.get("location", "")
        path = named.resolve()
        if not path.is_relative_to(self.folder):
            raise UserError(f"tensor {t.name!r} lies outside of the model's folder: {path}")
        if path not in self._files:
            try:
                mapping = files.opened(str(path))
            except UserError as error:
                raise UserError(f"cannot read the weights of {t.name!r}: {error}") from None
            whole = mapping.array(0, np.dtype(np.uint8), (mapping.identity.size,))
            self._files[path] = whole
        self._names[named] = None
        whole = self._files[path]
        try:
            begin = int(given.get("offset", 0))
            size = int(given.get("length", whole.size - begin))
        except ValueError:
            raise UserError(
                f"tensor {t.name!r}: its offset or length in {path.name} is not a number"
            ) from None
        if not 0 <= begin <= begin + size <= whole.size:
            end = begin + size
            raise UserError(
                f"tensor {t.name!r}: bytes {begin} to {end} are not in the {whole.size} bytes of"
                f" {path}"
            )
        part = whole[begin : begin + size]
        return part if path != self.file else _copy_of_file(path, begin, part)


def _file(source: Any) -> tuple[str, Path]:
    """The name of a file in messages, and its path."""
    if not isinstance(source, (str, os.PathLike)):
        raise UserTypeError(
            "expected the path of an ONNX model, its bytes, or a ModelProto, got"
            f" {type(source).__name__}"
        )
    try:
        return str(source), Path(source).resolve()
    except ValueError as error:  # a character that no path has
        raise UserError(f"cannot read {str(source)!r}: {error}") from None


def _is_text(name: str) -> bool:
    """False for a file name that is not UTF-8."""
    return not any(["\ud800" <= c <= "\udfff" for c in name])


def _copy_of_file(path: Path, begin: int, part: Array) -> Array:
    """Copy a part of the model's file, so that later writes to the file do not change the array.
    Read the file, because a copy from its mapping would load the mapping's pages, too."""
    try:
        made = np.fromfile(path, np.uint8, part.size, offset=begin)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    files.check_unchanged([part])
    made.flags.writeable = False
    return made


def _shaped(t: Any, found: Array, dims: tuple[int, ...]) -> Array:
    if found.size != math.prod(dims):
        raise UserError(
            f"tensor {t.name!r} has {found.size} values, which do not fit its shape {dims}"
        )
    try:
        return found.reshape(dims)
    except ValueError as error:  # more dimensions, or greater ones, than NumPy has
        raise UserError(f"tensor {t.name!r} has the shape {dims}: {error}") from None


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
