"""Rules of users: what they close over, rules that apply their own function, in every nesting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import dtypes

V, W = np.array([1.0, 3.0]), np.array([2.0, 5.0])
KINDS = ("jvp", "vjp")


def ruled(kind: str, f: Callable[..., Any], slope: Callable[[Any, Any], Any]) -> Any:
    """A function of one value whose derivative is said to be slope(value, tangent)."""
    if kind == "vjp":
        made = uopc.custom_vjp(f)
        made.defvjp(lambda y: (made(y), y), lambda y, ct: (slope(y, ct),))
        return made
    made = uopc.custom_jvp(f)
    made.defjvp(lambda p, t: (made(p[0]), slope(p[0], t[0])))
    return made


def closing(kind: str, factor: float = 7.0) -> Callable[[Any, Any], Any]:
    """x y, of y, with a slope that tells the rule from the function: factor x."""
    return lambda x, y: ruled(kind, lambda y: x * y, lambda y, t: factor * x * t)(y)


class Scale:
    def __init__(self, by: Any) -> None:
        self.by = by

    def __call__(self, y: Any) -> Any:
        return self.by * y

    def slope(self, y: Any, t: Any) -> Any:
        return self.by * t * 7.0


def of_an_attribute(kind: str) -> Callable[[Any, Any], Any]:
    def f(x: Any, y: Any) -> Any:
        scale = Scale(x * 0.5)
        return ruled(kind, lambda y: scale(y) * 2.0, lambda y, t: scale.slope(y, t) * 2.0)(y)

    return f


def of_the_rule_alone(kind: str) -> Callable[[Any, Any], Any]:
    """Its value does not depend on x, its rule does."""
    return lambda x, y: ruled(kind, lambda y: 2.0 * y, lambda y, t: 7.0 * x * t)(y)


def within(kind: str) -> Callable[[Any, Any], Any]:
    def f(x: Any, y: Any) -> Any:
        inner = closing("jvp", 1.0)
        outer = ruled(kind, lambda y: inner(x, y) * 2.0, lambda y, t: 7.0 * inner(x, 2.0 * t))
        return outer(y) / 2.0 + 0.5 * outer(y) * 0.0

    return f


CLOSING = {"variable": closing, "attribute": of_an_attribute, "in a rule": within}
# Programs of f(x, y), with the derivative by y; x and y are scalars, V and W batches.
NESTED: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "grad": lambda f: (uopc.grad(f, argnums=1)(2.0, 3.0), 14.0),
    "jit": lambda f: (uopc.jit(uopc.grad(f, argnums=1))(2.0, 3.0), 14.0),
    "vmap": lambda f: (uopc.vmap(f)(V, W), V * W),
    "vmap of one": lambda f: (uopc.vmap(f, in_axes=(0, None))(V, 2.0), V * 2),
    "vmap of vmap": lambda f: (
        uopc.vmap(uopc.vmap(f, in_axes=(None, 0)), in_axes=(0, None))(V, W), np.outer(V, W),
    ),
    "vmap of grad": lambda f: (uopc.vmap(uopc.grad(f, argnums=1))(V, W), 7 * V),
    "grad of vmap": lambda f: (
        uopc.grad(lambda w: uopc.vmap(f)(unp.asarray(V), w).sum())(W), 7 * V,
    ),
    "grad of vmap of vmap": lambda f: (
        uopc.grad(lambda w: uopc.vmap(uopc.vmap(f, in_axes=(None, 0)), in_axes=(0, None))(
            unp.asarray(V), w).sum())(W), [28.0, 28.0],
    ),
    "of the slope": lambda f: (
        uopc.grad(lambda x: uopc.grad(f, argnums=1)(x, 3.0))(2.0), 7.0,
    ),
    "scan": lambda f: (
        uopc.grad(lambda y, x: uopc.scan(
            lambda c, u: (c + f(x, u * y), None), 0.0, unp.asarray(V))[0])(3.0, 2.0), 56.0,
    ),
    "scan over what is closed over": lambda f: (
        uopc.grad(lambda y: uopc.scan(
            lambda c, u: (c + f(u, y), None), 0.0, unp.asarray(V))[0])(3.0), 28.0,
    ),
    "scan with checkpoints": lambda f: (
        uopc.grad(lambda y, x: uopc.scan(
            lambda c, u: (c + f(x, u * y), None), 0.0, unp.ones(4), checkpoint=2)[0])(3.0, 2.0),
        56.0,
    ),
    "grad of vmap of scan": lambda f: (
        uopc.grad(lambda w: uopc.vmap(lambda x, y: uopc.scan(
            lambda c, u: (c + f(x, u * y), None), 0.0, unp.asarray(V))[0])(
                unp.asarray(V), w).sum())(W), 28 * V,
    ),
    "grad of vmap of cond": lambda f: (
        uopc.grad(lambda w: uopc.vmap(lambda x, y: uopc.cond(
            x > 2, lambda y: f(x, y), lambda y: -y, y))(unp.asarray(V), w).sum())(W), [-1.0, 21.0],
    ),
    "checkpoint": lambda f: (
        uopc.grad(lambda y, x: uopc.checkpoint(lambda y: f(x, y) * 2)(y))(3.0, 2.0), 28.0,
    ),
    "slope of checkpoint": lambda f: (
        uopc.grad(lambda x: uopc.grad(
            lambda y, x: uopc.checkpoint(lambda y: f(x, y) * 2)(y))(3.0, x))(2.0), 14.0,
    ),
    "grad of vmap of checkpoint": lambda f: (
        uopc.grad(lambda w: uopc.vmap(lambda x, y: uopc.checkpoint(
            lambda y: f(x, y) * 2)(y))(unp.asarray(V), w).sum())(W), 14 * V,
    ),
    "fori_loop": lambda f: (
        uopc.grad(lambda y, x: uopc.fori_loop(0, 3, lambda i, c: c + f(x, y), 0.0))(3.0, 2.0), 42.0,
    ),
    "jacrev": lambda f: (uopc.jacrev(lambda y, x: f(x, y))(W, V), np.diag(7 * V)),
    "nodes": lambda f: _of_nodes(f),
}  # fmt: skip


def _of_nodes(f: Any) -> tuple[Any, Any]:
    x, y = [uopc.param(n, (), dtypes.float64) for n in "xy"]
    xs = uopc.param("xs", (2,), dtypes.float64)
    by = uopc.constant(np.array([2.0, 3.0]))  # an array is an argument like others
    assert uopc.compile(uopc.grad(f(y, by).sum(), by))(2.0).tolist() == [14.0, 14.0]
    found = uopc.grad(uopc.vmap(f(x, y), {x: xs}).sum(), y)
    return uopc.compile(found, inputs=[xs, y])(V, 3.0), 28.0


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("closed", CLOSING)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(4)
def test_values_that_a_rule_closes_over(kind: str, closed: str, name: str) -> None:
    if (kind, closed) == ("vjp", "in a rule") and "slope" in name:
        with pytest.raises(uopc.UserError, match=r"by x .*closes over"):  # the inner one
            NESTED[name](CLOSING[closed](kind))
        return
    found, wanted = NESTED[name](CLOSING[closed](kind))
    np.testing.assert_allclose(found, wanted)


def of_an_object(kind: str) -> Callable[[Any, Any], Any]:
    def f(x: Any, y: Any) -> Any:
        kept = {"by": [Scale(x)]}
        return ruled(kind, lambda y: 2.0 * y, lambda y, t: kept["by"][0].slope(y, t))(y)

    return f


def of_a_fixed_argument(kind: str) -> Callable[[Any, Any], Any]:
    if kind == "vjp":
        made = uopc.custom_vjp(lambda x, y: 2.0 * y, nondiff_argnums=(0,))
        made.defvjp(lambda x, y: (made(x, y), None), lambda x, _, ct: (7.0 * x * ct,))
    else:
        made = uopc.custom_jvp(lambda x, y: 2.0 * y, nondiff_argnums=(0,))
        made.defjvp(lambda x, p, t: (made(x, *p), 7.0 * x * t[0]))
    return made


@pytest.mark.parametrize("make", [of_the_rule_alone, of_an_object, of_a_fixed_argument])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(2)
def test_what_the_rule_alone_closes_over(kind: str, make: Callable[[str], Any]) -> None:
    f = make(kind)
    np.testing.assert_allclose(uopc.grad(f)(2.0, 3.0), 0)
    np.testing.assert_allclose(uopc.grad(uopc.grad(f, argnums=1))(2.0, 3.0), 7)
    np.testing.assert_allclose(NESTED["grad of vmap"](f)[0], 7 * V)
    np.testing.assert_allclose(NESTED["scan over what is closed over"](f)[0], 28)


def _depends(kind: str) -> Callable[[Any], Any]:
    """What it closes over is made of its argument."""

    def f(y: Any) -> Any:
        s = unp.sin(y)
        return ruled(kind, lambda y: s * y, lambda y, t: s * t)(y)

    return f


# By a value that is closed over: the rule says nothing of that.
REFUSED: dict[str, Callable[[str], Any]] = {
    "grad": lambda kind: uopc.grad(closing(kind))(2.0, 3.0),
    "made of the argument": lambda kind: uopc.grad(_depends(kind))(2.0),
    "an attribute": lambda kind: uopc.grad(of_an_attribute(kind))(2.0, 3.0),
    "vmap": lambda kind: uopc.grad(
        lambda x: uopc.vmap(closing(kind))(x, unp.asarray(W)).sum())(V),
    "scan": lambda kind: uopc.grad(lambda x: uopc.scan(
        lambda c, u: (c + closing(kind)(x, u), None), 0.0, unp.asarray(V))[0])(2.0),
    "node between": lambda kind: _between(kind),
}  # fmt: skip


def _between(kind: str) -> Any:
    x, y = [uopc.param(n, (), dtypes.float64) for n in "xy"]
    z = x * 2
    return uopc.grad(closing(kind)(z * 3, y), z)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(3)
def test_a_derivative_by_what_is_closed_over_is_refused(kind: str, name: str) -> None:
    with pytest.raises(uopc.UserError, match=r"closes over: pass the value as an argument"):
        REFUSED[name](kind)


def test_the_refusal_names_the_variable() -> None:
    with pytest.raises(uopc.UserError, match=r"its rule gives no derivative by x \(float64"):
        uopc.jvp(lambda x: closing("jvp")(x, 3.0 * x), (2.0,), (1.0,))
    stopped = uopc.grad(lambda x: closing("jvp")(uopc.stop_gradient(x), x))
    np.testing.assert_allclose(stopped(2.0), 14)


# ---------------------------------------------------------------- rules that apply their function
def _itself(f: Callable[[Any], Any]) -> Any:
    made = uopc.custom_jvp(f)
    made.defjvp(lambda p, t: (made(p[0]), made(t[0])))
    return made


LINEAR: dict[str, tuple[Callable[[Any], Any], float]] = {
    "product": (lambda x: 3.0 * x, 3.0),
    "loop": (lambda x: uopc.scan(
        lambda c, u: (c + 3 * u, None), 0.0, unp.stack([x, x * 2]))[0], 9.0),
    "segments": (lambda x: uopc.scan(
        lambda c, _: (c * 1.5, None), x, None, length=4, checkpoint=2)[0], 1.5**4),
    "choice": (lambda x: uopc.cond(unp.asarray(1.0) > 0, lambda x: 2.0 * x, lambda x: x, x), 2.0),
    "checkpoint": (lambda x: uopc.checkpoint(
        lambda x: uopc.checkpoint(lambda x: 3 * x)(x) * 1)(x), 3.0),
    "another": (lambda x: _itself(lambda x: 2.0 * x)(x) * 2.0, 4.0),
}  # fmt: skip
MODES: dict[str, Callable[[Any, float], tuple[Any, Any]]] = {
    "grad": lambda f, c: (uopc.grad(f)(1.0), c),
    "jacfwd": lambda f, c: (uopc.jacfwd(f)(1.0), c),
    "grad of grad": lambda f, c: (uopc.grad(uopc.grad(lambda x: f(x) ** 2))(1.0), 2 * c * c),
    "hessian": lambda f, c: (uopc.hessian(lambda x: f(x) ** 2)(1.0), 2 * c * c),
    "vmap of grad": lambda f, c: (uopc.vmap(uopc.grad(f))(V), [c, c]),
    "grad of vmap": lambda f, c: (uopc.grad(lambda v: uopc.vmap(f)(v).sum())(V), [c, c]),
    "jacrev of vmap": lambda f, c: (uopc.jacrev(uopc.vmap(f))(V), np.eye(2) * c),
    "vmap of vmap": lambda f, c: (
        uopc.grad(lambda a: uopc.vmap(uopc.vmap(f))(a).sum())(np.ones((2, 2))), np.full((2, 2), c),
    ),
    "in a scan": lambda f, c: (
        uopc.grad(lambda x: uopc.scan(lambda s, _: (f(s), None), x, None, length=3)[0])(1.0), c**3,
    ),
    "in a cond": lambda f, c: (
        uopc.grad(lambda x: uopc.cond(x > 0, f, lambda x: x, x))(1.0), c,
    ),
    "in a checkpoint": lambda f, c: (uopc.grad(uopc.checkpoint(f))(1.0), c),
    "sparse": lambda f, c: (
        uopc.jacobian(uopc.vmap(f), format="csc", mode="rev")(V).todense(), np.eye(2) * c,
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.few(4)
def test_a_rule_that_applies_its_own_function(name: str, mode: str) -> None:
    f, slope = LINEAR[name]
    found, wanted = MODES[mode](_itself(f), slope)
    np.testing.assert_allclose(found, wanted)


def test_a_rule_that_is_not_linear_is_refused() -> None:
    f = uopc.custom_jvp(lambda x: x)
    f.defjvp(lambda p, t: (p[0], t[0] ** 2))
    with pytest.raises(uopc.UserError, match=r"custom_jvp of <lambda>: .* that is linear"):
        uopc.grad(f)(1.0)
