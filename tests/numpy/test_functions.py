"""Functions of `uopc.numpy` that move or combine elements, against NumPy; symbolic sizes too."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc.ir.interpret import interpreter

A = np.random.default_rng(0).normal(size=(3, 4, 5))
V = np.random.default_rng(1).normal(size=7)
EMPTY = np.zeros((0, 3))
ONE = np.full((1, 1), 2.0)
SIGNED = np.array([5, -5, 0, 7, -7, 127, -128, 3], "i1")
DIVISORS = np.array([2, 2, 0, -2, -2, -1, -1, 0], "i1")


def check(got, want):
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-12)


def same(f, *arrays):
    """The function of NumPy and of ours gives the same."""
    with np.errstate(all="ignore"):
        want = f(np, *arrays)
    got = f(unp, *[unp.asarray(a) for a in arrays])
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            check(g, w)
    else:
        check(got, want)


@pytest.mark.parametrize("shift", (0, 1, -1, 2, 7, -13, (1, 2), (3,)))
@pytest.mark.parametrize("axis", (None, 0, -1, (0, 1), (0, 0)))
def test_roll(shift, axis):
    if isinstance(shift, tuple) and axis is None:
        axis = 1
    same(lambda m, a: m.roll(a, shift, axis=axis), A)
    if axis in (0, -1):
        same(lambda m, a: m.roll(a, shift, axis=axis), EMPTY)


@pytest.mark.parametrize(
    ("shift", "axis"), [(0, 0), (7, None), (1, 0), (-13, 0), (-1, 1), (2, (0, 1))]
)
def test_roll_along_a_symbolic_size(shift, axis):
    """The result has the shape of its operand, so the two can be added."""
    n, m = uopc.variable("n", 0, 20), uopc.variable("m", 1, 20)
    x = uopc.param("x", (n, m), "f8")
    turned = unp.roll(x, shift, axis=axis)
    assert turned.shape == x.shape
    outputs = [turned + x, uopc.grad((turned * x).sum(), x)]
    f = uopc.compile(outputs)
    for sizes in ((0, 1), (1, 1), (2, 3), (7, 13), (20, 20)):
        a = np.random.default_rng(0).normal(size=sizes)
        there, back = np.roll(a, shift, axis), np.roll(a, np.negative(shift), axis)
        for u, got, want in zip(outputs, f(a), (there + a, there + back), strict=True):
            check(got, want)
            check(interpreter.evaluate(u, {"x": a}), want)


@pytest.mark.parametrize("times", (2, (2,), (2, 3), (1, 2, 3, 2), (0,), ()))
def test_tile(times):
    same(lambda m, a: m.tile(a, times), A)
    same(lambda m, a: m.tile(a, times), EMPTY)


@pytest.mark.parametrize("times", (0, 1, 3, [2]))
@pytest.mark.parametrize("axis", (None, 0, -1))
def test_repeat(times, axis):
    same(lambda m, a: m.repeat(a, times, axis=axis), A)


def test_repeat_by_a_number_for_each():
    same(lambda m, a: m.repeat(a, [1, 0, 3], axis=0), A)
    same(lambda m, a: m.repeat(a, np.arange(5), axis=-1), A)
    same(lambda m, a: m.repeat(a, m.arange(5), axis=-1), A)


@pytest.mark.parametrize("n", (0, 1, 2, 3, 6))
def test_diff(n):
    same(lambda m, a: m.diff(a, n=n), A)
    same(lambda m, a: m.diff(a, n=n, axis=0), EMPTY)
    same(lambda m, a: m.diff(a, n=n, prepend=a[:1], append=a[-1:]), V)
    same(lambda m, a: m.diff(a, n=n), A > 0)
    check(unp.diff(unp.asarray(V), n=n, prepend=0.0), np.diff(V, n=n, prepend=0.0))


@pytest.mark.few(8)
@pytest.mark.parametrize("mode", ("constant", "edge", "reflect", "wrap"))
@pytest.mark.parametrize("width", (0, 1, 9, (2, 1), ((1, 2),), ((1, 2), (0, 0), (9, 13))))
def test_pad(mode, width):
    same(lambda m, a: m.pad(a, width, mode=mode), A)
    if not isinstance(width, tuple) or len(width) < 3:
        same(lambda m, a: m.pad(a, width, mode=mode), ONE)


@pytest.mark.parametrize("offset", (-5, -2, 0, 1, 3, 9))
def test_diagonals(offset):
    def of(m, name, a):
        if m is np:
            return getattr(np.linalg, name)(a, offset=offset)
        return getattr(unp.linalg, name)(a, offset=offset)

    for name in ("diagonal", "trace"):
        same(lambda m, a, name=name: of(m, name, a), A)


@pytest.mark.parametrize("axes", (0, 1, 2, 3, ((0,), (0,)), ((0, 2), (0, 2)), (1, 1)))
def test_tensordot(axes):
    b = A.transpose(2, 1, 0).copy() if axes in (1, 2) else A
    if axes == 2:
        b = A.transpose(1, 2, 0).copy()
    same(lambda m, a, b: m.tensordot(a, b, axes=axes), A, b)


@pytest.mark.parametrize("t", ("i1", "i8", "u4", "f4", "f8"))
@pytest.mark.parametrize("name", ("floor_divide", "remainder"))
def test_divisions(name, t):
    same(lambda m, a, b: getattr(m, name)(a, b), SIGNED.astype(t), DIVISORS.astype(t))


def test_floor_divide_of_infinities_is_that_of_the_standard():
    inf = np.inf
    a, b = np.array([inf, -inf, inf, 5, -5, inf, 0.0]), np.array([2, 2, -2, -inf, inf, inf, -inf])
    got = np.asarray(unp.floor_divide(unp.asarray(a), unp.asarray(b)))
    np.testing.assert_array_equal(got, [inf, -inf, -inf, 0, 0, np.nan, 0])
    np.testing.assert_array_equal(np.signbit(got[3:5]), [True, True])
    np.testing.assert_array_equal(unp.asarray(a) // unp.asarray(b), got)


@pytest.mark.parametrize("name", ("sum", "prod", "cumulative_sum", "cumulative_prod"))
@pytest.mark.parametrize("t", ("u1", "i2", "f4", "i8"))
def test_totals_have_the_dtype_that_is_asked_for(name, t):
    a = np.arange(1, 9, dtype="i8")
    got = getattr(unp, name)(unp.asarray(a), dtype=np.dtype(t))
    check(got, getattr(np, name)(a, dtype=t))


def test_meshgrid_and_broadcast_arrays():
    same(lambda m, a, b: list(m.meshgrid(a, b)), V, A[0, 0])
    same(lambda m, a, b: list(m.meshgrid(a, b, a, indexing="ij")), V, A[0, 0])
    same(lambda m, a, b: list(m.broadcast_arrays(a, b)), A, A[0])


@pytest.mark.parametrize(
    "f, problem",
    [
        (lambda x: unp.roll(x, (1, 2, 3), axis=(0, 1)), "roll: 3 shifts for 2 axes"),
        (lambda x: unp.roll(x, 1.5, axis=0), "roll: expected an int"),
        (lambda x: unp.roll(x, 1, axis=5), "roll"),
        (lambda x: unp.tile(x, (-1,)), r"tile: repetitions must be integers of 0"),
        (lambda x: unp.repeat(x, -1), "repeat: repeats must be integers of 0 or more, got -1"),
        (lambda x: unp.repeat(x, [1, 2]), "repeat: 2 numbers for"),
        (lambda x: unp.repeat(x, uopc.param("n", (3,), "int64")), "repeats must be known"),
        (lambda x: unp.diff(x, n=-1), "diff: n must be 0 or more, got -1"),
        (lambda x: unp.linspace(0, 1, -1), "linspace: num must be 0 or more, got -1"),
        (lambda x: unp.pad(x, -1, mode="edge"), "pad: expected"),
        (lambda x: unp.pad(x, 1, constant_values=(1, 2, 3)), "pad: expected a constant, or two"),
    ],
)
def test_errors_name_the_function(f, problem):
    with pytest.raises(uopc.UserError, match=problem):
        f(unp.asarray(A))


SYMBOLIC = {
    "roll": lambda m, a: m.roll(a, 3, axis=0), "roll flat": lambda m, a: m.roll(a, -7),
    "tile": lambda m, a: m.tile(a, (2, 3)), "repeat": lambda m, a: m.repeat(a, 3, axis=0),
    "diff": lambda m, a: m.diff(a, axis=0), "diff 3": lambda m, a: m.diff(a, axis=0, n=3),
    "flip": lambda m, a: m.flip(a), "unstack": lambda m, a: m.unstack(a, axis=1)[2],
    "tensordot": lambda m, a: m.tensordot(a, a, axes=((0,), (0,))),
    "outer": lambda m, a: m.outer(a[:, 0], a[:, 1]), "trace": lambda m, a: m.linalg.trace(a),
    "diagonal": lambda m, a: m.linalg.diagonal(a, offset=-1),
    "cross": lambda m, a: m.linalg.cross(a, a[:, ::-1]),
    "pad": lambda m, a: m.pad(a, ((9, 1), (0, 2)), mode="wrap"),
    "pad edge": lambda m, a: m.pad(a, ((2, 1), (0, 2)), mode="edge"),
    "pad reflect": lambda m, a: m.pad(a, ((2, 9), (0, 0)), mode="reflect"),
    "meshgrid": lambda m, a: m.meshgrid(a[:, 0], a[:, 1])[1],
    "cumulative_prod": lambda m, a: m.cumulative_prod(a, axis=0, include_initial=True),
    "einsum": lambda m, a: m.einsum("ij,kj->ik", a, a),
}  # fmt: skip


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name):
    x = uopc.param("x", (uopc.variable("n", 1, 40), 3), uopc.dtypes.float64)
    program = uopc.compile(SYMBOLIC[name](unp, x))
    for n in (1, 2, 5, 40):
        a = np.random.default_rng(n).normal(size=(n, 3))
        np.testing.assert_allclose(program(a), SYMBOLIC[name](np, a), rtol=1e-12, atol=1e-12)


def test_unstack_of_a_symbolic_axis_is_refused():
    x = uopc.param("x", (uopc.variable("n", 1, 40), 3))
    with pytest.raises(uopc.UserError, match=r"unstack: axis 0 of \(n, 3\) must have a known size"):
        unp.unstack(x)


# ---------------------------------------------------------------- under jit, with NumPy's options
def same_traced(f, *arrays):
    """The traced function gives what NumPy gives."""
    got, want = uopc.jit(f)(*arrays), f(*arrays)
    check(got, want)


@pytest.mark.parametrize("name", ("diagonal", "trace"))
@pytest.mark.parametrize("options", ({}, {"offset": 1}, {"axis1": 2, "axis2": 0}, {"axis1": -1}))
def test_diagonals_are_of_the_first_two_axes(name, options):
    if options.get("axis1") == -1:
        options = {"axis1": -1, "axis2": -2, "offset": -1}
    same_traced(lambda a: getattr(np, name)(a, **options), A)
    same_traced(lambda a: getattr(a, name)(**options), A)
    same_traced(lambda a: getattr(np.linalg, name)(a), A)


def test_norms_of_integers_are_floats():
    for t in ("i1", "i4", "u1"):
        x = np.array([[1, 2], [3, 100]], t)
        for order in (1, 2, 3, 0, np.inf, -np.inf):
            got = uopc.jit(lambda a: np.linalg.vector_norm(a, ord=order, axis=1))(x)  # noqa: B023
            check(got, np.linalg.vector_norm(x.astype("f8"), ord=order, axis=1))
    same_traced(lambda a: np.linalg.vector_norm(a, ord=np.inf, axis=1), np.zeros((2, 0)))


@pytest.mark.parametrize("kind", (None, "stable", "quicksort"))
@pytest.mark.parametrize("axis", (None, 0, -1))
def test_sorts_take_numpys_options(kind, axis):
    same_traced(lambda a: np.sort(a, axis=axis, kind=kind), A)
    same_traced(lambda a: np.argsort(a, axis=axis, kind=kind), A)


def test_differences_from_a_number_are_those_of_numpy():
    x = np.array([5, 3, 9], "u1")
    same_traced(lambda a: np.diff(a, prepend=7), x)
    same_traced(lambda a: np.diff(a, append=7.5), x)


def test_options_that_are_not_there_are_user_errors():
    for f in (
        lambda a: np.max(a, initial=a), lambda a: np.take(a, [0], mode="clip"),
        lambda a: np.var(a, mean=1.0), lambda a: np.clip(a, 0, 1, dtype="f4"),
        lambda a: np.clip(a, 0, 1, min=0), lambda a: np.nanmean(a, out=V),
        lambda a: np.sort(a, kind="nonsense"),
    ):  # fmt: skip
        with pytest.raises(uopc.UserError, match=r"numpy\.\w+"):
            uopc.jit(f)(V)


@pytest.mark.parametrize("f", (
    lambda m, a: m.roll(a, 1, axis=0), lambda m, a: m.swapaxes(a, 0, 0),
    lambda m, a: m.unstack(a), lambda m, a: m.size(a, 0),
))  # fmt: skip
def test_an_axis_of_a_scalar_is_an_error(f):
    with pytest.raises((IndexError, ValueError)):
        f(np, np.float64(1))
    with pytest.raises(uopc.UserError, match="axis 0 "):
        uopc.jit(lambda a: f(np, a))(1.0)


def test_an_element_is_repeated_along_its_axis():
    same_traced(lambda a: np.repeat(a, 3, axis=0), np.array(2.0))


def test_floats_decide_the_common_dtype_first():
    same_traced(
        lambda *a: np.stack(a), np.zeros(2, "i1"), np.zeros(2, "u2"), np.zeros(2, "f4")
    )


@pytest.mark.parametrize("f", (
    lambda a, b: np.amax(a, axis=1), lambda a, b: np.amin(a), lambda a, b: np.ptp(a, axis=(0, 2)),
    lambda a, b: np.ptp(b, keepdims=True), lambda a, b: np.ravel(a), lambda a, b: np.copy(b),
    lambda a, b: np.vstack([b, b]), lambda a, b: np.vstack((a, a[:1])),
    lambda a, b: np.hstack([b, b]), lambda a, b: np.hstack([a, a[:, :1]]),
    lambda a, b: np.hstack([b[0], 2.0, b]),
    lambda a, b: np.vstack([b[0], b[1]]),
))  # fmt: skip
def test_functions_of_numpy_alone(f):
    same_traced(f, A, V)


def test_a_copy_of_a_traced_array_is_the_array():
    for f in (lambda x: copy.copy(x) + 1, lambda x: copy.deepcopy({"a": [x]})["a"][0] + 1):
        same_traced(f, V)


def test_an_array_of_a_graph_is_taken_by_loops_and_rules():
    """A known Array beside a UOp makes an Array that only a call of the graph knows."""
    x = uopc.param("x", (3,), uopc.dtypes.float64)
    two = unp.asarray(2)
    value = unp.where(two > 1, x, x * 0.5)
    assert value.is_unknown and not two.is_unknown

    @uopc.custom_jvp
    def ruled(s, t):
        return unp.sin(s) * t

    ruled.defjvp(lambda p, t: (ruled(*p), unp.cos(p[0]) * p[1] * t[0] + unp.sin(p[0]) * t[1]))
    given = np.array([0.5, -1.0, 2.0])
    for f, want in (
        (lambda v: uopc.fori_loop(0, 2, lambda i, s: ruled(s, x), v), np.sin(
            np.sin(given) * given) * given),
        (lambda v: uopc.scan(lambda c, e: (c + e, c), unp.asarray(0.0), v)[0], given.sum()),
        (lambda v: uopc.cond(unp.sum(v) > 0, lambda s: s * 2, lambda s: s, v), given * 2),
        (lambda v: uopc.checkpoint(lambda s: s * s)(v), given**2),
        (uopc.jit(lambda v: v + 1), given + 1),
    ):  # fmt: skip
        made = f(value)
        graph = made if isinstance(made, uopc.UOp) else made.uop
        np.testing.assert_allclose(uopc.compile(graph, inputs=[x])(given), want)
        slope = uopc.compile(uopc.grad(graph.sum(), x), inputs=[x])(given)
        assert np.isfinite(slope).all() and slope.any()
    with pytest.raises(uopc.UserError, match="the repeats must be known here"):
        unp.repeat(unp.asarray([1, 2, 3]), value)
