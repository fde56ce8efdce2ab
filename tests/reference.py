"""Helpers of the tests of tensor methods: params from arrays, evaluation, equality."""

from __future__ import annotations

import numpy as np

import uopc
from uopc.ir.core import dtypes
from uopc.ir.interpret import interpreter

SEED = np.random.default_rng(0)


def as_param(array, name="x"):
    return uopc.param(name, array.shape, dtypes.from_numpy(array.dtype))


def run(function, *arrays):
    """function(params) on the arrays; the graph must know the shape and dtype of the result."""
    params = [as_param(a, f"p{i}") for i, a in enumerate(arrays)]
    graph = function(*params)
    assert uopc.parse(uopc.print_graph(graph)) is graph
    out = interpreter.evaluate(graph, {f"p{i}": a for i, a in enumerate(arrays)})
    assert graph.shape == out.shape
    assert graph.dtype.numpy == out.dtype
    return out


def everywhere(value):
    """The value, which is the same for every number of threads, unoptimized, and interpreted."""
    first = uopc.compile(value)()
    for threads in (1, 2):
        with uopc.options(threads=threads):
            assert uopc.compile(value)().tobytes() == first.tobytes()
    assert uopc.compile(value, optimize=False)().tobytes() == first.tobytes()
    assert interpreter.evaluate(value, {}).tobytes() == first.tobytes()
    return first


def flat(results):
    """The results of a program, in order, whatever their container."""
    if isinstance(results, dict):
        return list(results.values())
    return list(results) if isinstance(results, (tuple, list)) else [results]


def values(shape, dtype="float32", low=-3.0, high=3.0):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return SEED.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return SEED.integers(0 if dtype.kind == "u" else -100, 100, shape).astype(dtype)
    return SEED.uniform(low, high, shape).astype(dtype)


def numbers(*dims, dtype="float32"):
    """Small integers: their sums and products are exact in any order."""
    return SEED.integers(-3, 4, dims).astype(dtype)


def same(out, expected, rtol=0.0):
    assert out.dtype == expected.dtype, (out.dtype, expected.dtype)
    assert out.shape == expected.shape
    if rtol:
        np.testing.assert_allclose(out.astype("f8"), expected.astype("f8"), rtol, rtol)
    else:
        np.testing.assert_array_equal(out, expected)
