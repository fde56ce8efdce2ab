"""Run the user's own rules on each kernel right before it is final.

Before (vector)                               After (vector), rules = (x*2 → x+x)
  %2 = mul %1, 2.0:f32                          %2 = add %1, %1

`uopc.compile(…, rules=PatternMatcher([...]))`; without rules this pass leaves everything as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.levels import VECTOR
from uopc.passes.contract import Context, Pass

if TYPE_CHECKING:
    from uopc.ir.uop import UOp


def apply_rules(kernel: UOp, context: Context) -> UOp:
    if context.user_rules is None:
        return kernel
    from uopc.ir.rewrite import graph_rewrite

    return graph_rewrite(kernel, context.user_rules, name="user rules")


PASS = Pass("apply-rules", VECTOR, VECTOR, apply_rules, "kernel")
