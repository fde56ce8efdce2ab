"""UOPC_DEBUG: print on stderr what a compile and its program do. Each level adds to the ones below.

    1  one line per compile: device, kernels, launches, milliseconds
    2  each call, kernel by kernel: microseconds, GFLOP/s, GB/s, its operations, the user's lines
    3  the Opts of each kernel, and the large reduces that are cut in two
    4  the source of each kernel: LLVM IR
    5  the graph at every stage that changed it
    6  the linear UOps of each kernel
    7  the machine code of each kernel, as assembly

`UOPC_DEBUG=2 python program.py`, or `with uopc.options(debug=2): f = uopc.compile(graph)`. The
level at compile time counts: from 2 on, the program times its kernels one by one, so calls take
longer. A cached program is not compiled again: level 1 prints which cache had it, and levels that
show stages lower its graph once more, which changes no cache. `work.py` defines the operations and
bytes that count.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from uopc.backends.cpu.arguments import bind
from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.dump.stages import Dump
from uopc.ir.core.trace import made_at
from uopc.ir.text.columns import plural
from uopc.program.program import Program
from uopc.program.speed.work import Work

TIMES, OPTS, SOURCE, GRAPHS, LINEAR, ASSEMBLY = 2, 3, 4, 5, 6, 7


def log_compile(program: Program) -> None:
    """Log to `uopc`: INFO for a compile, DEBUG for a cached program."""
    level = logging.DEBUG if program.stats["cache"] else logging.INFO
    logger = logging.getLogger("uopc")
    if logger.isEnabledFor(level):
        logger.log(level, _summary(program))


def report_compile(program: Program, level: int) -> Program:
    """Print the output of a level. Returns the program, which from level 2 on times its calls."""
    _print(f"uopc: {_summary(program)}")
    if level >= OPTS and "lowered" not in vars(program._source):
        _print("uopc: the program or a kernel of it is cached; lowered again to be shown")
    for text in splits(program) if level >= OPTS else ():
        _print(f"uopc: {text}")
    if level >= GRAPHS:
        _print_graphs(program)
    for kernel in program.kernels if level >= OPTS else ():
        _print(f"kernel {kernel.name}: opts {' '.join(map(str, kernel.opts)) or 'none'}")
        if level >= LINEAR:
            _print(str(kernel.uops))
        if level >= SOURCE:
            _print(kernel.source)
        if level >= ASSEMBLY:
            _print(kernel.asm)
    timed = level >= TIMES and program._source.request.mesh is None
    return _timed(program) if timed else program


def _print(text: str) -> None:
    print(text.rstrip("\n"), file=sys.stderr)


def _summary(program: Program) -> str:
    request, stats, machine = program._source.request, program.stats, program._source.machine
    total = f"{stats['total'] * 1e3:.1f} ms"
    if stats["cache"]:
        how = f"cached {_WHERE[stats['cache']]}; {total}"
    else:
        passes, llvm = sum(stats["passes"].values()), stats["llvm"]
        how = f"{total}: passes {passes * 1e3:.1f}, LLVM {llvm * 1e3:.1f}"
        cached = len(program.kernels) - stats["compiled"]
        how += f"; {plural(cached, 'kernel')} cached" if cached else ""
    return (
        f"{request.name or 'program'} for {machine.device} {machine.cpu},"
        f" {plural(request.threads, 'thread')}: {plural(len(program.kernels), 'kernel')} in"
        f" {plural(stats['launches'], 'launch', 'launches')}; {how}"
    )


def splits(program: Program) -> list[str]:
    """The large reduces that are cut in two, as text with the user's lines."""
    found = program._source.lowered.context.notes.get("splits", {})
    return [text + made_at(stored) for stored, text in found.items()]


_WHERE = {"memory": "in memory", "disk": "on disk"}


def _print_graphs(program: Program) -> None:
    lowered = program._source.lowered
    dump = Dump(lowered)
    for i, stage in enumerate(dump.stages):
        if i and dump.graphs(stage) == dump.graphs(dump.stages[i - 1]):
            _print(f"stage {stage.run.name}: unchanged")
        else:
            _print(f"stage {stage.run.name}:\n{dump.body(i)}")


# ---------------------------------------------------------------- level 2
class TimedProgram(Program):
    """A program that prints the time of each of its kernels."""

    _work: list[Work]

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Run the program, kernel by kernel."""
        plan = self._runner.plan
        values = bind(plan, arrays, dict(named), BoundedMap()).values if plan.variables else {}
        result, times = self._runner.trace(arrays, named)
        total = sum(seconds for _, seconds in times)
        _print(f"{plan.name}: {total * 1e6:.1f} us in {plural(len(times), 'launch', 'launches')}")
        width = max((len(name) for name, _ in times), default=0)
        for (name, seconds), work in zip(times, self._work):
            operations, touched = work.counts(values)
            nanoseconds = max(seconds * 1e9, 1.0)
            unit = "GFLOP/s" if work.floats else "Gop/s"
            _print(
                f"  {name:<{width}} {seconds * 1e6:9.1f} us {operations / nanoseconds:8.2f} {unit}"
                f" {touched / nanoseconds:8.2f} GB/s  {work.ops}  {work.lines}"
            )
        return result


def _timed(program: Program) -> Program:
    """The same program, with calls that are timed in Python."""
    made = object.__new__(TimedProgram)
    made.__dict__.update(program.__dict__)
    made._runner = program._runner
    made._work = [launch.work for launch in program.launches]
    return made
