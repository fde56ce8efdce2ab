"""Dtypes in the namespace: their names, `astype`, `result_type`, `isdtype`, `finfo`, `iinfo`, and
the facts of the namespace, most of which are dtypes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from uopc.errors import UserTypeError
from uopc.ir.builder import fold, leaves
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.numpy.array import Array, common_dtype, same_kind, uop_of

__all__ = [
    "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type",
]  # fmt: skip

Function = Callable[..., Any]
_OF_PYTHON = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float64}
_INTEGERS = ("int8", "int16", "int32", "int64")
_FLOATS = ("float32", "float64")
_COMPLEX = ("complex64", "complex128")
KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": _INTEGERS,
    "unsigned integer": tuple(f"u{t}" for t in _INTEGERS),
    "real floating": _FLOATS,
    "complex floating": _COMPLEX,
}
KINDS["integral"] = KINDS["signed integer"] + KINDS["unsigned integer"]
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"] + KINDS["complex floating"]
BY_NAME = {n: dtypes.by_name(n) for kind in ("bool", "numeric") for n in KINDS[kind]} | {
    "float16": dtypes.float16, "bfloat16": dtypes.bfloat16,
}  # fmt: skip


def as_dtype(dtype: Any, default: DType) -> DType:
    """Convert a dtype of NumPy (`np.float64`, `"f8"`, `float`); UserTypeError for complex."""
    if dtype is None:
        return default
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, type) and dtype in _OF_PYTHON:
        return _OF_PYTHON[dtype]
    try:
        return dtypes.from_numpy(np.dtype(dtype))
    except (TypeError, ValueError) as error:
        raise UserTypeError(f"dtype: {error}") from None


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """x in another dtype: floats truncate and saturate to integers, integers wrap.

    UserTypeError for a dtype that uopc lacks.

    Examples:
        >>> np.asarray(unp.astype(unp.asarray([2.7, -2.7, 300.0]), unp.int8))
        array([  2,  -2, 127], dtype=int8)
    """
    del copy, device  # an array is a value: nobody sees whether it is a copy
    u = uop_of(x, "astype")
    return same_kind(fold.cast(u, as_dtype(dtype, u.dtype)), (x,))


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that arrays, dtypes and numbers promote to.

    Python's numbers take the dtype of the others. UserTypeError unless one is an array or a dtype.

    Examples:
        >>> unp.result_type(unp.int8, unp.uint8), unp.result_type(unp.float32, 1.5)
        (dtypes.int16, dtypes.float32)
    """
    if not arrays_and_dtypes:
        raise UserTypeError("result_type needs an array or a dtype")
    known = (Array, UOp, bool, int, float, np.ndarray, np.generic)
    values = [
        v if isinstance(v, known) else Array(leaves.const(as_dtype(v, dtypes.float64), 0))
        for v in arrays_and_dtypes
    ]
    return common_dtype(values)


def can_cast(from_: Any, to: Any, /) -> bool:
    """True if promotion of the two dtypes gives `to`.

    Examples:
        >>> unp.can_cast(unp.int8, unp.int16), unp.can_cast(unp.int16, unp.int8)
        (True, False)
    """
    given = from_ if isinstance(from_, DType) else uop_of(from_).dtype
    wanted = as_dtype(to, given)
    try:
        return dtypes.promote(given, wanted) is wanted
    except (TypeError, UserTypeError):
        return False


def isdtype(dtype: Any, kind: Any) -> bool:
    """True if a dtype equals `kind`, belongs to it (as to `"integral"`), or matches one of a tuple.

    UserTypeError for an unknown kind.

    Examples:
        >>> unp.isdtype(unp.int8, "integral"), unp.isdtype(unp.int8, ("bool", unp.float32))
        (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    found = as_dtype(dtype, dtypes.float64)
    if not isinstance(kind, str):
        return found is as_dtype(kind, found)
    if kind not in KINDS:
        raise UserTypeError(f"isdtype: unknown kind {kind!r}; choose {', '.join(KINDS)}")
    narrow = found.is_float and kind in ("real floating", "numeric")
    return found.name in KINDS[kind] or narrow


@dataclass(frozen=True)
class FloatInfo:
    """Facts of a float dtype: bits, eps, greatest, least and least normal number.

    Examples:
        >>> unp.finfo(unp.float64).smallest_normal
        2.2250738585072014e-308
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerInfo:
    """Facts of an integer dtype: bits, greatest and least number.

    Examples:
        >>> unp.iinfo(unp.asarray([1, 2])).bits
        64
    """

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(type: Any) -> DType:
    return type.dtype if isinstance(type, (Array, np.ndarray)) else as_dtype(type, dtypes.float64)


def finfo(type: Any, /) -> FloatInfo:
    """Facts of a float dtype, or of an array's.

    UserTypeError for another dtype.

    Examples:
        >>> unp.finfo(unp.float32).bits, unp.finfo(unp.float32).eps == 2**-23
        (32, True)
    """
    t = as_dtype(_dtype_of(type), dtypes.float64)
    if not t.is_float:
        raise UserTypeError(f"finfo needs a float dtype, got {t.name}")
    if t.numpy.kind == "f":
        f: Any = np.finfo(t.numpy)
    else:
        import ml_dtypes

        f = ml_dtypes.finfo(t.numpy)  # type: ignore[no-untyped-call]
    eps, most, least, normal = map(float, (f.eps, f.max, f.min, f.smallest_normal))
    return FloatInfo(t.bits, eps, most, least, normal, t)


def iinfo(type: Any, /) -> IntegerInfo:
    """Facts of an integer dtype, or of an array's.

    UserTypeError for another dtype.

    Examples:
        >>> unp.iinfo(unp.int8).min, unp.iinfo(unp.int8).max
        (-128, 127)
    """
    t = as_dtype(_dtype_of(type), dtypes.int64)
    if not t.is_int:
        raise UserTypeError(f"iinfo needs an integer dtype, got {t.name}")
    return IntegerInfo(t.bits, t.bounds[1], t.bounds[0], t)


class Info:
    """Facts of the namespace, as `__array_namespace_info__` of the standard gives them.

    Examples:
        >>> info = unp.__array_namespace_info__()
        >>> info.default_dtypes()["integral"]
        dtypes.int64
    """

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing and lengths that depend on values; at most 64 dimensions.

        Examples:
            >>> unp.__array_namespace_info__().capabilities()["boolean indexing"]
            True
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """"cpu".

        Examples:
            >>> unp.__array_namespace_info__().default_device()
            'cpu'
        """
        return "cpu"

    def devices(self) -> list[str]:
        """The devices of arrays: only "cpu". `jit` and `compile` accept other devices.

        Examples:
            >>> unp.__array_namespace_info__().devices()
            ['cpu']
        """
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The default dtypes of numbers: float64, int64.

        Examples:
            >>> unp.__array_namespace_info__().default_dtypes()
            {'real floating': dtypes.float64, 'complex floating': dtypes.complex128,
             'integral': dtypes.int64, 'indexing': dtypes.int64}
        """
        del device
        whole = dtypes.int64
        floats = {"real floating": dtypes.float64, "complex floating": dtypes.complex128}
        return floats | {"integral": whole, "indexing": whole}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The dtypes by name: all, those of a kind such as "integral", or of a tuple of kinds.

        Examples:
            >>> unp.__array_namespace_info__().dtypes(kind="real floating")
            {'float32': dtypes.float32, 'float64': dtypes.float64}
        """
        del device
        kinds = ("bool", "numeric") if kind is None else kind
        listed = kinds if isinstance(kinds, tuple) else (kinds,)
        return {n: BY_NAME[n] for k in listed for n in KINDS[k]}


def __array_namespace_info__() -> Info:
    """Facts of the namespace, as the standard's inspection functions give them.

    Examples:
        >>> unp.__array_namespace_info__().default_device()
        'cpu'
    """
    return Info()


# ---------------------------------------------------------------- functions of complex numbers
# Those of `uopc.numpy.complexes`, by the names of the functions whose place they take where an
# argument is complex. A function that is not here refuses complex numbers, since `uop_of` does.
FORMS: Final[dict[str, Function]] = {}
_REAL: Final = frozenset((bool, int, float))
_COMPLEX_NAMES: Final = frozenset(("complex", "complex64", "complex128", "c8", "c16"))


def holds_complex(value: Any) -> bool:
    """True for complex numbers, arrays of them, complex dtypes, and lists that hold one of these.

    Examples:
        >>> from uopc.numpy.dtype_functions import holds_complex
        >>> holds_complex(unp.asarray([1.0])), holds_complex([1, 2j]), holds_complex(np.complex64)
        (False, True, True)
    """
    if isinstance(value, Array):
        return value.is_complex
    if isinstance(value, (list, tuple)):
        return not _REAL.issuperset(map(type, value)) and any([holds_complex(v) for v in value])
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind == "c"
    if isinstance(value, DType):
        return value.kind == "complex"
    if isinstance(value, type):
        return issubclass(value, (complex, np.complexfloating))
    if isinstance(value, np.dtype):
        return value.kind == "c"
    return isinstance(value, complex) or (isinstance(value, str) and value in _COMPLEX_NAMES)


def form_of(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Function | None:
    """The function of complex numbers, if the arguments hold any and there is one."""
    if any([holds_complex(v) for v in args]) or any([holds_complex(v) for v in named.values()]):
        return FORMS.get(name)
    return None


@functools.cache
def routed(function: Function, name: str = "") -> Function:
    """The function, which calls the form of its name where an argument is complex."""
    name = name or function.__name__

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        form = form_of(name, args, named)
        return (form or function)(*args, **named)

    if call.__module__ != "uopc.numpy.linalg":
        call.__module__ = "uopc.numpy"  # where a pickle finds it
    return call
