"""An exported function before it is written in any form: arguments, launches, kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc import config
from uopc.backends.c.names import identifier
from uopc.backends.llvm import index_width
from uopc.backends.plan import Dim, Plan, Pointer, value_of
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.exporting.casadi import Interface
from uopc.exporting.machines import TargetMachine
from uopc.exporting.places import Matrix, labels
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.serialize import fingerprint
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.passes.pass_manager import Lowered
from uopc.program.artifact import Artifact
from uopc.program.cached.kernel_cache import KernelCache
from uopc.program.compiled_kernel import Afterwards, Code
from uopc.program.make_artifact import make_artifact
from uopc.program.program import Program, with_constants_computed
from uopc.program.request import Request, prepare
from uopc.target import Target

RUN = ("run", "context")  # parameters of a function whose parts the caller runs


@dataclass(frozen=True)
class ArrayArgument:
    """An array that the caller passes. `given`: the user's name, `name`: the name in C."""

    name: str
    given: str
    dtype: DType
    shape: tuple[Dim, ...]
    is_input: bool
    written: bool


@dataclass(frozen=True)
class Size:
    """An integer that the caller passes, usually a dimension, and its bounds."""

    name: str
    given: str
    low: int
    high: int


@dataclass(frozen=True)
class ExportedLength:
    """A size that the function computes: its bounds, its place, and the number of launches after
    which it is known. `name`: the pointer through which the caller gets it, `value`: its value in
    the function."""

    name: str
    value: str
    given: str
    low: int
    high: int
    at: Pointer
    launch: int


@dataclass(frozen=True)
class ExportedKernel:
    """A kernel as a LINEAR in execution order, its name in the files, and its source lines."""

    name: str
    linear: UOp
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Exported:
    """A function to export. The bases of its plan: `arrays`, then work, then `constants`.

    results: the index in `arrays` of each result of the graph. graph: the graph's digest. levels:
    the same function for several levels of x86-64, the lowest (this object's) first.
    """

    name: str
    machine: TargetMachine
    plan: Plan
    arrays: tuple[ArrayArgument, ...]
    results: tuple[int, ...]
    sizes: tuple[Size, ...]
    lengths: tuple[ExportedLength, ...]
    kernels: Mapping[str, ExportedKernel]  # by their names in the plan
    constants: tuple[npt.NDArray[Any], ...]
    graph: str
    request: Request
    matrices: tuple[Matrix, ...] = ()  # the results that are sparse
    casadi: Interface | None = None
    in_files: frozenset[int] = frozenset()  # constants of C in separate files
    levels: tuple[Exported, ...] = ()
    is_level: bool = False  # one of `levels`

    @property
    def versions(self) -> tuple[Exported, ...]:
        """The functions whose kernels are in the file: one for each level."""
        return self.levels or (self,)

    def here(self) -> Exported:
        """The same function for this process. If it is for another machine, without instructions
        that this machine may lack."""
        machine = self.machine.here()
        if machine is self.machine:
            return self
        kernels = {
            name: replace(k, linear=k.linear.replace(arg=replace(k.linear.arg, units=())))
            for name, k in self.kernels.items()
        }
        return replace(self, machine=machine, kernels=kernels)

    def work_bytes(self, values: Mapping[str, int]) -> int:
        """The memory for intermediate values, for sizes by the user's names: the most of all
        levels."""
        return max([value_of(v.plan.arena_bytes, values) for v in self.versions])

    @property
    def threads(self) -> int:
        """The threads for which launches are split. Above 1, the caller runs the parts."""
        return self.request.threads

    @property
    def names(self) -> dict[str, str]:
        """The names of the sizes in C, by the user's names."""
        return {s.given: s.name for s in self.sizes}

    @property
    def room(self) -> dict[str, int]:
        """The greatest values of the lengths that the function computes, by the user's names."""
        return {x.given: x.high for x in self.lengths}

    def constant(self, number: int) -> str:
        """The name of a constant array."""
        return _constant_name(self.name, number)


def _constant_name(function: str, number: int) -> str:
    return f"{function}_c{number}"


def _declared(function: str, matrices: Sequence[Matrix]) -> set[str]:
    """Names that a function's header and file declare or define besides the function."""
    own = [f"{function}_{what}" for what in ("id", "work_bytes", "best")]
    macros = ("ABI", "WORK_BYTES", "WORK_ALIGNMENT")
    own += [f"{function.upper()}_{what}" for what in macros]
    return {*own, *[number for m in matrices for number in m.numbers]}


def request_for(
    graph: Any, inputs: Sequence[UOp | str] | None, optimize: bool, name: str, threads: int,
    machine: Target,
) -> Request:  # fmt: skip
    """The request to export: of a graph, of a Program, or the given request. Values of constants
    are computed for the machine. UserError for a bad number."""
    if type(threads) is not int or not 1 <= threads <= config.MOST_THREADS:
        limit = config.MOST_THREADS
        raise UserError(f"export: threads must be a number of 1 to {limit}, got {threads!r}")
    options = replace(config.current(), target_cpu="", threads=threads)
    program = getattr(graph, "program", graph)  # the program of a model from `onnx.load`
    given = program._source.given if isinstance(program, Program) else graph
    if isinstance(given, Request):
        if inputs is not None:
            raise UserTypeError(
                "export: a Program has an order of inputs already: leave inputs out"
            )
        if given.mesh is not None:
            raise Unsupported(
                "export: a program for several devices is not supported: compile without sharding="
            )
        request = replace(
            given, threads=threads, name=name, options=options, device="cpu", opts=None
        )
    else:
        request = prepare(graph, inputs, optimize, threads, name, options, None, "cpu")
    return with_constants_computed(request, machine)


def lowered_for(
    request: Request, machine: TargetMachine, name: str, matrices: tuple[Matrix, ...] = ()
) -> Exported:
    """Lower the request for a machine. The caller holds an arena."""
    kept: list[tuple[Lowered, Mapping[UOp, str]]] = []

    def keep(lowered: Lowered, symbols: Mapping[UOp, str]) -> Code:
        kept.append((lowered, symbols))
        nothing = dict.fromkeys(lowered.kernels, "")
        return Code(nothing, dict.fromkeys(lowered.kernels, b""), {})

    printed = fingerprint(request.graph)
    known = KernelCache(request, machine.target, None, Artifact, fresh=True)
    artifact, lowered = make_artifact(
        request, known, printed, lambda request: Afterwards(keep)
    )
    plan = artifact.plan_for(request, printed.arrays)
    symbols = {symbol: linear for linear, symbol in kept[0][1].items()}
    constants = [_constant_name(name, i) for i in range(len(plan.constants))]
    tables = [t.name for m in matrices for t in m.tables]
    parameters = _declared(name, matrices) | {*constants, *tables}
    if request.threads > 1:
        parameters |= {*RUN}
    arrays, results = _arrays(request, plan, parameters)
    lengths = _lengths(plan, parameters)
    sizes = _sizes(plan, arrays, parameters)
    taken = {name, *parameters}
    kernels = {}
    for own, compiled in zip(artifact.names, artifact.kernels):
        linear = symbols[compiled.symbol]
        function = identifier(f"{name}_{own}", taken, of_function=True)
        kernels[own] = ExportedKernel(function, linear, _lines(lowered, linear))
    _check_fit(machine, sizes, plan)
    if machine.target.index_bits == 32:
        for kernel in kernels.values():
            _check_indices(kernel)
    return Exported(
        name, machine, plan, tuple(arrays), results, sizes, lengths, kernels,
        plan.constants, printed.digest, request, matrices,
    )  # fmt: skip


def _check_fit(machine: TargetMachine, sizes: Sequence[Size], plan: Plan) -> None:
    """Unsupported for sizes that pointers of 32 bits cannot address."""
    most = (1 << machine.size_bits - 1) - 1
    for s in sizes:
        if not -most <= s.low <= s.high <= most:
            raise Unsupported(
                f"export: {s.given} is {s.low} to {s.high}, but {machine.name} has sizes of"
                f" {machine.size_bits} bits: give closer bounds"
            )
    nbytes = value_of(plan.arena_bytes, {s.given: s.high for s in sizes})
    if nbytes > most:
        closer = ": give sizes closer bounds" if sizes else ""
        raise Unsupported(
            f"export: the function needs {nbytes} bytes of memory, {machine.name} has less{closer}"
        )


def _check_indices(kernel: ExportedKernel) -> None:
    """Unsupported for a loop or an array that may exceed 32 bits."""
    for u in kernel.linear.src:
        length: UOp | int = 0
        if u.op is Ops.RANGE and u.arg.kind != "thread":
            length = u.src[0]
        elif u.op.is_storage:
            length = shapes.size(shapes.shape(u))
        if (most := bounds.max_dim(length)) > index_width.MOST:
            what = "a loop" if u.op is Ops.RANGE else "an array"
            raise Unsupported(
                f"{', '.join(kernel.lines)}: export: index_bits=32 counts to {index_width.MOST},"
                f" and {what} may have {most} elements: give sizes closer bounds, or index_bits=64"
            )


def _sizes(plan: Plan, arrays: Sequence[ArrayArgument], taken: set[str]) -> tuple[Size, ...]:
    """The sizes: dimensions first, in the order of the arrays."""
    shaped = [d.variable for a in arrays for d in a.shape if not isinstance(d, int)]
    known = {v.name: v for v in plan.variables}
    order = dict.fromkeys([*[n for n in shaped if n is not None], *known])
    found = [known[n] for n in order if n in known]
    return tuple([Size(identifier(v.name, taken), v.name, v.lo, v.hi) for v in found])


def _lengths(plan: Plan, taken: set[str]) -> tuple[ExportedLength, ...]:
    """The lengths that the function computes, in the order in which they are known."""
    return tuple([
        ExportedLength(
            identifier(x.name, taken), identifier(f"_length{i}", taken), x.name, x.lo, x.hi, x.at,
            x.launch,
        )
        for i, x in enumerate(plan.lengths, 1)
    ])  # fmt: skip


def _lines(lowered: Lowered, linear: UOp) -> tuple[str, ...]:
    """The user's source lines of a kernel, without folders."""
    found = [u.origin for u in lowered.located(linear) if u.origin is not None]
    return tuple(dict.fromkeys([f"{os.path.basename(c.co_filename)}:{n}" for c, n in found]))


def _arrays(
    request: Request, plan: Plan, taken: set[str]
) -> tuple[list[ArrayArgument], tuple[int, ...]]:
    """The arguments, followed by the results that need memory; and each result's index in them."""
    made = [
        ArrayArgument(identifier(a.name, taken), a.name, p.dtype, a.shape, True, a.writable)
        for a, p in zip(plan.arguments, request.params)
    ]
    results = []
    for label, r in zip(labels(request, len(plan.results)), plan.results):
        if r.source is None:
            results.append(len(made))
            dtype = dtypes.from_numpy(r.dtype)
            made.append(ArrayArgument(identifier(label, taken), label, dtype, r.shape, False, True))
        else:
            results.append(r.source)
    return made, tuple(results)


def bits(array: npt.NDArray[Any]) -> bytes:
    """The content of an array in the order of its elements, little-endian."""
    whole = np.ascontiguousarray(array)
    little = whole.dtype.newbyteorder("<") if whole.dtype.byteorder == ">" else whole.dtype
    return whole.astype(little).tobytes()
