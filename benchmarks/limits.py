"""The least time that a workload can take on the machine of `machine.json`, and what peers took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from workloads import Workload

MACHINE: dict[str, Any] = json.loads((Path(__file__).parent / "machine.json").read_text("utf-8"))


def _bandwidth(kinds: tuple[str, ...], threads: int, bytes_: float) -> float:
    """Bytes a second of the best of some access kinds at a footprint."""
    sizes = np.log([s * 2**20 for s in MACHINE["footprint_mib"]])
    curves = [MACHINE["gb_per_s"][k][str(threads)] for k in kinds]
    return max(float(np.interp(np.log(bytes_), sizes, c)) for c in curves) * 1e9


def _memory_seconds(read: float, written: float, threads: int) -> float:
    both = 2 * min(read, written)
    footprint = read + written
    seconds = both / _bandwidth(("copy", "copy_nt"), threads, footprint)
    seconds += max(0.0, read - written) / _bandwidth(("read",), threads, footprint)
    return seconds + max(0.0, written - read) / _bandwidth(("write",), threads, footprint)


def limit_seconds(w: Workload, output: np.ndarray, threads: int) -> float:
    """max(memory, arithmetic and functions), from the machine's own measured rates."""
    read = float(sum(a.nbytes for a in w.inputs)) if w.read is None else w.read
    flops = MACHINE["gflops"]["f64" if w.double else "f32"][str(threads)] * 1e9
    busy = w.flops / flops
    for name, count in w.functions.items():
        busy += count * MACHINE["function_ns"][name][str(threads)] * 1e-9
    return max(busy, _memory_seconds(read, float(output.nbytes), threads))


def recorded(name: str, threads: int) -> dict[str, float]:
    """The times of peers on that machine, in seconds; none of a workload that is not an anchor."""
    found = MACHINE["peers_ms"].get(name, {}).get(str(threads), {})
    return {peer: ms * 1e-3 for peer, ms in found.items()}


def envelope(name: str, threads: int) -> tuple[str, float] | None:
    """The best peer of a workload on that machine, and its time in seconds."""
    found = recorded(name, threads)
    return min(found.items(), key=lambda item: item[1]) if found else None
