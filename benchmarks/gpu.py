"""The run time of uopc's kernels on an NVIDIA device beside PyTorch and the card's own limits.

    python benchmarks/gpu.py [--workloads copy,gemm] [--peers torch,inductor] [--rounds 20]
        [--out FILE.json] [--small]

Times are the device's: events around a batch of calls, the least of the rounds; arrays stay on the
device, and between rounds more than the cache is written. Peers, where installed: `torch` (cuBLAS,
cuDNN), `inductor` (torch.compile, whose kernels are Triton's). Limits: bytes over the rate of a
copy measured here, or flops over the peak that the card's data sheet states, the longer of them.
Results are compared with the first peer's before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from gpu_workloads import TORCH, Workload, workloads

import uopc
from uopc.backends.cuda.arrays import DeviceArray
from uopc.backends.cuda.device import Device, device

FLUSH = 256 << 20  # bytes written between rounds: more than any cache
BATCH = 10
# Dense peaks of data sheets in TFLOP/s: float32 without tensor cores, tf32, half.
PEAKS = {"H200": (67, 495, 989), "H100": (67, 495, 989), "A100": (19.5, 156, 312)}


def to_device(array: np.ndarray, place: Device) -> DeviceArray:
    """A copy on the device."""
    with place:
        block = place.constant(array)
    return DeviceArray(block.address, array.shape, array.dtype, place, block)


def inputs(w: Workload) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    scale = [1.0 if len(s) < 2 or i == 0 else s[-2] ** -0.5 for i, s in enumerate(w.shapes)]
    return [(random.standard_normal(s, np.float32) * k).astype(w.dtype.numpy)
            for s, k in zip(w.shapes, scale)]  # fmt: skip


class Clock:
    """Milliseconds of device time, by the driver's events."""

    def __init__(self, place: Device, flush: int = FLUSH, batch: int = BATCH) -> None:
        from uopc.backends.cuda.binding import driver

        self.place, self.driver, self.batch = place, driver(), batch
        with place:
            self.waste = place.pool.acquire(flush)
        self.empty = np.zeros(min(flush, 16 << 20), np.uint8)

    def __call__(self, call: Callable[[], Any], rounds: int) -> float:
        """The least time of a call over the rounds, each of a batch."""
        call()
        times = []
        for _ in range(rounds):
            with self.place:
                self.driver.memcpy_htod(self.waste.address, self.empty)
                begin, end = self.driver.Event(), self.driver.Event()
                begin.record()
                for _ in range(self.batch):
                    call()
                end.record()
                end.synchronize()
                times.append(begin.time_till(end) / self.batch)
        return min(times)


def ours(w: Workload, given: list[np.ndarray], place: Device) -> tuple[Callable[[], Any], Any]:
    """A call of the compiled program, and the program."""
    program = w.compiled(f"cuda:{place.ordinal}")
    arrays = [to_device(a, place) for a in given]
    return lambda: program(*arrays), program


def peers(w: Workload, given: list[np.ndarray], names: list[str]) -> dict[str, Callable[[], Any]]:
    """The same by PyTorch, where it is installed and sees a device."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    torch.backends.cuda.matmul.allow_tf32 = w.tf32
    kind = getattr(torch, TORCH[w.dtype.name])
    tensors = [torch.from_numpy(a.astype(np.float32)).cuda().to(kind) for a in given]
    functions = torch.nn.functional

    def run(*values: Any) -> Any:
        return w.torch(functions, *values)

    compiled = torch.compile(run)
    calls = {"torch": lambda: run(*tensors), "inductor": lambda: compiled(*tensors)}
    return {name: calls[name] for name in names}


def launch_times(place: Device, rounds: int, calls: int = 200) -> dict[int, float]:
    """Microseconds of the host for a call of a cached program on the device's arrays, by how many
    launches it has: what little work costs, and from where on a CUDA graph pays."""
    times = {}
    for count in (1, 2, 3, 4, 8):
        graph = uopc.param("x", (1024,))
        for _ in range(count):
            graph = (graph * 1.5).contiguous()
        program = uopc.compile(graph, device=f"cuda:{place.ordinal}")
        if len(program.plan.launches) != count:
            raise AssertionError(f"{len(program.plan.launches)} launches where {count} were meant")
        x, found = to_device(np.ones(1024, np.float32), place), []
        for _ in range(rounds + 1):  # the first one loads the kernels, and makes the graph
            begin = time.perf_counter()
            for _ in range(calls):
                program(x)
            found.append((time.perf_counter() - begin) / calls * 1e6)
            with place:
                place.synchronize()
        times[count] = min(found[1:])
    return times


def difference(got: Any, want: Any) -> float:
    """The greatest distance, as a part of the greatest value."""
    a = np.asarray(got.numpy(), np.float64)
    b = np.asarray(want.float().cpu().numpy(), np.float64)
    return float(np.abs(a - b).max() / max(1e-30, np.abs(b).max()))


def limit(w: Workload, copy_rate: float, name: str) -> float:
    """Milliseconds below which the card cannot go."""
    kind = 1 if w.tf32 else 0 if w.dtype.itemsize == 4 else 2
    peak = next((p[kind] for card, p in PEAKS.items() if card in name), 0)
    arithmetic = w.flops / (peak * 1e9) if peak else 0.0
    return max(w.bytes / copy_rate * 1e3, arithmetic)


def measure(
    w: Workload, clock: Clock, place: Device, rounds: int, names: list[str]
) -> dict[str, Any]:
    """Times of one workload, ours and the peers', and how far the results are apart."""
    given = inputs(w)
    row: dict[str, Any] = {"name": w.name, "bytes": w.bytes, "flops": w.flops}
    try:
        call, program = ours(w, given, place)
        result = call()
        row["kernels"] = len(program.plan.launches)
    except uopc.Error as error:
        row["error"] = " ".join(str(error).split())[:200]
        call = result = None
    for name, peer in peers(w, given, names).items():
        if result is not None and name == "torch":
            row["difference"] = difference(result, peer())
        row[name] = clock(peer, rounds)
    if call is not None:
        row["uopc"] = clock(call, rounds)
    return row


def table(rows: list[dict[str, Any]], head: str) -> str:
    """A table for people: milliseconds, rates, and the part of the limit that is reached."""
    lines = [head, "", "| workload | uopc ms | torch ms | inductor ms | limit ms | of the limit | "
             "of torch | GB/s | TFLOP/s |", "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in rows:
        if "uopc" not in r:
            lines.append(f"| {r['name']} | {r.get('error', 'not run')} | | | | | | | |")
            continue
        ms = r["uopc"]
        cells = [r["name"], f"{ms:.3f}"]
        cells += [f"{r[k]:.3f}" if k in r else "" for k in ("torch", "inductor")]
        cells += [f"{r['limit']:.3f}", f"{r['limit'] / ms:.2f}"]
        cells += [f"{r['torch'] / ms:.2f}" if "torch" in r else ""]
        cells += [f"{r['bytes'] / ms * 1e-6:.0f}", f"{r['flops'] / ms * 1e-9:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--workloads", default="", help="only those whose names begin so")
    parser.add_argument(
        "--peers", default="torch,inductor",
        help="compare with these, with commas; default: %(default)s",
    )
    parser.add_argument(
        "--rounds", type=int, default=20,
        help="take this many turns of each program; default: %(default)s",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE.json", help="write the result to this file"
    )
    parser.add_argument("--small", action="store_true", help="sizes that only test the script")
    args = parser.parse_args(arguments)
    chosen = tuple(args.workloads.split(","))
    place = device(0)
    clock = Clock(place, 1 << 20, 1) if args.small else Clock(place)
    rows, rate = [], 0.0
    for w in workloads(args.small):
        if w.name != "copy" and not w.name.startswith(chosen):
            continue
        row = measure(w, clock, place, args.rounds, args.peers.split(","))
        if w.name == "copy":  # the fastest copy seen is what the card can move
            rate = w.bytes / (min(row[k] for k in ("uopc", "torch") if k in row) * 1e-3)
        row["limit"] = limit(w, rate, place.name)
        rows.append(row)
        print(f"{row['name']}: {row.get('uopc', row.get('error'))}", file=sys.stderr)
    print(table(rows, f"{place.name}, copy {rate * 1e-12:.2f} TB/s, the least of the rounds"))
    launches = launch_times(place, args.rounds, 5 if args.small else 200)
    print("\n| launches of a program | us of the host for a call |\n|---|---|")
    print(*[f"| {n} | {us:.1f} |" for n, us in launches.items()], sep="\n")
    if args.out:
        found = {"device": place.name, "rows": rows, "launches": launches}
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return int(any("error" in r for r in rows))


if __name__ == "__main__":
    sys.exit(main())
