"""Decisions of a schedule that offer alternatives, and the choice by the cost of the kernels.

    s.pick("rows", 1, 8, 4)     1 row at a time, unless 8 or 4 rows make a clearly faster kernel

The steps run with the first option of each decision. Then each decision in turn: for each other
option the steps run again from the one that asked, and the cheapest of the complete kernels stays.
The first stays unless another is clearly cheaper: a cost that differs by less says nothing.

An alternative costs compile time. So it is tried only if what it may save in the runs of a kernel
is more than what trying takes. It saves at most what the kernel takes above a bound, which its
arithmetic and its data give. Kernels of a few microseconds, and kernels near the bound, are not
searched.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

from uopc.cost.bound import least_cycles
from uopc.cost.cycles import cost_of
from uopc.cost.parts import Alternative, Comparison
from uopc.ir.nest.describe import outline_of
from uopc.passes.optimize.schedule.scheduler import Offer, State, Step, run

CLEARLY = 0.9  # of two costs: a smaller difference says nothing
RUNS = 1000.0  # of a kernel, over which compile time pays back
TRYING = 60.0  # microseconds per node of a kernel: the Opts, the outline and the cost
MOST_ASKED = 24  # alternatives of a kernel


def choose(steps: Sequence[Step[State]], s: State) -> State:
    """Run the steps, and again for alternatives that may pay; return the state whose kernel is the
    cheapest."""
    kernel = s.kernel
    run(steps, s)
    if not s.decisions:
        return s
    machine = s.machine
    outline = outline_of(s.kernel)
    ways = [Alternative("the usual schedule", cost_of(outline, machine))]
    cost, taken = ways[0].cost.cycles, 0
    spare = CLEARLY * cost - least_cycles(outline, machine)  # what an alternative saves at most
    trying = TRYING * len(s.nest.order)
    most = min(MOST_ASKED, int(RUNS * spare / machine.clock / 1000.0 / trying))
    seen, at = {s.opts}, 0
    while at < len(s.decisions) and most > 0:
        decision, best, least = s.decisions[at], s, CLEARLY * cost
        for option in decision.options[1 : 1 + most]:
            most -= 1
            made = _resumed(steps, decision, option)
            if made.opts not in seen:
                seen.add(made.opts)
                other = cost_of(outline_of(made.kernel), machine)
                ways.append(Alternative(_words(decision.name, option), other))
                if other.cycles < least:
                    best, least, taken = made, other.cycles, len(ways) - 1
        if best is not s:
            s, cost = best, least
        at += 1
    if len(ways) == 1:
        return s
    saved = 1 - ways[taken].cost.cycles / ways[0].cost.cycles
    why = f"saves {saved:.0%}" if taken else f"no other saves {1 - CLEARLY:.0%}"
    s.context.compared[kernel] = Comparison(tuple(ways), taken, why)
    return s


def offered(steps: Sequence[Step[State]], s: State) -> list[State]:
    """The states after the steps with first options, and with each other option of a decision."""
    run(steps, s)
    others = [_resumed(steps, d, option) for d in s.decisions for option in d.options[1:]]
    return [s, *others]


def _words(name: str, option: object) -> str:
    """A decision and its option in words."""
    if isinstance(option, bool):
        return name if option else f"no {name}"
    return f"{name}: {option}"


def _resumed(steps: Sequence[Step[State]], decision: Offer, option: object) -> State:
    """The state after the steps from the one that asks for a decision, with another option."""
    made = cast(State, copy.copy(decision.before))
    made.picked = {**made.picked, decision.name: option}
    run(steps, made, decision.step)
    return made
