"""Integers and bools as one expression of C99, without statements: `((n < 3) ? (n / 12) : r0)`.

The rows of kernels print the ops. Variables and ranges may be int where their bounds fit: an
operand is cast to 64 bits where the result may leave int. Quotients round as the graph's do.
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc.backends.c.expressions import arithmetic, cast
from uopc.backends.c.names import WORDS, inside
from uopc.backends.c.prelude import Prelude
from uopc.backends.c.types import c_type
from uopc.errors import Unsupported
from uopc.ir.core import bounds, dtypes, intervals, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

_LONGEST = 1_000_000  # characters
_LEAVES = (Ops.CONST, Ops.VARIABLE, Ops.BIND, Ops.RANGE, Ops.SPECIAL)
_DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD)


def render(u: UOp) -> str:
    """The expression, which may stand in any other. Unsupported where C has none of at most a
    million characters."""
    texts: dict[UOp, str] = {}
    for v in walk.toposort(u, gate=lambda v: v.op not in _LEAVES):
        if any([s.dtype.lanes > 1 or s.dtype.is_float for s in (v, *v.src)]):
            raise _refuse(v, f"the dtype is {v.dtype.name}")
        texts[v] = _leaf(v) if v.op in _LEAVES else _node(v, [texts[s] for s in v.src])
        if len(texts[v]) > _LONGEST:
            raise Unsupported("render: the expression in C has more than a million characters")
    return inside(texts[u])


def _refuse(u: UOp, problem: str) -> Unsupported:
    return Unsupported(f"render: C has no expression for {u.op!r}: {problem}")


def _leaf(u: UOp) -> str:
    if u.op is Ops.RANGE:
        return "r" + "_".join(map(str, u.arg.axis)).replace("-", "m")
    if u.op is not Ops.CONST:
        name: str = u.arg if u.op is Ops.SPECIAL else (u.src[0] if u.op is Ops.BIND else u).arg.name
        if not (name.isascii() and name.isidentifier()) or name in WORDS:
            raise Unsupported(f"render: {name!r} is not an identifier of C")
        return name
    if not bounds.holds(u.dtype, u):
        raise _refuse(u, f"{u.arg} has more than 64 bits")
    return Prelude().constant(u.dtype, u.arg) if u.dtype.kind != "bool" else str(int(u.arg))


def _node(u: UOp, texts: list[str]) -> str:
    """The text of an op on the texts of its operands."""
    prelude, t = Prelude(), u.dtype
    if not u.src:
        raise _refuse(u, "C has no operator for it")
    if t is dtypes.index and not _is_int(u) and all(map(_is_int, u.src)):
        texts[0] = f"(int64_t){inside(texts[0])}"
    if u.op in _DIVISIONS:
        return _divided(u, [inside(text) for text in texts])
    if u.op is Ops.CAST:
        return cast(u.src[0].dtype, t, texts[0], prelude)
    if u.op in (Ops.SHL, Ops.SHR):
        if not bounds.within(u.src[1], 0, t.bits - 1):
            raise _refuse(u, f"the count must be from 0 to {t.bits - 1}")
        if not bounds.within(u.src[1], 0, 31):
            texts[0] = f"({c_type(t)}){inside(texts[0])}"
    made = arithmetic(u.op, u.src[-1].dtype, texts, prelude)
    if prelude.items:
        raise _refuse(u, "C needs a function for it")
    return made


def _is_int(u: UOp) -> bool:
    """True if an int of C, which has 32 bits, holds the value."""
    return bounds.holds(dtypes.int32, u)


def _may_be(u: UOp, value: int) -> bool:
    least, most = bounds.bounds(u)
    return bool(least <= value <= most)


def _divided(u: UOp, names: Sequence[str]) -> str:
    """A quotient or a remainder, rounded toward 0 or down; 0 where the divisor is 0."""
    (a, b), (x, y) = u.src, names
    if _may_be(b, -1):  # the least int is divided in a wider type
        if _may_be(a, intervals.of_type(a.dtype)[0]):
            raise _refuse(u, "the quotient may not fit")
        x = f"(int64_t){x}" if _may_be(a, dtypes.int32.bounds[0]) else x
    is_quotient, rest = u.op in (Ops.FLOORDIV, Ops.CDIV), f"{x} % {y}"
    made = f"{x} / {y}" if is_quotient else rest
    positive, above = (bounds.bounds(s)[0] >= 0 for s in (a, b))
    if u.op in (Ops.FLOORDIV, Ops.FLOORMOD) and not (positive and above):
        wrong = f"{rest} < 0" if above else f"{rest} != 0 && ({x} < 0) != ({y} < 0)"
        made += f" - ({wrong})" if is_quotient else f" + ({wrong} ? {y} : 0)"
    return f"{y} ? {made} : 0" if _may_be(b, 0) else made
