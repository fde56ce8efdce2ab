"""Functions on machines without an instruction for a*b + c: what they cost, in turns in one run.

    python benchmarks/without_fma.py [--out docs/lab/without_fma.md]

Object code with the instruction (`x86-64-v3`, 256 bits) and without it (`x86-64-v2`, 128 bits), and
scalar C by gcc -O2 with it (for `x86-64-v3`) and without it (`c11`). 1,024 numbers from 0.1 to 3.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import uopc

COUNT, ROUNDS = 1024, 20
FUNCTIONS = ("sin", "cos", "exp", "log", "tanh", "erf", "pow")
SIDES = ("v3", "v2", "C with", "C without")


def graph(name: str, t: Any) -> Any:
    """The function of a vector; a power of two."""
    x = uopc.param("x", (COUNT,), t)
    return x ** uopc.param("y", (COUNT,), t) if name == "pow" else getattr(x, name)()


def library(side: str, name: str, t: Any, folder: Path) -> Any:
    """The function as a library."""
    if not side.startswith("C"):
        made = uopc.export(graph(name, t), folder / "f", kind="shared", target=f"x86-64-{side}")
        return ctypes.CDLL(str(made.files[-1])).f
    target, flags = ("x86-64-v3", ["-march=x86-64-v3"]) if side == "C with" else ("c11", [])
    uopc.export(graph(name, t), folder / "f", kind="c", target=target, vectors=False)
    command = ["gcc", "-std=c11", "-O2", *flags, "-shared", "-fPIC", "f.c", "-o", "f.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "f.so")).f


def caller(f: Any, name: str, t: Any) -> Callable[[], Any]:
    """A call on arrays of its own."""
    arrays = [np.linspace(0.1, 3, COUNT).astype(t.numpy) for _ in range(2 + (name == "pow"))]
    places = [ctypes.c_void_p(a.ctypes.data) for a in arrays]

    def call() -> Any:
        return f(*places, None), arrays

    return call


def row(name: str, t: Any, root: Path) -> str:
    """The line of a function: ns for a number by each side, and the ratios."""
    calls = []
    for side in SIDES:
        folder = Path(tempfile.mkdtemp(dir=root))
        calls.append(caller(library(side, name, t, folder), name, t))
    least = [float("inf")] * len(SIDES)
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            call()
            begin = time.perf_counter()
            call()
            least[i] = min(least[i], time.perf_counter() - begin)
    ns = [f"{seconds / COUNT * 1e9:.2f}" for seconds in least]
    vectors, scalars = least[1] / least[0] / 2, least[3] / least[2]
    return f"| {name} | {t.name} | {' | '.join(ns)} | {vectors:.1f} | {scalars:.1f} |"


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description="time functions with FMA and without")
    parser.add_argument("--out", type=Path, help="write the page there")
    given = parser.parse_args()
    load = f"{os.getloadavg()[0]:.1f}"
    with uopc.options(cache_dir="", programs=0), tempfile.TemporaryDirectory() as name:
        types = (uopc.dtypes.float32, uopc.dtypes.float64)
        rows = [row(f, t, Path(name)) for t in types for f in FUNCTIONS]
    text = "\n".join([
        "# Functions without FMA", "",
        f"Made by `python benchmarks/without_fma.py --out {given.out}`; its head says how.",
        f"ns for a number, least of {ROUNDS} turns; load {load} before. The ratio of v2 to v3"
        " is halved, as its vectors are.", "",
        "| function | type | v3 | v2 | C with | C without | v2 / v3 a lane | C without / with |",
        "|---|---|---|---|---|---|---|---|", *rows, "",
    ])  # fmt: skip
    print(text)
    if given.out:
        given.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
