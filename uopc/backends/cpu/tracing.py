"""A trace of one call: which thread ran each chunk of each launch, and when.

The launch table of a traced call names `traced` in place of each kernel. It reads the clock, calls
the kernel, reads the clock again, and appends a record to a log. A call that is not traced has its
own table, so it pays nothing.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from uopc.backends.cpu.elf_loader import Image, function_address, load
from uopc.backends.cpu.layout import data_address
from uopc.backends.cpu.structs import KERNEL, WORDS
from uopc.backends.llvm.builder import (
    I32,
    I64,
    VOID,
    Builder,
    Operand,
    PointerTo,
    Signature,
    Words,
    function,
    module,
)
from uopc.backends.llvm.jit import compile_object

# The words before those of the kernel: as many as keep its words aligned like the table's.
PREFIX = Words(
    function=KERNEL, log=WORDS, clock=Signature(I32, I32, WORDS), clock_number=I32,
    own_thread=Signature(I64), launch=I64, spare=I64, other_spare=I64,
)  # fmt: skip
_RECORD = Words(
    launch=I64, chunk=I64, thread=I64, begin_s=I64, begin_ns=I64, end_s=I64, end_ns=I64
)  # fmt: skip


@function(VOID, PointerTo(PREFIX), I64)
def traced(b: Builder, words: Operand, chunk: Operand) -> None:
    """Run a chunk, and append a record of it."""
    clock, number, log = words.clock, words.clock_number, words.log
    times = b.alloca(I64, 4, align=16)
    clock(number, times)
    words.function(words.at(1).to(WORDS), chunk)
    clock(number, times.at(2))
    place = log.update("add", 1, "monotonic")
    record = log.at(1).to(PointerTo(_RECORD)).at(place)
    values = (words.launch, chunk, words.own_thread(), *[times[i] for i in range(4)])
    for i, value in enumerate(values):
        record.to(WORDS)[i] = value


class ChunkRun(NamedTuple):
    """A chunk of a launch, as a thread ran it; times on the clock of time.perf_counter."""

    launch: int
    chunk: int
    thread: str
    begin: float
    end: float


@cache
def _image() -> Image:
    return load(compile_object(module([traced], ["traced"])), ("traced",))


class Log:
    """Room for the records of one call that runs `chunks` chunks in all."""

    def __init__(self, chunks: int) -> None:
        self._words = np.zeros(1 + len(_RECORD.fields) * chunks, np.int64)
        self._process = ctypes.CDLL(None)
        self._later = time.perf_counter() - time.clock_gettime(time.CLOCK_MONOTONIC)
        self.traced = _image().symbols["traced"]

    def prefix(self, launch: int, kernel: int) -> Sequence[int]:
        """The words of PREFIX, for the launch of this number and a kernel's address."""
        clock, own = (function_address(self._process, n) for n in ("clock_gettime", "pthread_self"))
        log = data_address(self._words)
        return kernel, log, clock, time.CLOCK_MONOTONIC, own, launch, 0, 0

    def slices(self) -> list[ChunkRun]:
        """The launches that ran, in the order in which they began."""
        names = {t.ident: t.name for t in threading.enumerate()}
        records = self._words[1:].reshape(-1, len(_RECORD.fields))[: self._words[0]].tolist()
        found = []
        for launch, chunk, thread, *times in records:
            begin, end = (s + ns * 1e-9 + self._later for s, ns in (times[:2], times[2:]))
            name = names.get(thread, f"thread {thread}")
            found.append(ChunkRun(launch, chunk, name, begin, end))
        return sorted(found, key=lambda s: s.begin)
