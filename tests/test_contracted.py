"""The interpreter's sums of products: the same with one call of NumPy as block by block."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc.ir import dtypes, interpret_blocks
from uopc.ir.interpret import evaluate
from uopc.ir.uop import UOp

RANDOM = np.random.default_rng(0)


def _graphs() -> dict[str, UOp]:
    a, b = uopc.param("a", (6, 8), dtypes.float64), uopc.param("b", (8, 5), dtypes.float64)
    x = uopc.param("x", (2, 3, 9, 9), dtypes.float64)
    w = uopc.param("w", (4, 3, 3, 3), dtypes.float64)
    q = uopc.param("q", (3, 4, 8), dtypes.float64)
    return {
        "product": a @ b,
        "convolution": x.conv2d(w, padding=1),
        "batched": q @ q.transpose(1, 2),
        "repeated": (a.reshape(6, 8, 1) * b.reshape(1, 8, 5).expand(6, 8, 5)).sum(axis=(0, 1)),
        "neither": (a.reshape(6, 8, 1).expand(6, 8, 7) * 2.0).sum(axis=(1, 2)),
    }


@pytest.mark.parametrize("name", list(_graphs()))
def test_contraction(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _graphs()[name]
    params = {u.arg.name: u for u in uopc.ir.analysis.toposort(graph) if u.op.name == "param"}
    inputs = {k: RANDOM.standard_normal(p.arg.dims) for k, p in params.items()}
    plain = evaluate(graph, inputs)
    monkeypatch.setattr(interpret_blocks, "MOST_ELEMENTS", 16)
    calls: list[int] = []
    whole = interpret_blocks._sum_of_products
    monkeypatch.setattr(
        interpret_blocks, "_sum_of_products", lambda *a: calls.append(1) or whole(*a)
    )
    np.testing.assert_allclose(evaluate(graph, inputs), plain, rtol=1e-12, atol=1e-12)
    assert calls
