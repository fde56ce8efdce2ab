"""Builders of movement ops, REDUCE and INDEX, checked and folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from uopc.errors import UserError, UserIndexError, UserTypeError
from uopc.ir.builder import alu, checks, fold, leaves, operands
from uopc.ir.builder.leaves import located, split_dims
from uopc.ir.builder.operands import as_dim
from uopc.ir.core import dtypes, shapes, storage
from uopc.ir.core.args import ReduceArg, ReduceOp
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.shapes import Dim, Shape, show
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, size_conditions
from uopc.ir.index.dims import dim_uop, uop_dim


def flat_args(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """(2, 3) and ((2, 3),) both mean (2, 3)."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        return tuple(args[0])
    return args


def _moved(op: Op, a: UOp, dims: Shape) -> UOp:
    arg, symbolic = split_dims(dims)
    made = located(intern(op, a.dtype, (a, *symbolic), arg))
    if symbolic:
        size_conditions.unproved(made)  # UserError where no sizes fit
    return made


def _relying(op: Op, a: UOp, dims: Shape) -> UOp | None:
    """The node, if it relies on a condition that folding with another node would lose."""
    if _is_fixed(dims) and _is_fixed(shapes.shape(a)):
        return None
    arg, symbolic = split_dims(dims)
    made = intern(op, a.dtype, (a, *symbolic), arg)
    return located(made) if size_conditions.unproved(made) else None


def _is_fixed(dims: Shape) -> bool:
    return all([type(d) is int for d in dims])


def _relies(a: UOp) -> bool:
    return not _is_fixed(shapes.shape(a)) and bool(size_conditions.unproved(a))


def reshape(a: UOp, *new_shape: Any) -> UOp:
    """The same elements in row-major order under `new_shape`. A dimension of -1 follows from
    the others.

    UserError if the number of elements changes.

    Examples:
        >>> x = uopc.arange(6)
        >>> uopc.compile(x.reshape(2, -1))()
        array([[0, 1, 2],
               [3, 4, 5]], dtype=int32)
    """
    dims = [as_dim(d) for d in flat_args(new_shape)]
    old = shapes.shape(a)
    if dims.count(-1) > 1:
        raise UserError(f"reshape: only one dimension may be -1, got {show(tuple(dims))}")
    if -1 in dims:
        dims[dims.index(-1)] = _missing(old, [d for d in dims if d != -1])
    target = tuple(dims)
    if any(isinstance(d, int) and d < 0 for d in target):
        raise UserError(f"reshape: negative dimension in {show(target)}")
    if target == old:
        return a
    before, after = shapes.size(old), shapes.size(target)
    if isinstance(before, int) and isinstance(after, int) and before != after:
        raise UserError(f"reshape: {show(old)} has {before} elements, {show(target)} has {after}")
    relying = _relying(Ops.RESHAPE, a, target)
    if relying is not None:
        return relying
    value = leaves.filling(a)
    if value is not None:
        return leaves.full(value, target)
    if a.op is Ops.RESHAPE and not _relies(a):
        return reshape(a.src[0], target)
    return _moved(Ops.RESHAPE, a, target)


def _missing(old: Shape, known: list[Dim]) -> Dim:
    total, rest = shapes.size(old), shapes.size(tuple(known))
    if isinstance(total, int) and isinstance(rest, int):
        if rest == 0 or total % rest:
            raise UserError(f"reshape: the {total} elements of {show(old)} do not divide by {rest}")
        return total // rest
    return uop_dim(affine.floordiv(dim_uop(total), dim_uop(rest)))


def expand(a: UOp, *new_shape: Any) -> UOp:
    """Broadcast to the full target shape; -1 keeps a dimension.

    UserError if a size other than 1 changes.

    Examples:
        >>> x = uopc.constant([[1], [2]])
        >>> uopc.compile(x.expand(-1, 3))()
        array([[1, 1, 1],
               [2, 2, 2]])
    """
    dims = [as_dim(d) for d in flat_args(new_shape)]
    old = shapes.shape(a)
    if len(dims) < len(old):
        raise UserError(f"expand: {show(old)} has more dimensions than {show(tuple(dims))}")
    padded = (1,) * (len(dims) - len(old)) + old
    target = tuple([o if d == -1 else d for d, o in zip(dims, padded)])
    shapes.check_fits(old, target, "expand: ")
    if target == old:
        return a
    if a.op is Ops.EXPAND and not _relies(a):
        return expand(a.src[0], target)
    return _moved(Ops.EXPAND, a, target)


def permute(a: UOp, *axes: Any) -> UOp:
    """Dimension i of the result is dimension axes[i] of `a`.

    UserError unless each axis appears once.

    Examples:
        >>> uopc.zeros((2, 3, 4)).permute(2, 0, 1).shape
        (4, 2, 3)
    """
    old = shapes.shape(a)
    order = tuple([normal_axis(x, len(old), "permute") for x in flat_args(axes)])
    if sorted(order) != list(range(len(old))):
        raise UserError(f"permute: {order} is not a permutation of the axes of {show(old)}")
    if order == tuple(range(len(old))):
        return a
    value = leaves.filling(a)
    if value is not None:
        return leaves.full(value, tuple([old[i] for i in order]))
    if a.op is Ops.PERMUTE:
        return permute(a.src[0], tuple([a.arg[i] for i in order]))
    return located(intern(Ops.PERMUTE, a.dtype, (a,), order))


def permute_back(a: UOp, axes: Sequence[int]) -> UOp:
    """The value that becomes `a` by `permute` with these axes."""
    return permute(a, tuple([axes.index(i) for i in range(len(axes))]))


def swapped(a: UOp) -> UOp:
    """The first two dimensions in the other order."""
    return permute(a, (1, 0, *range(2, len(shapes.shape(a)))))


def repeated(a: UOp, n: Dim) -> UOp:
    """`a` repeated n times along a new first dimension."""
    dims = shapes.shape(a)
    return expand(reshape(a, (1, *dims)), (n, *dims))


def under(view: UOp, value: UOp) -> UOp:
    """The values at the elements of a view's source, from the values at the elements of the view;
    zeros at elements that the view does not show. Nodes other than RESHAPE, PERMUTE, FLIP, SHRINK
    and PAD show all elements in order."""
    dims = shapes.shape(view.src[0])
    if view.op is Ops.RESHAPE:
        return reshape(value, dims)
    if view.op is Ops.PERMUTE:
        return permute_back(value, view.arg)
    if view.op is Ops.FLIP:
        return flip(value, view.arg)
    if view.op is Ops.SHRINK:
        begins, sizes = shapes.window(view)
        return pad(value, [(b, d - b - n) for b, d, n in zip(begins, dims, sizes)])
    if view.op is Ops.PAD:
        return window(value, shapes.window(view)[0], dims)
    return value


def flip(a: UOp, *axes: Any) -> UOp:
    """Reverse the axes: a tuple, or several ints; `flip(())` reverses none.

    UserTypeError without an argument, which reverses all axes in NumPy, and none in other
    libraries.

    Examples:
        >>> x = uopc.constant([[1, 2], [3, 4]])
        >>> uopc.compile(x.flip(1))()
        array([[2, 1],
               [4, 3]])
    """
    if not axes:
        raise UserTypeError("flip: name the axes; x.flip(*range(x.ndim)) reverses all")
    dims = shapes.shape(a)
    rank = len(dims)
    chosen = tuple(sorted({normal_axis(x, rank, "flip") for x in flat_args(axes)}))
    chosen = tuple([x for x in chosen if rank and dims[x] != 1])
    if not chosen or leaves.filling(a) is not None:
        return a
    return located(intern(Ops.FLIP, a.dtype, (a,), chosen))


def pad(a: UOp, widths: Sequence[tuple[Any, Any]], value: Any = 0) -> UOp:
    """Add `before` and `after` elements per axis, filled with `value`.

    One pair for each axis; UserError for a negative width.

    Examples:
        >>> x = uopc.constant([1, 2])
        >>> uopc.compile(x.pad([(1, 2)], value=9))()
        array([9, 1, 2, 9, 9])
    """
    dims = shapes.shape(a)
    widths = checks.pairs("pad", widths, len(dims))
    before = [as_dim(w[0]) for w in widths]
    after = [as_dim(w[1]) for w in widths]
    if any(isinstance(w, int) and w < 0 for w in (*before, *after)):
        raise UserError(f"pad: negative width in {tuple(widths)}; use shrink")
    if all(w == 0 for w in (*before, *after)):
        return a
    sizes = [as_dim(b + d + e) for b, d, e in zip(before, dims, after)]
    padding = leaves.const(a.dtype, value)
    if leaves.constant_in(a) is padding:
        return leaves.full(padding, tuple(sizes))
    padded = _moved(Ops.PAD, a, (*before, *sizes))
    if padding is leaves.const(a.dtype, 0):
        return padded
    everywhere = leaves.full(leaves.const(dtypes.bool_, True), dims)
    inside = _moved(Ops.PAD, everywhere, (*before, *sizes))
    return alu.where(inside, padded, padding)


def shrink(a: UOp, bounds: Sequence[tuple[Any, Any]]) -> UOp:
    """The part of `a` with begin ≤ index < end on each axis.

    One pair for each axis; UserError if a pair is not inside.

    Examples:
        >>> x = uopc.constant([1, 2, 3, 4])
        >>> uopc.compile(x.shrink([(1, 3)]))()
        array([2, 3])
    """
    dims = shapes.shape(a)
    bounds = checks.pairs("shrink", bounds, len(dims))
    begins = [as_dim(b) for b, _ in bounds]
    sizes = [as_dim(as_dim(e) - b) for (_, e), b in zip(bounds, begins)]
    for b, s, d in zip(begins, sizes, dims):
        bad_begin = isinstance(b, int) and b < 0
        too_long = all(isinstance(v, int) for v in (b, s, d)) and b + s > d
        if bad_begin or too_long or (isinstance(s, int) and s < 0):
            raise UserError(f"shrink: {tuple(bounds)} is not inside {show(dims)}")
    return window(a, begins, sizes)


def window(a: UOp, begins: Sequence[Dim], sizes: Sequence[Dim]) -> UOp:
    """The part of `a` that begins at `begins` and has sizes `sizes`."""
    dims = shapes.shape(a)
    if tuple(sizes) == dims and all(b == 0 for b in begins):
        return a
    part = part_of(a, begins, sizes)
    if part is not None:
        return part
    made = _moved(Ops.SHRINK, a, (*begins, *sizes))
    value = leaves.filling(a)
    if value is not None and fold.is_inside(made) and not _relies(made):
        return leaves.full(value, tuple(sizes))
    return made


def row(a: UOp, i: int, axis: int = 0) -> UOp:
    """The part of `a` at index i of an axis, without the axis."""
    dims = shapes.shape(a)
    begins = [i if d == axis else 0 for d in range(len(dims))]
    part = window(a, begins, (*dims[:axis], 1, *dims[axis + 1 :]))
    return reshape(part, (*dims[:axis], *dims[axis + 1 :]))


def part_of(
    a: UOp, begins: Sequence[Dim], sizes: Sequence[Dim], computed: bool = False
) -> UOp | None:
    """The window of a STACK, CAT or PAD that lies in one of its parts, as a window of that part:
    (stack a, b)[1:2] → b as one row; (cat a, b)[:len(a)] → a; (pad a)[inside] → a. None if the
    window lies in no single part, or if a size is symbolic.

    A window of a computed part of a CAT stays a window of the CAT, unless `computed`: several reads
    store the CAT, and the part would be stored again. `computed` also looks below a SHRINK.
    """
    dims = shapes.shape(a)
    if not _is_fixed((*begins, *sizes, *dims)) or 0 in sizes:
        return None
    if a.op is Ops.PERMUTE:
        inner = {axis: (b, s) for axis, b, s in zip(a.arg, begins, sizes)}
        windows = [inner[axis] for axis in range(len(dims))]
        part = part_of(a.src[0], [b for b, _ in windows], [s for _, s in windows], computed)
        if part is None:
            return None
        long = [axis for axis in a.arg if windows[axis][1] != 1]
        return reshape(part, tuple(sizes)) if long == sorted(long) else permute(part, a.arg)
    if a.op is Ops.STACK and sizes[0] == 1:
        part = _window_of_part(a.src[begins[0]], begins[1:], sizes[1:], computed)
        return reshape(part, tuple(sizes))
    if a.op is Ops.CAT:
        return _part_of_cat(a, begins, sizes, computed)
    if a.op is Ops.SHRINK and computed and fold.is_inside(a):
        moved = [b + f for b, f in zip(begins, shapes.window(a)[0])]
        return _window_of_part(a.src[0], moved, sizes, computed)
    return _part_of_pad(a, begins, sizes, computed) if a.op is Ops.PAD else None


def _window_of_part(a: UOp, begins: Sequence[Dim], sizes: Sequence[Dim], computed: bool) -> UOp:
    """The window of a part, taken from one of the part's own parts if it lies in one."""
    part = part_of(a, begins, sizes, computed) if computed else None
    return window(a, begins, sizes) if part is None else part


def _part_of_cat(
    a: UOp, begins: Sequence[Any], sizes: Sequence[Any], computed: bool
) -> UOp | None:
    axis, end = a.arg, 0
    for s in a.src:
        begin, length = end, shapes.shape(s)[axis]
        if type(length) is not int:
            return None
        end += length
        if begin <= begins[axis] and begins[axis] + sizes[axis] <= end:
            inner = [*begins[:axis], begins[axis] - begin, *begins[axis + 1 :]]
            if computed or _is_in_memory(s):
                return _window_of_part(s, inner, sizes, computed)
            return None
    return None


def _is_in_memory(a: UOp) -> bool:
    """True for elements of storage, and for constants: reading them costs a load at most."""
    a = storage.base(a)
    return a.op.is_storage or a.op is Ops.CONST


def _part_of_pad(
    a: UOp, begins: Sequence[Any], sizes: Sequence[Any], computed: bool
) -> UOp | None:
    """A window of a PAD as a window of its data or of its zeros; None if it has both."""
    before, inner = shapes.window(a)[0], shapes.shape(a.src[0])
    if not _is_fixed((*before, *inner)):
        return None
    moved = [b - w for b, w in zip(begins, before)]
    if any([m + s <= 0 or m >= d for m, s, d in zip(moved, sizes, inner)]):
        return leaves.full(leaves.const(a.dtype, 0), tuple(sizes))
    if all([m >= 0 and m + s <= d for m, s, d in zip(moved, sizes, inner)]):
        return _window_of_part(a.src[0], moved, sizes, computed)
    return None


def normal_axis(axis: Any, rank: int, who: str) -> int:
    """`axis` counted from the front; UserIndexError when it is out of range."""
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise UserTypeError(f"{who}: an axis must be an int, got {axis!r}")
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise UserIndexError(f"{who}: axis {axis} is out of range for {rank} dimensions")
    return axis % rank if rank else 0


def normal_axes(axis: Any, rank: int, who: str) -> tuple[int, ...]:
    """The axes, sorted and counted from the front. `axis` is None (all), one axis, or several."""
    if axis is None:
        return tuple(range(rank))
    chosen = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = sorted(normal_axis(x, rank, who) for x in chosen)
    if len(set(axes)) != len(axes):
        raise UserError(f"{who}: axis given twice in {axis}")
    return tuple(axes) if rank else ()


def reduce(a: UOp, op: Op | ReduceOp, axes: Any = None, keepdims: bool = False) -> UOp:
    """Combine the elements along `axes` (default all) with add, mul, max or min. In a kernel
    written by hand the axes may be RANGEs: `(a[i, k] * b[k, j]).reduce(Ops.ADD, k)`. The dtype
    stays; the axes go, or have size 1 with keepdims. UserError for another op, and for ranges
    together with axes.

    Examples:
        >>> x = uopc.constant([[1, 2], [3, 4]])
        >>> uopc.compile(x.reduce("mul", 0))()
        array([3, 8])
    """
    name = cast(ReduceOp, op.name if isinstance(op, Op) else op)
    if not isinstance(name, str) or name not in ("add", "mul", "max", "min"):
        raise UserError(f"reduce: op must be add, mul, max or min, got {name}")
    keepdims = checks.flag("reduce", "keepdims", keepdims)
    loops = axes if isinstance(axes, (tuple, list)) else (axes,)
    if any(isinstance(r, UOp) and r.op is Ops.RANGE for r in loops):
        if keepdims or not all(isinstance(r, UOp) and r.op is Ops.RANGE for r in loops):
            raise UserError("reduce: a reduce over ranges takes ranges only, and no keepdims")
        return located(intern(Ops.REDUCE, a.dtype, (a, *dict.fromkeys(loops)), ReduceArg(name)))
    dims = shapes.shape(a)
    chosen = normal_axes(axes, len(dims), "reduce")
    kept = tuple([1 if i in chosen else d for i, d in enumerate(dims)])
    result = a
    if chosen:
        made = intern(Ops.REDUCE, a.dtype, (a,), ReduceArg(name, chosen))
        folded = fold.of_constant(made)
        result = located(made) if folded is None else folded
    return reshape(result, kept) if keepdims else result


def stack(first: UOp, *others: Any, axis: int = 0) -> UOp:
    """Values of one shape along a new axis.

    As a function or a method: `uopc.stack(a, b)` is `a.stack(b)`. The dtypes are promoted;
    UserError where the shapes differ.

    Examples:
        >>> a, b = uopc.constant([1, 2]), uopc.constant([3, 4])
        >>> uopc.compile(uopc.stack(a, b, axis=1))()
        array([[1, 3],
               [2, 4]])
    """
    values = _promoted("stack", (first, *others))
    made = _stack_or_cat(intern(Ops.STACK, values[0].dtype, tuple(values)))
    rank = len(shapes.shape(made))
    order = list(range(1, rank))
    order.insert(normal_axis(axis, rank, "stack"), 0)
    return permute(made, tuple(order))


def cat(first: UOp, *others: Any, axis: int = 0) -> UOp:
    """Values one after the other along an axis.

    As a function or a method: `uopc.cat(a, b)` is `a.cat(b)`. The dtypes are promoted; UserError
    where the shapes differ off the axis, and for scalars.

    Examples:
        >>> a, b = uopc.constant([[1, 2]]), uopc.constant([[3, 4], [5, 6]])
        >>> uopc.compile(uopc.cat(a, b))()
        array([[1, 2],
               [3, 4],
               [5, 6]])
    """
    values = _promoted("cat", (first, *others))
    dims = shapes.shape(values[0])
    if not dims:
        raise UserError("cat: scalars have no axis; use stack")
    made = intern(Ops.CAT, values[0].dtype, tuple(values), normal_axis(axis, len(dims), "cat"))
    return _stack_or_cat(made) if len(values) > 1 else values[0]


def _stack_or_cat(made: UOp) -> UOp:
    """A new STACK or CAT; a constant if all parts are the same constant."""
    made = leaves.fitting(made)
    constants = {leaves.constant_in(part) for part in made.src}
    value = constants.pop()
    return made if value is None or constants else leaves.full(value, shapes.shape(made))


def _promoted(who: str, values: tuple[Any, ...]) -> list[UOp]:
    typed = [v for v in values if isinstance(v, UOp)]
    if any(isinstance(v, (list, tuple)) for v in values):
        raise UserTypeError(f"{who}: pass the values one by one: {who}(a, b)")
    if not typed and bool in map(type, values):
        raise UserTypeError(f"{who}: a Python bool {operands.COMPARED}")
    nodes = [operands.as_uop(v, typed[0].dtype if typed else None, who) for v in values]
    common = nodes[0].dtype
    for v in nodes[1:]:
        common = dtypes.promote(common, v.dtype)
    return [fold.cast(v, common) for v in nodes]


def index(a: UOp, *indices: Any) -> UOp:
    """The element of `a` at integer indices, one per dimension; fewer indices give a row. Arrays of
    indices broadcast and give an array, as NumPy's integer indexing. UserError for an index that is
    outside (by the call, if it follows from variables), UserTypeError for a float. An index from
    data that is outside reads 0.

    Examples:
        >>> x = uopc.constant([[1, 2], [3, 4]])
        >>> uopc.compile(x.index(1, 0))(), uopc.compile(x.index(np.array([1, 0])))()
        (array(3), array([[3, 4],
               [1, 2]]))
    """
    chosen = []
    for i in flat_args(indices):
        u = operands.as_uop(i, dtypes.index)
        if not u.dtype.is_integral and u.op is not Ops.INVALID:
            raise UserTypeError(f"index: an index must be an integer, got {u.dtype.name}")
        chosen.append(u if u.op is Ops.INVALID else fold.cast(u, dtypes.index))
    if len(chosen) > len(shapes.shape(a)):
        raise UserError(f"index: {len(chosen)} indices for shape {show(shapes.shape(a))}")
    made = leaves.fitting(intern(Ops.INDEX, a.dtype, (a, *chosen)))
    size_conditions.unproved(made)  # UserError where an index is outside
    return made
