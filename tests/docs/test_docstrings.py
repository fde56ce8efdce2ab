"""Every public name has an example, and the examples in docstrings show what runs."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import importlib.util
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from tests.public_names import documented, public
from uopc.tensor.table import EXAMPLES

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# An example need not import these: `docs/api.md` says so.
NAMES = {"np": np, "uopc": uopc, "unp": unp, "dtypes": uopc.dtypes}
# One ends the process, one needs einops, one begins a job of MPI; none has examples.
NOT_IMPORTED = ("uopc.__main__", "uopc.tracing.einops_backend", "uopc.backends.exchange.mpi",
                "uopc.backends.exchange.gloo", "uopc.backends.exchange.dask_tasks")  # fmt: skip
HAS_CASADI = importlib.util.find_spec("casadi") is not None
# Parts of the package, so that processes share the work; the last: all the rest.
PARTS = ("uopc.ir", "uopc.numpy", "uopc.program", "uopc.tensor", "uopc")


def in_modules() -> Iterator[doctest.DocTest]:
    """Those of the functions and classes that a file defines."""
    finder = doctest.DocTestFinder()
    for found in pkgutil.walk_packages(uopc.__path__, "uopc."):
        missing = found.name.startswith("uopc.casadi") and not HAS_CASADI
        if found.name not in NOT_IMPORTED and not missing:
            yield from finder.find(importlib.import_module(found.name), globs=NAMES)


def of_names(known: set[str]) -> Iterator[doctest.DocTest]:
    """Those that doctest finds in no file: of cached properties before Python 3.13, say."""
    for name, found in public():
        doc = inspect.getdoc(found) or ""
        if doc not in known:
            known.add(doc)
            yield doctest.DocTestParser().get_doctest(doc, dict(NAMES), name, None, None)


@functools.cache
def collected() -> dict[str, list[doctest.DocTest]]:
    tests: dict[str, list[doctest.DocTest]] = {part: [] for part in PARTS}
    known: set[str] = set()
    for test in in_modules():
        doc = inspect.cleandoc(test.docstring)
        if test.examples and doc not in known:  # `uopc.random` has functions of `uopc.tensor`
            known.add(doc)
            tests[next(p for p in PARTS if test.name.startswith(p))].append(test)
    tests["uopc"] += [test for test in of_names(known) if test.examples]
    return tests


@pytest.mark.parametrize("part", PARTS)
def test_examples_run(part: str) -> None:
    report: list[str] = []
    for test in collected()[part]:
        doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=report.append)
    assert not report, "".join(report)
    assert len(collected()[part]) > 10


def calls(name: str, found: Any) -> bool:
    """True if an example shows a result, and uses the name or that of the function behind it."""
    parsed = doctest.DocTestParser().get_examples(inspect.getdoc(found) or "")
    own = getattr(documented(found), "__name__", "")
    words = {re.escape(n) for n in (name.rsplit(".", 1)[-1], own) if n}
    uses = re.compile(rf"\b(?:{'|'.join(words)})\b")
    shows = any(example.want or example.exc_msg for example in parsed)
    of_class = inspect.isclass(documented(found))  # an example of its objects
    return shows and (of_class or any(uses.search(example.source) for example in parsed))


def test_each_public_name_has_an_example() -> None:
    names = dict(public())
    assert len(names) > 500
    assert [name for name, found in names.items() if not calls(name, found)] == []


def raised(found: Any) -> set[str]:
    """The classes of errors that a function raises itself."""
    function = documented(found)
    if inspect.isclass(function):
        return set()
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # a value, or made where there is no file
        return set()
    kinds = [n.exc for n in ast.walk(tree) if isinstance(n, ast.Raise)]
    calls = [kind.func if isinstance(kind, ast.Call) else kind for kind in kinds]
    names = {getattr(c, "id", getattr(c, "attr", "")) for c in calls} - {"", "AttributeError"}
    return {"UserError" if name == "SizesDiffer" else name for name in names}


def test_each_public_name_says_which_errors_it_raises() -> None:
    """Methods of Array name the function of `uopc.numpy` whose errors are theirs."""
    wrong = {}
    for name, found in public():
        doc = inspect.getdoc(found) or ""
        unnamed = {kind for kind in raised(found) if kind not in doc}
        if unnamed and "The same as `uopc.numpy." not in doc:
            wrong[name] = unnamed
    assert wrong == {}


@pytest.mark.parametrize("name", [n for n in EXAMPLES if hasattr(np, n)])
def test_examples_of_tables_are_those_of_numpy(name: str) -> None:
    """The results that NumPy's function of that name gives, where it has one."""
    x, rest, result = EXAMPLES[name]
    if name == "astype":
        rest = rest.replace("unp", "np")
    call = f"np.{name}(np.array({x}), {rest})"
    assert repr(np.asarray(eval(call, dict(NAMES)))) == result
