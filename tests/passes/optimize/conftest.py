"""Kernels as fusion makes them where nothing predicts their cost, for the tests of schedules."""

from __future__ import annotations

import pytest

from uopc.passes import pass_manager


@pytest.fixture
def without_predictions(monkeypatch):
    """Sums that meet, and functions before a sum, are computed in one kernel, because nothing
    predicts that storing them is as fast."""
    monkeypatch.setattr(pass_manager, "kernel_costs", lambda context: None)
