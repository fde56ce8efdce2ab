"""Structures of Jacobians against CasADi's and asdex': 40 functions, never an entry fewer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
from uopc import dtypes

N = 6
A = np.array([[1.0, 0, 2, 0, 0, 0], [0, 3, 0, 0, 0, 1], [0, 0, 0, 0, 4, 0], [5, 0, 0, 6, 0, 0]])


class Nodes:
    """The functions of uopc, on a list of elements."""

    sin, cos, exp = uopc.UOp.sin, uopc.UOp.cos, uopc.UOp.exp
    sqrt, tanh = uopc.UOp.sqrt, uopc.UOp.tanh

    @staticmethod
    def fmax(a: Any, b: Any) -> Any:
        return a.maximum(b)

    @staticmethod
    def choose(condition: Any, a: Any, b: Any) -> Any:
        return condition.where(a, b)

    @staticmethod
    def vertcat(*rows: Any) -> Any:
        return uopc.stack(*rows)


class CasADi:
    """The functions of CasADi."""

    def __init__(self, ca: Any) -> None:
        self.sin, self.cos, self.exp = ca.sin, ca.cos, ca.exp
        self.sqrt, self.tanh = ca.sqrt, ca.tanh
        self.fmax, self.choose, self.vertcat = ca.fmax, ca.if_else, ca.vertcat


class Jax:
    """The functions of JAX."""

    def __init__(self, jnp: Any) -> None:
        self.sin, self.cos, self.exp = jnp.sin, jnp.cos, jnp.exp
        self.sqrt, self.tanh = jnp.sqrt, jnp.tanh
        self.fmax, self.choose = jnp.maximum, jnp.where
        self.vertcat = lambda *rows: jnp.stack(rows)


def products(matrix: Any, x: Any) -> list[Any]:
    """A matrix of numbers times a list, without what is multiplied by 0."""
    return [sum([float(a) * v for a, v in zip(row, x) if a]) for row in matrix]


def euler(lib: Any, x: Any) -> list[Any]:
    """Three steps of a pendulum: (angle, speed) from two elements, a force each from others."""
    a, v, out = x[0], x[1], []
    for u in x[2:5]:
        a, v = a + 0.1 * v, v + 0.1 * (u - lib.sin(a))
        out += [a, v]
    return out


def shooting(lib: Any, x: Any) -> list[Any]:
    """Multiple shooting with one state and one control a stage."""
    return [x[2 * k + 2] - (x[2 * k] + 0.1 * lib.tanh(x[2 * k + 1] * x[2 * k])) for k in range(2)]


Function = Callable[[Any, Any], list[Any]]
# By name: the function of a list of six elements, and how many entries we have more than CasADi.
FUNCTIONS: dict[str, tuple[Function, int]] = {
    "the argument": (lambda lib, x: list(x), 0),
    "squares": (lambda lib, x: [v * v for v in x], 0),
    "sines": (lambda lib, x: [lib.sin(v) for v in x], 0),
    "one sum": (lambda lib, x: [sum(x[1:], x[0])], 0),
    "neighbours": (lambda lib, x: [a * b for a, b in zip(x, x[1:])], 0),
    "differences": (lambda lib, x: [b - a for a, b in zip(x, x[1:])], 0),
    "second differences": (lambda lib, x: [a - 2 * b + c for a, b, c in zip(x, x[1:], x[2:])], 0),
    "around": (lambda lib, x: [x[i] * x[(i + 1) % N] for i in range(N)], 0),
    "reversed": (lambda lib, x: x[::-1], 0),
    "every second": (lambda lib, x: [v * 2 for v in x[::2]], 0),
    "halves": (lambda lib, x: [a / b for a, b in zip(x[:3], x[3:])], 0),
    "arrow": (lambda lib, x: [x[0] * v for v in x[1:]] + [sum([v * v for v in x[1:]], x[0])], 0),
    "first times all": (lambda lib, x: [x[0] * v for v in x], 0),
    "constants": (lambda lib, x: [x[0] * 0 + 1.0, x[1], x[2] * 0], 0),
    "one element": (lambda lib, x: [x[3] ** 2], 0),
    "powers": (lambda lib, x: [v**k for k, v in enumerate(x, 1)], 0),
    "product of all": (lambda lib, x: [x[0] * x[1] * x[2] * x[3] * x[4] * x[5]], 0),
    "polynomial": (lambda lib, x: [((x[0] * x[1] + x[2]) * x[1] + x[3]) * x[1]], 0),
    "a matrix": (lambda lib, x: products(A, x), 0),
    "a matrix of sines": (lambda lib, x: products(A, [lib.sin(v) for v in x]), 0),
    "a matrix twice": (lambda lib, x: products(A[:, :4], products(A, x)), 0),
    "a network": (lambda lib, x: [lib.tanh(v) for v in products(A, x)], 0),
    "normed": (lambda lib, x: [v / lib.sqrt(sum([w * w for w in x])) for v in x], 0),
    "softmax": (lambda lib, x: [lib.exp(v) / sum([lib.exp(w) for w in x]) for v in x], 0),
    "distances": (
        lambda lib, x: [lib.sqrt((x[0] - x[k]) ** 2 + (x[1] - x[k + 1]) ** 2) for k in (2, 4)], 0,
    ),
    "maximum of pairs": (lambda lib, x: [lib.fmax(a, b) for a, b in zip(x[::2], x[1::2])], 0),
    "relu": (lambda lib, x: [lib.fmax(v, 0.0) for v in x], 0),
    "choice": (lambda lib, x: [lib.choose(x[0] > 0, x[1], x[2] * x[3])], -1),
    "choice of neighbours": (
        lambda lib, x: [lib.choose(a > b, a * a, b) for a, b in zip(x, x[1:])], 0,
    ),
    "running sums": (lambda lib, x: [sum(x[1 : k + 1], x[0]) for k in range(N)], 0),
    "running products": (lambda lib, x: [x[0], x[0] * x[1], x[0] * x[1] * x[2]], 0),
    "rosenbrock": (
        lambda lib, x: [sum([100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in zip(x, x[1:])])], 0,
    ),
    "its terms": (
        lambda lib, x: [b - a * a for a, b in zip(x, x[1:])] + [1 - v for v in x[:-1]], 0,
    ),
    "broyden": (
        lambda lib, x: [(3 - 2 * v) * v - 2 * w + 1 for v, w in zip(x, [*x[1:], x[0]])], 0,
    ),
    "heat": (
        lambda lib, x: [x[i - 1] + 0.1 * (x[i - 2] - 2 * x[i - 1] + x[i]) for i in range(N)], 0,
    ),
    "reaction": (
        lambda lib, x: [x[i] * x[i] * x[i + 3] for i in range(3)]
        + [x[i] - x[i + 3] for i in range(3)], 0,
    ),
    "a pendulum": (euler, 0),
    "multiple shooting": (shooting, 0),
    "nothing left": (lambda lib, x: [x[0] - x[0] + x[1]], 0),
    "nested": (lambda lib, x: [lib.sin(lib.cos(lib.exp(x[2]) * x[3]) + x[4])], 0),
}  # fmt: skip


def ours(f: Function) -> set[tuple[int, int]]:
    x = uopc.param("x", (N,), dtypes.float64)
    found = uopc.sparsity(uopc.stack(*f(Nodes, list(x))), x)
    return set(zip(found.row.tolist(), found.col.tolist()))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.few(16)
def test_no_entry_is_missing(name: str) -> None:
    """By numbers: what is not zero at some of three points is an entry."""
    f, _ = FUNCTIONS[name]
    x = uopc.param("x", (N,), dtypes.float64)
    jacobian = uopc.compile(uopc.jacfwd(uopc.stack(*f(Nodes, list(x))), x), inputs=[x])
    entries = ours(f)
    for seed in range(3):
        at = np.random.default_rng(seed).uniform(-1, 1, N)
        assert set(zip(*[i.tolist() for i in np.nonzero(jacobian(at))])) <= entries


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_casadi(name: str) -> None:
    ca = pytest.importorskip("casadi")
    f, more = FUNCTIONS[name]
    x = ca.SX.sym("x", N)
    lib = CasADi(ca)
    found = ca.jacobian(ca.vertcat(*f(lib, ca.vertsplit(x))), x).sparsity()
    row, column_ends = found.row(), found.colind()
    column = np.repeat(np.arange(N), np.diff(column_ends))
    theirs = set(zip(row, column.tolist()))
    assert len(ours(f) - theirs) - len(theirs - ours(f)) == more


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_asdex(name: str) -> None:
    """The same entries."""
    asdex = pytest.importorskip("asdex")
    jnp = pytest.importorskip("jax.numpy")
    f, _ = FUNCTIONS[name]
    lib = Jax(jnp)
    traced = lambda x: jnp.stack(f(lib, [x[i] for i in range(N)]))  # noqa: E731
    found = asdex.jacobian_sparsity(traced, jnp.ones(N))
    theirs = set(zip(np.asarray(found.rows).tolist(), np.asarray(found.cols).tolist()))
    # x[0] - x[0] is nothing, as we build it.
    assert theirs - ours(f) == ({(0, 0)} if name == "nothing left" else set())
    assert ours(f) <= theirs
