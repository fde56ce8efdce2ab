"""Derivatives and batches of functions of arrays: values, containers, nesting, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import dtypes

X, Y = np.array([0.3, -0.5, 0.7]), np.array([1.0, 2.0, -3.0])


class State(NamedTuple):
    x: Any
    v: Any


def energy(state: State, mass: Any) -> Any:
    return 0.5 * mass * unp.sum(state.v**2) + unp.sum(unp.sin(state.x))


def test_gradients_have_the_containers_of_the_arguments() -> None:
    found = uopc.grad(energy)(State(X, Y), 2.0)
    assert type(found) is State
    np.testing.assert_allclose(found.x, np.cos(X))
    np.testing.assert_allclose(found.v, 2 * Y)
    value, (state, mass) = uopc.value_and_grad(energy, argnums=(0, 1))(State(X, Y), 2.0)
    np.testing.assert_allclose(value, Y @ Y + np.sin(X).sum())
    np.testing.assert_allclose(mass, 0.5 * Y @ Y)
    np.testing.assert_allclose(state.v, 2 * Y)
    np.testing.assert_allclose(uopc.grad(energy, argnums=-1)(State(X, Y), 2.0), 0.5 * Y @ Y)


def test_what_a_function_gives_besides() -> None:
    def f(x: Any) -> Any:
        y = unp.exp(x)
        return y.sum(), {"y": y, "twice": [2 * x]}

    found, more = uopc.grad(f, has_aux=True)(X)
    np.testing.assert_allclose(found, np.exp(X))
    np.testing.assert_allclose(more["twice"][0], 2 * X)
    (value, more), found = uopc.value_and_grad(f, has_aux=True)(X)
    np.testing.assert_allclose(value, np.exp(X).sum())
    np.testing.assert_allclose(more["y"], found)
    jacobian, more = uopc.jacrev(f, has_aux=True)(X)
    np.testing.assert_allclose(jacobian, more["y"])
    value, push, more = uopc.jvp(f, (X,), (Y,), has_aux=True)
    np.testing.assert_allclose(push, np.exp(X) @ Y)
    value, pull, more = uopc.vjp(f, X, has_aux=True)
    np.testing.assert_allclose(pull(2.0)[0], 2 * np.exp(X))


def test_linearize_gives_what_a_function_gives_besides() -> None:
    value, push, more = uopc.linearize(lambda x: (x * x, {"x": x}), X, has_aux=True)
    np.testing.assert_allclose(value, X * X)
    np.testing.assert_allclose(push(Y), 2 * X * Y)
    np.testing.assert_array_equal(more["x"], X)


def test_second_derivatives_of_several_results() -> None:
    found = uopc.hessian(lambda x: {"a": x**3, "b": x.sum()})(X)
    at = np.arange(3)
    wanted = np.zeros((3, 3, 3))
    wanted[at, at, at] = 6 * X
    np.testing.assert_allclose(found["a"], wanted)
    np.testing.assert_array_equal(found["b"], np.zeros((3, 3)))


def test_arguments_that_are_not_differentiated_may_be_anything() -> None:
    def f(x: Any, n: int, how: str, *, shift: float = 0.0) -> Any:
        for _ in range(n):
            x = unp.sin(x) if how == "sine" else x * x
        return (x + shift).sum()

    np.testing.assert_allclose(uopc.grad(f)(X, 1, "sine"), np.cos(X))
    np.testing.assert_allclose(uopc.grad(f)(X, 2, "square", shift=1.0), 4 * X**3)
    jitted = uopc.jit(uopc.grad(f), static_argnames=("n", "how"))
    np.testing.assert_allclose(jitted(X, 2, "square"), 4 * X**3)


def test_any_nesting() -> None:
    f = unp.sin
    for wanted in (np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x)):
        f = uopc.grad(f)
        np.testing.assert_allclose(f(0.3), wanted(0.3), rtol=1e-12)
    g = uopc.vmap(uopc.grad(uopc.grad(unp.sin)))
    np.testing.assert_allclose(g(X), -np.sin(X), rtol=1e-12)

    def inner(x: Any) -> Any:
        return uopc.grad(lambda y: x * y**3)(x) * x  # 3 x^3, times x

    np.testing.assert_allclose(uopc.grad(inner)(2.0), 12 * 8.0)
    both = uopc.jit(lambda x: uopc.jvp(uopc.grad(lambda v: (v**4).sum()), (x,), (x,)))
    value, tangent = both(X)
    np.testing.assert_allclose(value, 4 * X**3)
    np.testing.assert_allclose(tangent, 12 * X**3)
    product = lambda x, y: uopc.grad(lambda z: z * x * y)(1.0)  # noqa: E731
    rows = uopc.vmap(lambda x: uopc.vmap(lambda y: product(x, y))(unp.asarray(Y)))
    np.testing.assert_allclose(rows(X), np.outer(X, Y))
    np.testing.assert_allclose(
        uopc.jacfwd(uopc.jacrev(lambda x: (x**3).sum()))(X), np.diag(6 * X)
    )
    np.testing.assert_allclose(uopc.hessian(lambda x: (x**3).sum())(X), np.diag(6 * X))


def test_a_closure_over_a_differentiated_value_is_constant_inside() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return uopc.grad(lambda z: z * y)(x)  # y: 2 x

    np.testing.assert_allclose(uopc.grad(f)(3.0), 2.0)


def test_products() -> None:
    f = lambda a, b: {"p": a * b, "s": a.sum()}  # noqa: E731
    value, pull = uopc.vjp(f, X, Y)
    np.testing.assert_allclose(value["p"], X * Y)
    a, b = pull({"p": np.ones(3), "s": np.float64(2)})
    np.testing.assert_allclose(a, Y + 2)
    np.testing.assert_allclose(b, X)
    value, tangent = uopc.jvp(f, (X, Y), (Y, X))
    np.testing.assert_allclose(tangent["p"], Y * Y + X * X)
    np.testing.assert_allclose(tangent["s"], Y.sum())
    value, push = uopc.linearize(f, X, Y)
    np.testing.assert_allclose(push(Y, X)["p"], Y * Y + X * X)
    np.testing.assert_allclose(uopc.hvp(lambda x: (x**3).sum(), (X,), (Y,)), 6 * X * Y)


def test_jacobians_of_containers() -> None:
    f = lambda s: [s.x * s.v[0], s.v.sum()]  # noqa: E731
    for mode in (uopc.jacfwd, uopc.jacrev, uopc.jacobian):
        first, second = mode(f)(State(X, Y))
        np.testing.assert_allclose(first.x, np.eye(3) * Y[0])
        np.testing.assert_allclose(first.v, np.outer(X, [1, 0, 0]))
        np.testing.assert_allclose(second.v, np.ones(3))
        np.testing.assert_allclose(second.x, np.zeros(3))


# ---------------------------------------------------------------- batches
@pytest.mark.parametrize("axes", [(0, None), (1, None), (-1, 0), (None, 0), ([0], None)])
def test_axes_of_a_batch(axes: Any) -> None:
    a = np.arange(12.0).reshape(3, 4)
    b = np.linspace(1, 2, 4 if axes[1] == 0 else 3)
    first, second = axes
    listed = isinstance(first, list)
    f = lambda x, y: ((x[0] if listed else x) * y).sum()  # noqa: E731
    first = first[0] if listed else first
    if first is None:
        wanted = [(a * v).sum() for v in b]
    elif second is None:
        rows = np.moveaxis(a, first, 0)
        b = np.linspace(1, 2, rows.shape[1])
        wanted = [(r * b).sum() for r in rows]
    else:
        wanted = [(r * v).sum() for r, v in zip(np.moveaxis(a, first, 0), b)]
    got = uopc.vmap(f, in_axes=axes)([a] if listed else a, b)
    np.testing.assert_allclose(got, wanted)


def test_results_of_a_batch() -> None:
    got = uopc.vmap(lambda x: (x, x.sum(), unp.ones(2)), out_axes=(1, 0, 0))(np.eye(3)[:2])
    np.testing.assert_array_equal(got[0], np.eye(3)[:2].T)
    np.testing.assert_array_equal(got[1], [1, 1])
    np.testing.assert_array_equal(got[2], np.ones((2, 2)))


def test_results_without_the_batch() -> None:
    got = uopc.vmap(lambda x: (x, unp.ones(2), 2.0), out_axes=(0, None, None))(X)
    np.testing.assert_array_equal(got[0], X)
    np.testing.assert_array_equal(got[1], np.ones(2))
    assert got[2] == 2.0 and np.shape(got[2]) == ()


def test_batches_by_name_and_by_size() -> None:
    got = uopc.vmap(lambda x, *, y: (x * y["a"]).sum(), in_axes=None)(X, y={"a": np.outer(Y, X)})
    np.testing.assert_allclose(got, Y * (X @ X))
    got = uopc.vmap(lambda x: x + 1, in_axes=None, axis_size=2)(X)
    np.testing.assert_allclose(got, [X + 1, X + 1])
    np.testing.assert_allclose(uopc.vmap(lambda: 3.0, axis_size=2)(), [3, 3])


OPS: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: unp.sort(x),
    "argsort": lambda x: unp.argsort(x),
    "cumsum": lambda x: unp.cumulative_sum(x),
    "reverse": lambda x: x[::-1],
    "gather": lambda x: x[unp.asarray(np.array([2, 0]))],
    "own places": lambda x: x[unp.astype(x > 0, dtypes.int64)],
    "at": lambda x: x.at[unp.asarray(np.array([2, 2]))].add(x[:2]),
    "at own places": lambda x: x.at[unp.astype(x > 0, dtypes.int64)].add(x),
    "set": lambda x: unp.zeros(3).at[unp.astype(x > 0, dtypes.int64)].set(x),
    "matmul": lambda x: unp.linalg.outer(x, x) @ x,
    "solve": lambda x: unp.linalg.solve(unp.eye(3) + 0.1 * unp.linalg.outer(x, x), x),
    "cholesky": lambda x: unp.linalg.cholesky(unp.eye(3) + unp.linalg.outer(x, x)),
    "inv": lambda x: unp.linalg.inv(unp.eye(3) + unp.linalg.outer(x, x)),
    "det": lambda x: unp.linalg.det(unp.eye(3) + unp.linalg.outer(x, x)),
    "qr": lambda x: unp.linalg.qr(unp.eye(3) + unp.linalg.outer(x, x))[1],
    "hypot": lambda x: unp.hypot(x, x[0]),
    "where": lambda x: unp.where(x > x[0], x, 0.0),
    "pad": lambda x: unp.pad(x, 1),
    "stack": lambda x: unp.stack([x, unp.ones(3)], axis=1),
    "concat": lambda x: unp.concat([x, unp.ones(2)]),
    "roll": lambda x: unp.roll(x, 1),
    "tile": lambda x: unp.tile(x, (2, 2)),
    "std": lambda x: x.std(),
    "any": lambda x: (x > 0.5).any(),
    "view of bits": lambda x: unp.signbit(x),
    "function": lambda x: uopc.checkpoint(lambda v: unp.sin(v) * x[0])(x),
}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.few(5)
def test_a_batch_is_the_function_of_each(name: str) -> None:
    rows = np.array([[0.3, -0.5, 0.7], [2.0, -1.0, 0.1], [-0.2, -0.3, -1.0], [1.0, 1.0, 1.0]])
    f = OPS[name]
    got = uopc.vmap(f)(rows)
    wanted = [uopc.jit(f)(row) for row in rows]
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-14)


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: uopc.grad(lambda x: x)(X), r"<lambda> must give one float, got float64\(3\)"),
        (lambda: uopc.grad(lambda x: x.sum())(np.arange(3)), "is int64, which has no derivatives"),
        (lambda: uopc.grad(lambda x: x.sum(), argnums=1)(X), "argnums must be below 1"),
        (lambda: uopc.grad(lambda x, y: x.sum(), (0, -2))(X, Y), "must name different arguments"),
        (lambda: uopc.grad(lambda x: x.sum(), has_aux=True)(X), "must give a pair"),
        (lambda: uopc.vjp(lambda x: x, X[:2], has_aux=True), "must give a pair"),
        (lambda: uopc.linearize(lambda x: x, X, has_aux=True), "must give a pair"),
        (lambda: uopc.grad(3.0), "grad: expected a UOp or a function"),
        (lambda: uopc.vmap(lambda x: x, axis_size=2)(X), "batches of different lengths"),
        (lambda: uopc.grad(lambda x: float(x[0]))(X), "is not known"),
        (lambda: uopc.jvp(lambda x: x, (X,), (Y[:2],)), "does not fit"),
        (lambda: uopc.jvp(lambda x: x, (X,), (Y, Y)), "must have the containers"),
        (lambda: uopc.jvp(lambda x: x, X, Y), "must be tuples"),
        (lambda: uopc.vjp(lambda x: x, X)[1]([X]), "must have the containers"),
        (lambda: uopc.vmap(lambda x, y: x)(X, Y[:2]), "batches of different lengths"),
        (lambda: uopc.vmap(lambda x: x, in_axes=None)(X), "pass in_axes with an axis"),
        (lambda: uopc.vmap(lambda x: x)(3.0), "got a scalar"),
        (lambda: uopc.vmap(lambda x: x, in_axes=(0, 0))(X), "one per argument, got 2"),
        (lambda: uopc.vmap(lambda x: x, in_axes=3)(X), "out of range"),
        (lambda: uopc.vmap(lambda x: x, out_axes=None)(X), "must be an int"),
        (lambda: uopc.grad(lambda x: "text")(X), "must give arrays|got str"),
    ],
)
def test_errors(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(uopc.Error, match=message):
        make()


def test_a_value_that_leaves_its_function_is_an_error() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x)
        return x.sum()

    uopc.grad(f)(X)
    with pytest.raises(uopc.Error):
        uopc.jit(lambda x: x + kept[0])(X)


# ---------------------------------------------------------------- rules of the user
@uopc.custom_jvp
def root(x: Any) -> Any:
    return unp.sqrt(x)


@root.defjvp
def _root_rule(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    y = root(x)
    return y, unp.where(x > 0, t / (2 * y), 0.0)


def test_custom_jvp_in_every_mode() -> None:
    at = np.array([0.0, 4.0])
    np.testing.assert_array_equal(root(at), [0, 2])
    np.testing.assert_allclose(uopc.grad(lambda x: root(x).sum())(at), [0, 0.25])
    np.testing.assert_allclose(uopc.jvp(root, (at,), (at,))[1], [0, 1])
    np.testing.assert_allclose(uopc.jacfwd(root)(at), np.diag([0, 0.25]))
    np.testing.assert_allclose(uopc.vmap(uopc.grad(root))(at), [0, 0.25])
    np.testing.assert_allclose(uopc.grad(uopc.grad(root))(4.0), -0.25 * 4**-1.5)


def test_custom_vjp_with_several_results() -> None:
    @uopc.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y, x + y

    f.defvjp(
        lambda x, y: (f(x, y), (x, y)),
        lambda kept, ct: (10 * ct[0] * kept[1] + ct[1], ct[0] * kept[0]),
    )

    def loss(x: Any, y: Any) -> Any:
        p, s = f(x, y)
        return unp.sum(p) + 2 * unp.sum(s)

    x, y = uopc.grad(loss, argnums=(0, 1))(X, Y)
    np.testing.assert_allclose(x, 10 * Y + 2)
    np.testing.assert_allclose(y, X)
    x, y = uopc.vmap(uopc.grad(loss, argnums=(0, 1)), in_axes=(0, None))(X, 3.0)
    np.testing.assert_allclose(x, np.full(3, 32.0))
    np.testing.assert_allclose(y, X)
    with pytest.raises(uopc.Unsupported, match="forward mode of f"):
        uopc.jvp(f, (X, Y), (X, Y))


def test_arguments_that_are_part_of_a_function_with_a_rule() -> None:
    @uopc.custom_vjp
    def scaled(x: Any) -> Any:
        return x

    def clip_to(limit: float, x: Any) -> Any:
        @uopc.custom_vjp
        def clipped(x: Any) -> Any:
            return x

        clipped.defvjp(lambda x: (x, None), lambda _, ct: (unp.clip(ct, -limit, limit),))
        return clipped(x)

    g = uopc.grad(lambda x: (clip_to(0.5, x) * unp.asarray(Y)).sum())
    np.testing.assert_allclose(g(X), np.clip(Y, -0.5, 0.5))
    h = uopc.grad(lambda x: (clip_to(2.0, x) * unp.asarray(Y)).sum())
    np.testing.assert_allclose(h(X), np.clip(Y, -2, 2))
    with pytest.raises(uopc.UserError, match="has no rules"):
        uopc.grad(lambda x: scaled(x).sum())(X)

    both = uopc.custom_jvp(lambda n, x: x**n, nondiff_argnums=(0,))
    both.defjvp(lambda n, primals, tangents: (primals[0] ** n, tangents[0] * 100 * n))
    np.testing.assert_allclose(uopc.grad(lambda x: both(3, x).sum())(X), np.full(3, 300.0))


def test_rules_that_do_not_fit() -> None:
    @uopc.custom_jvp
    def f(x: Any) -> Any:
        return x

    f.defjvp(lambda primals, tangents: (primals[0], tangents[0].sum()))
    with pytest.raises(uopc.UserError, match=r"the rule must give float64\(3\), got float64\(\)"):
        uopc.jvp(f, (X,), (X,))
    f.defjvp(lambda primals, tangents: primals[0])
    with pytest.raises(uopc.UserError, match="must give a pair"):
        uopc.jvp(f, (X,), (X,))


def test_checkpoint_computes_again() -> None:
    block = uopc.checkpoint(lambda x, w: unp.tanh(x @ w))
    w = np.eye(3) * 0.3 + 0.1
    plain = lambda x, w: unp.tanh(x @ w)  # noqa: E731
    got = uopc.grad(lambda x: block(block(x, unp.asarray(w)), unp.asarray(w)).sum())(X)
    wanted = uopc.grad(lambda x: plain(plain(x, unp.asarray(w)), unp.asarray(w)).sum())(X)
    np.testing.assert_allclose(got, wanted)
    np.testing.assert_allclose(block(X, w), np.tanh(X @ w))


def test_stop_gradient() -> None:
    np.testing.assert_allclose(uopc.grad(lambda x: x * uopc.stop_gradient(x))(3.0), 3.0)
    found = uopc.grad(lambda s: (s["a"] * uopc.stop_gradient(s)["b"]).sum())({"a": X, "b": Y})
    np.testing.assert_allclose(found["a"], Y)
    np.testing.assert_array_equal(found["b"], np.zeros(3))


def test_rules_of_arguments_by_name() -> None:
    f = uopc.custom_jvp(lambda x, y=2.0: unp.sin(x) * y)
    f.defjvp(lambda p, t: (f(*p), 2 * t[0] + 3 * t[1]))
    np.testing.assert_allclose(uopc.grad(lambda x: f(x, y=x).sum())(X), [5, 5, 5])
    g = uopc.custom_vjp(lambda x, y: x * y)
    g.defvjp(lambda x, y: (x * y, y), lambda y, ct: [ct * y * 3, None])
    np.testing.assert_allclose(uopc.grad(lambda x: g(y=unp.asarray(Y), x=x).sum())(X), 3 * Y)


def test_no_cotangent_of_a_part_of_a_container() -> None:
    f = uopc.custom_vjp(lambda d: d["a"] * d["b"][0])
    f.defvjp(lambda d: (f(d), d), lambda d, ct: ({"a": ct * 2, "b": [None]},))
    a, b = uopc.grad(lambda a, b: f({"a": a, "b": [b]}).sum(), argnums=(0, 1))(X, Y)
    np.testing.assert_array_equal(a, [2, 2, 2])
    np.testing.assert_array_equal(b, [0, 0, 0])


def test_values_that_a_function_reads_may_change() -> None:
    """Without jit each call reads them anew, as in JAX."""
    scale = np.array([1.0, 2.0, 3.0])
    g = uopc.grad(lambda x: (x * scale).sum())
    np.testing.assert_array_equal(g(X), [1, 2, 3])
    scale[:] = 5
    np.testing.assert_array_equal(g(X), [5, 5, 5])
