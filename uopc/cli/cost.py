"""uopc cost: predict the time of each kernel, and say where it goes.

SOURCE is as for `uopc run`: file.py, file.py:name, a .uop, .onnx or .casadi file. The prediction is
of one thread, and of runs after other runs: caches are warm. It needs no machine code, so --cpu may
name a processor that is not there. A variable without a value counts as the greatest one.

The columns: launches in a call, the cycles and µs of a launch; the cycles of its arithmetic, of the
lines that come from the second and the third cache and from memory, of stores that do not join
their neighbours in a line, and of the launch itself. Arithmetic and lines overlap, so the parts
exceed the whole. With --measure: the measured µs, and predicted / measured.

With --random, kernels at drawn shapes of the kinds of the benchmarks are measured, each with
several lists of Opts, and compared with the predictions by family; where PyTorch is installed, each
graph runs beside PyTorch. This needs a source checkout.

examples:
  uopc cost model.py                        the table
  uopc cost model.py:attention --measure    beside this machine
  uopc cost model.py --cpu x86-64-v2        of another processor
  uopc cost model.onnx --set batch=8        with a value for a variable
  uopc cost --random 100 --seed 7           how far predictions are right on this machine
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

from uopc import target
from uopc.cli import bench, load, sizes
from uopc.cli.output import Output, Refuse
from uopc.cli.run import checked_request
from uopc.cost.machine import machine_of
from uopc.cost.parts import Cost
from uopc.dump.kernel_costs import kernel_costs
from uopc.dump.stages import Dump
from uopc.errors import Unsupported, UserError
from uopc.ir.records import dataclass
from uopc.ir.text.columns import plural
from uopc.passes.pass_manager import Lowered
from uopc.program.backend import backend_of
from uopc.program.program import make_program
from uopc.program.request import Request, lower
from uopc.program.speed import random_inputs

_SAMPLES = 20


@dataclass(frozen=True)
class CostRow:
    """The predicted cost of a launch of a kernel, in cycles and seconds, and the measured seconds;
    the launches of a call."""

    kernel: str
    launches: int
    cost: Cost
    seconds: float
    measured: float | None = None

    @property
    def ratio(self) -> float | None:
        """The predicted time over the measured time."""
        return self.seconds / self.measured if self.measured else None


def arguments(parser: ArgumentParser) -> None:
    """The graph, the sizes, the processor, and whether to measure."""
    parser.add_argument("source", metavar="SOURCE", nargs="?")
    cpu = "predict for a processor, such as x86-64-v3 (default: this one)"
    parser.add_argument("--cpu", metavar="NAME", help=cpu)
    threads = "use N threads for the schedule and for --measure (default: 1)"
    parser.add_argument("--threads", metavar="N", type=int, default=1, help=threads)
    sizes.argument(parser, "set the value of a variable")
    parser.add_argument("--measure", action="store_true", help="run each kernel on this machine")
    drawn = "measure N graphs at drawn shapes, and compare them with the predictions"
    parser.add_argument("--random", metavar="N", type=int, help=drawn)
    seed = "with --random: draw the shapes from S on (default: 0)"
    parser.add_argument("--seed", metavar="S", type=int, default=0, help=seed)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace, out: Output, refuse: Refuse) -> int:
    """Predict, and measure if asked to; or compare predictions with measured times."""
    if bool(args.source) == (args.random is not None):
        refuse("expected SOURCE, or --random N")
    if args.random is not None:
        return _random(args, refuse)
    if args.threads < 1:
        refuse("--threads: at least 1")
    if args.cpu and args.cpu not in target.CPUS:
        refuse(f"--cpu: unknown processor {args.cpu!r}; choose {', '.join(target.CPUS)}")
    if args.cpu and args.measure:
        refuse("--measure runs on this machine: leave out --cpu")
    found = load.load(args.source, dict(args.set) if args.source.endswith(".onnx") else None)
    request = _request(found, args)
    lowered = lower(request, backend_of("cpu").target("cpu", request.options.target_cpu))
    rows = predicted(lowered)
    if args.measure:
        rows = _measured(request, rows)
    if args.json:
        out.line(json.dumps(_as_json(found.name, lowered, rows), indent=2))
    else:
        _show(out, found.name, lowered, rows)
    return 0


def _random(args: Namespace, refuse: Refuse) -> int:
    if args.random < 1 or args.seed < 0:
        refuse("--random: at least 1; --seed: at least 0")
    if args.measure or args.set or args.cpu or args.threads != 1 or args.json:
        refuse("--random takes no option but --seed")
    return bench.script("cost", [f"{args.seed}:{args.seed + args.random}"], refuse)


def _request(found: load.LoadedSource, args: Namespace) -> Request:
    """The request of a source for some threads and a processor, with the given sizes."""
    request = checked_request(found, "cpu")
    if request.mesh is not None:
        raise Unsupported("cost: a program for several devices; `uopc dump` lists its exchanges")
    options = replace(request.options, target_cpu=args.cpu or request.options.target_cpu)
    request = replace(request, threads=args.threads, options=options)
    given = {} if found.name.endswith(".onnx") else dict(args.set)
    return sizes.given(request, given) if given else request


def predicted(lowered: Lowered) -> list[CostRow]:
    """A row for each kernel, in the order of first use. UserError if the schedule saw none."""
    costs = kernel_costs(lowered, Dump(lowered).stages)
    if not costs and lowered.calls:
        raise UserError("no kernel with loops: only graphs before the schedule have a prediction")
    launches, clock = Counter([k for k, _ in lowered.calls]), _clock(lowered)
    return [CostRow(k.arg.name, launches[k], c, c.cycles / clock * 1e-9) for k, c in costs.items()]


def _clock(lowered: Lowered) -> float:
    """Cycles per ns."""
    return machine_of(lowered.context.target).clock


def _measured(request: Request, rows: list[CostRow]) -> list[CostRow]:
    """The rows with the least seconds of a launch of each kernel, on random arrays."""
    program = make_program(request)
    plan = program._runner.plan
    values = random_inputs.sizes(plan, {})
    arrays = tuple(random_inputs.random_arrays(plan, values))
    times = program._runner.time(arrays, dict(values), _SAMPLES)
    least: dict[str, list[float]] = {}
    for launch, samples in zip(plan.launches, times):
        least.setdefault(launch.kernel, []).append(min(samples))
    return [replace(r, measured=_mean(least.get(r.kernel, []))) for r in rows]


def _mean(times: list[float]) -> float | None:
    return sum(times) / len(times) if times else None


# ---------------------------------------------------------------- output
def _show(out: Output, name: str, lowered: Lowered, rows: list[CostRow]) -> None:
    machine, total = lowered.context.target, sum([r.seconds * r.launches for r in rows])
    kernels, launches = plural(len(rows), "kernel"), sum([r.launches for r in rows])
    threads = plural(lowered.context.threads, "thread")
    out.line(
        f"{name} for {machine.cpu}, {threads}: {kernels} in"
        f" {plural(launches, 'launch', 'launches')}, {total * 1e6:.3f} us of one thread predicted"
    )
    beyond = [m.origin for m in rows[0].cost.traffic] if rows else []
    heads = ["kernel", "launches", "cycles", "us", "arithmetic", *beyond, "stores", "launch"]
    table = [
        [
            r.kernel, str(r.launches), f"{r.cost.cycles:,.0f}", f"{r.seconds * 1e6:.3f}",
            f"{r.cost.arithmetic:,.0f}", *[f"{m.cycles:,.0f}" for m in r.cost.traffic],
            f"{r.cost.stores:,.0f}", f"{r.cost.launch:,.0f}",
        ]
        for r in rows
    ]  # fmt: skip
    if any([r.measured is not None for r in rows]):
        heads += ["measured us", "predicted / measured"]
        for line, r in zip(table, rows):
            line += [f"{r.measured * 1e6:.3f}", f"{r.ratio:.2f}"] if r.measured else ["-", "-"]
    out.table(heads, table)


def _as_json(name: str, lowered: Lowered, rows: list[CostRow]) -> dict[str, Any]:
    return {
        "source": name, "cpu": lowered.context.target.cpu, "threads": lowered.context.threads,
        "clock_ghz": _clock(lowered),
        "kernels": [
            {
                "name": r.kernel, "launches": r.launches, "us": r.seconds * 1e6,
                "measured_us": None if r.measured is None else r.measured * 1e6,
                **asdict(r.cost), "traffic": [m._asdict() for m in r.cost.traffic],
            }
            for r in rows
        ],
    }  # fmt: skip
