"""The greater and the less of two sizes: one form for equal sizes, with rules that hold for all."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uopc
from uopc.ir.core.shapes import Dim
from uopc.ir.index import closed, dims

N, M = uopc.variable("n", 0, 9), uopc.variable("m", 1, 9)


def test_the_rules_hold_for_all_integers() -> None:
    """By machine: by z3 where it is installed, and for small numbers anyway."""
    for a, b, c in itertools.product(range(-4, 5), repeat=3):
        assert min(a, b) == a + b - max(a, b)
        assert max(a + c, b + c) == max(a, b) + c and min(a + c, b + c) == min(a, b) + c
    z3: Any = pytest.importorskip("z3")
    a, b, c = z3.Ints("a b c")

    def greater(x: Any, y: Any) -> Any:
        return z3.If(x < y, y, x)

    def less(x: Any, y: Any) -> Any:
        return z3.If(x < y, x, y)

    for f in (greater, less):
        found = z3.Solver()
        found.add(
            z3.Not(
                z3.And(
                    less(a, b) == a + b - greater(a, b),
                    f(a + c, b + c) == f(a, b) + c,
                    f(a, b) == f(b, a),
                )
            )
        )
        assert found.check() == z3.unsat


@pytest.mark.parametrize("one, other", [
    (N - dims.minimum(N, 1), dims.maximum(N - 1, 0)),
    (N + M - dims.minimum(N, M), dims.maximum(M, N)),
    (dims.minimum(N + 3, M + 3), dims.minimum(M, N) + 3),
    (dims.maximum(N, 1) + dims.minimum(N, 1), N + 1),
    (dims.minimum(N, M) - dims.minimum(dims.minimum(N, M), 3),
     dims.maximum(dims.minimum(N, M), 3) - 3),
])  # fmt: skip
def test_equal_sizes_have_one_form(one: Dim, other: Dim) -> None:
    assert one is other


LEAVES = st.sampled_from([(N, "n"), (M, "m"), (0, 0), (1, 1), (3, 3), (-2, -2)])


@given(st.data())
def test_drawn_sizes_have_the_values_of_their_terms(data: st.DataObject) -> None:
    def draw(depth: int) -> tuple[Dim, Any]:
        if depth == 0:
            return data.draw(LEAVES)
        (a, f), (b, g) = draw(depth - 1), draw(depth - 1)
        op = data.draw(st.sampled_from(["+", "-", "min", "max", "2"]))
        if op in ("min", "max"):
            made = dims.minimum(a, b) if op == "min" else dims.maximum(a, b)
        else:
            made = a + b if op == "+" else a - b if op == "-" else a * 2
        return made, (op, f, g)

    def value(t: Any, of: dict[str, int]) -> int:
        if not isinstance(t, tuple):
            return of.get(t, t)  # type: ignore[return-value, arg-type]
        a, b = value(t[1], of), value(t[2], of)
        return {"+": a + b, "-": a - b, "min": min(a, b), "max": max(a, b), "2": a * 2}[t[0]]

    made, tree = draw(3)
    for n, m in ((0, 1), (1, 1), (7, 3), (2, 9)):
        of = {"n": n, "m": m}
        assert closed.value(closed.instructions(dims.dim_uop(made)), of) == value(tree, of)


def test_differences_of_neighbours_work_for_a_free_size() -> None:
    x = uopc.param("x", (N,))
    f = uopc.compile(x[1:] - x[:-1])
    for n in (0, 1, 2, 7):
        a = np.arange(n, dtype="f4") ** 2
        np.testing.assert_array_equal(f(a), np.diff(a))
