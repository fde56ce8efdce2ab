"""Means and deviations of the columns of a file that need not fit into memory, some rows at a time.

python examples/out_of_core.py
uopc dump examples/out_of_core.py

The file is mapped: the system reads what a piece needs, `uopc.stream` lets go of what is behind.
The second pass takes the means of the first: deviations as differences of squares lose digits.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import tempfile
from collections.abc import Callable

import numpy as np

import uopc
from uopc import UOp, dtypes

ROWS, COLUMNS, PIECE = 1 << 18, 8, 1 << 15


def sums() -> tuple[UOp, UOp]:
    """The sums of columns, and of squared distances from the means, in float64."""
    x = uopc.param("x", (uopc.variable("rows", 1, PIECE), COLUMNS)).cast(dtypes.float64)
    distance = x - uopc.param("means", (COLUMNS,), dtypes.float64)
    return x.sum(0), (distance * distance).sum(0)


def graph() -> UOp:
    """The second of these, for the dump."""
    return sums()[1]


def moments(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The means and the standard deviations of the columns."""
    total, squares = map(uopc.compile, sums())
    means = functools.reduce(operator.add, uopc.stream(total, samples, rows=PIECE)) / len(samples)
    pieces = uopc.stream(squares, samples, rows=PIECE, means=means)
    return means, np.sqrt(functools.reduce(operator.add, pieces) / len(samples))


def reference(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same by NumPy, all in memory."""
    wide = samples.astype(np.float64)
    return wide.mean(0), wide.std(0)


def write(path: str, seed: int) -> None:
    """A file of samples, a piece at a time."""
    samples = uopc.file(path, np.float32, (ROWS, COLUMNS), mode="w+")
    random = np.random.default_rng(seed)
    for begin in range(0, ROWS, PIECE):
        samples[begin : begin + PIECE] = random.normal(1e3, 2.0, (PIECE, COLUMNS))


def job(seed: int) -> tuple[UOp, tuple[np.ndarray, ...], Callable[[], object]]:
    """The graph, its arguments for one piece, and the same by NumPy."""
    x = np.random.default_rng(seed).normal(1e3, 2.0, (PIECE, COLUMNS)).astype(np.float32)
    means = x.mean(0, dtype=np.float64)
    return graph(), (x, means), lambda: np.square(x - means).sum(0)


def main(arguments: list[str]) -> int:
    """Prints PASS and gives 0 when both agree."""
    from timing import line, side_by_side, verdict

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "samples")
        write(path, seed=0)
        samples = uopc.file(path, np.float32, (ROWS, COLUMNS))
        error = max(
            float(np.abs(a / b - 1).max()) for a, b in zip(moments(samples), reference(samples))
        )
        print(f"{os.path.getsize(path) >> 20} MiB, {ROWS // PIECE} pieces; error {error:.1e}")
        ours, theirs = side_by_side(lambda: moments(samples), lambda: reference(samples), rounds=5)
    print(line(ours, "NumPy", theirs))
    return verdict("out_of_core", error <= 1e-12)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
