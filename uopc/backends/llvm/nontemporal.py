"""Kernels whose stores go past the caches: two versions, by how the storage is aligned.

Such a store wants memory aligned to 16 bytes. NumPy's own arrays are; a part of an array that the
caller passes may not be. Which it is, the kernel sees when it is called. 4096 x 4096 floats times a
number, plus as many, take 6.2 ms a thread with stores through the caches, 5.2 in pieces of 16
bytes, 4.7 in vectors aligned to 64, which NumPy's arrays never are; 5.7 and more in pieces of 8.
"""

from __future__ import annotations

import platform

from uopc.backends.llvm.emitter import Emitter, Rule
from uopc.backends.llvm.statements import CpuEmitter, address_of
from uopc.backends.llvm.types import llvm_type
from uopc.ir.core import storage as kernel_params
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.target import Target

ALIGNMENT = Target.stream_bytes
_HINT = "!0 = !{i32 1}"
# Such stores of x86 are not ordered with others: whoever is told that the kernel is done may not
# see them yet, without a fence.
_FENCES = dict.fromkeys(("x86_64", "AMD64"), "llvm.x86.sse.sfence")


def streamed(kernel: UOp) -> dict[UOp, UOp]:
    """The stores of a linear kernel that go past the caches: whole vectors, aligned if the storage
    is; each with its storage."""
    found: dict[UOp, UOp] = {}
    for u in kernel.src:
        if u.op is not Ops.STORE or u.arg != "stream" or len(u.src) != 2:
            continue
        (storage, index), stored = u.src[0].src, u.src[1].dtype
        size = stored.scalar.itemsize
        offset = affine.divisor(index) * size
        whole = stored.lanes * size % ALIGNMENT == 0 and offset % ALIGNMENT == 0
        if whole and stored.kind != "bool" and storage.op is Ops.PARAM:
            found[u] = storage
    return found


class _Version(CpuEmitter):
    """One of the two: for any storage, as it stands."""

    def head(self) -> str:
        return f"define internal {super().head().removeprefix('define ')}"


class _Streaming(_Version):
    """The version for aligned storage."""

    def __init__(self, name: str, kernel: UOp, stores: dict[UOp, UOp]) -> None:
        super().__init__(f"{name}.streaming", kernel)
        self.stores = stores

    def rule(self, u: UOp) -> Rule | None:
        return _stream if u in self.stores else super().rule(u)

    def run(self) -> str:
        self.load_words()
        self.emit(self.kernel.src)
        fence = _FENCES.get(platform.machine())
        if fence is not None:
            self.intrinsic("void", fence, ())
        self.declared[_HINT] = None
        return self.definition()


def _stream(e: Emitter, u: UOp) -> str | None:
    address, value = u.src
    t, place = llvm_type(value.dtype), address_of(e, address)
    e.effect(f"store {t} {e.of(value)}, ptr {place}, align {ALIGNMENT}, !nontemporal !0")
    return None


class _Chooser(CpuEmitter):
    """The kernel: a call of one of its versions."""

    def choose(self, streaming: Emitter, plain: Emitter, stores: dict[UOp, UOp]) -> str:
        places, bits = kernel_params.word_places(self.kernel), ""
        for storage in dict.fromkeys(stores.values()):
            address = self.value(f"ptrtoint ptr {self.word('ptr', places[storage])} to i64")
            bits = self.value(f"or i64 {bits}, {address}") if bits else address
        rest = self.value(f"and i64 {bits}, {ALIGNMENT - 1}")
        test = self.value(f"icmp eq i64 {rest}, 0")
        self.effect(f"br i1 {test}, label %aligned, label %other")
        for label, version in (("aligned", streaming), ("other", plain)):
            if label == "other":
                self.effect("br label %done")
            self.label(label)
            self.effect(f"call void @{version.name}(ptr %words, i64 %chunk)")
        self.effect("br label %done")
        self.label("done")
        return self.definition()


def render(name: str, kernel: UOp, stores: dict[UOp, UOp]) -> tuple[str, list[str]]:
    """The functions of a linear kernel with such stores, its own the last."""
    streaming, plain = _Streaming(name, kernel, stores), _Version(f"{name}.plain", kernel)
    texts = [streaming.run(), plain.run(), _Chooser(name, kernel).choose(streaming, plain, stores)]
    return "\n\n".join(texts), list(streaming.declared | plain.declared)
