"""Derivatives of functions that give floats beside integers and bools, read in any order, against
JAX's: loops, branches, rules of one's own, nested, of any order and in any mode."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import dtypes

Function = Callable[[Any], Any]


class Library(NamedTuple):
    """The functions by which both libraries write a program."""

    np: Any
    scan: Any
    cond: Any
    switch: Any
    fori_loop: Any
    vmap: Any
    grad: Any
    jacfwd: Any
    jacrev: Any
    checkpoint: Any
    custom_vjp: Any


UOPC = Library(
    unp, uopc.scan, uopc.cond, uopc.switch, uopc.fori_loop, uopc.vmap, uopc.grad, uopc.jacfwd,
    uopc.jacrev, uopc.checkpoint, uopc.custom_vjp,
)  # fmt: skip


def _jax() -> tuple[Any, Library]:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jax.config.update("jax_enable_x64", True)

    def scan(*given: Any, checkpoint: int = 0, **named: Any) -> Any:
        return jax.lax.scan(*given, **named)

    return jax, Library(
        jax.numpy, scan, jax.lax.cond, jax.lax.switch, jax.lax.fori_loop, jax.vmap, jax.grad,
        jax.jacfwd, jax.jacrev, jax.checkpoint, jax.custom_vjp,
    )  # fmt: skip


# ---------------------------------------------------------------- programs
class Drawn:
    """A program of a scalar: what it is made of is drawn first, so that both libraries write the
    same one."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.levels = self._draw.choice((1, 1, 2))
        self.plan = self._plan(self.levels)
        self.modes = [self._draw.choice(("grad", "jacfwd", "jacrev")) for _ in range(3)]
        self.order = self._draw.choice((1, 2, 2, 3)) if self.levels == 1 else 1
        self.batch = self._draw.random() < 0.3

    def _plan(self, levels: int) -> tuple[Any, ...]:
        draw = self._draw
        inner = self._plan(levels - 1) if levels > 1 else ("leaf", draw.randrange(4))
        kind = draw.choice(("scan", "scan", "rows", "fori", "cond", "switch", "rule", "kept"))
        fields = [draw.randrange(6) for _ in range(4)]
        return kind, inner, fields, draw.choice((0, 0, 2))

    def function(self, lib: Library) -> Function:
        f = _function(lib, self.plan)
        if self.batch:
            one = f
            f = lambda x: lib.np.sum(lib.vmap(lambda a: one(a * x))(lib.np.asarray([0.9, 1.2])))  # noqa: E731
        for mode in self.modes[: self.order]:
            f = getattr(lib, mode)(f)
        return f


def _function(lib: Library, plan: tuple[Any, ...]) -> Function:
    """Each kind makes an integer n, a bool b and floats s and t, and `_read` reads them."""
    if plan[0] == "leaf":
        return [
            lambda x: lib.np.sin(x), lambda x: x * x, lambda x: x / (x + 3.0), lambda x: 0.3 + x,
        ][plan[1]]  # fmt: skip
    kind, inner, fields, every = plan
    g = _function(lib, inner)
    return {"scan": _scan, "rows": _rows, "fori": _fori, "cond": _cond, "switch": _switch,
            "rule": _rule, "kept": _kept}[kind](lib, g, fields, every)  # fmt: skip


def _read(lib: Library, fields: list[int], n: Any, b: Any, s: Any, t: Any) -> Any:
    """Floats that read the results in one of several orders."""
    xp = lib.np
    return [
        lambda: n * s + t,
        lambda: xp.where(b, s, t * 0.5) * n,
        lambda: s * t * n,
        lambda: (1.0 / (n + 1)) * t + xp.where(b, 1.0, 0.0) * s,
        lambda: xp.where(n > 1, xp.where(b, t, s), s * t),
        lambda: xp.sin(t) * n + s * s,
    ][fields[0]]()


def _order(fields: list[int], n: Any, b: Any, s: Any, t: Any) -> Any:
    """The carry, its parts in a drawn order."""
    return {0: (n, b, s, t), 1: (s, n, t, b), 2: (b, s, t, n), 3: (n, s, b, t), 4: (t, s, n, b),
            5: (s, t, b, n)}[fields[1]]  # fmt: skip


def _parts(fields: list[int], carry: Any) -> Any:
    """n, b, s, t of a carry."""
    places = {0: (0, 1, 2, 3), 1: (1, 3, 0, 2), 2: (3, 0, 1, 2), 3: (0, 2, 1, 3), 4: (2, 3, 1, 0),
              5: (3, 2, 0, 1)}[fields[1]]  # fmt: skip
    return [carry[i] for i in places]


def _step(lib: Library, g: Function, x: Any, n: Any, b: Any, s: Any, t: Any) -> Any:
    more = g(x * 0.5 + s * 0.25)
    return n + 1, b | (s > 0.7), s * 0.8 + more * t * 0.3, t * 0.9 + x * s * 0.2


def _scan(lib: Library, g: Function, fields: list[int], every: int) -> Function:
    def f(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return _order(fields, *_step(lib, g, x, *_parts(fields, c))), None

        xp = lib.np
        start = _order(fields, xp.asarray(0), xp.asarray(False), x * 0.5, xp.asarray(0.4))
        c, _ = lib.scan(step, start, None, length=3, **({"checkpoint": every} if every else {}))
        return _read(lib, fields, *_parts(fields, c))

    return f


def _rows(lib: Library, g: Function, fields: list[int], every: int) -> Function:
    def f(x: Any) -> Any:
        def step(c: Any, u: Any) -> Any:
            n, b, s, t = _step(lib, g, x * u, *c)
            return (n, b, s, t), _order(fields, n, b, s * u, t)

        xp = lib.np
        start = xp.asarray(0), xp.asarray(False), x * 0.5, xp.asarray(0.4)
        named = {"checkpoint": every} if every else {}
        _, ys = lib.scan(step, start, xp.asarray([1.0, 0.8, 1.1]), reverse=fields[2] > 3, **named)
        return xp.sum(_read(lib, fields, *_parts(fields, ys)))

    return f


def _fori(lib: Library, g: Function, fields: list[int], every: int) -> Function:
    def f(x: Any) -> Any:
        def step(i: Any, c: Any) -> Any:
            return _order(fields, *_step(lib, g, x * (0.5 + i * 0.25), *_parts(fields, c)))

        xp = lib.np
        start = _order(fields, xp.asarray(0), xp.asarray(False), x * 0.5, xp.asarray(0.4))
        return _read(lib, fields, *_parts(fields, lib.fori_loop(0, 3, step, start)))

    return f


def _cond(lib: Library, g: Function, fields: list[int], every: int) -> Function:
    def f(x: Any) -> Any:
        xp = lib.np
        yes = lambda x: _order(fields, xp.asarray(2), x > 0.5, g(x) * x, xp.cos(x))  # noqa: E731
        no = lambda x: _order(fields, xp.asarray(3), x > 0.1, x * 2.0, g(x + 0.1))  # noqa: E731
        return _read(lib, fields, *_parts(fields, lib.cond(x < fields[2] * 0.4, yes, no, x)))

    return f


def _switch(lib: Library, g: Function, fields: list[int], every: int) -> Function:
    def f(x: Any) -> Any:
        xp = lib.np
        branches = [
            lambda x, k=k: _order(fields, xp.asarray(k), x > k * 0.3, g(x) + k, xp.sin(x * k))
            for k in range(3)
        ]
        which = xp.astype(xp.floor(x * 3), "int32") if lib is UOPC else xp.floor(x * 3).astype(int)
        return _read(lib, fields, *_parts(fields, lib.switch(which, branches, x)))

    return f


def _rule(lib: Library, g: Function, fields: list[int], every: int) -> Function:
    xp = lib.np

    def plain(x: Any) -> Any:
        n = xp.astype(xp.floor(x * 2), "int64") if lib is UOPC else xp.floor(x * 2).astype(int)
        return _order(fields, n, x > 0.5, g(x), x * x)

    h = lib.custom_vjp(plain)

    def back(x: Any, ct: Any) -> Any:
        _, _, s, t = _parts(fields, ct)
        return (lib.grad(g)(x) * s * 1.5 + 2 * x * t,)

    h.defvjp(lambda x: (h(x), x), back)
    return lambda x: _read(lib, fields, *_parts(fields, h(x)))


def _kept(lib: Library, g: Function, fields: list[int], every: int) -> Function:
    def inner(x: Any) -> Any:
        xp = lib.np
        n = xp.astype(xp.floor(x * 2), "int64") if lib is UOPC else xp.floor(x * 2).astype(int)
        return _order(fields, n, x > 0.5, g(x) * x, xp.exp(-x))

    return lambda x: _read(lib, fields, *_parts(fields, lib.checkpoint(inner)(x)))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.few(3)
def test_drawn_programs(seed: int) -> None:
    jax, lib = _jax()
    drawn = Drawn(seed)
    if _has_rule(drawn.plan):  # no forward mode, neither here nor there
        drawn.modes = ["jacrev"] * 3
    x = 0.37 + 0.11 * (seed % 7)
    try:
        wanted = jax.jit(drawn.function(lib))(x)
    except TypeError:  # JAX has no cotangents for the integers of some rules
        pytest.skip("JAX refuses it")
    np.testing.assert_allclose(drawn.function(UOPC)(x), wanted, rtol=1e-8, atol=1e-10)


def _has_rule(plan: tuple[Any, ...]) -> bool:
    return plan[0] == "rule" or (plan[0] != "leaf" and _has_rule(plan[1]))


# ---------------------------------------------------------------- by hand
def test_an_integer_that_is_read_first() -> None:
    def count(x: Any) -> Any:
        (n, s), _ = uopc.scan(lambda c, _: ((c[0] + 1, c[1] + x * x), None), (0, 0.0), None, 3)
        return n * s

    np.testing.assert_allclose(uopc.grad(count)(1.5), 27.0)
    np.testing.assert_allclose(uopc.grad(uopc.grad(count))(1.5), 18.0)
    rows = uopc.jacobian(lambda v: unp.stack([count(v[0])]), format="csc", mode="rev")
    np.testing.assert_allclose(rows(np.array([1.5])).todense(), [[27.0]])


def test_the_second_reverse_of_a_counted_loop() -> None:
    power = lambda x: uopc.fori_loop(0, 5, lambda i, v: v * x, 1.0)  # noqa: E731
    np.testing.assert_allclose(uopc.grad(uopc.grad(power))(1.3), 20 * 1.3**3)


def test_by_a_result_of_a_loop_and_by_what_it_is_made_of() -> None:
    x = uopc.param("x", (), dtypes.float64)
    (a, b), _ = uopc.scan(lambda c, _: ((c[0] * x, c[1] + x * c[0]), None), (x, x), None, length=3)
    found = uopc.compile(uopc.grad(a * b, [a, x]))(1.3)
    total, slope = sum(1.3**k for k in range(1, 5)), sum(k * 1.3 ** (k - 1) for k in range(1, 5))
    np.testing.assert_allclose(found, [total, 1.3**4 * slope])


def test_a_loop_that_takes_one_value_twice() -> None:
    def f(a: Any, b: Any) -> Any:
        step = lambda c, u: (c * a + u * b, None)  # noqa: E731
        return uopc.scan(step, unp.asarray(0.3), unp.asarray([1.0, 2.0, 3.0]))[0]

    inner = lambda x: uopc.grad(f)(x, x)  # noqa: E731
    # f = 0.3 a^3 + b (a^2 + 2 a + 3), its slope by a where both are x, differentiated by x
    np.testing.assert_allclose(uopc.grad(inner)(0.7), 2 * 0.9 * 0.7 + 4 * 0.7 + 2)
