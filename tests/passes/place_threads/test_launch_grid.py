"""Extents over the dimensions of a launch: every combination once, within the maxima."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance import expression
from uopc.errors import Unsupported
from uopc.ir.core.args import VariableArg
from uopc.ir.core.dtypes import index
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop
from uopc.passes.place_threads.launch_grid import LaunchGrid, grid


def texts(made: LaunchGrid) -> list[str]:
    return [u.render(simplify=False) for u in made.index]


def places(made: LaunchGrid, extents: Sequence[int]) -> list[int]:
    """The flat position of the indices at every place of the launch."""
    grid_index = np.indices(made.sizes).reshape(len(made.sizes), math.prod(made.sizes))
    at = expression.evaluate(made.index, dict(zip(made.names, grid_index)))
    flat = [np.broadcast_to(v[:, 0], grid_index.shape[1]) for v, _ in at]
    return sorted(np.ravel_multi_index(flat, extents)) if flat else [0]


def check(extents: Sequence[int], maxima: Sequence[int] | None, innermost_first: bool) -> None:
    made = grid("g", extents, maxima, innermost_first=innermost_first)
    assert maxima is None or len(made.sizes) <= len(maxima)
    assert all(s <= most for s, most in zip(made.sizes, maxima or made.sizes))
    assert math.prod(made.sizes) == math.prod(extents)
    assert places(made, extents) == list(range(math.prod(extents)))


@pytest.mark.parametrize(
    ("extents", "maxima", "want"),
    [
        ((2, 3, 4), None, ["g0", "g1", "g2"]),
        ((100,), (1024,), ["g0"]),
        ((4, 1, 5), (8, 8), ["g0", "0", "g1"]),
        ((4, 4, 4, 4), (16, 16), ["(g0//4)", "(g0%4)", "(g1//4)", "(g1%4)"]),
        ((2, 2, 2, 2, 2), (4, 4, 4), ["(g0//2)", "(g0%2)", "(g1//2)", "(g1%2)", "g2"]),
        ((), (8,), []),
    ],
)  # fmt: skip
def test_index_expressions(extents, maxima, want):
    assert texts(grid("g", extents, maxima)) == want


def test_innermost_first_puts_the_last_extent_on_dimension_0():
    made = grid("g", (2, 3, 5), (64, 64), innermost_first=True)
    assert texts(made) == ["g1", "(g0//5)", "(g0%5)"]
    assert made.sizes == (15, 2)


@pytest.mark.parametrize("extents", [(128,), (4, 32), (3, 5, 7, 2)])
def test_an_extent_above_the_maxima_is_taken_apart(extents):
    assert math.prod(grid("g", extents, (16, 16)).sizes) == math.prod(extents)
    check(extents, (16, 16), True)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 9), max_size=5),
    st.none() | st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.booleans(),
)
def test_every_combination_occurs_once(extents, maxima, innermost_first):
    if math.prod(extents) > 4000:
        return
    try:
        check(extents, maxima, innermost_first)
    except Unsupported:
        assert not fits(math.prod(extents), maxima)


def fits(total: int, maxima: list[int]) -> bool:
    """True if any sizes within the maxima have that product."""
    if not maxima:
        return total == 1
    first = range(1, maxima[0] + 1)
    return any(fits(total // d, maxima[1:]) for d in first if total % d == 0)


def test_a_product_of_twenty_digits_is_taken_apart_by_its_extents():
    maxima = (2**31 - 1, 65535, 65535)
    assert grid("g", (2**25, 2**25, 2**5), maxima).sizes == (2**30, 2**15, 2**10)
    with pytest.raises(Unsupported, match="do not fit a launch of at most"):
        grid("g", (2**31, 2**31), maxima)


def test_a_prime_above_every_maximum_is_refused():
    with pytest.raises(Unsupported, match=r"extents \(65537\) do not fit a launch of at most"):
        grid("g", (65537,), (65535, 65535, 65535))


def test_symbolic_extents_are_bounded_by_their_greatest_value():
    n = intern(Ops.VARIABLE, index, (), VariableArg("n", 1, 100))
    made = grid("g", (n, 4, 8), (400, 8))
    assert made.sizes[0] is affine.scaled(n, 4)
    assert texts(made) == ["(g0//4)", "(g0%4)", "g1"]
    with pytest.raises(Unsupported):
        grid("g", (n, 4), (64, 64, 64))


def test_dimension_uops_are_taken():
    assert grid("g", (dim_uop(6),), (3, 3)).sizes == (3, 2)
