"""Floored and truncated division of floats: bit for bit what C's fmod and NumPy's give."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest

import uopc
from uopc.driver import lower_only
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

FLOATS = ("float16", "float32", "float64")
MEANING = {Ops.FLOORMOD: np.mod, Ops.FLOORDIV: np.floor_divide, Ops.CMOD: np.fmod}


def corners(t):
    """Every pair of the values where something special happens."""
    f = np.finfo(t)
    sizes = [
        0.0, 0.1, 0.5, 1.0, 2.5, 3.0, 1 / 3, 100.25, 1 - f.epsneg, 1 + f.eps, 1 / f.eps, f.eps,
        f.max, f.max / 2, f.max / 3, f.tiny, f.tiny * 1.5, f.tiny - f.smallest_subnormal,
        f.smallest_subnormal, f.smallest_subnormal * 3, math.inf,
    ]  # fmt: skip
    values = np.array([*sizes, *[-v for v in sizes], math.nan], t)
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def bit_patterns(rng, n, t):
    return rng.integers(0, 1 << 64, n, np.uint64, endpoint=False).astype(f"u{t.itemsize}").view(t)


def pairs(t, n, seed=0):
    """Corners; any bits; whole quotients, so that the remainder is rounding; long mantissas."""
    rng = np.random.default_rng(seed)
    bits = np.finfo(t).nmant
    divisor = bit_patterns(rng, n, t)
    with np.errstate(all="ignore"):
        whole = (np.floor(2.0 ** rng.uniform(0, bits, n)) * divisor).astype(t)
    full = bit_patterns(rng, n, t).view(f"u{t.itemsize}") | np.array(
        (1 << bits) - 8, f"u{t.itemsize}"
    )
    columns = [
        corners(t),
        (bit_patterns(rng, n, t), bit_patterns(rng, n, t)),
        (whole, divisor),
        (bit_patterns(rng, n, t), full.view(t)),
        (rng.normal(size=n).astype(t), rng.normal(size=n).astype(t)),
    ]
    return [np.concatenate(side) for side in zip(*columns, strict=True)]


def check(op, got, a, b):
    with np.errstate(all="ignore"):
        wanted = np.asarray(MEANING[op](a, b), a.dtype)
    bits = f"u{a.dtype.itemsize}"
    wrong = (got.view(bits) != wanted.view(bits)) & ~(np.isnan(got) & np.isnan(wanted))
    first = [(a[i], b[i], got[i], wanted[i]) for i in np.flatnonzero(wrong)[:3]]
    assert not wrong.any(), f"{op.name} {a.dtype}: {wrong.sum()} wrong, (a, b, got, wanted) {first}"


def params(a):
    return [uopc.param(n, a.shape, dtypes.from_numpy(a.dtype)) for n in ("a", "b")]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n, optimize", [(300_000, True), (20_000, False)])
def test_every_pair(dtype, n, optimize):
    a, b = pairs(np.dtype(dtype), n)
    x, y = params(a)
    found = uopc.compile(tuple([x.alu(op, y) for op in MEANING]), optimize=optimize)(a, b)
    for op, got in zip(MEANING, found, strict=True):
        check(op, got, a, b)


@pytest.mark.parametrize("dtype", FLOATS)
def test_by_constants(dtype):
    a = pairs(np.dtype(dtype), 1000)[0]
    f = np.finfo(dtype)
    for b in (1.0, -3.0, 0.1, 0.0, -0.0, math.inf, math.nan, f.max, f.smallest_subnormal):
        x = params(a)[0]
        ops = tuple(MEANING)
        for op, got in zip(ops, uopc.compile(tuple([x.alu(op, float(b)) for op in ops]))(a)):
            check(op, got, a, np.full_like(a, b))


def test_as_the_mathematics_library_has_it():
    """An oracle of its own: `math.fmod`, and the definition of the floored remainder."""
    a, b = pairs(np.dtype("f8"), 2000, seed=5)
    keep = np.isfinite(a) & (b != 0) & ~np.isnan(b)
    a, b = a[keep], b[keep]
    x, y = params(a)
    found = uopc.compile((x.alu(Ops.CMOD, y), x % y))(a, b)
    for u, v, rest, floored in zip(*(c.tolist() for c in (a, b, *found)), strict=True):
        wanted = math.fmod(u, v)
        assert rest == wanted and math.copysign(1, rest) == math.copysign(1, wanted), (u, v)
        assert floored == (wanted + v if wanted and (wanted < 0) != (v < 0) else wanted), (u, v)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_narrow_formats_in_float32(dtype):
    t = np.dtype(dtype)
    a = bit_patterns(np.random.default_rng(1), 20_000, t)
    b = bit_patterns(np.random.default_rng(2), 20_000, t)
    x, y = params(a)
    (got,) = uopc.compile((x.alu(Ops.CMOD, y),))(a, b)
    with np.errstate(all="ignore"):
        wanted = np.fmod(a.astype("f4"), b.astype("f4"))
    np.testing.assert_array_equal(got.astype("f4"), wanted)


@pytest.mark.parametrize("dtype, optimize", list(itertools.product(FLOATS[1:], (True, False))))
def test_every_level_means_the_same(dtype, optimize):
    """After decompose and after linearize the interpreter computes the same bits."""
    rng = np.random.default_rng(3)
    t = np.dtype(dtype)
    a, b = bit_patterns(rng, 45, t), bit_patterns(rng, 45, t)
    b[::3] = 1.5  # near and far quotients in one vector
    a[::3] = rng.normal(size=15)
    x, y = params(a)
    lowered = lower_only(x % y, optimize=optimize)
    stages = [run for run in lowered.runs if run.name in ("decompose", "linearize")]
    assert len(stages) == 2
    for kernel in [k for run in stages for k in run.after]:
        assert uopc.parse(str(kernel)) is kernel
        out = np.empty_like(a)
        interpreter.run_kernel(kernel, [out, a, b])
        check(Ops.FLOORMOD, out, a, b)
