"""All devices of a mesh in one thread: each runs to its next exchange, which is done for all."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping, Sequence

import numpy as np

from uopc.ir.core.calls import exchanges_of
from uopc.ir.core.evaluate import Array
from uopc.ir.core.uop import UOp
from uopc.ir.devices.mesh import Mesh, coordinate
from uopc.ir.index import closed
from uopc.ir.interpret import exchanges
from uopc.ir.interpret.interpreter import Evaluation, machine_for

_NO_VARIABLES: Mapping[str, int] = {}
_NOTHING: Mapping[UOp, UOp] = {}


def variables_of(
    mesh: Mesh, rank: int, variables: Mapping[str, int], made: Mapping[UOp, UOp] = _NOTHING
) -> dict[str, int]:
    """The variables of one device: its coordinates, those that all share, and what these decide:
    see `PartSizes.values`."""
    known = {**variables, **{coordinate(a): i for a, i in mesh.coordinates(rank).items()}}
    decided = {v.arg.name: closed.instructions(u) for v, u in made.items() if closed.is_closed(u)}
    return known | {name: closed.value(u, known) for name, u in decided.items()}


def evaluate(
    graph: UOp, mesh: Mesh, inputs: Sequence[Mapping[str, Array]],
    variables: Mapping[str, int] = _NO_VARIABLES, made: Mapping[UOp, UOp] = _NOTHING,
) -> list[list[Array]]:  # fmt: skip
    """The values of a SINK of level tensor on each device, whose inputs are its parts. `made`: as
    for `variables_of`.

    As for `interpreter.evaluate`, arrays that the graph stores to change in place.
    """
    runs = [
        Evaluation(graph.src, given, variables_of(mesh, rank, variables, made))
        for rank, given in enumerate(inputs)
    ]
    with np.errstate(all="ignore"):
        steps = [r.run.steps(r.roots) for r in runs]
        waiting = [next(s, None) for s in steps]
        while waiting[0] is not None:
            u = waiting[0][0]
            sent = [w[1] for w in waiting if w is not None]
            got = exchanges.over_mesh(u.op.name, u.arg, u.dtype, mesh, sent)
            waiting = [_sent(s, a) for s, a in zip(steps, got)]
    return [r.finished()[0] for r in runs]


def _sent(
    steps: Generator[tuple[UOp, Array], Array, None], array: Array
) -> tuple[UOp, Array] | None:
    try:
        return steps.send(array)
    except StopIteration:
        return None


def run_program(
    program: UOp, mesh: Mesh, storage: Sequence[Mapping[UOp, Array]],
    variables: Mapping[str, int] = _NO_VARIABLES,
) -> list[dict[UOp, Array]]:  # fmt: skip
    """Run a LINEAR of CALLs on all devices, in place on the arrays of each."""
    machines = [
        machine_for(program, given, variables_of(mesh, rank, variables))
        for rank, given in enumerate(storage)
    ]
    with np.errstate(all="ignore"):
        for m in machines:
            m.before_calls(program)
        for is_exchange, calls in itertools.groupby(program.src, _is_exchange):
            group = list(calls)
            if not is_exchange:
                for m in machines:
                    m.calls(group)
                continue
            for c in group:
                for target, u in [s.src for s in exchanges_of(c.src[0])]:
                    sent, written = [c.src[1 + s.arg.slot] for s in (u.src[0], target)]
                    given = [m.viewed(sent).reshape(u.src[0].arg.dims).copy() for m in machines]
                    made = exchanges.over_mesh(u.op.name, u.arg, u.dtype, mesh, given)
                    for m, got in zip(machines, made):
                        m.viewed(written).reshape(-1)[...] = got.reshape(-1)
    return [m.state.storages for m in machines]


def _is_exchange(call: UOp) -> bool:
    return bool(exchanges_of(call.src[0]))
