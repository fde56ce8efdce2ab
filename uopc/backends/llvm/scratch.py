"""Places of a kernel's own buffers: small ones on the stack, the others in scratch memory.

Scratch memory is part of the program's arena, with one region per chunk that may run at the same
time. A kernel that needs it gets its address as the last word.
"""

from __future__ import annotations

from uopc.backends.memory_plan import ALIGNMENT
from uopc.errors import Unsupported
from uopc.ir.core import shapes, storage
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

# Bytes of one buffer on the stack, without a limit: the stack of a thread may have only 512 KiB.
MOST_STACK = 32 << 10


def nbytes(buffer: UOp) -> int:
    """The bytes of a kernel's BUFFER. Raises Unsupported where the size is not a number."""
    size = shapes.size(shapes.shape(buffer))
    if not isinstance(size, int):
        raise Unsupported(
            f"llvm: the size of a {buffer.arg.space} buffer must be known, got {size}"
        )
    return size * buffer.dtype.itemsize


def offsets(kernel: UOp) -> tuple[dict[UOp, int], int]:
    """The offset of each buffer in scratch memory, and the bytes that the linear kernel needs."""
    found: dict[UOp, int] = {}
    total = 0
    buffers = [u for u in kernel.src if u.op is Ops.BUFFER]
    on_stack = _on_stack(buffers, kernel.arg.stack_bytes)
    for u in buffers:
        if u not in on_stack:
            found[u] = total
            total += -(-nbytes(u) // ALIGNMENT) * ALIGNMENT
    return found, total


def _on_stack(buffers: list[UOp], limit: int | None) -> set[UOp]:
    """The buffers that the stack has: the smallest ones, up to a limit in all."""
    if limit is None:
        return {u for u in buffers if nbytes(u) <= MOST_STACK}
    found, used = set(), 0
    for u in sorted(buffers, key=nbytes):
        used += -(-nbytes(u) // ALIGNMENT) * ALIGNMENT
        if used <= limit:
            found.add(u)
    return found


def word(kernel: UOp) -> int:
    """The word of a kernel that holds the address of its scratch memory: the first unused one."""
    return 1 + max(storage.word_places(kernel).values(), default=-1)
