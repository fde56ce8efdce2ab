"""The part of the heuristic for kernels that stream: what neighbouring iterations both read."""

from __future__ import annotations

import math
import sys

from uopc.ir.core import bounds, dtypes, ranges, walk
from uopc.ir.core.arena import memo_last
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.passes.analysis.lanes import MOST_STEP, piece
from uopc.passes.analysis.op_costs import LOAD, STORE
from uopc.passes.optimize.opts import reuse as kept_values
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.schedule import thresholds as machine
from uopc.passes.optimize.schedule.kernel_facts import (
    Access,
    KernelFacts,
    expanded_size,
    fitting,
    length_of,
    most_of,
)
from uopc.passes.optimize.schedule.scheduler import Chooser

# What tells reads of one storage apart but for a constant: the storage, and the other terms.
Place = tuple["UOp", frozenset[tuple["UOp", int]]]


def copies(chooser: Chooser, output: UOp | None, lanes: int) -> UOp | None:
    """Copies of the body that help each other read, beside the lanes that `output` is to get; what
    stands for `output` then.

    Where a read is transposed: square blocks of both loops, and in them as many copies of the
    other loop as there are lanes."""
    k = chooser.facts
    other = crossed(k, output) if expanded_size(k) * lanes <= machine.MOST_COPIES else None
    if output is None or other is None:
        _side_by_side(chooser, output)
        return output
    if output.arg.axis < other.arg.axis:
        other, output = chooser.swapped(other, output)
    other, output = _blocked(chooser, other, output)
    for q in chooser.family(other):
        copy(chooser, q, lanes)
    return output


def keep(chooser: Chooser, reduces: list[UOp]) -> list[UOp]:
    """Keep what reduces along rows add up, where it is dearer to compute again than to read; their
    loops."""
    return [r for r in reduces if is_dear(chooser.kernel, r) and chooser.attempt("REUSE", r, 0)]


def rows_in_lanes(chooser: Chooser, reduces: list[UOp], lanes: int) -> None:
    """Where short reduces along rows, which will be copies, are dear: short loops that they do not
    depend on become copies too, so that the lanes are rows, if there are enough."""
    for r in reduces:
        k = chooser.facts
        around = [u for u in k.reduces if r in u.src[1:] and is_dear(chooser.kernel, r)]
        inside = {q for u in around for q in ranges.ranges(u)}
        if not any((length_of(q) or lanes) >= lanes for q in inside):
            continue
        for q in k.outputs:
            length = length_of(q) or sys.maxsize
            short = length * expanded_size(k) <= machine.MOST_COPIES
            if q not in inside and length <= machine.WHOLE_UNROLL and short:
                chooser.attempt("UPCAST", q, length)


def copy_thin_rows(chooser: Chooser, lanes: int) -> None:
    """The loop over rows of few elements becomes copies, so that the lanes are rows: their loads
    and stores are of whole vectors, picked from and put together by shuffles, which pays where more
    than an operation an element is computed: 100,000 colours that are only scaled take 72 µs as
    they are and 107 in copies, their luma and chroma 96 and 57."""
    k = chooser.facts
    loops = [q for q in k.axes if q.arg.kind in ("loop", "reduce")]
    inner = loops[-1] if loops and all(q in k.outputs for q in loops) else None
    n = length_of(inner) if inner is not None else None
    if inner is None or n is None or not 1 < n <= min(MOST_STEP, lanes - 1):
        return
    written = [a for a in k.accesses if a.written]
    rows = [q for q in loops if (length_of(q) or lanes) >= lanes]
    thin = all(a.stride(inner) == 1 and any(a.stride(q) == n for q in rows) for a in written)
    computed = [u for u in k.order if ranges.ranges(u) and u.dtype.kind != "bool"]
    work = _arithmetic([u for u in computed if u.op is not Ops.WHERE])  # copies do not choose
    work += sum([math.prod([most_of(r) for r in u.src[1:]]) for u in k.reduces])
    if thin and work > n and n * expanded_size(k) <= machine.MOST_COPIES:
        chooser.attempt("UPCAST", inner, n)


def fills_rows(k: KernelFacts, r: UOp) -> bool:
    """Whether the copies of the body write all that is between neighbours along a loop."""
    written = [a for a in k.accesses if a.written]
    return len(written) > 0 and all(_fills(a, r) for a in written)


def _fills(a: Access, r: UOp) -> bool:
    copies = [q for q in ranges.ranges(a.flat) if q.arg.kind == "upcast" and a.stride(q) == 1]
    return any(length_of(q) == a.stride(r) for q in copies)


def is_kept(kernel: UOp, r: UOp) -> bool:
    """Whether another loop computes again what a reduce adds up, and that is dear."""
    try:
        return is_dear(kernel, r) and len(kept_values.again(kernel, r)[1]) > 0
    except Refused:
        return False


def past_caches(chooser: Chooser, before: KernelFacts) -> None:
    """Where a kernel touches much more than the last cache holds, large outputs that are written
    one line after the other go past it. What it accesses was the same before its loops were cut."""
    holds = chooser.context.target.last_cache_bytes
    stored = {storage_root(a.node) for a in before.accesses}
    if sum([_size(u) for u in stored if u.op is Ops.PARAM]) < machine.STREAMED_TOTAL * holds:
        return
    k = chooser.facts
    touched: dict[UOp, int] = {}
    for a in k.accesses:
        storage = storage_root(a.node)
        if storage.op is Ops.PARAM:
            touched[storage] = touched.get(storage, 0) + _reached(a)
    touched = {u: min(n, _size(u)) for u, n in touched.items()}
    if sum(touched.values()) < machine.STREAMED_TOTAL * holds:
        return
    for a in k.accesses:
        large = touched.get(storage_root(a.node), 0) * machine.STREAMED_SHARE >= holds
        least = chooser.context.target.stream_bytes
        loop = _line_after_line(a, least) if a.written and large else None
        if loop is not None:
            chooser.attempt("NONTEMPORAL", loop, 0)


def _reached(a: Access) -> int:
    """Bytes of the elements that an access goes to, at most."""
    count: int = math.prod([bounds.bounds(r.src[0])[1] for r in ranges.ranges(a.flat)])
    return count * a.node.dtype.itemsize


def _size(storage: UOp) -> int:
    """Bytes of storage, where that is known."""
    dims = storage.arg.dims
    known: list[int] = [d for d in dims if isinstance(d, int)]
    return math.prod(known) * storage.dtype.itemsize if len(known) == len(dims) else sys.maxsize


def _line_after_line(a: Access, least: int) -> UOp | None:
    """The innermost loop around an access whose lanes and copies go to neighbours, and on from
    there in the next iteration, in vectors that begin at multiples of `least` bytes."""
    inside = [r for r in ranges.ranges(a.flat) if r.arg.kind in ("lane", "upcast")]
    loops = [r for r in ranges.ranges(a.flat) if r.arg.kind == "loop"]
    if not loops or not any(r.arg.kind == "lane" for r in inside):
        return None
    constant, terms = affine.form(a.flat)
    first = affine.build(constant, {m: k for m, k in terms.items() if m not in inside})
    if affine.divisor(first) * a.node.dtype.itemsize % least:
        return None
    reach = 1
    for step, r in sorted([(a.stride(r) or 0, r) for r in inside], key=lambda pair: pair[0]):
        if step != reach:
            return None
        reach *= length_of(r) or 1
    loop = max(loops, key=lambda r: r.arg.axis)
    return loop if a.stride(loop) == reach else None


def is_dear(kernel: UOp, r: UOp) -> bool:
    """Whether what is computed in a loop takes a function an element, or much arithmetic."""
    return _arithmetic_in_loops(kernel).get(r, 0.0) > LOAD + STORE


@memo_last
def _arithmetic_in_loops(kernel: UOp) -> dict[UOp, float]:
    """What operations on elements cost in each loop."""
    found: dict[UOp, float] = {}
    for u in walk.order(kernel):
        if u.op.is_alu and u.dtype.scalar is not dtypes.index:
            for r in ranges.ranges(u):
                found[r] = found.get(r, 0.0) + u.op.cost
    return found


def _arithmetic(nodes: list[UOp]) -> float:
    """What operations on elements cost."""
    done = [u for u in nodes if u.op.is_alu and u.dtype.scalar is not dtypes.index]
    return sum([u.op.cost for u in done])


def columns(chooser: Chooser, output: UOp | None, lanes: int) -> int:
    """For reduces down columns, nothing being used again: how many vectors of columns are summed
    side by side. Rows are taken a few at a time, more of them where one vector is all there is."""
    down = _down(chooser.facts, output)
    if output is None:
        return 1
    if not down:
        return _rows_share(chooser, output, lanes)
    length = length_of(output)
    side = machine.COLUMN_VECTORS if length is None else length // fitting(lanes, length)
    rows = machine.COLUMN_ROWS
    if side == 1:
        rows = 1 if is_dear(chooser.kernel, output) else machine.ACCUMULATORS
    for r in down:
        if (length_of(r) or 0) >= rows and _room(chooser) >= rows > 1:
            chooser.widen(r, "UNROLL", rows)
    return fitting(fitting(machine.COLUMN_VECTORS, max(1, _room(chooser))), side)


def _rows_share(chooser: Chooser, output: UOp, lanes: int) -> int:
    """Vectors side by side where what depends on the columns alone is dearer to compute than to
    load: all of a short row, so that such values stand outside, once for all rows; of a long one a
    single one, with a few rows."""
    k, vectors = chooser.facts, (length_of(output) or 0) // lanes
    outside = [q for q in k.outputs if q.arg.axis < output.arg.axis and q.arg.kind == "loop"]
    if math.prod([most_of(q) for q in outside]) < machine.RUNS_OF_A_NODE:
        return 1
    fixed = [u for u in k.order if u.op.is_alu and u.dtype.is_float]
    fixed = [u for u in fixed if output in (found := ranges.ranges(u)) and not found & {*outside}]
    if max([u.op.cost for u in fixed], default=0.0) <= LOAD:
        return 1
    if vectors <= machine.HOISTED and vectors * expanded_size(k) <= machine.MOST_SHARED:
        return max(1, vectors)
    for q in chooser.family(max(outside, key=k.position)):
        if machine.HOISTED_ROWS * expanded_size(k) <= machine.MOST_SHARED:
            chooser.widen(q, "UPCAST", fitting(machine.HOISTED_ROWS, length_of(q)))
    return 1


def _down(k: KernelFacts, output: UOp | None) -> list[UOp]:
    """Reduce loops inside of the loop over columns that have no lanes of their own."""
    found: dict[UOp, None] = {}
    for u in k.reduces:
        if output in ranges.ranges(u) and not any(r.arg.kind == "lane" for r in u.src[1:]):
            found |= dict.fromkeys(r for r in u.src[1:] if r.arg.kind == "reduce")
    return list(found)


def _room(chooser: Chooser) -> int:
    """How many copies of the whole kernel are worth their compile time."""
    return machine.MOST_COPIES // expanded_size(chooser.facts)


def _blocked(chooser: Chooser, outer: UOp, inner: UOp) -> tuple[UOp, UOp]:
    """The loops over a block of two loops, inside of the loops over blocks."""
    n = machine.CROSSED_BLOCK
    if any((length_of(r) or 1) % n or length_of(r) == n for r in (outer, inner)):
        return outer, inner
    if not chooser.attempt("TILE", outer, n) or not chooser.attempt("TILE", inner, n):
        return outer, inner
    rows, blocks, columns = (chooser.part(outer, 1), chooser.part(inner, 0), chooser.part(inner, 1))
    assert rows is not None and blocks is not None and columns is not None
    return chooser.swapped(rows, blocks)[0], columns


def copy(chooser: Chooser, r: UOp, n: int) -> None:
    """Copies of the body for n iterations; for the rest, for half as many, and so on."""
    rest: UOp | None = r
    while rest is not None and n > 1:
        n = fitting(n, length_of(rest))
        chooser.widen(rest, "UPCAST", n)
        rest = chooser.part(rest, 1)
        rest = rest if rest is not None and rest.arg.kind == "loop" else None


def _side_by_side(chooser: Chooser, output: UOp | None) -> None:
    """Rows that read the same places become copies of one body, in which each is read once."""
    found = _shared_rows(chooser.facts, output)
    if found is not None:
        row, n = found
        for q in chooser.family(row):
            chooser.widen(q, "UPCAST", fitting(n, length_of(q)))


def _shared_rows(k: KernelFacts, output: UOp | None) -> tuple[UOp, int] | None:
    """The output loop, and how many of its iterations to put side by side, that most reduces what
    is read: a stencil's rows read the same places. None where nothing is gained."""
    best: tuple[float, UOp, int] | None = None
    size = expanded_size(k)
    for q in k.outputs:
        length = length_of(q)
        if q is output or q.arg.kind != "loop" or length is None:
            continue
        alone = len(_reads(k, q, 1))
        n = machine.SHARED_ROWS
        while n > 1 and (n > length or n * size > machine.MOST_SHARED):
            n //= 2
        each = len(_reads(k, q, n)) / n
        shares = 0 < each <= machine.SHARED_READS * alone
        if n > 1 and shares and (best is None or each < best[0]):
            best = each, q, n
    return None if best is None else best[1:]


def crossed(k: KernelFacts, output: UOp | None) -> UOp | None:
    """The output loop whose neighbours lie beside one another where those of `output`, which gets
    the lanes, do not: a transposed read. Its copies read the columns of blocks."""
    if output is None:
        return None
    for a in k.accesses:
        step = 0 if a.written else a.stride(output)
        if step is None or -1 <= step <= 1:
            continue
        least = piece(a.node.dtype)
        for q in k.outputs:
            if q is not output and q.arg.kind == "loop" and a.stride(q) == 1:
                return q if (length_of(q) or 0) >= least <= (length_of(output) or 0) else None
    return None


def _reads(k: KernelFacts, q: UOp, n: int) -> set[tuple[Place, int]]:
    """The places that n neighbouring iterations of q read, copies of the body counted apart."""
    found: set[tuple[Place, int]] = set()
    for a in k.inside(q):
        if not a.written:
            found |= _places(a, q, n)
    return found


def _places(a: Access, q: UOp, n: int) -> set[tuple[Place, int]]:
    constant, terms = affine.form(a.flat)
    offsets = {constant}
    others: list[tuple[UOp, int]] = []
    if any(m is not q and q in ranges.ranges(m) for m in terms):
        return {((a.node, frozenset()), i) for i in range(n)}  # not known to be the same ones
    for m, step in terms.items():
        count = n if m is q else length_of(m) if _is_copied(m) else None
        if count is None:
            others.append((m, step))
        else:
            offsets = {o + step * i for o in offsets for i in range(count)}
    place = (a.node.src[0], frozenset(others))
    return {(place, o) for o in offsets}


def _is_copied(m: UOp) -> bool:
    return m.op is Ops.RANGE and m.arg.kind in ("upcast", "unroll")
