"""The examples of functions that tables make: one row for all that have the name.

A row holds an array x, the arguments after it, and the result, each as it is typed. It is shown
with the method of UOp, the function of `uopc.numpy` and the method of Array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

ROWS: Final[dict[str, tuple[str, str, str]]] = {
    # One operand. Functions of floats
    "exp": ("[0.0, 1.0]", "", "array([1.        , 2.71828183])"),
    "exp2": ("[0.0, 3.0]", "", "array([1., 8.])"),
    "log": ("[1.0, 10.0]", "", "array([0.        , 2.30258509])"),
    "log2": ("[1.0, 8.0]", "", "array([0., 3.])"),
    "log10": ("[1.0, 1000.0]", "", "array([0., 3.])"),
    "sin": ("[0.0, np.pi / 2]", "", "array([0., 1.])"),
    "cos": ("[0.0, np.pi]", "", "array([ 1., -1.])"),
    "tan": ("[0.0, np.pi / 4]", "", "array([0., 1.])"),
    "tanh": ("[0.0, 1.0]", "", "array([0.        , 0.76159416])"),
    "erf": ("[0.0, 1.0]", "", "array([0.        , 0.84270079])"),
    "sqrt": ("[4.0, 2.0]", "", "array([2.        , 1.41421356])"),
    "reciprocal": ("[2.0, -4.0]", "", "array([ 0.5 , -0.25])"),
    "trunc": ("[2.7, -2.7]", "", "array([ 2., -2.])"),
    "floor": ("[2.7, -2.7]", "", "array([ 2., -3.])"),
    "ceil": ("[2.3, -2.3]", "", "array([ 3., -2.])"),
    "round": ("[0.5, 1.5, 2.7]", "", "array([0., 2., 3.])"),
    "expm1": ("[0.0, 1e-10]", "", "array([0.e+00, 1.e-10])"),
    "log1p": ("[0.0, 1e-10]", "", "array([0.e+00, 1.e-10])"),
    "sinh": ("[0.0, 1.0]", "", "array([0.        , 1.17520119])"),
    "cosh": ("[0.0, 1.0]", "", "array([1.        , 1.54308063])"),
    "asinh": ("[0.0, 1.0]", "", "array([0.        , 0.88137359])"),
    "acosh": ("[1.0, 2.0]", "", "array([0.       , 1.3169579])"),
    "atanh": ("[0.0, 0.5]", "", "array([0.        , 0.54930614])"),
    "asin": ("[0.0, 1.0]", "", "array([0.        , 1.57079633])"),
    "acos": ("[1.0, 0.0]", "", "array([0.        , 1.57079633])"),
    "atan": ("[0.0, 1.0]", "", "array([0.        , 0.78539816])"),
    # Functions of two floats
    "atan2": ("[1.0, -1.0]", "np.array([1.0, -1.0])", "array([ 0.78539816, -2.35619449])"),
    "hypot": ("[3.0, 5.0]", "4.0", "array([5.        , 6.40312424])"),
    "copysign": ("[1.0, 2.0]", "-0.0", "array([-1., -2.])"),
    "logaddexp": ("[0.0, 1000.0]", "1000.0", "array([1000.        , 1000.69314718])"),
    "nextafter": ("[0.0]", "1.0", "array([5.e-324])"),
    # One operand of any kind
    "abs": ("[-3, 2]", "", "array([3, 2])"),
    "bitwise_invert": ("[0, 5]", "", "array([-1, -6])"),
    "conj": ("[1.0, 2.0]", "", "array([1., 2.])"),
    "real": ("[1.0, 2.0]", "", "array([1., 2.])"),
    "imag": ("[1.0, 2.0]", "", "array([0., 0.])"),
    "isfinite": ("[1.0, np.nan, -np.inf]", "", "array([ True, False, False])"),
    "isinf": ("[1.0, np.nan, -np.inf]", "", "array([False, False,  True])"),
    "isnan": ("[1.0, np.nan, -np.inf]", "", "array([False,  True, False])"),
    "logical_not": ("[True, False]", "", "array([False,  True])"),
    "negative": ("[1, -2]", "", "array([-1,  2])"),
    "positive": ("[1, -2]", "", "array([ 1, -2])"),
    "sign": ("[-2.5, 0.0, 3.0]", "", "array([-1.,  0.,  1.])"),
    "signbit": ("[-1.0, -0.0, 0.0]", "", "array([ True,  True, False])"),
    "square": ("[2, -3]", "", "array([4, 9])"),
    "cbrt": ("[27.0, -8.0]", "", "array([ 3., -2.])"),
    "deg2rad": ("[180.0, 90.0]", "", "array([3.14159265, 1.57079633])"),
    "rad2deg": ("[np.pi, np.pi / 2]", "", "array([180.,  90.])"),
    "fabs": ("[-3.0, 2.0]", "", "array([3., 2.])"),
    "isposinf": ("[1.0, np.inf, -np.inf]", "", "array([False,  True, False])"),
    "isneginf": ("[1.0, np.inf, -np.inf]", "", "array([False, False,  True])"),
    # Two operands
    "add": ("[1, 2]", "10", "array([11, 12])"),
    "subtract": ("[1, 2]", "10", "array([-9, -8])"),
    "multiply": ("[1, 2]", "10", "array([10, 20])"),
    "divide": ("[7, -7]", "2", "array([ 3.5, -3.5])"),
    "floor_divide": ("[7, -7]", "2", "array([ 3, -4])"),
    "remainder": ("[7, -7]", "3", "array([1, 2])"),
    "pow": ("[2, 3]", "2", "array([4, 9])"),
    "float_power": ("[2, 3]", "-1", "array([0.5       , 0.33333333])"),
    "fmax": ("[1.0, np.nan]", "0.5", "array([1. , 0.5])"),
    "fmin": ("[1.0, np.nan]", "0.5", "array([0.5, 0.5])"),
    "fmod": ("[7, -7]", "3", "array([ 1, -1])"),
    "heaviside": ("[-1.0, 0.0, 2.0]", "0.5", "array([0. , 0.5, 1. ])"),
    "logaddexp2": ("[0.0, 10.0]", "10.0", "array([10.00140819, 11.        ])"),
    "bitwise_and": ("[4, 7]", "6", "array([4, 6])"),
    "bitwise_or": ("[4, 7]", "2", "array([6, 7])"),
    "bitwise_xor": ("[4, 7]", "2", "array([6, 5])"),
    "bitwise_left_shift": ("[1, 3]", "2", "array([ 4, 12])"),
    "bitwise_right_shift": ("[20, -8]", "2", "array([ 5, -2])"),
    "eq": ("[1, 2, 3]", "2", "array([False,  True, False])"),
    "ne": ("[1, 2, 3]", "2", "array([ True, False,  True])"),
    "equal": ("[1, 2, 3]", "2", "array([False,  True, False])"),
    "not_equal": ("[1, 2, 3]", "2", "array([ True, False,  True])"),
    "greater": ("[1, 2, 3]", "2", "array([False, False,  True])"),
    "greater_equal": ("[1, 2, 3]", "2", "array([False,  True,  True])"),
    "less": ("[1, 2, 3]", "2", "array([ True, False, False])"),
    "less_equal": ("[1, 2, 3]", "2", "array([ True,  True, False])"),
    "logical_and": ("[True, False]", "np.array([True, True])", "array([ True, False])"),
    "logical_or": ("[True, False]", "np.array([False, False])", "array([ True, False])"),
    "logical_xor": ("[True, False]", "np.array([True, True])", "array([False,  True])"),
    "maximum": ("[1, 5]", "3", "array([3, 5])"),
    "minimum": ("[1, 5]", "3", "array([1, 3])"),
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


def of_method(name: str) -> str:
    """The example of a method of UOp."""
    x, rest, result = ROWS[name]
    call = f"uopc.compile(x.{name}({rest}))()"
    return section(f">>> x = uopc.constant({x})", f">>> {call}", result)


def documented(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    """A function of `uopc.numpy` that a table makes, with its name, a text and its example."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc + of_function(name)
    return function


def of_function(name: str) -> str:
    """The example of a function of `uopc.numpy`."""
    x, rest, result = ROWS[name]
    call = f"unp.{name}(x, {rest})" if rest else f"unp.{name}(x)"
    return section(f">>> x = unp.asarray({x})", f">>> np.asarray({call})", result)


def of_array(name: str) -> str:
    """The example of a method of Array."""
    x, rest, result = ROWS[name]
    call = f"np.asarray(x.{name}({rest}))"
    return section(f">>> x = unp.asarray({x})", f">>> {call}", result)
