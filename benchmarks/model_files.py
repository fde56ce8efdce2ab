"""The cost of a model in a file for a fresh process: `kernels.py --cold` asks here, for each peer.

A process imports its library, reads the file, calls the model once, and says how much CPU time it
took from the file to a callable, how long the first call took, and its memory: the peak, of which
pages of mapped files are a part, and what is its own at the end. uopc does so with an empty cache
on disk, and then in a second process with what the first one left there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
Row = dict[str, float]
COLUMNS = {"uopc": "first process", "uopc again": "second process", "onnxruntime": "ONNX Runtime"}


def _uopc(file: str, threads: int) -> Callable[[list[np.ndarray]], Any]:
    import uopc.onnx

    return uopc.onnx.load(file, threads=threads).__call__


def _onnxruntime(file: str, threads: int) -> Callable[[list[np.ndarray]], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda *arrays: session.run(None, dict(zip(names, arrays)))[0]


LOADERS = {"uopc": (_uopc, "uopc.onnx"), "onnxruntime": (_onnxruntime, "onnxruntime")}


def _memory(kind: str) -> float:
    """Megabytes of this process by the kernel's count."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:")) / 1024


def serve(peer: str, folder: Path, threads: int) -> None:
    """One fresh process: a line of JSON."""
    load, module = LOADERS[peer]
    __import__(module)
    arrays = [np.load(f) for f in sorted(folder.glob("x*.npy"))]
    begin = time.process_time()
    call = load(str(folder / "model.onnx"), threads)
    loaded = time.process_time()
    result = call(*arrays)
    done = time.process_time()
    np.save(folder / "result.npy", result)
    print(json.dumps({
        "load": loaded - begin, "call": done - loaded,
        "peak": _memory("VmHWM"), "own": _memory("RssAnon"),
    }))  # fmt: skip


def _run(peer: str, folder: Path, threads: int, cache: Path) -> Row:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "UOPC_CACHE_DIR": str(cache), "PYTHONPYCACHEPREFIX": str(folder.parent / "bytecode"),
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    command = [sys.executable, __file__, peer, str(folder), str(threads)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def measure(
    model: bytes, inputs: list[np.ndarray], threads: int, rounds: int, seconds: float,
    error: Callable[[np.ndarray], float],
) -> dict[str, Row]:  # fmt: skip
    """The least of each number over rounds of fresh processes, and the error of each result. No
    round begins after so many seconds, but the first."""
    found: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "model"
        folder.mkdir()
        (folder / "model.onnx").write_bytes(model)
        time.sleep(2)  # a program of a file that was just written is not stored
        for i, array in enumerate(inputs):
            np.save(folder / f"x{i:03}.npy", array)
        begin = time.monotonic()
        _run("uopc", folder, threads, Path(top) / "none")  # Python's bytecode is on disk then
        for turn in range(rounds):
            if turn and time.monotonic() - begin > seconds:
                break
            cache = Path(top) / f"cache{turn}"
            for name in COLUMNS:
                row = _run(name.split()[0], folder, threads, cache)
                row["difference"] = error(np.load(folder / "result.npy"))
                best = found.setdefault(name, row)
                found[name] = {k: min(v, best[k]) for k, v in row.items()}
    return found


def line(name: str, found: dict[str, Row]) -> str:
    """A row of the table."""
    loads = " | ".join(f"{found[c]['load']:.2f}" for c in COLUMNS)
    memory = " | ".join(f"{found[c]['peak']:.0f} ({found[c]['own']:.0f})" for c in COLUMNS)
    return f"| {name} | {loads} | {memory} |"


HEAD = (
    "| model |" + "".join(f" {c}, s |" for c in COLUMNS.values())
    + "".join(f" {c}, MB (its own) |" for c in COLUMNS.values())
    + "\n" + "|---" * 7 + "|"
)  # fmt: skip


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
