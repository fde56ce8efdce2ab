"""Sizes that each call decides, as UOps with known bounds."""

from __future__ import annotations

from uopc.backends.plan import Dim
from uopc.errors import Unsupported
from uopc.exporting.exported import Exported
from uopc.ir.builder.operands import variable
from uopc.ir.core import bounds, dtypes
from uopc.ir.core.ops import GroupOp, Op, Ops
from uopc.ir.core.uop import UOp, intern

_LEAST, _MOST = dtypes.index.bounds


def expression(size: Dim, f: Exported) -> UOp:
    """A size as an index expression over the names in C. Unsupported if it may exceed 64 bits."""
    if isinstance(size, int):
        return intern(Ops.CONST, dtypes.index, (), size)
    by_name = {s.given: variable(s.name, s.low, s.high) for s in f.sizes}
    made: list[UOp] = []
    for name, known, operands in size.instructions:
        op, src = Op.by_name(name), tuple([made[i] for i in operands])
        if op is Ops.VARIABLE:
            made.append(by_name[str(known)])
            continue
        if op is Ops.CONST:
            made.append(intern(op, dtypes.index, (), int(known or 0)))
            continue
        bools = bool(src) and all(s.dtype.kind == "bool" for s in src)
        boolean = op in GroupOp.Comparison or bools
        made.append(intern(op, dtypes.bool_ if boolean else dtypes.index, src))
        _check(made[-1], size)
    return made[-1]


def _check(u: UOp, size: object) -> None:
    found = u.op.bounds(u, *[bounds.bounds(s) for s in u.src]) if u.op.bounds else None
    if found is None or found[0] < _LEAST or found[1] > _MOST:
        raise Unsupported(
            f"export: the size {size} may not fit 64 bits: give its variables closer bounds"
        )
