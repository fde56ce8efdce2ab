"""`cond` and `switch`: choose between functions by a value that is only known in a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks
from uopc.ir.builder.pytrees import flatten, unflatten
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.shapes import show_value
from uopc.ir.core.uop import UOp
from uopc.numpy.array import Array, uop_of
from uopc.tensor.loops.branches import chosen
from uopc.tracing.transforms import SeededCall

Function = Callable[..., Any]


def cond(pred: Any, true_fun: Function, false_fun: Function, *operands: Any) -> Any:
    """`true_fun(*operands)` if the predicate holds, else `false_fun(*operands)`.

    Both functions are traced and computed, and each value of the result is chosen from one; so both
    must give arrays of the same shapes and dtypes, in the same containers. If the predicate is a
    bool of Python or NumPy, only the chosen function is called. Derivatives are those of the chosen
    function, even if the derivatives of the other function are infinite. UserTypeError unless the
    predicate is one bool and both functions are callable, UserError if the results differ in
    shapes, dtypes or containers.

    Examples:
        >>> f = uopc.jit(lambda x: uopc.cond(x.sum() > 0, lambda x: x, lambda x: -x, x))
        >>> f(np.array([1.0, -3.0]))
        array([-1.,  3.])
    """
    _check_functions("cond", (true_fun, false_fun))
    if isinstance(pred, (bool, np.bool_)):
        return (true_fun if pred else false_fun)(*operands)
    which = uop_of(pred, "cond")
    if which.dtype is not dtypes.bool_ or shapes.shape(which) != ():
        raise UserTypeError(f"cond: the condition must be one bool, got {show_value(which)}")
    return _traced("cond", pred, which, (true_fun, false_fun), operands)


def switch(index: Any, branches: Sequence[Function], *operands: Any) -> Any:
    """`branches[index](*operands)`. A negative index chooses the first branch, an index that is too
    large the last branch.

    An integer of Python or NumPy calls that function alone. See `cond`. UserTypeError unless the
    index is one integer, UserError without branches.

    Examples:
        >>> f = uopc.jit(lambda i, x: uopc.switch(i, [lambda x: x, lambda x: x * x], x))
        >>> f(0, np.array([2.0, 3.0])), f(1, np.array([2.0, 3.0]))
        (array([2., 3.]), array([4., 9.]))
    """
    functions = checks.sequence("switch", "branches", branches)
    _check_functions("switch", functions)
    if not functions:
        raise UserError("switch: there are no branches")
    if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
        return functions[min(max(int(index), 0), len(functions) - 1)](*operands)
    which = uop_of(index, "switch")
    if not which.dtype.is_int or shapes.shape(which) != ():
        raise UserTypeError(f"switch: the index must be one integer, got {show_value(which)}")
    if len(functions) == 1:
        return functions[0](*operands)
    return _traced("switch", index, which, functions, operands)


def _check_functions(who: str, functions: Sequence[Any]) -> None:
    if wrong := [f for f in functions if not callable(f)]:
        raise UserTypeError(f"{who}: expected functions, got {wrong[0]!r}")


def _traced(
    who: str, given: Any, which: UOp, functions: Sequence[Function], operands: tuple[Any, ...]
) -> Any:
    """Trace all functions and choose a result. Operands without a dtype are constants."""
    call = SeededCall(who, functions[0], (given, operands))
    found, structure = flatten(operands)
    arrays = [v for _, v in found if hasattr(v, "dtype")]
    seeds = iter(call.opened(arrays, floats=False)[0])
    values = [next(seeds) if hasattr(v, "dtype") else v for _, v in found]
    rows, first = [], None
    for f in functions:
        fresh = [call.value(v.uop, v.weak) if isinstance(v, Array) else v for v in values]
        tree = call.run(f, *unflatten(structure, fresh))
        row, form = call.results(tree)
        if first is None:
            first = form
        if form != first:
            raise UserError(f"{who}: the functions must give the same containers")
        rows.append(row)
        for (path, _), a, b in zip(flatten(tree)[0], rows[0], row):
            if (a.dtype, shapes.shape(a)) != (b.dtype, shapes.shape(b)):
                kinds = " and ".join({show_value(a): None, show_value(b): None})
                raise UserError(
                    f"{who}: the functions must give the same, got {kinds} at"
                    f" {path or 'the result'}"
                )
    if which.dtype is dtypes.bool_:
        rows.reverse()
    made = chosen(which, rows, call.given) if rows[0] else []
    return unflatten(first, map(call.value, made))
