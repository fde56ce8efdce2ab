"""Elementwise ops as expressions of C on the texts of their operands.

    Ops.CMPLT: Row("!{} && {}", "~{} & {}")      of two bools, and of two masks

A row has the form of an op on numbers and that on vectors. Integers wrap by way of unsigned types,
and what C computes in int is cut to its own type again; lanes of vectors are never widened to int.
A vector of bools is a mask: a vector of signed integers, 0 or -1, as wide as what was compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from uopc.backends.c.names import inside
from uopc.backends.c.prelude import Prelude
from uopc.backends.c.types import (
    c_type,
    computed,
    held,
    is_narrow,
    literal,
    mask_of,
    rounded,
    unsigned,
    words_of,
)  # fmt: skip
from uopc.errors import Unsupported
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import COMPARISONS, Op, Ops
from uopc.ir.core.uop import UOp

SYMBOLS = {
    Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.FDIV: "/", Ops.CDIV: "/", Ops.CMOD: "%",
    Ops.AND: "&", Ops.OR: "|", Ops.XOR: "^", Ops.SHL: "<<", Ops.SHR: ">>",
    Ops.CMPLT: "<", Ops.CMPLE: "<=", Ops.CMPEQ: "==", Ops.CMPNE: "!=",
}  # fmt: skip
FUNCTIONS = {
    Ops.SQRT: "sqrt", Ops.TRUNC: "trunc", Ops.FLOOR: "floor", Ops.CEIL: "ceil", Ops.ROUND: "rint",
}  # fmt: skip
# Of the library, where the target has functions: they keep their names in C.
OF_LIBRARY = frozenset((
    Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TAN, Ops.TANH, Ops.ERF, Ops.POW,
))  # fmt: skip
TWICE = frozenset((Ops.MAX, Ops.MIN, Ops.ABS))  # their operands occur more than once
_WRAPPING = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.SHL)
_SHIFTS = (Ops.SHL, Ops.SHR)


class Given(NamedTuple):
    """An op, the type of its operands, their texts, and the operands themselves if known."""

    op: Op
    t: DType
    texts: Sequence[str]
    prelude: Prelude
    src: Sequence[UOp]

    @property
    def names(self) -> list[str]:
        """The texts as operands of another expression."""
        return [inside(text) for text in self.texts]

    def call(self, function: str) -> str:
        """A call of a function with the operands."""
        return f"{function}({', '.join(self.texts)})"

    def again(self, op: Op, *texts: str) -> Given:
        """Another op on values of the same type."""
        return Given(op, self.t, texts, self.prelude, ())


# A template has a place for each operand.
Form: TypeAlias = str | Callable[[Given], str]


class CForm(NamedTuple):
    """The form of an op on numbers, and that on vectors; None if there is none."""

    number: Form | None
    vector: Form


def arithmetic(
    op: Op, t: DType, texts: Sequence[str], prelude: Prelude, src: Sequence[UOp] = ()
) -> str:
    """The expression of an op on operands of type `t`, numbers or vectors; `src`, if they are
    known. Unsupported for an op that C has none for."""
    given = Given(op, t, texts, prelude, src)
    if op is Ops.WHERE:  # of any type, also of floats that C does not compute with
        return _chosen(given)
    rows = _BOOLS if t.kind == "bool" else _FLOATS if t.is_float else _INTEGERS
    row = (rows if t is computed(t) else _HALVES).get(op)
    if row is None and t is not computed(t):
        return _in_wider_type(given)
    form = None if row is None else row.number if t.lanes == 1 else row.vector
    if form is None:
        raise Unsupported(
            f"c: no code for {op!r} ({t.name}): an op that pass decompose replaces may come from no"
            " rule of a later pass; another one needs a row in backends/c/expressions.py"
        )
    return form.format(*given.names) if isinstance(form, str) else form(given)


def takes_scalars(op: Op, t: DType) -> bool:
    """True if C repeats an operand that is one number for each lane: an operator, on types that
    are as wide as int or wider."""
    if is_narrow(t.scalar) or op in _SHIFTS or (t.kind == "int" and op in _WRAPPING):
        return False
    return op in SYMBOLS and not _by_lanes(op, t)


def with_itself(u: UOp) -> bool | None:
    """The value of a node that compares a whole number, or a bool, with itself: compilers warn of
    such text. None for every other node."""
    if len(u.src) != 2 or u.src[0] is not u.src[1] or u.src[0].dtype.is_float:
        return None
    if u.op in COMPARISONS:
        return u.op in (Ops.CMPLE, Ops.CMPEQ)
    return False if u.dtype.kind == "bool" and u.op in (Ops.SUB, Ops.XOR) else None


def reduced(word: str, t: DType, prelude: Prelude) -> str:
    """The name of the function that combines the lanes of numbers by an op."""
    op = Op.by_name(word)
    return prelude.combined(word, t, lambda a, b, part: arithmetic(op, part, (a, b), prelude))


# ---------------------------------------------------------------- forms of several types
def _operator(g: Given) -> str:
    a, b = g.names
    return f"{a} {SYMBOLS[g.op]} {b}"


def _chosen(g: Given) -> str:
    return _cut(g.t, "{} ? {} : {}".format(*g.names))


def _compared(g: Given) -> str:
    return f"({g.prelude.vector(mask_of(g.t))})({_operator(g)})"


def _extreme_lanes(g: Given) -> str:
    """The maximum or minimum of each lane, by the rule for numbers."""
    if not g.t.is_float:
        return g.call(g.prelude.extreme(g.t, ">" if g.op is Ops.MAX else "<", checked=False))
    swapped, sign, checked = order(g.op, g.src)
    a, b = reversed(g.texts) if swapped else g.texts
    if len(sign) == 1:
        return f"{g.prelude.extreme(g.t, sign, checked)}({a}, {b})"
    mask = g.prelude.compared(g.t, a, sign, b)  # a is a constant
    return f"{g.prelude.select(g.t)}({mask}, {a}, {b})"


# ---------------------------------------------------------------- floats
def _magnitude_lanes(g: Given) -> str:
    words, most = words_of(g.t), (1 << g.t.scalar.bits - 1) - 1
    kept = f"({g.prelude.vector(words)}){g.names[0]} & {literal(words.scalar, most)}"
    return f"({g.prelude.vector(g.t)})({kept})"


def _in_wider_type(g: Given) -> str:
    """An op on floats that are their bits. It is computed in a wider type and rounded once more,
    which for a sum, a product or a quotient is as good as once."""
    made = arithmetic(g.op, computed(g.t), _wide(g), g.prelude, g.src)
    return made if g.op in COMPARISONS else g.prelude.half(g.t, made)


def _wide(g: Given) -> list[str]:
    """The operands in the type that C computes them in."""
    return [
        g.prelude.constant(computed(g.t), rounded(g.t, u.arg))
        if u is not None and u.op is Ops.CONST
        else g.prelude.wide(g.t, text)
        for text, u in itertools.zip_longest(g.texts, g.src)
    ]


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


def _extreme(op: Op, names: Sequence[str], src: Sequence[UOp], numbers: Sequence[str] = ()) -> str:
    """The greater or the lesser, NaN if either is. A comparison, of `numbers` if given, is false
    if either is NaN."""
    swapped, sign, checked = order(op, src)
    a, b = reversed(names) if swapped else names
    x, y = reversed(numbers or names) if swapped else numbers or names
    best = f"{x} {sign} {y} ? {a} : {b}"
    return f"{x} != {x} ? {a} : ({best})" if checked else best


# ---------------------------------------------------------------- integers
def _by_lanes(op: Op, t: DType) -> bool:
    """True for quotients of vectors with lanes that nobody reads, and that may be zero."""
    return op in (Ops.CDIV, Ops.CMOD) and t.lanes != held(t)


def _cut_operator(g: Given) -> str:
    if _by_lanes(g.op, g.t):
        return g.call(g.prelude.divided(g.op, g.t))
    return _cut(g.t, _operator(g))


def _wrapped(g: Given) -> str:
    """Compute with unsigned types, because signed overflow is undefined in C."""
    if not _may_overflow(g.t):
        return _operator(g)
    a, b = [_wrapping(g, name) for name in g.names]
    return f"({g.prelude.type(g.t)})({a} {SYMBOLS[g.op]} {b})"


def _may_overflow(t: DType) -> bool:
    """True for types that C computes as signed. Indices are exempt: they never leave their type."""
    return t.kind == "int" or (t.kind == "uint" and t.lanes == 1 and is_narrow(t))


def _wrapping(g: Given, name: str) -> str:
    """An integer in the unsigned type that wraps as its own."""
    wide = unsigned(g.t) if g.t.lanes == 1 else g.prelude.vector(words_of(g.t))
    return name if g.prelude.type(g.t) == wide else f"({wide}){name}"


def _shifted(g: Given) -> str:
    a, b = g.names
    if g.t.kind == "index":
        return f"{a} * (INT64_C(1) << {b})"
    text = f"{_wrapping(g, a)} << {b}"
    return text if c_type(g.t) == unsigned(g.t) else f"({c_type(g.t)})({text})"


def _negative(g: Given) -> str:
    if g.t.kind == "index":
        return f"-{g.names[0]}"
    return f"({c_type(g.t)})(-({unsigned(g.t)}){g.names[0]})"


def _negative_lanes(g: Given) -> str:
    a = _wrapping(g, g.names[0]) if g.t.kind == "int" else g.names[0]
    return f"({g.prelude.vector(g.t)})(-{a})" if g.t.kind == "int" else f"-{a}"


def _fused(g: Given) -> str:
    """A rule may make a MULACC of integers after pass decompose."""
    product = _wrapped(g.again(Ops.MUL, *g.texts[:2]))
    return _wrapped(g.again(Ops.ADD, product, g.texts[2]))


def _size(g: Given) -> str:
    (a,) = g.names
    return _cut(g.t, f"{a} < 0 ? {_negative(g)} : {a}") if g.t.is_signed else a


def _size_lanes(g: Given) -> str:
    if not g.t.is_signed:
        return g.texts[0]
    test = f"({g.prelude.vector(mask_of(g.t))})({g.names[0]} < 0)"
    negative = _negative_lanes(g)
    return f"{g.prelude.select(g.t)}({test}, {negative}, {g.texts[0]})"


def _larger(g: Given) -> str:
    (a, b), sign = g.names, ">" if g.op is Ops.MAX else "<"
    return _cut(g.t, f"{a} {sign} {b} ? {a} : {b}")


def _dot4(g: Given) -> str:
    given = (*g.texts, g.prelude.constant(g.t, 0))[:3]
    return f"{g.prelude.dot4(g.t)}({', '.join(given)})"


def _cut(t: DType, text: str) -> str:
    """A value that C computed in int, in its own type."""
    return f"({c_type(t)})({text})" if t.lanes == 1 and is_narrow(t) else text


def _both(form: Form) -> CForm:
    return CForm(form, form)


def _math(name: str) -> Form:
    """A call of a function of <math.h>."""
    return lambda g: g.call(g.prelude.math(name, g.t, len(g.texts)))


_COMPARED = CForm(_operator, _compared)
_BOOLS: dict[Op, CForm] = {
    **dict.fromkeys((Ops.ADD, Ops.OR, Ops.MAX), CForm("{} || {}", "{} | {}")),
    **dict.fromkeys((Ops.MUL, Ops.AND, Ops.MIN), CForm("{} && {}", "{} & {}")),
    **dict.fromkeys((Ops.SUB, Ops.XOR, Ops.CMPNE), CForm("{} != {}", "{} ^ {}")),
    Ops.CMPEQ: CForm("{} == {}", "~({} ^ {})"),
    Ops.CMPLT: CForm("!{} && {}", "~{} & {}"),
    Ops.CMPLE: CForm("!{} || {}", "~{} | {}"),
    Ops.NEG: CForm("!{}", "~{}"),
}
_FLOATS: dict[Op, CForm] = {
    **dict.fromkeys((Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV), _both(_operator)),
    **dict.fromkeys(COMPARISONS, _COMPARED),
    **dict.fromkeys(
        (Ops.MAX, Ops.MIN), CForm(lambda g: _extreme(g.op, g.names, g.src), _extreme_lanes)
    ),
    **{op: _both(_math(name)) for op, name in FUNCTIONS.items()},
    **dict.fromkeys(
        OF_LIBRARY,
        _both(lambda g: g.call(g.prelude.library(g.op.name, g.t, len(g.texts)))),
    ),
    Ops.NEG: _both("-{}"),
    Ops.ABS: CForm(_math("fabs"), _magnitude_lanes),
    Ops.RECIPROCAL: _both(lambda g: f"{g.prelude.constant(g.t.scalar, 1.0)} / {g.names[0]}"),
    Ops.MULACC: _both(lambda g: g.call(g.prelude.fused(g.t))),
    Ops.SCALE: CForm(None, lambda g: g.call(g.prelude.scaled(g.t))),
}  # fmt: skip
# Of floats that are their bits: signs are bits, and an operand that is chosen stays as it is.
_HALVES: dict[Op, CForm] = {
    Ops.NEG: CForm(
        "(uint16_t)({} ^ 0x8000u)",
        lambda g: f"{g.names[0]} ^ {g.prelude.constant(words_of(g.t), 0x8000)}",
    ),
    Ops.ABS: CForm(
        "(uint16_t)({} & 0x7fffu)",
        lambda g: f"{g.names[0]} & {g.prelude.constant(words_of(g.t), 0x7FFF)}",
    ),
    Ops.MULACC: _both(lambda g: g.call(g.prelude.fused_halves(g.t))),
    **dict.fromkeys(
        (Ops.MAX, Ops.MIN),
        CForm(lambda g: f"(uint16_t)({_extreme(g.op, g.names, g.src, _wide(g))})", _extreme_lanes),
    ),
}
_INTEGERS: dict[Op, CForm] = {
    **dict.fromkeys((Ops.ADD, Ops.SUB, Ops.MUL), _both(_wrapped)),
    **dict.fromkeys((Ops.AND, Ops.OR, Ops.XOR, Ops.SHR, Ops.CDIV, Ops.CMOD), _both(_cut_operator)),
    **dict.fromkeys(COMPARISONS, _COMPARED),
    **dict.fromkeys((Ops.MAX, Ops.MIN), CForm(_larger, _extreme_lanes)),
    Ops.SHL: CForm(_shifted, _wrapped),
    Ops.NEG: CForm(_negative, _negative_lanes),
    Ops.ABS: CForm(_size, _size_lanes),
    Ops.MULACC: _both(_fused),
    Ops.DOT4: _both(_dot4),
}


# ---------------------------------------------------------------- conversions
def cast(source: DType, target: DType, text: str, prelude: Prelude) -> str:
    """A CAST, of numbers or of a bool; a vector of bools is made as a mask."""
    if source is target:
        return text
    if computed(source) is not source:
        return cast(computed(source), target, prelude.wide(source, text), prelude)
    if target.kind == "bool":
        test = f"{inside(text)} != {prelude.constant(source.scalar, 0)}"
        return test if target.lanes == 1 else f"({prelude.vector(mask_of(source))})({test})"
    if computed(target) is not target:
        return prelude.half(target, cast(source, computed(target), text, prelude))
    if source.is_float and not target.is_float:
        return f"{prelude.to_integer(source, target)}({text})"
    return converted(source, target, text, prelude)


def converted(source: DType, target: DType, text: str, prelude: Prelude) -> str:
    """A number, or each lane, in another type."""
    shape = prelude.type(target)
    if shape == prelude.type(source):
        return text
    whole = not source.is_float and not target.is_float
    if target.lanes == 1 or (whole and source.scalar.bits == target.scalar.bits):
        return f"({shape}){inside(text)}"
    return f"__builtin_convertvector({text}, {shape})"


def bitcast(source: DType, target: DType, text: str, prelude: Prelude) -> str:
    """The same bits as another type."""
    if prelude.type(source) == (shape := prelude.type(target)):
        return text
    if target.lanes > 1 or all([not t.is_float or t.bits < 32 for t in (source, target)]):
        return f"({shape}){inside(text)}"
    return f"{prelude.bits(source, target)}({text})"
