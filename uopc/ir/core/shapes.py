"""The shape of a value, by its op's rule. Cached on the node, never recursive."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from uopc.errors import UserError
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.core.walk import sweep

Dim = Any  # int | UOp; a union would make every arithmetic expression on it a type puzzle
Shape = tuple[Dim, ...]


# ---------------------------------------------------------------- shape
def shape(u: UOp) -> Shape:
    """The dimensions of a value: ints, or UOps of dtype index. Effects have the shape ()."""
    if u._shape is None:
        if None in [s._shape for s in u.src]:  # mostly they have it
            return sweep(u, "_shape", _shape)  # type: ignore[no-any-return]
        u._shape = _shape(u)
    return u._shape  # type: ignore[no-any-return]


def filled(dims: Iterable[int | None], symbolic: Iterable[UOp]) -> Shape:
    """The dimensions of an arg, with the sources put where it has None."""
    if type(dims) is tuple and None not in dims:
        return dims
    rest = iter(symbolic)
    return tuple([next(rest) if d is None else d for d in dims])


def _shape(u: UOp) -> Shape:
    return _SHAPE_RULES[u.op.shape](u)


def broadcast(shapes: Iterable[Shape], who: str = "operands") -> Shape:
    """The common shape, right-aligned, size 1 repeating; UserError when there is none."""
    shapes = [s for s in shapes if s]  # scalars take any shape
    first = shapes[0] if shapes else ()
    if all([s is first or s == first for s in shapes]):
        return first
    rank = max(map(len, shapes))
    out: list[Dim] = []
    for i in range(rank):
        column = [s[i - rank + len(s)] for s in shapes if i >= rank - len(s)]
        wide = [d for d in column if not (type(d) is int and d == 1)]
        chosen = wide[0] if wide else 1
        if any(d is not chosen and d != chosen for d in wide):
            raise UserError(f"{who}: shapes {' and '.join(map(show, shapes))} do not broadcast")
        out.append(chosen)
    return tuple(out)


def show(dims: Shape) -> str:
    """A shape as text, e.g. (4, n)."""
    return "(" + ", ".join(str(d) if isinstance(d, int) else d.render() for d in dims) + ")"


def _shape_broadcast(u: UOp) -> Shape:
    return broadcast([s._shape for s in u.src], u.op.name)


def _shape_arg(u: UOp) -> Shape:
    return filled(u.arg, u.src[1:] if u.op is not Ops.IOTA else u.src)


def _shape_storage(u: UOp) -> Shape:
    return filled(u.arg.dims, u.src)


def _shape_permute(u: UOp) -> Shape:
    dims = shape(u.src[0])
    return tuple([dims[i] for i in u.arg])


def window(u: UOp) -> tuple[Shape, Shape]:
    """The begins and sizes of a PAD or SHRINK."""
    both = filled(u.arg, u.src[1:])
    rank = len(both) // 2
    return both[:rank], both[rank:]


def _shape_window(u: UOp) -> Shape:
    return window(u)[1]


def _shape_stack(u: UOp) -> Shape:
    return () if u.dtype.lanes > 1 else (len(u.src), *shape(u.src[0]))


def _shape_cat(u: UOp) -> Shape:
    dims = list(shape(u.src[0]))
    dims[u.arg] = sum((shape(s)[u.arg] for s in u.src[1:]), dims[u.arg])
    return tuple(dims)


def _shape_reduce(u: UOp) -> Shape:
    return tuple([d for i, d in enumerate(shape(u.src[0])) if i not in u.arg.axes])


def _shape_index(u: UOp) -> Shape:
    rest = shape(u.src[0])[len(u.src) - 1 :]
    return (*broadcast([shape(s) for s in u.src[1:]], "index"), *rest) if len(u.src) > 1 else rest


def _shape_bitcast(u: UOp) -> Shape:
    dims = shape(u.src[0])
    before, after = u.src[0].dtype.itemsize, u.dtype.itemsize
    if before == after:
        return dims
    return (*dims[:-1], dims[-1] * before // after)


def _shape_tuple(u: UOp) -> Shape:
    body = u.src[0].src[0] if u.src[0].op is Ops.CALL else u.src[0]
    return shape(body.src[u.arg])


_SHAPE_RULES: dict[str, Callable[[UOp], Shape]] = {
    "scalar": lambda u: (),
    "none": lambda u: (),
    "first": lambda u: shape(u.src[0]),
    "broadcast": _shape_broadcast,
    "arg": _shape_arg,
    "storage": _shape_storage,
    "expand": _shape_arg,
    "permute": _shape_permute,
    "pad": _shape_window,
    "shrink": _shape_window,
    "stack": _shape_stack,
    "cat": _shape_cat,
    "reduce": _shape_reduce,
    "index": _shape_index,
    "bitcast": _shape_bitcast,
    "function": lambda u: (),
    "slice": lambda u: (u.arg[1],),
    "tuple": _shape_tuple,
}


def rank(u: UOp) -> int:
    """The number of dimensions."""
    return len(shape(u))


def size(dims: Shape) -> Dim:
    """The number of elements of a shape."""
    return math.prod(dims)
