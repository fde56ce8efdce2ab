"""Integer, bit and predicate instructions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.ptx.build import NUMPY, Action, Build, Builder, Unknown
from tests.ptx.machine import Lanes
from tests.ptx.memory import Array
from tests.ptx.parse import Immediate

INTS = ("s16", "u16", "s32", "u32", "s64", "u64")
BITS = ("pred", "b16", "b32", "b64")


def elementwise(build: Build, types: str, compute: Callable[..., Array]) -> Action:
    """`types` names the type of each source; the result goes to operand 0."""
    names = types.split()
    gets = [build.get(i + 1, t) for i, t in enumerate(names)]
    put = build.set(build.operands[0])
    build.modifiers.done()
    return lambda lanes: put(lanes, compute(*[g(lanes) for g in gets]))


def _same(count: int, allowed: tuple[str, ...], compute: Callable[..., Array]) -> Builder:
    def make(build: Build) -> Action:
        t = build.modifiers.type(allowed)
        return elementwise(build, " ".join([t] * count), compute)

    return make


def _wide(t: str) -> str:
    return t[0] + str(2 * int(t[1:]))


def high(a: Array, b: Array) -> Array:
    """The upper half of the product."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        kind = "i" if a.dtype.kind == "i" else "u"
        wide = a.astype(f"{kind}8") * b.astype(f"{kind}8")
        return (wide >> bits).astype(a.dtype)
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & low, x >> shift, y & low, y >> shift
    middle = x1 * y0 + ((x0 * y0) >> shift)
    other = x0 * y1 + (middle & low)
    out = x1 * y1 + (middle >> shift) + (other >> shift)
    if a.dtype.kind == "i":  # a negative factor counts as 2**64 more
        out = out - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return out.view(a.dtype)


def multiply(build: Build) -> Action:
    """mul.lo, mul.hi, mul.wide and their mad forms."""
    m = build.modifiers
    t = m.type(INTS)
    how = m.choose(("lo", "hi", "wide"))
    adds = build.instruction.root == "mad"
    result = _wide(t) if how == "wide" else t
    dtype = NUMPY[result]

    def compute(a: Array, b: Array, *c: Array) -> Array:
        if how == "hi":
            a, b = np.broadcast_arrays(a, b)
            product = high(np.ascontiguousarray(a), np.ascontiguousarray(b))
        else:
            product = a.astype(dtype) * b.astype(dtype)
        return product + c[0] if c else product

    return elementwise(build, f"{t} {t} {result}" if adds else f"{t} {t}", compute)


def divide(a: Array, b: Array) -> Array:
    """Toward 0; a quotient by 0 has all bits set, as hardware gives it."""
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.where(b == 0, ~np.zeros_like(a), np.floor_divide(a, safe))
    if a.dtype.kind == "i":
        inexact = (np.remainder(a, safe) != 0) & ((a < 0) != (b < 0)) & (b != 0)
        quotient = quotient + inexact.astype(a.dtype)
    return quotient.astype(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, np.ones_like(b), b)
    return np.where(b == 0, a, np.fmod(a, safe)).astype(a.dtype)


def shift_left(build: Build) -> Action:
    t = build.modifiers.type(("b16", "b32", "b64"))

    def compute(a: Array, n: Array) -> Array:
        bits = a.dtype.itemsize * 8
        count = np.minimum(n, bits - 1).astype(a.dtype)
        return np.where(n >= bits, a.dtype.type(0), a << count)

    return elementwise(build, f"{t} u32", compute)


def shift_right(build: Build) -> Action:
    t = build.modifiers.type((*INTS, "b16", "b32", "b64"))

    def compute(a: Array, n: Array) -> Array:
        bits = a.dtype.itemsize * 8
        shifted = a >> np.minimum(n, bits - 1).astype(a.dtype)
        return shifted if a.dtype.kind == "i" else np.where(n >= bits, a.dtype.type(0), shifted)

    return elementwise(build, f"{t} u32", compute)


def funnel(build: Build) -> Action:
    """shf: the upper (left) or lower (right) half of a shifted pair."""
    m = build.modifiers
    left = m.choose(("l", "r")) == "l"
    wraps = m.choose(("wrap", "clamp")) == "wrap"
    m.type(("b32",))

    def compute(low: Array, up: Array, n: Array) -> Array:
        count = (n & 31 if wraps else np.minimum(n, 32)).astype(np.uint64)
        pair = (up.astype(np.uint64) << np.uint64(32)) | low
        if left:
            return ((pair << count) >> np.uint64(32)).astype(np.uint32)
        return (pair >> count).astype(np.uint32)

    return elementwise(build, "b32 b32 u32", compute)


def extract(build: Build) -> Action:
    """bfe: `length` bits from `at`, extended by the sign of the uppermost for signed types."""
    t = build.modifiers.type(("u32", "s32", "u64", "s64"))
    bits = int(t[1:])

    def compute(a: Array, at: Array, length: Array) -> Array:
        at, length = (at & 0xFF).astype(np.int64), (length & 0xFF).astype(np.int64)
        raw = a.astype(np.uint64) & np.uint64((1 << bits) - 1)
        down = np.where(at >= 64, np.uint64(0), raw >> np.minimum(at, 63).astype(np.uint64))
        keep = np.where(length >= 64, np.uint64(2**64 - 1),
                        (np.uint64(1) << np.minimum(length, 63).astype(np.uint64)) - np.uint64(1))
        out = down & keep
        if t[0] == "s":
            top = np.minimum(at + length - 1, bits - 1)
            sign = (raw >> np.maximum(top, 0).astype(np.uint64)) & np.uint64(1)
            inside = np.minimum(np.maximum(bits - at, 0), length)
            fill = ~(np.where(inside >= 64, np.uint64(2**64 - 1),
                     (np.uint64(1) << np.minimum(inside, 63).astype(np.uint64)) - np.uint64(1)))
            out = np.where((sign == 1) & (length > 0), (down & ~fill) | fill, out)
        return out.astype(f"u{bits // 8}").view(NUMPY[t])

    return elementwise(build, f"{t} u32 u32", compute)


def insert(build: Build) -> Action:
    """bfi: `length` bits of a put into b at a place."""
    t = build.modifiers.type(("b32", "b64"))
    bits = int(t[1:])

    def compute(a: Array, b: Array, at: Array, length: Array) -> Array:
        at, length = (at & 0xFF).astype(np.uint64), (length & 0xFF).astype(np.uint64)
        one = np.uint64(1)
        ones = np.where(length >= 64, np.uint64(2**64 - 1), (one << np.minimum(length, 63)) - one)
        mask = np.where(at >= 64, np.uint64(0), ones << np.minimum(at, 63))
        moved = a.astype(np.uint64) << np.minimum(at, np.uint64(63))
        out = (b.astype(np.uint64) & ~mask) | (moved & mask)
        return (out & np.uint64((1 << bits) - 1)).astype(f"u{bits // 8}")

    return elementwise(build, f"{t} {t} u32 u32", compute)


def permute(build: Build) -> Action:
    """prmt: each byte of the result chosen from the eight of a and b, or its sign repeated."""
    build.modifiers.type(("b32",))

    def compute(a: Array, b: Array, c: Array) -> Array:
        pair = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
        out = np.zeros(1, np.uint64)
        for k in range(4):
            chosen = (c.astype(np.uint64) >> np.uint64(4 * k)) & np.uint64(0xF)
            byte = (pair >> ((chosen & np.uint64(7)) * np.uint64(8))) & np.uint64(0xFF)
            sign = np.where(byte >= 128, np.uint64(0xFF), np.uint64(0))
            out = out | (np.where(chosen >= 8, sign, byte) << np.uint64(8 * k))
        return out.astype(np.uint32)

    return elementwise(build, "b32 b32 u32", compute)


def _bits_of(a: Array) -> Array:
    """(lanes, bits), the lowest first."""
    shifts = np.arange(a.dtype.itemsize * 8).astype(a.dtype)
    return (a[:, None] >> shifts) & a.dtype.type(1)


def population(build: Build) -> Action:
    t = build.modifiers.type(("b32", "b64"))
    return elementwise(build, t, lambda a: _bits_of(a).sum(axis=1).astype(np.uint32))


def leading_zeros(build: Build) -> Action:
    t = build.modifiers.type(("b32", "b64"))

    def compute(a: Array) -> Array:
        bits = _bits_of(a)[:, ::-1]
        return np.where(a == 0, bits.shape[1], bits.argmax(axis=1)).astype(np.uint32)

    return elementwise(build, t, compute)


def reverse(build: Build) -> Action:
    t = build.modifiers.type(("b32", "b64"))

    def compute(a: Array) -> Array:
        bits = _bits_of(a)[:, ::-1]
        weights = a.dtype.type(1) << np.arange(bits.shape[1]).astype(a.dtype)
        return (bits * weights).sum(axis=1).astype(a.dtype)

    return elementwise(build, t, compute)


def logic3(build: Build) -> Action:
    """lop3: any function of three bits, by its truth table."""
    build.modifiers.type(("b32",))
    table = build.operands[4]
    if not isinstance(table, Immediate):
        raise Unknown(f"{build.instruction.text}: the table is no number")
    where = [i for i in range(8) if table.value >> i & 1]

    def compute(a: Array, b: Array, c: Array) -> Array:
        out = np.zeros(1, np.uint32)
        for i in where:
            terms = [x if i & bit else ~x for x, bit in ((a, 4), (b, 2), (c, 1))]
            out = out | (terms[0] & terms[1] & terms[2])
        return out

    return elementwise(build, "b32 b32 b32", compute)


def select(build: Build) -> Action:
    t = build.modifiers.type((*INTS, "b16", "b32", "b64", "f32", "f64"))
    return elementwise(build, f"{t} {t} pred", lambda a, b, p: np.where(p, a, b))


def with_carry(build: Build) -> Action:
    """add and sub of integers, with .cc (sets the carry), and addc and subc (use it)."""
    m = build.modifiers
    t = m.type(INTS)
    sets, saturates = m.take("cc"), m.take("sat")
    root = build.instruction.root
    minus, uses = root.startswith("sub"), root.endswith("c")
    if not (sets or uses or saturates):
        return elementwise(build, f"{t} {t}", np.subtract if minus else np.add)
    m.done()
    if saturates:
        raise Unknown(f"{build.instruction.text}: saturating addition")
    bits = f"u{t[1:]}"
    first, second, put = build.get(1, bits), build.get(2, bits), build.set(build.operands[0])

    def act(lanes: Lanes) -> None:
        a, b = np.broadcast_arrays(first(lanes), second(lanes))
        carry = lanes.here(lanes.carry).astype(a.dtype) if uses else a.dtype.type(0)
        half = a - b if minus else a + b
        total = half - carry if minus else half + carry
        if sets:
            out = (a < b) | (half < carry) if minus else (half < a) | (total < half)
            lanes.carry[lanes.lanes] = out
        put(lanes, total)

    return act


def _logical(integer: Callable[..., Array]) -> Builder:
    return _same(2, BITS, integer)


def dot4(build: Build) -> Action:
    """dp4a: the dot product of four bytes each, added."""
    m = build.modifiers
    kinds = [m.type(("s32", "u32")) for _ in range(2)][::-1]
    views = [np.int8 if k == "s32" else np.uint8 for k in kinds]
    signed = "s32" in kinds

    def compute(a: Array, b: Array, c: Array) -> Array:
        a, b, c = (np.ascontiguousarray(x) for x in np.broadcast_arrays(a, b, c))
        x, y = (v.view(t).reshape(-1, 4).astype(np.int64) for v, t in zip((a, b), views))
        return ((x * y).sum(axis=1) + c).astype(np.int32 if signed else np.uint32)

    return elementwise(build, f"b32 b32 {'s32' if signed else 'u32'}", compute)


TABLE: dict[str, Builder] = {
    "div": _same(2, INTS, divide),
    "rem": _same(2, INTS, remainder),
    "min": _same(2, INTS, np.minimum),
    "max": _same(2, INTS, np.maximum),
    "abs": _same(1, ("s16", "s32", "s64"), np.abs),
    "neg": _same(1, ("s16", "s32", "s64"), np.negative),
    "and": _logical(np.bitwise_and),
    "or": _logical(np.bitwise_or),
    "xor": _logical(np.bitwise_xor),
    "not": _same(1, BITS, np.invert),
    "cnot": _same(1, BITS[1:], lambda a: (a == 0).astype(a.dtype)),
    "mul": multiply,
    "mad": multiply,
    "add": with_carry,
    "sub": with_carry,
    "addc": with_carry,
    "subc": with_carry,
    "shl": shift_left,
    "shr": shift_right,
    "shf": funnel,
    "bfe": extract,
    "bfi": insert,
    "prmt": permute,
    "popc": population,
    "clz": leading_zeros,
    "brev": reverse,
    "lop3": logic3,
    "selp": select,
    "dp4a": dot4,
}
