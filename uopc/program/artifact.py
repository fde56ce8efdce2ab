"""The result of a compile without its graph: the plan, the machine code, the sources."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from uopc.backends.plan import (
    Argument,
    Exchange,
    Plan,
    PlannedLaunch,
    ResultArray,
    SizeRelation,
)  # fmt: skip
from uopc.ir.core.data import blocks, files
from uopc.ir.core.serialize import Fingerprint
from uopc.ir.core.trace import made_at
from uopc.ir.records import dataclass
from uopc.program.compiled_kernel import CompiledKernel, unpack
from uopc.program.planner import Planner
from uopc.program.request import Request

Array = npt.NDArray[Any]
AnyShaped = TypeVar("AnyShaped", Argument, ResultArray)
AnyLaunch = TypeVar("AnyLaunch", bound=PlannedLaunch)
# The arrays in another order that programs hold, by content hash and order.
_in_orders: weakref.WeakValueDictionary[tuple[str, tuple[int, ...]], Array]
_in_orders = weakref.WeakValueDictionary()
_LEAST_SHARED = 1 << 20  # fewest bytes that threads bring in order: starting them takes 1 ms


@dataclass(frozen=True)
class Constant:
    """An array that kernels read, by content hash. `array` is None if the graph holds the array.
    `order`: the element order that kernels expect, see `ir/core/data/blocks.py`; empty for the
    usual order."""

    key: str
    array: Array | None = None
    order: tuple[int, ...] = ()


@dataclass
class Artifact:
    """A compiled request, without nodes of its graph. Each backend has a subclass for its code.

    `names`: the kernels' names in this program. `schedules`: the Opts that the database of searches
    has for each kernel, see `Schedules.chosen`. `seconds`: the times of rendering and of LLVM.
    """

    plan: Plan
    constants: tuple[Constant, ...]
    names: tuple[str, ...]
    kernels: tuple[CompiledKernel, ...]
    nodes: int
    schedules: tuple[tuple[str, str], ...] = ()
    seconds: dict[str, float] = field(init=False, default_factory=dict)

    @classmethod
    def of(
        cls, planner: Planner, printed: Fingerprint, kernels: Mapping[str, CompiledKernel],
        chosen: Mapping[str, str],
    ) -> Self:  # fmt: skip
        """Make the artifact of a planned program. printed: the graph's content. kernels: by name.
        chosen: see `Schedules`."""
        plan, known = planner.plan(), printed.arrays
        constants = tuple([
            Constant(u.arg.key, None if u.arg.key in known else u.arg.array, order)
            for u, order in planner.constants
        ])  # fmt: skip
        named = tuple(kernels), tuple(kernels.values())
        return cls(plan, constants, *named, printed.nodes, tuple(chosen.items()))

    def check(self) -> None:
        """Raise InvalidIR when the code is damaged."""
        raise NotImplementedError

    def assembly(self) -> dict[str, str]:
        """Assembly by kernel name, for the kernels whose assembly is already known."""
        return {}

    def sources(self) -> list[str]:
        """The LLVM IR of each kernel, one module per kernel."""
        return [k.source.replace(k.symbol, n) for n, k in zip(self.names, self.kernels)]

    def packed_code(self) -> dict[str, str]:
        """The code by kernel name, of a backend whose code is packed text."""
        return {n: unpack(k.code).replace(k.symbol, n) for n, k in zip(self.names, self.kernels)}

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes."""
        words = sum(len(launch.words) + 4 for launch in self.plan.launches)
        own = sum(c.array.nbytes for c in self.constants if c.array is not None)
        code = sum(map(len, dict.fromkeys(k.code for k in self.kernels)))
        return 2 * code + sum(len(k.packed_source) for k in self.kernels) + own + 64 * words

    def plan_for(self, request: Request, arrays: Mapping[str, Array]) -> Plan:
        """The plan of one request, with its arrays by key, its container and its bound values.
        UserError if an array is in a file that changed after it was opened."""
        constants = [c.array if c.array is not None else arrays[c.key] for c in self.constants]
        files.check_unchanged(constants)
        constants = _all_in_order(self.constants, constants, request.threads)
        variables = [replace(v, default=request.bound.get(v.name)) for v in self.plan.variables]
        structure: Any = "tuple" if request.structure == "kernel" else request.structure
        arguments = [
            as_complex(a) if a.name in request.complex_params else a for a in self.plan.arguments
        ]
        results = [
            as_complex(r) if i in request.complex_results else r
            for i, r in enumerate(self.plan.results)
        ]
        return replace(
            self.plan,
            arguments=tuple(arguments),
            results=tuple(results),
            structure=structure,
            constants=tuple([np.ascontiguousarray(a) for a in constants]),
            keys=request.keys,
            variables=tuple(variables),
            conditions=located(self.plan.conditions, self.lines(request)),
            launches=_exchanges_located(self.plan.launches, request),
            copied=_exchanges_located(self.plan.copied, request),
        )

    def lines(self, request: Request) -> tuple[str, ...]:
        """For each condition of the plan, the source line of the request that relies on it."""
        conditions = self.plan.conditions
        nodes = request.facts.relying if conditions else []
        return tuple([made_at(nodes[c.node]) if c.node >= 0 else "" for c in conditions])


def as_complex(given: AnyShaped) -> AnyShaped:
    """The argument or result as complex numbers: the same memory as its pairs of floats."""
    dtype = np.result_type(given.dtype, np.complex64)
    return replace(given, dtype=dtype, shape=given.shape[:-1])


def in_order(c: Constant, array: Array) -> Array:
    """A constant array in the order that kernels expect, kept once for all programs."""
    if not c.order:
        return array
    found = _in_orders.get((c.key, c.order))
    if found is None:
        found = _in_orders[c.key, c.order] = blocks.blocked(array, c.order)
        found.flags.writeable = False
    return found


def _all_in_order(
    constants: Sequence[Constant], arrays: Sequence[Array], threads: int
) -> list[Array]:
    """Bring each constant in its order. Threads share the work: copying a model's weights takes
    longer than all passes on its graph."""
    turned = {(c.key, c.order): (c, a) for c, a in zip(constants, arrays) if c.order}
    size = sum([a.nbytes for _, a in turned.values()])
    if threads < 2 or len(turned) < 2 or size < _LEAST_SHARED:
        return [in_order(c, a) for c, a in zip(constants, arrays)]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(threads, len(turned))) as workers:
        made = dict(zip(turned, workers.map(in_order, *zip(*turned.values()))))
    return [made.get((c.key, c.order), a) for c, a in zip(constants, arrays)]


def _exchanges_located(launches: tuple[AnyLaunch, ...], request: Request) -> tuple[AnyLaunch, ...]:
    """Give the launches that are exchanges the source lines of the request's graph."""
    if not any([isinstance(launch, Exchange) for launch in launches]):
        return launches
    nodes = request.facts.relying
    return tuple([
        replace(launch, line=made_at(nodes[launch.node]))
        if isinstance(launch, Exchange) and launch.node >= 0 else launch
        for launch in launches
    ])  # fmt: skip


def located(conditions: tuple[SizeRelation, ...], lines: Sequence[str]) -> tuple[SizeRelation, ...]:
    """Give the conditions the source lines of a graph."""
    return tuple([replace(c, line=line) for c, line in zip(conditions, lines, strict=True)])
