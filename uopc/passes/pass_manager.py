"""Walk the pipeline: a graph goes in, linear kernels and their launches come out."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING

from uopc.errors import Error, InvalidIR, UserError
from uopc.ir.builder import rebuild
from uopc.ir.builder.programs import Schedule, Scheduled
from uopc.ir.core import dtypes, shapes, storage, walk
from uopc.ir.core.arena import passing
from uopc.ir.core.args import KernelArg
from uopc.ir.core.calls import exchanges_of
from uopc.ir.core.level_of import level_of
from uopc.ir.core.levels import INDEXED, KERNEL, LINEAR, PROGRAM, TENSOR, Level
from uopc.ir.core.ops import Ops
from uopc.ir.core.trace import Fired, tracing, untraced
from uopc.ir.core.uop import UOp, intern
from uopc.ir.forks import cached_property
from uopc.ir.index import size_conditions
from uopc.ir.index.size_conditions import SizeCondition
from uopc.ir.records import dataclass
from uopc.passes import PIPELINE
from uopc.passes.analysis import kernel_names
from uopc.passes.contract import (
    PASSES_SHARE,
    Context,
    Pass,
    RuleContext,
    watch,
)  # fmt: skip

if TYPE_CHECKING:
    from uopc.cost.parts import Cost
    from uopc.ir.devices.launches import LaunchPlace

INPUT = "input"  # the stage before the first pass
Numbered = tuple[int, Pass]


@dataclass
class StageRun:
    """One pass as it ran: on the graph, or on all kernels (`before[i]` became `after[i]`)."""

    number: int
    name: str
    level: Level
    before: list[UOp]
    after: list[UOp]
    begin: float = 0.0  # on the clock of time.perf_counter
    seconds: float = 0.0
    rewrites: Sequence[Fired] = ()  # of a run with `trace`


@dataclass
class Lowered:
    """A program of CALLs whose kernels are linear, and the passes that made it."""

    outputs: tuple[UOp, ...]  # the caller's: storage after its effects, at indexed level
    # (linear kernel, storage and variables), in order; a skipped kernel is not linear.
    calls: list[tuple[UOp, tuple[UOp, ...]]]
    kernels: list[UOp]  # the distinct linear kernels, in order of first use
    origins: dict[UOp, list[UOp]]  # the user's nodes in each kernel
    runs: list[StageRun]
    program: UOp  # the LINEAR of CALLs, with kernels as they were before the first run on kernels
    context: Context
    names: dict[UOp, str]  # of the kernels, before those of the same name were numbered
    conditions: Sequence[SizeCondition] = ()  # on sizes: they must hold before a kernel runs

    def located(self, kernel: UOp) -> list[UOp]:
        """The user's nodes in a linear kernel, but none that another graph may have built first."""
        return [u for u in self.origins.get(kernel, ()) if _line(u) in self._lines]

    @cached_property
    def places(self) -> list[LaunchPlace]:
        """The places of the launches of a program for several devices of this process."""
        if len(self.context.devices) < 2:
            return []
        from uopc.passes.order_launches import placed

        return placed(self.program, self.context.devices)

    @cached_property
    def _lines(self) -> set[tuple[str, int] | None]:
        """The source lines of the graph as the user gave it."""
        return {_line(u) for u in walk.order(self.runs[0].before[0])} - {None}


def _line(u: UOp) -> tuple[str, int] | None:
    """The line that built a node; None for a number, which is one node for all lines."""
    if u.origin is None or u.op is Ops.CONST:
        return None
    return u.origin[0].co_filename, u.origin[1]


Verify = Callable[[UOp, Level, str], None]
# Takes a kernel as it was before its passes, and the linear kernel that it became, with its name.
Done = Callable[[UOp, UOp, str], None]


class Lowering:
    """One walk over the pipeline. `runs` grows pass by pass: the pass after the last one failed.

    `verify(graph, level, stage)` checks the result of each pass; `trace` keeps every rewrite.
    `skip(program)`: the kernels of a program, a LINEAR of CALLs, that no pass for kernels runs on.
    With `done`, kernels are spelled out one by one: `done` is told of each new one, what was made
    on the way to it goes before the next, and `runs` hold no graph but the first.
    """

    def __init__(
        self, context: Context, verify: Verify | None = None, trace: bool = False,
        skip: Callable[[UOp], Container[UOp]] | None = None, done: Done | None = None,
    ) -> None:  # fmt: skip
        self.context, self.verify, self.trace = context, verify, trace
        self.skip, self.done = skip, done
        self.steps = 0.0  # passes that are done, of those in PIPELINE
        self.runs: list[StageRun] = []
        self.program: UOp | None = None  # the LINEAR of CALLs, once there is one
        self.conditions: list[SizeCondition] = []
        # The level at which a graph was verified last.
        self._checked: weakref.WeakKeyDictionary[UOp, Level] = weakref.WeakKeyDictionary()

    def lower(self, graph: UOp, start: str = INPUT, given: UOp | None = None) -> Lowered:
        """Run every pass on a SINK of tensor values, or on one kernel written by hand.

        With `start`, the graph is the result of the pass of that name, and only later passes run.
        `given`: the graph before its accesses got guards; the conditions name nodes of it.
        """
        first, rest = _remaining(graph, start)
        self.steps = len(PIPELINE) - len(rest)
        self.runs.append(first)
        self._check(first)
        if first.number == 0 and first.level is not PROGRAM and first.level is not LINEAR:
            self.conditions = size_conditions.of_graph(graph if given is None else given)
            self.context.assuming = tuple([c.as_bool for c in self.conditions])
        outputs: tuple[UOp, ...] = ()
        program = graph
        whole = [s for s in rest if s[1].scope == "graph"]
        for number, p in whole:
            if p.accepts is INDEXED:
                outputs = program.src
            program = self._run(p, number, [program])[0]
        if not whole and level_of(graph) is not PROGRAM:
            program = _call_of(graph)
        if self.context.searched is not None:
            program = self.context.searched(program, self.context)
        self.program = program
        return self._lower_kernels(program, outputs, [s for s in rest if s[1].scope == "kernel"])

    def _lower_kernels(
        self, program: UOp, outputs: tuple[UOp, ...], passes: list[Numbered]
    ) -> Lowered:
        """Lower the kernels that a program calls. Those that become equal become one."""
        skipped = () if self.skip is None else self.skip(program)
        now = {
            c.src[0]: c.src[0] for c in program.src
            if c.src[0] not in skipped and not exchanges_of(c.src[0])
        }  # fmt: skip
        together = [s for s in passes if self.done is None or s[1].promises is KERNEL]
        for number, p in together:
            before = list(dict.fromkeys(now.values()))
            became = dict(zip(before, self._run(p, number, before)))
            now = {k: became[n] for k, n in now.items()}
        if self.done is not None:
            now = self._one_by_one(now, passes[len(together) :], self.done)
        unnamed = list(dict.fromkeys(now.values()))
        final = kernel_names.numbered_kernels(unnamed)
        if passes and self.done is None:
            self.runs[-1].after = final
        names = {n: kernel_names.identifier(k) for k, n in zip(unnamed, final)}
        became = dict(zip(unnamed, final))
        now = {k: became[n] for k, n in now.items()}
        words = {n: storage.word_places(n) for n in final}
        calls = [
            (now[k], _arguments(c, words[now[k]])) if (k := c.src[0]) in now
            else (k, tuple([a.src[0] if a.op is Ops.BIND else a for a in storage.arguments(c)]))
            for c in program.src
        ]  # fmt: skip
        origins: dict[UOp, list[UOp]] = {n: [] for n in final}
        for k, n in now.items():
            origins[n] += [u for u in walk.toposort(k) if u.origin is not None]
        return Lowered(
            outputs, calls, final, origins, self.runs, program, self.context, names,
            self.conditions,
        )  # fmt: skip

    def _one_by_one(
        self, kernels: dict[UOp, UOp], passes: list[Numbered], done: Done
    ) -> dict[UOp, UOp]:
        """Kernels after the passes that spell out copies and lanes, one by one."""
        first = {now: k for k, now in reversed(kernels.items())}
        made: dict[UOp, UOp] = {}
        known: set[UOp] = set()
        for now in dict.fromkeys(kernels.values()):
            with passing():
                linear = now
                for number, p in passes:
                    (linear,) = self._run(p, number, [linear], len(first))
                made[now] = linear
                if linear not in known:
                    done(first[now], linear, kernel_names.identifier(linear))
                known.add(linear)
        return {k: made[now] for k, now in kernels.items()}

    def _run(self, p: Pass, number: int, graphs: list[UOp], of: int = 0) -> list[UOp]:
        """Run a pass on graphs that it applies to: all, or some of as many as there are."""
        fired: list[Fired] = []
        listening = tracing(fired.append) if self.trace else contextlib.nullcontext()
        start = time.perf_counter()
        try:
            with listening:
                after = [run_pass(p, g, self.context) for g in self._told(p, graphs, of)]
        except Error as error:
            error.add_note(f"in pass {p.name}")
            raise
        seconds = time.perf_counter() - start
        run = StageRun(number, p.name, p.promises, graphs, after, start, seconds, fired)
        self._note(run)
        self._check(run)
        return after

    def _note(self, run: StageRun) -> None:
        if self.done is None:
            self.runs.append(run)
        elif known := [r for r in self.runs if r.number == run.number]:
            known[0].seconds += run.seconds
        else:
            self.runs.append(dataclasses.replace(run, before=[], after=[]))

    def _told(self, p: Pass, graphs: list[UOp], of: int) -> Iterable[UOp]:
        """The graphs of a pass. Who watches the compile is told before each."""
        told = watch.get()
        for graph in graphs:
            if told is not None:
                told(p.name, PASSES_SHARE * self.steps / len(PIPELINE))
            yield graph
            self.steps += 1 / (of or len(graphs))

    def _check(self, run: StageRun) -> None:
        """Verify what a pass changed, and what now is at another level."""
        if self.verify is None:
            return
        for g in run.after:
            if self._checked.get(g) == run.level:
                continue
            self._checked[g] = run.level
            inside = run.level is not PROGRAM and level_of(g) is PROGRAM  # a stage file of kernels
            if inside:
                self.verify(g, PROGRAM, run.name)
            for k in {c.src[0]: None for c in g.src} if inside else (g,):
                self.verify(k, run.level, run.name)


def run_pass(p: Pass, graph: UOp, context: Context) -> UOp:
    """The result of a pass, rewritten by the rules of its stage.

    InvalidIR if the rules break an invariant of the level, leave storage, or change the arguments
    or the outputs of the graph.
    """
    made = p.run(graph, context)
    if made is None:
        raise InvalidIR(f"the pass {p.name} gave None, not a graph")
    if p.name not in context.rules:
        return made
    from uopc.ir.rewrite.engine import graph_rewrite
    from uopc.ir.verify.in_bounds import verify_with_bounds

    name = f"rules of {p.name}"
    ctx = RuleContext(context.target, p.name, made)
    ruled = graph_rewrite(made, context.rules[p.name], ctx, name=name)
    if ruled is made:
        return made
    if p.promises is LINEAR and ruled.op is Ops.LINEAR:
        ruled = _listed(ruled)
    verify_with_bounds(ruled, p.promises, name, context.assuming)
    known = walk.toposort(made)
    for u in walk.toposort(ruled):
        if u.op in _GIVEN and u not in known and getattr(u.arg, "space", "global") == "global":
            raise InvalidIR(
                f"{name}: {u.op!r} {u.arg} is new: rules must not add arguments or storage"
            )
    if p.promises is not TENSOR and _written(ruled) != _written(made):
        raise InvalidIR(f"{name}: rules must keep the storage that the graph writes")
    if _outputs(ruled) != _outputs(made):
        raise InvalidIR(f"{name}: the outputs are {_outputs(ruled)}, expected {_outputs(made)}")
    return ruled


_GIVEN = (Ops.PARAM, Ops.VARIABLE, Ops.NUMBER, Ops.BUFFER)


def _listed(linear: UOp) -> UOp:
    """A LINEAR whose list has every operand, each before its user."""
    done: dict[UOp, None] = {}
    for u in linear.src:
        walk.toposort(u, lambda v: v.op is not Ops.FUNCTION, done)
    return intern(Ops.LINEAR, linear.dtype, tuple(done), linear.arg)


def _written(graph: UOp) -> set[UOp]:
    """The storage that a kernel or a program writes."""
    if level_of(graph) is not PROGRAM:
        stores = [u for u in walk.toposort(graph) if u.op is Ops.STORE]
        return {storage.storage_root(u.src[0]) for u in stores}
    return {storage.storage_root(a) for c in graph.src for a in storage.written_arguments(c)}


def _outputs(graph: UOp) -> list[str]:
    """The dtype and shape of each value that a graph gives."""
    values = [u for u in graph.src if u.dtype.kind != "void"] if graph.op is Ops.SINK else []
    return list(map(shapes.show_value, values))


def function_schedule(context: Context) -> Schedule:
    """A function that schedules each FUNCTION once, its body as a program.

    `context.notes["functions"]` counts them.
    """
    known: dict[UOp, Scheduled] = {}

    def schedule(function: UOp) -> Scheduled:
        if function not in known:
            of_bodies = context.sharding and context.sharding.of_bodies()
            own = dataclasses.replace(context, sharding=of_bodies)
            program = intern(Ops.SINK, dtypes.void, function.src)
            if of_bodies is None:  # it takes whole arrays
                program = rebuild.without_shards(program)
            outputs: tuple[UOp, ...] = ()
            for _, p in itertools.takewhile(lambda s: s[1].accepts is not PROGRAM, PIPELINE):
                outputs = program.src if p.accepts is INDEXED else outputs
                program = run_pass(p, program, own)
            known[function] = Scheduled(program, outputs)
            context.notes["functions"] = len(known)
        return known[function]

    return schedule


# Only programs whose cycles are predicted import the cost.
def kernel_costs(context: Context) -> Callable[[UOp, str], Cost]:
    """A function that predicts the cost of a program after the pass of a name: that of all of its
    launches, with the Opts that the schedule gives each kernel."""
    from uopc.cost.cycles import cost_of
    from uopc.cost.machine import machine_of
    from uopc.cost.parts import Cost
    from uopc.ir.nest.describe import outline_of
    from uopc.passes.share_kernels import skeleton

    names = [p.name for _, p in PIPELINE]
    passes = [p for _, p in PIPELINE[: names.index("optimize") + 1]]
    of_kernels = [p for p in passes if p.scope == "kernel"]
    known: dict[UOp, Cost] = {}  # of kernels that differ only in constants the cost of the first

    def of_kernel(kernel: UOp, own: Context) -> Cost:
        form = skeleton(list(walk.order(kernel)))[0]
        if form not in known:
            for p in of_kernels:
                kernel = p.run(kernel, own)
            known[form] = cost_of(outline_of(kernel), machine_of(own.target))
        return known[form]

    def predicted(program: UOp, after: str) -> Cost:
        own = dataclasses.replace(
            context, opts=None, replayed=None, searched=None, rules={}, notes={}, threads=1,
            cost=None, lengths=(),  # which are the first results of a whole program
        )  # fmt: skip
        with untraced():
            for p in passes[names.index(after) + 1 : -len(of_kernels)]:
                program = p.run(program, own)
            return sum([of_kernel(c.src[0], own) for c in program.src], start=Cost())

    return predicted


def _remaining(graph: UOp, start: str) -> tuple[StageRun, list[Numbered]]:
    """The stage that a graph is at, and the passes that remain to run."""
    if start != INPUT:
        names = [p.name for _, p in PIPELINE]
        if start not in names:
            raise UserError(f"unknown stage {start!r}; choose {', '.join((INPUT, *names))}")
        at = names.index(start)
        number, p = PIPELINE[at]
        return StageRun(number, p.name, p.promises, [graph], [graph]), list(PIPELINE[at + 1 :])
    level = level_of(graph)
    first = StageRun(0, INPUT, level, [graph], [graph])
    if level is TENSOR:
        if isinstance(graph.arg, KernelArg) and graph.arg.opts is not None:
            raise UserError("a SINK of values is not a kernel: give Opts by value.contiguous(opts)")
        return first, list(PIPELINE)
    final = level is LINEAR or any(c.src[0].op is Ops.LINEAR for c in graph.src if c.src)
    return first, [] if final else [s for s in PIPELINE if s[1].scope == "kernel"]


def _arguments(call: UOp, places: dict[UOp, int]) -> tuple[UOp, ...]:
    """The arguments by slot of a call, and the variables, that the linear kernel still needs."""
    by_slot = [i for u, i in places.items() if u.op is not Ops.VARIABLE]
    variables = [u for u in places if u.op is Ops.VARIABLE]
    return *call.src[1 : 2 + max(by_slot, default=-1)], *variables


def _call_of(kernel: UOp) -> UOp:
    """A kernel written by hand, called with its PARAMs as the program's arguments."""
    params = [u for u in walk.toposort(kernel) if u.op is Ops.PARAM]
    params.sort(key=lambda u: u.arg.slot)
    slots = [u.arg.slot for u in params]
    if slots != list(range(len(slots))):
        raise UserError(f"kernel params must have the slots 0 to {len(slots) - 1}, got {slots}")
    call = intern(Ops.CALL, dtypes.void, (kernel, *params, *walk.variables(kernel)))
    return intern(Ops.LINEAR, dtypes.void, (call,))
