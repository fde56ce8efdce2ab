"""Sums of products before they have loops: whether factors are used again.

`ir/nest/contractions.py` answers for a REDUCE in a kernel, with the loops of each factor.
"""

from __future__ import annotations

from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import DOTS, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.contractions import is_product
from uopc.passes.contract import Context

# The largest register tile of a contraction, which computes all of its elements or none.
MOST_ROWS, MOST_VECTORS = 16, 4
_NARROW = (dtypes.uint8, dtypes.int8, dtypes.int16)  # those that int16 has


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


def repeats_factors(product: UOp) -> bool:
    """True if a REDUCE of shapes combines products, and each factor is used more than once."""
    return is_product(product) and all([is_repeated(s, product) for s in product.src])


def is_repeated(factor: UOp, product: UOp) -> bool:
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
