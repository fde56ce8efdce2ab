"""Small functions that show how fast a core is: operations, loops, and reads and writes of arrays.

Each probe is LLVM IR for vectors of the machine's width, compiled unchanged. Its argument is a
count of iterations, which sets the time of one call.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from uopc.backends.cpu import elf_loader
from uopc.backends.llvm import jit
from uopc.ir.core.data.blocks import aligned
from uopc.ir.records import dataclass
from uopc.target import Target

CHAINS = 12  # of multiply-adds side by side: more than latency times rate, fewer than registers
STEPS = 8  # of a chain in each iteration
MANY_STEPS = 4  # of each of several chains
VECTORS = 8  # that a read or a write takes in each iteration
QUOTIENTS = 6  # divisions side by side
BUTTERFLIES = 3  # steps of shuffles: each vector meets each other one of eight
LINES = 4  # that are read alone in each iteration
NAMES = ("clock", "chain", "many", "read", "write", "alone", "divide", "divide64", "shuffle",
         "insert", "nested")  # fmt: skip
_ODD = 0x9E3779B97F4A7C15  # its products are in no order
_PERIOD = 4096  # bytes over which elements are picked up
_APART = 68  # bytes between elements

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


def _at(i: int, step: int) -> str:
    """The place %p{i}, so many steps from %at."""
    return (
        f"  %p{i}_ = add i64 %at, {i * step}\n"
        f"  %p{i} = getelementptr i8, ptr %memory, i64 %p{i}_\n"
    )


def _stream_probes(vector: str, nbytes: int) -> str:
    """Two functions: the exclusive or of vectors, and stores of vectors, over and over. `mask`: the
    bytes less 1."""
    read = write = f"  %from = mul i64 %i, {VECTORS * nbytes}\n  %at = and i64 %from, %mask\n"
    for i in range(VECTORS):
        read += (
            f"{_at(i, nbytes)}  %l{i} = load {vector}, ptr %p{i}, align {nbytes}\n"
            f"  %x{i} = xor {vector} %c{i}, %l{i}\n"
        )
        write += f"{_at(i, nbytes)}  store {vector} zeroinitializer, ptr %p{i}, align {nbytes}\n"
    starts, ends = ["zeroinitializer"] * VECTORS, [f"%x{i}" for i in range(VECTORS)]
    return _loop("read", vector, "", starts, read, ends) + _loop("write", "i64", "", [], write, [])


def _alone_probe() -> str:
    """Reads of lines in no order. The first word of the memory counts the lines of all calls, so
    that no call reads the lines of the call before."""
    body = f"  %first = mul i64 %i, {LINES}\n  %now = add i64 %first, %seed\n"
    ends = []
    for i in range(LINES):
        body += (
            f"  %n{i} = add i64 %now, {i}\n  %o{i} = mul i64 %n{i}, {_ODD}\n"
            f"  %h{i} = lshr i64 %o{i}, 24\n  %m{i} = and i64 %h{i}, %mask\n"
            f"  %at{i} = and i64 %m{i}, -64\n"
            f"  %p{i} = getelementptr i8, ptr %memory, i64 %at{i}\n"
            f"  %l{i} = load i64, ptr %p{i}, align 8\n  %x{i} = xor i64 %c{i}, %l{i}\n"
        )
        ends.append(f"%x{i}")
    start = (
        "  %seed = load i64, ptr %memory, align 8\n"
        f"  %lines = mul i64 %count, {LINES}\n  %later = add i64 %seed, %lines\n"
        "  store i64 %later, ptr %memory, align 8\n"
    )
    return _loop("alone", "i64", start, ["0"] * LINES, body, ends)


def _divide_probe(name: str, element: str, lanes: int) -> str:
    """Divisions k / x, whose results alternate between two numbers that are no powers of two."""
    vector = f"<{lanes} x {element}>"
    start = (
        f"  %k = load {vector}, ptr %memory, align 8\n"
        f"  %p = getelementptr i8, ptr %memory, i64 {_PERIOD // 2}\n"
        f"  %d = load {vector}, ptr %p, align 8\n"
    )
    body = "".join([f"  %x{i} = fdiv {vector} %k, %c{i}\n" for i in range(QUOTIENTS)])
    ends = [f"%x{i}" for i in range(QUOTIENTS)]
    return _loop(name, vector, start, ["%d"] * QUOTIENTS, body, ends)


def _shuffle_probe(lanes: int) -> str:
    """Steps of a transpose: vectors take turns with the elements of pairs of vectors. The elements
    stay in their 16 bytes."""
    vector = f"<{lanes} x float>"
    masks = []
    for half in (0, 2):
        places = [base + half + j + k * lanes for base in range(0, lanes, 4)
                  for j in (0, 1) for k in (0, 1)]  # fmt: skip
        masks.append(f"<{lanes} x i32> <{', '.join(f'i32 {n}' for n in places)}>")
    count, body = 1 << BUTTERFLIES, ""
    last = [f"%c{i}" for i in range(count)]
    for step in range(BUTTERFLIES):
        for i in range(count):
            j = i ^ 1 << step
            pair = f"{vector} {last[min(i, j)]}, {vector} {last[max(i, j)]}"
            body += f"  %s{step}_{i} = shufflevector {pair}, {masks[i > j]}\n"
        last = [f"%s{step}_{i}" for i in range(count)]
    start = f"  %k = load {vector}, ptr %memory, align 4\n"
    return _loop("shuffle", vector, start, ["%k"] * count, body, last)


def _insert_probe(lanes: int) -> str:
    """A vector of elements that are no neighbours."""
    vector, last = f"<{lanes} x float>", "zeroinitializer"
    body = "  %from = mul i64 %i, 4\n  %at = and i64 %from, 63\n"
    for i in range(lanes):
        body += (
            f"{_at(i, _APART)}  %l{i} = load float, ptr %p{i}, align 4\n"
            f"  %v{i} = insertelement {vector} {last}, float %l{i}, i32 {i}\n"
        )
        last = f"%v{i}"
    body += f"  store volatile {vector} {last}, ptr %used, align 4\n"
    return _loop("insert", vector, "", [], body, [])


# A loop of `mask` iterations in a loop of `count`; each adds one word.
_NESTED = """
define i64 @nested(ptr %memory, i64 %count, i64 %mask) {
start:
  br label %outer
outer:
  %i = phi i64 [ 0, %start ], [ %next, %end ]
  %before = phi i64 [ 0, %start ], [ %sum, %end ]
  br label %inner
inner:
  %j = phi i64 [ 0, %outer ], [ %after, %inner ]
  %c = phi i64 [ %before, %outer ], [ %sum, %inner ]
  %p = getelementptr i64, ptr %memory, i64 %j
  %l = load i64, ptr %p, align 8
  %sum = add i64 %c, %l
  %after = add i64 %j, 1
  %again = icmp ult i64 %after, %mask
  br i1 %again, label %inner, label %end
end:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %outer, label %done
done:
  ret i64 %sum
}
"""


def source(machine: Target) -> str:
    """The IR of all probes for a machine."""
    nbytes = machine.vector_bits // 8
    lanes = nbytes // 4
    floats, words = f"<{lanes} x float>", f"<{nbytes // 8} x i64>"
    return "".join([
        f"declare {floats} @llvm.fmuladd.v{lanes}f32({floats}, {floats}, {floats})\n",
        _clock(), _multiply_adds("chain", 1, STEPS, lanes),
        _multiply_adds("many", CHAINS, MANY_STEPS, lanes), _stream_probes(words, nbytes),
        _alone_probe(), _divide_probe("divide", "float", lanes),
        _divide_probe("divide64", "double", lanes // 2), _shuffle_probe(lanes),
        _insert_probe(lanes), _NESTED,
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
        nbytes = machine.vector_bits // 8
        self._operations = {  # of an iteration
            "clock": 2 * STEPS, "chain": STEPS, "many": MANY_STEPS * CHAINS,
            "read": VECTORS * nbytes, "write": VECTORS * nbytes, "alone": LINES,
            "divide": QUOTIENTS, "divide64": QUOTIENTS, "shuffle": BUTTERFLIES << BUTTERFLIES,
            "insert": nbytes // 4, "nested": 1,
        }  # fmt: skip
        self._image = elf_loader.load(jit.compile_object(source(machine)), NAMES)
        self._numbers = zeros(_PERIOD)
        self._numbers.view(np.float32)[:] = 0.7
        self._numbers.view(np.float32)[_PERIOD // 8 :] = 1.3

    def of_core(self, name: str, mask: int = 0) -> Probe:
        """Operations whose numbers are in the nearest cache: "clock" takes a cycle for each,
        "chain" waits for each, others do not wait. `mask`: the iterations of the inner loop of
        "nested"."""
        return self._probe(name, self._numbers, mask)

    def of_memory(self, name: str, memory: Any) -> Probe:
        """Read or write memory, whose size is a power of two, line after line, or read lines
        "alone", in no order."""
        return self._probe(name, memory, memory.nbytes - 1)

    def _probe(self, name: str, memory: Any, mask: int) -> Probe:
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        function = kind(self._image.symbols[name])
        return Probe(self._image, function, memory, mask, self._operations[name])


def zeros(nbytes: int) -> Any:
    """Zeros that begin at a cache line, with every page touched."""
    part = aligned(nbytes)
    part[:] = 0
    return part
