"""The PTX machine, opcode by opcode, against Python's integers, exact fractions and NumPy."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ptx import machine, parse, rounding
from tests.ptx.build import NUMPY
from tests.ptx.memory import Memory

LANES = 32
REGISTER = {1: ("b16", "rs"), 2: ("b16", "rs"), 4: ("b32", "r"), 8: ("b64", "rd")}


def size_of(t):
    return parse.SIZES[t]


def numpy_of(t):
    return np.dtype({"f16x2": np.uint32, "bf16x2": np.uint32}.get(t, NUMPY.get(t)))


def kernel_text(body, types, out):
    """A kernel of one block: thread i reads element i of each input and writes element i."""
    lines = [".version 8.0", ".target sm_90a", ".address_size 64", ".visible .entry k("]
    lines += [",\n".join(f".param .u64 p{i}" for i in range(len(types) + 1)), ")", "{"]
    lines += [".reg .pred %p<9>;", ".reg .b16 %rs<40>;", ".reg .b32 %r<40>;", ".reg .b64 %rd<40>;"]
    lines += ["mov.u32 %r30, %tid.x;"]
    names = {}
    for i, t in enumerate(types):
        bits, prefix = REGISTER[size_of(t)]
        name = f"%{prefix}{i + 1}"
        names["abcd"[i]] = name
        lines += [f"ld.param.u64 %rd30, [p{i}];",
                  f"mad.wide.u32 %rd31, %r30, {size_of(t)}, %rd30;",
                  f"ld.global.{'u8' if size_of(t) == 1 else bits} {name}, [%rd31];"]  # fmt: skip
    prefix = REGISTER[size_of(out)][1]
    names["o"] = f"%{prefix}20"
    lines += [body.format(**names), f"ld.param.u64 %rd30, [p{len(types)}];",
              f"mad.wide.u32 %rd31, %r30, {size_of(out)}, %rd30;",
              f"st.global.{'u8' if size_of(out) == 1 else REGISTER[size_of(out)][0]} [%rd31], "
              f"{names['o']};", "ret;", "}"]  # fmt: skip
    return "\n".join(lines)


def execute(body, types, out, inputs):
    kernel = parse.parse(kernel_text(body, types, out))["k"]
    memory, result = Memory(), np.zeros(len(inputs[0]), numpy_of(out))
    places = [memory.place(np.ascontiguousarray(a)) for a in (*inputs, result)]
    args = machine.pack(kernel, places)
    machine.run(kernel, (1, 1, 1), (len(inputs[0]), 1, 1), args, memory)
    return result


def limits(t):
    bits = size_of(t) * 8
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if t[0] == "s" else (0, (1 << bits) - 1)


CORNERS = (0, 1, 2, 7, 31, 32, 63, 64, 255, -1)
FLOAT_CORNERS = (0.0, -0.0, 1.0, -1.5, 2.5, math.inf, -math.inf, math.nan, 2.0**-14, 65504.0)


def drawn(t, random):
    """LANES values of a type: corners, small ones, and any bits."""
    dtype = numpy_of(t)
    any_bits = random.integers(0, 256, LANES * dtype.itemsize, np.uint8).view(dtype)
    small = random.integers(-70, 70, LANES)
    if t[0] in "sub":
        low, high = limits(t)
        corners = [v for v in (*CORNERS, low, high, high - 1) if low <= v <= high]
        small = np.abs(small) if low == 0 else small
    else:
        corners, small = FLOAT_CORNERS, small / 8
    chosen = random.integers(0, len(corners), LANES)
    corner = np.array([corners[k] for k in chosen], object if t[0] in "sub" else np.float64)
    kind = random.integers(0, 3, LANES)
    with np.errstate(all="ignore"):
        picked = np.where(kind == 0, corner.astype(dtype), any_bits)
        return np.where(kind == 1, small.astype(dtype), picked).astype(dtype)


def seeds(*types):
    """Property over inputs: a strategy of one array for each type."""
    return st.integers(0, 1 << 32).map(
        lambda seed: [drawn(t, np.random.default_rng([seed, i])) for i, t in enumerate(types)]
    )


def wrap(v, t):
    bits = size_of(t) * 8
    v &= (1 << bits) - 1
    return v - (1 << bits) if t[0] == "s" and v >> (bits - 1) else v


def truncated(a, b):
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def bfe(t):
    def compute(a, at, n):
        at, n, bits = at & 255, n & 255, size_of(t) * 8
        raw = a & ((1 << bits) - 1)
        top = min(at + n - 1, bits - 1)
        fill = raw >> top & 1 if t[0] == "s" and n else 0
        return sum(
            (raw >> (at + i) & 1 if i < n and at + i < bits else fill) << i for i in range(bits)
        )

    return compute


def bfi(t):
    def compute(a, b, at, n):
        at, n, bits = at & 255, n & 255, size_of(t) * 8
        for i in range(n):
            if at + i < bits:
                b = b & ~(1 << (at + i)) | ((a >> i & 1) << (at + i))
        return b

    return compute


def prmt(a, b, c):
    pair = (a | b << 32).to_bytes(8, "little")
    out = bytearray()
    for k in range(4):
        chosen = c >> 4 * k & 15
        byte = pair[chosen & 7]
        out.append(byte if chosen < 8 else 255 if byte > 127 else 0)
    return int.from_bytes(out, "little")


def mul_hi(t):
    return lambda a, b: (a * b) >> (size_of(t) * 8)


def halves(compare):
    """1 where the lower halves compare so, as float16, and 2 where the upper ones do."""
    def want(a, b):
        low, high = compare(*(np.array([v], np.uint32).view(np.float16) for v in (a, b)))
        return int(low) + 2 * int(high)
    return want


def zeros(t):
    return lambda a: size_of(t) * 8 - a.bit_length()


def shift(t, right):
    def compute(a, n):
        return (a >> min(n, 64)) if right else (a << n if n < size_of(t) * 8 else 0)

    return compute


INTEGER = [
    *[(f"add.{t} {{o}}, {{a}}, {{b}};", (t, t), t, lambda a, b: a + b)
      for t in ("s16", "u16", "s32", "u32", "s64", "u64")],
    *[(f"sub.{t} {{o}}, {{a}}, {{b}};", (t, t), t, lambda a, b: a - b) for t in ("s32", "u64")],
    *[(f"mul.lo.{t} {{o}}, {{a}}, {{b}};", (t, t), t, lambda a, b: a * b)
      for t in ("s16", "s32", "u64")],
    *[(f"mul.hi.{t} {{o}}, {{a}}, {{b}};", (t, t), t,
       mul_hi(t)) for t in ("s16", "s32", "u32", "s64", "u64")],
    *[(f"mul.wide.{t} {{o}}, {{a}}, {{b}};", (t, t), w, lambda a, b: a * b)
      for t, w in (("s16", "s32"), ("u16", "u32"), ("s32", "s64"), ("u32", "u64"))],
    *[(f"mad.lo.{t} {{o}}, {{a}}, {{b}}, {{c}};", (t, t, t), t, lambda a, b, c: a * b + c)
      for t in ("s16", "u32", "s64")],
    ("mad.wide.s32 {o}, {a}, {b}, {c};", ("s32", "s32", "s64"), "s64", lambda a, b, c: a * b + c),
    *[(f"div.{t} {{o}}, {{a}}, {{b}};", (t, t), t, lambda a, b: truncated(a, b) if b else -1)
      for t in ("s16", "s32", "u32", "s64", "u64")],
    *[(f"rem.{t} {{o}}, {{a}}, {{b}};", (t, t), t,
       lambda a, b: a - truncated(a, b) * b if b else a) for t in ("s32", "u32", "s64")],
    *[(f"min.{t} {{o}}, {{a}}, {{b}};", (t, t), t, min) for t in ("s16", "u32", "s64")],
    *[(f"max.{t} {{o}}, {{a}}, {{b}};", (t, t), t, max) for t in ("u16", "s32", "u64")],
    *[(f"abs.{t} {{o}}, {{a}};", (t,), t, abs) for t in ("s16", "s32", "s64")],
    *[(f"neg.{t} {{o}}, {{a}};", (t,), t, lambda a: -a) for t in ("s16", "s32", "s64")],
    *[(f"{op}.{t} {{o}}, {{a}}, {{b}};", (t, t), t, f) for t in ("b16", "b32", "b64")
      for op, f in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b),
                    ("xor", lambda a, b: a ^ b))],
    *[(f"not.{t} {{o}}, {{a}};", (t,), t, lambda a: ~a) for t in ("b16", "b32", "b64")],
    *[(f"shl.{t} {{o}}, {{a}}, {{b}};", (t, "u32"), t, shift(t, False))
      for t in ("b16", "b32", "b64")],
    *[(f"shr.{t} {{o}}, {{a}}, {{b}};", (t, "u32"), t, shift(t, True))
      for t in ("s16", "u16", "s32", "u32", "s64", "u64")],
    ("shf.l.wrap.b32 {o}, {a}, {b}, {c};", ("b32", "b32", "u32"), "b32",
     lambda a, b, c: ((b << 32 | a) << (c & 31)) >> 32),
    ("shf.r.clamp.b32 {o}, {a}, {b}, {c};", ("b32", "b32", "u32"), "b32",
     lambda a, b, c: (b << 32 | a) >> min(c, 32)),
    *[(f"bfe.{t} {{o}}, {{a}}, {{b}}, {{c}};", (t, "u32", "u32"), t, bfe(t))
      for t in ("u32", "s32", "u64", "s64")],
    *[(f"bfi.{t} {{o}}, {{a}}, {{b}}, {{c}}, {{d}};", (t, t, "u32", "u32"), t, bfi(t))
      for t in ("b32", "b64")],
    ("prmt.b32 {o}, {a}, {b}, {c};", ("b32", "b32", "b32"), "b32", prmt),
    *[(f"popc.{t} {{o}}, {{a}};", (t,), "u32", lambda a: bin(a).count("1"))
      for t in ("b32", "b64")],
    *[(f"clz.{t} {{o}}, {{a}};", (t,), "u32", zeros(t))
      for t in ("b32", "b64")],
    ("brev.b32 {o}, {a};", ("b32",), "b32", lambda a: int(f"{a:032b}"[::-1], 2)),
    ("lop3.b32 {o}, {a}, {b}, {c}, 0xCA;", ("b32", "b32", "b32"), "b32",
     lambda a, b, c: (a & b) | (~a & c)),
    ("setp.ne.b32 %p1, {c}, 0; selp.b32 {o}, {a}, {b}, %p1;", ("b32", "b32", "b32"), "b32",
     lambda a, b, c: a if c else b),
    ("setp.lt.and.s32 %p1|%p2, {a}, {b}, 1; selp.b32 {o}, 1, 0, %p1;"
     "@%p2 add.s32 {o}, {o}, 2;", ("s32", "s32"), "s32", lambda a, b: 1 if a < b else 2),
    *[(f"setp.{c}.f16x2 %p1|%p2, {{a}}, {{b}}; selp.b32 {{o}}, 1, 0, %p1;"
       "@%p2 add.s32 {o}, {o}, 2;", ("b32", "b32"), "s32", halves(f))
      for c, f in (("lt", np.less), ("neu", np.not_equal))],
    ("setp.ge.u64 %p1, {a}, {b}; not.pred %p1, %p1; selp.s32 {o}, -1, 0, %p1;", ("u64", "u64"),
     "s32", lambda a, b: -(a < b)),
    ("add.cc.u32 {o}, {a}, {b}; addc.u32 {o}, 0, 0;", ("u32", "u32"), "u32",
     lambda a, b: (a + b) >> 32),
    ("sub.cc.u32 {o}, {a}, {b}; subc.u32 {o}, 0, 0;", ("u32", "u32"), "s32",
     lambda a, b: -(a < b)),
    ("dp4a.s32.u32 {o}, {a}, {b}, {c};", ("b32", "b32", "s32"), "s32",
     lambda a, b, c: c + sum(x * y for x, y in zip(
         np.array([a], np.uint32).view(np.int8).tolist(), b.to_bytes(4, "little")))),
    *[(f"cvt.{to}.{t} {{o}}, {{a}};", (t,), to, lambda a: a)
      for to, t in (("s64", "s32"), ("u64", "u32"), ("u16", "u32"), ("u32", "u64"),
                    ("s32", "s16"), ("s16", "s8"), ("u16", "u8"))],
    ("cvt.s8.s32 {o}, {a};", ("s32",), "s16", lambda a: wrap(a, "s8")),
    ("cvt.sat.u8.s32 {o}, {a};", ("s32",), "u16", lambda a: min(max(a, 0), 255)),
    ("mov.b32 {{%rs30, %rs31}}, {a}; mov.b32 {o}, {{%rs31, %rs30}};", ("b32",), "b32",
     lambda a: (a << 16 | a >> 16)),
    ("mov.b64 {{_, {o}}}, {a};", ("b64",), "b32", lambda a: a >> 32),
]  # fmt: skip


@pytest.mark.parametrize("body, types, out, want", INTEGER, ids=[c[0] for c in INTEGER])
@pytest.mark.few(18)
def test_integers(body, types, out, want):
    @settings(max_examples=8, deadline=None)
    @given(seeds(*types))
    def check(inputs):
        got = execute(body, types, out, inputs)
        rows = list(zip(*[a.tolist() for a in inputs]))
        expected = [wrap(want(*row), out) for row in rows]
        assert got.tolist() == expected, [r for r, g, w in zip(rows, got, expected) if g != w][:3]

    check()


# ---------------------------------------------------------------- floats
PRECISION = {"f16": (11, -24, 65520.0), "f32": (24, -149, 3.4028235677973366e38),
             "bf16": (8, -133, 3.3961775292304957e38),
             "f64": (53, -1074, None)}  # fmt: skip


def rounded(exact, t):
    """A fraction to the nearest float of a type, ties to even."""
    if exact == 0:
        return 0.0
    bits, least, limit = PRECISION[t]
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - bits + 1, least)
    scaled = size / unit
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1)
    result = whole * unit
    if limit is not None and result >= Fraction(limit):
        return math.inf if exact > 0 else -math.inf
    try:
        return float(result) if exact > 0 else -float(result)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def exactly(compute, approximate, t):
    """The reference of a float operation: exact where all is finite, IEEE's where not."""

    def want(*args):
        if all(math.isfinite(a) for a in args):
            try:
                exact = compute(*map(Fraction, args))
            except ZeroDivisionError:
                return approximate(*args)
            if exact != 0:
                return rounded(exact, t)
        return approximate(*args)

    return want


def same(got, want):
    """Equal, NaN with NaN; zeros by sign."""
    if math.isnan(want):
        return math.isnan(got)
    return got == want and math.copysign(1, got) == math.copysign(1, want)


def wide(f):
    def compute(*args):
        with np.errstate(all="ignore"):
            return float(f(*[np.float64(a) for a in args]))

    return compute


def number_max(a, b):
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    if a == b == 0:
        return 0.0 if math.copysign(1, a) > 0 or math.copysign(1, b) > 0 else -0.0
    return max(a, b)


def saturate(t):
    low, high = limits(t)

    def want(a, whole):
        if math.isnan(a):
            return None
        return low if a <= low else high if a >= high else int(whole(a))

    return want


FLOAT = [
    *[(f"{op}.rn.{t} {{o}}, {{a}}, {{b}};", (t, t), t, exactly(f, wide(g), t))
      for t in ("f16", "f32", "f64", "bf16")
      for op, f, g in (("add", lambda a, b: a + b, np.add), ("sub", lambda a, b: a - b,
                       np.subtract), ("mul", lambda a, b: a * b, np.multiply))],
    *[(f"fma.rn.{t} {{o}}, {{a}}, {{b}}, {{c}};", (t, t, t), t,
       exactly(lambda a, b, c: a * b + c, wide(lambda a, b, c: a * b + c), t))
      for t in ("f16", "f32", "f64", "bf16")],
    *[(f"div.rn.{t} {{o}}, {{a}}, {{b}};", (t, t), t,
       exactly(lambda a, b: a / b, wide(np.divide), t)) for t in ("f32", "f64")],
    ("rcp.rn.f32 {o}, {a};", ("f32",), "f32",
     exactly(lambda a: 1 / a, wide(lambda a: 1 / a), "f32")),
    *[(f"sqrt.rn.{t} {{o}}, {{a}};", (t,), t,
       lambda a, t=t: float(np.sqrt(np.array(a, NUMPY[t])))) for t in ("f32", "f64")],
    *[(f"max.{t} {{o}}, {{a}}, {{b}};", (t, t), t, number_max) for t in ("f16", "f32", "f64")],
    ("max.NaN.f32 {o}, {a}, {b};", ("f32", "f32"), "f32",
     lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else number_max(a, b)),
    *[(f"min.{t} {{o}}, {{a}}, {{b}};", (t, t), t,
       lambda a, b: -number_max(-a, -b)) for t in ("f32", "bf16")],
    *[(f"neg.{t} {{o}}, {{a}};", (t,), t, lambda a: -a) for t in ("f16", "f32", "f64", "bf16")],
    *[(f"abs.{t} {{o}}, {{a}};", (t,), t, abs) for t in ("f16", "f32", "f64")],
    ("copysign.f32 {o}, {a}, {b};", ("f32", "f32"), "f32", lambda a, b: math.copysign(b, a)),
    *[(f"setp.{c}.f32 %p1, {{a}}, {{b}}; selp.f32 {{o}}, 0f3F800000, 0f00000000, %p1;",
       ("f32", "f32"), "f32", f) for c, f in {
        "lt": lambda a, b: float(a < b), "geu": lambda a, b: float(not a < b),
        "neu": lambda a, b: float(a != b), "ne": lambda a, b: float(a < b or a > b),
        "equ": lambda a, b: float(not (a < b or a > b)),
        "num": lambda a, b: float(a == a and b == b),
        "nan": lambda a, b: float(a != a or b != b)}.items()],
    *[(f"cvt.{m}.{t}.{t} {{o}}, {{a}};", (t,), t, wide(f)) for t in ("f32", "f64")
      for m, f in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil))],
    *[(f"cvt.rn.{to}.{t} {{o}}, {{a}};", (t,), to, exactly(lambda a: a, lambda a: a, to))
      for to, t in (("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "f64"),
                    ("bf16", "f64"))],
    *[(f"cvt.{to}.{t} {{o}}, {{a}};", (t,), to, lambda a: a)
      for to, t in (("f32", "f16"), ("f64", "f32"), ("f32", "bf16"), ("f64", "f16"))],
    ("cvt.sat.f32.f32 {o}, {a};", ("f32",), "f32",
     lambda a: 0.0 if math.isnan(a) else min(max(a, 0.0), 1.0)),
    ("cvt.rz.f32.f64 {o}, {a};", ("f64",), "f32",
     lambda a: a if not math.isfinite(a) or a == 0 else toward_zero(a)),
]  # fmt: skip


def toward_zero(a):
    with np.errstate(over="ignore"):
        near = np.float32(a)
    if abs(float(near)) > abs(a):
        near = np.nextafter(near, np.float32(0))
    return math.copysign(float(near), a)


@pytest.mark.parametrize("body, types, out, want", FLOAT, ids=[c[0] for c in FLOAT])
@pytest.mark.few(16)
def test_floats(body, types, out, want):
    @settings(max_examples=8, deadline=None)
    @given(seeds(*types))
    def check(inputs):
        got = execute(body, types, out, inputs).astype(np.float64)
        rows = list(zip(*[a.astype(np.float64).tolist() for a in inputs]))
        bad = [(r, g, want(*r)) for r, g in zip(rows, got.tolist()) if not same(g, want(*r))]
        assert not bad, bad[:3]

    check()


INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@pytest.mark.parametrize("mode", INTEGRAL)
@pytest.mark.parametrize(
    "source, target",
    [("f32", "s32"), ("f32", "u64"), ("f64", "s64"), ("f16", "u16"), ("f64", "u32")],
)
def test_float_to_integer(mode, source, target):
    @settings(max_examples=8, deadline=None)
    @given(seeds(source))
    def check(inputs):
        (a,) = inputs
        got = execute(f"cvt.{mode}.{target}.{source} {{o}}, {{a}};", (source,), target, [a])
        for x, g in zip(a.astype(np.float64).tolist(), got.tolist()):
            want = saturate(target)(x, INTEGRAL[mode])
            if want is None:
                wide_nan = source == "f64" or target in ("s64", "u64")
                want = wrap(1 << (size_of(target) * 8 - 1), target) if wide_nan else 0
            assert g == want, (x, g, want)

    check()


@pytest.mark.parametrize("source", ["s16", "u32", "s32", "s64", "u64"])
@pytest.mark.parametrize("target", ["f32", "f64", "f16"])
def test_integer_to_float(source, target):
    @settings(max_examples=8, deadline=None)
    @given(seeds(source))
    def check(inputs):
        (a,) = inputs
        got = execute(f"cvt.rn.{target}.{source} {{o}}, {{a}};", (source,), target, [a])
        want = [rounded(Fraction(x), target) for x in a.tolist()]
        assert got.astype(np.float64).tolist() == want

    check()


@pytest.mark.parametrize("name, kind", [("f16x2", np.float16), ("bf16x2", ml_dtypes.bfloat16)])
def test_pairs(name, kind):
    random = np.random.default_rng(3)
    a, b, c = (random.standard_normal((LANES, 2)).astype(kind) for _ in range(3))
    words = [np.ascontiguousarray(x).view(np.uint32).reshape(-1) for x in (a, b, c)]
    got = execute(f"fma.rn.{name} {{o}}, {{a}}, {{b}}, {{c}};", ("b32",) * 3, "b32", words)
    want = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    assert np.array_equal(got.view(kind).reshape(-1, 2), want.astype(np.float32).astype(kind))
    floats = [a[:, 0].astype(np.float32), a[:, 1].astype(np.float32)]
    got = execute(f"cvt.rn.{name}.f32 {{o}}, {{a}}, {{b}};", ("f32", "f32"), "b32", floats)
    assert np.array_equal(got.view(kind).reshape(-1, 2)[:, ::-1], a)


@pytest.mark.parametrize(
    "name, kind, limit",
    [("e4m3x2", ml_dtypes.float8_e4m3fn, 448), ("e5m2x2", ml_dtypes.float8_e5m2, 57344)],
)
def test_eight_bits(name, kind, limit):
    random = np.random.default_rng(4)
    a, b = (random.standard_normal(LANES).astype(np.float32) * 300 for _ in range(2))
    body = f"cvt.rn.satfinite.{name}.f32 {{o}}, {{a}}, {{b}};"
    got = execute(body, ("f32", "f32"), "b16", [a, b]).view(np.uint8).reshape(-1, 2)
    for column, x in ((1, a), (0, b)):
        assert np.array_equal(got[:, column], np.clip(x, -limit, limit).astype(kind).view("u1"))
    every = np.arange(256, dtype=np.uint8).view(np.uint16)
    back = execute(f"cvt.rn.f16x2.{name} {{o}}, {{a}};", ("b16",), "b32", [every])
    want = np.arange(256, dtype=np.uint8).view(kind).astype(np.float16)
    assert np.array_equal(back.view(np.float16), want, equal_nan=True)


def test_fused_products_are_rounded_once():
    """Sums next to the middle of two float32s, where a rounding to float64 first would lose what
    decides; and among subnormal numbers."""
    random = np.random.default_rng(5)
    a, b, c = (1 + random.integers(0, 1 << 23, (3, 2000)) * 2.0**-23).astype(np.float32)
    c *= 2.0 ** random.integers(-40, 40, 2000).astype(np.float32)
    b[:500] = 2.0**-24  # half a unit in the last place of c, and a little more or less
    a[:500] = 1 + random.integers(-1, 2, 500) * 2.0**-23
    c[:500] = 1 + random.integers(0, 100, 500) * 2.0**-23
    a[500:1000] *= 2.0**-126
    b[500:1000] *= 2.0**-20
    c[500:1000] = 2.0**-148
    got = rounding.fused(a, b, c)
    rows = zip(a.tolist(), b.tolist(), c.tolist())
    exact = [Fraction(x) * Fraction(y) + Fraction(z) for x, y, z in rows]
    assert got.tolist() == [float(rounded(x, "f32")) for x in exact]


def test_tf32_keeps_ten_bits():
    a = np.array([1 + 2.0**-11, 1 + 2.0**-12, -1 - 3 * 2.0**-11, 3.0] * 8, np.float32)
    got = execute("cvt.rna.tf32.f32 {o}, {a};", ("f32",), "f32", [a])
    assert np.array_equal(got, np.array([1 + 2.0**-10, 1, -1 - 2 * 2.0**-10, 3] * 8, np.float32))


@pytest.mark.parametrize(
    "op, f",
    [("ex2", np.exp2), ("lg2", np.log2), ("sin", np.sin), ("rsqrt", lambda a: 1 / np.sqrt(a))],
)
def test_approximations_are_reported(op, f):
    a = np.linspace(0.1, 4, LANES).astype(np.float32)
    text = kernel_text(f"{op}.approx.f32 {{o}}, {{a}};", ("f32",), "f32")
    kernel = parse.parse(text)["k"]
    memory, out = Memory(), np.zeros(LANES, np.float32)
    args = machine.pack(kernel, [memory.place(a), memory.place(out)])
    report = machine.run(kernel, (1, 1, 1), (LANES, 1, 1), args, memory)
    assert report.approximate == {op}
    np.testing.assert_allclose(out, f(a.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize(
    "body",
    ["frobnicate.b32 {o}, {a};", "add.rz.f32 {o}, {a}, {a};", "mul.lo.sat.s32 {o}, {a}, {a};",
     "add.s32 {o}, {a}, %clock;"],
)  # fmt: skip
def test_what_is_not_known_is_refused(body):
    with pytest.raises(parse.PtxError, match=r"not known|expected"):
        execute(body, ("b32",), "b32", [np.zeros(LANES, np.uint32)])
