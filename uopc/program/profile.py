"""The time of each launch of a program, compared with the least time that this machine could take.

The least time of a launch is the longest of three, all measured in the same run, on the same device
and with the same number of threads: its bytes at the speed of a copy of as many bytes (so small
arrays are compared with a copy in the same cache), its steps at the speed of multiply-adds in a
row, and its divisions and square roots at the speed of divisions in a row. A function such as exp
has the steps and divisions that the op table says. The *share of the roofline* of a launch is that
least time over its own. A launch in a loop counts as often as it runs in a call.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from uopc.backends.cpu.arguments import bind
from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.errors import Unsupported
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.program.launches import Kernel, Launch, Timing
from uopc.program.program import Program, make_program
from uopc.program.request import prepare
from uopc.tensor.creation import param

# Multiply-adds in a row, the faster of two: long rows hide loads and stores, short rows overlap
# with their neighbours also in a core with short vectors.
DEPTHS = (6, 16)
ELEMENTS = 32768  # of each thread, for the multiply-adds
LEAST_COPY = 4096  # bytes
SAMPLES = 20
LONG_CALL, MOST_SECONDS = 2e-3, 2.0  # of a call; of all calls that are timed
FEWEST_SAMPLES = 3


class Roofline:
    """The speed of copies and of arithmetic for a program's device and threads, measured once."""

    def __init__(self, program: Program) -> None:
        self._like = program._source.request
        self.bandwidths: dict[int, float] = {}  # bytes/s by bytes of the copy
        self.peaks: dict[DType, float] = {}  # operations/s
        self.quotients: dict[DType, float] = {}  # divisions/s

    def _best(self, graph: UOp, shape: int, dtype: DType) -> float:
        """The best seconds of a graph over an array of ones."""
        like = self._like
        request = prepare(
            graph, None, True, like.threads, "roofline", like.options, device=like.device
        )
        program = make_program(request)
        samples = program._runner.time((np.ones(shape, dtype.numpy),), {}, SAMPLES)
        return sum([min(times) for times in samples])

    def bandwidth(self, nbytes: int) -> float:
        """Bytes per second of a copy that touches about as many bytes, at least LEAST_COPY."""
        size = max(LEAST_COPY, 1 << max(0, nbytes - 1).bit_length())
        if size not in self.bandwidths:
            count = size // 8  # of float32: read once, written once
            x = param("x", (count,), dtypes.float32)
            self.bandwidths[size] = size / max(self._best(x * 1.5, count, x.dtype), 1e-9)
        return self.bandwidths[size]

    def peak(self, dtype: DType) -> float:
        """Operations per second of multiply-adds (of integers: mul and xor) of a dtype."""
        dtype = _computed_in(dtype)
        if dtype not in self.peaks:
            self.peaks[dtype] = max([self._multiply_adds(dtype, depth) for depth in DEPTHS])
        return self.peaks[dtype]

    def division(self, dtype: DType) -> float:
        """Divisions per second of floats of a dtype, one after the other on each element."""
        dtype = _computed_in(dtype)
        if dtype not in self.quotients:
            count, depth = ELEMENTS * self._like.threads, min(DEPTHS)
            y = param("x", (count,), dtype)
            for _ in range(depth):
                y = 1.5 / y
            self.quotients[dtype] = depth * count / max(self._best(y, count, dtype), 1e-9)
        return self.quotients[dtype]

    def _multiply_adds(self, dtype: DType, depth: int) -> float:
        """Operations per second of `depth` multiply-adds in a row on each element."""
        count = ELEMENTS * self._like.threads
        y = param("x", (count,), dtype)
        for _ in range(depth):
            y = y * 0.999 + 0.001 if dtype.is_float else (y * 3) ^ 5
        return 2 * depth * count / max(self._best(y, count, dtype), 1e-9)

    def least(self, launch: Launch, values: Mapping[str, int]) -> tuple[float, str]:
        """The least seconds of a launch, and its limit: memory, arithmetic or division."""
        work = launch.work
        nbytes = work.nbytes.evaluate(values)
        limits = [(nbytes / self.bandwidth(nbytes), "memory")]
        if work.dtype is not None:
            steps, divisions = work.steps.evaluate(values), work.divisions.evaluate(values)
            if steps:
                limits.append((steps / self.peak(work.dtype), "arithmetic"))
            if divisions:
                limits.append((divisions / self.division(work.dtype), "division"))
        return max(limits)


def _computed_in(dtype: DType) -> DType:
    """The dtype in which arithmetic on a dtype is computed."""
    if dtype.is_float and dtype.itemsize == 1:
        return dtypes.float32
    return dtypes.uint8 if dtype is dtypes.bool_ else dtype


@dataclass(frozen=True)
class Measured:
    """One launch: its time, its work for these arguments, its least time and what bounds that.

    All figures are for one round; `rounds`: the rounds per call, 1 outside of loops. `least` is in
    seconds, as the roofline gives it; `bound` says whether memory, arithmetic or division decides.

    Examples:
        >>> from uopc.program.profile import profile
        >>> program = uopc.compile(uopc.param("x", (64,)) * 2)
        >>> measured = profile(program, (np.ones(64, "f4"),), samples=2).launches[0]
        >>> measured.operations, measured.nbytes
        (64, 512)
    """

    launch: Launch
    timing: Timing
    operations: int
    nbytes: int
    least: float
    bound: str
    rounds: int = 1

    @property
    def seconds(self) -> float:
        """The launch's share of a call's seconds: its best sample times its rounds.

        Examples:
            >>> from uopc.program.profile import profile
            >>> program = uopc.compile(uopc.param("x", (64,)) * 2)
            >>> measured = profile(program, (np.ones(64, "f4"),), samples=2).launches[0]
            >>> measured.seconds == measured.timing.best
            True
        """
        return self.timing.best * self.rounds


@dataclass(frozen=True)
class Row:
    """A kernel, over all its launches; a launch in a loop counts as often as it runs in a call.

    Examples:
        >>> from uopc.program.profile import profile
        >>> program = uopc.compile(uopc.param("x", (64,)) * 2)
        >>> row = profile(program, (np.ones(64, "f4"),), samples=2).rows()[0]
        >>> row.launches, row.share, row.unit
        (1, 1.0, 'GFLOP/s')
    """

    kernel: Kernel
    launches: int
    seconds: float
    share: float  # of the time of all kernels
    operations: int
    nbytes: int
    roofline: float  # the share of the roofline: least seconds over seconds
    bound: str
    unit: str  # GFLOP/s, or Gop/s where no float is computed

    @property
    def speed(self) -> float:
        """Thousand millions of operations per second.

        Examples:
            >>> from uopc.program.profile import profile
            >>> program = uopc.compile(uopc.param("x", (64,)) * 2)
            >>> row = profile(program, (np.ones(64, "f4"),), samples=2).rows()[0]
            >>> round(row.speed * row.seconds * 1e9) in (row.operations, 0)
            True
        """
        return self.operations / self.seconds * 1e-9 if self.seconds else 0.0

    @property
    def bandwidth(self) -> float:
        """Bytes of storage that the kernel touches, in GB per second.

        Examples:
            >>> from uopc.program.profile import profile
            >>> program = uopc.compile(uopc.param("x", (64,)) * 2)
            >>> row = profile(program, (np.ones(64, "f4"),), samples=2).rows()[0]
            >>> round(row.bandwidth * row.seconds * 1e9) in (row.nbytes, 0)
            True
        """
        return self.nbytes / self.seconds * 1e-9 if self.seconds else 0.0


@dataclass(frozen=True)
class Profile:
    """The launches of a program, timed. `call`: the seconds of whole calls from Python.

    Examples:
        >>> from uopc.program.profile import profile
        >>> program = uopc.compile(uopc.param("x", (64,)) * 2)
        >>> found = profile(program, (np.ones(64, "f4"),), samples=2)
        >>> len(found.launches), found.call.best > 0
        (1, True)
    """

    launches: tuple[Measured, ...]
    call: Timing
    values: Mapping[str, int]
    roofline: Roofline = field(repr=False)
    # Of each launch, the hardware events of a run; or why there are none.
    events: tuple[Mapping[str, float], ...] | str = field(default="", repr=False)

    @property
    def seconds(self) -> float:
        """The seconds of all launches of a call, those in loops as often as they run.

        Examples:
            >>> from uopc.program.profile import profile
            >>> program = uopc.compile(uopc.param("x", (64,)) * 2)
            >>> found = profile(program, (np.ones(64, "f4"),), samples=2)
            >>> found.seconds == found.launches[0].seconds
            True
        """
        return sum([m.seconds for m in self.launches])

    def rows(self) -> list[Row]:
        """One row per kernel, in order of first use. The best sample of each launch counts, times
        its rounds.

        Examples:
            >>> from uopc.program.profile import profile
            >>> program = uopc.compile(uopc.param("x", (64,)) * 2)
            >>> found = profile(program, (np.ones(64, "f4"),), samples=2)
            >>> [row.kernel is kernel for row, kernel in zip(found.rows(), program.kernels)]
            [True]
        """
        by_kernel: dict[str, list[Measured]] = {}
        for m in self.launches:
            by_kernel.setdefault(m.launch.kernel.name, []).append(m)
        whole = self.seconds
        return [_row(measured, whole) for measured in by_kernel.values()]

    def events_of(self, row: Row) -> dict[str, float]:
        """The hardware events of all launches of a kernel in a call; empty if not available.

        Examples:
            >>> from uopc.program.profile import profile
            >>> program = uopc.compile(uopc.param("x", (64,)) * 2)
            >>> found = profile(program, (np.ones(64, "f4"),), samples=2)
            >>> all(n >= 0 for n in found.events_of(found.rows()[0]).values())
            True
        """
        total: Counter[str] = Counter()
        if not isinstance(self.events, str):
            for found, m in zip(self.events, self.launches, strict=True):
                if m.launch.kernel is row.kernel:
                    total.update({name: count * m.rounds for name, count in found.items()})
        return dict(total)


def _row(measured: list[Measured], whole: float) -> Row:
    first = measured[0].launch
    seconds = sum([m.seconds for m in measured])
    least = sum([m.least * m.rounds for m in measured])
    return Row(
        first.kernel, sum([m.rounds for m in measured]), seconds,
        seconds / whole if whole else 0.0,
        sum([m.operations * m.rounds for m in measured]),
        sum([m.nbytes * m.rounds for m in measured]),
        least / seconds if seconds else 0.0,
        max(measured, key=lambda m: m.least * m.rounds).bound,
        "GFLOP/s" if first.work.floats else "Gop/s",
    )  # fmt: skip


def profile(
    program: Program, arrays: tuple[Any, ...], named: Mapping[str, Any] | None = None,
    samples: int = SAMPLES, roofline: Roofline | None = None,
) -> Profile:  # fmt: skip
    """Time every launch of a program on some arguments, and whole calls.

    Each launch runs many times: arrays that the program updates in place change.

    `arrays` and `named` are the call's arguments; `samples` is the number of times per launch. The
    result has the launches with their work and their share of the roofline; `rows()` sums launches
    up by kernel. Unsupported for a program for several devices.

    Examples:
        >>> from uopc.program.profile import profile
        >>> program = uopc.compile(uopc.param("x", (3,)) * 2)
        >>> found = profile(program, (np.ones(3, "f4"),), samples=2)
        >>> len(found.launches), found.rows()[0].launches
        (1, 1)
    """
    if program._source.request.mesh is not None:
        raise Unsupported("profile: a program for several devices is not supported")
    named, plan = dict(named or {}), program._runner.plan
    values = dict(bind(plan, arrays, dict(named), BoundedMap()).values)
    if plan.lengths:  # a call finds them
        program._runner.call(arrays, dict(named), lambda _, found: values.update(found))
    roofline = roofline or Roofline(program)
    times = program._runner.time(arrays, dict(named), samples)
    launches = [
        Measured(
            launch, Timing(tuple(t)), *launch.work.counts(values), *roofline.least(launch, values),
            rounds,
        )
        for launch, t, rounds in zip(program.launches, times, plan.rounds(values), strict=True)
    ]  # fmt: skip
    return Profile(
        tuple(launches), _calls(lambda: program(*arrays, **named), samples), values, roofline,
        events(program, arrays, named),
    )  # fmt: skip


def events(
    program: Program, arrays: tuple[Any, ...], named: Mapping[str, Any] | None = None
) -> tuple[Mapping[str, float], ...] | str:
    """The hardware events of a run of each launch: cycles, instructions, cache_misses and
    branch_misses, as far as the machine has them; or a text that says why there are none.

    Examples:
        >>> from uopc.program.profile import events
        >>> program = uopc.compile(uopc.param("x", (64,)) * 2)
        >>> found = events(program, (np.ones(64, "f4"),))
        >>> isinstance(found, str) or len(found)
        True
    """
    from uopc.backends.cpu.hardware_counters import Unavailable

    try:
        return tuple(program._runner.count(arrays, dict(named or {})))
    except Unavailable as error:
        return str(error)


def _calls(call: Callable[[], Any], samples: int) -> Timing:
    """The seconds of calls from Python. Each long call is a sample, and there are fewer of them."""

    def sample(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - begin) / count

    sample(1)  # warms up
    once = sample(1)
    count = 10 if once < LONG_CALL else 1
    samples = max(FEWEST_SAMPLES, min(samples, int(MOST_SECONDS / (once * count))))
    return Timing(tuple([sample(count) for _ in range(samples)]))
