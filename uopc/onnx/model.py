"""A model file: its graph, its functions, and its weights as views of the file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from uopc.errors import Unsupported, UserError
from uopc.ir.core.data import files
from uopc.onnx.values import NARROW, Array, dtype_of


class Model:
    """A parsed model, and the folder in which its external data lies."""

    def __init__(self, source: Any) -> None:
        """`source`: a path, bytes, or a ModelProto."""
        self.folder: Path | None = None
        self.name = "model"  # in messages
        if isinstance(source, onnx.ModelProto):
            self.proto = source
        else:
            data = source
            if not isinstance(source, (bytes, bytearray)):
                path = Path(source)
                self.name = str(path)
                self.folder = path.resolve().parent
                try:
                    data = path.read_bytes()
                except OSError as error:
                    raise UserError(f"cannot read {path}: {error.strerror}") from None
            self.proto = onnx.ModelProto()
            try:
                self.proto.ParseFromString(bytes(data))
            except Exception as error:  # DecodeError of whichever protobuf is installed
                raise UserError(f"no ONNX model: {error}") from None
        if not self.proto.HasField("graph"):
            raise UserError("no ONNX model: it has no graph")
        self.opsets = {_domain(o.domain): o.version for o in self.proto.opset_import}
        self.functions = {(_domain(f.domain), f.name): f for f in self.proto.functions}
        self._files: dict[Path, Array] = {}

    def array(self, t: Any) -> Array:
        """The array of a tensor; large ones are views of the file or of the model."""
        dims = tuple(t.dims)
        if any([d < 0 for d in dims]):
            raise UserError(f"tensor {t.name!r} has the shape {dims}")
        if t.data_type == onnx.TensorProto.STRING:
            found: Array = numpy_helper.to_array(t)
            return found
        if t.data_type in (14, 15):
            raise Unsupported(f"tensor {t.name!r} is complex")
        if t.data_location == onnx.TensorProto.EXTERNAL:
            raw = self._external(t)
        elif t.HasField("raw_data"):
            raw = np.frombuffer(t.raw_data, np.uint8)
        else:
            return _checked(t, numpy_helper.to_array(t), dims)
        if t.data_type in NARROW:
            if t.data_location == onnx.TensorProto.EXTERNAL:
                raise Unsupported(f"tensor {t.name!r} of few bits in a file")
            return _checked(t, numpy_helper.to_array(t), dims)
        dtype_of(t.data_type)
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(t.data_type))
        wanted = math.prod(dims) * dtype.itemsize
        if raw.size != wanted:
            raise UserError(f"tensor {t.name!r} has {raw.size} bytes, its shape {dims} {wanted}")
        if raw.size and raw.ctypes.data % dtype.itemsize:
            raw = raw.copy()
        made: Array = raw.view(dtype).reshape(dims)
        return made

    def _external(self, t: Any) -> Array:
        given = {e.key: e.value for e in t.external_data}
        if self.folder is None:
            raise UserError(f"tensor {t.name!r} lies in a file: load the model from its path")
        path = (self.folder / given.get("location", "")).resolve()
        if not path.is_relative_to(self.folder):
            raise UserError(f"tensor {t.name!r} lies outside of the model's folder: {path}")
        if path not in self._files:
            try:
                mapping = files.opened(str(path))
            except UserError as error:
                raise UserError(f"cannot read the weights of {t.name!r}: {error}") from None
            whole = mapping.array(0, np.dtype(np.uint8), (mapping.identity.size,))
            self._files[path] = whole
        whole = self._files[path]
        try:
            begin = int(given.get("offset", 0))
            size = int(given.get("length", whole.size - begin))
        except ValueError:
            raise UserError(f"tensor {t.name!r}: its place in {path.name} is no number") from None
        if not 0 <= begin <= begin + size <= whole.size:
            end = begin + size
            raise UserError(f"tensor {t.name!r}: bytes {begin} to {end} of {whole.size} in {path}")
        return whole[begin : begin + size]


def _checked(t: Any, found: Array, dims: tuple[int, ...]) -> Array:
    if found.shape != dims:
        raise UserError(f"tensor {t.name!r} has the shape {dims}, its values {found.shape}")
    return found


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
