"""Walk the pipeline: a graph goes in, linear kernels and their launches come out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from uopc.errors import UserError
from uopc.ir import analysis, dtypes
from uopc.ir.args import KernelArg
from uopc.ir.levels import KERNEL, LINEAR, PROGRAM, TENSOR, Level
from uopc.ir.node import intern
from uopc.ir.ops import Ops
from uopc.passes import PIPELINE
from uopc.passes.contract import Context, Pass

if TYPE_CHECKING:
    from uopc.ir.uop import UOp


@dataclass
class StageRun:
    """One pass as it ran: on the graph, or on all kernels."""

    number: int
    name: str
    level: Level
    before: list[UOp]
    after: list[UOp]
    seconds: float = 0.0

    @property
    def changed(self) -> bool:
        return self.before != self.after


@dataclass
class Lowered:
    """A program of CALLs whose kernels are linear, and how it came about."""

    outputs: tuple[UOp, ...]  # what the caller gets: storage after its effects, at indexed level
    calls: list[tuple[UOp, tuple[UOp, ...]]]  # (linear kernel, storage and variables), in order
    kernels: list[UOp]  # the distinct linear kernels, in order of first use
    origins: dict[UOp, list[UOp]] = field(default_factory=dict)
    runs: list[StageRun] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)


Verify = Callable[["UOp", Level, str], None]


def level_of(graph: UOp) -> Level:
    """The level of a graph that came from outside: its ops say it."""
    ops = {u.op for u in analysis.toposort(graph)}
    if graph.op is Ops.LINEAR:
        return PROGRAM if Ops.CALL in ops else LINEAR
    if Ops.RANGE in ops or Ops.SPECIAL in ops:
        return KERNEL
    return TENSOR


def lower(graph: UOp, context: Context, verify: Verify | None = None) -> Lowered:
    """Run every pass on a SINK of tensor values, or on one kernel written by hand.

    `verify(graph, level, stage)` is called on what each pass gives.
    """
    runs = [StageRun(0, "input", level_of(graph), [graph], [graph])]
    level = runs[0].level
    if verify is not None:
        verify(graph, level, "input")
    stages = list(PIPELINE)
    outputs: tuple[UOp, ...] = ()
    program = graph
    if level is KERNEL:
        program = _call_of(graph)
    elif level is TENSOR:
        for number, p in [s for s in stages if s[1].scope == "graph"]:
            if p.promises is PROGRAM:
                outputs = program.src
            program = _run(p, number, [program], context, runs, verify)[0]
    else:
        raise UserError(f"cannot compile a graph of level {level.text}")
    kernels = list(dict.fromkeys(c.src[0] for c in program.src))
    final = kernels
    for number, p in [s for s in stages if s[1].scope == "kernel"]:
        final = _run(p, number, final, context, runs, verify)
    replaced = dict(zip(kernels, _named(final)))
    calls = [(replaced[c.src[0]], c.src[1:]) for c in program.src]
    return Lowered(outputs, calls, list(replaced.values()), {}, runs, context.notes)


def _run(
    p: Pass, number: int, graphs: list[UOp], context: Context, runs: list[StageRun],
    verify: Verify | None,
) -> list[UOp]:  # fmt: skip
    """One pass over every graph it applies to (equal kernels are one already)."""
    start = time.perf_counter()
    after = [p.run(g, context) for g in graphs]
    seconds = time.perf_counter() - start
    runs.append(StageRun(number, p.name, p.promises, graphs, after, seconds))
    if verify is not None:
        for g in after:
            verify(g, p.promises, p.name)
    return after


def _named(kernels: list[UOp]) -> list[UOp]:
    """Kernels of one name get a number behind it: r_8_4, r_8_4n1, …"""
    taken: dict[str, int] = {}
    out = []
    for k in kernels:
        arg = k.arg if isinstance(k.arg, KernelArg) else KernelArg("kernel")
        seen = taken.get(arg.name, 0)
        taken[arg.name] = seen + 1
        name = f"{arg.name}n{seen}" if seen else arg.name
        out.append(intern(k.op, k.dtype, k.src, dataclasses.replace(arg, name=name)))
    return out


def _call_of(kernel: UOp) -> UOp:
    """A kernel written by hand, called with its PARAMs as the program's arguments."""
    params = sorted(
        (u for u in analysis.toposort(kernel) if u.op is Ops.PARAM), key=lambda u: u.arg.slot
    )
    slots = [u.arg.slot for u in params]
    if slots != list(range(len(slots))):
        raise UserError(f"a kernel's params must fill the slots 0 to {len(slots) - 1}, got {slots}")
    args = (*params, *analysis.variables(kernel))
    call = intern(Ops.CALL, dtypes.void, (kernel, *args))
    return intern(Ops.LINEAR, dtypes.void, (call,))
