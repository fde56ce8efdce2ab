"""A program for a mesh with some arguments and variables fixed: the fixed arrays are cut once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from uopc.backends.cpu.arguments import match_names, shape_of
from uopc.backends.cpu.fixed_arguments import as_constant, with_values
from uopc.backends.exchange.mesh_runner import MeshRunner
from uopc.backends.exchange.sharded_array import ShardedArray, layout
from uopc.backends.plan import AnyArray
from uopc.ir.devices import parts


class BoundMesh:
    """The devices of a mesh, and the parts of fixed arguments on the devices of this process.

    `plan`: the program's plan with only the arguments that a call takes.
    """

    def __init__(self, runner: MeshRunner, values: Mapping[str, Any]) -> None:
        plan = runner.plan
        found = {
            i: (values[a.name], runner.as_input(i, values[a.name]))
            for i, a in enumerate(plan.arguments) if a.name in values
        }  # fmt: skip
        whole = with_values(plan, {i: array for i, (_, array) in found.items()}, values)
        self.runner = MeshRunner(whole, runner.image)
        self.arrays = {i: self._cut(i, *both) for i, both in found.items()}
        taken = [a for i, a in enumerate(whole.arguments) if i not in self.arrays]
        self.plan, self.image = replace(whole, arguments=tuple(taken)), runner.image

    def _cut(self, number: int, given: object, array: AnyArray) -> ShardedArray:
        """Cut a fixed argument into parts that nobody else writes to."""
        mesh, cuts = self.runner.mesh, self.runner.plan.mesh
        assert cuts is not None
        cut = cuts.arguments[number]
        own: dict[int, AnyArray] = {}
        first = shape_of(cut.first, cuts.with_parts({}))
        for rank in self.runner.devices:
            dims = shape_of(cut.own, cuts.on(rank, {}))
            if isinstance(given, ShardedArray):
                self.runner.check_first(number, given, first)
                own[rank] = as_constant(given.local(rank, dims))
            elif any(cut.spec):
                window = parts.window(mesh, cut.spec, array.shape, rank, first, dims)
                own[rank] = as_constant(window.of(array))
            else:
                own[rank] = array = as_constant(array)
        return ShardedArray(layout(array.shape, mesh, cut.spec, array.dtype, first), own)

    def trim(self) -> int:
        """Give the memory of intermediates back: see `ProgramBase.trim`."""
        return self.runner.trim()

    def call(self, positional: tuple[object, ...], named: dict[str, object]) -> object:
        """Call with the remaining arguments."""
        out = {"out": named.pop("out")} if "out" in named else {}
        objects = iter(match_names(self.plan, positional, named))
        every = range(len(self.runner.plan.arguments))
        given = tuple([self.arrays[i] if i in self.arrays else next(objects) for i in every])
        return self.runner.call(given, {**named, **out})


def bound(runner: MeshRunner, values: Mapping[str, Any]) -> MeshRunner | BoundMesh:
    """The runner of a program with these arguments and variables fixed."""
    made = BoundMesh(runner, values)
    return made if made.arrays else made.runner
