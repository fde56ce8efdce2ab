"""The shape of a value, by the rule its op's row names. Cached on the node, never recursive."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from uopc.errors import UserError
from uopc.ir.core.dtype_rules import tuple_elements
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, set_shape
from uopc.ir.core.walk import sweep

Dim = Any  # int | UOp; a union would make every arithmetic expression on it a type puzzle
Shape = tuple[Dim, ...]


def shape(u: UOp) -> Shape:
    """The dimensions of a value: ints, or UOps of dtype index. Effects have the shape ().

    Examples:
        >>> n = uopc.variable("n", 1, 8)
        >>> x = uopc.param("x", (n, 3))
        >>> x.shape == (n, 3), x.sum().shape
        (True, ())
    """
    if u._shape is None:
        if None in [s._shape for s in u.src]:  # mostly they have it
            return sweep(u, "_shape", _shape)  # type: ignore[no-any-return]
        set_shape(u, _shape(u))
    return u._shape  # type: ignore[no-any-return]


def with_dims(dims: Iterable[int | None], symbolic: Iterable[UOp]) -> Shape:
    """The dimensions of an arg, with each None replaced by the next source."""
    if type(dims) is tuple and None not in dims:
        return dims
    if type(dims) is not tuple:
        raise UserError(f"the dimensions are {dims!r}, expected integers or None")
    rest = iter(symbolic)
    return tuple([next(rest) if d is None else d for d in dims])


def _shape(u: UOp) -> Shape:
    """The shape by the op's rule; UserError if the operands or the arg do not fit."""
    return RULES[u.op.shape](u)


class SizesDiffer(UserError):
    """Raised where sizes must be equal, and are not. `pairs` has these sizes, if a size is
    symbolic, so that a caller may require that they are equal at each call."""

    def __init__(self, text: str, pairs: Iterable[tuple[Dim, Dim]] = ()) -> None:
        super().__init__(text)
        found = list(pairs)
        both = [isinstance(d, int) and isinstance(e, int) for d, e in found]
        self.pairs = [] if any(both) else found


def differing(a: Shape, b: Shape) -> list[int]:
    """The axes along which two shapes of one rank differ."""
    return [i for i, (d, e) in enumerate(zip(a, b)) if d != e]


def renamed_axis(a: Shape, b: Shape) -> int | None:
    """The only axis along which two shapes of one rank differ; None if there is no such axis."""
    found = differing(a, b) if len(a) == len(b) else []
    return found[0] if len(found) == 1 else None


def broadcast(shapes: Iterable[Shape], who: str = "operands") -> Shape:
    """The common shape, right-aligned, size 1 repeating; UserError if there is none."""
    shapes = [s for s in shapes if s]  # scalars take any shape
    first = shapes[0] if shapes else ()
    if all([s == first for s in shapes]):
        return first
    rank = max(map(len, shapes))
    out: list[Dim] = []
    pairs: list[tuple[Dim, Dim]] = []
    for i in range(rank):
        column = [s[i - rank + len(s)] for s in shapes if i >= rank - len(s)]
        wide = [d for d in column if d != 1]
        chosen = wide[0] if wide else 1
        pairs += [(chosen, d) for d in wide if d != chosen]
        out.append(chosen)
    if pairs:
        shown = " and ".join(map(show, shapes))
        raise SizesDiffer(f"{who}: shapes {shown} do not broadcast", pairs)
    return tuple(out)


def show(dims: Shape) -> str:
    """A shape as text, e.g. (4, n)."""
    return "(" + ", ".join(str(d) if isinstance(d, int) else d.render() for d in dims) + ")"


def show_value(u: UOp) -> str:
    """The dtype and the shape of a value as text, e.g. float32(4, n)."""
    return f"{u.dtype.name}{show(shape(u))}"


# ---------------------------------------------------------------- a rule per kind of op
def check_fits(dims: Shape, whole: Shape, who: str = "") -> None:
    """UserError where `dims` does not broadcast to `whole`."""
    last = whole[len(whole) - len(dims) :]
    pairs = [(w, d) for d, w in zip(dims, last) if d not in (w, 1)]
    if len(dims) > len(whole) or pairs:
        text = f"{who}{show(dims)} does not broadcast to {show(whole)}"
        raise SizesDiffer(text, [] if len(dims) > len(whole) else pairs)


def _check_axes(axes: tuple[int, ...], rank: int) -> None:
    if len(set(axes)) != len(axes) or not all([0 <= a < rank for a in axes]):
        raise UserError(f"the axes are {axes}, expected different ones below {rank}")


def _reshape(u: UOp) -> Shape:
    dims = with_dims(u.arg, u.src[1:])
    if len(u.src) == 1:
        before, after = size(shape(u.src[0])), size(dims)
        if type(before) is int and before != after:
            raise UserError(f"{after} elements, expected {before}")
    return dims


def _expand(u: UOp) -> Shape:
    dims = with_dims(u.arg, u.src[1:])
    check_fits(shape(u.src[0]), dims)
    return dims


def _permute(u: UOp) -> Shape:
    dims = shape(u.src[0])
    if sorted(u.arg) != list(range(len(dims))):
        raise UserError(f"the arg is {u.arg}, expected a permutation of {len(dims)} axes")
    return tuple([dims[i] for i in u.arg])


def _flip(u: UOp) -> Shape:
    dims = shape(u.src[0])
    _check_axes(u.arg, len(dims))
    return dims


def window(u: UOp) -> tuple[Shape, Shape]:
    """The begins and sizes of a PAD or SHRINK."""
    both = with_dims(u.arg, u.src[1:])
    rank = len(both) // 2
    return both[:rank], both[rank:]


def _window(u: UOp) -> Shape:
    dims = shape(u.src[0])
    rank = len(dims)
    if len(u.arg) != 2 * rank:
        wanted = f"expected a begin and a size for each of {rank} dimensions"
        raise UserError(f"{len(u.arg)} numbers, {wanted}")
    begins, sizes = window(u)
    inner, outer = (dims, sizes) if u.op.name == "pad" else (sizes, dims)
    for begin, size, whole in zip(begins, inner, outer):
        _check_part(begin, size, whole)
    return sizes


def _slice(u: UOp) -> Shape:
    if len(u.arg) != 2:
        raise UserError(f"{len(u.arg)} numbers, expected an offset and a size")
    begin, count = u.arg
    _check_part(begin, count, size(shape(u.src[0])))
    return (count,)


def _check_part(begin: Dim, size: Dim, whole: Dim) -> None:
    """UserError if numbers show that the part from `begin`, of `size`, is not inside of `whole`."""
    if type(begin) is type(size) is type(whole) is int:
        fits = begin >= 0 <= size and begin + size <= whole
    else:
        fits = all([type(d) is not int or d >= 0 for d in (begin, size, whole)])
    if not fits:
        part = f"{show((size,))} elements from {show((begin,))} on"
        raise UserError(f"{part} are not inside {show((whole,))}")


def _check_alike(u: UOp, free: int | None = None) -> Shape:
    """The shape of the first operand. UserError if another operand differs, except along axis
    `free`."""
    first, *others = [shape(s) for s in u.src]
    for number, dims in enumerate(others, 2):
        pairs = [(first[i], dims[i]) for i in differing(first, dims) if i != free]
        if len(dims) != len(first) or pairs:
            text = f"operand {number} has shape {show(dims)}, the first {show(first)}"
            raise SizesDiffer(text, pairs if len(dims) == len(first) else [])
    return first


def _stack(u: UOp) -> Shape:
    return () if u.dtype.lanes > 1 else (len(u.src), *_check_alike(u))


def _cat(u: UOp) -> Shape:
    rank = len(shape(u.src[0]))
    if not 0 <= u.arg < rank:
        raise UserError(f"the axis is {u.arg}, expected an axis below {rank}")
    dims = list(_check_alike(u, u.arg))
    dims[u.arg] = sum([shape(s)[u.arg] for s in u.src[1:]], dims[u.arg])
    return tuple(dims)


def _reduce(u: UOp) -> Shape:
    dims, axes = shape(u.src[0]), u.arg.axes
    _check_axes(axes, len(dims))
    return tuple([d for i, d in enumerate(dims) if i not in axes])


def _accumulate(u: UOp) -> Shape:
    dims = shape(u.src[0])
    _check_axes(u.arg.axes, len(dims))
    if len(u.arg.axes) != 1:
        raise UserError(f"the axes are {u.arg.axes}, expected one axis")
    return dims


def _index(u: UOp) -> Shape:
    rest = shape(u.src[0])[len(u.src) - 1 :]
    return (*broadcast([shape(s) for s in u.src[1:]], "indices"), *rest) if len(u.src) > 1 else rest


def _store(u: UOp) -> Shape:
    for value in u.src[1:]:
        check_fits(shape(value), shape(u.src[0]))
    return ()


def _bitcast(u: UOp) -> Shape:
    dims = shape(u.src[0])
    before, after = [t.itemsize * t.lanes for t in (u.src[0].dtype, u.dtype)]
    if before == after:
        return dims
    if not dims or (isinstance(dims[-1], int) and dims[-1] * before % after):
        raise UserError(f"{show(dims)} of {before} bytes does not divide into {after} bytes")
    return (*dims[:-1], dims[-1] * before // after)


def _stage(u: UOp) -> Shape:
    if len(u.src) == 1:
        return shape(u.src[0])
    for r in u.src[1:]:
        if r.op is not Ops.RANGE:
            raise UserError(f"stage: expected ranges, got {r.op.name}")
    ends = [r.src[0] for r in u.src[1:]]
    return (*[e.arg if e.op is Ops.CONST else e for e in ends], *shape(u.src[0]))


def _part(u: UOp) -> Shape:
    values = tuple_elements(u.src[0])
    if not 0 <= u.arg < len(values):
        raise UserError(f"the part is {u.arg}, expected a part below {len(values)}")
    return shape(values[u.arg])


def _exchanged(u: UOp) -> Shape:
    """The shape of an exchange. Check that the first dimension of the operand has a part per
    device."""
    dims = shape(u.src[0])
    if not dims or dims[0] != u.arg.parts:
        raise UserError(f"the shape is {show(dims)}, expected {u.arg.parts} parts first")
    return dims


RULES: dict[str, Callable[[UOp], Shape]] = {
    "scalar": lambda u: (),
    "none": lambda u: (),
    "first": lambda u: shape(u.src[0]),
    "broadcast": lambda u: broadcast([s._shape for s in u.src], u.op.name),
    "iota": lambda u: with_dims(u.arg, u.src),
    "storage": lambda u: with_dims(u.arg.dims, u.src),
    "reshape": _reshape,
    "expand": _expand,
    "permute": _permute,
    "flip": _flip,
    "window": _window,
    "stack": _stack,
    "cat": _cat,
    "reduce": _reduce,
    "accumulate": _accumulate,
    "index": _index,
    "store": _store,
    "bitcast": _bitcast,
    "stage": _stage,
    "product": lambda u: broadcast([s._shape for s in u.src[:2]], u.op.name),
    "slice": _slice,
    "part": _part,
    "alike": _check_alike,
    "scattered": lambda u: _exchanged(u)[1:],
    "gathered": lambda u: (u.arg.parts, *shape(u.src[0])),
    "exchanged": _exchanged,
}


def rank(u: UOp) -> int:
    """The number of dimensions.

    Examples:
        >>> uopc.zeros((2, 3)).ndim
        2
    """
    return len(shape(u))


MOST_DIMS = 64  # as NumPy's arrays
MOST_ELEMENTS = 1 << 60  # so that offsets in bytes have 64 bits


def check_size(dims: Shape) -> None:
    """UserError for a negative dimension, too many of them, or too many elements."""
    if len(dims) > MOST_DIMS:
        raise UserError(f"{len(dims)} dimensions, expected at most {MOST_DIMS}")
    total = 1
    for d in dims:
        if type(d) is int:
            if d < 0:
                raise UserError(f"the shape is {show(dims)}, expected no negative dimension")
            total *= max(d, 1)  # arrays without elements have strides, too
    if total > MOST_ELEMENTS:
        raise UserError(f"the shape is {show(dims)}, expected at most 2**60 elements")


def size(dims: Shape) -> Dim:
    """The number of elements of a shape."""
    return math.prod(dims)
