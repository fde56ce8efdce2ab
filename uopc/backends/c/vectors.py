"""Elementwise ops on vectors, as expressions of C on the texts of their operands.

A vector of bools is a mask: a vector of signed integers, 0 or -1, as wide as what was compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from uopc.backends.c import expressions
from uopc.backends.c.expressions import inside
from uopc.backends.c.types import computed, held, is_narrow, literal, mask_of, rounded, words_of
from uopc.backends.c.vector_prelude import VectorPrelude
from uopc.errors import Unsupported
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp

_WRAPPING = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.SHL)
_SHIFTS = (Ops.SHL, Ops.SHR)
_MASKS = {
    Ops.ADD: "{} | {}", Ops.OR: "{} | {}", Ops.MAX: "{} | {}",
    Ops.MUL: "{} & {}", Ops.AND: "{} & {}", Ops.MIN: "{} & {}",
    Ops.SUB: "{} ^ {}", Ops.XOR: "{} ^ {}", Ops.CMPNE: "{} ^ {}", Ops.CMPEQ: "~({} ^ {})",
    Ops.CMPLT: "~{} & {}", Ops.CMPLE: "~{} | {}", Ops.NEG: "~{}",
}  # fmt: skip


def takes_scalars(op: Op, t: DType) -> bool:
    """True if C repeats an operand that is one number for each lane: an operator, on types that
    are as wide as int or wider."""
    if is_narrow(t.scalar) or op in _SHIFTS or (t.kind == "int" and op in _WRAPPING):
        return False
    return op in expressions.SYMBOLS and not _by_lanes(op, t)


def _by_lanes(op: Op, t: DType) -> bool:
    """True for quotients of vectors with lanes that nobody reads, and that may be zero."""
    return op in (Ops.CDIV, Ops.CMOD) and t.lanes != held(t)


def arithmetic(
    op: Op, t: DType, texts: Sequence[str], prelude: VectorPrelude, src: Sequence[UOp] = ()
) -> str:
    """The expression of an op on operands of type `t`; `src`, if they are known. Unsupported for
    an op that C has none for."""
    if t.kind == "bool":
        return _MASKS[op].format(*map(inside, texts))
    if op in (Ops.MAX, Ops.MIN):
        return _extreme(op, t, texts, prelude, src)
    if t is not computed(t):
        return _narrow_float(op, t, texts, prelude, src)
    if op in expressions.COMPARISONS:
        return f"({prelude.vector(mask_of(t))})({_operator(op, texts)})"
    made = _float(op, t, texts, prelude) if t.is_float else _integer(op, t, texts, prelude)
    if made is None:
        raise Unsupported(
            f"c: no code for {op!r} ({t.name}): it needs a row in backends/c/expressions.py"
        )
    return made


def _narrow_float(
    op: Op, t: DType, texts: Sequence[str], prelude: VectorPrelude, src: Sequence[UOp]
) -> str:
    """An op on floats that are their bits, as of single elements."""
    if op is Ops.NEG or op is Ops.ABS:
        sign, bit = ("^", 0x8000) if op is Ops.NEG else ("&", 0x7FFF)
        return f"{inside(texts[0])} {sign} {number(words_of(t), bit, prelude)}"
    if op is Ops.MULACC:
        return f"{prelude.on_each_lane(prelude.fused_halves(), t, 3)}({', '.join(texts)})"
    given = [
        number(computed(t), rounded(t, u.arg), prelude) if u is not None and u.op is Ops.CONST
        else prelude.wide(t, text)
        for text, u in itertools.zip_longest(texts, src)
    ]  # fmt: skip
    made = arithmetic(op, computed(t), given, prelude, src)
    return made if op in expressions.COMPARISONS else prelude.half(t, made)


def _operator(op: Op, texts: Sequence[str]) -> str:
    a, b = map(inside, texts)
    return f"{a} {expressions.SYMBOLS[op]} {b}"


def _float(op: Op, t: DType, texts: Sequence[str], prelude: VectorPrelude) -> str | None:
    if op in expressions.SYMBOLS:
        return _operator(op, texts)
    given = ", ".join(texts)
    if op is Ops.MULACC:
        return f"{prelude.fused(t)}({given})"
    if op is Ops.NEG:
        return f"-{inside(texts[0])}"
    if op is Ops.RECIPROCAL:
        return f"{prelude.constant(t.scalar, 1.0)} / {inside(texts[0])}"
    if op is Ops.ABS:
        words, most = words_of(t), (1 << t.scalar.bits - 1) - 1
        kept = f"({prelude.vector(words)}){inside(texts[0])} & {literal(words.scalar, most)}"
        return f"({prelude.vector(t)})({kept})"
    if op is Ops.SCALE:
        return f"{prelude.scaled(t)}({given})"
    if op in expressions.FUNCTIONS:
        return f"{prelude.rounded(expressions.FUNCTIONS[op], t, len(texts))}({given})"
    if op in expressions.OF_LIBRARY:
        return f"{prelude.on_each_lane(prelude.library(op.name, t.scalar), t, len(texts))}({given})"
    return None


def _integer(op: Op, t: DType, texts: Sequence[str], prelude: VectorPrelude) -> str | None:
    if op is Ops.DOT4:
        given = (*texts, number(t, 0, prelude))[:3]
        return f"{prelude.dot4(t)}({', '.join(given)})"
    if op is Ops.MULACC:
        product = _integer(Ops.MUL, t, texts[:2], prelude)
        return _integer(Ops.ADD, t, [f"({product})", texts[2]], prelude)
    if op is Ops.ABS:
        if not t.is_signed:
            return texts[0]
        test = f"({prelude.vector(mask_of(t))})({inside(texts[0])} < 0)"
        negative = _integer(Ops.NEG, t, texts, prelude)
        return f"{prelude.select(t)}({test}, {negative}, {texts[0]})"
    if _by_lanes(op, t):
        return f"{prelude.divided(op, t)}({', '.join(texts)})"
    if op not in expressions.SYMBOLS and op is not Ops.NEG:
        return None
    if op not in _WRAPPING or t.kind in ("uint", "index"):
        return _operator(op, texts) if op is not Ops.NEG else f"-{inside(texts[0])}"
    words = prelude.vector(words_of(t))
    cast = [f"({words}){inside(text)}" for text in texts]
    if op is Ops.NEG:
        return f"({prelude.vector(t)})(-{cast[0]})"
    return f"({prelude.vector(t)})({cast[0]} {expressions.SYMBOLS[op]} {cast[1]})"


def _extreme(
    op: Op, t: DType, texts: Sequence[str], prelude: VectorPrelude, src: Sequence[UOp]
) -> str:
    """The maximum or minimum of each lane, by the rule for single elements."""
    if not t.is_float:
        name = prelude.extreme(t, ">" if op is Ops.MAX else "<", checked=False)
        return f"{name}({', '.join(texts)})"
    swapped, sign, checked = expressions.order(op, src)
    a, b = reversed(texts) if swapped else texts
    if len(sign) == 1:
        return f"{prelude.extreme(t, sign, checked)}({a}, {b})"
    mask = prelude.compared(t, a, sign, b)  # a is a constant
    return f"{prelude.select(t)}({mask}, {a}, {b})"


def cast(source: DType, target: DType, text: str, prelude: VectorPrelude) -> str:
    """A CAST of a vector to numbers; of bools, `source` is the type of the mask."""
    if computed(source) is not source and source is not target:
        return cast(computed(source), target, prelude.wide(source, text), prelude)
    if computed(target) is not target and source is not target:
        return prelude.half(target, cast(source, computed(target), text, prelude))
    if source.is_float and not target.is_float:
        return f"{prelude.whole_numbers(source, target)}({text})"
    return converted(source, target, text, prelude)


def converted(source: DType, target: DType, text: str, prelude: VectorPrelude) -> str:
    """Each lane in another type."""
    shape = prelude.vector(target)
    if shape == prelude.vector(source):
        return text
    if source.scalar.bits == target.scalar.bits and not source.is_float and not target.is_float:
        return f"({shape}){inside(text)}"
    return f"__builtin_convertvector({text}, {shape})"


def number(t: DType, value: object, prelude: VectorPrelude) -> str:
    """A constant vector of numbers."""
    shape, n = prelude.vector(t), held(t)
    if not isinstance(value, tuple) or len(set(map(str, value))) == 1:
        one = prelude.constant(t.scalar, value[0] if isinstance(value, tuple) else value)
        one = one[1:-1] if one.startswith("(-") else one
        if one in ("0", "0.0", "0.0f", "0u", "UINT64_C(0)"):
            return f"({shape}){{{one}}}"
        return f"{prelude.repeated(t)}({one})"
    items = [prelude.constant(t.scalar, v) for v in value]
    return f"({shape}){{{', '.join(items + items[-1:] * (n - len(items)))}}}"


def truths(t: DType, value: object, prelude: VectorPrelude) -> str:
    """A constant mask of a type."""
    values = value if isinstance(value, tuple) else (value,) * t.lanes
    if not any(values):
        return f"({prelude.vector(t)}){{0}}"
    return f"({prelude.vector(t)}){{{', '.join(['-1' if v else '0' for v in values])}}}"


def reduced(word: str, t: DType, prelude: VectorPrelude) -> str:
    """The name of the function that combines the lanes of numbers by an op."""
    op = Op.by_name(word)

    def combine(a: str, b: str, part: DType) -> str:
        if part.lanes > 1:
            return arithmetic(op, part, (a, b), prelude)
        return expressions.arithmetic(op, part, (a, b), prelude)

    return prelude.combined(word, t, combine)
