"""A kernel written directly as UOps: means and peaks of windows, in one loop with two outputs.

python examples/handwritten_kernel.py
uopc dump examples/handwritten_kernel.py

mean[i] = Σ x[2i + j] / 5        peak[i] = max |x[2i + j]|        0 ≤ j < 5
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.tensor.creation import kernel_param

SAMPLES, WINDOW, STRIDE = 100_001, 5, 2
WINDOWS = (SAMPLES - WINDOW) // STRIDE + 1


def graph() -> UOp:
    """A SINK over two stores in one range; its params are the program's arguments, by slot."""
    x = kernel_param(0, (SAMPLES,), dtypes.float32, "x")
    mean = kernel_param(1, (WINDOWS,), dtypes.float32, "mean")
    peak = kernel_param(2, (WINDOWS,), dtypes.float32, "peak")
    i = UOp.range(WINDOWS, axis=0)
    samples = [x.index(i * STRIDE + j).load() for j in range(WINDOW)]
    total = functools.reduce(operator.add, samples)
    greatest = functools.reduce(UOp.maximum, [abs(s) for s in samples])
    stores = mean.index(i).store(total * (1 / WINDOW)), peak.index(i).store(greatest)
    return UOp.sink(*[s.end(i) for s in stores], name="windows")


def reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same by NumPy."""
    windows = np.lib.stride_tricks.sliding_window_view(x, WINDOW)[::STRIDE]
    return windows.mean(axis=1), np.abs(windows).max(axis=1)


def inputs(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples, and memory for the two outputs."""
    x = np.random.default_rng(seed).standard_normal(SAMPLES, dtype=np.float32)
    return x, np.empty(WINDOWS, np.float32), np.empty(WINDOWS, np.float32)


def job(seed: int) -> tuple[UOp, tuple[np.ndarray, ...], Callable[[], object]]:
    """The kernel, its arguments, and the same by NumPy."""
    arrays = inputs(seed)
    return graph(), arrays, lambda: reference(arrays[0])


def main(arguments: list[str]) -> int:
    """Prints PASS and gives 0 when both agree."""
    from timing import line, side_by_side, verdict

    x, mean, peak = inputs(seed=0)
    program = uopc.compile(graph())
    program(x, mean, peak)
    expected_mean, expected_peak = reference(x)
    error = float(np.abs(mean - expected_mean).max())
    same = bool((peak == expected_peak).all())
    print(f"largest difference of a mean: {error:.1e}; same peaks: {same}")
    ours, theirs = side_by_side(lambda: program(x, mean, peak), lambda: reference(x))
    print(line(ours, "NumPy", theirs))
    return verdict("handwritten_kernel", same and error <= 1e-6)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
