"""The workloads of `uopc bench kernels` with narrower vectors, beside NumPy: one thread, in turns.

    python benchmarks/targets.py                       print the table
    python benchmarks/targets.py --out docs/lab/kernels    write it as targets.md there

CPU time of the process, so other processes count less; the least of several rounds.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
os.environ["UOPC_THREADS"] = "1"

import numpy as np
from peers import Numpy, Uopc
from workloads import WORKLOADS

import uopc
from uopc.backends import detect

TARGETS = ("", "x86-64-v3")
SECONDS = 0.4  # a workload's rounds, all together; at least two of them
LEAST = 1e-3  # a timing, of as many calls as that takes
HEAD = """# With vectors of 32 bytes

NumPy takes {mean:.2f} times as long as uopc's code for AVX2 (geometric mean; least {least:.2f},
and below 1 in {behind} of {rows} workloads).

Made by `python benchmarks/targets.py --out docs/lab/kernels`: code for AVX2 with
`UOPC_TARGET_CPU=x86-64-v3`, 16 registers, against code for the machine itself ({cpu}, vectors of
{nbytes} bytes, {registers} of them) and NumPy, which picks its own. One thread, CPU time,
the least of interleaved rounds; load {load:.0f} before the run, on {cpus} CPUs.
"""


def timed(call: Callable[[], Any], times: int) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def measure(name: str) -> tuple[list[float], float]:
    """The least seconds of each target and of NumPy, and the error of the last target."""
    workload = WORKLOADS[name]()
    calls = []
    for cpu in TARGETS:
        with uopc.options(target_cpu=cpu):
            calls.append(Uopc(1).prepare(workload))
            calls[-1]()
    calls.append(Numpy(1).prepare(workload))
    narrow, wanted = np.asarray(calls[1]()), np.asarray(calls[2]())
    error = float(np.abs(narrow - wanted).max() / (np.abs(wanted).max() or 1.0))
    times = [max(1, int(LEAST / max(timed(call, 1), 1e-7))) for call in calls]
    best = [float("inf")] * len(calls)
    end, rounds = time.process_time() + SECONDS, 0
    while rounds < 2 or time.process_time() < end:
        best = [min(b, timed(call, n)) for b, call, n in zip(best, calls, times)]
        rounds += 1
    return best, error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write targets.md to this folder")
    options = parser.parse_args()
    lines = ["| workload | own ms | AVX2 ms | ratio | NumPy ms | NumPy / AVX2 | error |"]
    lines.append("|---|---|---|---|---|---|---|")
    load, ratios = os.getloadavg()[0], []
    for name in WORKLOADS:
        (wide, narrow, peer), error = measure(name)
        times = f"{wide * 1e3:.3g} | {narrow * 1e3:.3g} | {narrow / wide:.2f} | {peer * 1e3:.3g}"
        lines.append(f"| {name} | {times} | {peer / narrow:.2f} | {error:.1e} |")
        print(lines[-1], flush=True)
        ratios.append(peer / narrow)
    own = detect.host()
    head = HEAD.format(
        cpu=own.cpu, nbytes=own.vector_bits // 8, registers=own.registers, load=load,
        cpus=os.cpu_count(), mean=math.exp(sum(map(math.log, ratios)) / len(ratios)),
        least=min(ratios), behind=sum(r < 1 for r in ratios), rows=len(ratios),
    )  # fmt: skip
    if options.out is not None:
        (options.out / "targets.md").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
