"""`uopc.function`: calls of traced bodies, against the same Python function called plainly."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import uopc
from uopc import UOp, dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.interpret.interpreter import evaluate_with_effects

RANDOM = np.random.default_rng(0)


def arrays(**shapes: tuple[int, ...]) -> tuple[list[UOp], dict[str, Any]]:
    params = [uopc.param(name, shape) for name, shape in shapes.items()]
    return params, {n: RANDOM.standard_normal(s).astype("f4") for n, s in shapes.items()}


@pytest.mark.parametrize("precompile", [True, False])
def test_a_layer_is_one_function_however_often_it_is_called(precompile: bool) -> None:
    @uopc.function(precompile=precompile)
    def layer(x: UOp, w: UOp) -> UOp:
        return (x @ w).relu()

    (x, *weights), values = arrays(x=(4, 4), a=(4, 4), b=(4, 4), c=(4, 4))
    y = x
    for w in weights:
        y = layer(y, w)
    program = uopc.compile(y, verify=True)
    assert program.stats["functions"] == precompile
    want = values["x"]
    for name in "abc":
        want = np.maximum(want @ values[name], 0)
    np.testing.assert_allclose(program(**values), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precompile", [True, False])
def test_a_loop_in_a_function(precompile: bool) -> None:
    """With its derivatives, and as a batch: the params of the loop's body are not the function's.
    """
    layer = uopc.function(
        lambda c, xs: uopc.scan(lambda c, v: ((c * 0.5 + v).sin(), c), c, xs)[0],
        precompile=precompile,
    )
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=3), rng.normal(size=(4, 3))

    def wanted(c: Any, xs: Any) -> Any:
        for v in xs:
            c = np.sin(c * 0.5 + v)
        return c

    n = uopc.variable("n", 0, 9)
    for steps in (4, n):
        c, xs = uopc.param("c", (3,), dtypes.float64), uopc.param("xs", (steps, 3), dtypes.float64)
        twice = layer(layer(c, xs), xs)
        np.testing.assert_allclose(uopc.compile(twice)(a, b), wanted(wanted(a, b), b))
        slope = uopc.compile(uopc.grad(twice.sum(), xs))(a, b)
        up, down = (wanted(wanted(a, b + h), b + h).sum() for h in (1e-6, -1e-6))
        np.testing.assert_allclose(slope.sum(), (up - down) / 2e-6, rtol=1e-7)
    c, xs = uopc.param("c", (2, 3), dtypes.float64), uopc.param("xs", (2, 4, 3), dtypes.float64)
    batch = uopc.vmap(layer)(c, xs)
    got = uopc.compile(batch)(np.stack([a, -a]), np.stack([b, b]))
    np.testing.assert_allclose(got, [wanted(a, b), wanted(-a, b)])


@pytest.mark.parametrize("precompile", [True, False])
def test_a_body_takes_values_of_the_function_around_it(precompile: bool) -> None:
    @uopc.function(precompile=precompile)
    def outer(a: UOp, b: UOp) -> tuple[UOp, UOp]:
        doubled = b * 2.0

        @uopc.function(precompile=precompile)
        def inner(c: UOp) -> dict[str, Any]:
            return {"sum": c + doubled, "more": [c.sum(), b]}

        first, second = inner(a), inner(b)
        return first["sum"] - second["sum"], first["more"][0] + second["more"][1].max()

    (x, y), values = arrays(x=(3, 5), y=(3, 5))
    got = uopc.compile(outer(x, y), verify=True)(**values)
    np.testing.assert_allclose(got[0], values["x"] - values["y"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[1], values["x"].sum() + values["y"].max(), rtol=1e-4)


def test_a_value_after_a_store_is_an_argument_and_stored_once() -> None:
    (x, y), values = arrays(x=(4,), y=(4,))
    stored = x.assign(x + 1.0)
    scaled = uopc.function(lambda a: a * stored, precompile=True)
    program = uopc.compile(scaled(y) + scaled(y + 1.0))
    before = values["x"].copy()
    got = program(**values)
    np.testing.assert_allclose(values["x"], before + 1, rtol=1e-6)
    np.testing.assert_allclose(got, (2 * values["y"] + 1) * (before + 1), rtol=1e-5)


@pytest.mark.parametrize("precompile", [True, False])
@pytest.mark.parametrize("part", [True, False])
def test_a_state_that_calls_update_in_turn_is_one_array(precompile: bool, part: bool) -> None:
    @uopc.function(precompile=precompile)
    def step(state: UOp, more: UOp) -> UOp:
        return state.assign(state * 0.5 + more)

    (x, y), values = arrays(x=(4, 3), y=(2, 3))
    state = x[1:3] if part else x.reshape(2, 6)[:, :3]
    second = step(step(state, y), y * 2.0)
    want = values["x"].copy()
    view = want[1:3] if part else want.reshape(2, 6)[:, :3]
    view[:] = (view * 0.5 + values["y"]) * 0.5 + 2 * values["y"]
    seen = values["x"].copy()
    (got,), _ = evaluate_with_effects([second], {"x": seen, "y": values["y"]})
    np.testing.assert_allclose(got, view, rtol=1e-6)
    np.testing.assert_allclose(seen, want, rtol=1e-6)
    result = uopc.compile(second, verify=True)(**values)
    np.testing.assert_allclose(result, view, rtol=1e-6)
    np.testing.assert_allclose(values["x"], want, rtol=1e-6)


def test_arguments_in_containers_and_those_of_the_body() -> None:
    Pair = namedtuple("Pair", "left right")

    @uopc.function(name="mix")
    def mix(pair: Any, more: dict[str, UOp], times: int, *, negate: bool = False) -> Any:
        total = (pair.left + pair.right * times + more["z"][0]).reshape(-1)
        return Pair(-total if negate else total, pair.right)

    (x, y), values = arrays(x=(2, 2), y=(2, 2))
    constant = np.arange(4, dtype="f4").reshape(2, 2)
    made = mix(Pair(x, y), {"z": [constant]}, 3, negate=True)
    assert type(made) is Pair
    got = uopc.compile(tuple(made))(**values)
    np.testing.assert_allclose(
        got[0], -(values["x"] + 3 * values["y"] + constant).ravel(), rtol=1e-5
    )
    np.testing.assert_array_equal(got[1], values["y"])


def test_symbolic_sizes() -> None:
    n = uopc.variable("n", 0, 9)
    x = uopc.param("x", (n, 3))
    centred = uopc.function(lambda a: a - a.sum(axis=0), precompile=True)
    program = uopc.compile(centred(x), verify=True)
    for size in (0, 1, 5, 9):
        value = RANDOM.standard_normal((size, 3)).astype("f4")
        np.testing.assert_allclose(program(value), value - value.sum(axis=0), rtol=1e-4, atol=1e-5)


def test_equal_bodies_are_one_node_and_survive_text() -> None:
    square = uopc.function(lambda a: a * a, name="square")
    (x, y), values = arrays(x=(4,), y=(4,))
    made = square(x) + square(y)
    functions = [u for u in made.toposort() if u.op is Ops.FUNCTION]
    assert len(functions) == 1 and functions[0].arg.name == "square"
    assert uopc.parse(str(made)) is made
    np.testing.assert_allclose(
        uopc.compile(made)(**values), values["x"] ** 2 + values["y"] ** 2, rtol=1e-5
    )


def test_call_and_tuples_of_the_graph() -> None:
    (x, y), values = arrays(x=(4,), y=(4,))
    made = uopc.function(lambda a, b: (a + b, a - b))(x, y)
    body = next(u for u in made[0].toposort() if u.op is Ops.FUNCTION)
    total, difference = body.call(y, x)
    pair = UOp.maketuple(total, difference)
    got = uopc.compile((pair.gettuple(1), pair.gettuple(0)))(**values)
    np.testing.assert_allclose(got[0], values["y"] - values["x"], rtol=1e-5)
    np.testing.assert_allclose(got[1], values["y"] + values["x"], rtol=1e-5)


def test_what_changes_nothing() -> None:
    (x,), values = arrays(x=(4,))
    same = x.contiguous_backward().detach().copy("cpu") * 1.0
    assert {u.op for u in same.toposort()} >= {Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.COPY}
    np.testing.assert_array_equal(uopc.compile(same + 0.0)(**values), values["x"])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: uopc.function(lambda a: 3)(x), "must return UOps, or containers of them, got 3"),
        (lambda x: uopc.function(lambda a: ())(x), "must return a UOp or UOps, got nothing"),
        (lambda x: uopc.function(3), "expected a Python function, got 3"),
        (lambda x: uopc.function(lambda a: a, name=3), "name must be a string, got 3"),
        (lambda x: uopc.function(lambda a: a, precompile=3), "precompile must be True or False"),
        (lambda x: x.call(x), "call: expected a FUNCTION or a kernel, got Ops.PARAM"),
        (lambda x: _body(x).call(), "argument 0 is missing: 0 are given"),
        (lambda x: _body(x).call(x[:2]), r"argument 0 must be float32\(4\), got float32\(2\)"),
        (lambda x: _body(x).call(x.cast(dtypes.int8)), "argument 0 must be float32"),
        (lambda x: UOp.maketuple(x).gettuple(1), "gettuple: expected a number below 1"),
        (lambda x: x.copy(3), "copy: the device must be a string, got 3"),
    ],
)  # fmt: skip
def test_errors(build: Any, message: str) -> None:
    with pytest.raises(uopc.UserError, match=message):
        build(uopc.param("x", (4,)))


def _body(x: UOp) -> UOp:
    return next(u for u in uopc.function(lambda a: a + 1)(x).toposort() if u.op is Ops.FUNCTION)
