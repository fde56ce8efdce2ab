"""COMPUTE_AT: a value that iterations of inner loops share is computed before them, into a tile.

    for o: for i < 4: y[4o + i] = f(e(4o + i), e(4o + i + 1))
    →  for o: for i < 5: t[i] = e(4o + i); for i < 4: y[4o + i] = f(t[i], t[i + 1])

The value is the producer of a stencil: the kernel computes it at several places that differ by
constants. With the loop over rows cut in blocks, each row of it is computed once per block. The
name is that of Halide's directive (Ragan-Kelley et al., PLDI 2013).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from uopc.ir.builder import index_maps, rebuild
from uopc.ir.core import bounds, dtypes, ranges, shapes, walk
from uopc.ir.core.arena import memo
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.passes.analysis.loops import make_range
from uopc.passes.optimize.opts import legality
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.local_tile import local_tile, next_nest

# The largest tile, in bytes. A larger one leaves the nearest caches between its loops.
MOST_BYTES = 256 << 10

Offsets = dict["UOp", int]  # by loop


@dataclass(frozen=True)
class Stencil:
    """A value, and the equal ones at other places: `places` has the offset of each in the loops."""

    value: UOp
    loops: tuple[UOp, ...]  # the greatest stride first
    places: Mapping[UOp, Offsets]

    def span(self, q: UOp) -> tuple[int, int]:
        """The least and the greatest offset in a loop."""
        offsets = [at[q] for at in self.places.values()]
        return min(offsets), max(offsets)


def compute_at(kernel: UOp, r: UOp, n: int) -> UOp:
    """Compute stencil number n of the loops inside of r into a tile, and read it there."""
    found = stencils(kernel, r)
    if not 0 <= n < len(found):
        raise Refused(f"the loops inside compute {len(found)} values at several places")
    s = found[n]
    legality.check_ahead(kernel, s.value)
    nest = next_nest(kernel)
    spans = [s.span(q) for q in s.loops]
    fill = [
        make_range(affine.plus(q.src[0], high - low), (nest, i), "loop")
        for i, (q, (low, high)) in enumerate(zip(s.loops, spans))
    ]
    firsts = {q: affine.plus(f, low) for q, f, (low, _) in zip(s.loops, fill, spans)}
    content = rebuild.rebuild(s.value, firsts)
    if not all(_is_inside(u) for u in walk.toposort(content) if u.op is Ops.INDEX):
        raise Refused("the block around all places reaches outside of the storage that it reads")
    dims = [legality.known_length(f) for f in fill]
    tile = local_tile(kernel, s.value.dtype, dims, most=MOST_BYTES).fill(fill, content)

    def element(offsets: Offsets) -> UOp:
        return tile.at([affine.plus(q, offsets[q] - low) for q, (low, _) in zip(s.loops, spans)])

    return rebuild.rebuild(kernel, {u: element(at) for u, at in s.places.items()})


@memo
def stencils(kernel: UOp, r: UOp) -> list[Stencil]:
    """The values that the loops inside of output loop r compute at several places, in the order of
    the kernel."""
    if r.arg.kind != "loop":
        raise Refused("COMPUTE_AT is for output loops")
    order = walk.order(kernel)
    inside = {q for q in order if q.op is Ops.RANGE and q.arg.kind == "loop"
              and q.arg.axis > r.arg.axis and q.src[0].op is Ops.CONST}  # fmt: skip
    forms: dict[UOp, object] = {}
    alike: dict[object, list[UOp]] = {}
    for u in order:
        around = ranges.ranges(u)
        if inside.isdisjoint(around):
            continue
        forms[u] = form = _form(u, forms)
        if form is not None and u.op.is_alu and all(q.arg.kind != "reduce" for q in around):
            alike.setdefault(form, []).append(u)
    found = [_stencil(values, inside) for values in alike.values() if len(values) > 1]
    return [s for s in found if s is not None]


def _form(u: UOp, forms: Mapping[UOp, object]) -> object:
    """Equal for values that may differ by constants in their indices; None if that is unknown."""
    if u.op is Ops.INDEX:
        flat, gate = index_maps.ungated(u.src[-1])
        terms = affine.form(flat)[1]
        return None if gate is not None else (u.src[:-1], frozenset(terms.items()))
    below = []
    for s in u.src:
        if s in forms and (s.dtype.scalar is dtypes.index or forms[s] is None):
            return None
        below.append(forms.get(s, s))
    return u.op, u.dtype, u.arg, tuple(below)


def _stencil(values: list[UOp], inside: set[UOp]) -> Stencil | None:
    """The values that are the first one at other places."""
    first = values[0]
    constant, terms = _lead(first)
    strides = {q: terms.get(q, 0) for q in ranges.ranges(first) & inside}
    if any(stride <= 0 for stride in strides.values()):
        return None
    loops = tuple(sorted(strides, key=lambda q: -strides[q]))
    places: dict[UOp, Offsets] = {}
    for u in values:
        left, offsets = _lead(u)[0] - constant, {}
        for q in loops:  # the rest is nearer to 0 than to a whole step
            offsets[q] = (left + strides[q] // 2) // strides[q]
            left -= offsets[q] * strides[q]
        if left or any(abs(n) >= q.src[0].arg for q, n in offsets.items()):
            continue  # no iterations share the value
        moved = {q: affine.plus(q, n) for q, n in offsets.items() if n}
        if u is first or (moved and rebuild.rebuild(first, moved) is u):
            places[u] = offsets
    return Stencil(first, loops, places) if len(places) > 1 else None


def _lead(u: UOp) -> tuple[int, Mapping[UOp, int]]:
    """The constant and the terms of the first index below a value."""
    while u.op is not Ops.INDEX:
        u = next(s for s in u.src if ranges.ranges(s))
    return affine.form(index_maps.ungated(u.src[-1])[0])


def _is_inside(access: UOp) -> bool:
    """True if an index is certainly an element of its storage."""
    low, high = bounds.bounds(access.src[-1])
    size = shapes.size(shapes.shape(access.src[0]))
    return low >= 0 and isinstance(size, int) and bool(high < size)
