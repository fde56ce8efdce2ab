"""`uopc rules` and `uopc check`: the book of rules, and the rules tried on numbers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from uopc.ir.rewrite import check_rules
from uopc.ir.rewrite.pattern import Rule
from uopc.ir.rewrite.rules import Entry, Numbers, RuleSet, show
from uopc.ir.symbolic import simplify as symbolic

if TYPE_CHECKING:
    from uopc.cli.main import Output

Refuse = Callable[[str], Any]


def _chosen(name: str | None, refuse: Refuse) -> Sequence[RuleSet]:
    """The rule sets of `simplify`, or the one of that name."""
    if name is None:
        return symbolic.SETS
    found = [s for s in symbolic.SETS if s.name == name]
    if not found:
        refuse(f"no rule set {name!r}; there are {', '.join(s.name for s in symbolic.SETS)}")
    return found


def _over(numbers: Numbers) -> str:
    return ", ".join([str(n.name).lower() for n in numbers])


# ---------------------------------------------------------------- rules
def run_rules(args: Namespace, out: Output, refuse: Refuse) -> int:
    """`uopc rules`: every rule of simplify in the order in which they are tried."""
    for number, rules in enumerate(_chosen(args.name, refuse)):
        if number:
            out.line("")
        out.line(f"{rules.name}, over {_over(rules.over)}", "bold")
        rows = [_row(e) for e in rules.entries]
        widths = [max([len(r[i]) for r in rows]) for i in range(2)]
        for name, left, right in rows:
            out.line(f"  {name.ljust(widths[0])}  {left.ljust(widths[1])}  {right}".rstrip())
    return 0


def _row(entry: Entry) -> tuple[str, str, str]:
    """Name, left side, and right side with the condition; a function says what it does."""
    if entry.right is None:
        assert entry.function is not None
        said = " ".join((entry.function.__doc__ or "").split())
        left, arrow, right = said.partition(" → ")
        return entry.name, left if arrow else "", f"→ {right}" if arrow else said
    when = f"  where {', '.join(map(str, entry.when))}" if entry.when else ""
    return entry.name, show(entry.left), f"→ {show(entry.right)}{when}"


# ---------------------------------------------------------------- check
def run_check(args: Namespace, out: Output, refuse: Refuse) -> int:
    """`uopc check`: each rule tried on graphs that fit it; exit code 1 where one is wrong."""
    complaints: list[str] = []
    total = 0
    for rules in _chosen(args.name, refuse):
        results = [check_rules.tried(rules, e, args.seed) for e in rules.entries]
        graphs, places = sum(r.graphs for r in results), sum(r.places for r in results)
        total += len(results)
        count = _count(len(results), "rule")
        said = f"{rules.name:<16} {count:>9}, {graphs:>6} graphs, {places:>8} places"
        out.line(f"{said}, over {_over(rules.over)}")
        complaints += [str(r.refutation) for r in results if r.refutation is not None]
        complaints += [f"{r.rule}: fired on no graph" for r in results if not r.graphs]
    if args.name is None:
        complaints += [f"{late.name}: hidden by {early.name}" for late, early in _hidden()]
    for text in complaints:
        out.line(text, "red")
    wrong = _count(len(complaints), "complaint") if complaints else "every one keeps the values"
    out.line(f"{_count(total, 'rule')}: {wrong}")
    return int(bool(complaints))


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _hidden() -> list[tuple[Rule, Rule]]:
    certain = [r for s in symbolic.SETS for e, r in zip(s.entries, s.rules) if e.certain]
    return check_rules.hidden(symbolic.RULES.rules, certain)
