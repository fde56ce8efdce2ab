"""What tests of searches share: no search sees the rows of another one."""

from __future__ import annotations

import pytest

import uopc
from uopc.cache import tuned


@pytest.fixture
def no_rows():
    """No test sees a search of another one."""
    uopc.cache.clear()
    tuned.forget()
    yield
    uopc.cache.clear()
    tuned.forget()
