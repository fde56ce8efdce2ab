"""NumPy's functions and operators on UOps and Arrays, and the methods of Array.

NumPy asks `__array_ufunc__` and `__array_function__` of its arguments. Both call the function of
the same name in this namespace. A missing function is an error, never a wrong number.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.core.uop import UOp
from uopc.numpy import elementwise, linalg, namespace
from uopc.numpy.array import Array, applied, uop_of
from uopc.numpy.array_methods import ArrayMethods
from uopc.numpy.complexes import fft
from uopc.numpy.complexes import products as _products  # noqa: F401  (enters its functions)
from uopc.numpy.complexes import reductions as _reductions  # noqa: F401  (enters its functions)
from uopc.numpy.complexes.arrays import ComplexArray
from uopc.numpy.dtype_functions import holds_complex
from uopc.numpy.manipulation import own_axis
from uopc.numpy.memory import viewing, writing
from uopc.numpy.reductions import check_no_out, chosen
from uopc.numpy.samples.statistics import extreme, with_options
from uopc.tensor import examples, reductions, table
from uopc.tensor.elementwise import rounded
from uopc.tensor.examples import with_name


def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    check_no_out("round", out)
    if decimals == 0:
        return elementwise.FUNCTIONS["round"](a)
    if holds_complex(a):
        z = namespace.asarray(a)
        return ComplexArray(*[_round(p, decimals) for p in (z.re, z.im)])
    return applied(lambda u: rounded(u, decimals), a)


def _variance(name: str) -> Callable[..., Any]:
    function = getattr(namespace, name)

    def adapted(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
        keepdims: bool = False, *, where: Any = True, correction: float | None = None,
        mean: Any = None,
    ) -> Any:  # fmt: skip
        check_no_out(name, out)
        if mean is not None:
            raise UserTypeError(f"numpy.{name} of a UOp or Array takes no mean=")
        by = ddof if correction is None else correction
        given = a if dtype is None else namespace.astype(a, dtype)
        if where is True:
            return function(given, axis=axis, correction=by, keepdims=keepdims)
        centred = namespace.subtract(given, _mean(given, axis, keepdims=True, where=where))
        squares = chosen(namespace.square(centred), where, 0)
        total = namespace.sum(squares, axis=axis, keepdims=keepdims)
        free = namespace.subtract(_count_chosen(squares, where, axis, keepdims), by)
        free = namespace.astype(namespace.where(free > 0, free, float("nan")), total.dtype)
        found = namespace.divide(total, free)
        return namespace.sqrt(found) if name == "std" else found

    return adapted


def _count_chosen(a: Any, where: Any, axis: Any, keepdims: bool) -> Any:
    """Count the elements of `a` where a mask holds."""
    counted = namespace.broadcast_to(where, uop_of(a).shape)
    return namespace.count_nonzero(counted, axis=axis, keepdims=keepdims)


def _mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *,
    where: Any = True,
) -> Any:  # fmt: skip
    check_no_out("mean", out)
    given = a if dtype is None else namespace.astype(a, dtype)
    if where is True:
        return namespace.mean(given, axis=axis, keepdims=keepdims)
    total = namespace.sum(chosen(given, where, 0), axis=axis, keepdims=keepdims)
    count = _count_chosen(given, where, axis, keepdims)
    result = total.dtype if total.dtype.is_float else "f8"
    return namespace.divide(total, namespace.astype(count, result))


def _greatest(name: str, combined: str) -> Callable[..., Any]:
    function, plain = extreme(name, reductions.METHODS[name], combined), getattr(namespace, name)

    def adapted(
        a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
        where: Any = True,
    ) -> Any:  # fmt: skip
        if holds_complex(a) and initial is None and where is True:
            check_no_out(name, out)
            return plain(a, axis=axis, keepdims=keepdims)
        return function(a, axis, keepdims, out=out, initial=initial, where=where)

    return adapted


def _truth(name: str, identity: int) -> Callable[..., Any]:
    function = getattr(namespace, name)

    def adapted(
        a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
    ) -> Any:
        check_no_out(name, out)
        return function(chosen(a, where, identity), axis=axis, keepdims=keepdims)

    return adapted


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    if (a_min is not None and min is not None) or (a_max is not None and max is not None):
        raise UserTypeError("numpy.clip: a bound is given twice")
    return namespace.clip(a, a_min if min is None else min, a_max if max is None else max)


def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    edges = [v if v is None else namespace.asarray(v) for v in (prepend, append)]
    return namespace.diff(a, axis=axis, n=n, prepend=edges[0], append=edges[1])


def _sorting(name: str) -> Callable[..., Any]:
    """Make a sort for NumPy's parameters; every `kind` is stable."""
    function = getattr(namespace, name)

    def adapted(
        a: Any, axis: int | None = -1, kind: str | None = None, order: None = None, *,
        stable: bool | None = None, descending: bool = False,
    ) -> Any:  # fmt: skip
        if kind not in (None, "quicksort", "mergesort", "heapsort", "stable"):
            raise UserTypeError(f"numpy.{name}: unknown kind {kind!r}")
        given = namespace.reshape(a, (-1,)) if axis is None else a
        return function(given, axis=-1 if axis is None else axis, descending=descending)

    return adapted


def _in_order(name: str) -> Callable[..., Any]:
    """Make a function of the namespace with NumPy's parameters, in NumPy's order."""
    function, signature = getattr(namespace, name), inspect.signature(getattr(np, name))

    def adapted(*args: Any, **named: Any) -> Any:
        return function(**signature.bind(*args, **named).arguments)

    taken = inspect.signature(function).parameters.keys()
    kept = [p for p in signature.parameters.values() if p.name in taken]
    adapted.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return adapted


def _outer(a: Any, b: Any, out: Any = None) -> Any:
    check_no_out("outer", out)
    return linalg.outer(namespace.reshape(a, (-1,)), namespace.reshape(b, (-1,)))


def _real_if_close(a: Any, tol: Any = 100) -> Any:
    if holds_complex(a):
        raise UserTypeError(
            "numpy.real_if_close: the dtype depends on values; write x.real where it is real"
        )
    return a


def _numpy_size(a: Any, axis: int | None = None) -> Any:
    x = namespace.asarray(a)
    return x.size if axis is None else x.shape[own_axis(axis, x.ndim, "size")]


def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    check_no_out("ptp", out)
    greatest, least = (f(a, axis=axis, keepdims=keepdims) for f in (namespace.max, namespace.min))
    return namespace.subtract(greatest, least)


def _reshape(
    a: Any, /, shape: Any = None, order: str | None = "C", *, newshape: Any = None, copy: Any = None
) -> Any:
    return namespace.reshape(a, newshape if shape is None else shape, order=order, copy=copy)


_NO_CHOICE = object()


def _where(condition: Any, x: Any = _NO_CHOICE, y: Any = _NO_CHOICE) -> Any:
    if y is _NO_CHOICE:
        return namespace.nonzero(condition)
    return namespace.where(condition, x, y)


def _of_shape(name: str) -> Callable[..., Any]:
    """Make a function of NumPy that depends only on the shape, so that its indices are known."""
    function = getattr(np, name)

    def adapted(arr: Any, *args: Any, **named: Any) -> Any:
        dims = uop_of(arr, name).shape
        if not all(isinstance(d, int) for d in dims):
            raise UserTypeError(f"numpy.{name} of a UOp or Array needs known sizes, got {dims}")
        try:
            return function(np.broadcast_to(np.int8(0), dims), *args, **named)
        except ValueError as error:
            raise UserError(f"numpy.{name} of a UOp or Array: {error}") from None

    return adapted


# Functions that NumPy alone has, or whose parameters it orders or names otherwise.
_NUMPY_FORMS: dict[str, Callable[..., Any]] = {
    "copy": lambda a, order="K", subok=False: copy(a, order),
    "ptp": _ptp, "reshape": _reshape, "where": _where,
    "floor_divide": elementwise.whole_quotient, "trapz": namespace.trapezoid,
    "iscomplexobj": holds_complex, "isrealobj": lambda x: not holds_complex(x),
    "iscomplex": lambda x: namespace.not_equal(namespace.imag(x), 0),
    "isreal": lambda x: namespace.equal(namespace.imag(x), 0), "real_if_close": _real_if_close,
    "around": _round, "clip": _clip, "diff": _diff, "mean": _mean, "outer": _outer,
    "round": _round, "shape": lambda a: namespace.asarray(a).shape, "size": _numpy_size,
    "ndim": lambda a: namespace.asarray(a).ndim,
    **{n: _of_shape(n) for n in ("diag_indices_from", "tril_indices_from", "triu_indices_from")},
    **{n: _sorting(n) for n in ("argsort", "sort")},
    **{n: _variance(n) for n in ("std", "var")},
    "sum": with_options("sum", namespace.sum, "add", 0, skips_nan=False),
    "prod": with_options("prod", namespace.prod, "multiply", 1, skips_nan=False),
    **dict.fromkeys(("amax", "max"), _greatest("max", "maximum")),
    **dict.fromkeys(("amin", "min"), _greatest("min", "minimum")),
    **{n: _in_order(n) for n in (
        "median", "nanargmax", "nanargmin", "nanmax", "nanmean", "nanmedian", "nanmin",
        "nanpercentile", "nanquantile", "nanstd", "nanvar", "percentile", "quantile",
    )},
    "any": _truth("any", 0), "all": _truth("all", 1),
}  # fmt: skip
# Options that ask for nothing that a graph has not, with their usual values. The order is that in
# memory, which no value of the graph depends on.
_USUAL = {
    "out": (None,), "where": (True,), "order": (None, "C", "K", "A"), "casting": ("same_kind",),
    "subok": (True, False),
}  # fmt: skip
_WAYS_OUT = {"order": ": a graph has no order in memory, leave it out"}


def _without_options(
    name: str, options: dict[str, Any], taken: Collection[str] = ()
) -> dict[str, Any]:
    """Drop options with their usual value; UserTypeError for other values. `taken` are kept."""
    for option in options.keys() & _USUAL.keys() - taken:
        given = options[option]
        if not (isinstance(given, (str, bool, np.bool_, type(None))) and given in _USUAL[option]):
            how = _WAYS_OUT.get(option, "").format(name)
            raise UserTypeError(f"numpy.{name} of a UOp or Array takes no {option}={how}")
    return {k: v for k, v in options.items() if k in taken or k not in _USUAL}


_BY_VALUES = "made of unique(), nonzero() and isin()"
_WRITES = "a UOp is a value, which is not written: x.at[i].set(v) is the array with it"
# Why a function of NumPy is not here, and what to write instead.
_INSTEAD = {
    **dict.fromkeys((
        "intersect1d", "setdiff1d", "setxor1d", "trim_zeros", "union1d",
    ), _BY_VALUES),
    **dict.fromkeys((
        "copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask",
    ), _WRITES),
    "piecewise": "functions see x[condition]; use select(conditions, [f(x), ...])",
    "choose": "use select, or stack and take_along_axis",
    "resize": "use concatenate and reshape; a UOp's resize is that of images",
    "apply_along_axis": "use uopc.vmap(f, in_axes=axis)",
}  # fmt: skip


_MODULES: dict[str, Any] = {"numpy.linalg": linalg, "numpy.fft": fft}


def _found(name: str, where: ModuleType = namespace) -> Callable[..., Any]:
    function = _NUMPY_FORMS.get(name) if where is namespace else None
    function = function or getattr(where, name, None)
    if not callable(function):
        module = "numpy.linalg" if where is linalg else "numpy"
        why = f"uopc.{module} has no {name}; compute it outside, or of other functions"
        if hasattr(UOp, name) and not hasattr(np, name):  # of scipy.special
            why = f"uopc.numpy has no {name}, but UOps have: use x.uop.{name}() of an Array"
        why = why if where is linalg else _INSTEAD.get(name, why)
        raise UserTypeError(f"{module}.{name} of a UOp or Array is not traced: {why}")
    return function


# The functions that ufuncs are along an axis: over all elements, or up to each one.
_REDUCED = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all",
    "logical_or": "any", "fmax": "nanmax", "fmin": "nanmin",
}  # fmt: skip
_ACCUMULATED: dict[str, Callable[..., Any]] = {
    "add": namespace.cumsum, "multiply": namespace.cumprod,
    "maximum": lambda a, axis: applied(lambda u: u.cummax(axis), a),
    "minimum": lambda a, axis: applied(lambda u: u.cummin(axis), a),
}  # fmt: skip


def _outer_ufunc(function: Callable[..., Any], a: Any, b: Any) -> Any:
    """Apply the function to each element of a with each element of b."""
    column = (*namespace.asarray(a).shape, *[1] * namespace.asarray(b).ndim)
    return function(namespace.reshape(namespace.asarray(a), column), b)


def _ufunc_method(name: str, method: str) -> Callable[..., Any]:
    """Make `np.add.reduce` and the like. UserTypeError for methods that write or are missing."""
    if method == "reduce" and name in _REDUCED:
        function = getattr(namespace, _REDUCED[name])
        return lambda a, axis=0, **named: function(a, axis=axis, **named)
    if method == "accumulate" and name in _ACCUMULATED:
        return lambda a, axis=0, **named: _ACCUMULATED[name](a, axis=axis, **named)
    if method == "outer":
        return lambda a, b: _outer_ufunc(_found(name), a, b)
    raise UserTypeError(
        f"numpy.{name}.{method} of a UOp or Array is not traced: use other functions"
    )


def array_ufunc(a: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """Call a NumPy ufunc or its method; `out=` is written, where a mask `where=` holds."""
    plain = method == "__call__"
    name = ufunc.__name__ if plain else f"{ufunc.__name__}.{method}"
    if method == "at" and isinstance(inputs[0], Array):
        writing.ufunc_at(ufunc, *inputs)
        return None
    out = options.pop("out", None)
    if out is not None:
        return _into(name, getattr(ufunc, method), inputs, options, out, masked=plain)
    if plain:
        named = _without_options(name, options)
        if named:
            raise UserTypeError(f"numpy.{name} of a UOp or Array takes no {', '.join(named)}=")
        return _found(name)(*inputs)
    function = _ufunc_method(ufunc.__name__, method)
    named = _without_options(name, options)
    try:
        return function(*inputs, **named)
    except TypeError as error:
        raise UserTypeError(f"numpy.{name} of a UOp or Array: {error}") from None


def _into(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any],
    out: Any, masked: bool,
) -> Any:  # fmt: skip
    """Call a function, and write its results to the arrays that are given for them. `masked`: the
    option `where` says which elements are written, else the function takes it."""
    where = options.pop("where", True) if masked else True
    casting = options.pop("casting", "same_kind")
    made = function(*args, **options)
    targets = out if isinstance(out, tuple) else (out,)
    results = made if isinstance(made, tuple) else (made,)
    for target, result in zip(targets, results):
        if target is None:
            continue
        if isinstance(target, Array) and (where is not True or casting == "unsafe"):
            writing.copyto(target, result, casting, where)
        else:
            writing.into(target, result, f"numpy.{name}")
    found = tuple([r if t is None else t for t, r in zip(targets, results)])
    return found if isinstance(made, tuple) else found[0]


def _by_place(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Pass required arguments by position: NumPy's names differ (`np.take(a=x, indices=i)`)."""
    named = dict(options)
    try:
        parameters = list(inspect.signature(function).parameters.values()) if named else []
    except ValueError:  # functions in C had no signature
        return args, named
    for p in parameters[len(args):]:  # fmt: skip
        if p.default is not p.empty or p.kind is not p.POSITIONAL_OR_KEYWORD or p.name not in named:
            break
        args = (*args, named.pop(p.name))
    return args, named


def array_function(
    a: Any, function: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Call another function of NumPy. UserTypeError if the namespace lacks it."""
    module, name = getattr(function, "__module__", ""), function.__name__
    if name in writing.FUNCTIONS and module == "numpy":
        target = next(iter((*args, *options.values())))
        if isinstance(target, Array):
            writing.FUNCTIONS[name](*args, **options)
            return None
    if options.get("out") is not None:
        rest = {k: v for k, v in options.items() if k != "out"}
        return _into(name, function, args, rest, options["out"], masked=False)
    found = _found(name, _MODULES.get(module, namespace))
    args, options = _by_place(function, args, options)
    taken = {"where", "order"} & inspect.signature(found).parameters.keys()
    named = _without_options(name, options, taken)
    try:
        inspect.signature(found).bind(*args, **named)
    except TypeError as error:
        raise UserTypeError(f"numpy.{name} of a UOp or Array: {error}") from None
    return found(*args, **named)


# ---------------------------------------------------------------- methods of Array
def _same(name: str) -> Callable[..., Any]:
    """The namespace's function of this name, with NumPy's parameters."""
    function = _found(name)

    def method(a: Array, *args: Any, **named: Any) -> Any:
        return function(a, *args, **named)

    method.__wrapped__ = function  # type: ignore[attr-defined]  # its signature is the method's
    return _documented(method, name)


def _shaped(name: str) -> Callable[..., Any]:
    """Make a method that takes a shape or axes, also as separate arguments: `x.reshape(2, 3)`."""
    function = getattr(namespace, name)

    def method(a: Array, *dims: Any, **options: Any) -> Any:
        named = _without_options(name, options, {"order"} if name == "reshape" else ())
        if not dims:
            return function(a, **named)
        return function(a, dims[0] if isinstance(dims[0], (tuple, list)) else dims, **named)

    return _documented(method, name)


def _documented(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    known = (getattr(namespace, name).__doc__ or "").partition("\n\n")[0]
    same = f"{' '.join(known.split())} The same as `uopc.numpy.{name}(x)`."
    doc = same.strip() + examples.of_array(name, table.EXAMPLES[name])
    return with_name(method, Array, name, doc)


def copy(a: Array, order: str | None = "C") -> Any:
    """A new array with the values: writes to one do not change the other.

    UserTypeError for the order "F": a graph has no order in memory.

    Examples:
        >>> x = unp.asarray([1, 2])
        >>> y = x.copy()
        >>> y[0] = 7
        >>> x.tolist(), y.tolist()
        ([1, 2], [7, 2])
    """
    _without_options("copy", {"order": order})
    return a.__copy__() if holds_complex(a) else applied(lambda u: u, a)


def sort(a: Array, axis: int = -1, kind: str | None = None, order: None = None) -> None:
    """Sort the array itself along an axis.

    Examples:
        >>> x = unp.asarray([3, 1, 2])
        >>> x.sort()
        >>> x.tolist()
        [1, 2, 3]
    """
    writing.into(a, _NUMPY_FORMS["sort"](a, axis, kind, order), "sort")


def nonzero(a: Array) -> tuple[Any, ...]:
    """The indices of the elements that are not 0, for each axis. The same as
    `uopc.numpy.nonzero(x)`.

    Examples:
        >>> np.asarray(unp.asarray([0, 3, 0, 5]).nonzero()[0])
        array([1, 3])
    """
    found: tuple[Any, ...] = namespace.nonzero(a)
    return found


def astype(
    a: Array, dtype: Any, order: Any = "K", casting: Any = "unsafe", subok: bool = True,
    copy: bool = True, *, device: Any = None,
) -> Any:  # fmt: skip
    """Convert x to another dtype: see `uopc.numpy.astype`.

    UserTypeError for a dtype that uopc lacks or that NumPy's rule `casting` forbids, and for the
    order "F": a graph has no order in memory.

    Examples:
        >>> np.asarray(unp.asarray([2.7, -2.7, 300.0]).astype(unp.int8))
        array([  2,  -2, 127], dtype=int8)
    """
    _without_options("astype", {"order": order, "subok": subok})
    made = namespace.astype(a, dtype, copy=copy, device=device)
    if not copy and made.dtype is a.dtype:
        return a
    if not np.can_cast(a.dtype.numpy, made.dtype.numpy, casting):
        given, wanted = a.dtype.name, made.dtype.name
        raise UserTypeError(f"astype: casting={casting!r} does not allow {given} to {wanted}")
    return made


def flatten(a: Array, order: str | None = "C") -> Any:
    """A copy of the elements in row-major order, or with `order="F"` in column-major order, as a
    vector.

    UserTypeError for an order that follows memory, of two dimensions or more.

    Examples:
        >>> np.asarray(unp.asarray([[1, 2], [3, 4]]).flatten())
        array([1, 2, 3, 4])
    """
    return applied(lambda u: u, namespace.ravel(a, order))


def ravel(a: Array, order: str | None = "C") -> Any:
    """The elements in a row: see `uopc.numpy.ravel`. It is a view where NumPy's is one.

    Examples:
        >>> x = unp.zeros((2, 2))
        >>> x.ravel()[3] = 7
        >>> x.tolist()
        [[0.0, 0.0], [0.0, 7.0]]
    """
    return namespace.ravel(a, order)


def tolist(a: Array) -> Any:
    """The values as Python numbers in nested lists. UserTypeError while the array is traced.

    Examples:
        >>> unp.asarray([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
    """
    return a.value("tolist()").tolist()


def real(a: Array) -> Any:
    """The real part.

    Examples:
        >>> np.asarray(unp.asarray([1 + 2j]).real)
        array([1.])
    """
    return a


def imag(a: Array) -> Any:
    """The imaginary part: 0 of real numbers.

    Examples:
        >>> np.asarray(unp.asarray([1 + 2j]).imag)
        array([2.])
    """
    return namespace.imag(a)


def conj(a: Array) -> Any:
    """The conjugate: the imaginary part negated. `conjugate` is the same.

    Examples:
        >>> np.asarray(unp.asarray([1 + 2j]).conj())
        array([1.-2.j])
    """
    return namespace.conj(a)


def transposed(a: Array) -> Any:
    """Reverse the axes: `transpose` without arguments.

    Examples:
        >>> unp.zeros((2, 3, 4)).T.shape
        (4, 3, 2)
    """
    return namespace.transpose(a)


def matrices_transposed(a: Array) -> Any:
    """Exchange the last two axes. UserError for fewer than two axes.

    Examples:
        >>> unp.zeros((2, 3, 4)).mT.shape
        (2, 4, 3)
    """
    return namespace.matrix_transpose(a)


def divmod_of(a: Array, b: Any) -> tuple[Any, Any]:
    return elementwise.divmod(a, b)


def divmod_by(a: Array, b: Any) -> tuple[Any, Any]:
    return elementwise.divmod(b, a)


def rounded_to(a: Array, digits: int = 0) -> Any:
    return _round(a, digits)


def array_namespace(a: Any, /, *, api_version: str | None = None) -> ModuleType:
    """The functions for an array: `uopc.numpy`. UserTypeError for an unknown version.

    Examples:
        >>> unp.asarray([1, 2]).__array_namespace__() is unp
        True
    """
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise UserTypeError(
            f"__array_namespace__: unknown version {api_version!r} of the Array API"
        )
    return sys.modules[__package__]


# For Array. Type checkers see them in `array_methods.pyi`, which is generated.
INSTALLED: dict[str, Any] = {n: _same(n) for n in (
    "all", "any", "argmax", "argmin", "argsort", "clip", "cumprod", "cumsum",
    "diagonal", "dot", "max", "mean", "min", "prod", "repeat", "round", "squeeze", "std",
    "sum", "swapaxes", "take", "trace", "var",
)} | {n: _shaped(n) for n in ("reshape", "transpose")}  # fmt: skip
INSTALLED |= elementwise.OPERATORS | {
    "__array_ufunc__": array_ufunc,
    "__array_function__": array_function,
    "__array_namespace__": array_namespace,
    "__divmod__": divmod_of,
    "__rdivmod__": divmod_by,
    "__round__": rounded_to,
    "__matmul__": elementwise.operator(linalg.matmul),
    "__rmatmul__": elementwise.reflected(linalg.matmul),
    "astype": astype,
    "copy": copy,
    "nonzero": nonzero,
    "flatten": flatten,
    "ravel": ravel,
    "sort": sort,
    "fill": writing.fill,
    "put": writing.put,
    "__getitem__": viewing.getitem,
    "__setitem__": writing.setitem,
    "tolist": tolist,
    "real": property(real),
    "imag": property(imag),
    "conj": conj,
    "conjugate": conj,
    "T": property(transposed),
    "mT": property(matrices_transposed),
}  # fmt: skip
INSTALLED |= {
    f"__i{n}__": writing.in_place(INSTALLED[f"__{n}__"], f"x {sign}= v")
    for n, sign in {
        "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
        "pow": "**", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
        "matmul": "@",
    }.items()
}  # fmt: skip

for _name, _method in INSTALLED.items():
    setattr(ArrayMethods, _name, _method)
