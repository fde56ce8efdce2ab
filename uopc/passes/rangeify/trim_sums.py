"""Terms of a sum of products that are zero outside of a comparison of loops: a guard says so.

    for i: for c: y[i, c] = Σ_j exp(where(j <= i, s[i, j], -inf) - m[i]) · v[j, c]
    →                       y[i, c] = Σ_j where(j <= i, exp(…) · v[j, c], 0)

With exact zeros (`fast_zeros`) a number plus -inf is -inf, e to the power of that 0, and so is a
product with it. `optimize` cuts the loop of the sum where the guard begins to hold: rows of a
causal attention then add up the keys before them alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from uopc.ir.builder import fold, leaves, rebuild
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.rangeify.conditions import Conditions, both, guard_of, required


def trim_sums(graph: UOp) -> UOp:
    """The graph with guards on the terms of sums of products that are zero elsewhere."""
    guards: dict[UOp, UOp] = {}
    for u in walk.nodes(graph):
        if u.op is Ops.REDUCE and u.arg.op == "add" and u.dtype.is_float:
            guard = _guard(u)
            if guard is not None:
                guards[u] = guard
    if not guards:
        return graph

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        term = fold.select(guards[u], src[0], leaves.const(u.dtype, 0))
        return intern(Ops.REDUCE, u.dtype, (term, *src[1:]), u.arg)

    return rebuild.rewritten(graph, change, outside_kernels=True, only=guards)


def _guard(reduce: UOp) -> UOp | None:
    """The condition on the loops of a sum of products where its term may be other than 0."""
    product = reduce.src[0]
    if product.op is not Ops.MUL or product.arg != fold.FAST:
        return None
    found: Conditions = {}
    for mask, inside, outside in _masks(product):
        conditions = {
            terms: c for terms, c in required(mask.src[0], inside).items()
            if any([m in reduce.src[1:] for m, _ in terms])
        }  # fmt: skip
        if conditions and _is_zero(rebuild.rebuild(product, {mask: outside})):
            found = both(found, conditions)
    return guard_of(found)


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
