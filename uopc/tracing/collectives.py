"""Exchanges between devices inside a function of `shard_map`: JAX's names and meanings."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.builder import alu, fold, leaves, movement
from uopc.ir.builder.pytrees import flatten, unflatten
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.args import ExchangeArg, ShardArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices.mesh import Mesh
from uopc.numpy.array import Array, uop_of

AxisName = str | tuple[str, ...]


class Inside(NamedTuple):
    """The running `shard_map`: its mesh, the node of a device's index along each axis, and the
    function that wraps a node as a result."""

    mesh: Mesh
    places: Mapping[str, UOp]
    value: Callable[[UOp], Any]


inside: contextvars.ContextVar[Inside | None] = contextvars.ContextVar("shard_map", default=None)


# ---------------------------------------------------------------- axes and values
def _axes(who: str, axis_name: Any) -> tuple[Inside, tuple[str, ...]]:
    """The mesh axes that a name or a tuple of names stands for."""
    found = inside.get()
    if found is None:
        raise UserError(f"{who}: there are no mesh axes outside of a function given to shard_map")
    axes = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    for a in axes:
        if a not in found.mesh.axis_names:
            names = ", ".join(map(repr, found.mesh.axis_names))
            raise UserError(f"{who}: unknown mesh axis {a!r}; choose {names}")
    if len(set(axes)) < len(axes):
        raise UserError(f"{who}: {axis_name!r} names an axis twice")
    return found, axes


def _exchange(row: Op, x: UOp, axis: str, mesh: Mesh, **fields: Any) -> UOp:
    arg = ExchangeArg((axis,), mesh.shape[axis], **fields)
    return leaves.located(intern(row, x.dtype, (x,), arg))


def _here(x: UOp) -> UOp:
    """Mark that each device needs this value here; an exchange supplies it if necessary."""
    return leaves.located(intern(Ops.SHARD, x.dtype, (x,), ShardArg(((),) * len(shapes.shape(x)))))


def _each(who: str, tree: Any, made: Callable[[UOp], UOp]) -> Any:
    """Replace each value of a container."""
    found, structure = flatten(tree)
    values: list[Any] = []
    for path, leaf in found:
        u = made(uop_of(leaf, f"{who}: the argument{path}"))
        values.append(_like(leaf, u))
    return unflatten(structure, values)


def _like(leaf: Any, u: UOp) -> Any:
    if isinstance(leaf, UOp):
        return u
    if isinstance(leaf, Array):
        return Array(u, leaf.tracing)
    found = inside.get()
    assert found is not None
    return found.value(u)


def _axis_of(who: str, x: UOp, axis: Any, more: int = 0) -> int:
    return movement.normal_axis(axis, len(shapes.shape(x)) + more, who)


def _split_dimension(who: str, x: UOp, d: int, n: int, tiled: bool) -> UOp:
    """Split dimension d into n parts along a new first dimension. Untiled, dimension d has length n
    and becomes the first dimension."""
    dims = shapes.shape(x)
    size = dims[d]
    if not isinstance(size, int) or (size % n if tiled else size != n):
        wanted = f"a multiple of {n}" if tiled else f"{n}, the size of the mesh axis"
        raise UserError(f"{who}: dimension {d} of {shapes.show(dims)} must be {wanted}")
    if tiled:
        x = movement.reshape(x, (*dims[:d], n, size // n, *dims[d + 1 :]))
    rank = len(shapes.shape(x))
    return movement.permute(x, (d, *[i for i in range(rank) if i != d]))


def _join_dimension(x: UOp, d: int, tiled: bool) -> UOp:
    """Move the first dimension to position d; tiled, merge it with dimension d."""
    rank = len(shapes.shape(x))
    order = [*range(1, d + 1), 0, *range(d + 1, rank)]
    x = movement.permute(x, tuple(order))
    if not tiled:
        return x
    dims = shapes.shape(x)
    return movement.reshape(x, (*dims[:d], dims[d] * dims[d + 1], *dims[d + 2 :]))


# ---------------------------------------------------------------- combined
def _combined(who: str, op: str, x: Any, axis_name: Any) -> Any:
    found, axes = _axes(who, axis_name)

    def made(u: UOp) -> UOp:
        if u.dtype.kind == "bool" and op == "add":
            u = fold.cast(u, dtypes.int32)
        for a in reversed(axes):
            u = _exchange(Ops.ALLREDUCE, u, a, found.mesh, op=op)
        return _here(u)

    return _each(who, x, made)


def psum(x: Any, axis_name: AxisName) -> Any:
    """The sum over all devices along mesh axes, on each device; of a container, of each array.

    Of a number of Python it is a number. Bools are summed as int32.

    Examples:
        >>> mesh = uopc.make_mesh((4,), ("m",))
        >>> total = uopc.shard_map(
        ...     lambda x: uopc.psum(x.sum(), "m"), mesh, uopc.P("m"), uopc.P())
        >>> total(np.arange(8.0))
        array(28.)
    """
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        found, axes = _axes("psum", axis_name)
        return x * found.mesh.parts(axes)
    return _combined("psum", "add", x, axis_name)


def pmax(x: Any, axis_name: AxisName) -> Any:
    """The maximum over all devices along mesh axes, on each device. NaN wins.

    Examples:
        >>> mesh = uopc.make_mesh((4,), ("m",))
        >>> uopc.shard_map(lambda x: uopc.pmax(x, "m"), mesh, uopc.P("m"), uopc.P())(np.arange(8.0))
        array([6., 7.])
    """
    return _combined("pmax", "max", x, axis_name)


def pmin(x: Any, axis_name: AxisName) -> Any:
    """The minimum over all devices along mesh axes, on each device. NaN wins.

    Examples:
        >>> mesh = uopc.make_mesh((4,), ("m",))
        >>> uopc.shard_map(lambda x: uopc.pmin(x, "m"), mesh, uopc.P("m"), uopc.P())(np.arange(8.0))
        array([0., 1.])
    """
    return _combined("pmin", "min", x, axis_name)


def pmean(x: Any, axis_name: AxisName) -> Any:
    """The mean over all devices along mesh axes, on each device. UserTypeError for integers.

    Examples:
        >>> mesh = uopc.make_mesh((4,), ("m",))
        >>> mean = uopc.shard_map(lambda x: uopc.pmean(x, "m"), mesh, uopc.P("m"), uopc.P())
        >>> mean(np.arange(8.0))
        array([3., 4.])
    """
    found, axes = _axes("pmean", axis_name)

    def made(u: UOp) -> UOp:
        if not u.dtype.is_float:
            raise UserTypeError(f"pmean: expected floats, got {u.dtype.name}")
        return alu.binary(Ops.FDIV, u, leaves.const_like(u, found.mesh.parts(axes)))

    return _each("pmean", _combined("pmean", "add", x, axis_name), made)


# ---------------------------------------------------------------- moved
def all_gather(x: Any, axis_name: AxisName, *, axis: int = 0, tiled: bool = False) -> Any:
    """The values of all devices along mesh axes: along a new dimension `axis`, or with `tiled`
    concatenated along an existing dimension.

    Examples:
        >>> mesh = uopc.make_mesh((2,), ("m",))
        >>> uopc.shard_map(
        ...     lambda x: uopc.all_gather(x, "m"), mesh, uopc.P("m"), uopc.P())(np.arange(4.0))
        array([[0., 1.],
               [2., 3.]])
    """
    found, axes = _axes("all_gather", axis_name)

    def made(u: UOp) -> UOp:
        dims = shapes.shape(u)
        d = _axis_of("all_gather", u, axis, 0 if tiled else 1)
        for a in reversed(axes):
            u = _exchange(Ops.ALLGATHER, u, a, found.mesh)
        parts = movement.reshape(_here(u), (found.mesh.parts(axes), *dims))
        return _join_dimension(parts, d, tiled)

    return _each("all_gather", x, made)


def psum_scatter(
    x: Any, axis_name: AxisName, *, scatter_dimension: int = 0, tiled: bool = False
) -> Any:
    """`psum`, of which each device along mesh axes keeps its part of `scatter_dimension`.

    Without `tiled`, the dimension must be as long as there are devices, and vanishes. UserError if
    the number of devices does not divide it.

    Examples:
        >>> mesh = uopc.make_mesh((2,), ("m",))
        >>> uopc.shard_map(
        ...     lambda x: uopc.psum_scatter(x, "m", tiled=True), mesh, uopc.P(), uopc.P("m"),
        ... )(np.arange(4.0))
        array([0., 2., 4., 6.])
    """
    who = "psum_scatter"
    found, axes = _axes(who, axis_name)
    sizes = [found.mesh.shape[a] for a in axes]

    def made(u: UOp) -> UOp:
        d = _axis_of(who, u, scatter_dimension)
        u = _split_dimension(who, u, d, math.prod(sizes), tiled)
        rest = shapes.shape(u)[1:]
        u = movement.reshape(u, (*sizes, *rest))
        for a in axes:
            u = _here(_exchange(Ops.REDUCE_SCATTER, u, a, found.mesh, op="add"))
        return u

    return _each(who, x, made)


def all_to_all(
    x: Any, axis_name: AxisName, split_axis: int, concat_axis: int, *, tiled: bool = False
) -> Any:
    """Send part j of dimension `split_axis` to device j, and join the parts of all devices along
    dimension `concat_axis`.

    Without `tiled`, split_axis is as long as there are devices, and vanishes, and concat_axis is
    new. UserError where it does not divide.

    Examples:
        >>> mesh = uopc.make_mesh((2,), ("m",))
        >>> turn = uopc.shard_map(
        ...     lambda x: uopc.all_to_all(x, "m", 1, 0, tiled=True), mesh, uopc.P("m"),
        ...     uopc.P(None, "m"))
        >>> turn(np.arange(4.0).reshape(2, 2))
        array([[0., 1.],
               [2., 3.]])
    """
    who = "all_to_all"
    found, axes = _axes(who, axis_name)
    sizes = [found.mesh.shape[a] for a in axes]

    def made(u: UOp) -> UOp:
        s = _axis_of(who, u, split_axis)
        c = _axis_of(who, u, concat_axis)
        u = _split_dimension(who, u, s, math.prod(sizes), tiled)
        rest = shapes.shape(u)[1:]
        u = movement.reshape(u, (*sizes, *rest))
        for k, a in enumerate(axes):
            order = (k, *[i for i in range(len(sizes) + len(rest)) if i != k])
            u = _here(_exchange(Ops.ALLTOALL, movement.permute(u, order), a, found.mesh))
            u = movement.permute(u, tuple([order.index(i) for i in range(len(order))]))
        u = movement.reshape(u, (math.prod(sizes), *rest))
        return _join_dimension(u, c, tiled)

    return _each(who, x, made)


def ppermute(x: Any, axis_name: AxisName, perm: Iterable[tuple[int, int]]) -> Any:
    """Send the value of device `source` to device `target` for each pair (source, target); a device
    that is no target gets zeros.

    UserError for a device that does not exist, or that is a source or a target twice; Unsupported
    over several mesh axes at a time.

    Examples:
        >>> mesh = uopc.make_mesh((4,), ("m",))
        >>> ring = [(i, (i + 1) % 4) for i in range(4)]
        >>> uopc.shard_map(
        ...     lambda x: uopc.ppermute(x, "m", ring), mesh, uopc.P("m"), uopc.P("m"),
        ... )(np.arange(4.0))
        array([3., 0., 1., 2.])
    """
    who = "ppermute"
    found, axes = _axes(who, axis_name)
    if len(axes) != 1:
        raise Unsupported("ppermute: expected one mesh axis, not a tuple of axes")
    n = found.mesh.parts(axes)
    pairs = _pairs(who, perm, n)

    def made(u: UOp) -> UOp:
        out = leaves.const_like(u, 0)
        turns = {(t - s) % n for s, t in pairs}
        for turn in sorted(turns):
            own = [(s, t) for s, t in pairs if (t - s) % n == turn]
            shift, *others = {t - s for s, t in own}
            wrap, got = bool(others), u
            if turn:
                fields = {"shift": turn if wrap else shift, "wrap": wrap}
                got = _here(_exchange(Ops.PERMUTE_RANKS, u, axes[0], found.mesh, **fields))
            if len(turns) == 1 and len(own) == (n if wrap else n - abs(shift)):
                return got  # zeros come where there is no source
            keep = _is_one_of(found.places[axes[0]], sorted([t for _, t in own]))
            out = fold.select(leaves.full(keep, shapes.shape(u)), got, out)
        return out

    return _each(who, x, made)


def _pairs(who: str, perm: Iterable[tuple[int, int]], n: int) -> list[tuple[int, int]]:
    if not isinstance(perm, Iterable):
        raise UserTypeError(f"{who}: expected pairs (source, target), got {perm!r}")
    pairs = []
    for pair in perm:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise UserTypeError(f"{who}: expected pairs (source, target), got {pair!r}")
        s, t = pair
        if not all([isinstance(i, int) and 0 <= i < n for i in (s, t)]):
            raise UserError(f"{who}: {pair!r}: the mesh axis has the devices 0 to {n - 1}")
        pairs.append((s, t))
    for ends in zip(*pairs):
        twice = [i for i in ends if ends.count(i) > 1]
        if twice:
            raise UserError(f"{who}: device {twice[0]} is a source or a target twice")
    return pairs


def _is_one_of(place: UOp, targets: Sequence[int]) -> UOp:
    """True if an index is one of `targets`, which are sorted."""
    first, last = targets[0], targets[-1]
    if len(targets) == last - first + 1:
        return alu.binary(
            Ops.AND, alu.binary(Ops.CMPLE, leaves.const_like(place, first), place),
            alu.binary(Ops.CMPLE, place, leaves.const_like(place, last)),
        )  # fmt: skip
    found = leaves.const(dtypes.bool_, False)
    for t in targets:
        equal = alu.binary(Ops.CMPEQ, place, leaves.const_like(place, t))
        found = alu.binary(Ops.OR, found, equal)
    return found


# ---------------------------------------------------------------- places
def axis_index(axis_name: AxisName) -> Any:
    """The index of a device along mesh axes, an int32; along several axes, major first.

    Examples:
        >>> mesh = uopc.make_mesh((4,), ("m",))
        >>> uopc.shard_map(
        ...     lambda x: x + uopc.axis_index("m"), mesh, uopc.P("m"), uopc.P("m"),
        ... )(np.zeros(4, "i4"))
        array([0, 1, 2, 3], dtype=int32)
    """
    found, axes = _axes("axis_index", axis_name)
    place = leaves.const(dtypes.int32, 0)
    for a in axes:
        size = leaves.const(dtypes.int32, found.mesh.shape[a])
        place = alu.binary(Ops.ADD, alu.binary(Ops.MUL, place, size), found.places[a])
    return found.value(place)


def axis_size(axis_name: AxisName) -> int:
    """The number of devices along mesh axes.

    Examples:
        >>> mesh = uopc.make_mesh((4,), ("m",))
        >>> uopc.shard_map(
        ...     lambda x: x / uopc.axis_size("m"), mesh, uopc.P("m"), uopc.P("m"))(np.ones(4))
        array([0.25, 0.25, 0.25, 0.25])
    """
    found, axes = _axes("axis_size", axis_name)
    return found.mesh.parts(axes)
