"""The cost of the examples: import, compile, a small call, and each run against NumPy's.

    python benchmarks/run_examples.py [docs/lab/figures.md]

Prints Markdown; with a path, writes it there too. The two sides of a row take turns. With several
threads on a machine that has other work to do, both wait for threads most of the time and figures
say little: look at the load that is printed, and set the variables in `THREADS` to 1.
"""

from __future__ import annotations

import importlib
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import uopc

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

from timing import Times, ratio, seconds, side_by_side

EXAMPLES = {
    "digits": "scikit-learn", "sharpen": "SciPy", "attention": "NumPy",
    "handwritten_kernel": "NumPy", "control": "NumPy",
}  # fmt: skip
COMPILES = 5
THREADS = ("UOPC_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
IMPORT = """
import time, numpy
begin = time.perf_counter()
import uopc
print(time.perf_counter() - begin)
"""
FIRST_COMPILE = """
import time, uopc
x = uopc.param("x", (8,))
begin = time.perf_counter()
with uopc.options(cache_dir="", programs=0):
    uopc.compile(x + 1)
print(time.perf_counter() - begin)
"""


def in_a_new_process(code: str) -> float:
    """The median of what the code prints, each time in a fresh process."""
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)
        for _ in range(5)
    ]
    return statistics.median(float(r.stdout) for r in runs)


def small_call() -> tuple[Times, Times]:
    """a*b + c on 8 elements: a call of the program, and NumPy's expression."""
    names = ("a", "b", "c")
    a, b, c = (uopc.param(n, (8,)) for n in names)
    program = uopc.compile(a * b + c)
    u, v, w = np.random.default_rng(0).random((3, 8), dtype=np.float32)
    return side_by_side(lambda: program(u, v, w), lambda: u * v + w, rounds=25, times=20_000)


def example_row(name: str, other: str) -> str:
    """A row of the table: compile time, kernels, run time of both, their ratio."""
    graph, arrays, theirs = importlib.import_module(name).job(0)
    with uopc.options(cache_dir="", programs=0):
        times = [seconds(lambda: uopc.compile(graph)) for _ in range(COMPILES)]
    compile_time = statistics.median(times)
    program = uopc.compile(graph)
    ours, reference = side_by_side(lambda: program(*arrays), theirs, rounds=31)
    return (
        f"| {name} | {compile_time * 1e3:.0f} | {len(program.kernels)} | {ours} "
        f"| {other} {reference} | {ratio(ours, reference):.1f} |"
    )


def lines() -> Iterator[str]:
    """The report."""
    yield "# Figures"
    yield ""
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    set_here = [f"{name}={os.environ[name]} " for name in THREADS if name in os.environ]
    yield f"Made by `{''.join(set_here)}python benchmarks/run_examples.py docs/lab/figures.md`."
    yield "Times are medians, the least in brackets; ratios are of the least. The sides take turns."
    yield f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()},"
    yield f"{cpus} CPUs, load {load:.1f} before the run."
    if load > cpus / 2:
        yield "**The machine was busy; rerun before relying on these numbers.**"
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| `import uopc` (NumPy already imported) | {in_a_new_process(IMPORT) * 1e3:.0f} ms |"
    first = in_a_new_process(FIRST_COMPILE)
    yield f"| first `compile` of a process (loads LLVM) | {first * 1e3:.0f} ms |"
    ours, theirs = small_call()
    rows = {"one call of `a*b + c` on 8 elements": ours, "NumPy's expression": theirs}
    for what, found in rows.items():
        yield f"| {what} | {found.median * 1e6:.2f} ({found.least * 1e6:.2f}) µs |"
    yield f"| the call as a ratio to NumPy's | {1 / ratio(ours, theirs):.2f} |"
    yield ""
    yield "| example | compile ms | kernels | run ms | peer ms | ratio |"
    yield "|---|---|---|---|---|---|"
    for name, other in EXAMPLES.items():
        yield example_row(name, other)


def main(arguments: list[str]) -> None:
    text = "\n".join(lines()) + "\n"
    print(text, end="")
    if arguments:
        Path(arguments[0]).write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
