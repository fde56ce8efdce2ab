"""A sum over a range becomes a formula where comparisons bound or select its iterations.

Before (kernel)                            After (kernel)
  %1 = param "" slot=0 : i32[8]              %1 = param "" slot=0 : i32[8]
  %2 = range 8 axis=0.0 kind=loop : index    %2 = range 8 axis=0.0 kind=loop : index
  %3 = range 8 axis=1 kind=reduce : index    %3 = add %2, 1 : index
  %4 = add %2, 1 : index                     %4 = cast %3 : i32
  %5 = cmplt %3, %4 : bool                   %5 = store %1[%2], %4
  %6 = where %5, 1:i32, 0:i32 : i32          %6 = end %5, %2
  %7 = reduce.add %6 over %3 : i32           sink %6 name=""
  %8 = store %1[%2], %7
  %9 = end %8, %2
  sink %9 name=""

A sum of a value that does not depend on the range is a product. A sum under a condition that
bounds the range counts the iterations inside. A sum in which an equality selects one iteration is
the value at that iteration: a one-hot product becomes a gather.
"""

from __future__ import annotations

from uopc.ir.builder import alu, fold, index_maps, leaves, rebuild
from uopc.ir.core import bounds, dtypes, ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare
from uopc.passes.contract import Context


def collapse_reduces(kernel: UOp, context: Context) -> UOp:
    """One walk, sources first, over the REDUCEs that add."""

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is not Ops.REDUCE or u.arg.op != "add":
            return None
        value = src[0]
        left = []
        for r in src[1:]:
            closed = collapsed(value, r)
            if closed is None:
                left.append(r)
            else:
                value = closed
        if len(left) == len(src) - 1:
            return None
        return intern(Ops.REDUCE, u.dtype, (value, *left), u.arg) if left else value

    return rebuild.rewritten(kernel, change)


def collapsed(value: UOp, r: UOp) -> UOp | None:
    """Σ over r of the value without a loop, or None."""
    if r not in ranges.ranges(value):
        return _times(value, r.src[0])
    if _is_mask(value):
        term, conditions = leaves.const(value.dtype, 1), _conjunction(value.src[0])
    else:
        term, conditions = _masked(value)
    if not conditions:
        return None
    inside = [c for c in conditions if r in ranges.ranges(c)]
    total = (_picked if r in ranges.ranges(term) else _counted)(term, inside, r)
    for c in conditions:
        if total is not None and r not in ranges.ranges(c):
            total = alu.where(c, total, leaves.const(total.dtype, 0))
    return total


def _times(value: UOp, count: UOp) -> UOp:
    """value · count; of bools, True if any is set. An infinity, zero times, is 0 and not NaN."""
    some = compare.less(affine.const(0), count)
    if value.dtype.kind == "bool":
        return alu.alu(value, Ops.AND, some)
    product = alu.alu(value, Ops.MUL, fold.cast(count, value.dtype))
    if value.dtype.is_float:
        return alu.where(some, product, leaves.const(value.dtype, 0))
    return product


def _masked(value: UOp) -> tuple[UOp, list[UOp]]:
    """Split a value into an inner value and the conditions outside of which the value is 0."""
    conditions: list[UOp] = []
    while True:
        if value.op is Ops.WHERE and _is_zero(value.src[2]):
            conditions += _conjunction(value.src[0])
            value = value.src[1]
        elif value.op is Ops.WHERE and _is_zero(value.src[1]):
            conditions += _conjunction(_negated(value.src[0]))
            value = value.src[2]
        elif value.op is Ops.MUL and not value.dtype.is_float and any(map(_is_mask, value.src)):
            # A product of floats is no selection: infinity times 0 is NaN.
            mask, value = value.src if _is_mask(value.src[0]) else value.src[::-1]
            conditions += _conjunction(mask.src[0])
        else:
            return value, conditions


def _is_mask(u: UOp) -> bool:
    return u.op is Ops.CAST and u.src[0].dtype.kind == "bool"


def _is_zero(u: UOp) -> bool:
    return u.op is Ops.CONST and type(u.arg) is not tuple and u.arg == 0


def _negated(c: UOp) -> UOp:
    """not c, spelled without a not where there is a comparison for it."""
    if _is_not(c):
        return c.src[0] if c.src[1].arg else _negated(c.src[0])
    if c.op is Ops.NEG:
        return c.src[0]
    if c.op is Ops.CMPNE:
        return intern(Ops.CMPEQ, c.dtype, c.src)
    if c.op is Ops.CMPEQ:
        return intern(Ops.CMPNE, c.dtype, c.src)
    if c.op is Ops.CMPLT and not c.src[0].dtype.is_float:
        return intern(Ops.CMPLE, c.dtype, (c.src[1], c.src[0]))
    return alu.alu(c, Ops.XOR, leaves.const(dtypes.bool_, True))


def _is_not(c: UOp) -> bool:
    """A bool compared with a constant: the bool itself, or its negation."""
    return c.op is Ops.CMPNE and c.src[0].dtype.kind == "bool" and c.src[1].op is Ops.CONST


def _conjunction(condition: UOp) -> list[UOp]:
    """The conditions that an AND of conditions asks for."""
    found: list[UOp] = []
    stack = [condition]
    while stack:
        c = stack.pop()
        if c.op is Ops.AND:
            stack += reversed(c.src)
        elif _is_not(c):
            stack.append(_negated(c.src[0]) if c.src[1].arg else c.src[0])
        else:
            found.append(c)
    return found


# The depth to which an integer is searched for its index expression.
_DEPTH = 16


def _as_index(u: UOp, depth: int = _DEPTH) -> UOp:
    """An integer as an index, through casts that cannot change it."""
    if u.dtype is dtypes.index:
        return u
    if u.op is Ops.CONST:
        return affine.const(int(u.arg))
    integral = u.op is Ops.CAST and u.src[0].dtype.is_integral
    if depth and integral and bounds.within(u.src[0], *u.dtype.bounds):
        return _as_index(u.src[0], depth - 1)
    if depth and u.op in _SUMS:
        made = _SUMS[u.op](*[_as_index(s, depth - 1) for s in u.src])
        if bounds.within(made, *u.dtype.bounds):
            return made
    return fold.cast(u, dtypes.index)


_SUMS = {Ops.ADD: affine.add, Ops.SUB: affine.sub, Ops.MUL: affine.mul}


def _stride(e: UOp, r: UOp) -> tuple[int, UOp] | None:
    """e = stride·r + rest with the rest free of r."""
    constant, terms = affine.form(e)
    stride = terms.get(r, 0)
    rest = affine.build(constant, {m: f for m, f in terms.items() if m is not r})
    return None if stride == 0 or r in ranges.ranges(rest) else (stride, rest)


# A few gaps beyond this may wrap when added up: an index is an int64 in the machine.
_MOST_GAP = 1 << 61


def _counted(value: UOp, conditions: list[UOp], r: UOp) -> UOp | None:
    """value · (the number of iterations within the comparisons), each a bound below or above."""
    first, end = affine.const(0), r.src[0]
    for c in conditions:
        if c.op not in (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ) or c.src[0].dtype.is_float:
            return None
        gap = affine.sub(_as_index(c.src[0]), _as_index(c.src[1]))
        if c.op is not Ops.CMPLT:
            gap = affine.plus(gap, -1)  # a ≤ b  ⇔  a - b - 1 < 0
        known = _stride(gap, r) if bounds.within(gap, -_MOST_GAP, _MOST_GAP) else None
        if known is None or (c.op is Ops.CMPEQ and abs(known[0]) != 1):
            return None
        stride, rest = known
        if c.op is Ops.CMPEQ:
            at = affine.mul(affine.plus(rest, 1), affine.const(-stride))
            first, end = _extreme(Ops.MAX, first, at), _extreme(Ops.MIN, end, affine.plus(at, 1))
        elif stride > 0:  # stride·r + rest < 0  ⇔  r < ceil(-rest / stride)
            above = affine.plus(affine.mul(rest, affine.const(-1)), stride - 1)
            end = _extreme(Ops.MIN, end, affine.floordiv(above, affine.const(stride)))
        else:  # r > rest / |stride|
            below = affine.floordiv(rest, affine.const(-stride))
            first = _extreme(Ops.MAX, first, affine.plus(below, 1))
    count = _extreme(Ops.MAX, affine.sub(end, first), affine.const(0))
    return _times(value, count)


def _extreme(op: object, a: UOp, b: UOp) -> UOp:
    """max or min of two indices, decided by bounds if possible."""
    smaller, larger = (a, b) if affine.at_most(a, b) else (b, a)
    if affine.at_most(smaller, larger):
        return larger if op is Ops.MAX else smaller
    return intern(op, dtypes.index, (a, b))  # type: ignore[arg-type]


def _picked(value: UOp, conditions: list[UOp], r: UOp) -> UOp | None:
    """The value at the one iteration that an equality allows, under the other conditions."""
    for c in conditions:
        if c.op is not Ops.CMPEQ or not c.src[0].dtype.is_integral:
            continue
        known = _stride(affine.sub(_as_index(c.src[0]), _as_index(c.src[1])), r)
        if known is None or abs(known[0]) != 1:
            continue
        stride, rest = known
        at = affine.mul(rest, affine.const(-stride))
        guard = index_maps.both(compare.less(affine.const(-1), at), compare.less(at, r.src[0]))
        for d in conditions:
            if d is not c:
                guard = index_maps.both(guard, rebuild.rebuild(d, {r: at}))
        picked = _guarded(value, r, at, guard)
        return alu.where(guard, picked, leaves.const(value.dtype, 0))
    return None


def _guarded(value: UOp, r: UOp, at: UOp, guard: UOp) -> UOp:
    """The value with `at` for r; accesses that used r get the guard."""
    mapping: dict[UOp, UOp] = {r: at}
    for u in walk.toposort(value):
        if u.op is Ops.INDEX and r in ranges.ranges(u):
            storage, *index = rebuild.rebuild(u, mapping).src
            guarded = index_maps.gated(tuple(index), guard)
            mapping[u] = intern(Ops.INDEX, u.dtype, (storage, *guarded))
    return rebuild.rebuild(value, mapping)
