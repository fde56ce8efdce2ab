"""NumPy's protocols on a UOp: NumPy's functions build graphs, and never make an array of a UOp.

`uopc.numpy` has the functions; it is imported when NumPy first asks.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NoReturn

from uopc.errors import UserAttributeError, UserTypeError
from uopc.ir.core.uop import UOp
from uopc.tensor import examples

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
    """Refuse: a graph has no value before it is compiled and called."""
    raise UserTypeError("a UOp has no value: compile the graph, and call the program with arrays")


def contains(a: UOp, value: Any) -> NoReturn:
    """Refuse: `value in a` would compare UOps as objects."""
    raise UserTypeError("v in x: a UOp has no values to search; write x.eq(v).any()")


# Names of NumPy's arrays (and PyTorch's) that a UOp lacks, and what to write instead.
OF_ARRAYS: Final = {
    "view": "x.reshape(shape), or x.bitcast(dtype) for the same bits", "dot": "x @ y",
    "realize": "uopc.compile(x)(): a graph is computed by its program",
    "half": "x.cast(uopc.dtypes.float16)", "float": "x.cast(uopc.dtypes.float32)",
    "double": "x.cast(uopc.dtypes.float64)",
    "sequential": "f(g(x)): a function of a UOp gives the next",
    "item": "float(program(...))", "tolist": "program(...).tolist()",
    "numpy": "program(...), which gives NumPy arrays", "fill": "uopc.full(x.shape, value)",
    "ravel": "x.flatten()", "swapaxes": "x.transpose(i, j)", "mT": "x.transpose(-2, -1)",
    "repeat": "numpy.repeat(x, n)", "trace": "numpy.trace(x)", "diagonal": "numpy.diagonal(x)",
    "real": "x: there are no complex numbers", "conj": "x: there are no complex numbers",
    "nbytes": "x.size * x.dtype.itemsize", "itemsize": "x.dtype.itemsize",
}  # fmt: skip


def missing(name: str, instead: str) -> property:
    """An attribute that a UOp lacks: raises UserAttributeError, so that `hasattr` is False."""

    def refuse(a: UOp) -> NoReturn:
        message = f"a UOp has no {name}: write {instead}"
        raise UserAttributeError(message, name)

    doc = f"Refused: write {instead}." + examples.section(
        f">>> uopc.zeros((2, 3)).{name}",
        "Traceback (most recent call last):",
        f"uopc.errors.UserAttributeError: a UOp has no {name}: write {instead}",
    )
    return property(refuse, doc=doc)
