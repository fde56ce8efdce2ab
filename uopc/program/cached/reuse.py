"""Programs from a cache instead of a compile: in memory, or on disk for other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from uopc import config
from uopc.cache import statistics
from uopc.cache.disk import DiskCache
from uopc.cache.memory import MemoryCache
from uopc.ir.core.serialize import Fingerprint
from uopc.program.artifact import Artifact
from uopc.program.cached import key, record
from uopc.program.request import Request
from uopc.target import Target

A = TypeVar("A", bound=Artifact)
programs: MemoryCache[Artifact] = MemoryCache()


def obtain(
    request: Request, machine: Target, printed: Fingerprint, kind: type[A],
    make: Callable[[], Artifact], disk: DiskCache | None, holds: Callable[[Artifact], bool],
) -> tuple[Artifact, str]:  # fmt: skip
    """The artifact of a request, and its origin: `memory`, `disk`, or `` when `make` made it.

    printed: the content of the request's graph. kind: the class in which the backend reads a
    record. holds: False for an artifact whose kernels would now get other Opts.
    """
    rules = key.rules_identity(request, machine)
    if rules is None:  # programs with such rules cannot be told apart
        return make(), ""
    components = key.request_components(request, machine, printed, rules)
    where = "memory"

    def find() -> Artifact:
        nonlocal where
        where = ""
        if disk is None:
            return make()
        whole = key.with_process(components)
        found = _on_disk(whole, kind, disk)
        if found is not None and holds(found):
            where = "disk"
            return found
        made = make()
        _save(whole, made, disk)
        return made

    most = request.options.programs
    if not most:
        return find(), where
    return programs.obtain(components, find, most, holds), where


def known(
    components: record.Components, kind: type[A], disk: DiskCache, options: config.Options,
    holds: Callable[[Artifact], bool],
) -> tuple[Artifact, str] | None:  # fmt: skip
    """The artifact of a key and its origin. None if not cached, or if newer tuning would choose
    other Opts."""
    found: Artifact | None = programs.find(components) if options.programs else None
    if found is not None and holds(found):
        statistics.count(memory_hits=1)
        return found, "memory"
    found = _on_disk(key.with_process(components), kind, disk)
    if found is None or not holds(found):
        return None
    if options.programs:
        programs.put(components, found, options.programs)
    return found, "disk"


def keep(components: record.Components, made: Artifact, disk: DiskCache) -> None:
    """Store on disk an artifact that came from memory, unless the disk has it."""
    whole = key.with_process(components)
    if not disk.has(whole.digest):
        _save(whole, made, disk)


def _on_disk(whole: record.Key, kind: type[A], disk: DiskCache) -> A | None:
    def read(data: bytes) -> A:
        artifact = record.decode(data, whole, kind)
        artifact.check()
        return artifact

    return disk.load(whole.digest, read)


def _save(whole: record.Key, made: Artifact, disk: DiskCache) -> None:
    keys = [k.key for k in made.kernels]
    named = zip(made.names, made.sources(), keys)
    disk.save(whole.digest, record.encode(whole, named, made), keys)
