"""Workloads that order, add up in order, count and update elements at computed places.

`python benchmarks/kernels.py --workloads places` runs them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from workloads import F64, WORKLOADS, Workload, add, normal

BINS, ENDS = 100, (-4.0, 4.0)


def sort(n: int, dtype: Any = np.float32) -> Workload:
    return Workload([normal(0, n, dtype=dtype)], lambda o, x: o.sort(x), tolerance=0.0)


def sort_integers(n: int) -> Workload:
    x = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, n)
    return Workload([x], lambda o, x: o.sort(x), tolerance=0.0)


def argsort(n: int) -> Workload:
    # All different, so that a sort that is not stable gives the same places.
    x = np.random.default_rng(0).permutation(n).astype(np.float32)
    return Workload([x], lambda o, x: o.argsort(x), tolerance=0.0)


def sort_rows(rows: int, columns: int) -> Workload:
    return Workload([normal(0, rows, columns)], lambda o, x: o.sort(x), tolerance=0.0)


def argsort_rows(rows: int, columns: int) -> Workload:
    order = np.random.default_rng(0).random((rows, columns)).argsort(1)
    return Workload([order.astype(np.float32)], lambda o, x: o.argsort(x), tolerance=0.0)


def cumsum_rows(rows: int, columns: int) -> Workload:
    return Workload([normal(0, rows, columns)], lambda o, x: o.cumsum(x), tolerance=1e-2)


def top_k(n: int, k: int) -> Workload:
    return Workload([normal(0, n)], lambda o, x: o.top_k(x, k), tolerance=0.0)


def histogram(n: int, dtype: Any) -> Workload:
    # The edges of a peer may differ in the last bit, and an element beside one changes its bin.
    def body(o: Any, x: Any) -> Any:
        return o.histogram(x, BINS, ENDS)

    return Workload([normal(0, n, dtype=dtype)], body, tolerance=1e-3)


def bincount(n: int, length: int) -> Workload:
    x = np.random.default_rng(0).integers(0, length, n)
    return Workload([x], lambda o, x: o.bincount(x, length), tolerance=0.0)


def scatter_add(rows: int, width: int, updates: int) -> Workload:
    """Rows added to those of a table, as the gradient of an embedding is."""
    index = np.random.default_rng(0).integers(0, rows, updates)
    inputs = [normal(0, rows, width), index, normal(1, updates, width)]
    return Workload(inputs, lambda o, t, i, v: o.scatter_add(t, i, v), flops=updates * width)


# ------------------------------------------------------------------ the list
BEFORE = len(WORKLOADS)
for _e in (3, 4, 5, 6):
    add(f"sort_1e{_e}", sort, 10**_e)
add("sort_1e6_f64", sort, 10**6, F64)
add("sort_1e6_i64", sort_integers, 10**6)
add("argsort_1e5", argsort, 10**5)
add("sort_rows_4096x32", sort_rows, 4096, 32)
add("sort_rows_512x1000", sort_rows, 512, 1000)
for _rows, _columns in ((1000, 1000), (10_000, 64), (50_000, 16)):
    add(f"sort_rows_{_rows}x{_columns}", sort_rows, _rows, _columns)
add("argsort_rows_10000x64", argsort_rows, 10_000, 64)
add("sort_1e7", sort, 10**7)
add("cumsum_1000x1000", cumsum_rows, 1000, 1000)
add("cumsum_10000x10", cumsum_rows, 10_000, 10)
for _e in (3, 4, 5, 6):
    add(f"top_k_1e{_e}", top_k, 10**_e, 32)
for _e in (4, 6):
    add(f"histogram_1e{_e}", histogram, 10**_e, np.float32)
add("histogram_1e6_f64", histogram, 10**6, F64)
add("bincount_1e4", bincount, 10**4, 1000)
add("bincount_1e6", bincount, 10**6, 1000)
add("bincount_1e6_few", bincount, 10**6, 5)
add("scatter_add_table", scatter_add, 50_000, 128, 16_384)
add("scatter_add_rows", scatter_add, 50_000, 64, 100_000)
add("scatter_add_often", scatter_add, 1000, 64, 65_536)
PLACES = list(WORKLOADS)[BEFORE:]
