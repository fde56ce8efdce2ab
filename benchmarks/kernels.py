"""The run time of uopc's kernels beside NumPy's and of every other peer that is installed.

    python benchmarks/kernels.py [--threads 2,1] [--workloads a,b] [--peers a,b] [--rounds 5]
                                 [--out FOLDER] [--cpu | --realtime]
    python benchmarks/kernels.py --cold --workloads models [--rounds 5] [--seconds 60]

A workload is a name, or a group: anchors, odd, more, places, matrices, models, own. Without it:
all but models.
One warm process for each peer; they take turns, and whoever's turn it is not is stopped, so that
idle threads that spin take nothing from the others. With --cpu a time is the CPU time of the
process, on one thread: the way on a busy machine. With --realtime whoever's turn it is runs before
all other processes (Linux, as root), and then rests: the way with several threads there. A row is
judged by the least of its rounds' medians; one whose rounds differ by more than 30% is measured
again. With --out: `kernels.json`, `kernels.md` and (where matplotlib is installed) `kernels.png` go
to the folder. With --cold: seconds from a model's file to a callable and the memory of fresh
processes, of uopc and ONNX Runtime alone; a model that has taken `--seconds` gets no further round.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import math
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import model_files
from kernel_report import OURS, markdown, plot
from limits import limit_seconds
from matrix_workloads import MATRICES
from model_workloads import MODELS
from more_workloads import MORE
from own_workloads import OWN
from peers import NUMPY, PEERS, installed
from place_workloads import PLACES
from workloads import ANCHORS, ODD, WORKLOADS, Workload

# Names that stand for several workloads.
GROUPS = {"anchors": ANCHORS, "odd": ODD, "more": MORE, "places": PLACES,
          "matrices": MATRICES, "models": list(MODELS), "own": OWN}  # fmt: skip

SPREAD = 0.30  # (greatest - least) / median of the rounds above which a row is measured again
TRIES = 3
BURST = 0.05  # seconds of samples in a peer's turn
SHORTEST = 2e-4  # calls are timed in batches of at least that many seconds
PATIENCE = 60.0  # seconds a start or a turn may take
ONE_TURN = 0.5  # a call slower than this is sampled once a turn
# Freed memory is kept, so that nobody pays page faults for a fresh output at each call.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}  # fmt: skip


# ------------------------------------------------------------------ the process of a peer
def sample(call: Callable[[], Any], seconds: float, clock: Callable[[], float]) -> list[float]:
    """Seconds a call: samples for about that long, each of a batch where calls are short."""
    begin = clock()
    call()
    once = clock() - begin
    if once > ONE_TURN:
        return [once]
    batch = max(1, int(SHORTEST / max(once, 1e-7)))
    while clock() - begin < min(seconds / 5, 10 * once):
        call()
    found: list[float] = []
    end = clock() + seconds
    while clock() < end or len(found) < 3:
        begin = clock()
        for _ in range(batch):
            call()
        found.append((clock() - begin) / batch)
    return found


def serve(name: str, threads: int, cpu: bool) -> None:
    """Answer requests, a line of JSON each, until the input ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # a stopped process must not outlive its parent
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is not an answer
    if threads == 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    peer = PEERS[name](threads)
    clock = time.process_time if cpu else time.perf_counter
    print(json.dumps({}), file=answers)
    call: Callable[[], Any] | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "prepare" in request:
                call = None
                call = peer.prepare(WORKLOADS[request["prepare"]]())
                begin = time.perf_counter()
                result = call()
                answer: dict[str, Any] = {"first": time.perf_counter() - begin}
                np.save(request["file"], peer.array(result))
                del result
            else:
                assert call is not None
                answer = {"samples": sample(call, request["burst"], clock)}
        except Exception as error:  # a peer that cannot do a workload must not end the run
            call = None
            answer = {"error": f"{type(error).__name__}: {str(error).strip()[:200]}"}
        print(json.dumps(answer), file=answers)


def run_first(process: int, first: bool) -> None:
    """All threads of a process run before those of other processes, or as these do."""
    policy = os.SCHED_FIFO if first else os.SCHED_OTHER
    for thread in os.listdir(f"/proc/{process}/task"):
        try:
            os.sched_setscheduler(int(thread), policy, os.sched_param(int(first)))
        except ProcessLookupError:  # it has ended
            continue


def may_run_first() -> bool:
    """True if the system lets this process run before others, and so those that it starts."""
    try:
        run_first(os.getpid(), True)
    except (AttributeError, OSError):  # no Linux, or no right to it
        return False
    run_first(os.getpid(), False)
    return True


class Worker:
    """The process of a peer: stopped except while it answers."""

    def __init__(self, name: str, threads: int, cpu: bool, realtime: bool = False) -> None:
        self.name, self.realtime = name, realtime
        self.arguments = (name, threads, cpu)
        self._start()

    def _start(self) -> None:
        name, threads, cpu = self.arguments
        environment = os.environ | KEEP_MEMORY
        for key, value in PEERS[name].environment.items():
            environment[key] = value.format(threads=threads)
        paths = [str(HERE.parent), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        command = [sys.executable, __file__, "--serve", name, "--threads", str(threads)]
        command += ["--cpu"] if cpu else []
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment, start_new_session=True, bufsize=0,
        )  # fmt: skip
        self._rest = b""
        self._answer(PATIENCE)
        os.killpg(self.process.pid, signal.SIGSTOP)

    def _answer(self, patience: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        end = time.monotonic() + patience
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError(f"no answer within {patience:.0f} s")
            got = os.read(self.process.stdout.fileno(), 1 << 20)
            if not got:
                raise EOFError(f"the process ended with {self.process.wait()}")
            self._rest += got
        line, self._rest = self._rest.split(b"\n", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer; one with `error` (and a fresh process) where there is none."""
        assert self.process.stdin is not None
        first = self.realtime and "burst" in request
        if first:
            run_first(self.process.pid, True)
        os.killpg(self.process.pid, signal.SIGCONT)
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        patience = PEERS[self.name].patience if "prepare" in request else PATIENCE
        try:
            answer = self._answer(patience)
        except (TimeoutError, EOFError) as error:
            self.stop()
            self._start()
            return {"error": str(error)}
        os.killpg(self.process.pid, signal.SIGSTOP)
        if first:
            run_first(self.process.pid, False)
            time.sleep(2 * BURST)  # what waited runs
        return answer

    def stop(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


# ------------------------------------------------------------------ measuring
def reference(w: Workload) -> np.ndarray:
    """The workload in float64 by NumPy."""
    inputs = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in w.inputs]
    return np.asarray(w.body(NUMPY, *inputs))


def error_of(w: Workload, expected: np.ndarray, got: np.ndarray) -> float:
    """The greatest difference in units of the greatest value, or the share that differs."""
    if got.shape != expected.shape:
        return math.inf
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    if w.share:
        return float((difference > 0).mean())
    return float(difference.max() / max(np.abs(expected).max(), 1e-300))


def spread(rounds: list[float]) -> float:
    return (max(rounds) - min(rounds)) / statistics.median(rounds)


def measure(workers: list[Worker], found: dict[str, dict[str, Any]], rounds: int) -> None:
    """Rounds of turns, again while uopc's or the best peer's differ too much."""
    for attempt in range(TRIES):
        for k in range(rounds):
            turn = k % max(1, len(workers))
            for worker in workers[turn:] + workers[:turn]:
                row = found[worker.name]
                if "error" in row:
                    continue
                answer = worker.ask(burst=BURST)
                if "error" in answer:
                    row["error"] = answer["error"]
                else:
                    row.setdefault("rounds", []).append(statistics.median(answer["samples"]))
        good = {n: r["rounds"] for n, r in found.items() if "error" not in r}
        others = [r for n, r in good.items() if n not in OURS]
        judged = [r for n, r in good.items() if n == "uopc"] + sorted(others, key=min)[:1]
        latest = [r[-rounds:] for r in judged]
        if not any(spread(r) > SPREAD for r in latest):
            break
        if attempt + 1 < TRIES:
            time.sleep(1.0)  # whoever else ran may be done


def run_workload(name: str, workers: list[Worker], threads: int, rounds: int) -> dict[str, Any]:
    """One row: times, errors and compile times of all peers, and the limit."""
    w = WORKLOADS[name]()
    expected = reference(w)
    found: dict[str, dict[str, Any]] = {}
    limit = math.nan
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/result.npy"
        for worker in workers:
            row = found[worker.name] = worker.ask(prepare=name, file=file)
            if "error" not in row:
                got = np.load(file)
                row["difference"] = error_of(w, expected, got)
                if not row["difference"] <= w.tolerance:
                    row["wrong"] = True
                limit = limit_seconds(w, got, threads)
    measure(workers, found, rounds)
    for peer, row in found.items():
        if "rounds" in row and "error" not in row:
            row["seconds"], row["spread"] = min(row["rounds"]), spread(row["rounds"])
            compiles = PEERS[peer].compiles
            row["compile"] = max(0.0, row["first"] - row["seconds"]) if compiles else 0.0
    return {"limit": limit, "peers": found}


def run(
    names: list[str], peers: list[str], threads: int, rounds: int, cpu: bool = False,
    realtime: bool = False,
) -> Iterator[tuple[str, dict[str, Any]]]:  # fmt: skip
    workers: list[Worker] = []
    try:
        workers += [Worker(p, threads, cpu, realtime) for p in peers]
        for name in names:
            yield name, run_workload(name, workers, threads, rounds)
    finally:
        for worker in workers:
            worker.stop()


def run_cold(names: list[str], threads: int, rounds: int, seconds: float) -> int:
    """A row for each model, each peer in fresh processes; 1 if a result is wrong."""
    import onnx_graph

    wrong = 0
    print(model_files.HEAD, flush=True)
    for name in names:
        w = WORKLOADS[name]()
        error = functools.partial(error_of, w, reference(w))
        model = onnx_graph.model(w)
        found = model_files.measure(model, w.inputs, threads, rounds, seconds, error)
        print(model_files.line(name, found), flush=True)
        wrong += any(row["difference"] > w.tolerance for row in found.values())
    return 1 if wrong else 0


def one_line(name: str, row: dict[str, Any]) -> str:
    parts = [f"{name:20}"]
    for peer, r in row["peers"].items():
        if "seconds" in r:
            wrong = " WRONG" if r.get("wrong") else ""
            parts.append(f"{peer} {r['seconds'] * 1e3:.4g} ms{wrong}")
        else:
            parts.append(f"{peer} -")
    return "  ".join(parts)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)

    def listed(text: str) -> list[str]:
        return text.split(",")

    parser.add_argument(
        "--threads", type=listed, default=["2", "1"],
        help="time with these numbers of threads; default: %(default)s",
    )
    small = [n for n in WORKLOADS if n not in MODELS]
    parser.add_argument(
        "--workloads", type=listed, default=small,
        help="time these workloads or groups, with commas",
    )
    parser.add_argument(
        "--peers", type=listed, default=installed(),
        help="compare with these, with commas; default: all that are installed",
    )
    parser.add_argument(
        "--rounds", type=int, default=5,
        help="take this many turns of each program; default: %(default)s",
    )
    parser.add_argument("--out", type=Path, help="write kernels.json, .md and .png to this folder")
    clock = parser.add_mutually_exclusive_group()
    clock.add_argument("--cpu", action="store_true", help="CPU time, on one thread")
    clock.add_argument("--realtime", action="store_true", help="turns run before other processes")
    parser.add_argument("--cold", action="store_true", help="models in fresh processes")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a model, with --cold")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve, int(options.threads[0]), options.cpu)
        return 0
    if options.realtime and not may_run_first():
        parser.error("--realtime: the system does not let this process run before others")
    if options.cpu or options.cold:
        options.threads = ["1"]
    options.workloads = [n for g in options.workloads for n in GROUPS.get(g, [g])]
    for given, known in ((options.workloads, WORKLOADS), (options.peers, PEERS)):
        unknown = [n for n in given if n not in known]
        if unknown:
            parser.error(f"no {', '.join(unknown)}; there are {', '.join(known)}")
    if options.cold:
        threads = int(options.threads[0])
        return run_cold(options.workloads, threads, options.rounds, options.seconds)
    return _report(options)


def _report(options: argparse.Namespace) -> int:
    begin = time.monotonic()
    load = 0.0 if options.realtime else os.getloadavg()[0]  # of what may run beside a turn
    results: dict[str, Any] = {"load": load, "numpy": np.__version__, "runs": {}}
    wrong = 0
    for threads in map(int, options.threads):
        rows = results["runs"][str(threads)] = {}
        print(f"threads: {threads}", flush=True)
        for name, row in run(
            options.workloads, options.peers, threads, options.rounds, options.cpu,
            options.realtime,
        ):  # fmt: skip
            rows[name] = row
            print(one_line(name, row), flush=True)
            wrong += bool({"wrong", "error"} & row["peers"].get("uopc", {}).keys())
    results["seconds"] = time.monotonic() - begin
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "kernels.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        (options.out / "kernels.md").write_text(markdown(results), "utf-8")
        plot(results, options.out / "kernels.png")
    else:
        print(markdown(results), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
