"""Applications answer as with ONNX Runtime if `uopc.onnx` has its name."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from tests import ROOT
from tests.onnx.applications import APPLICATIONS


def answers(name: str, runtime: str) -> Any:
    command = [sys.executable, "-W", "ignore", "-m", "tests.onnx.applications", name, runtime]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    return json.loads(made.stdout.splitlines()[-1])


def same(a: Any, b: Any) -> bool:
    """True for equal answers, in which numbers may differ a little."""
    if isinstance(a, float):
        return abs(a - b) < 1e-3
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.slow
@pytest.mark.parametrize("name", APPLICATIONS)
def test_the_answers_are_the_same(name: str) -> None:
    for package in (name, "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install uopc[applications]")
    made, wanted = answers(name, "uopc"), answers(name, "onnxruntime")
    assert wanted
    assert same(made, wanted), f"{made}\n{wanted}"
