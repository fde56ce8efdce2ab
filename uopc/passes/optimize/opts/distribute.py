"""DISTRIBUTE: loop distribution after a register tile.

    for k: s0 += …; s1 += …
    y[0] = f(s0); y[1] = f(s1)      →      t[0] = s0; t[1] = s1; for i: y[i] = f(t[i])

The accumulators stay side by side in registers. The code after them becomes a loop over a local
tile: copies of a function of many instructions cost compile time and gain nothing. The new loop is
the innermost around this store alone: other stores in the same copies (the columns at an edge) stay
copies. Other sums of the store get tiles, too.
"""

from __future__ import annotations

from uopc.ir.builder import rebuild
from uopc.ir.core import ranges, walk
from uopc.ir.core.args import AxisKind
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp, intern
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis.loops import ended, make_range
from uopc.passes.optimize.opts.legality import Refused, check_amount, only_reduce
from uopc.passes.optimize.opts.local_tile import local_tile, next_nest

_COPIED = ("upcast", "lane", "warp")


def distribute(kernel: UOp, r: UOp, n: int) -> UOp:
    """Store the sums of the reduce over r in a tile; later code becomes loops of up to n copies."""
    if not nest_of(kernel).reduces_over(r):
        raise Refused("DISTRIBUTE is for reduce loops")
    check_amount(n)
    u = only_reduce(kernel, r)
    own = _copied(u)
    stored = [s for s in nest_of(kernel).stores if s.src[1] is u]
    if any(storage_root(s.src[0]).op is Ops.BUFFER for s in stored):
        raise Refused("the sums are in a tile")
    path = _path(kernel, u)
    found = {u: own} | {v: _copied(v) for v in _beside(path[-1], u)}
    order = sorted(
        {q for copied in found.values() for q in copied},
        key=lambda q: _inner_last(u, q),
    )
    nest = next_nest(kernel)
    loops: dict[UOp, UOp] = {}
    tiles: dict[UOp, UOp] = {}
    for v, copied in found.items():
        left = n
        for q in reversed(copied):  # up to n inner copies stay copies
            if q.arg.kind == "upcast":
                left //= ranges.length(q)
            loops.setdefault(
                q, make_range(q.src[0], (nest, order.index(q)), _kind_after(v, q, left))
            )
        dims = [ranges.length(q) for q in copied]
        tile = local_tile(kernel, v.dtype, dims, tiles_before=len(tiles)).fill(copied, v)
        tiles[v] = tile.at([loops[q] for q in copied])
    return _looped(path, loops, rebuild.rebuild(path[-1], {**tiles, **loops}))


def _copied(u: UOp) -> list[UOp]:
    """The copies and lanes around a reduce, outer ones first."""
    around = ranges.ranges(u)
    if any(q.arg.kind not in ("loop", "thread", *_COPIED) for q in around):
        raise Refused("the reduce is inside another reduce")
    copied = [q for q in around if q.arg.kind in _COPIED]
    copied.sort(key=lambda q: _inner_last(u, q))
    if not any(q.arg.kind in ("upcast", "warp") for q in copied):
        raise Refused("no loop around the reduce is unrolled")
    return copied


def _inner_last(u: UOp, q: UOp) -> tuple[bool, bool, tuple[int, ...]]:
    """The order of a tile's dimensions: lanes last, or rows before columns."""
    return q.arg.kind in ("lane", "warp"), _is_column(u, q), q.arg.axis


def _is_column(u: UOp, q: UOp) -> bool:
    """True for the range of the columns of a tile."""
    body = u.src[0]
    return body.op is Ops.SHAPED_WMMA and q is body.src[3]


def _kind_after(u: UOp, q: UOp, left: int) -> AxisKind:
    """The kind of the loop that replaces a range after the tile."""
    if q.arg.kind == "warp":
        return "lane" if _is_column(u, q) else "loop"
    return q.arg.kind if q.arg.kind == "lane" or left else "loop"


def _beside(effect: UOp, u: UOp) -> list[UOp]:
    """The other reduces in copies of the same loops that neither contain u nor are part of u."""
    copies = {q for q in ranges.ranges(u) if q.arg.kind == "upcast"}
    below, found = walk.toposort(u), []
    for v in walk.toposort(effect):
        shares = v.op is Ops.REDUCE and not copies.isdisjoint(ranges.ranges(v))
        if shares and v not in below and u not in walk.toposort(v):
            found.append(v)
    return found


def _path(kernel: UOp, u: UOp) -> list[UOp]:
    """The SINK, ENDs and GROUPs around all uses of a reduce, from outside; last the effect inside
    of them, such as a STORE."""
    path = [kernel]
    while path[-1].op in (Ops.SINK, Ops.END, Ops.GROUP):
        effects = path[-1].src[:1] if path[-1].op is Ops.END else path[-1].src
        inside = [e for e in effects if u in walk.toposort(e)]
        if len(inside) != 1:
            break
        path += inside
    return path


def _looped(path: list[UOp], loops: dict[UOp, UOp], made: UOp) -> UOp:
    """Put `made` in place of the last effect of a path, and turn the copies around that effect into
    loops. The other effects keep the copies."""
    closed = {q for e in path[:-1] if e.op is Ops.END for q in e.src[1:]}
    inner = [loops[q] for q in loops if q in closed]
    for depth, e in reversed(list(enumerate(path[:-1]))):
        if e.op is Ops.END:
            made, inner = ended(made, *[q for q in e.src[1:] if q not in loops], *inner), []
            continue
        if inner and len(e.src) > 1:
            made, inner = ended(made, *inner), []
        outside = [q for c in path[:depth] if c.op is Ops.END for q in c.src[1:] if q in loops]
        effects = [made if s is path[depth + 1] else _closed(s, outside) for s in e.src]
        made = intern(e.op, e.dtype, tuple(effects), e.arg)
    return made


def _closed(effect: UOp, loops: list[UOp]) -> UOp:
    """End those of the loops that an effect uses."""
    return ended(effect, *[q for q in loops if q in ranges.ranges(effect)])
