"""Run all devices of a mesh in one thread: each to its next exchange, then the exchange for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from uopc.ir.core.evaluate import Array
from uopc.ir.core.uop import UOp
from uopc.ir.devices.mesh import Mesh, coordinate
from uopc.ir.index import closed
from uopc.ir.interpret import exchanges
from uopc.ir.interpret.interpreter import Evaluation, machine_for
from uopc.ir.interpret.machine import Steps

_NO_VARIABLES: Mapping[str, int] = {}
_NOTHING: Mapping[UOp, UOp] = {}


def variables_of(
    mesh: Mesh, rank: int, variables: Mapping[str, int], made: Mapping[UOp, UOp] = _NOTHING
) -> dict[str, int]:
    """The variables of one device: its coordinates, the shared variables, and the variables of
    `PartSizes.values`, which follow from these."""
    known = {**variables, **{coordinate(a): i for a, i in mesh.coordinates(rank).items()}}
    decided = {v.arg.name: closed.instructions(u) for v, u in made.items() if closed.is_closed(u)}
    return known | {name: closed.value(u, known) for name, u in decided.items()}


def evaluate(
    graph: UOp, mesh: Mesh, inputs: Sequence[Mapping[str, Array]],
    variables: Mapping[str, int] = _NO_VARIABLES, made: Mapping[UOp, UOp] = _NOTHING,
) -> list[list[Array]]:  # fmt: skip
    """The values of a SINK of level tensor on each device; `inputs`: each device's parts. `made`:
    as for `variables_of`.

    As for `interpreter.evaluate`, arrays that the graph stores to change in place.
    """
    runs = [
        Evaluation(graph.src, given, variables_of(mesh, rank, variables, made))
        for rank, given in enumerate(inputs)
    ]
    _together(mesh, [r.run.steps(r.roots) for r in runs])
    return [r.finished()[0] for r in runs]


def _together(mesh: Mesh, steps: Sequence[Steps]) -> None:
    """Run all devices, each from exchange to exchange."""
    with np.errstate(all="ignore"):
        waiting = [next(s, None) for s in steps]
        while waiting[0] is not None:
            u = waiting[0][0]
            sent = [w[1] for w in waiting if w is not None]
            got = exchanges.over_mesh(u.op.name, u.arg, u.dtype, mesh, sent)
            waiting = [_sent(s, a) for s, a in zip(steps, got)]


def _sent(steps: Steps, array: Array) -> tuple[UOp, Array] | None:
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
    _together(mesh, [m.steps(program) for m in machines])
    return [m.state.storages for m in machines]
