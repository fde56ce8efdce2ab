"""The facts of a machine that a cost reads: vectors, registers, units of a core, and its caches.

A `Target` and its `Figures` say what differs from machine to machine, and are measured; the other
facts are those of a kind of core, by LLVM's name for it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

from uopc.ir.core import dtypes
from uopc.target import Figures, Target

PAGE = 4096
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
        return self.line >= PAGE


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
    # By bits of the elements: a division of a full vector.
    divide: tuple[tuple[int, float], ...] = ((32, 10.6), (64, 16.4))
    issue: float = 6.0  # instructions that begin
    loads: float = 2.0  # instructions, of any width
    stores: float = 1.0
    insert: float = 1.0  # an element that is picked up on its own into a vector
    dot4: float = 1.0  # a dot product of bytes, in multiply-adds
    dot2: float = 4.0  # a dot product of bfloat16, in multiply-adds
    window: float = 130.0  # instructions among which a processor looks for those that can begin
    enter: float = 3.0  # an inner loop's begin and end
    mispredict: float = 20.0  # the end of a long inner loop
    predicted: float = 48.0  # iterations up to which the end of a loop is foreseen
    spill: float = 1.4  # a value without a register: a store and a load
    decoded: float = 1500.0  # instructions of a loop that are kept decoded
    decode: float = 1.3  # instructions of a longer loop that are decoded
    apart: float = 5.0  # a vector that is stored away from the vector stored just before
    past: float = 28.0  # a line that is stored past the caches
    torn: float = 100.0  # a part of a line that is stored past the caches
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
        return dict(self.divide)[64 if bits == 64 else 32]


class _CoreKind(NamedTuple):
    """The facts of a kind of core that neither a `Target` nor its `Figures` have. `far`
    and `written` are those of each cache, over the cycles of a line in a stream."""

    facts: dict[str, Any]
    ways: tuple[int, int, int]
    far: tuple[float, float, float]
    written: tuple[float, float, float]
    pages: tuple[CacheLevel, ...]


def _pages(name: str, count: int, ways: int, far: float, serves_loads: bool = True) -> CacheLevel:
    return CacheLevel(name, count * PAGE, ways, 0.0, far, 0.0, PAGE, serves_loads)


# From port counts of manuals and from single kernels on one core of an Emerald Rapids.
_GOLDEN_COVE = _CoreKind(
    {"loads": 3.0}, (12, 16, 16), (2.2, 3.2, 2.1), (2.0, 1.0, 1.0),
    (
        _pages("pages of stores", 16, 16, 7.0, serves_loads=False),
        _pages("pages", 96, 6, 1.0), _pages("more pages", 2048, 16, 25.0),
    ),
)  # fmt: skip
# Of other cores: what is usual.
_USUAL = _CoreKind(
    {"issue": 4.0, "window": 100.0, "decode": 2.0}, (8, 8, 16),
    (2.0, 3.0, 3.0), (1.0, 1.0, 1.0),
    (_pages("pages", 64, 4, 7.0), _pages("more pages", 1536, 12, 25.0)),
)  # fmt: skip
_CORES = {"sapphirerapids": _GOLDEN_COVE, "emeraldrapids": _GOLDEN_COVE}


@functools.lru_cache(maxsize=64)
def machine_of(target: Target) -> MachineFacts:
    """The facts of a described or measured machine."""
    f, core = target.figures, _CORES.get(target.cpu, _USUAL)
    nbytes = target.vector_bits // 8
    return MachineFacts(
        name=target.name, clock=f.clock, vector_bits=target.vector_bits,
        registers=target.registers, multiply_bytes=f.multiply_bytes, latency=f.latency,
        load_bytes=f.load_bytes, store_bytes=nbytes, shuffle_bytes=nbytes,
        launch=f.launch * f.clock, caches=(*_caches(target, f, core), *core.pages),
        has_masks=target.has_mask_registers, has_fma=target.has_fma(dtypes.float32),
        **core.facts,
    )  # fmt: skip


def _caches(target: Target, figures: Figures, core: _CoreKind) -> list[CacheLevel]:
    """The three caches: a line comes at the measured speed of the next cache, or of memory."""
    sizes = target.l1_bytes, target.l2_bytes, target.last_cache_bytes
    rates = figures.l2_bytes, figures.last_bytes, figures.memory_bytes
    found = []
    for i, (name, size, rate) in enumerate(zip(("L1", "L2", "L3"), sizes, rates)):
        line = LINE / rate
        far, written = line * core.far[i], line * core.written[i]
        found.append(CacheLevel(name, size, core.ways[i], line, far, written))
    return found
