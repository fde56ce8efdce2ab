"""Names and docstrings of functions that factories make. One example serves the UOp method, the
function of `uopc.numpy` and the method of Array of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

Example: TypeAlias = tuple[str, str, str]  # an array x, the arguments after it, and the result
ROWS: Final[dict[str, tuple[str, str, str]]] = {
    "quantile": ("[1.0, 2.0, 4.0]", "0.25", "array(1.5)"),
    "percentile": ("[1.0, 2.0, 4.0]", "25", "array(1.5)"),
    "trace": ("[[1, 2], [3, 4]]", "", "array(5)"),
    "nanquantile": ("[1.0, np.nan, 2.0, 4.0]", "0.25", "array(1.5)"),
    "nanpercentile": ("[1.0, np.nan, 2.0, 4.0]", "25", "array(1.5)"),
    "astype": ("[2.7, -2.7]", "unp.int32", "array([ 2, -2], dtype=int32)"),
    "diagonal": ("[[1, 2], [3, 4]]", "", "array([1, 4])"),
    "dot": ("[1, 2, 3]", "np.array([1, 0, 10])", "array(31)"),
    "repeat": ("[1, 2]", "2", "array([1, 1, 2, 2])"),
    "reshape": ("[[1], [2]]", "(1, 2)", "array([[1, 2]])"),
    "swapaxes": ("[[1], [2]]", "0, 1", "array([[1, 2]])"),
    "transpose": ("[[1], [2]]", "", "array([[1, 2]])"),
}


def with_name(
    function: Callable[..., Any], owner: type | str, name: str, doc: str | None = None
) -> Callable[..., Any]:
    """Give a function made by a factory its public name, as a method of a class or a function of a
    module, so that documentation finds it there; and its docstring, if one is given."""
    if isinstance(owner, type):
        function.__module__, function.__qualname__ = owner.__module__, f"{owner.__name__}.{name}"
    else:
        function.__module__, function.__qualname__ = owner, name
    function.__name__ = name
    if doc is not None:
        function.__doc__ = doc
    return function


def section(*lines: str) -> str:
    """Format the lines of a session as the end of a docstring."""
    return "\n\nExamples:" + "".join([f"\n    {line}" for line in "\n".join(lines).splitlines()])


def of_method(name: str, example: Example, several: bool = False) -> str:
    """The example of a method of UOp; `several`: the method returns several arrays."""
    x, rest, result = example
    call = f"uopc.compile(x.{name}({rest}))()"
    call = f"[v.tolist() for v in {call}]" if several else call
    return section(f">>> x = uopc.constant({x})", f">>> {call}", result)


def of_function(name: str, example: Example, several: bool = False) -> str:
    """The example of a function of `uopc.numpy`; `several`: it returns several arrays."""
    x, rest, result = example
    call = f"unp.{name}(x, {rest})" if rest else f"unp.{name}(x)"
    call = f"[v.tolist() for v in {call}]" if several else f"np.asarray({call})"
    return section(f">>> x = unp.asarray({x})", f">>> {call}", result)


def of_array(name: str, example: Example) -> str:
    """The example of a method of Array."""
    x, rest, result = example
    call = f"np.asarray(x.{name}({rest}))"
    return section(f">>> x = unp.asarray({x})", f">>> {call}", result)
