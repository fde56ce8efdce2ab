"""Every row of the first table of docs/numpy.md: the two spellings give the same."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from scipy import linalg, ndimage, special

import uopc
from tests import ROOT
from uopc import dtypes

PAGE = ROOT / "docs" / "numpy.md"
A = np.array([[0.5, -2.0, 3.25], [1.0, 0.25, -0.75]], "f4")
B = np.array([[1.5, 2.0, 0.5], [3.0, 1.25, 2.5]], "f4")
SQUARE = A.T @ A + np.eye(3, dtype="f4")
P = np.array([0.5, 1.5, 2.5, 4.0], "f4")
M = np.arange(12, dtype="f4").reshape(3, 4) - 5
N, K = np.array([[7, -7, 3], [2, 9, -4]], "i4"), np.array([[2, 3, 1], [1, 2, 3]], "i4")
ROWS_OF_A = np.array([1, 0, 1], "i4")
CUBE = np.arange(24, dtype="f4").reshape(2, 3, 4)
IMAGE = np.arange(2 * 3 * 4 * 4, dtype="f4").reshape(2, 3, 4, 4) / 8 - 5


def each(names, *arrays):
    """Functions of NumPy that are methods of the same name."""
    return [
        (lambda *a, n=n: getattr(np, n)(*a), lambda *u, n=n: getattr(u[0], n)(*u[1:]), arrays)
        for n in names.split()
    ]


def alike(*functions, on=(A,)):
    """The same expression for both."""
    return [(f, f, on) for f in functions]


def made(n, *arguments):
    return (lambda: getattr(np, n)(*arguments, **F4), lambda: getattr(uopc, n)(*arguments), ())


def pooled(a, choose):
    return choose(a.reshape(2, 3, 2, 2, 2, 2), axis=(3, 5))


def convolved(a, w):
    windows = np.lib.stride_tricks.sliding_window_view(a, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w)


def pairs(a):
    return np.stack([a.real, a.imag], -1).astype("f4")


def normal(a):
    return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5)


F4 = {"dtype": "f4"}
_SIGMOID = lambda a: 1 / (1 + np.exp(-a))  # noqa: E731
_FLOATS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
           operator.mod, operator.lt, operator.le, operator.gt, operator.ge]  # fmt: skip
_INTEGERS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
# fmt: off
# The first words of a row → the same computation in NumPy and in uopc, and its arrays.
ROWS = {
    "`np.array(v)`": [
        (lambda a: a + np.array([1, 2, 3]), lambda a: a + uopc.constant(np.array([1, 2, 3])), (A,)),
        *alike(lambda a: a + 1.5, lambda a: a + np.ones(3, "f4")),
    ],
    "a function's argument": alike(lambda a: a),
    "`np.zeros`": [
        made("zeros", (2, 3)), made("ones", (2,)), made("full", (2, 2), 7.0), made("eye", 3),
        (lambda: np.arange(5, dtype="i4"), lambda: uopc.arange(5), ()),
    ],
    "`+ - * / //": [
        *alike(*_FLOATS, on=(A, B)), *alike(*_INTEGERS, on=(N, K)),
        *alike(operator.pow, on=(B, A)), *alike(operator.matmul, on=(A, A.T.copy())),
        *alike(operator.invert, on=(N,)), *alike(abs),
    ],
    "`a == b`": [
        (lambda a, b: a == b, lambda a, b: a.eq(b), (N, K)),
        (lambda a, b: a != b, lambda a, b: a.ne(b), (N, K)),
    ],
    "`np.where": [
        (lambda a, b: np.where(a < b, a, b), lambda a, b: uopc.where(a < b, a, b), (A, B)),
        (lambda a, b: np.where(a < b, a, b), lambda a, b: (a < b).where(a, b), (A, B)),
    ],
    "`np.maximum": each("maximum minimum", A, B),
    "`np.clip": alike(lambda a: a.clip(-1, 1)),
    "`np.exp`": each("exp exp2 log log2 sin cos tan tanh sqrt", P),
    "`np.expm1": each("expm1 log1p log10 sinh cosh isnan isinf isfinite signbit", P),
    "`np.arcsin": [
        (getattr(np, f"arc{n}"), lambda a, n=n: getattr(a, f"a{n}")(), (np.abs(P) % 1 + add,))
        for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh") for add in (int(n == "cosh"),)
    ],
    "`np.hypot": [
        *each("hypot copysign nextafter logaddexp", A, B),
        (np.arctan2, lambda a, b: a.atan2(b), (A, B)),
    ],
    "`np.reciprocal": [
        *each("reciprocal", P),
        (lambda a: 1 / np.sqrt(a), lambda a: a.rsqrt(), (P,)),
        (special.erf, lambda a: a.erf(), (A,)),
    ],
    "`np.floor`": [
        *each("floor ceil trunc round sign", A),
        (lambda a: np.round(a, 1), lambda a: round(a, 1), (A,)),
    ],
    "`a.sum(axis, keepdims)`": alike(*[
        lambda a, n=n, k=k: getattr(a, n)(axis=1, keepdims=k)
        for n in ("sum", "prod", "max", "min", "mean", "any", "all") for k in (True, False)
    ], lambda a: a.cumsum(axis=1)),
    "`a.var(ddof=1)`": [
        (lambda a: a.var(ddof=1), lambda a: a.var(correction=1), (A,)),
        (lambda a: a.std(ddof=1), lambda a: a.std(correction=1), (A,)),
    ],
    "`np.cumprod": [
        *alike(lambda a: a.cumprod(axis=1)),
        (lambda a: np.maximum.accumulate(a, 1), lambda a: a.cummax(1), (A,)),
        (lambda a: np.minimum.accumulate(a, 1), lambda a: a.cummin(1), (A,)),
    ],
    "`scipy.special.logsumexp": [
        (lambda a: special.logsumexp(a, 1), lambda a: a.logsumexp(1), (A,)),
        (lambda a: np.convolve(a[0], a[1], "same"), lambda a: a[0].convolve(a[1], "same"), (A,)),
    ],
    "`np.linalg.cholesky(a)`": [
        (np.linalg.cholesky, lambda a: a.cholesky(), (SQUARE,)),
        (lambda a: np.linalg.qr(a)[1], lambda a: a.qr()[1], (SQUARE,)),
        (np.linalg.inv, lambda a: a.inv(), (SQUARE,)),
        (np.linalg.det, lambda a: a.det(), (SQUARE,)),
        (lambda a: np.linalg.slogdet(a)[1], lambda a: a.slogdet()[1], (SQUARE,)),
        (lambda a: np.linalg.matrix_power(a, 3), lambda a: a.matrix_power(3), (SQUARE,)),
    ],
    "`np.linalg.solve(a, b)`": [
        (np.linalg.solve, lambda a, b: a.solve(b), (SQUARE, B.T)),
        (lambda a, b: linalg.solve_triangular(a, b, lower=True),
         lambda a, b: a.solve_triangular(b, lower=True), (SQUARE, B.T)),
    ],
    "`np.einsum": alike(lambda a, b: np.einsum("ij,kj->ik", a, b), on=(A, B)),
    "`a.argmax": alike(lambda a: a.argmax(axis=1), lambda a: a.argmin(axis=0)),
    "`np.matmul`": [
        (np.matmul, operator.matmul, (A, M)), (np.dot, operator.matmul, (P, P)),
        (np.dot, operator.matmul, (M, P)),
    ],
    "`a.reshape": [
        *alike(lambda a: a.reshape(2, -1), on=(CUBE,)),
        (lambda a: a.transpose(1, 0, 2), lambda a: a.permute(1, 0, 2), (CUBE,)),
        (lambda a: a.T, lambda a: a.transpose(), (A,)), *alike(lambda a: a.T),
    ],
    "`np.swapaxes": [(lambda a: np.swapaxes(a, 0, 1), lambda a: a.transpose(0, 1), (CUBE,))],
    "`np.broadcast_to": [
        (lambda a: np.broadcast_to(a, (5, 2, 3)), lambda a: a.expand((5, 2, 3)), (A,)),
    ],
    "`np.concatenate": [
        (lambda a, b: np.concatenate([a, b], 1), lambda a, b: uopc.cat(a, b, axis=1), (A, B)),
        (lambda a, b: np.stack([a, b], 1), lambda a, b: uopc.stack(a, b, axis=1), (A, B)),
    ],
    "`np.pad": [
        (lambda a: np.pad(a, ((1, 1), (0, 0))), lambda a: a.pad(((1, 1), (0, 0)), value=0), (A,)),
    ],
    "`np.flip": [
        (lambda a: np.flip(a, 1), lambda a: a.flip(1), (A,)),
        (np.squeeze, lambda a: a.squeeze(), (A[:1],)),
        (lambda a: np.expand_dims(a, 1), lambda a: a.unsqueeze(1), (A,)),
        (lambda a: a.ravel(), lambda a: a.flatten(), (CUBE,)),
    ],
    "`a[1:, ::2, None]`": [
        *alike(lambda a: a[1:, ::2, None], lambda a: a[..., -1], lambda a: a[[0, 1]]),
        *alike(lambda a, i: a[i], on=(A, ROWS_OF_A)),
    ],
    "`np.take": [
        (lambda a, i: np.take(a, i, 0), lambda a, i: a.take(i, 0), (A, ROWS_OF_A)),
        (lambda a, i: np.take_along_axis(a, i, 1), lambda a, i: a.gather(1, i), (A, K - 1)),
    ],
    "`np.bincount": [
        (lambda i, w: np.bincount(i[0], w[0], 9), lambda i, w: i[0].bincount(w[0], length=9),
         (K, A)),
    ],
    "`np.histogram": [
        (lambda a, w: np.histogram(a, 3, (-1, 2), weights=w, density=True)[0],
         lambda a, w: a.histogram(3, (-1, 2), w, density=True)[0], (A, B)),
    ],
    "`np.quantile": [
        (lambda a: np.quantile(a, 0.3, 1), lambda a: a.quantile(0.3, 1), (A,)),
        (lambda a: np.median(a, 1), lambda a: a.median(1), (M,)),
    ],
    "`np.tril`": each("tril triu", M),
    '`a.astype("f4")`': [
        (lambda a: a.astype("f4"), lambda a: a.cast(dtypes.float32), (N,)),
        (lambda a: a.view("i4"), lambda a: a.bitcast(dtypes.int32), (A,)),
    ],
    "softmax": [
        (lambda a: special.softmax(a, -1), lambda a: a.softmax(), (A,)),
        (lambda a: special.log_softmax(a, -1), lambda a: a.log_softmax(), (A,)),
        (normal, lambda a: a.layer_norm(), (M,)),
        (lambda a: a / np.sqrt((a * a).mean(-1)[:, None] + 1e-5), lambda a: a.rms_norm(), (M,)),
        (lambda i: np.eye(4, dtype="i4")[i], lambda i: i.one_hot(4), (K,)),
        (lambda a: np.maximum(a, 0), lambda a: a.relu(), (A,)),
        (lambda a: a * (1 + special.erf(a / np.sqrt(2))) / 2, lambda a: a.gelu(), (A,)),
        (lambda a: a * _SIGMOID(a), lambda a: a.silu(), (A,)),
        (_SIGMOID, lambda a: a.sigmoid(), (A,)),
    ],
    "convolution": [
        (convolved, lambda a, w: a.conv2d(w), (IMAGE, IMAGE[:, :, 1:, 1:].copy() / 16)),
        (convolved, lambda a, w: a.conv(w), (IMAGE, IMAGE[:, :, 1:, 1:].copy() / 16)),
        (lambda a: pooled(a, np.max), lambda a: a.max_pool(2), (IMAGE,)),
        (lambda a: pooled(a, np.mean), lambda a: a.avg_pool(2), (IMAGE,)),
    ],
    "`np.fft.rfft": [
        (lambda a: pairs(np.fft.rfft(a)), lambda a: a.rfft(), (M,)),
        (lambda a: pairs(np.fft.fft(a[..., 0] + 1j * a[..., 1])), lambda a: a.fft(),
         (np.stack([M, 1 - M], -1),)),
        (lambda a: np.fft.irfft(np.fft.rfft(a) * 2), lambda a: (a.rfft() * 2).irfft(), (M,)),
    ],
    "`scipy.ndimage.zoom": [(
        lambda a: ndimage.zoom(a, (2, 3), order=1),
        lambda a: a.resize((6, 12), coordinates="align_corners"), (M,),
    )],
}
# fmt: on
CASES = [(start, i, *case) for start, cases in ROWS.items() for i, case in enumerate(cases)]
# Rows about programs, which need no table: the two tests at the end.
OTHERS = ("`a[1:3] = v`", "`f(a, out=b)`")


def test_every_row_is_here():
    _, _, rest = PAGE.read_text("utf-8").partition("## Counterparts of NumPy's functions")
    table = rest.partition("\n## ")[0]
    rows = [line[2:] for line in table.splitlines() if line.startswith("| ")][1:]
    starts = (*ROWS, *OTHERS)
    assert len(rows) == len(starts)
    assert all(any(row.startswith(s) for s in starts) for row in rows), rows
    assert all(any(row.startswith(s) for row in rows) for s in starts), starts


@pytest.mark.parametrize(
    ("numpy", "ours", "arrays"), [c[2:] for c in CASES], ids=[f"{c[0]} {c[1]}" for c in CASES]
)
@pytest.mark.few(73)
def test_the_two_spellings_agree(numpy, ours, arrays):
    params = [
        uopc.param(f"a{i}", a.shape, dtypes.from_numpy(a.dtype)) for i, a in enumerate(arrays)
    ]
    got = uopc.compile(ours(*params), inputs=[p.arg.name for p in params])(*arrays)
    expected = np.asarray(numpy(*arrays))
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)


def test_an_assignment():
    a = uopc.param("a", (2, 3))
    memory, expected = A.copy(), A.copy()
    uopc.compile(a[:, 1:3].assign(7.0))(memory)
    expected[:, 1:3] = 7.0
    np.testing.assert_array_equal(memory, expected)


def test_out():
    f, out = uopc.compile(uopc.param("a", (2, 3)) + 1), np.zeros((2, 3), "f4")
    assert f(A, out=out) is out
    np.testing.assert_array_equal(out, A + 1)
