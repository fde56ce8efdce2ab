"""Kernels with non-temporal stores: two versions, and a test of the storage's alignment.

A non-temporal store needs memory aligned to 16 bytes. NumPy's arrays are; a part of an array may
not be. The kernel tests the addresses it is called with and picks a version.
"""

from __future__ import annotations

import platform

from uopc.backends.kernel_text import Rule
from uopc.backends.llvm.emitter import Emitter
from uopc.backends.llvm.statements import CpuEmitter
from uopc.backends.llvm.types import llvm_type
from uopc.ir.core import storage
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import values
from uopc.target import Target

ALIGNMENT = Target.stream_bytes
_HINT = "!0 = !{i32 1}"
# x86 does not order these stores with others: without a fence, they may not be visible to a thread
# that learns that the kernel is done.
_X86 = ("x86_64", "AMD64")
_FENCE = "llvm.x86.sse.sfence"


def streamed(kernel: UOp) -> dict[UOp, UOp]:
    """The non-temporal stores of a linear kernel, each with its storage: whole vectors that are
    aligned where the storage is."""
    found: dict[UOp, UOp] = {}
    for u in kernel.src:
        if u.op is not Ops.STORE or u.arg != "stream" or len(u.src) != 2:
            continue
        (storage, index), stored = u.src[0].src, u.src[1].dtype
        size = stored.scalar.itemsize
        offset = values.divisor(index) * size
        whole = stored.lanes * size % ALIGNMENT == 0 and offset % ALIGNMENT == 0
        if whole and stored.kind != "bool" and storage.op is Ops.PARAM:
            found[u] = storage
    return found


class _StoreVersion(CpuEmitter):
    """A version: with non-temporal `stores` for aligned storage, without them for any storage."""

    def __init__(
        self, name: str, kernel: UOp, stores: dict[UOp, UOp], is_x86: bool = False
    ) -> None:
        super().__init__(name, kernel)
        self.stores, self.is_x86 = stores, is_x86

    def head(self) -> str:
        return f"define internal {super().head().removeprefix('define ')}"

    def rule(self, u: UOp) -> Rule | None:
        return _stream if u in self.stores else super().rule(u)

    def definition(self) -> str:
        if self.stores:
            if self.is_x86:
                self.intrinsic("void", _FENCE, ())
            self.declared[_HINT] = None
        return super().definition()


def _stream(e: Emitter, u: UOp) -> str | None:
    address, value = e.address(u.src[0]), u.src[1]
    t = llvm_type(value.dtype)
    e.effect(f"store {t} {e.of(value)}, {address}, align {ALIGNMENT}, !nontemporal !0")
    return None


def _choose(e: CpuEmitter, streaming: Emitter, plain: Emitter, stores: dict[UOp, UOp]) -> str:
    """The kernel itself, which calls one of its versions."""
    places, bits = storage.word_places(e.kernel), ""
    for base in dict.fromkeys(stores.values()):
        address = e.value(f"ptrtoint ptr {e.word('ptr', places[base])} to i64")
        bits = e.value(f"or i64 {bits}, {address}") if bits else address
    rest = e.value(f"and i64 {bits}, {ALIGNMENT - 1}")
    test = e.value(f"icmp eq i64 {rest}, 0")
    e.effect(f"br i1 {test}, label %aligned, label %other")
    for label, version in (("aligned", streaming), ("other", plain)):
        e.label(label)
        e.effect(f"call void @{version.name}(ptr %words, i64 %chunk)")
        e.effect("br label %done")
    e.label("done")
    return e.definition()


def render(
    name: str, kernel: UOp, stores: dict[UOp, UOp], is_x86: bool | None = None
) -> tuple[str, list[str]]:
    """The functions of a linear kernel with non-temporal stores, and the declarations they need.
    is_x86: whether the code is for x86; by default, whether this machine is."""
    x86 = platform.machine() in _X86 if is_x86 is None else is_x86
    streaming = _StoreVersion(f"{name}.streaming", kernel, stores, x86)
    plain = _StoreVersion(f"{name}.plain", kernel, {})
    kernel_itself = _choose(CpuEmitter(name, kernel), streaming, plain, stores)
    texts = [streaming.run(), plain.run(), kernel_itself]
    return "\n\n".join(texts), list(streaming.declared | plain.declared)
