"""uopc rules: list the simplification rules in the order they are tried.

examples:
  uopc rules              every rule set
  uopc rules where-bool   one of them
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from uopc.cli.output import Output, Refuse
from uopc.ir.rewrite.rules import Entry, RuleSet, show
from uopc.ir.symbolic import simplify
from uopc.ir.text.columns import columns


def arguments(parser: ArgumentParser) -> None:
    """A rule set; without it, all rule sets."""
    parser.add_argument("name", nargs="?", metavar="SET", help="list only this rule set")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Print the rules of each set."""
    for number, rules in enumerate(chosen(args.name, refuse)):
        if number:
            out.line()
        out.line(f"{rules.name}, over {numbers(rules)}", "bold")
        for line in columns([_rule_row(e) for e in rules.entries]):
            out.line(f"  {line}")
    return 0


def chosen(name: str | None, refuse: Refuse) -> Sequence[RuleSet]:
    """The rule sets of `simplify`, or the rule set of this name."""
    found = [s for s in simplify.SETS if name in (None, s.name)]
    if not found:
        refuse(f"unknown rule set {name!r}; choose {', '.join(s.name for s in simplify.SETS)}")
    return found


def numbers(rules: RuleSet) -> str:
    """The kinds of numbers for which the rules of a set hold."""
    return ", ".join([str(n.name).lower() for n in rules.over])


def _rule_row(entry: Entry) -> tuple[str, str, str]:
    """A rule's name, left side, and right side with condition; for a function, its docstring."""
    if entry.right is None:
        assert entry.function is not None
        said = " ".join((entry.function.__doc__ or "").split())
        left, arrow, right = said.partition(" → ")
        return entry.name, left if arrow else "", f"→ {right}" if arrow else said
    when = f"  where {', '.join(map(str, entry.when))}" if entry.when else ""
    return entry.name, show(entry.left), f"→ {show(entry.right)}{when}"
