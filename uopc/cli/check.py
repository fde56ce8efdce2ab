"""uopc check: test every simplification rule on numbers.

uopc applies each rule to random graphs that fit it and computes both sides. The exit code is 1
when a rule changes a value, fires on no graph, or is hidden by an earlier rule.

examples:
  uopc check
  uopc check divmod --seed 3
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from uopc.cli import rules
from uopc.cli.output import Output, Refuse
from uopc.ir.rewrite import check_rules
from uopc.ir.symbolic import simplify
from uopc.ir.text.columns import plural


def arguments(parser: ArgumentParser) -> None:
    """A rule set, and the seed of the random graphs."""
    rules.arguments(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of the graphs (default: 0)")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Test the rules; exit code 1 if there is a complaint."""
    complaints: list[str] = []
    total = 0
    for rule_set in rules.chosen(args.name, refuse):
        results = [check_rules.check_rule(rule_set, e, args.seed) for e in rule_set.entries]
        graphs, points = sum(r.graphs for r in results), sum(r.points for r in results)
        total += len(results)
        said = f"{rule_set.name:<16} {plural(len(results), 'rule'):>9}, {graphs:>6} graphs,"
        out.line(f"{said} {points:>8} points, over {rules.numbers(rule_set)}")
        complaints += [str(r.refutation) for r in results if r.refutation is not None]
        complaints += [f"{r.rule}: fired on no graph" for r in results if not r.graphs]
    if args.name is None:
        certain = [r for s in simplify.SETS for e, r in zip(s.entries, s.rules) if e.certain]
        hidden = check_rules.hidden(simplify.RULES.rules, certain)
        complaints += [f"{late.name}: hidden by {early.name}" for late, early in hidden]
    for text in complaints:
        out.line(text, "red")
    wrong = plural(len(complaints), "complaint") if complaints else "all rules preserve values"
    out.line(f"{plural(total, 'rule')}: {wrong}")
    return int(bool(complaints))
