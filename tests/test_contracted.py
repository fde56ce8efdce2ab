"""The interpreter's sums of products: the same with one call of NumPy as block by block."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc.ir.builder import alu as build
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp
from uopc.ir.interpret import large_reduces as interpret_blocks
from uopc.ir.interpret.interpreter import evaluate

RANDOM = np.random.default_rng(0)
K = uopc.param("k", (6,), dtypes.int32)
W, V = uopc.param("w9", (9, 5), dtypes.float64), uopc.param("v", (6, 5), dtypes.float64)


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
        "picked": build.where(K.reshape(6, 1).eq(uopc.arange(9)).reshape(6, 9, 1),
                              W.reshape(1, 9, 5), 0.0).sum(axis=1),
        "scattered": build.where(K.reshape(6, 1).eq(uopc.arange(9)).reshape(6, 9, 1),
                                 V.reshape(6, 1, 5), 0.0).transpose(0, 2).sum(axis=(2,)),
        "neither": (a.reshape(6, 8, 1).expand(6, 8, 7) * 2.0).sum(axis=(1, 2)),
    }


@pytest.mark.parametrize("name", list(_graphs()))
def test_contraction(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _graphs()[name]
    params = {u.arg.name: u for u in uopc.ir.core.analysis.toposort(graph) if u.op.name == "param"}
    inputs = {k: RANDOM.standard_normal(p.arg.dims) for k, p in params.items() if k != "k"}
    inputs["k"] = np.array([0, 3, 3, 8, -1, 5], np.int32)
    plain = evaluate(graph, inputs)
    monkeypatch.setattr(interpret_blocks, "MOST_ELEMENTS", 16)
    calls: list[int] = []
    whole = interpret_blocks._sum_of_products
    monkeypatch.setattr(
        interpret_blocks, "_sum_of_products", lambda *a: calls.append(1) or whole(*a)
    )
    np.testing.assert_allclose(evaluate(graph, inputs), plain, rtol=1e-12, atol=1e-12)
    assert calls


def test_what_is_not_picked_may_be_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row sums what its key picks: infinities of one sign, of both, NaN, nothing."""
    monkeypatch.setattr(interpret_blocks, "MOST_ELEMENTS", 4)
    keys, terms = uopc.param("k", (5,), dtypes.int32), uopc.param("t", (5, 2), dtypes.float32)
    one_hot = keys.reshape(1, 5).eq(uopc.arange(6).cast(dtypes.int32).reshape(6, 1))
    graph = build.where(one_hot.reshape(6, 5, 1), terms.reshape(1, 5, 2), 0.0).sum(axis=1)
    k = np.array([0, 0, 1, 2, 4], np.int32)
    t = np.array([[1, np.inf], [np.inf, -np.inf], [2, 3], [np.nan, 4], [-np.inf, 5]], np.float32)
    want = np.zeros((6, 2), np.float32)
    with np.errstate(invalid="ignore"):
        np.add.at(want, k, t)
    np.testing.assert_array_equal(evaluate(graph, {"k": k, "t": t}), want)
