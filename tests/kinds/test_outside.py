"""Indices from data that are outside of an array, and arrays without elements: between guard pages,
nothing outside is read. A child process runs each case, which ends where it reads too much."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from tests.fuzz.guards import guarded, passes_in_a_child
from uopc import Ops, dtypes
from uopc.ir.interpret import interpreter

I64 = dtypes.int64
n = uopc.variable("n", 0, 40)
i = uopc.param("i", (20,), dtypes.int32)
x, y, z = uopc.param("x", (0,), I64), uopc.param("y", (5,), I64), uopc.param("z", (3, 4), I64)
s, t = uopc.param("s", (n,), I64), uopc.param("t", (64,), I64)
COPY, TOTAL = (s + 1).contiguous(), (t * t.sum()).contiguous()
FIXED = uopc.constant(np.arange(20) - 3)
ARRAYS = {
    "i": np.arange(20, dtype=np.int32) - 5, "x": np.zeros(0, np.int64), "y": np.arange(1, 6),
    "z": np.arange(1, 13).reshape(3, 4), "t": np.arange(64),
}  # fmt: skip


def _inside(array, *index):
    """The elements at an index counted from the front, 0 where it is outside."""
    out = np.zeros((20, *array.shape[len(index) :]), array.dtype)
    for place, at in enumerate(zip(*[np.broadcast_to(k, 20) for k in index])):
        if all(0 <= k < size for k, size in zip(at, array.shape)):
            out[place] = array[at]
    return out


A = ARRAYS["i"]
Y, Z = ARRAYS["y"], ARRAYS["z"]
CASES = {
    "element": (y.index(i), lambda s: _inside(Y, A)),
    "two indices": (z.index(i, i), lambda s: _inside(Z, A, A)),
    "rows": (z.index(i), lambda s: _inside(Z, A)),
    "beside a number": (z.index(2, i), lambda s: _inside(Z, 2, A)),
    "all outside": (y.index(i - 30), lambda s: np.zeros(20)),
    "unsigned": (y.index(i.cast(dtypes.uint64)), lambda s: _inside(Y, A)),
    "of a value": ((y * 2).index(i), lambda s: _inside(Y * 2, A)),
    "of a stored value": ((y * 2).contiguous().index(i), lambda s: _inside(Y * 2, A)),
    "loaded twice": (y.index(y.index(i)), lambda s: _inside(Y, _inside(Y, A))),
    "after a store": (y.assign(y + 1).index(i), lambda s: _inside(Y + 1, A)),
    "symbolic": (s.index(i), lambda s: _inside(s, A)),
    "constant": (y.index(FIXED), lambda s: _inside(Y, np.arange(-3, 17))),
    "empty": (x[i], lambda s: np.zeros(20)),
    "empty value": ((x + 1).contiguous()[i], lambda s: np.zeros(20)),
    "empty constant": (uopc.constant(np.zeros(0))[i], lambda s: np.zeros(20)),
    "perhaps empty": (COPY[i] + TOTAL[i], lambda s: np.take(np.arange(64) * 2016, A)
                      + _inside(s + 1, np.where(A < 0, A + s.size, A))),
}  # fmt: skip


SYMBOLIC = ("symbolic", "perhaps empty")
RUNS = [(case, size) for case in CASES for size in ((0, 3) if case in SYMBOLIC else (3,))]


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize(("case", "size"), RUNS)
@pytest.mark.few(3)
def test_nothing_outside_of_an_array_is_read(case, size, optimize):
    graph, meaning = CASES[case]
    arrays = ARRAYS | {"s": np.arange(1, size + 1)}
    sizes = {"n": size} if case in SYMBOLIC else {}
    want = meaning(arrays["s"])
    given = {u.arg.name: arrays[u.arg.name] for u in graph.toposort() if u.op is Ops.PARAM}
    copies = {name: a.copy() for name, a in given.items()}
    np.testing.assert_array_equal(interpreter.evaluate([graph], copies, sizes)[0], want)

    def call():
        f = uopc.compile(graph, optimize=optimize, verify=True)
        got = f(**{p.name: guarded(given[p.name]) for p in f.inputs}, **sizes)
        np.testing.assert_array_equal(got, want)

    passes_in_a_child(call)


def test_a_checked_index_gets_no_second_guard():
    from uopc.program.graph.check_input import checked
    from uopc.program.graph.facts import facts_of

    w = uopc.param("w", (n, 8))
    for graph in (y[i], w[:, i], w[i], w[i, 2], z.gather(1, uopc.param("g", (3, 4), dtypes.int64)),
                  z.take(i, 1), y[np.array([0, 4, 2])], y[-i], y[i % 5], y[n % 5]):  # fmt: skip
        assert checked(facts_of(graph), "cpu") is graph
    assert checked(facts_of(y.index(i)), "cpu") is not y.index(i)


@pytest.mark.parametrize("optimize", [True, False])
def test_an_index_that_64_bits_do_not_hold_is_outside(optimize):
    text = """\
%1 = param "" slot=0 : f32[8]
%2 = range 8 axis=0 kind=loop : index
%4 = param "" slot=1 : f32[8]
%5 = mul %2, 4611686018427387905 : index
%8 = add %5, %5 : index
%6 = store %1[%2], %4[%8]
%7 = end %6, %2
sink %7 name=far
"""
    out, given = np.ones(8, np.float32), np.arange(1, 9, dtype=np.float32)
    graph = uopc.parse(text)
    passes_in_a_child(
        lambda: uopc.compile(graph, optimize=optimize)(guarded(out), guarded(given))
    )


@pytest.mark.machine("this")  # one with AVX-512 shows it
@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float32], ids=str)
def test_masked_reads_of_sums_of_products(dtype):
    """Means of windows, transposed: the mask of a read is that of its sum, and LLVM on AVX-512 made
    a read without a mask of both."""

    def all_sizes():
        for size in range(2, 9):
            back = uopc.param("back", (1, 1, size, size), dtype)
            image = uopc.param("image", (1, 1, size + 1, size + 1), dtype)
            f = uopc.compile(uopc.vjp(image.avg_pool(2, stride=1), image, back), inputs=[back])
            given = np.arange(size * size, dtype=dtype.numpy).reshape(size, size)
            wanted = sum([np.pad(given, ((i, 1 - i), (j, 1 - j))) for i in (0, 1) for j in (0, 1)])
            for at_end in (True, False):
                got = f(guarded(given[None, None], at_end))
                np.testing.assert_array_equal(got[0, 0], wanted / 4)

    passes_in_a_child(all_sizes)


@pytest.mark.machine("this")
def test_masks_of_many_lanes():
    """As many as a register has bytes."""
    size = uopc.variable("size", 2, 70)
    bytes_ = uopc.param("bytes", (size,), dtypes.uint8)
    padded = (bytes_ * 3 + 1).pad(((size, 0),), value=1)

    def all_sizes():
        f = uopc.compile(padded)
        for n in (2, 63, 64, 65, 70):
            array = np.arange(n, dtype=np.uint8)
            wanted = np.pad(array * np.uint8(3) + np.uint8(1), (n, 0), constant_values=1)
            np.testing.assert_array_equal(f(guarded(array)), wanted)

    passes_in_a_child(all_sizes)
