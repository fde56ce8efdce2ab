"""FUNCTIONs of kernels in place of their APPLYs, where a function of its own does not pay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from uopc.ir.core.calls import applied, function_statements
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern, set_origin


def often_applied(kernel: UOp, least: int) -> frozenset[UOp]:
    """The FUNCTIONs of a linear kernel that at least `least` APPLYs use."""
    count = Counter([u.src[0] for u in kernel.src if u.op is Ops.APPLY])
    return frozenset([u for u, n in count.items() if n >= least])


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
