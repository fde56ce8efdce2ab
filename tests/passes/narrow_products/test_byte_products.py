"""Products of bytes by the processor's dot products: the bits are those of integers.

A machine without the instructions runs other code; there, the graph that is made for a machine that
has them is interpreted, and its code is read as assembly.
"""

from __future__ import annotations

import importlib
import pickle
import re

import numpy as np
import pytest

import uopc
from tests.backends.c.test_kernel import by_gcc, needs_gcc
from tests.machines import MACHINES, described, lowered_for, only_lowered
from uopc import dtypes
from uopc.backends import detect, elf
from uopc.backends.llvm import jit, split_function
from uopc.config import current
from uopc.driver import lower_only
from uopc.errors import InvalidIR
from uopc.exporting import exported, machines
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter
from uopc.program import constants
from uopc.program.program import with_constants_computed
from uopc.program.request import prepare


@pytest.fixture(autouse=True)
def _dot_products():
    with uopc.options(dot_products=True):
        yield


RNG = np.random.default_rng(21)
BOTH = pytest.mark.parametrize("machine", ["dots", "client"])
TYPES = {"u1": dtypes.uint8, "i1": dtypes.int8, "?": dtypes.bool_}
KINDS = ["u1 i1", "i1 u1", "i1 i1", "u1 u1", "? i1"]


def extremes(kind, *dims):
    """Numbers that are often the least and the greatest of their type."""
    if kind == "?":
        return RNG.random(dims) < 0.9
    limits = np.iinfo(kind)
    any_ = RNG.integers(limits.min, limits.max + 1, dims)
    chosen = RNG.integers(0, 3, dims)
    return np.where(chosen == 0, limits.min, np.where(chosen == 1, limits.max, any_)).astype(kind)


def integers(kind, name, *dims):
    array = extremes(kind, *dims)
    return array, uopc.param(name, dims, TYPES[kind]).cast(dtypes.int32)


def uses_dots(machine, graph):
    """True if the products of a graph are DOT4s on a machine."""
    runs = lowered_for(machine, graph).runs
    narrowed = next(r for r in runs if r.name == "narrow-products")
    return Ops.DOT4 in walk.ops(narrowed.after[0])


def check(machine, graph, wanted, dots=True, sizes=None, **arrays):
    """The program, and the interpreter on the graph before and after the pass, agree."""
    assert uses_dots(machine, graph) == dots
    sizes = sizes or {}
    with described(machine):
        program = uopc.compile(graph, verify=True)
    np.testing.assert_array_equal(program(**arrays, **sizes), wanted)
    np.testing.assert_array_equal(interpreter.evaluate(graph, {**arrays, **sizes}), wanted)
    narrowed = next(r for r in lowered_for(machine, graph).runs if r.name == "narrow-products")
    made = interpreter.evaluate(narrowed.after[0].src[0], {**arrays, **sizes})
    np.testing.assert_array_equal(made, wanted)


# ---------------------------------------------------------------- the op
def dot4(a, b):
    """NumPy's own sum of products of bytes."""
    u, s = (v.reshape(-1, 1).view(t).astype("i8") for v, t in ((a, "u1"), (b, "i1")))
    return (u * s).sum(1).astype("i4").reshape(a.shape)


@pytest.mark.parametrize("machine", ["laptop", "dots", "client"])
@pytest.mark.parametrize("n", [1, 3, 13, 64, 100])
@pytest.mark.few(5)
def test_the_op_on_any_length(machine, n):
    a, b, c = (extremes("i4", n) for _ in range(3))
    x, y, z = (uopc.param(name, (n,), dtypes.int32) for name in "xyz")
    products = x.alu(Ops.DOT4, y)
    graph = products, z + products, z - products, x.alu(Ops.DOT4, y, z)
    with np.errstate(over="ignore"):
        one = dot4(a, b)
        wanted = one, c + one, c - one, c + one
    with described(machine):
        for optimize in (True, False):
            got = uopc.compile(graph, optimize=optimize, verify=True)(x=a, y=b, z=c)
            for made, exact in zip(got, wanted):
                np.testing.assert_array_equal(made, exact)
    for one_graph, exact in zip(graph, wanted):
        made = interpreter.evaluate(one_graph, {"x": a, "y": b, "z": c})
        np.testing.assert_array_equal(made, exact)


@pytest.mark.parametrize("machine", ["laptop", "dots", "client"])
@pytest.mark.parametrize(("m", "k", "n"), [(5, 2, 7), (6, 9, 33)])
def test_sums_of_the_op(machine, m, k, n):
    """Its operands are words, also where they hold few bits: their products as numbers are others.
    A third operand is a term of the sum."""
    a, b, c = extremes("u2", m, k, 1), extremes("i1", 1, k, n), extremes("i4", m, k, n)
    x, y = uopc.param("x", a.shape, dtypes.uint16), uopc.param("y", b.shape, dtypes.int8)
    z = uopc.param("z", c.shape, dtypes.int32)
    x, y = (v.cast(dtypes.int32).expand(m, k, n) for v in (x, y))
    one = dot4(*(np.ascontiguousarray(np.broadcast_to(v, c.shape), "i4") for v in (a, b)))
    for graph, terms in ((x.alu(Ops.DOT4, y), one), (x.alu(Ops.DOT4, y, z), one + c)):
        wanted, given = terms.sum(1, dtype="i4"), {"x": a, "y": b, "z": c}
        total = graph.sum(1)
        given = {p.arg.name: given[p.arg.name] for p in total.toposort() if p.op is Ops.PARAM}
        with described(machine):
            got = uopc.compile(total, verify=True)(**given)
        np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(interpreter.evaluate(total, given), wanted)


def test_tensor_cores_add_up_no_words():
    x, y = (uopc.param(n, d, dtypes.int8).cast(dtypes.int32).expand(128, 128, 128)
            for n, d in (("x", (128, 128, 1)), ("y", (1, 128, 128))))  # fmt: skip
    for graph, wanted in ((x * y, True), (x.alu(Ops.DOT4, y), False)):
        (kernel,) = lower_only(graph.sum(1), device="cuda:sm_80").kernels
        assert ("TC" in [o.op for o in kernel.arg.opts]) == wanted


def test_other_operands_are_an_error():
    x = uopc.param("x", (4,), dtypes.uint32)
    with pytest.raises(InvalidIR, match="expected int32"):
        uopc.compile(x.alu(Ops.DOT4, x))


@pytest.mark.parametrize(("kinds", "kernels"), [("u1 i1", 1), ("i1 i1", 2), ("u1 u1", 2)])
def test_the_sum_of_one_factor_is_computed_once(kinds, kernels):
    """Of factors of equal signs, before the product: its panels of columns share it."""
    first, second = kinds.split()
    (a, x), (b, y) = integers(first, "a", 20, 40), integers(second, "b", 40, 200)
    with described("dots"):
        program = uopc.compile(x @ y)
    assert len(lowered_for("dots", x @ y).kernels) == kernels
    np.testing.assert_array_equal(program(a=a, b=b), a.astype("i4") @ b.astype("i4"))


# ---------------------------------------------------------------- products
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 8, 1), (5, 9, 19), (17, 67, 3), (2, 1031, 16)])
@pytest.mark.few(3)
def test_products_of_any_size(kinds, m, k, n):
    machine = "client" if m == 5 else "dots"
    one, other = kinds.split()
    (a, x), (b, y) = integers(one, "x", m, k), integers(other, "y", k, n)
    shared = min(m, n) > 1  # else a factor is used once
    check(machine, x @ y, a.astype("i4") @ b.astype("i4"), shared, x=a, y=b)


@pytest.mark.parametrize("of", ["i8", "u4", "u8"])
def test_results_of_other_types(of):
    a, b = extremes("u1", 7, 40), extremes("i1", 40, 9)
    t = {"i8": dtypes.int64, "u4": dtypes.uint32, "u8": dtypes.uint64}[of]
    x, y = (uopc.param(n, v.shape, TYPES[k]) for n, v, k in (("x", a, "u1"), ("y", b, "i1")))
    dots = of == "i8"  # a negative byte as an unsigned number is none of 8 bits
    check("dots", x.cast(t) @ y.cast(t), a.astype(of) @ b.astype(of), dots, x=a, y=b)


def test_sums_that_overflow():
    """2**16 products of -128 and 255 are not an int32: they wrap there, and int64 has them."""
    a, b = np.full((2, 1 << 17), 255, "u1"), np.full((1 << 17, 2), -128, "i1")
    x, y = uopc.param("x", a.shape, dtypes.uint8), uopc.param("y", b.shape, dtypes.int8)
    for of, exact, dots in ((dtypes.int32, "i4", True), (dtypes.int64, "i8", False)):
        wanted = np.full((2, 2), (1 << 17) * -128 * 255).astype(exact)
        check("dots", x.cast(of) @ y.cast(of), wanted, dots, x=a, y=b)


def test_zero_points():
    """Constant ones that keep 8 bits, and ones that the program computes, of rows and columns."""
    machine = "dots"
    (a, x), (b, y) = integers("u1", "x", 6, 21), integers("i1", "y", 21, 35)
    wide_a, wide_b = a.astype("i4"), b.astype("i4")
    check(machine, (x - 3) @ (y + 128), (wide_a - 3) @ (wide_b + 128), x=a, y=b)
    p, zero = integers("u1", "p", 6, 1)
    q, column = integers("i1", "q", 35)
    wanted = (wide_a - p) @ (wide_b - q)
    check(machine, (x - zero) @ (y - column), wanted, x=a, y=b, p=p, q=q)
    inner, along = integers("u1", "p", 21)  # moves along the sum
    check(machine, (x - along) @ y, (wide_a - inner) @ wide_b, dots=False, x=a, y=b, p=inner)


def test_zero_points_of_more_bits():
    """An int64 one, and a float made of two numbers, reach past the int32 of the words."""
    a, b = extremes("i1", 5, 32), extremes("i1", 32, 7)
    x, y = uopc.param("x", a.shape, dtypes.int8), uopc.param("y", b.shape, dtypes.int8)
    zero = uopc.param("z", (), dtypes.int64)
    graph = (x.cast(dtypes.int64) - zero) @ y.cast(dtypes.int64)
    wanted = (a.astype("i8") - (1 << 33)) @ b.astype("i8")
    check("dots", graph, wanted, dots=False, x=a, y=b, z=np.int64(1 << 33))
    zero = uopc.param("z", (), dtypes.int8).cast(dtypes.float32) - 16_000_000.0
    graph = (x.cast(dtypes.float32) - zero) @ y.cast(dtypes.float32)
    ones = np.ones_like(b)
    wanted = np.full((5, 7), 32 * 16_000_000.0, "f4")
    check("dots", graph, wanted, dots=False, x=a * 0, y=ones, z=np.int8(0))


def test_a_zero_point_with_more_numbers_than_the_bytes():
    """A row of bytes minus a number for each row of the result, and one byte minus a matrix."""
    (a, x), (p, zero), (b, y) = [
        integers(kind, name, *dims)
        for kind, name, dims in (("i1", "x", (1, 21)), ("u1", "p", (6, 1)), ("i1", "y", (21, 35)))
    ]
    wanted = (a.astype("i4") - p) @ b.astype("i4")
    check("dots", (x - zero) @ y, wanted, x=a, p=p, y=b)
    c, z = integers("u1", "z", 6, 21)
    one = np.array([[-128]], "i1")
    wanted = (one - c.astype("i4")) @ b.astype("i4")
    graph = (uopc.param("x", (1, 1), dtypes.int8).cast(dtypes.int32) - z) @ y
    np.testing.assert_array_equal(uopc.compile(graph, verify=True)(x=one, z=c, y=b), wanted)


@pytest.mark.parametrize("kinds", ["i1 u1", "u1 i1", "u1 u1"])
@pytest.mark.few(2)
def test_gathers_outside_of_their_source(kinds):
    """Their zeros are numbers without a zero point, along the rows and along the sum, also of
    bytes that are the same in all rows."""
    one, other = kinds.split()
    (a, x), (b, y) = integers(one, "x", 6, 24), integers(other, "y", 24, 9)
    rows = np.array([5, -1, 0, 6, 3, 3, 9], "i4")
    inside = ((rows >= 0) & (rows < 6))[:, None]
    index = uopc.constant(rows)
    zero = uopc.param("z", (), TYPES[one])
    sized = uopc.param("z", (1, 1), TYPES[one])
    z = extremes(one) if one == "u1" else np.int8(-128)
    for number, given in ((zero, np.asarray(z)), (sized, np.full((1, 1), z))):
        seen = (a.astype("i4") - given.astype("i4"))[np.where(inside[:, 0], rows, 0)] * inside
        graph = (x - number.cast(dtypes.int32)).index(index) @ y
        check("dots", graph, seen @ b.astype("i4"), x=a, y=b, z=given)
    same = uopc.param("x", (1, 24), TYPES[one]).cast(dtypes.int32).expand(6, 24)
    wanted = (np.broadcast_to(a[:1], (7, 24)) * inside).astype("i4") @ b.astype("i4")
    got = uopc.compile(same.index(index) @ y, verify=True)(x=a[:1], y=b)
    np.testing.assert_array_equal(got, wanted)
    along = np.arange(-2, 22, dtype="i4")
    seen = (b.astype("i4") - 7)[np.where(along >= 0, along, 0)] * (along >= 0)[:, None]
    graph = x @ (y - uopc.param("z", (), TYPES[one]).cast(dtypes.int32)).index(uopc.constant(along))
    check("dots", graph, a.astype("i4") @ seen, dots=False, x=a, y=b, z=np.asarray(7, one))


def taken(graph):
    """The numbers that are subtracted from bytes."""
    lowered = lowered_for("dots", graph)
    narrowed = next(r for r in lowered.runs if r.name == "narrow-products")
    nodes = walk.toposort(narrowed.after[0])
    return [u.src[1].arg for u in nodes if u.op is Ops.SUB and u.dtype.itemsize == 1]


@pytest.mark.parametrize("zero", [0, 3, 118, 255, -128])
@pytest.mark.parametrize("kind", ["u1", "i1"])
@pytest.mark.parametrize("view", ["turned", "inside", "outside", "padded"])
@pytest.mark.few(3)
def test_a_constant_zero_point_below_views(kind, zero, view):
    """Bytes are words as they are in memory, if no zeros of a view are among them: those are
    numbers without the zero point. The first and the last row that there is are inside."""
    (a, x), (b, y) = integers(kind, "x", 6, 24), integers("i1", "y", 24, 9)
    centred, seen = x - zero, a.astype("i4") - zero
    rows = np.array([5, 0, 3, 3, 1] if view == "inside" else [5, -1, 0, 6, 3], "i4")
    if view == "turned":
        centred, seen = centred.permute(1, 0).reshape(2, 12, 6).permute(0, 2, 1), seen.T
        centred, seen = centred.reshape(12, 12), seen.reshape(2, 12, 6).transpose(0, 2, 1)
        seen, (b, y) = seen.reshape(12, 12), integers("i1", "y", 12, 9)
    elif view == "padded":
        centred, seen = centred.pad(((1, 0), (0, 3))), np.pad(seen, ((1, 0), (0, 3)))
        b, y = integers("i1", "y", 27, 9)
    else:
        within = ((rows >= 0) & (rows < 6))[:, None]
        centred, seen = centred.index(uopc.constant(rows)), seen[rows.clip(0, 5)] * within
    low, high = (0 - zero, 255 - zero) if kind == "u1" else (-128 - zero, 127 - zero)
    fits = max(high, 0) - min(low, 0) <= 255  # zeros of a view are bytes too
    moved = view in ("turned", "inside")
    check("dots", centred @ y, seen @ b.astype("i4"), moved or fits, x=a, y=b)
    if moved:
        assert not [n for n in taken(centred @ y) if n % 128]


@pytest.mark.parametrize("scales", [(1e38, 1e-38), (1e38, 1e-42)])
def test_scales_with_which_sums_are_infinite(scales):
    """The products of floats are finite where a sum of bytes times one scale is not."""
    one, other = np.float32(scales[0]), np.float32(scales[1])
    a, b = np.full((3, 32), 1, "i1"), extremes("u1", 32, 7)
    x, y = uopc.param("x", a.shape, dtypes.int8), uopc.param("y", b.shape, dtypes.uint8)
    graph = (x.cast(dtypes.float32) * float(one)) @ (y.cast(dtypes.float32) * float(other))
    wanted = (a.astype("f4") * one) @ (b.astype("f4") * other)
    assert np.isfinite(wanted).all()
    with described("dots"):
        got = uopc.compile(graph, verify=True)(x=a, y=b)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    assert not uses_dots("dots", graph)


@pytest.mark.parametrize("scale", [-0.5, 0.0, -0.0, 1e-40])
def test_a_sum_that_is_zero_has_no_sign(scale):
    a, b = np.tile(np.array([1, -1], "i1"), (3, 16)), np.ones((32, 7), "i1")
    a[0], a[1] = 0, -1
    x, y = uopc.param("x", a.shape, dtypes.int8), uopc.param("y", b.shape, dtypes.int8)
    graph = (x.cast(dtypes.float32) * scale) @ (y.cast(dtypes.float32) * 1.0)
    if scale:
        assert uses_dots("dots", graph)
    with described("dots"):
        got = uopc.compile(graph, verify=True)(x=a, y=b)
    np.testing.assert_allclose(got, (a.astype("f8") @ b) * np.float32(scale))
    assert not np.signbit(got[[0, 2]]).any()
    assert np.signbit(got[1]).all() == (scale > 0)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite(number):
    a, b = extremes("i1", 5, 32), np.ones((32, 7), "i1")
    x, y = uopc.param("x", a.shape, dtypes.int8), uopc.param("y", b.shape, dtypes.int8)
    graph = (x.cast(dtypes.float32) - number) @ y.cast(dtypes.float32)
    check("dots", graph, np.full((5, 7), -number, "f4"), dots=False, x=a, y=b)


@pytest.mark.parametrize(
    ("channels", "stride", "padding", "zero"), [(3, 1, 1, 113), (8, 2, 0, 7), (6, 1, 2, 0)]
)
def test_convolutions(channels, stride, padding, zero):
    """Borders are zeros of the numbers without their zero point."""
    (a, x), (b, w) = integers("u1", "x", 2, channels, 5, 6), integers("i1", "w", 6, channels, 3, 3)
    pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    seen = np.pad(a.astype("i4") - zero, pads)
    windows = np.lib.stride_tricks.sliding_window_view(seen, (3, 3), (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    wanted = np.einsum("ncijkl,ockl->noij", windows, b.astype("i4"))
    check("dots", (x - zero).conv2d(w, None, stride, padding), wanted, x=a, w=b)


@pytest.mark.parametrize("padding", [0, 1])
def test_dequantised_numbers(padding):
    """(x - zero) * scale on both sides, a scale for each channel of the weights."""
    a, b = extremes("u1", 1, 8, 6, 5), extremes("i1", 4, 8, 3, 3)
    s = RNG.uniform(1e-3, 2e-3, (4, 1, 1, 1)).astype("f4")
    x, w = uopc.param("x", a.shape, dtypes.uint8), uopc.param("w", b.shape, dtypes.int8)
    wide_x, wide_w = x.cast(dtypes.float32), w.cast(dtypes.float32)
    graph = ((wide_x - 113.0) * 0.02).conv2d(wide_w * uopc.constant(s), None, 1, padding)
    assert uses_dots("dots", graph)
    pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    seen = np.pad((a.astype("f8") - 113) * 0.02, pads)
    windows = np.lib.stride_tricks.sliding_window_view(seen, (3, 3), (2, 3))
    wanted = np.einsum("ncijkl,ockl->noij", windows, b.astype("f8") * s)
    with described("dots"):
        program = uopc.compile(graph, verify=True)
    np.testing.assert_allclose(program(a, b), wanted, rtol=1e-6, atol=1e-5)
    narrowed = next(r for r in lowered_for("dots", graph).runs if r.name == "narrow-products")
    made = interpreter.evaluate(narrowed.after[0].src[0], {"x": a, "w": b})
    np.testing.assert_allclose(made, wanted, rtol=1e-6, atol=1e-5)
    # Scales that may be infinite, and numbers that are no bytes, are multiplied as floats.
    scale = uopc.param("s", ())
    assert not uses_dots("dots", (wide_x * scale).conv2d(wide_w, None, 1, padding))
    assert not uses_dots("dots", (wide_x - 0.5).conv2d(wide_w, None, 1, padding))
    infinite = (wide_x * uopc.constant(np.array([np.inf], "f4"))).conv2d(wide_w, None, 1, padding)
    assert not uses_dots("dots", infinite)


def test_turned_and_batched_operands():
    (a, x), (b, y) = integers("i1", "x", 3, 33, 5), integers("i1", "y", 3, 7, 33)
    wanted = a.astype("i4").transpose(0, 2, 1) @ b.astype("i4").transpose(0, 2, 1)
    check("client", x.permute(0, 2, 1) @ y.permute(0, 2, 1), wanted, x=a, y=b)


@pytest.mark.parametrize("rows", [0, 1, 6, 40])
def test_symbolic_rows(rows):
    n = uopc.variable("n", 0, 40)
    a, b = extremes("i1", rows, 30), extremes("u1", 30, 17)
    x, y = uopc.param("x", (n, 30), dtypes.int8), uopc.param("y", b.shape, dtypes.uint8)
    graph = x.cast(dtypes.int32) @ y.cast(dtypes.int32)
    assert uses_dots("dots", graph)
    wanted = a.astype("i4") @ b.astype("i4")
    np.testing.assert_array_equal(uopc.compile(graph, verify=True)(a, b), wanted)


def test_threads_and_sizes_that_are_packed():
    """A product with panels, blocks and two threads, on the machine's own units."""
    (a, x), (b, y) = integers("u1", "x", 130, 517), integers("i1", "y", 517, 261)
    for threads in (1, 2):
        program = uopc.compile(x @ y, threads=threads)
        np.testing.assert_array_equal(program(a, b), a.astype("i4") @ b.astype("i4"))


def test_what_stays_without():
    """Sums that share nothing, wide integers, symbolic lengths, Opts, and other machines."""
    x, y = (uopc.param(n, (64, 64), dtypes.int8).cast(dtypes.int32) for n in "xy")
    n = uopc.variable("n", 1, 64)
    z = uopc.param("z", (n, 8), dtypes.int8).cast(dtypes.int32)
    assert not uses_dots("dots", (x * y).sum(axis=1))
    assert not uses_dots("dots", x @ uopc.param("w", (64, 4), dtypes.int16).cast(dtypes.int32))
    assert not uses_dots("dots", uopc.param("w", (4, n), dtypes.int8).cast(dtypes.int32) @ z)
    assert not uses_dots("dots", (x @ y).contiguous(()))
    for machine in ("laptop", "workstation", "old"):
        assert not uses_dots(machine, x @ y)


# ---------------------------------------------------------------- code
SDOT = 0x4E809400


def dots_of_arm(made, code_of_it=0x4E809C00):
    """The instructions USDOT, or others like it, on vectors of four words, in an object file."""
    found = elf.read(made.files[-1].read_bytes())
    assert found.machine == elf.AARCH64
    code = b"".join([section.data for section in found.sections if section.name == ".text"])
    return int(((np.frombuffer(code, "<u4") & 0xFFE0FC00) == code_of_it).sum())


@pytest.mark.parametrize(("rows", "columns", "least"), [(8, 16, 16), (64, 1, 8)])
def test_processors_of_arm_have_other_code(rows, columns, least, tmp_path):
    """LLVM ends the process at an instruction of another processor."""
    (_, a), (_, b) = integers("u1", "a", rows, 64), integers("i1", "b", 64, columns)
    for target, has in (("aarch64-i8mm", True), ("aarch64", False)):
        made = uopc.export(a @ b, tmp_path / "f", target=target)
        assert dots_of_arm(made) >= least if has else dots_of_arm(made) == 0
    with uopc.options(dot_products=False):
        assert dots_of_arm(uopc.export(a @ b, tmp_path / "f", target="aarch64-i8mm")) == 0
    before = uopc.export(a @ b, tmp_path / "f", target="aarch64-dotprod")
    assert dots_of_arm(before, SDOT) >= least and dots_of_arm(before) == 0


@pytest.mark.parametrize("kinds", ["u1 i1", "i1 i1", "u1 u1"])
@pytest.mark.parametrize("columns", [1, 3, 21])
@pytest.mark.few(3)
def test_kernels_of_arm_run_here(kinds, columns, monkeypatch, tmp_path):
    """For the numbers of a self-test: without the instruction, and with its bits."""
    module, ran = importlib.import_module("uopc.exporting.export"), []
    own = module.in_process
    monkeypatch.setattr(module, "in_process", lambda f: ran.append(own(f)) or ran[-1])
    first, second = kinds.split()
    (a, x), (b, y) = integers(first, "a", 9, 70), integers(second, "b", 70, columns)
    uopc.export(x @ y, tmp_path / "f", target="aarch64-i8mm", examples={"a": a, "b": b})
    np.testing.assert_array_equal(ran[0](a=a, b=b), a.astype("i8") @ b.astype("i8"))


@BOTH
def test_the_instruction_adds_to_its_accumulators(machine):
    """A tile of sums in registers, one instruction for each vector of them."""
    (_, x), (_, y) = integers("u1", "x", 64, 256), integers("i1", "y", 256, 128)
    lowered = lowered_for(machine, x @ y)
    (kernel,) = lowered.kernels
    assert all(len(u.src) == 3 for u in kernel.src if u.op is Ops.DOT4)
    target = MACHINES[machine]
    function, declared = split_function.render("product", kernel)
    if not detect.this_machine().has("sse2"):
        pytest.skip("LLVM makes code for the processors of another kind here")
    code = jit.assembly("\n".join((function, *declared)), target.cpu, target.features)
    register = "zmm" if machine == "dots" else "ymm"
    assert len(re.findall(rf"vpdpbusd\s.*%{register}", code)) >= 8
    assert "vpmulld" not in code


@needs_gcc
def test_the_kernel_in_c(tmp_path):
    """Spelled out, as C has no such op: gcc's code gives the same bits."""
    x, y, z = (uopc.param(n, (37,), dtypes.int32) for n in "xyz")
    program = uopc.compile(z + x.alu(Ops.DOT4, y))
    a, b, c = (extremes("i4", 37) for _ in range(3))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(by_gcc(program, tmp_path)(a, b, c), c + dot4(a, b))


# ---------------------------------------------------------------- constants
def test_words_of_constants_are_made_once(monkeypatch):
    """A constant factor is in words, with its sums, before the program is compiled."""
    a, b = extremes("i1", 9, 30), extremes("i1", 30, 21)
    x, w = uopc.param("x", a.shape, dtypes.int8), uopc.constant(b)
    graph = x.cast(dtypes.int32) @ w.cast(dtypes.int32)
    request = prepare(graph, None, True, 1, None, current())
    made, values = constants.worth_computing(request, MACHINES["dots"].target)
    assert values and constants.request_for(made, values) is None
    made = constants.replaced(made, values)
    words = np.zeros((32, 21), "i1")
    words[:30] = b
    held = [u.arg.array for u in walk.nodes(made.graph) if u.op is Ops.DATA]
    expected = np.ascontiguousarray(words.reshape(8, 4, 21).transpose(0, 2, 1)).view("i4")[..., 0]
    sums, packed = sorted(held, key=np.size)
    np.testing.assert_array_equal(packed.reshape(-1), np.moveaxis(expected, 1, 0).reshape(-1))
    np.testing.assert_array_equal(sums.reshape(-1), b.astype("i4").sum(0))
    wanted = a.astype("i4") @ b.astype("i4")
    np.testing.assert_array_equal(interpreter.evaluate(made.graph.src[0], {"x": a}), wanted)
    with described("dots"):
        np.testing.assert_array_equal(uopc.compile(graph, verify=True)(a), wanted)
    other = with_constants_computed(request, MACHINES["laptop"].target)
    assert other.graph is request.graph
    monkeypatch.setattr(interpreter, "evaluate", None)  # a later compile of the graph has them
    again = with_constants_computed(request, MACHINES["dots"].target)
    assert again.graph is made.graph


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("zero", [False, True], ids=["plain", "centred"])
def test_one_row_times_constant_bytes_is_in_words(rows, zero):
    """A matrix that is used once has its words before the program runs; an argument has not."""
    a, b = extremes("u1", rows, 100), extremes("i1", 100, 33)
    x = uopc.param("x", a.shape, dtypes.uint8).cast(dtypes.int32)
    x = x - uopc.param("z", (), dtypes.uint8).cast(dtypes.int32) if zero else x
    given = [a, *([np.uint8(77)] if zero else [])]
    wanted = (a.astype("i4") - (77 if zero else 0)) @ b.astype("i4")

    def products(w):
        request = prepare(x @ w.cast(dtypes.int32), None, True, 1, None, current())
        made = with_constants_computed(request, MACHINES["dots"].target).graph
        return [u for u in walk.nodes(made) if u.op is Ops.DOT4]

    assert products(uopc.constant(b)) and not products(uopc.param("w", b.shape, dtypes.int8))
    with described("dots"):
        f = uopc.compile(x @ uopc.constant(b).cast(dtypes.int32), verify=True)
    np.testing.assert_array_equal(f(*given), wanted)


def test_steps_of_a_loop_multiply_words():
    """A constant matrix of bytes in a step: its words are made once, before all calls."""
    a, b = extremes("u1", 70), extremes("i1", 70, 70)

    def step(c, _):
        sums = c.cast(dtypes.int32) @ uopc.constant(b).cast(dtypes.int32)
        return (sums & 255).cast(dtypes.uint8), None

    graph = uopc.scan(step, uopc.param("x", (70,), dtypes.uint8), length=5)[0]
    request = prepare(graph, None, True, 1, None, current())
    made = with_constants_computed(request, MACHINES["dots"].target).graph
    assert Ops.DOT4 in {u.op for u in walk.toposort(made)}
    held = [u.arg.array for u in walk.toposort(made) if u.op is Ops.DATA]
    assert [v.size for v in held if v.dtype == np.int32] == [18 * 70]
    wanted = a
    for _ in range(5):
        wanted = (wanted.astype("i4") @ b.astype("i4") & 255).astype("u1")
    for machine in ("dots", "laptop"):
        with described(machine):
            np.testing.assert_array_equal(uopc.compile(graph)(a), wanted)


def test_a_few_dequantised_numbers_are_computed_once():
    """The weights of a convolution of each channel on its own, which no word holds."""
    a, b = extremes("u1", 1, 6, 5, 5), extremes("i1", 6, 1, 3, 3)
    x, w = uopc.param("x", a.shape, dtypes.uint8), uopc.constant(b)
    weights = w.cast(dtypes.float32) * uopc.constant(np.full((6, 1, 1, 1), 0.5, "f4"))
    graph = x.cast(dtypes.float32).conv2d(weights, None, 1, 0, groups=6)
    request = prepare(graph, None, True, 1, None, current())
    made = with_constants_computed(request, MACHINES["dots"].target)
    (held,) = [u.arg.array for u in walk.nodes(made.graph) if u.op is Ops.DATA]
    np.testing.assert_array_equal(held, b.astype("f4") * np.float32(0.5))
    windows = np.lib.stride_tricks.sliding_window_view(a.astype("f4"), (3, 3), (2, 3))
    wanted = np.einsum("ncijkl,ckl->ncij", windows, held[:, 0])
    np.testing.assert_allclose(uopc.compile(graph)(a), wanted, rtol=1e-6)


def _byte_products():
    """A graph with a constant factor of bytes, an argument for it, and the result."""
    a, b = extremes("i1", 9, 64), extremes("i1", 64, 48)
    x = uopc.param("x", a.shape, dtypes.int8)
    graph = x.cast(dtypes.int32) @ uopc.constant(b).cast(dtypes.int32)
    return graph, a, a.astype("i4") @ b.astype("i4")


@BOTH
def test_a_program_is_exported_for_other_machines_without_words(machine, tmp_path):
    """The words in a program are for the machine that compiled it alone."""
    graph, a, wanted = _byte_products()
    with described(machine) as target:
        program = uopc.compile(graph)
        assert (Ops.DOT4 in walk.ops(program._source.request.graph)) == bool(target.dot4)
        for name, given in (("program", program), ("graph", graph)):
            uopc.export(given, tmp_path / name / "f", kind="c", target="x86-64-v3")
            uopc.export(given, tmp_path / name / "f", kind="shared", target="x86-64-v3")
    for file in ("f.c", "f.so"):
        made = [(tmp_path / name / file).read_bytes() for name in ("program", "graph")]
        assert made[0] == made[1]
    assert "dot4" not in (tmp_path / "program" / "f.c").read_text("utf-8").lower()
    np.testing.assert_array_equal(uopc.load_exported(tmp_path / "program" / "f.so")(a), wanted)


def test_a_pickled_program_is_compiled_for_the_machine_that_loads_it():
    graph, a, wanted = _byte_products()
    with described("dots"):
        data = pickle.dumps(uopc.compile(graph))
    with described("laptop"):
        other = pickle.loads(data)
        assert Ops.DOT4 not in walk.ops(other._source.request.graph)
        np.testing.assert_array_equal(other(a), wanted)
    with described("dots") as target:
        again = pickle.loads(pickle.dumps(other))
        assert (Ops.DOT4 in walk.ops(again._source.request.graph)) == bool(target.dot4)
        np.testing.assert_array_equal(again(a), wanted)


def test_an_export_for_a_machine_with_dot_products_has_the_words(tmp_path):
    """They are constants of the file, as they are of a program, and not made in each call."""
    graph, a, wanted = _byte_products()
    with only_lowered("dots"):
        request = exported.request_for(graph, None, True, "f", 1, detect.host())
        made = exported.lowered_for(request, machines.machine("host"), "f")
    (kernel,) = made.kernels.values()
    assert Ops.DOT4 in {u.op for u in kernel.linear.src}
    with described("dots"):
        uopc.export(graph, tmp_path / "f", kind="shared")
        np.testing.assert_array_equal(uopc.load_exported(tmp_path / "f.so")(a), wanted)
