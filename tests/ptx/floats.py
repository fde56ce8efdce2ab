"""Float instructions and comparisons. What hardware approximates is noted in the report."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.ptx import integers, rounding
from tests.ptx.build import NUMPY, Action, Build, Builder, Unknown
from tests.ptx.machine import Lanes
from tests.ptx.memory import Array
from tests.ptx.parse import Reg

FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
_PAIRS = {"f16x2": "f16", "bf16x2": "bf16"}


def is_float(build: Build) -> bool:
    return build.instruction.modifiers[-1] in FLOATS


def operate(build: Build, count: int, t: str, compute: Callable[..., Array],
            ftz: bool, finish: Callable[[Array], Array] | None = None) -> Action:  # fmt: skip
    """`compute` on `count` sources of a float type, or on both halves of a pair of them."""
    build.modifiers.done()
    pair = _PAIRS.get(t)
    gets = [build.get(i + 1, "b32" if pair else t) for i in range(count)]
    put = build.set(build.operands[0])

    def act(lanes: Lanes) -> None:
        values = [g(lanes) for g in gets]
        if pair:
            values = [_halves(v, pair) for v in values]
        if ftz:
            values = [rounding.flush(v) for v in values]
        out = compute(*values)
        if ftz:
            out = rounding.flush(out)
        if finish is not None:
            out = finish(out)
        if pair:
            out = np.ascontiguousarray(out).view(np.uint32).reshape(-1)
        put(lanes, out)

    return act


def _saturated(a: Array) -> Array:
    return np.where(np.isnan(a), a.dtype.type(0), np.clip(a, 0, 1)).astype(a.dtype)


def _relu(a: Array) -> Array:
    return np.where(a < 0, a.dtype.type(0), a).astype(a.dtype)


def arithmetic(count: int, compute: Callable[..., Array]) -> Builder:
    """Correctly rounded: .rn or nothing."""

    def make(build: Build) -> Action:
        m = build.modifiers
        t = m.type(FLOATS)
        m.take("rn")
        ftz = m.take("ftz")
        finish = _saturated if m.take("sat") else _relu if m.take("relu") else None
        return operate(build, count, t, compute, ftz and t == "f32", finish)

    return make


def _sign_aware(pick: Callable[[Array, Array], Array], zero_first: bool) -> Callable[..., Array]:
    """max or min of numbers; of zeros, +0 is the greater."""

    def compute(a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        got = np.where(np.isnan(a), b, np.where(np.isnan(b), a, pick(a, b)))
        zeros = (a == 0) & (b == 0)
        first = np.signbit(a) == zero_first
        return np.where(zeros, np.where(first, a, b), got).astype(a.dtype)

    return compute


_MAX, _MIN = _sign_aware(np.maximum, False), _sign_aware(np.minimum, True)


def extreme(compute: Callable[..., Array]) -> Builder:
    """max and min: a NaN loses, or wins with .NaN."""

    def make(build: Build) -> Action:
        m = build.modifiers
        t = m.type(FLOATS)
        ftz, nan = m.take("ftz") and t == "f32", m.take("NaN")

        def pick(a: Array, b: Array) -> Array:
            got = compute(a, b)
            either = np.isnan(a) | np.isnan(b)
            return np.where(either, got.dtype.type(np.nan), got) if nan else got

        return operate(build, 2, t, pick, ftz)

    return make


def approximate(compute: Callable[..., Array], count: int = 1) -> Builder:
    """Computed in float64 and rounded, where hardware has a few ulps of error."""

    def make(build: Build) -> Action:
        m = build.modifiers
        t = m.type(FLOATS)
        precise = m.take("rn")
        if not precise and (m.take("approx") or m.take("full")):
            build.launch.report.approximate.add(build.instruction.root)
        elif not precise:
            raise Unknown(f"{build.instruction.text}: neither .rn nor .approx")
        ftz = m.take("ftz") and t == "f32"

        def rounded(*values: Array) -> Array:
            wide = compute(*[v.astype(np.float64) for v in values])
            return wide if t == "f64" else rounding.narrow(wide, values[0].dtype)

        return operate(build, count, t, rounded, ftz)

    return make


def sign(build: Build) -> Action:
    """abs, neg and copysign work on the sign bit alone."""
    m = build.modifiers
    t = m.type(FLOATS)
    ftz = m.take("ftz") and t == "f32"
    compute = {"abs": np.abs, "neg": np.negative}[build.instruction.root]
    return operate(build, 1, t, compute, ftz)


def copy_sign(build: Build) -> Action:
    t = build.modifiers.type(("f32", "f64"))
    return integers.elementwise(build, f"{t} {t}", lambda a, b: np.copysign(b, a))


def test_property(build: Build) -> Action:
    m = build.modifiers
    t = m.type(("f32", "f64"))
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite, "infinite": np.isinf, "notanumber": np.isnan,
        "number": lambda a: ~np.isnan(a),
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).tiny),
        "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny),
    }  # fmt: skip
    return integers.elementwise(build, t, tests[m.choose(tuple(tests))])


# ---------------------------------------------------------------- comparisons
_ORDERED: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater,
    "hs": np.greater_equal,
}  # fmt: skip
_UNORDERED = {name + "u": f for name, f in list(_ORDERED.items())[:6]}
_COMPARISONS = (*_ORDERED, *_UNORDERED, "num", "nan")


def _comparison(name: str, floats: bool) -> Callable[[Array, Array], Array]:
    if not floats:
        return _ORDERED[name]

    def compute(a: Array, b: Array) -> Array:
        either = np.isnan(a) | np.isnan(b)
        if name in ("num", "nan"):
            return either if name == "nan" else ~either
        if name in _UNORDERED:
            return either | _UNORDERED[name](a, b)
        return ~either & _ORDERED[name](a, b)

    return compute


_BOOLEAN: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip


def set_predicate(build: Build) -> Action:
    """setp: a comparison, perhaps combined with a predicate; q gets the opposite comparison, or
    that of the upper halves of pairs."""
    m = build.modifiers
    t = m.type((*integers.INTS, "b16", "b32", "b64", *FLOATS))
    name = m.choose(_COMPARISONS)
    combine = _BOOLEAN.get(m.choose(("and", "or", "xor"), ""))
    ftz = m.take("ftz") and t == "f32"
    m.done()
    compare = _comparison(name, t in FLOATS)
    pair = _PAIRS.get(t)
    first, second = (build.get(i, "b32" if pair else t) for i in (1, 2))
    third = build.get(3, "pred") if combine is not None else None
    target = build.operands[0]
    if not isinstance(target, Reg):
        raise Unknown(f"{build.instruction.text}: a result that is no predicate")
    put = build.set(Reg(target.name))
    other = build.set(target.second) if target.second is not None else None

    def act(lanes: Lanes) -> None:
        a, b = first(lanes), second(lanes)
        if ftz:
            a, b = rounding.flush(a), rounding.flush(b)
        truth = compare(_halves(a, pair), _halves(b, pair)) if pair else compare(a, b)
        found = truth.T if pair else (truth, ~truth)
        extra = third(lanes) if third is not None else None
        for write, value in zip((put, other), found):
            if write is not None:
                joined = value if combine is None else combine(value, extra)
                write(lanes, joined)

    return act


def _halves(a: Array, t: str) -> Array:
    """The lower and the upper value of each register, side by side."""
    return np.ascontiguousarray(a).view(NUMPY[t]).reshape(-1, 2)


def set_value(build: Build) -> Action:
    """set: all ones or zeros in an integer, 1 or 0 in a float, by a comparison."""
    m = build.modifiers
    t = m.type((*integers.INTS, "b16", "b32", "b64", "f16", "bf16", "f32", "f64"))
    result = m.type(("u32", "s32", "f32", "u16", "f16", "bf16"))
    compare = _comparison(m.choose(_COMPARISONS), t in FLOATS)
    m.take("ftz")
    dtype = np.dtype(NUMPY[result])
    true = dtype.type(1.0) if result in FLOATS else ~np.zeros(1, dtype)
    return integers.elementwise(
        build, f"{t} {t}", lambda a, b: np.where(compare(a, b), true, dtype.type(0)).astype(dtype)
    )


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    if not a.shape == b.shape == c.shape:
        a, b, c = np.broadcast_arrays(a, b, c)
    if a.ndim == 2:
        return rounding.fused(a.reshape(-1), b.reshape(-1), c.reshape(-1)).reshape(a.shape)
    return rounding.fused(a, b, c)


def _quotient(a: Array, b: Array) -> Array:
    return a / b


TABLE: dict[str, Builder] = {
    "add": arithmetic(2, np.add),
    "sub": arithmetic(2, np.subtract),
    "mul": arithmetic(2, np.multiply),
    "fma": arithmetic(3, _multiply_add),
    "mad": arithmetic(3, _multiply_add),
    "max": extreme(_MAX),
    "min": extreme(_MIN),
    "abs": sign,
    "neg": sign,
    "div": approximate(_quotient, 2),
    "rcp": approximate(np.reciprocal),
    "sqrt": approximate(np.sqrt),
    "rsqrt": approximate(lambda a: 1 / np.sqrt(a)),
    "ex2": approximate(np.exp2),
    "lg2": approximate(np.log2),
    "sin": approximate(np.sin),
    "cos": approximate(np.cos),
    "tanh": approximate(np.tanh),
    "copysign": copy_sign,
    "testp": test_property,
    "setp": set_predicate,
    "set": set_value,
}
