"""Conversions of narrow floats on every part: all values of the narrow types, float32 near all of
their roundings, executed by the PTX machine and compared bit by bit with ml_dtypes and the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from tests.standin import module
from uopc import dtypes, target

GPUS = tuple(target.GPUS)
NARROW = (
    dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.fp8e4m3fnuz,
    dtypes.fp8e5m2fnuz,
)  # fmt: skip
_INSTRUCTION = {
    dtypes.bfloat16: "cvt.rn.bf16", dtypes.fp8e4m3: "cvt.rn.satfinite.e4m3x2.f32",
    dtypes.fp8e5m2: "cvt.rn.satfinite.e5m2x2.f32", dtypes.float16: "cvt.rn.f16.f32",
}  # fmt: skip


def all_values(t):
    return np.arange(1 << t.bits, dtype=np.uint32).astype(f"u{t.itemsize}").view(t.numpy)


def hard_singles(t):
    """Every value of t and the middles between neighbours, a last place around each, and all sorts
    of other bits."""
    finite = all_values(t).astype(np.float32)
    finite = np.sort(finite[np.isfinite(finite)])
    middles = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    near = np.concatenate([finite, middles])
    around = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    random = np.random.default_rng(0).integers(0, 1 << 32, 4001, np.uint32).view(np.float32)
    extremes = np.array([np.inf, -np.inf, np.nan, -0.0, 3e38, -3e38, 1e-45], np.float32)
    return np.concatenate([*around, random, extremes])


def rounded(x, t):
    """The result of a CAST, by ml_dtypes; the 8-bit floats saturate."""
    if t.bits == 8:
        limit = np.float32(all_values(t).astype(np.float32)[np.isfinite(
            all_values(t).astype(np.float32))].max())  # fmt: skip
        x = np.where(np.isnan(x), x, np.clip(x, -limit, limit)).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(t.numpy)


def same(got, want):
    """Equal in bits; a NaN is any NaN."""
    nan = np.isnan(want.astype(np.float32))
    bits = f"u{want.dtype.itemsize}"
    equal = (got.view(bits) == want.view(bits)) & ~np.isnan(got.astype(np.float32))
    return bool(np.where(nan, np.isnan(got.astype(np.float32)), equal).all())


def on(part, graph, *arrays):
    with module.installed(part) as driver:
        got = uopc.compile(graph, device="cuda")(*arrays)
    return got, "".join(driver.texts)


@pytest.mark.parametrize("t", NARROW, ids=lambda t: t.name)
@pytest.mark.parametrize("part", GPUS)
@pytest.mark.few(10)
def test_rounding_of_float32(part, t):
    x = hard_singles(t)
    graph = uopc.param("x", x.shape).cast(t)
    got, text = on(part, graph, x)
    assert same(got, rounded(x, t))
    if t.bits == 8:  # the NaN of the CPU, too
        on_cpu = uopc.compile(graph)(x)
        assert np.array_equal(got.view(np.uint8)[np.isnan(x)], on_cpu.view(np.uint8)[np.isnan(x)])
    native = t in target.gpu_target(part).native_floats
    assert native == (t in _INSTRUCTION and _INSTRUCTION[t] in text)


@pytest.mark.parametrize("t", NARROW, ids=lambda t: t.name)
@pytest.mark.parametrize("part", GPUS)
def test_widening_of_all_values(part, t):
    x = all_values(t)
    got, _ = on(part, uopc.param("x", x.shape, t).cast(dtypes.float32), x)
    assert same(got, x.astype(np.float32))


@pytest.mark.parametrize("part", ("sm_80", "sm_90a"))
@pytest.mark.parametrize("t", NARROW[1:], ids=lambda t: t.name)
@pytest.mark.few(3)
def test_what_keeps_a_value_keeps_infinity(part, t):
    """max, neg and abs give one of their operands: nothing saturates there."""
    x = all_values(t)
    p = uopc.param("x", x.shape, t)
    graph = (p.maximum(p.flip(0)), -p, abs(p))
    got, _ = on(part, graph, x)
    for mine, want in zip(got, uopc.compile(graph)(x), strict=True):
        assert same(mine, want)


@pytest.mark.parametrize("n", (1, 3, 7, 8, 9, 30))
@pytest.mark.parametrize("t", NARROW[1:4], ids=lambda t: t.name)
@pytest.mark.few(4)
def test_any_number_of_lanes(n, t):
    """Conversions of pairs: an odd lane is not mixed up with its neighbour."""
    random = np.random.default_rng(n)
    x, y = (random.standard_normal((n, n)).astype(t.numpy) for _ in range(2))
    a, b = uopc.param("a", (n, n), t), uopc.param("b", (n, n), t)
    graph = (a * b + a, (a.cast(dtypes.float32) * 3).cast(t), a.sum(axis=1))
    got, _ = on("sm_90a", graph, x, y)
    for mine, want in zip(got[:2], uopc.compile(graph)(x, y)[:2], strict=True):
        assert same(mine, want)
    exact = x.astype(np.float64).sum(axis=1)
    bound = 2.0**-7 if t.bits == 16 else 2.0**-2
    assert np.allclose(got[2].astype(np.float64), exact, rtol=bound, atol=bound)


@pytest.mark.parametrize("part", ("sm_80", "sm_90a"))
def test_conversions_between_narrow_types_and_others(part):
    """Rounded once, from float64 and integers too."""
    x = np.concatenate([np.linspace(-600, 600, 2049), [1 + 2.0**-9 + 2.0**-40, 2.0**-10 * 1.5]])
    p = uopc.param("x", x.shape, dtypes.float64)
    i = np.arange(-300, 300, dtype=np.int32)
    q = uopc.param("i", i.shape, dtypes.int32)
    graph = tuple([s.cast(t) for t in NARROW for s in (p, q)])
    got, _ = on(part, graph, x, i)
    for mine, want in zip(got, uopc.compile(graph)(x, i), strict=True):
        assert same(mine, want)
