"""In-register transposition: columns of a block in memory are read by rows, then shuffled.

A vector whose lanes are `step` elements apart takes one load per lane. Where unrolled copies read
the adjacent vectors too, the same elements are rows of neighbours: one load fetches a chunk of
several vectors, and shuffles put the pieces in place. Of narrow elements, such as bytes, a shorter
row of four and more takes one load, too. Rows of four bytes that follow each other, as pixels do,
are one vector:

    x[4·i], x[4·i + 1], … for 16 lanes i  →  v = x[0 : 64]; the lanes 0, 4, 8, … of v, 1, 5, 9, …
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from uopc.ir.core import dtypes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.nest.accesses import Access
from uopc.passes.analysis.lanes import chunk, lane_step

_LEAST = 4  # elements of a row
LoadRow = Callable[["UOp", DType, int], "UOp"]  # neighbours from where a lane of a vector is


def columns(kernel: UOp, has_rows: Callable[[UOp], bool]) -> list[list[UOp]]:
    """Blocks of adjacent vectors under one guard, one per element of a chunk or of a shorter row,
    where their rows can be read."""
    groups: dict[object, dict[int, UOp]] = {}
    for u in walk.order(kernel):
        if u.op is not Ops.INDEX or u.dtype.lanes == 1 or len(u.src) != 2:
            continue
        a = Access(u)
        step = lane_step(a.flat)
        if step is not None and not -1 <= step <= 1 and has_rows(u):
            groups.setdefault(a.row, {})[a.form[0]] = u
    return [block for g in groups.values() for block in blocks(g)]


def blocks(group: dict[int, UOp]) -> Iterable[list[UOp]]:
    """Runs of neighbours, cut to the size of a chunk, and the rest of a run to powers of two."""
    run: list[UOp] = []
    for at in sorted(group):
        run.append(group[at])
        t = run[0].dtype
        if len(run) < chunk(t) and at + 1 in group:
            continue
        while len(run) >= min(chunk(t), _LEAST):
            size = 1 << len(run).bit_length() - 1
            if t.lanes % size == 0:
                yield run[:size]
            run = run[size:]
        run = []


def transposed(block: list[UOp], load_row: LoadRow, register: int = 0) -> dict[UOp, UOp]:
    """The value of each vector of a block, from loads of its rows, or from one load of words that
    are no longer than a `register`, in bits."""
    n, t = len(block), block[0].dtype
    if n * t.bits * t.lanes <= register and _are_words(block):
        whole = load_row(block[0], t.scalar.vec(n * t.lanes), 0)
        return {
            u: intern(Ops.SHUFFLE, t, (whole, whole), tuple(range(i, n * t.lanes, n)))
            for i, u in enumerate(block)
        }
    narrow = t.scalar.vec(n)
    rows = [load_row(block[0], narrow, i) for i in range(t.lanes)]
    joined = []
    for i in range(n):
        parts = tuple(rows[i::n])
        joined.append(parts[0] if len(parts) == 1 else intern(Ops.STACK, t, parts))
    width = n
    while width > 1:  # interleaving the halves of a list log n times transposes it
        pairs = zip(joined[: n // 2], joined[n // 2 :])
        joined = [s for a, b in pairs for s in (_interleaved(a, b, n, 0), _interleaved(a, b, n, 1))]
        width //= 2
    return dict(zip(block, joined))


def _are_words(block: list[UOp]) -> bool:
    """True for the four bytes of words that follow each other, without a guard."""
    a = Access(block[0])
    in_bytes = a.node.dtype.scalar in (dtypes.uint8, dtypes.int8)
    return in_bytes and a.gate is None and len(block) == lane_step(a.flat) == 4


def _interleaved(a: UOp, b: UOp, n: int, half: int) -> UOp:
    """For each chunk of n lanes: the lanes of one half of a and b, alternating."""
    lanes = a.dtype.lanes
    firsts = range(half * (n // 2), lanes, n)
    order = [i + of for first in firsts for i in range(first, first + n // 2) for of in (0, lanes)]
    return intern(Ops.SHUFFLE, a.dtype, (a, b), tuple(order))
