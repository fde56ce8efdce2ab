"""The process that compiles and times candidates: a crash or a hang costs one candidate.

The process answers one message after another. A message is the name of a method of `Worker` with
arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from uopc import config
from uopc.backends.plan import AnyArray
from uopc.cost.cycles import cycles
from uopc.cost.machine import machine_of
from uopc.errors import Unsupported
from uopc.ir.core import storage
from uopc.ir.core.arena import arena
from uopc.ir.core.serialize import fingerprint
from uopc.ir.core.uop import UOp
from uopc.ir.nest.describe import outline_of
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis import thresholds
from uopc.passes.optimize.opts.substitution import Tiled
from uopc.passes.optimize.schedule import cpu, gpu
from uopc.program.artifact import Artifact
from uopc.program.backend import backend_of
from uopc.program.cached import record
from uopc.program.cached.kernel_cache import KernelCache
from uopc.program.make_artifact import make_artifact
from uopc.program.request import Request, make_context, prepare
from uopc.program.speed.random_inputs import random_arrays, sizes
from uopc.program.speed.work import measure
from uopc.program.tuned import kernel_opts
from uopc.program.tuned.kernel_opts import Opts
from uopc.search.beam import Candidate, Match, Start
from uopc.target import Target
from uopc.tensor.creation import param

_LEAST_COPY = 4096  # bytes
_MOST_CODE = 4 * thresholds.MOST_COPIES  # nodes of a kernel with its copies
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


class Worker:
    """Handles one kernel at a time, as its own request, with arrays and values of variables."""

    def __init__(self) -> None:
        self._ready: dict[Opts | None, _TimedKernel] = {}
        self._copies: dict[tuple[int, int], float] = {}
        self._arrays: list[AnyArray] = []
        self._fresh: dict[int, AnyArray] = {}  # what arrays that a kernel updates begin with

    def open(self, request: Request, given: Mapping[str, int]) -> Start:
        """Take a kernel; return the schedule's own list and its speed."""
        self._request, self._backend = request, backend_of(request.device)
        self._machine: Target = self._backend.target(request.device, request.options.target_cpu)
        self._ready.clear()
        with arena():
            context = make_context(self._request, self._machine)
            self._base = Tiled(kernel_opts.before_opts(request.graph, context))
        first = self._compile(None)
        plan = first.runner.plan
        self._values = sizes(plan, given)
        self._arrays = random_arrays(plan, self._values)
        both = {*storage.read_slots(first.linear)} & {*storage.written_slots(first.linear)}
        self._fresh = {slot: self._arrays[slot].copy() for slot in both}
        seconds = min([self._seconds(first) for _ in range(3)])
        nbytes = measure(request.graph, []).nbytes.evaluate(self._values)
        of_copy = nbytes / max(seconds, 1e-12) / self._copy_speed(nbytes)
        opts = first.linear.arg.opts or ()
        self._ready[None] = self._ready[opts] = first
        return Start(opts, seconds, of_copy)

    def varied(self) -> list[Opts]:
        """The lists that the schedule gives if one of its thresholds is halved or doubled."""
        with arena():
            context = make_context(self._request, self._machine)
            kernel = self._base.kernel
            schedule = gpu if self._machine.gpu is not None else cpu
            found: dict[Opts, None] = {}
            for name, value in thresholds.VALUES.items():
                for other in (value * 2, value / 2):
                    with thresholds.varied(name, other):
                        found[schedule.choose_opts(kernel, context)[0]] = None
        return list(found)

    def compile(self, opts: Opts) -> Candidate:
        """Code for a list of Opts."""
        if opts not in self._ready:
            self._ready[opts] = self._compile(opts)
        made = self._ready[opts]
        (kernel,) = made.artifact.kernels
        code = record.digest(kernel.source.replace(kernel.symbol, ""))
        return Candidate(opts, code, self._cycles(opts))

    def match(self, opts: Opts, samples: int) -> Match:
        """Time a list and the schedule's list in turns, in seconds."""
        first, other = self._ready[None], self._ready[opts]
        own: list[float] = []
        schedule: list[float] = []
        for _ in range(samples):
            schedule.append(self._seconds(first))
            own.append(self._seconds(other))
            if own[-1] > _TOO_SLOW * schedule[-1]:
                break
        return Match(tuple(own), tuple(schedule))

    def agrees(self, opts: Opts) -> bool:
        """True if a list and the schedule's list compute the same, up to rounding."""
        results = []
        for made in (self._ready[None], self._ready[opts]):
            arrays = [a.copy() for a in self._arrays]
            for slot, array in self._fresh.items():
                arrays[slot][...] = array
            made.runner.call(tuple(arrays), dict(self._values))
            written = storage.written_slots(made.linear)
            results.append([arrays[slot] for slot in written])
        return all(map(_same, *results))

    def _seconds(self, made: _TimedKernel) -> float:
        for slot, array in self._fresh.items():
            self._arrays[slot][...] = array
        return float(min(made.runner.time(tuple(self._arrays), dict(self._values), 2)[0]))

    def _cycles(self, opts: Opts) -> float:
        """The cost of the kernel after a list of Opts; infinite if the list is refused."""
        with arena():
            made = kernel_opts.replayed(self._base, opts)
            if made is None:
                return math.inf
            return cycles(outline_of(made.kernel), machine_of(self._machine))

    def _compile(self, opts: Opts | None) -> _TimedKernel:
        graph = self._request.graph
        if opts is not None:
            with arena():
                kernel = kernel_opts.replayed(self._base, opts)
                if kernel is None or nest_of(kernel.kernel).expanded_size() > _MOST_CODE:
                    raise Unsupported("an Opt is refused" if kernel is None else "long code")
            graph = kernel_opts.with_opts(graph, opts)
        return self._prepared(replace(self._request, graph=graph))

    def _prepared(self, request: Request) -> _TimedKernel:
        return prepared(request, self._machine, self._backend)

    def _copy_speed(self, nbytes: int) -> float:
        """Bytes per second of a copy that reads and writes about as many bytes."""
        size = max(_LEAST_COPY, 1 << max(0, nbytes - 1).bit_length())
        threads = self._request.threads
        if (size, threads) not in self._copies:
            x = param("x", (size // 8,))
            options, device = self._request.options, self._request.device
            request = prepare(x * 1.5, None, True, threads, "copy", options, device=device)
            ones = (np.ones(size // 8, np.float32),)
            times = self._prepared(request).runner.time(ones, {}, 5)[0]
            self._copies[size, threads] = size / max(min(times), 1e-12)
        return self._copies[size, threads]


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
