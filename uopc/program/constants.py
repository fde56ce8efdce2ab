"""Values that depend on constants alone are computed when a program is made, not in each call.

    ((data w) * (data s)).contiguous() @ x   →   (data ws) @ x

A program of its own computes these values, so they have the bits that a call would give them. A
value that is larger than the arrays that it is made of stays as it is (dequantised weights: each
call would read more), and so does one that takes next to no time. Words and sums of constant bytes,
which products read (`passes/narrow_products/byte_products.py`), are always computed once.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from uopc.ir.builder import operands, rebuild
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.program.graph.facts import GraphFacts
from uopc.program.request import Request
from uopc.target import Target

# The least work of values that are computed once, in the unit of `Op.cost`: 50 µs of a call.
LEAST_WORK = 1e6
# The most numbers that are dequantised once though they take four times the bytes.
MOST_DEQUANTISED = 1 << 14
_LEAVES = frozenset((Ops.DATA, Ops.CONST, Ops.IOTA))
_COMPUTES = frozenset((
    Ops.CAST, Ops.BITCAST, Ops.REDUCE, Ops.ACCUMULATE, Ops.CAT, Ops.STACK, Ops.INDEX,
    Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD,
))  # fmt: skip
_STORED = (Ops.CONTIGUOUS, Ops.REDUCE)
# The arrays of values that were computed, as long as somebody has the graph.
_made: weakref.WeakKeyDictionary[UOp, UOp] = weakref.WeakKeyDictionary()


def worth_computing(request: Request, machine: Target) -> tuple[Request, list[UOp]]:
    """The request, with products in the matrix units of `machine`, so that no other machine may run
    the program; and its values to compute once, none if the device is no CPU."""
    on_cpu = request.device.partition(":")[0] == "cpu"
    if not on_cpu or request.structure == "kernel" or not request.facts.of(Ops.DATA):
        return request, []
    units = request.optimize and request.options.dot_products and _has_bytes(request.facts)
    if units and machine.dot4:
        from uopc.passes.narrow_products.byte_products import with_words_of_constants

        request = replace(request, graph=with_words_of_constants(request.graph))
    values = _worth_it(request.facts, units)
    for v in values:
        if v not in _made and units and _is_packed(v):
            from uopc.ir.interpret import interpreter

            _made[v] = operands.constant(np.asarray(interpreter.evaluate(v, {})))
    return request, values


def request_for(request: Request, values: Sequence[UOp]) -> Request | None:
    """The request for the values that are not computed yet; None if there are none."""
    new = [v for v in values if v not in _made]
    if not new:
        return None
    return replace(
        request, graph=new[0].sink(*new[1:]), structure="list", keys=(), params=(), bound={},
        mesh=None, layouts=(), nesting=None,
    )  # fmt: skip


def keep(request: Request, results: Sequence[Any]) -> None:
    """Keep the results of a `request_for` these values."""
    for v, array in zip(request.graph.src, results):
        array.flags.writeable = False
        _made[v] = operands.constant(array)


def replaced(request: Request, values: Sequence[UOp]) -> Request:
    """Put the computed arrays in place of the values of a request."""
    if not values:
        return request
    given = {v: _made[v] for v in values}
    return replace(request, graph=rebuild.rebuild(request.graph, given))


def _has_bytes(facts: GraphFacts) -> bool:
    return any([u.dtype.is_int and u.dtype.bits == 8 for u in facts.of(Ops.DATA)])


def _is_packed(v: UOp) -> bool:
    """True for words and sums of bytes, and for a few dequantised ones, if no value below is much
    larger."""
    inner = v.src[0] if v.src else v
    if v.op is Ops.MUL and v.dtype.is_float and _constant_elements(v) <= MOST_DEQUANTISED:
        inner = inner.src[0] if inner.op is Ops.SUB else inner
        inner = inner.src[0] if inner.op is Ops.CAST else inner
    elif v.dtype is dtypes.int32 and v.op in (Ops.BITCAST, Ops.REDUCE):
        inner = inner.src[0] if inner.op is Ops.CAST else inner
    else:
        return False
    most = 2 * _constant_elements(inner)
    is_byte = inner.dtype.is_int and inner.dtype.bits == 8
    return is_byte and all(
        [u.op is Ops.EXPAND or _constant_elements(u) <= most for u in walk.toposort(v)]
    )


def _worth_it(facts: GraphFacts, units: bool) -> list[UOp]:
    """The values to compute once: the largest ones that a non-constant reads."""
    known: set[UOp] = set()
    asked: dict[UOp, None] = {}
    for u in facts.nodes:
        if _is_known(u, known):
            known.add(u)
        elif u is not facts.graph:
            asked |= dict.fromkeys([s for s in u.src if s in known])
    packed, found = list[UOp](), list[UOp]()
    seen = set(asked)
    stack = list(asked)
    while stack:
        v = stack.pop()
        if v.op in _LEAVES:
            continue
        if units and not v.op.movement and _is_packed(v):
            packed.append(v)
        elif not v.op.movement and _pays(v):
            found.append(v)
        else:
            new = [s for s in v.src if s not in seen]
            seen.update(new)
            stack += new
    more = _read_more(found)
    return packed + [v for v in found if v not in more]


def _is_known(u: UOp, known: set[UOp]) -> bool:
    if u.op in _LEAVES:
        return True
    computes = u.op.is_alu or u.op.movement or u.op in _COMPUTES
    if not (u.src and computes and known.issuperset(u.src)):
        return False
    tuned = u.op is Ops.CONTIGUOUS and u.arg is not None  # its Opts are for a kernel of its own
    return not tuned and all([isinstance(d, int) for d in shapes.shape(u)])


def _pays(v: UOp) -> bool:
    below = list(walk.toposort(v))
    given = sum([_bytes(u) for u in below if u.op is Ops.DATA])
    smaller = v.op in _STORED or _bytes(v) <= given
    return bool(given) and smaller and _work(below) >= LEAST_WORK


def _read_more(values: Sequence[UOp]) -> set[UOp]:
    """The values that share arrays and are together larger than these (low and high halves of
    bytes), if computing them in a call is faster than reading the difference."""
    below = {v: list(walk.toposort(v)) for v in values if v.op not in _STORED}
    readers: dict[UOp, list[UOp]] = {}
    for v, nodes in below.items():
        for u in nodes:
            if u.op is Ops.DATA:
                readers.setdefault(u, []).append(v)
    found: set[UOp] = set()
    for v, nodes in below.items():
        sharing = {r for u in nodes if u.op is Ops.DATA for r in readers[u]}
        joined = {u for r in sharing for u in below[r]}
        more = sum(map(_bytes, sharing)) - sum([_bytes(u) for u in joined if u.op is Ops.DATA])
        time = sum([_bytes(u) / 4 * u.op.cost for u in joined if u.op.is_alu])
        if time < more:
            found.add(v)
    return found


def _work(below: Sequence[UOp]) -> float:
    of_reduces = sum([_constant_elements(u.src[0]) for u in below if u.op is Ops.REDUCE])
    return of_reduces + sum([_constant_elements(u) * u.op.cost for u in below if u.op.is_alu])


def _constant_elements(u: UOp) -> int:
    return math.prod(shapes.shape(u))


def _bytes(u: UOp) -> int:
    return _constant_elements(u) * u.dtype.itemsize
