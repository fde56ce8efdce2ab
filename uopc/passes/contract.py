"""The contract of a pass: graph to graph, with a level it accepts and one it promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from uopc.config import Options
from uopc.ir.builder import rebuild
from uopc.ir.core import shapes
from uopc.ir.core.args import KernelArg, Opt
from uopc.ir.core.calls import exchanges_of
from uopc.ir.core.levels import Level
from uopc.ir.core.shapes import Shape
from uopc.ir.core.uop import UOp
from uopc.ir.devices import overlap, traffic
from uopc.ir.devices.mesh import Axes, Mesh, Spec
from uopc.ir.devices.part_sizes import PartSizes
from uopc.ir.rewrite.matcher import PatternMatcher
from uopc.target import Target

# Who is told of each step of a compile, with the share of all that is done.
Watch = Callable[[str, float], None]
watch: ContextVar[Watch | None] = ContextVar("watch", default=None)
PASSES_SHARE = 0.6  # of a compile, for those who watch; the code of its kernels takes the rest


@dataclass(frozen=True)
class Scheduled:
    """A function's body as a program, a LINEAR of CALLs, and the storage of its outputs."""

    program: UOp
    outputs: tuple[UOp, ...]


Schedule = Callable[["UOp"], Scheduled]


@dataclass
class Sharding:
    """A mesh, and how values are laid out on it: what the user says of arguments by name and of
    results, and what the pass `partition` has found."""

    mesh: Mesh
    in_specs: Mapping[str, Any] = field(default_factory=dict)
    out_specs: tuple[Any, ...] | None = None
    explicit: bool = False  # an exchange that moves much is an error
    params: Mapping[str, Spec] = field(default_factory=dict)
    results: tuple[Spec, ...] = ()
    arguments: Mapping[str, UOp] = field(default_factory=dict)  # the whole PARAMs
    dims: tuple[Shape, ...] = ()  # of the whole results
    copied: tuple[UOp, ...] = ()  # the exchanges that became copies
    hosts: Mesh | None = None  # as for `PlanMesh`: no pass reads it
    sizes: PartSizes = field(init=False)
    sums: Mapping[UOp, UOp] = field(default_factory=dict)  # as `PartSizes.whole` gives them
    # Exchanges run beside launches, and a bucket is done from so many bytes on; 0: one at a time.
    bucket: int = 0
    is_done: bool = False  # of the body of a loop: a graph of one device
    pays: Callable[[Axes, int], bool] = lambda axes, nbytes: True  # to run beside launches

    def __post_init__(self) -> None:
        self.sizes = PartSizes(self.mesh)

    def in_sums(self, dims: Shape) -> Shape:
        """Dimensions, with these sums in the place of variables."""
        return tuple([
            d if isinstance(d, int) else rebuild.rebuild_more(d, dict(self.sums)) for d in dims
        ])  # fmt: skip

    def of_bodies(self) -> Sharding | None:
        """The context of functions that are scheduled on their own, for one device."""
        if self.mesh.devices:
            return None
        return Sharding(self.mesh, bucket=self.bucket, pays=self.pays, is_done=True)

    def beside(self, program: UOp) -> dict[int, int]:
        """The number of calls that run beside an exchange, by the number of its call."""
        if not self.bucket:
            return {}
        found = {}
        for number, end in overlap.awaited(program).items():
            every = [s.src[1] for s in exchanges_of(program.src[number].src[0])]
            if end > number + 1 and self.pays(every[0].arg.axes, traffic.moved(*every)):
                found[number] = end - number - 1
        return found

    def given(self, param: UOp) -> Spec:
        """The layout that the user gives an argument, or that of a whole one."""
        name = param.arg.name
        return self.mesh.spec(self.in_specs.get(name), shapes.shape(param), f"sharding of {name}")


@dataclass
class Context:
    """All that a pass knows besides its graph. `notes` is for the dump: no pass reads it."""

    target: Target
    optimize: bool = True
    threads: int = 1
    options: Options = field(default_factory=Options)  # those that change code: `for_code`
    opts: tuple[Opt, ...] | None = None  # apply these instead of choosing
    replayed: Iterator[KernelArg] | None = None  # name and Opts of each kernel of a saved schedule
    rules: Mapping[str, PatternMatcher] = field(default_factory=dict)  # after each pass, by name
    sharding: Sharding | None = None  # of a graph for several devices
    devices: tuple[str, ...] = ("cpu",)  # those of this process that run the program
    assuming: tuple[UOp, ...] = ()  # conditions on sizes that hold in every run
    schedule: Schedule | None = None  # of FUNCTIONs that are scheduled on their own
    # Gives kernels of a program, a LINEAR of CALLs, the Opts that a search found for them.
    searched: Callable[[UOp, Context], UOp] | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def has_dot4(self) -> bool:
        """True if products of bytes become DOT4, an instruction of the target."""
        return bool(self.target.dot4) and self.options.dot_products

    @property
    def has_dot2(self) -> bool:
        """True if products of bfloat16 become DOT2, an instruction of the target."""
        return bool(self.target.dot2) and self.options.dot_products


@dataclass(frozen=True)
class RuleContext:
    """The `ctx` of a rule that a user or a target gave: the machine, the pass that was run, and
    its result, which is rewritten: a kernel, or the graph of the whole program."""

    target: Target
    stage: str
    kernel: UOp


@dataclass(frozen=True)
class Pass:
    """`scope`: one run over the whole program's graph, or one run for each distinct kernel.

    `reassociates`: sums in another order, or rounded less often, may change the last bits."""

    name: str
    accepts: Level
    promises: Level
    run: Callable[[UOp, Context], UOp]
    scope: Literal["graph", "kernel"]
    reassociates: bool = False
