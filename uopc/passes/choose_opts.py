"""Choose a kernel's Opts from its accesses and the described machine. Reads ranges and indices.

Steps, each a function: which loop gets vector lanes (output loop or reduce loop, whichever reads
and writes more neighbours), how many lanes, which output loops become register tiles, how far a
reduce is unrolled, and whether the outermost loop is shared among threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uopc.ir import affine, analysis, dtypes, indexing
from uopc.ir.args import Opt
from uopc.ir.ops import Ops
from uopc.passes.contract import Context
from uopc.passes.range_tiling import Refused, kernel_axes

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

Apply = Callable[["UOp", Opt], "UOp"]

# Work (element operations) below which sharing among threads costs more than it gains: a hot
# worker pays off from about 0.5 µs, a parked one from 100 µs; this is about 20 µs of vector code.
THREAD_WORK = 1 << 18
# Accumulators of a register tile: 16 hide the latency of an FMA (4 cycles, 2 a cycle) and spill
# nowhere; more only lengthen the code.
TILE_ROWS, TILE_VECTORS = 4, 4
# A reduce over this many iterations or fewer is unrolled whole: its guards fold, its loop goes.
WHOLE_UNROLL = 16
# Independent accumulators of a vectorised reduce: latency 4 cycles, up to 2 adds a cycle.
ACCUMULATORS = 4
# Straight-line copies of a body beyond this many nodes cost more compile time than they save.
MOST_COPIES = 2048


@dataclass(frozen=True)
class Access:
    """One INDEX: by how many elements it moves per step of a range; None where it is not affine."""

    node: UOp
    flat: UOp
    written: bool

    def stride(self, r: UOp) -> int | None:
        step = 0
        for m, k in affine.form(self.flat)[1].items():
            if m is r:
                step = k
            elif r in analysis.ranges(m):
                return None
        return step


class _Kernel:
    """What the heuristic looks at."""

    def __init__(self, kernel: UOp) -> None:
        self.order = list(analysis.toposort(kernel))
        self.axes = kernel_axes(kernel)
        targets = {u.src[0] for u in self.order if u.op is Ops.STORE}
        self.accesses = [
            Access(u, indexing.ungated(u.src[1])[0], u in targets)
            for u in self.order
            if u.op is Ops.INDEX and len(u.src) == 2
        ]
        self.reduces = [u for u in self.order if u.op is Ops.REDUCE]
        self.outputs = [r for r in self.axes if not any(r in u.src[1:] for u in self.reduces)]

    def inside(self, r: UOp) -> list[Access]:
        return [a for a in self.accesses if r in analysis.ranges(a.node)]

    def position(self, r: UOp) -> int:
        return self.axes.index(r)


def _length(r: UOp) -> int | None:
    end = r.src[0]
    return end.arg if end.op is Ops.CONST else None


def _lane_cost(accesses: list[Access], r: UOp, lanes: int) -> float:
    """Memory operations per vector if r has the lanes: one for neighbours, one a lane otherwise."""
    total = 0.0
    for a in accesses:
        stride = a.stride(r)
        unit = 1.0 if stride in (0, 1) else float(lanes)
        total += unit * (2.0 if a.written else 1.0)
    return total


def _element_bits(k: _Kernel) -> int:
    """The widest element that is computed with; a kernel that only moves counts what it moves."""
    bits = [u.dtype.bits for u in k.order if u.op.is_alu and u.dtype.scalar is not dtypes.index
            and u.dtype.kind != "bool"]  # fmt: skip
    bits += [a.node.dtype.itemsize * 8 for a in k.accesses]
    return max(bits, default=32)


def _fitting(lanes: int, length: int | None) -> int:
    """The greatest power of two of lanes that the loop fills at least once."""
    while length is not None and lanes > max(length, 1):
        lanes //= 2
    return lanes


class _Chooser:
    """Opts as they are applied: every later choice sees the kernel as it is by then."""

    def __init__(self, kernel: UOp, context: Context, apply: Apply) -> None:
        self.kernel, self.context, self.apply = kernel, context, apply
        self.opts: list[Opt] = []

    def attempt(self, op: str, r: UOp, n: int) -> bool:
        """Apply an Opt to a range where it is legal."""
        axes = kernel_axes(self.kernel)
        if r not in axes:
            return False
        opt = Opt(op, axes.index(r), n)
        try:
            self.kernel = self.apply(self.kernel, opt)
        except Refused:
            return False
        self.opts.append(opt)
        return True

    def part(self, r: UOp, which: int) -> UOp | None:
        """The range that took the place of the first (0) or second (1) part of r."""
        axis = (*r.arg.axis, which)
        return next((q for q in kernel_axes(self.kernel) if q.arg.axis == axis), None)

    def widen(self, r: UOp, op: str, n: int) -> UOp | None:
        """Opt `op` by n on r, after cutting off a rest if n does not divide it; the outer range."""
        if n <= 1:
            return r
        if self.attempt(op, r, n):
            return self.part(r, 0)
        kernel, opts = self.kernel, list(self.opts)
        if self.attempt("SPLIT", r, n):
            first = self.part(r, 0)
            if first is not None and self.attempt(op, first, n):
                return self.part(first, 0)
        self.kernel, self.opts = kernel, opts  # a cut that serves nothing is taken back
        return None


def choose_opts(kernel: UOp, context: Context, apply: Apply) -> tuple[tuple[Opt, ...], UOp]:
    """The Opts, and the kernel with them applied."""
    chooser = _Chooser(kernel, context, apply)
    _share(chooser)
    _unroll_whole(chooser)
    k = _Kernel(chooser.kernel)
    lanes = context.target.lanes(_element_bits(k))
    output = _output_lanes(k, lanes)
    for r in _reduce_lanes(k, lanes, output):
        _vectorise_reduce(chooser, r, lanes)
    if output is not None:
        _vectorise_output(chooser, k, output, lanes)
    return tuple(chooser.opts), chooser.kernel


def _share(chooser: _Chooser) -> None:
    """The outermost output loop among threads, where there is work enough."""
    k = _Kernel(chooser.kernel)
    threads = chooser.context.threads
    if threads < 2 or not k.outputs:
        return
    work = 1.0
    for r in k.axes:
        work *= max(1, analysis.bounds(r.src[0])[1])
    body = sum(u.op.is_alu and u.dtype.scalar is not dtypes.index for u in k.order)
    outer = next((r for r in k.outputs if (_length(r) or threads) >= threads), None)
    if work * max(1, body) >= THREAD_WORK and outer is not None:
        chooser.attempt("THREAD", outer, threads)


def _unroll_whole(chooser: _Chooser) -> None:
    """Short reduces become straight code."""
    for r in reversed(kernel_axes(chooser.kernel)):
        k = _Kernel(chooser.kernel)
        length = _length(r)
        if r in k.outputs or r not in k.axes or length is None or length > WHOLE_UNROLL:
            continue
        if length * sum(r in analysis.ranges(u) for u in k.order) <= MOST_COPIES // 8:
            chooser.attempt("UNROLL", r, 0)


def _output_lanes(k: _Kernel, lanes: int) -> UOp | None:
    """The output loop whose lanes touch memory best; None where lanes would only scatter."""
    candidates = [r for r in k.outputs if r.arg.kind == "loop" and _length(r) != 1]
    best: tuple[float, int] | None = None
    chosen = None
    for r in candidates:
        width = _fitting(lanes, _length(r))
        accesses = k.inside(r)
        if width < 2 or not accesses:
            continue
        cost = _lane_cost(accesses, r, width) / width
        rank = (cost, -k.position(r))
        if best is None or rank < best:
            best, chosen = rank, r
    if chosen is None or best is None:
        return None
    scalar = float(sum(2 if a.written else 1 for a in k.inside(chosen)))
    return chosen if best[0] < scalar else None


def _reduce_lanes(k: _Kernel, lanes: int, output: UOp | None) -> list[UOp]:
    """Reduce loops that get lanes of their own: those in which no value uses the output lanes,
    and those that read neighbours where the output loop would gather."""
    chosen: list[UOp] = []
    for u in k.reduces:
        loops = sorted(analysis.closed_ranges(u), key=lambda r: r.arg.axis)
        loops = [r for r in loops if r.arg.kind == "reduce" and (_length(r) or lanes) >= lanes]
        if not loops:
            continue
        inner = min(loops, key=lambda r: (_lane_cost(k.inside(r), r, lanes), -k.position(r)))
        body = k.inside(inner)
        if any(q in chosen for a in body for q in analysis.ranges(a.node)):
            continue
        own = _lane_cost(body, inner, lanes)
        if output is not None and any(output in analysis.ranges(n) for n in u.src[:1]):
            shared = _lane_cost(body, output, lanes)
            if shared <= own:
                continue
        if own < lanes * len(body) or not body:
            chosen.append(inner)
    return chosen


def _vectorise_reduce(chooser: _Chooser, r: UOp, lanes: int) -> None:
    """Several vector accumulators; the rest of the loop in single vectors, then one by one."""
    length = _length(r)
    wide = lanes * ACCUMULATORS
    if length is not None and length < wide:
        wide = lanes
    if wide > lanes:
        outer = chooser.widen(r, "VECTOR", lanes) if length and length % wide == 0 else None
        if outer is not None:
            chooser.widen(outer, "UNROLL", ACCUMULATORS)
            return
        if chooser.attempt("SPLIT", r, wide):
            first, rest = chooser.part(r, 0), chooser.part(r, 1)
            if first is not None:
                outer = chooser.widen(first, "VECTOR", lanes)
                if outer is not None:
                    chooser.widen(outer, "UNROLL", ACCUMULATORS)
            if rest is not None and (_length(rest) or lanes) >= lanes:
                chooser.widen(rest, "VECTOR", lanes)
            return
    chooser.widen(r, "VECTOR", lanes)


def _vectorise_output(chooser: _Chooser, k: _Kernel, r: UOp, lanes: int) -> None:
    """Lanes on the chosen loop; a register tile around a reduce that reuses what it reads."""
    if r not in kernel_axes(chooser.kernel):
        return
    width = _fitting(lanes, _length(r))
    looped = [u for u in k.reduces if r in analysis.ranges(u) and u.src[1:]]
    looped = [u for u in looped if any(q.arg.kind == "reduce" for q in u.src[1:])]
    vectors = rows = 1
    row: UOp | None = None
    if looped:
        vectors = _fitting(TILE_VECTORS, (_length(r) or TILE_VECTORS * width) // width)
        row = _row_loop(k, r, looped)
        rows = TILE_ROWS if row is not None else 1
    if row is not None:
        chooser.widen(row, "UPCAST", _fitting(rows, _length(row)))
        r = _renamed(chooser, r)
    outer = chooser.widen(r, "VECTOR", width)
    if outer is not None and vectors > 1:
        chooser.widen(outer, "UPCAST", vectors)


def _renamed(chooser: _Chooser, r: UOp) -> UOp:
    """The range that stands where r stood after loops around it were cut."""
    axes = kernel_axes(chooser.kernel)
    return r if r in axes else next(q for q in axes if q.arg.axis[: len(r.arg.axis)] == r.arg.axis)


def _row_loop(k: _Kernel, r: UOp, reduces: list[UOp]) -> UOp | None:
    """Another output loop over which an operand of the reduce is used again."""
    for q in reversed(k.outputs):
        if q is r or q.arg.kind != "loop" or (_length(q) or 2) < 2:
            continue
        if any(q in analysis.ranges(u) for u in reduces) and any(
            q not in analysis.ranges(a.node) for u in reduces for a in k.inside(u.src[1])
        ):
            return q
    return None
