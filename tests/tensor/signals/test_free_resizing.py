"""Resizing an axis of free size: one program gives what programs for each size give."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import uopc
from uopc.errors import UserError

N, M = uopc.variable("n", 1, 40), uopc.variable("m", 1, 80)
NEAREST = [{"mode": "nearest", "rounding": r} for r in (
    "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")]  # fmt: skip
MEANS: list[dict[str, Any]] = [{"mode": m, "exclude_outside": e} for m in ("linear", "cubic")
                               for e in (False, True)]  # fmt: skip
COORDINATES = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "tf_half_pixel_for_nn",
               "asymmetric", "align_corners")  # fmt: skip
SCALES: list[dict[str, Any]] = [
    {"scales": [2.0]},
    {"scales": [0.6]},
    {"scales": [1.0]},
    {"sizes": [M]},
    {"sizes": [7]},
]


@pytest.mark.parametrize(
    "how, coordinates", list(itertools.product([*NEAREST, *MEANS], COORDINATES))
)
@pytest.mark.few(5)
def test_a_free_axis_is_resized_as_a_fixed_one(how: dict[str, Any], coordinates: str) -> None:
    free = [uopc.param("x", (2, N)).resize(coordinates=coordinates, **how, **to) for to in SCALES]
    f = uopc.compile(free)
    for n, m in ((2, 9), (5, 1), (13, 13)):
        x = np.random.default_rng(n).standard_normal((2, n)).astype("f4")
        fixed = [{k: [m if v is M else v for v in to[k]] for k in to} for to in SCALES]
        same = [uopc.constant(x).resize(coordinates=coordinates, **how, **to) for to in fixed]
        for got, want in zip(f(x, m=m), uopc.compile(same)(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize(
    "how", [*NEAREST, *MEANS], ids=lambda how: "-".join(map(str, how.values()))
)
def test_an_axis_that_keeps_its_size_keeps_its_elements(
    how: dict[str, Any], coordinates: str
) -> None:
    x = np.random.default_rng(0).standard_normal((2, 7)).astype("f4")
    for to in ({"sizes": [7]}, {"sizes": [N]}, {"scales": [1.0]}):
        f = uopc.compile(uopc.param("x", (2, N)).resize(coordinates=coordinates, **how, **to))
        np.testing.assert_allclose(f(x), x, rtol=1e-6)


def test_means_over_all_that_is_left_out() -> None:
    x = np.random.default_rng(0).standard_normal((2, 11)).astype("f4")
    f = uopc.compile(uopc.param("x", (2, N)).resize(scales=[0.5], antialias=True))
    want = uopc.compile(uopc.constant(x).resize(scales=[0.5], antialias=True))()
    np.testing.assert_allclose(f(x), want, atol=1e-5)
    with pytest.raises(UserError, match="antialias needs a number as the scale of axis 1"):
        uopc.param("x", (2, N)).resize([M], antialias=True)
    with pytest.raises(UserError, match="crop needs numbers as sizes"):
        uopc.param("x", (2, N)).resize(scales=[2.0], crop=[(0.5, 1.0)])
