"""The time that a program will take on a machine: its work by rates, and its exchanges.

A roofline, on purpose: predictions promise a fifth, and the cycles of `uopc/cost`, which order the
schedules of a kernel, are 0.6 to 1.7 times the measured ones. The `Machine` of exchanges has the
rates that a caller gives or measures, and may be another one than the machine that compiles.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from uopc.backends.exchange import cost
from uopc.backends.exchange.cost import Machine
from uopc.backends.plan import DimValue, Exchange, Plan, PlannedLaunch, Pointer, value_of
from uopc.errors import UserError, UserTypeError
from uopc.ir.records import dataclass
from uopc.passes.pass_manager import Lowered
from uopc.program.speed.reuse_distance import Region, Reused, distances
from uopc.program.speed.work import Work, measure


@dataclass(frozen=True)
class Prediction:
    """The seconds of each launch, by name, in the order of running: of one device, or of all
    devices of this process. `kernels`, `exchanges`: the seconds of a call.

    Examples:
        >>> from uopc.distributed import Link, Machine
        >>> machine = Machine(operations=1e9, bandwidth=1e9, link=Link(1e-6, 1e9), launch=1e-9)
        >>> found = uopc.compile(uopc.param("x", (1000,)) * 2).predict(machine)
        >>> f"{found.kernels:.1e} {found.exchanges:.1e} {found.seconds:.1e}"
        '8.0e-06 0.0e+00 8.0e-06'
    """

    launches: tuple[tuple[str, float], ...]
    kernels: float
    exchanges: float

    @property
    def seconds(self) -> float:
        """The seconds of a call: kernels, and the part of exchanges that no kernel hides.

        Examples:
            >>> from uopc.program.speed.predict import Prediction
            >>> Prediction((), 1.0, 0.5).seconds
            1.5
        """
        return self.kernels + self.exchanges


def predict(
    lowered: Lowered, plan: Plan, machine: Machine, given: Mapping[str, int]
) -> Prediction:
    """Predict the seconds of a lowered program, called again and again with the same arrays."""
    if not isinstance(machine, Machine):
        raise UserTypeError(f"predict: expected a uopc.distributed.Machine, got {machine!r}")
    values = _values(plan, lowered, given)
    work: dict[int, Work] = {}
    for number, launch in enumerate(plan.launches):
        if not isinstance(launch, Exchange):
            split, final = lowered.program.src[number].src[0], lowered.calls[number][0]
            work[number] = measure(split, lowered.located(final))
    count = len(plan.launches)

    def seconds_of(order: Sequence[int]) -> list[float]:
        """The seconds of a device's launches, by number; the numbers of a block's launches begin at
        a multiple of `count`."""
        regions = {
            n: _regions(plan.launches[n % count], work.get(n % count), values, n // count)
            for n in dict.fromkeys(order)
        }
        return [
            _of_kernel(work[n % count], touched, machine, values) if n % count in work else 0.0
            for n, touched in zip(order, distances(regions, order))
        ]

    if plan.rows:
        return _by_rounds(plan, machine, seconds_of)
    order = _block_by_block(plan, list(plan.runs(values)))
    seconds = seconds_of(order)
    launches: list[tuple[str, float]] = []
    kernels = exchanges = 0.0
    for place, number in enumerate(order):
        launch, took = plan.launches[number % count], seconds[place]
        if isinstance(launch, Exchange):
            if number >= count:  # once for all blocks
                continue
            took = cost.seconds(launch, machine, values, plan.mesh)
            beside = sum(seconds[place + 1 : place + 1 + launch.beside])
            took -= machine.between(launch.axes).beside * min(took, beside)
            exchanges += took
        else:
            kernels += took
        launches.append((launch.kernel, took))
    return Prediction(tuple(launches), kernels, exchanges)


def _block_by_block(plan: Plan, order: Sequence[int]) -> list[int]:
    """The launches of all blocks of a process: between exchanges, block after block."""
    blocks, count = 1 if plan.mesh is None else plan.mesh.blocks, len(plan.launches)
    found: list[int] = []
    phases = itertools.groupby(order, lambda n: isinstance(plan.launches[n], Exchange))
    for own in [list(phase) for _, phase in phases]:
        found += [n + count * block for block in range(blocks) for n in own]
    return found


def _by_rounds(
    plan: Plan, machine: Machine, seconds_of: Callable[[Sequence[int]], list[float]]
) -> Prediction:
    """Predict devices of one process. They run the launches of a round at once if there are threads
    for all, and then wait for each other."""
    took = [0.0] * len(plan.launches)
    rounds: list[list[float]] = []  # by device
    for row in plan.rows:
        order = [n for n in row if n >= 0]
        for n, seconds in zip(order, seconds_of(order)):
            took[n] = seconds
        own = [0.0]
        for n in row:
            if n < 0:
                own.append(0.0)
            else:
                own[-1] += took[n]
        rounds.append(own)
    at_once = plan.threads >= len(plan.devices)
    kernels = sum([max(r) if at_once else sum(r) for r in zip(*rounds, strict=True)])
    names = [launch.kernel for launch in plan.launches]
    waits = len(rounds[0]) - 1
    return Prediction(tuple(zip(names, took)), kernels, waits * machine.link.latency)


def _of_kernel(
    work: Work, touched: Sequence[Reused], machine: Machine, values: Mapping[str, int]
) -> float:
    """The seconds of a launch: the longer of its operations and its memory traffic."""
    moved = sum([machine.moving(t.nbytes, t.written, t.distance) for t in touched])
    return machine.launch + max(work.operations.evaluate(values) / machine.operations, moved)


def _regions(
    launch: PlannedLaunch, work: Work | None, values: Mapping[str, int], block: int
) -> list[Region]:
    """The memory that a launch touches; an exchange has no work."""
    if work is not None:
        sizes = [(t.slot, t.nbytes.evaluate(values), t.written) for t in work.touched]
    elif isinstance(launch, Exchange) and launch.nbytes:
        sizes = [(slot, n, True) for slot, n in enumerate(launch.nbytes)]
    elif isinstance(launch, Exchange):
        counts = [math.prod([value_of(d, values) for d in s]) for s in (launch.got, launch.sent)]
        sizes = [(i, n * launch.dtype.itemsize, i == 0) for i, n in enumerate(counts)]
    else:
        sizes = []
    found = []
    for slot, nbytes, written in sizes:
        word = launch.words[slot] if slot >= 0 else None
        if isinstance(word, Pointer):
            first = value_of(word.offset, values)
            found.append(Region((block, word.base), first, first + nbytes, written))
        else:  # memory of this kernel alone
            found.append(Region((block, launch.kernel, slot), 0, nbytes, written))
    return found


def _values(plan: Plan, lowered: Lowered, given: Mapping[str, int]) -> dict[str, int]:
    """The value of each variable: the given value, or its largest."""
    highest = {v.name: v.hi for v in plan.sizes}
    sharding = lowered.context.sharding
    for name, value in given.items():
        if name not in highest:
            raise UserError(f"predict: unknown variable {name!r}; choose {', '.join(highest)}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise UserTypeError(f"predict: {name} must be an integer, got {value!r}")
    for v in plan.sizes:
        if not v.lo <= given.get(v.name, v.hi) <= v.hi:
            raise UserError(
                f"predict: variable {v.name} is {given[v.name]}, expected {v.lo}..{v.hi}"
            )
    values = {**highest, **given}
    if plan.mesh is not None:
        return plan.mesh.on(0, values)
    made = {} if sharding is None else sharding.sizes.values
    known = {v.arg.name: DimValue.of(value) for v, value in made.items()}
    return values | {
        name: d.evaluate(values) for name, d in known.items() if d.variables <= values.keys()
    }
