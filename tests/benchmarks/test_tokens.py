"""`benchmarks/tokens.py`: the sides that run the same weights find the same logits."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests import ROOT

SCRIPT = ROOT / "benchmarks" / "tokens.py"


@pytest.mark.slow
def test_sides_agree() -> None:
    pytest.importorskip("torch")
    arguments = ["--small", "--threads", "1", "--rounds", "2", "--position", "20"]
    command = [sys.executable, str(SCRIPT), *arguments]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in shown.splitlines()]
    found = {row[0]: row for row in rows if row}
    limits = {"uopc": 0.0, "torch": 1e-5}
    if find_spec("ctransformers"):
        limits["ctransformers"] = 1e-3  # ggml reads its gelu from a table of float16
    if find_spec("xllamacpp") and find_spec("gguf"):
        limits["llama.cpp"] = 1e-3  # the same; keys and values are float16
    for side, limit in limits.items():
        assert float(found[side][-1]) <= limit, side
    assert all(float(row[3]) > 0 for side, row in found.items() if side in limits)
