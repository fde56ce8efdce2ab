"""Every op code of CasADi has a rule or an error with a way out; values and Jacobians agree."""

from __future__ import annotations

import pytest

ca = pytest.importorskip("casadi")

import numpy as np

import uopc.casadi
from tests.casadi.oracle import check_jacobians, check_values
from uopc.casadi import code, elementwise, instructions
from uopc.errors import Unsupported

SX, MX = ca.SX, ca.MX
# CasADi writes these by other operations, or only where a Function has other operations, too.
SIMPLIFIED = {"OP_ASSIGN", "OP_LIFT", "OP_CONSTPOW", "OP_NORM2"}
CODES = {getattr(ca, name): name for name in dir(ca) if name.startswith("OP_")}
NOT_MADE = {"OP_MAP", "OP_SUBREF", "OP_SUBASSIGN"}  # codes that CasADi has, and never makes
READ = {"OP_INPUT", "OP_OUTPUT", "OP_CALL"}  # by `MatrixCode` itself


def inside(low: float, high: float) -> object:
    return lambda x: low + (high - low) * (ca.tanh(x) + 1) / 2


def kept(x: object) -> object:
    return x


ANY, POSITIVE, UNIT = kept, inside(0.2, 3.0), inside(-0.95, 0.95)
ELEMENTWISE = {  # op code: the function of symbols, the range of its first operand
    "OP_NEG": (lambda a, b: -a, ANY), "OP_ADD": (lambda a, b: a + b, ANY),
    "OP_SUB": (lambda a, b: a - b, ANY), "OP_MUL": (lambda a, b: a * b, ANY),
    "OP_DIV": (lambda a, b: a / b, ANY), "OP_EXP": (lambda a, b: ca.exp(a), ANY),
    "OP_LOG": (lambda a, b: ca.log(a), POSITIVE), "OP_POW": (lambda a, b: a**b, POSITIVE),
    "OP_CONSTPOW": (lambda a, b: a**2.5, POSITIVE), "OP_SQRT": (lambda a, b: ca.sqrt(a), POSITIVE),
    "OP_SQ": (lambda a, b: ca.sq(a) if hasattr(ca, "sq") else a**2, ANY),
    "OP_TWICE": (lambda a, b: 2 * a, ANY), "OP_SIN": (lambda a, b: ca.sin(a), ANY),
    "OP_COS": (lambda a, b: ca.cos(a), ANY), "OP_TAN": (lambda a, b: ca.tan(a), ANY),
    "OP_ASIN": (lambda a, b: ca.asin(a), UNIT), "OP_ACOS": (lambda a, b: ca.acos(a), UNIT),
    "OP_ATAN": (lambda a, b: ca.atan(a), ANY), "OP_LT": (lambda a, b: (a < b) * a, ANY),
    "OP_LE": (lambda a, b: (a <= b) * a, ANY), "OP_EQ": (lambda a, b: (a == b) * a, ca.floor),
    "OP_NE": (lambda a, b: (a != b) * a, ca.floor),
    "OP_NOT": (lambda a, b: ca.logic_not(a), ca.floor),
    "OP_AND": (lambda a, b: ca.logic_and(a, b), ca.floor),
    "OP_OR": (lambda a, b: ca.logic_or(a, ca.floor(b)), ca.floor),
    "OP_FLOOR": (lambda a, b: ca.floor(a), ANY), "OP_CEIL": (lambda a, b: ca.ceil(a), ANY),
    "OP_FMOD": (lambda a, b: ca.fmod(a, b), ANY), "OP_FABS": (lambda a, b: ca.fabs(a), ANY),
    "OP_SIGN": (lambda a, b: ca.sign(a), ANY),
    "OP_COPYSIGN": (lambda a, b: ca.copysign(a, b), ANY),
    "OP_IF_ELSE_ZERO": (lambda a, b: ca.if_else(a > 0, b, -a), ANY),
    "OP_ERF": (lambda a, b: ca.erf(a), ANY), "OP_FMIN": (lambda a, b: ca.fmin(a, b), ANY),
    "OP_FMAX": (lambda a, b: ca.fmax(a, b), ANY), "OP_INV": (lambda a, b: 1 / a, ANY),
    "OP_SINH": (lambda a, b: ca.sinh(a), ANY), "OP_COSH": (lambda a, b: ca.cosh(a), ANY),
    "OP_TANH": (lambda a, b: ca.tanh(a), ANY), "OP_ASINH": (lambda a, b: ca.asinh(a), ANY),
    "OP_ACOSH": (lambda a, b: ca.acosh(a + 1), POSITIVE),
    "OP_ATANH": (lambda a, b: ca.atanh(a), UNIT), "OP_ATAN2": (lambda a, b: ca.atan2(a, b), ANY),
    "OP_ERFINV": (lambda a, b: ca.erfinv(a), inside(0.05, 0.95)),  # CasADi is off below 0
    "OP_PRINTME": (lambda a, b: a.printme(1), ANY), "OP_LIFT": (lambda a, b: _lifted(a, b), ANY),
    "OP_LOG1P": (lambda a, b: ca.log1p(a), POSITIVE), "OP_EXPM1": (lambda a, b: ca.expm1(a), ANY),
    "OP_HYPOT": (lambda a, b: ca.hypot(a, b), ANY),
    "OP_REMAINDER": (lambda a, b: ca.remainder(a, b), ANY), "OP_ASSIGN": (lambda a, b: a, ANY),
}  # fmt: skip


def _lifted(a: object, b: object) -> object:
    return type(a).binary(ca.OP_LIFT, a, b)


def elementwise_function(name: str, kind: type) -> object:
    make, narrowed = ELEMENTWISE[name]
    a, b = kind.sym("a", 2, 3), kind.sym("b", 2, 3)
    return ca.Function(name.lower(), [a, b], [make(narrowed(a), b)], ["a", "b"], ["y"])


@pytest.mark.parametrize("kind", [SX, MX], ids=["SX", "MX"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_elementwise_op(name: str, kind: type) -> None:
    f = elementwise_function(name, kind)
    ops = {f.instruction_id(k) for k in range(f.n_instructions())}
    assert name in SIMPLIFIED or getattr(ca, name) in ops
    check_values(f)
    check_jacobians(f)


KNOTS = [[-2, -2, -2, -2, 0.5, 2, 2, 2, 2]]
A, B, C = MX.sym("A", 3, 3), MX.sym("B", 3, 2), MX.sym("C", 2, 3)
v, w, k = MX.sym("v", 5), MX.sym("w", 5), MX.sym("k", 2)
S, L = MX.sym("S", ca.Sparsity.banded(3, 1)), MX.sym("L", ca.Sparsity.lower(3))
K, P, R = MX.sym("K", 6, 6), MX.sym("P", ca.Sparsity.banded(6, 2)), MX.sym("R", 2, 6)
t, q, r, c = MX.sym("t"), MX.sym("q", 6), MX.sym("r", 6), MX.sym("c", 4)
TENSORS = [2, 3], [3, 2], [2, 2], [-1, -2], [-2, -3], [-1, -3]  # dimensions, indices
PLACES, GOOD = [0.0, 3.0], A + 4 * MX.eye(3)


def set_nonzeros(index: object) -> MX:
    found = MX(v)
    found.set_nz(k, False, index)
    return found


def grad(of: MX, by: MX) -> MX:
    return ca.gradient(of, by)


MATRICES = {  # op code: the inputs, the outputs, the arguments if random ones do not do
    "OP_CONST": ([v], [MX(ca.DM([1.0, 2.0])), v[0] + 3]),
    "OP_FIND": ([v], [ca.find(v > 0.5), ca.find(v > 9)]),
    "OP_LOW": ([w], [ca.low(MX(ca.DM([-1.5, -1, 0, 1, 1.5])), w)]),
    "OP_MTIMES": ([A, B, S, L], [A @ B, S @ B, S @ L, L @ S @ A, B.T @ L]),
    "OP_SOLVE": ([A, B, S], [
        ca.solve(GOOD, B), ca.solve(GOOD.T, B), ca.solve(S + 4 * MX.eye(3), B),
        ca.solve(ca.triu(GOOD), B), ca.solve(ca.tril(GOOD).T, B), ca.solve(ca.tril(GOOD), B),
    ]),
    "OP_TRANSPOSE": ([B, S, L], [B.T, (S @ L).T, L.T]),
    "OP_DETERMINANT": ([A], [ca.det(A)]),
    "OP_DOT": ([v, w, S], [ca.dot(v, w), ca.dot(S, S)]),
    "OP_BILIN": ([A, S, B], [ca.bilin(A, B[:, 0], B[:, 1]), ca.bilin(S, B[:, 0], B[:, 1])]),
    "OP_RANK1": ([A, S, B, v], [ca.rank1(x, v[0], B[:, 0], B[:, 1]) for x in (A, S)]),
    "OP_HORZCAT": ([A, B, S], [ca.horzcat(A, B) * 2, ca.horzcat(S, B)]),
    "OP_VERTCAT": ([v, w, A, C], [ca.vertcat(v, w) * 2, ca.vertcat(A, C)]),
    "OP_DIAGCAT": ([A, S, v], [ca.diagcat(A, S, v) * 2]),
    "OP_HORZSPLIT": ([A], [x * x for x in ca.horzsplit(A, [0, 1, 3])]),
    "OP_VERTSPLIT": ([v, A], [x * x for x in (*ca.vertsplit(v, [0, 2, 5]), *ca.vertsplit(A, 2))]),
    "OP_DIAGSPLIT": ([A, S], [x * x for x in ca.diagsplit(ca.diagcat(A, S), [0, 3, 6], [0, 3, 6])]),
    "OP_RESHAPE": ([B, S], [ca.reshape(B, 2, 3) * 2, ca.reshape(S, 9, 1)]),
    "OP_GETNONZEROS": ([A, S, v], [A[[2, 0], 1:], S[1:, :], v[::-1], A[::2, ::2], v[[0, 3, 3]]]),
    "OP_GETNONZEROS_PARAM": ([A, v, k], [v[k], A[k, k], A[k, 1:], A[1:, k]], [2.0, 0.0]),
    "OP_SETNONZEROS": ([v, k], [set_nonzeros([1, 3]), set_nonzeros([2, 2]), set_nonzeros([-1, 0])]),
    "OP_SETNONZEROS_PARAM": ([v, k], [set_nonzeros(k), set_nonzeros(k + 3)], PLACES),
    "OP_ADDNONZEROS": ([v, A], [grad(ca.sumsqr(v[[0, 0, 3]]), v), grad(ca.sumsqr(A[:2, 1:]), A)]),
    "OP_ADDNONZEROS_PARAM": ([v, A, k], [grad(ca.sumsqr(v[k]), v), grad(ca.sumsqr(A[k, k]), A),
                             grad(ca.sumsqr(A[k, 1:]), A)], [1.0, 1.0]),
    "OP_PROJECT": ([A, S], [ca.project(A, S.sparsity()), ca.densify(S), ca.tril(A)]),
    "OP_ASSERTION": ([v], [v.attachAssert(v[0] < 99, "wrong")]),
    "OP_MONITOR": ([v], [v.monitor("v")]),
    "OP_NORM1": ([v, S], [ca.norm_1(v), ca.norm_1(S)]),
    "OP_NORM2": ([v], [ca.norm_2(v)]),
    "OP_NORMINF": ([v], [ca.norm_inf(v)]),
    "OP_NORMF": ([A, S], [ca.norm_fro(A), ca.norm_fro(S)]),
    "OP_MMIN": ([v, S], [ca.mmin(v), ca.mmin(S), ca.mmin(S * S + 1)]),
    "OP_MMAX": ([v, S], [ca.mmax(v), ca.mmax(S), ca.mmax(-S * S)]),
    "OP_HORZREPMAT": ([B, S], [ca.repmat(B, 1, 3), ca.repmat(S, 1, 2), ca.repmat(B, 2, 3)]),
    "OP_HORZREPSUM": ([R], [ca.repsum(R, 1, 3)]),
    "OP_EINSTEIN": ([q, r, c], [ca.einstein(q, r, c, *TENSORS)]),
    "OP_SPARSITY_CAST": ([v, S], [ca.sparsity_cast(v, ca.Sparsity.diag(5)) * 2]),
    "OP_LOGSUMEXP": ([v], [ca.logsumexp(v)]),
    "OP_KRON": ([A, B, S], [ca.kron(A, B), ca.kron(S, B), ca.kron(B, S)]),
    "OP_BSPLINE": ([t], [ca.bspline(t, ca.DM([1, 2, 0, 4, -5]), KNOTS, [3], 1, {})]),
    "OP_KRON_CONTRACT": ([A, S, K, P, B], [
        grad(ca.dot(K, ca.kron(x, y)), by)
        for x, y, by in ((A, B[:2, :], A), (A, B[:2, :], B), (B[:2, :], A, A), (S, B[:2, :], S))
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", MATRICES)
def test_an_operation_of_matrices(name: str) -> None:
    inputs, outputs, *places = MATRICES[name]
    f = ca.Function(name.lower(), inputs, outputs)
    made = {f.instruction_id(i) for i in range(f.n_instructions())}
    assert name in SIMPLIFIED or getattr(ca, name) in made
    random = np.random.default_rng(3)
    args = [random.uniform(-2, 2, s.shape) for s in inputs]
    if places:
        args[-1] = places[0]
    check_values(f, *args)
    check_jacobians(f, *args)


OTHERS = {  # tested below, or in files of their own
    "OP_PARAMETER", "OP_CONVEXIFY", "OP_DUMP", "OP_INVERSE",
}


def test_every_op_code_is_tested() -> None:
    """A new version of CasADi with more op codes fails here."""
    named = {*ELEMENTWISE, *MATRICES, *OTHERS, *NOT_MADE, *READ}
    assert set(CODES.values()) == named
    known = {*instructions.RULES, *code.READ_THROUGH, *[getattr(ca, n) for n in READ]}
    assert {getattr(ca, n) for n in named - NOT_MADE} == known
    assert {*elementwise.UNARY, *elementwise.BINARY} == {getattr(ca, n) for n in ELEMENTWISE}


def test_a_place_outside_is_nan_and_is_not_written() -> None:
    f = ca.Function("outside", [v, k], [v[k], set_nonzeros(k), grad(ca.sumsqr(v[k]), v)])
    check_values(f, np.arange(5.0), [7.0, 1.0])
    check_values(f, np.arange(5.0), [-1.0, 4.0])


def test_two_values_at_one_place() -> None:
    f = ca.Function("twice", [v, k], [set_nonzeros(k), grad(ca.sumsqr(v[k]), v)])
    check_values(f, np.arange(5.0), [3.0, 3.0])


def test_the_gradient_of_computed_columns_of_a_slice() -> None:
    """CasADi 3.8.2 gives numbers from outside of the matrix here."""
    f = ca.Function("columns", [A, k], [grad(ca.sumsqr(A[1:, k]), A)])
    a = np.arange(9.0).reshape(3, 3)
    got = uopc.casadi.compile(f)(a, [0.0, 2.0]).full()
    np.testing.assert_array_equal(got, 2 * a * [[0, 0, 0], [1, 0, 1], [1, 0, 1]])


def test_an_inverse() -> None:
    """CasADi can make it, but not compute it."""
    a = np.array([[4.0, 1, 0], [1, 5, 2], [0, 2, 6]])
    got = uopc.casadi.compile(ca.Function("inverse", [A], [ca.inv_node(A)]))(a)
    np.testing.assert_allclose(got.full(), np.linalg.inv(a), rtol=1e-13)


def test_a_spline_by_its_coefficients() -> None:
    """CasADi 3.8.2 says that the derivative is 0."""
    f = ca.Function("spline", [t, v], [ca.bspline(t, v, KNOTS, [3], 1, {})])
    check_values(f, 0.7, [1.0, 2.0, 0.0, 4.0, -5.0])
    lowered = uopc.casadi.lower(f)
    made = uopc.jacobian(lowered.outputs[0], lowered.inputs[1], format="csc")
    program = uopc.compile(made.data, inputs=list(lowered.inputs))
    got = made.todense(program(np.array([0.7]), np.ones(5)))
    wanted = [[float(f(0.7, unit)) for unit in np.eye(5)]]
    np.testing.assert_allclose(got, wanted, rtol=1e-13)


def test_what_prints_or_writes_is_its_value() -> None:
    check_values(ca.Function("printed", [v], [v.monitor("v") * 2]))
    f = ca.Function("dumped", [v], [v.dump("v") * 2])
    wanted = ca.Function("plain", [v], [v * 2])
    got = uopc.casadi.compile(f)(np.arange(5.0))
    assert got.nonzeros() == wanted(np.arange(5.0)).nonzeros()


def test_an_operation_without_a_graph_names_its_function_and_the_way_out() -> None:
    f = ca.Function("curved", [A], [ca.convexify(A + A.T, {"strategy": "regularize"})])
    message = r"curved uses convexify: .*eigenvalues; leave it outside"
    with pytest.raises(Unsupported, match=message):
        uopc.casadi.lower(f)
    f = ca.Function("loose", [v], [v + w], {"allow_free": True})
    with pytest.raises(Unsupported, match=r"loose uses parameter: w is free; make it an input"):
        uopc.casadi.lower(f)


def test_nans_and_zeros_as_in_casadi() -> None:
    x, y = SX.sym("x", 6), SX.sym("y", 6)
    made = [ca.fmin(x, y), ca.fmax(x, y), ca.sign(x), ca.fmod(x, y), ca.remainder(x, y)]
    f = ca.Function("edges", [x, y], [*made, ca.if_else(x, y, 7), ca.copysign(x, y)])
    nan, inf = np.nan, np.inf
    check_values(f, [nan, 1.0, -0.0, 5.0, -7.0, inf], [1.0, nan, 2.0, 2.0, 2.0, 3.0])
    extremes = ca.Function("extremes", [v], [ca.mmin(v), ca.mmax(v)])
    check_values(extremes, [nan, 2.0, 1.0, 3.0, nan])
