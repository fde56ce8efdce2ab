"""What the assembler says of the benchmark's kernels for a part, and the times that follow from it.

    python benchmarks/predict_gpu.py [--part sm_90a] [--workloads copy,softmax]

Nothing here is measured. The first blocks of each launch are executed by the PTX machine of the
tests, which counts instructions and the 32-byte sectors that warps ask for; a kernel's time is the
longer of those sectors at the rate of the L1 caches and the instructions at the rate at which they
are issued; a workload's is at least its bytes at the rate of a copy, and its flops at the peak.
Latency is not in it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np
from gpu_workloads import Workload, workloads

import uopc
from tests.ptx import machine, parse
from tests.ptx.memory import Memory
from uopc.backends import target
from uopc.backends.cuda.assembler import assemble
from uopc.passes import gpu_machine

# An H200: bytes a second of a copy and of all L1 caches; instructions a second of its 4 × 132
# schedulers at 1.755 GHz; TFLOP/s of float32, and of tensor cores at half precision.
COPY_RATE, L1_RATE, ISSUE_RATE = 4.3e12, 132 * 128 * 1.755e9, 132 * 4 * 1.755e9
PLAIN_PEAK, TENSOR_PEAK = 67.0, 989.0
SAMPLE = 1  # blocks executed of a launch


def count(program: Any, launch: Any) -> tuple[float, float]:
    """Instructions of warps and bytes asked of the caches, over a whole launch."""
    plan, memory = program.plan, Memory()
    sizes = [(v.shape, v.dtype) for v in (*plan.arguments, *plan.fresh)]
    places = [memory.place(np.zeros(shape, dtype)) for shape, dtype in sizes]
    places.append(memory.place(np.zeros(max(1, plan.arena_bytes), np.uint8)))
    places += [memory.place(np.ascontiguousarray(c)) for c in plan.constants]
    (text,) = [k.asm for k in program.kernels if k.name == launch.kernel]
    kernel = parse.parse(text)[launch.kernel]
    words = [places[w.base] + w.offset if hasattr(w, "base") else w.value for w in launch.words]
    args = machine.pack(kernel, words)
    report = machine.run(kernel, launch.grid, launch.block, args, memory, blocks=SAMPLE)
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    scale = blocks / min(SAMPLE, blocks)
    return report.work / 32 * scale, report.sectors * 32 * scale


def rows_of(w: Workload, part: str) -> list[list[str]]:
    """A row a kernel: grid, block, what it asks for, what ptxas says, and its bound in time."""
    program: Any = uopc.compile(w.graph(*w.params()), device=f"cuda:{part}")
    gpu = target.part(part).gpu
    assert gpu is not None
    asm = {k.name: k.asm for k in program.kernels}
    peak = TENSOR_PEAK if any("mma." in text for text in asm.values()) else PLAIN_PEAK
    least = max(w.bytes / COPY_RATE, w.flops / (peak * 1e12)) * 1e3
    rows, total = [], 0.0
    for launch in program.plan.launches:
        used = assemble(asm[launch.kernel], part).kernels[launch.kernel]
        instructions, asked = count(program, launch)
        ms = max(asked / L1_RATE, instructions / ISSUE_RATE) * 1e3
        total += ms
        x, y, z = launch.block
        rows.append([
            "×".join(map(str, launch.grid)), str(x * y * z), f"{instructions / 1e6:.1f}",
            f"{asked / 1e9:.2f}", f"{ms:.3f}", str(used.registers),
            str(used.spill_stores + used.spill_loads), str(used.shared),
            f"{gpu_machine.occupancy(gpu, x * y * z, used.registers, used.shared):.2f}",
        ])  # fmt: skip
    first = [w.name, f"{w.bytes / 1e6:.1f}", f"{w.flops / 1e9:.2f}", f"{least:.3f}",
             f"{max(total, least):.3f}"]  # fmt: skip
    return [(first if i == 0 else [""] * 5) + row for i, row in enumerate(rows)]


HEAD = ["workload", "MB", "Gflop", "card's ms", "kernels' ms", "grid", "threads", "M instructions",
        "GB asked", "ms", "registers", "spilled", "shared", "occupancy"]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--part", default="sm_90a")
    parser.add_argument("--workloads", default="", help="only those whose names begin so")
    args = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
    failed = False
    for w in workloads():
        if not w.name.startswith(tuple(args.workloads.split(","))):
            continue
        try:
            for row in rows_of(w, args.part):
                print("| " + " | ".join(row) + " |", flush=True)
        except uopc.Error as error:
            failed = True
            print(f"| {w.name} | not compiled: {' '.join(str(error).split())[:80]} |")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
