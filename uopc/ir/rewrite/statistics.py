"""Statistics per rule: attempts, matches and time, while collection is on.

Off by default. When on, matchers try their rules one by one with a clock around each, so the
numbers compare rules with each other; the decision trees used otherwise are faster.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

from uopc.errors import UserTypeError
from uopc.ir.core.ops import Op
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.ir.rewrite import compile
from uopc.ir.rewrite.matcher import PatternMatcher
from uopc.ir.rewrite.pattern import Hit, MatcherTable, MatchFunction, Rule


@dataclass(slots=True)
class RuleStatistics:
    """The statistics of a rule: nodes tried, nodes rewritten, and seconds.

    `matching` is the time to test the pattern, `total` includes the rule's function.
    """

    rule: Rule
    attempts: int = 0
    matches: int = 0
    matching: float = 0.0
    total: float = 0.0

    @property
    def rate(self) -> float:
        """Matches per attempt."""
        return self.matches / self.attempts if self.attempts else 0.0

    def __str__(self) -> str:
        times = f"{self.matching * 1e3:9.2f} / {self.total * 1e3:9.2f} ms"
        return (
            f"{self.matches:8d} / {self.attempts:8d}  {self.rate:6.1%} {times}  "
            f"{self.rule.name}  {self.rule.source_line}"
        )


_on = False
_rows: dict[Rule, RuleStatistics] = {}
_tables: weakref.WeakKeyDictionary[PatternMatcher, MatcherTable] = weakref.WeakKeyDictionary()


def collect(on: bool) -> None:
    """Turn collection on or off, for the whole process."""
    global _on
    _on = on


def clear() -> None:
    """Forget all counts."""
    _rows.clear()
    _tables.clear()


def statistics() -> list[RuleStatistics]:
    """A row for every rule that was tried, the most expensive first."""
    return sorted(_rows.values(), key=lambda r: -r.total)


def report() -> str:
    """The rows as text, with sums."""
    rows = statistics()
    hits, tried = sum(r.matches for r in rows), sum(r.attempts for r in rows)
    seconds = sum(r.total for r in rows)
    lines = ["    hits / attempts    rate   matching /     total     rule"]
    lines += [str(r) for r in rows]
    return "\n".join([*lines, f"{hits:8d} / {tried:8d}  in {seconds * 1e3:.2f} ms: all rules"])


def table_of(pm: PatternMatcher) -> MatcherTable:
    """The functions of a matcher by root op; while collection is on, the counting functions."""
    if not isinstance(pm, PatternMatcher):
        raise UserTypeError(f"expected a PatternMatcher, got {pm!r}")
    if not _on:
        return pm.table
    found = _tables.get(pm)
    if found is None:
        found = _tables[pm] = MatcherTable(lambda op: _counting(pm.rules_for(op), op))
    return found


def _counting(rules: Sequence[Rule], op: Op) -> MatchFunction | None:
    """A function that tries the rules one by one, with counters."""
    attempts = [_counted(rule, op) for rule in rules]

    def match(u: UOp, ctx: Any) -> Hit | None:
        return next((hit for attempt in attempts if (hit := attempt(u, ctx)) is not None), None)

    return match if attempts else None


def _counted(rule: Rule, op: Op) -> MatchFunction:
    """A rule compiled alone, with separate clocks for its function and its pattern."""
    row = _rows.setdefault(rule, RuleStatistics(rule))
    inside = 0

    def timed(*args: Any, **named: Any) -> Any:
        nonlocal inside
        start = perf_counter_ns()
        try:
            return rule.function(*args, **named)
        finally:
            inside += perf_counter_ns() - start

    function = compile.compile_rules([rule.calling(timed)], op)

    def attempt(u: UOp, ctx: Any) -> Hit | None:
        nonlocal inside
        inside = 0
        start = perf_counter_ns()
        try:
            hit = function(u, ctx)
        finally:
            total = perf_counter_ns() - start
            row.attempts += 1
            row.total += total * 1e-9
            row.matching += (total - inside) * 1e-9
        row.matches += hit is not None
        return None if hit is None else (hit[0], rule)

    return attempt
