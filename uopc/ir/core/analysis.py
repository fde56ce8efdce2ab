"""Facts about nodes: order, shape, bounds, ranges. Cached on the node, never recursive.

Each fact of a node follows from the same fact of its sources. `_sweep` finds the nodes below a
root that lack the fact and visits them sources first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from uopc.errors import UserError
from uopc.ir.core import arrays as data
from uopc.ir.core import dtypes
from uopc.ir.core.node import kept
from uopc.ir.core.ops import Op, Ops

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

Dim = Any  # int | UOp; a union would make every arithmetic expression on it a type puzzle
Shape = tuple[Dim, ...]


def toposort(
    root: UOp, gate: Callable[[UOp], bool] | None = None, done: dict[UOp, None] | None = None
) -> dict[UOp, None]:
    """Every node below `root`, sources first, as an ordered set; `gate` says where to descend."""
    order: dict[UOp, None] = {} if done is None else done
    if root in order:
        return order
    around: list[tuple[UOp, Iterator[UOp]]] = []  # the nodes on the way, with their other sources
    u, sources = root, iter(root.src if gate is None or gate(root) else ())
    while True:
        for s in sources:
            if s not in order:
                if s.src and (gate is None or gate(s)):
                    around.append((u, sources))
                    u, sources = s, iter(s.src)
                    break
                order[s] = None
        else:
            order[u] = None
            if not around:
                return order
            u, sources = around.pop()


@kept
def order(root: UOp) -> Mapping[UOp, None]:
    """`toposort(root)`, kept."""
    return toposort(root)


def outside_kernels(root: UOp) -> Callable[[UOp], bool]:
    """A gate for walks of a tensor graph: the bodies of hand-written kernels are not entered."""
    return lambda u: u.op is not Ops.SINK or u is root


def _sweep(
    root: UOp, slot: str, compute: Callable[[UOp], Any], alone: Callable[[UOp], bool] | None = None
) -> Any:
    """Fill `slot` below `root` where it is None; some stand `alone`."""
    stack = [root]
    while stack:
        u = stack[-1]
        if getattr(u, slot) is not None:
            stack.pop()
            continue
        missing = [s for s in u.src if getattr(s, slot) is None]
        if missing and (alone is None or not alone(u)):
            stack.extend(missing)
        else:
            setattr(u, slot, compute(u))
            stack.pop()
    return getattr(root, slot)


# ---------------------------------------------------------------- shape
def shape(u: UOp) -> Shape:
    """The dimensions of a value: ints, or UOps of dtype index. Effects have the shape ()."""
    if u._shape is None:
        if None in [s._shape for s in u.src]:  # mostly they have it
            return _sweep(u, "_shape", _shape)  # type: ignore[no-any-return]
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


def size(dims: Shape) -> Dim:
    """The number of elements of a shape."""
    return math.prod(dims)


def max_dim(d: Dim) -> int:
    """The greatest value of a dimension."""
    return d if isinstance(d, int) else int(bounds(d)[1])


# ---------------------------------------------------------------- bounds
Bounds = tuple[Any, Any]


def bounds(u: UOp) -> Bounds:
    """(least, greatest) value of any element; for floats only constants are known exactly."""
    found = u._bounds
    return _sweep(u, "_bounds", _bounds, _is_unbounded) if found is None else found  # type: ignore[no-any-return]


def type_bounds(t: dtypes.DType) -> Bounds:
    """The bounds every value of the type has."""
    if t.kind == "float":
        return float("-inf"), float("inf")
    return (0, 0) if t.kind == "void" else t.bounds


def _is_unbounded(u: UOp) -> bool:
    return u.op not in (_BOUNDED_FLOATS if u.dtype.is_float else _BOUNDS_RULES)


def _bounds(u: UOp) -> Bounds:
    limits = type_bounds(u.dtype.scalar)
    if _is_unbounded(u):
        return limits
    low, high = _BOUNDS_RULES[u.op](u)
    # A fixed-width result that may leave its type wraps: nothing is known.
    if low < limits[0] or high > limits[1]:
        return limits
    return low, high


_BOUNDED_FLOATS = frozenset((
    Ops.CONST, Ops.WHERE, Ops.RESHAPE, Ops.EXPAND, Ops.CAST, Ops.STACK,
))  # fmt: skip


def _b(u: UOp, i: int) -> Bounds:
    return u.src[i]._bounds  # type: ignore[no-any-return]


def _bounds_const(u: UOp) -> Bounds:
    if type(u.arg) is tuple:
        return min(u.arg), max(u.arg)
    return u.arg, u.arg


def _bounds_add(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    return (a or c, b or d) if u.dtype.kind == "bool" else (a + c, b + d)


def _bounds_sub(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    return (0, 1) if u.dtype.kind == "bool" else (a - d, b - c)


def _bounds_mul(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def _bounds_div(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    fold = u.op.fold
    assert fold is not None
    divisors = [v for v in (c, d, 1, -1) if c <= v <= d and v != 0]
    corners = [fold(x, v) for x in (a, b) for v in divisors]
    if a < 0 < b or a == 0 or b == 0 or c <= 0 <= d:
        corners.append(0)
    return min(corners, default=0), max(corners, default=0)


def _bounds_floormod(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if c == d and c > 0 and a // c == b // c:
        return a % c, b % c
    low = 0 if c >= 0 else min(c + 1, 0)
    high = 0 if d <= 0 else d - 1
    if c >= 0 and a >= 0:
        high = min(high, b)
    return low, high


def _bounds_cmod(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if c == d and c > 0 and a >= 0 and a // c == b // c:
        return a % c, b % c
    most = max(abs(c), abs(d), 1) - 1
    return max(-most, min(a, 0)), min(most, max(b, 0))


def _bounds_neg(u: UOp) -> Bounds:
    low, high = _b(u, 0)
    return (1 - high, 1 - low) if u.dtype.kind == "bool" else (-high, -low)


def _bounds_abs(u: UOp) -> Bounds:
    low, high = _b(u, 0)
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _bounds_max(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    return max(a, c), max(b, d)


def _bounds_min(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    return min(a, c), min(b, d)


def _bounds_where(u: UOp) -> Bounds:
    low, high = _b(u, 0)
    if low == high:
        return _b(u, 1 if low else 2)
    if u.src[2].op is Ops.INVALID:
        return _b(u, 1)
    (a, b), (c, d) = _b(u, 1), _b(u, 2)
    return min(a, c), max(b, d)


def _bounds_branch(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 2)
    return min(a, c), max(b, d)


def _bounds_range(u: UOp) -> Bounds:
    return 0, max(0, _b(u, 0)[1] - 1)


def _bounds_cast(u: UOp) -> Bounds:
    source = u.src[0].dtype
    low, high = _b(u, 0)
    if source.is_float:
        return type_bounds(u.dtype.scalar)
    if u.dtype.is_float:
        exact = max(abs(low), abs(high)) <= 1 << u.dtype.scalar.whole_bits
        return (float(low), float(high)) if exact else type_bounds(u.dtype.scalar)
    if u.dtype.kind == "bool":
        return (0 if low <= 0 <= high else 1), (0 if low == high == 0 else 1)
    return int(low), int(high)


def _bounds_compare(u: UOp) -> Bounds:
    if u.src[0].dtype.is_float:
        return 0, 1
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if u.op is Ops.CMPLT:
        return int(b < c), int(a < d)
    if u.op is Ops.CMPLE:
        return int(b <= c), int(a <= d)
    equal = int(a == b == c == d), int(a <= d and c <= b)
    return equal if u.op is Ops.CMPEQ else (1 - equal[1], 1 - equal[0])


def _bounds_and(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if u.dtype.kind == "bool":
        return min(a, c), min(b, d)
    if a >= 0 or c >= 0:
        return 0, min(v for v, lo in ((b, a), (d, c)) if lo >= 0)
    return type_bounds(u.dtype.scalar)


def _bounds_or(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if u.dtype.kind == "bool":
        return max(a, c), max(b, d)
    if a >= 0 and c >= 0:
        return max(a, c), (1 << max(b, d).bit_length()) - 1
    return type_bounds(u.dtype.scalar)


def _bounds_xor(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if a >= 0 and c >= 0:
        return 0, (1 << max(b, d).bit_length()) - 1
    return (-1 - b, -1 - a) if c == d == -1 else type_bounds(u.dtype.scalar)


def _bounds_stack(u: UOp) -> Bounds:
    every = [s._bounds for s in u.src if s.op is not Ops.INVALID]
    if not every:
        return type_bounds(u.dtype.scalar)
    return min([b[0] for b in every]), max([b[1] for b in every])


def _bounds_shift(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if c != d or not 0 <= c < u.dtype.bits:
        return type_bounds(u.dtype.scalar)
    return (a << c, b << c) if u.op is Ops.SHL else (a >> c, b >> c)


def _bounds_reduce(u: UOp) -> Bounds:
    if u.arg.op in ("max", "min") and not u.arg.axes:
        return _b(u, 0)
    return type_bounds(u.dtype.scalar)


def _bounds_index(u: UOp) -> Bounds:
    constant = u.src[0].op is Ops.DATA and u.dtype.scalar.is_int
    return data.bounds(u.src[0].arg) if constant else type_bounds(u.dtype.scalar)


def _same(u: UOp) -> Bounds:
    return _b(u, 0)


_BOUNDS_RULES: dict[Op, Callable[[UOp], Bounds]] = {
    Ops.CONST: _bounds_const,
    Ops.VARIABLE: lambda u: (u.arg.low, u.arg.high),
    Ops.LANES: lambda u: (0, u.arg - 1),
    Ops.IOTA: lambda u: (0, max(0, max_dim(shape(u)[0]) - 1)),
    Ops.RANGE: _bounds_range,
    Ops.SPECIAL: _bounds_range,
    Ops.ADD: _bounds_add,
    Ops.SUB: _bounds_sub,
    Ops.MUL: _bounds_mul,
    Ops.FLOORDIV: _bounds_div,
    Ops.CDIV: _bounds_div,
    Ops.FLOORMOD: _bounds_floormod,
    Ops.CMOD: _bounds_cmod,
    Ops.NEG: _bounds_neg,
    Ops.ABS: _bounds_abs,
    Ops.MAX: _bounds_max,
    Ops.MIN: _bounds_min,
    Ops.WHERE: _bounds_where,
    Ops.BRANCH: _bounds_branch,
    Ops.CAST: _bounds_cast,
    Ops.CMPLT: _bounds_compare,
    Ops.CMPLE: _bounds_compare,
    Ops.CMPEQ: _bounds_compare,
    Ops.CMPNE: _bounds_compare,
    Ops.AND: _bounds_and,
    Ops.OR: _bounds_or,
    Ops.XOR: _bounds_xor,
    Ops.STACK: _bounds_stack,
    Ops.SHL: _bounds_shift,
    Ops.SHR: _bounds_shift,
    Ops.REDUCE: _bounds_reduce,
    Ops.INDEX: _bounds_index,
    **dict.fromkeys((
        Ops.BIND, Ops.AFTER, Ops.CONTIGUOUS, Ops.DETACH, Ops.STAGE, Ops.RESHAPE, Ops.EXPAND,
        Ops.PERMUTE, Ops.FLIP, Ops.SHRINK, Ops.LANE,
    ), _same),
}  # fmt: skip


# ---------------------------------------------------------------- ranges
NO_RANGES: frozenset[UOp] = frozenset()


def ranges(u: UOp) -> frozenset[UOp]:
    """The loops a value is inside of: those it reaches, less those closed on the way."""
    if u._ranges is None:
        if None in [s._ranges for s in u.src]:
            return _sweep(u, "_ranges", _ranges)  # type: ignore[no-any-return]
        u._ranges = _ranges(u)
    return u._ranges  # type: ignore[no-any-return]


def closed_ranges(u: UOp) -> tuple[UOp, ...]:
    """The ranges that a REDUCE or END closes."""
    if u.op is Ops.REDUCE or u.op is Ops.END:
        return tuple([s for s in u.src[1:] if s.op is Ops.RANGE])
    return ()


def _ranges(u: UOp) -> frozenset[UOp]:
    if u.op is Ops.RANGE:
        return frozenset((u, *(r for s in u.src for r in s._ranges)))
    if not u.src:
        return NO_RANGES
    if len(u.src) == 1:
        return u.src[0]._ranges  # type: ignore[no-any-return]
    out: frozenset[UOp] = u.src[0]._ranges
    for s in u.src[1:]:
        more = s._ranges
        if more is not out and not more <= out:  # equal sets are mostly one object
            out = more if out <= more else out | more
    if u.op is Ops.REDUCE or u.op is Ops.END:
        return out.difference(closed_ranges(u))
    return out


def variables(u: UOp) -> list[UOp]:
    """The VARIABLEs below a node, by name."""
    return sorted((v for v in toposort(u) if v.op is Ops.VARIABLE), key=lambda v: str(v.arg.name))
