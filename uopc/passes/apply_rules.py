"""Run the user's own rules on each kernel right before it is final.

Before (vector), rules=double              After (vector)
  %1 = param "" slot=0 : f32[8]              %1 = param "" slot=0 : f32[8]
  %2 = range 8 axis=0.0 kind=loop : index    %2 = range 8 axis=0.0 kind=loop : index
  %3 = param "" slot=1 : f32[8]              %3 = param "" slot=1 : f32[8]
  %4 = load %3[%2] : f32                     %4 = load %3[%2] : f32
  %5 = mul %4, 2.0:f32 : f32                 %5 = add %4, %4 : f32
  %6 = store %1[%2], %5                      %6 = store %1[%2], %5
  %7 = end %6, %2                            %7 = end %6, %2
  sink %7 name=E_8 opts=()                   sink %7 name=E_8 opts=()

`uopc.compile(…, rules=PatternMatcher([...]))`; without rules this pass leaves everything as it is.
"""

from __future__ import annotations

from uopc.ir.core.levels import VECTOR
from uopc.ir.core.uop import UOp
from uopc.passes.contract import Context, Pass


def apply_rules(kernel: UOp, context: Context) -> UOp:
    """The kernel after the user's rules, or as it is."""
    if context.user_rules is None:
        return kernel
    from uopc.ir.rewrite.engine import graph_rewrite

    return graph_rewrite(kernel, context.user_rules, name="user rules")


PASS = Pass("apply-rules", VECTOR, VECTOR, apply_rules, "kernel")
