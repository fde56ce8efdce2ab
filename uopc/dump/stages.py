"""The stages of one run as text, for `uopc dump` and `Program.stages`.

Every stage's text can be parsed. It begins with lines that name the stage, so that `uopc dump
30_rangeify.uop` can read it and continue with the next pass. After a pass that runs on each kernel,
the text is the program of CALLs with the kernels in their current form. A value keeps its %name
through all stages.
"""

from __future__ import annotations

import difflib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from uopc import config, target
from uopc.dump import fusion_report
from uopc.dump.c_source import CSource
from uopc.dump.name_tracking import carry_names_over
from uopc.dump.table import StageRow, level_change
from uopc.errors import UserError
from uopc.ir.core import walk
from uopc.ir.core.calls import exchanges_of
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices import traffic
from uopc.ir.records import dataclass
from uopc.ir.text import printer
from uopc.ir.text.source_lines import source_lines
from uopc.passes import PIPELINE
from uopc.passes.pass_manager import INPUT, Lowered, Lowering, StageRun

STAGES = (INPUT, *[p.name for _, p in PIPELINE])
LLVM, ASM = "llvm", "asm"  # after the last pass: text, not graphs
C = "c"  # beside them, not on the way to machine code: no row of the table
_OF_KERNELS = frozenset(p.name for _, p in PIPELINE if p.scope == "kernel")
_PLACING, _PLACED = "place-stages", "rangeify"
Render = Callable[[Sequence[UOp]], dict[str, str]]  # linear kernels → LLVM IR by name
Assemble = Callable[[dict[str, str]], dict[str, str]]  # LLVM modules → assembly, both by name


@dataclass
class Stage:
    """The whole graph, or program of CALLs, after one pass."""

    run: StageRun
    whole: UOp
    kernels: dict[UOp, UOp]  # from split-kernels on: a kernel as split → its present form


def _stages(runs: Sequence[StageRun], program: UOp | None) -> list[Stage]:
    """The stages of a run, possibly cut short by a failing pass."""
    out: list[Stage] = []
    kernels: dict[UOp, UOp] = {}
    for i, run in enumerate(runs):
        if i and run.name in _OF_KERNELS and program is not None:
            became = dict(zip(run.before, run.after))
            known = kernels or _kernels_called(program)
            kernels = {k: became.get(now, now) for k, now in known.items()}  # not an exchange
            calls = [c.replace(src=(kernels[c.src[0]], *c.src[1:])) for c in program.src]
            whole = program.replace(src=tuple(calls))
        else:
            whole = run.after[0]
            kernels = _kernels_called(whole)
        out.append(Stage(run, whole, kernels))
    return out


def _kernels_called(whole: UOp) -> dict[UOp, UOp]:
    """The kernels that a program calls; none for a graph before it is cut into kernels."""
    calls = whole.src if whole.op is Ops.LINEAR else ()
    return {c.src[0]: c.src[0] for c in calls if c.op is Ops.CALL}


class Dump:
    """The texts of a run. Names are given stage by stage, so making a text makes all earlier texts.

    code: the functions that give the LLVM IR of linear kernels, and the assembly of LLVM modules.
    kernel: the number or name of the only kernel to show. UserError if there is no such kernel.
    """

    def __init__(
        self, run: Lowered | Lowering, code: tuple[Render, Assemble] | None = None,
        kernel: str | None = None,
    ) -> None:  # fmt: skip
        self.run, self.context = run, run.context
        self.stages = _stages(run.runs, run.program)
        self.kernels = run.kernels if isinstance(run, Lowered) else []
        self.chosen: UOp | None = None  # as split-kernels made it
        if kernel is not None:
            assert isinstance(run, Lowered)
            names = {str(i): k for i, k in enumerate(run.kernels)}
            names |= {k.arg.name: k for k in reversed(run.kernels)}
            if kernel not in names:
                listed = ", ".join(f"{i} {k.arg.name}" for i, k in enumerate(run.kernels)) or "none"
                raise UserError(f"unknown kernel {kernel!r}; choose {listed}")
            self.kernels = [names[kernel]]
            calls = zip(run.program.src, run.calls)
            self.chosen = next(c.src[0] for c, (final, _) in calls if final is self.kernels[0])
        self._makers = code
        self.code_stages = (LLVM, ASM) if code else ()
        has_c = code is not None and self.context.target.gpu is None
        self.kernel_texts = (*self.code_stages, C) if has_c else self.code_stages
        self._code: dict[str, dict[str, str]] = {}
        self.code_seconds: dict[str, dict[str, float]] = {}  # by stage and kernel
        self.names = printer.Namer()
        self._bodies: list[str] = []
        self.decisions: list[fusion_report.Decision] = []  # of place-stages, once its text is made
        self.orders: list[dict[UOp, None]] = []  # the nodes of each stage whose text is made
        self.kin: dict[str, str] = {}  # by name of a copy, the name of the older value

    def exchanges(self) -> list[str]:
        """A line for each exchange between devices: the data, the reason, and the user's line."""
        program = self.run.program
        calls = () if program is None or program.op is not Ops.LINEAR else program.src
        stores = [(c, exchanges_of(c.src[0])) for c in calls if c.op is Ops.CALL]
        sharding, found = self.context.sharding, []
        beside: dict[int, int] = {}
        if program is not None and calls and sharding is not None:
            beside = sharding.beside(program)
        made = [(c, [s.src[1] for s in every], i) for i, (c, every) in enumerate(stores) if every]
        made += [(u, [u], -1) for u in (() if sharding is None else sharding.copied)]
        for origin, every, number in made:
            u = every[0]
            own = f"{u.op.name} {u.arg.op}".strip() + f" over {', '.join(u.arg.axes)}"
            where = "".join([f"  {line}" for line in source_lines([origin])])
            nbytes, reason = traffic.moved(*every), traffic.reason(every)
            among = f"  beside {beside[number]} launches" if number in beside else ""
            found.append(f"{own}  {nbytes} bytes  {reason}{among}{where}")
        return found

    def position(self, name: str) -> int:
        """The position of a stage. UserError if the run has no stage of that name."""
        names = [s.run.name for s in self.stages]
        if name not in names:
            raise UserError(f"unknown stage {name!r}; this run has {', '.join(names)}")
        return names.index(name)

    def shown(self, stage: Stage) -> UOp:
        """The graph that a stage's text shows."""
        return stage.whole if self.chosen is None else stage.kernels.get(self.chosen, stage.whole)

    def graphs(self, stage: Stage) -> list[UOp]:
        """The graphs that a stage's row counts: its kernels (or the chosen one), or the whole."""
        if self.chosen in stage.kernels:
            return [self.shown(stage)]
        return list(dict.fromkeys(stage.kernels.values())) or [stage.whole]

    def body(self, at: int) -> str:
        """The text of the stage at a position, without its header."""
        while len(self._bodies) <= at:
            i = len(self._bodies)
            stage = self.stages[i]
            if i and stage.whole is self.stages[i - 1].whole:
                self._bodies.append(self._bodies[-1])
                self.orders.append(self.orders[-1])
                continue
            if stage.run.name == _PLACING and i:
                notes = self.context.notes
                before, compared = stage.run.before[0], self.context.compared
                self.decisions = fusion_report.decisions(before, notes, self.names, compared)
            self.orders.append(walk.toposort(stage.whole))
            copies = (
                carry_names_over(self.orders[-2], self.orders[-1], self.names) if i else {}
            )
            shown = self.shown(stage)
            order = self.orders[-1] if shown is stage.whole else None
            self._bodies.append(printer.print_graph(shown, self.names, order))
            named = [(self.names.known(u), older) for u, older in copies.items()]
            self.kin |= {name: older for name, older in named if name is not None}
        return self._bodies[at]

    def header(self, at: int) -> str:
        """The settings that a reader of a stage file needs to continue from it."""
        run = self.stages[at].run
        context, machine = self.context, self.context.target
        noted = {
            "stage": run.name,
            "level": run.level.text,
            "optimize": "yes" if context.optimize else "no",
            "threads": str(context.threads),
            "cpu": machine.name if machine.name in target.CPUS else "",  # not this machine
            "device": "" if machine.gpu is None else machine.device,
            "rules": ", ".join(context.rules),
        }
        noted |= config.texts(context.options)
        return "".join([f"// {name}: {value}\n" for name, value in noted.items() if value])

    def text(self, name: str) -> str:
        """The file of a stage. At rangeify it lists why each value is stored or not, and values
        that are stored in another order."""
        if name == C:
            assert isinstance(self.run, Lowered)
            return CSource(self.run).listing(self.kernels)
        if name in (LLVM, ASM):
            return "\n".join(self.code(name).values())
        at = self.position(name)
        body = self.header(at) + self.body(at) + "\n"
        if name == _PLACED and self.decisions:
            stored = fusion_report.report(self.decisions)
            for lines in (stored, fusion_report.orders(self.context.notes, self.names)):
                if lines:
                    body += "\n" + "\n".join([f"// {line}".rstrip() for line in lines]) + "\n"
        return body

    def texts(self) -> dict[str, str]:
        """The file of every stage that is a graph, by the stage's name."""
        return {s.run.name: self.text(s.run.name) for s in self.stages}

    def code(self, stage: str) -> dict[str, str]:
        """The code of each kernel by name: its LLVM IR (stage llvm), assembly (asm) or C (c)."""
        if stage not in self._code and stage == C:
            assert isinstance(self.run, Lowered)
            text = CSource(self.run).listing
            self._code[C] = {k.arg.name: text([k]) for k in self.kernels}
        if stage not in self._code:
            assert self._makers is not None
            render, assemble = self._makers
            made: dict[str, str] = {}
            times = self.code_seconds[stage] = {}
            for k in self.kernels:
                module = {} if stage == LLVM else {k.arg.name: self.code(LLVM)[k.arg.name]}
                start = time.perf_counter()
                made |= render([k]) if stage == LLVM else assemble(module)
                times[k.arg.name] = time.perf_counter() - start
            self._code[stage] = made
        return self._code[stage]

    def diff(self, name: str) -> str:
        """The changes of a stage as a unified diff; empty if there are none."""
        at = self.position(name)
        if at == 0:
            raise UserError(f"{name} is the first stage of this run, so it has no changes")
        before, after = self.body(at - 1), self.body(at)
        lines = difflib.unified_diff(
            before.splitlines(), after.splitlines(), self.stages[at - 1].run.name, name, lineterm=""
        )
        return "\n".join(lines)

    def rows(self) -> list[StageRow]:
        """The stage table: stages that are graphs, then stages that are code."""
        rows: list[StageRow] = []
        sizes: dict[UOp, int] = {}  # most stages leave most graphs as they are
        before = self.stages[0]
        for stage in self.stages:
            run, graphs = stage.run, self.graphs(stage)
            sizes |= {k: len(walk.toposort(k)) for k in graphs if k not in sizes}
            level = level_change(before.run.level.text, run.level.text)
            changed = not rows or graphs != self.graphs(before)
            rows.append(StageRow(
                run.number, run.name, level, "nodes", rows[-1].after if rows else None,
                sum([sizes[k] for k in graphs]), len(graphs) if stage.kernels else None,
                changed, len(run.rewrites), run.seconds,
            ))  # fmt: skip
            before = stage
        for name in self.code_stages:
            lines = sum([len(code.splitlines()) for code in self.code(name).values()])
            number, seconds = rows[-1].number // 10 * 10 + 10, sum(self.code_seconds[name].values())
            count = len(self.kernels)
            row = StageRow(number, name, "text", "lines", None, lines, count, seconds=seconds)
            rows.append(row)
        return rows

    def kernel_facts(self) -> list[dict[str, Any]]:
        """For each kernel: number, name, launches, Opts and source lines."""
        assert isinstance(self.run, Lowered)
        launches = Counter([k for k, _ in self.run.calls])
        numbers = {k: i for i, k in enumerate(self.run.kernels)}
        return [
            {
                "number": numbers[k],
                "name": k.arg.name,
                "launches": launches[k],
                "opts": [str(o) for o in k.arg.opts or ()],
                "origin": source_lines(self.run.located(k)),
            }
            for k in self.kernels
        ]
