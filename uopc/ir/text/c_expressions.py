"""Integer and bool expressions in C99: `((n*4)+r0)`, `(c?a:b)`, `(!p)`.

C computes small numbers in int, rounds quotients toward 0, and leaves overflow, division by 0 and
some shifts undefined. The bounds of values decide where the short form is right. Where it may not
be, an operand is cast, or the expression takes care of the sign, of 0, or of wrapping.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from uopc.errors import Unsupported
from uopc.ir.core import bounds, intervals
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp

Tokens = tuple[Any, ...]  # str | UOp

_INT: Final = (-(1 << 31), (1 << 31) - 1)
_KEYWORDS: Final = frozenset((
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
    "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register",
    "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
    "union", "unsigned", "void", "volatile", "while",
))  # fmt: skip
_KINDS: Final = ("bool", "int", "uint", "index")
_SYMBOLS: Final = {
    Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.AND: "&", Ops.OR: "|", Ops.XOR: "^",
    Ops.CMPLT: "<", Ops.CMPLE: "<=", Ops.CMPEQ: "==", Ops.CMPNE: "!=", Ops.MAX: ">", Ops.MIN: "<",
}  # fmt: skip
_BOOL_SYMBOLS: Final = _SYMBOLS | {
    Ops.ADD: "||", Ops.OR: "||", Ops.MAX: "||", Ops.MUL: "&&", Ops.AND: "&&", Ops.MIN: "&&",
    Ops.XOR: "!=",
}  # fmt: skip
_MAY_WRAP: Final = frozenset((Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.SHL))


def tokens(u: UOp) -> Tokens:
    """The C text of a node around its operands; Unsupported when there is none."""
    rule = _RULES.get(u.op)
    for v in (u, *u.src[:1]):
        if rule is None or v.dtype.lanes > 1 or v.dtype.kind not in _KINDS:
            raise _refuse(u, f"the dtype is {v.dtype.name}" if rule else "not integer arithmetic")
    assert rule is not None
    made = rule(u)
    return (made,) if isinstance(made, str) else made


def _has(u: UOp, low: int, high: int) -> bool:
    """True if the value may lie in this interval."""
    least, most = bounds.bounds(u)
    return bool(least <= high and low <= most)


def _is_nonnegative(u: UOp) -> bool:
    return bool(bounds.bounds(u)[0] >= 0)


def _type(t: DType) -> str:
    return f"{'' if t.is_signed else 'u'}int{t.bits}_t"


def _computed(u: UOp) -> str:
    """A cast for the first operand if the result leaves int and the operands may be ints."""
    if bounds.within(u, *_INT) or not all([bounds.within(s, *_INT) for s in u.src]):
        return ""
    return f"({_type(u.dtype)})"


def _wraps(u: UOp) -> bool:
    """True if the exact result may lie outside of a dtype of fixed width."""
    if not u.dtype.is_int or u.op.bounds is None:
        return u.dtype.is_int
    exact = u.op.bounds(u, *[bounds.bounds(s) for s in u.src])
    low, high = intervals.of_type(u.dtype)
    return exact is None or bool(exact[0] < low or exact[1] > high)


def _refuse(u: UOp, problem: str) -> Unsupported:
    return Unsupported(f"render: C has no expression for {u.op!r}: {problem}")


# ---------------------------------------------------------------- leaves
def _constant(u: UOp) -> str:
    value = int(u.arg)
    if not -(1 << 63) <= value < 1 << 64:
        raise _refuse(u, f"{value} has more than 64 bits")
    if value == -(1 << 63):
        return f"({value + 1}-1)"
    return f"({value})" if value < 0 else f"{value}ULL" if value >= 1 << 63 else str(value)


def _named(name: str) -> str:
    if not (name.isascii() and name.isidentifier()) or name in _KEYWORDS:
        raise Unsupported(f"render: {name!r} is not an identifier of C")
    return name


# ---------------------------------------------------------------- arithmetic
def _binary(u: UOp) -> Tokens:
    a, b = u.src
    if a.dtype.kind == "bool":
        if u.op is Ops.SUB:
            raise _refuse(u, "the operands are bool")
        return ("(", a, _BOOL_SYMBOLS[u.op], b, ")")
    if u.op in _MAY_WRAP and _wraps(u):
        return _wrapped(u)
    return ("(", _computed(u), a, _SYMBOLS[u.op], b, ")")


def _wrapped(u: UOp) -> Tokens:
    """Computed without a sign, in 32 or 64 bits, and cut to the width."""
    *first, last = u.src
    unsigned = f"(uint{max(32, u.dtype.bits)}_t)"
    left: Tokens = (unsigned, first[0]) if first else (f"{unsigned}0",)
    symbol = "<<" if u.op is Ops.SHL else _SYMBOLS[u.op] if first else "-"
    return (f"(({_type(u.dtype)})(", *left, symbol, "" if symbol == "<<" else unsigned, last, "))")


def _negated(u: UOp) -> Tokens:
    (a,) = u.src
    if u.dtype.kind == "bool":
        return ("(!", a, ")")
    return _wrapped(u) if _wraps(u) else ("(-", _computed(u), a, ")")


def _absolute(u: UOp) -> Tokens:
    (a,) = u.src
    if u.dtype.kind == "bool" or _is_nonnegative(a):
        return (a,)
    if _wraps(u):
        raise _refuse(u, "the magnitude may not fit")
    return ("(", a, "<0?-", _computed(u), a, ":", a, ")")


def _extremum(u: UOp) -> Tokens:
    a, b = u.src
    if u.dtype.kind == "bool":
        return _binary(u)
    return ("(", a, _SYMBOLS[u.op], b, "?", a, ":", b, ")")


def _division(symbol: str, floors: bool) -> Callable[[UOp], Tokens]:
    """The rule of a quotient or a remainder, 0 where the divisor is 0."""

    def rule(u: UOp) -> Tokens:
        a, b = u.src
        cast = ""
        if _has(b, -1, -1):  # the least number of a type is divided in a wider one
            if _has(a, -(1 << 63), -(1 << 63)) or _wraps(u):
                raise _refuse(u, "the quotient may not fit")
            cast = "(int64_t)" if not bounds.within(a, 1 - (1 << 31), _INT[1]) else ""
        made: Tokens = (cast, a, symbol, b)
        if floors and not (_is_nonnegative(a) and _is_nonnegative(b)):
            rest: Tokens = (cast, a, "%", b)
            wrong: Tokens = (*rest, "<0") if _is_nonnegative(b) else (
                *rest, "!=0&&(", a, "<0)!=(", b, "<0)")  # fmt: skip
            made += ("-(", *wrong, ")") if symbol == "/" else ("+(", *wrong, "?", b, ":0)")
        return ("(", b, "?", *made, ":0)") if _has(b, 0, 0) else ("(", *made, ")")

    return rule


def _shift(u: UOp) -> Tokens:
    a, by = u.src
    if not bounds.within(by, 0, u.dtype.bits - 1):
        raise _refuse(u, f"the count may be negative or {u.dtype.bits} and more")
    cast = "" if bounds.within(by, 0, 31) else f"({_type(u.dtype)})"
    if u.op is Ops.SHL:
        if _wraps(u) or not _is_nonnegative(a):
            return _wrapped(u)
        return ("(", cast or _computed(u), a, "<<", by, ")")
    if _is_nonnegative(a):
        return ("(", cast, a, ">>", by, ")")
    return ("(", a, "<0?~(~", cast, a, ">>", by, "):", cast, a, ">>", by, ")")


# ---------------------------------------------------------------- conversion and choice
def _cast(u: UOp) -> Tokens:
    (a,) = u.src
    if u.dtype.kind == "bool":
        return ("(", a, "!=0)")
    return (a,) if a.dtype.kind == "bool" else (f"(({_type(u.dtype)})", a, ")")


# fmt: off
_RULES: Final[dict[Op, Callable[[UOp], Tokens | str]]] = {
    Ops.CONST:    _constant,
    Ops.VARIABLE: lambda u: _named(u.arg.name),
    Ops.SPECIAL:  lambda u: _named(u.arg),
    Ops.RANGE:    lambda u: "r" + "_".join(map(str, u.arg.axis)).replace("-", "m"),
    Ops.BIND:     lambda u: u.src[:1],
    Ops.WHERE:    lambda u: ("(", u.src[0], "?", u.src[1], ":", u.src[2], ")"),
    Ops.NEG:      _negated,
    Ops.ABS:      _absolute,
    Ops.CAST:     _cast,
    Ops.MAX:      _extremum,
    Ops.MIN:      _extremum,
    Ops.FLOORDIV: _division("/", True),
    Ops.FLOORMOD: _division("%", True),
    Ops.CDIV:     _division("/", False),
    Ops.CMOD:     _division("%", False),
    Ops.SHL:      _shift,
    Ops.SHR:      _shift,
    **dict.fromkeys((
        Ops.ADD, Ops.SUB, Ops.MUL, Ops.AND, Ops.OR, Ops.XOR,
        Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE,
    ), _binary),
}
# fmt: on
