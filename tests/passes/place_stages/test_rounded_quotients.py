"""Quotients that are rounded as products, clips that a conversion makes anyway, and conversions to
bytes and back: the bits are those of the division, in NumPy's numbers."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.machines import described, only_lowered
from uopc import UOp, dtypes
from uopc.driver import lower_only
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter
from uopc.passes.place_stages.rounded_quotients import _close_calls, _to_bits, inverse

RNG = np.random.default_rng(23)
BITS = {"float32": 24, "float64": 53}


def places(dtype: Any, divisor: float) -> np.ndarray:
    """Numerators: any, those near to ties of the rounded quotient, and corners."""
    limits = np.finfo(dtype)
    ties = (np.arange(-600, 600) / 2 * np.asarray(divisor, dtype)).astype(dtype)
    near = [np.nextafter(ties, dtype(side)) for side in (-np.inf, np.inf)]
    corners = [0.0, -0.0, np.inf, -np.inf, np.nan, limits.max, limits.min, limits.tiny]
    corners += [limits.smallest_subnormal, -limits.smallest_subnormal, divisor, -divisor]
    any_ = RNG.standard_normal(2000) * 300 * divisor
    return np.concatenate([any_, ties, *near, corners]).astype(dtype)


def same_bits(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))


def divides(graph: UOp) -> bool:
    """True if a kernel of this graph has a division, on a machine that has MULACC."""
    with only_lowered("desktop"):
        runs = lower_only(graph, threads=1).runs
    return any(Ops.FDIV in walk.ops(k) for k in runs[-1].after)


# ---------------------------------------------------------------- quotients
def test_all_quotients_of_eight_bits() -> None:
    """Each pair of numbers of 8 bits, in exact arithmetic; few divisors have no products."""
    left = 0
    for c in range(128, 256):
        pair = inverse(float(c), 8)
        if pair is None:
            left += 1
            continue
        r, s = map(Fraction, pair)
        for x in range(128, 256):
            assert _to_bits(x * r + _to_bits(x * s, 8), 8) == _to_bits(Fraction(x, c), 8), (x, c)
    assert left < 8


@pytest.mark.parametrize("bits", [6, 8])
def test_the_numerators_that_come_close_are_found(bits: int) -> None:
    """Beside all numerators, for a share that some reach."""
    off = Fraction(1, 1 << (2 * bits - 2))
    for c in range(1 << (bits - 1), 1 << bits):
        near = set()
        for x, k in itertools.product(range(1 << (bits - 1), 1 << bits), (bits, bits + 1)):
            m = round((Fraction(x << k, c) - 1) / 2) * 2 + 1  # the nearest odd one
            if m >> bits == 1 and abs(Fraction(x << k, c * m) - 1) <= off:
                near.add(x)
        assert near <= set(_close_calls(Fraction(c), off, bits))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_products_are_the_quotient(data: Any) -> None:
    """Beside NumPy's division, for numerators that come close to ties and others."""
    name = data.draw(st.sampled_from(list(BITS)))
    t = np.dtype(name).type
    divisor = float(t(data.draw(st.floats(1e-6, 1e6)) * data.draw(st.sampled_from([1, -1]))))
    pair = inverse(divisor, BITS[name])
    if pair is None:
        return
    assert all(float(t(n)) == n for n in pair)
    x = Fraction(abs(divisor))
    close = _close_calls(x, Fraction(1, 1 << (2 * BITS[name] - 2)), BITS[name])
    numbers = [t(n) for n in (*close, *RNG.integers(1 << 22, 1 << 24, 50))]
    r, s = map(Fraction, pair)
    for n in numbers:
        wanted = float(n / t(divisor))
        made = Fraction(float(n)) * r + Fraction(float(n * t(pair[1])))
        assert float(t(0)) + np.sign(divisor) * float(_to_bits(abs(made), BITS[name])) == wanted
        assert s != 0


@pytest.mark.parametrize("name", list(BITS))
@pytest.mark.parametrize("op", ["round", "trunc", "cast"])
@pytest.mark.parametrize("divisor", [0.0153506631, 3.0, -0.3, 255.0, 1e-3])
@pytest.mark.few(12)
def test_rounded_quotients(name: str, op: str, divisor: float) -> None:
    t = np.dtype(name).type
    divisor = float(t(divisor))
    x = places(t, divisor)
    value = uopc.param("x", x.shape, getattr(dtypes, name)) / divisor
    with np.errstate(all="ignore"):
        quotient = x / t(divisor)
        wanted = {"round": np.rint, "trunc": np.trunc}.get(op, np.trunc)(quotient)
    graph = value.cast(dtypes.int32) if op == "cast" else getattr(value, op)()
    if op == "cast":
        held = np.nan_to_num(wanted.astype("f8"), nan=0.0, posinf=1e300, neginf=-1e300)
        wanted = np.clip(held, -(2.0**31), 2.0**31 - 1).astype("i4")
    program = uopc.compile(graph, threads=1, verify=True)
    same_bits(program(x), wanted)
    same_bits(interpreter.evaluate(graph, {"x": x}), wanted)
    assert inverse(divisor, BITS[name]) is None or not divides(graph)


def test_other_quotients_are_divisions() -> None:
    x, c = uopc.param("x", (8,)), uopc.param("c", ())
    assert not divides((x / 0.3).round())
    for graph in (
        x / 0.3,
        (x / c).round(),
        (0.3 / x).round(),
        (x / 0.3).floor(),
        (x / 1e30).round(),
    ):
        assert divides(graph)
    assert inverse(0.25, 24) is None and inverse(0.0, 24) is None
    assert inverse(float("inf"), 24) is None and inverse(float("nan"), 24) is None


def test_a_machine_without_the_instruction_divides() -> None:
    graph = (uopc.param("x", (8,)) / 0.3).round()
    with uopc.options(target_cpu="x86-64-v2"):
        runs = lower_only(graph, threads=1).runs
    assert any(Ops.FDIV in walk.ops(k) for k in runs[-1].after)


def test_a_scale_of_one_number_is_a_constant() -> None:
    """As models have it: an array with one element."""
    scale = uopc.constant(np.array([0.3], "f4")).reshape(())
    assert not divides((uopc.param("x", (8,)) / scale).round())


# ---------------------------------------------------------------- clips
def clips_of(graph: UOp) -> int:
    with only_lowered("desktop"):
        runs = lower_only(graph, threads=1).runs
    canonical = next(r for r in runs if r.name == "canonicalize").after[0]
    return sum(u.op in (Ops.MAX, Ops.MIN) for u in walk.order(canonical))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_bytes_of_any_growing_functions(data: Any) -> None:
    """Rows of clips, scales and zero points, beside NumPy."""
    t = data.draw(st.sampled_from(["uint8", "int8", "int32"]))
    limits = np.iinfo(t)
    x = places(np.float32, 0.5)
    value, wanted = uopc.param("x", x.shape), x
    for _ in range(data.draw(st.integers(1, 6))):
        n = float(
            np.float32(data.draw(st.sampled_from([0.0, 6.0, 3.0, 255.0, -128.0, 127.0, 0.1])))
        )
        kind = data.draw(st.sampled_from(["max", "min", "div", "mul", "add", "sub", "round"]))
        with np.errstate(all="ignore"):
            if kind in ("div", "mul"):
                n = n or 2.0
                value = value / n if kind == "div" else value * n
                wanted = wanted / np.float32(n) if kind == "div" else wanted * np.float32(n)
            elif kind in ("add", "sub"):
                value = value + n if kind == "add" else value - n
                wanted = wanted + np.float32(n) if kind == "add" else wanted - np.float32(n)
            elif kind == "round":
                value, wanted = value.round(), np.rint(wanted)
            else:
                value = value.maximum(n) if kind == "max" else value.minimum(n)
                function = np.maximum if kind == "max" else np.minimum
                wanted = function(wanted, np.float32(n))
    held = np.nan_to_num(np.trunc(wanted.astype("f8")), nan=0.0, posinf=1e300, neginf=-1e300)
    program = uopc.compile(value.cast(getattr(dtypes, t)), threads=1, verify=True)
    np.testing.assert_array_equal(program(x), np.clip(held, limits.min, limits.max).astype(t))


def test_which_clips_are_needless() -> None:
    x, u8, i8 = uopc.param("x", (8,)), dtypes.uint8, dtypes.int8
    relu6 = x.maximum(0.0).minimum(6.0)
    byte = (relu6 / 0.02).round().clip(0.0, 255.0).cast(u8)
    assert clips_of(byte) == 0
    assert clips_of((relu6 / 0.05).round().clip(0.0, 255.0).cast(u8)) == 1  # 6 becomes 120
    assert clips_of(relu6.cast(u8)) == 1
    assert clips_of((relu6 * -50.0).round().clip(-128.0, 127.0).cast(i8)) == 2  # 0 stays 0
    assert clips_of((0.0 - x).maximum(0.0).cast(u8)) == 0
    assert clips_of((relu6 / 0.02).round().clip(0.0, 255.0).cast(dtypes.float32)) == 4
    both = uopc.stack(relu6, byte.cast(dtypes.float32))  # what is read elsewhere stays
    assert clips_of(both) == 2


# ---------------------------------------------------------------- bytes and back
@pytest.mark.parametrize("byte", ["uint8", "uint16", "int8"])
def test_bytes_that_are_floats_again(byte: str) -> None:
    """NaN and zeros of either sign are 0, what is beyond the ends is cut off."""
    x = places(np.float32, 0.7)
    value = uopc.param("x", x.shape).round().cast(getattr(dtypes, byte)).cast(dtypes.float32)
    limits = np.iinfo(byte)
    held = np.nan_to_num(np.rint(x), nan=0.0, posinf=1e30, neginf=-1e30)
    wanted = np.clip(held, limits.min, limits.max).astype(byte).astype("f4")
    program = uopc.compile(value, threads=1, verify=True)
    same_bits(program(x), wanted)
    kernel = lower_only(value, threads=1).runs[-1].after[0]
    casts = [u for u in walk.order(kernel) if u.op is Ops.CAST and u.dtype.is_float]
    assert bool(casts) is (byte == "int8")


def test_quantised_layers_agree_on_any_machine() -> None:
    """A row of layers as a QDQ model has them, lowered for two machines, in the interpreter."""
    x = RNG.standard_normal((1, 4, 6, 5)).astype("f4")
    w = RNG.standard_normal((3, 4, 1, 1)).astype("f4")
    value = uopc.param("x", x.shape)
    for scale, zero in ((0.031, 128.0), (0.0173, 3.0)):
        byte = ((value / scale).round() + zero).clip(0.0, 255.0).cast(dtypes.uint8)
        value = (byte.cast(dtypes.float32) - zero) * scale
    graph = value.conv2d(uopc.constant(w)).maximum(0.0)
    wanted = interpreter.evaluate(graph, {"x": x})
    for machine in ("desktop", "client"):
        with described(machine):
            made = uopc.compile(graph, threads=1, verify=True)(x)
        np.testing.assert_allclose(made, wanted, rtol=1e-6, atol=1e-6)
