"""Small functions that show how fast a core is: chains of operations, and reads of arrays.

Each probe is LLVM IR for vectors of the machine's width, compiled unchanged. Its argument is a
count of iterations, which sets the time of one call.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.backends.cpu import elf_loader
from uopc.backends.llvm import jit
from uopc.ir.core.data.blocks import aligned
from uopc.target import Target

CHAINS = 12  # of multiply-adds side by side: more than latency times rate, fewer than registers
STEPS = 8  # of a chain in each iteration
MANY_STEPS = 4  # of each of several chains
VECTORS = 8  # that a read takes in each iteration

_LOOP = """
define i64 @{name}(ptr %memory, i64 %count, i64 %mask) {{
start:
  %used = alloca {kind}, align 64
{before}  br label %loop
loop:
  %i = phi i64 [ 0, %start ], [ %next, %loop ]
{phis}{body}  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:
{after}}}
"""


def _loop(name: str, kind: str, start: str, starts: list[str], body: str, ends: list[str]) -> str:
    """A function with a loop that carries values of one type, and uses all values at its end."""
    phis = "".join([
        f"  %c{i} = phi {kind} [ {first}, %start ], [ {end}, %loop ]\n"
        for i, (first, end) in enumerate(zip(starts, ends))
    ])  # fmt: skip
    after = "".join([f"  store volatile {kind} {end}, ptr %used, align 8\n" for end in ends])
    return _LOOP.format(
        name=name, kind=kind, before=start, phis=phis, body=body, after=f"{after}  ret i64 %i\n"
    )


def _clock() -> str:
    """A chain of additions and exclusive ors of an unknown number: one cycle each."""
    body, last = "", "%c0"
    for i in range(STEPS):
        body += f"  %a{i} = add i64 {last}, %mask\n  %x{i} = xor i64 %a{i}, %count\n"
        last = f"%x{i}"
    return _loop("clock", "i64", "", ["1"], body, [last])


def _multiply_adds(name: str, chains: int, steps: int, lanes: int) -> str:
    vector, body = f"<{lanes} x float>", ""
    last = [f"%c{i}" for i in range(chains)]
    for step in range(steps):
        for i in range(chains):
            body += (
                f"  %v{step}_{i} = call {vector} @llvm.fmuladd.v{lanes}f32"
                f"({vector} {last[i]}, {vector} %k, {vector} %k)\n"
            )
            last[i] = f"%v{step}_{i}"
    start = f"  %k = load {vector}, ptr %memory, align 4\n"
    return _loop(name, vector, start, ["%k"] * chains, body, last)


def _read_probe(vector: str, nbytes: int) -> str:
    """The exclusive or of vectors, read over and over. `mask`: the bytes less 1."""
    body = f"  %from = mul i64 %i, {VECTORS * nbytes}\n  %at = and i64 %from, %mask\n"
    ends = []
    for i in range(VECTORS):
        body += (
            f"  %p{i}_ = add i64 %at, {i * nbytes}\n"
            f"  %p{i} = getelementptr i8, ptr %memory, i64 %p{i}_\n"
            f"  %l{i} = load {vector}, ptr %p{i}, align {nbytes}\n"
            f"  %x{i} = xor {vector} %c{i}, %l{i}\n"
        )
        ends.append(f"%x{i}")
    return _loop("read", vector, "", ["zeroinitializer"] * VECTORS, body, ends)


def source(machine: Target) -> str:
    """The IR of all probes for a machine."""
    nbytes = machine.vector_bits // 8
    lanes = nbytes // 4
    floats, words = f"<{lanes} x float>", f"<{nbytes // 8} x i64>"
    return "".join([
        f"declare {floats} @llvm.fmuladd.v{lanes}f32({floats}, {floats}, {floats})\n",
        _clock(), _multiply_adds("chain", 1, STEPS, lanes),
        _multiply_adds("many", CHAINS, MANY_STEPS, lanes), _read_probe(words, nbytes),
    ])  # fmt: skip


@dataclass(frozen=True)
class Probe:
    """A function, the memory and mask that it gets, and the operations of an iteration."""

    code: elf_loader.Image
    function: Callable[[int, int, int], int]
    memory: Any  # a NumPy array
    mask: int
    per_iteration: int

    def seconds(self, count: int) -> float:
        """The seconds per operation in a call of `count` iterations."""
        address = self.memory.ctypes.data
        begin = time.perf_counter()
        self.function(address, count, self.mask)
        return (time.perf_counter() - begin) / (count * self.per_iteration)


class Probes:
    """The probes of this machine."""

    def __init__(self, machine: Target) -> None:
        self.nbytes = machine.vector_bits // 8
        names = ("clock", "chain", "many", "read")
        self._image = elf_loader.load(jit.compile_object(source(machine)), names)
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._functions = {name: kind(self._image.symbols[name]) for name in names}
        self._ones = zeros(4096)
        self._ones.view(np.float32)[:] = 0.5

    def _probe(self, name: str, memory: Any, mask: int, operations: int) -> Probe:
        return Probe(self._image, self._functions[name], memory, mask, operations)

    def clock(self) -> Probe:
        """One cycle per operation."""
        return self._probe("clock", self._ones, 3, 2 * STEPS)

    def chain(self) -> Probe:
        """Multiply-adds that each wait for the previous one."""
        return self._probe("chain", self._ones, 0, STEPS)

    def many(self) -> Probe:
        """Multiply-adds that do not wait."""
        return self._probe("many", self._ones, 0, MANY_STEPS * CHAINS)

    def read(self, memory: Any) -> Probe:
        """Read memory, whose size is a power of two, line after line."""
        return self._probe("read", memory, memory.nbytes - 1, VECTORS * self.nbytes)


def zeros(nbytes: int) -> Any:
    """Zeros that begin at a cache line, with every page touched."""
    part = aligned(nbytes)
    part[:] = 0
    return part
