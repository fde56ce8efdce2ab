"""Operands of products that are stored for a machine whose products run in tiles.

On a GPU a product is fast if its operands are in memory: every thread, or tensor core, reads
elements that an entire row or column of the result uses. A normalisation computed in place is
repeated for each column, or keeps the product out of its tile.
"""

from __future__ import annotations

from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.contraction import repeats_factors
from uopc.passes.place_stages.value_costs import Measures

# An operand of more than CHEAP_OPERAND operations is stored if each element is used at least this
# often, in a product of at least this many terms: 20 µs of a device without tensor cores.
LEAST_USES, LEAST_TERMS = 32, 1 << 28
CHEAP_OPERAND = 8.0


def computed_operands(facts: Measures) -> dict[UOp, str]:
    """Operands of large products that take a reduce or many operations to compute, each with the
    reason to store it."""
    found: dict[UOp, str] = {}
    reduced: set[UOp] = set()  # computed from a reduce over storage, not stored
    for u in facts.order:
        if u not in facts.fixed and not u.op.is_storage:
            own = u.op is Ops.REDUCE and facts.of[u].reads
            if own or any([s in reduced for s in u.src]):
                reduced.add(u)
        if u.op is not Ops.REDUCE or not repeats_factors(u.src[0]):
            continue
        terms = shapes.size(shapes.shape(u.src[0]))
        for s in u.src[0].src:
            v = _as_stored(s)
            elements = shapes.size(shapes.shape(v))
            if not isinstance(terms, int) or not isinstance(elements, int) or not elements:
                continue
            if terms < LEAST_TERMS or terms < LEAST_USES * elements:
                continue
            is_computed = not v.op.is_storage and v not in facts.fixed and v.op is not Ops.CONST
            if is_computed and (v in reduced or facts.of[v].cost > CHEAP_OPERAND):
                found[v] = f"an operand of a product, each element used {terms // elements} times"
    return found


def _as_stored(s: UOp) -> UOp:
    """The value under an operand's views and widening cast."""
    while s.op.movement or (s.op is Ops.CAST and s.dtype.itemsize >= s.src[0].dtype.itemsize):
        s = s.src[0]
    return s
