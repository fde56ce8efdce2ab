"""An artifact as bytes, and back: JSON, then blobs that the JSON refers to by number.

The JSON follows from the fields of the dataclasses: an object is a list of the name of its class
and its fields. Reading checks every value against the type of its field.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from uopc.backends import plan
from uopc.backends.plan import AnyArray, AnyDtype
from uopc.cache.disk import Unusable
from uopc.ir.core import dtypes
from uopc.ir.records import dataclass

T = TypeVar("T")
Reader = Callable[[Any, list[bytes]], Any]  # of a value from JSON, and the blobs


def digest(text: str) -> str:
    """A short name of a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


# Each by its name.
Components: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Key:
    """The components by name. `digest` names the entry; the components are compared in full."""

    components: Components

    @property
    def digest(self) -> str:
        return digest("".join([f"{name}={value}\n" for name, value in self.components]))

    def differs(self, other: dict[str, str]) -> list[str]:
        """The components in which two keys differ."""
        mine = dict(self.components)
        return [name for name in {**mine, **other} if mine.get(name) != other.get(name)]


@dataclass(frozen=True)
class Head:
    """The head of a record: its key by component, and each kernel's name, source digest and key."""

    key: dict[str, str]
    kernels: list[tuple[str, str, str]]


def digest_of(source: str) -> str:
    """A digest of a source that tells the code of kernels apart."""
    return hashlib.blake2b(source.encode(), digest_size=8).hexdigest()


# ---------------------------------------------------------------- writing
def encode(key: Key, kernels: Iterable[tuple[str, str, str]], made: Any) -> bytes:
    """The record of a dataclass, with the names, sources and keys of the kernels in it."""
    blobs: dict[bytes, int] = {}  # equal ones are written once

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return blobs.setdefault(value, len(blobs))
        if isinstance(value, np.ndarray):
            return [value.dtype, value.shape, value.tobytes()]
        if isinstance(value, np.dtype):
            return dtypes.from_numpy(value).name
        return [type(value).__name__, *[getattr(value, f.name) for f in fields(value) if f.init]]

    body = json.dumps(made, separators=(",", ":"), default=plain)
    digests = [(name, digest_of(source), own) for name, source, own in kernels]
    head = json.dumps((dict(key.components), digests, [len(p) for p in blobs]))
    text = f"[{head},{body}]".encode()
    return b"".join([struct.pack("<Q", len(text)), text, *blobs])


# ---------------------------------------------------------------- reading
@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Turn every error that malformed content causes into Unusable."""
    try:
        yield
    except (
        LookupError, ValueError, TypeError, AttributeError, RecursionError, struct.error
    ) as error:  # fmt: skip
        raise Unusable(f"not a record of a program: {error!r}") from error


def read_head(content: bytes) -> Head:
    """The head of a record. Unusable if the content is no record."""
    return _split_record(content)[0]


def decode(content: bytes, key: Key | None, kind: type[T]) -> T:
    """The object of a record. Unusable if the content is no record, or has another key or class.
    With `key` None any key is accepted."""
    head, blobs, body = _split_record(content)
    if key is not None and (differing := key.differs(head.key)):
        raise Unusable(f"the entry has another key: {', '.join(differing)} differ")
    with _refused():
        hint: Any = kind
        found: T = _reader(hint)(body, blobs)
        return found


def _split_record(content: bytes) -> tuple[Head, list[bytes], Any]:
    """The head, the blobs, and the JSON of the object."""
    with _refused():
        (length,) = struct.unpack_from("<Q", content)
        (key, kernels, lengths), body = json.loads(content[8 : 8 + length])
        blobs, at = [], 8 + length
        for nbytes in lengths:
            blobs.append(content[at : at + nbytes])
            at += nbytes
        if at != len(content):
            raise ValueError(f"expected {at} bytes, found {len(content)}")
        digests = [(str(name), str(digest), str(own)) for name, digest, own in kernels]
        return Head({str(k): str(v) for k, v in key.items()}, digests), blobs, body


# Classes of fields whose type is a base class or a protocol.
_SUBCLASSES = (plan.GpuLaunch, plan.Exchange)
# Classes with types of meshes, which `plan` does not import.
_OF_MESHES = (plan.Cut, plan.PlanMesh)


@cache
def _reader(hint: Any) -> Reader:
    """The function that reads values of a type, or raises an error that `_refused` turns into
    Unusable."""
    arguments = get_args(hint)
    if get_origin(hint) is tuple and arguments[-1] is ...:
        item = _reader(arguments[0])
        return lambda value, blobs: tuple([item(v, blobs) for v in value])
    if get_origin(hint) is tuple:
        items = [_reader(a) for a in arguments]
        return lambda value, blobs: tuple(
            [read(v, blobs) for read, v in zip(items, value, strict=True)]
        )
    if get_origin(hint) is Literal:
        return lambda value, blobs: arguments[arguments.index(value)]
    return _reader_of_one(arguments if isinstance(hint, UnionType) else (hint,))


def _reader_of_one(kinds: Sequence[Any]) -> Reader:
    """The function that reads a value of one of these types."""
    plain = [k for k in kinds if k in (int, str, bool, NoneType)]
    made: list[Any] = [k for k in kinds if is_dataclass(k)]
    made += [c for c in _SUBCLASSES if any(k in c.__mro__ for k in kinds)]
    classes = {c.__name__: c for c in made}

    def read(value: Any, blobs: list[bytes]) -> Any:
        if type(value) in plain:
            return value
        if bytes in kinds:
            return blobs[value]
        if AnyDtype in kinds:
            return dtypes.by_name(value).numpy
        if AnyArray in kinds:
            name, shape, at = value
            return np.frombuffer(blobs[at], dtypes.by_name(name).numpy).reshape(shape)
        name, *values = value
        c = classes[name]
        return c(*[r(v, blobs) for r, v in zip(_field_readers(c), values, strict=True)])

    return read


@cache
def _field_readers(c: Any) -> list[Reader]:
    """The readers of the fields that an object is made of."""
    names = vars(import_module("uopc.ir.devices.mesh")) if c in _OF_MESHES else None
    known = get_type_hints(c, localns=names)
    return [_reader(known[f.name]) for f in fields(c) if f.init]
