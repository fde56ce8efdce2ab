"""The values of a model while it is read: arrays that are known, nodes of the graph, and others.

| a value | is |
| --- | --- |
| computed when the program runs | a UOp |
| known now | an array of NumPy: small constants, shapes, what follows from them |
| a shape with symbolic sizes | an array of objects: ints and UOps |
| a sequence | a list |
| left out | None |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported, UserError
from uopc.ir.core import shapes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

Array = npt.NDArray[Any]
# The most elements of a value that is computed while the model is read.
MOST_KNOWN = 1 << 12

# The dtypes of ONNX that uopc has, by their numbers in TensorProto.
DTYPES: dict[int, DType] = {
    1: dtypes.float32, 2: dtypes.uint8, 3: dtypes.int8, 4: dtypes.uint16, 5: dtypes.int16,
    6: dtypes.int32, 7: dtypes.int64, 9: dtypes.bool_, 10: dtypes.float16, 11: dtypes.float64,
    12: dtypes.uint32, 13: dtypes.uint64, 16: dtypes.bfloat16, 17: dtypes.fp8e4m3,
    18: dtypes.fp8e4m3fnuz, 19: dtypes.fp8e5m2, 20: dtypes.fp8e5m2fnuz,
}  # fmt: skip
_NAMES = {
    8: "string", 14: "complex64", 15: "complex128", 23: "float4e2m1", 24: "float8e8m0",
}  # fmt: skip
# Integers of few bits are held in bytes: their numbers, the bits, and whether they have a sign.
NARROW = {21: (4, False), 22: (4, True), 25: (2, False), 26: (2, True)}


@dataclass(frozen=True)
class Narrow:
    """A tensor of integers of few bits: the bytes that hold them, and the number of the type."""

    bytes: UOp
    number: int


def narrow_of(v: Any) -> int | None:
    """The number of the type of a tensor of few bits; None for others."""
    if isinstance(v, Narrow):
        return v.number
    names = {"uint4": 21, "int4": 22, "uint2": 25, "int2": 26}
    return names.get(v.dtype.name) if isinstance(v, np.ndarray) else None


def holder(number: int) -> DType:
    """The dtype of the bytes that hold a type of few bits."""
    return dtypes.int8 if NARROW[number][1] else dtypes.uint8


def dtype_of(number: int) -> DType:
    """The dtype of a number of TensorProto; Unsupported for strings, complex and sub-byte types."""
    found = DTYPES.get(number)
    if found is None:
        raise Unsupported(f"the ONNX type {_NAMES.get(number, number)}")
    return found


def is_known(v: Any) -> bool:
    """True for what is an array now, with or without symbolic sizes, and for what is left out."""
    if isinstance(v, list):
        return all([is_known(x) for x in v])
    return v is None or isinstance(v, np.ndarray)


def has_symbols(v: Any) -> bool:
    """True for a shape with symbolic sizes."""
    if not (isinstance(v, np.ndarray) and v.dtype == object):
        return False
    return any([isinstance(x, UOp) for x in v.reshape(-1)])


def objects(values: Sequence[Any]) -> Array:
    """An array of objects, each of which stays as it is."""
    found = np.empty(len(values), object)
    for i, v in enumerate(values):
        found[i] = v
    return found


def lifted(v: Any) -> UOp:
    """A value as a node."""
    if isinstance(v, (UOp, Narrow)):
        return v if isinstance(v, UOp) else v.bytes
    number = narrow_of(v)
    if number is not None:
        return uopc.constant(v.astype(holder(number).numpy))
    if not isinstance(v, np.ndarray):
        raise UserError(f"a tensor expected, got {'a sequence' if isinstance(v, list) else v!r}")
    if has_symbols(v):
        parts = [
            x.cast(dtypes.int64) if isinstance(x, UOp) else uopc.constant(int(x), dtypes.int64)
            for x in v.reshape(-1)
        ]
        return parts[0] if v.ndim == 0 else uopc.stack(*parts).reshape(v.shape)
    if v.dtype.kind in "USOc":  # strings may be objects
        raise Unsupported(f"tensors of {v.dtype}")
    if v.size and v.dtype.kind in "biuf" and _is_one_number(v):
        return uopc.full(v.shape, v.flat[0].item(), dtypes.from_numpy(v.dtype))
    return uopc.constant(v)


def _is_one_number(v: Array) -> bool:
    if v.size > MOST_KNOWN:
        return False
    return len({x.tobytes() for x in v.reshape(-1)}) == 1 and not (v != v).any()


def settled(v: Any) -> Any:
    """A result: its array if it is small and hangs on no input, else as it is."""
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
    """The names of the params that a value hangs on."""
    if not isinstance(v, UOp):
        return []
    return [u.arg.name for u in walk.nodes(v) if u.op is Ops.PARAM]
