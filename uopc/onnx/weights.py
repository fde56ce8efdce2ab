"""Reads weights from the model's file, each once, where they are needed.

`without_weights` walks over the tags of a serialized model, up to the initializers of its graph,
and omits their bytes. Instead, the tensor says where its bytes are in the file, in ONNX's form for
data in other files.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx import StringStringEntryProto, TensorProto

from uopc.onnx.wire import BYTES, Damaged, fields

# Fewer bytes stay in the message: reading them on their own gains nothing.
LEAST_BYTES = 1 << 12
# Numbers of fields of onnx.proto.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_PLACES = (13, 14)  # of a tensor whose data is in a file already


def without_weights(data: memoryview, file: str) -> bytes:
    """Replace the large weights of a model's graph by their places in `file`, in the model's
    folder. A model that is damaged or has no large weights stays as it is."""
    try:
        parts = list(_model(data, file))
    except Damaged:  # protobuf says what is wrong
        return bytes(data)
    return b"".join(parts)


def _model(data: memoryview, file: str) -> Iterator[bytes | memoryview]:
    for begin, number, inner, end in fields(data, 0, len(data)):
        if number == _GRAPH and inner is not None:
            yield from _message(_GRAPH, list(_graph(data, inner, end, file)))
        else:
            yield data[begin:end]


def _graph(data: memoryview, first: int, last: int, file: str) -> Iterator[bytes | memoryview]:
    for begin, number, inner, end in fields(data, first, last):
        if number == _INITIALIZER and inner is not None:
            yield from _message(_INITIALIZER, list(_tensor(data, inner, end, file)))
        else:
            yield data[begin:end]


def _tensor(data: memoryview, first: int, last: int, file: str) -> Iterator[bytes | memoryview]:
    parts = list(fields(data, first, last))
    numbers = [number for _, number, _, _ in parts]
    alone = numbers.count(_RAW_DATA) == 1 and not set(numbers).intersection(_PLACES)
    for begin, number, inner, end in parts:
        if inner is None or number != _RAW_DATA or end - inner < LEAST_BYTES or not alone:
            yield data[begin:end]
            continue
        place = {"location": file, "offset": str(inner), "length": str(end - inner)}
        entries = [StringStringEntryProto(key=k, value=v) for k, v in place.items()]
        where = TensorProto(external_data=entries, data_location=TensorProto.EXTERNAL)
        yield where.SerializeToString()


def _message(number: int, parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    size = sum(map(len, parts))
    return [_varint_of(number << 3 | BYTES) + _varint_of(size), *parts]


def _varint_of(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])
