"""Contractions: sums of products, with the loops of rows, columns and depth.

    for i: for j: for k: c[i, j] += a[i, k] · b[k, j]       rows i, columns j, depth k
"""

from __future__ import annotations

from collections.abc import Iterable

from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import DOTS, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass

PRODUCTS = (Ops.MUL, *DOTS)


@dataclass(frozen=True)
class Contraction:
    """`reduce` is Σ a·b. Only a moves with the loops `rows`, only b with the loops `columns`; both
    have outer loops first."""

    reduce: UOp
    a: UOp
    b: UOp
    rows: tuple[UOp, ...]
    columns: tuple[UOp, ...]

    @staticmethod
    def of(reduce: UOp, product: UOp) -> Contraction:
        """The contraction that sums a product. a and b are the first two of its factors."""
        a, b = product.src[:2]
        of_a, of_b = ranges.ranges(a), ranges.ranges(b)
        return Contraction(reduce, a, b, _loops(of_a - of_b), _loops(of_b - of_a))

    @property
    def depth(self) -> tuple[UOp, ...]:
        """The loops over the products that are added up."""
        return ranges.closed_ranges(self.reduce)

    def transposed(self) -> Contraction:
        """The contraction with its factors swapped."""
        return Contraction(self.reduce, self.b, self.a, self.columns, self.rows)

    def with_column(self, r: UOp | None) -> Contraction | None:
        """The contraction with its factors ordered so that a loop is a column; None unless exactly
        one factor moves with the loop."""
        if r in self.rows:
            return self.transposed()
        return self if r in self.columns else None


def find_contraction(reduce: UOp, guarded: bool = False) -> Contraction | None:
    """The sum of products that a REDUCE of a kernel is, or of products under a guard if `guarded`;
    None if it is another reduction."""
    product = term(reduce) if guarded else reduce.src[0]
    if reduce.op is not Ops.REDUCE or reduce.arg.op != "add" or not is_product(product):
        return None
    return Contraction.of(reduce, product)


def find_pairing(reduce: UOp, column: UOp) -> Contraction | None:
    """A reduce of terms that combine one element of an array b, which moves with the loop `column`,
    with elements that do not: Σ |x[i, k] − y[j, k]|. a is the element that moves with the innermost
    row. None for other reduces, and for terms with guards or with reduces inside."""
    below = walk.toposort(reduce.src[0], gate=lambda u: u.op is not Ops.INDEX)
    reads = [u for u in below if u.op is Ops.INDEX]
    moving = [u for u in reads if column in ranges.ranges(u)]
    if len(moving) != 1 or any([u.op is Ops.REDUCE for u in below]):
        return None
    own = ranges.ranges(moving[0])
    others = set[UOp]().union(*[ranges.ranges(u) for u in reads])
    rows = _loops(others - own)
    if not rows or others != ranges.ranges(reduce.src[0]):
        return None
    a = next(u for u in reads if rows[-1] in ranges.ranges(u))
    return Contraction(reduce, a, moving[0], rows, _loops(own - ranges.ranges(a)))


def is_product(u: UOp) -> bool:
    """True for a product of two operands. A dot product of three adds a number to each."""
    return u.op in PRODUCTS and len(u.src) == 2


def term(reduce: UOp) -> UOp:
    """The value that a REDUCE combines if its guard (a comparison of loops) holds. Without the
    guard, the term of a sum is 0."""
    u = reduce.src[0]
    if u.op is not Ops.WHERE or u.src[2].op is not Ops.CONST or u.src[2].arg != 0:
        return u
    loads = any([v.op is Ops.INDEX for v in walk.toposort(u.src[0])])
    return u if loads or reduce.arg.op != "add" else u.src[1]


def _loops(found: Iterable[UOp]) -> tuple[UOp, ...]:
    loops = [r for r in found if r.arg.kind == "loop"]
    return tuple(sorted(loops, key=lambda r: r.arg.axis))
