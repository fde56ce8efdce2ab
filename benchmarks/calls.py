"""The time of calls that compute next to nothing, and of a token of a small transformer.

    python benchmarks/calls.py [--out docs/lab/calls.md]

Each row is the best of several rounds, in which the calls take turns; their time is that of a loop
in Python over the call, less that of an empty loop. A token reads and extends caches of keys and
values in place. Its time is compared with that of its kernels, in calls that note when each begins
and ends.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes

ROUNDS, CALLS, EIGHT = 40, 2000, 8
Loop = Callable[[int], None]


def loop(code: str, **values: Any) -> Loop:
    """A function that runs a line of Python a number of times."""
    text = f"def run(count):\n    for _ in range(count):\n        {code}\n"
    exec(compile(text, "calls", "exec"), values)
    made: Loop = values["run"]
    return made


def seconds(loops: dict[str, Loop]) -> dict[str, float]:
    """The least seconds of each call."""
    best = dict.fromkeys(loops, float("inf"))
    empty = float("inf")
    nothing = loop("pass")
    for _ in range(ROUNDS):
        for name, run in [("", nothing), *loops.items()]:
            begin = time.perf_counter()
            run(CALLS)
            took = (time.perf_counter() - begin) / CALLS
            if name:
                best[name] = min(best[name], took)
            else:
                empty = min(empty, took)
    return {name: took - empty for name, took in best.items()}


def calls() -> dict[str, Loop]:
    """Calls of each kind. All compute on a few elements."""
    a, o = np.ones(EIGHT, "f4"), np.empty(EIGHT, "f4")
    every_second, other = np.ones(2 * EIGHT, "f4")[::2], np.ones(5, "f4")
    x, y, z = (uopc.param(name, (EIGHT,)) for name in "xyz")
    fixed = uopc.compile(x * y + z)
    n, k = uopc.variable("n", 1, 100), uopc.variable("k", 0, EIGHT - 1)
    rows = uopc.param("x", (n,)), uopc.param("y", (n,))
    sized = uopc.compile(rows[0] * rows[1] + z[k], inputs=[*rows, z])
    scaled = uopc.compile(x * uopc.param("s", (), dtypes.float32))
    pair = uopc.compile({"sum": x + y, "product": x * y})
    ten = [uopc.param(f"w{i}", (EIGHT,)) for i in range(10)]
    many = uopc.compile(x + sum(ten[1:], ten[0]), inputs=[x, *ten])
    weights = {p.arg.name: np.ones(EIGHT, "f4") for p in ten}
    rank, mesh = uopc.variable("rank", 0, 7), uopc.make_mesh((1,), ("m",))
    of_rank = uopc.compile(x * rank.cast("f4"), sharding=uopc.Sharding(mesh))
    jitted = uopc.jit(lambda x, y, z: x * y + z)
    nested = uopc.jit(lambda state, dt: {"x": state["x"] + dt * state["v"], "v": state["v"]})
    f = {"f": fixed, "g": sized, "s": scaled, "p": pair, "j": jitted, "d": nested}
    f |= {"a": a, "o": o, "h": every_second, "b": other, "np": np, "state": {"x": a, "v": a}}
    f |= {"m": many, "w": list(weights.values()), "bm": many.bind(**weights)}
    f |= {"bg": sized.bind(n=EIGHT, k=1), "q": of_rank, "bq": of_rank.bind(rank=3)}
    lines = {
        "`np.add(a, a)`": "np.add(a, a)",
        "a program of three arrays": "f(a, a, a)",
        "with `out=`": "f(a, a, a, out=o)",
        "by name": "f(x=a, y=a, z=a)",
        "one array strided": "f(a, a, h)",
        "a Python number": "s(a, 2.5)",
        "two variables, as in the call before": "g(a, a, a, k=1)",
        "two variables, new ones (of two calls, half)": "g(a, a, a, k=1); g(b, b, a, k=2)",
        "the same variables, bound": "bg(a, a, a)",
        "eleven arrays": "m(a, *w)",
        "eleven arrays, ten of them bound": "bm(a)",
        "a program for a mesh": "q(a, rank=3)",
        "a program for a mesh, its variable bound": "bq(a)",
        "a dict of two results": "p(a, a)",
        "`uopc.jit`": "j(a, a, a)",
        "`uopc.jit`, a Python number": "j(a, a, 2.5)",
        "`uopc.jit`, a dict": "d(state, 2.5)",
    }
    return {name: loop(line, **f) for name, line in lines.items()}


def token(layers: int = 4, width: int = 256, heads: int = 8, most: int = 512) -> Any:
    """A program for one token of a transformer, and its arrays."""
    rng = np.random.default_rng(0)
    position = uopc.variable("position", 0, most - 1)
    inputs, arrays = [uopc.param("x", (width,))], [np.ones(width, "f4")]

    def weight(name: str, *shape: int) -> UOp:
        inputs.append(uopc.param(name, shape))
        arrays.append((rng.standard_normal(shape) / shape[-1] ** 0.5).astype("f4"))
        return inputs[-1]

    def normal(x: UOp) -> UOp:
        return x * ((x * x).mean() + 1e-5).rsqrt()

    def cached(name: str, row: UOp) -> UOp:
        """The rows so far, with the new one."""
        cache = weight(name, most, width)
        whole = cache.after(cache[position : position + 1].store(row.reshape(1, width)))
        return whole[: position + 1].reshape(position + 1, heads, width // heads)

    x = inputs[0]
    for i in range(layers):
        h = normal(x)
        q, k, v = (weight(f"{name}{i}", width, width) @ h for name in ("q", "k", "v"))
        keys, values = cached(f"keys{i}", k), cached(f"values{i}", v)
        scores = (keys * q.reshape(1, heads, width // heads)).sum(2) * (heads / width) ** 0.5
        share = scores.softmax(0).reshape(position + 1, heads, 1)
        x = x + weight(f"o{i}", width, width) @ (share * values).sum(0).reshape(width)
        inner = (weight(f"up{i}", 4 * width, width) @ normal(x)).relu()
        x = x + weight(f"down{i}", width, 4 * width) @ inner
    return uopc.compile(x, inputs=inputs, threads=1), arrays


def token_rows() -> list[tuple[str, float, float]]:
    """At some positions: the least seconds of a call, and of the kernels of one."""
    program, arrays = token()
    found = []
    for at in (0, 100, 511):
        call = loop("f(*arrays, position=at)", f=program, arrays=arrays, at=at)
        best = kernels = float("inf")
        for _ in range(10 * ROUNDS):
            begin = time.perf_counter()
            call(1)
            best = min(best, time.perf_counter() - begin)
            _, slices = program._runner.slices(tuple(arrays), {"position": at})
            kernels = min(kernels, sum([s.end - s.begin for s in slices]))
        found.append((f"position {at}", best, kernels))
    return found


def table() -> str:
    """Both tables as Markdown."""
    found = seconds(calls())
    program = found["a program of three arrays"]
    lines = ["| call of a program of few elements | ns | of the program's |", "|---|---|---|"]
    lines += [f"| {n} | {s * 1e9:.0f} | {s / program:.2f} |" for n, s in found.items()]
    lines += ["", "| one token | µs | its kernels, µs | ratio |", "|---|---|---|---|"]
    for name, call, kernels in token_rows():
        lines.append(f"| {name} | {call * 1e6:.0f} | {kernels * 1e6:.0f} | {call / kernels:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="The time of calls")
    parser.add_argument("--out", type=Path, help="write the result to this file")
    options = parser.parse_args()
    found = table()
    print(found)
    if options.out is not None:
        threads = os.environ.get("UOPC_THREADS", "all")
        head = "# The time of calls\n\nMade by `python benchmarks/calls.py --out docs/lab/calls.md`"
        options.out.write_text(f"{head}, {threads} threads.\n\n{found}", encoding="utf-8")


if __name__ == "__main__":
    main()
