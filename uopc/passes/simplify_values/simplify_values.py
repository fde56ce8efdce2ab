"""Simplify what a kernel computes, by the rules of `ir/symbolic`; `uopc rules` prints them.

Before (kernel)                          After (kernel)
  %1 = param "" slot=0 : f32[8]            %1 = param "" slot=0 : f32[8]
  %2 = range 8 axis=0 kind=loop : index    %2 = range 8 axis=0 kind=loop : index
  %3 = param "" slot=1 : f32[8]            %3 = param "" slot=1 : f32[8]
  %4 = cmplt 0.0:f32, %3[%2] : bool        %4 = cmplt 0.0:f32, %3[%2] : bool
  %5 = where %4, 1.0:f32, 0.0:f32 : f32    %5 = where %4, 2.0:f32, 0.0:f32 : f32
  %6 = mul %5, 2.0:f32 : f32               %6 = sub %5, %3[%2] : f32
  %7 = mul %3[%2], -1.0:f32 : f32          %7 = store %1[%2], %6
  %8 = add %6, %7 : f32                    %8 = end %7, %2
  %9 = store %1[%2], %8                    sink %8 name=""
  %10 = end %9, %2
  sink %10 name=""

LLVM's optimiser does not run, so every node that stays is executed. The builders keep indices in
normal form already. This pass mostly removes selections under known conditions, signs, casts there
and back, and comparisons of comparisons. Floats keep every observable bit (`signed_zeros.py`).
"""

from __future__ import annotations

from uopc.ir.core.uop import UOp
from uopc.ir.symbolic import simplify
from uopc.passes.contract import Context
from uopc.passes.simplify_values.signed_zeros import without_unseen_signs


def simplify_values(kernel: UOp, context: Context) -> UOp:
    """The normal form of every value, index and guard."""
    return simplify.simplify(without_unseen_signs(kernel))
