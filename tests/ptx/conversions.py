"""cvt, mov and cvta."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from tests.ptx import rounding
from tests.ptx.build import NUMPY, Action, Build, Builder, Unknown
from tests.ptx.integers import elementwise
from tests.ptx.machine import Lanes
from tests.ptx.memory import LOCAL_WINDOW, SHARED_WINDOW, Array
from tests.ptx.parse import SIZES, Operand, Vector

_INTS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
_FLOATS = ("f16", "bf16", "f32", "f64")
_EIGHT = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}
_LIMIT = {"e4m3x2": 448.0, "e5m2x2": 57344.0}
_TO_INTEGER: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip


def convert(build: Build) -> Action:
    """cvt of one value, of pairs, and to and from 8-bit floats."""
    m = build.modifiers
    source = m.type((*_INTS, *_FLOATS, "f16x2", "bf16x2", *_EIGHT))
    target = m.type((*_INTS, *_FLOATS, "f16x2", "bf16x2", "tf32", *_EIGHT))
    if target in _EIGHT:
        return _to_eight(build, source, target)
    if source in _EIGHT:
        return _from_eight(build, source, target)
    if target in ("f16x2", "bf16x2"):
        return _to_pair(build, target)
    if target == "tf32":
        return _to_tf32(build)
    rounds = next((r for r in (*_TO_INTEGER, "rn", "rz", "rm", "rp") if m.take(r)), "")
    ftz, saturates = m.take("ftz") and "f32" in (source, target), m.take("sat")
    relu = m.take("relu")
    if source in _FLOATS and target in _FLOATS:
        change = _float_to_float(target, rounds)
    elif source in _FLOATS:
        change = _float_to_int(source, target, _TO_INTEGER[rounds])
    elif target in _FLOATS:
        change = _int_to_float(target, rounds)
    else:
        change = _int_to_int(target, saturates)
        saturates = False

    def compute(a: Array) -> Array:
        if ftz and source == "f32":
            a = rounding.flush(a)
        out = change(a)
        if saturates and target in _FLOATS:
            out = np.where(np.isnan(out), 0, np.clip(out, 0, 1)).astype(out.dtype)
        if relu:
            out = np.where(out < 0, 0, out).astype(out.dtype)
        return rounding.flush(out) if ftz and target == "f32" else out

    return elementwise(build, source, compute)


def _float_to_float(target: str, rounds: str) -> Callable[[Array], Array]:
    dtype = np.dtype(NUMPY[target])
    if rounds in _TO_INTEGER:
        integral = _TO_INTEGER[rounds]
        return lambda a: rounding.narrow(integral(a.astype(np.float64)), dtype)
    if not rounds or rounds == "rn":
        return lambda a: rounding.narrow(a.astype(np.float64), dtype)
    return lambda a: rounding.directed(a.astype(np.float64), dtype, rounds)


def _float_to_int(
    source: str, target: str, whole: Callable[[Array], Array]
) -> Callable[[Array], Array]:
    """Saturating; a NaN gives 0, or the sign bit alone where either side has 64 bits."""
    dtype = np.dtype(NUMPY[target])
    bits = dtype.itemsize * 8
    limits = np.iinfo(dtype)
    odd = 0 if source != "f64" and bits < 64 else 1 << (bits - 1)

    def change(a: Array) -> Array:
        wide = whole(a.astype(np.float64))
        low, high = wide <= float(limits.min), wide >= float(limits.max)
        out = np.where(low | high | np.isnan(wide), 0, wide).astype(dtype)
        out = np.where(low, limits.min, np.where(high, limits.max, out)).astype(dtype)
        nan = np.array([odd], np.uint64).astype(f"u{bits // 8}").view(dtype)
        return np.where(np.isnan(wide), nan, out).astype(dtype)

    return change


def _int_to_float(target: str, rounds: str) -> Callable[[Array], Array]:
    dtype = np.dtype(NUMPY[target])
    if rounds not in ("", "rn"):
        raise Unknown(f"cvt.{rounds} from an integer")
    if target in ("f32", "f64"):
        return lambda a: a.astype(dtype)
    return lambda a: rounding.narrow(a.astype(np.float64), dtype)


def _int_to_int(target: str, saturates: bool) -> Callable[[Array], Array]:
    dtype = np.dtype(NUMPY[target])
    if not saturates:
        return lambda a: a.astype(dtype)
    limits = np.iinfo(dtype)

    def clipped(a: Array) -> Array:
        low = max(limits.min, np.iinfo(a.dtype).min)
        high = min(limits.max, np.iinfo(a.dtype).max)
        return np.clip(a, low, high).astype(dtype)

    return clipped


def _to_pair(build: Build, target: str) -> Action:
    """The first source goes to the upper half."""
    m = build.modifiers
    rounds = m.choose(("rn", "rz"))
    m.take("satfinite")
    relu = m.take("relu")
    dtype = np.dtype(NUMPY[target[:-2]])

    def compute(upper: Array, lower: Array) -> Array:
        pair = np.stack(np.broadcast_arrays(lower, upper), axis=1).astype(np.float64)
        out = rounding.directed(pair, dtype, rounds)
        if relu:
            out = np.where(out < 0, 0, out).astype(dtype)
        return np.ascontiguousarray(out).view(np.uint32).reshape(-1)

    return elementwise(build, "f32 f32", compute)


def _to_eight(build: Build, source: str, target: str) -> Action:
    m = build.modifiers
    m.take("rn")
    if not m.take("satfinite"):
        raise Unknown(f"{build.instruction.text}: without .satfinite")
    relu = m.take("relu")
    dtype, limit = _EIGHT[target], _LIMIT[target]

    def pack(pair: Array) -> Array:
        if relu:
            pair = np.where(pair < 0, 0, pair).astype(np.float32)
        clipped = np.where(np.isnan(pair), pair, np.clip(pair, -limit, limit))
        bits = np.ascontiguousarray(clipped.astype(dtype)).view(np.uint8)
        return np.where(np.isnan(pair), np.uint8(127), bits).view(np.uint16).reshape(-1)

    if source == "f16x2":
        return elementwise(
            build, "b32",
            lambda a: pack(a.view(np.float16).reshape(-1, 2).astype(np.float32)),
        )  # fmt: skip
    return elementwise(
        build, "f32 f32",
        lambda up, low: pack(np.stack(np.broadcast_arrays(low, up), axis=1)),
    )  # fmt: skip


def _from_eight(build: Build, source: str, target: str) -> Action:
    m = build.modifiers
    m.take("rn")
    relu = m.take("relu")
    if target != "f16x2":
        raise Unknown(f"{build.instruction.text}: 8-bit floats become f16x2 only")

    def compute(a: Array) -> Array:
        pair = np.ascontiguousarray(a).view(_EIGHT[source]).reshape(-1, 2).astype(np.float16)
        if relu:
            pair = np.where(pair < 0, 0, pair).astype(np.float16)
        return np.ascontiguousarray(pair).view(np.uint32).reshape(-1)

    return elementwise(build, "b16", compute)


def _to_tf32(build: Build) -> Action:
    """10 bits of fraction: .rna rounds ties away from 0, .rn to even."""
    m = build.modifiers
    even = m.choose(("rna", "rn")) == "rn"

    def compute(a: Array) -> Array:
        bits = a.view(np.uint32)
        add = 0xFFF + ((bits >> 13) & 1) if even else np.uint32(0x1000)
        rounded = ((bits + add) & np.uint32(0xFFFFE000)).astype(np.uint32)
        return np.where(np.isfinite(a), rounded, bits)

    return elementwise(build, "f32", compute)


# ---------------------------------------------------------------- mov
def move(build: Build) -> Action:
    """mov: a copy, or a register packed of several, or several unpacked from one."""
    t = build.modifiers.type(("pred", *[s for s in SIZES if s in NUMPY and SIZES[s] > 1]))
    build.modifiers.done()
    target, source = build.operands[0], build.operands[1]
    if isinstance(target, Vector):
        return _unpack(build, t, target)
    if isinstance(source, Vector):
        return _pack(build, t, source)
    return elementwise(build, t, lambda a: a)


def _part(build: Build, t: str, parts: int) -> str:
    size = SIZES[t] // parts
    if size not in (1, 2, 4):
        raise Unknown(f"{build.instruction.text}: parts of {size} bytes")
    return f"b{8 * size}"


def _pack(build: Build, t: str, source: Vector) -> Action:
    items = [build.launch.resolve(i) for i in source.items]
    part = _part(build, t, len(items))
    gets = [build.value(i, part) for i in items]
    put = build.set(build.operands[0])

    def act(lanes: Lanes) -> None:
        values = [np.broadcast_to(g(lanes), (lanes.width,)) for g in gets]
        put(lanes, np.stack(values, axis=1).view(f"u{SIZES[t]}").reshape(-1))

    return act


def _unpack(build: Build, t: str, target: Vector) -> Action:
    items: list[Operand | None] = [build.launch.resolve(i) for i in target.items]
    part = _part(build, t, len(items))
    get = build.get(1, f"b{8 * SIZES[t]}")
    puts = [build.set(i) for i in items]

    def act(lanes: Lanes) -> None:
        whole = np.ascontiguousarray(np.broadcast_to(get(lanes), (lanes.width,)))
        parts = whole.view(NUMPY[part]).reshape(-1, len(puts))
        for k, put in enumerate(puts):
            put(lanes, parts[:, k])

    return act


_WINDOWS = {"global": 0, "const": 0, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW}


def convert_address(build: Build) -> Action:
    """cvta: between a space and the generic addresses."""
    m = build.modifiers
    m.type(("u64",))
    back = m.take("to")
    window = np.uint64(_WINDOWS[m.choose(tuple(_WINDOWS))])
    return elementwise(build, "u64", lambda a: a - window if back else a + window)


TABLE: dict[str, Builder] = {"cvt": convert, "mov": move, "cvta": convert_address}
