"""Choose a kernel's Opts for a GPU: which loops are blocks, which are threads, who shares a reduce.

Reads ranges and indices, as `choose_opts` does for a CPU, and the described part. Steps: 16-byte
accesses where all accesses are neighbours, register tiles of a contraction, long reduces shared by
the threads of a block, then threads for output loops, the rest of the loops in the grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir import analysis, indexing
from uopc.ir.args import Opt
from uopc.ir.ops import Ops
from uopc.passes import choose_tensor_opts
from uopc.passes.chooser import Apply, Chooser
from uopc.passes.contract import Context
from uopc.passes.kernel_facts import KernelFacts, element_bits, length_of

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

# Threads of a block of independent threads: eight warps hide latency, and a few blocks fill an SM.
BLOCK = 256
# A reduce shorter than this is faster in one thread than with threads that meet.
LEAST_SHARED = 128
# Values that each thread of a shared reduce should have before they meet.
EACH = 4
# Accumulators of a contraction in one thread: 64 leave registers for the operands, and occupancy.
TILE = 8


def choose_opts(kernel: UOp, context: Context, apply: Apply) -> tuple[tuple[Opt, ...], UOp]:
    """The Opts, and the kernel with them applied."""
    chooser = Chooser(kernel, context, apply)
    if choose_tensor_opts.choose(chooser):
        return tuple(chooser.opts), chooser.kernel
    k = KernelFacts(chooser.kernel)
    lanes = context.target.lanes(element_bits(k))
    row, column = _contraction(k)
    if row is not None and column is not None:
        _tile(chooser, row, column, lanes)
    else:
        shared = _share(chooser, k, lanes)
        if not shared:
            _widen_output(chooser, k, lanes)
            _threads(chooser)
        else:
            _beside(chooser, shared, lanes)
    _blocks(chooser)
    return tuple(chooser.opts), chooser.kernel


def _stored(k: KernelFacts, r: UOp) -> bool:
    """Whether neighbouring iterations write neighbouring places."""
    return any(a.stride(r) == 1 for a in k.accesses if a.written)


def _is_plain(k: KernelFacts, r: UOp) -> bool:
    """Whether every access moves by one element or none, and no guard depends on the loop."""
    for a in k.inside(r):
        gate = indexing.ungated(a.node.src[1])[1]
        if a.stride(r) not in (0, 1) or (gate is not None and r in analysis.ranges(gate)):
            return False
    return True


def _largest(n: int, most: int) -> int:
    """The greatest power of two up to both."""
    return 1 << (min(max(n, 1), most).bit_length() - 1)


def _outer(chooser: Chooser, r: UOp) -> UOp:
    """The loop that is left of r after an Opt cut it."""
    left = chooser.part(r, 0)
    return r if left is None else left


# ---------------------------------------------------------------- contractions
def _contraction(k: KernelFacts) -> tuple[UOp | None, UOp | None]:
    """The row and column loops of a reduce that reads two operands, one by each."""
    if len(k.reduces) != 1 or k.reduces[0].src[0].op is not Ops.MUL:
        return None, None
    loops = [r for r in k.outputs if r.arg.kind == "loop" and (length_of(r) or 0) >= 2 * TILE]
    column = next((r for r in reversed(loops) if _stored(k, r)), None)
    if column is None:
        return None, None
    reads = [a for a in k.accesses if not a.written and set(analysis.closed_ranges(k.reduces[0]))
             & analysis.ranges(a.node)]  # fmt: skip
    for row in reversed(loops):
        only = [r for a in reads for r in (row, column) if r in analysis.ranges(a.node)]
        if row is not column and len(reads) == 2 and set(only) == {row, column} and len(only) == 2:
            return row, column
    return None, None


def _tile(chooser: Chooser, row: UOp, column: UOp, lanes: int) -> None:
    """A tile of accumulators in each thread, and 16 by 16 threads."""
    for r, op, n in ((column, "VECTOR", lanes), (row, "UPCAST", TILE)):
        length = length_of(r) or 1
        if length % n == 0 and chooser.attempt(op, r, n):
            r = _outer(chooser, r)
        chooser.attempt("LOCAL", r, _largest(length_of(r) or BLOCK, 16))


# ---------------------------------------------------------------- reduces
def _share(chooser: Chooser, k: KernelFacts, lanes: int) -> int:
    """Long reduces among threads; how many they are, 0 where there are none."""
    outermost = [u for u in k.reduces if all(_holds_all(k, q) for q in analysis.ranges(u))]
    loops = {r: length_of(r) for u in outermost for r in analysis.closed_ranges(u)}
    found = [(r, n) for r, n in loops.items() if r.arg.kind == "reduce" and n is not None]
    chosen = [(r, n) for r, n in found if n >= LEAST_SHARED and _is_read(k, r)]
    if not chosen:
        return 0
    length = min(n for _, n in chosen)
    wide = lanes if all(_is_plain(k, r) and n % lanes == 0 for r, n in chosen) else 1
    threads = max(32, _largest(length // (wide * EACH), BLOCK))
    done = 0
    for r, _ in chosen:
        q = r
        if wide > 1 and chooser.attempt("VECTOR", r, wide):
            q = _outer(chooser, r)
        done += chooser.attempt("GROUP", q, threads)
    return threads if done else 0


def _holds_all(k: KernelFacts, r: UOp) -> bool:
    """Whether every reduce is inside of the loop: a row, and no column beside a row's reduce."""
    return all(r in analysis.ranges(u) for u in k.reduces)


def _is_read(k: KernelFacts, r: UOp) -> bool:
    """Whether neighbouring values of a reduce are neighbours in memory, so that threads read them
    together."""
    strides = {a.stride(r) for a in k.inside(r)}
    return 1 in strides and strides <= {0, 1}


# ---------------------------------------------------------------- outputs
def _widen_output(chooser: Chooser, k: KernelFacts, lanes: int) -> None:
    """16-byte accesses of an output loop."""
    for r in reversed(k.outputs):
        length = length_of(r)
        if r.arg.kind == "loop" and _stored(k, r) and _is_plain(k, r) and length is not None:
            if length % lanes == 0 and length >= lanes and lanes > 1:
                chooser.attempt("VECTOR", r, lanes)
            return


def _threads(chooser: Chooser) -> None:
    """Output loops as threads, the innermost first, until a block is full."""
    left = BLOCK
    for r in reversed([r for r in KernelFacts(chooser.kernel).outputs if r.arg.kind == "loop"]):
        length = length_of(r)
        n = left if length is None else min(left, _largest(2 * length - 1, left))
        if n > 1 and chooser.attempt("LOCAL", r, n):
            left //= n


def _beside(chooser: Chooser, threads: int, lanes: int) -> None:
    """Output loops beside the shared reduces of their row: for the same threads."""
    k = KernelFacts(chooser.kernel)
    for r in [r for r in k.outputs if r.arg.kind == "loop" and not _holds_reduce(k, r)]:
        length = length_of(r) or 1
        q = r
        if lanes > 1 and length % lanes == 0 and _is_plain(k, r):
            q = _outer(chooser, r) if chooser.attempt("VECTOR", r, lanes) else r
        chooser.attempt("LOCAL", q, threads)


def _blocks(chooser: Chooser) -> None:
    """The loops that are left as the grid; where a reduce is shared, only those around it."""
    k = KernelFacts(chooser.kernel)
    shared = any(r.arg.kind == "group" for r in k.axes)
    for r in [r for r in k.outputs if r.arg.kind == "loop"]:
        if not shared or _holds_reduce(k, r):
            chooser.attempt("GRID", r, 0)


def _holds_reduce(k: KernelFacts, r: UOp) -> bool:
    """Whether threads that share a reduce would be inside of the loop."""
    return any(
        q.arg.kind == "group" and r in analysis.ranges(u)
        for u in k.reduces
        for q in analysis.closed_ranges(u)
    )
