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
from uopc.ir.core.storage import before_effects
from uopc.ir.core.tensor_cores import Tile, tile_for
from uopc.ir.index import affine
from uopc.passes.analysis.contraction import Contraction, find_contraction
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
    """The tile for a reduce over r, and the loops of its rows, of its columns, along which
    neighbours are written, and of its depth; of several, the innermost."""
    product = _product_over(kernel, r)
    tile = _tile(product, n)
    stores = [u for u in analysis.order(kernel) if u.op is Ops.STORE]
    for p in (product, product.turned()):
        columns = [q for q in p.columns if any(_step(u.src[0], q) == 1 for u in stores)]
        if p.rows and columns:
            return tile, p.rows[-1], columns[-1], r
    raise Refused("each operand needs an output loop of its own, and one writes neighbours")


def _product_over(kernel: UOp, r: UOp) -> Contraction:
    """The one sum of products over a range."""
    found = [u for u in analysis.order(kernel) if r in analysis.closed_ranges(u)]
    if len(found) != 1 or found[0].op is not Ops.REDUCE:
        raise Refused("tensor cores add up one reduce")
    product = find_contraction(found[0])
    if product is None:
        raise Refused("the reduce is no sum of products")
    return product


def _tile(product: Contraction, n: int) -> Tile:
    """The tile for the factors of the terms, as they are before they are widened."""
    narrow = [x.src[0].dtype if x.op is Ops.CAST else x.dtype for x in (product.a, product.b)]
    result = product.reduce.dtype
    tile = tile_for(narrow[0], result)
    if tile is None or narrow[0] is not narrow[1]:
        names = " and ".join(t.name for t in narrow)
        raise Refused(f"there is no tile for {names}, added up in {result.name}")
    if tile.operand is dtypes.float32 and n != ROUNDED:
        raise Refused("float32 would be rounded to tf32: the amount is 0, not 1")
    return tile


def _step(place: UOp, r: UOp) -> int:
    """By how many elements an address moves with a loop."""
    place = before_effects(place)
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
