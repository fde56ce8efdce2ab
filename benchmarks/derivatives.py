"""Time of gradients and loops beside JAX and C, in turns in one run.

    python benchmarks/derivatives.py [--out docs/lab/derivatives.md] [--rounds 30]

Each job is one function written once for both libraries. Compile: the first call in a warm process,
caches off. JAX and gcc are left out where they are missing, and the table says so.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import uopc
import uopc.numpy as unp

Job = Callable[..., Any]
STEPS = 10_000
PENDULUM = """
#include <math.h>
static void f(const double *x, double u, double *o) {
  o[0] = x[1];
  o[1] = -sin(x[0]) - 0.1 * x[1] + u;
}
void roll(const double *start, const double *u, int n, double *out) {
  double x[2] = {start[0], start[1]}, a[2], b[2], c[2], d[2], y[2];
  const double h = 0.01;
  for (int t = 0; t < n; t++) {
    f(x, u[t], a);
    for (int i = 0; i < 2; i++) y[i] = x[i] + h / 2 * a[i];
    f(y, u[t], b);
    for (int i = 0; i < 2; i++) y[i] = x[i] + h / 2 * b[i];
    f(y, u[t], c);
    for (int i = 0; i < 2; i++) y[i] = x[i] + h * c[i];
    f(y, u[t], d);
    for (int i = 0; i < 2; i++) x[i] += h / 6 * (a[i] + 2 * b[i] + 2 * c[i] + d[i]);
  }
  out[0] = x[0];
  out[1] = x[1];
}
"""


# ---------------------------------------------------------------- jobs
def mlp(xp: Any, value_and_grad: Any, scan: Any) -> tuple[Job, Job]:
    """The loss of 784-512-256-10 on 128 rows, and a step of gradient descent; float32."""

    def loss(weights: Any, x: Any, y: Any) -> Any:
        for w, b in weights[:-1]:
            x = xp.maximum(x @ w + b, 0.0)
        w, b = weights[-1]
        scores = x @ w + b
        scores = scores - xp.max(scores, axis=1, keepdims=True)
        logs = scores - xp.log(xp.sum(xp.exp(scores), axis=1, keepdims=True))
        return -xp.mean(xp.sum(y * logs, axis=1))

    def step(weights: Any, x: Any, y: Any) -> Any:
        value, slopes = value_and_grad(loss)(weights, x, y)
        made = [(w - 0.01 * p, b - 0.01 * q) for (w, b), (p, q) in zip(weights, slopes)]
        return made, value

    return loss, step


def block(xp: Any, value_and_grad: Any, scan: Any) -> tuple[Job, Job]:
    """A transformer block on 4 × 128 × 256 with 4 heads, and its gradient; float32."""

    def norm(x: Any) -> Any:
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)

    def loss(w: Any, x: Any) -> Any:
        y = norm(x)
        q, k, v = [
            xp.permute_dims(xp.reshape(y @ w[n], (4, 128, 4, 64)), (0, 2, 1, 3)) for n in "qkv"
        ]
        scores = q @ xp.permute_dims(k, (0, 1, 3, 2)) * 0.125
        weight = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
        seen = weight / xp.sum(weight, axis=-1, keepdims=True) @ v
        x = x + xp.reshape(xp.permute_dims(seen, (0, 2, 1, 3)), (4, 128, 256)) @ w["o"]
        inner = norm(x) @ w["up"]
        return xp.mean((x + inner * (1 / (1 + xp.exp(-inner))) @ w["down"]) ** 2)

    return loss, lambda w, x: value_and_grad(loss)(w, x)


def rollout(xp: Any, value_and_grad: Any, scan: Any) -> tuple[Job, Job]:
    """10,000 steps of RK4 for a pendulum, and the gradient by all forces; float64."""

    def slope(x: Any, u: Any) -> Any:
        return xp.stack([x[1], -xp.sin(x[0]) - 0.1 * x[1] + u])

    def step(x: Any, u: Any) -> Any:
        h = 0.01
        a = slope(x, u)
        b = slope(x + h / 2 * a, u)
        c = slope(x + h / 2 * b, u)
        d = slope(x + h * c, u)
        return x + h / 6 * (a + 2 * b + 2 * c + d), None

    def loss(u: Any, x: Any) -> Any:
        return xp.sum(scan(step, x, u)[0] ** 2)

    return loss, lambda u, x: value_and_grad(loss)(u, x)


def arguments(name: str) -> tuple[Any, ...]:
    """The arguments of a job."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape).astype("f4")

    if name == "mlp":
        sizes = (784, 512, 256, 10)
        weights = [(normal(a, b) * a**-0.5, np.zeros(b, "f4")) for a, b in zip(sizes, sizes[1:])]
        return weights, normal(128, 784), np.eye(10, dtype="f4")[random.integers(0, 10, 128)]
    if name == "block":
        w = {n: normal(256, 256) / 16 for n in "qkvo"}
        w |= {"up": normal(256, 1024) / 16, "down": normal(1024, 256) / 32}
        return w, normal(4, 128, 256)
    return np.sin(np.arange(STEPS) * 0.01), np.array([1.0, 0.0])


JOBS = {"mlp": mlp, "block": block, "rollout": rollout}


# ---------------------------------------------------------------- measuring
def first(call: Callable[[], Any]) -> float:
    """The time of a first call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def in_turns(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """Median and least time of each call, in seconds; the sides take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(first(call))
    return {n: (statistics.median(t), min(t)) for n, t in times.items()}


def of_jax() -> Any:
    """JAX with float64, or None."""
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    return jax


def in_c(folder: str) -> Callable[[], Any] | None:
    """The rollout in C, or None without gcc."""
    if shutil.which("gcc") is None:
        return None
    source, library = Path(folder) / "roll.c", Path(folder) / "roll.so"
    source.write_text(PENDULUM, "utf-8")
    flags = ["-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", library, source, "-lm"], check=True)
    roll = ctypes.CDLL(str(library)).roll
    forces, start = arguments("rollout")
    out = np.empty(2)
    at = [a.ctypes.data_as(ctypes.c_void_p) for a in (start, forces, out)]
    return lambda: roll(at[0], at[1], STEPS, at[2])


def jax_sides(jax: Any, job: Job, given: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The value and the gradient by JAX, on arrays of its own."""
    value, slope = [jax.jit(f) for f in job(jax.numpy, jax.value_and_grad, jax.lax.scan)]
    there = jax.device_put(given)
    return (
        lambda: jax.block_until_ready(value(*there)), lambda: jax.block_until_ready(slope(*there))
    )  # fmt: skip


def our_sides(job: Job, given: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The value and the gradient by uopc."""
    value, slope = [uopc.jit(f) for f in job(unp, uopc.value_and_grad, uopc.scan)]
    return lambda: value(*given), lambda: slope(*given)


def rows(rounds: int, folder: str) -> list[str]:
    """The lines of the table."""
    jax, c = of_jax(), in_c(folder)
    uopc.jit(lambda x: x + 1)(np.zeros(3))
    lines = []
    for name, job in JOBS.items():
        given = arguments(name)
        calls: dict[str, Callable[[], Any]] = {}
        calls["value"], calls["slope"] = our_sides(job, given)
        compiled, theirs = first(calls["slope"]), None
        if jax is not None:
            calls["jax value"], calls["jax slope"] = jax_sides(jax, job, given)
            theirs = first(calls["jax slope"])
        if name == "rollout" and c is not None:
            calls["c"] = c
        for call in calls.values():
            call()
        lines.append(row(name, in_turns(calls, rounds), compiled, theirs))
    return lines


def row(name: str, found: dict[str, Any], compiled: float, theirs: float | None) -> str:
    """A line of the table: times in ms, medians with the least in brackets; ratios of the least."""

    def shown(key: str) -> str:
        return f"{found[key][0] * 1e3:.3f} ({found[key][1] * 1e3:.3f})" if key in found else "–"

    def ratio(a: str, b: str) -> str:
        return f"{found[a][1] / found[b][1]:.2f}" if a in found and b in found else "–"

    compile_ratio = "–" if theirs is None else f"{compiled / theirs:.2f}"
    cells = [
        name, shown("value"), shown("slope"), ratio("slope", "value"), shown("jax slope"),
        ratio("slope", "jax slope"), ratio("value", "jax value"), ratio("value", "c"),
        f"{compiled:.2f}", compile_ratio,
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main(arguments_: list[str]) -> int:
    """Prints the table, and writes it to a file if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", metavar="FILE", help="write the result to this file")
    parser.add_argument(
        "--rounds", type=int, default=30,
        help="take this many turns of each program; default: %(default)s",
    )
    options = parser.parse_args(arguments_)
    heads = (
        "job", "value ms", "with gradient ms", "gradient/value", "JAX, with gradient ms",
        "to JAX", "value to JAX", "value to C", "compile s", "compile to JAX",
    )  # fmt: skip
    with uopc.options(cache_dir="", programs=0), tempfile.TemporaryDirectory() as folder:
        lines = rows(options.rounds, folder)
    table = "\n".join(
        ["| " + " | ".join(heads) + " |", "| " + " | ".join(["---"] * len(heads)) + " |", *lines]
    )
    note = (
        "Medians with the least in brackets; ratios are of the least, below 1 uopc is faster. The"
        " sides take turns. Jobs: `benchmarks/derivatives.py`."
    )
    text = f"# Gradients and loops\n\n{note}\n\n{table}\n"
    print(text)
    if options.out:
        Path(options.out).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
