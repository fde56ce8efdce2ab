"""What the assembler says of the benchmark's kernels for a part, and the times that follow from it.

    python benchmarks/predict_gpu.py [--part sm_90a] [--workloads copy,softmax]

Nothing here is measured. A time is the greater of bytes over the copy rate and flops over the peak
that the kernel's instructions have; what a kernel really reads and whether latency is hidden are
not in it, so it is a lower bound to be confirmed or refuted on a device.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from gpu_workloads import Workload, workloads  # noqa: E402

import uopc  # noqa: E402
from uopc.backends import target  # noqa: E402
from uopc.backends.cuda.assembler import Usage, assemble  # noqa: E402

# An H200: bytes a second of a copy; TFLOP/s of float32, and of tensor cores at half precision.
COPY_RATE, PLAIN_PEAK, TENSOR_PEAK = 4.3e12, 67.0, 989.0
UNIT = 256  # registers of a warp are handed out in these


def occupancy(used: Usage, threads: int, gpu: target.Gpu) -> float:
    """The part of an SM's threads that registers, shared memory and the block's size leave."""
    warps = -(-threads // gpu.warp)
    own = -(-used.registers * gpu.warp // UNIT) * UNIT * warps
    blocks = gpu.threads_per_multiprocessor // (warps * gpu.warp)
    blocks = min(blocks, gpu.registers_per_multiprocessor // max(1, own))
    if used.shared:
        blocks = min(blocks, gpu.shared_per_multiprocessor // (used.shared + 1024))
    return blocks * warps * gpu.warp / gpu.threads_per_multiprocessor


def rows_of(w: Workload, part: str) -> list[list[str]]:
    """A row a kernel: launches, block, registers, spills, shared bytes, occupancy, time."""
    program: Any = uopc.compile(w.graph(*w.params()), device=f"cuda:{part}")
    gpu = target.part(part).gpu
    assert gpu is not None
    tensor = any("mma." in k.asm for k in program.kernels)
    peak = TENSOR_PEAK if tensor else PLAIN_PEAK
    ms = max(w.bytes / COPY_RATE, w.flops / (peak * 1e12)) * 1e3
    rows = []
    for i, k in enumerate(program.kernels):
        used = assemble(k.asm, part).kernels[k.name]
        threads = k.block[0] * k.block[1] * k.block[2]
        grid = "×".join(str(d.arg if hasattr(d, "arg") else d) for d in k.grid)
        count = len(re.findall(r"^\s+(?:@\S+ )?[a-z][\w.:]*\s[^;]*;", k.asm, re.M))
        first = [w.name, f"{w.bytes / 1e6:.1f}", f"{w.flops / 1e9:.2f}", f"{ms:.3f}"]
        rows.append([
            *(first if i == 0 else [""] * 4), grid, str(threads), str(count), str(used.registers),
            str(used.spill_stores + used.spill_loads), str(used.shared),
            f"{occupancy(used, threads, gpu):.2f}",
        ])  # fmt: skip
    return rows


HEAD = ["workload", "MB", "Gflop", "≥ ms", "grid", "threads", "instructions", "registers",
        "spilled", "shared", "occupancy"]  # fmt: skip


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
