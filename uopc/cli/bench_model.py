"""The times of a model with uopc and with another engine, each in its own process, in turns.

    python -m uopc.cli.bench_model ENGINE JOB     one engine: a line of JSON for each request

A process loads the model and reports the load time. For each line that it reads, it then runs the
model for a while and reports the time of each call. Its memory is the growth of the process's peak
due to the model, including arrays and code.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from uopc.cli.output import Output
from uopc.errors import Error, UserError

ENGINES = ("uopc", "onnxruntime")
SECONDS = 0.2  # of one turn
Call = Callable[[], list[Any]]


# ---------------------------------------------------------------- one engine
def _uopc(job: dict[str, Any]) -> tuple[Call, float]:
    """A call of the model by uopc, and the seconds of its compile; write its inputs."""
    import uopc.onnx
    from uopc.program.speed import random_inputs

    begin = time.perf_counter()
    with uopc.options(cache_dir=job["cache"]):
        model = uopc.onnx.load(job["model"], threads=job["threads"])
    seconds = time.perf_counter() - begin
    if model.program is None:
        raise UserError(f"{job['model']} has no output to compute")
    program, plan = model.program, model.program._runner.plan
    values = random_inputs.sizes(plan, job["sizes"])
    arrays = random_inputs.random_arrays(plan, values)
    shaped = {d.variable for a in plan.arguments for d in a.shape if not isinstance(d, int)}
    loose = {name: v for name, v in values.items() if name not in shaped}
    np.savez(job["arrays"], *arrays)

    def call() -> list[Any]:
        made = program(*arrays, **loose)
        return list(made.values()) if isinstance(made, dict) else [made]

    return call, seconds


def _onnxruntime(job: dict[str, Any]) -> tuple[Call, float]:
    """Like `_uopc`, for ONNX Runtime; read the inputs that `_uopc` wrote."""
    import onnxruntime

    begin = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job["threads"], 1
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(job["model"], options, providers)
    seconds = time.perf_counter() - begin
    with np.load(job["arrays"]) as given:
        arrays = [given[name] for name in given.files]
    inputs = {i.name: a for i, a in zip(session.get_inputs(), arrays)}
    return lambda: list(session.run(None, inputs)), seconds


def _peak() -> int:
    """The peak memory of this process in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def serve(engine: str, job: dict[str, Any]) -> None:
    """Load the model, write its results, and time it at each line of the input."""
    importlib.import_module("uopc.onnx" if engine == "uopc" else engine)
    before = _peak()
    call, seconds = (_uopc if engine == "uopc" else _onnxruntime)(job)
    results = call()
    np.savez(job[f"results of {engine}"], *results)
    print(json.dumps({"load": seconds, "memory": _peak() - before}), flush=True)
    for _ in sys.stdin:
        times: list[float] = []
        while sum(times) < SECONDS or len(times) < 3:
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        print(json.dumps({"times": times, "memory": _peak() - before}), flush=True)


# ---------------------------------------------------------------- all of them
class _EngineProcess:
    """An engine in its own process."""

    def __init__(self, engine: str, job: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "uopc.cli.bench_model", engine, json.dumps(job)]
        self.engine = engine
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.found = self._answer()
        self.times: list[float] = []

    def _answer(self) -> Any:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            raise UserError(f"{self.engine} ended early: exit code {self.child.wait()}")
        found = json.loads(line)
        if "error" in found:
            who = "" if self.engine == "uopc" else f"{self.engine}: "  # the command says uopc
            raise UserError(f"{who}{found['error']}")
        return found

    def turn(self) -> None:
        """Time the engine for a while."""
        assert self.child.stdin is not None
        print("run", file=self.child.stdin, flush=True)
        found = self._answer()
        self.times += found["times"]
        self.found["memory"] = found["memory"]

    def __enter__(self) -> _EngineProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.child.communicate()  # its input ends, and so does the process


def measured(model: Path, threads: int, rounds: int, sizes: dict[str, int]) -> dict[str, Any]:
    """The seconds and bytes of each installed engine. `again`: a second process of uopc, which
    finds the code on disk. `difference`: of results, relative to the largest."""
    engines = [e for e in ENGINES if e == "uopc" or importlib.util.find_spec(e)]
    with tempfile.TemporaryDirectory() as folder:
        job = {"model": str(model), "threads": threads, "sizes": sizes,
               "arrays": f"{folder}/arrays.npz", "cache": f"{folder}/cache",
               **{f"results of {e}": f"{folder}/{e}.npz" for e in engines}}  # fmt: skip
        with contextlib.ExitStack() as stack:
            running = [stack.enter_context(_EngineProcess(e, job)) for e in engines]
            with _EngineProcess("uopc", job) as again:
                pass
            for _ in range(rounds):
                for process in running:
                    process.turn()
        found: dict[str, Any] = {
            p.engine: {
                "load_s": p.found["load"], "best_ms": min(p.times) * 1e3,
                "median_ms": float(np.median(p.times)) * 1e3, "memory": p.found["memory"],
            }
            for p in running
        }  # fmt: skip
        found["uopc"] |= {"again_s": again.found["load"], "again_memory": again.found["memory"]}
        for engine in engines[1:]:
            names = [f"{folder}/{e}.npz" for e in ("uopc", engine)]
            found[engine]["difference"] = _difference(*names)
    return found


def _difference(one: str, other: str) -> float:
    most = 0.0
    with np.load(one) as a, np.load(other) as b:
        for name in b.files:
            x, y = a[name].astype(np.float64), b[name].astype(np.float64)
            size = float(abs(y).max(initial=0)) or 1.0
            most = max(most, float(abs(x - y).max(initial=0)) / size)
    return most


def show(out: Output, model: Path, threads: int, found: dict[str, Any], as_json: bool) -> None:
    """Print the figures."""
    if as_json:
        out.line(json.dumps({"model": str(model), "threads": threads, "engines": found}, indent=2))
        return
    heads = ("engine", "best ms", "median ms", "load s", "MiB", "again s", "MiB", "difference")
    out.table(heads, [
        (
            engine, f"{f['best_ms']:.3f}", f"{f['median_ms']:.3f}", f"{f['load_s']:.2f}",
            f"{f['memory'] / 2**20:.1f}", f"{f['again_s']:.2f}" if "again_s" in f else "-",
            f"{f['again_memory'] / 2**20:.1f}" if "again_s" in f else "-",
            f"{f['difference']:.1e}" if "difference" in f else "-",
        )
        for engine, f in found.items()
    ])  # fmt: skip
    for engine in ENGINES[1:]:
        if engine not in found:
            out.line(f"{engine} is not installed")
        else:
            ratio = found["uopc"]["median_ms"] / found[engine]["median_ms"]
            out.line(f"uopc takes {ratio:.2f} of the time of {engine}")


if __name__ == "__main__":
    try:
        serve(sys.argv[1], json.loads(sys.argv[2]))
    except Exception as error:  # the parent process shows an error of either engine to the user
        kind = "" if isinstance(error, Error) else f"{type(error).__name__}: "
        print(json.dumps({"error": f"{kind}{error}"}), flush=True)
