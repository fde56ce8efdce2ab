"""Weights of 2, 4 and 8 bits with a scale for each block of a row, in ONNX Runtime's format."""

from __future__ import annotations

from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported, UserError
from uopc.ir.core import shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter
from uopc.onnx.narrow import INTEGERS, narrow_of
from uopc.onnx.node import Node, dims, normal
from uopc.onnx.ops.quantize import spread
from uopc.onnx.registry import MICROSOFT, op
from uopc.onnx.values import is_known

_BITS = (2, 4, 8)
LEAST_BLOCK = 16


def _bits_and_block(n: Node, block: int) -> tuple[int, int]:
    """Check and return the attributes `bits` and `block_size`."""
    bits, block = n.attr("bits", 4), n.attr("block_size", block)
    if bits not in _BITS:
        raise Unsupported(f"bits must be one of {', '.join(map(str, _BITS))}, got {bits}")
    if block < LEAST_BLOCK or block & (block - 1):
        raise UserError(f"block_size must be a power of 2, at least {LEAST_BLOCK}, got {block}")
    return bits, block


def _numbers_of_bytes(packed: UOp, bits: int) -> list[UOp]:
    """Unpack the numbers of each byte, lowest bits first."""
    if bits == 8:
        return [packed]
    low = [packed >> at if at else packed for at in range(0, 8, bits)]
    return [*[v & (1 << bits) - 1 for v in low[:-1]], low[-1]]


def _unpacked(packed: UOp, bits: int, count: Any) -> UOp:
    """The first `count` numbers of each row of bytes."""
    if bits == 8:
        return packed
    each = uopc.stack(*_numbers_of_bytes(packed, bits), axis=-1)
    *lead, size = dims(packed)
    return each.reshape(*lead, size * (8 // bits))[..., :count]


def _checked(name: str, v: UOp, wanted: tuple[int, ...]) -> UOp:
    """Reshape an operand to this shape from the same shape or from one row; else UserError."""
    own = dims(v)
    if own not in (wanted, (int(np.prod(wanted)),)):
        raise UserError(f"{name} must have the shape {shapes.show(wanted)}, got {shapes.show(own)}")
    return v.reshape(wanted)


def with_shape(name: str, v: UOp, wanted: tuple[Any, ...]) -> UOp:
    """Return an operand, checked to have this shape. Symbolic sizes are not compared."""
    own = dims(v)
    pairs = [(a, b) for a, b in zip(own, wanted) if isinstance(a, int) and isinstance(b, int)]
    if len(own) != len(wanted) or any([a != b for a, b in pairs]):
        raise UserError(f"{name} must have the shape {shapes.show(wanted)}, got {shapes.show(own)}")
    return v


# ---------------------------------------------------------------- products
@op("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(n: Node) -> UOp:
    """a @ w.T + bias, where w is (codes - zero point) * scale.

    Sums are in float32, or in float64 where `a` is; the less accurate products that
    `accuracy_level` allows are not used. The low and the high numbers of bytes are separate axes of
    the sum, and `a` is stored in the same order: rows of bytes stay neighbours in memory, and codes
    are looked up in a register.
    """
    if n.attr("weight_prepacked", 0):
        raise Unsupported(
            "weight_prepacked (weights in the order of a GPU's kernels) is not supported"
        )
    bits, block = _bits_and_block(n, 0)
    columns, rows = n.attr("K", 0), n.attr("N", 0)
    if columns < 1 or rows < 1:
        raise UserError(f"K and N must be positive, got {columns} and {rows}")
    blocks, parts = -(-columns // block), 8 // bits
    a, b, bias = n.x(0), n.x(1), n.maybe(5)
    lead = dims(a)[:-1]
    if dims(a)[-1:] != (columns,):
        raise UserError(f"the last size of A must be K = {columns}, got {shapes.show(dims(a))}")
    if b.dtype is not dtypes.uint8:
        raise UserError(f"B must be uint8, got {b.dtype.name}")
    wide = dtypes.promote(a.dtype, dtypes.float32)
    if 0 in dims(b):  # a layer that is left out
        y = uopc.full((*lead, rows), 0.0, wide)
    else:
        w = _checked("B", b, (rows, blocks, block // parts))
        scale, zero = _scales(n, rows, blocks, bits, wide)
        if n.has(4) and (group := _groups(n, columns, block)) is not None:
            group = _in_parts(group, blocks, parts)
            scale, zero = scale.take(group, 1), zero if zero is None else zero.take(group, 1)
        else:
            scale = scale.reshape(rows, blocks, 1, 1)
            zero = zero if zero is None else zero.reshape(rows, blocks, 1, 1)
        weights = (
            _centred(uopc.stack(*_numbers_of_bytes(w, bits), axis=2), zero, bits, wide) * scale
        )
        padded = a.cast(wide).pad([(0, 0)] * len(lead) + [(0, blocks * block - columns)])
        x = _in_parts(padded, blocks, parts).contiguous()
        y = (weights * x.unsqueeze(len(lead))).sum((-3, -2, -1))
    if bias is not None:
        y = y + with_shape("bias", bias, (rows,)).cast(wide)
    return y.cast(a.dtype)


def _centred(codes: UOp, zero: UOp | None, bits: int, wide: DType) -> UOp:
    """Subtract the zero point (by default half of the numbers are negative), and convert to floats.
    The subtraction is in bytes where they hold the result."""
    if bits == 8 or (zero is not None and zero.dtype.is_float):
        return codes.cast(wide) - (128.0 if zero is None else zero.cast(wide))
    middle = (1 << bits - 1) if zero is None else zero.cast(dtypes.int8)
    return (codes.cast(dtypes.int8) - middle).cast(wide)


def _in_parts(v: UOp, blocks: int, parts: int) -> UOp:
    """Split the last axis into blocks, each ordered by the position of its numbers in a byte."""
    *lead, size = dims(v)
    rank = len(lead)
    each = v.reshape(*lead, blocks, size // (blocks * parts), parts)
    return each.permute(*range(rank), rank, rank + 2, rank + 1)


def _scales(n: Node, rows: int, blocks: int, bits: int, wide: DType) -> tuple[UOp, UOp | None]:
    """The scale and the zero point, which may be packed, of each block of each row."""
    scale, zero = _checked("scales", n.x(2), (rows, blocks)), n.maybe(3)
    for name, v in (("scales", scale), ("zero_points", zero)):
        if v is not None and not (v.dtype.is_float or (v is zero and v.dtype is dtypes.uint8)):
            raise UserError(f"{name} must be floats, got {v.dtype.name}")
    scale = _stored(scale.cast(wide), is_known(n.raw(2)))
    if zero is None:
        return scale, None
    if zero.dtype is not dtypes.uint8:
        return scale, _checked("zero_points", zero, (rows, blocks))
    packed = _checked("zero_points", zero, (rows, -(-blocks * bits // 8)))
    return scale, _stored(_unpacked(packed, bits, blocks), is_known(n.raw(3)))


def _stored(v: UOp, known: bool) -> UOp:
    """Store the numbers of blocks instead of recomputing them: there are few."""
    if known and v.op is not Ops.DATA:
        return uopc.constant(np.asarray(interpreter.evaluate(v, {})))
    return v if known else v.contiguous()


def _groups(n: Node, columns: int, block: int) -> UOp | None:
    """The block of each column's scale (`g_idx`); None if it is the column's own block. `g_idx` may
    pad its last block."""
    given, last = n.x(4), (columns - 1) // block
    if dims(given) != ((last + 1) * block,):
        given = _checked("g_idx", given, (columns,))
    if is_known(n.raw(4)):
        known = n.known(4)
        assert known is not None
        known = known.reshape(-1)[:columns]
        if np.array_equal(known, np.arange(columns) // block):
            return None
        if known.min(initial=0) < 0 or known.max(initial=0) > last:
            raise UserError(f"g_idx must have numbers from 0 to {last}")
    return given[:columns].pad([(0, -columns % block)])


# ---------------------------------------------------------------- rows of tables
@op("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(n: Node) -> UOp:
    """Dequantise the rows of a table that indices choose; an index out of range gives zeros."""
    bits, block = _bits_and_block(n, 128)
    table, indices, scale, zero = n.x(0), n.x(1), n.x(2), n.maybe(3)
    few = narrow_of(n.raw(0))
    if table.dtype is not dtypes.uint8 if few is None else few not in INTEGERS:
        raise Unsupported(f"the data must be int4, uint4 or uint8, got {table.dtype.name}")
    rank = len(dims(table))
    axis, blocked = normal(n.attr("gather_axis", 0), rank), normal(n.attr("quantize_axis", 1), rank)
    if axis == blocked:
        raise Unsupported("gather_axis must differ from quantize_axis")
    is_packed = few is None and bits < 8
    if is_packed and axis == rank - 1:
        raise Unsupported("gather_axis must not be the last axis of packed numbers")
    if not indices.dtype.is_int:
        raise UserError(f"indices must be integers, got {indices.dtype.name}")
    each = 8 // bits if is_packed else 1
    *lead, row = dims(table)
    shape = [*lead, row * each]
    shape[blocked] = -(-shape[blocked] // block)
    with_shape("scales", scale, tuple(shape))
    if zero is not None:
        with_shape("zero_points", zero, (*shape[:-1], -(-shape[-1] // each)))
    size = dims(table)[axis]
    at = indices.cast(dtypes.int64)
    at = uopc.where(at < 0, at + size, at)
    inside = (at >= 0) & (at < size)
    at = at.clip(0, size - 1)

    def chosen(v: UOp) -> UOp:
        return v.take(at, axis)

    codes, scale = chosen(table), chosen(scale)
    wide = dtypes.promote(scale.dtype, dtypes.float32)
    if is_packed:
        codes = _unpacked(codes, bits, row * each)
    moved = blocked if blocked < axis else blocked + len(dims(indices)) - 1
    if zero is not None:
        zero = chosen(zero)
        zero = _unpacked(zero, bits, dims(scale)[-1]) if is_packed else zero
        zero = spread(zero, codes, moved, block)
    made = codes.cast(wide) if few and zero is None else _centred(codes, zero, bits, wide)
    made = made * spread(scale, made, moved, block).cast(wide)
    ones = [1] * (rank - 1 - axis)
    inside = inside.reshape(*dims(inside), *ones)
    return uopc.where(inside, made, 0.0).cast(scale.dtype)
