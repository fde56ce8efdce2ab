"""einsum: products of arrays with named axes, summed over the names that the result lacks.

    "ij,jk->ik"  a matrix product      "ii->i"  a diagonal      "...ij->...ji"  a transposition

A product of several arrays is made of pairs: each step takes the pair with the smallest result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import leaves, movement, operands
from uopc.ir.builder.fold import cast
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.shapes import Dim, show
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp
from uopc.tensor import indexing
from uopc.tensor.matrices.products import product_sum

# A name of an axis: a letter, or for the axes of "..." an int, counted from the last one, -1.
Label = str | int


class _Term(NamedTuple):
    """An array and the names of its axes; names are unique."""

    value: UOp
    labels: tuple[Label, ...]


def einsum(subscripts: str, *values: Operand) -> UOp:
    """The sum of products that the subscripts name, as `numpy.einsum`: "ij,jk->ik".

    A letter names an axis; equal letters have one size (1 repeats); "..." stands for further axes,
    which broadcast. Without "->" the result has the letters that occur once, in alphabetical order.
    The dtype is the common one; integers wrap in it, narrow floats are rounded after each product.
    UserError where the subscripts do not fit each other or the arrays.
    """
    inputs, output = _parse(subscripts, len(values))
    terms = [
        _Term(v, _labels(subscripts, text, v, i))
        for i, (text, v) in enumerate(zip(inputs, _common(values)))
    ]
    named = [label for term in terms for label in term.labels]
    wanted = _result(subscripts, output, named)
    terms = [_diagonal(subscripts, term) for term in terms]
    _check_sizes(subscripts, terms)
    return _aligned(_contracted(terms, wanted), wanted)


def _fail(subscripts: str, problem: str) -> NoReturn:
    raise UserError(f"einsum {subscripts!r}: {problem}")


# ---------------------------------------------------------------- subscripts
def _parse(subscripts: str, count: int) -> tuple[list[str], str | None]:
    """The text of each operand, and the text of the result if it is given."""
    if not isinstance(subscripts, str):
        raise UserTypeError(f"einsum: the subscripts must be a string, got {subscripts!r}")
    given, arrow, output = subscripts.replace(" ", "").partition("->")
    inputs = given.split(",")
    if len(inputs) != count:
        _fail(subscripts, f"names {len(inputs)} operands, {count} are given")
    for text in (*inputs, output):
        letters = text.replace("...", "", 1)
        wrong = next((c for c in letters if not (c.isascii() and c.isalpha())), None)
        if wrong is not None:
            _fail(subscripts, f"{wrong!r} names no axis; expected letters, one '...' and one '->'")
    return inputs, output if arrow else None


def _common(values: Sequence[Operand]) -> list[UOp]:
    """Cast the operands to their common dtype. Python numbers take the dtype of the arrays."""
    strong = [operands.as_uop(v) for v in values if type(v) not in (bool, int, float)]
    common = strong[0].dtype.scalar if strong else None
    for u in strong[1:]:
        common = dtypes.promote(common, u.dtype.scalar) if common else u.dtype.scalar
    made = [operands.as_uop(v, common) for v in values]
    for u in made:
        common = dtypes.promote(common, u.dtype.scalar) if common else u.dtype.scalar
    return [cast(u, common) if common else u for u in made]


def _labels(subscripts: str, text: str, value: UOp, number: int) -> tuple[Label, ...]:
    dims = shapes.shape(value)
    before, dots, after = text.partition("...")
    hidden = len(dims) - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        least = "at least " if dots else ""
        names = f"{text!r} names {least}{len(before) + len(after)}"
        _fail(subscripts, f"operand {number} has {len(dims)} axes {show(dims)}, {names}")
    return (*before, *range(-hidden, 0), *after)


def _result(subscripts: str, output: str | None, named: Sequence[Label]) -> tuple[Label, ...]:
    hidden = tuple(sorted({v for v in named if isinstance(v, int)}))
    if output is None:
        once = sorted(v for v in set(named) if isinstance(v, str) and named.count(v) == 1)
        return (*hidden, *once)
    before, dots, after = output.partition("...")
    if hidden and not dots:
        _fail(subscripts, "the result needs '...': an operand has axes that it stands for")
    for letter in before + after:
        if letter not in named:
            _fail(subscripts, f"no operand has the axis {letter!r} of the result")
        if (before + after).count(letter) > 1:
            _fail(subscripts, f"the result has the axis {letter!r} twice")
    return (*before, *hidden, *after)


def _diagonal(subscripts: str, term: _Term) -> _Term:
    """Merge axes of the same name into one, by taking the diagonal."""
    value, labels = term
    for label in dict.fromkeys(labels):
        places = [i for i, v in enumerate(labels) if v == label]
        if len(places) == 1:
            continue
        dims = shapes.shape(value)
        if any(dims[p] != dims[places[0]] for p in places):
            _fail(subscripts, f"the axes {label!r} of one operand differ: {show(dims)}")
        rest = [i for i in range(len(dims)) if i not in places]
        value = movement.permute(value, (*places, *rest))
        value = indexing.getitem(value, (leaves.iota(dims[places[0]]),) * len(places))
        labels = (label, *[labels[i] for i in rest])
    return _Term(value, labels)


def _sizes(terms: Sequence[_Term]) -> dict[Label, list[Dim]]:
    """The sizes of each axis over all terms; a size of 1 repeats and does not count."""
    sizes: dict[Label, list[Dim]] = {}
    for term in terms:
        for label, d in zip(term.labels, shapes.shape(term.value)):
            sizes.setdefault(label, []).extend([d] if d != 1 else [])
    return sizes


def _check_sizes(subscripts: str, terms: Sequence[_Term]) -> None:
    for label, sizes in _sizes(terms).items():
        if any(d != sizes[0] for d in sizes):
            name = repr(label) if isinstance(label, str) else f"{label} of '...'"
            given = " and ".join(show((d,))[1:-1] for d in dict.fromkeys(sizes))
            _fail(subscripts, f"the axis {name} has the sizes {given}")


# ---------------------------------------------------------------- products
def _contracted(terms: list[_Term], wanted: Sequence[Label]) -> _Term:
    """Multiply the terms into one with the wanted axes: pair by pair, the smallest result first."""
    for i, term in enumerate(terms):
        terms[i] = _summed(term, {*wanted, *_names([*terms[:i], *terms[i + 1 :]])})
    while len(terms) > 1:
        choices = []
        for pair in itertools.combinations(range(len(terms)), 2):
            kept = {*wanted, *_names([t for i, t in enumerate(terms) if i not in pair])}
            found = _sizes([terms[i] for i in pair])
            size = math.prod(
                bounds.max_dim(sizes[0]) for v, sizes in found.items() if v in kept and sizes
            )
            choices.append((size, pair, kept))
        _, (i, j), kept = min(choices, key=lambda c: c[:2])
        made = _product(terms[i], terms[j], kept)
        terms = [t for k, t in enumerate(terms) if k not in (i, j)] + [made]
    return terms[0]


def _names(terms: Sequence[_Term]) -> list[Label]:
    return [label for term in terms for label in term.labels]


def _summed(term: _Term, kept: set[Label]) -> _Term:
    """Sum the term over the axes that are not in `kept`."""
    axes = tuple([i for i, v in enumerate(term.labels) if v not in kept])
    if not axes:
        return term
    t = term.value.dtype
    wide = cast(term.value, dtypes.accumulator(t) if t.is_float else t)
    total = cast(movement.reduce(wide, "add", axes), t)
    return _Term(total, tuple([v for v in term.labels if v in kept]))


def _product(x: _Term, y: _Term, kept: set[Label]) -> _Term:
    """Multiply two terms and sum over the axes that are not in `kept`."""
    labels = dict.fromkeys((*x.labels, *y.labels))
    left = tuple([v for v in labels if v in kept])
    order = (*left, *[v for v in labels if v not in kept])  # as in a matrix product
    summed = tuple(range(len(left), len(order)))
    return _Term(product_sum(_aligned(x, order), _aligned(y, order), summed), left)


def _aligned(term: _Term, labels: Sequence[Label]) -> UOp:
    """Transpose the array to this order of axes, with axes of size 1 for missing names."""
    order = [term.labels.index(v) for v in labels if v in term.labels]
    dims = shapes.shape(term.value)
    wide = [dims[term.labels.index(v)] if v in term.labels else 1 for v in labels]
    return movement.reshape(movement.permute(term.value, tuple(order)), tuple(wide))
