"""Derivatives of calls: a FUNCTION is differentiated once, whatever the number of its calls.

    call f (x, w)   its tangents:    call f_jvp (x, w, x', w')
                    its cotangents:  call f_vjp (x, w, y')

The cotangents compute the values of the body again: only the arguments are kept.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from uopc.derivatives import support
from uopc.derivatives.values import Value
from uopc.errors import Unsupported
from uopc.ir.builder import alu, leaves, rebuild
from uopc.ir.core import calls, dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Shape
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.tensor import functions

# The FUNCTION of a derivative, the arguments it takes besides, and the values that it gives.
_Derived = tuple[UOp | None, list[int], list[int]]
_known: weakref.WeakKeyDictionary[UOp, dict[Any, _Derived]] = weakref.WeakKeyDictionary()


NO_RULE = "there is no derivative of a kernel written by hand: give one by custom_jvp or custom_vjp"
_slots = itertools.count(1 << 48)


def seed(like: UOp) -> UOp:
    """Make a PARAM of the dtype and shape of `like`, to be replaced by a value later."""
    return functions.param(next(_slots), like)


def seed_of(dtype: DType, dims: Shape) -> UOp:
    """Make a `seed` of this dtype and shape."""
    return leaves.param(next(_slots), dtype, dims)


def supports(values: Mapping[int, Value], body: Sequence[UOp]) -> dict[int, UOp]:
    """The supports of values that are zero somewhere by their structure; none if all factors of the
    body are finite. The body's PARAMs cannot show where their values are zero."""
    if all([support.is_tame(u) for u in body]):
        return {}
    found = {i: support.support(v) for i, v in values.items() if v is not None}
    return {i: s for i, s in found.items() if not isinstance(s, bool)}


def shielded(stand_in: UOp, mask: Value) -> UOp:
    """Set a PARAM to zero where the support of its value is False."""
    return stand_in if mask is None else alu.where(mask, stand_in, 0)


def pushed(u: UOp, tangents: Sequence[Value], push: Callable[..., list[Value]]) -> list[Value]:
    """The tangents of all results of a CALL from the tangents of its arguments."""
    body, args = _body_parts(u)
    params = params_of(body)
    given = [i for i, t in enumerate(tangents) if t is not None and i in params]

    masks = supports({i: tangents[i] for i in given}, body.src)

    def derive() -> _Derived:
        new = _stand_ins(len(args), {i: args[i] for i in given}, masks)
        found = push(body.src, {params[i]: new[i] for i in given})
        return _function(body, "jvp", found, given)

    made, given, results = _derived(body, ("jvp", *given, -1, *masks), derive)
    more = [*[tangents[i] for i in given], *masks.values()]
    return _called(made, (*args, *more), results, len(body.src))


def _stand_ins(
    first: int, like: Mapping[int, UOp], masks: Mapping[int, UOp]
) -> dict[int, UOp]:
    """Make PARAMs for values like these from slot `first` on, then PARAMs for their supports."""
    made = {i: functions.param(first + n, u) for n, (i, u) in enumerate(like.items())}
    later = first + len(like)
    flags = {i: functions.param(later + n, m) for n, (i, m) in enumerate(masks.items())}
    return {i: shielded(p, flags.get(i)) for i, p in made.items()}


def pulled(
    u: UOp, cotangents: Sequence[Value], wanted: Sequence[bool], pull: Callable[..., list[Value]]
) -> list[Value]:
    """The cotangents of the wanted arguments of a CALL from the cotangents of its results."""
    body, args = _body_parts(u)
    params = params_of(body)
    given = [i for i, c in enumerate(cotangents) if c is not None]
    asked = [i for i, w in enumerate(wanted) if w and i in params and args[i].dtype.is_float]
    masks = supports({i: cotangents[i] for i in given}, body.src)

    def derive() -> _Derived:
        new = _stand_ins(len(args), {i: body.src[i] for i in given}, masks)
        values = [new.get(i) for i in range(len(body.src))]
        found = pull(body.src, [params[i] for i in asked], values)
        made, _, kept = _function(body, "vjp", found, given)
        return made, given, [asked[i] for i in kept]

    made, given, results = _derived(body, ("vjp", *asked, -1, *given, -1, *masks), derive)
    more = [*[cotangents[i] for i in given], *masks.values()]
    return _called(made, (*args, *more), results, len(args))


def inlined(u: UOp, number: int) -> UOp | None:
    """Replace a result of a CALL by the value that its FUNCTION computes; None for other nodes, and
    for loops (their FUNCTION is a single step)."""
    if u.op is not Ops.CALL or u.src[0].op is not Ops.FUNCTION or u.src[0].arg.repeats:
        return None
    body, args = _body_parts(u)
    own = {p: args[i] for i, p in params_of(body).items() if i < len(args)}  # others are seeds
    return rebuild.rebuild(body.src[number], own)


def _body_parts(u: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    body, *args = u.src
    if body.op is not Ops.FUNCTION:
        raise Unsupported(f"{NO_RULE}{made_at(u)}")
    return body, tuple(args)


def params_of(body: UOp) -> dict[int, UOp]:
    """The PARAMs of a FUNCTION by slot."""
    return {p.arg.slot: p for p in calls.params(body) if p.arg.slot >= 0}


def _derived(body: UOp, key: Any, derive: Callable[[], _Derived]) -> _Derived:
    known = _known.setdefault(body, {})
    if key not in known:
        known[key] = derive()
    return known[key]


def _function(body: UOp, kind: str, values: Sequence[Value], given: list[int]) -> _Derived:
    kept = [i for i, v in enumerate(values) if v is not None]
    if not kept:
        return None, given, kept
    arg = replace(body.arg, name=f"{body.arg.name}_{kind}")
    outputs = tuple([v for v in values if v is not None])
    return intern(Ops.FUNCTION, dtypes.void, outputs, arg), given, kept


def _called(
    made: UOp | None, args: Sequence[Value], results: Sequence[int], count: int
) -> list[Value]:
    found: list[Value] = [None] * count
    if made is not None:
        for i, value in zip(results, functions.call(made, *args)):
            found[i] = value
    return found
