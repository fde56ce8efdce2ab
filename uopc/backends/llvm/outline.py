"""Choose the FUNCTIONs of a kernel that are functions of its code; the others stand in place.

    APPLY of 110 statements on %x, four times    →    four times %r = call @apply_huge_sin_5f3a…(%x)

All float64 sines of one width have the same branch, for huge angles. A function for it makes
compilation faster but loops slower, even where the branch is not taken, because no vector register
survives a call: what occurs only a few times stays in place. (`preserve_allcc` would keep
registers, but LLVM 22 ends its functions with `vzeroupper`.)
"""

from __future__ import annotations

from uopc.backends.inline import inlined, often_applied
from uopc.ir.core.calls import function_body
from uopc.ir.core.uop import UOp

SHORTEST = 12  # nodes of a function; a call adds about 10 statements
FEWEST = 4  # calls of a function


def outlined(kernel: UOp) -> UOp:
    """A linear kernel with the functions that are short or seldom used in place of their APPLYs."""
    often = often_applied(kernel, FEWEST)
    return inlined(kernel, [u for u in often if len(function_body(u)) >= SHORTEST])
