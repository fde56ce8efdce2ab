"""Values of constants alone are computed when a program is made, not in its calls."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import uopc
from uopc import UOp, dtypes
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.program import constants

RNG = np.random.default_rng(5)
W, S = RNG.random((512, 512), np.float32), RNG.random((512, 1), np.float32)
Q = RNG.integers(-127, 127, (1024, 1024), np.int8)
X = RNG.random((4, 512), np.float32)
x = uopc.param("x", (4, 512))


def kernels(graph: UOp) -> int:
    return len(uopc.compile(graph, inputs=[x]).kernels)


def test_they_are_computed_once() -> None:
    weights = (uopc.constant(W) * uopc.constant(S)).exp().contiguous()
    program = uopc.compile(x @ weights)
    assert [k.name for k in program.kernels] == ["r_4_512_512"]
    np.testing.assert_allclose(program(X), X @ np.exp(W * S), rtol=2e-5)
    other = pickle.loads(pickle.dumps(program))
    np.testing.assert_array_equal(other(X), program(X))


def test_the_bits_are_those_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the value; what reads it, reads a constant in another order and may add it up so."""

    def graph() -> UOp:
        w = uopc.constant(W)
        return uopc.param("y", W.shape) + ((w @ w).sin() / w.sum(axis=0)).contiguous()

    once = uopc.compile(graph())
    assert len(once.kernels) == 1
    monkeypatch.setattr(constants, "LEAST_WORK", float("inf"))
    called = uopc.compile(graph())
    assert len(called.kernels) > 1
    np.testing.assert_array_equal(called(W), once(W))


@pytest.mark.parametrize("view", [lambda u: u.transpose(), lambda u: u.flip(0), lambda u: u[:, 1:]])
def test_views_are_read_as_they_are(view: Callable[[UOp], UOp]) -> None:
    program = uopc.compile(x @ view(uopc.constant(W).exp()))
    assert len(program.kernels) == 1 and Ops.EXP not in walk.ops(program._source.request.graph)
    right = uopc.compile(view(uopc.constant(np.exp(W))))()
    np.testing.assert_allclose(program(X), X @ right, rtol=2e-5)


def test_what_would_be_larger_stays() -> None:
    """Dequantised weights are four times as many bytes for each call to read."""
    q, s = uopc.constant(Q), uopc.constant(RNG.random((1024, 1), np.float32))
    y = uopc.param("y", (1, 1024))
    program = uopc.compile(y @ (q.cast(dtypes.float32) * s))
    assert any([u.dtype is dtypes.int8 for u in walk.nodes(program._source.request.graph)])
    sums = q.cast(dtypes.float32).sum(axis=0)  # smaller: a reduce
    program = uopc.compile(y + sums)
    assert [k.name for k in program.kernels] == ["E_1024"]
    np.testing.assert_array_equal(
        program(np.zeros((1, 1024), np.float32))[0], Q.astype(np.float32).sum(axis=0)
    )


def test_what_is_small_or_an_output_is_computed_in_calls() -> None:
    small = uopc.constant(np.arange(4.0, dtype=np.float32))
    assert kernels(x[:, :4] + small.exp().contiguous()) == 2
    whole = uopc.compile(uopc.constant(W).exp())
    assert Ops.EXP in walk.ops(whole._source.request.graph)
    np.testing.assert_allclose(whole(), np.exp(W), rtol=1e-6)


def test_the_arrays_go_with_the_graph() -> None:
    weights = uopc.constant(W + 1).exp().contiguous()
    with uopc.options(programs=0):
        program = uopc.compile(x @ weights)
    assert weights in constants._made
    array = weakref.ref(constants._made[weights])
    del weights, program
    gc.collect()
    assert array() is None


def test_inside_of_jit() -> None:
    weights = uopc.constant(W)

    @uopc.jit
    def f(a: object) -> object:
        return a @ (weights.exp() * 2.0).contiguous()

    np.testing.assert_allclose(f(X), X @ (np.exp(W) * 2), rtol=2e-5)


def test_parts_of_bytes_are_not_computed_once() -> None:
    """Both halves of weights of four bits are together twice their bytes; dear functions of the
    same array are computed once all the same."""
    codes = uopc.constant(RNG.integers(0, 256, (2048, 1024), np.uint8))
    y = uopc.param("y", (2048,))
    halves = uopc.stack(codes & 15, codes >> 4, axis=2).cast(dtypes.float32)
    program = uopc.compile((halves * y.reshape(1024, 2)).sum((1, 2)))
    data = [u for u in walk.nodes(program._source.request.graph) if u.op is Ops.DATA]
    assert [u.arg.array.nbytes for u in data] == [2048 * 1024]
    both = x @ uopc.constant(W).exp() + x @ uopc.constant(W).sin()
    assert not {Ops.EXP, Ops.SIN} & set(walk.ops(uopc.compile(both)._source.request.graph))
