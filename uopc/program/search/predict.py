"""How long a program will take on a machine: its work by rates, and its exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from uopc.backends.exchange import cost
from uopc.backends.exchange.cost import Machine
from uopc.backends.plan import Exchange, Plan
from uopc.errors import UserError, UserTypeError
from uopc.passes.pass_manager import Lowered
from uopc.program.search.work import measure


@dataclass(frozen=True)
class Prediction:
    """The seconds of each launch of one device, in the order in which they run, by name.

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
        """The seconds of a call: kernels, and of exchanges what is not hidden beside kernels.

        Examples:
            >>> from uopc.program.search.predict import Prediction
            >>> Prediction((), 1.0, 0.5).seconds
            1.5
        """
        return self.kernels + self.exchanges


def predict(
    lowered: Lowered, plan: Plan, machine: Machine, given: Mapping[str, int]
) -> Prediction:
    """The seconds that a program takes, as its graph was lowered."""
    if not isinstance(machine, Machine):
        raise UserTypeError(f"predict: expected a uopc.distributed.Machine, got {machine!r}")
    values = _values(plan, given)
    known: dict[object, float] = {}

    def of_kernel(number: int) -> float:
        split, final = lowered.program.src[number].src[0], lowered.calls[number][0]
        if split not in known:
            found = measure(split, lowered.located(final))
            operations, nbytes = found.counts(values)
            moved = machine.moving(nbytes, found.written.evaluate(values))
            known[split] = machine.launch + max(operations / machine.operations, moved)
        return known[split]

    launches: list[tuple[str, float]] = []
    kernels = exchanges = 0.0
    for number in plan.runs(values):
        launch = plan.launches[number]
        if isinstance(launch, Exchange):
            took = cost.seconds(launch, machine, values)
            between = range(number + 1, number + 1 + launch.beside)
            beside = [of_kernel(i) for i in between if not isinstance(plan.launches[i], Exchange)]
            took -= machine.between(launch.axes).beside * min(took, sum(beside))
            exchanges += took
        else:
            took = of_kernel(number)
            kernels += took
        launches.append((launch.kernel, took))
    return Prediction(tuple(launches), kernels, exchanges)


def _values(plan: Plan, given: Mapping[str, int]) -> dict[str, int]:
    """The value of each variable: the given ones, and the largest that it may have."""
    highest = {v.name: v.hi for v in plan.variables}
    for d in () if plan.mesh is None else plan.mesh.divided:
        highest[d.whole] -= highest[d.whole] % d.parts
    for name, value in given.items():
        if name not in highest:
            raise UserError(f"predict: no variable {name!r}; there are {', '.join(highest)}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise UserTypeError(f"predict: {name} must be an integer, got {value!r}")
    for v in plan.variables:
        if not v.lo <= given.get(v.name, v.hi) <= v.hi:
            raise UserError(f"predict: {v.name} is {given[v.name]}: {v.lo}..{v.hi} is allowed")
    values = {**highest, **given}
    if plan.mesh is None:
        return values
    return {**plan.mesh.with_parts(values), **plan.mesh.variables(0)}
