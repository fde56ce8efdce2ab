"""Measure this machine: the `Figures` of its cores, and the sizes of its caches.

All probes run in turns, round after round, and the best run of each counts: other work of the
machine only makes runs slower. A figure is rejected if no other run confirms its best run.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from uopc import config
from uopc.backends import detect
from uopc.cache import statistics
from uopc.cost.machine import LINE
from uopc.errors import UserError
from uopc.ir.core.args import Opt
from uopc.ir.records import dataclass
from uopc.program.request import prepare
from uopc.program.tuned import figures
from uopc.search.probes import Probe, Probes, zeros
from uopc.search.worker import prepared
from uopc.target import Figures, Target
from uopc.tensor.creation import param

SECONDS = 10.0  # of all rounds
SECONDS_OF_COMPILE = 1.0  # the same, where a compile waits
LEAST_ROUNDS = 3
LARGEST = 1 << 26  # bytes that are read
SMALLEST = 1 << 12
LEAST_READ = 1 << 21  # bytes of a run, so that its call takes no part of it
LONE_READS = 1 << 13  # iterations
CONFIRMED = 1.2  # times the best run that the second one may take
PAUSE = 0.003  # seconds after which threads sleep
SHORT, LONG = 4, 64  # iterations of an inner loop
LEAST_CYCLES = 0.1  # of a difference of two times
KEPT = 2.0  # a cache whose size is measured within this factor of the system's has the latter


@dataclass(frozen=True)
class Measurement:
    """A measurement: the figures, the bytes of the three caches, and for each probe the median run
    over the best run."""

    figures: Figures
    caches: tuple[int, int, int]
    spread: dict[str, float]

    @property
    def noisy(self) -> list[str]:
        """The probes whose median is far from the best run: a sign of a busy machine."""
        return [name for name, times in self.spread.items() if times > CONFIRMED]


def measure_once(machine: Target, backend: Any) -> None:
    """Measure this machine and store the result in the database, unless its figures are known."""
    if figures.are_known(machine):
        return
    made = None
    try:
        found = measure(machine, backend, SECONDS_OF_COMPILE)
        made = figures.measured(machine, found.figures, found.caches)
    except UserError as why:  # the machine is busy: what is usual holds
        statistics.note("disk_failed", why)
    figures.keep(machine, made)


def measure(machine: Target, backend: Any, seconds: float = SECONDS) -> Measurement:
    """Measure this machine. UserError if the machine is too busy."""
    runs = _runs(machine, backend)
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < LEAST_ROUNDS or time.perf_counter() < end:
        for name, run in runs.items():
            times[name].append(run())
        rounds += 1
    return conclude(machine, times)


def conclude(machine: Target, times: dict[str, list[float]]) -> Measurement:
    """The figures that follow from the seconds of each probe. UserError without a confirmed best
    run."""
    doubtful = [name for name, t in times.items() if _second(t) > CONFIRMED * min(t)]
    if lost := [name for name in doubtful if name in ("clock", "chain", "many")]:
        raise UserError(
            f"the machine is too busy to be measured: no two runs of {', '.join(lost)} agree;"
            " measure it when it is idle"
        )
    best = {name: max(min(t), 1e-12) for name, t in times.items()}
    cycle = best["clock"]
    rates = {int(n): cycle / s for n, s in best.items() if n.isdecimal()}
    caches = _caches(machine, rates)
    figures = Figures(
        **_core(machine, best, rates), **_lines(machine, best, rates, caches),
        shared_bytes=_rounded(cycle / best["shared"]),
        launch=_rounded(best["launch"] * 1e9),
        wake=_rounded(max(best["threads"] - best["launch"], 1e-9) * 1e9),
        parked=_rounded(max(best["parked"] - best["awake"], 1e-9) * 1e9),
    )  # fmt: skip
    spread = {name: _median(t) / max(min(t), 1e-12) for name, t in times.items()}
    return Measurement(figures, caches, spread)


def rows(found: Measurement) -> list[tuple[str, str]]:
    """The measurement as text: names and values."""
    l1, l2, last = [f"{n >> 10} KiB" for n in found.caches]
    figures = [(name, f"{value:g}") for name, value in asdict(found.figures).items()]
    return [("caches", f"{l1}, {l2}, {last}"), *figures]


# ---------------------------------------------------------------- what runs
def _runs(machine: Target, backend: Any) -> dict[str, Callable[[], float]]:
    """Functions by name that run a probe once, and give the seconds per operation or byte."""
    probes = Probes(machine)
    memory = zeros(LARGEST)
    counts = {
        "clock": 4000, "chain": 2000, "many": 4000, "divide": 1000, "divide64": 1000,
        "shuffle": 2000, "insert": 2000,
    }  # fmt: skip
    runs = {name: _of(probes.of_core(name, 3), count) for name, count in counts.items()}
    runs["short"] = _of(probes.of_core("nested", SHORT), 4000)
    runs["long"] = _of(probes.of_core("nested", LONG), 400)
    size = SMALLEST
    while size <= LARGEST:
        read = probes.of_memory("read", memory[:size])
        runs[str(size)] = _of(read, max(LEAST_READ, size) // read.per_iteration, read)
        size *= 2
    runs |= _lines_alone(machine, probes, memory)
    count = detect.cores()
    split = np.array_split(memory, 1 << (count - 1).bit_length())
    parts = [probes.of_memory("read", part) for part in split]
    runs["shared"] = lambda: _together(parts[:count])
    return runs | _launches(machine, backend, count)


def _lines_alone(machine: Target, probes: Probes, memory: Any) -> dict[str, Callable[[], float]]:
    """Lines that are read alone from each cache, and arrays that are written."""
    runs = {"alone l1": _of(probes.of_memory("alone", memory[:SMALLEST]), LONE_READS)}
    for name, size in _sizes(machine).items():
        alone, read, write = [
            probes.of_memory(kind, memory[:size]) for kind in ("alone", "read", "write")
        ]
        runs[f"alone {name}"] = _of(alone, LONE_READS, read)
        runs[f"write {name}"] = _of(write, max(LEAST_READ, size) // write.per_iteration, read)
    return runs


def _of(probe: Probe, count: int, before: Probe | None = None) -> Callable[[], float]:
    """A run of a probe, after a run of the probe `before` over its memory, which brings this
    memory into the caches as far as it fits."""
    if before is None:
        return lambda: probe.seconds(count)
    warm = before.memory.nbytes // before.per_iteration

    def run() -> float:
        before.seconds(warm)
        return probe.seconds(count)

    return run


def _together(parts: list[Probe]) -> float:
    """The seconds per byte if each thread reads its part of memory."""
    counts = [p.memory.nbytes // p.per_iteration for p in parts]
    threads = [threading.Thread(target=p.seconds, args=(n,)) for p, n in zip(parts, counts)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    nbytes: int = sum([p.memory.nbytes for p in parts])
    return (time.perf_counter() - begin) / nbytes


def _launches(machine: Target, backend: Any, count: int) -> dict[str, Callable[[], float]]:
    """Times of an almost empty kernel: alone, shared among threads, and after a pause."""
    size = 64 * count
    options = replace(config.current(), cache_dir="", programs=0, beam=0, debug=0, viz="")
    given = (np.ones(size, np.float32),)

    def runner(threads: int) -> Any:
        opts = [Opt("THREAD", 0, threads)] if threads > 1 else []
        graph = (param("x", (size,)) * 2.0).contiguous(opts)
        request = prepare(graph, None, True, threads, "launch", options)
        return prepared(request, machine, backend).runner

    alone, shared = runner(1), runner(count)

    def called(pause: float) -> float:
        shared.call(given, {})
        if pause:
            time.sleep(pause)
        begin = time.perf_counter()
        shared.call(given, {})
        return time.perf_counter() - begin

    return {
        "launch": lambda: float(min(alone.time(given, {}, 1)[0])),
        "threads": lambda: float(min(shared.time(given, {}, 1)[0])),
        "awake": lambda: called(0.0), "parked": lambda: called(PAUSE),
    }  # fmt: skip


# ---------------------------------------------------------------- what follows
def _core(machine: Target, best: dict[str, float], rates: dict[int, float]) -> dict[str, float]:
    """The figures of operations, loads from the nearest cache, and loops."""
    cycle, width = best["clock"], machine.vector_bits // 8
    inner = best["short"] - best["long"] * SHORT / LONG
    return {
        "clock": _rounded(1e-9 / cycle),
        "multiply_bytes": _halves(cycle / best["many"]) * width,
        "latency": float(max(1, round(best["chain"] / cycle))),
        "load_bytes": _halves(max(rates.values()) / width) * width,
        "divide_bytes": _rounded(cycle / best["divide"] * width),
        "divide64_bytes": _rounded(cycle / best["divide64"] * width),
        "shuffle_bytes": _halves(cycle / best["shuffle"]) * width,
        "insert": _rounded(best["insert"] / cycle),
        "enter": _rounded(max(LEAST_CYCLES, inner / (1 - SHORT / LONG) / cycle)),
    }


def _lines(
    machine: Target, best: dict[str, float], rates: dict[int, float], caches: tuple[int, int, int]
) -> dict[str, float]:
    """The figures of lines from each cache and from memory: in streams, alone, and written."""
    cycle, found = best["clock"], {}
    hit = best["alone l1"] / cycle
    inside, sizes = _inside(caches), _sizes(machine)
    for name, nearer in zip(("l2", "last", "memory"), caches):
        rate = _at(rates, inside[name])
        found[f"{name}_bytes"] = _rounded(rate)
        share = min(0.9, nearer / sizes[name])  # of the lines that the nearer cache has
        alone = best[f"alone {name}"] / cycle
        if share < 0.9:
            alone = max(hit, (alone - share * hit) / (1 - share))
        found[f"{name}_alone"] = _rounded(alone)
        written = LINE * best[f"write {name}"] / cycle
        found[f"{name}_written"] = _rounded(
            max(LEAST_CYCLES, written - LINE / _at(rates, sizes[name]))
        )
        hit = alone
    return found


def _inside(caches: tuple[int, int, int]) -> dict[str, float]:
    """By cache: the bytes of a read that comes from this cache."""
    l1, l2, last = caches
    return {
        "l2": math.sqrt(l1 * l2), "last": math.sqrt(l2 * min(last, LARGEST)), "memory": LARGEST
    }  # fmt: skip


def _sizes(machine: Target) -> dict[str, int]:
    """The same as powers of two, for the caches that the system reports: what the probes of lines
    alone and of writes touch."""
    said = machine.l1_bytes, machine.l2_bytes, machine.last_cache_bytes
    powers = {name: 1 << round(math.log2(size)) for name, size in _inside(said).items()}
    return {name: max(SMALLEST, min(size, LARGEST)) for name, size in powers.items()}


def _caches(machine: Target, rates: dict[int, float]) -> tuple[int, int, int]:
    """The bytes of each cache: the largest read whose speed is nearer to this cache's than to the
    next one's. Keep the size that the system reports if the measured size is close, or if the next
    cache is as fast."""
    l1, l2, last = machine.l1_bytes, machine.l2_bytes, machine.last_cache_bytes
    inside = [l1 / 2, math.sqrt(l1 * l2), 4 * l2, LARGEST]
    speeds = [_at(rates, size) for size in inside]
    found = []
    for said, near, far in zip((l1, l2, last), speeds, speeds[1:]):
        limit = math.sqrt(near * far)
        held = [size for size, rate in rates.items() if rate > limit]
        measured = max(held, default=said)
        known = said < LARGEST or measured < LARGEST // 2
        kept = near < CONFIRMED * far or not known or said / KEPT <= measured <= said * KEPT
        found.append(said if kept else measured)
    return found[0], found[1], max(found[1:])


def _at(rates: dict[int, float], size: float) -> float:
    """The speed of the probe whose size is nearest to `size`."""
    return rates[min(rates, key=lambda n: abs(math.log(n / size)))]


def _rounded(value: float) -> float:
    """Round to two digits, so that a repeated measurement gives the same figure."""
    return float(f"{value:.2g}")


def _halves(value: float) -> float:
    return max(0.5, round(2 * value) / 2)


def _second(times: list[float]) -> float:
    return sorted(times)[1]


def _median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]
