"""Compiled kernels: the code of each, and the facts that a plan needs, without nodes of a graph."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from uopc.backends import in_place
from uopc.backends.llvm import scratch
from uopc.backends.plan import Dims3
from uopc.ir.core import bounds, storage
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.ir.records import dataclass

if TYPE_CHECKING:  # a program from a cache needs no pass
    from uopc.passes.pass_manager import Lowered

_IN_SYMBOL = 12  # characters of a kernel's key in the symbol of its code
_MOST_WORK = 1 << 62

# The grid, the block and the dynamic shared memory of a kernel's launches on a GPU.
Grid = tuple[Dims3, tuple[int, int, int], int]
NO_GRID: Grid = ((1, 1, 1), (1, 1, 1), 0)


@dataclass(frozen=True)
class Code:
    """The code of linear kernels, in the backend's form. Several kernels may share an object
    file."""

    sources: Mapping[UOp, str]  # LLVM IR
    binaries: Mapping[UOp, bytes]
    seconds: dict[str, float]  # of rendering, and of LLVM
    grids: Mapping[UOp, Grid] = field(default_factory=dict)


class Compiler(Protocol):
    """Makes the code of the kernels of one request."""

    def add(self, symbol: str, kernel: UOp) -> None:
        """Take a linear kernel as soon as it exists, with the name of its function."""

    def finish(self, lowered: Lowered, symbols: Mapping[UOp, str]) -> Code:
        """The code of all kernels of the lowered request, which were added under these symbols."""


@dataclass(frozen=True)
class Afterwards:
    """A compiler that starts after the entire request is lowered."""

    finish: Callable[[Lowered, Mapping[UOp, str]], Code]

    def add(self, symbol: str, kernel: UOp) -> None:
        """Do nothing: the kernel waits for the others."""


@dataclass(frozen=True)
class CompiledKernel:
    """`code` is the object file that has the kernel's `symbol`, and may hold other kernels; for a
    GPU, packed PTX. Programs number kernels of the same `name`.

    A launch passes the first `slots` arguments of the call, then the `variables`, then the address
    of `scratch` bytes per chunk, if there are any.
    """

    key: str  # of the kernel before its passes and all else that shapes the code
    name: str
    opts: str
    code: bytes
    packed_source: bytes
    slots: int
    variables: tuple[str, ...]
    written: tuple[int, ...]  # slots
    chunks: int
    scratch: int
    orders: tuple[tuple[int, ...], ...]  # by slot, of constant arrays: `ir/core/data/blocks.py`
    over: tuple[tuple[int, int], ...]  # a result, and the value whose memory it may take: slots
    work: int  # roughly the operations of a run
    grid: Dims3
    block: tuple[int, int, int]
    dynamic_shared: int

    @staticmethod
    def of(kernel: UOp, split: UOp, key: str, name: str, code: Code) -> CompiledKernel:
        """Make a compiled kernel of a linear kernel and its code, where its name is `symbol`.
        `split`: the kernel before its passes."""
        places = storage.word_places(kernel)
        by_slot = [i for u, i in places.items() if u.op is not Ops.VARIABLE]
        return CompiledKernel(
            key, name, str(kernel.arg.opts), code.binaries[kernel], pack(code.sources[kernel]),
            1 + max(by_slot, default=-1),
            tuple([u.arg.name for u in places if u.op is Ops.VARIABLE]),
            tuple(storage.written_slots(kernel)),
            chunks(kernel), scratch.offsets(kernel)[1], orders(kernel),
            in_place.pairs(split, kernel), _work(kernel),
            *code.grids.get(kernel, NO_GRID),
        )  # fmt: skip

    @property
    def symbol(self) -> str:
        """The name of the kernel's function in `code` and in the source."""
        return symbol_of(self.name, self.key)

    @cached_property
    def source(self) -> str:
        """The LLVM IR."""
        return unpack(self.packed_source)

    @property
    def identity(self) -> tuple[object, ...]:
        """A value that is equal for kernels that differ only in their keys."""
        return self.name, self.opts, self.orders, self.source.replace(self.symbol, "")

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes, without other kernels in the same object file."""
        return 16 * len(self.packed_source)

    def arguments(self, call: Sequence[UOp]) -> tuple[UOp, ...]:
        """The arguments and variables of a call that the code takes."""
        named = {u.arg.name: u for u in call if u.op is Ops.VARIABLE}
        return *call[: self.slots], *[named[name] for name in self.variables]


def symbol_of(name: str, key: str) -> str:
    """A name that is unique in an object file."""
    return f"{name}${key[:_IN_SYMBOL]}"


def pack(text: str) -> bytes:
    """Compress a text."""
    return zlib.compress(text.encode(), 1)


def unpack(data: bytes) -> str:
    """The text that `pack` compressed."""
    return zlib.decompress(data).decode()


def chunks(kernel: UOp) -> int:
    """The number of parts of a linear kernel that threads may run at once."""
    sizes = [u.src[0] for u in kernel.src if u.op is Ops.RANGE and u.arg.kind == "thread"]
    return int(sizes[0].arg) if sizes else 1


def orders(kernel: UOp) -> tuple[tuple[int, ...], ...]:
    """The order of the constant array that a linear kernel reads, by slot; () for other arrays."""
    found = {int(u.arg.slot): u.arg.order for u in kernel.src if u.op is Ops.PARAM and u.arg.order}
    return tuple([found.get(slot, ()) for slot in range(1 + max(found, default=-1))])


def _work(kernel: UOp) -> int:
    """Roughly the number of operations in one run of a linear kernel: its ops times their loops."""
    total, times, stack = 0.0, 1.0, []
    for u in kernel.src:
        if u.op is Ops.RANGE:
            stack.append(times)
            times *= max(1, bounds.bounds(u.src[0])[1])
        elif u.op is Ops.END:
            times = stack.pop()
        else:
            total += times
    return int(min(total, _MOST_WORK))
