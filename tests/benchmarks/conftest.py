"""Peers set up the process that measures them; a test gives its process back as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def settings_of_torch() -> Iterator[None]:
    """Restores PyTorch's derivatives and threads, which its peer sets for the whole process."""
    before = sys.modules.get("torch")
    threads = before.get_num_threads() if before else None
    yield
    if torch := sys.modules.get("torch"):
        torch.set_grad_enabled(True)
        if threads:
            torch.set_num_threads(threads)
