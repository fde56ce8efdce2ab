"""uopc ops: list the ops, or describe one in full.

examples:
  uopc ops            every op, with the levels at which it is legal
  uopc ops reduce     operands, argument, dtype and shape rules of one op
"""

from __future__ import annotations

import difflib
from argparse import ArgumentParser, Namespace

from uopc.cli.output import Output, Refuse
from uopc.ir.core.levels import Level
from uopc.ir.core.ops import Op


def arguments(parser: ArgumentParser) -> None:
    """An op; without it, all ops."""
    parser.add_argument("name", nargs="?", metavar="NAME")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Print the op table, or one row of it."""
    if args.name is None:
        _print_table(out)
        return 0
    names = {o.name: o for o in Op.all()}
    op = names.get(args.name.lower())
    if op is None:
        near = difflib.get_close_matches(args.name.lower(), names, 1)
        hint = f"Did you mean {near[0]!r}?" if near else "`uopc ops` lists all."
        refuse(f"unknown op {args.name!r}. {hint}")
    facts = {
        "operands": op.arity_text,
        "arg": " or ".join("none" if t is type(None) else t.__name__ for t in op.arg),
        "dtype": op.dtype,
        "shape": op.shape,
        "levels": " ".join(level.text for level in Level if level & op.levels),
        "symbol": op.symbol,
        "properties": " ".join(f for f in ("commutes", "effect", "movement") if getattr(op, f)),
    }
    out.line(f"{op.name} {' '.join(op.operands)}".rstrip(), "bold")
    out.line(f"  {op.doc}")
    for name, value in facts.items():
        if value:
            out.line(f"  {name:<11}{value}")
    return 0


def _print_table(out: Output) -> None:
    letters = {level: level.text[0].upper() for level in Level}
    rows = []
    for o in Op.all():
        levels = "".join([a if level & o.levels else "." for level, a in letters.items()])
        rows.append((o.name, " ".join(o.operands), levels, o.doc))
    out.table(("op", "operands", "levels", "meaning"), rows)
    out.line("levels: " + ", ".join([f"{a} {level.text}" for level, a in letters.items()]))
