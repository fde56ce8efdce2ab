"""Loops in the graph: values, both ways of code, derivatives, batches, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from tests.machines import described
from uopc import dtypes
from uopc.tensor.loops import scan as loops

RNG = np.random.default_rng(5)
X, U = RNG.uniform(-1, 1, 3), RNG.uniform(-1, 1, (7, 2))
W = RNG.uniform(-0.5, 0.5, (3, 3))
OUT = pytest.param(-1, marks=pytest.mark.slow)  # each step gets kernels of its own
WAYS = pytest.mark.parametrize("registers", [64, 0, OUT], ids=["registers", "memory", "out"])
# The others with the full suite alone.
ONE_WAY = pytest.mark.parametrize(
    "registers", [64, pytest.param(0, marks=pytest.mark.slow), OUT],
    ids=["registers", "memory", "out"],
)  # fmt: skip


@pytest.fixture
def way(registers: int, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(loops, "MOST_REGISTERS", registers)
    monkeypatch.setattr(loops, "LARGE_STEP", 0 if registers < 0 else 1 << 40)
    return registers


def stepped(xp: Any, w: Any, c: Any, v: Any) -> tuple[Any, Any]:
    made = xp.tanh(w @ c) + v[0] * c[::-1]
    return made, (made * v[1]).sum()


def roll(x: Any, u: Any, w: Any) -> Any:
    last, ys = uopc.scan(lambda c, v: stepped(unp, w, c, v), x, u)
    return last.sum() + (ys**2).sum()


def rolled(x: Any, u: Any, w: Any) -> Any:
    ys = []
    for v in u:
        x, y = stepped(np, w, x, v)
        ys.append(y)
    return x.sum() + (np.array(ys) ** 2).sum()


def slope(at: int, args: tuple[Any, ...], v: Any) -> Any:
    def moved(h: float) -> Any:
        return rolled(*[a + h * v if i == at else a for i, a in enumerate(args)])

    return (8 * (moved(1e-4) - moved(-1e-4)) - (moved(2e-4) - moved(-2e-4))) / 12e-4


# ---------------------------------------------------------------- values
@WAYS
def test_values(way: int) -> None:
    program = uopc.jit(roll)
    np.testing.assert_allclose(program(X, U, W), rolled(X, U, W))
    for n in (0, 1, 4):
        np.testing.assert_allclose(program(X, U[:n], W), rolled(X, U[:n], W))


@WAYS
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("optimize", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_containers_and_order(way: int, reverse: bool, optimize: bool) -> None:
    def step(c: Any, x: Any) -> Any:
        return {"sum": c["sum"] + x["a"], "n": c["n"] + 1}, (c["sum"], x["b"] * 2)

    def f(a: Any, b: Any) -> Any:
        return uopc.scan(
            step, {"sum": unp.zeros(2), "n": unp.asarray(0)}, {"a": a, "b": b}, reverse=reverse
        )

    a, b = RNG.uniform(size=(5, 2)), np.arange(5, dtype="i4")
    last, (sums, twice) = uopc.jit(f, optimize=optimize)(a, b)
    assert last["n"] == 5
    np.testing.assert_allclose(last["sum"], a.sum(0))
    order = a[::-1] if reverse else a
    before = np.cumsum(order, 0) - order
    np.testing.assert_allclose(sums, before[::-1] if reverse else before)
    np.testing.assert_array_equal(twice, b * 2)
    assert twice.dtype == np.int32


BODIES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "swap": (lambda c, x: unp.flip(c) + x, lambda c, x: c[::-1] + x),
    "softmax": (
        lambda c, x: unp.exp(c) / unp.sum(unp.exp(c)) + x,
        lambda c, x: np.exp(c) / np.exp(c).sum() + x,
    ),
    "place": (
        lambda c, x: c[unp.astype(c > 0, dtypes.int64)] + x, lambda c, x: c[(c > 0).astype(int)] + x
    ),
    "parts": (
        lambda c, x: unp.concat([c[1:], c[:1] * x]), lambda c, x: np.r_[c[1:], c[:1] * x]
    ),
    "padded": (lambda c, x: unp.pad(c, 1)[:-2] + x, lambda c, x: np.pad(c, 1)[:-2] + x),
    "constant": (lambda c, x: unp.ones(3) * 2, lambda c, x: np.ones(3) * 2),
    "the element": (lambda c, x: x + unp.zeros(3), lambda c, x: x + np.zeros(3)),
    "least": (
        lambda c, x: unp.minimum(c, unp.max(c) - x), lambda c, x: np.minimum(c, c.max() - x)
    ),
}  # fmt: skip


@WAYS
@pytest.mark.parametrize("name", BODIES)
def test_bodies(way: int, name: str) -> None:
    ours, theirs = BODIES[name]
    xs = RNG.uniform(0.1, 1, 6)
    got = uopc.scan(lambda c, x: (ours(c, x), c), X, xs)
    c, seen = X, []
    for x in xs:
        seen.append(c)
        c = theirs(c, x)
    np.testing.assert_allclose(got[0], c, rtol=1e-12)
    np.testing.assert_allclose(got[1], seen, rtol=1e-12)


@ONE_WAY
@pytest.mark.parametrize("t", [dtypes.float32, dtypes.float16, dtypes.int32, dtypes.int64], ids=str)
def test_dtypes(way: int, t: Any) -> None:
    x = np.arange(1, 6).astype(t.numpy)
    last, ys = uopc.scan(lambda c, v: (c + v * 2, c), np.zeros((), t.numpy), x)
    assert last.dtype == ys.dtype == t.numpy
    np.testing.assert_array_equal(last, 30)
    np.testing.assert_array_equal(ys, [0, 2, 6, 12, 20])


@pytest.mark.parametrize("machine", ["laptop", "old"])
@pytest.mark.parametrize("t", ["float16", "bfloat16", "fp8e5m2"])
def test_extremes_of_narrow_floats(t: str, machine: str) -> None:
    """Types without arithmetic, in the bodies of loops. All values are small integers."""
    x = RNG.integers(-3, 4, (4, 24)).astype("f4")
    given = uopc.param("x", x.shape).cast(dtypes.by_name(t))
    graph = uopc.fori_loop(0, 3, lambda i, c: c.min(1, True) - c.max(0, True), given)
    with described(machine):
        found = uopc.compile(graph.cast(dtypes.float32))(x)
    for _ in range(3):
        x = x.min(1, keepdims=True) - x.max(0, keepdims=True)
    np.testing.assert_array_equal(found, x)


@WAYS
def test_a_symbolic_number_of_steps(way: int) -> None:
    n = uopc.variable("n", 0, 1 << 20)
    xs = uopc.param("xs", (n, 3), dtypes.float64)
    last, ys = uopc.scan(lambda c, x: (c * 0.5 + x, c.sum()), uopc.constant(X), xs)
    program = uopc.compile([last, ys])
    for size in (1, 5, 0):
        a = RNG.uniform(size=(size, 3))
        c, seen = X, []
        for row in a:
            seen.append(c.sum())
            c = c * 0.5 + row
        got = program(a)
        np.testing.assert_allclose(got[0], c)
        np.testing.assert_allclose(got[1], np.array(seen).reshape(size))


def test_code_does_not_grow_with_the_steps() -> None:
    def f(x: Any) -> Any:
        return uopc.fori_loop(0, 1_000_000, lambda i, c: c * 0.999999 + 1e-6, x)

    program = uopc.jit(f)
    np.testing.assert_allclose(program(2.0), 1 + 0.999999**1_000_000, rtol=1e-9)
    assert [k.name for k in program.program(2.0).kernels][-1] == "scan"


@pytest.mark.parametrize("n", [1, 6, 7])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.few(2)
def test_steps_that_follow_each_other_in_the_code(n: int, reverse: bool) -> None:
    """The same bits, in each mode, whether the factor divides the number of steps or not."""

    def f(c: Any, u: Any, unroll: Any) -> Any:
        step = lambda c, v: ((unp.sin(c) * v[0] + c[::-1], c * v[1]))  # noqa: E731
        return uopc.scan(step, c, u, reverse=reverse, unroll=unroll)

    def loss(c: Any, u: Any, unroll: Any) -> Any:
        last, ys = f(c, u, unroll)
        return last.sum() + (ys**2).sum()

    value, slope = f(X, U[:n], 1), uopc.grad(loss, argnums=(0, 1))(X, U[:n], 1)
    for k in (2, 3, True):
        for a, b in zip(f(X, U[:n], k), value):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(uopc.grad(loss, argnums=(0, 1))(X, U[:n], k), slope):
            np.testing.assert_allclose(a, b, rtol=1e-13)


def test_an_unroll_factor_is_an_opt() -> None:
    n = uopc.variable("n", 0, 100)
    xs = uopc.param("xs", (n,), dtypes.float64)
    first = uopc.constant(0.5, dtypes.float64)
    last, ys = uopc.scan(lambda c, x: (unp.sin(c) + x, c), first, xs, unroll=4)
    program = uopc.compile([last, ys])
    assert [str(o) for o in program.kernels[-1].opts] == ["UNROLL(0, 4)"]
    for size in (0, 3, 4, 9):
        a = RNG.uniform(size=size)
        c, seen = 0.5, []
        for v in a:
            seen.append(c)
            c = np.sin(c) + v
        got = program(a)
        np.testing.assert_allclose(got[0], c)
        np.testing.assert_allclose(got[1], np.array(seen).reshape(size))
    # A carry in memory has loops in its steps: they are no longer than these.
    wide = uopc.fori_loop(0, 9, lambda i, c: c * 0.5, uopc.constant(np.ones(100)), unroll=3)
    assert "UNROLL" not in str(uopc.compile(wide).kernels[-1].opts)


def test_large_steps_get_kernels_of_their_own() -> None:
    x, w = RNG.uniform(-1, 1, (128, 128)), RNG.uniform(-0.1, 0.1, (128, 128))
    f = uopc.jit(lambda x, w: uopc.fori_loop(0, 6, lambda i, c: unp.tanh(w @ c), x))
    wanted = x
    for _ in range(6):
        wanted = np.tanh(w @ wanted)
    np.testing.assert_allclose(f(x, w), wanted)
    program = f.program(x, w)
    assert "scan" not in [k.name for k in program.kernels]
    (loop,) = program._runner.plan.repeats
    assert loop.times == 6
    assert program.stats["launches"] < 8


def test_loops_in_loops() -> None:
    def inner(c: Any, x: Any) -> Any:
        return uopc.fori_loop(0, 3, lambda i, v: v + x * unp.astype(i, dtypes.float64), c), None

    got, _ = uopc.scan(inner, 1.0, np.array([1.0, 2.0]))
    np.testing.assert_allclose(got, 1 + 3 * 3)

    def outer(x: Any) -> Any:
        return uopc.scan(lambda c, v: (inner(c * v, v)[0], None), 1.0, x)[0]

    x = np.array([0.5, 2.0])  # (x0 + 3 x0) x1 + 3 x1
    np.testing.assert_allclose(uopc.grad(outer)(x), [4 * x[1], 4 * x[0] + 3])


def test_what_does_not_depend_on_a_step_is_computed_once() -> None:
    w = uopc.param("w", (3, 3), dtypes.float64)
    c = uopc.param("c", (3,), dtypes.float64)
    last, _ = uopc.scan(lambda c, x: ((w @ w).sin() @ c, None), c, length=4)
    program = uopc.compile(last, inputs=[c, w])
    m = np.sin(W @ W)
    np.testing.assert_allclose(program(X, W), m @ (m @ (m @ (m @ X))))
    assert len(program.kernels) == 2


# ---------------------------------------------------------------- derivatives
@WAYS
def test_derivatives(way: int) -> None:
    args = (X, U, W)
    found = uopc.grad(roll, argnums=(0, 1, 2))(*args)
    for i, g in enumerate(found):
        v = RNG.standard_normal(args[i].shape)
        np.testing.assert_allclose(np.sum(g * v), slope(i, args, v), rtol=1e-8)
        tangents = [v if j == i else np.zeros(a.shape) for j, a in enumerate(args)]
        push = uopc.jvp(roll, args, tuple(tangents))[1]
        np.testing.assert_allclose(push, np.sum(g * v), rtol=1e-10)


@ONE_WAY
def test_a_loop_that_is_there_twice(way: int) -> None:
    """Its results have other storage each time; both have their part in a gradient."""

    def once(x: Any, w: Any) -> Any:
        last, ys = uopc.scan(lambda c, _: (unp.sin(c) * w, c * w), x, None, length=3)
        return last.sum() + (ys**2).sum()

    got = uopc.jit(uopc.grad(lambda x, w: once(x, w) + once(x, w), argnums=(0, 1)))(X, W[0])
    one = uopc.jit(uopc.grad(once, argnums=(0, 1)))(X, W[0])
    for a, b in zip(got, one, strict=True):
        np.testing.assert_allclose(a, 2 * b)


@ONE_WAY
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.few(3)
def test_forward_and_reverse_agree(way: int, name: str) -> None:
    f = BODIES[name][0]
    xs = RNG.uniform(0.1, 1, 4)

    def g(c: Any, x: Any) -> Any:
        return uopc.scan(lambda c, x: (f(c, x), c * x), c, x)

    forward = uopc.jacfwd(g, argnums=(0, 1))(X, xs)
    reverse = uopc.jacrev(g, argnums=(0, 1))(X, xs)
    for a, b in zip(forward, reverse):
        for p, q in zip(a, b):
            np.testing.assert_allclose(p, q, rtol=1e-10, atol=1e-12)


@ONE_WAY
def test_second_derivatives(way: int) -> None:
    loss = lambda x: roll(x, unp.asarray(U), unp.asarray(W))  # noqa: E731
    h = uopc.hessian(loss)(X)
    np.testing.assert_allclose(h, h.T, rtol=1e-9)
    v = RNG.standard_normal(3)
    gradient = uopc.grad(loss)
    wanted = (gradient(X + 1e-5 * v) - gradient(X - 1e-5 * v)) / 2e-5
    np.testing.assert_allclose(h @ v, wanted, rtol=1e-6)


@ONE_WAY
@pytest.mark.parametrize("axes", [(0, None, None), (None, 0, None), (None, None, 0), (0, 1, 0)])
def test_batches(way: int, axes: Any) -> None:
    xs, us, ws = np.stack([X, -X]), np.stack([U, U * 2], axis=axes[1] or 0), np.stack([W, W.T])
    args = [all_ if a is not None else one for a, all_, one in zip(axes, (xs, us, ws), (X, U, W))]
    got = uopc.vmap(roll, in_axes=axes)(*args)
    wanted = [
        rolled(*[np.moveaxis(v, a, 0)[i] if a is not None else v for a, v in zip(axes, args)])
        for i in range(2)
    ]
    np.testing.assert_allclose(got, wanted)
    gradients = uopc.vmap(uopc.grad(roll, argnums=2), in_axes=axes)(*args)
    assert gradients.shape == (2, 3, 3)
    single = [np.moveaxis(v, a, 0)[1] if a is not None else v for a, v in zip(axes, args)]
    np.testing.assert_allclose(gradients[1], uopc.grad(roll, argnums=2)(*single))


def test_integers_are_carried_beside() -> None:
    def f(x: Any) -> Any:
        return uopc.fori_loop(1, 4, lambda i, c: c * unp.astype(i, dtypes.float64), x)

    np.testing.assert_allclose(uopc.grad(f)(2.0), 6.0)
    np.testing.assert_allclose(uopc.vmap(uopc.grad(f))(np.ones(3)), np.full(3, 6.0))


# ---------------------------------------------------------------- others
def test_map_and_bounds() -> None:
    np.testing.assert_allclose(uopc.map(lambda x: x.sum(), np.ones((2, 3))), [3, 3])
    np.testing.assert_array_equal(uopc.fori_loop(3, 1, lambda i, c: c + i, 5), 5)
    np.testing.assert_array_equal(uopc.fori_loop(2, 5, lambda i, c: c + i, 0), 9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: uopc.scan(lambda c, x: (c, c), 1.0), "give the number of steps"),
        (lambda: uopc.scan(lambda c, x: c, 1.0, length=3), "must give a pair"),
        (lambda: uopc.scan(lambda c, x: (unp.stack([c, c]), c), 1.0, length=3), "makes it"),
        (lambda: uopc.scan(lambda c, x: ((c, c), c), 1.0, length=3), "containers of the first"),
        (lambda: uopc.scan(lambda c, x: (c, x), 1.0, (X, X[:2])), "lengths differ"),
        (lambda: uopc.scan(lambda c, x: (c, x), 1.0, X, length=2), "lengths differ"),
        (lambda: uopc.scan(lambda c, x: (c, x), 1.0, 3.0), "got a scalar"),
        (lambda: uopc.scan(lambda c, x: (c, x), 1.0, length=-1), "must not be negative"),
        (lambda: uopc.scan(3, 1.0, X), "expected a function"),
        (lambda: uopc.scan(lambda c, x: (c, x), 1.0, X, unroll=0), "unroll must be a bool or"),
        (lambda: uopc.fori_loop(0, 3, lambda i, c: c, 1.0, unroll=1.5), "unroll must be a bool or"),
        (
            lambda: uopc.fori_loop(0, 10**6, lambda i, c: c * 2, 1.0, unroll=True),
            "unroll=1000000 makes .* operations, expected 20000 at most",
        ),
        (lambda: uopc.scan(lambda c, x: (float(c), x), 1.0, X), "is not known"),
    ],
)
def test_errors(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(uopc.Error, match=message):
        make()
