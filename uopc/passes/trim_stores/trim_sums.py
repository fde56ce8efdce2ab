"""Terms of a sum of products that are zero outside of a comparison of loops: a guard says so.

    for i: for c: y[i, c] = Σ_j exp(where(j <= i, s[i, j], -inf) - m[i]) · v[j, c]
    →                       y[i, c] = Σ_j where(j <= i, exp(…) · v[j, c], 0)

With exact zeros (`fast_zeros`) a number plus -inf is -inf, e to the power of that 0, and so is a
product with it. Without, weights of a softmax are 0 behind the mask, and `hidden_terms.py` says
which results are NaN. `optimize` cuts the loop of the sum where the guard begins to hold: rows of a
causal attention then add up the keys before them alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from uopc.ir.builder import fold, leaves, rebuild
from uopc.ir.builder.programs import Slots
from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.nest.loops import trips
from uopc.passes.analysis.contraction import MOST_ROWS
from uopc.passes.trim_stores import hidden_terms
from uopc.passes.trim_stores.conditions import Conditions, both, guard_of, required, share_outside

# The terms left out, for each value, from which on the search for values that are no numbers costs
# less (`hidden_terms.py`).
LEAST_SAVED = 8


def trim_sums(graph: UOp) -> UOp:
    """The graph with guards on the terms of sums of products that are zero elsewhere."""
    guards: dict[UOp, tuple[UOp, _Hidden | None]] = {}
    for u in walk.nodes(graph):
        if u.op is Ops.REDUCE and u.arg.op == "add" and u.dtype.is_float:
            found = _guard(u)
            if found is not None:
                guards[u] = found
    if not guards:
        return graph
    slots = Slots(graph)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        guard, hidden = guards[u]
        term = fold.select(guard, src[0], leaves.const(u.dtype, 0))
        made = intern(Ops.REDUCE, u.dtype, (term, *src[1:]), u.arg)
        if hidden is not None:
            factor = src[0].src[hidden.factor]
            for bound in hidden.bounds:
                lost = hidden_terms.is_lost(factor, u.src[1], bound, slots())
                made = fold.select(lost, leaves.const(u.dtype, math.nan), made)
        return made

    return rebuild.rewritten(graph, change, outside_kernels=True, only=guards)


def guard_of_weights(conditions: Conditions, rows: list[UOp]) -> UOp | None:
    """The conditions on weights as a guard, if products with them are worth one."""
    blocks = dict.fromkeys(rows, MOST_ROWS)
    moved = [m for m in rows if any([m in dict(terms) for terms in conditions])]
    return guard_of(conditions, blocks) if _saves(moved, conditions, blocks) else None


def _saves(rows: Iterable[UOp], conditions: Conditions, blocks: Mapping[UOp, int]) -> bool:
    """True if terms of enough rows are left out."""
    return float(trips(rows)) * share_outside(conditions, blocks) >= LEAST_SAVED


class _Hidden(NamedTuple):
    """The terms that a guard leaves out are NaN where this factor of the product is no number."""

    factor: int
    bounds: list[hidden_terms.HiddenBound]


def _guard(reduce: UOp) -> tuple[UOp, _Hidden | None] | None:
    """The condition on loops under which a term of a sum of products may differ from 0; and, if
    zeros are not exact, the factor that may make the other terms NaN."""
    product = reduce.src[0]
    if product.op is not Ops.MUL:
        return None
    found: Conditions = {}
    for mask, inside, outside in _masks(product):
        conditions = {
            terms: c for terms, c in required(mask.src[0], inside).items()
            if any([m in reduce.src[1:] for m, _ in terms])
        }  # fmt: skip
        if not conditions:
            continue
        if product.arg != fold.FAST:
            guard = guard_of(conditions, _blocks(conditions, reduce))
            hidden = None if guard is None else _hidden(reduce, mask, outside, conditions)
            if guard is not None and hidden is not None:
                return guard, hidden
        elif _is_zero(rebuild.rebuild(product, {mask: outside})):
            found = both(found, conditions)
    guard = guard_of(found, _blocks(found, reduce))
    return None if guard is None else (guard, None)


def _blocks(conditions: Conditions, reduce: UOp) -> dict[UOp, int]:
    """A tile of rows takes a term of a sum if one of its rows does."""
    rows = [m for terms in conditions for m, _ in terms if m not in reduce.src[1:]]
    return dict.fromkeys(rows, MOST_ROWS)


def _hidden(reduce: UOp, mask: UOp, outside: UOp, conditions: Conditions) -> _Hidden | None:
    """The factor that the weights of a softmax, 0 behind the mask, are multiplied by."""
    product, loops = reduce.src[0], reduce.src[1:]
    if outside.arg != -math.inf or len(loops) != 1:
        return None
    for n in (0, 1):
        weight, value = product.src[1 - n], product.src[n]
        rows = ranges.ranges(weight) - ranges.ranges(value)
        saves = _saves(rows, conditions, _blocks(conditions, reduce))
        if not saves or not hidden_terms.has_places(value, loops[0]):
            continue
        if hidden_terms.are_weights(weight, mask, loops[0]):
            found = hidden_terms.bounds_of(conditions, loops[0])
            return None if found is None else _Hidden(n, found)
    return None


def _masks(product: UOp) -> Iterator[tuple[UOp, bool, UOp]]:
    """The selections of a number in a product: each with the condition of the other value, and the
    number."""
    inner = (Ops.REDUCE, Ops.AFTER, Ops.INDEX)
    for u in walk.toposort(product, gate=lambda u: u.op not in inner):
        if u.op is Ops.WHERE and u.dtype.is_float:
            inside = u.src[1].op is not Ops.CONST
            if u.src[1 + inside].op is Ops.CONST:
                yield u, inside, u.src[1 + inside]


def _is_zero(u: UOp) -> bool:
    return u.op is Ops.CONST and u.arg == 0
