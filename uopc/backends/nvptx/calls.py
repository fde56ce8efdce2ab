"""Facts that hold for all launches of a GPU kernel: alignment of pointers, read-only storage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import read_slots, storage_root, written_slots
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass

# Every pointer that a kernel is called with is a multiple of this, unless its launch says less.
ALIGNMENT = 16


@dataclass(frozen=True)
class Calls:
    """By slot: the alignment of pointers in bytes, where it is not ALIGNMENT, and the storage that
    nothing writes while the kernel runs."""

    alignment: Mapping[int, int] = field(default_factory=dict)
    constant: frozenset[int] = frozenset()


def calls_of(launches: Sequence[tuple[UOp, tuple[UOp, ...]]]) -> dict[UOp, Calls]:
    """The `Calls` of each kernel. A launch is a linear kernel with its storage and variables."""
    offsets: dict[UOp, dict[int, int]] = {k: {} for k, _ in launches}
    constant = {k: set(read_slots(k)) for k in offsets}
    for kernel, args in launches:
        written = {storage_root(args[s]) for s in written_slots(kernel)}
        for slot, a in enumerate(args):
            if storage_root(a) in written:
                constant[kernel].discard(slot)
            if a.op is Ops.SLICE:
                step = math.gcd(a.arg[0] * a.dtype.itemsize, ALIGNMENT)
                known = offsets[kernel].get(slot, ALIGNMENT)
                offsets[kernel][slot] = math.gcd(step, known)
    return {k: Calls(offsets[k], frozenset(constant[k])) for k in offsets}
