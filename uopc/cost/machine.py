"""The facts of a machine that a cost reads: vectors, registers, units of a core, and its caches.

A `Target` has vectors and caches, its `Figures` what is measured, and its `Core` what the manuals
say of all such cores. The other facts are presumed: those with a default here.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from uopc.ir.core import dtypes
from uopc.ir.records import dataclass
from uopc.target import Core, Figures, Gpu, Target, core_of

LINE = 64
_MOST_ACCUMULATORS = 3  # as a power of two: more take the registers of what is added
_SLEEPS = 8.0  # threads that sleep are presumed to wake in an eighth to eight times the usual time


class CacheLevel(NamedTuple):
    """A cache, or a table of pages: its bytes and ways, and the cycles of a line (of a page) that
    it lacks: in a stream, and asked for on its own."""

    name: str
    nbytes: int
    ways: int
    stream: float
    far: float
    written: float  # cycles more of a line that is written back
    line: int = LINE
    serves_loads: bool = True

    @property
    def is_of_pages(self) -> bool:
        """True for a table of pages."""
        return self.line > LINE

    @property
    def period(self) -> int:
        """The bytes after which the same sets follow."""
        return self.nbytes // self.ways

    def sets(self, step: int) -> int:
        """The sets that hold elements `step` bytes apart, however many."""
        return max(1, self.period // math.gcd(step, self.period))

    def sets_of(self, count: float, step: int) -> float:
        """The sets that hold lines of `count` elements `step` bytes apart. Where the step is near a
        period, neighbouring elements are in the same set, or in the next."""
        beyond = step % self.period
        apart = min(beyond, self.period - beyond)
        most = min(self.sets(step), self.period // self.line)
        return max(1.0, min(most, count * apart / self.line, count))

    def is_crowded(self, count: int, step: int) -> bool:
        """True if elements `step` bytes apart need more lines than their sets have."""
        return count > self.ways * self.sets(step)


@dataclass(frozen=True)
class MachineFacts:
    """One core of a machine. Bytes are per cycle; units are instructions per cycle; other facts are
    cycles, unless they say another unit."""

    name: str
    clock: float  # cycles per ns
    vector_bits: int
    registers: int
    multiply_bytes: float  # of multiply-adds and other vector arithmetic
    latency: float  # of a multiply-add
    load_bytes: float
    store_bytes: float
    shuffle_bytes: float
    launch: float
    caches: tuple[CacheLevel, ...]
    has_masks: bool  # lanes are left out by mask registers
    loads_ahead: bool  # LLVM loads the elements of all rows of a tile before it multiplies
    has_fma: bool
    divide_bytes: float  # of float32
    divide64_bytes: float
    issue: float  # instructions that begin
    loads: float  # instructions, of any width
    stores: float
    insert: float  # an element that is loaded on its own into a vector
    window: float  # instructions among which a processor looks for those that can begin
    decode: float  # instructions of a loop that is too long to be kept decoded
    enter: float  # an inner loop's begin and end
    mispredict: float  # the end of a long inner loop
    divide: float = 3.5  # of one number
    divide64: float = 4.5
    dot4: float = 1.0  # a dot product of bytes, in multiply-adds
    dot2: float = 4.0  # a dot product of bfloat16, in multiply-adds
    predicted: float = 48.0  # iterations up to which the end of a loop is foreseen
    spill: float = 1.4  # a value without a register: a store and a load
    decoded: float = 1500.0  # instructions of a loop that are kept decoded
    apart: float = 5.0  # a vector that is stored away from the vector stored just before
    past: float = 12.0  # a line that is stored past the caches
    combined: int = 4  # rows of stores past the caches whose lines are put together at once
    torn: float = 75.0  # a part of a line that leaves for memory on its own
    seam: float = 900.0  # a line that is stored past the caches in part, the rest through them
    exposed: float = 0.25  # the share of the shorter of arithmetic and traffic that is not hidden
    gpu: Gpu | None = None  # the facts of a GPU, of which this is a multiprocessor's thread
    cores: int = 1
    sockets: int = 1  # each with a last cache and memory
    wake: float = 1_000.0  # until threads that wait have begun and ended
    parked: float = 200_000.0  # the same for threads that sleep
    shared_bytes: float = 10.0  # from memory, for all threads of a socket together
    units: float = 2.0  # that multiply and add whole vectors, and that load them
    # Of a step of a sum whose accumulators are registers, what does not overlap: the loop, a row's
    # element, and the share of a line from the second-level cache.
    step_begin: float = 0.3
    step_row: float = 0.1
    step_line: float = 0.075
    fill: float = 5.6  # a vector of neighbours, brought in another order
    gather: float = 1.7  # an element that is no neighbour, brought there
    computed_place: float = 4.0  # an element of a vector at a computed place, in loads

    @property
    def vector_bytes(self) -> int:
        """The bytes of a vector register."""
        return self.vector_bits // 8

    def registers_of(self, lanes: float, bits: int) -> int:
        """The registers that hold so many lanes."""
        return max(1, -int(-lanes * bits // self.vector_bits))

    def together(self, *parts: float) -> float:
        """The cycles of parts that overlap: of the longest, and the share of the others that is not
        hidden."""
        *others, longest = sorted(parts) or [0.0]
        return longest + self.exposed * sum(others)

    @property
    def pages(self) -> CacheLevel:
        """The nearest table of pages that loads ask; no stream goes on behind a page."""
        return next(c for c in self.caches if c.is_of_pages and c.serves_loads)

    @property
    def accumulators(self) -> int:
        """The accumulators of a sum along lanes: as many as lines are added while one addition is
        under way, a power of two."""
        wanted = self.latency * self.load_bytes / LINE
        return int(2 ** min(max(0, math.floor(math.log2(wanted))), _MOST_ACCUMULATORS))

    def multiply_adds(self, nbytes: int) -> float:
        """The multiply-adds of vectors of so many bytes that begin in a cycle."""
        return min(self.units, self.multiply_bytes / nbytes)

    def vector_loads(self, nbytes: int) -> float:
        """The loads of such vectors from the nearest cache that begin in a cycle."""
        return min(self.units, self.load_bytes / nbytes)

    def division(self, nbytes: float, bits: int) -> float:
        """The cycles of a division of so many bytes of elements of this width. Few elements take as
        long as one."""
        one, rate = self.divide, self.divide_bytes
        if bits == 64:
            one, rate = self.divide64, self.divide64_bytes
        return max(one, nbytes / rate)


@functools.lru_cache(maxsize=64)
def machine_of(target: Target, cores: int = 1, sockets: int = 1) -> MachineFacts:
    """The facts of a described or measured machine, and how many cores and sockets it has."""
    f, core = target.figures, core_of(target.cpu)
    nbytes = target.vector_bits // 8
    return MachineFacts(
        name=target.name, clock=f.clock, vector_bits=target.vector_bits,
        registers=target.registers, multiply_bytes=f.multiply_bytes, latency=f.latency,
        load_bytes=f.load_bytes, store_bytes=nbytes,
        shuffle_bytes=min(f.shuffle_bytes, 2 * nbytes), launch=f.launch * f.clock,
        caches=(*_caches(target, core), *_pages(core)), has_masks=target.has_mask_registers,
        loads_ahead=target.is_arm, has_fma=target.has_fma(dtypes.float32),
        divide_bytes=f.divide_bytes, divide64_bytes=f.divide64_bytes, issue=core.issue,
        loads=core.loads, stores=core.stores, insert=f.insert, window=core.window,
        decode=core.decode, enter=f.enter, mispredict=core.mispredict,
        wake=f.wake * f.clock, parked=_parked(f), shared_bytes=f.shared_bytes, gpu=target.gpu,
        cores=cores, sockets=sockets,
    )  # fmt: skip


def _parked(f: Figures) -> float:
    """The cycles until threads that sleep have begun; a busy machine measures anything."""
    usual = Figures().parked
    return f.clock * min(max(f.parked, usual / _SLEEPS), usual * _SLEEPS)


def _caches(target: Target, core: Core) -> list[CacheLevel]:
    """The three caches: a line comes at the speed of the next cache, or of memory."""
    f = target.figures
    rows = (
        ("L1", target.l1_bytes, f.l2_bytes, f.l2_alone, f.l2_written),
        ("L2", target.l2_bytes, f.last_bytes, f.last_alone, f.last_written),
        ("L3", target.last_cache_bytes, f.memory_bytes, f.memory_alone, f.memory_written),
    )
    nearest = _ways(target.l1_bytes, core.ways[0])
    return [
        CacheLevel(name, size, ways, LINE / rate, max(LINE / rate, alone), written)
        for (name, size, rate, alone, written), ways in zip(rows, (nearest, *core.ways[1:]))
    ]


def _ways(nbytes: int, ways: int) -> int:
    """The ways of a nearest cache that has at least so many: its sets are a power of two."""
    return nbytes >> max(1, nbytes // ways).bit_length() - 1


def _pages(core: Core) -> list[CacheLevel]:
    return [
        CacheLevel(
            p.name, p.entries * p.nbytes, p.ways, 0.0, p.cycles, 0.0, p.nbytes, p.serves_loads
        )
        for p in core.pages
    ]  # fmt: skip
