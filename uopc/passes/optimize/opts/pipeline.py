"""PIPELINE: tiles that threads fill together are filled ahead of their use.

    for k: fill t; use t   →   fill t[0]; for k: fill t[(k + 1) % 2]; use t[k % 2]
"""

from __future__ import annotations

import dataclasses

from uopc.ir.builder import rebuild
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.shared_tiles import filled_together, loops_around
from uopc.passes.optimize.opts.legality import Refused


def pipeline(kernel: UOp, r: UOp, n: int) -> UOp:
    """Fill the tiles of loop r n - 1 iterations ahead of their use, in n stages."""
    length = r.src[0]
    if n < 2 or length.op is not Ops.CONST or length.arg < n:
        raise Refused(f"the loop needs a known length of at least {n}, and {n} at least 2")
    tiles = [t for t, end in filled_together(walk.order(kernel)).items()
             if loops_around(end)[-1:] == (r,)]  # fmt: skip
    if not tiles:
        raise Refused("threads fill no tile in the loop")
    made = {t: t.replace(arg=dataclasses.replace(t.arg, stages=n)) for t in tiles}
    return rebuild.rebuild(kernel, made)
