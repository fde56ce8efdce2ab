"""Kernels of several sums, for the tests of their schedules."""

from __future__ import annotations

import pytest

from uopc.passes import pass_manager


@pytest.fixture
def sums_together(monkeypatch):
    """Sums that meet are computed in one kernel, because nothing predicts that storing them is as
    fast."""
    monkeypatch.setattr(pass_manager, "kernel_costs", lambda context: None)
