"""More values are stored where the code of one GPU kernel would get too long.

    the sum of 1,000 different exp(c * x)  →  4 sums of some 250 each

The time of NVIDIA's assembler grows with the square of straight code (docs/lab/gpu.md), and one
entry cannot be split in functions as on a CPU. If the code below a value is longer than
`MOST_CODE`, the operand that saves the most nodes per byte is stored. Operands that share their
code, as in recurrences of several values, are not stored; nor are single elements.

Graphs of single elements are cut before: an array holds the elements that later segments read.

    a, b = f(x), g(x); y = p(a, b)  →  s = stack(f(x), g(x)), which is stored; y = p(s[0], s[1])
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Container, Sequence

from uopc.ir.builder import movement, rebuild
from uopc.ir.core import shapes, walk
from uopc.ir.core.bounds import most_elements
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.nest.arithmetic import expansion

MOST_CODE = 8192  # nodes, functions expanded: under a second of the assembler
LEAST_CODE = 512  # nodes that a kernel of their own must have

_REASON = "its reader's code would be too long for one kernel"
Bits = int  # nodes, each as many bits as `decompose` makes nodes of it


def too_long(
    order: list[UOp], stored: Container[UOp], may_store: Callable[[UOp], bool]
) -> dict[UOp, str]:
    """The values to store so that kernels have shorter code, and the reason. `order`: the nodes of
    a graph; `stored`: the values that have storage; `may_store(u)`: whether a value may get
    storage."""
    added: dict[UOp, str] = {}
    if sum(map(_length, order)) <= MOST_CODE:
        return added

    def is_leaf(u: UOp) -> bool:
        """True if a reader's code ends here. Parts of a STACK or CAT may become a loop."""
        return (
            u.op.is_storage or u.op in (Ops.VARIABLE, Ops.AFTER, Ops.STACK, Ops.CAT)
            or u in stored or u in added
        )  # fmt: skip

    for u in order:
        kernel = u in stored or u.op in (Ops.STORE, Ops.SINK)
        for v in () if not kernel else (u,) if u in stored else u.src:
            if u in stored or not is_leaf(v):
                cone = walk.toposort(v, lambda w, v=v: w is v or not is_leaf(w))  # type: ignore[misc]
                inside = [w for w in cone if w is v or not is_leaf(w)]
                if sum(map(_length, inside)) > MOST_CODE:
                    _cut(inside, added, may_store)
    return added


def _cut(inside: list[UOp], added: dict[UOp, str], may_store: Callable[[UOp], bool]) -> None:
    """Store values until the code of each is short; `inside` maps values to code, sources first."""
    below: dict[UOp, Bits] = {}
    own: dict[UOp, Bits] = {}

    def number(u: UOp, first: int) -> int:
        size = _length(u)
        own[u] = ((1 << size) - 1) << first
        below[u] = functools.reduce(operator.or_, [below.get(s, 0) for s in u.src], own[u])
        return first + size

    end = 0
    for u in inside:
        end = number(u, end)
        while below[u].bit_count() > MOST_CODE:
            alone = {s: below[s] & ~_union(u, s, below) for s in u.src if below.get(s, 0)}
            best = max(
                [s for s in alone if may_store(s) and most_elements(shapes.shape(s)) > 1],
                key=lambda s: (
                    alone[s].bit_count() / (most_elements(shapes.shape(s)) * s.dtype.itemsize)
                ),
                default=None,
            )  # fmt: skip
            if best is None or alone[best].bit_count() < LEAST_CODE:
                return
            added[best] = _REASON
            left = [v for v in below if not own[v] & alone[best] and v is not best]
            below.clear()
            own.clear()
            end = 0
            for v in left:
                end = number(v, end)


# ---------------------------------------------------------------- single elements
def in_segments(graph: UOp) -> UOp:
    """Cut a graph of very many single elements into segments of at most `MOST_CODE` nodes. An array
    stores the elements of a segment that later segments read."""
    nodes = walk.nodes(graph)
    if sum([_length(u) for u in nodes if _is_single(u)]) <= MOST_CODE:
        return graph
    segments = _segments(nodes)
    last = max(segments.values())
    read: dict[tuple[int, DType], dict[UOp, None]] = {}
    for u in nodes:
        for s in u.src:
            at = segments.get(s, last)
            if at < last and segments.get(u) != at:
                read.setdefault((at, s.dtype), {})[s] = None
    done: dict[UOp, UOp] = {}
    for _, values in sorted(read.items(), key=lambda r: r[0][0]):
        parts = [movement.reshape(rebuild.rebuild_more(v, done), ()) for v in values]
        array = intern(Ops.CONTIGUOUS, parts[0].dtype, (movement.stack(*parts),))
        for i, v in enumerate(values):
            one = movement.shrink(array, [(i, i + 1)])
            done[v] = movement.reshape(one, shapes.shape(v))
    return rebuild.rebuild_more(graph, done)


def _is_single(u: UOp) -> bool:
    """True if a value of one element is computed from values of one element."""
    if not (u.op.is_alu or u.op is Ops.CAST or u.op.movement):
        return False
    values = (u, *u.src[: 1 if u.op.movement else None])
    return all([most_elements(shapes.shape(v)) == 1 for v in values])


def _segments(nodes: Sequence[UOp]) -> dict[UOp, int]:
    """The segment of each single element; no element needs the array of its own segment."""
    found: dict[UOp, int] = {}
    least: dict[UOp, int] = {}  # the first segment that may read another value
    now = size = 0
    for u in nodes:
        after = [found[s] + (not _is_single(u)) if s in found else least[s] for s in u.src]
        if not _is_single(u):
            least[u] = max(after, default=0)
            continue
        size += _length(u)
        if size > MOST_CODE or max(after, default=0) > now:
            now, size = max([now + (size > MOST_CODE), *after]), _length(u)
        found[u] = now
    return found


def _union(u: UOp, operand: UOp, below: dict[UOp, Bits]) -> Bits:
    """The code below all operands of a value except `operand`."""
    others = [below.get(s, 0) for s in u.src if s is not operand]
    return functools.reduce(operator.or_, others, 0)


def _length(u: UOp) -> int:
    """The number of nodes that `decompose` makes of a node, with casts of narrow floats."""
    is_narrow = u.dtype.is_float and u.dtype.bits < 32
    return expansion(u) + is_narrow if u.op.is_alu else 0
