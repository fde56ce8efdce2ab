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
from uopc.backends.llvm.jit import compile_object

# The words before those of the kernel: as many as keep its words aligned like the table's.
PREFIX = ("function", "log", "clock", "clock_number", "self", "launch", "", "")
_RECORD = ("launch", "chunk", "thread", "begin_s", "begin_ns", "end_s", "end_ns")

_SOURCE = f"""
define void @traced(ptr %words, i64 %chunk) {{
  %function = load ptr, ptr %words
  %log_at = getelementptr i64, ptr %words, i64 1
  %log = load ptr, ptr %log_at
  %clock_at = getelementptr i64, ptr %words, i64 2
  %clock = load ptr, ptr %clock_at
  %number_at = getelementptr i64, ptr %words, i64 3
  %number = load i32, ptr %number_at
  %self_at = getelementptr i64, ptr %words, i64 4
  %self = load ptr, ptr %self_at
  %launch_at = getelementptr i64, ptr %words, i64 5
  %launch = load i64, ptr %launch_at
  %own = getelementptr i64, ptr %words, i64 {len(PREFIX)}
  %times = alloca [4 x i64], align 16
  %end_at = getelementptr i64, ptr %times, i64 2
  %ignored0 = call i32 %clock(i32 %number, ptr %times)
  call void %function(ptr %own, i64 %chunk)
  %ignored1 = call i32 %clock(i32 %number, ptr %end_at)
  %thread = call i64 %self()
  %place = atomicrmw add ptr %log, i64 1 monotonic
  %first = getelementptr i64, ptr %log, i64 1
  %record = getelementptr [{len(_RECORD)} x i64], ptr %first, i64 %place
  store i64 %launch, ptr %record
  %chunk_at = getelementptr i64, ptr %record, i64 1
  store i64 %chunk, ptr %chunk_at
  %thread_at = getelementptr i64, ptr %record, i64 2
  store i64 %thread, ptr %thread_at
  %times_at = getelementptr i64, ptr %record, i64 3
  %copied = load [4 x i64], ptr %times
  store [4 x i64] %copied, ptr %times_at
  ret void
}}
"""


class ChunkRun(NamedTuple):
    """A chunk of a launch, as a thread ran it; times on the clock of time.perf_counter."""

    launch: int
    chunk: int
    thread: str
    begin: float
    end: float


@cache
def _image() -> Image:
    return load(compile_object(_SOURCE), ("traced",))


class Log:
    """Room for the records of one call that runs so many chunks in all."""

    def __init__(self, chunks: int) -> None:
        self._words = np.zeros(1 + len(_RECORD) * chunks, np.int64)
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
        records = self._words[1:].reshape(-1, len(_RECORD))[: self._words[0]].tolist()
        found = []
        for launch, chunk, thread, *times in records:
            begin, end = (s + ns * 1e-9 + self._later for s, ns in (times[:2], times[2:]))
            name = names.get(thread, f"thread {thread}")
            found.append(ChunkRun(launch, chunk, name, begin, end))
        return sorted(found, key=lambda s: s.begin)
