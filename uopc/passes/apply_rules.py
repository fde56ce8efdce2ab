"""The place of rules that are given without a stage: right before each kernel is final.

Before (vector), rules=double              After (vector)
  %1 = param "" slot=0 : f32[8]              %1 = param "" slot=0 : f32[8]
  %2 = range 8 axis=0.0 kind=loop : index    %2 = range 8 axis=0.0 kind=loop : index
  %3 = param "" slot=1 : f32[8]              %3 = param "" slot=1 : f32[8]
  %4 = load %3[%2] : f32                     %4 = load %3[%2] : f32
  %5 = mul %4, 2.0:f32 : f32                 %5 = add %4, %4 : f32
  %6 = store %1[%2], %5                      %6 = store %1[%2], %5
  %7 = end %6, %2                            %7 = end %6, %2
  sink %7 name=E_8 opts=()                   sink %7 name=E_8 opts=()

`uopc.compile(…, rules=PatternMatcher([...]))` runs these rules here; `rules={"rangeify": …}` runs
some after that pass. The pass itself leaves everything as it is.
"""

from __future__ import annotations

from uopc.ir.core.uop import UOp
from uopc.passes.contract import Context


def apply_rules(kernel: UOp, context: Context) -> UOp:
    """The kernel as it is."""
    return kernel
