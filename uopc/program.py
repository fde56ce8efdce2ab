"""Program: the callable that `compile` returns, and how it is put together from kernels."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from uopc.backends import llvm, memory_plan, scratch
from uopc.backends.cpu import image, jit
from uopc.backends.cpu.callables import ProgramBase, make_callable
from uopc.backends.cpu.plan import (
    Argument,
    Dim,
    Launch,
    Plan,
    Pointer,
    Result,
    Scalar,
    Shape,
    Variable,
    Word,
)  # fmt: skip
from uopc.ir import analysis, kernel_params, node
from uopc.ir.ops import Ops

if TYPE_CHECKING:
    from uopc.driver import Request
    from uopc.ir.args import Opt
    from uopc.ir.uop import UOp
    from uopc.lowering import Lowered

# Launches that do less than this many element operations keep the GIL: releasing it costs 30 ns.
GIL_WORK = 1 << 16


class DimValue:
    """A symbolic dimension at a call: an index expression over variables."""

    def __init__(self, u: UOp) -> None:
        self.uop = u
        self.order = list(analysis.toposort(u))

    @property
    def variable(self) -> str | None:
        return str(self.uop.arg.name) if self.uop.op is Ops.VARIABLE else None

    def evaluate(self, values: Mapping[str, int]) -> int:
        known: dict[UOp, int] = {}
        for u in self.order:
            if u.op is Ops.CONST:
                known[u] = u.arg
            elif u.op is Ops.VARIABLE:
                known[u] = values[u.arg.name]
            elif u.op is Ops.WHERE:
                known[u] = known[u.src[1] if known[u.src[0]] else u.src[2]]
            else:
                assert u.op.fold is not None
                known[u] = int(u.op.fold(*[known[s] for s in u.src]))
        return known[self.uop]


def _dim(d: Any) -> Dim:
    if isinstance(d, int):
        return d
    return DimValue(d) if d.op is not Ops.CONST else int(d.arg)


@dataclass(frozen=True)
class Value:
    """An input or output of a program."""

    name: str
    shape: tuple[Any, ...]
    dtype: Any


@dataclass
class Kernel:
    """One compiled kernel: text of it at the last stages, the Opts that shaped it, its origin."""

    name: str
    uops: UOp
    source: str
    opts: tuple[Opt, ...]
    origin: str
    _assembly: str = field(default="", repr=False)

    @property
    def asm(self) -> str:
        """The machine code, as assembly text."""
        if not self._assembly:
            self._assembly = jit.assembly(self.source)
        return self._assembly


class Program(ProgramBase):
    """A compiled graph. Call it with arrays by position or name; `out=` gives the results' memory.

    Thread-safe; a pickle holds the graph and compiles again when it is loaded.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    kernels: list[Kernel]
    stats: dict[str, Any]
    _request: Request
    _lowered: Lowered

    @property
    def stages(self) -> dict[str, str]:
        """The text of every stage, by its name."""
        from uopc import dump

        return dump.stage_texts(self._lowered, self.kernels)

    def __repr__(self) -> str:
        inputs = ", ".join(
            f"{v.name}: {v.dtype.short}{analysis.show(v.shape)}" for v in self.inputs
        )
        return f"<uopc.Program ({inputs}), {len(self.kernels)} kernels>"

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _compile_again, (self._request,)


def _compile_again(request: Request) -> Program:
    from uopc import driver
    from uopc.lowering import lower

    with node.arena():
        start = time.perf_counter()
        return build_program(request, lower(request.graph, driver.make_context(request)), start)


def _root(u: UOp) -> UOp:
    while u.op in (Ops.AFTER, Ops.SLICE):
        u = u.src[0]
    return u


class _Planner:
    """Numbers the storage of a program and writes down its launches."""

    def __init__(self, request: Request, lowered: Lowered) -> None:
        self.request, self.lowered = request, lowered
        self.params = {p: i for i, p in enumerate(request.params)}
        self.fresh: dict[UOp, int] = {}
        self.results: list[Result] = []
        self.written = {
            _root(args[p.arg.slot])
            for kernel, args in lowered.calls
            for p in kernel_params.written_params(kernel)
            if p.op is Ops.PARAM
        }
        if request.structure == "kernel":
            self.written = self._written_params()
        self._results()
        self.arena_base = len(self.params) + len(self.fresh)
        self.constants: dict[UOp, int] = {}
        self.offsets: dict[UOp, int] = {}
        self.scratch: dict[int, int] = {}  # of launches whose kernels need some: where in the arena
        self.arena_bytes = self._place()

    def _written_params(self) -> set[UOp]:
        stores = [u for u in analysis.toposort(self.request.graph) if u.op is Ops.STORE]
        targets = set()
        for s in stores:
            u = s.src[0]
            while u.op in (Ops.INDEX, Ops.AFTER):
                u = u.src[0]
            targets.add(u)
        return targets

    def _results(self) -> None:
        asked = [v for v in self.request.graph.src if v.dtype.kind != "void"]
        stored = [_root(v) for v in self.lowered.outputs if v.dtype.kind != "void"]
        for v, root in zip(asked, stored):
            shape: Shape = tuple([_dim(d) for d in analysis.shape(v)])
            source = self.params[root] if root.op is Ops.PARAM else None
            if source is None:
                self.fresh.setdefault(root, len(self.params) + len(self.fresh))
            self.results.append(Result(v.dtype.numpy, shape, source))

    def _place(self) -> int:
        """Offsets of intermediates in the arena, by when they are written and last read."""
        spans: dict[UOp, list[int]] = {}
        for i, (_, args) in enumerate(self.lowered.calls):
            for a in args:
                root = _root(a)
                if root.op is Ops.BUFFER and root not in self.fresh:
                    spans.setdefault(root, [i, i])[1] = i
        blocks = [memory_plan.Lifetime(_nbytes(u), a, b) for u, (a, b) in spans.items()]
        kernels = [kernel for kernel, _ in self.lowered.calls]
        needed = {i: scratch.offsets(k)[1] * _chunks(k) for i, k in enumerate(kernels)}
        own = {i: nbytes for i, nbytes in needed.items() if nbytes}
        blocks += [memory_plan.Lifetime(nbytes, i, i) for i, nbytes in own.items()]
        offsets, total = memory_plan.plan(blocks)
        self.offsets = dict(zip(spans, offsets))
        self.scratch = dict(zip(own, offsets[len(spans) :]))
        return total

    def word(self, u: UOp) -> Word:
        if u.op is Ops.VARIABLE:
            return Scalar(DimValue(u))
        if u.op is Ops.CONST:
            return Scalar(_bits(u))
        offset = u.arg[0] * u.dtype.itemsize if u.op is Ops.SLICE else 0
        root = _root(u)
        if root in self.params:
            return Pointer(self.params[root], offset)
        if root in self.fresh:
            return Pointer(self.fresh[root], offset)
        if root.op is Ops.DATA:
            number = self.constants.setdefault(root, self.arena_base + 1 + len(self.constants))
            return Pointer(number, offset)
        return Pointer(self.arena_base, self.offsets[root] + offset)

    def launches(self) -> tuple[Launch, ...]:
        made = []
        for i, (kernel, args) in enumerate(self.lowered.calls):
            chunks = _chunks(kernel)
            words = tuple([self.word(a) for a in args])
            if i in self.scratch:
                known = words[: scratch.word(kernel)]
                words = (*known, Pointer(self.arena_base, self.scratch[i]))
            made.append(Launch(kernel.arg.name, words, chunks, chunks > 1))
        return tuple(made)

    def plan(self) -> Plan:
        launches = self.launches()
        request = self.request
        arguments = tuple(
            Argument(
                p.arg.name, p.dtype.numpy, tuple([_dim(d) for d in analysis.shape(p)]),
                p in self.written,
            )
            for p in self.params
        )  # fmt: skip
        variables = {
            v: None for u in (request.graph, *request.params) for v in analysis.variables(u)
        }
        structure: Any = "tuple" if request.structure == "kernel" else request.structure
        return Plan(
            arguments,
            tuple(self.results),
            launches,
            tuple([Variable(v.arg.name, v.arg.low, v.arg.high) for v in variables]),
            structure,
            request.keys,
            self.arena_bytes,
            tuple([np.ascontiguousarray(u.arg.array) for u in self.constants]),
            sum(_work(k) for k in self.lowered.kernels) >= GIL_WORK,
            request.threads,
            request.name or "program",
        )


def _bits(number: UOp) -> int:
    """The bits of a constant in the low bits of a word."""
    value = np.zeros(8, np.uint8)
    bits = np.asarray(number.arg, number.dtype.numpy).reshape(1).view(np.uint8)
    value[: len(bits)] = bits
    return int(value.view(np.int64)[0])


def _nbytes(u: UOp) -> int:
    total = u.dtype.itemsize
    for d in analysis.shape(u):
        total *= analysis.max_dim(d)
    return total


def _chunks(kernel: UOp) -> int:
    found = [u for u in kernel.src if u.op is Ops.RANGE and u.arg.kind == "thread"]
    return int(found[0].src[0].arg) if found else 1


def _work(kernel: UOp) -> float:
    """About how many operations a run of a linear kernel takes: its ops by loop."""
    total, times, stack = 0.0, 1.0, []
    for u in kernel.src:
        if u.op is Ops.RANGE:
            stack.append(times)
            times *= max(1, analysis.bounds(u.src[0])[1])
        elif u.op is Ops.END:
            times = stack.pop()
        else:
            total += times
    return total


def _origin(nodes: list[UOp]) -> str:
    """The user's source lines in a kernel, given the nodes that have one."""
    return ", ".join({f"{u.origin[0].co_filename}:{u.origin[1]}": None for u in nodes})


def build_program(request: Request, lowered: Lowered, start: float) -> Program:
    """Machine code for the kernels, and the callable around them."""
    lower_done = time.perf_counter()
    rendered = [llvm.render(k.arg.name, k) for k in lowered.kernels]
    text = llvm.module(rendered)
    render_done = time.perf_counter()
    target = (request.options.target_cpu or None,)
    code = jit.compile_object(text, *target)
    compile_done = time.perf_counter()
    names = [k.arg.name for k in lowered.kernels]
    loaded = image.load(code, tuple(names))
    program = make_callable(
        _Planner(request, lowered).plan(), loaded, Program, request.options.plain_call
    )
    program._request, program._lowered = request, lowered
    program.kernels = [
        Kernel(k.arg.name, k, llvm.module([r]), k.arg.opts or (), _origin(lowered.origins[k]))
        for k, r in zip(lowered.kernels, rendered)
    ]
    program.inputs = tuple([Value(p.arg.name, analysis.shape(p), p.dtype) for p in request.params])
    program.outputs = _outputs(request)
    program.stats = {
        "passes": {f"{r.name}": r.seconds for r in lowered.runs},
        "render": render_done - lower_done,
        "llvm": compile_done - render_done,
        "total": time.perf_counter() - start,
        "nodes": len(analysis.toposort(request.graph)),
        "launches": len(lowered.calls),
    }
    return program


def _outputs(request: Request) -> tuple[Value, ...]:
    if request.structure == "kernel":
        return ()
    values = [v for v in request.graph.src if v.dtype.kind != "void"]
    keys = request.keys or range(len(values))
    return tuple([Value(str(k), analysis.shape(v), v.dtype) for k, v in zip(keys, values)])
