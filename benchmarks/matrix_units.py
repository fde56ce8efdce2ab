"""Products of bfloat16 and of bytes, on the matrix units of a CPU, beside PyTorch (oneDNN).

    python benchmarks/matrix_units.py [--threads 1,2] [--sizes 512,1024,2048,4096] [--rounds 5]
        [--cpu]

Each row is a call by uopc and one by PyTorch in turns; times are the least of the rounds, with
`--cpu` of the processor, on one thread, for a machine that others use. Layers have the weights of
each output in a row. `GMAC/s`
are multiply-adds of uopc. `error` is the greatest distance from PyTorch's result, as a part of its
greatest value: products of bytes are exact. The head names the units that uopc finds here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import torch
from gpu_workloads import Workload

import uopc
from uopc import UOp, dtypes
from uopc.backends import detect

BF16, F32, I32 = dtypes.bfloat16, dtypes.float32, dtypes.int32
UNITS = ("amx-tile", "amx-bf16", "amx-int8", "avx512bf16", "avx512fp16", "avx512vnni", "avxvnni")


def _attention(q: UOp, k: UOp, v: UOp) -> UOp:
    scores = (q @ k.transpose(-1, -2)).cast(F32) * q.shape[-1] ** -0.5
    return scores.softmax(axis=-1).cast(BF16) @ v


def _torch_attention(f: Any, q: Any, k: Any, v: Any) -> Any:
    return f.scaled_dot_product_attention(q, k, v)


def _mlp(x: UOp, up: UOp, down: UOp) -> UOp:
    return (x @ up).relu() @ down


def _torch_mlp(f: Any, x: Any, up: Any, down: Any) -> Any:
    return f.relu(x @ up) @ down


def _layers(x: UOp, up: UOp, down: UOp) -> UOp:
    return (x @ up.T).gelu() @ down.T


def _torch_layers(f: Any, x: Any, up: Any, down: Any) -> Any:
    return f.linear(f.gelu(f.linear(x, up)), down)


def rows(sizes: tuple[int, ...]) -> Iterator[Workload]:
    """All of them, made one at a time."""
    for n in sizes:
        shapes = ((n, n), (n, n))
        yield Workload(f"bf16 {n}", shapes, BF16, lambda a, b: a @ b,
                       lambda f, a, b: a @ b, 2 * n**3)  # fmt: skip
        yield Workload(f"int8 {n}", shapes, dtypes.int8, lambda a, b: a.cast(I32) @ b.cast(I32),
                       lambda f, a, b: torch._int_mm(a, b), 2 * n**3)  # fmt: skip
    for m in (1, 5, 17, 64, 333):
        deep, wide = (1023, 1021) if m == 333 else (1024, 1024)
        shapes, macs = ((m, deep), (wide, deep)), m * deep * wide
        yield Workload(f"bf16 layer, {m} rows", shapes, BF16, lambda a, b: a @ b.T,
                       lambda f, a, b: f.linear(a, b), 2 * macs)  # fmt: skip
        yield Workload(f"int8 layer, {m} rows", shapes, dtypes.int8,
                       lambda a, b: a.cast(I32) @ b.T.cast(I32),
                       lambda f, a, b: torch._int_mm(a, b.T), 2 * macs)  # fmt: skip
    heads = ((8, 512, 64),) * 3
    yield Workload("attention bf16", heads, BF16, _attention, _torch_attention, 4 * 8 * 512**2 * 64)
    layers = ((256, 1024), (1024, 4096), (4096, 1024))
    yield Workload("mlp bf16", layers, BF16, _mlp, _torch_mlp, 4 * 256 * 1024 * 4096)
    heads = ((12, 197, 64),) * 3
    yield Workload("attention bf16, 12 x 197 x 64", heads, BF16, _attention, _torch_attention,
                   4 * 12 * 197**2 * 64)  # fmt: skip
    layers = ((256, 768), (3072, 768), (768, 3072))
    yield Workload("layers bf16, gelu", layers, BF16, _layers, _torch_layers, 4 * 256 * 768 * 3072)


def arrays(w: Workload) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    if w.dtype == dtypes.int8:
        return [random.integers(-128, 128, s, np.int8) for s in w.shapes]
    return [(random.standard_normal(s, np.float32) * s[-2] ** -0.25).astype(ml_dtypes.bfloat16)
            for s in w.shapes]  # fmt: skip


def tensor(array: np.ndarray) -> Any:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def seconds(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Of one call, in a batch that takes 20 ms or more."""
    count = 1
    while True:
        begin = clock()
        for _ in range(count):
            call()
        taken = clock() - begin
        if taken > 0.02:
            return taken / count
        count *= 4


def measure(w: Workload, threads: int, rounds: int, clock: Callable[[], float]) -> str:
    given = arrays(w)
    program = uopc.compile(w.graph(*w.params()), threads=threads)
    tensors = [tensor(a) for a in given]
    torch.set_num_threads(threads)

    def peer() -> Any:
        return w.torch(torch.nn.functional, *tensors)

    got, want = np.asarray(program(*given), np.float64), peer().double().numpy()
    error = np.abs(got - want).max() / np.abs(want).max()
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(seconds(lambda: program(*given), clock))
        theirs.append(seconds(peer, clock))
    best, other = min(ours), min(theirs)
    return (f"| {w.name} | {threads} | {best * 1e3:.3f} | {other * 1e3:.3f} | {best / other:.2f} | "
            f"{w.flops / best * 5e-10:.0f} | {error:.1e} |")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--threads", default="1,2", help="time with these numbers of threads; default: %(default)s"
    )
    parser.add_argument(
        "--sizes", default="512,1024,2048,4096",
        help="time these sizes, with commas; default: %(default)s",
    )
    parser.add_argument(
        "--rounds", type=int, default=5,
        help="take this many turns of each program; default: %(default)s",
    )
    parser.add_argument("--cpu", action="store_true", help="take CPU time")
    args = parser.parse_args()
    threads_of = "1" if args.cpu else args.threads
    clock = time.process_time if args.cpu else time.perf_counter
    features = detect.host().features.split(",")
    found = [u for u in UNITS if f"+{u}" in features]
    print(f"Units: {', '.join(found) or 'none'}. PyTorch {torch.__version__}.\n")
    print("| product | threads | uopc ms | PyTorch ms | ratio | GMAC/s | error |")
    print("|---|---|---|---|---|---|---|")
    for threads in (int(t) for t in threads_of.split(",")):
        for row in rows(tuple(int(n) for n in args.sizes.split(","))):
            print(measure(row, threads, args.rounds, clock), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
