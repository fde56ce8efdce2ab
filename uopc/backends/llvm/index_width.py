"""Index arithmetic in 32 bits, where bounds prove that no value needs more.

Registers and instructions of GPUs and of small processors have 32 bits: an operation on 64 bits
takes two or more. Each index keeps a name of 64 bits, which costs nothing where nobody reads it;
one that was computed in 32 bits has that name too. C has the same indices as int32_t.
"""

from __future__ import annotations

from uopc.backends.llvm.emitter import Emitter
from uopc.backends.llvm.instructions import ALU, conversion
from uopc.ir.core import bounds, dtypes, ranges
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import COMPARISONS, Op, Ops
from uopc.ir.core.uop import UOp

# Bounds exclude overflow; operands of divisions are not negative.
_INSTRUCTIONS: dict[Op, str] = {
    Ops.ADD: "add nsw", Ops.SUB: "sub nsw", Ops.MUL: "mul nsw", Ops.AND: "and", Ops.OR: "or",
    Ops.XOR: "xor", Ops.CDIV: "udiv", Ops.CMOD: "urem",
    Ops.CMPLT: "icmp slt", Ops.CMPLE: "icmp sle", Ops.CMPEQ: "icmp eq", Ops.CMPNE: "icmp ne",
}  # fmt: skip
_OTHERS = frozenset((Ops.NEG, Ops.MAX, Ops.MIN, Ops.SHL, Ops.SHR))
LEAST, MOST = dtypes.int32.bounds


def is_narrow(u: UOp) -> bool:
    """True if 32 bits hold index arithmetic: an operation, a choice, a comparison, or a conversion
    from or to an index."""
    if u.op is Ops.CAST:
        return _narrow_cast(u.src[0], u)
    operands = u.src[1:] if u.op is Ops.WHERE and u.src[0].dtype.lanes == 1 else u.src
    if u.op is not Ops.WHERE and u.op not in _INSTRUCTIONS and u.op not in _OTHERS:
        return False
    if any([s.dtype is not dtypes.index for s in operands]):
        return False
    if u.op in (Ops.CDIV, Ops.CMOD) and any([bounds.bounds(s)[0] < 0 for s in operands]):
        return False
    return all([fits(s) for s in operands]) and (u.op in COMPARISONS or fits(u))


def _narrow_cast(source: UOp, u: UOp) -> bool:
    """Narrow floats have conversions of their own."""
    if u.dtype is dtypes.index:
        t = source.dtype
        return t.lanes == 1 and not t.is_float and t.bits <= 32 and fits(u)
    return source.dtype is dtypes.index and fits(source) and (
        not u.dtype.is_float or u.dtype.bits >= 32
    )


def fits(u: UOp) -> bool:
    """True if 32 bits hold the values of a node."""
    return bounds.holds(dtypes.int32, u)


def emit(e: Emitter, u: UOp) -> str:
    """Emit a narrow node; returns its name at its own width. An index also gets a 32-bit name."""
    if u.op is Ops.CAST:
        return _cast(e, u.src[0], u)
    if u.op is Ops.WHERE:
        a, b = [low_half(e, s) for s in u.src[1:]]
        return widened(e, u, e.value(f"select i1 {e.of(u.src[0])}, i32 {a}, i32 {b}"))
    names = [low_half(e, s) for s in u.src]
    if u.op in _OTHERS:
        return widened(e, u, ALU[u.op](e, dtypes.int32, names))
    made = e.value(f"{_INSTRUCTIONS[u.op]} i32 {', '.join(names)}")
    return made if u.op in COMPARISONS else widened(e, u, made)


def _cast(e: Emitter, source: UOp, u: UOp) -> str:
    if u.dtype is dtypes.index:
        return widened(e, u, conversion(e, source.dtype, dtypes.int32, e.of(source)))
    return conversion(e, dtypes.int32, u.dtype, low_half(e, source))


def index_type(u: UOp) -> DType:
    """The narrowest type with the values of an index."""
    return dtypes.int32 if fits(u) else dtypes.index


def widened(e: Emitter, u: UOp, name: str) -> str:
    """Widen an index from 32 bits to 64; both names are kept."""
    e.narrow[u] = name
    extend = "zext nneg" if bounds.bounds(u)[0] >= 0 else "sext"
    return e.value(f"{extend} i32 {name} to i64")


def summands(e: Emitter, index: UOp, short: bool) -> list[str]:
    """The summands of an index, as operands of address arithmetic. Terms that vary in the fewest
    loops come first, so that they are computed outside of the other loops; a constant, which
    accesses add for free, comes last. `short`: addresses have 32 bits."""
    groups: dict[int, list[UOp]] = {}
    offset, stack = 0, [index]
    while stack:
        u = stack.pop()
        if u.op is Ops.ADD:
            stack += reversed(u.src)
        elif u.op is Ops.CONST:
            offset += int(u.arg)
        else:
            groups.setdefault(len(ranges.ranges(u)), []).append(u)
    made = [_sum(e, groups[depth], short) for depth in sorted(groups)]
    return [*made, f"i64 {offset}"] if offset else made


def _sum(e: Emitter, terms: list[UOp], short: bool) -> str:
    """`i32 %name` or `i64 %name` of a sum of indices."""
    spans = [bounds.bounds(u) for u in terms]
    low, high = min(0, sum(b[0] for b in spans)), max(0, sum(b[1] for b in spans))
    narrow = low >= LEAST and high <= MOST and all([fits(u) for u in terms])
    width = "i32" if narrow else "i64"
    names = [low_half(e, u) if narrow else e.of(u) for u in terms]
    total = names[0]
    for name in names[1:]:
        total = e.once(f"add nsw {width} {total}, {name}")
    if narrow and not short:
        total = e.once(f"{'zext nneg' if low >= 0 else 'sext'} i32 {total} to i64")
    return f"{width if short else 'i64'} {total}"


def low_half(e: Emitter, u: UOp) -> str:
    """An index that fits as 32 bits."""
    if u.op is Ops.CONST:
        return str(u.arg)
    return e.narrow.get(u) or e.once(f"trunc i64 {e.of(u)} to i32")
