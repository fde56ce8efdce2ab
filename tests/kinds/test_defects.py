"""The planted defects of `python -m tests.defects` fit the code as it is."""

from __future__ import annotations

import ast

import pytest

from tests import defects


@pytest.mark.parametrize("defect", defects.DEFECTS, ids=lambda d: d.name)
def test_a_defect_can_be_planted(defect):
    """Its place is there once, and the file is still Python with the defect in it."""
    assert defects.occurrences(defect) == 1
    text = (defects.ROOT / defect.file).read_text("utf-8")
    ast.parse(text.replace(defect.right, defect.wrong))
    for name in defect.area:
        assert (defects.ROOT / "tests" / name).exists()


def test_there_are_enough():
    assert len(defects.DEFECTS) >= 20
    assert len({d.name for d in defects.DEFECTS}) == len(defects.DEFECTS)
