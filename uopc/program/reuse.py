"""A program from a cache instead of a compile: in memory, or on disk for other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from uopc import config
from uopc.cache.disk import DiskCache
from uopc.cache.memory import MemoryCache
from uopc.ir.core.serialize import Fingerprint
from uopc.program import key, record
from uopc.program.artifact import Artifact
from uopc.program.request import Request
from uopc.target import Target

A = TypeVar("A", bound=Artifact)
programs: MemoryCache[Artifact] = MemoryCache()


def disk_cache(options: config.Options) -> DiskCache | None:
    """The cache on disk, or None when it is turned off."""
    folder = config.cache_folder(options)
    return None if folder is None else DiskCache(folder, options.cache_mib << 20)


def obtain(
    request: Request, machine: Target, printed: Fingerprint, kind: type[A],
    make: Callable[[], Artifact], disk: DiskCache | None, holds: Callable[[Artifact], bool],
) -> tuple[Artifact, str]:  # fmt: skip
    """The artifact of a request, and its origin: `memory`, `disk`, or `` when `make` made it.

    printed: the content of the request's graph. kind: how the backend reads a record. holds: False
    for an artifact whose kernels would get other Opts now.
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
        whole = key.Key((*key.process_components(), *components))

        def read(data: bytes) -> A:
            artifact = record.decode(data, whole, kind)
            artifact.check()
            return artifact

        found = disk.load(whole.digest, read)
        if found is not None and holds(found):
            where = "disk"
            return found
        made = make()
        keys = [k.key for k in made.kernels]
        named = zip(made.names, made.sources(), keys)
        disk.save(whole.digest, record.encode(whole, named, made), keys)
        return made

    most = request.options.programs
    if not most:
        return find(), where
    return programs.obtain(components, find, most, holds), where
