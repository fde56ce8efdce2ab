"""Sparse Jacobians and Hessians: in every mode and format against dense ones, SciPy and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.derivatives.test_derivatives import AT, SMOOTH, X
from uopc import Sparse, Sparsity, UOp, UserError, dtypes
from uopc.sparse import colouring
from uopc.sparse.sparsity import Layout

F8 = dtypes.float64
MODES = ("direct", "fwd", "rev", "bidirectional", "auto")
RNG = np.random.default_rng(7)


def dense(y: Any, x: UOp, at: Any) -> Any:
    """The Jacobian of all outputs by forward mode, row after row."""
    outputs = list(y) if isinstance(y, (list, tuple)) else [y]
    found = [uopc.compile(uopc.jacfwd(u, x), inputs=[x])(at) for u in outputs]
    return np.concatenate([np.reshape(a, (-1, x.size)) for a in found])


def check(y: Any, x: UOp, at: Any, mode: Any = "direct", **more: Any) -> Sparse:
    want = dense(y, x, at)
    made: Sparse = uopc.jacobian(y, x, mode=mode, format="csc", **more)
    got = uopc.compile(made, inputs=[x])(at)
    np.testing.assert_allclose(made.todense(got), want, rtol=1e-9, atol=1e-11)
    assert (np.diff(made.col * made.shape[0] + made.row) > 0).all()
    return made


# ---------------------------------------------------------------- every rule
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.few(5)
def test_every_rule(name: str) -> None:
    check(SMOOTH[name](X), X, AT)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fwd", "rev", "bidirectional", "auto"])
@pytest.mark.parametrize("name", SMOOTH)
def test_every_rule_in_other_modes(name: str, mode: str) -> None:
    check(SMOOTH[name](X), X, AT, mode)


V = uopc.param("v", (6,), F8)
V_AT = RNG.uniform(0.5, 1.5, 6)
M = uopc.param("m", (3, 4), F8)
M_AT = RNG.uniform(0.5, 1.5, (3, 4))


def banded(v: UOp) -> UOp:
    return uopc.cat(v[:1] * 2, v[1:-1] * v[:-2] - v[2:].sin(), v[-1:] ** 2, axis=0)


def stencil(m: UOp) -> UOp:
    return m[:, 1:-1] * 4 - m[:, :-2] - m[:, 2:]


def arrow(v: UOp) -> UOp:
    return uopc.cat((v * v).sum().reshape(1), v[1:] * v[0], axis=0)


# By name: the function, its argument, a point, the number of entries that it has.
EXACT: dict[str, tuple[Any, UOp, Any, int]] = {
    "diagonal": (lambda v: v.exp(), V, V_AT, 6),
    "banded": (banded, V, V_AT, 2 + 4 * 3),
    "stencil": (stencil, M, M_AT, 3 * 2 * 3),
    "arrow": (arrow, V, V_AT, 6 + 2 * 5),
    "a row": (lambda v: (v * v).sum(), V, V_AT, 6),
    "a column": (lambda v: v[2] * uopc.constant(np.arange(1.0, 5.0)), V, V_AT, 4),
    "strides": (lambda v: v[::2] * v[1::2], V, V_AT, 6),
    "reversed": (lambda v: v.flip(0) * v, V, V_AT, 12),
    "transposed": (lambda m: m.transpose() * 2.0, M, M_AT, 12),
    "two rows": (lambda m: m[0] * m[2], M, M_AT, 8),
    "sums of rows": (lambda m: m.sin().sum(1), M, M_AT, 12),
    "reshaped": (lambda m: m.reshape(2, 6)[1] * 3.0, M, M_AT, 6),
    "a table twice": (lambda v: v[uopc.constant(np.array([0, 2, 0]))] ** 2, V, V_AT, 3),
    "windows": (
        lambda v: (v[uopc.constant(np.arange(4)[:, None] + np.arange(3))] ** 2).sum(1), V, V_AT, 12,
    ),
    "masked": (lambda v: uopc.constant(np.arange(6) > 2).where(v * v, 1.0), V, V_AT, 3),
    "times zeros": (lambda v: v.sin() * uopc.constant(np.array([1.0, 0, 0, 2, 0, 0])), V, V_AT, 2),
    "one-hot rows": (lambda v: uopc.constant(np.eye(6)[[1, 4]]) @ (v * v), V, V_AT, 2),
    "padded": (lambda v: v[1:3].pad(((2, 2),)) * v, V, V_AT, 2 * 2),
    "padded by numbers": (lambda v: v[:2].pad(((1, 1),), value=5.0) ** 2, V, V_AT, 2),
    "integers": (lambda v: v.floor() + v.cast(dtypes.int32).cast(F8), V, V_AT, 0),
    "detached": (lambda v: v * v.detach(), V, V_AT, 6),
    "narrow": (lambda v: v.cast(dtypes.float32).cast(F8) * 2, V, V_AT, 6),
    "batch of equations": (
        lambda m: uopc.stack(*[m[:2, :2] + uopc.constant(3 * np.eye(2)), m[1:, 2:] + uopc.constant(
            4 * np.eye(2))]).solve(uopc.constant(np.ones((2, 2, 1)))), M, M_AT, 2 * 2 * 4,
    ),
    "sorted rows": (lambda m: m.sort(1), M, M_AT, 3 * 16),
    "running sums of rows": (lambda m: m.cumsum(1), M, M_AT, 3 * (4 + 3 + 2 + 1)),
    "running sums of columns": (lambda m: m.cumsum(0) * 2.0, M, M_AT, 4 * (3 + 2 + 1)),
    "running products of rows": (lambda m: m.cumprod(1), M, M_AT, 3 * 16),
    "rows put in": (
        lambda v: v.at[uopc.constant(np.array([4, 1, 4]))].set(v[:3] ** 2) * 1.0, V, V_AT, 6,
    ),
    "rows added": (
        lambda v: v.at[uopc.constant(np.array([4, 1]))].add(v[:2] ** 2), V, V_AT, 7,
    ),
    "one element": (lambda v: v[2:3] * 2.0, V, V_AT, 1),
    "nothing": (lambda v: v[3:3] * 2.0, V, V_AT, 0),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.few(9)
def test_structures(name: str, mode: str) -> None:
    f, x, at, entries = EXACT[name]
    y = f(x)
    made = check(y, x, at, mode)
    assert made.nnz == entries
    assert uopc.sparsity(y, x) == made.sparsity


@pytest.mark.parametrize("format", ["csc", "csr", "coo", "triplet"])
@pytest.mark.parametrize("constants", [None, "split"])
def test_formats(format: Any, constants: Any) -> None:
    y = uopc.cat(V * 2.0, V[1:] * V[:-1], V[:1], axis=0)
    want = dense(y, V, V_AT)
    made = uopc.jacobian(y, V, format=format, constants=constants, mode="direct")
    got = uopc.compile(made, inputs=[V])(V_AT)
    assert got.shape == ((10,) if constants else (17,))
    matrix = made.scipy(got)
    assert matrix.format == ("coo" if format == "triplet" else format)
    np.testing.assert_allclose(matrix.toarray(), want, rtol=1e-12)
    if format in ("csc", "csr"):
        assert matrix.has_canonical_format
        other = getattr(scipy.sparse, f"{format}_array")(want)
        np.testing.assert_array_equal(matrix.indptr, other.indptr)
        np.testing.assert_array_equal(matrix.indices, other.indices)


def test_numbers_that_meet_what_is_computed() -> None:
    """Of three boxes that meet one after another, none is split off unless it meets none."""
    x = uopc.param("x", (4,), F8)
    y = uopc.cat(x * x + x.flip(0)[uopc.constant(np.array([0, 1, 2, 3]))], x[:2] * 3, axis=0)
    y = y + x.sum() * 0.5 + uopc.cat(x[1:2] * 2, x[:1], x[:1], x[3:], x[2:], axis=0)
    at = np.arange(1.0, 5)
    made = uopc.jacobian(y, x, format="csc", constants="split", mode="direct")
    got = uopc.compile(made, inputs=[x])(at)
    np.testing.assert_allclose(made.todense(got), dense(y, x, at))
    assert made.constants is not None


def test_zero_rows_and_columns() -> None:
    """The structures that SciPy gives of matrices without rows, columns or entries."""
    for y, shape in ((V[0:0] * 2, (0, 6)), (uopc.zeros((3,), F8), (3, 6))):
        made = uopc.jacobian(y, V, format="csc")
        assert (made.shape, made.nnz) == (shape, 0)
        np.testing.assert_array_equal(made.indptr, np.zeros(7))
        assert uopc.compile(made, inputs=[V])(V_AT).shape == (0,)
    empty = uopc.param("e", (0,), F8)
    made = uopc.jacobian(uopc.ones((2,), F8) + empty.sum(), empty, format="csc")
    assert (made.shape, made.nnz) == ((2, 0), 0)
    np.testing.assert_array_equal(made.indptr, [0])
    assert uopc.jacobian(uopc.ones((2,), F8), empty, format="csr").indptr.tolist() == [0, 0, 0]


def test_several_outputs_and_inputs() -> None:
    """Rows and columns follow each other; an input that is a node inside of the graph counts."""
    inner = V * V
    outputs, inputs = [inner[:3] * M[:, 0], M.sum()], [M, inner]
    made = uopc.jacobian(outputs, inputs, format="csr")
    assert made.shape == (4, 18)
    got = made.todense(uopc.compile(made, inputs=[V, M])(V_AT, M_AT))
    parts = [uopc.jacfwd(y, x) for y in outputs for x in inputs]
    blocks = uopc.compile(parts, inputs=[V, M])(V_AT, M_AT)
    flat = [b.reshape(-1, x.size) for b, x in zip(blocks, inputs * 2)]
    want = [flat[:2], flat[2:]]
    np.testing.assert_allclose(got, np.block(want), rtol=1e-12)


def test_hessians() -> None:
    """By every mode, whole and by its triangles; the entries of a chain are those of a band."""
    loss = ((V[1:] - V[:-1] ** 2) ** 2).sum() * 100 + ((1 - V[:-1]) ** 2).sum()
    want = uopc.compile(uopc.hessian(loss, V), inputs=[V])(V_AT)
    for mode in (*MODES, "star"):
        for part, kept in (("full", want), ("lower", np.tril(want)), ("upper", np.triu(want))):
            made = uopc.hessian(loss, V, format="csc", part=part, mode=mode)
            got = uopc.compile(made, inputs=[V])(V_AT)
            np.testing.assert_allclose(made.todense(got), kept, rtol=1e-10, err_msg=mode)
            assert made.nnz == (16 if part == "full" else 11)
    star = uopc.hessian(loss, V, format="csc", mode="star")
    assert star.statistics["colours"] == 3


def test_the_boxes_of_a_band_are_as_many_at_any_length() -> None:
    """And the kernels, and every computed value is an entry."""
    counts = set()
    for n in (20, 2000):
        x = uopc.param("x", (n,), F8)
        made = uopc.jacobian(x[1:] * x[:-1] - x[1:].sin(), x, format="csc", mode="direct")
        assert made.statistics["computed"] == made.nnz == 2 * (n - 1)
        program = uopc.compile(made, inputs=[x])
        counts.add((made.statistics["boxes"], len(program.kernels)))
        at = RNG.uniform(-1, 1, n)
        rows = np.arange(n - 1)
        want = scipy.sparse.csc_array(
            (np.concatenate([at[1:], at[:-1] - np.cos(at[1:])]),
             (np.concatenate([rows, rows]), np.concatenate([rows, rows + 1]))), (n - 1, n),
        )  # fmt: skip
        np.testing.assert_allclose(program(at), want.tocsc().data, rtol=1e-12)
    assert len(counts) == 1


def test_sums_that_share_work_with_entries() -> None:
    """A parameter that all elements read has one sum, over rows that the other entries' kernel
    stores: it computes nothing twice."""
    n = 64
    x, p = uopc.param("x", (n,), F8), uopc.param("p", (), F8)
    loss = ((x * p).sin() * x).sum() + ((x * p).cos() * p).sum()
    at, q = RNG.uniform(-1, 1, n), 0.7
    made = uopc.hessian(loss, [x, p], format="csc", part="lower", mode="direct")
    program = uopc.compile(made, inputs=[x, p])
    dense_ = uopc.hessian(loss, [x, p])
    xx, xp, _, pp = uopc.compile([*dense_[0], *dense_[1]], inputs=[x, p])(at, q)
    want = np.zeros((n + 1, n + 1))
    want[:n, :n], want[n, :n], want[n, n] = xx, xp, pp
    np.testing.assert_allclose(made.todense(program(at, q)), want, rtol=1e-10)
    assert made.nnz == 2 * n + 1
    assert len(program.kernels) == 3


def test_what_is_written_element_by_element_is_rolled() -> None:
    """A loop in Python over stages has the boxes of one stage."""
    x = uopc.param("x", (3 * 40,), F8)
    z = [x[i] for i in range(3 * 40)]
    out = []
    for k in range(39):
        a, b, u = z[3 * k : 3 * k + 3]
        out += [z[3 * k + 3] - (a + 0.1 * b * u.sin()), z[3 * k + 4] - (b - 0.1 * a * a)]
    made = check(uopc.stack(*out), x, RNG.uniform(-1, 1, 120))
    assert made.statistics["boxes"] < 12


def test_a_hessian_of_what_is_written_element_by_element_is_rolled() -> None:
    """As many boxes for 60 stages as for 20, with the values of jacfwd of the gradient."""
    boxes = []
    for n in (20, 60):
        x = uopc.param("x", (n,), dtypes.float64)
        terms = [(x[k + 1] - x[k] * x[k]) ** 2 + x[k].sin() for k in range(n - 1)]
        loss = uopc.stack(*terms).sum()
        found = uopc.hessian(loss, x, format="csc", mode="direct")
        boxes.append(found.statistics["boxes"])
        at = np.random.default_rng(n).normal(size=n)
        dense = uopc.compile(uopc.jacfwd(uopc.grad(loss, x), x))(at)
        got = found.todense(uopc.compile(found.data)(at))
        np.testing.assert_allclose(got, dense, rtol=1e-12, atol=1e-14)
    assert boxes[0] == boxes[1]


def test_a_hessian_by_a_node_that_is_no_param() -> None:
    x = uopc.param("x", (4,), dtypes.float64)
    y = x * 2
    found = uopc.hessian((y * y * y).sum() * x[0], y, format="csc")
    got = found.todense(uopc.compile(found.data, inputs=[x])(np.arange(1.0, 5.0)))
    np.testing.assert_allclose(got, np.diag(6 * 2 * np.arange(1.0, 5.0)))


def test_an_element_whose_factor_is_always_zero() -> None:
    x, zero = uopc.param("x", (3,), dtypes.float64), uopc.constant([0.0, 1.0], dtypes.float64)
    y = uopc.stack(x[0] * zero[0] * x[1].sin(), x[1])
    found = uopc.jacobian(y.sum() * x[2], x, format="csc")
    assert found.todense(uopc.compile(found.data)(np.ones(3))).tolist() == [[0.0, 1.0, 1.0]]


def test_a_matrix_is_made_of_values_and_a_structure() -> None:
    found = Sparse(np.array([1.0, 2.0]), Sparsity([1, 0], [0, 1], (2, 2), "csc"))
    assert found.todense().tolist() == [[0.0, 2.0], [1.0, 0.0]]
    with pytest.raises(UserError, match="expected values and a Sparsity, got 3"):
        Sparse(np.array([1.0]), 3)


def test_a_recurrence_that_is_written_out_takes_products() -> None:
    """It has a box for each of n² / 2 entries, which would be as many pieces of code."""
    n = 64
    x = uopc.param("x", (n,), F8)
    v, out = x[0], []
    for i in range(1, n):
        v = (v * x[i]).sin()
        out.append(v)
    made = uopc.jacobian(uopc.stack(*out), x, format="csc")
    assert made.nnz == n * (n + 1) // 2 - 1
    assert made.statistics["mode"] != "direct"


def test_vmapped_stages_with_shared_parameters() -> None:
    """One block is differentiated; the matrix is that of all stages, with links and parameters."""
    n = 30
    z = uopc.param("z", (n * 3 + 2,), F8)
    states, shared = z[: n * 3].reshape(n, 3), z[n * 3 :]
    s, t = uopc.param("s", (3,), F8), uopc.param("t", (3,), F8)
    block = t[:2] - (s[:2] + shared[0] * uopc.stack(s[1] * s[2], s[0].sin() * shared[1]))
    stages = uopc.vmap(block, {s: states[:-1], t: states[1:]})
    c = uopc.cat(states[0, :2] - 1.0, stages.reshape(2 * n - 2), states[-1, :1], axis=0)
    made = check(c, z, RNG.uniform(0.5, 1.5, n * 3 + 2))
    # Of the two rows: t[i], all of s and shared[0]; t[i], s[0], s[1] and all of shared.
    assert made.nnz == 3 + (n - 1) * (5 + 5)


def test_a_program_for_any_number_of_stages() -> None:
    """The block is differentiated, vmap takes a symbolic number of it, `placed` knows where."""
    n = uopc.variable("n", 2, 1000)
    x, shared = uopc.param("x", (n, 3), F8), uopc.param("p", (2,), F8)
    s, t = uopc.param("s", (3,), F8), uopc.param("t", (3,), F8)

    def block(p: UOp) -> UOp:
        return t[:2] - (s[:2] + p[0] * uopc.stack(s[1] * s[2], s[0].sin() * p[1]))

    one = uopc.jacobian([block(shared)], [s, t, shared], format="triplet")
    values = uopc.vmap(one.data, {s: x[:-1], t: x[1:]})
    first = uopc.jacobian([s[:2] * shared], [s, shared], format="triplet")
    program = uopc.compile([uopc.vmap(first.data, {s: x[:1]}), values], inputs=[x, shared])
    for count in (2, 3, 30, 211):
        given, p = RNG.uniform(0.5, 1.5, (count, 3)), RNG.uniform(0.5, 1.5, 2)
        stage = np.arange(count - 1)[:, None]
        at = np.broadcast_to(3 * count + np.arange(2), (count - 1, 2))
        size = 2 * count, 3 * count + 2
        stages = one.sparsity.placed(
            2 + 2 * stage + np.arange(2), np.hstack([3 * stage + np.arange(6), at]), size
        )
        start = first.sparsity.placed([[0, 1]], [[0, 1, 2, 3 * count, 3 * count + 1]], size)
        whole = Sparsity(
            np.concatenate([start.row, stages.row]), np.concatenate([start.col, stages.col]), size
        )
        data = np.concatenate([np.ravel(a) for a in program(given, p)])
        made = Sparse(data[whole.order("csc")], Layout(whole.csc()))

        z = uopc.param("z", (3 * count + 2,), F8)
        states, q = z[: 3 * count].reshape(count, 3), z[3 * count :]
        c = uopc.vmap(block(q), {s: states[:-1], t: states[1:]})
        want = uopc.jacobian([states[0, :2] * q, c], [z], format="csc")
        assert made.sparsity == want.sparsity
        got = uopc.compile(want.data)(np.concatenate([given.reshape(-1), p]))
        np.testing.assert_allclose(made.data, got, rtol=1e-14)
        np.testing.assert_allclose(made.scipy().toarray(), want.scipy(got).toarray(), rtol=1e-14)


def test_blocks_that_are_placed_add_up_and_are_checked() -> None:
    full = Sparsity.of(np.ones((2, 2)))
    nodes = np.array([[0, 1], [1, 2]])  # two finite elements that share a node
    made = Sparse(np.ones(8), Layout(full.placed(nodes, nodes, (3, 3))))
    want = [[1, 1, 0], [1, 2, 1], [0, 1, 1]]
    np.testing.assert_array_equal(made.todense(), want)
    np.testing.assert_array_equal(made.scipy().toarray(), want)
    nothing = np.zeros((0, 2), int)
    assert full.placed(nothing, nothing, (3, 3)).nnz == 0
    for rows, cols in ((nodes, nodes[:1]), (nodes[:, :1], nodes), ([0, 1], nodes)):
        with pytest.raises(UserError, match=r"placed: (rows|cols) must"):
            full.placed(rows, cols, (3, 3))
    with pytest.raises(UserError, match=r"a row is outside of 0\.\.1"):
        full.placed(nodes, nodes, (2, 3))


# ---------------------------------------------------------------- functions
def test_of_functions() -> None:
    def f(x: Any, y: Any) -> Any:
        return {"a": x[1:] * x[:-1], "b": (x * y).sum()}

    x, y = np.array([1.0, 2.0, 4.0]), 3.0
    made = uopc.jacobian(f, argnums=(0, 1), format="csr")(x, y)
    want = [[2, 1, 0, 0], [0, 4, 2, 0], [3, 3, 3, 7]]
    np.testing.assert_array_equal(made.todense(), want)
    inside = uopc.jit(lambda x: uopc.jacobian(f, format="csr")(x, y))(x)
    assert isinstance(inside, Sparse)
    assert inside.sparsity == uopc.sparsity(f, format="csr")(x, y)
    np.testing.assert_array_equal(inside.scipy().toarray(), np.array(want)[:, :3])
    found, aux = uopc.jacobian(lambda x: (x * x, x.sum()), has_aux=True, format="csc")(x)
    assert (found.data.tolist(), aux) == ([2, 4, 8], 7)
    lower = uopc.hessian(lambda x: x[0] * x[1] * x[2], format="csc", part="lower")(x)
    np.testing.assert_array_equal(lower.todense(), [[0, 0, 0], [4, 0, 0], [2, 1, 0]])


def test_a_function_that_is_called() -> None:
    f = uopc.function(lambda a, b: a * b.sin())
    check(f(V, V.flip(0)) + f(V, V), V, V_AT)


def test_writes_are_values() -> None:
    from uopc.tensor.creation import buffer

    storage = buffer((6,), F8)
    stored = storage.assign(V * V)
    check(stored + V, V, V_AT)


# ---------------------------------------------------------------- structures as values
def test_sparsities() -> None:
    s = Sparsity([2, 0, 1], [0, 1, 1], (3, 2))
    assert (s.csr().row.tolist(), s.csr().col.tolist()) == ([0, 1, 2], [1, 1, 0])
    assert (s.csc().row.tolist(), s.csc().indptr.tolist()) == ([2, 0, 1], [0, 1, 3])
    assert s.T.csr() == s.csc().T
    assert hash(s) == hash(Sparsity([2, 0, 1], [0, 1, 1], (3, 2)))
    assert s != s.csc()
    assert s.spy() == "·█\n·█\n█·"
    np.testing.assert_array_equal(s.todense(), [[0, 1], [0, 1], [1, 0]])
    matrix = scipy.sparse.random_array((5, 4), density=0.4, rng=np.random.default_rng(1))
    assert Sparsity.of(matrix.tocsr()) == Sparsity.of(matrix.toarray())
    assert Sparsity.of(matrix, "csr").indptr.tolist() == matrix.tocsr().indptr.tolist()
    with pytest.raises(uopc.UserError, match=r"2 dimensions, got 1"):
        Sparsity.of(np.ones(3))
    with pytest.raises(uopc.UserError, match=r"no indptr"):
        _ = s.indptr
    with pytest.raises(uopc.UserError, match=r"a row is outside of 0\.\.2"):
        Sparsity([3], [0], (3, 2))
    with pytest.raises(uopc.UserError, match=r"2 rows for 1 columns"):
        Sparsity([1, 2], [0], (3, 2))


BAD: list[tuple[Any, str]] = [
    (lambda: uopc.jacobian(V * 2, V, format="csd"), "jacobian: format must be one of"),
    (lambda: uopc.jacobian(V * 2, V, format="csc", mode="star"), "jacobian: mode must be one of"),
    (lambda: uopc.jacobian(V * 2, V, format="csc", constants="no"), "constants must be one of"),
    (lambda: uopc.hessian(V.sum(), V, part="lower"), "need a sparse format"),
    (lambda: uopc.hessian(V * 2, V, format="csc"), "needs one float"),
    (lambda: uopc.hessian(V.sum(), V, format="csc", part="left"), "part must be one of"),
    (lambda: uopc.hessian(lambda v: (v, v), format="csc")(V_AT), "2 results"),
    (lambda: uopc.jacobian(V.cast(dtypes.int32), V, format="csc"), "int32 has no derivatives"),
    (lambda: uopc.sparsity(V, V.cast(dtypes.int32)), "int32 has no derivatives"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_options(make: Any, message: str) -> None:
    with pytest.raises(uopc.UserError, match=message):
        make()


def test_symbolic_sizes_are_refused() -> None:
    x = uopc.param("x", (uopc.variable("n", 1, 9),), F8)
    with pytest.raises(uopc.Unsupported, match="sparse derivative needs known sizes"):
        uopc.jacobian(x * x, x, format="csc")


# ---------------------------------------------------------------- colourings
@st.composite
def structures(draw: Any) -> Any:
    m, n = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    cells = draw(st.lists(st.booleans(), min_size=m * n, max_size=m * n))
    row, col = np.nonzero(np.reshape(cells, (m, n)))
    return row, col, m, n


@given(structures())
def test_colours_of_columns(case: Any) -> None:
    row, col, _, n = case
    colours = colouring.columns(row, col, n)
    pairs = {(int(r), int(colours[c])) for r, c in zip(row, col)}
    assert len(pairs) == row.size


@given(structures())
@settings(max_examples=200)
def test_colours_of_both(case: Any) -> None:
    """Each entry is alone with its colour in its row or column, as the mask says."""
    row, col, m, n = case
    by_row, down, across = colouring.both(row, col, m, n)
    by_row = by_row.astype(bool)
    right = {(int(r), int(across[c])) for r, c in zip(row[~by_row], col[~by_row])}
    left = {(int(c), int(down[r])) for r, c in zip(row[by_row], col[by_row])}
    assert len(right) + len(left) == row.size
    assert not set(row[by_row]) & set(row[~by_row])  # a row is given as a whole


@given(structures())
def test_star_colours(case: Any) -> None:
    row, col, m, n = case
    n = max(m, n)
    one = np.zeros((n, n), bool)
    one[row, col] = one[col, row] = True
    one[np.arange(n), np.arange(n)] = True
    row, col = np.nonzero(one)
    colours = colouring.star(row, col, n)
    near = [set(np.flatnonzero(one[v])) - {v} for v in range(n)]
    for v in range(n):
        for w in near[v]:
            assert colours[v] != colours[w]
            for x in near[w] - {v}:
                for y in near[x] - {v, w}:
                    assert len({colours[i] for i in (v, w, x, y)}) > 2


def test_a_sum_that_several_entries_have() -> None:
    """Each row has the same derivative, a sum over as many elements as there are rows."""
    x = uopc.param("x", (), F8)
    rows = x.expand((3,)).cummax(0)
    away = rows - rows.mean(axis=0, keepdims=True)
    y = (away * away).mean().expand((3,))
    for mode in ("auto", "direct"):
        made = uopc.jacobian(y, x, format="csc", mode=mode)
        got = made.todense(uopc.compile(made)(np.array(0.3)))
        np.testing.assert_allclose(
            got.ravel(), uopc.compile(uopc.jacfwd(y, x))(np.array(0.3)), atol=1e-14
        )
