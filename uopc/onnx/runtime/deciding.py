"""The inputs of a model file on whose values a shape depends, as an earlier process found them.

A session passes their values while the program is made, and need not read the model to learn that
it must. They count for the file as it was then.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from uopc import config
from uopc.cache import statistics
from uopc.cache.disk import DiskCache, Unusable
from uopc.ir.core.data.files import Stamp
from uopc.ir.records import dataclass
from uopc.onnx.source import real_path
from uopc.program.cached import key, record


@dataclass(frozen=True)
class DecidingInputs:
    """Names of inputs."""

    names: tuple[str, ...]


def known(model: str | bytes | os.PathLike[str]) -> tuple[str, ...]:
    """The names that a process kept for a model's file; none for bytes, and without a cache."""
    own, disk = _key(model), DiskCache.of(config.current())
    if own is None or disk is None:
        return ()
    found = disk.load(
        own.digest, lambda data: record.decode(data, own, DecidingInputs), counted=False
    )
    return () if found is None else found.names


def keep(model: str | bytes | os.PathLike[str], names: Sequence[str]) -> None:
    """Keep the names for later processes, if there is a cache."""
    own, disk = _key(model), DiskCache.of(config.current())
    if own is None or disk is None:
        return
    try:
        disk.write(own.digest, record.encode(own, [], DecidingInputs(tuple(names))))
    except Unusable as problem:
        statistics.note("disk_failed", problem)


def _key(model: str | bytes | os.PathLike[str]) -> record.Key | None:
    """The key of a model's file as it is now; None for a model that is no file."""
    path = real_path(model)
    if path is None:
        return None
    try:
        stamp = Stamp.of(path)
    except OSError:
        return None
    return key.with_process((("deciding inputs", path), ("stamp", repr(stamp))))
