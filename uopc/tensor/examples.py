"""Examples in docstrings: one for the method of UOp, the function of `uopc.numpy` and the method of
Array that have the name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

Example: TypeAlias = tuple[str, str, str]  # an array x, the arguments after it, and the result
ROWS: Final[dict[str, tuple[str, str, str]]] = {
    # Reductions
    "sum": ("[[1, 2], [3, 4]]", "axis=0", "array([4, 6])"),
    "prod": ("[[1, 2], [3, 4]]", "axis=0", "array([3, 8])"),
    "max": ("[[1, 5], [7, 2]]", "axis=1", "array([5, 7])"),
    "min": ("[[1, 5], [7, 2]]", "axis=1", "array([1, 2])"),
    "any": ("[[0, 0], [0, 1]]", "axis=1", "array([False,  True])"),
    "all": ("[[1, 0], [1, 1]]", "axis=1", "array([False,  True])"),
    "argmax": ("[[1, 5], [7, 2]]", "axis=1", "array([1, 0])"),
    "argmin": ("[[1, 5], [7, 2]]", "axis=1", "array([0, 1])"),
    "mean": ("[[1.0, 2.0], [3.0, 6.0]]", "axis=0", "array([2., 4.])"),
    "var": ("[1.0, 2.0, 3.0, 6.0]", "", "array(3.5)"),
    "std": ("[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]", "", "array(2.)"),
    "median": ("[4.0, 1.0, 3.0, 100.0]", "", "array(3.5)"),
    "quantile": ("[1.0, 2.0, 4.0]", "0.25", "array(1.5)"),
    "percentile": ("[1.0, 2.0, 4.0]", "25", "array(1.5)"),
    "trace": ("[[1, 2], [3, 4]]", "", "array(5)"),
    # Running totals
    "cumulative_sum": ("[1, 2, 3]", "include_initial=True", "array([0, 1, 3, 6])"),
    "cumulative_prod": ("[1, 2, 3]", "include_initial=True", "array([1, 1, 2, 6])"),
    "cumsum": ("[[1, 2], [3, 4]]", "", "array([ 1,  3,  6, 10])"),
    "cumprod": ("[[1, 2], [3, 4]]", "", "array([ 1,  2,  6, 24])"),
    # Without NaN
    "nansum": ("[1.0, np.nan, 3.0]", "", "array(4.)"),
    "nanprod": ("[2.0, np.nan, 3.0]", "", "array(6.)"),
    "nancumsum": ("[1.0, np.nan, 3.0]", "", "array([1., 1., 4.])"),
    "nancumprod": ("[2.0, np.nan, 3.0]", "", "array([2., 2., 6.])"),
    "nanmax": ("[1.0, np.nan, 3.0]", "", "array(3.)"),
    "nanmin": ("[1.0, np.nan, 3.0]", "", "array(1.)"),
    "nanargmax": ("[1.0, np.nan, 3.0]", "", "array(2)"),
    "nanargmin": ("[1.0, np.nan, 3.0]", "", "array(0)"),
    "nanmean": ("[1.0, np.nan, 3.0]", "", "array(2.)"),
    "nanmedian": ("[1.0, np.nan, 3.0, 100.0]", "", "array(3.)"),
    "nanquantile": ("[1.0, np.nan, 2.0, 4.0]", "0.25", "array(1.5)"),
    "nanpercentile": ("[1.0, np.nan, 2.0, 4.0]", "25", "array(1.5)"),
    # Orders and places
    "sort": ("[30, 10, 20]", "", "array([10, 20, 30])"),
    "argsort": ("[30, 10, 20]", "", "array([1, 2, 0])"),
    "astype": ("[2.7, -2.7]", "unp.int32", "array([ 2, -2], dtype=int32)"),
    "clip": ("[-5, 2, 9]", "0, 5", "array([0, 2, 5])"),
    "diagonal": ("[[1, 2], [3, 4]]", "", "array([1, 4])"),
    "dot": ("[1, 2, 3]", "np.array([1, 0, 10])", "array(31)"),
    "repeat": ("[1, 2]", "2", "array([1, 1, 2, 2])"),
    "reshape": ("[[1], [2]]", "(1, 2)", "array([[1, 2]])"),
    "squeeze": ("[[1], [2]]", "", "array([1, 2])"),
    "swapaxes": ("[[1], [2]]", "0, 1", "array([[1, 2]])"),
    "take": ("[10, 20, 30]", "np.array([2, 0])", "array([30, 10])"),
    "transpose": ("[[1], [2]]", "", "array([[1, 2]])"),
}


def section(*lines: str) -> str:
    """Lines of a session as the end of a docstring."""
    return "\n\nExamples:" + "".join([f"\n    {line}" for line in lines])


def of_method(name: str, example: Example) -> str:
    """The example of a method of UOp."""
    x, rest, result = example
    call = f"uopc.compile(x.{name}({rest}))()"
    return section(f">>> x = uopc.constant({x})", f">>> {call}", result)


def of_function(name: str, example: Example) -> str:
    """The example of a function of `uopc.numpy`."""
    x, rest, result = example
    call = f"unp.{name}(x, {rest})" if rest else f"unp.{name}(x)"
    return section(f">>> x = unp.asarray({x})", f">>> np.asarray({call})", result)


def of_array(name: str, example: Example) -> str:
    """The example of a method of Array."""
    x, rest, result = example
    call = f"np.asarray(x.{name}({rest}))"
    return section(f">>> x = unp.asarray({x})", f">>> {call}", result)


def documented(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    """A function of `uopc.numpy` that a table makes, with its name, a text and its example."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc + of_function(name, ROWS[name])
    return function
