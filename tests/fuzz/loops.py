"""Random functions with loops and branches, differentiated in all modes.

They draw scans, fori loops, while loops, cond, switch, checkpoints and rules of their own, nested,
with integer and bool carries in any order, results read in any order, and values closed over. Two
modes of each function must agree with its Jacobian; at random points with differences, and every
tenth function beside JAX where that is installed, also at ties and at zeros.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import uopc
import uopc.numpy as unp
from tests.fuzz import guards
from tests.fuzz.derivatives import _difference, _differs
from tests.fuzz.guards import guarded
from tests.fuzz.kinds import Verdict
from uopc import UOp, dtypes
from uopc.ir.interpret import interpreter

Array = Any
JAX_EVERY = 10
COMPILED_EVERY = 8
# Sums at a grid are equal but for rounding: a comparison of two would differ between libraries.
_APART = 0.0137


class Library(NamedTuple):
    """The functions that a drawn function calls."""

    np: Any
    scan: Callable[..., Any]
    fori_loop: Callable[..., Any]
    while_loop: Callable[..., Any]
    cond: Callable[..., Any]
    switch: Callable[..., Any]
    checkpoint: Callable[..., Any]
    custom_jvp: Callable[..., Any]


OURS = Library(
    unp, uopc.scan, uopc.fori_loop, uopc.while_loop, uopc.cond, uopc.switch, uopc.checkpoint,
    uopc.custom_jvp,
)  # fmt: skip


def theirs() -> Library:
    """JAX's, in float64."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    jax.config.update("jax_enable_x64", True)
    return Library(
        jnp, lax.scan, lax.fori_loop, lax.while_loop, lax.cond, lax.switch, jax.checkpoint,
        jax.custom_jvp,
    )  # fmt: skip


class Drawn:
    """The choices of one function, which are the same whichever library it is called with."""

    def __init__(self, key: str) -> None:
        rng = random.Random(key)
        self.n = rng.choice((1, 2, 3))
        self.special = rng.random() < 0.4
        large = [rng.choice(_LARGE)] if rng.random() < 0.8 else rng.choices(_LARGE, k=2)
        kinds = [*large, *rng.choices(_SMALL, k=rng.choice((0, 0, 1, 2)))]
        self.steps = [kind(rng) for kind in rng.sample(kinds, len(kinds))]
        self.several = len(large) > 1
        self.forward_only = any([step.forward_only for step in self.steps])
        numbers = np.random.default_rng(list(key.encode()))
        grid = numbers.choice([0.0, 1.0, -1.0, 0.5], self.n)
        self.at = grid if self.special else numbers.uniform(-1, 1, self.n)
        self.v, self.w = numbers.uniform(-1, 1, self.n), numbers.uniform(-1, 1, self.n)

    def __call__(self, library: Library, x: Any) -> Any:
        values, counts = [x], [library.np.asarray(2, dtype=library.np.int32)]
        for step in self.steps:
            step(library, values, counts)
        return values[-1] + values[-2] * 0.5


class Step:
    """A step: it adds a value, and perhaps a count. `r`: numbers that choose operands."""

    forward_only = False

    def __init__(self, rng: random.Random) -> None:
        self.r = [rng.random() for _ in range(8)]
        self.draw(rng)

    def draw(self, rng: random.Random) -> None:
        """Make the choices of this step."""

    def __call__(self, library: Library, values: list[Any], counts: list[Any]) -> None:
        a, b = [values[int(r * len(values))] for r in self.r[:2]]
        count = counts[int(self.r[2] * len(counts))]
        made, *new = self.made(library, values[-1], a, b, count)
        values.append(made)
        counts.extend(new)

    def made(self, library: Library, last: Any, a: Any, b: Any, count: Any) -> tuple[Any, ...]:
        raise NotImplementedError


def _curve(how: int, np: Any, a: Any, b: Any) -> Any:
    """Functions with ties, zeros and corners of one or two values; all stay small."""
    formulas: list[Callable[[], Any]] = [
        lambda: np.sin(a) + b * 0.3, lambda: np.tanh(a * b), lambda: a * b * 0.5,
        lambda: np.maximum(a, b) * 0.7, lambda: np.minimum(a, b * 0.5),
        lambda: np.maximum(a, -a) * 0.5 + b,  # abs, whose derivative at 0 is 1 in JAX, 0 here
        lambda: np.logaddexp(a, b) * 0.5, lambda: np.sinc(a) - b * 0.4,
        lambda: np.where(a > b, a * 0.5, b * b), lambda: np.sqrt(a * a + 0.3),
        lambda: a * np.max(b) * 0.5, lambda: np.expm1(a * 0.5) * np.cos(b),
        lambda: (a * a + 0.5) ** b * 0.5, lambda: a - np.prod(b) * 0.3,
        lambda: np.arctan(a) + np.sum(b) * 0.2, lambda: a / (b * b + 1.2),
    ]
    return formulas[how % len(formulas)]()


class _Curve(Step):
    def draw(self, rng: random.Random) -> None:
        self.how = rng.randrange(16)

    def made(self, library: Library, last: Any, a: Any, b: Any, count: Any) -> tuple[Any, ...]:
        return (_curve(self.how, library.np, last, b),)


class _Counted(Step):
    """A value chosen or scaled by a count."""

    def draw(self, rng: random.Random) -> None:
        self.how = rng.randrange(3)

    def made(self, library: Library, last: Any, a: Any, b: Any, count: Any) -> tuple[Any, ...]:
        np = library.np
        if self.how == 0:
            return (np.where(count > 2, last, a * 0.5),)
        return ((1.0 / (count * count + 1)) * last,) if self.how == 1 else (count * 0.3 * last,)


class _Body(Step):
    """A body with a carry of a count, a bool, a running value and the best value so far."""

    def draw(self, rng: random.Random) -> None:
        self.order = rng.sample(range(4), 4)
        self.hows = [rng.randrange(16) for _ in range(4)]
        self.nested, self.read = rng.randrange(5), rng.randrange(5)
        self.trips = rng.choice((1, 2, 2, 3, 4))
        self.reverse, self.saved = rng.random() < 0.3, rng.random() < 0.25

    def begin(self, np: Any, a: Any, b: Any) -> tuple[Any, ...]:
        start = (np.asarray(0, dtype=np.int32), np.asarray(False), a, b)
        return tuple([start[i] for i in self.order])

    def turn(self, library: Library, carry: Any, x: Any, closed: Any) -> tuple[Any, ...]:
        np = library.np
        parts = dict(zip(self.order, carry))
        count, flag, value, best = (parts[i] for i in range(4))
        if self.nested == 0:
            value = library.cond(
                np.sum(value) > np.sum(x) + _APART, lambda s: s * 0.5, lambda s: _curve(
                    self.hows[1], np, s, closed), value,
            )  # fmt: skip
        elif self.nested == 1:
            value = library.fori_loop(
                0, 2, lambda i, s: _curve(self.hows[1], np, s, closed) * 0.5, value
            )
        value = _curve(self.hows[0], np, value, x) * 0.8
        flag = flag | (np.sum(value) > 0.7)
        better = np.sum(value) > np.sum(best) + _APART
        best = np.where(better, value, best * 0.9)
        made = (np.where(flag, count, count + 1), flag, value, best)
        return tuple([made[i] for i in self.order])

    def result(self, np: Any, carry: Any) -> tuple[Any, ...]:
        parts = dict(zip(self.order, carry))
        count, flag, value, best = (parts[i] for i in range(4))
        made = (
            lambda: count * value, lambda: value * count + best,
            lambda: np.where(flag, value, best * 0.5), lambda: (1.0 / (count + 1)) * value + best,
            lambda: np.where(count > 1, best, value),
        )[self.read]()  # fmt: skip
        return made * 0.5, count


class _Scan(_Body):
    def made(self, library: Library, last: Any, a: Any, b: Any, count: Any) -> tuple[Any, ...]:
        np = library.np
        rows = np.stack([last * (0.3 + i) for i in range(self.trips)])

        def body(carry: Any, x: Any) -> Any:
            new = self.turn(library, carry, x, b)
            parts = dict(zip(self.order, new))
            return new, (parts[0], parts[2] * 0.5)

        def loop(rows: Any, a: Any) -> Any:
            return library.scan(body, self.begin(np, a, last), rows, reverse=self.reverse)

        carry, (counts, path) = (library.checkpoint(loop) if self.saved else loop)(rows, a)
        found, total = self.result(np, carry)
        if self.read % 2:
            found = counts[-1] * path[0] * 0.2 + found
        return found, total


class _Fori(_Body):
    def made(self, library: Library, last: Any, a: Any, b: Any, count: Any) -> tuple[Any, ...]:
        np = library.np
        carry = library.fori_loop(
            0, self.trips, lambda i, c: self.turn(library, c, a * (1.0 / (i + 1)), b),
            self.begin(np, last, a),
        )  # fmt: skip
        return self.result(np, carry)


class _While(_Body):
    forward_only = True

    def made(self, library: Library, last: Any, a: Any, b: Any, count: Any) -> tuple[Any, ...]:
        np, at = library.np, self.order.index(0)

        def goes_on(state: Any) -> Any:
            turns, carry = state
            return (turns < self.trips) & (carry[at] < 3)

        def body(state: Any) -> Any:
            return state[0] + 1, self.turn(library, state[1], a, b)

        begin = (np.asarray(0, dtype=np.int32), self.begin(np, last, a))
        return self.result(np, library.while_loop(goes_on, body, begin)[1])


class _Branch(_Body):
    """cond or switch of mixed results: a count, a bool, a value."""

    def made(self, library: Library, last: Any, a: Any, b: Any, count: Any) -> tuple[Any, ...]:
        np = library.np

        def branch(k: int) -> Callable[..., Any]:
            def run(s: Any, t: Any) -> Any:
                made = _curve(self.hows[k], np, s, t)
                other = _curve(self.hows[k - 1], np, t, b if self.nested else s)
                parts = (np.asarray(k, dtype=np.int32), np.sum(s) > 0.2, made, other * 0.5)
                return tuple([parts[i] for i in self.order])

            return run

        if self.trips < 3:
            carry = library.cond(np.sum(last) > 0.2, branch(0), branch(1), last, a)
        else:
            carry = library.switch(count % 3, [branch(k) for k in range(3)], last, a)
        return self.result(np, carry)


class _Ruled(Step):
    """A function with a rule of its own, which applies the function, perhaps in a loop."""

    def draw(self, rng: random.Random) -> None:
        self.loops = rng.random() < 0.5

    def made(self, library: Library, last: Any, a: Any, b: Any, count: Any) -> tuple[Any, ...]:
        np = library.np

        @library.custom_jvp
        def ruled(s: Any, t: Any) -> Any:
            return np.sin(s) * t

        def rule(primals: Any, tangents: Any) -> Any:
            (s, t), (u, v) = primals, tangents
            return ruled(s, t), np.cos(s) * t * u + np.sin(s) * v

        ruled.defjvp(rule)
        if not self.loops:
            return (ruled(last, a),)
        return (library.fori_loop(0, 2, lambda i, s: ruled(s, a) + b * 0.3, last),)


_SMALL: tuple[Callable[[random.Random], Step], ...] = (_Curve, _Curve, _Counted, _Ruled)
_LARGE: tuple[Callable[[random.Random], Step], ...] = (
    _Scan, _Scan, _Fori, _Branch, _Branch, _Ruled, _While,
)  # fmt: skip


# ---------------------------------------------------------------- checks
# What a function is asked beside its value, its tangent and its Jacobian in forward mode; a third
# derivative of two loops would take as long as fifty other functions.
_ASKED = ("pull", "reverse", "sparse", "batch", "over reverse", "reverse twice", "third")
_FORWARD = ("batch", "twice")  # without reverse mode


def run(seed: int, number: int) -> Verdict:
    """One function, at one point, in some of the modes.

    Every eighth function is compiled, the others are interpreted, which takes a quarter of the
    time.
    Every tenth one is compared with JAX.
    """
    guards.guard_programs()
    drawn = Drawn(f"loops {seed} {number}")
    x = uopc.param("x", (drawn.n,), dtypes.float64)
    y = _node(drawn(OURS, unp.asarray(x)))
    beside = number % JAX_EVERY == JAX_EVERY - 1 and importlib.util.find_spec("jax") is not None
    compiled = number % COMPILED_EVERY == 0
    modes = _FORWARD if drawn.forward_only else _ASKED[: -1 if drawn.several else None]
    asked = set(random.Random(f"modes {seed} {number}").sample(modes, 2))
    asked |= {"over reverse"} if {"reverse twice", "third"} & asked else set()
    asked |= {"twice", "beside"} if beside else {"twice"} if "over reverse" in asked else set()
    failures = [name for name, wrong in _checks(x, y, drawn, asked, compiled) if wrong]
    return Verdict(failures, report=f"{y}\nat {drawn.at!r}" if failures else "")


def _node(value: Any) -> UOp:
    return value if isinstance(value, UOp) else value.uop


def _runner(x: UOp, graphs: dict[str, UOp], compiled: bool) -> Callable[[Array], dict[str, Array]]:
    """A function from a point to the values of graphs."""
    names, nodes = list(graphs), list(graphs.values())
    if compiled:
        f = uopc.compile(nodes, inputs=[x])
        return lambda at: dict(zip(names, map(np.asarray, f(guarded(at)))))
    return lambda at: dict(zip(names, interpreter.evaluate(nodes, {"x": at})))


def _graphs(x: UOp, y: UOp, drawn: Drawn, asked: set[str]) -> tuple[dict[str, UOp], Any]:
    """The derivatives that are asked, by name; the sparse Jacobian."""
    vu, wu = uopc.constant(drawn.v), uopc.constant(drawn.w)
    push = uopc.jvp(y, x, vu)
    graphs = {"y": y, "push": push, "forward": uopc.jacfwd(y, x)}
    if "twice" in asked:
        graphs["twice"] = uopc.jvp(push, x, vu)
    if "batch" in asked:
        graphs["batch"] = uopc.vmap(y, {x: uopc.constant(np.stack([drawn.at, drawn.v]))})
    sparse = uopc.jacobian(y, x, format="csc") if "sparse" in asked else None
    if sparse is not None:
        graphs["entries"] = sparse.data
    if "reverse" in asked:
        graphs["reverse"] = uopc.jacrev(y, x)
    if {"pull", "over reverse"} & asked:
        graphs["pull"] = pull = uopc.vjp(y, x, wu)
        if "over reverse" in asked:
            graphs["second"] = uopc.jvp(pull, x, vu)
        if {"reverse twice", "third"} & asked:
            graphs["second back"] = uopc.vjp(pull, x, vu)
    if "third" in asked:
        graphs["third"] = uopc.jvp(graphs["second"], x, vu)
        graphs["third back"] = uopc.vjp(graphs["second back"], x, vu)
    return graphs, sparse


def _checks(
    x: UOp, y: UOp, drawn: Drawn, asked: set[str], compiled: bool
) -> list[tuple[str, bool]]:
    at, v, w = drawn.at, drawn.v, drawn.w
    graphs, sparse = _graphs(x, y, drawn, asked)
    got = _runner(x, graphs, compiled)(at)
    value = _runner(x, {"y": y}, compiled)
    found = [("jacfwd is not jvp", _differs(got["forward"] @ v, got["push"], 1e-8, 1e-9))]

    def compare(what: str, name: str, wanted: Callable[[], Any], tolerance: float = 1e-8) -> None:
        if name in got:
            wrong = _differs(got[name], wanted(), tolerance, tolerance / 10)
            found.append((what, wrong))

    if not drawn.special:
        wanted, smooth = _difference(lambda p: value(p)["y"], at, v)
        wrong = smooth and _differs(got["push"], wanted, 1e-4, 1e-5)
        found.append(("jvp is not the difference", wrong))
    compare("vmap is not each", "batch", lambda: [value(at)["y"], value(v)["y"]])
    compare("vjp is not the transpose", "pull", lambda: w @ got["forward"])
    compare("jacrev is not jacfwd", "reverse", lambda: got["forward"])
    compare("reverse twice differs", "second back", lambda: got["second"], 1e-7)
    compare("the third derivatives differ", "third back", lambda: got["third"], 1e-6)
    if sparse is not None:
        entries = sparse.todense(got["entries"])
        found.append(("the sparse Jacobian differs", _differs(entries, got["forward"], 1e-8, 1e-9)))
    if "second" in got:
        wrong = _differs(got["second"] @ v, w @ got["twice"], 1e-7, 1e-8)
        found.append(("over reverse is wrong", wrong))
    return found + (_beside(drawn, got) if "beside" in asked else [])


def _beside(drawn: Drawn, got: dict[str, Array]) -> list[tuple[str, bool]]:
    """The value and first and second derivatives of JAX."""
    import jax

    library = theirs()

    def f(x: Any) -> Any:
        return drawn(library, x)

    def all_of(x: Any) -> Any:
        def push(x: Any) -> Any:
            return jax.jvp(f, (x,), (drawn.v,))[1]

        return f(x), jax.jacfwd(f)(x), jax.jvp(push, (x,), (drawn.v,))[1]

    names = ("y", "forward", "twice")
    return [
        (f"{name} is not that of JAX", _differs(got[name], np.asarray(wanted), 1e-7, 1e-8))
        for name, wanted in zip(names, jax.jit(all_of)(drawn.at))
    ]
