"""Make parts of files views: no kernel, and no loads byte by byte.

    bitcast f32 (shrink (data file, u8))   →   data of these bytes, f32
    copy (permute (data file))             →   permute (copy (data file))
    shrink (copy (data file))              →   copy (data of this part)

A CONTIGUOUS, a BITCAST, and movement that shows neighbouring elements of an array in a file give an
array in that file. A COPY takes such an array, so that only the bytes that other devices need are
read.
"""

from __future__ import annotations

import numpy as np

from uopc.ir.builder import rebuild
from uopc.ir.core import evaluate, walk
from uopc.ir.core.data import arrays, files
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern

_SHOW = frozenset((Ops.BITCAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD))
_EFFECTS = frozenset((Ops.AFTER, Ops.STORE))


def viewed(graph: UOp) -> UOp:
    """Replace parts of files by arrays in these files."""
    if not any(map(_in_file, walk.nodes(graph))):
        return graph
    # A COPY that is written is storage of its own: no other COPY may become the same node.
    copies = walk.ops(graph).isdisjoint(_EFFECTS)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if len(src) != 1 or u.op is Ops.PAD or (u.op is Ops.CONTIGUOUS and u.arg is not None):
            return None
        inner = src[0]
        if u.op.movement or u.op in _SHOW:
            if _in_file(inner):
                return _part(u, inner)
            if copies and inner.op is Ops.COPY and _in_file(inner.src[0]):
                shown = _part(u, inner.src[0])
                return None if shown is None else intern(Ops.COPY, shown.dtype, (shown,), inner.arg)
        if copies and u.op is Ops.COPY:
            return _copied(u, inner)
        return None

    return rebuild.rewritten(graph, change, outside_kernels=True)


def _in_file(u: UOp) -> bool:
    """True for an array in a file; data that is no array is an error of a later check."""
    if u.op is not Ops.DATA or not isinstance(u.arg.array, np.ndarray):
        return False
    return files.placed(u.arg.array) is not None


def _part(u: UOp, data: UOp) -> UOp | None:
    """The part of an array in a file that a node shows; None if the shown elements are no such
    part."""
    if u.op is Ops.CONTIGUOUS:
        return data
    shown = evaluate.move(u, data.arg.array)
    if files.placed(shown) is None:
        return None
    return intern(Ops.DATA, u.dtype, (), arrays.register(shown), data.tag)


def _copied(copy: UOp, value: UOp) -> UOp | None:
    """copy (movement (data))  →  movement (copy (data))"""
    path: list[UOp] = []
    while value.op.movement and len(value.src) == 1:
        path.append(value)
        value = value.src[0]
    if not path or not _in_file(value):
        return None
    made = intern(Ops.COPY, value.dtype, (value,), copy.arg, copy.tag)
    for u in reversed(path):
        made = rebuild.remake(u, (made,))
    return made
