"""`shard_map`: a function of parts as a function of whole arrays, with JAX's name and meaning.

The function is traced once, for one device. Then each value that differs between devices along mesh
axes gets these axes as its first dimensions, cut along the axes. The result is a graph of whole
arrays with marks, which runs on a mesh, or without a mesh on one device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from uopc.derivatives import functions as seeds
from uopc.derivatives import mesh_axis
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.builder import fold, leaves, movement
from uopc.ir.builder.pytrees import flatten, spread, unflatten
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.ops import GroupOp, Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices.mesh import Mesh, PartitionSpec, Spec, normal, show, used_axes
from uopc.ir.records import dataclass
from uopc.numpy.array import Array, uop_of
from uopc.tensor.elementwise import shard
from uopc.tracing.collectives import Inside, inside
from uopc.tracing.transforms import SeededCall, derived

Function = Callable[..., Any]


def shard_map(f: Function, mesh: Mesh, in_specs: Any, out_specs: Any) -> Function:
    """A function of whole arrays that runs `f` on each device's parts of them.

    in_specs: how arguments are cut: a `uopc.P` for all arguments, or a tuple with a spec for each
    argument, which may be a container like the argument. out_specs: the same for the result. Along
    axes that a spec names, the parts of all devices are put together; along other axes all devices
    must have the same value (after a `psum`, say). Inside, `psum`, `pmax`, `pmin`, `pmean`,
    `all_gather`, `psum_scatter`, `all_to_all` and `ppermute` exchange values along mesh axes, and
    `axis_index` is the index of a device. A call with arrays runs on the mesh; in a graph that is
    compiled without a mesh, one device computes the same. UserTypeError for another mesh, and for
    arguments by name; UserError if sizes do not divide, a spec does not fit, or a result differs
    along an axis that its spec does not name; Unsupported inside another `shard_map`.

    Examples:
        >>> mesh = uopc.make_mesh((4,), ("m",))
        >>> def normalised(x):
        ...     return x / uopc.psum(x.sum(), "m")
        >>> uopc.shard_map(normalised, mesh, uopc.P("m"), uopc.P("m"))(np.arange(1.0, 5.0))
        array([0.1, 0.2, 0.3, 0.4])
    """
    if not isinstance(mesh, Mesh):
        raise UserTypeError(f"shard_map: mesh must be a uopc.Mesh, got {mesh!r}")

    def build(*args: Any, **named: Any) -> Any:
        call = SeededCall("shard_map", f, args)
        if named:
            raise UserTypeError(f"shard_map of {call.name}: pass arguments by position")
        if inside.get() is not None:
            raise Unsupported("shard_map inside a function of shard_map is not supported")
        found, structure = flatten(tuple(args))
        specs = spread(in_specs, structure, PartitionSpec, "shard_map: in_specs")
        body = _ShardedBody(mesh, call)
        values = [body.argument(leaf, s, path) for (path, leaf), s in zip(found, specs)]
        nodes, form = body.traced(f, unflatten(structure, values))
        wanted = spread(out_specs, form, PartitionSpec, "shard_map: out_specs")
        return unflatten(form, call.closed(body.whole(nodes, wanted), body.given))

    return derived("shard_map", f, build, mesh)


@dataclass
class _PartSeed:
    """The stand-in of an argument's part, to which mesh axes are added; the axes that cut it."""

    seed: UOp
    axes: tuple[str, ...]


class _ShardedBody:
    """One run of a function on parts."""

    def __init__(self, mesh: Mesh, call: SeededCall) -> None:
        self.mesh, self.call = mesh, call
        self.given: dict[UOp, UOp] = {}  # the arguments in place of the seeds
        self._parts: list[_PartSeed] = []
        self._wholes: list[UOp] = []
        self._places = {a: seeds.seed_of(dtypes.int32, ()) for a in mesh.axis_names}

    def _spec(self, given: Any, dims: shapes.Shape, who: str) -> Spec:
        self.mesh.spec(given, dims, who)  # its axes are of the mesh
        spec = normal(given, len(dims), who)
        for d, axes in zip(dims, spec):
            if not axes:
                continue
            cut = f"{who}: {shapes.show(dims)} cut as {show(spec)}"
            other = "marks (`in_shardings`, `x.shard`) cut any size"
            if not isinstance(d, int):
                raise UserError(f"{cut}: the dimension must be a number; {other}")
            parts = self.mesh.parts(axes)
            if d % parts:
                raise UserError(f"{cut}: {parts} must divide the dimension; {other}")
        return spec

    def argument(self, leaf: Any, given: Any, path: str) -> Any:
        """The node for a device's part of an argument."""
        who = f"shard_map of {self.call.name}: argument {path[1:]}"
        u = uop_of(leaf, who)
        dims = shapes.shape(u)
        spec = self._spec(given, dims, who)
        axes = self._named(spec)
        seed = seeds.seed_of(u.dtype, self.mesh.part_dims(dims, spec))
        self._parts.append(_PartSeed(seed, axes))
        self._wholes.append(self._apart(u, spec, axes))
        return self.call.value(seed, isinstance(leaf, Array) and leaf.weak)

    def _named(self, spec: Spec) -> tuple[str, ...]:
        """The mesh axes that cut some dimension, in the order of the mesh."""
        used = used_axes(spec)
        return tuple([a for a in self.mesh.axis_names if a in used])

    def _apart(self, u: UOp, spec: Spec, axes: tuple[str, ...]) -> UOp:
        """Split an array into parts, with the mesh axes in front."""
        u = shard(u, PartitionSpec(*spec))
        sizes, split_dims, names = self.mesh.shape, [], []
        for d, cut in zip(self.mesh.part_dims(shapes.shape(u), spec), spec):
            split_dims += [*[sizes[a] for a in cut], d]
            names += [*cut, ""]
        u = movement.reshape(u, tuple(split_dims))
        rest = [i for i, name in enumerate(names) if not name]
        return movement.permute(u, (*[names.index(a) for a in axes], *rest))

    def _together(self, u: UOp, spec: Spec, axes: tuple[str, ...]) -> UOp:
        """Join parts that have the mesh axes in front into an array."""
        dims = shapes.shape(u)[len(axes) :]
        order: list[int] = []
        for d, cut in enumerate(spec):
            order += [*[axes.index(a) for a in cut], len(axes) + d]
        u = movement.permute(u, tuple(order))
        whole = [d * self.mesh.parts(cut) if cut else d for d, cut in zip(dims, spec)]
        return shard(movement.reshape(u, tuple(whole)), PartitionSpec(*spec))

    def traced(self, f: Function, args: Any) -> tuple[list[UOp], Any]:
        """Run the function; return the results of a device, and their structure."""
        token = inside.set(Inside(self.mesh, self._places, self.call.value))
        try:
            nodes, form = self.call.results(self.call.run(f, *args))
        finally:
            inside.reset(token)
        for u in walk.nodes(intern(Ops.TUPLE, dtypes.void, tuple(nodes))):
            if u.op is Ops.SHARD and used_axes(u.arg.spec):
                raise UserError(
                    f"shard_map of {self.call.name}: leave shard() out: values inside are parts"
                    f"{made_at(u)}"
                )
        return nodes, form

    def whole(self, nodes: Sequence[UOp], given: Sequence[Any]) -> list[UOp]:
        """Join the results of devices into whole results."""
        specs = []
        for i, (u, g) in enumerate(zip(nodes, given)):
            who = f"shard_map of {self.call.name}: result {i}"
            self.mesh.spec(g, shapes.shape(u), who)
            specs.append(normal(g, len(shapes.shape(u)), who))
        nodes = list(nodes)
        for axis in reversed(self.mesh.axis_names):
            nodes = self._over(axis, nodes, specs)
        self.given = {p.seed: u for p, u in zip(self._parts, self._wholes)}
        for u in walk.nodes(intern(Ops.TUPLE, dtypes.void, tuple(nodes))):
            if u.op in GroupOp.Exchange:
                raise Unsupported(
                    f"shard_map: {u.op.name} inside a loop or a function is not"
                    f" supported{made_at(u)}"
                )
        return [self._together(u, s, self._named(s)) for u, s in zip(nodes, specs)]

    def _over(self, axis: str, nodes: Sequence[UOp], specs: Sequence[Spec]) -> list[UOp]:
        """Give results the mesh axis as first dimension, if their specs name the axis."""
        n = self.mesh.shape[axis]
        batched = {self._places[axis]: fold.cast(leaves.iota(n), dtypes.int32)}
        for p in self._parts:
            if axis in p.axes:
                new = seeds.seed_of(p.seed.dtype, (n, *shapes.shape(p.seed)))
                batched[p.seed], p.seed = new, new
        made = []
        found = mesh_axis.along(nodes, batched, mesh_axis.SizedAxis(axis, n))
        for i, (f, spec) in enumerate(zip(found, specs)):
            named = axis in used_axes(spec)
            if f.varies and not named:
                raise UserError(
                    f"shard_map of {self.call.name}: result {i} differs between devices along"
                    f" {axis!r}, which its spec {show(spec)} does not name: name it, or psum it"
                )
            made.append(movement.repeated(f.value, n) if named and not f.varies else f.value)
        return made
