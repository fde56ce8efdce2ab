"""The names of uopc in the guide for tinygrad developers exist."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.pages import ROOT
from uopc import UOp, config, dtypes

PAGE = (ROOT / "docs" / "tinygrad.md").read_text("utf-8")
CELLS = re.findall(r"^\| [^|]* \| ([^|]*) \|$", PAGE, re.MULTILINE)
CODE = [code for cell in CELLS for code in re.findall(r"`([^`]*)`", cell)]
QUALIFIED = sorted({m for code in CODE for m in re.findall(r"^uopc(?:\.\w+)+", code)})
VARIABLES = sorted({m for code in CODE for m in re.findall(r"^UOPC_\w+", code)})


def found(name: str) -> object:
    """The object of a dotted name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


@pytest.mark.parametrize("name", QUALIFIED)
def test_a_name_exists(name: str) -> None:
    assert found(name) is not None


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_is_an_option(name: str) -> None:
    assert name in {config.variable(option) for option in vars(config.Options())}


def test_dtypes_and_walks() -> None:
    for name in re.findall(r"`dtypes\.(\w+)`", " ".join(f"`{code}`" for code in CODE)):
        assert getattr(dtypes, name).name
    x = UOp.range(4, 0)
    assert x in x.toposort() and x in x.backward_slice()
