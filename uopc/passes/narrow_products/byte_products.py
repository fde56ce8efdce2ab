"""Sums of products of 8-bit integers are sums of DOT4s, where the machine has it.

    reduce.add (a * b): int32   →   reduce.add (dot4 (words of a) (words of b))

A word holds four neighbours along an axis of the sum, which grows to a multiple of four. One factor
is read as unsigned bytes u and the other as signed bytes s. Where a factor has other bounds, or a
zero point that the program computes, it is a byte plus a number that is the same along the sum, and
what these numbers add are sums of one factor alone:

    Σ (u + p)·(s + q) = Σ u·s + p·Σ s + q·Σ u + p·q·n

Products of dequantised numbers, of bytes times constant scales, are such sums times the scales.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Generator

import numpy as np

from uopc.ir.builder import alu, fold, index_maps, leaves, movement, rebuild
from uopc.ir.core import bounds, dtypes, ranges, shapes, storage, walk
from uopc.ir.core.arena import compile_scoped
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Shape
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.records import dataclass
from uopc.passes.analysis.user_opts import free_reduces
from uopc.passes.narrow_products import words

BYTES = 4  # in a word
# The most elements of a constant array that are read to know its bounds.
MOST_READ = 1 << 12
# The largest scale: the products of sums of int32 and two scales are finite. They do not vanish
# either where no scale is less than its inverse.
MOST_SCALE = 2.0**48
Axes = frozenset[int]
_constants: dict[UOp, bool] = compile_scoped({})
# The words that products of constants become, each beside the product, as long as somebody has
# the REDUCE: later compiles of a graph find the same constants.
_made: weakref.WeakKeyDictionary[UOp, tuple[UOp, UOp | None]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class _View:
    """The part of a value that `views` show, the outermost view last, as an operand of shape `dims`
    that moves only along the axes `moves`."""

    views: tuple[UOp, ...]
    dims: Shape
    moves: Axes

    def of(self, value: UOp, taken: int = 0, inner: int = 0) -> UOp:
        """The view of a value; an axis along which all elements are equal has size 1. `inner` is
        subtracted below the views, and so is `taken`, but above views whose zeros count as values.
        """
        filled = max([i for i, v in enumerate(self.views, 1) if _fills(v)], default=0)
        if filled:
            value = words.viewed(_minus(value, inner), self.views[:filled])
        value = _minus(value, taken if filled else taken + inner)
        value = words.with_rank(words.viewed(value, self.views[filled:]), len(self.dims))
        kept = [(0, d if i in self.moves else 1) for i, d in enumerate(shapes.shape(value))]
        return movement.shrink(value, kept)


def _minus(value: UOp, number: int) -> UOp:
    """Bytes minus a number, which wraps."""
    wrapped, t = number % 256, value.dtype
    least = wrapped if t is dtypes.uint8 or wrapped < 128 else wrapped - 256
    return alu.alu(value, Ops.SUB, leaves.const(t, least)) if wrapped else value


@dataclass(frozen=True)
class _ByteFactor:
    """A factor of products: (a view of `base`, with values in low … high, minus a view of `zero`)
    times a view of `scale`."""

    base: UOp
    view: _View
    low: int
    high: int
    zero: tuple[UOp, _View] | None = None
    scale: tuple[UOp, _View] | None = None

    def offset(self, t: DType) -> int:
        """The number that is taken from values so that they are bytes of a dtype."""
        low, high = (0, 255) if t is dtypes.uint8 else (-128, 127)
        return 0 if low <= self.low and self.high <= high else self.low - low

    def bytes(self, t: DType) -> UOp:
        """The values without their offset. Of bytes with a constant zero point they may be what is
        in memory: both numbers are taken at once."""
        inner, zero = self.base, 0
        if inner.op is Ops.SUB and inner.src[1].op is Ops.CONST:
            inner, zero = inner.src[0], inner.src[1].arg
        if inner.op is Ops.CAST and inner.src[0].dtype.is_int:
            inner = inner.src[0]
        return self.view.of(fold.cast(inner, t), self.offset(t), zero)

    def added(self, t: DType, axes: Axes) -> UOp | None:
        """The value that is added to bytes, as an operand of the sum over some axes; None for
        none."""
        number = leaves.const(dtypes.int32, self.offset(t))
        if self.zero is None:
            return number if self.offset(t) else None
        zero, view = self.zero
        return alu.alu(number, Ops.SUB, _without(view.of(fold.cast(zero, dtypes.int32)), axes))

    @property
    def is_constant(self) -> bool:
        return _is_constant(self.base)


def in_bytes(u: UOp, value: UOp) -> UOp | None:
    """A sum of products as one of DOT4s; None for one that is no contraction of bytes."""
    dims, axes = shapes.shape(value), frozenset(u.arg.axes)
    wide = u.dtype.kind in ("int", "uint") and u.dtype.bits >= 32
    if not (wide or u.dtype is dtypes.float32):
        return None
    terms = math.prod([dims[a] for a in axes])
    if terms < words.LEAST_TERMS:
        return None
    factors = [_factor(s, dims, axes) for s in value.src]
    if None in factors:
        return None
    a, b = [f for f in factors if f is not None]
    exact = u.dtype.bits == 32 and wide
    if not exact and terms * _largest(a) * _largest(b) >= 1 << 31:
        return None
    shared = [k for k in u.arg.axes if k in a.view.moves and k in b.view.moves]
    axis = words.axis_of(shared, dims, BYTES)
    if axis is None:
        return None
    total = fold.cast(_whole_sum(u, dims, axis, a, b, terms), u.dtype)
    for f in (a, b):
        if f.scale is not None:
            scale = _without(f.scale[1].of(f.scale[0]), axes)
            total = alu.alu(total, Ops.MUL, movement.expand(scale, shapes.shape(total)))
    if any([f.scale is not None and _least(f.scale[0]) < 1 / MOST_SCALE for f in (a, b)]):
        total = alu.alu(total, Ops.ADD, leaves.const(u.dtype, 0.0))  # a sum is never -0.0
    return total


def with_words_of_constants(graph: UOp) -> UOp:
    """The graph with products of bytes in words where a factor is constant, so that its words and
    its sums are constants too."""

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        ours = words.contracts(u, src[0], _is_constant)
        if not ours or not any(map(_is_constant, src[0].src)):
            return None
        product, made = _made.get(u, (None, None))
        if product is not src[0]:
            made = in_bytes(u, src[0])
            _made[u] = src[0], made
        return made

    return rebuild.rewritten(graph, change, outside_kernels=True, only=free_reduces(graph))


def _is_constant(u: UOp) -> bool:
    return walk.computed(u, _reads_no_argument, _constants)


def _reads_no_argument(u: UOp) -> Generator[list[UOp], list[bool], bool]:
    if u.op.is_storage:
        return u.op is Ops.DATA
    return all((yield list(u.src)))


# ---------------------------------------------------------------- factors
def _factor(factor: UOp, dims: Shape, axes: Axes) -> _ByteFactor | None:
    """A factor whose values are bytes plus, and times, numbers that are constant along the sum;
    None for other factors."""
    index, _ = index_maps.loop_index(dims)
    base, around = words.below_views(factor)
    at, guards = _index_below(factor, around, index)
    whole = shapes.shape(base)
    filled = [v.op for v in around if _fills(v)]
    parts = _integers(base, Ops.PAD not in filled)
    if parts is None:
        return None
    values, zero, scale = parts

    def view(value: UOp) -> _View:
        """The view of an operand of `base`, which may be smaller; of one number that no zeros
        replace, the number."""
        replaced = value is values or (value is zero and filled)
        if not replaced and shapes.size(shapes.shape(value)) == 1:
            return _View((), dims, frozenset())
        own = index_maps.broadcast_index(at, shapes.shape(value))
        inside = frozenset[UOp]().union(*[ranges.ranges(x) for x in (*guards, *own)])
        moves = frozenset([i for i, x in enumerate(index) if x in inside])
        spread = movement.expand(value, whole)
        more = () if spread is value else (spread,)
        return _View((*more, *around), dims, moves)

    low, high = _bounds(values)
    if filled:
        low, high = min(low, 0), max(high, 0)
    if high - low > 255:
        return None
    seen = [None if v is None else (v, view(v)) for v in (zero, scale)]
    if any([s is not None and s[1].moves & axes for s in seen]):
        return None
    return _ByteFactor(values, view(values), low, high, *seen)


def _index_below(
    factor: UOp, views: list[UOp], index: index_maps.Index
) -> tuple[index_maps.Index, list[UOp]]:
    """The index into the value under the views of a factor, and where there is an access."""
    at, guards = index_maps.broadcast_index(index, shapes.shape(factor)), list[UOp]()
    for v in reversed(views):
        if v.op is Ops.INDEX:
            at, chosen = _gathered(v, at)
            guards += chosen
        else:
            at, guard = index_maps.source_index(v, at)
            guards += [] if guard is None else [guard]
    return at, guards


def _integers(u: UOp, may_subtract: bool) -> tuple[UOp, UOp | None, UOp | None] | None:
    """The value as (integers - zero) * scale. A zero is taken out where the value is too wide for
    bytes. None for floats of another form."""
    scale = zero = None
    if u.dtype.is_float:
        integer, scale = _unscaled(u)
        if integer is None:
            return None
        u = integer
    low, high = _bounds(u)
    if high - low > 255 and u.op is Ops.SUB and may_subtract:
        u, zero = u.src
    return u, zero, scale


def _fills(v: UOp) -> bool:
    """True for a view that may have zeros, outside of its source."""
    if v.op is not Ops.INDEX:
        return v.op is Ops.PAD
    read = zip(v.src[1:], shapes.shape(v.src[0]))
    return not all([isinstance(n, int) and _is_below(places, n) for places, n in read])


def _is_below(places: UOp, size: int) -> bool:
    array = _array(places.src[0] if places.op is Ops.CAST else places)
    if array is not None:
        return bool(((array >= 0) & (array < size)).all())
    low, high = _bounds(places)
    return low >= 0 and high < size


def _gathered(u: UOp, at: index_maps.Index) -> tuple[index_maps.Index, list[UOp]]:
    """An index into the source of an INDEX that moves with the same ranges as the right index, and
    its components that the program chooses, which may be out of range."""
    found, rest = index_maps.gather_index(u, at)
    chosen = []
    for s in u.src[1:]:
        inside = index_maps.broadcast_index(found, shapes.shape(s))
        moving = frozenset[UOp]().union(*[ranges.ranges(x) for x in inside])
        chosen.append(affine.build(0, dict.fromkeys(moving, 1)))
    return (*chosen, *rest), chosen


def _unscaled(u: UOp) -> tuple[UOp | None, UOp | None]:
    """A dequantised number as an integer, and its scale, if it has one: a constant with which the
    sum stays finite."""
    scale = None
    if u.op is Ops.MUL:
        pairs = [(a, b) for a, b in (u.src, u.src[::-1]) if _is_scale(b)]
        if not pairs:
            return None, None
        u, scale = pairs[0]
    return _integer(u), scale


def _integer(u: UOp) -> UOp | None:
    """A float32 that is an integer, of 8 bits or the difference of two, as an int32."""
    if u.op is Ops.CAST and u.src[0].dtype.is_int and u.src[0].dtype.bits == 8:
        return fold.cast(u.src[0], dtypes.int32)
    if u.op is Ops.SUB:
        a, b = [_integer(s) for s in u.src]
        return None if a is None or b is None else alu.alu(a, Ops.SUB, b)
    if u.op is Ops.CONST and u.dtype.is_float and abs(u.arg) < 1 << 24 and u.arg == int(u.arg):
        return leaves.const(dtypes.int32, int(u.arg))
    return None


def _is_scale(u: UOp) -> bool:
    array = _array(u)
    return array is not None and bool((np.abs(array) <= MOST_SCALE).all())


def _least(scale: UOp) -> float:
    array = _array(scale)
    return float(array.min(initial=1.0)) if array is not None else 0.0


def _array(u: UOp) -> np.ndarray | None:
    """The numbers of a constant that is small enough to be read."""
    u = storage.base(u)
    if u.op is Ops.DATA:
        return u.arg.array if u.arg.array.size <= MOST_READ else None
    return np.asarray(u.arg) if u.op is Ops.CONST else None


def _bounds(u: UOp) -> tuple[int, int]:
    low, high = bounds.bounds(u)
    return int(low), int(high)


def _largest(factor: _ByteFactor) -> int:
    """The largest magnitude of the values."""
    zero = (0, 0) if factor.zero is None else _bounds(factor.zero[0])
    return max(map(abs, (factor.low, factor.high))) + max(map(abs, zero))


# ---------------------------------------------------------------- sums
def _whole_sum(u: UOp, dims: Shape, axis: int, a: _ByteFactor, b: _ByteFactor, terms: int) -> UOp:
    """The sum of the products of two factors without their scales, as int32."""
    axes = frozenset(u.arg.axes)
    first, second = min([(a, b), (b, a)], key=lambda pair: _cost(*pair))
    unsigned, signed = first.bytes(dtypes.uint8), second.bytes(dtypes.int8)
    total = words.summed(u, Ops.DOT4, dims, axis, unsigned, signed)
    p, q = first.added(dtypes.uint8, axes), second.added(dtypes.int8, axes)
    if p is not None:
        total = _plus(total, p, _sum(u, dims, signed, second.is_constant))
    if q is not None:
        total = _plus(total, q, _sum(u, dims, unsigned, first.is_constant))
    if p is not None and q is not None:
        total = _plus(total, alu.alu(p, Ops.MUL, q), leaves.const(dtypes.int32, terms))
    return total


def _cost(unsigned: _ByteFactor, signed: _ByteFactor) -> int:
    """The bytes that are added up when the program runs."""
    sums = [(unsigned, dtypes.uint8, signed), (signed, dtypes.int8, unsigned)]
    needed = [f for own, t, f in sums if own.offset(t) or own.zero is not None]
    return sum([_size(f) for f in needed if not f.is_constant])


def _size(f: _ByteFactor) -> int:
    dims = enumerate(f.view.dims)
    return math.prod([bounds.max_dim(d) for i, d in dims if i in f.view.moves])


def _sum(u: UOp, dims: Shape, v: UOp, is_constant: bool) -> UOp:
    """The sum of one factor, with 1 as the other. The sum is stored: the product's kernel takes its
    columns in panels, and would otherwise recompute the sums of all rows for each panel."""
    own = shapes.shape(v)
    repeats = math.prod([dims[a] for a in u.arg.axes if own[a] == 1])
    total = intern(Ops.REDUCE, dtypes.int32, (fold.cast(v, dtypes.int32),), u.arg)
    if not is_constant:
        total = intern(Ops.CONTIGUOUS, total.dtype, (total,))
    return alu.alu(total, Ops.MUL, leaves.const(dtypes.int32, repeats))


def _plus(total: UOp, times: UOp, other: UOp) -> UOp:
    made = alu.alu(other, Ops.MUL, times)
    return alu.alu(total, Ops.ADD, movement.expand(made, shapes.shape(total)))


def _without(value: UOp, axes: Axes) -> UOp:
    """A value without the axes of the sum, along which it has size 1."""
    return movement.reshape(
        value, tuple([d for i, d in enumerate(shapes.shape(value)) if i not in axes])
    )
