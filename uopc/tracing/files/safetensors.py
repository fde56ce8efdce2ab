"""Safetensors: a JSON header, then the bytes of arrays without gaps. Read as views, and written.

The reader accepts only what the format allows, because a file may come from anybody: see
`_entries`. Format: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import collections
import json
import math
import os
import reprlib
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.builder import checks
from uopc.ir.core import dtypes
from uopc.ir.core.data import files
from uopc.ir.core.data.files import Array
from uopc.ir.core.dtypes import DType
from uopc.tracing.files.mapped import check_bools

MOST_HEADER = 100_000_000  # bytes: the format's own limit
MOST_BYTES = 1 << 62
_METADATA = "__metadata__"
# The dtypes of the format in its own order, and the ones of uopc. Arrays lie in the file in the
# opposite order, so that all are aligned.
_DTYPES: dict[str, DType | None] = {
    "BOOL": dtypes.bool_, "F4": None, "F6_E2M3": None, "F6_E3M2": None, "U8": dtypes.uint8,
    "I8": dtypes.int8, "F8_E5M2": dtypes.fp8e5m2, "F8_E4M3": dtypes.fp8e4m3, "F8_E8M0": None,
    "F8_E4M3FNUZ": dtypes.fp8e4m3fnuz, "F8_E5M2FNUZ": dtypes.fp8e5m2fnuz, "I16": dtypes.int16,
    "U16": dtypes.uint16, "F16": dtypes.float16, "BF16": dtypes.bfloat16, "I32": dtypes.int32,
    "U32": dtypes.uint32, "F32": dtypes.float32, "C64": None, "F64": dtypes.float64,
    "I64": dtypes.int64, "U64": dtypes.uint64,
}  # fmt: skip
_NAMES = {t: name for name, t in _DTYPES.items() if t is not None}
_ORDER = {name: -i for i, name in enumerate(_DTYPES)}

_short = reprlib.Repr()
_short.maxstring = 200
_shown = _short.repr  # shortens a name or a value of a file for a message


class Tensors(dict[str, Array]):
    """Arrays by name, in the order of the file; `metadata`: texts by name."""

    metadata: dict[str, str]


def load_safetensors(path: str | os.PathLike[str]) -> Tensors:
    """The arrays of a safetensors file by name, as read-only views of the file; `.metadata` has its
    texts. bfloat16 and float8 are dtypes of ml_dtypes.

    Only the header is read. UserError unless the header is exactly as the format allows: for a name
    that appears twice, arrays that overlap, leave a gap or leave the file, a size that does not fit
    the shape, an array that is not aligned. Unsupported for complex numbers and types of less than
    8 bits.

    Examples:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "w.safetensors")
        >>> uopc.save_safetensors(path, {"w": np.arange(3, dtype="f4")}, {"made": "here"})
        >>> weights = uopc.load_safetensors(path)
        >>> weights["w"], weights.metadata
        (array([0., 1., 2.], dtype=float32), {'made': 'here'})
        >>> folder.cleanup()
    """
    place = checks.path("load_safetensors", path)
    mapping = files.opened(place)
    size = mapping.identity.size
    length = int.from_bytes(mapping[:8], "little") if size >= 8 else 0
    if size < 8 or length > MOST_HEADER or 8 + length > size:
        _refuse(place, f"a header of {length} bytes in {size}")
    made = Tensors()
    header = _header(place, mapping[8 : 8 + length])
    made.metadata = _metadata(place, header.pop(_METADATA, {}))
    for name, t, dims, begin in _entries(place, header, size - 8 - length):
        at = 8 + length + begin
        if not math.prod(dims):
            made[name] = np.empty(dims, t.numpy)
            continue
        if at % t.itemsize:
            _refuse(place, f"{_shown(name)}, {t.name} at byte {at}, is not aligned: write it anew")
        made[name] = mapping.array(at, t.numpy, dims)
        check_bools(f"{place}: {_shown(name)}", made[name])
    return made


def _refuse(path: str, what: str) -> NoReturn:
    raise UserError(f"{path}: not a valid safetensors file: {what}")


def _header(path: str, text: bytes) -> dict[str, Any]:
    """Parse the header as an object in which each name appears once."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = collections.Counter([name for name, _ in pairs])
            _refuse(path, f"{_shown(counts.most_common(1)[0][0])} is in the header twice")
        return found

    if text[:1] != b"{":
        _refuse(path, "the header must begin with {")
    try:
        found = json.loads(text.decode(), object_pairs_hook=unique)
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        _refuse(path, f"the header is no JSON: {error}")
    return found  # type: ignore[no-any-return]


def _metadata(path: str, found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all([isinstance(v, str) for v in found.values()]):
        _refuse(path, "the metadata must be texts by name")
    return found


def _entries(
    path: str, header: Mapping[str, Any], size: int
) -> list[tuple[str, DType, tuple[int, ...], int]]:
    """The name, dtype, shape and begin of each array, in order. The arrays fill the `size` bytes
    behind the header without gaps."""
    ranges = {name: _offsets(path, name, entry) for name, entry in header.items()}
    found, end = [], 0
    for name in sorted(header, key=ranges.__getitem__):
        t = _dtype(path, name, header[name]["dtype"])
        dims = _dims(path, name, header[name]["shape"])
        begin, stop = ranges[name]
        if begin != end:
            what = "leaves a gap behind" if begin > end else "overlaps"
            _refuse(path, f"{_shown(name)} begins at {begin} and {what} the bytes up to {end}")
        wanted = math.prod(dims) * t.itemsize
        if stop - begin != wanted:
            shown = f"{t.name}{list(dims)}"
            _refuse(path, f"{_shown(name)} has {stop - begin} bytes, but {shown} needs {wanted}")
        found.append((name, t, dims, begin))
        end = stop
    if end != size:
        _refuse(path, f"its arrays have {end} bytes, and {size} lie behind the header")
    return found


def _offsets(path: str, name: str, entry: Any) -> tuple[int, int]:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        _refuse(path, f"{_shown(name)} must have dtype, shape and data_offsets, and nothing else")
    found = entry["data_offsets"]
    if not _are_sizes(found) or len(found) != 2 or found[0] > found[1]:
        shown = _shown(found)
        _refuse(path, f"{_shown(name)} must have a begin and an end as data_offsets, got {shown}")
    return found[0], found[1]


def _dtype(path: str, name: str, found: Any) -> DType:
    if not isinstance(found, str) or found not in _DTYPES:
        _refuse(path, f"{_shown(name)} has the dtype {_shown(found)}")
    t = _DTYPES[found]
    if t is None:
        raise Unsupported(f"{path}: {_shown(name)} has dtype {found}, which is not supported")
    return t


def _dims(path: str, name: str, found: Any) -> tuple[int, ...]:
    if not _are_sizes(found) or math.prod([max(1, d) for d in found]) > MOST_BYTES:
        _refuse(path, f"{_shown(name)} has the shape {_shown(found)}")
    if len(found) > 64:
        raise Unsupported(
            f"{path}: {_shown(name)} has {len(found)} dimensions, expected at most 64"
        )
    return tuple(found)


def _are_sizes(found: Any) -> bool:
    return isinstance(found, list) and all([type(n) is int and 0 <= n <= MOST_BYTES for n in found])


def save_safetensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Write arrays by name, and texts by name, as a safetensors file.

    The file replaces an existing file once everything is written; views of the old file stay valid.
    UserError if the file cannot be written, UserTypeError for dtypes that the format or uopc lacks,
    and for names and texts that are no strings.

    Examples:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "w.safetensors")
        >>> uopc.save_safetensors(path, {"w": np.eye(2), "b": np.float32(1)})
        >>> list(uopc.load_safetensors(path))
        ['w', 'b']
        >>> folder.cleanup()
    """
    place = checks.path("save_safetensors", path)
    if not isinstance(tensors, Mapping):
        raise UserTypeError(f"save_safetensors: expected a dict of arrays by name, got {tensors!r}")
    arrays = {name: _array(name, value) for name, value in tensors.items()}
    kinds = {name: _NAMES[dtypes.from_numpy(a.dtype)] for name, a in arrays.items()}
    names = sorted(arrays, key=lambda name: (_ORDER[kinds[name]], name))
    header: dict[str, Any] = {} if metadata is None else {_METADATA: _texts(metadata)}
    end = 0
    for name in names:
        begin, end = end, end + arrays[name].nbytes
        dims = list(arrays[name].shape)
        header[name] = {"dtype": kinds[name], "shape": dims, "data_offsets": [begin, end]}
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"save_safetensors: {error}") from None
    text += b" " * (-len(text) % 8)
    if len(text) > MOST_HEADER:
        raise UserError(
            f"save_safetensors: the header of {len(text)} bytes is too long: write fewer names"
        )
    with files.replacing(place) as made:
        made.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            made.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)


def _array(name: Any, value: Any) -> Array:
    """Check an array, and convert it to the byte order of the format."""
    if not isinstance(name, str) or name == _METADATA:
        raise UserTypeError(
            f"save_safetensors: the name of an array must be a string other than {_METADATA}, got"
            f" {name!r}"
        )
    found = checks.array(f"save_safetensors: {name!r}", value)
    try:
        t = dtypes.from_numpy(found.dtype.newbyteorder("="))
    except (UserTypeError, TypeError, ValueError):
        t = None
    if t not in _NAMES:
        raise UserTypeError(
            f"save_safetensors: {name!r} has dtype {found.dtype}, which the format has not"
        )
    return found.astype(t.numpy, copy=False)


def _texts(metadata: Any) -> dict[str, str]:
    pairs: dict[Any, Any] = dict(metadata) if isinstance(metadata, Mapping) else {None: None}
    if not all([isinstance(k, str) and isinstance(v, str) for k, v in pairs.items()]):
        raise UserTypeError(f"save_safetensors: metadata must be texts by name, got {metadata!r}")
    return pairs
