"""The one test for a contraction: a sum of products whose factors are used again.

A matrix product or a convolution. `repeats_factors` answers for what a REDUCE of shapes combines,
before there are loops; `find_contraction` answers for a REDUCE in a kernel, with the loops of each
factor.
"""

from __future__ import annotations

from dataclasses import dataclass

from uopc.ir.core import dtypes, ranges, shapes, walk
from uopc.ir.core.ops import DOTS, Ops
from uopc.ir.core.uop import UOp
from uopc.passes.contract import Context

PRODUCTS = (Ops.MUL, *DOTS)
# The largest register tile of a contraction, which computes all of its elements or none.
MOST_ROWS, MOST_VECTORS = 16, 4
_NARROW = (dtypes.uint8, dtypes.int8, dtypes.int16)  # those that int16 has


@dataclass(frozen=True)
class Contraction:
    """`reduce` is Σ a·b. Only a moves with the loops `rows`, only b with the loops `columns`; both
    lists have outer loops first."""

    reduce: UOp
    a: UOp
    b: UOp
    rows: list[UOp]
    columns: list[UOp]

    def transposed(self) -> Contraction:
        """The same sum with its factors in the other order."""
        return Contraction(self.reduce, self.b, self.a, self.columns, self.rows)


def _is_product(u: UOp) -> bool:
    """True for a product of two operands. A dot product of three adds a number to each."""
    return u.op in PRODUCTS and len(u.src) == 2


def term(reduce: UOp) -> UOp:
    """The value that a REDUCE combines where its guard holds: a comparison of loops, outside of
    which a term of a sum is 0.
    """
    u = reduce.src[0]
    if u.op is not Ops.WHERE or u.src[2].op is not Ops.CONST or u.src[2].arg != 0:
        return u
    loads = any([v.op is Ops.INDEX for v in walk.toposort(u.src[0])])
    return u if loads or reduce.arg.op != "add" else u.src[1]


def find_contraction(reduce: UOp, guarded: bool = False) -> Contraction | None:
    """The sum of products that a REDUCE of a kernel is, or of products under a guard if `guarded`;
    None if it is another reduction."""
    product = term(reduce) if guarded else reduce.src[0]
    if reduce.op is not Ops.REDUCE or reduce.arg.op != "add" or not _is_product(product):
        return None
    a, b = product.src
    of_a, of_b = ranges.ranges(a), ranges.ranges(b)
    return Contraction(reduce, a, b, _loops(of_a - of_b), _loops(of_b - of_a))


def narrow_factors(product: UOp) -> tuple[UOp, UOp] | None:
    """The two integers of at most 16 bits whose product as int32 a node is; None for another."""
    if product.op is not Ops.MUL or product.dtype.scalar is not dtypes.int32:
        return None
    a, b = [s.src[0] if s.op is Ops.CAST else s for s in product.src]
    return (a, b) if a.dtype.scalar in _NARROW and b.dtype.scalar in _NARROW else None


def terms_of_a_word(product: UOp, context: Context) -> int:
    """The neighbours along a sum of products that an instruction adds up in 32 bits: 4 bytes by
    DOT4; 2 numbers of 16 bits, as x86 has it for signed ones; else 1."""
    factors, target = narrow_factors(product), context.target
    if factors is None or target.gpu is not None:
        return 1
    if max([f.dtype.bits for f in factors]) == 8 and context.has_dot4:
        return 4
    return 2 if target.has("sse2") else 1


def _loops(ranges: frozenset[UOp]) -> list[UOp]:
    return sorted([r for r in ranges if r.arg.kind == "loop"], key=lambda r: r.arg.axis)


def repeats_factors(product: UOp) -> bool:
    """True if what a REDUCE of shapes combines are products whose factors are each used more than
    once."""
    return _is_product(product) and all([_is_repeated(s, product) for s in product.src])


def _is_repeated(factor: UOp, product: UOp) -> bool:
    """True if a product has elements of its factor, seen through views, more than once."""
    dims, wanted = shapes.shape(factor), shapes.shape(product)
    if not (dims == wanted or shapes.size(dims) == shapes.size(wanted)):
        return True
    seen = (Ops.CAST, Ops.AFTER, *([Ops.BITCAST] if product.op in DOTS else []))
    while factor.op.movement or factor.op in seen:
        if factor.op is Ops.EXPAND:
            return True
        factor = factor.src[0]
    return False
