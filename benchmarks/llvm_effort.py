"""The cost and gain of LLVM's effort, by the size of the code: compile time and run time.

    python benchmarks/llvm_effort.py [--workloads a,b] [--rounds 5] [--out FILE]

Each workload of `kernels.py`, and scalar code of several sizes, is compiled at every level of
LLVM's code generator; the programs take turns on one thread, and the least time of each counts.
With --out the tables are written to a file, as docs/lab/llvm_effort.md is.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import more_workloads  # noqa: F401 (adds its workloads)
from growth import GROWTH, uopc_operators
from kernels import sample
from peers import PEERS
from workloads import WORKLOADS

import uopc
from uopc import cache
from uopc.backends.llvm import jit

LEVELS = (0, 1, 2)  # 3 makes the code of 2
SCALARS = (400, 1600, 6400)
CLASSES = ((0, 200), (200, 1000), (1000, 1 << 30))  # statements of LLVM IR in a program
BURST = 0.03  # seconds of samples in a turn
Row = dict[str, Any]


def scalar_code(size: int) -> Callable[[], Any]:
    """A call of n scalar statements in a row."""
    built = GROWTH["scalars"][0](uopc_operators(), size)
    made: list[Any] = []

    def call() -> Any:
        if not made:
            program = uopc.compile(built)
            rng = np.random.default_rng(0)
            shapes = [(v.shape, v.dtype.numpy) for v in program.inputs]
            made.append((program, [rng.random(s).astype(d) for s, d in shapes]))
        program, inputs = made[0]
        return program(*inputs)

    return call


def measure(prepare: Callable[[], Callable[[], Any]], rounds: int) -> Row:
    """Seconds of LLVM, and of a call, by level."""
    row: Row = {"llvm": {}, "run": dict.fromkeys(LEVELS, math.inf), "statements": 0}
    calls = {}
    compiled = jit.compile_object
    for level in LEVELS:

        def timed(text: str, *given: Any, level: int = level) -> bytes:
            begin = time.process_time()
            code = functools.partial(compiled, opt=level)(text, *given)
            row["llvm"][level] = time.process_time() - begin
            row["statements"] = text.count("\n  ")
            return code

        cache.clear()
        with mock.patch.object(jit, "compile_object", timed):
            calls[level] = prepare()
            with uopc.options(cache_dir="", programs=0):
                calls[level]()
    for turn in range(rounds):
        for level in LEVELS if turn % 2 else reversed(LEVELS):
            row["run"][level] = min(row["run"][level], *sample(calls[level], BURST))
    return row


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def table(rows: dict[str, Row]) -> str:
    """Times at each level as parts of those at the greatest, by size."""
    most = LEVELS[-1]
    lines = [
        "| statements | programs | level | LLVM's time | run time | slowest program |",
        "|---|---|---|---|---|---|",
    ]
    for least, end in CLASSES:
        inside = {n: r for n, r in rows.items() if least <= r["statements"] < end}
        for level in LEVELS[:-1] if inside else ():
            llvm = [sum(r["llvm"][i] for r in inside.values()) for i in (level, most)]
            run = {n: r["run"][level] / r["run"][most] for n, r in inside.items()}
            worst = max(run, key=run.__getitem__)
            size = f"{least} to {end - 1}" if end < 1 << 30 else f"from {least} on"
            lines.append(
                f"| {size} | {len(inside)} | {level} | {llvm[0] / llvm[1]:.2f}"
                f" | {mean(list(run.values())):.2f} | {worst} {run[worst]:.2f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", default="", help="only these, with commas")
    parser.add_argument(
        "--rounds", type=int, default=5,
        help="take this many turns of each program; default: %(default)s",
    )
    parser.add_argument("--out", default="", help="write the result to this file")
    args = parser.parse_args()
    peer = PEERS["uopc"](1)
    wanted = set(filter(None, args.workloads.split(",")))
    prepared: dict[str, Callable[[], Callable[[], Any]]] = {
        name: functools.partial(lambda make: peer.prepare(make()), make)
        for name, make in WORKLOADS.items()
    }
    prepared |= {f"scalars_{n}": functools.partial(scalar_code, n) for n in SCALARS}
    rows: dict[str, Row] = {}
    with uopc.options(threads=1):
        for name, prepare in prepared.items():
            if not wanted or name in wanted:
                rows[name] = measure(prepare, args.rounds)
                print(name, rows[name], flush=True)
    text = table(rows)
    print(text)
    if args.out:
        Path(args.out).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
