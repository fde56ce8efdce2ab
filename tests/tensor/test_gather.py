"""Gathers at places from memory: negative ones count from the end, those outside give 0."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc.ir.core import dtypes

RNG = np.random.default_rng(4)
EDGES = [0, -1, 1, 2**31 - 1, -(2**31), 2**31 - 2, -(2**31) + 1]


@pytest.mark.parametrize("places", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("values", ["float64", "float32", "int32", "int8"])
@pytest.mark.parametrize("size, count", [(1, 5), (7, 64), (300, 1204), (1632, 31)])
@pytest.mark.few(12)
def test_every_place(size, count, places, values):
    info = np.iinfo(places)
    near = [n for k in (size, -size) for n in range(k - 2, k + 3)]
    edges = [n for n in EDGES + near if info.min <= n <= info.max]
    some = RNG.integers(max(info.min, -size), min(info.max, size - 1), count, endpoint=True)
    step = max(1, count // len(edges))
    some[::step] = np.resize(edges, some[::step].size)
    at = some.astype(places)
    given = (RNG.standard_normal(size) * 50).astype(values)
    x = uopc.param("x", (size,), getattr(dtypes, values))
    i = uopc.param("i", (count,), getattr(dtypes, places))
    wide = at.astype(np.int64)
    wide = np.where(wide < 0, wide + size, wide)
    inside = (wide >= 0) & (wide < size)
    wanted = np.where(inside, given[np.where(inside, wide, 0)], given.dtype.type(0))
    f = uopc.compile(x.take(i, axis=0), verify=True)
    np.testing.assert_array_equal(f(x=given, i=at), wanted)


def test_a_sum_whose_value_folds_to_one_number():
    """Rows that are zeros, times numbers of bytes, which are finite: each lane adds a constant."""
    rng = np.random.default_rng(3)
    a, zero = rng.random((1, 64)) < 0.5, rng.integers(0, 255, (1, 64)).astype("u1")
    inner, outer = rng.integers(0, 4, 8).astype("i4"), rng.integers(0, 10, 64).astype("i4")
    values = np.array([3, 255, 7, 0], "u1")
    x = uopc.param("x", a.shape, dtypes.bool_).cast(dtypes.float32)
    y = uopc.param("y", (4,), dtypes.uint8).cast(dtypes.float32)
    i, j = uopc.param("i", (8,), dtypes.int32), uopc.param("j", (64,), dtypes.int32)
    rows = (x - uopc.constant(zero).cast(dtypes.float32)).pad(((0, 2), (0, 0)))
    program = uopc.compile((rows * y.index(i).index(j)).sum(axis=1), verify=True)
    found = values[inner][np.minimum(outer, 7)] * (outer < 8).astype("f4")
    wanted = [((a.astype("f4") - zero) * found).sum(), 0, 0]
    np.testing.assert_array_equal(program(x=a, y=values, i=inner, j=outer), wanted)
