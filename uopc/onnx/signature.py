"""The inputs, the outputs and the origin of a model, as its file states them.

The fields are read from the bytes: a process that has the model's program in the cache does not
import the package onnx.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import field
from typing import Any

from uopc.errors import UserError, UserTypeError
from uopc.ir.records import dataclass
from uopc.onnx.wire import Damaged, WireFields, fields_of

# The element types of ONNX by their numbers, as ONNX Runtime writes them.
ELEMENTS = {
    1: "float", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "double", 12: "uint32", 13: "uint64",
    14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8e4m3fn", 18: "float8e4m3fnuz",
    19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1",
    24: "float8e8m0", 25: "uint2", 26: "int2",
}  # fmt: skip
# What exporters write for a size without a name.
_UNNAMED = ("", "?")
Size = int | str | None  # a number, the name of a free size, or a free size without a name


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model. A free size in `shape` is its name, or None."""

    name: str
    type: str
    shape: list[Size]

    @property
    def sizes(self) -> dict[int, str]:
        """The names of the free sizes by their axes: the model's, or `NAME_AXIS`."""
        free = [(a, d) for a, d in enumerate(self.shape) if not isinstance(d, int)]
        return {axis: size_name(self.name, axis, d) for axis, d in free}


@dataclass(frozen=True)
class ModelMetadata:
    """The origin of a model, as its file states it."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = (1 << 63) - 1
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelSignature:
    """The inputs without values in the file, the inputs that the file gives values, the outputs,
    and the metadata."""

    inputs: list[NodeArg]
    initialized: list[NodeArg]
    outputs: list[NodeArg]
    metadata: ModelMetadata

    @property
    def sizes(self) -> list[str]:
        """The names of the free sizes of the inputs."""
        return list(dict.fromkeys([name for i in self.inputs for name in i.sizes.values()]))

    @staticmethod
    def of(model: Any) -> ModelSignature:
        """Read a model: a path or bytes. UserError for a file that is no model."""
        data = _bytes_of(model)
        try:
            return _signature(fields_of(data))
        except Damaged as error:
            raise UserError(f"not an ONNX model: {error or 'the file is damaged'}") from None


def size_name(name: str, axis: int, size: Size) -> str:
    """The name of a free size of an input: the model's, or `INPUT_AXIS`."""
    return size if isinstance(size, str) and size not in _UNNAMED else f"{name}_{axis}"


def _bytes_of(model: Any) -> memoryview:
    if isinstance(model, (bytes, bytearray, memoryview)):
        return memoryview(model)
    if not isinstance(model, (str, os.PathLike)):
        raise UserTypeError(
            f"expected the path of an ONNX model, or its bytes, got {type(model).__name__}"
        )
    try:
        with open(model, "rb") as file:
            if os.fstat(file.fileno()).st_size:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            return memoryview(b"")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"cannot read {os.fspath(model)!r}: {reason}") from None


# The numbers of fields are those of onnx.proto.
def _signature(model: WireFields) -> ModelSignature:
    if not model.messages(7):
        raise Damaged("the file has no graph")
    graph, version = fields_of(model.messages(7)[-1]), model.number(5)
    weights = {fields_of(t).text(8) for t in graph.messages(5)}
    inputs = [_argument(fields_of(i)) for i in graph.messages(11)]
    return ModelSignature(
        [i for i in inputs if i.name not in weights],
        [i for i in inputs if i.name in weights],
        [_argument(fields_of(o)) for o in graph.messages(12)],
        ModelMetadata(
            model.text(2), graph.text(2), model.text(4), model.text(6), graph.text(10),
            ModelMetadata.version if version is None else version, _entries(model),
        ),
    )  # fmt: skip


def _entries(model: WireFields) -> dict[str, str]:
    pairs = [fields_of(e) for e in model.messages(14)]
    return {p.text(1): p.text(2) for p in pairs}


def _argument(value: WireFields) -> NodeArg:
    kind = WireFields({}) if not value.messages(2) else fields_of(value.messages(2)[-1])
    name, shape = _type(kind)
    return NodeArg(value.text(1), name, shape)


def _type(kind: WireFields) -> tuple[str, list[Size]]:
    """The text of a type, and the shape of its tensor."""
    for number, what in ((1, "tensor"), (8, "sparse_tensor")):
        for part in kind.messages(number):
            tensor = fields_of(part)
            dims = [fields_of(d) for s in tensor.messages(2) for d in fields_of(s).messages(1)]
            return f"{what}({_element(tensor)})", [_size(d) for d in dims]
    for number, what in ((4, "seq"), (9, "optional")):
        for part in kind.messages(number):
            inner, shape = _type(fields_of(fields_of(part).messages(1)[-1]))
            return f"{what}({inner})", shape if what == "optional" else []
    for part in kind.messages(5):
        pair = fields_of(part)
        return f"map({_element(pair)},{_type(fields_of(pair.messages(2)[-1]))[0]})", []
    return "", []


def _element(kind: WireFields) -> str:
    number = kind.number(1) or 0
    return ELEMENTS.get(number, f"type {number}")


def _size(dim: WireFields) -> Size:
    number = dim.number(1)
    if number is not None:
        return number if number >= 0 else None
    return dim.text(2) or None

