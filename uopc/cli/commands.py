"""What the commands of the command line do: see `cli.py` for their options."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from uopc import config, driver, target
from uopc.backends import detect
from uopc.backends.cpu.pool import default_threads
from uopc.cli import load as source
from uopc.dump import files as stage_files
from uopc.dump import stages as dump
from uopc.dump.stages import ASM, LLVM, STAGES, Dump, Row
from uopc.errors import Error, UserError
from uopc.ir.core import levels, node
from uopc.ir.core.level_of import level_of
from uopc.ir.core.levels import TENSOR, Level
from uopc.ir.core.ops import Op
from uopc.ir.core.uop import UOp
from uopc.passes import ORDER, PIPELINE
from uopc.passes.contract import Context
from uopc.passes.pass_manager import INPUT, Lowered, Lowering

if TYPE_CHECKING:
    from uopc.cli.main import Output

Refuse = Callable[[str], NoReturn]  # ends the program: a wrong usage


# ---------------------------------------------------------------- dump
def run_dump(args: Namespace, out: Output, refuse: Refuse) -> int:
    """`uopc dump`."""
    for option, known in (("at", (*STAGES, LLVM, ASM)), ("diff", STAGES)):
        stage = getattr(args, option)
        if stage is not None and stage not in known:
            refuse(f"--{option}: no stage {stage!r}; there are {', '.join(known)}")
    if args.at and args.diff:
        refuse("--at and --diff: give one of them")
    found = source.load(args.source)
    device = args.device or found.settings.get("device") or config.current().device
    driver.check_device(device)
    lowering = Lowering(_context(found, device), _verifier(), trace=True)
    try:
        with node.arena():
            lowered = lowering.lower(_graph(found), found.start)
    except Error as error:
        if args.out and lowering.runs:
            _keep_what_there_is(lowering, Path(args.out), error)
        raise
    _Report(args, out, found, lowered).show()
    return 0


def _verifier() -> Any:
    from uopc.ir.verify.verifier import verify

    return verify


def _context(found: source.Source, device: str) -> Context:
    """The settings of this run: those of the environment, and those that a stage file notes."""
    options, noted = config.current(), found.settings
    optimize = noted.get("optimize", "yes") != "no" and not options.noopt
    threads = options.threads
    if not threads and noted.get("threads", "").isdecimal():
        threads = min(4096, int(noted["threads"]))
    cpu = options.target_cpu
    if not cpu and noted.get("cpu") in target.KNOWN:
        cpu = noted["cpu"]
    tf32 = options.tf32 or noted.get("tf32") == "yes"
    return Context(detect.for_device(device, cpu), optimize, threads or default_threads(), tf32)


def _graph(found: source.Source) -> UOp:
    """The SINK of what a source offers, or what a stage file holds."""
    graph = found.graph
    lowered = found.start != INPUT or (isinstance(graph, UOp) and level_of(graph) is not TENSOR)
    if lowered:
        return graph  # type: ignore[no-any-return]
    return driver.prepare(graph, None, True, None, None, config.current()).graph


def _keep_what_there_is(lowering: Lowering, folder: Path, error: Error) -> None:
    """The stages before a failure, and how to run into it again from the last of them."""
    kept = Dump(dump.stages(lowering.runs, lowering.program), lowering.context)
    stage_files.write(kept, folder, {})
    last = lowering.runs[-1]
    error.add_note(f"replay: uopc dump {folder / stage_files.file_name(last.number, last.name)}")


class _Report:
    """What a run has to show: the table, or what the options ask for."""

    def __init__(
        self, args: Namespace, out: Output, found: source.Source, lowered: Lowered
    ) -> None:
        self.args, self.out, self.source, self.lowered = args, out, found, lowered
        stages = dump.stages(lowered.runs, lowered.program)
        self.kernels = lowered.kernels
        chosen = None
        if args.kernel is not None:
            final = _find_kernel(args.kernel, lowered.kernels)
            self.kernels = [final]
            chosen = next(k for k, now in _final(stages, lowered).items() if now is final)
        self.dump = Dump(stages, lowered.context, chosen)
        self._texts: dict[str, tuple[Row, dict[str, str]]] = {}

    def texts(self, stage: str) -> tuple[Row, dict[str, str]]:
        """The row and the texts by kernel of a stage that is not a graph: llvm or asm."""
        if stage not in self._texts:
            last = self.lowered.runs[-1].number
            if stage == LLVM:
                made, seconds = dump.llvm_texts(self.lowered, self.kernels)
            else:
                context = self.lowered.context
                assert context is not None
                named = config.current().target_cpu or context.target.name in target.KNOWN
                cpu = context.target.cpu if named else ""
                made, seconds = dump.asm_texts(self.texts(LLVM)[1], context.target, cpu)
                last = self.texts(LLVM)[0].number
            self._texts[stage] = dump.text_row(stage, last, made, seconds), made
        return self._texts[stage]

    def show(self) -> None:
        args = self.args
        shown: dict[str, Any] = {"source": self.source.name}
        if args.at:
            shown["stage"], shown["text"] = args.at, self._at(args.at)
        elif args.diff:
            shown["stage"], shown["diff"] = args.diff, self.dump.diff(args.diff)
        if args.out:
            shown["files"] = [str(p) for p in self._write(Path(args.out))]
        self._write_reports()
        if args.json:
            shown["stages"] = [dump.as_json(r) for r in self._rows()]
            shown["kernels"] = self._kernels()
            self.out.line(json.dumps(shown, indent=2, ensure_ascii=False))
        elif "text" in shown:
            self.out.line(shown["text"].rstrip("\n"))
        elif "diff" in shown:
            self._show_diff(shown["diff"])
        else:
            self._show_table()
        if args.out and not args.json:
            print(f"{len(shown['files'])} files in {args.out}", file=sys.stderr)

    def _write_reports(self) -> None:
        if self.args.trace:
            from uopc.dump import chrome_trace as trace_file

            runs, rows = self.lowered.runs, self._rows()
            trace_file.write(Path(self.args.trace), runs, rows, self.source.name)
        if self.args.html:
            from uopc.dump import html as html_report

            rows, code = self._rows(), [self.texts(s)[1] for s in (LLVM, ASM)]
            kernels = [
                k | {"llvm": code[0][k["name"]], "asm": code[1][k["name"]]} for k in self._kernels()
            ]
            html_report.write(Path(self.args.html), self.source.name, self.dump, rows, kernels)

    def _at(self, stage: str) -> str:
        if stage in (LLVM, ASM):
            return "\n".join(self.texts(stage)[1].values())
        return self.dump.text(stage)

    def _write(self, folder: Path) -> list[Path]:
        return stage_files.write(self.dump, folder, {s: self.texts(s) for s in (LLVM, ASM)})

    def _rows(self) -> list[Row]:
        return [*dump.table(self.dump), self.texts(LLVM)[0], self.texts(ASM)[0]]

    def _kernels(self) -> list[dict[str, Any]]:
        launches = [k for k, _ in self.lowered.calls]
        return [
            {
                "number": self.lowered.kernels.index(k),
                "name": k.arg.name,
                "launches": launches.count(k),
                "opts": [str(o) for o in k.arg.opts or ()],
                "origin": dump.places(self.lowered.located(k)),
            }
            for k in self.kernels
        ]

    def _show_diff(self, text: str) -> None:
        styles = {"+": "green", "-": "red", "@": "cyan"}
        for line in text.splitlines():
            self.out.line(line, styles.get(line[:1], ""))
        if not text:
            self.out.line("unchanged")

    def _show_table(self) -> None:
        rows = self._rows()
        cells = [_cells(r, first=r is rows[0]) for r in rows]
        heads = ("", "stage", "level", "nodes", "kernels", "rewrites", "ms")
        widths = [max(len(c[i]) for c in (heads, *cells)) for i in range(len(heads))]
        for row, c in zip((None, *rows), (heads, *cells)):
            left = [c[i].ljust(widths[i]) for i in (1, 2)]
            right = [c[i].rjust(widths[i]) for i in (3, 4, 5, 6)]
            number = c[0].rjust(widths[0])
            style = "bold" if row is None else "" if row.changed else "dim"
            self.out.line(f" {number} {left[0]}  {left[1]}  {'  '.join(right)}".rstrip(), style)
        for k in self._kernels():
            name = f"{k['number']:>{widths[0]}} {k['name']}"
            times = "" if k["launches"] == 1 else f"  {k['launches']} launches"
            opts, origin = " ".join(k["opts"]), ", ".join(k["origin"])
            self.out.line(" " + "  ".join(s for s in (f"{name}{times}", opts, origin) if s))


def _cells(r: Row, first: bool) -> tuple[str, ...]:
    if not r.changed:
        size = "unchanged"
    elif r.unit == "lines":
        size = f"{r.after} lines"
    else:
        size = str(r.after) if first else f"{r.before} → {r.after}"
    kernels, rewrites = str(r.kernels or ""), str(r.rewrites or "")
    ms = "" if first else f"{r.seconds * 1e3:.1f}"
    return f"{r.number:02d}", r.stage, r.level, size, kernels, rewrites, ms


def _find_kernel(wanted: str, kernels: list[UOp]) -> UOp:
    names = [k.arg.name for k in kernels]
    if wanted in names:
        return kernels[names.index(wanted)]
    if wanted.isdecimal() and int(wanted) < len(kernels):
        return kernels[int(wanted)]
    listed = ", ".join(f"{i} {n}" for i, n in enumerate(names)) or "none"
    raise UserError(f"no kernel {wanted!r}; there are: {listed}")


def _final(stages: list[dump.Stage], lowered: Lowered) -> dict[UOp, UOp]:
    """What each kernel became in the end."""
    assert lowered.program is not None
    split = [c.src[0] for c in lowered.program.src]
    return dict(zip(split, [k for k, _ in lowered.calls]))


# ---------------------------------------------------------------- passes
def run_passes(args: Namespace, out: Output, refuse: Refuse) -> int:
    """`uopc passes`: the pipeline, and the reasons for its order."""
    rows = []
    for number, p in PIPELINE:
        doc = sys.modules[p.run.__module__].__doc__ or ""
        level = dump.level_change(p.accepts.text, p.promises.text)
        rows.append((f"{number:02d}", p.name, level, p.scope, doc.splitlines()[0]))
    _columns(out, ("", "pass", "level", "runs on", "what it does"), rows)
    out.line("")
    _columns(out, ("first", "then", "why"), ORDER)
    out.line("")
    _columns(out, ("level", "meaning"), [(n.text, text) for n, text in levels.MEANING.items()])
    return 0


def _columns(out: Output, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(r[i]) for r in (heads, *rows)) for i in range(len(heads))]
    for n, row in enumerate((heads, *rows)):
        text = "  ".join(cell.ljust(w) for cell, w in zip(row, widths))
        out.line(text.rstrip(), "" if n else "bold")


# ---------------------------------------------------------------- ops
def run_ops(args: Namespace, out: Output, refuse: Refuse) -> int:
    """`uopc ops`: the op table, or one row of it in full."""
    if args.name is None:
        rows = [(o.name, " ".join(o.operands), _letters(o.levels), o.doc) for o in Op.all()]
        _columns(out, ("op", "operands", "levels", "meaning"), rows)
        letters = ", ".join(f"{level.text[0].upper()} {level.text}" for level in Level)
        out.line(f"levels: {letters}")
        return 0
    names = {o.name: o for o in Op.all()}
    op = names.get(args.name.lower())
    if op is None:
        import difflib

        near = difflib.get_close_matches(args.name.lower(), names, 3)
        hint = f"; is it {' or '.join(near)}?" if near else ""
        refuse(f"no op {args.name!r}{hint}")
    _show_op(op, out)
    return 0


def _letters(found: Level) -> str:
    return "".join(level.text[0].upper() if level & found else "." for level in Level)


def _show_op(op: Op, out: Output) -> None:
    low, high = op.arity if isinstance(op.arity, tuple) else (op.arity, op.arity)
    count = str(low) if low == high else f"{low} or more" if high is None else f"{low} to {high}"
    flags = [f for f in ("commutes", "associates", "effect", "movement") if getattr(op, f)]
    args = " or ".join("none" if t is type(None) else t.__name__ for t in op.arg)
    out.line(f"{op.name} {' '.join(op.operands)}".rstrip(), "bold")
    out.line(f"  {op.doc}")
    for name, value in (
        ("operands", count),
        ("arg", args),
        ("dtype", op.dtype),
        ("shape", op.shape),
        ("levels", " ".join(level.text for level in Level if level & op.levels)),
        ("symbol", op.symbol or ""),
        ("properties", " ".join(flags)),
    ):
        if value:
            out.line(f"  {name:<11}{value}")


# ---------------------------------------------------------------- rules
def run_rules(args: Namespace, out: Output, refuse: Refuse) -> int:
    """`uopc rules`."""
    from uopc.cli import rules as rules_command

    return rules_command.run_rules(args, out, refuse)


def run_check(args: Namespace, out: Output, refuse: Refuse) -> int:
    """`uopc check`."""
    from uopc.cli import rules as rules_command

    return rules_command.run_check(args, out, refuse)


# ---------------------------------------------------------------- bench
def run_bench(args: Namespace, out: Output, refuse: Refuse) -> int:
    """`uopc bench`: a script of the source checkout's `benchmarks` (`compile`: compile_time.py), in
    a process of its own."""
    folder = Path(__file__).resolve().parents[2] / "benchmarks"
    if not folder.is_dir():
        raise UserError("the benchmarks are in the source checkout, not in the installed package")
    scripts = {p.stem: p for p in folder.glob("*.py") if "__main__" in p.read_text()}
    found = [s for s in scripts if s == args.name or s.startswith(f"{args.name}_")]
    if len(found) != 1:
        refuse(f"no benchmark {args.name!r}; there are {', '.join(sorted(scripts))}")
    import subprocess

    return subprocess.run([sys.executable, str(scripts[found[0]]), *args.arguments]).returncode


def run_cache(args: Namespace, out: Output, refuse: Refuse) -> int:
    """`uopc cache`."""
    from uopc.cli import cache as cache_command

    return cache_command.run_cache(args, out, refuse)


# ---------------------------------------------------------------- doctor
def run_doctor(args: Namespace, out: Output, refuse: Refuse) -> int:
    """`uopc doctor`: what works on this machine, and for what does not, why."""
    from uopc.cli import doctor

    findings = doctor.examine()
    if args.json:
        out.line(json.dumps([f.as_json() for f in findings], indent=2, ensure_ascii=False))
        return doctor.exit_code(findings, args.device)
    width = max(len(f.name) for f in findings)
    styles = {"ok": "green", "missing": "yellow", "failed": "red"}
    for f in findings:
        out.line(f"{f.status:7}  {f.name.ljust(width)}  {f.detail}", styles[f.status])
    return doctor.exit_code(findings, args.device)


COMMANDS: dict[str, Callable[[Namespace, Output, Refuse], int]] = {
    "dump": run_dump,
    "passes": run_passes,
    "ops": run_ops,
    "rules": run_rules,
    "check": run_check,
    "cache": run_cache,
    "bench": run_bench,
    "doctor": run_doctor,
}
