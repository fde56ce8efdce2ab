"""The typed constant part of nodes: one frozen dataclass for each op whose arg has structure."""

from __future__ import annotations

from dataclasses import field
from types import SimpleNamespace
from typing import Any, Final, Literal, get_args

import numpy.typing as npt

from uopc.ir.records import dataclass

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

    `order`: None unless all launches of a kernel give a constant array. Then the order in which the
    kernel reads the elements: (), as they are, or in blocks, see `ir/core/data/blocks.py`.
    """

    name: str
    dims: Dims
    slot: int = -1
    device: str = ""
    space: Space = "global"
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class BufferArg:
    """Storage of `size` elements made by the program; `slot` tells buffers apart. `stages`: the
    number of iterations that a pipelined loop holds at once. `swizzle`: the row length, if shared
    memory permutes the pieces of each row."""

    slot: int
    dims: Dims
    device: str = ""
    space: Space = "global"
    stages: int = 1
    swizzle: int = 0


@dataclass(frozen=True, slots=True, weakref_slot=True)
class DataArg:
    """Storage of a constant array, identified by its content hash or by its place in a file."""

    key: str
    dims: tuple[int, ...]
    array: npt.NDArray[Any] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class VariableArg:
    """A named integer with inclusive bounds. `computed`: the program finds its value."""

    name: str
    low: int
    high: int
    computed: bool = False


@dataclass(frozen=True, slots=True)
class NumberArg:
    """The slot, among the slots of PARAMs, of a number that a kernel's caller passes."""

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

    `op`: the combining op. `shift`, or `mirror` (device i and parts - 1 - i): sender and receiver,
    with `wrap` around the end of the group. `root`: the device that sends to all. `reason`: a text
    for people.
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

    A former name becomes the present name, so equal Opts print and compare alike.

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
    """A stored value: the reason, True if the cost model may drop the storage, its memory space,
    the Opts of its kernel, and True if each part of a STACK or CAT has separate loops."""

    reason: str
    removable: bool = True
    device: str = ""
    space: Space = "global"
    opts: tuple[Opt, ...] | None = None
    by_part: bool = False


@dataclass(frozen=True, slots=True)
class KernelArg:
    """The name of a kernel, the Opts applied or asked for, the most bytes of its buffers on the
    stack (None: any number of buffers, each of up to 32 KiB), the bits of its indices (with 32, an
    index whose bounds do not fit has 64), and instructions that not all machines have.

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
    """The name of a function with rules for derivatives, and further integers that it takes."""

    name: str
    details: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionArg:
    """The name of a graph that CALLs call; `precompile`: schedule the graph separately.

    `repeats`: a CALL runs the graph n times; n is its last argument, an index. Its results are
    params after writes: each run continues with the values of the previous run. The arguments do
    not change, because such a CALL has separate storage.
    """

    name: str = ""
    precompile: bool = False
    repeats: bool = False
