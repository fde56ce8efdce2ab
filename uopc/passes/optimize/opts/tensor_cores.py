"""TC: a sum of products on tensor cores.

    reduce.add over k of cast(a[i, k]) · cast(b[k, j])
    →  reduce.add over k₀, depth of shaped_wmma(a, b, row, column, depth),
       i = 16·i₀ + row, j = 8·j₀ + column, k = 16·k₀ + depth

The sizes are those of the tile for the operands' dtype (`ir/core/tensor_cores.py`). On a GPU the 32
lanes of a warp hold the tile together; elsewhere its ranges are loops.
"""

from __future__ import annotations

from collections.abc import Iterable

from uopc.ir.builder import index_maps, rebuild
from uopc.ir.core import dtypes, ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.tensor_cores import Tile, tile_for
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.contraction import Contraction, find_contraction
from uopc.passes.analysis.loops import closers, kernel_nodes
from uopc.passes.optimize.opts.legality import Refused, check_free, check_unordered
from uopc.passes.optimize.opts.strip_mining import strip, stripped

# The amount of a TC that lets float32 operands be rounded to the 10 bits of tf32.
ROUNDED = 1


def tensor(kernel: UOp, r: UOp, n: int) -> UOp:
    """The reduce over r on tensor cores; amount 1 lets float32 be rounded to tf32."""
    tile, *loops = tile_loops(kernel, r, n)
    for q, size in zip(loops, tile.shape):
        _check(kernel, q, size)
    strips = [strip(q, size, "unroll" if q is r else "warp")
              for q, size in zip(loops, tile.shape)]  # fmt: skip
    kernel, inner = stripped(kernel, *strips), [s.loops[-1] for s in strips]
    (reduce,) = [u for u in kernel_nodes(kernel).reduces if inner[2] in u.src]
    factors = _narrow(reduce.src[0].src)
    if inner[0] not in ranges.ranges(factors[0]):
        factors.reverse()
    body = intern(Ops.SHAPED_WMMA, tile.result, (*factors, *inner), tile.shape)
    made = intern(Ops.REDUCE, reduce.dtype, (body, *reduce.src[1:]), reduce.arg)
    return rebuild.rebuild(kernel, {reduce: made})


def tile_loops(kernel: UOp, r: UOp, n: int) -> tuple[Tile, UOp, UOp, UOp]:
    """The tile for a reduce over r; and the loops of its rows, of its columns, whose neighbours are
    stored side by side, and of its depth. Of several loops, the innermost."""
    closing = closers(kernel, r)
    if len(closing) != 1 or closing[0].op is not Ops.REDUCE:
        raise Refused("tensor cores add up one reduce")
    product = find_contraction(closing[0])
    if product is None or closing[0].src[0].op is not Ops.MUL:
        raise Refused("the reduce is no sum of products")
    tile = _tile(product, n)
    indices = [before_effects(u.src[0]).src[1] for u in kernel_nodes(kernel).stores]
    strides = [affine.form(index_maps.ungated(i)[0])[1] for i in indices]
    for p in (product, product.transposed()):
        columns = [q for q in p.columns if any(terms.get(q) == 1 for terms in strides)]
        if p.rows and columns:
            return tile, p.rows[-1], columns[-1], r
    raise Refused("each operand needs an output loop of its own, and one writes neighbours")


def _narrow(factors: Iterable[UOp]) -> list[UOp]:
    """The factors before they were widened."""
    return [x.src[0] if x.op is Ops.CAST else x for x in factors]


def _tile(product: Contraction, n: int) -> Tile:
    """The tile for the factors of a product."""
    a, b = [x.dtype for x in _narrow((product.a, product.b))]
    result = product.reduce.dtype
    tile = tile_for(a, result)
    if tile is None or a is not b:
        raise Refused(f"there is no tile for {a.name} and {b.name}, added up in {result.name}")
    if tile.operand is dtypes.float32 and n != ROUNDED:
        raise Refused("float32 would be rounded to tf32: the amount is 0, not 1")
    return tile


def _check(kernel: UOp, r: UOp, size: int) -> None:
    check_free(kernel, r)
    if r.arg.kind not in ("loop", "reduce"):
        raise Refused(f"a loop of the product is already {r.arg.kind}")
    if not affine.is_multiple(r.src[0], size):
        why = f"the tile's {size} does not divide the range of {{}}: PADTO or SPLIT it"
        raise Refused(why, r.src[0])
    check_unordered(kernel, r)
    if any(q.arg.kind == "lane" for nest in kernel_nodes(kernel).nests if r in nest for q in nest):
        raise Refused("values inside a loop of the product already have lanes")
