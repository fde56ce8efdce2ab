"""Conditions on sizes that a model relies on where it reads only the shape of a tensor.

The nodes of a program carry their conditions (`ir/index/size_conditions.py`). `Shape` of a tensor
uses its sizes without the tensor. If no node of the outputs carries a condition of the tensor, the
condition is added to the outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from uopc import UOp
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.index import affine, size_conditions
from uopc.ir.index.size_conditions import SizeCondition
from uopc.onnx import results


def on_sizes(outputs: Sequence[Any], measured: Iterable[UOp]) -> list[Any]:
    """Make the outputs rely on the conditions of `measured`, tensors whose shape was read, too."""
    nodes = [u for v in outputs for u in results.nodes(v)]
    own, others = _relying_nodes(nodes), _relying_nodes(measured)
    lost = size_conditions.of_nodes([u for u in others if u not in own])
    if not lost:
        return list(outputs)
    kept = {_key(c) for c in size_conditions.of_nodes(own)}
    gaps = [gap for c in lost if _key(c) not in kept for gap in _gaps(c)]
    new = {u: _relying(u, gaps) for u in nodes}
    return [results.replaced(v, new) for v in outputs]


def _relying_nodes(roots: Iterable[UOp]) -> dict[UOp, None]:
    """The nodes that may rely on a condition, including nodes of bodies."""
    return dict.fromkeys(size_conditions.relying(intern(Ops.SINK, dtypes.void, tuple(roots))))


def _key(c: SizeCondition) -> tuple[Any, ...]:
    return c.relation, c.left, c.right


def _gaps(c: SizeCondition) -> Iterator[UOp]:
    """The sizes that are not negative exactly where the condition holds."""
    gap = affine.sub(c.right, c.left)
    yield affine.plus(gap, -(c.relation == "below"))
    if c.relation == "equal":
        yield affine.scaled(gap, -1)


def _relying(x: UOp, gaps: Iterable[UOp]) -> UOp:
    """Return x on the condition that no gap is negative: pad by `gap` zeros in front, and remove
    them."""
    own = shapes.shape(x)
    still = [(0, 0)] * len(own)
    for gap in gaps:
        padded = x.reshape(1, *own).pad([(gap, 0), *still])
        if padded.op is not Ops.PAD:  # zeros with zeros before them are one constant
            padded = x.contiguous().reshape(1, *own).pad([(gap, 0), *still])
        x = padded.shrink([(gap, gap + 1), *[(0, d) for d in own]]).reshape(own)
    return x
