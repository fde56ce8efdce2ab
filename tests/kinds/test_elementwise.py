"""Every elementwise op on every dtype, compiled, against the op table's NumPy meaning.

Corner cases: every pair of the values where something special happens.

How exact the functions are over their whole range is measured elsewhere; here they must agree to a
few units in the last place, and exactly on infinities, NaN, zeros and their signs.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import uopc
from uopc.ir.core import dtypes, semantics
from uopc.ir.core.ops import Op, Ops
from uopc.ir.interpret import interpreter

INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
EVERY = ("bool", *INTS, *FLOATS)

UNARY_FLOAT = tuple(
    op for op in Op.all() if op.is_alu and op.operands == ("a",) and op.doc.startswith("Float only")
)
UNARY_ANY = (Ops.NEG, Ops.ABS)
FUNCTIONS = {
    Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TAN, Ops.TANH, Ops.ERF, Ops.POW,
}  # fmt: skip
COMPARISONS = (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)
ARITHMETIC = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.MIN)
DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD)
BITS = (Ops.AND, Ops.OR, Ops.XOR)
SHIFTS = (Ops.SHL, Ops.SHR)


def binary_ops(dtype):
    if dtype == "bool":
        return (*ARITHMETIC, *BITS, *COMPARISONS)
    if dtype in INTS:
        return (*ARITHMETIC, *BITS, *COMPARISONS, *DIVISIONS, *SHIFTS, Ops.POW)
    return (*ARITHMETIC, *COMPARISONS, *DIVISIONS, Ops.FDIV, Ops.POW)


def corners(dtype):
    """The values where something special happens."""
    t = np.dtype(dtype)
    if t.kind == "b":
        return np.array([False, True])
    if t.kind in "iu":
        low, high, bits = np.iinfo(t).min, np.iinfo(t).max, t.itemsize * 8
        some = [low, low + 1, -bits, -3, -2, -1, 0, 1, 2, 3, 7, bits - 1, bits, bits + 1, high // 2]
        kept = {v for v in [*some, high - 1, high] if low <= v <= high}
        return np.array(sorted(kept), t)
    f = np.finfo(t)
    some = [
        0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 1 / 3, 0.1, 100.25, f.max, f.tiny,
        f.smallest_subnormal, f.eps, 1 / f.eps, np.inf,
    ]  # fmt: skip
    return np.array([*some, *[-v for v in some], np.nan], t)


def wanted_of(op, *arrays):
    """The op table's meaning, on whole arrays."""
    with np.errstate(all="ignore"):
        made = np.asarray(op.evaluate(*arrays))
    return made if op in COMPARISONS else made.astype(arrays[-1].dtype, copy=False)


def check(got, wanted, what, ulps=0, either_zero=False):
    assert got.dtype == wanted.dtype, what
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, wanted, what)
        return
    a, b = got.astype(np.longdouble), wanted.astype(np.longdouble)
    nan = np.isnan(b)
    np.testing.assert_array_equal(np.isnan(a), nan, what)
    exact = ~nan & (np.isinf(b) | (b == 0) if ulps else np.ones(b.shape, bool))
    np.testing.assert_array_equal(a[exact], b[exact], what)
    if either_zero:
        return
    zero = ~nan & (b == 0)
    np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(b[zero]), f"{what}: sign of zero")
    rest = ~nan & ~exact
    with np.errstate(over="ignore"):
        spacing = np.abs(np.spacing(wanted[rest])).astype(np.longdouble)
    worst = (np.abs(a[rest] - b[rest]) / spacing).max(initial=0)
    assert worst <= ulps, f"{what}: {worst} ulps off"


def compiled(make, arrays, optimize):
    params = [
        uopc.param(f"p{i}", a.shape, dtypes.from_numpy(a.dtype)) for i, a in enumerate(arrays)
    ]
    program = uopc.compile(make(*params), optimize=optimize, verify=True)
    return program(**{f"p{i}": a for i, a in enumerate(arrays)})


each_mode = pytest.mark.parametrize("optimize", [True, False], ids=["vector", "scalar"])


@each_mode
@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.few(5)
def test_unary(dtype, optimize):
    ops = [*UNARY_ANY, *(UNARY_FLOAT if dtype in FLOATS else ())]
    if dtype == "bool":
        ops.remove(Ops.ABS)
    a = np.tile(corners(dtype), 2)
    got = compiled(lambda x: tuple([x.alu(op) for op in ops]), [a], optimize)
    for op, out in zip(ops, got, strict=True):
        check(out, wanted_of(op, a), f"{op.name} {dtype}", 4 if op in FUNCTIONS else 0)


@each_mode
@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.few(3)
def test_binary(dtype, optimize):
    """Every pair of corners."""
    pairs = list(itertools.product(corners(dtype), repeat=2))
    a, b = (np.array(side, dtype) for side in zip(*pairs))
    ops = binary_ops(dtype)
    got = compiled(lambda x, y: tuple([x.alu(op, y) for op in ops]), [a, b], optimize)
    for op, out in zip(ops, got, strict=True):
        ulps = 4 if op in FUNCTIONS else 0
        check(out, wanted_of(op, a, b), f"{op.name} {dtype}", ulps)


@each_mode
@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.few(2)
def test_division_and_shift_by_constants(dtype, optimize):
    """Constants take other ways through simplification and lowering than values do."""
    a = corners(dtype)
    ops = (*DIVISIONS, *SHIFTS, Ops.MUL, Ops.AND)
    for b in a if optimize else a[::3]:
        got = compiled(lambda x, b=b: tuple([x.alu(op, int(b)) for op in ops]), [a], optimize)
        for op, out in zip(ops, got, strict=True):
            check(out, wanted_of(op, a, np.full_like(a, b)), f"{op.name} {dtype} by {b}")


@each_mode
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.few(2)
def test_arithmetic_with_constants(dtype, optimize):
    a = corners(dtype)
    ops = (*ARITHMETIC, Ops.FDIV, *COMPARISONS)
    for b in (0.0, -0.0, 1.0, -1.0, 3.0, float("nan")):
        got = compiled(lambda x, b=b: tuple([x.alu(op, b) for op in ops]), [a], optimize)
        left = compiled(
            lambda x, b=b: tuple([uopc.constant(b, x.dtype).alu(op, x) for op in ops]),
            [a], optimize,
        )  # fmt: skip
        b_array = np.full_like(a, b)
        for op, right, out in zip(ops, got, left, strict=True):
            either = op in (Ops.MAX, Ops.MIN)  # of a constant zero and the other one
            check(right, wanted_of(op, a, b_array), f"{op.name} {dtype} with {b}", 0, either)
            check(out, wanted_of(op, b_array, a), f"{b} {op.name} {dtype}", 0, either)


@each_mode
@pytest.mark.parametrize("source", EVERY)
@pytest.mark.few(5)
def test_casts(source, optimize):
    a = corners(source)
    t = dtypes.from_numpy(a.dtype)
    targets = [dtypes.from_numpy(np.dtype(d)) for d in EVERY if d != source]
    got = compiled(lambda x: tuple([x.cast(d) for d in targets]), [a], optimize)
    for d, out in zip(targets, got, strict=True):
        with np.errstate(all="ignore"):
            check(out, semantics.cast(a, t, d), f"cast {source} to {d.name}")


@each_mode
@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.few(10)
def test_where_and_mulacc(dtype, optimize):
    a = corners(dtype)
    b, c = a[::-1].copy(), np.roll(a, 3)
    condition = np.arange(len(a)) % 3 > 0
    got = compiled(
        lambda x, y, k: (uopc.where(k, x, y), uopc.where(x < y, x, y)), [a, b, condition], optimize
    )
    check(got[0], np.where(condition, a, b), f"where {dtype}")
    check(got[1], np.where(a < b, a, b), f"where of a comparison, {dtype}")
    if dtype != "bool":
        (got,) = compiled(lambda x, y, z: (x.alu(Ops.MULACC, y, z),), [a, b, c], optimize)
        check(got, wanted_of(Ops.MULACC, a, b, c), f"mulacc {dtype}")


@each_mode
@pytest.mark.parametrize("dtype", ["fp8e4m3", "fp8e5m2", "fp8e4m3fnuz", "fp8e5m2fnuz"])
def test_mulacc_of_all_pairs_of_8_bits(dtype, optimize):
    """a*b + a saturates like every conversion to 8 bits."""
    t = getattr(dtypes, dtype)
    every = np.arange(256, dtype=np.uint8).view(t.numpy)
    a, b = (v.ravel() for v in np.meshgrid(every, every))
    (got,) = compiled(lambda x, y: (x.alu(Ops.MULACC, y, x),), [a, b], optimize)
    exact = a.astype(np.float64) * b.astype(np.float64) + a.astype(np.float64)
    check(got, semantics.cast(exact, dtypes.float64, t), f"a*b + a {dtype}")
    check(wanted_of(Ops.MULACC, a, b, a), got, f"interpreted {dtype}")


@each_mode
@pytest.mark.parametrize("dtype", ["int32", "uint8", "float16", "float32", "float64"])
def test_reduces_of_corners(dtype, optimize):
    """The greatest and least of rows with NaN and infinities, at every place in a vector."""
    a = np.stack([np.roll(corners(dtype), i) for i in range(20)])
    a[1:4] = 1
    got = compiled(lambda x: (x.max(axis=1), x.min(axis=1), x.max(axis=0)), [a], optimize)
    for out, wanted in zip(got, (a.max(axis=1), a.min(axis=1), a.max(axis=0)), strict=True):
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("op", COMPARISONS, ids=lambda op: op.name)
def test_no_nan_compares(op):
    a = np.full(16, np.nan, "f4")
    out = uopc.compile(uopc.param("a", (16,)).alu(op, uopc.param("b", (16,))))(a, a)
    assert (out == (op is Ops.CMPNE)).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("base", [-0.0, 0.0, -np.inf, np.inf, -4.0, 2.25, np.nan])
def test_a_constant_to_the_half_is_a_power(base, dtype):
    """C's pow, not the square root: it has no −0 and no root of −inf."""
    got = uopc.compile(uopc.full((), base, getattr(dtypes, dtype)) ** 0.5)()
    np.testing.assert_array_equal(got, math.pow(base, 0.5) if base != -4 else np.nan)
    assert not np.signbit(got) or np.isnan(got)


@pytest.mark.parametrize("op", [op for op in Op.all() if op.fold and op.arity == (2, 2)], ids=str)
def test_constants_fold_to_what_numpy_computes(op: Op) -> None:
    for a, b in itertools.product(range(-9, 10), range(-4, 5)):
        with np.errstate(all="ignore"):
            assert op.fold(a, b) == op.evaluate(np.int32(a), np.int32(b)), (a, b)


def test_plus_is_the_value_itself():
    x = uopc.param("x", (3,))
    assert +x is x


# ---------------------------------------------------------------- floats of 8 bits
FP8 = [dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.fp8e4m3fnuz, dtypes.fp8e5m2fnuz]


def around(t, source):
    """Every number of a dtype, what lies between two of them, and what is beyond."""
    known = np.arange(256, dtype="u1").view(t.numpy).astype("f4")
    known = np.unique(known[np.isfinite(known)])
    middle = ((known[1:].astype("f8") + known[:-1]) / 2).astype("f4")
    most = known[-1]
    beyond = [most * v for v in (1 + 2**-9, 1.03, 1.04, 15 / 14, 1.08, 8 / 7, 1.2, 1e4)]
    edges = [np.nextafter(middle, np.float32(v)) for v in (np.inf, -np.inf)]
    x = np.concatenate([known, middle, *edges, beyond, [np.inf, np.nan]]).astype(source)
    return np.concatenate([x, -x])


@pytest.mark.parametrize("source", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("t", FP8, ids=lambda t: t.name)
def test_casts_that_do_not_saturate(t, source):
    """As ml_dtypes converts; with saturation, what is finite stays finite."""
    with np.errstate(all="ignore"):
        x = around(t, source)
        wanted = x.astype("f4").astype(t.numpy).astype("f4")
    u = uopc.param("x", x.shape, dtypes.from_numpy(x.dtype))
    for got in (uopc.compile(u.cast(t, saturate=False))(x),
                interpreter.evaluate(u.cast(t, saturate=False), {"x": x})):  # fmt: skip
        assert got.dtype == t.numpy
        np.testing.assert_array_equal(got.astype("f4"), wanted)
    held = uopc.compile(u.cast(t))(x).astype("f4")
    assert np.isfinite(held[~np.isnan(x.astype("f4"))]).all()


def test_casts_between_floats_of_8_bits():
    x = np.arange(256, dtype="u1").view(dtypes.fp8e5m2.numpy)
    u = uopc.param("x", x.shape, dtypes.fp8e5m2)
    got = uopc.compile(u.cast(dtypes.fp8e4m3, saturate=False))(x)
    np.testing.assert_array_equal(got.astype("f4"), x.astype(dtypes.fp8e4m3.numpy).astype("f4"))
    assert u.cast(dtypes.fp8e5m2, saturate=False) is u
    with pytest.raises(uopc.UserError, match="saturate=False needs a float of 8 bits, got int8"):
        u.cast(dtypes.int8, saturate=False)
    with pytest.raises(uopc.UserError, match="cast: saturate must be True or False"):
        u.cast(dtypes.fp8e4m3, saturate=0)
