"""Turn a graph of values on several devices into a graph of values on one device each.

An MSTACK becomes its parts, and its readers run once per part. An MSELECT becomes one part. A COPY
of such a value to one device takes the first part. The caller lowers exchanges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from uopc.errors import UserError
from uopc.ir.builder import leaves, movement, rebuild
from uopc.ir.core import dtypes, shapes, storage, walk
from uopc.ir.core.ops import GroupOp, Ops
from uopc.ir.core.trace import made_at, standing_for
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices import device as devices
from uopc.ir.devices.mesh import Mesh
from uopc.ir.index.dims import uop_dim

# From an exchange, what the devices of a group send, and their names, to what each of them gets.
Lower = Callable[[UOp, Sequence[UOp], Sequence[str | None]], Sequence[UOp]]
BUNDLES = frozenset((Ops.SINK, Ops.GROUP, Ops.TUPLE, Ops.AFTER))


class Unrolled:
    """The nodes of a graph, sources first, each on one device. `several`: by node, its parts on
    each device; `one`: by node, its single replacement."""

    def __init__(self, lower: Lower, mesh: Mesh | None = None) -> None:
        self.lower, self.mesh = lower, mesh
        self.several: dict[UOp, list[UOp]] = {}
        self.one: dict[UOp, UOp] = {}
        self.places: Mapping[UOp, devices.Device] = {}

    def add(self, u: UOp) -> None:
        """Unroll one node."""
        if u.op is Ops.MSTACK:
            self.several[u] = self._stacked(u)
        elif u.op is Ops.MSELECT:
            self.one[u] = self.several[u.src[0]][u.arg] if self._is_several(u) else self._same(u)
        elif u.op in GroupOp.Exchange:
            self.several[u] = self._exchanged(u)
        elif u.op is Ops.COPY and self.mesh is None and self._is_several(u):
            self.one[u] = intern(Ops.COPY, u.dtype, (self.several[u.src[0]][0],), u.arg, u.tag)
        elif self.several.keys().isdisjoint(u.src):
            self.one[u] = self._again(u, tuple([self.one[s] for s in u.src]))
        elif u.op in BUNDLES and u.src[0] not in self.several:
            self.one[u] = self._again(u, tuple([p for s in u.src for p in self.parts(s)]))
        else:
            count = len(next(self.several[s] for s in u.src if s in self.several))
            self._check_written(u, count)
            self.several[u] = [
                self._again(u, tuple([self.part(s, i) for s in u.src])) for i in range(count)
            ]

    def give(self, u: UOp, other: UOp) -> None:
        """Replace a node by another one."""
        if other in self.several:
            self.several[u] = self.several[other]
        else:
            self.one[u] = self.one[other]

    def part(self, u: UOp, i: int) -> UOp:
        """A value on device i, or the single value that all devices read."""
        return self.several[u][i] if u in self.several else self.one[u]

    def parts(self, u: UOp) -> list[UOp]:
        """The part of a value on each of its devices."""
        return self.several.get(u) or [self.one[u]]

    def _check_written(self, u: UOp, count: int) -> None:
        """UserError if a kernel that several devices run writes storage that they share."""
        if u.op is not Ops.CALL or u.src[0].op is not Ops.SINK:
            return
        for slot in storage.written_slots(u.src[0]):
            if u.src[1 + slot] not in self.several:
                raise UserError(
                    f"call: {count_of(count)} would write one argument {slot}: call the kernel of"
                    f" each part{made_at(u)}"
                )

    def _is_several(self, u: UOp) -> bool:
        return u.src[0] in self.several

    def _stacked(self, u: UOp) -> list[UOp]:
        places = [self.places[s] for s in u.src]
        twice = [s for i, s in enumerate(u.src) if places[i] in places[:i]]
        if twice:
            raise UserError(
                f"mstack: each part needs a device of its own, two are on"
                f" {devices.show(self.places[twice[0]])}: use .copy(device){made_at(twice[0])}"
            )
        return [self.one[s] for s in u.src]

    def _same(self, u: UOp) -> UOp:
        """The part of a value on one device; any part of a value that all devices have."""
        if u.arg and self.places.get(u.src[0]) is not None:
            raise UserError(
                f"mselect: a value on one device has part 0 only, got {u.arg}{made_at(u)}"
            )
        return self.one[u.src[0]]

    def _exchanged(self, u: UOp) -> list[UOp]:
        """The result of an exchange on each device."""
        place = None if self.mesh else self.places[u.src[0]]
        if not u.arg.parts:
            if not isinstance(place, tuple):
                wanted = "axes of the mesh" if self.mesh else "a value on several devices"
                raise UserError(f"{u.op.name}: the exchange needs {wanted}{made_at(u)}")
            u = u.replace(arg=replace(u.arg, parts=len(place)))
        if self.mesh is not None:
            places: Sequence[str | None] = self.mesh.devices
            groups = self.mesh.groups(u.arg.axes)
        else:
            if isinstance(place, tuple):
                places = place
            else:  # one device, or what all devices have
                places = [place] if place else [None] * u.arg.parts
            groups = [list(range(len(places)))]
        if u.arg.parts != len(groups[0]):
            raise UserError(
                f"{u.op.name}: expected a part per device, got {u.arg.parts} for"
                f" {count_of(len(groups[0]))}"
                f"{made_at(u)}"
            )
        if not 0 <= u.arg.root < u.arg.parts:
            raise UserError(
                f"{u.op.name}: root must be 0 to {u.arg.parts - 1}, got {u.arg.root}{made_at(u)}"
            )
        got: list[UOp] = [u] * len(places)
        for group in groups:
            sent = [self.part(u.src[0], r) for r in group]  # or what all devices have
            for r, value in zip(group, self.lower(u, sent, [places[r] for r in group])):
                got[r] = standing_for(u, value)
        return got

    def _again(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
        """The node on other sources."""
        if src == u.src:
            return u
        if u.op.kind in ("dims", "window") and len(src) > 1:
            return standing_for(u, _moved(u, src))
        return standing_for(u, rebuild.remake(u, src))


def _moved(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """A movement whose symbolic dimensions may have become numbers."""
    dims = tuple(map(uop_dim, shapes.with_dims(u.arg, src[1:])))
    if u.op is Ops.SHRINK:
        half = len(dims) // 2
        return part_window(src[0], dims[:half], dims[half:])
    arg, symbolic = leaves.split_dims(dims)
    return intern(u.op, u.dtype, (src[0], *symbolic), arg, u.tag)


def unrolled(graph: UOp, lower: Lower) -> UOp:
    """A SINK or TUPLE with each value on one device. UserError for a result on several devices."""
    order = walk.nodes(graph)
    found = Unrolled(lower)
    found.places = devices.devices(graph)
    for u in order:
        if u.op in walk.CALLED and u is not graph:  # its nodes are its own
            found.one[u] = u
        else:
            found.add(u)
    for i, v in enumerate(graph.src):
        if v in found.several and v.dtype is not dtypes.void:
            place = found.places[v]
            where = devices.show(place) if place else count_of(len(found.several[v]))
            raise UserError(f"output {i} is on {where}: use MSELECT, or .copy(device){made_at(v)}")
    return found.one[graph]


def count_of(number: int) -> str:
    """`number` devices, in words."""
    return f"{number} device{'s' * (number != 1)}"


def part_window(u: UOp, begins: Sequence[shapes.Dim], sizes: Sequence[shapes.Dim]) -> UOp:
    """The window of a value, with zeros beyond the value."""
    dims = shapes.shape(u)
    first, last, widths = [], [], []
    for b, s, n in zip(begins, sizes, dims):
        if not (isinstance(b, int) and isinstance(s, int) and isinstance(n, int)):
            first.append(b)
            last.append(s)
            widths.append((0, 0))
            continue
        low, high = min(max(b, 0), n), max(min(b + s, n), 0)
        high = max(low, high)
        first.append(low)
        last.append(high - low)
        before = min(max(low - b, 0), s)
        widths.append((before, s - before - (high - low)))
    if 0 in last:
        return leaves.full(leaves.const(u.dtype, 0), tuple(sizes))
    return movement.pad(movement.window(u, first, last), widths)
