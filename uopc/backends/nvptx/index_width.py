"""Index arithmetic of a GPU in 32 bits, where bounds prove that no value needs more.

A GPU's registers and instructions have 32 bits: an operation on 64 bits takes two or more. A narrow
index is widened where it enters an address; addresses in shared memory have 32 bits themselves.
"""

from __future__ import annotations

from uopc.backends.llvm.emitter import Emitter
from uopc.ir.core import bounds, dtypes, ranges
from uopc.ir.core.ops import COMPARISONS, Op, Ops
from uopc.ir.core.uop import UOp

# Bounds exclude overflow; operands of divisions are not negative.
_INSTRUCTIONS: dict[Op, str] = {
    Ops.ADD: "add nsw", Ops.SUB: "sub nsw", Ops.MUL: "mul nsw", Ops.AND: "and", Ops.OR: "or",
    Ops.XOR: "xor", Ops.CDIV: "udiv", Ops.CMOD: "urem",
    Ops.CMPLT: "icmp slt", Ops.CMPLE: "icmp sle", Ops.CMPEQ: "icmp eq", Ops.CMPNE: "icmp ne",
}  # fmt: skip


def is_narrow(u: UOp) -> bool:
    """True for arithmetic on indices, or a comparison of them, that 32 bits hold."""
    if u.op not in _INSTRUCTIONS or any([s.dtype is not dtypes.index for s in u.src]):
        return False
    divides = u.op in (Ops.CDIV, Ops.CMOD)
    return all(_fits(s, divides) for s in u.src) and (u.op in COMPARISONS or _fits(u, False))


def _fits(u: UOp, positive: bool) -> bool:
    low, high = bounds.bounds(u)
    return bool((0 if positive else -(1 << 31)) <= low and high < 1 << 31)


def emit(e: Emitter, u: UOp) -> str:
    """Emit a narrow node; returns its name at its own width. An index also gets a 32-bit name."""
    a, b = [low_half(e, s) for s in u.src]
    made = e.value(f"{_INSTRUCTIONS[u.op]} i32 {a}, {b}")
    return made if u.op in COMPARISONS else widened(e, u, made)


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
    fits = low >= -(1 << 31) and high < 1 << 31 and all(_fits(u, False) for u in terms)
    width = "i32" if fits else "i64"
    names = [low_half(e, u) if fits else e.of(u) for u in terms]
    total = names[0]
    for name in names[1:]:
        total = e.once(f"add nsw {width} {total}, {name}")
    if fits and not short:
        total = e.once(f"{'zext nneg' if low >= 0 else 'sext'} i32 {total} to i64")
    return f"{width if short else 'i64'} {total}"


def low_half(e: Emitter, u: UOp) -> str:
    """An index that fits as 32 bits."""
    if u.op is Ops.CONST:
        return str(u.arg)
    return e.narrow.get(u) or e.once(f"trunc i64 {e.of(u)} to i32")
