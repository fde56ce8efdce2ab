"""A matrix of 8 or 4 bits times a vector, as a step of a decoder does it, beside memory's speed.

    python benchmarks/quantised.py [--threads 1,2] [--sizes 4096x4096,11008x4096] [--rounds 15]

Each call takes other weights, so that none is in a cache. All rows take turns, and `memory` is the
time to sum up as many bytes as a row's weights have: a ratio of medians by the clock and, with one
thread, of the least times of the processor.

    int8            a scale for each row, float32 activations
    int4            two weights a byte, a scale for each 128 of them, float32 activations
    nf4             the same with weights that four bits choose from 16 numbers
    int8 x int8     bytes on both sides, int32 sums
    int4 x int8     the same with two weights a byte
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

import uopc
from uopc import UOp, dtypes

# A function to time, and the bytes of weights that it reads.
Call: TypeAlias = "tuple[Callable[[], object], int]"

GROUP = 128  # weights with one scale
POOL = 768 << 20  # bytes of weights
F32, I8 = dtypes.float32, dtypes.int8


def codes(rows: int, columns: int) -> UOp:
    """Numbers of four bits in bytes: the first 64 of a group are in their low halves."""
    w = uopc.param("w", (rows, columns // GROUP, GROUP // 2), dtypes.uint8)
    return uopc.stack(w & 15, w >> 4, axis=2)


def halves(rows: int, columns: int) -> UOp:
    """The weights of -8 to 7 in bytes."""
    return codes(rows, columns).cast(I8) - 8


def int8(rows: int, columns: int) -> UOp:
    w, x = uopc.param("w", (rows, columns), I8), uopc.param("x", (columns,))
    return (w.cast(F32) @ x) * uopc.param("s", (rows,))


def scaled(w: UOp) -> UOp:
    """Weights with a scale for each group, times the vector."""
    rows, groups, *of_a_group = w.shape
    terms = w * uopc.param("s", (rows, groups, 1, 1)) * uopc.param("x", (groups, *of_a_group))
    return terms.sum((1, 2, 3))


def int4(rows: int, columns: int) -> UOp:
    return scaled(halves(rows, columns).cast(F32))


def nf4(rows: int, columns: int) -> UOp:
    numbers = np.linspace(-1, 1, 16, dtype=np.float32) ** 3
    return scaled(uopc.constant(numbers)[codes(rows, columns)])


def int8_int8(rows: int, columns: int) -> UOp:
    w, x = uopc.param("w", (rows, columns), I8), uopc.param("x", (columns,), I8)
    return (w.cast(dtypes.int32) @ x.cast(dtypes.int32)).cast(F32) * uopc.param("s", (rows,))


def int4_int8(rows: int, columns: int) -> UOp:
    x = uopc.param("x", (columns // GROUP, 2, GROUP // 2), I8).cast(dtypes.int32)
    total = (halves(rows, columns).cast(dtypes.int32) * x).sum((1, 2, 3))
    return total.cast(F32) * uopc.param("s", (rows,))


ROWS = {"int8": int8, "int4": int4, "nf4": nf4, "int8 x int8": int8_int8, "int4 x int8": int4_int8}


def given(graph: UOp) -> tuple[UOp, dict[str, np.ndarray]]:
    """The weights' param, and arrays of the others."""
    random = np.random.default_rng(0)
    params = {p.arg.name: p for p in graph.toposort() if p.op is uopc.Ops.PARAM}
    weights = params.pop("w")
    return weights, {
        name: (16 * random.standard_normal(p.shape)).astype(p.dtype.numpy)
        for name, p in params.items()
    }


class Pool:
    """Bytes that are handed out piece by piece, so that none is in a cache when it comes again."""

    def __init__(self, size: int) -> None:
        block = np.random.default_rng(1).integers(0, 256, 16 << 20, np.uint8)
        self.bytes, self.at = np.tile(block, size // block.size), 0

    def next(self, size: int) -> np.ndarray:
        if self.at + size > self.bytes.size:
            self.at = 0
        self.at += size
        return self.bytes[self.at - size : self.at]


def product(name: str, pool: Pool, rows: int, columns: int, threads: int) -> Call:
    """A product with the pool's next weights, and their size."""
    graph = ROWS[name](rows, columns)
    weights, others = given(graph)
    program = uopc.compile(graph, threads=threads)
    assert len(program.kernels) == 1
    size = math.prod(weights.shape)

    def call() -> None:
        w = pool.next(size).view(weights.dtype.numpy)
        program(w=w.reshape(weights.shape), **others)

    return call, size


def memory(pool: Pool, size: int, threads: int) -> Call:
    """The sum of the pool's next bytes, as float32."""
    program = uopc.compile(uopc.param("m", (size // 4,)).sum(), threads=threads)
    return lambda: program(pool.next(size).view(np.float32)), size


def timed(calls: dict[str, Call], rounds: int) -> dict[str, tuple[float, float]]:
    """The median seconds by the clock, and the least of the processor, of each call in turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, (call, _) in calls.items():
            begin = time.perf_counter(), time.process_time()
            call()
            end = time.perf_counter(), time.process_time()
            times[name].append((end[0] - begin[0], end[1] - begin[1]))
    return {
        name: (statistics.median(t for t, _ in found), min(t for _, t in found))
        for name, found in times.items()
    }


def table(pool: Pool, rows: int, columns: int, threads: int, rounds: int) -> None:
    calls = {name: product(name, pool, rows, columns, threads) for name in ROWS}
    sizes = sorted({size for _, size in calls.values()})
    calls |= {f"memory, {n >> 20} MiB": memory(pool, n, threads) for n in sizes}
    found = timed(calls, rounds)
    print(f"\n{rows} x {columns}, {threads} thread{'s' * (threads > 1)}\n")
    print("| weights x activations | median ms | GB/s | of memory | of memory, processor |")
    print("|---|---|---|---|---|")
    for name, (median, least) in found.items():
        size = calls[name][1]
        base = found[f"memory, {size >> 20} MiB"]
        processor = f"{base[1] / least:.2f}" if threads == 1 else ""
        print(f"| {name} | {1e3 * median:.2f} | {size / median / 1e9:.1f} |"
              f" {base[0] / median:.2f} | {processor} |")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--threads", default="1,2", help="time with these numbers of threads; default: %(default)s"
    )
    parser.add_argument(
        "--sizes", default="4096x4096,11008x4096",
        help="time these sizes, with commas; default: %(default)s",
    )
    parser.add_argument(
        "--rounds", type=int, default=15,
        help="take this many turns of each program; default: %(default)s",
    )
    options = parser.parse_args()
    pool = Pool(POOL)
    for size in options.sizes.split(","):
        rows, columns = map(int, size.split("x"))
        for threads in map(int, options.threads.split(",")):
            table(pool, rows, columns, threads, options.rounds)


if __name__ == "__main__":
    main()
