"""The process that compiles and times candidates: a crash or a hang costs one candidate.

The process answers one message after another. A message is the name of a method of `Worker` with
arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from uopc import config
from uopc.backends.plan import AnyArray
from uopc.ir.core import storage
from uopc.ir.core.arena import arena
from uopc.ir.core.serialize import fingerprint
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.program.artifact import Artifact
from uopc.program.backend import backend_of
from uopc.program.cached import record
from uopc.program.cached.kernel_cache import KernelCache
from uopc.program.make_artifact import make_artifact
from uopc.program.request import Request
from uopc.program.speed.random_inputs import random_arrays, sizes
from uopc.program.tuned import kernel_opts
from uopc.program.tuned.kernel_opts import Opts
from uopc.search.beam import Match, Start
from uopc.search.indices import limits
from uopc.target import Target

_TOO_SLOW = 3.0  # times the seconds of the schedule's list: one turn is enough
# A run of the worst candidates of a kernel takes thousands of times as long as the schedule's list.
# The process is ended after so many times the seconds of that list, and a constant: see `workers`.


@dataclass(frozen=True)
class Failed:
    """The reason why a message has no result."""

    why: str


@dataclass
class _TimedKernel:
    """A kernel that can be timed."""

    artifact: Artifact
    runner: Any
    linear: UOp

    @property
    def code(self) -> str:
        """A digest that is equal for equal code."""
        (kernel,) = self.artifact.kernels
        return record.digest(kernel.source.replace(kernel.symbol, ""))


class Worker:
    """Handles one kernel at a time, as its own request, with arrays and values of variables."""

    _first: _TimedKernel  # of the schedule's list
    _ready: dict[Opts, _TimedKernel]
    _arrays: list[AnyArray]
    _fresh: dict[int, AnyArray]  # what arrays that a kernel updates begin with

    def open(self, request: Request, given: Mapping[str, int]) -> Start:
        """Take a kernel; return the schedule's own list and its speed."""
        self._request, self._backend = request, backend_of(request.device)
        self._machine: Target = self._backend.target(request.device, request.options.target_cpu)
        first = prepared(request, self._machine, self._backend)
        plan = first.runner.plan
        self._values = sizes(plan, given)
        self._arrays = random_arrays(plan, self._values, limits(request.graph))
        both = {*storage.read_slots(first.linear)} & {*storage.written_slots(first.linear)}
        self._fresh = {slot: self._arrays[slot].copy() for slot in both}
        opts = first.linear.arg.opts or ()
        self._first, self._ready = first, {opts: first}
        return Start(opts, min([self._seconds(first) for _ in range(3)]), first.code)

    def compile(self, opts: Opts) -> str:
        """Make code for a list of Opts; its digest."""
        return self._kernel(opts).code

    def match(self, opts: Opts, samples: int) -> Match:
        """Time a list and the schedule's list in turns, in seconds."""
        other = self._kernel(opts)
        own: list[float] = []
        schedule: list[float] = []
        for _ in range(samples):
            schedule.append(self._seconds(self._first))
            own.append(self._seconds(other))
            if own[-1] > _TOO_SLOW * schedule[-1]:
                break
        return Match(tuple(own), tuple(schedule))

    def agrees(self, opts: Opts) -> bool:
        """True if a list and the schedule's list compute the same, up to rounding."""
        results = []
        for made in (self._first, self._kernel(opts)):
            arrays = [a.copy() for a in self._arrays]
            for slot, array in self._fresh.items():
                arrays[slot][...] = array
            made.runner.call(tuple(arrays), dict(self._values))
            results.append([arrays[slot] for slot in storage.written_slots(made.linear)])
        return all(map(_same, *results))

    def _seconds(self, made: _TimedKernel) -> float:
        for slot, array in self._fresh.items():
            self._arrays[slot][...] = array
        return float(min(made.runner.time(tuple(self._arrays), dict(self._values), 2)[0]))

    def _kernel(self, opts: Opts) -> _TimedKernel:
        if opts not in self._ready:
            graph = kernel_opts.with_opts(self._request.graph, opts)
            request = replace(self._request, graph=graph)
            self._ready[opts] = prepared(request, self._machine, self._backend)
        return self._ready[opts]


def prepared(request: Request, machine: Target, backend: Any) -> _TimedKernel:
    """Compile a request for one kernel, without a cache."""
    with arena():
        known = KernelCache(request, machine, None, backend.artifact, fresh=True)
        printed = fingerprint(request.graph)
        made, lowered = make_artifact(request, known, printed, backend.compiler)
        runner = backend.runner(request, made, made.plan_for(request, printed.arrays))
        (linear,) = lowered.kernels
        return _TimedKernel(made, runner, linear)


def _same(a: AnyArray, b: AnyArray) -> bool:
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    eps = float(np.finfo(a.dtype).eps) if a.dtype.kind in "fc" else 0.25  # ml_dtypes
    x, y, tolerance = np.asarray(a, np.float64), np.asarray(b, np.float64), math.sqrt(eps)
    return bool(np.allclose(x, y, tolerance, tolerance, equal_nan=True))


def serve(descriptor: int) -> None:
    """Answer messages until the other side closes the connection."""
    connection = Connection(descriptor)
    with connection, config.options(cache_dir="", programs=0, beam=0, debug=0, viz="", spec=0):
        worker = Worker()
        while True:
            try:
                name, *arguments = connection.recv()
            except (EOFError, OSError):  # the other side is gone
                return
            try:
                answer = getattr(worker, name)(*arguments)
            except Exception as error:  # one candidate is lost: the search goes on and says why
                answer = Failed(f"{type(error).__name__}: {error}")
            connection.send(answer)
