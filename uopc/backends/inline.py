"""FUNCTIONs of kernels in place of their APPLYs, where a function of its own does not pay.

    APPLY of 110 statements on %x, four times    →    four times %r = call @apply_huge_sin_5f3a…(%x)

All float64 sines of one width have the same branch, for huge angles. A function for it makes
compilation faster but loops slower, even where the branch is not taken, because no vector register
survives a call: what occurs only a few times stays in place. (`preserve_allcc` would keep
registers, but LLVM 22 ends its functions with `vzeroupper`.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from uopc.ir.core.calls import applied, function_body, function_statements
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern, set_origin

SHORTEST = 12  # nodes of a function; a call adds about 10 statements
FEWEST = 4  # calls of a function


def inlined(kernel: UOp, kept: Container[UOp] = ()) -> UOp:
    """A linear kernel with the nodes of each FUNCTION in place of its APPLYs; the `kept` stay."""
    bodies = {u: function_statements(u) for u in applied(kernel) if u not in kept}
    if not bodies:
        return kernel
    made: dict[UOp, UOp] = {}
    out: dict[UOp, None] = {}
    for number, u in enumerate(kernel.src):
        if u in bodies:
            continue
        src = tuple([made.get(s, s) for s in u.src])
        if u.op is Ops.APPLY and u.src[0] in bodies:
            # A tag tells the nodes of each place apart, as they stand in blocks of their own.
            copies: dict[UOp, UOp] = {}
            for s in bodies[u.src[0]]:
                if s.op is Ops.NUMBER:
                    copies[s] = src[1 + s.arg.slot]
                    continue
                new = tuple([copies[x] for x in s.src])
                tag = None if s.op is Ops.CONST else number
                copies[s] = intern(s.op, s.dtype, new, s.arg, tag)
                out[copies[s]] = None
            made[u] = copies[bodies[u.src[0]][-1]]
        else:
            made[u] = u if src == u.src else intern(u.op, u.dtype, src, u.arg, u.tag)
            out[made[u]] = None
            set_origin(made[u], u.origin)
    return intern(kernel.op, kernel.dtype, tuple(out), kernel.arg)


def outlined(kernel: UOp) -> UOp:
    """A linear kernel with the functions that are short or seldom used in place of their APPLYs;
    the others are functions of its code."""
    count = Counter([u.src[0] for u in kernel.src if u.op is Ops.APPLY])
    often = [u for u, n in count.items() if n >= FEWEST]
    return inlined(kernel, [u for u in often if len(function_body(u)) >= SHORTEST])
