"""Element types. One row a type; everything else about a type is derived from its row.

A `DType` is a singleton, so types compare by identity; NumPy's spellings of a type compare equal to
it. `dtype.vec(n)` is the type of a value of `n` lanes (levels vector and linear). `index` is the
type of dimensions, ranges and addresses: integers that never wrap, committed to 64 bits by the
backends.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from uopc import errors

Kind = Literal["bool", "int", "uint", "float", "index", "void", "complex"]


class DType(errors.Immutable):
    """A scalar type, or `lanes` > 1 values of a scalar type. Made only by this module.

    `name`: NumPy's name; `short`: the name in the text form. Further facts: `bits`, `kind` (bool,
    int, uint, float, index or void), `is_float`, `is_int`, `is_integral`, `scalar` (the type of one
    lane).

    Examples:
        >>> dtypes.float16.name, dtypes.float16.short, dtypes.float16.bits, dtypes.float16.kind
        ('float16', 'f16', 16, 'float')
    """

    __slots__ = (
        "_vectors", "bits", "is_float", "is_int", "is_integral", "kind", "lanes", "name", "scalar",
        "short",
    )  # fmt: skip

    name: str
    short: str
    kind: Kind
    bits: builtins.int
    lanes: builtins.int
    is_float: builtins.bool
    is_int: builtins.bool  # of fixed width; neither bool nor index
    is_integral: builtins.bool  # exact arithmetic
    scalar: DType
    _vectors: dict[builtins.int, DType]

    def __init__(
        self, name: str, short: str, kind: Kind, bits: builtins.int,
        lanes: builtins.int = 1, scalar: DType | None = None,
    ) -> None:  # fmt: skip
        is_int = kind in ("int", "uint")
        self._keep(
            name=name, short=short, kind=kind, bits=bits, lanes=lanes, scalar=scalar or self,
            is_float=kind == "float", is_int=is_int, is_integral=is_int or kind == "index",
            _vectors=scalar._vectors if scalar else {1: self},
        )  # fmt: skip

    def vec(self, lanes: builtins.int) -> DType:
        """The type of `lanes` values of this scalar type; InvalidIR for none.

        Examples:
            >>> dtypes.float32.vec(4), dtypes.float32.vec(4).lanes
            (dtypes.float32x4, 4)
        """
        base = self.scalar
        found = base._vectors.get(lanes)
        if found is None:
            if lanes < 1:
                raise errors.InvalidIR(f"a vector has at least one lane, got {base.short}x{lanes}")
            name, short = f"{base.name}x{lanes}", f"{base.short}x{lanes}"
            found = DType(name, short, base.kind, base.bits, lanes, base)
            found = base._vectors.setdefault(lanes, found)
        return found

    @property
    def itemsize(self) -> builtins.int:
        """Bytes of one element in memory (a bool takes one).

        Examples:
            >>> dtypes.float64.itemsize, dtypes.bool_.itemsize
            (8, 1)
        """
        return max(1, self.bits // 8)

    @property
    def is_signed(self) -> builtins.bool:
        """True for an integer type with negative values.

        Examples:
            >>> dtypes.int8.is_signed, dtypes.uint8.is_signed
            (True, False)
        """
        return self.kind in ("int", "index")

    @property
    def whole_bits(self) -> builtins.int:
        """The power p of a float type for which all integers up to 2^p are exact (0: hardly any).

        Examples:
            >>> dtypes.float32.whole_bits
            24
        """
        return {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}.get(self.name, 0)

    @property
    def bounds(self) -> tuple[builtins.int, builtins.int]:
        """Least and greatest value of an integral or bool type; index is unbounded in principle.

        Examples:
            >>> dtypes.int8.bounds
            (-128, 127)
        """
        if self.kind == "bool":
            return 0, 1
        if self.kind == "uint":
            return 0, (1 << self.bits) - 1
        return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type of one element; index is int64.

        Examples:
            >>> dtypes.float32.numpy
            dtype('float32')
        """
        return _numpy_dtype(self.scalar.name)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The same as `numpy`. NumPy reads it where it takes a dtype.

        Examples:
            >>> dtypes.float32.dtype, np.zeros(2, dtypes.int16)
            (dtype('float32'), array([0, 0], dtype=int16))
        """
        return self.numpy

    def __eq__(self, other: object) -> builtins.bool:
        if self is other or isinstance(other, DType):
            return self is other
        if not isinstance(other, np.dtype | type | str):
            return NotImplemented
        return self is _spelled(other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return by_name, (self.short,)


# fmt: off
void: Final       = DType("void",     "void",     "void",  0)
bool_: Final      = DType("bool",     "bool",     "bool",  1)
index: Final      = DType("index",    "index",    "index", 64)
int8: Final       = DType("int8",     "i8",       "int",   8)
int16: Final      = DType("int16",    "i16",      "int",   16)
int32: Final      = DType("int32",    "i32",      "int",   32)
int64: Final      = DType("int64",    "i64",      "int",   64)
uint8: Final      = DType("uint8",    "u8",       "uint",  8)
uint16: Final     = DType("uint16",   "u16",      "uint",  16)
uint32: Final     = DType("uint32",   "u32",      "uint",  32)
uint64: Final     = DType("uint64",   "u64",      "uint",  64)
fp8e4m3: Final    = DType("fp8e4m3",  "fp8e4m3",  "float", 8)
fp8e5m2: Final    = DType("fp8e5m2",  "fp8e5m2",  "float", 8)
fp8e4m3fnuz: Final = DType("fp8e4m3fnuz", "fp8e4m3fnuz", "float", 8)
fp8e5m2fnuz: Final = DType("fp8e5m2fnuz", "fp8e5m2fnuz", "float", 8)
float16: Final    = DType("float16",  "f16",      "float", 16)
bfloat16: Final   = DType("bfloat16", "bf16",     "float", 16)
float32: Final    = DType("float32",  "f32",      "float", 32)
float64: Final    = DType("float64",  "f64",      "float", 64)
# Of arrays alone: graphs have pairs of floats in their place.
complex64: Final  = DType("complex64",  "c64",    "complex", 64)
complex128: Final = DType("complex128", "c128",   "complex", 128)
# fmt: on
# Functions take as a dtype one of these, its name, or one of NumPy's: `np.float64`, `"f8"`, the
# class `float`. A name that this module has means what it means here, see OF_C.
DTypeLike: TypeAlias = DType | np.dtype[Any] | type[Any] | str

ALL: Final = (
    void, bool_, index, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    fp8e4m3, fp8e5m2, fp8e4m3fnuz, fp8e5m2fnuz, float16, bfloat16, float32, float64,
)  # fmt: skip
ARRAY_TYPES: Final = tuple(t for t in ALL if t.kind not in ("void", "index"))
_PARTS: Final = {complex64: float32, complex128: float64}
_BY_NAME: Final = {t.short: t for t in (*ALL, *_PARTS)} | {t.name: t for t in (*ALL, *_PARTS)}
_ML_NAMES: Final = {
    "bfloat16": "bfloat16", "fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2",
    "fp8e4m3fnuz": "float8_e4m3fnuz", "fp8e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip

_FROM_ML_NAMES: Final = {theirs: own for own, theirs in _ML_NAMES.items()}


@functools.cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name in _ML_NAMES:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_NAMES[name]))
        return found
    return np.dtype("int64" if name == "index" else name)


def by_name(name: str) -> DType:
    """The type of a name: `f32`, `float32` or `f32x8`. UserTypeError when there is no such type.

    Examples:
        >>> dtypes.by_name("f32"), dtypes.by_name("uint8")
        (dtypes.float32, dtypes.uint8)
    """
    found = _BY_NAME.get(name)
    if found is not None:
        return found
    stem, _, lanes = str(name).rpartition("x")
    if not lanes.isdigit() or stem not in _BY_NAME:
        raise errors.UserTypeError(f"no dtype is named {name!r}; choose {_names(ALL)}")
    return _BY_NAME[stem].vec(builtins.int(lanes))


@functools.cache
def from_numpy(dtype: np.dtype[np.generic]) -> DType:
    """The type of a NumPy array's elements; UserTypeError when uopc has none.

    Examples:
        >>> dtypes.from_numpy(np.dtype("int16"))
        dtypes.int16
    """
    found = _BY_NAME.get(_FROM_ML_NAMES.get(dtype.name, dtype.name))
    if found in ARRAY_TYPES and found.numpy == dtype:
        return found
    raise errors.UserTypeError(f"no dtype for NumPy's {dtype}; there are {_names(ARRAY_TYPES)}")


def part_of(t: DType) -> DType:
    """The type of the real and of the imaginary part of a complex type.

    Examples:
        >>> dtypes.part_of(dtypes.complex64)
        dtypes.float32
    """
    return _PARTS[t]


def complex_of(t: DType) -> DType:
    """The complex type of parts of float64 or, of a narrower type, float32.

    Examples:
        >>> dtypes.complex_of(dtypes.float64)
        dtypes.complex128
    """
    return complex128 if t is float64 else complex64


@functools.cache
def _spelled(dtype: np.dtype[Any] | type[Any] | str) -> DType | None:
    """The type that one of NumPy's spellings names: `np.float64`, `"f8"`, `float`."""
    if isinstance(dtype, str) and dtype in _BY_NAME:
        return _BY_NAME[dtype]
    try:
        found = np.dtype(dtype)
        return _BY_NAME[found.name] if found.kind == "c" and found.isnative else from_numpy(found)
    except (TypeError, ValueError, SyntaxError, KeyError):  # NumPy's, of other strings
        return None


def _names(types: Iterable[DType]) -> str:
    return ", ".join([t.name for t in types])


@functools.cache
def promote(a: DType, b: DType) -> DType:
    """The common type of two operands, as NumPy promotes arrays; index gives way to integers.

    Examples:
        >>> dtypes.promote(dtypes.int8, dtypes.uint8), dtypes.promote(dtypes.int32, dtypes.float32)
        (dtypes.int16, dtypes.float64)
    """
    if a is b:
        return a
    if a.kind == "index" or b.kind == "index":
        other = b if a.kind == "index" else a
        return index if other is bool_ else other
    small = {a.name, b.name} & set(_ML_NAMES)
    if small and a.is_float and b.is_float:
        # Two different narrow floats meet in float32; a wider one wins.
        return max((a, b, float32), key=lambda t: t.bits) if a.bits < 64 > b.bits else float64
    if small:  # a narrow float with an integer or bool
        return a if a.is_float else b
    return from_numpy(np.promote_types(a.numpy, b.numpy))


@functools.cache
def accumulator(t: DType) -> DType:
    """The type in which a sum or product of `t` accumulates: of 32 bits at least.

    Examples:
        >>> dtypes.accumulator(dtypes.int8), dtypes.accumulator(dtypes.float16)
        (dtypes.int32, dtypes.float32)
    """
    if t.kind == "bool" or (t.kind == "int" and t.bits < 32):
        return int32
    if t.kind == "uint" and t.bits < 32:
        return uint32
    return float32 if t.is_float and t.bits < 32 else t


# The names of C. Some hide builtins, so that this module says `builtins.int`.
# fmt: off
bool: Final   = bool_
char: Final   = int8
short: Final  = int16
int: Final    = int32
long: Final   = int64
uchar: Final  = uint8
ushort: Final = uint16
uint: Final   = uint32
ulong: Final  = uint64
half: Final   = float16
float: Final  = float32
double: Final = float64
# fmt: on

OF_C: Final[dict[str, DType]] = {
    name: globals()[name]
    for name in ("bool", "char", "short", "int", "long", "uchar", "ushort", "uint", "ulong", "half",
                 "float", "double")
}  # fmt: skip
