"""NumPy meets a UOp: its functions build graphs, and it makes no array of one.

`uopc.numpy` has the functions; it is imported when NumPy first asks.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

from uopc.errors import UserTypeError
from uopc.ir.core.uop import UOp

_FUNCTIONS = "uopc.numpy.protocols"


def array_ufunc(a: UOp, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """The graph of a NumPy ufunc: `np.sin(x)`, `array + x`."""
    return import_module(_FUNCTIONS).array_ufunc(a, ufunc, method, *inputs, **options)


def array_function(
    a: UOp, function: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """The graph of another function of NumPy: `np.stack([x, y])`."""
    return import_module(_FUNCTIONS).array_function(a, function, types, args, options)


def array_namespace(a: UOp, /, *, api_version: str | None = None) -> Any:
    """The functions of the Array API for UOps: `uopc.numpy`."""
    return import_module(_FUNCTIONS).array_namespace(a, api_version=api_version)


def array(a: UOp, dtype: Any = None, copy: Any = None) -> NoReturn:
    """Refused: a graph has no value before it is compiled and called."""
    raise UserTypeError("a UOp has no value: compile the graph, and call the program with arrays")
