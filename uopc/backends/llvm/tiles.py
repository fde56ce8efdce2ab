"""Tiles of words in the registers of AMX: values of 1 KiB, 16 rows of 64 bytes.

LLVM gives each the shape that its intrinsics name, assigns registers, and configures them once per
function: `ldtilecfg` at the beginning, `tilerelease` at the end.
"""

from __future__ import annotations

from uopc.backends.llvm.emitter import Emitter, Loop
from uopc.backends.llvm.types import llvm_type
from uopc.errors import Unsupported
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices import tensor_cores

TYPE = "x86_amx"
_ROWS, _ROW_BYTES = tensor_cores.SIDE, 4 * tensor_cores.SIDE
_SHAPE = [("i16", str(_ROWS)), ("i16", str(_ROW_BYTES))]
_STRIDE = ("i64", str(_ROW_BYTES))
_ZERO = f"call {TYPE} @llvm.x86.tilezero.internal(i16 {_ROWS}, i16 {_ROW_BYTES})"


def is_tile(e: Emitter, t: DType) -> bool:
    """True for a tile; a kernel without a product of tiles may have vectors as long."""
    return tensor_cores.is_tile(t) and e.multiplies_tiles


def register_type(e: Emitter, t: DType) -> str:
    """The type of a value in registers."""
    return TYPE if is_tile(e, t) else llvm_type(t)


def load(e: Emitter, u: UOp) -> str:
    """A LOAD of a tile, whose rows follow one another."""
    place = ("ptr", e.address(u.src[0]).removeprefix("ptr "))
    return e.intrinsic(TYPE, "llvm.x86.tileloadd64.internal", [*_SHAPE, place, _STRIDE])


def store(e: Emitter, u: UOp) -> None:
    """A STORE of a tile."""
    place = ("ptr", e.address(u.src[0]).removeprefix("ptr "))
    operands = [*_SHAPE, place, _STRIDE, (TYPE, e.of(u.src[1]))]
    e.intrinsic("void", "llvm.x86.tilestored64.internal", operands)


def product(e: Emitter, u: UOp) -> str:
    """A WMMA: c + a·b."""
    tile = tensor_cores.tile_of(u)
    if tile is None or not tile.is_of_words:
        raise Unsupported(f"llvm: no unit multiplies {u.arg} of {u.src[0].dtype.name}")
    if tile.result.is_float:
        name = "tdpbf16ps"
    else:
        signs = ["u" if t is dtypes.uint32 else "s" for t in tile.operands]
        name = f"tdpb{''.join(signs)}d"
    total = e.of(u.src[3]) if len(u.src) == 4 and u.src[3].op is not Ops.CONST else zero(e)
    operands = [*_SHAPE, ("i16", str(_ROW_BYTES)), (TYPE, total)]
    operands += [(TYPE, e.of(s)) for s in u.src[:2]]
    return e.intrinsic(TYPE, f"llvm.x86.{name}.internal", operands)


def zero(e: Emitter) -> str:
    """A tile of zeros, here."""
    _declare_zero(e)
    return e.value(_ZERO)


def zero_before(e: Emitter, loop: Loop) -> str:
    """A tile of zeros before a loop, for one of the registers that it carries: copies of a tile go
    through memory."""
    _declare_zero(e)
    return e.value_before(loop, _ZERO)


def _declare_zero(e: Emitter) -> None:
    e.declared[f"declare {TYPE} @llvm.x86.tilezero.internal(i16, i16)"] = None
