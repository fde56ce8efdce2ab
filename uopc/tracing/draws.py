"""Random numbers drawn by a traced function: every call of its program would repeat the draw."""

from __future__ import annotations

import inspect
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np


def states(function: Callable[..., Any], static: Mapping[str, Any]) -> list[Any]:
    """The states that decide the next numbers: of the modules if the function names `random` (other
    threads may draw, too), and of generators that it names or has as static arguments."""
    plain = inspect.unwrap(function)
    code = getattr(plain, "__code__", None)
    loaded = "numpy.random" in sys.modules
    found: list[Any] = []
    if code is not None and "random" in code.co_names:
        found.append(random.getstate())
        found.append(pickle.dumps(np.random.get_state(legacy=False)))
    for value in (*static.values(), *_values_named(plain)) if loaded else ():
        if isinstance(value, np.random.Generator):
            found.append(pickle.dumps(value.bit_generator.state))
        elif isinstance(value, np.random.RandomState):
            found.append(pickle.dumps(value.get_state(legacy=False)))
    return found


def _values_named(plain: Callable[..., Any]) -> Iterator[Any]:
    """The values in a function's closure, in the globals that it names, and in its `self`."""
    yield from getattr(getattr(plain, "__self__", None), "__dict__", {}).values()
    for cell in getattr(plain, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    code = getattr(plain, "__code__", None)
    if code is not None:
        known = getattr(plain, "__globals__", {})
        yield from [known[name] for name in code.co_names if name in known]
