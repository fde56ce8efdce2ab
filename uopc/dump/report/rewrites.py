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
_LEVELS: Final = 4  # of nodes below a rewritten one, as rewrites.js draws them
_HERE: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__)))) + os.sep


def by_rule(rewrites: Sequence[Fired], texts: Interned) -> list[Any]:
    """For each rule, the most used first: its label, its count, and examples (before and after)."""
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


class Surroundings:
    """The nodes around rewrites, without repetitions, for drawings: label and operands of each."""

    def __init__(self, texts: Interned) -> None:
        self.texts = texts
        self.numbers: dict[UOp, int] = {}
        self.labels: list[int] = []
        self.operands: list[list[int] | None] = []  # None: the operands are not listed
        self._below: dict[UOp, int] = {}  # node → the number of listed levels below it

    def add(self, root: UOp) -> int:
        """Add a node with some levels of nodes below it; return its number."""
        layer = [root]
        for levels in range(_LEVELS, 0, -1):
            below: list[UOp] = []
            for u in layer:
                if self._below.get(u, 0) < levels:
                    self._below[u] = levels
                    operands = u.src[:_OPERANDS]
                    self.operands[self._number(u)] = [self._number(s) for s in operands]
                    below += operands
            layer = below
        return self.numbers[root]

    def _number(self, u: UOp) -> int:
        found = self.numbers.get(u)
        if found is None:
            self.numbers[u] = found = len(self.labels)
            arg = "" if u.arg is None else f" {_brief(u)}"
            self.labels.append(self.texts.add(f"{u.op.name}{arg} : {u.dtype.short}"))
            self.operands.append(None if u.src else [])
        return found

    def as_json(self) -> dict[str, Any]:
        """The labels as texts, and the operands by number."""
        return {"labels": self.labels, "sources": self.operands}


def in_order(rewrites: Sequence[Fired], texts: Interned, around: Surroundings) -> list[int]:
    """Each rewrite in order as three numbers: the rule, the node before, the node after."""
    rule = {f: texts.add(short(f.label)) for f in {f.rule: None for f in rewrites}}
    found: list[int] = []
    for f in rewrites:
        found += (rule[f.rule], around.add(f.before), around.add(f.after))
    return found


def by_op(dump: Dump, at: int) -> list[list[Any]]:
    """The ops whose number of nodes a stage changed: name, nodes before, nodes after."""
    if not at or dump.orders[at] is dump.orders[at - 1]:
        return []
    before, after = (Counter([u.op for u in order]) for order in dump.orders[at - 1 : at + 1])
    ops = sorted(before.keys() | after.keys(), key=lambda op: op.name)
    return [[op.name, before[op], after[op]] for op in ops if before[op] != after[op]]


def new_nodes(dump: Dump, at: int) -> tuple[int, int]:
    """The numbers of nodes that a stage removed, and that it made."""
    if not at or dump.orders[at] is dump.orders[at - 1]:
        return 0, 0
    before, after = dump.orders[at - 1].keys(), dump.orders[at].keys()
    kept = len(before & after)
    return len(before) - kept, len(after) - kept


def short(label: str) -> str:
    """A label with paths relative to the package's parent."""
    return label.replace(_HERE, "")


def _shown(u: UOp) -> str:
    """An expression with its type; if it is too long, one node with the ops of its operands."""
    return f"{infix(u, _CHARACTERS) or _node(u)} : {u.dtype.short}"


def _node(u: UOp) -> str:
    arg = "" if u.arg is None else f" {_brief(u)}"
    operands = [s.op.name if s.src or s.arg is None else _brief(s) for s in u.src[:_OPERANDS]]
    more = f", … {len(u.src) - _OPERANDS} more" if len(u.src) > _OPERANDS else ""
    return f"{u.op.name}{arg}({', '.join(operands)}{more})"


def _brief(u: UOp) -> str:
    text = str(getattr(u.arg, "name", None) or u.arg)
    return text if len(text) <= 40 else text[:39] + "…"
