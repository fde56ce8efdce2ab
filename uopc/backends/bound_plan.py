"""A plan with values in the place of variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from uopc.backends.plan import (
    Dim,
    Exchange,
    GpuLaunch,
    Plan,
    PlannedLaunch,
    Pointer,
    Scalar,
    Shape,
    Word,
)


def bound_plan(plan: Plan, values: Mapping[str, int]) -> Plan:
    """Replace each size that these values decide by a number, and drop the variables that have a
    value. Sizes that need another variable stay."""
    if not values:
        return plan
    mesh = plan.mesh
    if mesh is not None:
        mesh = replace(mesh, fixed=(*mesh.fixed, *values.items()))
        values = mesh.with_parts({})

    def number(d: Dim) -> Dim:
        if isinstance(d, int) or not d.variables <= values.keys():
            return d
        return d.evaluate(values)

    def shape(dims: Shape) -> Shape:
        return tuple([number(d) for d in dims])

    def pointer(p: Pointer) -> Pointer:
        return Pointer(p.base, number(p.offset))

    def word(w: Word) -> Word:
        return pointer(w) if isinstance(w, Pointer) else Scalar(number(w.value))

    def launch(own: PlannedLaunch) -> PlannedLaunch:
        words = tuple([word(w) for w in own.words])
        if isinstance(own, Exchange):
            return replace(own, words=words, sent=shape(own.sent), got=shape(own.got))
        made = replace(own, words=words, chunks=number(own.chunks))
        if isinstance(made, GpuLaunch):
            x, y, z = [number(d) for d in made.grid]
            return replace(made, grid=(x, y, z))
        return made

    return replace(
        plan,
        arguments=tuple([replace(a, shape=shape(a.shape)) for a in plan.arguments]),
        results=tuple([replace(r, shape=shape(r.shape)) for r in plan.results]),
        launches=tuple(map(launch, plan.launches)),
        variables=tuple([v for v in plan.variables if v.name not in values]),
        arena_bytes=number(plan.arena_bytes),
        conditions=tuple([
            replace(c, left=number(c.left), right=number(c.right)) for c in plan.conditions
        ]),
        lengths=tuple([replace(x, at=pointer(x.at)) for x in plan.lengths]),
        repeats=tuple([replace(r, times=number(r.times)) for r in plan.repeats]),
        mesh=mesh,
    )
