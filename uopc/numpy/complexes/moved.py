"""Functions that move elements, or are linear in them: of complex arrays, those of both parts.

concat([z, x])   →   concat([re z, x]) and concat([im z, 0])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.numpy import creation, dtype_functions, linalg, namespace
from uopc.numpy.array import Array
from uopc.numpy.complexes.arrays import (
    ComplexArray,
    array_dtype,
    constant,
    dtype_of,
    imag_of,
    is_complex,
    made,
    parts_of,
    real_of,
    trace_of_value,
)  # fmt: skip
from uopc.numpy.dtype_functions import FORMS, holds_complex

Function = Callable[..., Any]
_Part = Callable[[Any], Any]


# ---------------------------------------------------------------- both parts
def _real_part(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_real_part(v) for v in value])
    return real_of(value)


def _imag_part(value: Any) -> Any:
    """The imaginary part of data: zeros of real arrays."""
    if isinstance(value, (list, tuple)):
        return type(value)([_imag_part(v) for v in value])
    if value is None:
        return None
    if is_complex(value):
        return imag_of(value)
    return creation.zeros_like(value) if np.ndim(value) or isinstance(value, Array) else 0.0


def _joined(re: Any, im: Any) -> Any:
    """The complex array, or the sequence of such, of two parts."""
    if isinstance(re, (list, tuple)):
        return type(re)([_joined(*both) for both in zip(re, im)])
    re, im = (p if isinstance(p, Array) else Array(p) for p in (re, im))
    return ComplexArray(re, im)


def by_parts(function: Function, data: tuple[int | str, ...]) -> Function:
    """Make a function of complex arrays from that of real ones. `data`: the numbers or names of
    arguments that are elements; -1 stands for all by position."""

    def form(*args: Any, **named: Any) -> Any:
        found = []
        for part in (_real_part, _imag_part):
            given = [part(v) if -1 in data or i in data else v for i, v in enumerate(args)]
            options = {k: part(v) if k in data else v for k, v in named.items()}
            found.append(function(*given, **options))
        return _joined(*found)

    return form


_FIRST = (0, "x", "a", "m", "arr", "ary", "array", "v", "X", "obj")
_ONE = (
    "diagonal", "diag", "diagflat", "triu", "tril", "array_split", "split", "hsplit", "vsplit",
    "dsplit", "unstack", "broadcast_to", "expand_dims", "flip", "fliplr", "flipud",
    "matrix_transpose", "moveaxis", "permute_dims", "ravel", "repeat", "reshape", "roll",
    "rollaxis", "rot90", "squeeze", "swapaxes", "take", "take_along_axis", "tile", "transpose",
    "delete", "gradient", "trapezoid",
)  # fmt: skip
_ALL = ("atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "meshgrid")


def _each(function: Function) -> Function:
    """Make a function of several arrays that gives as many, of which real ones stay real."""
    both = by_parts(function, (-1,))

    def form(*arrays: Any, **named: Any) -> Any:
        found = both(*arrays, **named)
        if not isinstance(found, (list, tuple)):
            return found
        return type(found)([z if is_complex(a) else z.re for z, a in zip(found, arrays)])

    return form


_DATA: dict[str, tuple[int | str, ...]] = {
    **dict.fromkeys(_ONE, _FIRST),
    **dict.fromkeys((
        "block", "column_stack", "concat", "concatenate", "stack", "hstack", "vstack", "dstack",
    ), (0, "arrays", "tup")),
    "append": (0, 1, "arr", "values"), "insert": (0, 2, "arr", "values"),
    "select": (1, 2, "choicelist", "default"), "linspace": (0, 1, "start", "stop"),
    "diff": (0, "a", "x", "prepend", "append"), "ediff1d": (0, "to_end", "to_begin"),
    "pad": (0, "array", "x", "constant_values", "end_values"),
    "compress": (1, "a"), "extract": (1, "arr"),
}  # fmt: skip
FORMS.update({n: by_parts(getattr(namespace, n), data) for n, data in _DATA.items()})
FORMS.update({n: _each(getattr(namespace, n)) for n in _ALL})
FORMS["linalg.diagonal"] = by_parts(linalg.diagonal, _FIRST)


# ---------------------------------------------------------------- dtypes
def as_complex_dtype(dtype: Any) -> DType | None:
    """The complex dtype that is meant; None for one of real numbers."""
    if isinstance(dtype, DType):
        return dtype if dtype.kind == "complex" else None
    found = np.dtype(dtype)
    return array_dtype(found) if found.kind == "c" else None


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """The numbers in another dtype; of a real dtype, their real parts."""
    t = as_complex_dtype(dtype)
    if t is None:
        if dtype_functions.as_dtype(dtype, dtypes.float64) is dtypes.bool_:
            return asarray(x) != 0
        return dtype_functions.astype(asarray(x).re, dtype)
    found = parts_of(x, dtypes.part_of(t), "astype")
    return made(found, (x,))


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    """An array of complex numbers, or in a complex dtype."""
    creation.asarray(0, device=device)  # checks it
    if dtype is not None:
        found = obj if isinstance(obj, Array) else asarray(obj) if holds_complex(obj) else (
            creation.asarray(obj))  # fmt: skip
        return astype(found, dtype)
    if isinstance(obj, Array) or not holds_complex(obj):
        return creation.asarray(obj) if not isinstance(obj, ComplexArray) else obj
    if creation.holds_arrays(obj):
        return FORMS["stack"]([namespace.asarray(v) for v in obj])
    return constant(np.asarray(obj))


def _kind_names(t: Any) -> tuple[str, ...]:
    return ("complex floating", "numeric") if as_complex_dtype(t) is not None else ()


def isdtype(dtype: Any, kind: Any) -> bool:
    """True if a dtype is of a kind, one of which is complex."""
    if isinstance(kind, tuple):
        return any([isdtype(dtype, k) for k in kind])
    if isinstance(kind, str) and kind in dtype_functions.KINDS:
        return kind in _kind_names(dtype)
    own = as_complex_dtype(dtype)
    return own is not None and own is as_complex_dtype(kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The complex dtype that arrays, dtypes and numbers promote to."""
    known = (Array, np.ndarray, np.generic, bool, int, float, complex)
    return dtype_of([
        v if isinstance(v, known) and not isinstance(v, type) else _any_dtype(v)
        for v in arrays_and_dtypes
    ])  # fmt: skip


def _any_dtype(t: Any) -> DType:
    return as_complex_dtype(t) or dtype_functions.as_dtype(t, dtypes.float64)


def can_cast(from_: Any, to: Any, /) -> bool:
    own = from_.dtype if isinstance(from_, (Array, np.ndarray)) else from_
    return bool(np.can_cast(_any_dtype(own).numpy, _any_dtype(to).numpy))


def finfo(type: Any, /) -> Any:
    """Facts of the parts of a complex dtype."""
    t = type.dtype if isinstance(type, (Array, np.ndarray)) else type
    found = as_complex_dtype(t)
    assert found is not None
    return dtype_functions.finfo(dtypes.part_of(found))


# ---------------------------------------------------------------- creators
def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Every element is the value, in a complex dtype."""
    t = dtype_of([fill_value]) if dtype is None else as_complex_dtype(dtype)
    if t is None:
        return creation.full(shape, real_of(fill_value), dtype=dtype, device=device)
    part = dtypes.part_of(t)
    found = parts_of(fill_value, part, "full")
    re, im = (
        creation.full(shape, 0.0 if u is None else Array(u, trace_of_value(fill_value)), dtype=part,
                      device=device) for u in found
    )  # fmt: skip
    return ComplexArray(re, im)


def _filled(value: int) -> tuple[Function, Function]:
    def function(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
        return full(shape, value, dtype=dtype, device=device)

    def like(x: Any, /, dtype: Any = None, *, shape: Any = None, device: Any = None) -> Any:
        return full_like(x, value, dtype, shape=shape, device=device)

    return function, like


def full_like(
    x: Any, /, fill_value: Any, dtype: Any = None, *, shape: Any = None, device: Any = None
) -> Any:
    """Every element is the value, in the shape of x."""
    given = namespace.asarray(x)
    t = given.dtype if dtype is None else dtype
    made_of = full if as_complex_dtype(t) is not None else creation.full
    return made_of(given.shape if shape is None else shape, fill_value, dtype=t, device=device)


def _square(name: str) -> Function:
    function = getattr(creation, name)

    def form(*args: Any, dtype: Any = None, **named: Any) -> Any:
        t = as_complex_dtype(dtype)
        assert t is not None
        return astype(function(*args, dtype=dtypes.part_of(t), **named), t)

    return form


def logspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, base: Any = 10.0,
    dtype: Any = None, axis: int = 0,
) -> Any:  # fmt: skip
    """Powers of the base with equal ratios from base**start to base**stop."""
    found = FORMS["pow"](base, FORMS["linspace"](start, stop, num, endpoint, axis=axis))
    return found if dtype is None else astype(found, dtype)


FORMS.update({
    "astype": astype, "asarray": asarray, "isdtype": isdtype, "result_type": result_type,
    "can_cast": can_cast, "finfo": finfo, "full": full, "full_like": full_like,
    "logspace": logspace,
    **{n: _square(n) for n in ("eye", "identity", "tri")},
})  # fmt: skip
for _name, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):
    FORMS[_name], FORMS[f"{_name}_like"] = _filled(_value)
