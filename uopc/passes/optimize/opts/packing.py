"""PACK: the part of an operand that a loop uses is computed into a tile before the loop.

    for j: for i: for k: … x[k, j] …  →  for j: (for k: t[k] = x[k, j]); for i: for k: … t[k] …

The tile has one dimension per *digit*: loops that the operand depends on only through one sum (the
`row + tap` of a window), so elements that windows share are stored once. The digit of the lanes is
the innermost dimension. If the lanes read every s-th element, the elements are first sorted by
their position modulo s, so that inner loops read neighbours. Any value can be packed, not only
elements of an array: guards, casts and whole producers move out of the inner loops with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc.ir.builder import index_maps, rebuild
from uopc.ir.core import bounds, dtypes, ranges, walk
from uopc.ir.core.data.blocks import ALIASED, LINE
from uopc.ir.core.ops import Ops
from uopc.ir.core.serialize import content
from uopc.ir.core.uop import UOp
from uopc.ir.devices.tensor_cores import tile_of
from uopc.ir.index import affine, compare, monomials, values
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.contractions import PRODUCTS, term
from uopc.ir.nest.nest import nest_of
from uopc.ir.records import dataclass
from uopc.passes.analysis.loops import make_range
from uopc.passes.analysis.shared_tiles import can_be_swizzled
from uopc.passes.optimize.opts.legality import Refused, check_ahead
from uopc.passes.optimize.opts.lengths import quotient_up
from uopc.passes.optimize.opts.local_tile import local_tile, next_nest
from uopc.passes.optimize.opts.substitution import guarded

_REDUCED = ("reduce", "unroll")
_FAR = 1 << 62  # the stride of a digit that is not affine


@dataclass
class Digit:
    """Loops that a value depends on only through the sum Σ factor·loop; `unit` has factor 1."""

    unit: UOp
    factors: dict[UOp, int]
    length: UOp  # the sum is below it
    stride: int  # of the flat index, per step of the digit; 0 if it is not affine

    @property
    def extent(self) -> int:
        return int(bounds.bounds(self.length)[1])

    def unit_at(self, digit: UOp) -> UOp:
        """The value of the unit loop for a value of the digit."""
        others = {m: -f for m, f in self.factors.items() if m is not self.unit}
        return affine.add(digit, affine.build(0, others))


def operands(kernel: UOp) -> list[tuple[UOp, UOp]]:
    """The values that PACK can pack: each factor of each reduce's terms, then the elements that
    terms without two factors combine; with the reduce."""
    found: dict[UOp, UOp] = {}
    parts: dict[UOp, UOp] = {}
    for u in nest_of(kernel).reduces:
        body = term(u)
        factors = body.src[:2] if body.op in (*PRODUCTS, Ops.SHAPED_WMMA) else (body,)
        for factor in factors:
            found.setdefault(factor, u)
        if len({*factors}) == 1:
            below = walk.toposort(factors[0], gate=lambda v: v.op is not Ops.INDEX)
            parts.update({v: u for v in below if v.op is Ops.INDEX})
    return [*found.items(), *[(v, u) for v, u in parts.items() if v not in found]]


def pack(kernel: UOp, r: UOp, n: int) -> UOp:
    """Compute operand n of the kernel's reduces into a tile before r; read the tile inside of r. n
    plus the number of operands: sort elements that the innermost output loop reads apart."""
    choices = operands(kernel)
    if not 0 <= n < 2 * len(choices):
        raise Refused(
            f"the operand must be below {len(choices)}, the number of operands of reduces, or that "
            "much above"
        )
    value, reduce = choices[n % len(choices)]
    around = ranges.ranges(reduce) if r.arg.kind == "loop" else ranges.closed_ranges(reduce)
    if r not in around:
        raise Refused("the loop must be around the reduce of the operand")
    inside = [q for q in ranges.ranges(value) if not _is_around(q, r)]
    inside.sort(key=lambda q: (q.arg.axis, content(q)))
    unknown = [q for q in inside if q.src[0].op is not Ops.CONST]  # the tile has room for the most
    known = ("loop", "reduce")
    if any(q.arg.kind not in known or ranges.ranges(q.src[0]) & set(inside) for q in unknown):
        raise Refused("the length of a loop inside is not known")
    if not inside:
        raise Refused("the operand is the same in all iterations of the loop")
    check_ahead(kernel, value)
    order = digits(value, inside, _of_tile(value, term(reduce)))
    return _packed(kernel, value, order, r.arg.kind == "reduce", n >= len(choices))


def _of_tile(value: UOp, product: UOp) -> list[UOp]:
    """The ranges of a CPU's matrix tile that an operand uses, in the unit's order."""
    tile = tile_of(product) if product.op is Ops.SHAPED_WMMA else None
    if tile is None or not tile.is_of_words:
        return []
    row, column, depth = product.src[2:]
    return [row, depth] if value is product.src[0] else [depth, column]


def _is_around(q: UOp, r: UOp) -> bool:
    """True if the tile is filled inside of q: before the output loop r, or inside the reduce r."""
    if r.arg.kind == "reduce":
        first = q.arg.kind == "reduce" and q.arg.axis <= r.arg.axis
        return first or q.arg.kind in ("loop", "thread", "global")
    return q.arg.kind in ("loop", "thread", "global") and bool(q.arg.axis < r.arg.axis)


# ---------------------------------------------------------------- digits
def digits(value: UOp, inside: list[UOp], of_tile: Sequence[UOp] = ()) -> list[Digit]:
    """The digits of a value, outermost first. Loops around the reduces come first, so that the
    elements that one reduce reads are close together; then the greatest stride; then lanes; the
    ranges `of_tile` last, each a digit of its own."""
    sums = _sums(value)
    strides = {q: _stride(sums, q) for q in inside}
    found: list[Digit] = []
    for q in sorted(inside, key=lambda q: (strides[q] or _FAR, q.arg.axis)):
        others = [d for d in found if d.unit not in of_tile and q not in of_tile]
        if not any(_joins(value, d, q, strides[q]) for d in others):
            found.append(Digit(q, {q: 1}, q.src[0], strides[q]))

    def rank(d: Digit) -> tuple[int, bool, bool, int]:
        lanes = any(q.arg.kind == "lane" for q in d.factors)
        last = of_tile.index(d.unit) if d.unit in of_tile else -1
        return last, lanes, any(_role(q) != "around" for q in d.factors), -(d.stride or _FAR)

    return sorted(found, key=rank)


def windows(value: UOp) -> list[UOp]:
    """The loops that a value depends on only through a sum with a reduce loop."""
    known = [q for q in ranges.ranges(value) if values.greatest(q.src[0]) is not None]
    found = [d.factors for d in digits(value, known)]
    return [q for f in found for q in f if any(m.arg.kind in _REDUCED for m in f)]


def _sums(value: UOp) -> list[monomials.Terms]:
    """The terms of each index of a value, then the terms of each sum inside of an index."""
    order = walk.toposort(value)
    indices = [Access(u).flat for u in order if u.op is Ops.INDEX]
    sums = [u for u in order if u.op is Ops.ADD and u.dtype is dtypes.index]
    return [affine.form(u)[1] for u in (*indices, *sums)]


def _stride(sums: list[monomials.Terms], q: UOp) -> int:
    """The growth of an index per iteration of a loop, in elements. If no index is affine in the
    loop, the growth of a sum inside of an index; 0 if there is no such sum."""
    return next((stride for terms in sums if (stride := terms.get(q, 0)) > 0), 0)


def _joins(value: UOp, d: Digit, q: UOp, stride: int) -> bool:
    """Put loop q into digit d if their values overlap and the value depends only on their sum."""
    if not d.stride or not stride or stride % d.stride:
        return False
    if not all([values.greatest(length) is not None for length in (q.src[0], d.length)]):
        return False
    factor = stride // d.stride
    length = affine.add(d.length, affine.scaled(affine.plus(q.src[0], -1), factor))
    same_role = all(_role(m) == _role(q) for m in d.factors)
    if factor > d.extent or (factor == d.extent and not same_role):
        return False
    joined = Digit(d.unit, {**d.factors, q: factor}, length, d.stride)
    if not _is_through_sum(value, joined) and not _cancels(value, joined):
        return False
    d.factors, d.length = joined.factors, joined.length
    return True


def _is_through_sum(value: UOp, d: Digit) -> bool:
    """True if a value uses a digit's loops only in multiples, or remainders, of their sum."""
    loops = d.factors.keys()
    seen: set[UOp] = set()
    stack = [value]
    while stack:
        u = stack.pop()
        if u in seen or loops.isdisjoint(ranges.ranges(u)):
            continue
        seen.add(u)
        whole, period = u, 0
        if u.op is Ops.FLOORMOD and affine.is_const(u.src[1]):
            whole, period = u.src[0], abs(u.src[1].arg)
        terms = affine.form(whole)[1] if u.dtype.scalar is dtypes.index else {u: 1}
        scale = terms.get(d.unit, 0)
        others = [terms.get(m, 0) - scale * f for m, f in d.factors.items()]
        if any([k % period if period else k for k in others]):
            return False
        for m in terms.keys() - loops:
            stack.extend(u.src if m is u else (m,))
    return True


def _cancels(value: UOp, d: Digit) -> bool:
    """True if the digit's loops vanish once their sum is substituted: quotients may cancel."""
    if not any([u.op is Ops.FLOORDIV for u in walk.toposort(value)]):
        return False
    sum_ = make_range(d.extent, (*d.unit.arg.axis, -1), "loop")
    moved = rebuild.rebuild(value, {d.unit: d.unit_at(sum_)})
    return d.factors.keys().isdisjoint(ranges.ranges(moved))


def _role(q: UOp) -> str:
    """The role of a loop: `around` a reduce, `reduce`, or `copies` inside of a reduce."""
    if q.arg.kind in _REDUCED:
        return "reduce"
    return "around" if q.arg.kind == "loop" else "copies"


# ---------------------------------------------------------------- the tile
def _packed(kernel: UOp, value: UOp, order: list[Digit], in_banks: bool, in_phases: bool) -> UOp:
    """Fill a tile with the value, and read the tile in the value's place. With `in_banks` the
    elements of a column lie in different banks of shared memory; `in_phases`: see `_lanes`."""
    nest = next_nest(kernel)
    dims: list[int] = []
    fill: list[UOp] = []  # the index of the element to fill, one loop per dimension
    read: list[UOp] = []  # the index of the element to read
    guard = index_maps.true()
    moved: dict[UOp, UOp] = {}
    for d in order:
        apart, width = _lanes(d, in_phases and d is order[-1])
        count = -(-d.extent // (apart * width)) * width
        phase = _fill_loop(affine.const(apart), (nest, len(dims)))
        length = d.length
        if values.greatest(length) is not None:
            length = affine.scaled(quotient_up(length, apart * width), width)
        inner = _fill_loop(length, (nest, len(dims) + 1))
        dims += [apart, count]
        fill += [phase, inner]
        position = affine.add(affine.scaled(inner, apart), phase)
        guard = index_maps.both(guard, compare.less(position, d.length))
        moved[d.unit] = d.unit_at(position)
        quotient, rest = affine.divmod_(affine.build(0, d.factors), affine.const(apart))
        read += [rest, quotient]
    content = rebuild.rebuild(value, moved)
    if guard.op is not Ops.CONST:
        content = rebuild.rewritten(
            content, lambda u, src: guarded(u, src, guard) if u.op is Ops.INDEX else None
        )
    row, itemsize = dims[-1], value.dtype.itemsize
    swizzled = in_banks and can_be_swizzled(row * itemsize)
    if in_banks and not swizzled and row * itemsize % 32 == 0:
        # 8 rows are in different banks, 16 bytes of each, if rows have an odd number of 16 bytes.
        dims[-1] += 16 // itemsize
    if not in_banks and len(dims) > 2 and row * itemsize % ALIASED == 0:
        dims[-1] += LINE // itemsize  # neighbouring rows begin in different sets of the cache
    tile = local_tile(kernel, value.dtype, dims, swizzle=row if swizzled else 0)
    return rebuild.rebuild(kernel, {value: tile.fill(fill, content).at(read)})


def _lanes(d: Digit, in_phases: bool) -> tuple[int, int]:
    """The elements between neighbouring lanes of a digit, and the number of lanes; 1 and 1 without
    lanes. With `in_phases`, the elements between iterations of the digit's only output loop."""
    lanes = [(f, ranges.length(q)) for q, f in d.factors.items() if q.arg.kind == "lane"]
    around = [f for q, f in d.factors.items() if _role(q) == "around"]
    if not lanes and in_phases and len(around) == 1:
        return around[0], 1
    return lanes[0] if lanes else (1, 1)


def _fill_loop(length: UOp, axis: tuple[int, ...]) -> UOp:
    """A loop of this length; the constant 0 for length 1."""
    return affine.const(0) if length is affine.const(1) else make_range(length, axis, "loop")
