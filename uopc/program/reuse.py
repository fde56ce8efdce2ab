"""A program from a cache instead of a compile: in memory, or on disk for other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from uopc import config
from uopc.cache.disk import Store
from uopc.cache.memory import Memory
from uopc.ir.core.serialize import Fingerprint
from uopc.program import key, record
from uopc.program.artifact import Artifact
from uopc.program.request import Request
from uopc.target import Target

A = TypeVar("A", bound=Artifact)
programs: Memory[Artifact] = Memory()


def store(options: config.Options) -> Store | None:
    """The cache on disk, or None when it is turned off."""
    folder = config.cache_folder(options)
    return None if folder is None else Store(folder, options.cache_mib << 20)


def obtain(
    request: Request, machine: Target, printed: Fingerprint, kind: type[A],
    make: Callable[[], Artifact],
) -> tuple[Artifact, str]:  # fmt: skip
    """The artifact of a request, and where it was: `memory`, `disk`, or `` when `make` made it.

    printed: the content of the request's graph. kind: how the backend reads a record.
    """
    parts = key.request_parts(request, machine, printed)
    where = "memory"

    def find() -> Artifact:
        nonlocal where
        where = ""
        # Rules are functions: no other process can know that they are equal.
        disk = store(request.options) if request.rules is None else None
        if disk is None:
            return make()
        whole = key.Key((*key.process_parts(), *parts))
        found = disk.load(whole.digest, lambda data: record.decode(data, whole, kind).check())
        if found is not None:
            where = "disk"
            return found
        made = make()
        disk.save(whole.digest, record.encode(whole, zip(made.names, made.sources()), made))
        return made

    most, rules = request.options.programs, request.rules
    return programs.obtain((parts, id(rules)), find, most, rules), where
