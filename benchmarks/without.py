"""The gain of an Opt or a threshold of the CPU schedule: workloads with and without it, in turns.

    python benchmarks/without.py OVERLAP SHARED_ROWS=4 [--workloads image_2048,image_509]

NAME takes an Opt away, NAME=NUMBER sets a threshold. Only workloads whose Opts then change are
timed: one thread, CPU time, the least of many calls. UOPC_TARGET_CPU=x86-64-v3 is for AVX2.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["UOPC_THREADS"] = "1"

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import more_workloads  # noqa: F401  its workloads are in the list too
from peers import Uopc
from workloads import WORKLOADS, Workload

import uopc
from uopc.passes.analysis import thresholds
from uopc.passes.optimize.schedule.scheduler import Scheduler

SECONDS, LEAST = 1.0, 5e-4  # of both programs together; of one timing


@contextmanager
def without(name: str) -> Iterator[None]:
    """A schedule without an Opt, or with another value of a threshold."""
    threshold, _, value = name.partition("=")
    attempt, old = Scheduler.attempt, getattr(thresholds, threshold, None)
    try:
        if value:
            setattr(thresholds, threshold, type(old)(value))
        else:
            Scheduler.attempt = lambda s, op, r, n: op != name and attempt(s, op, r, n)
        yield
    finally:
        Scheduler.attempt = attempt
        if value:
            setattr(thresholds, threshold, old)


def compiled(w: Workload, operators: Any) -> tuple[uopc.Program, list[Any]]:
    """The program, and the Opts of its kernels."""
    inputs = [
        uopc.param(f"x{i}", a.shape, getattr(uopc.dtypes, str(a.dtype)))
        for i, a in enumerate(w.inputs)
    ]
    with uopc.options(cache_dir="", programs=0):
        program = uopc.compile(w.body(operators, *inputs), inputs=inputs)
        return program, [k.opts for k in program.kernels]


def timed(program: uopc.Program, inputs: list[Any], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        program(*inputs)
    return (time.process_time() - start) / times


def least(programs: list[uopc.Program], inputs: list[Any]) -> list[float]:
    """The least seconds of a call of each program; they take turns."""
    times = max(1, int(LEAST / max(min(timed(p, inputs, 1) for p in programs), 1e-7)))
    best = [float("inf")] * len(programs)
    end = time.process_time() + SECONDS
    while time.process_time() < end:
        best = [min(b, timed(p, inputs, times)) for b, p in zip(best, programs)]
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument(
        "--workloads", default=",".join(WORKLOADS), help="time these workloads, with commas"
    )
    options = parser.parse_args()
    operators = Uopc(1).operators
    print("| taken away | workload | with, ms | without, ms | without / with |")
    print("|---|---|---|---|---|")
    for name in options.names:
        for workload in options.workloads.split(","):
            w = WORKLOADS[workload]()
            whole, before = compiled(w, operators)
            with without(name):
                part, after = compiled(w, operators)
            if before != after:
                own, other = least([whole, part], w.inputs)
                print(f"| {name} | {workload} | {own * 1e3:.4g} | {other * 1e3:.4g} "
                      f"| {other / own:.2f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
