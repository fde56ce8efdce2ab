"""`benchmarks/export.py`: its sides compute the same, and its tables say what was measured."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import ROOT
from tests.exporting.test_c import CC, has_fma

sys.path.append(str(ROOT / "benchmarks"))

import export as benchmark

pytestmark = pytest.mark.skipif(CC is None or not has_fma(), reason="there is no gcc, or no AVX2")


def test_sides_compute_what_numpy_does(tmp_path: Path) -> None:
    """Sides differ by little, and one that differs by more is an error."""
    job = benchmark.jobs()["eight sines"]
    found = benchmark.sides("eight sines", job, tmp_path)
    assert "object" in found and any(label.startswith("C, ") for label in found)
    a, b, c = job.given
    for side in found.values():
        np.testing.assert_allclose(side.out, np.sin(a * b + c) * a, 1e-12, 1e-14)
    job.plain = job.plain.replace("sin", "cos")
    with pytest.raises(AssertionError, match="by hand"):
        benchmark.sides("eight sines", job, tmp_path)


def test_goals_are_judged_by_the_least_times() -> None:
    side = benchmark.Side(None, None, None, 2.0)
    slow = benchmark.Side(None, None, None, 40.0)
    sides = {"object": side, "C, gcc": side, "by hand, gcc": side, "CasADi, gcc": slow}
    times = {"object": (9.0, 1.0), "C, gcc": (9.0, 1.05), "by hand, gcc": (1.0, 0.5),
             "CasADi, gcc": (5.0, 5.0)}  # fmt: skip
    timed = benchmark.Timed(sides, times)
    assert timed.ratio("CasADi", "object") == 5 and timed.compiles("gcc") == 20
    assert math.isnan(timed.ratio("C, clang", "object")) and math.isnan(timed.compiles("clang"))
    text = "\n".join(benchmark.goals(dict.fromkeys("abcd", timed), [("a", 0.5, 9.0)]))
    for row in ("| C by gcc / object, median of four | ≤ 1.1 | 1.05 | met |",
                "| C by clang / object, median of four | ≤ 1.1 | – |  |",
                "| CasADi / object: MLP | ≥ 6 | 5.00 | missed |",
                "| CasADi / C, compile time by gcc: Jacobian | ≥ 15 | 20.00 | met |",
                "| object / C by hand: 8 values | ≤ 1.5 | 2.00 | missed |",
                "| .so without a linker, ms more | ≤ 5 | 0.50 | met |"):  # fmt: skip
        assert row in text
