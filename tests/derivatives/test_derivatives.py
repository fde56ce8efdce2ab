"""Derivatives of graphs: every rule against finite differences, forward against reverse mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc import UOp, dtypes
from uopc.derivatives import batch, walk
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.ops import GroupOp, Op, Ops
from uopc.tensor.creation import buffer

F8 = dtypes.float64
X = uopc.param("x", (3,), F8)
AT = np.array([0.3, -0.45, 0.7])
C = uopc.constant(np.array([0.2, 0.9, -0.4]))
EYE = uopc.constant(np.eye(3) + 0.1 * np.sin(np.arange(9.0)).reshape(3, 3))
A43 = uopc.constant(np.cos(np.arange(12.0)).reshape(4, 3))
PLACES = uopc.constant(np.array([2, 0, 2]))
RNG = np.random.default_rng(3)


def computed(graph: Any, at: Any = AT, x: UOp = X) -> Any:
    return uopc.compile(graph, inputs=[x])(at)


def outer(x: UOp) -> UOp:
    return x.reshape(3, 1) * x


def matrix(x: UOp) -> UOp:
    return outer(x) * 0.3 + EYE


def positive(x: UOp) -> UOp:
    return outer(x) * 0.3 + uopc.constant(2 * np.eye(3))


# By name: a function of a vector of three numbers, smooth where it is asked.
SMOOTH: dict[str, Callable[[UOp], Any]] = {
    **{name: (lambda x, name=name: getattr(x, name)()) for name in (
        "expm1", "log1p", "sinh", "cosh", "asinh", "atanh", "asin", "acos", "atan", "exp", "exp2",
        "sin", "cos", "tan", "tanh", "erf", "sigmoid", "gelu", "silu", "relu", "abs", "floor",
        "trunc", "ceil", "round", "sum", "mean", "var", "max", "min", "prod", "sort", "median",
        "detach", "contiguous", "contiguous_backward",
    )},
    **{name: (lambda x, name=name: getattr(x + 2, name)()) for name in (
        "log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "acosh",
    )},
    **{name: (lambda x, name=name: getattr(x, name)(C * x + 0.1)) for name in (
        "atan2", "hypot", "copysign", "logaddexp", "maximum", "minimum",
    )},
    "negative": lambda x: -x,
    "add": lambda x: x + x * x,
    "sub": lambda x: 1 - x * x,
    "mul": lambda x: x * x * C,
    "divide": lambda x: (x + 1) / (x * x + 2),
    "power": lambda x: (x + 2) ** (x * 2),
    "integer power": lambda x: x**5,
    "mulacc": lambda x: x.mulacc(x, C),
    "mod": lambda x: (x * 7) % (x * x + 0.3),
    "where": lambda x: (x > 0).where(x * x, x.sin()),
    "clip": lambda x: x.clip(-0.4, 0.4),
    "cast": lambda x: x.cast(dtypes.float64) * 2,
    "softmax": lambda x: x.softmax(0),
    "logsumexp": lambda x: x.logsumexp(0),
    "norm": lambda x: (x * x).sum().sqrt(),
    "product with a zero": lambda x: (x - uopc.constant(AT * [1, 0, 0])).prod(),
    "product with two zeros": lambda x: (x - uopc.constant(AT * [1, 0, 1])).prod(),
    "cumsum": lambda x: (x * x).cumsum(0),
    "cumprod": lambda x: x.cumprod(0),
    "cumprod with a zero": lambda x: (x - uopc.constant(AT * [0, 1, 0])).cumprod(0),
    "cummax": lambda x: x.cummax(0),
    "cummin": lambda x: (x * x).cummin(0),
    "rows of cumsum": lambda x: matrix(x).cumsum(1),
    "reduce of some axes": lambda x: matrix(x).max(0),
    "index": lambda x: (x * x)[PLACES],
    "index by data": lambda x: (x * x)[(x > 0).cast(dtypes.int64)],
    "rows by data": lambda x: matrix(x)[(x > 0).cast(dtypes.int64)],
    "index of two": lambda x: matrix(x)[PLACES, uopc.constant(np.array([0, 1, 1]))],
    "grid": lambda x: matrix(x)[PLACES.reshape(3, 1), uopc.constant(np.array([0, 2]))],
    "take": lambda x: x.take(uopc.constant(np.array([1, 1, 2, 0]))),
    "slice": lambda x: x[1:],
    "step": lambda x: x[::2],
    "backwards": lambda x: x[::-2],
    "number": lambda x: x[1],
    "cat": lambda x: uopc.cat(x, C, x * 2, axis=0),
    "stack": lambda x: uopc.stack(x, x.sin(), C, axis=1),
    "pad": lambda x: x.pad(((1, 2),)),
    "shrink": lambda x: matrix(x).shrink(((1, 3), (0, 2))),
    "part of a stack": lambda x: uopc.stack(C, x.sin())[1],
    "permute": lambda x: matrix(x).permute(1, 0),
    "flip": lambda x: x.flip(0),
    "expand": lambda x: x.reshape(3, 1).expand(3, 4),
    "matmul": lambda x: A43 @ x,
    "product of matrices": lambda x: matrix(x) @ matrix(x),
    "einsum": lambda x: matrix(x).reshape(3, 3).tril() @ x,
    "convolve": lambda x: x.convolve(uopc.constant(np.array([1.0, 2.0]))),
    "top_k": lambda x: x.top_k(2)[0],
    "sort backwards": lambda x: x.sort(descending=True),
    "sort of columns": lambda x: matrix(x).sort(axis=0),
    "at add": lambda x: (x * x).at[PLACES].add(x.sin()),
    "at set": lambda x: (x * x).at[PLACES].set(x.sin()),
    "at max": lambda x: (x * x).at[PLACES].max(x.sin()),
    "at min": lambda x: (x * x).at[PLACES].min(x.sin()),
    "at mul": lambda x: (x * x).at[PLACES].mul(C),
    "at mul by factors": lambda x: (x * x).at[PLACES].mul(x.sin()),
    "rows at mul by a 0": lambda x: matrix(x).at[PLACES].mul(matrix(x - uopc.constant(AT)) * 3),
    "at rows": lambda x: matrix(x).at[PLACES].add(matrix(x) * 2),
    "at slice": lambda x: (x * x).at[1:].set(x[:2] * 3),
    "cholesky": lambda x: positive(x).cholesky(),
    "upper cholesky": lambda x: positive(x).cholesky(upper=True),
    "solve": lambda x: matrix(x).solve(x.sin()),
    "solve for a matrix": lambda x: matrix(x).solve(matrix(x) * 2 + 1),
    "inv": lambda x: matrix(x).inv(),
    "det": lambda x: matrix(x).det(),
    "slogdet": lambda x: matrix(x).slogdet()[1],
    "upper triangle": lambda x: matrix(x).solve_triangular(x),
    "lower triangle": lambda x: matrix(x).solve_triangular(x, lower=True),
    "unit triangle": lambda x: matrix(x).solve_triangular(
        matrix(x).sin(), lower=True, unit_diagonal=True, trans=1
    ),
    "q": lambda x: matrix(x).qr()[0],
    "r": lambda x: matrix(x).qr()[1],
    "q of a tall one": lambda x: matrix(x)[:, :2].qr()[0],
    "q of a wide one": lambda x: matrix(x)[:2].qr()[0],
    "r of a wide one": lambda x: matrix(x)[:2].qr("complete")[1],
    "matrix_power": lambda x: matrix(x).matrix_power(3),
    "batch of equations": lambda x: uopc.stack(matrix(x), positive(x)).solve(
        uopc.stack(matrix(x), matrix(x) * 2)
    ),
    "function": lambda x: uopc.function(lambda a, b: a * b.sin())(x, x * 2),
    "precompiled function": lambda x: uopc.function(
        lambda a: (a.sin() * a, a), precompile=True
    )(x)[0],
}  # fmt: skip
EACH = pytest.mark.parametrize("name", SMOOTH)


def numeric(f: Callable[[Any], Any], at: Any, direction: Any, h: float = 1e-5) -> Any:
    """Central differences of fourth order."""
    far, near = f(at + 2 * h * direction), f(at + h * direction)
    back, behind = f(at - h * direction), f(at - 2 * h * direction)
    return (8 * (np.asarray(near) - back) - (np.asarray(far) - behind)) / (12 * h)


def vectors(shape: Any) -> Any:
    return np.asarray(RNG.standard_normal(shape))


# ---------------------------------------------------------------- rules
@pytest.mark.others(24)
@EACH
@pytest.mark.few(10)
def test_both_modes(name: str) -> None:
    """Forward mode is the difference, and reverse mode its transpose: <w, J v> = <J' w, v>."""
    y, v = SMOOTH[name](X), vectors(3)
    w = vectors(y.shape)
    graphs = [y, uopc.jvp(y, X, uopc.constant(v)), uopc.vjp(y, X, uopc.constant(w, F8))]
    program = uopc.compile(graphs, inputs=[X])
    wanted = np.zeros(3) if name == "detach" else numeric(lambda at: program(at)[0], AT, v)
    _, push, pull = program(AT)
    np.testing.assert_allclose(push, wanted, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(np.sum(pull * v), np.sum(w * push), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@EACH
def test_jacobians(name: str) -> None:
    """Batches of both modes give the same matrix."""
    y, v = SMOOTH[name](X), vectors(3)
    forward, reverse = computed([uopc.jacfwd(y, X), uopc.jacrev(y, X)])
    assert forward.shape == (*y.shape, 3)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9, atol=1e-12)
    wanted = computed(uopc.jvp(y, X, uopc.constant(v)))
    np.testing.assert_allclose(forward @ v, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@EACH
def test_second_derivatives(name: str) -> None:
    y, v = SMOOTH[name](X), vectors(3)
    w = uopc.constant(vectors(y.shape), F8)
    first = uopc.vjp(y, X, w)
    wanted = numeric(uopc.compile(first, inputs=[X]), AT, v)
    wanted = np.zeros(3) if name == "detach" else wanted
    got = computed(uopc.jvp(first, X, uopc.constant(v)))
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-8)
    back = computed(uopc.vjp(first, X, uopc.constant(v)))
    np.testing.assert_allclose(back, got, rtol=1e-8, atol=1e-10)


def test_every_op_of_tensors_has_a_rule_or_says_that_it_has_none() -> None:
    refused = {
        Ops.SINK, Ops.GROUP, Ops.NOOP, Ops.STORE, Ops.FUNCTION,  # no values
        Ops.AFTER, Ops.CALL, Ops.TUPLE, Ops.GETTUPLE, Ops.PRIMITIVE,  # by the walks
        Ops.SLICE, Ops.MSTACK, Ops.MSELECT, Ops.LINEAR, *GroupOp.Exchange,
    }  # fmt: skip
    tensor = {op for op in Op.all() if op.levels & TENSOR}
    assert tensor - walk.RULES.keys() == refused & tensor
    assert not refused & walk.RULES.keys()


def test_every_op_of_tensors_has_a_batch_or_says_that_it_has_none() -> None:
    known = {op for op in walk.RULES if op.is_alu or op is Ops.CAST} | batch.RULES.keys()
    leaves = {op for op in walk.RULES if op.operands in ((), ("*dims",))}
    assert walk.RULES.keys() - known - leaves == {Ops.BIND}


# ---------------------------------------------------------------- places that are not smooth
INF = math.inf
CORNERS: dict[str, tuple[Callable[[UOp], UOp], float, float]] = {
    "relu at 0": (lambda x: x.relu(), 0.0, 0.0),
    "a tie with a literal is the literal's": (lambda x: x.maximum(5.0), 5.0, 0.0),
    "clip at its bound": (lambda x: x.clip(0.0, 1.0), 1.0, 0.0),
    "a tie of two values is shared": (lambda x: (x * x).maximum(x), 1.0, 1.5),
    "abs at 0": (lambda x: x.abs(), 0.0, 0.0),
    "sqrt at 0": (lambda x: x.sqrt(), 0.0, INF),
    "what is not chosen is not looked at": (
        lambda x: (x > 0).where(x.log(), x * 0.0), 0.0, 0.0
    ),
    "nor its root": (lambda x: (x > 0).where(x.sqrt(), x * 2), 0.0, 2.0),
    "a power of 0": (lambda x: x ** uopc.constant(0.0, F8), 0.0, 0.0),
    "0 to the 1": (lambda x: x ** (x * 0 + 1), 0.0, 1.0),
    "hypot at the origin": (lambda x: x.hypot(x * 0.0), 0.0, 0.0),
    "floor": (lambda x: x.floor(), 0.5, 0.0),
    "a product of zeros": (lambda x: (x * x.const_like(1.0)) * x, 0.0, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", CORNERS)
def test_corners(name: str) -> None:
    f, at, wanted = CORNERS[name]
    x = uopc.param("x", (), F8)
    y = f(x)
    got = uopc.compile([uopc.grad(y, x), uopc.jvp(y, x, uopc.constant(1.0, F8))], inputs=[x])(at)
    assert [float(g) for g in got] == [wanted, wanted]


def test_ties_of_a_reduce_are_shared() -> None:
    x = uopc.param("x", (4,), F8)
    got = uopc.compile(uopc.grad(x.max(), x))(np.array([3.0, 1.0, 3.0, 2.0]))
    np.testing.assert_array_equal(got, [0.5, 0, 0.5, 0])


@pytest.mark.parametrize("t", [dtypes.float16, dtypes.bfloat16, dtypes.float32], ids=str)
def test_narrow_floats_keep_their_dtype(t: Any) -> None:
    x = uopc.param("x", (5,), t)
    g, y = uopc.grad((x.sin() * x).sum(), x), uopc.jvp(x.exp(), x, uopc.full((5,), 1, t))
    assert g.dtype is y.dtype is t
    at = np.linspace(0.1, 1, 5).astype(t.numpy)
    wide = at.astype(np.float64)
    got = uopc.compile([g, y])(at)
    bound = {16: 2e-2, 32: 1e-6}[t.bits]
    np.testing.assert_allclose(got[0].astype("f8"), np.sin(wide) + wide * np.cos(wide), rtol=bound)
    np.testing.assert_allclose(got[1].astype("f8"), np.exp(wide), rtol=bound)


def test_a_running_product_of_infinities() -> None:
    x = uopc.param("x", (3,), F8)
    push = uopc.jvp(x.cumprod(0), x, uopc.constant(np.array([1.0, 2.0, 3.0])))
    got = uopc.compile(push)(np.array([np.inf, 2.0, 1.0]))
    assert got[0] == 1.0
    assert got[1] == np.inf


def test_integers_have_no_derivatives() -> None:
    n = uopc.param("n", (3,), dtypes.int64)
    with pytest.raises(uopc.UserError, match="int64 has no derivatives"):
        uopc.grad(n.sum().cast(F8), n)
    y = (X * 3).cast(dtypes.int64).cast(F8) * X
    np.testing.assert_array_equal(
        computed(uopc.grad(y.sum(), X)), (AT * 3).astype(np.int64).astype(float)
    )


# ---------------------------------------------------------------- writes
WRITES: dict[str, tuple[Callable[[UOp], UOp], Callable[[Any], Any]]] = {
    "whole": (lambda x: x.assign(x.sin()) * x, lambda x: np.sin(x) * x),
    "part": (
        lambda x: x.after(x[1:].assign(x[:2].sin() * 2)) * 3,
        lambda x: 3 * np.r_[x[:1], 2 * np.sin(x[:2])],
    ),
    "part of the flipped": (
        lambda x: x.after(x.flip(0)[:1].assign(x[:1] ** 2)).sin(),
        lambda x: np.sin(np.r_[x[:2], x[:1] ** 2]),
    ),
    "in turn": (
        lambda x: x.assign(x.assign(x * 2) * x.sin()),
        lambda x: 2 * x * np.sin(x),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_values_after_writes(name: str) -> None:
    """A read after a store gives the stored value; `x` before it is the argument."""
    f, same = WRITES[name]
    y, v = f(X), vectors(3)
    np.testing.assert_allclose(computed(y, AT.copy()), same(AT))
    wanted = numeric(same, AT, v)
    got = computed(uopc.jvp(y, X, uopc.constant(v)), AT.copy())
    np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-9)
    w = vectors(3)
    back = computed(uopc.vjp(y, X, uopc.constant(w)), AT.copy())
    np.testing.assert_allclose(np.sum(back * v), np.sum(w * wanted), rtol=1e-7)


# ---------------------------------------------------------------- zeros
def nodes(u: UOp) -> int:
    return len(u.toposort())


def test_zero_tangents_are_not_built() -> None:
    tangent = uopc.jvp(uopc.stack(C, X.sin())[0], X, uopc.constant(np.ones(3)))
    assert tangent.op is Ops.EXPAND
    assert tangent.src[0].arg == 0
    parts = uopc.cat(X.sin(), C.exp() * 2, axis=0)
    back = uopc.vjp(parts[3:], X, uopc.constant(np.ones(3)))
    assert back.op is Ops.EXPAND


def test_no_sine_is_computed_that_is_multiplied_by_zero() -> None:
    """The derivative of sin(x) * segments(ones, zeros)."""
    x = uopc.param("x", (200,), F8)
    mask = uopc.cat(uopc.ones((100,), F8), uopc.zeros((100,), F8), axis=0)
    g = uopc.grad((x.sin()[:100] * mask[:100]).sum() + (x.sin()[100:] * mask[100:]).sum(), x)
    cosines = [u for u in g.toposort() if u.op is Ops.COS]
    assert all(u.shape == (200,) for u in cosines)
    with uopc.options(fast_zeros=True):
        reads = uopc.compile(g, inputs=[x])
    np.testing.assert_allclose(reads(np.ones(200)), np.r_[np.full(100, np.cos(1)), np.zeros(100)])


def test_a_mask_is_applied_once_an_element_before_a_product_of_matrices() -> None:
    """Not once for each term of the product."""
    a, b, c = [uopc.param(n, (i, k), F8) for n, i, k in (("a", 5, 7), ("b", 7, 11), ("c", 11, 3))]
    roots = uopc.grad(((a @ b).relu() @ c).sum(), [a, b])
    chosen = [u for g in roots for u in g.toposort() if u.op is Ops.WHERE]
    assert chosen and all(math.prod(u.shape) == 5 * 11 for u in chosen)
    rng = np.random.default_rng(0)
    x, y, z = [rng.standard_normal(u.shape) for u in (a, b, c)]
    back = np.ones((5, 3)) @ z.T * (x @ y > 0)
    for got, want in zip(uopc.compile(roots, inputs=[a, b, c])(x, y, z), (back @ y.T, x.T @ back)):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_rows_that_a_mask_hides_are_not_looked_at() -> None:
    """Neither behind a sum over rows: there the factor is as large as its product."""
    a, w = uopc.param("a", (2, 3), F8), uopc.param("w", (2, 3), F8)
    logs = (a.log() * w).sum(1)
    g = uopc.grad(uopc.where(a.sum(1) > 0, logs, 0.0).sum(), a)
    at = np.array([[0.0, 0, 0], [1, 2, 4]])
    got = uopc.compile(g, inputs=[a, w])(at, np.ones((2, 3)))
    np.testing.assert_array_equal(got, [[0, 0, 0], [1, 0.5, 0.25]])


@given(st.integers(1, 40))
@settings(deadline=None, max_examples=8)
def test_the_gradient_of_a_chain_is_linear_in_its_length(n: int) -> None:
    """At most four nodes for each node of the function, and two for each application of a rule."""
    y = X
    for _ in range(n):
        y = (y * 1.5).sin() + y * X
    loss = y.sum()
    assert nodes(uopc.grad(loss, X)) <= 4 * nodes(loss) + 10


# ---------------------------------------------------------------- arguments
def test_any_node_may_be_what_is_differentiated_by() -> None:
    y = X.sin()
    found = uopc.grad((y * y).sum(), y)
    np.testing.assert_allclose(computed(found), 2 * np.sin(AT))


def test_containers_of_nodes() -> None:
    a, b = uopc.param("a", (2,), F8), uopc.param("b", (2,), F8)
    found = uopc.grad((a * b * b).sum(), [b, a])
    assert isinstance(found, list)
    got = uopc.compile(found, inputs=[a, b])(np.array([1.0, 2.0]), np.array([3.0, 5.0]))
    np.testing.assert_array_equal(got, [[6, 20], [9, 25]])
    both = uopc.jvp((a * b, a), (a, b), (None, uopc.constant(np.ones(2))))
    got = uopc.compile(both, inputs=[a, b])(np.array([1.0, 2.0]), np.array([3.0, 5.0]))
    np.testing.assert_array_equal(got, [[1, 2], [0, 0]])


def test_linearize_gives_the_product_for_any_tangent() -> None:
    push = uopc.linearize(X.sin() * X, X)
    v = vectors(3)
    wanted = computed(uopc.jvp(X.sin() * X, X, uopc.constant(v)))
    np.testing.assert_array_equal(computed(push(uopc.constant(v))), wanted)


def test_jacobians_of_several_by_several() -> None:
    c = uopc.param("c", (), F8)
    outputs, x = (X * c, (X * X).sum()), [X, c]
    for mode in (uopc.jacfwd, uopc.jacrev, uopc.jacobian):
        first, second = mode(outputs, x)
        a, b, d, e = uopc.compile([*first, *second], inputs=[X, c])(AT, 2.0)
        np.testing.assert_allclose(a, 2 * np.eye(3))
        np.testing.assert_allclose(b, AT)
        np.testing.assert_allclose(d, 2 * AT)
        assert e == 0
    (_, across), (back, _) = uopc.hessian((X * X).sum() * c, x)
    a, b = uopc.compile([across, back], inputs=[X])(AT)
    np.testing.assert_allclose([a, b], [2 * AT, 2 * AT])


def test_products_with_hessians() -> None:
    v = vectors(3)
    loss = (X.sin() * X * X).sum()
    got = computed([uopc.hvp(loss, X, uopc.constant(v)), uopc.hessian(loss, X)])
    np.testing.assert_allclose(got[0], got[1] @ v, rtol=1e-12)


def test_batches_of_nodes() -> None:
    y = (X * X).sum() + X
    xs = uopc.param("xs", (5, 3), F8)
    at = vectors((5, 3))
    got = uopc.compile(uopc.vmap(y, {X: xs}))(at)
    np.testing.assert_allclose(got, (at**2).sum(1)[:, None] + at)


def test_symbolic_sizes() -> None:
    n = uopc.variable("n", 0, 1000)
    x = uopc.param("x", (n,), F8)
    g = uopc.compile(uopc.grad((x.sin() * x[::-1]).sum() + x.cumsum(0).max(), x))
    for size in (1, 2, 17):
        at = vectors(size)
        place = np.argmax(np.cumsum(at))
        wanted = np.cos(at) * at[::-1] + np.sin(at[::-1]) + (np.arange(size) <= place)
        np.testing.assert_allclose(g(at), wanted)
    assert g(np.zeros(0)).shape == (0,)
    h = uopc.compile(uopc.hvp((x**3).sum(), x, uopc.full((n,), 1.0, F8)))
    np.testing.assert_allclose(h(np.arange(4.0)), 6 * np.arange(4.0))


def _without(at: Any, i: int) -> Any:
    """The product of all rows but one."""
    return np.delete(at, i, 0).prod(0)


def test_products_of_a_symbolic_length() -> None:
    """By zeros, too: the gradient of a sum of products against those of all other elements."""
    n = uopc.variable("n", 0, 1000)
    x = uopc.param("x", (n, 2), F8)
    f = uopc.compile([uopc.grad(y.sum(), x) for y in (x.prod(0), x.cumprod(0))])
    for size in (5, 1, 2, 0):
        at = vectors((size, 2))
        at[2:3, 0] = 0
        whole, totals = f(at)
        wanted = [_without(at, i) for i in range(size)]
        np.testing.assert_allclose(whole, np.reshape(wanted, (size, 2)))
        wanted = [sum([_without(at[:k], i) for k in range(i + 1, size + 1)]) for i in range(size)]
        np.testing.assert_allclose(totals, np.reshape(wanted, (size, 2)), rtol=1e-10, atol=1e-14)


# ---------------------------------------------------------------- determinants
def _determinant(rows: list[list[Fraction]]) -> Fraction:
    """By minors of the first row, exactly."""
    if not rows:
        return Fraction(1)
    return sum([
        (-1) ** j * v * _determinant([[*r[:j], *r[j + 1 :]] for r in rows[1:]])
        for j, v in enumerate(rows[0]) if v
    ], Fraction(0))  # fmt: skip


def _minors(a: Any, order: int) -> Any:
    """All derivatives of an order of the determinant, each a minor and a sign: the determinant
    where the rows of the elements are rows of 0 and, at the element, 1."""
    n, found = len(a), np.zeros(a.shape * order)
    for places in np.ndindex(*found.shape):
        rows, columns = places[::2], places[1::2]
        if len({*rows}) == len({*columns}) == order:
            exact = [[Fraction(float(v)) for v in r] for r in a]
            for i, j in zip(rows, columns):
                exact[i] = [Fraction(k == j) for k in range(n)]
            found[places] = _determinant(exact)
    return found


def _of_rank(n: int, rank: int, dtype: Any = "f8") -> Any:
    """Integers of which products are exact, so that the rank is."""
    left, right = RNG.integers(-3, 4, (2, n, n))
    return (left[:, :rank] @ right[:rank]).astype(dtype)


@pytest.mark.parametrize("t", [pytest.param(dtypes.float32, marks=pytest.mark.slow), F8])
@pytest.mark.parametrize("n", [1, 2, 3, 5, pytest.param(6, marks=pytest.mark.slow)])
def test_determinants_of_matrices_without_an_inverse(n: int, t: Any) -> None:
    """First and second derivatives, third ones of a few numbers, in the order of all modes."""
    a, v = uopc.param("a", (n, n), t), uopc.param("v", (n, n), t)
    det, direction = a.det(), RNG.standard_normal((n, n)).astype(t.numpy)
    first = uopc.grad(det, a)
    hessian = uopc.hessian(det, a)
    made = [first, hessian, *[uopc.jacobian(first, a, mode=m) for m in ("fwd", "rev")]]
    made += [uopc.hvp(det, a, v), uopc.jvp(uopc.jvp(det, a, v), a, v)]
    if n <= 3:
        made += [uopc.jacobian(hessian, a, mode=m) for m in ("fwd", "rev")]
    f = uopc.compile(made, inputs=[a, v])
    for rank in range(n + 1):
        at = _of_rank(n, rank, t.numpy)
        once, twice = _minors(at, 1), _minors(at, 2)
        along = np.tensordot(twice, direction, 2)
        wanted = [once, twice, twice, twice, along, (along * direction).sum()]
        if n <= 3:
            wanted += [_minors(at, 3)] * 2
        size = 10 * n * np.finfo(t.numpy).eps * max(1, np.linalg.norm(at, 2)) ** (n - 1)
        for got, exact in zip(f(at, direction), wanted):
            np.testing.assert_allclose(got, exact, rtol=0, atol=size * n)


def test_determinants_of_batches() -> None:
    """Second derivatives of a batch, and of a vmap, whose matrices have all ranks."""
    at = np.stack([_of_rank(4, rank) for rank in range(5)])
    wanted = np.stack([_minors(m, 2) for m in at])
    a, one = uopc.param("a", (5, 4, 4), F8), uopc.param("one", (4, 4), F8)
    mapped = uopc.vmap(uopc.hessian(one.det(), one), {one: a})
    np.testing.assert_allclose(computed(mapped, at, a), wanted, rtol=1e-11, atol=1e-11)
    whole = computed(uopc.hessian(a.det().sum(), a), at, a)
    for i, k in np.ndindex(5, 5):
        block = wanted[i] if i == k else np.zeros_like(wanted[i])
        np.testing.assert_allclose(whole[i, :, :, k], block, rtol=1e-11, atol=1e-11)


def test_fourth_derivatives_of_determinants() -> None:
    """Of 4 x 4 they are the same everywhere; of 3 x 3 they are 0."""
    a, along = uopc.param("a", (4, 4), F8), RNG.standard_normal((4, 4, 4))
    made = a.det()
    for v in along:
        made = uopc.jvp(made, a, uopc.constant(v))
    wanted = sum([np.linalg.det(along[list(s), range(4)]) for s in permutations(range(4))])
    for at in (np.zeros((4, 4)), np.ones((4, 4)), _of_rank(4, 4)):
        np.testing.assert_allclose(computed(made, at, a), wanted, rtol=1e-10)
    small = a[:3, :3].det()
    for v in along:
        small = uopc.jvp(small, a, uopc.constant(v))
    assert computed(small, np.ones((4, 4)), a) == 0


@pytest.mark.parametrize("scale", [1e-310, 1e-80, 1e80])
def test_determinants_of_large_and_small_numbers(scale: float) -> None:
    a = uopc.param("a", (3, 3), F8)
    for rank in range(4):
        at = _of_rank(3, rank) * scale
        wanted = _minors(at, 2)
        got = computed(uopc.hessian(a.det(), a), at, a)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-14 * abs(at).max())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_determinants_of_matrices_with_a_nan(value: float) -> None:
    """No derivative hides it, also where a minor with it is an infinity."""
    a, at = uopc.param("a", (3, 3), F8), _of_rank(3, 3)
    at[1, 2] = value
    for made in (uopc.grad(a.det(), a), uopc.hvp(a.det(), a, uopc.constant(np.ones((3, 3))))):
        assert not np.isfinite(computed(made, at, a)).any()


def test_determinants_without_elements() -> None:
    for shape in ((0, 0), (2, 0, 0), (0, 3, 3)):
        a = uopc.param("a", shape, F8)
        made = [uopc.grad(a.det().sum(), a), uopc.hvp(a.det().sum(), a, a)]
        assert [g.shape for g in uopc.compile(made)()] == [shape, shape]


def test_determinants_of_a_symbolic_size() -> None:
    n = uopc.variable("n", 0, 50)
    a = uopc.param("a", (n, n), F8)
    f = uopc.compile(uopc.grad(a.det(), a))
    for size in (5, 1, 2, 0):
        at = _of_rank(size, max(size - 1, 0))
        np.testing.assert_allclose(f(at), _minors(at, 1), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: uopc.grad(X * X, X), r"needs one float, got float64\(3\)"),
        (lambda: uopc.jvp(X, X, uopc.constant(np.ones(4))), r"tangent float64\(4\) does not fit"),
        (lambda: uopc.vjp(X, X, uopc.constant(np.ones(3, "f4"))), "cotangent float32"),
        (lambda: uopc.vjp((X, X), X, (None,)), "expected 2 cotangents, one per node, got 1"),
        (lambda: uopc.jvp(X, (X, X), (None, None)), "given twice"),
        (lambda: uopc.grad("x", X), "expected a UOp or a function"),
        (lambda: uopc.jacobian(X, X, mode="both"), "mode must be"),
        (lambda: uopc.vmap(X, {X: uopc.constant(np.ones((4, 2)))}), "is not a batch of"),
        (
            lambda: uopc.grad(uopc.stack(X, X)[:, :1].qr("complete")[0].sum(), X),
            "complete qr of tall matrices",
        ),
    ],
)
def test_bad_arguments(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(uopc.Error, match=message):
        make()


def test_a_kernel_by_hand_has_no_derivative() -> None:
    out, a = uopc.kernel_param(0, (3,), F8), uopc.kernel_param(1, (3,), F8)
    kernel = out.store(a * 2).sink(name="twice")
    storage = buffer((3,), F8)
    called = storage.after(UOp(Ops.CALL, dtypes.void, (kernel, storage, X)))
    with pytest.raises(uopc.Unsupported, match=r"written by hand: give one by custom_jvp"):
        uopc.grad(called.sum(), X)
    found = computed(uopc.grad((called.detach() * X).sum(), X))
    np.testing.assert_array_equal(found, AT * 2)


@pytest.mark.parametrize("row", [1, -1])
def test_tables_of_a_value_that_two_reduces_read(row: int) -> None:
    """A table of a condition once depended on the loops of reduces that read the value, outside."""
    x = uopc.param("x", (2, 3), F8)
    at = vectors((2, 3))
    y = x.cumprod(1)[uopc.constant(np.array([row]))].silu() * 0.9
    w, v = uopc.constant(vectors((1, 3))), uopc.constant(vectors((2, 3)))
    twice = uopc.vjp(uopc.vjp(y, x, w), x, v)
    got = uopc.compile(twice, inputs=[x])(at)
    plain = uopc.compile(uopc.jvp(uopc.vjp(y, x, w), x, v), inputs=[x], optimize=False)(at)
    np.testing.assert_allclose(got, plain, rtol=1e-10, atol=1e-12)
