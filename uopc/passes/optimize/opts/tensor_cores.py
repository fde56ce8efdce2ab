"""TC: a sum of products on a matrix unit.

    reduce.add over k of cast(a[i, k]) · cast(b[k, j])
    →  reduce.add over k₀, depth of shaped_wmma(a, b, row, column, depth),
       i = 16·i₀ + row, j = 8·j₀ + column, k = 16·k₀ + depth

The sizes are those of the tile for the operands' dtype (`ir/devices/tensor_cores.py`). On a GPU the
32 lanes of a warp hold the tile together. A CPU's matrix unit multiplies words, as DOT2 and DOT4
do: one thread holds the tile if DISTRIBUTE stores the tile and PACK has put the operands in order.
Elsewhere the tile's ranges are loops.
"""

from __future__ import annotations

from uopc.ir.builder import fold, rebuild
from uopc.ir.core import dtypes, ranges
from uopc.ir.core.args import AxisKind
from uopc.ir.core.ops import DOTS, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices.tensor_cores import Tile, tiles_for
from uopc.ir.index import affine
from uopc.ir.nest.contractions import Contraction, find_contraction
from uopc.ir.nest.nest import nest_of
from uopc.passes.optimize.opts.legality import Refused, check_free, check_unordered
from uopc.passes.optimize.opts.split import pieces
from uopc.passes.optimize.opts.substitution import substituted

# The amount of a TC that lets float32 operands be rounded to the 10 bits of tf32, and the one that
# takes the largest tile of its dtypes.
ROUNDED, LARGEST = 1, 2


def tensor(kernel: UOp, r: UOp, n: int) -> UOp:
    """Put the reduce over r on tensor cores. Amount 1 lets float32 be rounded to tf32; amount 2
    takes the largest tile, which only later GPUs have."""
    tile, *loops = tile_loops(kernel, r, n)
    for q, size in zip(loops, tile.shape):
        _check(kernel, q, size)
    summed: AxisKind = "reduce" if tile.is_of_words else "unroll"
    parts = {q: pieces(q, size, summed if q is r else "warp")
             for q, size in zip(loops, tile.shape)}  # fmt: skip
    kernel, inner = substituted(kernel, parts), [p.loops[-1] for p in parts.values()]
    (reduce,) = [u for u in nest_of(kernel).reduces if inner[2] in u.src]
    factors = _factors(reduce.src[0])
    if inner[0] not in ranges.ranges(factors[0]):
        factors.reverse()
    body = intern(Ops.SHAPED_WMMA, tile.result, (*factors, *inner), tile.shape)
    made = intern(Ops.REDUCE, reduce.dtype, (body, *reduce.src[1:]), reduce.arg)
    return rebuild.rebuild(kernel, {reduce: made})


def tile_loops(kernel: UOp, r: UOp, n: int) -> tuple[Tile, UOp, UOp, UOp]:
    """The tile for a reduce over r, and the loops of its rows, of its columns (neighbours in
    storage) and of its depth. If several loops qualify, the innermost."""
    closing = nest_of(kernel).closers(r)
    if len(closing) != 1 or closing[0].op is not Ops.REDUCE:
        raise Refused("exactly one reduce must close the range")
    product = find_contraction(closing[0])
    if product is None:
        raise Refused("the reduce is not a sum of products")
    tile = nest_of(kernel).tile_of(product)
    if tile is None:
        raise Refused(
            "each operand needs an output loop of its own, one of which writes neighbours"
        )
    ordered, row, column = tile
    return _tile(ordered, n), row, column, r


def _factors(product: UOp) -> list[UOp]:
    """The factors before they were widened. A word of unsigned bytes is a uint32."""
    if product.op is Ops.DOT4:
        return [fold.bitcast(product.src[0], dtypes.uint32), product.src[1]]
    if product.op is Ops.DOT2:
        return list(product.src)
    return [x.src[0] if x.op is Ops.CAST else x for x in product.src]


def _tile(p: Contraction, n: int) -> Tile:
    """The tile for the factors of a product."""
    product, result = p.reduce.src[0], p.reduce.dtype
    a, b = [x.dtype for x in _factors(product)]
    if p.a is not product.src[0]:
        a, b = b, a
    tiles = [t for t in tiles_for(a, b, result) if t.is_of_words is (product.op in DOTS)]
    if not tiles:
        raise Refused(f"no tensor core multiplies {a.name} and {b.name} into {result.name}")
    tile = tiles[-1 if n == LARGEST else 0]
    if tile.operand is dtypes.float32 and n != ROUNDED:
        raise Refused("float32 would be rounded to tf32: amount 1 allows the rounding")
    return tile


def _check(kernel: UOp, r: UOp, size: int) -> None:
    check_free(kernel, r)
    if r.arg.kind not in ("loop", "reduce"):
        raise Refused(f"a loop of the product is already {r.arg.kind}")
    if not affine.is_multiple(r.src[0], size):
        why = f"the tile's {size} does not divide the range of {{}}: PADTO or SPLIT it"
        raise Refused(why, r.src[0])
    check_unordered(kernel, r)
    if any(q.arg.kind == "lane" for nest in nest_of(kernel).around if r in nest for q in nest):
        raise Refused("values inside a loop of the product already have lanes")
