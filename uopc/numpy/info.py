"""Facts of the namespace, by the inspection functions of the Array API."""

from __future__ import annotations

from typing import Any

from uopc.ir.core import dtypes
from uopc.numpy.dtype_functions import BY_NAME, KINDS


class Info:
    """Facts of the namespace, as `__array_namespace_info__` of the standard gives them.

    Examples:
        >>> info = unp.__array_namespace_info__()
        >>> info.default_dtypes()["integral"]
        dtypes.int64
    """

    def capabilities(self) -> dict[str, Any]:
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
        """The devices of arrays: only "cpu". `jit` and `compile` accept other devices.

        Examples:
            >>> unp.__array_namespace_info__().devices()
            ['cpu']
        """
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The default dtypes of numbers: float64, int64.

        Examples:
            >>> unp.__array_namespace_info__().default_dtypes()
            {'real floating': dtypes.float64, 'integral': dtypes.int64, 'indexing': dtypes.int64}
        """
        del device
        whole = dtypes.int64
        return {"real floating": dtypes.float64, "integral": whole, "indexing": whole}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The dtypes by name: all, those of a kind such as "integral", or of a tuple of kinds.

        Examples:
            >>> unp.__array_namespace_info__().dtypes(kind="real floating")
            {'float32': dtypes.float32, 'float64': dtypes.float64}
        """
        del device
        kinds = ("bool", "numeric") if kind is None else kind
        listed = kinds if isinstance(kinds, tuple) else (kinds,)
        return {n: BY_NAME[n] for k in listed for n in KINDS[k]}


def __array_namespace_info__() -> Info:
    """Facts of the namespace, as the standard's inspection functions give them.

    Examples:
        >>> unp.__array_namespace_info__().default_device()
        'cpu'
    """
    return Info()
