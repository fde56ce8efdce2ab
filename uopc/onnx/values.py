"""The values of a model while it is read: arrays that are known, nodes of the graph, and others.

| a value | is |
| --- | --- |
| computed when the program runs | a UOp |
| known now | an array of NumPy: small constants, shapes, what follows from them |
| a shape with symbolic sizes | an array of objects: ints and UOps, see `sizes_of` |
| strings that are known | an array of strings |
| strings that are chosen when the program runs | `Labels` |
| a type of few bits | `Narrow` |
| a sequence | a list |
| a sequence of maps with the same keys | `Maps` |
| left out | None |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported, UserError
from uopc.ir.core import shapes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.index import monomials
from uopc.ir.interpret import interpreter
from uopc.ir.records import dataclass
from uopc.onnx.narrow import Narrow, holder, narrow_of

Array = npt.NDArray[Any]
# The most elements of a value that is computed while the model is read.
MOST_KNOWN = 1 << 12
# The most characters of an array of strings.
MOST_CHARACTERS = 1 << 24

# The dtypes of ONNX that uopc has, by their numbers in TensorProto.
DTYPES: dict[int, DType] = {
    1: dtypes.float32, 2: dtypes.uint8, 3: dtypes.int8, 4: dtypes.uint16, 5: dtypes.int16,
    6: dtypes.int32, 7: dtypes.int64, 9: dtypes.bool_, 10: dtypes.float16, 11: dtypes.float64,
    12: dtypes.uint32, 13: dtypes.uint64, 16: dtypes.bfloat16, 17: dtypes.fp8e4m3,
    18: dtypes.fp8e4m3fnuz, 19: dtypes.fp8e5m2, 20: dtypes.fp8e5m2fnuz,
}  # fmt: skip
STRING = 8
_NAMES = {STRING: "string", 14: "complex64", 15: "complex128"}


@dataclass(frozen=True)
class Labels:
    """Strings chosen by the program: `texts[index]`."""

    index: UOp
    texts: Array


@dataclass(frozen=True)
class Maps:
    """Maps with the same keys, a map for each row of `values`."""

    values: UOp
    keys: list[Any]


def dtype_of(number: int) -> DType:
    """The dtype of a TensorProto number; Unsupported for strings and complex numbers."""
    found = DTYPES.get(number)
    if found is None:
        raise Unsupported(f"the ONNX type {_NAMES.get(number, number)} is not supported")
    return found


def is_known(v: Any) -> bool:
    """True for an array, with or without symbolic sizes, and for a value that is left out."""
    if isinstance(v, list):
        return all([is_known(x) for x in v])
    return v is None or isinstance(v, np.ndarray)


def is_text(v: Any) -> bool:
    """True for known strings, which `texts` makes."""
    return isinstance(v, np.ndarray) and v.dtype.kind == "U"


def texts(values: Sequence[str], shape: Sequence[int]) -> Array:
    """Make an array of strings, each as wide as the longest. UserError if it would be huge."""
    longest = max(map(len, values), default=0)
    if len(values) * longest > MOST_CHARACTERS:
        raise UserError(f"{len(values)} strings of up to {longest} characters are too many")
    return np.asarray(values, np.str_).reshape(shape)


def given(v: Any) -> Any:
    """Convert the caller's value for an input to an array (of strings by `texts`), or to a list."""
    if v is None:
        return None
    if isinstance(v, (list, tuple)):
        return [given(x) for x in v]
    found = np.asarray(v)
    if found.dtype.kind not in "OS":
        return found
    flat = [x.decode(errors="replace") if isinstance(x, bytes) else x for x in found.flat]
    if not all([isinstance(x, str) for x in flat]):
        raise UserError("an array of objects must have strings only")
    return texts(flat, found.shape)


def has_symbols(v: Any) -> bool:
    """True for a shape with symbolic sizes."""
    if not (isinstance(v, np.ndarray) and v.dtype == object):
        return False
    return any([isinstance(x, UOp) for x in v.reshape(-1)])


def objects(values: Sequence[Any]) -> Array:
    """Make an array of objects without converting the elements."""
    found = np.empty(len(values), object)
    for i, v in enumerate(values):
        found[i] = v
    return found


def sizes_of(numbers: Sequence[Any], shape: tuple[int, ...], dtype: DType) -> Array:
    """Make an array of whole numbers, ints and nodes of dtype index, which the dtype can hold.

    If an element is a node, the array has objects: for int64 the numbers unchanged, for another
    dtype nodes of this dtype. Otherwise the array has the dtype.
    """
    if not any([isinstance(x, UOp) for x in numbers]):
        return np.asarray(numbers, dtype.numpy).reshape(shape)
    if dtype is dtypes.int64:
        return objects(numbers).reshape(shape)
    made = [_of_dtype(x, dtype) for x in numbers]
    return objects(made).reshape(shape)


def _of_dtype(x: Any, dtype: DType) -> UOp:
    if not isinstance(x, UOp):
        return uopc.constant(bool(x) if dtype is dtypes.bool_ else x, dtype)
    return x.src[0] if dtype is dtypes.bool_ and monomials.is_condition(x) else x.cast(dtype)


def dtype_of_sizes(v: Array) -> DType:
    """The dtype of an array with symbolic sizes."""
    found = [x.dtype for x in v.reshape(-1) if isinstance(x, UOp)]
    return dtypes.int64 if found[0] is dtypes.index else found[0]


def as_size(x: Any) -> Any:
    """Convert an element of an array of sizes to an int or to a node of dtype index."""
    if not isinstance(x, UOp):
        return int(x)
    if x.op is Ops.CAST and x.src[0].dtype is dtypes.index:
        return x.src[0]
    return int(x.arg) if x.op is Ops.CONST else x.cast(dtypes.index)


def lifted(v: Any) -> UOp:
    """Convert a value to a node."""
    if isinstance(v, (UOp, Narrow)):
        return v if isinstance(v, UOp) else v.held
    number = narrow_of(v)
    if number is not None:
        return uopc.constant(v.astype(holder(number).numpy))
    if isinstance(v, (Labels, Maps)):
        raise Unsupported("the operator takes no strings or maps that the program computes")
    if not isinstance(v, np.ndarray):
        raise UserError(f"expected a tensor, got {'a sequence' if isinstance(v, list) else v!r}")
    if has_symbols(v):
        t = dtype_of_sizes(v)
        parts = [
            x.cast(t) if isinstance(x, UOp) else uopc.constant(int(x), t) for x in v.reshape(-1)
        ]
        return parts[0] if v.ndim == 0 else uopc.stack(*parts).reshape(v.shape)
    if v.dtype.kind in "UOc":
        raise Unsupported(
            "the operator takes no strings" if is_text(v) else f"dtype {v.dtype} is not supported"
        )
    if v.size and v.dtype.kind in "biuf" and _is_one_number(v):
        return uopc.full(v.shape, v.flat[0].item(), dtypes.from_numpy(v.dtype))
    return uopc.constant(v)


def _is_one_number(v: Array) -> bool:
    if v.size > MOST_KNOWN:
        return False
    each = np.ascontiguousarray(v).reshape(v.size, 1).view(np.uint8)
    return bool((each == each[0]).all()) and not (v != v).any()


def settled(v: Any) -> Any:
    """Evaluate a result that is small and depends on no input; return others unchanged."""
    if isinstance(v, (list, tuple)):
        return [settled(x) for x in v]
    if not isinstance(v, UOp):
        return v
    dims = shapes.shape(v)
    if not all([isinstance(d, int) for d in dims]) or math.prod(dims) > MOST_KNOWN:
        return v
    for u in walk.nodes(v):
        if u.op in (Ops.PARAM, Ops.VARIABLE, Ops.BUFFER):
            return v
    return np.asarray(interpreter.evaluate(v, {}))


def params_of(v: Any) -> list[str]:
    """The names of the params that a value depends on."""
    if not isinstance(v, UOp):
        return []
    return [u.arg.name for u in walk.inputs(v)]
