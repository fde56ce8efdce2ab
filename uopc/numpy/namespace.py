"""The names of `uopc.numpy`: functions, dtypes and constants of the Array API and of NumPy."""

from __future__ import annotations

import math as _math
from typing import Any as _Any

from uopc.ir.core import dtypes as _dtypes
from uopc.numpy import linalg
from uopc.numpy.array import Array
from uopc.numpy.creation import *
from uopc.numpy.dtype_functions import *
from uopc.numpy.dtype_functions import BY_NAME as _BY_NAME
from uopc.numpy.dtype_functions import KINDS as _KINDS
from uopc.numpy.elementwise import *
from uopc.numpy.elementwise import FUNCTIONS as _FUNCTIONS
from uopc.numpy.linalg import (
    convolve,
    cross,
    diagonal,
    dot,
    einsum,
    matmul,
    outer,
    tensordot,
    trace,
    vecdot,
)
from uopc.numpy.manipulation import *
from uopc.numpy.reductions import *
from uopc.numpy.reductions import data_dependent as _data_dependent
from uopc.numpy.sorting import *
from uopc.numpy.statistics import *

__array_api_version__ = "2024.12"
e, inf, nan, pi, newaxis = _math.e, _math.inf, _math.nan, _math.pi, None
concatenate = concat
globals().update(_FUNCTIONS | _BY_NAME)
globals().update({n: _data_dependent(n) for n in (
    "nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values",
)})  # fmt: skip
del globals()["bfloat16"]  # no dtype of the standard


class _Info:
    """Facts of the namespace, as `__array_namespace_info__` of the standard gives them.

    Examples:
        >>> info = unp.__array_namespace_info__()
        >>> info.default_dtypes()["integral"]
        dtypes.int64
    """

    def capabilities(self) -> dict[str, _Any]:
        """No shapes that depend on values, no boolean indexing; at most 64 dimensions.

        Examples:
            >>> unp.__array_namespace_info__().capabilities()["boolean indexing"]
            False
        """
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> str:
        """"cpu".

        Examples:
            >>> unp.__array_namespace_info__().default_device()
            'cpu'
        """
        return "cpu"

    def devices(self) -> list[str]:
        """The devices of arrays: "cpu" alone. `jit` and `compile` take others.

        Examples:
            >>> unp.__array_namespace_info__().devices()
            ['cpu']
        """
        return ["cpu"]

    def default_dtypes(self, *, device: _Any = None) -> dict[str, _Any]:
        """The dtypes of numbers without one: float64, int64.

        Examples:
            >>> unp.__array_namespace_info__().default_dtypes()
            {'real floating': dtypes.float64, 'integral': dtypes.int64, 'indexing': dtypes.int64}
        """
        del device
        whole = _dtypes.int64
        return {"real floating": _dtypes.float64, "integral": whole, "indexing": whole}

    def dtypes(self, *, device: _Any = None, kind: _Any = None) -> dict[str, _Any]:
        """The dtypes by name, all or of a kind such as "integral", or of several in a tuple.

        Examples:
            >>> unp.__array_namespace_info__().dtypes(kind="real floating")
            {'float32': dtypes.float32, 'float64': dtypes.float64}
        """
        del device
        kinds = ("bool", "numeric") if kind is None else kind
        listed = kinds if isinstance(kinds, tuple) else (kinds,)
        return {n: _BY_NAME[n] for k in listed for n in _KINDS[k]}


def __array_namespace_info__() -> _Info:
    """Facts of the namespace, as the standard's inspection functions give them.

    Examples:
        >>> unp.__array_namespace_info__().default_device()
        'cpu'
    """
    return _Info()


__all__ = [n for n in globals() if n[0] != "_" or n.startswith("__array")]
__all__.remove("annotations")
