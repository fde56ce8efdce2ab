"""Many cases at once: processes that can crash or hang without ending the run."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any, Final

from tests.conformance.corpus import Place
from tests.conformance.runner import FAILED, Outcome

LIMIT: Final = 60.0  # seconds to build, compile and run a case
CHECK_LIMIT: Final = 600.0  # and for the interpreter to say what was right
_CHECKING: Final = "checking"
_Pipe = connection.Connection


def run_one(place: Place, device: str | None, pipe: _Pipe | None = None) -> Outcome:
    """The outcome of a case; any exception is a failure with its text."""
    from tests.conformance import ir, runner

    try:
        if place.kind == "graph":
            return runner.run(place, device, lambda: pipe.send(_CHECKING) if pipe else None)
        return ir.run(place)
    except Exception as error:  # noqa: BLE001  what a case raises is its result
        return _failed(place, f"{type(error).__name__}: {error} [{_where(error)}]")


def _failed(place: Place, reason: str) -> Outcome:
    reason = " ".join(reason.split())[:400]
    return Outcome(place.id, place.test, place.group, FAILED, reason, place.nodes)


def _where(error: BaseException) -> str:
    """The innermost place of uopc in the traceback: file:function."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "uopc" in Path(f.filename).parts] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].name}"


def _serve(pipe: _Pipe, device: str | None) -> None:
    while True:
        place = pipe.recv()
        if place is None:
            return
        pipe.send(run_one(place, device, pipe))


@dataclass
class _Worker:
    process: Any
    pipe: _Pipe
    place: Place | None = None
    deadline: float = 0.0

    def give(self, place: Place) -> None:
        self.place, self.deadline = place, time.monotonic() + LIMIT
        self.pipe.send(place)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _start(device: str | None) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, device), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def run_all(places: Sequence[Place], jobs: int, device: str | None) -> Iterator[Outcome]:
    """Outcomes as they come, one for every place."""
    waiting = list(reversed(places))
    workers = [_start(device) for _ in range(min(jobs, len(places)))]
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
                    workers[workers.index(w)] = _start(device)
    finally:
        for w in workers:
            w.stop()


def _progress(w: _Worker, ready: bool) -> Outcome | None:
    """What a worker's case came to; None when it is still at it."""
    assert w.place is not None
    if ready:
        try:
            message = w.pipe.recv()
        except EOFError:
            w.process.join()
            code = w.process.exitcode
            w.stop()
            return _failed(w.place, f"crashed: the process ended with exit code {code}")
        if message == _CHECKING:
            w.deadline = time.monotonic() + CHECK_LIMIT
            return None
        w.place = None
        outcome: Outcome = message
        return outcome
    if time.monotonic() < w.deadline:
        return None
    w.stop()
    return _failed(w.place, f"too slow: over {LIMIT:.0f} s to compile and run")
