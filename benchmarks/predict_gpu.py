"""The assembler's figures of the benchmark's kernels for a part, and the times that follow from
them.

    python benchmarks/predict_gpu.py [--part sm_90a] [--workloads copy,softmax]

Nothing here is measured. The first blocks of each launch are executed by the PTX machine of the
tests, which counts instructions, the 32-byte sectors that warps ask for, the turns of the banks of
shared memory and what tensor cores multiply; a kernel's time is the longest of them at their rates,
on the multiprocessor with the most blocks, of what it moves of its arrays at the rate of a copy
(memory), and of the same as fast as the bytes on their way to the threads arrive after the time of
a miss (latency). A workload's is at least its bytes at the rate of a copy, its flops at the peak.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np
from gpu_workloads import Workload, workloads

import uopc
from tests.ptx import machine, parse
from tests.ptx.memory import Memory
from uopc import UOp, target
from uopc.backends.nvptx.ptxas import assemble
from uopc.ir.core import storage
from uopc.ir.core.ops import Ops

# An H200: bytes a second of a copy; multiprocessors, and their clock; bytes that the L1 cache of
# one gives in a clock, instructions that its schedulers issue; TFLOP/s of float32, and of tensor
# cores at half precision.
COPY_RATE, SMS, CLOCK, L1_BYTES, ISSUED = 4.3e12, 132, 1.755e9, 128, 4
PLAIN_PEAK, TENSOR_PEAK = 67.0, 989.0
H200 = target.GPUS["sm_90a"]
MISS = 0.8e-6  # seconds from a load to its value, from memory that is busy: an assumption
# Multiplications in a clock by type of the operands, beside those of 16 bits.
TENSOR_PARTS = {"bf16": 1.0, "f16": 1.0, "tf32": 0.5, "s8": 2.0, "f64": 0.0625}
# Registers of a warp are handed out in units of this many.
REGISTER_UNIT = 256


@dataclass(frozen=True)
class Counts:
    """The work of a block: instructions of warps, bytes asked of L1 and copied past it, turns of
    banks and conflicts among them, multiplications of tensor cores; and the number of such
    blocks.
    """

    instructions: float
    asked: float
    copied: float
    turns: float
    conflicts: float
    products: float
    blocks: int

    def bounds(self, kind: str) -> dict[str, float]:
        """The least milliseconds by what limits them."""
        most = -(-self.blocks // SMS) / CLOCK * 1e3  # of a clock on the busiest multiprocessor
        rate = H200.tensor_rate * TENSOR_PARTS.get(kind, 1.0)
        l2 = H200.l2_rate * SMS * CLOCK
        return {
            "L1": self.asked / L1_BYTES * most,
            "issue": self.instructions / ISSUED * most,
            "L2": self.copied * self.blocks / l2 * 1e3,
            "shared": self.turns * most,
            "mma": self.products / rate * most,
        }


def occupancy(gpu: target.Gpu, threads: int, registers: int, shared: int) -> float:
    """The share of an SM's threads that registers, shared memory and the block's size leave."""
    warps = -(-threads // gpu.warp)
    own = -(-registers * gpu.warp // REGISTER_UNIT) * REGISTER_UNIT * warps
    blocks = gpu.threads_per_multiprocessor // (warps * gpu.warp)
    blocks = min(blocks, gpu.blocks_per_multiprocessor)
    blocks = min(blocks, gpu.registers_per_multiprocessor // max(1, own))
    if shared:
        own = shared + gpu.reserved_shared
        blocks = min(blocks, gpu.shared_per_multiprocessor // own)
    return blocks * warps * gpu.warp / gpu.threads_per_multiprocessor


def in_flight(kernel: parse.Kernel) -> int:
    """The most bytes that a thread asks global memory for without a branch between."""
    starts = set(kernel.labels.values())
    most = here = 0
    for i in kernel.instructions:
        if i.root == "bra" or i.number in starts:
            here = 0
        if i.root == "ld" and "global" in i.modifiers:
            count = next((int(m[1:]) for m in i.modifiers if m in ("v2", "v4", "v8")), 1)
            here += count * int(i.modifiers[-1][1:]) // 8
        if i.root == "cp" and i.modifiers[-1] == "global":
            here += int(getattr(i.operands[2], "value", 0))
        most = max(most, here)
    return most


def tensor_kind(asm: str) -> str:
    """The type that a kernel's tensor cores multiply; empty where it uses none."""
    return next((t for t in TENSOR_PARTS if "mma." in asm and f".{t}.{t}." in asm), "")


def moved(kernel: UOp, asked: float) -> float:
    """The bytes between a launch and memory: the storage it is called with, at most what it asks
    for."""
    params = [u for u in storage.word_places(kernel) if u.op is Ops.PARAM]
    return min(asked, sum(math.prod(p.arg.dims) * p.dtype.itemsize for p in params))


def memory_bounds(kernel: UOp, made: Counts, near: float) -> dict[str, float]:
    """The least milliseconds of what a launch moves: `near` bytes are on their way to an SM."""
    nbytes = moved(kernel, (made.asked + made.copied) * made.blocks)
    on_the_way = max(1.0, near) * SMS
    return {"memory": nbytes / COPY_RATE * 1e3, "latency": nbytes * MISS / on_the_way * 1e3}


def count(program: Any, launch: Any) -> Counts:
    """The work of the first block of a launch."""
    plan, memory = program.plan, Memory()
    sizes = [(v.shape, v.dtype) for v in (*plan.arguments, *plan.fresh)]
    places = [memory.place(np.zeros(shape, dtype)) for shape, dtype in sizes]
    places.append(memory.place(np.zeros(max(1, plan.arena_bytes), np.uint8)))
    places += [memory.place(np.ascontiguousarray(c)) for c in plan.constants]
    (text,) = [k.asm for k in program.kernels if k.name == launch.kernel]
    kernel = parse.parse(text)[launch.kernel]
    words = [places[w.base] + w.offset if hasattr(w, "base") else w.value for w in launch.words]
    args = machine.pack(kernel, words)
    room = launch.dynamic_shared
    report = machine.run(kernel, launch.grid, launch.block, args, memory, room, blocks=1)
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    own = report.sectors - report.copied
    return Counts(report.work / 32, own * 32, report.copied * 32, report.turns, report.conflicts,
                  report.products, blocks)  # fmt: skip


def rows_of(w: Workload, part: str) -> list[list[str]]:
    """A row a kernel: grid, block, what it asks for, what ptxas says, and its bound in time."""
    program = w.compiled(f"cuda:{part}")
    gpu = target.gpu_target(part).gpu
    assert gpu is not None
    kernels = {k.name: k for k in program.kernels}
    kinds = {k.name: tensor_kind(k.asm) for k in program.kernels}
    peak = max([TENSOR_PEAK * TENSOR_PARTS[t] for t in kinds.values() if t], default=PLAIN_PEAK)
    least = max(w.bytes / COPY_RATE, w.flops / (peak * 1e12)) * 1e3
    rows, total = [], 0.0
    for launch in program.plan.launches:
        kernel = kernels[launch.kernel]
        used = assemble(kernel.asm, part).kernels[kernel.name]
        made, (x, y, z) = count(program, launch), launch.block
        shared = used.shared + launch.dynamic_shared
        occupied = occupancy(gpu, x * y * z, used.registers, shared)
        resident = min(occupied * gpu.threads_per_multiprocessor, made.blocks * x * y * z / SMS)
        near = resident * in_flight(parse.parse(kernel.asm)[kernel.name])
        bounds = made.bounds(kinds[kernel.name]) | memory_bounds(kernel.uops, made, near)
        limit, ms = max(bounds.items(), key=lambda b: b[1])
        total += ms
        rows.append([
            "×".join(map(str, launch.grid)), str(x * y * z),
            f"{made.instructions * made.blocks / 1e6:.1f}",
            f"{(made.asked + made.copied) * made.blocks / 1e9:.2f}", f"{made.conflicts:.0f}",
            f"{ms:.3f}", limit, str(used.registers),
            str(used.spill_stores + used.spill_loads), str(shared),
            f"{occupied:.2f}", f"{near / 1024:.0f}",
        ])  # fmt: skip
    first = [w.name, f"{w.bytes / 1e6:.1f}", f"{w.flops / 1e9:.2f}", f"{least:.3f}",
             f"{max(total, least):.3f}", f"{least / max(total, least):.2f}"]  # fmt: skip
    return [(first if i == 0 else [""] * 6) + row for i, row in enumerate(rows)]


HEAD = ["workload", "MB", "Gflop", "card's ms", "kernels' ms", "part", "grid", "threads",
        "M instructions", "GB asked", "conflicts", "ms", "limit", "registers", "spilled", "shared",
        "occupancy", "KB in flight"]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--part", default="sm_90a", help="assemble for this GPU; default: %(default)s"
    )
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
