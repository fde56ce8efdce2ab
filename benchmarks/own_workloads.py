"""Thirteen workloads at sizes of no other list: odd, float64, thin, batched, and of few rows.

`python benchmarks/kernels.py --workloads own --cpu` runs them. Heuristics are judged by them: none
was tuned on one before its first run.
"""

from __future__ import annotations

from typing import Any

from workloads import F32, F64, WORKLOADS, Workload, add, normal, product


def layer(m: int, k: int, n: int, dtype: Any = F32) -> Workload:
    """tanh(x · w + b)"""
    inputs = [normal(0, m, k, dtype=dtype), normal(1, k, n, dtype=dtype, scale=0.05)]
    inputs.append(normal(2, n, dtype=dtype))
    tolerance = 2e-5 if dtype is F32 else 1e-12
    return Workload(
        inputs, lambda o, x, w, b: o.tanh(o.matmul(x, w) + b), 2.0 * m * n * k,
        {f"exp_f{8 * inputs[0].itemsize}": m * n}, tolerance=tolerance,
    )  # fmt: skip


def through(m: int, k: int, thin: int, n: int) -> Workload:
    """(a · b) · c, with few columns between them."""
    inputs = [normal(0, m, k), normal(1, k, thin, scale=0.05), normal(2, thin, n)]
    flops = 2.0 * m * thin * (k + n)
    return Workload(inputs, lambda o, a, b, c: o.matmul(o.matmul(a, b), c), flops)


def normalised(rows: int, columns: int, dtype: Any) -> Workload:
    """The softmax of rows."""
    x = normal(0, rows, columns, dtype=dtype)
    functions = {f"exp_f{8 * x.itemsize}": rows * columns}
    tolerance = 2e-5 if dtype is F32 else 1e-13
    return Workload([x], lambda o, x: o.softmax(x), functions=functions, tolerance=tolerance)


def column_sums(rows: int, columns: int, dtype: Any) -> Workload:
    x = normal(0, rows, columns, dtype=dtype)
    return Workload(
        [x], lambda o, x: o.sum(x, 0), flops=rows * columns,
        tolerance=1e-4 if dtype is F32 else 1e-11,
    )  # fmt: skip


def turned(rows: int, columns: int, dtype: Any) -> Workload:
    """x + yᵀ"""
    inputs = [normal(0, rows, columns, dtype=dtype), normal(1, columns, rows, dtype=dtype)]
    return Workload(inputs, lambda o, x, y: x + o.transpose(y, 1, 0), flops=rows * columns)


BEFORE = len(WORKLOADS)
add("own_gemm_odd", product, (509, 383), (383, 701))
add("own_gemm_odd_f64", product, (331, 457), (457, 293), F64)
add("own_gemm_few", product, (5, 1031), (1031, 1537))
add("own_gemm_few_f64", product, (3, 769), (769, 1201), F64)
add("own_gemm_thin", product, (20_011, 24), (24, 7))
add("own_gemm_deep", product, (12, 40_009), (40_009, 10))
add("own_bgemm_small", product, (300, 13, 29), (300, 29, 17))
add("own_bgemm_f64", product, (24, 61, 83), (24, 83, 59), F64)
add("own_layer_7", layer, 7, 333, 517)
add("own_softmax_f64", normalised, 1001, 337, F64)
add("own_columns", column_sums, 20_003, 53, F32)
add("own_through_9", through, 2000, 600, 9, 700)
add("own_turned_f64", turned, 1237, 811, F64)
OWN = list(WORKLOADS)[BEFORE:]
