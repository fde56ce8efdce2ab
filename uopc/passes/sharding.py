"""A mesh and the layouts of values on it: what users say of them, and what `partition` found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from uopc.ir.builder import rebuild
from uopc.ir.core import shapes
from uopc.ir.core.calls import exchanges_of
from uopc.ir.core.shapes import Shape
from uopc.ir.core.uop import UOp
from uopc.ir.devices import overlap, traffic
from uopc.ir.devices.mesh import Axes, Mesh, Spec
from uopc.ir.devices.part_sizes import PartSizes
from uopc.ir.records import dataclass


@dataclass
class MeshLayout:
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

    def of_bodies(self) -> MeshLayout | None:
        """The context of functions that are scheduled on their own, for one device."""
        if self.mesh.devices:
            return None
        return MeshLayout(self.mesh, bucket=self.bucket, pays=self.pays, is_done=True)

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
