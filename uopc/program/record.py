"""An artifact as bytes, and back: JSON, then the code, the sources and the arrays.

The JSON follows from the fields of the plan's dataclasses: an object is a list of the name of its
class and its fields. Reading checks every value against the type of its field.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from uopc.backends import plan
from uopc.backends.plan import AnyDtype, Plan
from uopc.cache.disk import Unusable
from uopc.ir.core import dtypes
from uopc.program.artifact import Artifact, Constant
from uopc.program.key import Key
from uopc.program.planner import DimValue

A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True)
class Entry:
    """The parts of a record: its key by component, names and digests of kernels, pieces of bytes,
    and JSON of what the bytes are (None: code alone)."""

    key: dict[str, str]
    kernels: list[tuple[str, str]]
    pieces: list[bytes]
    program: Any = None


@dataclass(frozen=True)
class _Array:
    """A constant. One with a dtype is stored here, after the sources."""

    key: str
    dtype: AnyDtype | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Program:
    plan: Plan
    constants: tuple[_Array, ...]
    nodes: int


def digest_of(source: str) -> str:
    """A digest that tells the code of kernels apart."""
    return hashlib.blake2b(source.encode(), digest_size=8).hexdigest()


# ---------------------------------------------------------------- writing
def encode(key: Key, made: Artifact) -> bytes:
    """The record of an artifact."""
    own = [c.array for c in made.constants if c.array is not None]
    constants = [
        _Array(c.key) if c.array is None else _Array(c.key, c.array.dtype, c.array.shape)
        for c in made.constants
    ]
    kernels = [(name, digest_of(source)) for name, source in zip(made.names, made.sources())]
    pieces = [made.code, made.source_text, *[a.tobytes() for a in own]]
    program = _Program(made.plan, tuple(constants), made.nodes)
    return write(Entry(dict(key.parts), kernels, pieces, program))


def write(entry: Entry) -> bytes:
    """The bytes of a record."""
    head = entry.key, entry.kernels, [len(p) for p in entry.pieces], entry.program
    text = json.dumps(head, separators=(",", ":"), default=_plain).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *entry.pieces])


def _plain(value: Any) -> Any:
    if isinstance(value, np.dtype):
        return dtypes.from_numpy(value).name
    return [type(value).__name__, *[getattr(value, f.name) for f in fields(value) if f.init]]


# ---------------------------------------------------------------- reading
@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Unusable for every error that content of another form leads to."""
    try:
        yield
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, struct.error) as error:
        raise Unusable(f"not a record of a program: {error!r}") from error


def read(content: bytes, key: Key | None = None) -> Entry:
    """The parts of a record. Unusable when it is none, or has another key than the one given."""
    with _refused():
        (length,) = struct.unpack_from("<Q", content)
        parts, kernels, lengths, program = json.loads(content[8 : 8 + length])
        pieces, at = [], 8 + length
        for nbytes in lengths:
            pieces.append(content[at : at + nbytes])
            at += nbytes
        if at != len(content):
            raise ValueError(f"{at} bytes expected, {len(content)} found")
        digests = [(str(name), str(digest)) for name, digest in kernels]
        entry = Entry({str(k): str(v) for k, v in parts.items()}, digests, pieces, program)
    if key is not None and (differing := key.differs(entry.key)):
        raise Unusable(f"the entry is of another key: {', '.join(differing)} differ")
    return entry


def decode(content: bytes, key: Key, kind: type[A]) -> A:
    """The artifact of a record. Unusable when it is none, or of another key."""
    entry = read(content, key)
    with _refused():
        made: _Program = _reader(_Program)(entry.program)
        code, sources, *arrays = entry.pieces
        rest = iter(arrays)
        constants = [
            Constant(c.key, c.dtype and np.frombuffer(next(rest), c.dtype).reshape(c.shape))
            for c in made.constants
        ]
        names = tuple([name for name, _ in entry.kernels])
        return kind(made.plan, tuple(constants), names, code, sources, made.nodes)


_CLASSES: tuple[type[Any], ...] = (
    _Program, _Array, Plan, plan.Argument, plan.Variable, plan.Result, plan.Pointer, plan.Scalar,
    plan.Launch, plan.GpuLaunch, DimValue,
)  # fmt: skip


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """The function that reads a value of a type from JSON, or raises what `_refused` knows."""
    arguments = get_args(hint)
    if get_origin(hint) is tuple and arguments[-1] is ...:
        item = _reader(arguments[0])
        return lambda value: tuple([item(v) for v in value])
    if get_origin(hint) is tuple:
        items = [_reader(a) for a in arguments]
        return lambda value: tuple([read(v) for read, v in zip(items, value, strict=True)])
    if get_origin(hint) is Literal:
        return {a: a for a in arguments}.__getitem__
    kinds = arguments if isinstance(hint, UnionType) else (hint,)
    plain = [k for k in kinds if k in (int, str, bool, NoneType)]
    classes = {c.__name__: c for c in _CLASSES if any(k in c.__mro__ for k in kinds)}
    readers = {name: [_reader(h) for h in _hints(c)] for name, c in classes.items()}

    def read(value: Any) -> Any:
        if type(value) in plain:
            return value
        if AnyDtype in kinds:
            return dtypes.by_name(value).numpy
        name, *found = value
        return classes[name](*[r(v) for r, v in zip(readers[name], found, strict=True)])

    return read


def _hints(c: type[Any]) -> list[Any]:
    """The types of the fields that an object is made of."""
    known = get_type_hints(c)
    return [known[f.name] for f in fields(c) if f.init]
