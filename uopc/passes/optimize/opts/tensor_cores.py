"""A sum of products handed to tensor cores: the Opt TC.

    reduce.add over k of cast(a[i, k]) · cast(b[k, j])
    →  reduce.add over k₀, depth of shaped_wmma(a, b, row, column, depth),
       i = 16·i₀ + row, j = 8·j₀ + column, k = 16·k₀ + depth

The sizes are those of the tile for the operands' dtype (`ir/tensor_cores.py`). On a GPU the 32
lanes of a warp hold the tile together; elsewhere its ranges are loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.builder import index_maps as indexing
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis, dtypes
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.ir.core.tensor_cores import Tile, tile_for
from uopc.ir.index import affine
from uopc.passes.analysis.loops import is_overwritten, make_range
from uopc.passes.optimize.opts.legality import Refused, check_free, replaced

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

_FIRST, _SECOND = 0, 1
# The amount of a TC that lets float32 operands be rounded to the 10 bits of tf32.
ROUNDED = 1


def tensor(kernel: UOp, r: UOp, n: int) -> UOp:
    """The reduce over r on tensor cores; amount 1 lets float32 be rounded to tf32."""
    tile, *loops = place_of(kernel, r, n)
    for q, size in zip(loops, tile.shape):
        _check(kernel, q, size)
    inner = []
    for q, size in zip(loops, tile.shape):
        kernel, made = _cut(kernel, q, size)
        inner.append(made)
    reduce = next(u for u in analysis.order(kernel) if u.op is Ops.REDUCE and inner[2] in u.src)
    body = _product(reduce, tile, inner)
    return remake.rebuild(
        kernel, {reduce: intern(Ops.REDUCE, reduce.dtype, (body, *reduce.src[1:]), reduce.arg)}
    )


def place_of(kernel: UOp, r: UOp, n: int) -> tuple[Tile, UOp, UOp, UOp]:
    """The tile for a reduce over r, and the loops of its rows, its columns and its depth."""
    reduce = _reduce_over(kernel, r)
    a, b = reduce.src[0].src
    tile, (a, b) = _tile(reduce, a, b, n)
    for first, second in ((a, b), (b, a)):
        row, column = _loops(kernel, first, second)
        if row is not None and column is not None:
            return tile, row, column, r
    raise Refused("each operand needs an output loop of its own, and one writes neighbours")


def _reduce_over(kernel: UOp, r: UOp) -> UOp:
    """The one sum of products over a range."""
    found = [u for u in analysis.order(kernel) if r in analysis.closed_ranges(u)]
    if len(found) != 1 or found[0].op is not Ops.REDUCE:
        raise Refused("tensor cores add up one reduce")
    if found[0].arg.op != "add" or found[0].src[0].op is not Ops.MUL:
        raise Refused("the reduce is no sum of products")
    return found[0]


def _tile(reduce: UOp, a: UOp, b: UOp, n: int) -> tuple[Tile, tuple[UOp, UOp]]:
    """The tile for the factors of the terms, and the factors before they were widened."""
    narrow = [x.src[0] if x.op is Ops.CAST else x for x in (a, b)]
    kinds = {x.dtype for x in narrow}
    tile = tile_for(narrow[0].dtype, reduce.dtype)
    if tile is None or len(kinds) != 1:
        names = " and ".join(x.dtype.name for x in narrow)
        raise Refused(f"there is no tile for {names}, added up in {reduce.dtype.name}")
    if tile.operand is dtypes.float32 and n != ROUNDED:
        raise Refused("float32 would be rounded to tf32: the amount is 0, not 1")
    return tile, (narrow[0], narrow[1])


def _loops(kernel: UOp, a: UOp, b: UOp) -> tuple[UOp | None, UOp | None]:
    """The output loops of the rows, of `a` alone, and of the columns, of `b` alone, along which
    neighbours are written; of several, the innermost."""
    of_a = [r for r in analysis.ranges(a) - analysis.ranges(b) if r.arg.kind == "loop"]
    of_b = [r for r in analysis.ranges(b) - analysis.ranges(a) if r.arg.kind == "loop"]
    stores = [u for u in analysis.order(kernel) if u.op is Ops.STORE]
    columns = [r for r in of_b if any(_step(u.src[0], r) == 1 for u in stores)]
    rows = sorted(of_a, key=lambda r: r.arg.axis)
    return (rows[-1] if rows else None), (columns[-1] if columns else None)


def _step(place: UOp, r: UOp) -> int:
    """By how many elements an address moves with a loop."""
    while place.op is Ops.AFTER:
        place = place.src[0]
    return affine.form(indexing.ungated(place.src[1])[0])[1].get(r, 0)


def _check(kernel: UOp, r: UOp, size: int) -> None:
    check_free(kernel, r)
    if r.arg.kind not in ("loop", "reduce"):
        raise Refused(f"a loop of the product is already {r.arg.kind}")
    if not affine.is_multiple(r.src[0], size):
        why = f"the tile's {size} does not divide the range of {{}}: PADTO or SPLIT it"
        raise Refused(why, r.src[0])
    for u in analysis.order(kernel):
        if is_overwritten(u, r):
            raise Refused("its iterations write to one place, in their order")
        if r in analysis.ranges(u) and any(q.arg.kind == "lane" for q in analysis.ranges(u)):
            raise Refused("values inside a loop of the product already have lanes")


def _cut(kernel: UOp, r: UOp, size: int) -> tuple[UOp, UOp]:
    """r  →  outer·size + inner, the inner one for the tensor core."""
    axis, outer_end = r.arg.axis, affine.floordiv(r.src[0], affine.const(size))
    inner = make_range(
        affine.const(size), (*axis, _SECOND), "unroll" if r.arg.kind == "reduce" else "warp"
    )
    if outer_end.op is Ops.CONST and outer_end.arg == 1:
        return replaced(kernel, r, inner, (inner,)), inner
    outer = make_range(outer_end, (*axis, _FIRST), r.arg.kind)
    value = affine.add(affine.scaled(outer, size), inner)
    return replaced(kernel, r, value, (outer, inner)), inner


def _product(reduce: UOp, tile: Tile, inner: list[UOp]) -> UOp:
    """The SHAPED_WMMA of a reduce whose loops are cut."""
    factors = [x.src[0] if x.op is Ops.CAST else x for x in reduce.src[0].src]
    if inner[0] not in analysis.ranges(factors[0]):
        factors.reverse()
    return intern(Ops.SHAPED_WMMA, tile.result, (*factors, *inner), tile.shape)
