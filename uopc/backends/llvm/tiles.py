"""Tiles of words in the registers of AMX: values of 1 KiB, 16 rows of 64 bytes.

LLVM gives each the shape that its intrinsics name, assigns registers, and configures them once per
function: `ldtilecfg` at the beginning, `tilerelease` at the end.
"""

from __future__ import annotations

from collections.abc import Mapping

from uopc.backends.kernel_text import Rule
from uopc.backends.llvm.emitter import Emitter, OpenLoop
from uopc.backends.llvm.types import TILE
from uopc.errors import Unsupported
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices import tensor_cores
from uopc.ir.devices.tensor_cores import is_tile

_ROWS, _ROW_BYTES = tensor_cores.SIDE, 4 * tensor_cores.SIDE
_SHAPE = [("i16", str(_ROWS)), ("i16", str(_ROW_BYTES))]
_STRIDE = ("i64", str(_ROW_BYTES))
_ZERO = f"call {TILE} @llvm.x86.tilezero.internal(i16 {_ROWS}, i16 {_ROW_BYTES})"


def with_tiles(rules: Mapping[Op, Rule]) -> dict[Op, Rule]:
    """The code of each op in a kernel with products of tiles, whose vectors as long are tiles."""
    of_load, of_store = rules[Ops.LOAD], rules[Ops.STORE]
    return {
        **rules,
        Ops.LOAD: lambda e, u: (_load if is_tile(u.dtype) else of_load)(e, u),
        Ops.STORE: lambda e, u: (_store if is_tile(u.src[1].dtype) else of_store)(e, u),
        Ops.WMMA: _product,
    }


def _load(e: Emitter, u: UOp) -> str:
    """A LOAD of a tile, whose rows follow one another."""
    place = ("ptr", e.address(u.src[0]).removeprefix("ptr "))
    return e.intrinsic(TILE, "llvm.x86.tileloadd64.internal", [*_SHAPE, place, _STRIDE])


def _store(e: Emitter, u: UOp) -> None:
    """A STORE of a tile."""
    place = ("ptr", e.address(u.src[0]).removeprefix("ptr "))
    operands = [*_SHAPE, place, _STRIDE, (TILE, e.of(u.src[1]))]
    e.intrinsic("void", "llvm.x86.tilestored64.internal", operands)


def _product(e: Emitter, u: UOp) -> str:
    """A WMMA: c + a·b."""
    tile = tensor_cores.tile_of(u)
    if tile is None or not tile.is_of_words:
        raise Unsupported(f"llvm: no unit multiplies {u.arg} of {u.src[0].dtype.name}")
    if tile.result.is_float:
        name = "tdpbf16ps"
    else:
        signs = ["u" if t is dtypes.uint32 else "s" for t in tile.operands]
        name = f"tdpb{''.join(signs)}d"
    total = e.of(u.src[3]) if len(u.src) == 4 and u.src[3].op is not Ops.CONST else _zero(e)
    operands = [*_SHAPE, ("i16", str(_ROW_BYTES)), (TILE, total)]
    operands += [(TILE, e.of(s)) for s in u.src[:2]]
    return e.intrinsic(TILE, f"llvm.x86.{name}.internal", operands)


def _zero(e: Emitter) -> str:
    """A tile of zeros, here."""
    _declare_zero(e)
    return e.value(_ZERO)


def zero_before(e: Emitter, loop: OpenLoop) -> str:
    """A tile of zeros before a loop, for one of the registers that it carries: copies of a tile go
    through memory."""
    _declare_zero(e)
    return e.value_before(loop, _ZERO)


def _declare_zero(e: Emitter) -> None:
    e.declared[f"declare {TILE} @llvm.x86.tilezero.internal(i16, i16)"] = None
