"""Program: the callable that `compile` returns, and how it is put together from kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from uopc import cache
from uopc.backends.cpu.callables import ProgramBase, make_callable
from uopc.backends.llvm import jit
from uopc.ir.core import analysis, node
from uopc.ir.core.fingerprint import Fingerprint, fingerprint
from uopc.program.artifact import Array, Compiled, compiled

if TYPE_CHECKING:
    from uopc.driver import Request
    from uopc.ir.core.args import Opt
    from uopc.ir.core.uop import UOp
    from uopc.passes.pass_manager import Lowered, Verify


@dataclass(frozen=True)
class Value:
    """An input or output of a program."""

    name: str
    shape: tuple[Any, ...]
    dtype: Any


class Stages:
    """How a request was lowered: done again when somebody asks. To keep every graph would take more
    memory than the code, and time: nodes that nobody holds go quickly."""

    def __init__(self, request: Request, lowered: Lowered | None) -> None:
        self.request, self._lowered = request, lowered

    @property
    def lowered(self) -> Lowered:
        if self._lowered is None:
            self._lowered = lower(self.request, None)
        return self._lowered


@dataclass
class Kernel:
    """One compiled kernel: text of it at the last stages, the Opts that shaped it, its origin."""

    name: str
    source: str
    _stages: Stages = field(repr=False)
    _assembly: str = field(default="", repr=False)

    @property
    def uops(self) -> UOp:
        """The kernel in execution order: a LINEAR."""
        kernels = self._stages.lowered.kernels
        return next(k for k in kernels if k.arg.name == self.name)

    @property
    def opts(self) -> tuple[Opt, ...]:
        """The Opts that shaped it."""
        return self.uops.arg.opts or ()

    @property
    def origin(self) -> str:
        """The user's source lines in it."""
        return _origin(self._stages.lowered.located(self.uops))

    @property
    def asm(self) -> str:
        """The machine code, as assembly text."""
        if not self._assembly:
            self._assembly = jit.assembly(
                self.source, self._stages.request.options.target_cpu or None
            )
        return self._assembly


class Program(ProgramBase):
    """A compiled graph. Call it with arrays by position or name; `out=` gives the results' memory.

    Thread-safe; a pickle holds the graph and compiles again when it is loaded. `stats`: seconds by
    pass, of rendering, of LLVM and in total; nodes and launches; `cache`, where the code came from
    (`memory`, `disk`, or `` for a compile), and how many graphs were `scheduled` and kernels
    `compiled` for it, and how many bodies of precompiled functions were scheduled (`functions`).
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    stats: dict[str, Any]
    _request: Request
    _compiled: Compiled
    _stages: Stages

    @property
    def kernels(self) -> list[Kernel]:
        """The distinct kernels, in order of first use."""
        found: list[Kernel] | None = self.__dict__.get("_kernels")
        if found is None:
            texts = zip(self._compiled.names, self._compiled.sources())
            found = [Kernel(name, source, self._stages) for name, source in texts]
            self.__dict__["_kernels"] = found
        return found

    @property
    def stages(self) -> dict[str, str]:
        """The text of every stage, by its name."""
        from uopc.dump import stages as dump

        return dump.stage_texts(self._lowered, self.kernels)

    @property
    def _lowered(self) -> Lowered:
        return self._stages.lowered

    def __repr__(self) -> str:
        inputs = ", ".join(
            f"{v.name}: {v.dtype.short}{analysis.show(v.shape)}" for v in self.inputs
        )
        return f"<uopc.Program ({inputs}), {len(self.kernels)} kernels>"

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        from uopc import driver

        return driver.build, (self._request, None)


def _origin(nodes: list[UOp]) -> str:
    """The user's source lines in a kernel, given the nodes that have one."""
    return ", ".join({f"{u.origin[0].co_filename}:{u.origin[1]}": None for u in nodes})


def lower(request: Request, verify: Verify | None) -> Lowered:
    """The stages of a request."""
    from uopc import driver
    from uopc.passes import pass_manager as lowering

    with node.arena():
        return lowering.lower(request.graph, driver.make_context(request), verify)


@dataclass(frozen=True)
class Backend:
    """What differs between devices: how code is made of stages, and a program of the code."""

    compiled: Callable[[Request, Lowered, Fingerprint], Compiled]
    assembled: Callable[[Request, Compiled, Mapping[str, Array]], Program]


def program_for(request: Request, verify: Verify | None, backend: Backend) -> Program:
    """The program that was asked for: from a cache, or made.

    Who wants to see the stages (`verify`, options.debug or match_stats) gets them made.
    """
    start = time.perf_counter()
    printed = fingerprint(request.graph)
    fresh: list[Lowered] = []

    def make() -> Compiled:
        with node.arena():
            fresh.append(lower(request, verify))
            made = backend.compiled(request, fresh[0], printed)
        cache.count(scheduled=1, compiled=len(made.names))
        return made

    looked_at = bool(verify or request.options.debug or request.options.match_stats)
    if looked_at:
        found, where = make(), ""
    else:
        found, where = cache.obtain(request, printed, make)
    program = backend.assembled(request, found, printed.arrays)
    program._request, program._compiled = request, found
    describe(program)
    program._stages = Stages(request, fresh[0] if looked_at else None)
    program.stats = {
        "passes": {r.name: r.seconds for r in fresh[0].runs} if fresh else {},
        **(found.seconds if fresh else dict.fromkeys(found.seconds, 0.0)),
        "total": time.perf_counter() - start,
        "nodes": printed.nodes,
        "launches": len(found.plan.launches),
        "cache": where,
        "scheduled": len(fresh),
        "functions": fresh[0].notes.get("functions", 0) if fresh else 0,
        "compiled": len(found.names) if fresh else 0,
    }
    return program


def _assembled(request: Request, found: Compiled, arrays: Mapping[str, Array]) -> Program:
    plan = found.plan_for(request, arrays)
    cache.load_runtime(request.options)
    return make_callable(plan, found.load(), Program, request.options.plain_call)


CPU = Backend(compiled, _assembled)


def describe(program: Program) -> None:
    """The inputs and outputs of a program, from what was asked for."""
    request = program._request
    program.inputs = tuple([Value(p.arg.name, analysis.shape(p), p.dtype) for p in request.params])
    program.outputs = _outputs(request)


def _outputs(request: Request) -> tuple[Value, ...]:
    if request.structure == "kernel":
        return ()
    values = [v for v in request.graph.src if v.dtype.kind != "void"]
    keys = request.keys or range(len(values))
    return tuple([Value(str(k), analysis.shape(v), v.dtype) for k, v in zip(keys, values)])
