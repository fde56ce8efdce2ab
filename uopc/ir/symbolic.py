"""`simplify`: an equal graph in normal form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir import analysis
from uopc.ir.remake import remake

if TYPE_CHECKING:
    from uopc.ir.uop import UOp


def simplify(u: UOp) -> UOp:
    """An equal graph, smaller or the same."""
    done: dict[UOp, UOp] = {}
    for n in analysis.toposort(u):
        done[n] = remake(n, tuple([done[s] for s in n.src])) if n.src else n
    return done[u]
