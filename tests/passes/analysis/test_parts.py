"""Windows in one part of a value, gathers of gathers, and functions with storage of their own."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc.ir.builder import kernel, movement
from uopc.ir.core import dtypes
from uopc.ir.core.args import FunctionArg, ParamArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.passes.analysis.parts import MOST_PARTS
from uopc.tensor import creation

RNG = np.random.default_rng(3)
A, B = uopc.param("a", (4,)), uopc.param("b", (4,))
M, N = uopc.param("m", (4, 3)), uopc.param("n", (2, 3))


def test_a_part_is_what_the_value_was_made_of():
    assert uopc.stack(A, B)[0] is A
    assert uopc.stack(A, B.exp())[1] is B.exp()
    assert uopc.stack(A, B, axis=1)[:, 1] is B
    assert uopc.cat(A, B)[:4] is A
    assert uopc.cat(A, B)[5:7] is B[1:3]
    assert uopc.cat(M, N)[4:, 1:] is N[:, 1:]
    assert A.pad([(2, 3)])[2:6] is A
    assert A.pad([(2, 3)])[3:5] is A[1:3]
    assert A.pad([(2, 3)])[:2] is uopc.zeros((2,))
    assert M.pad([(1, 1), (2, 0)])[2:4, 2:] is M[1:3]


@pytest.mark.parametrize("window", [(0, 8), (1, 5), (2, 9), (0, 1), (3, 3), (5, 9)])
def test_windows_of_several_parts(window):
    a, b = RNG.random(4, "f4"), RNG.random(4, "f4")
    begin, end = window
    graph = uopc.cat(A.pad([(1, 0)]), B)[begin:end]
    got = uopc.compile(graph, inputs=[A, B], verify=True)(a, b)
    np.testing.assert_array_equal(got, np.concatenate([[0], a, b])[begin:end].astype("f4"))


def test_a_part_that_steps_share_is_read_from_the_whole():
    """Each step reads the whole and one of its parts: one launch stores both."""
    x, steps = uopc.param("x", (61,)), 20
    y = x
    for _ in range(steps):
        middle = y[1:-1] + 0.25 * (y[2:] - 2.0 * y[1:-1] + y[:-2])
        y = uopc.cat(y[:1], middle, y[-1:])
    assert uopc.compile(y, threads=1).stats["launches"] <= steps


@pytest.mark.parametrize("layers", [12, 24, pytest.param(96, marks=pytest.mark.slow)])
def test_layers_that_each_read_all_before_them(layers):
    """A kernel that chose among all parts would grow with the layers, and the compile time with
    their square."""
    x = y = uopc.param("x", (5, 3))
    weights = [uopc.param(f"w{i}", (3 + 2 * i, 2)) for i in range(layers)]
    for w in weights:
        y = y.cat((y @ w).relu(), axis=1)
    program = uopc.compile(y, inputs=[x, *weights], threads=1, verify=True)
    shapes = [v.shape for v in (x, *weights)]
    a, *ws = arrays = [RNG.standard_normal(s).astype("f4") / s[0] for s in shapes]
    for w in ws:
        a = np.concatenate([a, np.maximum(a @ w, 0)], 1)
    np.testing.assert_allclose(program(*arrays), a, rtol=2e-5, atol=2e-6)
    taken = [sum([u.op is Ops.PARAM for u in k.uops.src]) for k in program.kernels]
    assert max(taken) <= MOST_PARTS + 3


def test_a_gather_of_a_gather_with_missing_places():
    mask, q = uopc.param("mask", (4, 4), "bool"), uopc.param("q", (27,))
    x, y = uopc.param("x", (3, 3)), uopc.param("y", (3, 1))
    factors = uopc.where(mask, 1.0, uopc.cat(x, y, axis=1).reshape(3, 1, 4))
    whole = uopc.cat(factors.reduce("mul", 2)[:, :3].reshape(9), q)
    i, j, k = RNG.integers(0, 36, 27), RNG.integers(0, 36, 9), RNG.integers(-1, 9, 27)
    places = uopc.constant(np.maximum(k, 0)).cast(dtypes.index)
    missing = intern(Ops.INVALID, dtypes.index)
    again = movement.index(whole[j], uopc.where(uopc.constant(k >= 0), places, missing))
    program = uopc.compile(whole[i] + again, inputs=[mask, x, y, q], verify=True)
    arrays = [RNG.random((4, 4)) < 0.5, *[RNG.random(s, "f4") for s in ((3, 3), (3, 1), 27)]]
    row = np.concatenate(arrays[1:3], axis=1).reshape(3, 1, 4)
    products = np.where(arrays[0], np.float32(1), row).prod(2)[:, :3].reshape(9)
    want = np.concatenate([products, arrays[3]])
    places_read = np.where(k >= 0, want[j][np.maximum(k, 0)], 0)
    np.testing.assert_allclose(program(*arrays), want[i] + places_read, rtol=1e-6)


@pytest.mark.parametrize("precompile", [False, True])
def test_a_function_that_fills_a_buffer_is_called_twice(precompile):
    slot = intern(Ops.PARAM, dtypes.float32, (), ParamArg("", (4,), 0))
    buffer = creation.buffer((4,), dtypes.float32)
    out, source = [creation.kernel_param(n, (4,), dtypes.float32) for n in (0, 1)]
    r = kernel.range(4, 0)
    twice = kernel.end(kernel.store(movement.index(out, r), movement.index(source, r) * 2.0), r)
    call = intern(Ops.CALL, dtypes.void, (kernel.sink(twice), buffer, slot.contiguous()))
    body = kernel.after(buffer, call)
    function = intern(Ops.FUNCTION, dtypes.void, (body,), FunctionArg("twice", precompile))

    def called(u):
        made = intern(Ops.CALL, dtypes.void, (function, u))
        return intern(Ops.GETTUPLE, dtypes.float32, (made,), 0)

    a, b = RNG.random(4, "f4"), RNG.random(4, "f4")
    program = uopc.compile(called(A) - called(B), inputs=[A, B], verify=True)
    np.testing.assert_array_equal(program(a, b), 2 * a - 2 * b)


def chain_of_rows(lib, a, b):
    """Eight rows of which each is short once the others are known."""
    for _ in range(6):
        a, b = lib.sin(a * b + b), lib.cos(b - a)
    return [a, b, a * b, a + b, a - b, a * a, b * b, a * a * b]


def executed(program):
    """The operations that a call runs: each as often as the loops around it."""
    found = 0
    for k in program.kernels:
        trips = [1]
        for u in k.uops.src:
            if u.op is Ops.RANGE:
                trips.append(trips[-1] * u.src[0].arg)
            elif u.op is Ops.END:
                trips.pop()
            found += trips[-1]
    return found


READS = {
    "times 2": lambda lib, rows, ones: rows * 2.0,
    "behind a CAT": lambda lib, rows, ones: lib.concatenate([ones, rows.reshape(-1)]),
    "gathered": lambda lib, rows, ones: lib.concatenate([ones, rows.reshape(-1)])[PLACES],
    "sums of rows": lambda lib, rows, ones: rows.sum(1),
    "sums over rows": lambda lib, rows, ones: rows.sum(0),
}
LENGTH = 500
PLACES = RNG.permutation(9 * LENGTH)


class Graphs:
    sin, cos = uopc.UOp.sin, uopc.UOp.cos
    stack = staticmethod(lambda rows: uopc.stack(*rows))
    concatenate = staticmethod(lambda parts: uopc.cat(*parts))


@pytest.mark.parametrize("read", READS)
@pytest.mark.few(3)
def test_rows_that_share_work_are_computed_together(read):
    """However the rows are read, a call runs little more than for the rows alone."""
    x, y = [uopc.param(name, (LENGTH,), dtypes.float64) for name in "xy"]
    a, b, ones = RNG.random(LENGTH), RNG.random(LENGTH), np.ones(LENGTH)
    rows = uopc.stack(*chain_of_rows(Graphs, x, y))
    graph = READS[read](Graphs, rows, uopc.constant(ones))
    alone = uopc.compile(rows, inputs=[x, y], threads=1)
    program = uopc.compile(graph, inputs=[x, y], threads=1, verify=True)
    assert executed(program) <= 3 * executed(alone)  # 9 if each row were computed by itself
    want = READS[read](np, np.stack(chain_of_rows(np, a, b)), ones)
    np.testing.assert_allclose(program(a, b), want, rtol=1e-12, atol=1e-12)
