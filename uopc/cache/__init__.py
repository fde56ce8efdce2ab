"""Caches: compiled programs in memory, and on disk for other processes. See docs/caches.md.

`counters()` says what they did in this process, `clear()` forgets what is in memory.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from uopc import config
from uopc.backends import detect
from uopc.backends.cpu import native
from uopc.backends.llvm import jit
from uopc.cache.disk import Store, Unusable
from uopc.cache.memory import programs
from uopc.errors import InvalidIR
from uopc.program import key, record

if TYPE_CHECKING:
    from uopc.driver import Request
    from uopc.ir.core.fingerprint import Fingerprint
    from uopc.program.artifact import Compiled

COUNTERS = (
    "scheduled", "compiled", "memory_hits", "memory_misses", "disk_hits", "disk_misses",
    "disk_rejected", "disk_stored", "disk_failed",
)  # fmt: skip

_counted: Counter[str] = Counter()
_lock = threading.Lock()
_problems: dict[str, None] = {}
_MOST_PROBLEMS = 20


def count(**numbers: int) -> None:
    """Add to counters."""
    with _lock:
        _counted.update(numbers)


def counters() -> dict[str, int]:
    """What happened in this process so far.

    scheduled: graphs lowered; compiled: kernels that LLVM compiled; *_hits and *_misses: programs
    looked for; disk_rejected: entries there that could not be used; disk_stored, disk_failed:
    programs written, or not.
    """
    with _lock:
        return {name: _counted[name] for name in COUNTERS}


def problems() -> list[str]:
    """Why entries were rejected or not written, the last ones."""
    return list(_problems)


def clear() -> None:
    """Forget the programs in memory (not those on disk), and set the counters to zero."""
    programs.clear()
    with _lock:
        _counted.clear()
        _problems.clear()


def store(options: config.Options) -> Store | None:
    """The cache on disk, or None where it is turned off."""
    folder = config.cache_folder(options)
    return None if folder is None else Store(folder, options.cache_mib << 20)


def obtain(
    request: Request, printed: Fingerprint, make: Callable[[], Compiled]
) -> tuple[Compiled, str]:
    """The program of a request, and where it was: `memory`, `disk`, or `` where it was made."""
    machine = detect.for_device(request.device, request.options.target_cpu)
    parts = key.request_parts(request, machine, printed)
    where = "memory"

    def find() -> Compiled:
        nonlocal where
        count(memory_misses=1)
        found, where = _from_disk(request, parts, make)
        return found

    most, rules = request.options.programs, request.rules
    found, _ = programs.obtain((parts, id(rules)), find, most, rules)
    count(memory_hits=where == "memory")
    return found, where


def _from_disk(
    request: Request, parts: tuple[tuple[str, str], ...], make: Callable[[], Compiled]
) -> tuple[Compiled, str]:
    """The user's rules are functions, of which no other process can know that they are equal."""
    place = store(request.options) if request.rules is None else None
    if place is None:
        return make(), ""
    whole = key.Key((*key.process_parts(), *parts))
    found = _read(place, whole)
    if found is not None:
        return found, "disk"
    made = make()
    _write(place, whole, record.encode(whole, made))
    return made, ""


def _read(place: Store, whole: key.Key) -> Compiled | None:
    """The entry, loaded; None where there is none that can be used."""
    try:
        content = place.read(whole.digest)
        if content is None:
            count(disk_misses=1)
            return None
        found = record.decode(content, whole)
        found.check()
    except (Unusable, InvalidIR) as problem:
        _note("disk_rejected", problem)
        return None
    count(disk_hits=1)
    return found


def load_runtime(options: config.Options) -> None:
    """Load the process's runtime from the disk, or store it there once it is compiled."""
    place = None if native.is_installed() else store(options)
    if place is None:
        return
    text = native.source()
    whole = key.Key(
        (*key.process_parts(), ("runtime", record.digest_of(text)), key.machine_part(detect.host()))
    )
    try:
        content = place.read(whole.digest)
        if content is not None:
            native.install(record.decode_code(content, whole))
    except (Unusable, InvalidIR) as problem:
        _note("disk_rejected", problem)
    if not native.is_installed():
        code = jit.compile_object(text)
        native.install(code)
        _write(place, whole, record.encode_code(whole, "runtime", text, code))


def _write(place: Store, whole: key.Key, content: bytes) -> None:
    try:
        place.write(whole.digest, content)
        count(disk_stored=1)
    except Unusable as problem:
        _note("disk_failed", problem)


def _note(counter: str, problem: Exception) -> None:
    count(**{counter: 1})
    with _lock:
        _problems[str(problem)] = None
        while len(_problems) > _MOST_PROBLEMS:
            del _problems[next(iter(_problems))]
