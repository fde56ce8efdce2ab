"""A Bench whose candidates are compiled and timed in other processes.

The processes compile at the same time, but measure one at a time. Each process times its candidates
in turns with the schedule's list. A process that crashes or answers too late is ended, and a new
process takes its place.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from uopc.backends import detect
from uopc.errors import Unsupported
from uopc.program.request import Request
from uopc.program.tuned.kernel_opts import Opts
from uopc.search.beam import Match, Start
from uopc.search.worker import Failed

MOST_PROCESSES = 4
TO_START, TO_COMPILE, TO_MEASURE = 120.0, 20.0, 10.0  # seconds until a process is ended
SLOWEST = 2000.0  # times the seconds of the schedule's list that a match may take, besides
_ROOT = Path(__file__).resolve().parents[2]
_SERVE = "import sys; sys.path.insert(0, {!r}); from uopc.search import worker; worker.serve({})"


class _WorkerProcess:
    """A worker, and the messages to it. `kernel`: the request of the kernel that the worker has."""

    kernel: Request | None = None

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            code = _SERVE.format(str(_ROOT), fd)
            self._child = subprocess.Popen(
                [sys.executable, "-c", code], pass_fds=(fd,), stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent, which ends it
            )  # fmt: skip
        self._connection = Connection(ours.detach())

    def send(self, *message: Any) -> None:
        """Send a message. A process that is gone gives no answer."""
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def answer(self, seconds: float) -> Any:
        """The answer to the last message; Failed if none comes in time."""
        try:
            if self._connection.poll(seconds):
                return self._connection.recv()
            return Failed(f"no answer in {seconds:.0f} s")
        except (EOFError, OSError):
            return Failed("the process crashed")

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def end(self) -> None:
        """Kill the process, and wait for its end."""
        self._child.kill()
        self._child.wait()
        self._connection.close()


class Workers:
    """Processes for the kernels of a search, one kernel after another. Close them at the end."""

    def __init__(self, count: int | None = None) -> None:
        """`count`: as many as there are cores."""
        self._count = min(count or detect.cores(), MOST_PROCESSES)
        self.processes: list[_WorkerProcess] = []
        self.problems: list[str] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        while self.processes:
            self.processes.pop().end()

    def bench(self, request: Request, values: Mapping[str, int]) -> KernelBench:
        """A bench for one kernel."""
        while len(self.processes) < self._count:
            self.processes.append(_WorkerProcess())
        return KernelBench(self, request, values)

    def answer(self, number: int, seconds: float, what: str) -> Any:
        """The answer of a process to its message; without one, Failed, and replace the process."""
        process = self.processes[number]
        answer = process.answer(seconds)
        if isinstance(answer, Failed):
            self.problems.append(f"{what}: {answer.why}")
            if not process.alive or answer.why.startswith("no answer"):
                process.end()
                self.processes[number] = _WorkerProcess()
        return answer


class KernelBench:
    """The Bench of one kernel, which is a request of its own."""

    def __init__(self, workers: Workers, request: Request, values: Mapping[str, int]) -> None:
        self._workers, self._request, self._values = workers, request, values
        self._where: dict[Opts, int] = {}  # the process that compiles and times a list
        self._slowest = TO_MEASURE

    def start(self) -> Start:
        """The schedule's list, as the first process measures it. Unsupported if that fails."""
        found = self._opened(0)
        if isinstance(found, Failed):
            raise Unsupported(found.why)
        self._where[found.opts] = 0
        self._slowest += SLOWEST * found.seconds
        return cast(Start, found)

    def _ask(self, number: int, seconds: float, *message: Any) -> Any:
        self._workers.processes[number].send(*message)
        return self._workers.answer(number, seconds, message[0])

    def _opened(self, number: int) -> Any:
        """Give a process the kernel, unless the process has it."""
        process = self._workers.processes[number]
        if process.kernel is self._request:
            return None
        found = self._ask(number, TO_START, "open", self._request, self._values)
        process.kernel = None if isinstance(found, Failed) else self._request
        return found

    def compiled(self, lists: Sequence[Opts]) -> list[str | None]:
        """See Bench: each process compiles its share, one list at a time."""
        found: list[str | None] = []
        left = list(lists)
        while left:
            numbers = range(len(self._workers.processes))
            ready = [n for n in numbers if not isinstance(self._opened(n), Failed)]
            if not ready:
                break
            asked = list(zip(ready, left))
            del left[: len(asked)]
            for number, opts in asked:
                self._where[opts] = number
                self._workers.processes[number].send("compile", opts)
            for number, _ in asked:
                made = self._workers.answer(number, TO_COMPILE, "compile")
                found.append(None if isinstance(made, Failed) else made)
        return found + [None] * len(left)

    def match(self, opts: Opts, samples: int) -> Match | None:
        """See Bench."""
        found = self._asked(opts, "match", samples)
        return found if isinstance(found, Match) else None

    def agrees(self, opts: Opts) -> bool:
        """See Bench."""
        return self._asked(opts, "agrees") is True

    def _asked(self, opts: Opts, name: str, *more: Any) -> Any:
        """Ask the process of a list. A new process in its place compiles the list again."""
        number = self._where[opts]
        failed = self._opened(number)
        if isinstance(failed, Failed):
            return failed
        return self._ask(number, self._slowest, name, opts, *more)
