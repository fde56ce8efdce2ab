"""Functions of values: `function` makes a FUNCTION from a Python function and calls it.

A call traces the body with a PARAM per argument. Equal bodies are one node: even if the body is
traced for each of many calls, it is scheduled once. A value from outside of the body becomes an
argument, too, if it is a param of the graph (so that derivatives and batches of a call need only
its arguments), depends on an argument of an enclosing function, or comes after a store.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, overload

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks, leaves, operands, rebuild
from uopc.ir.builder.kernel import after
from uopc.ir.core import calls, dtypes, shapes, storage, walk
from uopc.ir.core.args import FunctionArg, KernelArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import size_conditions
from uopc.tensor import elementwise

# While a body is traced, its PARAMs have slots that no other trace has.
_traced_slots = itertools.count(1 << 32)
_FIRST_TRACED = 1 << 32

Values = tuple[UOp, ...]
# Values from a container, and the function that puts others in their place.
Flat = tuple[list[UOp], Callable[[Iterator[UOp]], Any]]


@overload
def function(
    f: Callable[..., Any], *, precompile: bool = False, name: str | None = None
) -> Callable[..., Any]: ...
@overload
def function(
    *, precompile: bool = False, name: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
def function(
    f: Callable[..., Any] | None = None, *, precompile: bool = False, name: str | None = None
) -> Any:
    """Turn a Python function of values into a FUNCTION of the graph, which all calls share. Also a
    decorator.

    UOps, arrays, and tuples, lists and dicts of them become arguments of the FUNCTION; all else
    (numbers, strings, variables) is part of the body. The Python function returns a UOp, or a
    tuple, list or dict of UOps. If the body writes to an argument, it writes to the caller's array;
    if it returns the argument afterwards, the result is still that array.

    `precompile`: the body is scheduled and compiled once for all calls, and its results are stored;
    without `precompile`, each call is fused with the operations around it. `name` appears in dumps.
    UserTypeError when the body returns anything else.

    Examples:
        >>> @uopc.function(precompile=True)
        ... def layer(x, w):
        ...     return (x @ w).relu()
        >>> x, w = uopc.constant([1.0, -2.0]), uopc.constant([[1.0, 0.0], [0.0, 1.0]])
        >>> uopc.compile(layer(layer(x, w), w))()
        array([1., 0.])
    """
    checks.flag("function", "precompile", precompile)
    if f is None:
        return functools.partial(function, precompile=precompile, name=name)
    if not callable(f):
        raise UserTypeError(f"function: expected a Python function, got {f!r}")
    title = getattr(f, "__name__", "function") if name is None else name
    if not isinstance(title, str):
        raise UserTypeError(f"function: name must be a string, got {name!r}")

    @functools.wraps(f)
    def called(*args: Any, **named: Any) -> Any:
        given, fill = _flat((args, named), title)
        params = tuple([param(next(_traced_slots), a) for a in given])
        positional, keywords = fill(iter(params))
        results, container = _flat(f(*positional, **keywords), title, strict=True)
        if not results:
            raise UserTypeError(f"function {title!r} must return a UOp or UOps, got nothing")
        body, operands_ = _closed(tuple(results), dict(zip(params, given)), title, precompile)
        return container(iter(call(body, *operands_)))

    return called


def call(function: UOp, *args: Any) -> Values:
    """Call a FUNCTION with an argument for each slot, and return its results; or call a handwritten
    kernel (a SINK), and return the arguments that it writes, after the writes.

    UserError when arguments are missing, or have another dtype or shape than the params (for a
    kernel: fewer elements); UserTypeError for another node. An argument that a kernel writes must
    be a `uopc.buffer` or a param.

    Examples:
        >>> x = uopc.constant([1, 2])
        >>> double = uopc.function(lambda v: v * 2)(x).src[0].src[0]  # of the CALL: its FUNCTION
        >>> (result,) = double.call(x + 1)
        >>> uopc.compile(result)()
        array([4, 6])
    """
    given = tuple([operands.as_uop(a) for a in args])
    if function.op is Ops.SINK:
        return _launched(function, given)
    if function.op is not Ops.FUNCTION:
        raise UserTypeError(f"call: expected a FUNCTION or a kernel, got {function.op!r}")
    for p in calls.params(function):
        if p.arg.slot >= 0:
            _check_argument(function.arg.name, p, given)
    made = leaves.located(intern(Ops.CALL, dtypes.void, (function, *given)))
    return tuple([gettuple(made, i) for i in range(len(function.src))])


def _launched(kernel: UOp, given: Values) -> Values:
    """Call a kernel; return the arguments that it writes, after it has run."""
    name = kernel.arg.name if isinstance(kernel.arg, KernelArg) else "kernel"
    params = {u.arg.slot: u for u in walk.nodes(kernel) if u.op is Ops.PARAM}
    below = [storage.before_effects(a).op for a in given]
    roots = [storage.storage_root(u.src[0]) for u in walk.nodes(kernel) if u.op is Ops.STORE]
    written = {r.arg.slot for r in roots if r.op is Ops.PARAM}
    for slot, p in sorted(params.items()):
        if slot >= len(given):
            raise UserError(f"kernel {name!r}: argument {slot} is missing: {len(given)} are given")
        if given[slot].dtype is not p.dtype:
            wanted, got = p.dtype.name, _kind(given[slot])
            raise UserError(f"kernel {name!r}: argument {slot} must be {wanted}, got {got}")
        if slot in written and below[slot] not in (Ops.BUFFER, Ops.PARAM):
            got = given[slot].op.name
            raise UserError(
                f"kernel {name!r}: argument {slot} is written, and {got} is not storage: pass a"
                " uopc.buffer or a param"
            )
    stored = tuple(
        [a if op.is_storage else elementwise.contiguous(a) for a, op in zip(given, below)]
    )
    made = leaves.located(intern(Ops.CALL, dtypes.void, (kernel, *stored)))
    size_conditions.unproved(made)  # UserError where an argument has too few elements
    return tuple([after(stored[slot], made) for slot in sorted(written)])


def _check_argument(name: str, param: UOp, given: Values) -> None:
    slot = param.arg.slot
    if slot >= len(given):
        raise UserError(f"function {name!r}: argument {slot} is missing: {len(given)} are given")
    a = given[slot]
    same = shapes.shape(a) == shapes.shape(param) or any(param.src)
    if a.dtype is not param.dtype or not same:
        raise UserError(
            f"function {name!r}: argument {slot} must be {_kind(param)}, got {_kind(a)}"
        )


def _kind(u: UOp) -> str:
    return f"{u.dtype.name}{shapes.show(shapes.shape(u))}"


def maketuple(*values: UOp) -> UOp:
    """Pack several values into one node, a TUPLE; `gettuple` takes one value.

    Examples:
        >>> a, b = uopc.constant([1, 2]), uopc.constant([3, 4])
        >>> both = uopc.UOp.maketuple(a, b)
        >>> uopc.compile(both.gettuple(1))()
        array([3, 4])
    """
    return leaves.located(
        intern(Ops.TUPLE, dtypes.void, tuple([operands.as_uop(v) for v in values]))
    )


def gettuple(a: UOp, number: int) -> UOp:
    """Take one value of a TUPLE, or of the results of a CALL of a FUNCTION.

    UserError for a number out of range.

    Examples:
        >>> a, b = uopc.constant([1, 2]), uopc.constant([3, 4])
        >>> uopc.UOp.maketuple(a, b).gettuple(0).shape
        (2,)
    """
    parts = a.src if a.op is Ops.TUPLE else a.src[0].src if a.op is Ops.CALL else ()
    if type(number) is not int or not 0 <= number < len(parts):
        raise UserError(
            f"gettuple: expected a number below {len(parts)} for {a.op.name}, got {number!r}"
        )
    return leaves.located(intern(Ops.GETTUPLE, parts[number].dtype, (a,), number))


# ---------------------------------------------------------------- tracing
def param(slot: int, value: UOp) -> UOp:
    """Make a PARAM with the dtype and shape of a value."""
    return leaves.param(slot, value.dtype, shapes.shape(value))


def _closed(
    results: Values, args: dict[UOp, UOp], name: str, precompile: bool
) -> tuple[UOp, Values]:
    """Return the FUNCTION of traced results, and the operands of a call. `args`: by PARAM."""
    taken = dict(args)
    inside: set[UOp] = set()  # nodes that depend on the arguments
    outside: set[UOp] = set()  # nodes that another trace or a store has made
    given: set[UOp] = set()  # params of the graph
    for u in calls.graph_order(results, calls.outside_bodies):
        sources = calls.operands(u)
        if u in args or not inside.isdisjoint(sources):
            inside.add(u)
        elif u.op is Ops.PARAM:
            (outside if u.arg.slot >= _FIRST_TRACED else given).add(u)
        elif u.op in (Ops.AFTER, Ops.CALL) or not outside.isdisjoint(sources):
            outside.add(u)
    stop = lambda u: u in outside and u.dtype is not dtypes.void  # noqa: E731
    for u in calls.graph_order(results, calls.outside_bodies, stop):
        if u in given or (u in outside and u.dtype is not dtypes.void):
            taken[u] = u
    params = {u: param(i, a) for i, (u, a) in enumerate(taken.items())}
    bodies = [rebuild.rebuild(r, params) if r not in params else params[r] for r in results]
    made = intern(Ops.FUNCTION, dtypes.void, tuple(bodies), FunctionArg(name, precompile))
    return leaves.located(made), tuple(taken.values())


def _flat(value: Any, name: str, strict: bool = False) -> Flat:
    """The values in nested tuples, lists and dicts. `strict`: anything else is an error."""
    if isinstance(value, UOp) and value.dtype is dtypes.void:
        raise UserTypeError(f"function {name!r}: {value.op.name} has no value")
    if isinstance(value, UOp) and (strict or value.dtype is not dtypes.index):
        return [value], next
    if not strict and hasattr(value, "__array_interface__"):
        return [operands.constant(value)], next
    if isinstance(value, Mapping):
        parts = [_flat(v, name, strict) for v in value.values()]
        keys = list(value)
        return _join_flat_parts(parts, lambda made: dict(zip(keys, made)))
    if isinstance(value, (tuple, list)):
        kind = type(value)
        put = kind._make if hasattr(kind, "_make") else kind  # a named tuple
        return _join_flat_parts([_flat(v, name, strict) for v in value], put)
    if strict:
        raise UserTypeError(
            f"function {name!r} must return UOps, or containers of them, got {value!r}"
        )
    return [], lambda values: value


def _join_flat_parts(parts: list[Flat], put: Callable[[list[Any]], Any]) -> Flat:
    values = [v for found, _ in parts for v in found]
    return values, lambda source: put([fill(source) for _, fill in parts])
