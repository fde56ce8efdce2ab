"""uopc passes: list the passes in order, the reasons for the order, and the levels of the IR."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from uopc.cli.output import Output, Refuse
from uopc.dump.table import level_change
from uopc.ir.core import levels
from uopc.passes import ORDER, PIPELINE


def arguments(parser: ArgumentParser) -> None:
    """This command takes no arguments."""


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Print three tables."""
    rows = []
    for number, p in PIPELINE:
        doc = sys.modules[p.run.__module__].__doc__ or ""
        level = level_change(p.accepts.text, p.promises.text)
        rows.append((f"{number:02d}", p.name, level, p.scope, doc.splitlines()[0]))
    out.table(("", "pass", "level", "runs on", "what it does"), rows)
    out.line()
    out.table(("first", "then", "why"), ORDER)
    out.line()
    out.table(("level", "meaning"), [(level.text, s) for level, s in levels.MEANING.items()])
    return 0
