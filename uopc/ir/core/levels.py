"""The levels of the IR: named subsets of the ops, from tensor expressions to an ordered program.

A pass takes a graph at one level to the next (or the same). `ops.py` says for each op where it is
legal. `ir/verify` checks that and the invariants listed here.
"""

from __future__ import annotations

from enum import IntFlag


class Level(IntFlag):
    """A set of levels; a single flag is one level."""

    TENSOR = 1
    INDEXED = 2
    KERNEL = 4
    VECTOR = 8
    LINEAR = 16
    PROGRAM = 32
    HANDWRITTEN = 64

    @property
    def text(self) -> str:
        return (self.name or str(int(self))).lower()


TENSOR, INDEXED, KERNEL = Level.TENSOR, Level.INDEXED, Level.KERNEL
VECTOR, LINEAR, PROGRAM = Level.VECTOR, Level.LINEAR, Level.PROGRAM
HANDWRITTEN = Level.HANDWRITTEN
SCALAR = INDEXED | KERNEL | VECTOR | LINEAR
SHAPED = TENSOR | HANDWRITTEN
EVERYWHERE = TENSOR | SCALAR | PROGRAM

MEANING: dict[Level, str] = {
    TENSOR: "Values have shapes; movement ops, reduces by axis; STAGE marks what is stored.",
    INDEXED: "Values are scalars inside ranges; one SINK over the stores of the whole program.",
    KERNEL: "One SINK per kernel; storage is its PARAMs, in slot order, with flat indices.",
    VECTOR: "No unrolled or lane ranges: their copies and lanes are spelled out.",
    LINEAR: "One LINEAR node: UOps in execution order; RANGE … END is a loop, IF … ENDIF a branch.",
    PROGRAM: "One LINEAR of CALLs in launch order: kernels, their storage, the loops around them.",
    HANDWRITTEN: "A kernel as a user may write it: ranges, and values with shapes beside them.",
}

_RANGES = INDEXED | KERNEL | VECTOR | HANDWRITTEN
_STORAGE = KERNEL | VECTOR | LINEAR | HANDWRITTEN
_ANYWHERE = EVERYWHERE | HANDWRITTEN
# Invariants beyond "the op is legal at this level and its operands fit its row".
INVARIANTS: dict[str, tuple[Level, str]] = {
    "legal-op": (_ANYWHERE, "Every op is legal at the level."),
    "operand-count": (_ANYWHERE, "A node has as many operands as its op's row says."),
    "arg-type": (_ANYWHERE, "The arg has the type its op's row says."),
    "result-dtype": (_ANYWHERE, "The dtype follows from the operands by the op's rule."),
    "shape-rule": (SHAPED, "The shape follows from the operands by the op's rule."),
    "scalar-values": (SCALAR, "Values have no shape: storage is read through INDEX."),
    "index-count": (SCALAR, "An INDEX has at most one index for each dimension of its storage."),
    "index-dtype": (SCALAR, "Every index is of dtype index (or INVALID)."),
    "range-closed-once": (_RANGES, "A REDUCE or END closes every range on each way to the sink."),
    "ranges-nest": (_RANGES, "The ranges around a value form one chain of loops."),
    "reads-ordered": (KERNEL | HANDWRITTEN, "Reads of an element and stores to it have an order."),
    "written-storage": (_ANYWHERE & ~PROGRAM, "Stores write to storage, or to copies of tensors."),
    "flat-index": (VECTOR | LINEAR, "Storage is indexed by one flat index."),
    "explicit-loads": (LINEAR, "Memory is read by LOAD and written by STORE only."),
    "no-wide-ranges": (VECTOR | LINEAR, "No range is of kind upcast, unroll or lane."),
    "defined-before-use": (LINEAR, "A value stands once; its operands precede it in open blocks."),
    "balanced-loops": (LINEAR, "Each RANGE and each IF is ended, innermost first."),
    "outer-loops": (PROGRAM, "The loops around calls nest, and a call has them as last operands."),
    "storage-spaces": (_STORAGE, "Arguments are global storage; other storage has a fixed size."),
    "threads-meet": (LINEAR, "Loops around a BARRIER or EXCHANGE are as long in all threads."),
}
