from __future__ import annotations
from typing import Any
def run_kernel(*a: Any) -> None: ...
def written_slots(*a: Any) -> list[int]: return []
