"""Many cases at once: processes that can crash or hang without ending the run."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any, Final

from tests.conformance.corpus import Place
from tests.conformance.runner import Outcome

LIMIT = 60.0  # seconds to build, compile and run a case
CHECK_LIMIT: Final = 600.0  # and for the interpreter to say what was right
MEMORY_SHARE: Final = 0.8  # of the machine's, for all workers together
_CHECKING: Final = "checking"
_DONE: Final = "done"
_Pipe = connection.Connection


def run_one(place: Place, device: str | None, pipe: _Pipe | None = None) -> Outcome:
    """The outcome of a case; any exception is a failure with its text."""
    from tests.conformance import ir, runner

    out = _blank(place)
    if place.problem:
        return out.fail(f"cannot be read: {place.problem}")
    try:
        if place.kind == "graph":
            run = runner.run
            if device is not None and device.startswith("cuda:sm_"):
                from tests.ptx import corpus as on_machine

                run = on_machine.run
            run(place, out, device, lambda o: pipe.send((_CHECKING, o)) if pipe else None)
        else:
            ir.run(place, out)
    except Exception as error:  # what a case raises is its result
        out.fail(f"{type(error).__name__}: {error} [{_where(error)}]")
    return out


def _blank(place: Place) -> Outcome:
    return Outcome(place.id, place.test, place.group, nodes=place.nodes)


def _where(error: BaseException) -> str:
    """The innermost place of uopc in the traceback: file:function."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "uopc" in Path(f.filename).parts] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].name}"


def _serve(pipe: _Pipe, device: str | None, memory: int) -> None:
    if device is None or not device.startswith("cuda"):  # CUDA's driver reserves addresses
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    while True:
        place = pipe.recv()
        pipe.send((_DONE, run_one(place, device, pipe)))


@dataclass
class _Worker:
    process: Any
    pipe: _Pipe
    place: Place | None = None
    deadline: float = 0.0
    outcome: Outcome | None = None  # as far as it is known
    phase: str = ""

    def give(self, place: Place) -> None:
        self.place, self.deadline = place, time.monotonic() + LIMIT
        self.outcome, self.phase = _blank(place), "to compile and run"
        self.pipe.send(place)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _start(device: str | None, memory: int) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, device, memory), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def run_all(places: Sequence[Place], jobs: int, device: str | None) -> Iterator[Outcome]:
    """Outcomes as they come, one for every place."""
    waiting = list(reversed(places))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    memory = int(MEMORY_SHARE * pages / jobs)
    workers = [_start(device, memory) for _ in range(min(jobs, len(places)))]
    try:
        while waiting or any(w.place is not None for w in workers):
            for w in workers:
                if w.place is None and waiting:
                    w.give(waiting.pop())
            busy = [w for w in workers if w.place is not None]
            pause = max(0.0, min(w.deadline for w in busy) - time.monotonic())
            ready = connection.wait([w.pipe for w in busy], pause)
            for w in busy:
                outcome = _progress(w, w.pipe in ready)
                if outcome is None:
                    continue
                yield outcome
                if w.place is not None:  # it crashed or hung
                    workers[workers.index(w)] = _start(device, memory)
    finally:
        for w in workers:
            w.stop()


def _progress(w: _Worker, ready: bool) -> Outcome | None:
    """The result of a worker's case; None while it runs."""
    assert w.outcome is not None
    if ready:
        try:
            kind, w.outcome = w.pipe.recv()
        except EOFError:
            w.process.join()
            code = w.process.exitcode
            w.stop()
            return w.outcome.fail(f"crashed while it had {w.phase}: exit code {code}")
        if kind == _CHECKING:
            w.deadline, w.phase = time.monotonic() + CHECK_LIMIT, "to be checked"
            return None
        w.place = None
        return w.outcome
    if time.monotonic() < w.deadline:
        return None
    w.stop()
    limit = LIMIT if w.phase != "to be checked" else CHECK_LIMIT
    return w.outcome.fail(f"too slow: over {limit:.0f} s {w.phase}")
