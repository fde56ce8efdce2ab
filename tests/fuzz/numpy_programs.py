"""NumPy programs of 1 to 6 calls through `jit`, against NumPy: dtypes, shapes, orders, numbers.

Sizes are 0, 1 and primes; arrays lie in memory by rows, by columns and with gaps; floats have
zeros of both signs, infinities and NaN; calls have axes, dtypes, orders, masks and the like.
"""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import uopc
from tests.fuzz.kinds import Verdict
from uopc.errors import UserError

Array = npt.NDArray[Any]
Call = Callable[[Any], Any]
DTYPES = ("f4", "f4", "f8", "f8", "f2", "i8", "i4", "i2", "i1", "u1", "u4", "u8", "?")
SIZES = (0, 1, 1, 2, 3, 5, 7)
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5, -3.5, 1e4)
# What gives the bits of NumPy: one rounding, or none.
EXACT = (
    "abs", "negative", "sign", "floor", "ceil", "trunc", "rint", "square", "isnan", "isinf",
    "isfinite", "signbit", "logical_not", "fabs", "positive", "sqrt",
)  # fmt: skip
CLOSE = ("exp", "log1p", "sin", "tanh", "arctan", "cbrt", "expm1", "log2")
OF_INTEGERS = ("abs", "negative", "sign", "square", "isnan", "isfinite", "logical_not")
PAIRS = (
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "maximum",
    "minimum", "fmax", "fmin", "equal", "less", "greater_equal", "logical_and", "logical_xor",
    "logical_or",
)  # fmt: skip
OF_FLOATS = ("copysign", "hypot", "arctan2", "heaviside")
TOTALS = (
    "sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "median", "nansum", "nanmax",
    "nanmean", "nanvar", "nanmedian", "count_nonzero", "ptp", "argmax", "argmin", "nanprod",
)  # fmt: skip
QUANTILES = ("quantile", "percentile", "nanquantile", "nanpercentile")


class Draw:
    """A program: each step makes a value of those before it, the first of which are arguments."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = random.Random(f"numpy {seed} {number}")
        self.numbers = np.random.default_rng([seed, number])
        self.arguments = [self._array() for _ in range(self.rng.choice((1, 1, 2)))]
        self.values: list[Array] = list(self.arguments)  # NumPy's
        self.steps: list[tuple[str, Call]] = []
        for _ in range(60):
            if len(self.steps) >= 6 or (self.steps and self.rng.random() < 0.15):
                break
            text, call = self.rng.choice(STEPS)(self)
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    made = call(self.values)
                except (ValueError, TypeError, IndexError, OverflowError):
                    continue
            found = np.asarray(made)
            if found.dtype.kind not in "biuf" or found.size > 2000:
                continue
            self.values.append(found)
            self.steps.append((text, call))

    def _array(self) -> Array:
        t = self.rng.choice(DTYPES)
        shape = tuple([self.rng.choice(SIZES) for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3)))])
        made = np.asarray(self.numbers.integers(-9, 10, shape))
        made = abs(made) if t[0] == "u" else made
        made = made / 4 if t[0] == "f" else made
        made = np.array(made > 0 if t == "?" else made, t)
        if t[0] == "f" and self.rng.random() < 0.4:
            chosen = self.numbers.random(shape) < 0.3
            made = np.where(chosen, self.numbers.choice(SPECIAL, shape), made).astype(t)
        how = self.rng.random()
        if how < 0.3:
            return np.asarray(made, order="F")
        if how < 0.4 and made.ndim:
            return np.repeat(made, 2, axis=0)[::2]
        return made

    def place(self) -> int:
        """The number of a value, more often of a late one."""
        count = len(self.values)
        return self.rng.choice((count - 1, self.rng.randrange(count)))

    def axis(self, v: Array, several: bool = False) -> Any:
        """An axis, or all, or some."""
        kinds: list[Any] = [None, *range(-v.ndim, v.ndim)]
        if several and v.ndim > 1:
            kinds.append(tuple(self.rng.sample(range(v.ndim), 2)))
        return self.rng.choice(kinds)

    def run(self, *arguments: Any) -> list[Any]:
        """The values of all steps."""
        values = list(arguments)
        for _, call in self.steps:
            values.append(call(values))
        return values[len(arguments) :]


# ---------------------------------------------------------------- steps
def _unary(d: Draw) -> tuple[str, Call]:
    i, name = d.place(), d.rng.choice(EXACT + CLOSE)
    f = getattr(np, name)
    if name not in OF_INTEGERS and d.values[i].dtype.kind != "f":
        name, f = "abs", np.abs  # a function of integers has another dtype here: docs/jit.md
    if name == "signbit" and np.isnan(d.values[i]).any():
        name, f = "isnan", np.isnan  # the sign of a NaN is nobody's promise
    return f"np.{name}(v{i})", lambda v: f(v[i])


def _pair(d: Draw) -> tuple[str, Call]:
    i = d.place()
    name = d.rng.choice(PAIRS + OF_FLOATS if d.values[i].dtype.kind == "f" else PAIRS)
    f = getattr(np, name)
    if d.rng.random() < 0.3:
        number = d.rng.choice((2, -3, 0.5, 1))
        return f"np.{name}(v{i}, {number})", lambda v: f(v[i], number)
    j = d.rng.randrange(len(d.values))
    return f"np.{name}(v{i}, v{j})", lambda v: f(v[i], v[j])


def _total(d: Draw) -> tuple[str, Call]:
    i, name = d.place(), d.rng.choice(TOTALS)
    f, options = getattr(np, name), {}
    several = name not in ("argmax", "argmin")
    axis = d.axis(d.values[i], several)
    if d.rng.random() < 0.4:
        options["keepdims"] = True
    if name in ("sum", "prod", "mean", "var", "nansum", "nanmean") and d.rng.random() < 0.3:
        # A variance in float32 of float64 is the rounding of the mean where elements are equal.
        near = name != "var" or d.values[i].dtype.itemsize < 8
        options["dtype"] = d.rng.choice(("f8", "f4" if near else "f8"))
    if name in ("sum", "max", "min", "nanprod") and d.rng.random() < 0.3:
        mask = d.numbers.random(d.values[i].shape) < 0.7
        options |= {"initial": 1, "where": mask}
    if name in ("var", "std", "nanvar") and d.values[i].dtype == "f2":
        options["dtype"] = "f4"  # NumPy squares in halves, whose largest number is 65,504
    if name in ("var", "std", "nanvar") and d.rng.random() < 0.4:
        options["ddof"] = 1
    return f"np.{name}(v{i}, {axis}, {options})", lambda v: f(v[i], axis=axis, **options)


def _quantile(d: Draw) -> tuple[str, Call]:
    i, name = d.place(), d.rng.choice(QUANTILES)
    if not d.values[i].size:
        name, i = "quantile", 0  # of no elements NumPy gives NaN in shapes of its own
    axis = d.axis(d.values[i])
    # NumPy computes a place in the dtype of the share, so one of float32 is exact in it.
    share = d.rng.choice((0.3, [0.5], np.array([0.25, 0.75], "f4"), 1, [0, 1]))
    how = d.rng.choice(("linear", "lower", "higher", "midpoint", "nearest"))
    if np.isinf(d.values[i]).any():
        how = "lower"  # between two equal infinities NumPy has NaN, and uopc the infinity
    if d.values[i].dtype.kind == "f" and np.isnan(d.values[i]).all(axis).any():
        name = name.removeprefix("nan")  # of NaNs alone NumPy's dtype depends on the numbers
    f, text = getattr(np, name), f"np.{name}(v{i}, {share}, axis={axis}, method={how!r})"
    return text, lambda v: f(v[i], share, axis=axis, method=how)


def _move(d: Draw) -> tuple[str, Call]:
    i = d.place()
    rank, order = d.values[i].ndim, d.rng.choice(("C", "F", "C", "F", "A", "K", b"C".decode()))
    axis = d.rng.randrange(-rank, rank) if rank else 0
    found: list[tuple[str, Call]] = [
        (f"v{i}.T", lambda v: v[i].T), (f"v{i}.ravel({order!r})", lambda v: v[i].ravel(order)),
        (f"v{i}.flatten({order!r})", lambda v: v[i].flatten(order)),
        (f"np.reshape(v{i}, -1, {order!r})", lambda v: np.reshape(v[i], -1, order=order)),
        (f"v{i}.reshape({order!r})",
         lambda v: v[i].reshape(v[i].shape[::-1], order=order)),
        (f"np.copy(v{i}, {order!r})", lambda v: np.copy(v[i], order=order)),
        (f"np.zeros_like(v{i}, {order!r})", lambda v: np.zeros_like(v[i], order=order)),
        (f"np.flip(v{i})", lambda v: np.flip(v[i])),
        (f"np.roll(v{i}, 2, {axis})", lambda v: np.roll(v[i], 2, axis)),
        (f"np.expand_dims(v{i}, {axis})", lambda v: np.expand_dims(v[i], axis)),
        (f"np.concatenate([v{i}, v{i}], {axis})",
         lambda v: np.concatenate([v[i], v[i]], axis)),
        (f"np.stack([v{i}, v{i}], {axis})", lambda v: np.stack([v[i], v[i]], axis)),
        (f"np.tile(v{i}, 2)", lambda v: np.tile(v[i], 2)),
        (f"np.repeat(v{i}, 2, {axis})", lambda v: np.repeat(v[i], 2, axis)),
        (f"np.sort(v{i}, {axis})", lambda v: np.sort(v[i], axis)),
        (f"np.cumsum(v{i}, {axis})", lambda v: np.cumsum(v[i], axis)),
        (f"np.diff(v{i}, axis={axis})", lambda v: np.diff(v[i], axis=axis)),
        (f"np.squeeze(v{i})", lambda v: np.squeeze(v[i])),
    ]  # fmt: skip
    return d.rng.choice(found)


def _index(d: Draw) -> tuple[str, Call]:
    """Slices, numbers, lists of places and masks."""
    i = d.place()
    key: list[Any] = []
    for n in d.values[i].shape[: d.rng.randint(0, 3)]:
        kinds: list[Any] = [
            slice(None), slice(1, None), slice(None, None, -1), slice(-2, None), slice(0, 5, 2),
            None, d.numbers.random(n) < 0.6, [bool(b) for b in d.numbers.random(n) < 0.5],
        ]  # fmt: skip
        kinds += [n - 1, -1, [0, n - 1], np.array([-1, 0])] if n else []
        key.append(d.rng.choice(kinds))
    whole = tuple(key)
    if d.rng.random() < 0.1:
        whole = (d.numbers.random(d.values[i].shape) < 0.5,)
    return f"v{i}[{whole!r}]", lambda v: v[i][whole]


def _choice(d: Draw) -> tuple[str, Call]:
    i, j = d.place(), d.rng.randrange(len(d.values))
    return f"np.where(v{i} > 0, v{i}, v{j})", lambda v: np.where(v[i] > 0, v[i], v[j])


def _quotient(d: Draw) -> tuple[str, Call]:
    """The quotient and remainder of arguments: the last bit of a function decides a remainder."""
    exact = range(len(d.values) - len(d.steps))
    i, j, k = d.rng.choice(exact), d.rng.choice(exact), d.rng.randrange(2)
    found = [
        (f"divmod(v{i}, v{j})[{k}]", lambda v: divmod(v[i], v[j])[k]),
        (f"v{i} // v{j}", lambda v: v[i] // v[j]), (f"v{i} % v{j}", lambda v: v[i] % v[j]),
    ]
    return d.rng.choice(found)


def _cast(d: Draw) -> tuple[str, Call]:
    i, t = d.place(), d.rng.choice(("f8", "f4", "i8", "?"))
    if t == "i8" and not np.isfinite(d.values[i]).all():
        t = "f8"  # the integer of an infinity is anything in NumPy
    return f"v{i}.astype({t!r})", lambda v: v[i].astype(t)


STEPS: tuple[Callable[[Draw], tuple[str, Call]], ...] = (
    _unary, _pair, _pair, _total, _total, _quantile, _move, _move, _index, _choice, _quotient,
    _cast,
)  # fmt: skip


# ---------------------------------------------------------------- a case
def _difference(got: Any, want: Any, coarsest: int) -> str:
    """How a value differs, or "". `coarsest`: bytes of the narrowest float that it may come of."""
    got, want = np.asarray(got), np.asarray(want)
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype}{got.shape}, want {want.dtype}{want.shape}"
    if want.dtype.kind != "f":
        return "" if np.array_equal(got, want) else f"{got!r}, want {want!r}"
    by = {2: 2e-2, 4: 2e-4, 8: 1e-8}[coarsest]
    size = float(np.abs(np.where(np.isfinite(want), want, 0)).max(initial=0))
    with np.errstate(all="ignore"):
        close = np.allclose(got, want, rtol=by, atol=by * max(size, 1e-3), equal_nan=True)
    return "" if close else f"{got!r}, want {want!r}"


def run(seed: int, number: int) -> Verdict:
    """Draw a program, and compare its first step that differs from NumPy's."""
    warnings.simplefilter("ignore")
    d, verdict = Draw(seed, number), Verdict()
    if not d.steps:
        return verdict
    with np.errstate(all="ignore"):
        wanted = d.run(*d.arguments)
    try:
        found = uopc.jit(d.run)(*d.arguments)
        for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
            floats = [v.dtype.itemsize for v in (*d.arguments, *map(np.asarray, wanted[: i + 1]))
                      if v.dtype.kind == "f"]  # fmt: skip
            wrong = _difference(a, b, min(floats, default=8))
            if wrong:
                verdict.failures.append(f"{d.steps[i][0]}: {wrong}")
                break  # what follows differs, too
    except UserError as error:
        verdict.refused = str(error).splitlines()[0]
    except Exception:
        verdict.failures.append(traceback.format_exc(limit=-4))
    if verdict.failures:
        lines = [f"v{i} = {a!r}" for i, a in enumerate(d.arguments)]
        lines += [f"v{i} = {text}" for i, (text, _) in enumerate(d.steps, len(d.arguments))]
        verdict.report = "\n".join(lines)
    return verdict
