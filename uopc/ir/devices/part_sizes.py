"""Sizes of the parts of dimensions that are cut over a mesh, as each device knows them.

If the size of a dimension is a number, all devices have equally many elements, with padding at the
end if the number is uneven. If the size is a variable n, cut p ways, a device has only its own
elements. Its program has the variables `n_over_p` (the elements of the first part), `n_on_axis` (of
its own part) and `n_before_axis` (of the parts before).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from uopc.ir.core import bounds, dtypes, walk
from uopc.ir.core.args import VariableArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, Shape
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices.mesh import Axes, Mesh, Spec, coordinate, part_size
from uopc.ir.index import affine, monomials
from uopc.ir.index.dims import dim_uop, uop_dim


class PartSizes:
    """The sizes of parts over one mesh. `values`: the value of each new variable, from the
    variables of the whole program and the coordinates of the device."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.values: dict[UOp, UOp] = {}
        # By a dimension and the number of its parts: what it is cut in multiples of; None: even.
        self._roots: dict[tuple[UOp, int], _Multiple | None] = {}
        self._most: dict[tuple[UOp, int], UOp] = {}
        self._here: dict[tuple[UOp, Axes], tuple[UOp, UOp]] = {}  # own elements, and those before
        self._there: dict[tuple[UOp, int, int], UOp] = {}  # own elements by place
        self._taken = {coordinate(a) for a in mesh.axis_names}

    def reserve(self, graph: UOp, cuts: Iterable[tuple[Dim, Axes]]) -> None:
        """Reserve the names in the graph, and cut these dimensions in parts: a multiple of a
        variable in multiples of the variable's parts."""
        self._taken |= {v.arg.name for v in walk.variables(graph)}
        symbolic = [(n, axes) for n, axes in cuts if axes and not isinstance(n, int)]
        for n, axes in sorted(symbolic, key=lambda cut: cut[0].op is not Ops.VARIABLE):
            self._multiple(n, self.mesh.parts(axes))

    # ------------------------------------------------------------ of this device
    def size(self, n: Dim, axes: Axes) -> Dim:
        """The number of elements on this device, for a dimension of n cut along these axes."""
        found = self._multiple(n, self.mesh.parts(axes))
        if found is None:
            return part_size(n, self.mesh.parts(axes))
        return uop_dim(affine.mul(found.times, self._of_device(found.root, axes)[0]))

    def dims(self, dims: Shape, spec: Spec) -> Shape:
        """The shape of this device's part of an array."""
        return tuple([self.size(d, axes) for d, axes in zip(dims, spec)])

    def most(self, n: Dim, axes: Axes) -> Dim:
        """The number of elements of the first part: every device sends this number."""
        found = self._multiple(n, self.mesh.parts(axes))
        if found is None:
            return part_size(n, self.mesh.parts(axes))
        return uop_dim(affine.mul(found.times, self._first(found.root, self.mesh.parts(axes))))

    def times(self, n: Dim, axes: Axes) -> int | None:
        """The number of elements that the sizes of all parts are multiples of; None if it is no
        constant."""
        found = self._multiple(n, self.mesh.parts(axes))
        return 1 if found is None else found.times.arg if affine.is_const(found.times) else None

    def begin(self, n: Dim, axes: Axes) -> UOp:
        """The begin of this device's part."""
        found = self._multiple(n, self.mesh.parts(axes))
        if found is None:
            return affine.mul(self.place(axes), dim_uop(self.size(n, axes)))
        return affine.mul(found.times, self._of_device(found.root, axes)[1])

    def place(self, axes: Axes) -> UOp:
        """The number of this device's part along these axes, in terms of its coordinates."""
        found = affine.const(0)
        for a in axes:
            n = self.mesh.shape[a]
            if n == 1:
                continue
            at = intern(Ops.VARIABLE, dtypes.index, (), VariableArg(coordinate(a), 0, n - 1))
            found = affine.add(affine.mul(found, affine.const(n)), at)
        return found

    def is_even(self, n: Dim, axes: Axes) -> bool:
        """True if parts along these axes have one size, without padding."""
        return self._multiple(n, self.mesh.parts(axes)) is None and self.mesh.divides(n, axes)

    def has_padding(self, n: Dim, axes: Axes) -> bool:
        """True if some part has padding at its end."""
        return isinstance(n, int) and not self.mesh.divides(n, axes)

    # ------------------------------------------------------------ of all devices of this process
    def at(self, n: Dim, axes: Axes, place: int) -> tuple[Dim, Dim]:
        """The begin of the part at `place`, and its number of elements without padding."""
        found = self._multiple(n, self.mesh.parts(axes))
        if found is not None:
            begin, size = self._part(found.root, axes, place)
            return uop_dim(affine.mul(found.times, begin)), uop_dim(affine.mul(found.times, size))
        size = part_size(n, self.mesh.parts(axes))
        if not isinstance(n, int) or not isinstance(size, int):
            return uop_dim(affine.scaled(dim_uop(size), place)), size
        first = min(n, place * size)
        return first, min(size, n - first)

    def variables(self, rank: int) -> dict[str, UOp]:
        """The values of the new variables on the device of this rank."""
        found = {coordinate(a): affine.const(i) for a, i in self.mesh.coordinates(rank).items()}
        for (root, axes), (own, before) in self._here.items():
            begin, size = self._part(root, axes, self.mesh.place(rank, axes))
            found |= {own.arg.name: size, before.arg.name: begin}
        return found

    def whole(self) -> dict[UOp, UOp]:
        """The variables along which a dimension is cut, as sums of all parts: parts stay inside,
        and each begins at the end of the previous one."""
        return {
            root: affine.add(*self._part(root, axes, self.mesh.parts(axes) - 1))
            for root, axes in reversed(self._here) if root.op is Ops.VARIABLE
        }  # fmt: skip

    def _part(self, root: UOp, axes: Axes, place: int) -> tuple[UOp, UOp]:
        """The begin and the number of elements of the part of `root` at `place`."""
        parts = self.mesh.parts(axes)
        begin, size = affine.const(0), self._first(root, parts)
        for i in range(1, place + 1):
            begin = affine.add(begin, size)
            key = root, parts, i
            if key not in self._there:
                value = _own(root, parts, affine.const(i))
                self._there[key] = self._made(f"{_name(root)}_over_{parts}_at_{i}", value)
            size = self._there[key]
        return begin, size

    # ------------------------------------------------------------ variables
    def _multiple(self, n: Dim, parts: int) -> _Multiple | None:
        """The dimension whose multiple n is; None if all devices have equally many elements."""
        if isinstance(n, int) or parts == 1:
            return None
        key = n, parts
        if key not in self._roots:
            self._roots[key] = self._new_multiple(n, parts)
        return self._roots[key]

    def _new_multiple(self, n: UOp, parts: int) -> _Multiple | None:
        for root, count in self._most:
            times = _times(n, root) if count == parts else None
            if times is not None:
                return _Multiple(times, root)
        if affine.is_multiple(n, parts):
            return None
        self._first(n, parts)
        return _Multiple(affine.const(1), n)

    def _first(self, root: UOp, parts: int) -> UOp:
        key = root, parts
        if key not in self._most:
            value = _first(root, parts)
            self._most[key] = self._made(f"{_name(root)}_over_{parts}", value)
        return self._most[key]

    def _of_device(self, root: UOp, axes: Axes) -> tuple[UOp, UOp]:
        key = root, axes
        if key not in self._here:
            parts, place, name = self.mesh.parts(axes), self.place(axes), _name(root)
            own = self._made(f"{name}_on_{'_'.join(axes)}", _own(root, parts, place))
            begin = affine.mul(place, _first(root, parts))
            begin = intern(Ops.MIN, dtypes.index, (begin, root))
            before = self._made(f"{name}_before_{'_'.join(axes)}", begin)
            self._here[key] = own, before
        return self._here[key]

    def _made(self, name: str, value: UOp) -> UOp:
        """A variable with this name and value."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        low, high = bounds.bounds(value)
        made = intern(Ops.VARIABLE, dtypes.index, (), VariableArg(name, int(low), int(high)))
        self.values[made] = value
        return made


class _Multiple(NamedTuple):
    """A dimension that is `times` the dimension `root`; each part of it is `times` a part of
    `root`."""

    times: UOp
    root: UOp


def _first(root: UOp, parts: int) -> UOp:
    return affine.floordiv(affine.plus(root, parts - 1), affine.const(parts))


def _own(root: UOp, parts: int, place: UOp) -> UOp:
    most = _first(root, parts)
    left = affine.sub(root, affine.mul(place, most))
    own = intern(Ops.MIN, dtypes.index, (most, left))
    return intern(Ops.MAX, dtypes.index, (affine.const(0), own))


def _times(n: UOp, root: UOp) -> UOp | None:
    """The factor n / root, if each term of n has the variable `root` once."""
    constant, terms = affine.form(n)
    if constant or not terms or root.op is not Ops.VARIABLE:
        return None
    found = affine.const(0)
    for m, k in terms.items():
        rest = monomials.factors(m)
        if rest.count(root) != 1:
            return None
        rest.remove(root)
        one = monomials.product(rest) if rest else affine.const(1)
        found = affine.add(found, affine.scaled(one, k))
    return found


def _name(root: UOp) -> str:
    return str(root.arg.name) if root.op is Ops.VARIABLE else "size"
