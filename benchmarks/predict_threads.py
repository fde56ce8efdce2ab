"""The predicted speed-up of workloads on described machines of 8 and 64 cores, and of two sockets.

    python benchmarks/predict_threads.py [NAME...]      a table, in a few seconds a workload

Each workload is lowered for 1 thread, for one thread a core, and for twice as many threads as
cores, on the described machine; nothing runs. `uopc/cost/threads.py` says what is not modelled.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from dataclasses import replace

import workloads
from peers import Uopc

import uopc
from uopc import config
from uopc.cost.machine import machine_of
from uopc.cost.threads import cycles_of_threads
from uopc.ir.nest.describe import outline_of
from uopc.program.request import lower, prepare
from uopc.target import CPUS, Target

NAMES = (
    "gemm_512", "gemm_2048", "conv2d_3x3_64", "transformer_block", "softmax_4096x1024",
    "sum_axis0_4096", "chain_4m", "axpy_16m", "transpose_add_4096", "digits_cnn",
)  # fmt: skip
KIB, MIB = 1 << 10, 1 << 20


def described(cpu: str, caches: tuple[int, int, int], shared_bytes: float) -> Target:
    """A machine whose memory gives so many bytes per cycle to all threads of a socket."""
    bits, registers, _ = CPUS[cpu]
    made = Target("described", "cpu", bits, registers, cpu, "", *caches)
    return replace(made, figures=replace(made.figures, shared_bytes=shared_bytes))


# By name: the machine, its cores and its sockets.
MACHINES = {
    "8 cores": (described("x86-64-v3", (32 * KIB, 512 * KIB, 16 * MIB), 12.0), 8, 1),
    "64 cores": (described("x86-64-v4", (48 * KIB, 2 * MIB, 105 * MIB), 60.0), 64, 1),
    "2 x 32 cores": (described("x86-64-v4", (48 * KIB, 2 * MIB, 105 * MIB), 60.0), 64, 2),
}


def predicted(graph: uopc.UOp, target: Target, cores: int, sockets: int, threads: int) -> float:
    """The cycles of all launches of a graph that is lowered for so many threads."""
    request = prepare(graph, None, True, threads, None, config.current())
    (run,) = [r for r in lower(request, target).runs if r.name == "optimize"]
    machine = machine_of(target, cores, sockets)
    return sum([cycles_of_threads(outline_of(k), machine) for k in run.after])


def main(names: list[str]) -> None:
    """Print a row for each workload: the speed-up of as many threads as cores, and of twice as
    many, on each machine."""
    print(f"| workload | {' | '.join(MACHINES)} |")
    print("|---" * (1 + len(MACHINES)) + "|")
    operators = Uopc(1).operators
    for name in names or NAMES:
        made = workloads.WORKLOADS[name]()
        inputs = [uopc.param(f"x{i}", a.shape, str(a.dtype)) for i, a in enumerate(made.inputs)]
        graph, cells = made.body(operators, *inputs), []
        for target, cores, sockets in MACHINES.values():
            one, each, twice = [
                predicted(graph, target, cores, sockets, n) for n in (1, cores, 2 * cores)
            ]
            cells.append(f"{one / each:.1f} ({one / twice:.1f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
