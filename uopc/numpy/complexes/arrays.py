"""ComplexArray: an Array of complex numbers, which has a real and an imaginary part.

    z: complex128(3)   =   re: float64(3), im: float64(3)   in memory   pairs: float64(3, 2)

The parts are Arrays, so that indices, updates and functions of elements are those of real numbers.
Programs read and write the pairs, NumPy's own layout.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uopc.errors import UserTypeError
from uopc.ir.builder import fold, leaves, operands
from uopc.ir.builder.pytrees import Pairs
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp
from uopc.numpy.array import Array, Trace, same_kind, uop_of
from uopc.numpy.memory import viewing
from uopc.tensor import updates


class ComplexArray(Array):
    """An Array of complex64 or complex128. `re` and `im` are its parts, of one shape and dtype.

    Examples:
        >>> z = unp.asarray([3 + 4j])
        >>> z.dtype, np.asarray(abs(z)), np.asarray(z.imag)
        (dtypes.complex128, array([5.]), array([4.]))
    """

    __slots__ = ("im", "pairs", "re")

    def __init__(self, re: Array, im: Array, pairs: Array | None = None) -> None:
        super().__init__(re.uop, re.tracing or im.tracing, re.weak and im.weak)
        self.re, self.im, self.pairs = re, im, pairs
        self.held = re.held

    @classmethod
    def of_array(cls, pairs: Array) -> ComplexArray:
        """The array whose numbers are pairs in the last axis of another; its parts are views."""
        re, im = (viewing.viewed(pairs, viewing.step_of((..., i))) for i in (0, 1))
        re.weak = im.weak = pairs.weak
        made = cls(re, im, pairs)
        made.held = pairs.held
        return made

    @classmethod
    def of_pairs(cls, pairs: UOp, trace: Trace | None = None) -> ComplexArray:
        """The array whose numbers are pairs in the last axis of a graph."""
        re, im = (Array(pairs[..., i], trace) for i in (0, 1))
        return cls(re, im, Array(pairs, trace))

    # ------------------------------------------------------------ facts
    @property
    def is_complex(self) -> bool:
        return True

    @property
    def uop(self) -> UOp:
        """The graph of the pairs."""
        views = self.pairs is not None and self.re.base is self.pairs
        if self.pairs is not None and (views or not (self.re.version or self.im.version)):
            return self.pairs.uop
        return self.re.uop.stack(self.im.uop, axis=-1)

    @property
    def leaf(self) -> Pairs:
        """The array as `compile` takes it: pairs that are complex numbers."""
        return Pairs(self.uop)

    @property
    def is_unknown(self) -> bool:
        return self.re.is_unknown or self.im.is_unknown

    @property
    def dtype(self) -> DType:
        return dtypes.complex_of(self.re.dtype)

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.re.shape

    # ------------------------------------------------------------ values and parts
    def value(self, who: str = "its value") -> npt.NDArray[Any]:
        if self.tracing is not None:
            return super().value(who)
        pairs = np.ascontiguousarray(Array(self.uop).value(who))
        found: npt.NDArray[Any] = pairs.view(self.dtype.numpy)[..., 0]
        self._value = found
        return found

    @property
    def real(self) -> Any:
        return self.re

    @property
    def imag(self) -> Any:
        return self.im

    def __copy__(self) -> ComplexArray:
        return ComplexArray(self.re.__copy__(), self.im.__copy__())

    # ------------------------------------------------------------ indexing
    def __getitem__(self, key: Any) -> ComplexArray:
        return ComplexArray(self.re[key], self.im[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        known = isinstance(value, (bool, int, float, complex, Array, np.ndarray, np.generic))
        given = value if known else np.asarray(value)
        re, im = real_of(given), imag_of(given)  # both before a part is written
        if isinstance(given, ComplexArray):
            re, im = (p.__copy__() for p in (re, im))
        self.re[key], self.im[key] = re, im

    @property
    def at(self) -> updates.Indexed[Array]:
        def updated(key: Any, how: str, value: Any) -> Array:
            if how not in ("set", "add"):
                raise UserTypeError(f"at[...].{how} of complex numbers: write set or add")
            re, im = parts_of(value, dtypes.part_of(self.dtype), "at")
            both = (self.re, re), (self.im, re * 0 if im is None else im)
            return ComplexArray(*[getattr(a.at[key], how)(Array(v, trace_of_value(value)))
                                  for a, v in both])  # fmt: skip

        return updates.Indexed(updated)


def array_dtype(t: np.dtype[Any]) -> DType:
    """The dtype of an array of NumPy; UserTypeError if uopc has none."""
    if t.kind == "c" and t.isnative and t.itemsize <= 16:
        return dtypes.by_name(t.name)
    return dtypes.from_numpy(t)


def constant(value: Any) -> ComplexArray:
    """The array of complex numbers that are known."""
    found = np.asarray(value)
    part = dtypes.part_of(array_dtype(found.dtype))
    return made(parts_of(found, part), ())


def trace_of_value(value: Any) -> Trace | None:
    return value.tracing if isinstance(value, Array) else None


# ---------------------------------------------------------------- parts
class ComplexParts(NamedTuple):
    """The parts of a complex number; `im` is None for a real one, whose second part is 0."""

    re: UOp
    im: UOp | None

    @property
    def imaginary(self) -> UOp:
        """The second part, as a graph also where it is 0."""
        return leaves.const_like(self.re, 0) if self.im is None else self.im


def is_complex(value: Any) -> bool:
    """True for a complex number or an array of such."""
    if isinstance(value, Array):
        return value.is_complex
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind == "c"
    return isinstance(value, complex)


def parts_of(value: Any, part: DType, who: str = "") -> ComplexParts:
    """The parts of a value, in the dtype of a part."""
    if isinstance(value, ComplexArray):
        return ComplexParts(fold.cast(value.re.uop, part), fold.cast(value.im.uop, part))
    if type(value) is complex:
        return ComplexParts(leaves.const(part, value.real), leaves.const(part, value.imag))
    if is_complex(value):
        found = np.asarray(value)
        made = [fold.cast(operands.constant(p.copy()), part) for p in (found.real, found.imag)]
        return ComplexParts(*made)
    if type(value) in (bool, int, float):
        return ComplexParts(leaves.const(part, float(value)), None)
    return ComplexParts(fold.cast(uop_of(value, who), part), None)


def real_of(value: Any) -> Any:
    """The real part of a value of any kind."""
    if isinstance(value, ComplexArray):
        return value.re
    if isinstance(value, (np.ndarray, np.generic, complex)):
        return value.real.copy() if isinstance(value, np.ndarray) else value.real
    return value


def imag_of(value: Any) -> Any:
    """The imaginary part of a value of any kind; a number 0 for a real one."""
    if isinstance(value, ComplexArray):
        return value.im
    if isinstance(value, (np.ndarray, np.generic, complex)):
        return value.imag.copy() if isinstance(value, np.ndarray) else value.imag
    return 0.0


def dtype_of(values: Iterable[Any]) -> DType:
    """The complex dtype that values promote to, some of which are complex. Python's numbers do not
    widen an array's dtype; integers of 32 bits or more need complex128."""
    strong: list[np.dtype[Any]] = []
    for v in values:
        if isinstance(v, DType):
            strong.append(_numpy_dtype(v))
        elif isinstance(v, (Array, UOp)):
            if not getattr(v, "weak", False):
                strong.append(_numpy_dtype(v.dtype))
        elif type(v) not in (bool, int, float, complex):
            strong.append(np.asarray(v).dtype)
    if not strong:
        return dtypes.complex128
    common = functools.reduce(np.promote_types, strong)
    if common.kind not in "fc":  # of a complex number of Python's with integers
        return dtypes.complex128
    wide = np.promote_types(common, np.complex64) == np.complex128
    return dtypes.complex128 if wide else dtypes.complex64


def _numpy_dtype(t: DType) -> np.dtype[Any]:
    small = t.is_float and t.bits < 32
    return np.dtype(np.float32) if small else t.numpy


def made(parts: ComplexParts, values: Iterable[Any], weak: bool = False) -> ComplexArray:
    """The array of two parts, which broadcast, made of these values."""
    re, im = parts.re, parts.imaginary
    if shapes.shape(re) != shapes.shape(im):
        dims = shapes.broadcast([shapes.shape(re), shapes.shape(im)])
        re, im = re.expand(dims), im.expand(dims)
    given = list(values)
    first, second = (same_kind(p, given, weak) for p in (re, im))
    if isinstance(first, Array):
        return ComplexArray(first, second)
    return ComplexArray(Array(first), Array(second))
