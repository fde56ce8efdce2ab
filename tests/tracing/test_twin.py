"""NumPy's own names in traced functions: what they make holds traced values."""

import functools
import sys
import threading

import numpy
import numpy as np
import pytest
from numpy import zeros as nothing

import uopc

X = np.array([3.0, 1.0, 2.0, 5.0])
COUNT = 0


def filled(n, value):
    r = nothing(n)
    r[1:] = value
    return r


def squared(function):
    @functools.wraps(function)
    def called(x):
        return function(x) ** 2

    return called


def by_a_helper(x):
    return filled(4, x[0]) + numpy.ones_like(x)


def by_a_closure(x):
    library = np

    def inner(i):
        r = library.zeros(3)
        r[i] = x[i]
        return r

    return inner(0) + inner(2)


@squared
def decorated(x):
    r = np.empty(2)
    r[0], r[1] = x[0], x[1]
    return r


def generator(x):
    def rows():
        for i in range(3):
            r = np.zeros(2)
            r[i % 2] = x[i]
            yield r

    return np.array(list(rows()))


def recursion(x):
    def down(n):
        r = np.zeros(4)
        r[n] = x[n]
        return r if n == 0 else r + down(n - 1)

    return down(3)


def known_numbers(x):
    order = np.array([2, 0, 1])
    table = np.linspace(0, 1, 4) ** 2
    total, n = 0.0, 0
    for i in order:
        if table[i] > 0.2:
            total = total + x[i]
        n += int(i)
    assert len(table) == 4 and bool((table >= 0).all()) and f"{table[3]:.1f}" == "1.0"
    return total, x[order], table[np.argmax(x)], np.zeros((2, n))


def views_of_known_numbers(x):
    r = np.zeros((2, 3))
    t, line, (a, b) = r.T, r.reshape(-1), np.split(r, 2)
    row = r[np.argmin(x) * 0]
    t[0] = 4
    kept = row + 1
    line[1] = x[0]
    a += 1
    np.add.at(line, [5, 5], 1)
    np.multiply(b, 2, out=b)
    line.sort()
    return r, t + 0, row + 0, kept


def grids(x):
    i, j = np.indices((2, 2))
    a, b = np.meshgrid(np.arange(2), np.arange(2))
    m = np.mgrid[0:2, 0:2][0]
    e = np.eye(2)
    e[0, 1] = x[0]
    return e * (i + j) + a - b + m, np.r_[1, 2]


def tried(x):
    try:
        with np.errstate(all="ignore"):
            r = np.zeros(2)
            r[0] = x[0]
            return r
    finally:
        r[1] = 1


FUNCTIONS = (by_a_helper, by_a_closure, decorated, generator, recursion, known_numbers,
             views_of_known_numbers, grids, tried, lambda x: np.stack([np.ones(4), x]))  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_as_numpy(function):
    want, got = function(X.copy()), uopc.jit(function)(X.copy())
    pairs = zip(got, want) if isinstance(want, tuple) else [(got, want)]
    for g, w in pairs:
        w = np.asarray(w)
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(g, w)


def test_bodies_and_transforms_see_it_too():
    def row(c, v):
        r = np.zeros(2)
        r[1] = v
        return c + r, r

    total, rows = uopc.scan(row, np.zeros(2), X)
    assert total.tolist() == [0, 11] and rows[:, 1].tolist() == X.tolist()
    np.testing.assert_allclose(uopc.grad(lambda x: (filled(4, x[0]) * x).sum())(X), [8, 3, 3, 3])


def test_no_module_changes():
    seen = []

    def function(x):
        thread = threading.Thread(target=lambda: seen.append(type(sys.modules['numpy'].zeros(1))))
        thread.start()
        thread.join()
        seen.append(type(np.zeros(1)))
        return x + 1

    uopc.jit(function)(X)
    assert seen[0] is np.ndarray and seen[1] is not np.ndarray
    assert type(np.zeros(1)) is np.ndarray
    assert function.__globals__ is globals()


def test_global_names_that_a_function_assigns():
    def function(x):
        global COUNT
        COUNT = COUNT + 1
        return x * COUNT

    before = COUNT
    assert uopc.jit(function)(X)[0] == X[0] * (before + 1)
    assert before + 1 == COUNT


def test_sizes_that_a_call_decides():
    def function(x):
        r = np.zeros(x.shape)
        r[1:] = x[:-1]
        return r

    f = uopc.jit(function, dims={"x": ("n",)})
    for x in (X, X[:2].copy()):
        np.testing.assert_array_equal(f(x), function(x))
