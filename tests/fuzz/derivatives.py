"""Random functions of float64 arrays, differentiated in every mode.

jvp against central differences; vjp, both Jacobians and a batch against jvp; second derivatives
against differences of the gradient, and forward against reverse.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import uopc
from tests.fuzz import guards
from tests.fuzz.guards import guarded
from tests.fuzz.kinds import Verdict
from uopc import UOp, dtypes
from uopc.ir.core.dtypes import DType

F8 = dtypes.float64
Array = Any
_ONE = (
    "sin", "cos", "tanh", "exp", "sigmoid", "erf", "asinh", "atan", "gelu", "abs", "relu", "silu",
)  # fmt: skip
_POSITIVE = ("log", "sqrt", "log2", "rsqrt", "log1p", "reciprocal", "acosh", "log10")
_PAIR = ("maximum", "minimum", "hypot", "atan2", "logaddexp", "copysign")


def run(seed: int, number: int) -> Verdict:
    """One function, at one point, in float64; every third in a narrower type as well."""
    guards.guard_programs()
    key = f"derivatives {seed} {number}"
    x, y, numbers = _drawn(key, F8)
    at, v = _numbers(numbers, x), _numbers(numbers, x)
    failures = [name for name, wrong in _checks(x, y, at, v, numbers) if wrong]
    if not failures and number % 3 == 0:
        dtype = dtypes.float16 if number % 2 else dtypes.float32
        failures = [f"{dtype}: {name}" for name, wrong in _narrow(key, dtype, at, v) if wrong]
    return Verdict(failures, report=f"{y}\nat {at!r}" if failures else "")


def _drawn(key: str, dtype: DType) -> tuple[UOp, UOp, np.random.Generator]:
    """The argument and the value of a function, which is the same for each dtype."""
    drawn = random.Random(key)
    numbers = np.random.default_rng(list(key.encode()))
    x = uopc.param("x", tuple(drawn.choice([(4,), (2, 3), (3, 1), (1,), (2, 1, 2), ()])), dtype)
    return x, _function(drawn, numbers, x), numbers


def _numbers(numbers: np.random.Generator, like: UOp) -> Array:
    return np.asarray(numbers.uniform(-1, 1, like.shape))


# ---------------------------------------------------------------- functions
def _function(drawn: random.Random, numbers: np.random.Generator, x: UOp) -> UOp:
    values = [x]
    for _ in range(drawn.randint(2, 9)):
        a = drawn.choice(values[-3:])
        made = drawn.choice(_STEPS)(drawn, numbers, a, values)
        if made is not None and made.size <= 200:
            values.append(made)
    last = values[-1]
    return last + 0.0 * x.sum() if last is x else last


def _constant(numbers: np.random.Generator, shape: Any, like: UOp) -> UOp:
    return uopc.constant(numbers.uniform(0.2, 1, shape), like.dtype)


Step = Callable[[random.Random, np.random.Generator, UOp, list[UOp]], UOp | None]


def _one(drawn: random.Random, numbers: Any, a: UOp, values: list[UOp]) -> UOp:
    if drawn.random() < 0.3:
        return getattr(a * a + 1.1, drawn.choice(_POSITIVE))()
    return getattr(a.tanh() if drawn.random() < 0.3 else a, drawn.choice(_ONE))() * 0.9


def _two(drawn: random.Random, numbers: Any, a: UOp, values: list[UOp]) -> UOp:
    same = [b for b in values if b.shape == a.shape]
    b = drawn.choice([*same, *[_constant(numbers, d, a) for d in (a.shape, a.shape[-1:])]])
    how = drawn.randint(0, 5)
    if how == 0:
        return getattr(a, drawn.choice(_PAIR))(b * 0.7 + 0.05)
    if how == 1:
        return a / (b * b + 1.3)
    if how == 2:
        return (a < b).where(a * b, b.sin())
    if how == 3:
        return (a * a + 0.5) ** b
    return a * b if how == 4 else a - b


def _reduced(drawn: random.Random, numbers: Any, a: UOp, values: list[UOp]) -> UOp | None:
    if not a.shape:
        return None
    axis = drawn.randrange(len(a.shape))
    how = drawn.choice(("sum", "mean", "max", "min", "prod", "logsumexp", "var"))
    return getattr(a, how)(axis, keepdims=drawn.random() < 0.5)


def _along(drawn: random.Random, numbers: Any, a: UOp, values: list[UOp]) -> UOp | None:
    if not a.shape:
        return None
    axis = drawn.randrange(len(a.shape))
    how = drawn.choice(("cumsum", "sort", "softmax", "cumprod", "cummax"))
    return getattr(a, how)(axis)


def _moved(drawn: random.Random, numbers: Any, a: UOp, values: list[UOp]) -> UOp | None:
    dims = a.shape
    how = drawn.randint(0, 6)
    if how == 0:
        return a.reshape((a.size,)) if drawn.random() < 0.5 else a.reshape((1, *dims))
    if not dims:
        return a.reshape((1,)).expand((3,))
    if how == 1:
        return a.permute(tuple(drawn.sample(range(len(dims)), len(dims))))
    if how == 2:
        return a.flip(drawn.randrange(len(dims)))
    if how == 3:
        return a.pad(tuple([(drawn.randint(0, 1), drawn.randint(0, 2)) for _ in dims]))
    if how == 4:
        bounds = [sorted(drawn.sample(range(d + 1), 2)) for d in dims]
        return a.shrink(tuple([(b, e) for b, e in bounds]))
    if how == 5:
        return a.reshape((1, *dims)).expand((2, *dims))
    return a[(*[slice(None)] * (len(dims) - 1), slice(None, None, drawn.choice((2, -1, -2))))]


def _joined(drawn: random.Random, numbers: Any, a: UOp, values: list[UOp]) -> UOp:
    others = [b for b in values if b.shape == a.shape] + [_constant(numbers, a.shape, a)]
    parts = [a, *drawn.choices(others, k=drawn.randint(1, 2))]
    drawn.shuffle(parts)
    if not a.shape or drawn.random() < 0.5:
        return uopc.stack(*parts, axis=drawn.randint(0, len(a.shape)))
    return uopc.cat(*parts, axis=drawn.randrange(len(a.shape)))


def _places(drawn: random.Random, numbers: Any, a: UOp, n: int) -> UOp:
    """Integers below n: known, or from the values."""
    if drawn.random() < 0.5:
        return uopc.constant(numbers.integers(0, n, drawn.randint(1, 4)))
    return (a.reshape((a.size,))[:4] * 7).abs().floor().cast(dtypes.int64) % n


def _gathered(drawn: random.Random, numbers: Any, a: UOp, values: list[UOp]) -> UOp | None:
    if not a.shape or not a.size:
        return None
    n = a.shape[0]
    places = _places(drawn, numbers, a, n)
    if drawn.random() < 0.5:
        return a[places]
    rows = _constant(numbers, (*places.shape, *a.shape[1:]), a)
    how = drawn.choice(("add", "set", "max", "min"))
    value = rows if drawn.random() < 0.4 else a[places].sin() * rows
    return getattr(a.at[places], how)(value)


def _product(drawn: random.Random, numbers: Any, a: UOp, values: list[UOp]) -> UOp | None:
    if not a.shape:
        return None
    if len(a.shape) >= 2 and drawn.random() < 0.3:
        return a @ a.permute((*range(len(a.shape) - 2), len(a.shape) - 1, len(a.shape) - 2))
    return a @ _constant(numbers, (a.shape[-1], 2), a)


def _solved(drawn: random.Random, numbers: Any, a: UOp, values: list[UOp]) -> UOp | None:
    if len(a.shape) != 2 or 0 in a.shape:
        return None
    square = a @ a.permute((1, 0)) * 0.3 + uopc.eye(a.shape[0], dtype=a.dtype) * 2
    how = drawn.randint(0, 3)
    if how == 0:
        return square.solve(a)
    if how == 1:
        return square.cholesky()
    return square.inv() if how == 2 else square.slogdet()[1]


def _layer(drawn: random.Random, numbers: Any, a: UOp, values: list[UOp]) -> UOp | None:
    """Attention, a convolution, or a pool."""
    if len(a.shape) != 2 or not a.size:
        return None
    how, image = drawn.randint(0, 3), a.reshape((1, 1, *a.shape))
    if how == 0:
        turned = a @ _constant(numbers, (a.shape[1], a.shape[1]), a)
        return (turned @ a.permute((1, 0))).softmax(-1) @ a
    if how == 1:
        weight = _constant(numbers, (2, 1, *drawn.choice([(1, 1), (2, 2), (3, 1)])), a)
        return image.conv2d(weight, padding=1, stride=drawn.randint(1, 2))[0, 1] * 0.5
    pool = image.max_pool2d if how == 2 else image.avg_pool2d
    return pool(min(2, *a.shape), stride=1)[0, 0]


def _called(drawn: random.Random, numbers: Any, a: UOp, values: list[UOp]) -> UOp:
    f = uopc.function(lambda b: (b.sin() * b, b * 0.5), precompile=drawn.random() < 0.5)
    one, other = f(a)
    return f(one)[drawn.randint(0, 1)] + other


_STEPS: tuple[Step, ...] = (
    _one, _one, _two, _two, _reduced, _along, _moved, _moved, _joined, _gathered, _product,
    _solved, _called, _layer,
)  # fmt: skip


# ---------------------------------------------------------------- checks
def _differs(got: Array, wanted: Array, rtol: float, atol: float) -> bool:
    got, wanted = np.asarray(got), np.asarray(wanted)
    scale = 1 + np.abs(wanted).max(initial=0)
    return got.shape != wanted.shape or not np.allclose(got, wanted, rtol=rtol, atol=atol * scale)


def _difference(f: Callable[[Array], Array], at: Array, v: Array) -> tuple[Array, bool]:
    """A derivative in a direction by central differences; whether two steps agree on it."""
    found = [
        (np.asarray(f(at + h * v)) - np.asarray(f(at - h * v))) / (2 * h) for h in (1e-5, 3e-6)
    ]
    return found[1], not _differs(found[0], found[1], 1e-5, 1e-6)


def _checks(
    x: UOp, y: UOp, at: Array, v: Array, numbers: np.random.Generator
) -> list[tuple[str, bool]]:
    def computed(graph: Any) -> Any:
        return uopc.compile(graph, inputs=[x])(guarded(at))

    vu, w = uopc.constant(v, F8), _numbers(numbers, y)
    wu = uopc.constant(w, F8)
    tangent, back = uopc.jvp(y, x, vu), uopc.vjp(y, x, wu)
    push, pull = [np.asarray(g) for g in computed([tangent, back])]
    if not np.isfinite(push).all() or not np.isfinite(pull).all():
        return [("not finite", True)]
    wanted, smooth = _difference(uopc.compile(y, inputs=[x]), at, v)
    found = [
        ("jvp is not the difference", smooth and _differs(push, wanted, 1e-4, 1e-5)),
        ("vjp is not the transpose", _differs((pull * v).sum(), (w * push).sum(), 1e-8, 1e-9)),
        ("the text is another graph", _changed_by_text(tangent) or _changed_by_text(back)),
    ]
    forward, reverse = [np.asarray(g) for g in computed([uopc.jacfwd(y, x), uopc.jacrev(y, x)])]
    product = (forward.reshape((*y.shape, x.size)) * v.reshape(-1)).sum(-1)
    found += [
        ("jacfwd is not jvp", _differs(product, push, 1e-8, 1e-9)),
        ("jacrev is not jacfwd", _differs(reverse, forward, 1e-8, 1e-9)),
        ("the sparse Jacobian differs", _differs(_sparse(x, y, at), forward, 1e-8, 1e-9)),
    ]
    xs = np.stack([at, v])
    batch = uopc.compile(uopc.vmap(y, {x: uopc.constant(xs)}), inputs=[x])(at)
    f = uopc.compile(y, inputs=[x])
    found.append(("vmap is not each", _differs(batch, [f(at), f(v)], 1e-8, 1e-9)))
    return found + _second(x, y, back, at, v)


def _second(x: UOp, y: UOp, back: UOp, at: Array, v: Array) -> list[tuple[str, bool]]:
    """The second derivative in a direction: the gradient's, forwards, backwards, by differences."""
    vu = uopc.constant(v, F8)
    f = uopc.compile([uopc.jvp(back, x, vu), uopc.vjp(back, x, vu)], inputs=[x])
    a, b = [np.asarray(g) for g in f(guarded(at))]
    if not np.isfinite(a).all():
        return []
    wanted, smooth = _difference(uopc.compile(back, inputs=[x]), at, v)
    return [
        ("second is not the difference", smooth and _differs(a, wanted, 1e-4, 1e-5)),
        ("second backwards is not forwards", _differs(b, a, 1e-7, 1e-8)),
    ]


def _changed_by_text(graph: UOp) -> bool:
    return uopc.parse(uopc.print_graph(graph)) is not graph


def _sparse(x: UOp, y: UOp, at: Array) -> Array:
    """The sparse Jacobian of a flat function, as the dense one."""
    made = uopc.jacobian(y.reshape((y.size,)), x, format="csc")
    got = uopc.compile(made, inputs=[x])(guarded(at))
    return made.todense(got).reshape((*y.shape, *x.shape))


def _narrow(key: str, dtype: DType, at: Array, v: Array) -> list[tuple[str, bool]]:
    """The function in a narrower type: its derivatives there against those in float64, where
    arguments that are rounded in other ways have about the same ones."""
    coarse = 2e-2 if dtype is dtypes.float16 else 1e-4

    def derivatives(of: DType, point: Array) -> list[Array]:
        x, y, _ = _drawn(key, of)
        vu = uopc.constant(v, of)
        tangent = uopc.jvp(y, x, vu)
        back = uopc.vjp(y, x, uopc.full(y.shape, 1, of))
        f = uopc.compile([tangent, back], inputs=[x])
        return [np.asarray(g, np.float64) for g in f(np.asarray(point, of.numpy))]

    wanted = derivatives(F8, at)
    signs = np.random.default_rng(0)
    for _ in range(6):
        near = at + coarse / 4 * signs.choice([-1, 1], at.shape)
        if any(_differs(a, b, coarse, coarse) for a, b in zip(derivatives(F8, near), wanted)):
            return []
    found = derivatives(dtype, at)
    names = ("jvp is not that of float64", "vjp is not that of float64")
    return [(n, _differs(a, b, 5 * coarse, 5 * coarse)) for n, a, b in zip(names, found, wanted)]
