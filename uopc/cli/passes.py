"""uopc passes: list the passes in order, the reasons for the order, and the levels of the IR."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from uopc.cli.output import Output, Refuse
from uopc.dump.table import level_change
from uopc.ir.core import levels
from uopc.passes import GROUPS, ORDER, PIPELINE


def arguments(parser: ArgumentParser) -> None:
    """This command takes no arguments."""


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Print three tables."""
    rows = []
    for number, p in PIPELINE:
        doc = p.module.__doc__ or ""
        level = level_change(p.accepts.text, p.promises.text)
        needs = ", ".join([c.text for c in p.conditions])
        rows.append((f"{number:02d}", p.name, p.group, level, p.scope, needs, doc.splitlines()[0]))
    heads = ("", "pass", "group", "level", "runs on each", "if", "what it does")
    out.table(heads, rows)
    out.line()
    out.table(("group", "meaning"), list(GROUPS.items()))
    out.line()
    out.table(("first", "then", "why"), ORDER)
    out.line()
    out.table(("level", "meaning"), [(level.text, s) for level, s in levels.MEANING.items()])
    return 0
