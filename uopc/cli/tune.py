"""uopc tune: search for the fastest Opts of the kernels of graphs, and keep them.

SOURCE is as for `uopc run`: file.py, file.py:name, a .uop, .onnx or .casadi file. Kernels are
searched from the one with the most time to the one with the least, until the budget is used. Each
result is kept at once, beside the compiled programs on disk: an interrupt (Ctrl-C) loses nothing,
and the next run goes on with the kernels that are left. Later compiles use what was found, without
a search.

examples:
  uopc tune model.py --budget 60s           one minute; run it again to go on
  uopc tune model.onnx --set batch=8        sizes that are measured
  uopc tune --report                        before, after and Opts of each kernel
  uopc tune --export found.json             for another machine of the same kind
  uopc tune --import found.json
  uopc tune --machine                       measure this machine; thresholds follow
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from uopc import config
from uopc.backends import detect
from uopc.cache.disk import Unusable
from uopc.cache.tuned import Database, MachineFigures, SearchRow, Store
from uopc.cli import load, sizes
from uopc.cli.output import Output, Refuse
from uopc.cli.run import checked_request
from uopc.dump import files
from uopc.errors import Unsupported, UserError
from uopc.ir.core.arena import arena
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.text.columns import plural
from uopc.passes.optimize.opts.table import OPTS
from uopc.program.backend import backend_of
from uopc.program.program import Program, make_program
from uopc.program.request import lower, make_context
from uopc.program.speed import random_inputs
from uopc.program.tuned import figures, schedules
from uopc.program.tuned.schedules import kernel_key, opts_of
from uopc.search.searcher import SECONDS, Searcher, Session
from uopc.search.workers import Workers

_BUDGET = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_FORMAT = "uopc searches 1"


def arguments(parser: ArgumentParser) -> None:
    """The graphs and the budget, or another action on results."""
    parser.add_argument("sources", metavar="SOURCE", nargs="*")
    budget = "search for this long, such as 90s or 5m (default: 60s)"
    parser.add_argument("--budget", metavar="TIME", default="60s", help=budget)
    beam = "keep the N best lists of Opts of each step (default: 2)"
    parser.add_argument("--beam", metavar="N", type=int, default=2, help=beam)
    parser.add_argument("--device", help="run on cpu, cuda or cuda:1 (default: cpu)")
    sizes.argument(parser, "set the value of a variable")
    parser.add_argument("--again", action="store_true", help="search known kernels, too")
    actions = parser.add_mutually_exclusive_group()
    actions.add_argument("--report", action="store_true", help="show what was found")
    actions.add_argument("--export", metavar="FILE", type=Path, help="write what was found")
    actions.add_argument(
        "--import", metavar="FILE", type=Path, dest="read", help="add what a file has"
    )
    actions.add_argument("--machine", action="store_true", help="measure this machine")
    actions.add_argument("--clear", action="store_true", help="forget what was found")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Search, or run the chosen action."""
    acts = args.report or args.export or args.read or args.clear or args.machine
    if bool(args.sources) == bool(acts):
        refuse("expected SOURCE, or one of --report, --export, --import, --machine and --clear")
    folder = config.cache_folder(config.current())
    if folder is None:
        raise UserError(
            "UOPC_CACHE_DIR is empty or 0: set it to a folder, where results are kept"
        )
    database = Database(folder)
    try:
        if args.report:
            _report(database, out)
        elif args.export:
            _export(database, args.export, out)
        elif args.read:
            _import(database, args.read, out)
        elif args.machine:
            _measure(database, out)
        elif args.clear:
            database.clear()
        else:
            return _tune(args, out, refuse)
    except Unusable as problem:
        raise UserError(f"the searches are not used: {problem}") from None
    return 0


# ---------------------------------------------------------------- searching
def _tune(args: Namespace, out: Output, refuse: Refuse) -> int:
    budget = _BUDGET.fullmatch(args.budget)
    if budget is None:
        refuse(f"--budget: expected a time such as 60s or 5m, got {args.budget!r}")
    if args.beam < 1:
        refuse("--beam: at least 1")
    end = time.monotonic() + float(budget[1]) * _UNITS[budget[2]]
    interrupted = False
    for source in args.sources:
        job = _Job(source, args)
        with Workers() as workers:
            try:
                job.search(workers, end, out)
            except KeyboardInterrupt:
                interrupted = True
        job.finish(out, interrupted)
        if interrupted:
            return 130
    return 0


class _Job:
    """The kernels of one graph."""

    def __init__(self, source: str, args: Namespace) -> None:
        found = load.load(source)
        self.name, self.args = found.name, args
        request = checked_request(found, args.device)
        machine = backend_of(request.device).target(
            request.device, request.options.target_cpu
        )
        schedules.check_device(request)
        self.before = make_program(request)
        if self.before._runner.plan.mesh is not None:
            raise Unsupported(
                "tune: a mesh must name its devices (devices=), to be timed while they run together"
            )
        self.values = random_inputs.sizes(self.before._runner.plan, dict(args.set))
        self.request = replace(self.before._source.request, bound=self.values)
        self.machine = machine
        self.store: Store = schedules.store(request, machine)
        self.seconds = self._times(self.before)
        self.found: list[SearchRow] = []

    def _times(self, program: Program) -> list[float]:
        """The seconds of each launch, the fastest of five runs."""
        plan = program._runner.plan
        arrays = tuple(random_inputs.random_arrays(plan, self.values))
        return [min(times) for times in program._runner.time(arrays, dict(self.values), 5)]

    def calls(self) -> list[tuple[float, UOp]]:
        """For each kernel to search, the seconds of all its calls and its first call, the longest
        first."""
        lowered = lower(self.request, self.machine)
        total: dict[UOp, float] = {}
        first: dict[UOp, UOp] = {}
        for call, seconds in zip(lowered.program.src, self.seconds, strict=True):
            kernel = call.src[0]
            asked = getattr(kernel.arg, "opts", None) is not None
            if kernel.op is Ops.SINK and not asked:
                total[kernel] = total.get(kernel, 0.0) + seconds
                first.setdefault(kernel, call)
        longest = sorted(total, key=lambda k: -total[k])
        return [(total[k], first[k]) for k in longest]

    def search(self, workers: Workers, end: float, out: Output) -> None:
        """Search kernels until the time `end`."""
        if not schedules.current_schedules(self.request, self.machine).used:
            out.line(f"{self.name}: programs that are not optimised, or have rules, are not tuned")
            return
        with arena():
            calls = self.calls()
            context = make_context(self.request, self.machine)
            keys = [kernel_key(c.src[0], self.request, self.machine) for _, c in calls]
            new = [i for i, k in enumerate(keys) if self.args.again or self.store.find(k) is None]
            out.line(
                f"{self.name}: {plural(len(keys), 'kernel')}, {len(new)} not searched yet", "bold"
            )
            with _bar(len(new)) as advance:
                for i in new:
                    left = end - time.monotonic()
                    if left <= 0:
                        rest = plural(len(new) - len(self.found), "kernel")
                        out.line(f"  the budget is used: {rest} left")
                        break
                    call = calls[i][1]
                    seconds = min(SECONDS * self.args.beam, left)
                    session = Session(workers.bench, self.args.beam, seconds)
                    searcher = Searcher(self.request, self.store, session)
                    row = searcher(call.src[0], call, keys[i], context)
                    self.found.append(row)
                    advance(row.name)
                    out.line(f"  {row.name}: {_gain(row)}")

    def finish(self, out: Output, interrupted: bool) -> None:
        """Print the gains."""
        if interrupted:
            out.line(f"interrupted: {plural(len(self.found), 'search', 'searches')} kept", "yellow")
        if any(row.opts is not None for row in self.found):
            after = make_program(self.request)
            ours = [sum(self._times(p)) for _ in range(3) for p in (self.before, after)]
            before, now = min(ours[::2]), min(ours[1::2])
            out.line(f"{self.name}: all kernels {before * 1e6:.3f} us -> {now * 1e6:.3f} us")


def _gain(row: SearchRow) -> str:
    if row.opts is None:
        return f"stays ({row.said})"
    return f"{row.before * 1e6:.3f} us -> {row.after * 1e6:.3f} us, {row.opts}"


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Any]:
    """Show a progress bar if a person is watching; yield a function to call for each kernel."""
    if not (total and config.current().progress and config.is_interactive()):
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    count = TextColumn("{task.completed}/{task.total}")
    columns = TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("tuning", total=total)
        yield lambda name: bar.update(task, advance=1, description=name)


# ---------------------------------------------------------------- the machine
def _measure(database: Database, out: Output) -> None:
    from uopc.search import measure

    machine = detect.host()
    begin = time.perf_counter()
    found = measure.measure(machine, backend_of("cpu"))
    database.put_machines([figures.measured(machine, found.figures, found.caches)])
    seconds = time.perf_counter() - begin
    out.line(f"{machine.cpu}: measured in {seconds:.1f} s, kept in {database.file}", "bold")
    out.table(("figure", "value"), measure.rows(found))
    if found.noisy:
        out.line(
            f"the machine is busy: {len(found.noisy)} of {len(found.spread)} probes differ by over "
            f"{measure.CONFIRMED - 1:.0%} from run to run; the best runs count", "yellow",
        )  # fmt: skip


# ---------------------------------------------------------------- what was found
def _here() -> tuple[str, str]:
    """The digests of this machine's CPU and of this version."""
    return schedules.names(backend_of("cpu").target("cpu", config.current().target_cpu))


def _report(database: Database, out: Output) -> None:
    rows = database.rows()
    machine, version = _here()
    own = [r for r in rows if (r.machine, r.version) == (machine, version)]
    out.line(f"{database.file}: {plural(len(own), 'kernel')} of this machine and version", "bold")
    if other := len(rows) - len(own):
        out.line(f"{plural(other, 'row')} of other machines or versions: not used")
    gained = sorted([r for r in own if r.opts is not None], key=lambda r: r.after / r.before)
    stay = [r for r in own if r.opts is None]
    out.table(("kernel", "before us", "after us", "ratio", "Opts"), [
        (r.name, f"{r.before * 1e6:.3f}", f"{r.after * 1e6:.3f}", f"{r.after / r.before:.2f}",
         r.opts or "")
        for r in gained
    ])  # fmt: skip
    for r in stay:
        out.line(f"{r.name}: stays at {r.before * 1e6:.3f} us: {r.said}")


def _export(database: Database, file: Path, out: Output) -> None:
    rows = database.rows()
    machines = database.machines()
    content = {
        "format": _FORMAT, "rows": [asdict(r) | {"seal": r.seal} for r in rows],
        "machines": [asdict(m) | {"seal": m.seal} for m in machines],
    }  # fmt: skip
    files.write_text(file, json.dumps(content, indent=1) + "\n")
    out.line(f"{file}: {plural(len(rows), 'row')}, {plural(len(machines), 'measured machine')}")


def _import(database: Database, file: Path, out: Output) -> None:
    text = files.read_bytes(file)
    try:
        content = json.loads(text.decode())
        good = content["format"] == _FORMAT
        rows = [_read_search_row(given) for given in content["rows"]] if good else []
        machines = [_machine(given) for given in content.get("machines", ())] if good else []
    except (ValueError, LookupError, TypeError, RecursionError):
        good = False
    if not good:
        raise UserError(f"{file}: expected a file that `uopc tune --export` writes")
    database.put(rows)
    database.put_machines(machines)
    here = sum((r.machine, r.version) == _here() for r in rows)
    out.line(f"{file}: {plural(len(rows), 'row')}, {here} of this machine and version")


def _machine(given: dict[str, Any]) -> MachineFigures:
    """A measured machine from a file. ValueError if it is damaged."""
    found = MachineFigures(given["machine"], given["figures"], given["made"])
    if found.seal != given["seal"] or figures.parsed(found.figures) is None:
        raise ValueError(f"a machine is damaged: {found.machine}")
    return found


def _read_search_row(given: dict[str, Any]) -> SearchRow:
    """A row from a file. ValueError if it is damaged."""
    row = SearchRow(**{f.name: given[f.name] for f in fields(SearchRow)})
    texts = row.key, row.machine, row.version, row.name, row.said, row.opts or ""
    numbers = row.before, row.after, row.made
    good = all(type(v) is str for v in texts) and all(type(v) is float for v in numbers)
    if not good or row.seal != given["seal"]:
        raise ValueError(f"a row is damaged: {row.name}")
    opts = () if row.opts is None else opts_of(row.opts)
    if opts is None or any(o.op not in OPTS for o in opts):
        raise ValueError(f"no list of Opts: {row.opts}")
    return row
