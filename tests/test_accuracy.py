"""The functions are as exact as `docs/accuracy.md` says: a quick look; `tests.ulp` takes more."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import ulp

EACH = list(itertools.product(ulp.LIMITS, ulp.FUNCTIONS))
DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"


@pytest.mark.parametrize("dtype, function", EACH)
def test_within_the_limit(dtype, function):
    error, at = ulp.measure(function, dtype, 6000, every=False)
    assert error <= ulp.LIMITS[dtype][function], at


@pytest.mark.parametrize("dtype, function", EACH)
def test_documented(dtype, function):
    """The table has a row for it, within the limit that is enforced."""
    rows = [line.split("|")[1:-1] for line in DOCUMENT.read_text().splitlines()]
    found = [[c.strip() for c in row] for row in rows if row[:1] == [f" {function} "]]
    (row,) = [row for row in found if row[1] == dtype]
    assert float(row[2]) <= float(row[3]) == ulp.LIMITS[dtype][function]
