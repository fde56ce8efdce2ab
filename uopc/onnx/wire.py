"""The fields of a serialized message of protobuf, without protobuf.

protobuf copies a file, then each weight; and the classes of the package onnx take longer to import
than a program takes to load.
"""

from __future__ import annotations

from collections.abc import Iterator

from uopc.ir.records import dataclass

# The kinds of values in a message, and the bytes of those of one size.
_VARINT, _EIGHT_BYTES, BYTES, _FOUR_BYTES = 0, 1, 2, 5
_SIZES = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}


class Damaged(Exception):
    """The bytes are no message."""


@dataclass(frozen=True)
class WireFields:
    """The fields of a message by their numbers: ints, and bytes. A field that is missing has the
    default of protobuf."""

    found: dict[int, list[int | memoryview]]

    def messages(self, number: int) -> list[memoryview]:
        """The bytes of a field that may be repeated."""
        return [v for v in self.found.get(number, ()) if isinstance(v, memoryview)]

    def text(self, number: int) -> str:
        """The last value of a field, as text."""
        return "".join([bytes(v).decode(errors="replace") for v in self.messages(number)[-1:]])

    def number(self, number: int) -> int | None:
        """The last value of a field, as an int of 64 bits; None if the field is missing."""
        values = [v for v in self.found.get(number, ()) if isinstance(v, int)]
        return None if not values else values[-1] - ((values[-1] >> 63) << 64)


def fields_of(data: memoryview) -> WireFields:
    """Read a message. Damaged if the bytes are none."""
    found: dict[int, list[int | memoryview]] = {}
    for begin, number, inner, end in fields(data, 0, len(data)):
        if inner is not None:
            found.setdefault(number, []).append(data[inner:end])
        elif data[begin] & 7 == _VARINT:
            _, at = _varint(data, begin, end)
            found.setdefault(number, []).append(_varint(data, at, end)[0])
    return WireFields(found)


def fields(
    data: memoryview, at: int, end: int
) -> Iterator[tuple[int, int, int | None, int]]:  # fmt: skip
    """Yield (begin, number, begin of the bytes, or None without bytes, end) of each field."""
    while at < end:
        begin = at
        tag, at = _varint(data, at, end)
        kind, inner = tag & 7, None
        if kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind == BYTES:
            size, inner = _varint(data, at, end)
            at = inner + size
        elif kind in _SIZES:
            at += _SIZES[kind]
        else:
            raise Damaged
        if at > end:
            raise Damaged
        yield begin, tag >> 3, inner, at


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Read a number of seven bits per byte, lowest first; also return the offset after it."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise Damaged
