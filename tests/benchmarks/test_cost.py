"""Predicted beside measured times: cases, families, lists of a kernel, and the report."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import pytest

import uopc

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def cost():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("cost")
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_every_kind_and_workload_has_a_family(cost):
    assert cost.family_of("gemm_256") == cost.family_of("own_gemm_thin") == "products"
    assert cost.family_of("conv2d_3x3_64") == "convolutions"
    assert cost.family_of("max_axis1_odd") == "reductions"
    assert cost.family_of("max_pool_112") == "stencils"
    assert cost.family_of("chain_4m") == "elementwise"
    kinds = {cost.family_of(kind) for kind in cost.random_shapes.KINDS}
    assert kinds <= {*cost.FAMILIES.values(), "elementwise"} and len(kinds) == 8


def test_cases_are_those_of_the_command_line(cost):
    assert list(cost.cases(["3", "7:9"])) == [("drawn", "3"), ("drawn", "7"), ("drawn", "8")]
    assert [key for _, key in cost.cases(["benchmarks"])][-1] == "own_turned_f64"
    every = list(cost.cases([]))
    assert {where for where, _ in every} == set(cost.SETS) and len(every) == len(set(every))


def test_the_lists_of_a_kernel_are_predicted_and_timed(cost, monkeypatch):
    monkeypatch.setattr(cost, "LISTS", 3)
    (found,) = cost.kernels_of(uopc.param("x", (300, 200)) * 2.0)
    assert len(found.predicted) == len(found.measured) >= 1
    assert all([0 < t < 1 for t in (*found.predicted, *found.measured)])


def test_a_kernel_of_the_corpus_has_its_recorded_lists(cost, monkeypatch):
    monkeypatch.setattr(cost, "SAMPLES", 1)
    monkeypatch.setattr(cost, "LISTS", 1)
    key = next(key for key in cost.corpus() if cost.of_corpus(key).kernels[0].measured)
    found = cost.of_corpus(key)
    assert found.family and 1 <= len(found.kernels[0].measured) <= 2


def test_the_report_counts_pairs_and_says_what_pytorch_beats(cost):
    kernel = cost.KernelTimes("r", [1.0, 2.0, 9.0], [1.0, 2.0, 1.5])
    records = [
        cost.Measured("drawn", "1", "rows", [kernel], 3.0, 2.0),
        cost.Measured("drawn", "2", "rows", [cost.KernelTimes("e", [], [])], 1.0, 2.0),
    ]
    text = "\n".join(cost.report(records))
    assert "| rows | 1 | 3 | 3 | 67 | 1.000 | 1.00 | 1.00 |" in text
    mean = math.sqrt(1.5 * 0.5)
    assert f"{mean:.2f} of its time" in text and "1.50 at worst; above 1.1: 1." in text
    assert next(iter(cost.page(records))) == "# Predicted and measured times"
