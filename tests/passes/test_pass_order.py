"""A pipeline that is out of order is an error that names the passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import uopc
from uopc import passes
from uopc.passes.pass_manager import run_pass

(FIRST, A), (SECOND, B), *REST = passes.PIPELINE


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PIPELINE", ((FIRST, A), (FIRST, B), *REST), f"{FIRST} {B.name} stands below"),
        ("ORDER", (("linearise", "expand", ""),), "ORDER names linearise"),
        ("PIPELINE", ((1, passes.PIPELINE[-1][1]), (2, A)), "gives linear, .* takes tensor"),
        ("PIPELINE", ((1, A), (2, replace(B, conditions=()))), f"{B.name} is needed"),
    ],
)
def test_what_is_out_of_order(monkeypatch: Any, name: str, value: Any, words: str) -> None:
    if len(value) == 2:
        monkeypatch.setattr(passes, "ORDER", ())
    monkeypatch.setattr(passes, name, value)
    with pytest.raises(ImportError, match=words):
        passes._check()


def test_a_pass_that_forgets_its_return(monkeypatch: Any) -> None:
    nothing: Any = None
    monkeypatch.setattr(A.module, A.name, lambda graph, context: nothing)
    with pytest.raises(uopc.InvalidIR, match=f"the pass {A.name} gave None"):
        run_pass(A, nothing, nothing)
