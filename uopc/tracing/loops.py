"""Loops of traced functions: `scan`, `fold`, `fori_loop`, `while_loop` and `map`. A loop is part of
the graph: its code is as long for a million steps as for one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

from uopc.derivatives import functions as calls
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.builder import operands
from uopc.ir.builder.pytrees import flatten, unflatten
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, show, show_value
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.numpy.array import Array, uop_of
from uopc.tensor.loops import bodies
from uopc.tensor.loops import scan as loop
from uopc.tracing.transforms import SeededCall, derived, vmap

Function = Callable[..., Any]


def scan(
    f: Function, init: Any, xs: Any = None, length: Any = None, reverse: bool = False, *,
    checkpoint: int | Literal["all"] = "all", unroll: int | bool = 1,
) -> tuple[Any, Any]:  # fmt: skip
    """carry, y = f(carry, x) for each x of xs along its first dimension; returns the last carry,
    and the ys along a new first dimension.

    Carries, xs and ys are arrays or containers of them. A carry keeps its dtypes and shapes.
    `length`: the number of steps, needed only without xs. `reverse`: from the last x to the first.
    `checkpoint`: the carries that reverse mode keeps, "all" or every n-th; carries in between are
    computed again, a segment at a time. `unroll`: the number of steps (True: all) that follow each
    other in the code, as Opt UNROLL of the loop's kernel, if the carry is in registers.
    UserTypeError unless f is a function, UserError for lengths that differ, and for a carry whose
    shapes or dtypes change.

        >>> total, sums = uopc.scan(lambda c, x: (c + x, c + x), 0.0, np.array([1.0, 2.0, 3.0]))
        >>> float(total), sums.tolist()
        (6.0, [1.0, 3.0, 6.0])
    """
    if not callable(f):
        raise UserTypeError(f"scan: expected a function, got {f!r}")

    every = 0 if checkpoint == "all" else checkpoint
    if isinstance(every, bool) or not isinstance(every, int) or (every < 1 and every is checkpoint):
        wanted = 'must be "all" or a positive number of steps'
        raise UserError(f"scan: checkpoint {wanted}, got {checkpoint!r}")

    written = _unrolled("scan", unroll)

    def build(init: Any, xs: Any) -> Any:
        return _scanned("scan", f, init, xs, length, loop.Way(bool(reverse), every, written))

    return derived("scan", f, build)(init, xs)  # type: ignore[no-any-return]


def _scanned(
    who: str, f: Function, init: Any, xs: Any, length: Any, way: loop.Way = loop.PLAIN
) -> Any:
    call = SeededCall(who, f, (init, xs))
    found, structure = flatten(xs)
    arrays = [uop_of(leaf, f"{who}: xs{path}") for path, leaf in found]
    steps = _length(who, arrays, length)
    if way.every and not isinstance(steps, int):
        raise Unsupported(f"{who}: checkpoint={way.every} needs a known number of steps")
    carry, carried, form = call.opened(init, floats=False)
    elements = [calls.seed_of(u.dtype, shapes.shape(u)[1:]) for u in arrays]
    call.seeds += elements
    result = call.run(f, carry, unflatten(structure, [call.value(e) for e in elements]))
    if not isinstance(result, tuple) or len(result) != 2:
        raise UserTypeError(f"{who}: {call.name} must give a pair, the carry and a result")
    after = _carried(call, result[0], carried, form)
    ys, of_ys = call.results(result[1])
    body, constants = bodies.closed([*after, *ys], [*carried, *elements])
    first = [call.given[c] for c in carried]
    made = [call.value(u) for u in loop.scan(body, first, arrays, constants, steps, way)]
    return unflatten(form, made[: len(carried)]), unflatten(of_ys, made[len(carried) :])


def _unrolled(who: str, unroll: Any) -> int:
    """Check `unroll`: the number of steps in the code of one iteration; True is sys.maxsize."""
    if isinstance(unroll, bool):
        return sys.maxsize if unroll else 1
    if not isinstance(unroll, int) or unroll < 1:
        wanted = "a bool or a positive number of steps"
        raise UserError(f"{who}: unroll must be {wanted}, got {unroll!r}")
    return unroll


def _carried(call: SeededCall, tree: Any, before: list[UOp], form: Any) -> list[UOp]:
    """The nodes of the next carry; UserError unless its kind is that of the last carry."""
    who = call.who
    after, other = call.results(tree)
    if other != form:
        raise UserError(
            f"{who}: {call.name} must give a carry in the containers of the first carry"
        )
    for u, v in zip(before, after):
        if u.dtype is not v.dtype or shapes.shape(u) != shapes.shape(v):
            was, made = show_value(u), show_value(v)
            begin = ""
            if u.dtype is not v.dtype and shapes.shape(u) == shapes.shape(v) == ():
                begin = f": begin with {'0.0' if v.dtype.is_float else '0'} of {v.dtype.name}"
            elif u.dtype is not v.dtype:
                begin = f": begin with {v.dtype.name}"
            raise UserError(f"{who}: the carry is {was}, but {call.name} makes it {made}{begin}")
    return after


def _length(who: str, arrays: list[UOp], length: Any) -> Dim:
    """The number of steps."""
    found: list[Dim] = [] if length is None else [operands.as_dim(_known(who, "length", length))]
    for u in arrays:
        if not shapes.shape(u):
            raise UserError(
                f"{who}: xs must have a first dimension, that of the steps, got a scalar"
            )
        found.append(shapes.shape(u)[0])
    if not found:
        raise UserError(f"{who}: without xs, give the number of steps by length=")
    if any([n != found[0] for n in found]):
        raise UserError(f"{who}: lengths differ: {show(tuple(found))}")
    if isinstance(found[0], int) and found[0] < 0:
        raise UserError(f"{who}: the length must not be negative, got {found[0]}")
    return found[0]


def fold(step: Function, init: Any, xs: Any, reverse: bool = False) -> Any:
    """carry = step(carry, x) for each x of xs along its first dimension; returns the last carry.

    See `scan`, which collects results, too. UserTypeError unless the step is a function.

        >>> uopc.fold(lambda c, x: 0.5 * c + x, 0.0, np.array([1.0, 2.0, 3.0]))
        array(4.25)
    """
    if not callable(step):
        raise UserTypeError(f"fold: expected a function, got {step!r}")

    def build(init: Any, xs: Any) -> Any:
        def both(carry: Any, x: Any) -> Any:
            return step(carry, x), None

        return _scanned("fold", both, init, xs, None, loop.Way(bool(reverse)))[0]

    return derived("fold", step, build)(init, xs)


def fori_loop(
    lower: Any, upper: Any, body: Function, init: Any, *, unroll: int | bool = 1
) -> Any:
    """carry = body(i, carry) for each int64 i from `lower` to `upper` - 1; returns the last carry.

    The bounds are ints or sizes; `unroll` is that of `scan`. UserError for a carry that
    changes its dtype or shape.

        >>> uopc.fori_loop(0, 5, lambda i, c: c * 2, 1.0)
        array(32.)
    """
    lower, upper = _known("fori_loop", "begin", lower), _known("fori_loop", "end", upper)
    steps = operands.as_dim(upper) - operands.as_dim(lower)
    steps = operands.as_dim(steps) if isinstance(steps, UOp) else max(steps, 0)
    way = loop.Way(unroll=_unrolled("fori_loop", unroll))
    start = dim_uop(operands.as_dim(lower)).cast(dtypes.int64)

    def build(init: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            i, value = carry
            return (i + 1, body(i, value)), None

        first = Array(start) if not isinstance(init, UOp) else start
        (_, last), _ = _scanned("fori_loop", step, (first, init), None, steps, way)
        return last

    return derived("fori_loop", body, build)(init)


def _known(who: str, what: str, number: Any) -> Any:
    """Check a number of steps. UserError if only a call knows it: the code depends on it."""
    u = number.uop if isinstance(number, Array) and number.tracing is not None else number
    if isinstance(u, UOp) and u.dtype is not dtypes.index:
        named = u.op is Ops.PARAM and u.arg.name
        source = f"argument {u.arg.name}" if named else "a value of a call"
        raise UserError(
            f"{who}: the number of steps is not known, because its {what} is {source}: name the"
            f" argument in static_argnames, or use uopc.while_loop{made_at(u)}"
        )
    return number


def while_loop(cond_fun: Function, body_fun: Function, init_val: Any) -> Any:
    """val = body_fun(val) as long as cond_fun(val) holds; returns the last value.

    Values are arrays or containers of them, and keep their dtypes and shapes. `cond_fun` gives one
    bool. Only forward mode has derivatives: reverse mode would need the values of an unknown number
    of steps. UserTypeError unless both are functions, UserError for a carry that changes.

        >>> uopc.while_loop(lambda x: x < 100, lambda x: 2 * x, 3.0)
        array(192.)
    """
    for f in (cond_fun, body_fun):
        if not callable(f):
            raise UserTypeError(f"while_loop: expected a function, got {f!r}")

    def build(init: Any) -> Any:
        call = SeededCall("while_loop", body_fun, init)
        values, carried, form = call.opened(init, floats=False)
        first = _condition(call, call.run(cond_fun, values))
        values = unflatten(form, [call.value(u) for u in carried])
        after = _carried(call, call.run(body_fun, values), carried, form)
        going = call.run(cond_fun, unflatten(form, [call.value(u) for u in after]))
        going = _condition(call, going)
        body, constants = bodies.closed([*after, going], [*carried, calls.seed(first)])
        (begun,) = call.closed([first])
        given = [*[call.given[c] for c in carried], uop_of(begun)]
        made = loop.while_loop(body, given, constants)
        return unflatten(form, [call.value(u) for u in made[:-1]])

    return derived("while_loop", body_fun, build)(init_val)


def _condition(call: SeededCall, result: Any) -> UOp:
    """Check that the condition of a loop is one bool; return its node."""
    found, _ = call.results(result)
    if len(found) != 1 or found[0].dtype is not dtypes.bool_ or shapes.shape(found[0]) != ():
        got = " and ".join([show_value(u) for u in found]) or "nothing"
        raise UserTypeError(f"{call.who}: the condition must be one bool, got {got}")
    return found[0]


def map(f: Function, xs: Any) -> Any:
    """Apply f to each element of xs along the first dimension, all at once: `vmap(f)(xs)`.

        >>> uopc.map(lambda x: x.sum(), np.array([[1.0, 2.0], [3.0, 4.0]]))
        array([3., 7.])
    """
    return vmap(f)(xs)
