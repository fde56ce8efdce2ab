"""The nodes of a tensor graph, kept while it is compiled: most passes ask for the same ones.

Bodies of kernels that were written by hand do not belong to it: only the SINK of each does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.core import analysis
from uopc.ir.core.node import kept
from uopc.ir.core.ops import Op

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


@kept
def nodes(root: UOp) -> list[UOp]:
    """The nodes, sources first."""
    return list(analysis.toposort(root, analysis.outside_kernels(root)))


@kept
def ops(root: UOp) -> frozenset[Op]:
    """The ops that there are: a pass that has nothing to do with any of them is done."""
    return frozenset([u.op for u in nodes(root)])
