"""Tensor cores in LLVM IR for NVIDIA GPUs: `mma.sync` and `ldmatrix` by intrinsics."""

from __future__ import annotations

from dataclasses import dataclass

from uopc.backends.llvm.emitter import Emitter
from uopc.backends.llvm.types import literal, llvm_type
from uopc.errors import Unsupported
from uopc.ir.core import dtypes, tensor_cores
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp


@dataclass(frozen=True)
class _Instruction:
    """The end of an intrinsic's name, and the LLVM type of its operands a and b."""

    name: str
    word: str


_INSTRUCTIONS: dict[DType, _Instruction] = {
    dtypes.bfloat16: _Instruction("bf16", "i32"),
    dtypes.float16: _Instruction("f32.f32", "<2 x half>"),
    dtypes.float32: _Instruction("tf32", "i32"),
    dtypes.int8: _Instruction("s8", "i32"),
    dtypes.float64: _Instruction("f64", "double"),
}
_BITS = {"i32": 32, "<2 x half>": 32, "double": 64}


def wmma(e: Emitter, u: UOp) -> str | None:
    """A WMMA: the lane's elements of c + a·b."""
    tile = tensor_cores.tile_of(u)
    if tile is None:
        raise Unsupported(f"nvptx: no tensor core multiplies {u.arg} of {u.src[0].dtype.name}")
    how = _INSTRUCTIONS[tile.operand]
    m, n, k = tile.shape
    operands = [(how.word, w) for s in u.src[:2] for w in _words(e, s, how.word)]
    one, count = llvm_type(tile.result), tile.counts[2]
    if len(u.src) == 4:
        given = e.of(u.src[3], count)
        sums = [
            e.value(f"extractelement {llvm_type(u.dtype)} {given}, i64 {i}") for i in range(count)
        ]
    else:
        sums = [literal(tile.result, 0.0 if tile.result.is_float else 0)] * count
    operands += [(one, x) for x in sums]
    result = "{" + ", ".join([one] * count) + "}"
    got = e.intrinsic(result, f"llvm.nvvm.mma.m{m}n{n}k{k}.row.col.{how.name}", operands)
    whole = "poison"
    for i in range(count):
        part = e.value(f"extractvalue {result} {got}, {i}")
        whole = e.value(f"insertelement {llvm_type(u.dtype)} {whole}, {one} {part}, i64 {i}")
    return whole


def _words(e: Emitter, u: UOp, word: str) -> list[str]:
    """The elements of an operand as the registers that the instruction takes."""
    given, own = e.of(u), llvm_type(u.dtype)
    count = u.dtype.lanes * u.dtype.bits // _BITS[word]
    target = word if count == 1 else f"<{count} x i32>"
    if own != target:
        given = e.value(f"bitcast {own} {given} to {target}")
    if count == 1:
        return [given]
    parts = [e.value(f"extractelement {target} {given}, i64 {i}") for i in range(count)]
    if word == "i32":
        return parts
    return [e.value(f"bitcast i32 {x} to {word}") for x in parts]


def matrices(e: Emitter, u: UOp, place: str) -> str:
    """A TILE_LOAD from `ptr addrspace(3) …`: the lane's pairs of elements, in order."""
    count, exchanged = u.arg
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if exchanged else ''}.b16.p3"
    result = "i32" if count == 1 else "{" + ", ".join(["i32"] * count) + "}"
    space, _, address = place.rpartition(" ")
    got = e.intrinsic(result, name, [(space, address)])
    whole = "poison"
    for i in range(count):
        part = got if count == 1 else e.value(f"extractvalue {result} {got}, {i}")
        whole = e.value(f"insertelement <{count} x i32> {whole}, i32 {part}, i64 {i}")
    return e.value(f"bitcast <{count} x i32> {whole} to {llvm_type(u.dtype)}")
