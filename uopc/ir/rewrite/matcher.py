"""PatternMatcher: rules by root op, compiled to one function each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from uopc.errors import Immutable, UserError, UserTypeError
from uopc.ir.core.ops import Op
from uopc.ir.core.uop import UOp
from uopc.ir.rewrite.pattern import MatcherTable, MatchFunction, Rule, RuleFunction, UPat


class PatternMatcher(Immutable):
    """Rules in order: the first rule that matches and returns a value wins.

    Takes (UPat, function) pairs and `Rule`s. The function gets the bound names as keywords, and
    `ctx` if it has such a parameter. `a + b` has the rules of `a`, then the rules of `b`.

    Examples:
        >>> a = uopc.UPat.var("a")
        >>> rules = uopc.PatternMatcher([(a * 1, lambda a: a), (a + a, lambda a: a * 2)])
        >>> x = uopc.param("x", (2,))
        >>> rules.rewrite(x + x) is x * 2
        True
    """

    __slots__ = ("__weakref__", "rules", "table")
    rules: tuple[Rule, ...]
    table: MatcherTable

    def __init__(self, rules: Iterable[Rule | tuple[UPat, RuleFunction]]) -> None:
        if not isinstance(rules, Iterable):
            raise UserTypeError(f"PatternMatcher: expected a list of rules, got {rules!r}")
        self._keep(rules=tuple([as_rule(r) for r in rules]), table=MatcherTable(self._compiled))

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        return PatternMatcher(self.rules + other.rules)

    def rules_for(self, op: Op) -> list[Rule]:
        """The rules that may fit a node of an op, in order.

        Examples:
            >>> a = uopc.UPat.var("a")
            >>> rules = uopc.PatternMatcher([(a * 1, lambda a: a), (a + a, lambda a: a * 2)])
            >>> len(rules.rules_for(uopc.Ops.ADD)), len(rules.rules_for(uopc.Ops.SUB))
            (1, 0)
        """
        return [r for r in self.rules if r.roots is None or op in r.roots]

    def _compiled(self, op: Op) -> MatchFunction | None:
        from uopc.ir.rewrite import compile

        rules = self.rules_for(op)
        return compile.compile_rules(rules, op) if rules else None

    def rewrite(self, u: UOp, ctx: Any = None) -> Any:
        """The replacement of `u` by the first rule that fits, or None.

        `ctx` goes to functions with such a parameter.

        Examples:
            >>> a = uopc.UPat.var("a")
            >>> rules = uopc.PatternMatcher([(a + a, lambda a: a * 2)])
            >>> x, y = uopc.param("x", (2,)), uopc.param("y", (2,))
            >>> rules.rewrite(x + x) is x * 2, rules.rewrite(x + y)
            (True, None)
        """
        function = self.table[u.op]
        hit = None if function is None else function(u, ctx)
        return None if hit is None else hit[0]

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return PatternMatcher, (self.rules,)  # functions are compiled again

    def __repr__(self) -> str:
        return f"PatternMatcher({len(self.rules)} rules)"


def as_rule(given: Rule | tuple[UPat, RuleFunction]) -> Rule:
    """A (UPat, function) pair or a Rule as a Rule; UserError for anything else."""
    if isinstance(given, Rule):
        return given
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], UPat)):
        raise UserError(f"PatternMatcher: a rule is a pair (UPat, function), got {given!r}")
    if not callable(given[1]):
        raise UserTypeError(f"PatternMatcher: {given[1]!r} is not a function")
    return Rule(*given)
