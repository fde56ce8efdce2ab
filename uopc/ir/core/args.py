"""The typed constant part of nodes: one frozen dataclass for each op whose arg has structure."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, Literal, get_args

import numpy.typing as npt

AxisKind = Literal[
    "loop", "reduce", "thread", "upcast", "unroll", "lane",
    "global", "local", "group", "grouptop", "warp", "outer",
]  # fmt: skip
# The kinds by their upper-case names: `AxisType.REDUCE` is "reduce".
AxisType: Final = SimpleNamespace(**{kind.upper(): kind for kind in get_args(AxisKind)})
Space = Literal["global", "local", "reg"]
ReduceOp = Literal["add", "mul", "max", "min"]

# A shape in an arg: None stands for a dimension that is a source of the node, in order.
Dims = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class ParamArg:
    """An argument: of the program (tensor level) or, by slot, of a kernel.

    `order`: None unless all launches of a kernel give a constant array. The kernel then says in
    which order it reads its elements: as they are, (), or in blocks, see `ir/core/data/blocks.py`.
    """

    name: str
    dims: Dims
    slot: int = -1
    device: str = ""
    space: Space = "global"
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class BufferArg:
    """Storage of `size` elements made by the program; `slot` tells buffers apart. `stages`:
    the number of iterations whose data it holds at once, for a pipelined loop. `swizzle`: the
    length of its rows, if shared memory has the pieces of each row in another order."""

    slot: int
    dims: Dims
    device: str = ""
    space: Space = "global"
    stages: int = 1
    swizzle: int = 0


@dataclass(frozen=True, slots=True, weakref_slot=True)
class DataArg:
    """Storage that holds a constant array, known by its content hash, or by its place in a file."""

    key: str
    dims: tuple[int, ...]
    array: npt.NDArray[Any] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class VariableArg:
    """A named integer with inclusive bounds."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class NumberArg:
    """The slot, among those of the PARAMs, of a number that calls of the kernel give."""

    slot: int


@dataclass(frozen=True, slots=True)
class RangeArg:
    """A loop: its place in the nest (lexicographic order, outer first) and its kind."""

    axis: tuple[int, ...]
    kind: AxisKind = "loop"


@dataclass(frozen=True, slots=True)
class ReduceArg:
    """`op` is add, mul, max or min; `axes` are tensor axes, empty where ranges are sources."""

    op: ReduceOp
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardArg:
    """The layout of a value over a mesh: the mesh axes that cut each dimension."""

    spec: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class ExchangeArg:
    """An exchange among the devices that differ along mesh `axes` only, `parts` of them.

    `op` combines; `shift`, or `mirror` (device i and parts - 1 - i), says who gives to whom, with
    `wrap` around the end of the group; `root` gives to all. `reason`: why it happens, for people.
    """

    axes: tuple[str, ...] = ()
    parts: int = 0  # 0, without axes: all devices of the operand
    op: Literal[""] | ReduceOp = ""
    shift: int = 0
    mirror: bool = False
    wrap: bool = False
    root: int = 0
    reason: str = ""


# Former names of Opts. Lists that were stored with these names replay.
FORMER_OPTS = {
    "KEEP": "REUSE", "SUMS": "REDUCE_OUT", "SETTLE": "DISTRIBUTE", "BOUND": "SPLIT_AT",
    "JOIN": "COALESCE", "STREAM": "NONTEMPORAL", "CUT": "PEEL", "STAGES": "PIPELINE",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Opt:
    """One transformation of a kernel's ranges: its name, an axis, and an amount.

    A former name becomes the present one, so equal Opts print and compare alike.

    `docs/extending.md` lists the names.

    Examples:
        >>> x = uopc.param("x", (64,))
        >>> cut = (x * 2).contiguous(opts=(uopc.Opt("UPCAST", 0, 4),))
        >>> print(uopc.compile(cut).kernels[0].opts[0])
        UPCAST(0, 4)
    """

    op: str
    axis: int = 0
    arg: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "op", FORMER_OPTS.get(self.op, self.op))

    def __str__(self) -> str:
        return f"{self.op}({self.axis}, {self.arg})"


@dataclass(frozen=True, slots=True)
class StageArg:
    """A stored value: why, whether cost may drop it, where it lives, the Opts of its kernel, and
    whether each part of a STACK or CAT has loops of its own."""

    reason: str
    removable: bool = True
    device: str = ""
    space: Space = "global"
    opts: tuple[Opt, ...] | None = None
    by_part: bool = False


@dataclass(frozen=True, slots=True)
class KernelArg:
    """The name of a kernel, the Opts applied or asked for, the most bytes of its buffers on the
    stack (None: any number of buffers, each of up to 32 KiB), the bits of its indices: with 32,
    those that bounds do not let fit have 64; and instructions that not all machines have.

    Examples:
        >>> o = uopc.kernel_param(0, (2,))
        >>> o.store(1.0).sink(arg=uopc.KernelInfo("ones", opts=())).arg.name
        'ones'
    """

    name: str = ""
    opts: tuple[Opt, ...] | None = None
    stack_bytes: int | None = None
    index_bits: int = 64
    units: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PrimitiveArg:
    """The name of a function with rules for derivatives, and integers that it takes besides."""

    name: str
    details: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionArg:
    """The name of a graph that CALLs call; `precompile`: it is scheduled on its own.

    `repeats`: a CALL runs it as often as its last argument, an index, says. Its results are params
    after writes: each run goes on with the values that the run before has left. The arguments keep
    theirs, as such a CALL has storage of its own.
    """

    name: str = ""
    precompile: bool = False
    repeats: bool = False
