"""Predicted times of kernels beside measured times, by family, on the machine at hand.

    python benchmarks/cost.py                           all: 60 graphs have drawn shapes
    python benchmarks/cost.py 17 40:80 --out f.jsonl    graphs at drawn shapes, by number
    python benchmarks/cost.py corpus benchmarks --minutes 4
    python benchmarks/cost.py --report f.jsonl --page docs/lab/cost_measured.md

Corpus: kernels of `tests/cost/points.jsonl` with their recorded lists of Opts. Benchmarks: the
anchors and own workloads of `benchmarks/kernels.py`. Drawn: the kinds of
`benchmarks/random_shapes.py`. The kernels of graphs get the list of the schedule and neighbours of
that list. All lists of a kernel take turns, on one thread: the least time counts. With --realtime
these turns run before all other processes (Linux, as root): the way on a busy machine. A graph at
drawn shapes also runs beside PyTorch, where that is installed.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import itertools
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import random_shapes
from kernel_report import geometric_mean
from kernels import may_run_first, run_first
from own_workloads import OWN
from peers import PEERS, Peer
from records import make_parser, numbers_of, read, recorded, report_all
from workloads import ANCHORS, WORKLOADS, Workload

import uopc
from uopc import config
from uopc.backends import detect
from uopc.cost.accuracy import DIFFERENT, Score
from uopc.cost.cycles import cycles
from uopc.cost.machine import machine_of
from uopc.errors import Error
from uopc.ir.core.arena import arena
from uopc.ir.core.ops import Ops
from uopc.ir.nest.describe import outline_of
from uopc.ir.text.printer import parse
from uopc.passes.optimize.opts.substitution import Tiled
from uopc.program.backend import backend_of
from uopc.program.request import Request, lower, make_context, prepare
from uopc.program.tuned import kernel_opts
from uopc.program.tuned.kernel_opts import Opts
from uopc.program.tuned.schedules import opts_of
from uopc.search.edits import Moves
from uopc.search.searcher import standalone
from uopc.search.worker import Worker

POINTS = HERE.parent / "tests" / "cost" / "points.jsonl"
DRAWN = 60  # graphs
LISTS = 6  # of a kernel, with that of the schedule
SAMPLES = 4
MOST_CYCLES = 1e8  # of a list that is measured beside others
MOST_TIMES = 6.0  # the least predicted time: a slower list is not run
EVERY = 3  # of the kernels of the corpus one in so many is measured
ALL = "**all**"
SETS = {"corpus": "Corpus", "benchmarks": "Benchmarks", "drawn": "Drawn shapes"}
# By the beginning of the name of a kind or a workload; the longest counts.
FAMILIES = {
    "gemm": "products", "gemv": "products", "bgemm": "products", "mlp": "products",
    "product": "products", "layer": "products", "vector": "products", "own_gemm": "products",
    "own_bgemm": "products", "own_layer": "products", "own_through": "products",
    "conv": "convolutions", "depthwise": "convolutions", "digits_cnn": "convolutions",
    "sum": "reductions", "rows": "reductions", "columns": "reductions", "max": "reductions",
    "own_columns": "reductions", "reduction": "reductions", "softmax": "rows", "layer_norm": "rows",
    "masked_softmax": "rows", "own_softmax": "rows", "row": "rows", "transpose": "movement",
    "turned": "movement", "own_turned": "movement", "split_heads": "movement",
    "gather": "movement", "movement": "movement", "image": "stencils", "max_pool": "stencils",
    "stencil": "stencils", "attention": "networks", "transformer": "networks",
    "sum of products": "sums of several products",
}  # fmt: skip


@dataclass
class KernelTimes:
    """The predicted and the measured seconds of lists of Opts of a kernel; the list of the schedule
    comes first where there is one."""

    name: str
    predicted: list[float]
    measured: list[float]


@dataclass
class Measured:
    """The kernels of a graph, or a kernel of the corpus; the seconds of a call of ours and of
    PyTorch, 0 where they are not measured."""

    set: str
    key: str
    family: str
    kernels: list[KernelTimes]
    ours: float = 0.0
    torch: float = 0.0

    def __post_init__(self) -> None:
        """Take the kernels of a line of JSON."""
        self.kernels = [KernelTimes(**k) if isinstance(k, dict) else k for k in self.kernels]


def family_of(name: str) -> str:
    """The family of a kind or a workload."""
    known = [begin for begin in FAMILIES if name.startswith(begin)]
    return FAMILIES[max(known, key=len)] if known else "elementwise"


# ------------------------------------------------------------------ a kernel
def timed(
    request: Request, lists: dict[Opts, float], name: str, first: bool
) -> KernelTimes:  # fmt: skip
    """Time lists of Opts of a kernel, each in turns with the list of the schedule, whose least time
    is the unit. `lists`: their cycles; `first`: before all other processes."""
    clock = machine_of(backend_of("cpu").target("cpu", "")).clock
    most = MOST_TIMES * min(lists.values())
    worker, found, least = Worker(), KernelTimes(name, [], []), math.inf
    worker.open(request, {})
    for opts, cost in lists.items():
        if cost > most or (found.measured and cost > MOST_CYCLES):
            continue
        try:
            worker.compile(opts)
        except Error:  # its code is too long
            continue
        if first:
            run_first(os.getpid(), True)
        match = worker.match(opts, SAMPLES)
        if first:
            run_first(os.getpid(), False)
        least = min(least, *match.schedule)
        found.predicted.append(cost / clock * 1e-9)
        found.measured.append(match.ratio)
    return dataclasses.replace(found, measured=[least * ratio for ratio in found.measured])


def kernels_of(graph: Any, first: bool = False) -> Iterator[KernelTimes]:
    """Time the kernels of a graph, each with the list of the schedule and some neighbours."""
    request = prepare(graph, None, True, 1, None, own_options())
    target = backend_of("cpu").target("cpu", "")
    lowered = lower(request, target)
    calls = {c.src[0]: (c, final) for c, (final, _) in zip(lowered.program.src, lowered.calls)}
    for kernel, (call, final) in calls.items():
        if kernel.op is not Ops.SINK:
            continue
        with arena():
            context = make_context(request, target)
            base = kernel_opts.before_opts(kernel, context)
            own = final.arg.opts or ()
            near = itertools.islice(Moves(base, context).neighbours(own), LISTS - 1)
            lists = {own: cost_of(Tiled(base), own)} | {n.opts: n.cycles for n in near}
            alone = standalone(kernel, call, request)
        yield timed(alone, lists, final.arg.name, first)


def cost_of(base: Tiled, opts: Opts) -> float:
    """The cycles of a kernel with a list of Opts; infinite if the list is refused."""
    made = kernel_opts.replayed(base, opts)
    if made is None:
        return math.inf
    return cycles(outline_of(made.kernel), machine_of(backend_of("cpu").target("cpu", "")))


def own_options() -> config.Options:
    """The options of a compile that no cache answers."""
    return dataclasses.replace(config.current(), cache_dir="", programs=0)


# ------------------------------------------------------------------ the cases
def corpus() -> list[str]:
    """The kernels of the first experiments: their numbers in the file."""
    rows = [json.loads(text) for text in POINTS.read_text("utf-8").splitlines()]
    return [str(i) for i, row in enumerate(rows) if row["set"] == "developed"][::EVERY]


def of_corpus(key: str, first: bool = False) -> Measured:
    """Time the recorded lists of a kernel."""
    row = json.loads(POINTS.read_text("utf-8").splitlines()[int(key)])
    with arena():
        kernel = parse(row["kernel"])
        known = [found for text, _ in row["lists"] if (found := opts_of(text)) is not None]
        lists = {opts: cost_of(Tiled(kernel), opts) for opts in known[: 2 * LISTS]}
        request = prepare(kernel, None, True, 1, None, own_options())
    times = timed(request, lists, row["graph"], first)
    return Measured("corpus", key, family_of(row["family"]), [times])


def of_workload(where: str, key: str, family: str, w: Workload, first: bool) -> Measured:
    """Time the kernels of a workload."""
    inputs = [
        uopc.param(f"x{i}", a.shape, getattr(uopc.dtypes, str(a.dtype)))
        for i, a in enumerate(w.inputs)
    ]
    graph = w.body(peer("uopc").operators, *inputs)
    return Measured(where, key, family_of(family), list(kernels_of(graph, first)))


@functools.cache
def peer(name: str) -> Peer:
    """A library on one thread."""
    return PEERS[name](1)


def measured(case: tuple[str, str], first: bool) -> Measured:
    """Time a case: its set, and its key in the set."""
    where, key = case
    if where == "corpus":
        return of_corpus(key, first)
    if where == "benchmarks":
        return of_workload(where, key, key, WORKLOADS[key](), first)
    kind, w = random_shapes.drawn(int(key))
    found = of_workload(where, key, kind, w, first)
    if importlib.util.find_spec("torch") is not None:
        beside = random_shapes.measured(int(key), peer("uopc"), peer("torch"))
        found.ours, found.torch = beside.ours, beside.torch
    return found


def cases(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The cases that the command line names; without names, those of all sets."""
    for text in texts or ("corpus", "benchmarks", f"0:{DRAWN}"):
        keys = {"corpus": corpus, "benchmarks": lambda: [*ANCHORS, *OWN]}.get(text)
        if keys is not None:
            yield from [(text, key) for key in keys()]
        else:
            yield from [("drawn", str(n)) for n in numbers_of([text])]


# ------------------------------------------------------------------ the report
def scores(records: Sequence[Measured]) -> dict[str, Score]:
    """The scores by family, the family of most kernels first, and of all."""
    made: dict[str, Score] = {}
    for r in records:
        for k in r.kernels:
            if k.measured:
                for name in (r.family, ALL):
                    made.setdefault(name, Score()).add(k.measured, k.predicted)
    order = sorted(made, key=lambda name: (name == ALL, -len(made[name].regrets)))
    return {name: made[name] for name in order}


def table(records: Sequence[Measured]) -> Iterator[str]:
    """Markdown: a row for each family."""
    heads = "family", "kernels", "lists", "pairs", "in order, %", "regret", "worst", "predicted"
    yield f"| {' | '.join(heads)} / measured |"
    yield "|---" * len(heads) + "|"
    for family, s in scores(records).items():
        share = f"{100 * s.share:.0f}" if s.pairs else "."
        yield (
            f"| {family} | {len(s.regrets)} | {len(s.ratios)} | {s.pairs} | {share} |"
            f" {s.regret:.3f} | {max(s.regrets):.2f} | {s.ratio:.2f} |"
        )


def line(r: Measured) -> str:
    """One case while the command runs."""
    kernels = [
        f"{k.name} {k.predicted[0] * 1e6:.4g} of {k.measured[0] * 1e6:.4g}"
        for k in r.kernels if k.measured
    ]  # fmt: skip
    beside = f"; {r.ours / r.torch:.2f} of PyTorch" if r.torch else ""
    return f"{r.set} {r.key} ({r.family}): us predicted of measured: {', '.join(kernels)}{beside}"


def report(records: list[Measured]) -> Iterator[str]:
    """The tables of the sets, and the times beside PyTorch."""
    for where, title in SETS.items():
        own = [r for r in records if r.set == where]
        if own:
            yield from ("", f"## {title}", "")
            yield from table(own)
    beside = [(r.ours / r.torch, r.key) for r in records if r.torch]
    if beside:
        ratios = [ratio for ratio, _ in beside]
        slower = ", ".join([key for ratio, key in beside if ratio > random_shapes.MOST_RATIO])
        yield ""
        yield (
            f"Beside PyTorch: {geometric_mean(ratios):.2f} of its time in the geometric mean of"
            f" {len(ratios)} graphs at drawn shapes, {max(ratios):.2f} at worst; above"
            f" {random_shapes.MOST_RATIO}: {slower or 'none'}."
        )


def page(records: list[Measured]) -> Iterator[str]:
    """The answer, how it was found, and the report."""
    everything, host = scores(records)[ALL], detect.host()
    yield "# Predicted and measured times"
    yield ""
    yield (
        f"Of {everything.pairs} pairs of lists of Opts that differ by {DIFFERENT}, the cost orders"
        f" {100 * everything.share:.0f} % right. The list that costs least takes"
        f" {everything.regret:.3f} times the time of the fastest (geometric mean of"
        f" {len(everything.regrets)} kernels). Predicted times are {everything.ratio:.2f} times the"
        " measured times in the median."
    )
    yield ""
    yield from PAGE.splitlines()
    yield ""
    figures = machine_of(backend_of("cpu").target("cpu", ""))
    yield (
        f"{host.cpu}, vectors of {host.vector_bits} bits, presumed at {figures.clock:.1f} GHz;"
        f" load {os.getloadavg()[0]:.1f}."
    )
    yield from report(records)


PAGE = """Made by `python benchmarks/cost.py --realtime --page docs/lab/cost_measured.md`. The model
is in [cost.md](cost.md). `uopc cost --random N` measures other drawn shapes, `uopc cost FILE
--measure` a file.

A kernel runs with the list of the schedule and neighbours of that list (in the corpus: the recorded
lists), in turns, on one thread; the least time counts. Lists that are predicted to take six times
the least are not run. Regret: the time of the list that costs least over the least time."""


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--realtime", action="store_true", help="turns run before other processes")
    args = parser.parse_args()
    if args.realtime and not may_run_first():
        parser.error("--realtime: the system does not let this process run before others")
    if args.report:
        print(*report(read(args.report, Measured)), sep="\n")
        if args.page:
            args.page.write_text("\n".join(page(read(args.report, Measured))) + "\n", "utf-8")
        return 0
    with uopc.options(threads=1):
        found = recorded(
            args,
            Measured,
            list(cases(args.numbers)),
            lambda r: (r.set, r.key),
            functools.partial(measured, first=args.realtime),
            line,
        )
    report_all(args, found, report, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
