"""The examples in docstrings run, and show what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections.abc import Iterator

import numpy as np

import uopc
import uopc.numpy as unp

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def examples() -> Iterator[doctest.DocTest]:
    finder, names = doctest.DocTestFinder(), {"np": np, "uopc": uopc, "unp": unp}
    for found in pkgutil.walk_packages(uopc.__path__, "uopc."):
        if found.name != "uopc.__main__":  # it ends the process
            module = importlib.import_module(found.name)
            yield from finder.find(module, globs=names | {"dtypes": uopc.dtypes})


def test_examples_run() -> None:
    ran, report = 0, []
    for test in examples():
        if test.examples:
            ran += 1
            doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=report.append)
    assert not report, "".join(report)
    assert ran >= 16
