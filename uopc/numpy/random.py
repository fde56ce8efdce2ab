"""Random numbers: functions of a key; the same key always gives the same numbers.

A key is a uint32 array of shape (2,), made by `key`. Use a key once; `split` and `fold_in` make new
keys. `shape` is a size or several, ints or variables. If an argument is an Array, as the key in a
function of `jit`, these functions return Arrays, else UOps. UserTypeError for anything that is no
key. See `uopc.tensor.random` for the generator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from uopc.numpy.array import Array, same_kind, uop_of
from uopc.tensor import distributions, random

__all__ = sorted([*random.__all__, *distributions.__all__])


def _lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def lifted(*args: Any, **named: Any) -> Any:
        given = (*args, *named.values())
        if not any(isinstance(v, Array) for v in given):
            return function(*args, **named)
        plain = [uop_of(v) if isinstance(v, Array) else v for v in args]
        rest = {k: uop_of(v) if isinstance(v, Array) else v for k, v in named.items()}
        return same_kind(function(*plain, **rest), given)

    lifted.__module__ = __name__
    return lifted


globals().update({n: _lifted(getattr(m, n)) for m in (random, distributions) for n in m.__all__})
