"""Running totals, of the elements up to each one, become a loop or, on a GPU, sums in blocks.

Before (tensor)                              After (tensor)
  %1 = param x : f32[4]                        %1 = iota : index[4]
  %2 = accumulate.add %1 axes=(0,) : f32[4]    %2 = reshape %1 (4, 1) : index[4, 1]
  sink %2                                      %3 = add %2, 1 : index[4, 1]
                                               %4 = cmplt %1, %3 : bool[4, 4]
                                               %5 = param x : f32[4]
                                               %6 = reshape %5 (1, 4) : f32[1, 4]
                                               %7 = where %4, %6, 0.0:f32 : f32[4, 4]
                                               %8 = reduce.add %7 axes=(1,) : f32[4]
                                               sink %8

On a CPU, a kernel with a loop that keeps its order. Along the last axis a register has the total:

    for i: t = 0; for j: t = t + x[i, j]; y[i, j] = t

Along another axis, whole rows of what is inside are added at once:

    for i: for j: for k: y[i, j, k] = (j > 0 ? y[i, j - 1, k] : 0) + x[i, j, k]

A short axis needs no kernel of its own: each total is computed separately. So is it in the blocks
into which a GPU, where a loop that keeps its order would occupy one thread, cuts a long axis.
"""

from __future__ import annotations

from uopc.ir.builder import alu, fold, index_maps, kernel, leaves, movement, rebuild
from uopc.ir.builder.programs import Slots
from uopc.ir.core import dtypes, semantics, shapes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.contract import Context

# Totals that are computed separately cost one masked operation per element and place of the axis.
_DIRECT = 32
_BLOCK = 32


def running_totals(graph: UOp, context: Context) -> UOp:
    """One walk, sources first."""
    slots, on_gpu = Slots(graph), context.target.gpu is not None

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is not Ops.ACCUMULATE:
            return None
        if u.dtype.is_float and u.dtype.bits < 32:
            return fold.cast(_totals(u, fold.cast(src[0], dtypes.float32), slots, on_gpu), u.dtype)
        return _totals(u, src[0], slots, on_gpu)

    return rebuild.rewritten(graph, change, outside_kernels=True)


def _totals(u: UOp, x: UOp, slots: Slots, on_gpu: bool) -> UOp:
    """The totals of `x`, which stands for the source of `u`."""
    (axis,), dims = u.arg.axes, shapes.shape(x)
    n = dims[axis]
    if n == 1 or 0 in dims:
        return x
    op = Op.by_name(u.arg.op)
    if not on_gpu and not (isinstance(n, int) and n <= _DIRECT):
        form = shapes.size(dims[:axis]), n, shapes.size(dims[axis + 1 :])
        return movement.reshape(_in_order(movement.reshape(x, form), op, slots), dims)
    last = (*[i for i in range(len(dims)) if i != axis], axis)
    return movement.permute_back(_in_blocks(movement.permute(x, last), op), last)


# ---------------------------------------------------------------- a loop that keeps its order
def _in_order(x: UOp, op: Op, slots: Slots) -> UOp:
    """The totals along the second of three axes."""
    dims = shapes.shape(x)
    storage = leaves.buffer(slots(), x.dtype, dims)
    out, given = [leaves.param(slot, x.dtype, dims, f"arg{slot}") for slot in range(2)]
    i, j, k = [kernel.range(d, axis) for axis, d in enumerate(dims)]
    here = movement.index(out, i, j, k)
    element = movement.index(given, i, j, k)
    nothing = leaves.const(x.dtype, semantics.reduce_identity(op.name, x.dtype))
    if dims[2] == 1:
        register = leaves.buffer(slots(), x.dtype, (1,), "reg")
        empty = kernel.store(movement.index(kernel.after(register, i), 0), nothing)
        before = movement.index(kernel.after(register, empty, j), 0)
        added = kernel.store(movement.index(register, 0), alu.binary(op, before, element))
        total = movement.index(kernel.after(register, added), 0)
    else:
        follows = alu.binary(Ops.CMPLE, 1, j)
        (place,) = index_maps.gated((affine.plus(j, -1),), follows)
        before = alu.where(follows, movement.index(out, i, place, k), nothing)
        total = alu.binary(op, before, element)
    effect = kernel.end(kernel.store(here, total), i, j, k)
    sink = kernel.sink(effect, name=f"accumulate_{op.name}_{x.dtype.short}")
    source = intern(Ops.CONTIGUOUS, x.dtype, (x,))
    call = leaves.located(intern(Ops.CALL, dtypes.void, (sink, storage, source)))
    return kernel.after(storage, call)


# ---------------------------------------------------------------- no order
def _in_blocks(x: UOp, op: Op) -> UOp:
    """Totals along the last axis: totals inside of each block, combined with the total of all
    blocks before."""
    *rest, n = shapes.shape(x)
    if n == 1:
        return x
    if not isinstance(n, int) or n <= 2 * _DIRECT:
        return _separately(x, op)
    nothing = semantics.reduce_identity(op.name, x.dtype)
    blocks = -(-n // _BLOCK)
    still = [(0, 0)] * len(rest)
    padded = movement.pad(x, [*still, (0, blocks * _BLOCK - n)], nothing)
    split = movement.reshape(padded, (*rest, blocks, _BLOCK))
    totals = _in_blocks(movement.reduce(split, op, len(rest) + 1), op)
    all_but_last = movement.shrink(totals, [*((0, d) for d in rest), (0, blocks - 1)])
    before = movement.pad(all_but_last, [*still, (1, 0)], nothing)
    inside = _separately(split, op)
    whole = alu.binary(op, inside, movement.reshape(before, (*rest, blocks, 1)))
    flat = movement.reshape(whole, (*rest, blocks * _BLOCK))
    return movement.shrink(flat, [*((0, d) for d in rest), (0, n)])


def _separately(x: UOp, op: Op) -> UOp:
    """Each total computed from the elements up to it."""
    *rest, n = shapes.shape(x)
    i = leaves.iota(n)
    taken = alu.alu(i, Ops.CMPLE, movement.reshape(i, (n, 1)))
    row = movement.reshape(x, (*rest, 1, n))
    nothing = leaves.const(x.dtype, semantics.reduce_identity(op.name, x.dtype))
    return movement.reduce(alu.where(taken, row, nothing), op, len(rest) + 1)
