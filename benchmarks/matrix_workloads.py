"""Workloads that factor the matrices of a batch and solve equations with them.

`python benchmarks/kernels.py --workloads matrices` runs them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from workloads import F32, F64, WORKLOADS, Workload, add, normal

ELEMENTS = 1 << 16  # of a batch


def matrices(n: int, dtype: Any) -> np.ndarray:
    """Symmetric and positive definite."""
    x = normal(0, max(1, ELEMENTS // n**2), n, n, dtype=F64)
    return (x @ x.transpose(0, 2, 1) / n + np.eye(n)).astype(dtype)


def tolerance(dtype: Any) -> float:
    return 1e-4 if dtype is F32 else 1e-12


def cholesky(n: int, dtype: Any) -> Workload:
    a = matrices(n, dtype)
    flops = len(a) * n**3 / 3
    return Workload([a], lambda o, a: o.cholesky(a), flops, tolerance=tolerance(dtype))


def solve(n: int, dtype: Any) -> Workload:
    a = matrices(n, dtype)
    b = normal(1, len(a), n, 1, dtype=dtype)
    flops = len(a) * (2 * n**3 / 3 + 2 * n**2)
    return Workload([a, b], lambda o, a, b: o.solve(a, b), flops, tolerance=tolerance(dtype))


# ------------------------------------------------------------------ the list
BEFORE = len(WORKLOADS)
for _n in (4, 8, 16, 32, 64):
    for _dtype, _end in ((F32, ""), (F64, "_f64")):
        add(f"cholesky_{_n}{_end}", cholesky, _n, _dtype)
        add(f"solve_{_n}{_end}", solve, _n, _dtype)
MATRICES = list(WORKLOADS)[BEFORE:]
