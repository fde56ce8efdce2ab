"""The stages of one run as text: what `uopc dump` and `Program.stages` show.

Every text of a stage can be parsed, and begins with lines that say which stage it is, so that a
file of it can be fed back in: `uopc dump 30_rangeify.uop` goes on with the next pass. A stage that
runs on each kernel prints as the program of CALLs with the kernels as they are then. A value keeps
its %name through all stages.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from uopc import target
from uopc.dump.name_tracking import hand_names_on
from uopc.errors import UserError
from uopc.ir.core import analysis
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.text import printer as text
from uopc.passes import PIPELINE
from uopc.passes.contract import Context
from uopc.passes.pass_manager import INPUT, Lowered, Lowering, StageRun

STAGES = (INPUT, *[p.name for _, p in PIPELINE])
LLVM, ASM = "llvm", "asm"  # what is behind the last pass: not graphs
_OF_KERNELS = frozenset(p.name for _, p in PIPELINE if p.scope == "kernel")
_PLACING, _PLACED = "place-stages", "rangeify"


@dataclass
class Stage:
    """The whole graph, or program of CALLs, after one pass."""

    run: StageRun
    whole: UOp
    kernels: dict[UOp, UOp]  # a kernel as it was when split → as it is now; empty before

    @property
    def distinct(self) -> list[UOp]:
        """The kernels, without repetition."""
        return list(dict.fromkeys(self.kernels.values()))


def stages(runs: Sequence[StageRun], program: UOp | None) -> list[Stage]:
    """The stages of a run, which a failing pass may have ended early."""
    out: list[Stage] = []
    now: dict[UOp, UOp] = {}
    for i, run in enumerate(runs):
        if i and run.name in _OF_KERNELS and program is not None:
            now = now or _called(program)
            became = dict(zip(run.before, run.after))
            now = {k: became[n] for k, n in now.items()}
            calls = tuple([c.replace(src=(now[c.src[0]], *c.src[1:])) for c in program.src])
            out.append(Stage(run, program.replace(src=calls), dict(now)))
        else:
            now = _called(run.after[0])
            out.append(Stage(run, run.after[0], dict(now)))
    return out


def _called(whole: UOp) -> dict[UOp, UOp]:
    """The kernels that a program calls; a graph is not yet cut into kernels."""
    calls = whole.src if whole.op is Ops.LINEAR else ()
    return {c.src[0]: c.src[0] for c in calls if c.op is Ops.CALL}


class Dump:
    """The texts of a run. Names are given stage by stage, so a text is made after those before it.

    `chosen` is a kernel as split-kernels made it: stages with kernels then show only that one.
    """

    def __init__(self, run: Lowered | Lowering, chosen: UOp | None = None) -> None:
        self.stages, self.context, self.chosen = stages(run.runs, run.program), run.context, chosen
        self._names = text.Namer()
        self._bodies: list[str] = []
        self._report: list[str] = []
        self._order: dict[UOp, None] = {}  # of the stage that came last

    def find(self, name: str) -> int:
        """The place of a stage. UserError when the run has none of that name."""
        names = [s.run.name for s in self.stages]
        if name not in names:
            raise UserError(f"this run has no stage {name!r}; it has {', '.join(names)}")
        return names.index(name)

    def shown(self, stage: Stage) -> UOp:
        """The graph that a stage's text is of."""
        return stage.whole if self.chosen is None else stage.kernels.get(self.chosen, stage.whole)

    def graphs(self, stage: Stage) -> list[UOp]:
        """What a stage's row counts: the kernels (or the one chosen), or the whole graph."""
        if self.chosen in stage.kernels:
            return [self.shown(stage)]
        return stage.distinct or [stage.whole]

    def body(self, at: int) -> str:
        """The text of the stage at a place, without header."""
        while len(self._bodies) <= at:
            i = len(self._bodies)
            stage = self.stages[i]
            if i and stage.whole is self.stages[i - 1].whole:
                self._bodies.append(self._bodies[-1])
                continue
            if stage.run.name == _PLACING and i and self.context is not None:
                self._report = _placement(stage.run.before[0], self.context, self._names)
            before, self._order = self._order, analysis.toposort(stage.whole)
            if i:
                hand_names_on(before, self._order, self._names)
            shown = self.shown(stage)
            order = self._order if shown is stage.whole else None
            self._bodies.append(text.print_graph(shown, self._names, order))
        return self._bodies[at]

    def header(self, at: int) -> str:
        """What a reader of a stage file has to know to go on from it."""
        run = self.stages[at].run
        lines = [f"// stage: {run.name}", f"// level: {run.level.text}"]
        if self.context is not None:
            lines.append(f"// optimize: {'yes' if self.context.optimize else 'no'}")
            lines.append(f"// threads: {self.context.threads}")
            if self.context.target.name in target.KNOWN:  # not this machine, as it is without
                lines.append(f"// cpu: {self.context.target.name}")
            if self.context.target.gpu is not None:
                lines.append(f"// device: {self.context.target.device}")
            if self.context.tf32:
                lines.append("// tf32: yes")
        return "\n".join(lines) + "\n"

    def text(self, name: str) -> str:
        """A stage as it is stored; at rangeify with why each value is stored or not."""
        at = self.find(name)
        body = self.header(at) + self.body(at) + "\n"
        if name == _PLACED and self._report:
            body += "\n" + "\n".join([f"// {line}".rstrip() for line in self._report]) + "\n"
        return body

    def diff(self, name: str) -> str:
        """What a stage changed, as a unified diff; empty where it changed nothing."""
        at = self.find(name)
        if at == 0:
            raise UserError(f"{name} is the first stage of this run: it changed nothing")
        before, after = self.body(at - 1), self.body(at)
        lines = difflib.unified_diff(
            before.splitlines(), after.splitlines(), self.stages[at - 1].run.name, name, lineterm=""
        )
        return "\n".join(lines)


def _placement(graph: UOp, context: Context, names: text.Namer) -> list[str]:
    from uopc.dump import fusion_report as placement_report

    return placement_report.report(graph, context.notes, names)


def stage_texts(lowered: Lowered) -> dict[str, str]:
    """The text of every stage by its name."""
    dump = Dump(lowered)
    return {s.run.name: dump.text(s.run.name) for s in dump.stages}


def places(nodes: Sequence[UOp]) -> list[str]:
    """The user's source lines of nodes that have one, by file: `model.py:12-14,20`."""
    lines: dict[str, set[int]] = {}
    for u in nodes:
        code, line = u.origin
        lines.setdefault(code.co_filename, set()).add(line)
    return [f"{os.path.basename(f)}:{_spans(sorted(n))}" for f, n in sorted(lines.items())]


def kernel_facts(lowered: Lowered, kernels: Sequence[UOp]) -> list[dict[str, Any]]:
    """Number, name, launches, Opts and source lines of some of the linear kernels, for reports."""
    launches = [k for k, _ in lowered.calls]
    return [
        {
            "number": lowered.kernels.index(k),
            "name": k.arg.name,
            "launches": launches.count(k),
            "opts": [str(o) for o in k.arg.opts or ()],
            "origin": places(lowered.located(k)),
        }
        for k in kernels
    ]


def _spans(numbers: Sequence[int]) -> str:
    """Ascending numbers, neighbours as `12-14`."""
    spans: list[list[int]] = []
    for n in numbers:
        if spans and spans[-1][1] == n - 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    return ",".join([f"{a}-{b}" if a < b else f"{a}" for a, b in spans])


# ---------------------------------------------------------------- the table
@dataclass(frozen=True)
class Row:
    """A line of the stage table. Sizes count nodes (of all kernels together), or lines of text."""

    number: int
    stage: str
    level: str
    before: int | None
    after: int
    unit: str  # "nodes" or "lines"
    kernels: int | None = None
    changed: bool = True
    rewrites: int = 0
    seconds: float = 0.0


def level_change(before: str, after: str) -> str:
    """The level of a stage, or the two that it leads from and to."""
    return after if before == after else f"{before} → {after}"


def table(dump: Dump) -> list[Row]:
    """A row for each stage that is a graph."""
    rows: list[Row] = []
    level = ""
    sizes: dict[UOp, int] = {}  # most stages leave most graphs as they are
    for i, stage in enumerate(dump.stages):
        run = stage.run
        graphs = dump.graphs(stage)
        sizes |= {k: len(analysis.toposort(k)) for k in graphs if k not in sizes}
        after = sum([sizes[k] for k in graphs])
        now = run.level.text
        rows.append(
            Row(
                run.number,
                run.name,
                level_change(level, now) if i else now,
                rows[-1].after if i else None,
                after,
                "nodes",
                len(graphs) if stage.kernels else None,
                i == 0 or graphs != dump.graphs(dump.stages[i - 1]),
                len(run.rewrites),
                run.seconds,
            )
        )
        level = now
    return rows


def text_row(stage: str, last: int, texts: dict[str, str], seconds: float) -> Row:
    """The row of a stage that is text: llvm or asm."""
    lines = sum(len(t.splitlines()) for t in texts.values())
    number = last // 10 * 10 + 10
    return Row(number, stage, "text", None, lines, "lines", len(texts), True, 0, seconds)


def as_json(row: Row) -> dict[str, Any]:
    """A row for `--json`."""
    return {
        "number": row.number, "stage": row.stage, "level": row.level, "unit": row.unit,
        "before": row.before, "after": row.after, "kernels": row.kernels,
        "changed": row.changed, "rewrites": row.rewrites, "ms": round(row.seconds * 1e3, 4),
    }  # fmt: skip
