"""`simplify`, and its rule sets in the order in which they are tried."""

from __future__ import annotations

from uopc.ir.rewrite.rules import RuleSet, matcher
from uopc.ir.symbolic import fixpoint, rules_algebra, rules_divmod, rules_logic, rules_where
from uopc.ir.symbolic.fixpoint import replaced, simplify
from uopc.ir.symbolic.shorten import simplified

__all__ = ["RULES", "SETS", "replaced", "simplified", "simplify"]

# Rules that decide a node at once come first.
SETS: tuple[RuleSet, ...] = (
    rules_algebra.BOUNDS, rules_algebra.CONSTANTS, rules_logic.LATTICE, rules_logic.LOGIC,
    rules_algebra.SUMS, rules_algebra.SHIFTS, rules_algebra.COMPARISONS, rules_algebra.GREATER,
    rules_logic.CONDITIONS, rules_divmod.DIVMOD, rules_divmod.FACTORS, rules_divmod.TRUNCATING,
    rules_algebra.CASTS, rules_algebra.FLOATS, rules_where.SELECTIONS, rules_where.WHERE_BOOL,
    rules_where.WHERE, rules_where.SELECT_GREATER, rules_where.SELECT_INDEX,
    rules_where.UNDER_CONDITION,
)  # fmt: skip
RULES = matcher(*SETS)
fixpoint.use(SETS)
