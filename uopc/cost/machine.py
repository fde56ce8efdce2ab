"""The facts of a machine that a cost reads: vectors, registers, units of a core, and its caches.

A `Target` has vectors and caches, its `Figures` what is measured, and its `Core` what the manuals
say of all such cores. The other facts are presumed: those with a default here.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from uopc.ir.core import dtypes
from uopc.target import Core, Target, core_of

LINE = 64


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

    @property
    def vector_bytes(self) -> int:
        """The bytes of a vector register."""
        return self.vector_bits // 8

    def registers_of(self, lanes: float, bits: int) -> int:
        """The registers that hold so many lanes."""
        return max(1, -int(-lanes * bits // self.vector_bits))

    def division(self, bits: int) -> float:
        """The cycles of a division of a full vector of elements of this width."""
        return self.vector_bytes / (self.divide64_bytes if bits == 64 else self.divide_bytes)


@functools.lru_cache(maxsize=64)
def machine_of(target: Target) -> MachineFacts:
    """The facts of a described or measured machine."""
    f, core = target.figures, core_of(target.cpu)
    nbytes = target.vector_bits // 8
    return MachineFacts(
        name=target.name, clock=f.clock, vector_bits=target.vector_bits,
        registers=target.registers, multiply_bytes=f.multiply_bytes, latency=f.latency,
        load_bytes=f.load_bytes, store_bytes=nbytes,
        shuffle_bytes=min(f.shuffle_bytes, 2 * nbytes), launch=f.launch * f.clock,
        caches=(*_caches(target, core), *_pages(core)), has_masks=target.has_mask_registers,
        has_fma=target.has_fma(dtypes.float32), divide_bytes=f.divide_bytes,
        divide64_bytes=f.divide64_bytes, issue=core.issue, loads=core.loads, stores=core.stores,
        insert=f.insert, window=core.window, decode=core.decode, enter=f.enter,
        mispredict=core.mispredict,
    )  # fmt: skip


def _caches(target: Target, core: Core) -> list[CacheLevel]:
    """The three caches: a line comes at the speed of the next cache, or of memory."""
    f = target.figures
    rows = (
        ("L1", target.l1_bytes, f.l2_bytes, f.l2_alone, f.l2_written),
        ("L2", target.l2_bytes, f.last_bytes, f.last_alone, f.last_written),
        ("L3", target.last_cache_bytes, f.memory_bytes, f.memory_alone, f.memory_written),
    )
    return [
        CacheLevel(name, size, ways, LINE / rate, max(LINE / rate, alone), written)
        for (name, size, rate, alone, written), ways in zip(rows, core.ways)
    ]


def _pages(core: Core) -> list[CacheLevel]:
    return [
        CacheLevel(
            p.name, p.entries * p.nbytes, p.ways, 0.0, p.cycles, 0.0, p.nbytes, p.serves_loads
        )
        for p in core.pages
    ]  # fmt: skip
