"""A compiled program as bytes, and back: JSON for what it is, then its code, sources and arrays."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.backends.plan import (  # fmt: skip
    Argument,
    Dim,
    GpuLaunch,
    Launch,
    Plan,
    Pointer,
    Result,
    Scalar,
    Variable,
    Word,
)
from uopc.cache.disk import Unusable
from uopc.ir.core import dtypes
from uopc.program.artifact import Compiled, CompiledPtx, Constant
from uopc.program.key import Key
from uopc.program.planner import DimValue

# What reading a record of another shape than written runs into.
_MISFITS = (KeyError, ValueError, TypeError, IndexError, AttributeError, struct.error)


@dataclass(frozen=True)
class Head:
    """What an entry says of itself: its key by component, its kernels' names and digests."""

    key: dict[str, str]
    kernels: list[tuple[str, str]]


def digest_of(source: str) -> str:
    """What tells the code of kernels apart."""
    return hashlib.blake2b(source.encode(), digest_size=8).hexdigest()


# ---------------------------------------------------------------- writing
def encode(key: Key, made: Compiled) -> bytes:
    """The content of an entry."""
    blobs = [made.code, made.source_text]
    constants: list[list[Any]] = []
    for c in made.constants:
        described: list[Any] = [c.key]
        if c.array is not None:
            name = dtypes.from_numpy(c.array.dtype).name
            described += [name, list(c.array.shape), len(blobs)]
            blobs.append(c.array.tobytes())
        constants.append(described)
    plan = made.plan
    head = {
        "key": dict(key.parts),
        "kernels": [[n, digest_of(s)] for n, s in zip(made.names, made.sources())],
        "blobs": [len(b) for b in blobs],
        "constants": constants,
        "nodes": made.nodes,
        "arguments": [
            [a.name, _type_name(a.dtype), [_dim(d) for d in a.shape], a.writable]
            for a in plan.arguments
        ],
        "results": [
            [_type_name(r.dtype), [_dim(d) for d in r.shape], r.source] for r in plan.results
        ],
        "launches": [_launch(n) for n in plan.launches],
        "variables": [[v.name, v.lo, v.hi] for v in plan.variables],
        "plan": [_dim(plan.arena_bytes), plan.nogil, plan.threads, plan.name],
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *blobs])


def encode_code(key: Key, name: str, source: str, code: bytes) -> bytes:
    """The content of an entry that is code alone."""
    head = {"key": dict(key.parts), "kernels": [[name, digest_of(source)]]}
    text = json.dumps(head, separators=(",", ":")).encode()
    return b"".join([struct.pack("<Q", len(text)), text, code])


def decode_code(content: bytes, key: Key) -> bytes:
    """The code of such an entry. Unusable when it is not one, or of another key."""
    if differing := key.differs(read_head(content).key):
        raise Unusable(f"the entry is of another key: {', '.join(differing)} differ")
    return _parts(content)[1]


def _type_name(dtype: np.dtype[Any]) -> str:
    return dtypes.from_numpy(dtype).name


def _dim(d: Dim) -> Any:
    if isinstance(d, int):
        return d
    assert isinstance(d, DimValue)
    return [[op, known, list(src)] for op, known, src in d.steps]


def _launch(n: Launch) -> list[Any]:
    made = [n.kernel, [_word(w) for w in n.words], _dim(n.chunks), n.parallel]
    if isinstance(n, GpuLaunch):
        made += [[_dim(d) for d in n.grid], list(n.block), n.dynamic_shared]
    return made


def _word(w: Word) -> list[Any]:
    return [w.base, _dim(w.offset)] if isinstance(w, Pointer) else [_dim(w.value)]


# ---------------------------------------------------------------- reading
def read_head(content: bytes) -> Head:
    """What an entry says of itself. Unusable when it is not one."""
    try:
        text, _ = _parts(content)
        kernels = [(str(name), str(digest)) for name, digest in text["kernels"]]
        return Head({str(k): str(v) for k, v in text["key"].items()}, kernels)
    except _MISFITS as error:
        raise Unusable(f"not a record of a program: {error!r}") from error


def decode(content: bytes, key: Key) -> Compiled:
    """The program of an entry. Unusable when it is not one, or of another key."""
    head = read_head(content)
    if differing := key.differs(head.key):
        raise Unusable(f"the entry is of another key: {', '.join(differing)} differ")
    try:
        return _decoded(*_parts(content))
    except _MISFITS as error:
        raise Unusable(f"not a record of a program: {error!r}") from error


def _parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def _decoded(text: dict[str, Any], rest: bytes) -> Compiled:
    blobs, at = [], 0
    for length in text["blobs"]:
        blobs.append(rest[at : at + length])
        at += length
    if at != len(rest):
        raise ValueError(f"{at} bytes expected, {len(rest)} there")
    arena_bytes, nogil, threads, name = text["plan"]
    plan = Plan(
        tuple([Argument(n, _type(t), _shape(s), w) for n, t, s, w in text["arguments"]]),
        tuple([Result(_type(t), _shape(s), source) for t, s, source in text["results"]]),
        tuple([_read_launch(*described) for described in text["launches"]]),
        tuple([Variable(n, lo, hi) for n, lo, hi in text["variables"]]),
        arena_bytes=_read_dim(arena_bytes),
        nogil=nogil,
        threads=threads,
        name=name,
    )
    constants = tuple([_constant(c, blobs) for c in text["constants"]])
    names = tuple([str(n) for n, _ in text["kernels"]])
    kind = CompiledPtx if text["key"]["device"].startswith("cuda") else Compiled
    return kind(plan, constants, names, blobs[0], blobs[1], text["nodes"])


def _constant(described: list[Any], blobs: list[bytes]) -> Constant:
    key, *own = described
    if not own:
        return Constant(key)
    name, shape, blob = own
    return Constant(key, np.frombuffer(blobs[blob], _type(name)).reshape(shape))


def _type(name: str) -> np.dtype[Any]:
    return dtypes.by_name(name).numpy


def _shape(dims: list[Any]) -> tuple[Dim, ...]:
    return tuple([_read_dim(d) for d in dims])


def _read_dim(d: Any) -> Dim:
    if type(d) is int:
        return d
    return DimValue(tuple([(op, known, tuple(src)) for op, known, src in d]))


def _read_launch(
    kernel: str, words: list[Any], chunks: Any, parallel: bool, *rest: Any
) -> Launch:
    known = (kernel, tuple([_read_word(w) for w in words]), _read_dim(chunks), parallel)
    if not rest:
        return Launch(*known)
    (x, y, z), (threads, rows, layers), shared = rest
    grid = (_read_dim(x), _read_dim(y), _read_dim(z))
    return GpuLaunch(*known, grid, (threads, rows, layers), shared)


def _read_word(w: list[Any]) -> Word:
    return Pointer(w[0], _read_dim(w[1])) if len(w) == 2 else Scalar(_read_dim(w[0]))
