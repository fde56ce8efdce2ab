"""Program: the callable that `compile` returns, and the one place that makes programs."""

from __future__ import annotations

import contextlib
import inspect
import keyword
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from uopc import config
from uopc.backends.cpu.callables import ProgramBase
from uopc.backends.plan import Exchange, Plan
from uopc.cache import statistics
from uopc.cache.disk import DiskCache
from uopc.errors import Unsupported, UserTypeError
from uopc.ir.builder import file_parts, pytrees, tree_code
from uopc.ir.builder.pytrees import Structure
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.arena import arena
from uopc.ir.core.ops import Ops
from uopc.ir.core.serialize import Fingerprint, fingerprint
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.ir.records import dataclass
from uopc.program import constants
from uopc.program.artifact import Artifact
from uopc.program.backend import Backend, backend_of, machine_of
from uopc.program.cached import reuse
from uopc.program.cached.kernel_cache import KernelCache
from uopc.program.make_artifact import make_artifact
from uopc.program.request import Request
from uopc.program.source import ProgramSource
from uopc.program.tuned import schedules
from uopc.target import Target

if TYPE_CHECKING:  # a program from a cache needs no pass, and that of one device no mesh
    from uopc.backends.exchange.cost import Machine
    from uopc.passes.pass_manager import Lowered, Verify
    from uopc.program.launches import Kernel, Launches
    from uopc.program.speed.predict import Prediction


@dataclass(frozen=True)
class ArraySpec:
    """An input or output of a program.

    `shape` holds ints, and UOps for symbolic sizes.

    Examples:
        >>> spec = uopc.compile(uopc.param("x", (3,)) * 2).inputs[0]
        >>> spec.name, spec.shape, spec.dtype
        ('x', (3,), dtypes.float32)
    """

    name: str
    shape: tuple[Any, ...]
    dtype: Any

    def __repr__(self) -> str:
        return f"ArraySpec(name={self.name!r}, shape={shapes.show(self.shape)}, dtype={self.dtype})"


def _spec(name: str, u: UOp, is_complex: bool) -> ArraySpec:
    """The spec of a value; pairs that are complex numbers count as one element."""
    dims = shapes.shape(u)
    if is_complex:
        return ArraySpec(name, dims[:-1], dtypes.complex_of(u.dtype))
    return ArraySpec(name, dims, u.dtype)


_MOST_SHOWN = 64  # kernels of a program whose loop nests a notebook shows
# Parameters of a signature: by position alone, by position or name, by name alone.
_POSITION = partial(inspect.Parameter, kind=inspect.Parameter.POSITIONAL_ONLY)
_EITHER = partial(inspect.Parameter, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAME = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)


def _is_parameter(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _like(name: str, taken: set[str]) -> str:
    """The name, or a similar identifier that is not taken; add it to `taken`."""
    if name.isidentifier():
        return name
    stem = re.sub(r"\W", "_", name)
    stem = stem if stem.isidentifier() else f"_{stem}"
    made, k = stem, 1
    while made in taken:
        made, k = f"{stem}_{k}", k + 1
    taken.add(made)
    return made


def _signature(plan: Plan) -> inspect.Signature:
    """The parameters of a call: arrays by position or name; variables, and `out` if there are
    results, by name.

    A variable that a shape gives, or that the graph bound, need not be passed. If a name cannot be
    a parameter's, its array and all before come by position.
    """
    shaped = [d for a in plan.arguments for d in a.shape if not isinstance(d, int)]
    known = {d.variable: None for d in shaped} | {
        v.name: v.default for v in plan.variables if v.default is not None
    }
    arrays, names = [a.name for a in plan.arguments], [v.name for v in plan.variables]
    first = 1 + max([i for i, n in enumerate(arrays) if not _is_parameter(n)], default=-1)
    taken = set(arrays + names)
    made = [_POSITION(_like(n, taken)) for n in arrays[:first]]
    made += [_EITHER(n) for n in arrays[first:]]
    made += [
        _NAME(n, default=known.get(n, inspect.Parameter.empty))
        for n in names if _is_parameter(n)
    ]  # fmt: skip
    if plan.results:
        made.append(_NAME("out", default=None))
    if not all(map(_is_parameter, names)):
        made.append(inspect.Parameter("variables", inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(made)


class Program(ProgramBase):
    """A compiled graph. Call it with arrays by position or name; `out=` gives the results' memory.

    Programs are thread-safe. A pickle holds the graph, which is compiled again on loading. `stats`:
    seconds by pass, of rendering, of LLVM and in total; nodes and launches; `arena`, the bytes of
    intermediate values (a UOp if sizes are symbolic); `cache`, where the code came from (`memory`,
    `disk`, or an empty text for a compile), and how many graphs were `scheduled` and kernels
    `compiled` for it, and how many bodies of precompiled functions were scheduled (`functions`).

    Examples:
        >>> x = uopc.param("x", (3,), dtypes.float64)
        >>> program = uopc.compile(x * 2)
        >>> program(np.array([1.0, 2.0, 3.0]))
        array([2., 4., 6.])
        >>> memory = np.zeros(3)
        >>> program(np.ones(3), out=memory) is memory
        True
    """

    stats: dict[str, Any]
    _kernel: type[Kernel] | None = None  # the class of `kernels`; None: Kernel
    _artifact: Artifact
    _backend: Backend
    _find_source: Callable[[], ProgramSource]

    @cached_property
    def _source(self) -> ProgramSource:
        """The requests of the program. If it was found without its graph, the graph is made now."""
        return self._find_source()

    @cached_property
    def inputs(self) -> tuple[ArraySpec, ...]:
        """The arrays to pass, in order.

        Examples:
            >>> program = uopc.compile(uopc.param("x", (3,)) * 2)
            >>> [(v.name, v.shape, v.dtype) for v in program.inputs]
            [('x', (3,), dtypes.float32)]
        """
        request = self._source.request
        named = [(p.arg.name, p) for p in request.params]
        return tuple([_spec(name, p, name in request.complex_params) for name, p in named])

    @cached_property
    def outputs(self) -> tuple[ArraySpec, ...]:
        """The arrays that a call returns, in order; none for a kernel written by hand.

        Examples:
            >>> x = uopc.param("x", (3,))
            >>> [v.name for v in uopc.compile({"sum": x.sum(), "twice": x * 2}).outputs]
            ['sum', 'twice']
        """
        request = self._source.request
        if request.structure == "kernel":
            return ()
        values = request.facts.results
        keyed = enumerate(zip(request.keys or range(len(values)), values))
        return tuple([_spec(str(k), v, i in request.complex_results) for i, (k, v) in keyed])

    @property
    def __signature__(self) -> inspect.Signature:
        return _signature(self._runner.plan)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges between the devices of a mesh, in order: kind, mesh axes, the least bytes
        that a device sends, the reason, and the user's line.

        Examples:
            >>> x, mesh = uopc.param("x", (8, 2)), uopc.make_mesh((4,), ("data",))
            >>> cut = uopc.Sharding(mesh, in_shardings=uopc.P("data"))
            >>> program = uopc.compile(x.sum(), sharding=cut)
            >>> [(e.kernel, e.axes, e.bytes, e.reason) for e in program.exchanges]
            [('allreduce', ('data',), 6, 'output')]
        """
        return self._runner.plan.exchanges

    def predict(self, machine: Machine, **variables: int) -> Prediction:
        """The seconds that a call takes on a `uopc.distributed.Machine`: for each launch the longer
        of its operations and its memory traffic, for each exchange its latency and its bytes.

        Variables have their largest value, unless a value is given. Between waits, the devices of
        this process take the longest time of a device, or the sum of all if threads are fewer than
        devices; each wait takes the link's latency. UserTypeError for no Machine, UserError for a
        value out of bounds.

        Examples:
            >>> from uopc.distributed import Link, Machine
            >>> machine = Machine(operations=1e9, bandwidth=1e9, link=Link(1e-6, 1e9))
            >>> n = uopc.variable("n", 1, 4096)
            >>> program = uopc.compile(uopc.param("x", (n,)) * 2)
            >>> [f"{program.predict(machine, n=size).seconds:.1e}" for size in (1000, 4000)]
            ['8.1e-06', '3.2e-05']
        """
        from uopc.program.speed.predict import predict

        return predict(self._source.lowered, self._runner.plan, machine, variables)

    @cached_property
    def kernels(self) -> list[Kernel]:
        """The distinct kernels, in order of first use.

        Examples:
            >>> x = uopc.param("x", (64,))
            >>> len(uopc.compile(x.sin().contiguous() + 1).kernels)
            2
        """
        from uopc.program.launches import Kernel

        known, kind = self._artifact.assembly(), self._kernel or Kernel
        return [
            kind(name, source, self._source, known.get(name, ""), lambda: self.launches)
            for name, source in zip(self._artifact.names, self._artifact.sources())
        ]

    @cached_property
    def launches(self) -> Launches:
        """The launches in order: each with its kernel, buffers, variables, grid or chunks.

        `print(program.launches)` shows the launches; `launch.run(*arrays)` runs a single launch.
        Unsupported for a program for several devices, which has `exchanges`.

        Examples:
            >>> program = uopc.compile(uopc.param("x", (3,)) * 2)
            >>> [str(buffer) for buffer in program.launches[0].buffers]
            ['out', 'x']
        """
        from uopc.program.launches import listed

        backend, request, found = self._backend, self._source.request, self._artifact
        if self._runner.plan.mesh is not None:
            raise Unsupported(
                "launches: a program for several devices is not supported: see `exchanges`"
            )

        def runner(plan: Plan) -> Any:
            return backend.runner(request, found, plan)

        return listed(self._source, self._runner.plan, self.kernels, runner)

    @property
    def stages(self) -> dict[str, str]:
        """The text of every stage, by its name.

        Examples:
            >>> program = uopc.compile(uopc.param("x", (3,)) * 2)
            >>> list(program.stages)[0], "linearize" in program.stages
            ('input', True)
        """
        from uopc.dump import stages as dump

        texts = dump.Dump(self._source.lowered).texts()
        return texts | {dump.LLVM: "\n".join([k.source for k in self.kernels])}

    def bind(self, /, *arrays: Any, **values: Any) -> BoundProgram:
        """The program with these arguments and variables fixed. A call takes only the other
        arguments, and does not check or compute anything about the fixed ones again.

        Arrays are copied, unless they own their memory and are read-only, so later changes have no
        effect. On MPI, all ranks must call `bind`. UserError for an argument that the program
        writes or that does not fit, for an unknown name, and for an argument without a name. On a
        mesh arrays are cut once. UserTypeError for arguments by position; Unsupported for a GPU.

        Examples:
            >>> x, w = uopc.param("x", (2,)), uopc.param("w", (2,))
            >>> weighted = uopc.compile(x * w).bind(w=np.array([2.0, 3.0], "f4"))
            >>> weighted(np.ones(2, "f4"))
            array([2., 3.], dtype=float32)
        """
        if arrays:
            raise UserTypeError(
                f"bind: expected arguments and variables by name, got {len(arrays)} by position"
            )
        made: BoundProgram = self._backend.bind(self, values)
        return made

    def report(self, file: str | os.PathLike[str], run: bool = False) -> None:
        """Write one page of HTML with everything about this program: its kernels beside the source
        lines, stages, decisions, rewrites, memory. `run` times each launch on random arrays.

        UserError if the file cannot be written.

        Examples:
            >>> import os, tempfile
            >>> program = uopc.compile(uopc.param("x", (3,)) * 2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     program.report(f"{folder}/program.html")
            ...     os.listdir(folder)
            ['program.html']
        """
        page = import_module("uopc.program.reports.page")  # it draws a Program, so it imports this
        page.write_file(self, Path(file), run)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{v.name}: {v.dtype.short}{shapes.show(v.shape)}" for v in self.inputs)
        count = len(self.kernels)
        return f"<uopc.Program ({inputs}), {count} kernel{'s' * (count != 1)}>"

    def _repr_html_(self) -> str:
        """For notebooks: the loop nests of the kernels; a graph from a cache is lowered again for
        them. A program of many kernels shows only its name."""
        if len(self.kernels) > _MOST_SHOWN:
            import html

            return html.escape(f"{self!r}: see program.report(file)")
        from uopc.dump.report.notebook import nests_html

        stages, cpu = self._source, self._source.request.options.target_cpu
        return nests_html(repr(self), self._backend.dump(stages.lowered, cpu))

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return make_program, (self._source.given,)


class BoundProgram(ProgramBase):
    """A program with some arguments and variables fixed. A call does not take these.

    `program`: the program with all arguments; `values`: the fixed values, by name. Bound programs
    are thread-safe and can be pickled.

    Examples:
        >>> x, k = uopc.param("x", (2,)), uopc.variable("k", 0, 9)
        >>> bound = uopc.compile(x * k.cast("f4")).bind(k=3)
        >>> bound(np.ones(2, "f4")), bound.values
        (array([3., 3.], dtype=float32), {'k': 3})
    """

    program: Program
    values: dict[str, Any]

    @property
    def __signature__(self) -> inspect.Signature:
        return _signature(self._runner.plan)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _bound_again, (self.program, self.values)

    def __repr__(self) -> str:
        return f"<{self.program!r} with {', '.join(self.values) or 'nothing'} bound>"


class _Nesting:
    """Calls that return a program's results in nested containers; `out=` takes such containers."""

    __slots__ = ()
    _flat: ProgramBase  # gives a tuple
    _structure: Structure
    _put: Callable[[Any], Any]

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        if named.get("out") is not None:
            named["out"] = pytrees.given_outs(named["out"], self._structure)
        return self._put(self._flat(*arrays, **named))


class NestedProgram(_Nesting, Program):
    """A program that returns its results in nested containers.

    `outputs` names each result by its path.

    Examples:
        >>> x = uopc.param("x", (2,))
        >>> program = uopc.compile({"sum": x.sum(), "more": [x * 2, None]})
        >>> program(np.array([1, 2], "f4"))
        {'sum': array(3., dtype=float32), 'more': [array([2., 4.], dtype=float32), None]}
        >>> [v.name for v in program.outputs]
        ['sum', 'more.0']
    """

    def bind(self, /, *arrays: Any, **values: Any) -> BoundProgram:
        flat: Any = self._flat
        made = _as_nested(flat.bind(*arrays, **values), _NestedBound, self._structure)
        made.program = self
        return made


class _NestedBound(_Nesting, BoundProgram):
    """A bound program that returns its results in nested containers."""


_AnyNested = TypeVar("_AnyNested", NestedProgram, _NestedBound)


def nested(program: Program, structure: Structure) -> Program:
    """The program, with its tuple of results put into these containers."""
    return _as_nested(program, NestedProgram, structure)


def _as_nested(flat: ProgramBase, kind: type[_AnyNested], structure: Structure) -> _AnyNested:
    made = object.__new__(kind)
    vars(made).update(vars(flat))
    made._runner, made._flat, made._structure = flat._runner, flat, structure
    made._put = tree_code.writer(structure)
    return made


def _bound_again(program: Program, values: Mapping[str, Any]) -> BoundProgram:
    """Bind the program of a pickle again."""
    return program.bind(**values)


def _in_turn(request: Request, cached: bool) -> contextlib.AbstractContextManager[None]:
    """Among the ranks of a machine, the first compiles, and the others load the stored result."""
    if request.mesh is None:
        return contextlib.nullcontext()
    from uopc.backends.exchange import mesh_runner

    job = mesh_runner.ranks
    return contextlib.nullcontext() if job is None else job.in_turn(cached)


@dataclass
class Obtained:
    """The artifact of a request, from a cache or new. A Program is made from it and a plan.

    `where`: the cache that had the artifact. `start`: the time at which the compile began. `fresh`:
    the lowered graph, if it was lowered.
    """

    request: Request
    backend: Backend
    artifact: Artifact
    where: str
    start: float
    fresh: Lowered | None = None

    def program(self, plan: Plan, source: Callable[[], ProgramSource]) -> Program:
        """The program that runs a plan; `source` is called when the graph is needed."""
        found, fresh = self.artifact, self.fresh
        program: Program = self.backend.load(self.request, found, plan)
        program._artifact, program._backend, program._find_source = found, self.backend, source
        program.stats = {
            "passes": {r.name: r.seconds for r in fresh.runs} if fresh else {},
            **({"render": 0.0, "llvm": 0.0} | (found.seconds if fresh else {})),
            "total": time.perf_counter() - self.start,
            "nodes": found.nodes,
            "launches": len(found.plan.launches),
            "arena": plan.shown(plan.arena_bytes),
            "cache": self.where,
            "scheduled": int(fresh is not None),
            "functions": fresh.context.notes.get("functions", 0) if fresh else 0,
            "compiled": len(fresh.kernels) if fresh else 0,
        }
        return program


# The plan of a program that does without its graph, and what finds that; None where it cannot.
Detach = Callable[
    [Request, Artifact, Fingerprint], "tuple[Plan, Callable[[], ProgramSource]] | None"
]


def make_program(
    request: Request, verify: Verify | None = None, detach: Detach | None = None
) -> Program:
    """The program for a request, from a cache or compiled; loading a pickled Program calls this,
    too. `detach` is asked for a plan with which the program needs no graph."""
    if request.structure != "kernel" and request.facts.of(Ops.DATA):
        request = replace(request, graph=file_parts.viewed(request.graph))
    with schedules.session(request.options.beam):
        machine = machine_of(request)
        whole = with_constants_computed(request, machine, verify)
        source = ProgramSource(request, whole, backend_of(request.device), machine)
        printed = fingerprint(whole.graph)
        found = _obtain(source, printed, verify)
    detached = None if detach is None else detach(whole, found.artifact, printed)
    if detached is None:
        detached = found.artifact.plan_for(whole, printed.arrays), lambda: source
    program = found.program(*detached)
    return program if request.nesting is None else nested(program, request.nesting)


def with_constants_computed(
    request: Request, machine: Target, verify: Verify | None = None
) -> Request:
    """The request to compile for one machine only, with arrays in place of values that depend on
    constants alone."""
    request, values = constants.worth_computing(request, machine)
    new = constants.request_for(request, values)
    if new is not None:
        constants.keep(new, make_program(new, verify)())
    return constants.replaced(request, values)


def _obtain(source: ProgramSource, printed: Fingerprint, verify: Verify | None) -> Obtained:
    """The artifact of a request. If `verify`, options.viz or match_stats needs every stage, no
    cache is used."""
    start = time.perf_counter()
    request, backend, options = source.request, source.backend, source.request.options
    disk = DiskCache.of(options)
    alone = verify or options.match_stats or config.page_folder(options)  # what no cache has
    wanted = bool(alone or options.debug)
    fresh: list[Lowered] = []

    def make(verify: Verify | None = None, anew: bool = False) -> Artifact:
        with arena():
            known = KernelCache(request, source.machine, disk, backend.artifact, anew)
            made, lowered = make_artifact(
                request, known, printed, backend.compiler, verify,
                schedules.of_compile(request, source.machine), wanted,
            )  # fmt: skip
        fresh.append(lowered)
        statistics.count(scheduled=1, compiled=len(lowered.kernels))
        return made

    if alone:
        found, where = make(verify, anew=True), ""
    else:
        with _in_turn(request, disk is not None):
            found, where = reuse.obtain(
                request, source.machine, printed, backend.artifact, make, disk,
                lambda found: schedules.holds(request, source.machine, found.schedules),
            )  # fmt: skip
    source.searched = schedules.replay_schedules(request, source.machine, found.schedules)
    if fresh and wanted and len(fresh[0].kernels) == len(found.names):  # no kernel was skipped
        source.lowered = fresh[0]
    return Obtained(request, backend, found, where, start, fresh[0] if fresh else None)
