"""What was measured of this machine, from the database, given to its `Target`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uopc import config
from uopc.cache import statistics
from uopc.cache.disk import Unusable
from uopc.cache.tuned import Database, Measured
from uopc.errors import UserError
from uopc.program import key
from uopc.target import Figures, Target

if TYPE_CHECKING:  # a program from a cache measures nothing
    from uopc.program.search.measure import Measurement

LEAST, MOST = 1e-12, 1e12  # of a figure that some machine may have, in its unit
# What a file had in a state; machines that could not be measured, or kept.
_read: dict[Path, tuple[tuple[int, int, int], dict[str, Measured]]] = {}
_own: dict[str, Measured | None] = {}


def with_figures(machine: Target, backend: Any) -> Target:
    """A machine with what the database has of it. Option `measure`: it is measured if there is
    nothing."""
    options = config.current()
    folder = config.cache_folder(options)
    database = None if folder is None else Database(folder)
    name = _name(machine)
    found = _own.get(name) if database is None else _stored(database).get(name, _own.get(name))
    if found is None and options.measure and name not in _own:
        found = _own[name] = _measured_now(machine, backend, database)
    values = None if found is None else parsed(found.figures)
    return machine if values is None else replace(machine, **values)


def measured(machine: Target, found: Measurement) -> Measured:
    """A measurement of a machine, as the database keeps it."""
    content = {"caches": found.caches, **asdict(found.figures)}
    return Measured(_name(machine), json.dumps(content), time.time())


def parsed(text: str) -> dict[str, Any] | None:
    """The fields of a `Target` that a measurement sets; None where the text is damaged."""
    try:
        content = json.loads(text)
        l1, l2, last = content.pop("caches")
        figures = Figures(**content)
        numbers = [l1, l2, last, *asdict(figures).values()]
        good = all([type(v) in (int, float) and LEAST <= v <= MOST for v in numbers])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    caches = {"l1_bytes": l1, "l2_bytes": l2, "last_cache_bytes": last}
    return {"figures": figures, **caches} if good else None


def forget() -> None:
    """Drop what this process knows."""
    _read.clear()
    _own.clear()


def _name(machine: Target) -> str:
    return key.digest(key.machine_component(machine)[1])


def _stored(database: Database) -> dict[str, Measured]:
    state = database.state
    if state is None:
        return {}
    found = _read.get(database.file)
    if found is None or found[0] != state:
        rows: list[Measured] = []
        try:
            rows = database.machines()
        except Unusable as problem:
            statistics.note("disk_rejected", problem)
        found = _read[database.file] = state, {m.machine: m for m in rows}
    return found[1]


def _measured_now(machine: Target, backend: Any, database: Database | None) -> Measured | None:
    from uopc.program.search import measure

    try:
        made = measured(machine, measure.measure(machine, backend))
    except UserError as why:  # the machine is busy: what is usual holds
        statistics.note("disk_failed", why)
        return None
    if database is not None:
        try:
            database.put_machines([made])
        except Unusable as problem:
            statistics.note("disk_failed", problem)
    return made
