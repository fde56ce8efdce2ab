"""The rewrites of a stage for the report: by rule, with examples; and its nodes by op."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from uopc.dump.report.values import Interned
from uopc.dump.stages import Dump
from uopc.ir.core.trace import Fired
from uopc.ir.core.uop import UOp
from uopc.ir.text.infix import infix

MOST_EXAMPLES: Final = 12  # of a rule in a stage; the page gives the full number
_CHARACTERS: Final = 100
_OPERANDS: Final = 8
_HERE: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__)))) + os.sep


def by_rule(rewrites: Sequence[Fired], texts: Interned) -> list[Any]:
    """For each rule, most used first: its label, its count, and examples as before and after."""
    label = {rule: short(rule.label) for rule in {f.rule: None for f in rewrites}}
    counts = Counter([label[f.rule] for f in rewrites])
    examples: dict[str, list[Fired]] = {name: [] for name in counts}
    for f in rewrites:
        shown = examples[label[f.rule]]
        if len(shown) < MOST_EXAMPLES:
            shown.append(f)
    return [
        [
            texts.add(name), n,
            [[texts.add(_shown(f.before)), texts.add(_shown(f.after))] for f in examples[name]],
        ]
        for name, n in counts.most_common()
    ]  # fmt: skip


def by_op(dump: Dump, at: int) -> list[list[Any]]:
    """The ops whose number of nodes a stage changed: name, nodes before, nodes after."""
    if not at or dump.orders[at] is dump.orders[at - 1]:
        return []
    before, after = (Counter([u.op for u in order]) for order in dump.orders[at - 1 : at + 1])
    ops = sorted(before.keys() | after.keys(), key=lambda op: op.name)
    return [[op.name, before[op], after[op]] for op in ops if before[op] != after[op]]


def new_nodes(dump: Dump, at: int) -> tuple[int, int]:
    """The numbers of nodes that a stage took away, and that it made."""
    if not at or dump.orders[at] is dump.orders[at - 1]:
        return 0, 0
    before, after = dump.orders[at - 1].keys(), dump.orders[at].keys()
    kept = len(before & after)
    return len(before) - kept, len(after) - kept


def short(label: str) -> str:
    """A label with paths below the package's parent."""
    return label.replace(_HERE, "")


def _shown(u: UOp) -> str:
    """An expression, or one node with its operands by their ops; then the type."""
    return f"{infix(u, _CHARACTERS) or _node(u)} : {u.dtype.short}"


def _node(u: UOp) -> str:
    arg = "" if u.arg is None else f" {_brief(u)}"
    operands = [s.op.name if s.src or s.arg is None else _brief(s) for s in u.src[:_OPERANDS]]
    more = f", … {len(u.src) - _OPERANDS} more" if len(u.src) > _OPERANDS else ""
    return f"{u.op.name}{arg}({', '.join(operands)}{more})"


def _brief(u: UOp) -> str:
    text = str(getattr(u.arg, "name", None) or u.arg)
    return text if len(text) <= 40 else text[:39] + "…"
