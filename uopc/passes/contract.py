"""The contract of a pass: graph to graph, with a level it accepts and one it promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import field
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from uopc.config import Options
from uopc.ir.builder.programs import Schedule
from uopc.ir.core.args import KernelArg, Opt
from uopc.ir.core.levels import Level
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.ir.records import dataclass
from uopc.ir.rewrite.matcher import PatternMatcher
from uopc.target import Target

if TYPE_CHECKING:  # programs of one device import no mesh, others without predictions no cost
    from uopc.cost.parts import Comparison, Cost
    from uopc.passes.sharding import MeshLayout

# Who is told of each step of a compile, with the share of all that is done.
Watch = Callable[[str, float], None]
watch: ContextVar[Watch | None] = ContextVar("watch", default=None)
PASSES_SHARE = 0.6  # of a compile, for those who watch; the code of its kernels takes the rest


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
    sharding: MeshLayout | None = None  # of a graph for several devices
    devices: tuple[str, ...] = ("cpu",)  # those of this process that run the program
    assuming: tuple[UOp, ...] = ()  # conditions on sizes that hold in every run
    # The variables whose values the program computes: the graph's first outputs.
    lengths: tuple[UOp, ...] = ()
    schedule: Schedule | None = None  # of FUNCTIONs that are scheduled on their own
    # The predicted cost of a program after the pass of a name; None if nothing predicts it.
    cost: Callable[[UOp, str], Cost] | None = None
    # Gives kernels of a program, a LINEAR of CALLs, the Opts that a search found for them.
    searched: Callable[[UOp, Context], UOp] | None = None
    # By kernel and threads: the Opts that the schedule chose, and the kernel with them.
    scheduled: dict[tuple[UOp, int], tuple[tuple[Opt, ...], UOp]] = field(default_factory=dict)
    # By value or kernel: the ways that a pass compared, for the dump: no pass reads them.
    compared: dict[UOp, Comparison] = field(default_factory=dict)
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
    """The `ctx` of a user's or target's rule: the machine, the pass that ran, and its result, which
    the rule rewrites: a kernel, or the entire program's graph."""

    target: Target
    stage: str
    kernel: UOp


@dataclass(frozen=True)
class RunCondition:
    """A condition without which a pass changes nothing. `text` completes "runs if"."""

    text: str
    holds: Callable[[UOp, Context], bool]


Group = Literal["needed", "speed", "devices", "kernels"]


@dataclass(frozen=True)
class Pass:
    """A row of the pipeline. The function of a pass bears its name, and so does the module of the
    function, which is imported when the pass first runs: a pass whose conditions do not hold is
    left out.

    `scope`: one run over the whole program's graph, or one run for each distinct kernel.
    `reassociates`: sums in another order, or rounded less often, may change the last bits.
    """

    name: str
    group: Group
    scope: Literal["graph", "kernel"]
    accepts: Level
    promises: Level
    conditions: tuple[RunCondition, ...] = ()
    reassociates: bool = False

    @cached_property
    def module(self) -> ModuleType:
        """The module of the pass: `passes/expand/expand.py`, `passes/tabulate.py`."""
        found = import_module(f"uopc.passes.{self._word}")
        in_folder = hasattr(found, "__path__")
        return import_module(f"{found.__name__}.{self._word}") if in_folder else found

    @cached_property
    def _word(self) -> str:
        """The name of the pass in Python."""
        return self.name.replace("-", "_")

    def run(self, graph: UOp, context: Context) -> UOp:
        """The graph after the pass."""
        if not all([c.holds(graph, context) for c in self.conditions]):
            return graph
        function: Callable[[UOp, Context], UOp] = getattr(self.module, self._word)
        return function(graph, context)
