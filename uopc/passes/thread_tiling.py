"""Ranges of a kernel handed to the blocks and threads of a GPU: what the Opts GRID and LOCAL do.

As in `range_tiling.py`, each gives a kernel that computes the same numbers, or raises `Refused`.
A range of kind global is a place in the grid, one of kind local a place in the block.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from uopc.ir import affine, analysis, dtypes
from uopc.ir.node import intern
from uopc.ir.ops import Ops
from uopc.passes.range_tiling import Refused, check_free, is_overwritten, make_range, replaced

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

# Kinds of ranges that threads of one block share, the fastest first.
THREADS = ("group", "local")
_OUTER, _INNER, _GUARD = 0, 1, 2


def grid(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  a dimension of the grid: its iterations run in blocks of their own."""
    if n:
        raise Refused("a whole range becomes a dimension of the grid: the amount is 0")
    _check_output(kernel, r)
    if analysis.ranges(r.src[0]):
        raise Refused("its length differs from iteration to iteration")
    if any(u.op is not Ops.END or r not in u.src[1:] for u in kernel.src):
        raise Refused("the range is not around the whole kernel")
    made = make_range(r.src[0], r.arg.axis, "global")
    return replaced(kernel, r, made, (made,))


def local(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  outer·n + thread, the neighbours in the threads of a block; where n does not divide
    r, the last ones stand behind a branch."""
    check_free(kernel, r)
    _check_output(kernel, r)
    if n < 1:
        raise Refused(f"the amount {n} is too small")
    whole, rest = affine.divmod_(r.src[0], affine.const(n))
    exact = rest.op is Ops.CONST and rest.arg == 0
    if not exact:
        _check_no_sharing(kernel, r)
        whole = affine.floordiv(affine.plus(r.src[0], n - 1), affine.const(n))
    axis = r.arg.axis
    inner = make_range(affine.const(n), (*axis, _INNER), "local")
    value: UOp = inner
    closed: tuple[UOp, ...] = (inner,)
    if not (whole.op is Ops.CONST and whole.arg == 1):
        outer = make_range(whole, (*axis, _OUTER), "loop")
        value, closed = affine.add(affine.mul(outer, affine.const(n)), inner), (outer, inner)
    if not exact:
        inside = intern(Ops.CMPLT, dtypes.bool_, (value, r.src[0])).cast(dtypes.index)
        guard = make_range(inside, (*axis, _GUARD), "loop")
        value, closed = affine.add(value, guard), (*closed, guard)
    return replaced(kernel, r, value, closed)


def _check_output(kernel: UOp, r: UOp) -> None:
    order = analysis.toposort(kernel)
    if any(u.op is Ops.REDUCE and r in u.src[1:] for u in order):
        raise Refused("only an output loop can be handed to blocks and threads; use GROUP")
    if any(is_overwritten(u, r) for u in order):
        raise Refused("its iterations write to one place, in their order")


def _check_no_sharing(kernel: UOp, r: UOp) -> None:
    """Refused where threads wait for each other inside of r: a branch would leave some behind."""
    closers = [u for u in analysis.toposort(kernel) if u.op is Ops.REDUCE]
    closed = itertools.chain.from_iterable(
        analysis.closed_ranges(u) for u in closers if r in analysis.ranges(u)
    )
    if any(q.arg.kind.startswith("group") for q in closed):
        raise Refused("the amount must divide a range in which threads share a reduce")
