"""Random numbers as graphs: streams, distributions (SciPy's tests, fixed seeds), bad arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import uopc
from tests.reference import everywhere
from uopc import UOp, dtypes, random
from uopc.ir.core import semantics
from uopc.ir.interpret.interpreter import evaluate

Array = Any
FLOATS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
KEY = random.key(1234)


def run(value: UOp, **arrays: Any) -> Array:
    return uopc.compile(value)(**arrays)


# ---------------------------------------------------------------- streams
def test_streams_stay() -> None:
    """`split` and `uniform` give what JAX gives for seed 0; the other numbers are recorded."""
    key = random.key(0)
    split = everywhere(random.split(key))
    assert split.tolist() == [[1797259609, 2579123966], [928981903, 3453687069]]
    for k, wanted in ((key, 0.947667), (random.split(key)[1], 0.00729382)):
        assert abs(run(random.uniform(k)) - wanted) < 1e-6
    key = random.key(7)
    assert everywhere(random.fold_in(key, 3)).tolist() == [276534068, 1641862660]
    found = everywhere(random.bits(key, (2,), dtypes.uint64))
    assert found.tolist() == [15571024786774969728, 837714335556982463]
    assert everywhere(random.key((5 << 32) | 6)).tolist() == [5, 6]
    assert everywhere(random.key(-1)).tolist() == [2**32 - 1] * 2


def test_bits_are_threefry_of_the_place() -> None:
    places = np.arange(12, dtype=np.uint64) << np.uint64(32)
    block = semantics.threefry(places, np.array(1234 << 32, np.uint64))
    low, high = block & np.uint64(2**32 - 1), block >> np.uint64(32)
    wanted = {8: low ^ high, 16: low ^ high, 32: low ^ high, 64: (low << np.uint64(32)) | high}
    for size, values in wanted.items():
        t = getattr(dtypes, f"uint{size}")
        found = everywhere(random.bits(KEY, (3, 4), t))
        np.testing.assert_array_equal(found, values.astype(t.numpy).reshape(3, 4))


def test_keys_as_arguments() -> None:
    seed = uopc.param("seed", (), dtypes.uint64)
    step = uopc.param("step", (), dtypes.int32)
    f = uopc.compile(random.fold_in(random.key(seed), step))
    for s, i in ((0, 0), (2**64 - 1, -1), (2**40 + 3, 7)):
        fixed = run(random.fold_in(random.key(s), i))
        np.testing.assert_array_equal(f(np.uint64(s), np.int32(i)), fixed)
    key = uopc.param("key", (2,), dtypes.uint32)
    g = uopc.compile(random.bits(key, (5,)))
    np.testing.assert_array_equal(g(np.array([0, 1234], "u4")), run(random.bits(KEY, (5,))))


def test_threads_share_a_large_array() -> None:
    found = []
    for threads in (1, 2, 3):
        with uopc.options(threads=threads):
            found.append(run(random.normal(KEY, (300_001,))).tobytes())
    assert found[0] == found[1] == found[2]


def test_symbolic_and_empty_shapes() -> None:
    n = uopc.variable("n", 0, 100)
    f = uopc.compile(random.uniform(KEY, (n, 3)))
    for rows in (0, 1, 37):
        np.testing.assert_array_equal(f(n=rows), run(random.uniform(KEY, (rows, 3))))
    for value in (random.normal(KEY, (0, 3)), random.randint(KEY, (2, 0), 0, 5)):
        assert run(value).size == 0
    assert run(random.permutation(KEY, 0)).shape == (0,)
    assert run(random.split(KEY, 0)).shape == (0, 2)


def test_streams_of_split_keys_are_independent() -> None:
    keys = random.split(KEY, 20)
    rows = run(uopc.stack(*(random.uniform(keys[i], (20000,)) for i in range(20))))
    near = np.corrcoef(rows) - np.eye(20)
    assert np.abs(near).max() < 5 / np.sqrt(20000)
    assert np.abs(np.corrcoef(rows[0][:-1], rows[0][1:])[0, 1]) < 4 / np.sqrt(20000)


def test_repetitions_are_as_frequent_as_birthdays() -> None:
    """Of n draws from 2**32, n^2 / 2^33 pairs are equal on average: 931 of 2 million squared."""
    n = 2_000_000
    drawn = run(random.bits(KEY, (n,)))
    equal, mean = n - len(np.unique(drawn)), n * (n - 1) / 2**33
    assert stats.poisson.cdf(equal, mean) > 0.001 and stats.poisson.sf(equal, mean) > 0.001


# ---------------------------------------------------------------- distributions
@pytest.mark.parametrize("t", FLOATS)
def test_uniform(t: str) -> None:
    dtype, p = getattr(dtypes, t), FLOATS[t]
    found = run(random.uniform(KEY, (200_000,), dtype)).astype(float)
    assert found.min() >= 0 and found.max() <= 1 - 2.0**-p
    assert (found * 2.0**p % 1 == 0).all() and (found * 2.0 ** (p - 1) % 1 != 0).any()
    cells = np.bincount((found * 128).astype(int), minlength=128)
    assert stats.chisquare(cells).pvalue > 0.001
    if p > 16:
        assert stats.kstest(found, "uniform").pvalue > 0.001
    everywhere(random.uniform(KEY, (33,), dtype))


@pytest.mark.parametrize("t", FLOATS)
def test_uniform_between_bounds(t: str) -> None:
    dtype = getattr(dtypes, t)
    for low, high in ((-3.0, 5.0), (1.0, 1.01), (1000.0, 1001.0) if t != "bfloat16" else (1, 2)):
        found = everywhere(random.uniform(KEY, (3000,), dtype, low, high)).astype(float)
        first, last = np.array([low, high]).astype(dtype.numpy).astype(float)
        assert found.min() >= first and found.max() < last


@pytest.mark.parametrize("t", FLOATS)
def test_normal(t: str) -> None:
    dtype = getattr(dtypes, t)
    found = run(random.normal(KEY, (200_000,), dtype)).astype(float)
    edges = stats.norm.ppf(np.arange(1, 20) / 20)
    if FLOATS[t] > 16:
        cells = np.bincount(np.searchsorted(edges, found), minlength=20)
        assert stats.chisquare(cells).pvalue > 0.001
        assert stats.kstest(found, "norm").pvalue > 0.001
    assert abs(found.mean()) < 0.01 and abs(found.std() - 1) < 0.01
    assert 4 < np.abs(found).max() < 6.7
    value = random.normal(KEY, (1000,), dtype)
    compiled, plain = run(value), uopc.compile(value, optimize=False)()
    assert compiled.tobytes() == plain.tobytes()
    eps = 2.0 ** (2 - FLOATS[t])
    close = {"rtol": eps, "atol": eps}
    np.testing.assert_allclose(compiled.astype(float), evaluate(value, {}).astype(float), **close)


@pytest.mark.parametrize(
    ("t", "low", "high"),
    [
        ("int32", 1, 7), ("int8", -128, 128), ("uint64", 0, 2**64), ("int64", -(2**63), 2**63),
        ("int64", -(2**62), 2**63), ("uint64", 5, 2**33 + 4), ("uint32", 0, 2**32), ("int16", 3, 4),
    ],
)  # fmt: skip
@pytest.mark.few(3)
def test_randint(t: str, low: int, high: int) -> None:
    dtype = getattr(dtypes, t)
    found = run(random.randint(KEY, (60_000,), low, high, dtype))
    assert found.dtype == dtype.numpy
    offsets = found.astype(object) - low
    count = high - low
    assert offsets.min() >= 0 and offsets.max() < count
    if count > 1:
        cells = [int(v) * min(count, 12) // count for v in offsets]
        width = [sum(1 for v in range(count) if v * min(count, 12) // count == c)
                 for c in range(min(count, 12))] if count < 1000 else None  # fmt: skip
        wanted = None if width is None else [w * 60_000 / count for w in width]
        assert stats.chisquare(np.bincount(cells), wanted).pvalue > 0.001
    everywhere(random.randint(KEY, (20,), low, high, dtype))


def test_randint_is_the_high_part_of_a_product() -> None:
    block = run(random.bits(KEY, (50,), dtypes.uint64)).tolist()
    for count in (6, 2**32 - 5, 2**32):
        found = run(random.randint(KEY, (50,), 0, count, dtypes.uint64))
        assert found.tolist() == [b * count >> 64 for b in block]
    first, second = (
        run(random.bits(random.split(KEY)[i], (50,), dtypes.uint64)).tolist() for i in (0, 1)
    )
    for count in (2**32 + 1, 2**63 + 12345, 2**64 - 1):
        found = run(random.randint(KEY, (50,), 0, count, dtypes.uint64))
        assert found.tolist() == [((a << 64) + b) * count >> 128 for a, b in zip(first, second)]


def test_bernoulli() -> None:
    for p in (0.0, 0.3, 1.0):
        found = run(random.bernoulli(KEY, p, (50_000,)))
        assert found.dtype == bool
        assert stats.binomtest(int(found.sum()), 50_000, p).pvalue > 0.001
    chances = uopc.param("p", (3,))
    found = run(random.bernoulli(KEY, chances, (4, 3)), p=np.array([0, 1, 0], "f4"))
    assert found.tolist() == [[False, True, False]] * 4


# ---------------------------------------------------------------- bad arguments
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random.key(1.5), "key: seed must be an int or a scalar UOp, got 1.5"),
        (lambda: random.key(True), "key: seed must be an int"),
        (lambda: random.key(2**64), "key: seed must have at most 64 bits"),
        (lambda: random.key(uopc.param("s")), "key: seed must be a scalar integer, got float32"),
        (lambda: random.uniform(0, (3,)), "uniform: the key must be a UOp"),
        (lambda: random.bits(random.split(KEY)), "a key is uint32 of shape .2,., got uint32 of"),
        (lambda: random.bits(KEY, 3, dtypes.int32), "must be an unsigned integer, got int32"),
        (lambda: random.uniform(KEY, 3, dtypes.int32), "uniform: the dtype must be a float"),
        (lambda: random.normal(KEY, 3, dtypes.fp8e4m3), "normal: the dtype must be a float"),
        (lambda: random.normal(KEY, 3, "f3"), "normal: expected a dtype such as"),
        (lambda: random.gumbel(KEY, 3, np.int64), "gumbel: the dtype must be .*, got int64"),
        (
            lambda: random.uniform(KEY, 3, low=1, high=1),
            "expected low < high, .* float32, got 1 and 1",
        ),
        (lambda: random.uniform(KEY, 3, low=-3e38, high=3e38), "a finite distance in float32"),
        (lambda: random.uniform(KEY, -1), "uniform: a dimension must not be negative"),
        (lambda: random.split(KEY, -1), "split: a dimension must not be negative"),
        (lambda: random.randint(KEY, 3, 5, 5), "randint: expected .* got 5 and 5"),
        (lambda: random.randint(KEY, 3, 0, 257, dtypes.uint8), "randint: expected 0 <= low"),
        (lambda: random.randint(KEY, 3, 0.5, 2), "randint: low must be an int, got 0.5"),
        (lambda: random.bits(KEY, 3, "i4"), "must be an unsigned integer, got int32"),
        (lambda: random.randint(KEY, 3, 0, 2, dtypes.bool_), "must be an integer, got bool"),
        (lambda: random.bernoulli(KEY, 1.5), "bernoulli: p must be from 0 to 1, got 1.5"),
    ],
)
def test_bad_arguments(make: Any, message: str) -> None:
    with pytest.raises(uopc.UserError, match=message):
        make()


@pytest.mark.parametrize("draw", [
    random.uniform, random.normal, random.exponential, random.gumbel,
    lambda key, shape, dtype: random.truncated_normal(key, -1, 1, shape, dtype),
])  # fmt: skip
def test_dtypes_as_numpy_spells_them(draw):
    for spelled in ("f8", np.float64, float, np.dtype("f8")):
        assert draw(KEY, (3,), spelled) is draw(KEY, (3,), dtypes.float64)
    assert random.bits(KEY, (3,), np.uint8) is random.bits(KEY, (3,), dtypes.uint8)
    assert random.randint(KEY, (3,), 0, 9, "i8") is random.randint(KEY, (3,), 0, 9, dtypes.int64)
