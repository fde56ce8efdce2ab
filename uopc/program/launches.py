"""The kernels of a program and its launches with their storage, in order, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from uopc.backends.cpu.arguments import out_labels
from uopc.backends.plan import Plan, Pointer
from uopc.backends.plan import PlannedLaunch as Planned
from uopc.errors import UserTypeError
from uopc.ir.core import shapes, storage
from uopc.ir.core.args import Opt
from uopc.ir.core.data import blocks
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.ir.records import dataclass
from uopc.ir.text.columns import columns
from uopc.program import by_hand
from uopc.program.source import ProgramSource
from uopc.program.speed.work import Work, measure

if TYPE_CHECKING:  # a program from a cache needs no pass
    pass

Kind = Literal["input", "output", "constant", "arena"]


@dataclass(frozen=True)
class Timing:
    """The seconds of each sample: one run, or the mean of several runs if a run is short.

    Examples:
        >>> program = uopc.compile(uopc.param("x", (3,)) * 2)
        >>> timing = program.launches[0].time(np.zeros(3, "f4"), np.ones(3, "f4"), samples=5)
        >>> len(timing.runs)
        5
    """

    runs: tuple[float, ...]

    @property
    def best(self) -> float:
        """The least of the samples, in seconds.

        Examples:
            >>> from uopc.program.launches import Timing
            >>> Timing((2e-6, 1e-6, 4e-6)).best
            1e-06
        """
        return min(self.runs)

    @property
    def median(self) -> float:
        """The median of the samples, in seconds.

        Examples:
            >>> from uopc.program.launches import Timing
            >>> Timing((2e-6, 1e-6, 4e-6)).median
            2e-06
        """
        import statistics  # programs are compiled without it

        return statistics.median(self.runs)

    def __repr__(self) -> str:
        best, median = f"{self.best * 1e6:.3f}", f"{self.median * 1e6:.3f}"
        return f"<Timing of {len(self.runs)} samples: best {best} us, median {median} us>"


@dataclass
class Kernel:
    """One compiled kernel: its name and LLVM IR, its UOps, the Opts that shaped it, its origin.

    Call a kernel with your own arrays: `kernel(*buffers, **variables)`, as `Launch.run` does for
    the first launch of this kernel.

    Examples:
        >>> kernel = uopc.compile(uopc.param("x", (3,)) * 2).kernels[0]
        >>> memory = np.zeros(3, "f4")
        >>> kernel(memory, np.array([1, 2, 3], "f4"))
        >>> memory
        array([2., 4., 6.], dtype=float32)
    """

    name: str
    source: str = field(repr=False)
    _source: ProgramSource = field(repr=False)
    _assembly: str = field(default="", repr=False)
    _listed: Callable[[], Sequence[Launch]] = field(default=tuple, repr=False)

    @property
    def uops(self) -> UOp:
        """The kernel in execution order: a LINEAR.

        Examples:
            >>> kernel = uopc.compile(uopc.param("x", (3,)) * 2).kernels[0]
            >>> kernel.uops.op
            Ops.LINEAR
        """
        kernels = self._source.lowered.kernels
        return next(k for k in kernels if k.arg.name == self.name)

    @property
    def opts(self) -> tuple[Opt, ...]:
        """The Opts that shaped the kernel.

        `uopc.Opt`s, in the order in which they were applied.

        Examples:
            >>> kernel = uopc.compile(uopc.param("x", (3,)) * 2, optimize=False).kernels[0]
            >>> kernel.opts
            ()
        """
        return self.uops.arg.opts or ()

    @property
    def origin(self) -> str:
        """The user's source lines in the kernel.

        Files and lines, in the order of the code.

        Examples:
            >>> kernel = uopc.compile(uopc.param("origin", (3,)) * 1.5625).kernels[0]
            >>> kernel.origin.endswith(":1")
            True
        """
        nodes = self._source.lowered.located(self.uops)
        return ", ".join({f"{u.origin[0].co_filename}:{u.origin[1]}": None for u in nodes})

    @property
    def asm(self) -> str:
        """The machine code as assembly text; for a GPU, the PTX.

        Examples:
            >>> kernel = uopc.compile(uopc.param("x", (3,)) * 2).kernels[0]
            >>> kernel.name in kernel.asm
            True
        """
        if not self._assembly:
            stages, modules = self._source, {self.name: self.source}
            cpu = stages.request.options.target_cpu
            self._assembly = stages.backend.assemble(modules, stages.machine, cpu)[self.name]
        return self._assembly

    @cached_property
    def c(self) -> str:
        """The kernel as a C11 file with gcc and clang vectors: a function that gives the same bits.

        The function takes the arrays, the variables, the memory for tiles and the number of the
        part to run, as far as the kernel has them. Unsupported for a GPU, and for floats of 16 bits
        that the processor converts itself.

        Examples:
            >>> kernel = uopc.compile(uopc.param("x", (3,)) * 2).kernels[0]
            >>> f"void {kernel.name}(float *restrict out, const float *restrict x)" in kernel.c
            True
        """
        from uopc.dump.c_source import CSource

        return CSource(self._source.lowered).kernel(self.uops)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches of this kernel, in order.

        Examples:
            >>> kernel = uopc.compile(uopc.param("x", (3,)) * 2).kernels[0]
            >>> len(kernel.launches)
            1
        """
        return tuple([launch for launch in self._listed() if launch.kernel is self])

    def __call__(self, *buffers: Any, **variables: Any) -> None:
        """Run the kernel once on your own arrays: `Launch.run` of its first launch."""
        self.launches[0].run(*buffers, **variables)

    def time(self, *buffers: Any, samples: int = 20, **variables: Any) -> Timing:
        """Time the kernel on your own arrays: `Launch.time` of its first launch.

        Examples:
            >>> kernel = uopc.compile(uopc.param("x", (3,)) * 2).kernels[0]
            >>> timing = kernel.time(np.zeros(3, "f4"), np.ones(3, "f4"), samples=5)
            >>> timing.best <= timing.median
            True
        """
        return self.launches[0].time(*buffers, samples=samples, **variables)


@dataclass(frozen=True)
class Buffer:
    """An array that a kernel receives. A constant that the Opt PREPACK put in blocks is flat and in
    that order.

    name: the input's or output's name; else `constant0`, …, or `arena`, the memory of intermediate
    values. shape: ints, or expressions over variables. offset: bytes from the begin of that memory,
    and nbytes: an int, or an expression over variables.

    Examples:
        >>> launch = uopc.compile(uopc.param("x", (3,)) * 2).launches[0]
        >>> [(b.name, b.shape, b.writes) for b in launch.buffers]
        [('out', (3,), True), ('x', (3,), False)]
    """

    name: str
    kind: Kind
    shape: tuple[Any, ...]
    dtype: DType
    offset: Any
    nbytes: Any
    reads: bool
    writes: bool

    def __str__(self) -> str:
        if self.kind != "arena" and isinstance(self.offset, int) and not self.offset:
            return self.name
        return f"{self.name}+{shapes.show((self.offset,))[1:-1]}"


@dataclass(frozen=True, eq=False)
class Launch:
    """One call of a kernel: its place in the program, its buffers by slot, its variables.

    variables: each variable's value in the graph; None if the call gives it. numbers: the constants
    that this launch passes to a kernel that other launches share. chunks: the parts that threads of
    a CPU share. grid, block: of a GPU, x first; dimensions of the grid may be expressions over
    variables. work: operations and bytes.

    Examples:
        >>> launch = uopc.compile(uopc.param("x", (3,)) * 2).launches[0]
        >>> launch.number, len(launch.buffers), launch.variables
        (0, 2, {})
    """

    number: int
    kernel: Kernel
    buffers: tuple[Buffer, ...]
    variables: Mapping[str, int | None]
    numbers: tuple[int | float, ...]
    chunks: int
    grid: tuple[Any, ...]
    block: tuple[int, ...]
    work: Work = field(repr=False)
    _plan: Plan = field(repr=False)
    _prepare: Callable[[], Any] = field(repr=False)

    @cached_property
    def _runner(self) -> Any:
        return self._prepare()

    def run(self, *buffers: Any, **variables: Any) -> None:
        """Run this launch alone, once, on your own arrays.

        buffers: an array for each entry of `buffers`, with its shape and dtype; the kernel writes
        in place. variables: by name, the variables that no shape gives. Errors are the same as for
        calls of a program; Unsupported for a kernel whose addresses depend on values that only the
        program computes.

        Examples:
            >>> launch = uopc.compile(uopc.param("x", (3,)) * 2).launches[0]
            >>> memory = np.zeros(3, "f4")
            >>> launch.run(memory, np.array([1, 2, 3], "f4"))
            >>> memory
            array([2., 4., 6.], dtype=float32)
        """
        self._check_names(variables)
        self._runner.call(buffers, variables)

    def _check_names(self, given: Mapping[str, Any]) -> None:
        """UserTypeError for the name `out`, which is an ordinary buffer here."""
        if "out" in given:
            order = ", ".join(map(str, self.buffers))
            raise UserTypeError(f"{self.kernel.name}: pass arrays by position: {order}")

    def time(self, *buffers: Any, samples: int = 20, **variables: Any) -> Timing:
        """The seconds of one run on your own arrays. The kernel runs many times: if it writes an
        array that it also reads, the values change with each run.

        Examples:
            >>> launch = uopc.compile(uopc.param("x", (3,)) * 2).launches[0]
            >>> len(launch.time(np.zeros(3, "f4"), np.ones(3, "f4"), samples=5).runs)
            5
        """
        self._check_names(variables)
        return Timing(tuple(self._runner.time(buffers, variables, samples)[0]))

    def __str__(self) -> str:
        return str(Launches((self,)))


class Launches(tuple[Launch, ...]):
    """The launches of a program in order. `print` shows a line for each of their buffers.

    Examples:
        >>> program = uopc.compile(uopc.param("x", (3,)) * 2, name="double")
        >>> "reads" in str(program.launches), len(program.launches)
        (True, 1)
    """

    __slots__ = ()

    def __str__(self) -> str:
        rows = [("", "kernel", "", "buffer", "dtype", "shape", "bytes", "how")]
        for launch in self:
            first = (str(launch.number), launch.kernel.name)
            for b in launch.buffers:
                does = " ".join(["reads"] * b.reads + ["writes"] * b.writes)
                nbytes = shapes.show((b.nbytes,))[1:-1]
                cells = (does, str(b), b.dtype.short, shapes.show(b.shape), nbytes)
                rows.append((*first, *cells, _how(launch) if first[0] else ""))
                first = ("", "")
            if not launch.buffers:
                rows.append((*first, "", "", "", "", "", _how(launch)))
        return "\n".join(columns(rows, right=(0, 6)))

    def __repr__(self) -> str:
        return f"Launches({super().__repr__()})"


def _how(launch: Launch) -> str:
    """The variables, the constants, and the chunks or the grid of a launch."""
    given = [k if v is None else f"{k}={v}" for k, v in launch.variables.items()]
    given += [str(n) for n in launch.numbers]
    if launch.block:
        given.append(f"grid {shapes.show(launch.grid)} block {shapes.show(launch.block)}")
    elif launch.chunks > 1:
        given.append(f"{launch.chunks} chunks")
    return " ".join(given)


# ---------------------------------------------------------------- the launches of a program
def listed(
    stages: ProgramSource, plan: Plan, kernels: Sequence[Kernel], runner: Callable[[Plan], Any]
) -> Launches:
    """The launches of a plan. `runner` makes the runner of a plan that has the same code."""
    lowered = stages.lowered
    by_name = {k.name: k for k in kernels}
    names = _names(plan)
    known: dict[UOp, Work] = {}
    made = []
    calls = zip(plan.launches, lowered.calls, lowered.program.src, strict=True)
    for number, (planned, (linear, args), call) in enumerate(calls):
        split = call.src[0]
        if split not in known:
            known[split] = measure(split, lowered.located(linear))
        buffers = _buffers(plan, planned, linear, args, names)
        alone = by_hand.alone(plan, planned, linear, args, buffers)
        variables = {v.name: v.default for v in alone.variables}
        numbers = tuple([u.arg for u in args if u.op is Ops.CONST])
        made.append(Launch(
            number, by_name[planned.kernel], tuple(buffers.values()), variables, numbers,
            planned.chunks if isinstance(planned.chunks, int) else 1,
            *_grid(by_name[planned.kernel]), known[split], alone,
            _preparation(split, call, plan, alone, runner),
        ))  # fmt: skip
    return Launches(made)


def _preparation(
    split: UOp, call: UOp, plan: Plan, alone: Plan, runner: Callable[[Plan], Any]
) -> Callable[[], Any]:
    """The function that checks and prepares a launch for its first run by hand."""

    def prepare() -> Any:
        written = {a.name for a in plan.arguments if a.writable}
        by_hand.check_addresses(alone.name, split, storage.arguments(call), written)
        return runner(alone)

    return prepare


def _grid(kernel: Kernel) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """The blocks and the threads of a block, for a kernel of a GPU."""
    return getattr(kernel, "grid", ()), getattr(kernel, "block", ())


def _names(plan: Plan) -> list[tuple[Kind, str]]:
    """The kind and the name of each base of a plan."""
    inputs: list[tuple[Kind, str]] = [("input", a.name) for a in plan.arguments]
    labels = zip(out_labels(plan), plan.results)
    outputs: list[tuple[Kind, str]] = [("output", n) for n, r in labels if r.source is None]
    constants: list[tuple[Kind, str]] = [
        ("constant", f"constant{i}") for i in range(len(plan.constants))
    ]
    return [*inputs, *outputs, ("arena", "arena"), *constants]


def _buffers(
    plan: Plan, planned: Planned, linear: UOp, args: Sequence[UOp],
    names: Sequence[tuple[Kind, str]],
) -> dict[int, Buffer]:  # fmt: skip
    """The buffers of a launch by slot."""
    reads, writes = set(storage.read_slots(linear)), set(storage.written_slots(linear))
    slots = {int(u.arg.slot): u for u in linear.src if u.op is Ops.PARAM}
    found = {}
    for slot in sorted(slots):
        word, arg = planned.words[slot], args[slot]
        assert isinstance(word, Pointer)
        (kind, name), offset = names[word.base], plan.shown(word.offset)
        order = slots[slot].arg.order
        shape = (blocks.size(order),) if order else shapes.shape(arg)
        nbytes = shapes.size(shape) * arg.dtype.itemsize
        does = slot in reads, slot in writes
        found[slot] = Buffer(name, kind, shape, arg.dtype, offset, nbytes, *does)
    return found
