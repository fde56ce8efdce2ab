"""The measurement of this machine in the database, given to its `Target`."""

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
Values = dict[str, Any]  # the fields of a `Target` that a measurement sets
# The content of a file in a state, by machine; machines that this process measured, or could not.
_read: dict[Path, tuple[tuple[int, int, int], dict[str, Values | None]]] = {}
_own: dict[str, Values | None] = {}


def with_figures(machine: Target, backend: Any) -> Target:
    """A machine with what the database has of it. Option `measure`: it is measured if there is
    nothing."""
    options = config.current()
    folder = config.cache_folder(options)
    database = None if folder is None else Database(folder)
    stored = {} if database is None else _stored(database)
    name = key.machine_digest(machine)
    if options.measure and name not in stored and name not in _own:
        _own[name] = _measured_now(machine, backend, database)
    values = stored.get(name, _own.get(name))
    return machine if values is None else replace(machine, **values)


def measured(machine: Target, found: Measurement) -> Measured:
    """A measurement of a machine, as the database keeps it."""
    content = {"caches": found.caches, **asdict(found.figures)}
    return Measured(key.machine_digest(machine), json.dumps(content), time.time())


def parsed(text: str) -> Values | None:
    """The values of a measurement; None where the text is damaged."""
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


def _stored(database: Database) -> dict[str, Values | None]:
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
        found = _read[database.file] = state, {m.machine: parsed(m.figures) for m in rows}
    return found[1]


def _measured_now(machine: Target, backend: Any, database: Database | None) -> Values | None:
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
    return parsed(made.figures)
