"""Elementwise ops as expressions of C, on the texts of their operands.

Integers wrap by way of unsigned types, and what C computes in int is cut to its own type again.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from uopc.backends.c.prelude import Prelude
from uopc.backends.c.types import c_type, computed, is_narrow, rounded, unsigned
from uopc.errors import Unsupported
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp

SYMBOLS = {
    Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.FDIV: "/", Ops.CDIV: "/", Ops.CMOD: "%",
    Ops.AND: "&", Ops.OR: "|", Ops.XOR: "^", Ops.SHL: "<<", Ops.SHR: ">>",
    Ops.CMPLT: "<", Ops.CMPLE: "<=", Ops.CMPEQ: "==", Ops.CMPNE: "!=",
}  # fmt: skip
COMPARISONS = (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)
_BOOLS = {
    Ops.ADD: "{} || {}", Ops.OR: "{} || {}", Ops.MAX: "{} || {}",
    Ops.MUL: "{} && {}", Ops.AND: "{} && {}", Ops.MIN: "{} && {}",
    Ops.SUB: "{} != {}", Ops.XOR: "{} != {}", Ops.CMPNE: "{} != {}", Ops.CMPEQ: "{} == {}",
    Ops.CMPLT: "!{} && {}", Ops.CMPLE: "!{} || {}", Ops.NEG: "!{}",
}  # fmt: skip
FUNCTIONS = {
    Ops.SQRT: "sqrt", Ops.TRUNC: "trunc", Ops.FLOOR: "floor", Ops.CEIL: "ceil", Ops.ROUND: "rint",
}  # fmt: skip
# These need no parentheses inside of another expression: names, numbers, elements, calls.
_ATOM = re.compile(r"[\w.]+(e[+-]\d+f?)?|\w+\[[^\[\]]*\]|\w*\([^()]*\)|\(\w+\)\{[^{}]*\}")
# Of the library, where the target has functions: they keep their names in C.
OF_LIBRARY = frozenset((
    Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TAN, Ops.TANH, Ops.ERF, Ops.POW,
))  # fmt: skip
# Of floats that are their 16 bits.
SIGN_BITS = {Ops.NEG: "(uint16_t)({} ^ 0x8000u)", Ops.ABS: "(uint16_t)({} & 0x7fffu)"}
TWICE = frozenset((Ops.MAX, Ops.MIN, Ops.ABS))  # their operands occur more than once


def inside(text: str) -> str:
    """An expression as an operand of another one."""
    return text if _ATOM.fullmatch(text) else f"({text})"


def arithmetic(
    op: Op, t: DType, texts: Sequence[str], prelude: Prelude, src: Sequence[UOp] = ()
) -> str:
    """The expression of an op on operands of type `t`; `src`, if they are known. Unsupported for
    an op that C has none for."""
    if op is Ops.WHERE:
        return _cut(t, "{} ? {} : {}".format(*map(inside, texts)))
    if t is not computed(t):
        return _narrow_float(op, t, texts, prelude, src)
    if t.is_float and (call := _call(op, t, texts, prelude)) is not None:
        return call
    names = [inside(text) for text in texts]
    if op is Ops.DOT4:
        return f"{prelude.known('DOT4')}({', '.join((*texts, '0')[:3])})"
    if t.kind == "bool" and op in _BOOLS:
        return _BOOLS[op].format(*names)
    if op in COMPARISONS:
        return f"{names[0]} {SYMBOLS[op]} {names[1]}"
    made = _float(op, t, names, prelude, src) if t.is_float else _integer(op, t, names)
    if made is None:
        raise Unsupported(
            f"c: no code for {op!r} ({t.name}): an op that pass decompose replaces may come from no"
            " rule of a later pass; another one needs a row in backends/c/expressions.py"
        )
    return made


def with_itself(u: UOp) -> bool | None:
    """The value of a node that compares a whole number, or a bool, with itself: compilers warn of
    such text. None for every other node."""
    if len(u.src) != 2 or u.src[0] is not u.src[1] or u.src[0].dtype.is_float:
        return None
    if u.op in COMPARISONS:
        return u.op in (Ops.CMPLE, Ops.CMPEQ)
    return False if u.dtype.kind == "bool" and u.op in (Ops.SUB, Ops.XOR) else None


def _narrow_float(
    op: Op, t: DType, texts: Sequence[str], prelude: Prelude, src: Sequence[UOp]
) -> str:
    """An op on floats that are their bits. Signs are bits, and an operand that is chosen stays as
    it is; all else is computed in a wider type and rounded once more, which for a sum, a product or
    a quotient is as good as once."""
    if op in SIGN_BITS:
        return SIGN_BITS[op].format(inside(texts[0]))
    if op is Ops.MULACC:
        return f"{prelude.fused_halves()}({', '.join(texts)})"
    wide = computed(t)
    given = [
        prelude.constant(wide, rounded(t, u.arg)) if u is not None and u.op is Ops.CONST
        else prelude.wide(t, text)
        for text, u in itertools.zip_longest(texts, src)
    ]  # fmt: skip
    if op in (Ops.MAX, Ops.MIN):
        return f"(uint16_t)({_extreme(op, list(map(inside, texts)), src, given)})"
    made = arithmetic(op, wide, given, prelude, src)
    return made if op in COMPARISONS else prelude.half(t, made)


def _call(op: Op, t: DType, texts: Sequence[str], prelude: Prelude) -> str | None:
    """An op that is a function in C."""
    if op is Ops.MULACC:
        return f"{prelude.known('FMA' if t.bits == 64 else 'FMAF')}({', '.join(texts)})"
    if op is Ops.ABS:
        return f"{prelude.math('fabs', t)}({texts[0]})"
    if op in OF_LIBRARY:
        return f"{prelude.library(op.name, t)}({', '.join(texts)})"
    if op in FUNCTIONS:
        return f"{prelude.math(FUNCTIONS[op], t, len(texts))}({', '.join(texts)})"
    return None


def _float(
    op: Op, t: DType, names: Sequence[str], prelude: Prelude, src: Sequence[UOp]
) -> str | None:
    if op in (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV):
        return f"{names[0]} {SYMBOLS[op]} {names[1]}"
    if op is Ops.RECIPROCAL:
        return f"{prelude.constant(t, 1.0)} / {names[0]}"
    if op is Ops.NEG:
        return f"-{names[0]}"
    return _extreme(op, names, src) if op in (Ops.MAX, Ops.MIN) else None


def order(op: Op, src: Sequence[UOp]) -> tuple[bool, str, bool]:
    """The comparison of MAX and MIN: whether the operands change places, the comparison, and
    whether a NaN of the first is put back. Code by LLVM chooses among equal zeros in the same
    way."""
    sign = ">" if op is Ops.MAX else "<"
    if not src:
        return False, sign, True
    first, second = src
    swapped = second.op is Ops.CONST
    if swapped:
        first, zero = second, 0.0 if op is Ops.MAX else -0.0
        signs = math.copysign(1.0, zero)
        if all([v == 0 and math.copysign(1.0, v) == signs for v in _values(first)]):
            sign += "="
    return swapped, sign, first.op is not Ops.CONST or any([v != v for v in _values(first)])


def _values(constant: UOp) -> Sequence[float]:
    return constant.arg if type(constant.arg) is tuple else (constant.arg,)


def _extreme(
    op: Op, names: Sequence[str], src: Sequence[UOp], numbers: Sequence[str] = ()
) -> str:
    """The greater or the lesser, NaN if either is. A comparison, of `numbers` if given, is false
    if either is NaN."""
    swapped, sign, checked = order(op, src)
    a, b = reversed(names) if swapped else names
    x, y = reversed(numbers or names) if swapped else numbers or names
    best = f"{x} {sign} {y} ? {a} : {b}"
    return f"{x} != {x} ? {a} : ({best})" if checked else best


def _integer(op: Op, t: DType, names: Sequence[str]) -> str | None:
    if op in (Ops.ADD, Ops.SUB, Ops.MUL):
        if t.kind == "index" or (t.kind == "uint" and not is_narrow(t)):
            return f"{names[0]} {SYMBOLS[op]} {names[1]}"
        a, b = [_wrapping(t, n) for n in names]
        return f"({c_type(t)})({a} {SYMBOLS[op]} {b})"
    if op is Ops.MULACC:
        product = _integer(Ops.MUL, t, names[:2])
        return _integer(Ops.ADD, t, [f"({product})", names[2]])
    if op is Ops.SHL:
        if t.kind == "index":
            return f"{names[0]} * (INT64_C(1) << {names[1]})"
        return _plain(t, f"{_wrapping(t, names[0])} << {names[1]}")
    if op in (Ops.AND, Ops.OR, Ops.XOR, Ops.SHR, Ops.CDIV, Ops.CMOD):
        return _cut(t, f"{names[0]} {SYMBOLS[op]} {names[1]}")
    if op in (Ops.MAX, Ops.MIN):
        sign = ">" if op is Ops.MAX else "<"
        return _cut(t, f"{names[0]} {sign} {names[1]} ? {names[0]} : {names[1]}")
    if op is Ops.NEG:
        return f"-{names[0]}" if t.kind == "index" else f"({c_type(t)})(-({unsigned(t)}){names[0]})"
    if op is Ops.ABS:
        if not t.is_signed:
            return names[0]
        return _cut(t, f"{names[0]} < 0 ? {_integer(Ops.NEG, t, names)} : {names[0]}")
    return None


def _wrapping(t: DType, name: str) -> str:
    """An integer in the unsigned type of its width."""
    return name if c_type(t) == unsigned(t) else f"({unsigned(t)}){name}"


def _plain(t: DType, text: str) -> str:
    """A value of the unsigned type in its own type."""
    return text if c_type(t) == unsigned(t) else f"({c_type(t)})({text})"


def _cut(t: DType, text: str) -> str:
    """A value that C computed in int, in its own type."""
    return f"({c_type(t)})({text})" if is_narrow(t) else text


def cast(source: DType, target: DType, text: str, prelude: Prelude) -> str:
    """A CAST."""
    if computed(source) is not source:
        return cast(computed(source), target, prelude.wide(source, text), prelude)
    if target.kind == "bool":
        return f"{inside(text)} != {prelude.constant(source, 0)}"
    if computed(target) is not target:
        return prelude.half(target, cast(source, computed(target), text, prelude))
    if source is target:
        return text
    if source.is_float and not target.is_float:
        return f"{prelude.to_integer(source, target)}({text})"
    return f"({c_type(target)}){inside(text)}"


def bitcast(source: DType, target: DType, text: str, prelude: Prelude) -> str:
    """The same bits as another type."""
    whole = [not t.is_float or t.bits < 32 for t in (source, target)]
    if all(whole):
        return f"({c_type(target)}){inside(text)}"
    return f"{prelude.bits(source, target)}({text})"
