"""The work of a compile grows no faster with a graph than the table of corners allows."""

from __future__ import annotations

import sys

import pytest

from tests import ROOT

sys.path.append(str(ROOT / "benchmarks"))
from corners import CORNERS, Counts, counted, measured, selections


@pytest.mark.parametrize("name", CORNERS)
@pytest.mark.few(4)
def test_exponents(name: str) -> None:
    corner = CORNERS[name]
    _, made, walked = measured(corner)
    assert made <= corner.made and walked <= corner.walked


def test_counts_are_the_same_each_time() -> None:
    first, second = counted(selections(8)), counted(selections(8))
    assert first.nodes == second.nodes > 40
    assert all([isinstance(n, int) and n > first.nodes for n in (*first[1:], *second[1:])])
    assert type(first) is Counts
