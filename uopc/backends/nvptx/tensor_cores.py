"""Tensor cores in LLVM IR for NVIDIA GPUs: `mma.sync` and `ldmatrix` by intrinsics."""

from __future__ import annotations

from uopc.backends.llvm.emitter import Emitter
from uopc.backends.llvm.types import literal, llvm_type
from uopc.errors import Unsupported
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp
from uopc.ir.devices import tensor_cores

# The end of an intrinsic's name, and the LLVM type of its operands a and b.
_INSTRUCTIONS: dict[DType, tuple[str, str]] = {
    dtypes.bfloat16: ("bf16", "i32"),
    dtypes.float16: ("f32.f32", "<2 x half>"),
    dtypes.float32: ("tf32", "i32"),
    dtypes.int8: ("s8", "i32"),
    dtypes.float64: ("f64", "double"),
}
_BITS = {"i32": 32, "<2 x half>": 32, "double": 64}


def wmma(e: Emitter, u: UOp) -> str | None:
    """A WMMA: the lane's elements of c + a·b."""
    tile = tensor_cores.tile_of(u)
    if tile is None:
        raise Unsupported(f"nvptx: no tensor core multiplies {u.arg} of {u.src[0].dtype.name}")
    name, word = _INSTRUCTIONS[tile.operand]
    m, n, k = tile.shape
    operands = [(word, w) for s in u.src[:2] for w in _words(e, s, word)]
    t, count = llvm_type(tile.result), tile.counts[2]
    if len(u.src) == 4:
        sums = e.lanes(t, e.of(u.src[3], count), count)
    else:
        sums = [literal(tile.result, 0.0 if tile.result.is_float else 0)] * count
    operands += [(t, x) for x in sums]
    result = "{" + ", ".join([t] * count) + "}"
    got = e.intrinsic(result, f"llvm.nvvm.mma.m{m}n{n}k{k}.row.col.{name}", operands)
    return e.vector(t, [e.value(f"extractvalue {result} {got}, {i}") for i in range(count)])


def _words(e: Emitter, u: UOp, word: str) -> list[str]:
    """The elements of an operand as the registers that the instruction takes."""
    given, own = e.of(u), llvm_type(u.dtype)
    count = u.dtype.lanes * u.dtype.bits // _BITS[word]
    if own == (word if count == 1 else f"<{count} x {word}>"):
        return e.lanes(word, given, count) if count > 1 else [given]
    target = word if count == 1 else f"<{count} x i32>"
    if own != target:
        given = e.value(f"bitcast {own} {given} to {target}")
    if count == 1:
        return [given]
    words = e.lanes("i32", given, count)
    return words if word == "i32" else [e.value(f"bitcast i32 {x} to {word}") for x in words]


def matrices(e: Emitter, u: UOp) -> str:
    """A TILE_LOAD: the lane's pairs of elements, in order."""
    count, exchanged = u.arg
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if exchanged else ''}.b16.p3"
    result = "i32" if count == 1 else "{" + ", ".join(["i32"] * count) + "}"
    space, _, address = e.address(u.src[0]).rpartition(" ")
    got = e.intrinsic(result, name, [(space, address)])
    words = [got]
    if count > 1:
        words = [e.value(f"extractvalue {result} {got}, {i}") for i in range(count)]
    whole = e.vector("i32", words)
    return e.value(f"bitcast <{count} x i32> {whole} to {llvm_type(u.dtype)}")
