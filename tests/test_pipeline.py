"""Whole graphs through the whole pipeline, against the interpreter; every stage verified.

`graphs.py` draws graphs whose results are exact in any order, so equality is asked for.
"""

from __future__ import annotations

import numpy as np
import pytest
from graphs import graphs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uopc
from uopc.driver import lower_only
from uopc.ir import interpret

QUICK = settings(
    max_examples=120, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


def run(outputs, arrays, **options):
    program = uopc.compile(outputs, verify=True, **options)
    return program(**{name: a.copy() for name, a in arrays.items()})


def equal(got, wanted):
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)


@QUICK
@given(case=graphs())
def test_compiled_is_interpreted(case):
    outputs, arrays = case
    wanted = interpret.evaluate(outputs, arrays)
    equal(run(outputs, arrays), wanted)


@QUICK
@given(case=graphs())
def test_unoptimised_is_interpreted(case):
    outputs, arrays = case
    equal(run(outputs, arrays, optimize=False), interpret.evaluate(outputs, arrays))
