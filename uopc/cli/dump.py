"""uopc dump: show every stage of a graph on its way to machine code.

SOURCE is file.py, file.py:name, or a stage file (.uop). In a Python file uopc looks for, in this
order: a name `graph`; a single UOp at module level that is not a part of another; a single
function without parameters. A stage file continues with the pass after its own stage.

Without options: a table of the stages. `unchanged` marks a stage that changed nothing.

examples:
  uopc dump model.py                              the table
  uopc dump model.py:attention --at rangeify      the graph after a pass
  uopc dump model.py --at llvm --kernel 0         the LLVM IR of the first kernel
  uopc dump model.py --diff optimize              what a pass changed
  uopc dump model.py --out stages                 every stage as a file
  uopc dump stages/30_rangeify.uop                continue from one of them
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from uopc import config, driver, target
from uopc.backends import detect
from uopc.cli import load
from uopc.cli.output import Output, Refuse
from uopc.dump import chrome_trace, files, html, stages
from uopc.dump.columns import columns
from uopc.dump.stages import ASM, LLVM, STAGES, Dump, Row
from uopc.errors import Error, UserError
from uopc.ir.core import arena
from uopc.ir.core.level_of import level_of
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.uop import UOp
from uopc.ir.verify.verifier import verify
from uopc.passes.contract import Context
from uopc.passes.pass_manager import INPUT, Lowered, Lowering
from uopc.program.program import Backend
from uopc.program.request import prepare


def arguments(parser: ArgumentParser) -> None:
    """What to show of which graph."""
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("--at", metavar="STAGE", help="print that stage (also: llvm, asm)")
    parser.add_argument("--diff", metavar="STAGE", help="print what that stage changed")
    parser.add_argument("--kernel", metavar="N|NAME", help="one kernel: a number from 0, or a name")
    parser.add_argument("--device", help="cpu (the default), or a GPU part for PTX: cuda:sm_90")
    parser.add_argument("--out", metavar="DIR", help="write numbered stage files to this folder")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained HTML report")
    parser.add_argument("--trace", metavar="FILE", help="write the times in Chrome's trace format")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Lower the graph and show what the options ask for."""
    for option, known in (("at", (*STAGES, LLVM, ASM)), ("diff", STAGES)):
        stage = getattr(args, option)
        if stage is not None and stage not in known:
            refuse(f"--{option}: no stage {stage!r}; there are {', '.join(known)}")
    if args.at and args.diff:
        refuse("--at and --diff: give one of them")
    found = load.load(args.source)
    device = args.device or found.settings.get("device") or config.current().device
    backend = driver.backend_of(device)
    lowering = Lowering(_context(found, backend, device), verify, trace=True)
    try:
        with arena.arena():
            lowered = lowering.lower(_graph(found), found.start)
    except Error as error:
        if args.out and lowering.runs:
            _keep_finished_stages(lowering, Path(args.out), error)
        raise
    _Report(args, out, found.name, lowered, backend).show()
    return 0


def _context(found: load.Source, backend: Backend, device: str) -> Context:
    """The settings of this run: the environment's, and those that a stage file notes."""
    options, noted = config.current(), found.settings
    optimize = noted.get("optimize", "yes") != "no" and not options.noopt
    threads = options.threads
    if not threads and noted.get("threads", "").isdecimal():
        threads = min(config.MOST_THREADS, int(noted["threads"]))
    cpu = options.target_cpu
    if not cpu and noted.get("cpu") in target.KNOWN:
        cpu = noted["cpu"]
    tf32 = options.tf32 or noted.get("tf32") == "yes"
    return Context(backend.target(device, cpu), optimize, threads or detect.cores(), tf32)


def _graph(found: load.Source) -> UOp:
    """The SINK of what a source offers, or what a stage file holds."""
    graph = found.graph
    if found.start != INPUT or (isinstance(graph, UOp) and level_of(graph) is not TENSOR):
        return graph  # type: ignore[no-any-return]
    return prepare(graph, None, True, None, None, config.current()).graph


def _keep_finished_stages(lowering: Lowering, folder: Path, error: Error) -> None:
    """Write the stages before a failure, and note how to reproduce it from the last of them."""
    files.write(Dump(lowering), folder, {})
    last = lowering.runs[-1]
    error.add_note(f"replay: uopc dump {folder / files.file_name(last.number, last.name)}")


class _Report:
    """What a run has to show: the table, or what the options ask for."""

    def __init__(
        self, args: Namespace, out: Output, source: str, lowered: Lowered, backend: Backend
    ) -> None:
        self.args, self.out, self.source = args, out, source
        self.lowered, self.backend = lowered, backend
        self.kernels = lowered.kernels
        chosen = None
        if args.kernel is not None:
            final = _find_kernel(args.kernel, lowered.kernels)
            self.kernels = [final]
            pairs = zip(lowered.program.src, lowered.calls)
            chosen = next(call.src[0] for call, (kernel, _) in pairs if kernel is final)
        self.dump = Dump(lowered, chosen)
        self._texts: dict[str, tuple[Row, dict[str, str]]] = {}

    def texts(self, stage: str) -> tuple[Row, dict[str, str]]:
        """The row and the texts by kernel of a stage that is not a graph: llvm or asm."""
        if stage not in self._texts:
            machine = self.lowered.context.target
            last, modules = self.lowered.runs[-1].number, dict[str, str]()
            if stage == ASM:
                row, modules = self.texts(LLVM)
                last = row.number
            start = time.perf_counter()
            if stage == LLVM:
                made = self.backend.render(self.lowered, self.kernels)
            else:
                named = config.current().target_cpu or machine.name in target.KNOWN
                cpu = machine.cpu if named else ""
                made = self.backend.assemble(modules, machine, cpu)
            seconds = time.perf_counter() - start
            self._texts[stage] = stages.text_row(stage, last, made, seconds), made
        return self._texts[stage]

    def show(self) -> None:
        args = self.args
        shown: dict[str, Any] = {"source": self.source}
        if args.at:
            shown["stage"], shown["text"] = args.at, self._at(args.at)
        elif args.diff:
            shown["stage"], shown["diff"] = args.diff, self.dump.diff(args.diff)
        if args.out:
            texts = {s: self.texts(s) for s in (LLVM, ASM)}
            shown["files"] = [str(p) for p in files.write(self.dump, Path(args.out), texts)]
        if args.trace:
            chrome_trace.write(Path(args.trace), self.lowered.runs, self._rows(), self.source)
        if args.html:
            code = {s: self.texts(s)[1] for s in (LLVM, ASM)}
            kernels = [k | {s: code[s][k["name"]] for s in code} for k in self._kernels()]
            html.write(Path(args.html), self.source, self.dump, self._rows(), kernels)
        if args.json:
            shown["stages"] = [r.as_json() for r in self._rows()]
            shown["kernels"] = self._kernels()
            self.out.line(json.dumps(shown, indent=2, ensure_ascii=False))
        elif args.at:
            self.out.line(shown["text"].rstrip("\n"))
        elif args.diff:
            self._show_diff(shown["diff"])
        else:
            self._show_table()
        if args.out and not args.json:
            print(f"{len(shown['files'])} files in {args.out}", file=sys.stderr)

    def _at(self, stage: str) -> str:
        if stage in (LLVM, ASM):
            return "\n".join(self.texts(stage)[1].values())
        return self.dump.text(stage)

    def _rows(self) -> list[Row]:
        return [*stages.table(self.dump), self.texts(LLVM)[0], self.texts(ASM)[0]]

    def _kernels(self) -> list[dict[str, Any]]:
        return stages.kernel_facts(self.lowered, self.kernels)

    def _show_diff(self, text: str) -> None:
        styles = {"+": "green", "-": "red", "@": "cyan"}
        for line in text.splitlines() or ["unchanged"]:
            self.out.line(line, styles.get(line[:1], ""))

    def _show_table(self) -> None:
        rows = self._rows()
        width = len(f"{rows[-1].number}")
        heads = (f"{'':{width}} stage", "level", "nodes", "kernels", "rewrites", "ms")
        cells = [_cells(r, width, first=r is rows[0]) for r in rows]
        styles = ["bold", *["" if r.changed else "dim" for r in rows]]
        for style, line in zip(styles, columns((heads, *cells), right=range(2, 6))):
            self.out.line(f" {line}", style)
        for k in self._kernels():
            name = f"{k['number']:>{width}} {k['name']}"
            times = "" if k["launches"] == 1 else f"  {k['launches']} launches"
            opts, origin = " ".join(k["opts"]), ", ".join(k["origin"])
            self.out.line(" " + "  ".join(s for s in (f"{name}{times}", opts, origin) if s))


def _cells(r: Row, width: int, first: bool) -> tuple[str, ...]:
    if not r.changed:
        size = "unchanged"
    elif r.unit == "lines":
        size = f"{r.after} lines"
    else:
        size = str(r.after) if first else f"{r.before} → {r.after}"
    ms = "" if first else f"{r.seconds * 1e3:.1f}"
    counts = str(r.kernels or ""), str(r.rewrites or "")
    return f"{f'{r.number:02d}':>{width}} {r.stage}", r.level, size, *counts, ms


def _find_kernel(wanted: str, kernels: list[UOp]) -> UOp:
    names = [k.arg.name for k in kernels]
    if wanted in names:
        return kernels[names.index(wanted)]
    if wanted.isdecimal() and int(wanted) < len(kernels):
        return kernels[int(wanted)]
    listed = ", ".join(f"{i} {n}" for i, n in enumerate(names)) or "none"
    raise UserError(f"no kernel {wanted!r}; there are: {listed}")
