"""Comparisons of integers that ranges count, made on index values.

    p = cmplt (cast i : i32) 700:i32   →   p = cmplt i 700

A mask compares in its own dtype: `arange(n) < 700`. Its values are computed from ranges, and if
bounds exclude wrapping, the comparison is one of indices: loops can be split at its breakpoint, it
folds in the parts, and equal comparisons become one node.
"""

from __future__ import annotations

from uopc.ir.builder import rebuild
from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import COMPARISONS
from uopc.ir.core.uop import UOp
from uopc.passes.analysis import counted


def with_counted_comparisons(kernel: UOp) -> UOp:
    """The kernel with comparisons of indices for integers that are indices."""
    candidates = {
        u for u in walk.order(kernel)
        if u.op in COMPARISONS and u.src[0].dtype.is_int and ranges.ranges(u)
    }  # fmt: skip
    memo: dict[UOp, UOp | None] = {}

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return counted.comparison(u, src, memo)

    return rebuild.rewritten(kernel, change, only=candidates) if candidates else kernel
