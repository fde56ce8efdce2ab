"""Kernels with non-temporal stores: versions for storage that is aligned more or less.

A non-temporal store needs memory aligned to its bytes, at most a cache line. Results and
intermediates begin at lines, arrays of NumPy at multiples of 16 bytes, a part of an array anywhere.
The kernel tests the addresses it is called with and picks a version: stores of whole registers,
stores in pieces of 16 bytes, or stores through the caches.
"""

from __future__ import annotations

import math
import platform
from functools import partial

from uopc.backends.kernel_text import Rule
from uopc.backends.llvm.emitter import Emitter
from uopc.backends.llvm.statements import CpuEmitter
from uopc.backends.llvm.types import llvm_type
from uopc.ir.core import storage
from uopc.ir.core.data.blocks import LINE
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import values
from uopc.target import Target

LEAST = Target.stream_bytes
_HINT = "!0 = !{i32 1}"
# x86 does not order these stores with others: without a fence, they may not be visible to a thread
# that learns that the kernel is done.
_X86 = ("x86_64", "AMD64")
_FENCE = "llvm.x86.sse.sfence"


def streamed(kernel: UOp) -> dict[UOp, int]:
    """The non-temporal stores of a linear kernel, each with its alignment where its storage begins
    at a line: whole vectors at multiples of LEAST bytes."""
    found: dict[UOp, int] = {}
    for u in kernel.src:
        if u.op is not Ops.STORE or u.arg != "stream" or len(u.src) != 2:
            continue
        (storage, index), stored = u.src[0].src, u.src[1].dtype
        size = stored.scalar.itemsize
        alignment = math.gcd(stored.lanes * size, values.divisor(index) * size, LINE)
        whole = alignment % LEAST == 0
        if whole and stored.kind != "bool" and storage.op is Ops.PARAM:
            found[u] = alignment
    return found


class _StoreVersion(CpuEmitter):
    """A version for storage that is aligned as the most aligned of its non-temporal `stores`;
    without such stores, for any storage."""

    def __init__(
        self, name: str, kernel: UOp, stores: dict[UOp, int], is_x86: bool = False
    ) -> None:
        super().__init__(name, kernel)
        self.stores, self.is_x86 = stores, is_x86

    def head(self) -> str:
        return f"define internal {super().head().removeprefix('define ')}"

    def rule(self, u: UOp) -> Rule | None:
        if u in self.stores:
            return partial(_stream, alignment=self.stores[u])
        return super().rule(u)

    def definition(self) -> str:
        if self.stores:
            if self.is_x86:
                self.intrinsic("void", _FENCE, ())
            self.declared[_HINT] = None
        return super().definition()


def _stream(e: Emitter, u: UOp, alignment: int) -> str | None:
    address, value = e.address(u.src[0]), u.src[1]
    t = llvm_type(value.dtype)
    e.effect(f"store {t} {e.of(value)}, {address}, align {alignment}, !nontemporal !0")
    return None


def _choose(e: CpuEmitter, versions: list[_StoreVersion]) -> str:
    """The kernel itself, which calls one of its versions: the first whose storage is aligned."""
    places, bits = storage.word_places(e.kernel), ""
    for base in dict.fromkeys([u.src[0].src[0] for u in versions[0].stores]):
        address = e.value(f"ptrtoint ptr {e.word('ptr', places[base])} to i64")
        bits = e.value(f"or i64 {bits}, {address}") if bits else address
    for number, version in enumerate(versions):
        if version.stores:
            rest = e.value(f"and i64 {bits}, {max(version.stores.values()) - 1}")
            test = e.value(f"icmp eq i64 {rest}, 0")
            e.effect(f"br i1 {test}, label %version{number}, label %other{number}")
            e.label(f"version{number}")
        e.effect(f"call void @{version.name}(ptr %words, i64 %chunk)")
        e.effect("br label %done")
        if version.stores:
            e.label(f"other{number}")
    e.label("done")
    return e.definition()


def render(
    name: str, kernel: UOp, stores: dict[UOp, int], is_x86: bool | None = None
) -> tuple[str, list[str]]:
    """The functions of a linear kernel with non-temporal stores, and the declarations they need.
    is_x86: whether the code is for x86; by default, whether this machine is."""
    x86 = platform.machine() in _X86 if is_x86 is None else is_x86
    versions = [_StoreVersion(f"{name}.streaming", kernel, stores, x86)]
    if max(stores.values()) > LEAST:
        pieces = dict.fromkeys(stores, LEAST)
        versions.append(_StoreVersion(f"{name}.pieces", kernel, pieces, x86))
    versions.append(_StoreVersion(f"{name}.plain", kernel, {}))
    kernel_itself = _choose(CpuEmitter(name, kernel), versions)
    texts = [*[v.run() for v in versions], kernel_itself]
    declared = dict.fromkeys([d for v in versions for d in v.declared])
    return "\n\n".join(texts), list(declared)
