"""Causal attention, softmax(q kᵀ / √d + mask) v, against NumPy.

python examples/attention.py
uopc dump examples/attention.py
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np

import uopc

HEADS, LENGTH, WIDTH = 4, 128, 64


def graph() -> uopc.UOp:
    """Every position attends to itself and those before it: f32[4, 128, 64]."""
    shape = (HEADS, LENGTH, WIDTH)
    q, k, v = uopc.param("q", shape), uopc.param("k", shape), uopc.param("v", shape)
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(WIDTH))
    position = uopc.arange(LENGTH)
    visible = position.unsqueeze(1) >= position
    return uopc.where(visible, scores, -math.inf).softmax(axis=-1) @ v


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The same by NumPy, in the dtype of the arguments."""
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(1 / math.sqrt(WIDTH))
    scores = np.where(np.tri(LENGTH, dtype=bool), scores, q.dtype.type(-math.inf))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def inputs(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random q, k and v."""
    random = np.random.default_rng(seed)
    q, k, v = random.standard_normal((3, HEADS, LENGTH, WIDTH), dtype=np.float32)
    return q, k, v


def job(seed: int) -> tuple[uopc.UOp, tuple[np.ndarray, ...], Callable[[], np.ndarray]]:
    """The graph, its arguments, and the same by NumPy."""
    arrays = inputs(seed)
    return graph(), arrays, lambda: reference(*arrays)


def main(arguments: list[str]) -> int:
    """Prints PASS and gives 0 when both agree."""
    from timing import line, side_by_side, verdict

    arrays = inputs(seed=0)
    program = uopc.compile(graph(), name="attention")
    exact = reference(*[a.astype(np.float64) for a in arrays])
    error = float(np.abs(program(*arrays) - exact).max())
    print(f"largest difference from NumPy in float64: {error:.1e}")
    ours, theirs = side_by_side(lambda: program(*arrays), lambda: reference(*arrays))
    print(line(ours, "NumPy", theirs))
    return verdict("attention", error <= 1e-5)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
