"""The programs of `views` are as in NumPy, most of them run, and a wrong one is found."""

import numpy as np
import pytest

from tests.fuzz import views


@pytest.mark.parametrize("n", range(12))
def test_programs_of_views(n):
    rng = np.random.default_rng((7, n))
    assert views.differs(views.program(rng), rng) == ""


def test_most_programs_are_programs_of_numpy():
    ran = 0
    for n in range(200):
        names = {"np": np}
        exec(views.program(np.random.default_rng((7, n))), names)
        try:
            names["f"](np.ones((3, 4)), np.ones((3, 4)))
        except (IndexError, ValueError, TypeError, AttributeError):
            continue
        ran += 1
    assert ran > 100


def test_a_difference_is_found(monkeypatch):
    monkeypatch.setattr(views.uopc, "jit", lambda f: lambda x, y: f(x.copy(), y))
    text = "def f(x, y):\n    x += 1\n    return x + 0, y + 0"
    assert "NumPy" in views.differs(text, np.random.default_rng(0))
