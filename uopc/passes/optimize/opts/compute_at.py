"""COMPUTE_AT: a value of inner loops is computed before them, into a tile.

    for o: for i < 4: y[4o + i] = f(e(4o + i), e(4o + i + 1))
    →  for o: for i < 5: t[i] = e(4o + i); for i < 4: y[4o + i] = f(t[i], t[i + 1])

The value is the producer of a stencil, which the kernel computes at several places that differ by
constants: with the loop over rows cut in blocks, each row of it is computed once per block. Or the
value is an element that the last loop reads with a large stride: the tile is filled in the order of
memory.

    for o: for i < 8: for j < 8: y[i, j] = f(x[j, i])
    →  for o: for j < 8: for i < 8: t[i, j] = x[j, i]; for i < 8: for j < 8: y[i, j] = f(t[i, j])

The name is that of Halide's directive (Ragan-Kelley et al., PLDI 2013).
"""

from __future__ import annotations

from collections.abc import Mapping

from uopc.ir.builder import rebuild
from uopc.ir.core import bounds, dtypes, ranges, walk
from uopc.ir.core.arena import memo
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.nest import nest_of
from uopc.ir.records import dataclass
from uopc.ir.verify.in_bounds import Verdict, accesses
from uopc.passes.analysis.loops import make_range
from uopc.passes.optimize.opts import legality
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.local_tile import local_tile, next_nest

# The largest tile, in bytes. A larger one leaves the nearest caches between its loops.
MOST_BYTES = 256 << 10

Offsets = dict["UOp", int]  # by loop


@dataclass(frozen=True)
class Shared:
    """A value computed at several places: `places` maps equal values to offsets in the loops."""

    value: UOp
    loops: tuple[UOp, ...]  # in the order of the tile
    in_memory: tuple[UOp, ...]  # the same, the greatest stride of what is read first
    places: Mapping[UOp, Offsets]

    def span(self, q: UOp) -> tuple[int, int]:
        """The least and the greatest offset in a loop."""
        offsets = [at[q] for at in self.places.values()]
        return min(offsets), max(offsets)


def compute_at(kernel: UOp, r: UOp, n: int) -> UOp:
    """Compute value number n of the loops inside of r into a tile, and read it there."""
    found = values(kernel, r)
    if not 0 <= n < len(found):
        raise Refused(
            f"the amount must be below {len(found)}, the number of values that a tile may hold"
        )
    s = found[n]
    legality.check_ahead(kernel, s.value)
    nest = next_nest(kernel)
    spans = [s.span(q) for q in s.loops]
    fill = [
        make_range(affine.plus(q.src[0], high - low), (nest, s.in_memory.index(q)), "loop")
        for q, (low, high) in zip(s.loops, spans)
    ]
    firsts = {q: affine.plus(f, low) for q, f, (low, _) in zip(s.loops, fill, spans)}
    content = rebuild.rebuild(s.value, firsts)
    if len(s.places) > 1 and not _is_inside(content):
        raise Refused("the tile would be filled from outside of the storage")
    dims = [int(bounds.bounds(f.src[0])[1]) for f in fill]
    tile = local_tile(kernel, s.value.dtype, dims, most=MOST_BYTES).fill(fill, content)

    def element(offsets: Offsets) -> UOp:
        return tile.at([affine.plus(q, offsets[q] - low) for q, (low, _) in zip(s.loops, spans)])

    return rebuild.rebuild(kernel, {u: element(at) for u, at in s.places.items()})


def values(kernel: UOp, r: UOp) -> list[Shared]:
    """The values that COMPUTE_AT numbers: producers of stencils, then elements read in strides."""
    return stencils(kernel, r) + crossed(kernel, r)


def crossed(kernel: UOp, r: UOp) -> list[Shared]:
    """The elements that the last loop inside of output loop r reads with a stride, while another
    loop reads neighbours."""
    found = [_crossed(a, r) for a in nest_of(kernel).read]
    return [c for c in found if c is not None]


def _crossed(a: Access, r: UOp) -> Shared | None:
    if len(a.index) != 1 or a.gate is not None or not a.storage.op.is_storage:
        return None
    loops = sorted([q for q in a.loops if q.arg.axis > r.arg.axis], key=lambda q: q.arg.axis)
    bare = all(q.arg.kind == "loop" and not ranges.ranges(q.src[0]) & {*loops} for q in loops)
    steps = {q: a.stride(q) or 0 for q in loops}
    if len(loops) < 2 or not bare or min(steps.values()) < 1:
        return None
    if steps[loops[-1]] == 1 or 1 not in steps.values():
        return None
    in_memory = tuple(sorted(loops, key=lambda q: -steps[q]))
    return Shared(a.node, tuple(loops), in_memory, {a.node: dict.fromkeys(loops, 0)})


@memo
def stencils(kernel: UOp, r: UOp) -> list[Shared]:
    """The values that loops inside of output loop r compute at several places, in kernel order."""
    if r.arg.kind != "loop":
        raise Refused("COMPUTE_AT is for output loops")
    order = walk.order(kernel)
    inside = {q for q in order if q.op is Ops.RANGE and q.arg.kind == "loop"
              and q.arg.axis > r.arg.axis and q.src[0].op is Ops.CONST}  # fmt: skip
    forms: dict[UOp, object] = {}
    alike: dict[object, list[UOp]] = {}
    reads: set[UOp] = set()  # values of storage, at an index that changes
    for u in order:
        around = ranges.ranges(u)
        if around and (u.op is Ops.INDEX or not reads.isdisjoint(u.src)):
            reads.add(u)
        if inside.isdisjoint(around):
            continue
        forms[u] = form = _form(u, forms)
        if form is None or u not in reads or not u.op.is_alu:
            continue
        if all(q.arg.kind != "reduce" for q in around):
            alike.setdefault(form, []).append(u)
    found = [_stencil(values, inside, reads) for values in alike.values() if len(values) > 1]
    return [s for s in found if s is not None]


def _form(u: UOp, forms: Mapping[UOp, object]) -> object:
    """A key that is equal for values whose indices differ by constants; None if that is unknown."""
    if u.op is Ops.INDEX:
        access = Access(u)
        return access.row if access.gate is None else None
    below = []
    for s in u.src:
        if s in forms and (s.dtype.scalar is dtypes.index or forms[s] is None):
            return None
        below.append(forms.get(s, s))
    return u.op, u.dtype, u.arg, tuple(below)


def _stencil(values: list[UOp], inside: set[UOp], reads: set[UOp]) -> Shared | None:
    """The first value, and the values that equal it at shifted places; None without any."""
    first = values[0]
    constant, terms = _lead(first, reads)
    strides = {q: terms.get(q, 0) for q in ranges.ranges(first) & inside}
    if any(stride <= 0 for stride in strides.values()):
        return None
    loops = tuple(sorted(strides, key=lambda q: -strides[q]))
    places: dict[UOp, Offsets] = {}
    for u in values:
        left, offsets = _lead(u, reads)[0] - constant, {}
        for q in loops:  # the rest is nearer to 0 than to a whole step
            offsets[q] = (left + strides[q] // 2) // strides[q]
            left -= offsets[q] * strides[q]
        if left or any(abs(n) >= q.src[0].arg for q, n in offsets.items()):
            continue  # no iterations share the value
        moved = {q: affine.plus(q, n) for q, n in offsets.items() if n}
        if u is first or (moved and rebuild.rebuild(first, moved) is u):
            places[u] = offsets
    return Shared(first, loops, loops, places) if len(places) > 1 else None


def _lead(u: UOp, reads: set[UOp]) -> tuple[int, Mapping[UOp, int]]:
    """The constant and the terms of the first index that a value reads."""
    while u.op is not Ops.INDEX:
        u = next(s for s in u.src if s in reads)
    return Access(u).form


def _is_inside(value: UOp) -> bool:
    """True if all that a value reads certainly lies inside of its storage."""
    return all(a.verdict is Verdict.INSIDE for a in accesses(value))
