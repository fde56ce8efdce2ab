"""The measurement of this machine in the database, given to its `Target`.

`uopc/search/measure.py` measures a machine on request.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from uopc import config
from uopc.cache import statistics
from uopc.cache.disk import Unusable
from uopc.cache.tuned import Database, MachineFigures
from uopc.program.cached import key
from uopc.target import Figures, Target

LEAST, MOST = 1e-12, 1e12  # of a figure that some machine may have, in its unit
Values = dict[str, Any]  # the fields of a `Target` that a measurement sets
# The content of a file in a state, by machine; machines that this process measured, or could not.
_read: dict[Path, tuple[tuple[int, int, int], dict[str, Values]]] = {}
_own: dict[str, Values | None] = {}


def with_figures(machine: Target, backend: Any) -> Target:
    """Add the figures of the database, or of this process, to a machine. If there are none and the
    option `measure` is set, measure the machine."""
    options, name = config.current(), key.machine_digest(machine)
    stored = _stored(_database(options))
    if options.measure and name not in stored and name not in _own:
        measure = import_module("uopc.search.measure")  # above this package, and seldom needed
        measure.measure_once(machine, backend)
    values = stored.get(name, _own.get(name))
    return machine if values is None else replace(machine, **values)


def are_known(machine: Target) -> bool:
    """True if the machine was measured, or if this process could not measure it."""
    name = key.machine_digest(machine)
    return name in _own or name in _stored(_database(config.current()))


def keep(machine: Target, made: MachineFigures | None) -> None:
    """Keep the measurement of a machine for all processes. None marks a machine that cannot be
    measured; this process does not try again."""
    _own[key.machine_digest(machine)] = None if made is None else parsed(made.figures)
    database = _database(config.current())
    if made is None or database is None:
        return
    try:
        database.put_machines([made])
    except Unusable as problem:
        statistics.note("disk_failed", problem)


def measured(machine: Target, figures: Figures, caches: tuple[int, int, int]) -> MachineFigures:
    """A measurement of a machine, in the database's form."""
    content = {"caches": caches, **asdict(figures)}
    return MachineFigures(key.machine_digest(machine), json.dumps(content), time.time())


def parsed(text: str) -> Values | None:
    """The values of a measurement; None if the text is damaged, or if it lacks a figure: earlier
    versions measured fewer."""
    try:
        content = json.loads(text)
        l1, l2, last = content.pop("caches")
        figures = Figures(**content)
        numbers = [l1, l2, last, *asdict(figures).values()]
        good = content.keys() == asdict(figures).keys()
        good &= all([type(v) in (int, float) and LEAST <= v <= MOST for v in numbers])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    caches = {"l1_bytes": l1, "l2_bytes": l2, "last_cache_bytes": last}
    return {"figures": figures, **caches} if good else None


def forget() -> None:
    """Forget the measurements that this process knows."""
    _read.clear()
    _own.clear()


def _database(options: config.Options) -> Database | None:
    folder = config.cache_folder(options)
    return None if folder is None else Database(folder)


def _stored(database: Database | None) -> dict[str, Values]:
    """The figures in the database, by machine; without those that are not used."""
    state = None if database is None else database.state
    if database is None or state is None:
        return {}
    found = _read.get(database.file)
    if found is None or found[0] != state:
        rows: list[MachineFigures] = []
        try:
            rows = database.machines()
        except Unusable as problem:
            statistics.note("disk_rejected", problem)
        values = {m.machine: v for m in rows if (v := parsed(m.figures)) is not None}
        found = _read[database.file] = state, values
    return found[1]
