"""The time to compile graphs, and its growth, beside every peer that is installed.

    python benchmarks/compile_time.py [--recorded FOLDER] [--cases a,b] [--peers uopc,jax,tinygrad]
                                      [--rounds 3] [--minutes 8] [--out FOLDER] [--million]

Each case runs in a fresh process with cold caches; libraries take turns, round after round. Times
are CPU seconds of the process (and of its children), medians over the rounds; a case that takes
over 60 s is given up. `--recorded`: the folder of recorded graphs (zips), which only uopc can read;
what tinygrad took for them is in the recording. With --out: `compile_time.json`, `compile_time.md`
and `compile_time.png` (with matplotlib) go to the folder. `--python PEER=PATH`: the interpreter of
an environment in which a peer is installed. `--million`: the chain and the stack alone, up to
1,000,000 nodes, as far as the linear program, a round; with the bytes that a live node takes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from growth import GROWTH, exponent, uopc_operators

LIMIT = 60  # seconds a case may take
LINEAR_LIMIT = 600  # of a million nodes
LINEAR = "linear"  # the peer that is uopc without code generation
MILLION = {"chain": (62_500, 250_000, 1_000_000), "stack": (32_768, 131_072, 524_288)}
COLD = {
    "UOPC_CACHE_DIR": "", "CCACHE": "0", "CACHELEVEL": "0", "PARALLEL": "0", "DEV": "CPU",
    "JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip
Row = dict[str, Any]


def clock() -> float:
    """CPU seconds of this process and of the children it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


# ------------------------------------------------------------------ one case in one process
def measure_uopc(build: Callable[[Any], Any]) -> Row:
    import numpy as np

    import uopc

    w = uopc.param("w", (1 << 21,))
    uopc.compile((w * 2).exp() + w.sum())(np.zeros(1 << 21, "f4"))  # imports, threads, calibration
    time.perf_counter = time.process_time  # stages in CPU seconds, like the total
    operators = uopc_operators()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = clock()
    graph = build(operators)
    built = clock()
    program = uopc.compile(graph)
    done = clock()
    stats = program.stats
    return {
        "build": built - start, "total": done - built, "llvm": stats["llvm"],
        "stages": {k: round(v, 4) for k, v in stats["passes"].items()}, "nodes": stats["nodes"],
        "kernels": len(program.kernels), "launches": stats["launches"],
        "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }  # fmt: skip


def measure_jax(build: Callable[[Any], Any]) -> Row:
    import jax
    import jax.numpy as jnp

    jax.jit(lambda x: x + 1).lower(jnp.zeros(3)).compile()
    shapes: dict[str, Any] = {}
    operators = SimpleNamespace(
        exp=jnp.exp, relu=lambda x: jnp.maximum(x, 0), tanh=jnp.tanh, rsqrt=jax.lax.rsqrt,
        mean=lambda x: x.mean(-1, keepdims=True), sum=lambda x: x.sum(-1, keepdims=True),
        reshape=jnp.reshape, permute=jnp.transpose, stack=jnp.stack,
        update=lambda x, at, v: x.at[at : at + v.shape[0]].set(v),
    )  # fmt: skip
    operators.param = lambda name, dims: shapes.setdefault(name, jnp.zeros(dims, "float32"))
    build(operators)  # only to learn the arguments
    start = clock()

    def call(arguments: dict[str, Any]) -> Any:
        operators.param = lambda name, dims: arguments[name]
        return build(operators)

    lowered = jax.jit(call).lower(shapes)
    traced = clock()
    lowered.compile()
    done = clock()
    return {"build": traced - start, "total": done - start, "llvm": done - traced}


def measure_tinygrad(build: Callable[[Any], Any]) -> Row:
    from tinygrad import Tensor

    def updated(x: Any, at: int, v: Any) -> Any:
        x[at : at + v.shape[0]].assign(v)
        return x

    (Tensor.empty(3) + 1).realize()
    operators = SimpleNamespace(
        exp=Tensor.exp, relu=Tensor.relu, tanh=Tensor.tanh, rsqrt=Tensor.rsqrt,
        mean=lambda x: x.mean(-1, keepdim=True), sum=lambda x: x.sum(-1, keepdim=True),
        reshape=Tensor.reshape, permute=Tensor.permute, stack=lambda xs: xs[0].stack(*xs[1:]),
        param=lambda name, dims: Tensor.empty(*dims), update=updated,
    )  # fmt: skip
    start = clock()
    graph = build(operators)
    built = clock()
    outputs = graph if isinstance(graph, list) else [graph]
    outputs[0].realize(*outputs[1:])
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"build": built - start, "total": clock() - built, "llvm": children.ru_utime}


def resident() -> int:
    """Bytes of this process in memory, now."""
    return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * resource.getpagesize()


def measure_linear(build: Callable[[Any], Any]) -> Row:
    from uopc.driver import lower_only
    from uopc.ir.core import arena

    operators = uopc_operators()
    lower_only(operators.param("w", (8,)).exp(), verify=False)  # imports, calibration
    nodes, before = len(arena.table), resident()
    start = clock()
    graph = build(operators)
    built = clock()
    made, held = len(arena.table) - nodes, resident() - before
    with arena.arena():
        lowered = lower_only(graph, verify=False)
        done = clock()
        live = len(arena.table) - nodes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "build": built - start, "total": done - built, "nodes": made,
        "kernels": len(lowered.kernels), "megabytes": peak >> 20, "node_bytes": held / made,
        "live": live,
    }  # fmt: skip


MEASURES = {
    "uopc": measure_uopc, LINEAR: measure_linear, "jax": measure_jax, "tinygrad": measure_tinygrad,
}  # fmt: skip


def recorded(path: str) -> Callable[[Any], Any]:
    """A recorded graph, node by node: FILE.zip:TEST."""
    from tests.conformance import loader

    file, _, test = path.rpartition(":")
    with zipfile.ZipFile(file) as archive:
        lines = archive.read("cases.jsonl").decode().splitlines()
    case = next(c for c in map(json.loads, lines) if c["test"] == test)
    return lambda e: loader.load(case).outputs


def serve(peer: str, case: str, size: int) -> None:
    """Measure one case in this process; a line of JSON."""
    build = recorded(case) if ".zip:" in case else lambda e: GROWTH[case][0](e, size)
    print(json.dumps(MEASURES[peer](build)))


# ------------------------------------------------------------------ all cases
def run(python: str, peer: str, case: str, size: int) -> Row:
    command = [python, __file__, "--serve", peer, case, str(size)]
    seconds = LINEAR_LIMIT if peer == LINEAR else LIMIT
    limit = f"ulimit -t {seconds + 5}; exec " + " ".join(f'"{c}"' for c in command)
    try:
        done = subprocess.run(
            ["bash", "-c", limit], capture_output=True, text=True, timeout=seconds + 30,
            env=os.environ | COLD,
        )  # fmt: skip
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (subprocess.TimeoutExpired, IndexError, json.JSONDecodeError):
        return {"failed": True}


def find_recorded(folder: Path) -> dict[str, tuple[str, Row]]:
    """name -> how a process finds the case, and what was recorded about it."""
    found: dict[str, tuple[str, Row]] = {}
    for file in sorted(folder.glob("*.zip")):
        with zipfile.ZipFile(file) as archive:
            for line in archive.read("cases.jsonl").decode().splitlines():
                case = json.loads(line)
                found[case["test"]] = (f"{file}:{case['test']}", case.get("tinygrad_s") or {})
    return found


def median(rows: list[Row]) -> Row:
    """The row of median total; failed rows count as the worst."""
    good = sorted([r for r in rows if "total" in r], key=lambda r: float(r["total"]))
    return good[(len(good) - 1) // 2] if len(good) * 2 > len(rows) else {"failed": True}


def collect(args: argparse.Namespace) -> dict[str, Any]:
    """Every case for every peer, in turns, until the time is up."""
    pythons = dict(p.split("=", 1) for p in args.python)
    wanted = set(filter(None, args.cases.split(",")))
    known = find_recorded(Path(args.recorded)) if args.recorded else {}
    cases = [(n, s, n) for n, (_, sizes) in GROWTH.items() for s in sizes]
    cases += [(name, 0, place) for name, (place, _) in known.items()]
    cases = [c for c in cases if not wanted or c[0] in wanted]
    rows: dict[tuple[str, int, str], list[Row]] = {}
    end = time.monotonic() + 60 * args.minutes
    for _ in range(args.rounds):
        for name, size, place in cases:
            for peer in args.peers.split(","):
                key = (name, size, peer)
                given_up = any(r.get("failed") for r in rows.get(key, []))
                smaller = [k for k, r in rows.items() if k[0] == name and k[2] == peer
                           and k[1] < size and any(x.get("failed") for x in r)]  # fmt: skip
                late = (rows.get(key) or peer != "uopc") and time.monotonic() > end
                if (peer != "uopc" and not size) or given_up or smaller or late:
                    continue
                got = run(pythons.get(peer, sys.executable), peer, place, size)
                rows.setdefault(key, []).append(got)
                print(name, size or "", peer, got.get("total", "failed"), flush=True)
    results = [
        {"case": n, "size": s, "peer": p, "rounds": len(r), **median(r)}
        for (n, s, p), r in rows.items()
    ]
    return {"results": results, "recorded": {n: seconds for n, (_, seconds) in known.items()}}


def report_million() -> None:
    """A line a case and size, with the exponent of building and lowering over the nodes."""
    print("| case | nodes | build s | to linear s | nodes/s | peak MB | B a node | live at end |")
    print("|---|---|---|---|---|---|---|---|")
    for case, sizes in MILLION.items():
        rows = [run(sys.executable, LINEAR, case, size) for size in sizes]
        for r in rows:
            if "total" not in r:
                print(f"| {case} | over {LINEAR_LIMIT} s |")
                continue
            speed = r["nodes"] / (r["build"] + r["total"])
            print(
                f"| {case} | {r['nodes']:,} | {r['build']:.2f} | {r['total']:.2f} | {speed:,.0f}"
                f" | {r['megabytes']:,} | {r['node_bytes']:.0f} | {r['live']:,} |",
                flush=True,
            )
        done = [r for r in rows if "total" in r]
        slope = exponent([r["nodes"] for r in done], [r["build"] + r["total"] for r in done])
        print(f"{case}: exponent {slope:.2f}", flush=True)


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recorded", default="", help="read recorded graphs from this folder")
    parser.add_argument("--cases", default="", help="only these cases, with commas")
    parser.add_argument(
        "--peers", default="uopc", help="compile by these, with commas; default: %(default)s"
    )
    python = "run a peer by another Python, as peer=path; may be repeated"
    parser.add_argument("--python", action="append", default=[], help=python)
    parser.add_argument(
        "--rounds", type=int, default=3,
        help="take this many turns of each program; default: %(default)s",
    )
    minutes = "measure no peer again after this many minutes; default: %(default)s"
    parser.add_argument("--minutes", type=float, default=8, help=minutes)
    parser.add_argument("--out", default="", help="write the result to this file")
    million = "measure a graph of a million nodes, and nothing else"
    parser.add_argument("--million", action="store_true", help=million)
    args = parser.parse_args()
    if args.million:
        report_million()
        return 0
    from compile_report import markdown, plot

    found = collect(args)
    text = markdown(found)
    print(text)
    if args.out:
        folder = Path(args.out)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "compile_time.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        (folder / "compile_time.md").write_text(text, "utf-8")
        plot(found, folder / "compile_time.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
