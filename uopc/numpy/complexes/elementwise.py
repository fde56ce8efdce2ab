"""NumPy's functions of elements, of complex numbers: the formulas, with promoted operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from uopc.ir.builder import checks, fold
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp
from uopc.numpy import elementwise
from uopc.numpy.array import is_weak, same_kind, uop_of
from uopc.numpy.complexes import formulas, inverses
from uopc.numpy.complexes.arrays import (
    ComplexArray,
    ComplexParts,
    dtype_of,
    imag_of,
    is_complex,
    made,
    parts_of,
    real_of,
)  # fmt: skip
from uopc.numpy.dtype_functions import FORMS
from uopc.tensor import float_functions

Function = Callable[..., Any]


def promoted_parts(who: str, values: Iterable[Any]) -> list[ComplexParts]:
    """The parts of values in the dtype that they promote to."""
    given = list(values)
    part = dtypes.part_of(dtype_of(given))
    return [parts_of(v, part, who) for v in given]


def _weak(values: Iterable[Any]) -> bool:
    return all([is_weak(v) or type(v) is complex for v in values])


def _numbers(name: str, formula: Callable[..., ComplexParts]) -> Function:
    def function(*values: Any) -> ComplexArray:
        found = formula(*promoted_parts(name, values))
        return made(found, values, _weak(values))

    return function


def _reals(name: str, formula: Callable[..., UOp]) -> Function:
    """Make a function whose results are real, or bool."""

    def function(*values: Any) -> Any:
        return same_kind(formula(*promoted_parts(name, values)), values)

    return function


def _power(x: Any, k: Any) -> Any:
    """The power: by products for a known integer, of up to 100 as in NumPy."""
    known = k.item() if isinstance(k, np.generic) else k
    if isinstance(known, complex) and known.imag == 0:
        known = known.real
    if isinstance(known, (int, float)) and known == int(known) and abs(known) < 100:
        base = promoted_parts("pow", (x, k))[0]
        found = formulas.whole_power(base, int(known))
        return made(found, (x, k), _weak((x, k)))
    return _numbers("pow", formulas.power)(x, k)


def _wide(x: Any) -> Any:
    """The number as complex128, of a real one as float64."""
    return elementwise.FUNCTIONS["add"](x, np.complex128(0) if is_complex(x) else np.float64(0))


def where(condition: Any, x: Any, y: Any) -> ComplexArray:
    """The elements of x where the condition holds, else those of y."""
    a, b = promoted_parts("where", (x, y))
    c = truth(condition)
    found = formulas.chosen(c, a, b)
    return made(found, (condition, x, y))


def truth(value: Any) -> UOp:
    """The mask of the elements that are not 0."""
    if is_complex(value):
        return formulas.is_true(promoted_parts("where", (value,))[0])
    if type(value) is bool:
        value = np.bool_(value)
    return fold.cast(uop_of(value, "where"), dtypes.bool_)


def _logical(name: str) -> Function:
    function = elementwise.FUNCTIONS[name]

    def form(*values: Any) -> Any:
        return function(*[same_kind(truth(v), (v,)) if is_complex(v) else v for v in values])

    return form


def angle(z: Any, deg: bool = False) -> Any:
    """The angle of each number in the plane."""
    found = formulas.angle(promoted_parts("angle", (z,))[0])
    scaled = found * (180 / math.pi) if checks.flag("angle", "deg", deg) else found
    return same_kind(scaled, (z,))


def _either(test: Callable[[UOp], UOp]) -> Callable[[ComplexParts], UOp]:
    return lambda a: test(a.re) | test(a.im if a.im is not None else a.re)


def _times(a: ComplexParts, number: float) -> ComplexParts:
    return formulas.multiply(a, ComplexParts(a.re.const_like(number), None))


def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    found = x if min is None else FORMS["maximum"](x, min)
    return found if max is None else FORMS["minimum"](found, max)


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None,
               neginf: Any = None) -> ComplexArray:  # fmt: skip
    """Replace NaN and infinities in both parts."""
    return ComplexArray(
        *[elementwise.nan_to_num(p, copy, nan, posinf, neginf) for p in (real_of(x), imag_of(x))]
    )


def sinc(x: Any) -> Any:
    """sin(pi * x) / (pi * x), and 1 at 0."""
    z = promoted_parts("sinc", (x,))[0]
    turned = _times(z, math.pi)
    found = formulas.divide(formulas.sin(turned), turned)
    one = ComplexParts(z.re.const_like(1), None)
    result = formulas.chosen(formulas.is_true(z), found, one)
    return made(result, (x,))


_OF_NUMBERS: dict[str, Callable[..., ComplexParts]] = {
    "add": formulas.add, "subtract": formulas.subtract, "multiply": formulas.multiply,
    "divide": formulas.divide, "reciprocal": formulas.reciprocal, "negative": formulas.negative,
    "positive": lambda a: a, "conj": formulas.conj, "square": formulas.square,
    "sign": formulas.sign, "exp": formulas.exp, "expm1": formulas.expm1,
    "exp2": lambda a: formulas.exp(_times(a, math.log(2))),
    "log": formulas.log, "log2": formulas.log2, "log10": formulas.log10, "log1p": formulas.log1p,
    "sqrt": formulas.sqrt, "sin": formulas.sin, "cos": formulas.cos, "tan": formulas.tan,
    "sinh": formulas.sinh, "cosh": formulas.cosh, "tanh": formulas.tanh,
    "maximum": formulas.maximum, "minimum": formulas.minimum, "fmax": formulas.fmax,
    "fmin": formulas.fmin, "round": formulas.rounded,
    "asin": inverses.asin, "acos": inverses.acos, "atan": inverses.atan, "asinh": inverses.asinh,
    "acosh": inverses.acosh, "atanh": inverses.atanh,
}  # fmt: skip
_OF_REALS: dict[str, Callable[..., UOp]] = {
    "abs": formulas.absolute, "equal": formulas.equal, "not_equal": formulas.not_equal,
    "less": formulas.less, "less_equal": formulas.less_equal,
    "greater": lambda a, b: formulas.less(b, a),
    "greater_equal": lambda a, b: formulas.less_equal(b, a),
    "isnan": formulas.is_nan, "isinf": _either(float_functions.isinf),
    "isfinite": lambda a: ~_either(lambda x: ~float_functions.isfinite(x))(a),
    "real": lambda a: a.re, "imag": lambda a: a.im,
}  # fmt: skip
FORMS.update({n: _numbers(n, formula) for n, formula in _OF_NUMBERS.items()})
FORMS.update({n: _reals(n, formula) for n, formula in _OF_REALS.items()})
FORMS.update({n: _logical(n) for n in ("logical_and", "logical_not", "logical_or", "logical_xor")})
FORMS.update({
    "pow": _power, "float_power": lambda x, k: _power(_wide(x), k), "where": where,
    "angle": angle, "clip": clip, "nan_to_num": nan_to_num, "sinc": sinc,
})  # fmt: skip
FORMS.update(
    {
        name: FORMS[standard]
        for name, standard in elementwise.NUMPY_NAMES.items()
        if standard in FORMS
    }
)
