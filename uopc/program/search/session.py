"""The session of a search: of `compile(beam=N)` and `uopc tune`. All others take what the
database has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from uopc import config
from uopc.cache import tuned
from uopc.errors import Unsupported
from uopc.program import key, record
from uopc.program.request import Request
from uopc.program.search.asked import Session, running
from uopc.program.search.schedules import Schedules
from uopc.target import Target

if TYPE_CHECKING:  # a program from a cache needs no pass
    from uopc.program.request import Searched


def names(machine: Target) -> tuple[str, str]:
    """The digests that rows belong to: of a machine, and of this version with its LLVM."""
    return key.machine_digest(machine), record.digest(repr(key.process_components()))


def store(request: Request, machine: Target) -> tuned.Store:
    """The rows for a machine and this version; without a cache on disk those of this process."""
    folder = config.cache_folder(request.options)
    if folder is None:
        return tuned.Store(key.machine_digest(machine), "")
    return tuned.Store(*names(machine), tuned.Database(folder))


def check_device(request: Request) -> None:
    """Unsupported where nothing can be measured: on a GPU that the device only describes."""
    if request.device.startswith("cuda:sm_"):
        raise Unsupported(
            f"beam (UOPC_BEAM): a search measures, and {request.device} has PTX alone"
        )


def current_schedules(request: Request, machine: Target) -> Schedules:
    """The schedules that the database has for a request."""
    return Schedules(request, machine, store(request, machine))


@contextlib.contextmanager
def schedules(request: Request, machine: Target) -> Iterator[Schedules]:
    """The schedules of a compile, which searches if it is asked to."""
    made = current_schedules(request, machine)
    session, width = running.get(), request.options.beam
    if not made.used or (session is None and not width):
        yield made
        return
    check_device(request)
    from uopc.program.search import searcher

    with searcher.processes() as workers:
        if session is None:
            session = Session(workers.bench, width)
        made.find = searcher.Searcher(request, made.store, session)
        yield made


def holds(request: Request, machine: Target, chosen: Sequence[tuple[str, str]]) -> bool:
    """True if a program whose kernels had these Opts would get the same ones now."""
    made = current_schedules(request, machine)
    searches = running.get() is not None or request.options.beam > 0
    return made.agrees(dict(chosen), searches)


def again(request: Request, machine: Target, chosen: Sequence[tuple[str, str]]) -> Searched | None:
    """The function that gives kernels of a program the Opts that they had; None if none was
    found."""
    known = {own: text for own, text in chosen if text not in ("", "-")}
    if not known:
        return None
    return Schedules(request, machine, store(request, machine), known=known).apply
