"""Arguments of the wrong kind, of every public function and method: each is an error of uopc, and
never an AttributeError, IndexError or TypeError from inside. Python itself refuses a wrong number.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import UOp


class Odd:
    """An object that no function expects."""


ODD: list[Any] = [
    None, "a", Odd(), 1.5, -1, [], {}, ("a", None), b"s", float("nan"), np.array(["a"])
]  # fmt: skip
X = uopc.param("x", (3, 4))
# Python's own refusals of a call: a wrong number of arguments, or an unknown name.
OF_PYTHON = (
    "positional argument", "required", "unexpected keyword", "keyword-only", "no arguments"
)  # fmt: skip
# Walks of compilers, called for each node: they trust their arguments.
TRUSTING = {"toposort", "rtag", "render", "substitute", "Opt"}


def functions() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """By name: a public function, and the arguments before the odd ones."""
    found: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
    array = unp.asarray(np.ones((3, 4), "f4"))
    for title, space, first in (
        ("uopc", uopc, ()), ("random", uopc.random, ()), ("UOp", X, ()), ("Array", array, ()),
        ("numpy", unp, (array,)), ("linalg", unp.linalg, (array,)),
    ):  # fmt: skip
        for name in getattr(space, "__all__", None) or dir(space):
            made = None if name.startswith("_") else getattr(space, name, None)
            if callable(made) and not inspect.isclass(made) and name not in TRUSTING:
                found[f"{title}.{name}"] = made, first
    return found


FUNCTIONS = functions()


def check(function: Callable[..., Any], arguments: tuple[Any, ...], **named: Any) -> None:
    try:
        function(*arguments, **named)
    except uopc.Error:
        pass
    except TypeError as error:
        if not any(words in str(error) for words in OF_PYTHON):
            raise


@pytest.mark.few(100)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_odd_arguments_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # "a" is also the path of a file
    function, first = FUNCTIONS[name]
    for odd in ODD:
        check(function, (*first, odd))
    for pair in itertools.islice(itertools.product(ODD[:7], repeat=2), 0, None, 2):
        check(function, (*first, *pair))


def test_sequences_of_names_and_devices_are_checked() -> None:
    for call in (
        lambda: uopc.jit(lambda a: a, static_argnames=3),
        lambda: uopc.make_mesh((2,), ("m",), devices=3),
        lambda: uopc.PatternMatcher(3),
        lambda: uopc.UPat(3),
        lambda: X.substitute(3),
        lambda: X.sink(3),
        lambda: uopc.graph_rewrite(X, 3),
    ):
        with pytest.raises(uopc.errors.UserTypeError, match="3"):
            call()


def test_two_params_of_one_name_are_named_with_both_lines() -> None:
    other = uopc.param("x", (5,))
    line = inspect.currentframe().f_lineno - 1
    with pytest.raises(uopc.UserError, match=rf"named 'x'(.|\n)*test_odd_arguments.py:{line} "):
        uopc.compile(X.sum() + other.sum())


def test_a_check_would_fail() -> None:
    """An error from inside escapes `check`."""
    with pytest.raises(AttributeError):
        check(lambda u: u.shape, (3,))
    with pytest.raises(TypeError):
        check(lambda u: u + 1, ("a",))
    assert isinstance(X, UOp)
