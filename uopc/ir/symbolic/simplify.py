"""`simplify`, and its rule sets in the order in which they are tried."""

from __future__ import annotations

from uopc.ir.rewrite.rules import RuleSet, matcher
from uopc.ir.symbolic import fixpoint
from uopc.ir.symbolic.fixpoint import is_sum, needed, replaced, rules_for, simplify
from uopc.ir.symbolic.rules_algebra import (
    BOUNDS,
    CASTS,
    COMPARISONS,
    CONSTANTS,
    FLOATS,
    GREATER,
    SHIFTS,
    SUMS,
)  # fmt: skip
from uopc.ir.symbolic.rules_divmod import DIVMOD, TRUNCATING
from uopc.ir.symbolic.rules_logic import CONDITIONS, LATTICE, LOGIC
from uopc.ir.symbolic.rules_where import (
    SELECT_GREATER,
    SELECT_INDEX,
    SELECTIONS,
    UNDER_CONDITION,
    WHERE,
    WHERE_BOOL,
)  # fmt: skip

__all__ = ["RULES", "SETS", "is_sum", "needed", "replaced", "rules_for", "simplify"]

# Rules that decide a node at once come first.
SETS: tuple[RuleSet, ...] = (
    BOUNDS, CONSTANTS, LATTICE, LOGIC, SUMS, SHIFTS, COMPARISONS, GREATER, CONDITIONS,
    DIVMOD, TRUNCATING, CASTS, FLOATS, SELECTIONS, WHERE_BOOL, WHERE, SELECT_GREATER, SELECT_INDEX,
    UNDER_CONDITION,
)  # fmt: skip
RULES = matcher(*SETS)
fixpoint.use(SETS)
