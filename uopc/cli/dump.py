"""uopc dump: show every stage of a graph on its way to machine code.

SOURCE is file.py, file.py:name, a stage file (.uop), a model (.onnx) or a Function of CasADi. In a
Python file uopc looks for, in this order: a name `graph`; a single UOp at module level that is not
a part of another; a single function without parameters. A Program is shown as it was compiled: its
rules, optimize flag, threads and device. A stage file continues with the pass after its own stage.

Without options: a table of the stages. `unchanged` marks a stage that changed nothing.

examples:
  uopc dump model.py                              the table
  uopc dump model.py:attention --at rangeify      the graph after a pass
  uopc dump model.py --at llvm --kernel 0         the LLVM IR of the first kernel
  uopc dump model.py --at c > kernels.c           all kernels as C
  uopc dump model.py --diff optimize              what a pass changed
  uopc dump model.py --why                        why values are stored, and kernels apart
  uopc dump model.py --why %7                     of one value, or one kernel
  uopc dump model.py --out stages                 every stage as a file
  uopc dump stages/30_rangeify.uop                continue from one of them
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from uopc import target
from uopc.cli import load
from uopc.cli.output import Output, Refuse
from uopc.dump import chrome_trace, files
from uopc.dump.report import page as report
from uopc.dump.stages import ASM, LLVM, STAGES, C, Dump
from uopc.dump.why import Why
from uopc.errors import Error
from uopc.ir.core import arena
from uopc.ir.text.columns import columns
from uopc.ir.verify.verifier import verify
from uopc.passes.pass_manager import INPUT, Lowering
from uopc.program.backend import backend_of
from uopc.program.program import make_program
from uopc.program.reports import page
from uopc.program.request import make_context


def arguments(parser: ArgumentParser) -> None:
    """The graph, and the parts of it to show."""
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("--at", metavar="STAGE", help="print that stage (also: llvm, asm, c)")
    parser.add_argument("--diff", metavar="STAGE", help="print what that stage changed")
    why = "print the ways that were compared for a value or a kernel, with predicted cycles"
    parser.add_argument("--why", metavar="VALUE|KERNEL", nargs="?", const="", help=why)
    parser.add_argument(
        "--kernel", metavar="N|NAME", help="show one kernel: a number from 0, or a name"
    )
    device = "compile for cpu, or a GPU for PTX: cuda:sm_90 (default: cpu)"
    parser.add_argument("--device", type=str.lower, help=device)
    parser.add_argument("--out", metavar="DIR", help="write numbered stage files to this folder")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained HTML report")
    parser.add_argument("--run", action="store_true", help="with --html: time the program")
    parser.add_argument("--trace", metavar="FILE", help="write the times in Chrome's trace format")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Lower the graph and show what the options ask for."""
    for option, known in (("at", (*STAGES, LLVM, ASM, C)), ("diff", STAGES)):
        stage = getattr(args, option)
        if stage is not None and stage not in known:
            refuse(f"--{option}: unknown stage {stage!r}; choose {', '.join(known)}")
    if sum([bool(args.at), bool(args.diff), args.why is not None]) > 1:
        refuse("--at, --diff and --why: give one of them")
    if args.run and not args.html:
        refuse("--run: give --html FILE too; `uopc run` times a graph without a report")
    found = load.load(args.source)
    if args.run and found.start != INPUT:
        refuse("--run: a stage file cannot run; give the Python file")
    request = load.request_of(found, args.device)
    backend = backend_of(request.device)
    machine = backend.target(request.device, request.options.target_cpu)
    lowering = Lowering(make_context(request, machine), verify, trace=True)
    try:
        with arena.arena():
            lowered = lowering.lower(request.graph, found.start)
    except Error as error:
        if args.out and lowering.runs:
            files.write(Dump(lowering), Path(args.out))
            last = lowering.runs[-1]
            file = Path(args.out) / files.file_name(last.number, last.name)
            error.add_note(f"replay: uopc dump {file}")
        raise
    named = request.options.target_cpu or machine.name in target.CPUS
    dump = backend.dump(lowered, machine.cpu if named else "", args.kernel)
    if args.html:
        facts = page.facts(lowered)
        if args.run:
            facts = page.measured(make_program(request), facts)
        report.write(Path(args.html), found.name, dump, facts)
    _show(args, out, found.name, dump)
    return 0


def _show(args: Namespace, out: Output, source: str, dump: Dump) -> None:
    """Print the table or whatever the options ask for; write the files."""
    shown: dict[str, Any] = {"source": source}
    if args.at:
        shown["stage"], shown["text"] = args.at, dump.text(args.at)
    elif args.diff:
        shown["stage"], shown["diff"] = args.diff, dump.diff(args.diff)
    elif args.why is not None:
        shown["why"] = Why(dump).lines(args.why)
    if args.out:
        shown["files"] = [str(p) for p in files.write(dump, Path(args.out))]
    if args.trace:
        chrome_trace.write(Path(args.trace), source, dump)
    if args.json:
        shown["stages"] = [r.as_json() for r in dump.rows()]
        shown["kernels"] = dump.kernel_facts()
        out.line(json.dumps(shown, indent=2, ensure_ascii=False))
    elif args.why is not None:
        for line in shown["why"]:
            out.line(line, "" if line.startswith(" ") else "bold")
    elif args.at:
        out.line(shown["text"].rstrip("\n"))
    elif args.diff:
        styles = {"+": "green", "-": "red", "@": "cyan"}
        for line in shown["diff"].splitlines() or ["unchanged"]:
            out.line(line, styles.get(line[:1], ""))
    else:
        _show_table(out, dump)
    if args.out and not args.json:
        print(f"{len(shown['files'])} files in {args.out}", file=sys.stderr)


def _show_table(out: Output, dump: Dump) -> None:
    rows = dump.rows()
    width = len(f"{rows[-1].number}")
    cells = [(f"{'':{width}} stage", "level", "nodes", "kernels", "rewrites", "ms")]
    for r in rows:
        size = f"{r.before} → {r.after}" if r.changed else "unchanged"
        if r.changed and (r.unit == "lines" or r is rows[0]):
            size = f"{r.after} lines" if r.unit == "lines" else f"{r.after}"
        ms = "" if r is rows[0] else f"{r.seconds * 1e3:.1f}"
        name = f"{f'{r.number:02d}':>{width}} {r.stage}"
        cells.append((name, r.level, size, str(r.kernels or ""), str(r.rewrites or ""), ms))
    styles = ["bold", *["" if r.changed else "dim" for r in rows]]
    for style, line in zip(styles, columns(cells, right=range(2, 6))):
        out.line(f" {line}", style)
    for k in dump.kernel_facts():
        times = "" if k["launches"] == 1 else f"  {k['launches']} launches"
        name = f"{k['number']:>{width}} {k['name']}{times}"
        out.line(" " + "  ".join(filter(None, (name, " ".join(k["opts"]), ", ".join(k["origin"])))))
    for text in dump.exchanges():
        out.line(f" {'':{width}} {text}")
