"""Functions of sums that stand side by side are computed in vectors, with the bits of numbers.

A single term of a sum that is left beside its lanes is another matter: `fuse-products` sees one
product of a vector in place of several, and fuses it or not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import uopc
from tests.machines import described
from uopc import UOp, dtypes
from uopc.ir.core.ops import Ops
from uopc.passes.expand import expand

RNG = np.random.default_rng(4)
LENGTH = 37  # of a sum: no vector divides it, and five terms are left


def _inputs(rows: int, t: dtypes.DType) -> dict[str, np.ndarray]:
    a, x, b = RNG.standard_normal((rows, LENGTH)), RNG.standard_normal(LENGTH), np.arange(rows)
    return {n: (v / 8).astype(t.numpy) for n, v in zip("axb", (a, x, b))}


def _sums(arrays: dict[str, np.ndarray]) -> tuple[UOp, UOp]:
    """A product with a vector, and an array of its shape."""
    a, x, b = [uopc.param(n, v.shape, dtypes.from_numpy(v.dtype)) for n, v in arrays.items()]
    return a @ x, b


# Functions of the sums s and the array b, here and by NumPy.
AFTER: dict[str, tuple[Callable[..., UOp], Callable[..., np.ndarray]]] = {
    "activation": (lambda s, b: (s + b).tanh(), lambda s, b: np.tanh(s + b)),
    "one number": (lambda s, b: s.exp() / (b[3] + 2), lambda s, b: np.exp(s) / (b[3] + 2)),
    "turned": (lambda s, b: (s * b.flip(0)).exp(), lambda s, b: np.exp(s * b[::-1])),
    "chosen": (
        lambda s, b: (s > 0).where(s.exp(), b.sin() - 1),
        lambda s, b: np.where(s > 0, np.exp(s), np.sin(b) - 1),
    ),
    "compared": (lambda s, b: (s.sin() + b) > 0.5, lambda s, b: (np.sin(s) + b) > 0.5),
    "whole": (
        lambda s, b: (s.exp() * 100 + b).cast(dtypes.int32),
        lambda s, b: (np.exp(s) * 100 + b).astype("i4"),
    ),
    "positions": (
        lambda s, b: (s + uopc.arange(b.shape[0]).cast(b.dtype) * b).tanh(),
        lambda s, b: np.tanh(s + np.arange(b.size) * b),
    ),
    "twice": (lambda s, b: (s + b).tanh() * s.exp(), lambda s, b: np.tanh(s + b) * np.exp(s)),
}


CASES = [
    *[(name, t, "laptop", 13) for name in AFTER for t in ("f4", "f8")],
    *[("activation", t, "workstation", n) for t in ("f4", "f8") for n in (8, 31)],
    *[("activation", t, "old", 9) for t in ("f4", "f8")],
    *[("chosen", "f4", "laptop", n) for n in (1, 7, 8, 16, 64)],
]


@pytest.mark.parametrize(("name", "t", "machine", "rows"), CASES)
@pytest.mark.few(4)
def test_the_bits_are_those_of_numbers(
    name: str, t: str, machine: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For rows that fill vectors, and for those of which some are left."""
    ours, numpys = AFTER[name]
    arrays = _inputs(rows, dtypes.from_numpy(np.dtype(t)))
    graph = ours(*_sums(arrays))
    with described(machine), uopc.options(programs=0, cache_dir=""):
        got = uopc.compile(graph, verify=True)(**arrays)
        monkeypatch.setattr(expand, "together", lambda bodies, register: bodies)
        numbers = uopc.compile(graph)(**arrays)
    np.testing.assert_array_equal(got, numbers)
    wanted = numpys(arrays["a"].astype("f8") @ arrays["x"], arrays["b"])
    if got.dtype.kind == "f":
        np.testing.assert_allclose(got, wanted, rtol=1e-4 if t == "f4" else 1e-12, atol=1e-6)
    else:
        assert np.count_nonzero(got != wanted) <= 1  # sums are rounded in another order


def test_each_function_is_of_a_vector() -> None:
    """16 sums of float64 take four vectors of 256 bits."""
    arrays = _inputs(16, dtypes.float64)
    with described("laptop"):
        s, b = _sums(arrays)
        (kernel,) = uopc.compile((s + b).tanh(), threads=1).kernels
    divisions = [u for u in kernel.uops.src if u.op is Ops.FDIV]
    assert divisions and all(u.dtype.lanes == 4 for u in divisions)


def test_cheap_operations_stay_as_they_are() -> None:
    """A sum and a maximum cost less than putting numbers into a vector."""
    arrays = _inputs(16, dtypes.float64)
    with described("laptop"):
        s, b = _sums(arrays)
        (kernel,) = uopc.compile((s + b).relu(), threads=1).kernels
    assert all(u.src[1].dtype.lanes == 1 for u in kernel.uops.src if u.op is Ops.STORE)


@pytest.mark.parametrize("n", [1, 7, 8, 11])
def test_rows_of_a_symbolic_number(n: int) -> None:
    rows = uopc.variable("n", 1, 20)
    a, x = uopc.param("a", (rows, LENGTH)), uopc.param("x", (LENGTH,))
    given = RNG.standard_normal((n, LENGTH)).astype("f4"), RNG.standard_normal(LENGTH).astype("f4")
    got = uopc.compile((a @ x).tanh(), verify=True)(*given)
    np.testing.assert_allclose(got, np.tanh(given[0] @ given[1]), rtol=1e-4, atol=1e-5)


def test_rows_that_do_not_lie_side_by_side() -> None:
    """Results in columns, and several results of one loop."""
    a, x = uopc.param("a", (16, LENGTH)), uopc.param("x", (LENGTH, 3))
    given = RNG.standard_normal((16, LENGTH)).astype("f4"), np.ones((LENGTH, 3), "f4")
    sums = given[0] @ given[1]
    s = a @ x
    got = uopc.compile([s.tanh().transpose(), s.exp().sum(), (s[:, 0] / 8).exp()], verify=True)
    everything = np.tanh(sums).T, np.exp(sums).sum(), np.exp(sums[:, 0] / 8)
    for value, wanted in zip(got(*given), everything):
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)
