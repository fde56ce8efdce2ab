"""What one node computes from the arrays of its operands: shared by every level's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from uopc.errors import InvalidIR, Unsupported, UserError, UserTypeError
from uopc.ir.core import analysis, dtypes, semantics
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.index import affine

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

Array = npt.NDArray[Any]
STORAGE = frozenset((Ops.PARAM, Ops.BUFFER, Ops.DATA))


# ---------------------------------------------------------------- walking
def operands(u: UOp) -> tuple[UOp, ...]:
    """The sources that belong to the same graph: the body of a CALL is a graph of its own."""
    return u.src[1:] if u.op is Ops.CALL else u.src


def order(
    roots: Iterable[UOp],
    sources: Callable[[UOp], Sequence[UOp]] = operands,
    stop: Callable[[UOp], bool] = lambda u: False,
) -> list[UOp]:
    """Every node below the roots, sources first; what is below a node that stops is left out."""
    done: dict[UOp, None] = {}
    for root in roots:
        stack: list[tuple[UOp, bool]] = [(root, False)]
        while stack:
            u, ready = stack.pop()
            if u in done:
                continue
            if ready or stop(u):
                done[u] = None
                continue
            stack.append((u, True))
            stack.extend([(s, False) for s in reversed(sources(u)) if s not in done])
    return list(done)


# ---------------------------------------------------------------- values
def apply(u: UOp, sources: Sequence[Array]) -> Array:
    """The value of an elementwise node, a CAST or a BITCAST, given the values of its sources."""
    if u.op is Ops.CAST:
        return np.asarray(semantics.cast(sources[0], u.src[0].dtype, u.dtype))
    if u.op is Ops.BITCAST:
        return bitcast(sources[0], u.dtype.numpy)
    assert u.op.evaluate is not None
    if any(s.op is Ops.INVALID for s in u.src):
        sources = _without_invalid(u, sources)
    return np.asarray(u.op.evaluate(*sources)).astype(u.dtype.numpy, copy=False)


def _without_invalid(u: UOp, sources: Sequence[Array]) -> list[Array]:
    """INVALID may stand beside any dtype: its placeholder takes the dtype of the other operand."""
    typed = [s.dtype for s in u.src[u.op is Ops.WHERE :] if s.op is not Ops.INVALID]
    t = typed[0].numpy if typed else u.dtype.numpy
    return [a.astype(t) if s.op is Ops.INVALID else a for s, a in zip(u.src, sources)]


def present(u: UOp, masks: Sequence[Array | None], condition: Array) -> Array | None:
    """Which elements of an elementwise node exist, given which of its operands' do (None: all).

    Arithmetic on a missing element is missing; WHERE looks only at what its `condition` picks.
    """
    if all(m is None for m in masks):
        return None
    known = [np.True_ if m is None else m for m in masks]
    if u.op is Ops.WHERE:
        return np.asarray(known[0] & np.where(condition, known[1], known[2]))
    out = np.asarray(known[0])
    for m in known[1:]:
        out = out & m
    return out


def bitcast(a: Array, dtype: np.dtype[Any]) -> Array:
    """The bytes of `a` read as another type; the last dimension takes up a change of item size."""
    if a.ndim == 0:
        return np.asarray(a).reshape(1).view(dtype).reshape(())
    if a.size == 0:
        length = a.shape[-1] * a.dtype.itemsize // dtype.itemsize
        return np.zeros((*a.shape[:-1], length), dtype)
    return np.ascontiguousarray(a).view(dtype)


def fold(op: str, a: Array, axes: Sequence[int], dtype: DType) -> Array:
    """Combine the elements along `axes` in pairs, halves with halves, in the dtype of `a`; narrow
    floats in float32, converted at the end as by CAST."""
    if dtype.is_float and dtype.bits < 32:
        wide = fold(op, a.astype(np.float32), axes, dtypes.float32)
        return semantics.cast(wide, dtypes.float32, dtype)
    axes = [axis % a.ndim for axis in axes]
    kept = [i for i in range(a.ndim) if i not in axes]
    dims = [a.shape[i] for i in kept]
    count = int(np.prod([a.shape[i] for i in axes], dtype=np.int64))
    if count == 0 or 0 in dims:
        return np.full(dims, identity(op, dtype))
    rest = np.ascontiguousarray(a.transpose([*axes, *kept])).reshape(count, *dims)
    combine = Op.by_name(op).evaluate
    assert combine is not None
    while len(rest) > 1:
        half = len(rest) // 2
        odd = rest[2 * half :]
        rest = np.asarray(combine(rest[:half], rest[half : 2 * half])).astype(dtype.numpy)
        rest = np.concatenate([rest, odd]) if len(odd) else rest
    return np.asarray(rest[0])


def identity(op: str, dtype: DType) -> Array:
    """What a reduction over nothing gives, as a 0-d array of the dtype."""
    return np.asarray(semantics.reduce_identity(op, dtype.scalar), dtype.numpy)


def undefined(dtype: DType, dims: Sequence[int]) -> Array:
    """Storage that nothing was written to: values that show when they are used."""
    if dtype.is_float:
        return np.full(dims, np.nan, np.float32).astype(dtype.numpy)
    return np.full(dims, dtype.bounds[1] if dtype.kind != "index" else -1, dtype.numpy)


# ---------------------------------------------------------------- variables
class Variables:
    """The values of named integers: given by the caller, or found in the shapes of arrays."""

    def __init__(self, given: Mapping[str, int]) -> None:
        self._values = dict(given)

    def __getitem__(self, u: UOp) -> int:
        """The value of a VARIABLE; UserError when it has none or is out of its bounds."""
        name, low, high = u.arg.name, u.arg.low, u.arg.high
        if name not in self._values:
            raise UserError(f"variable {name} has no value: pass it, or an array with it as a size")
        value = int(self._values[name])
        if not low <= value <= high:
            raise UserError(f"variable {name} = {value} is outside of {low}..{high}")
        return value

    def copy(self) -> Variables:
        return Variables(self._values)

    def bind(self, name: str, value: int) -> None:
        """Give a variable its value; UserError when it has another one already."""
        if self._values.setdefault(name, value) != value:
            raise UserError(f"variable {name} is both {self._values[name]} and {value}")

    def solve(self, storage: UOp, array: Array) -> None:
        """Bind the variables that stand alone in a dimension (`n`, `2*n + 1`) of a storage."""
        dims = analysis.filled(storage.arg.dims, storage.src)
        if len(dims) != array.ndim:
            raise UserError(
                f"{name_of(storage)}: expected {len(dims)} dimensions {analysis.show(dims)},"
                f" got shape {array.shape}"
            )
        for d, got in zip(dims, array.shape):
            if isinstance(d, int):
                continue
            constant, terms = affine.form(d)
            (atom, factor), *others = terms.items()
            if not others and atom.op is Ops.VARIABLE and (got - constant) % factor == 0:
                self.bind(atom.arg.name, (got - constant) // factor)


def name_of(storage: UOp) -> str:
    """What the caller calls a storage."""
    if storage.op is Ops.PARAM:
        return str(storage.arg.name)
    return f"buffer {storage.arg.slot}" if storage.op is Ops.BUFFER else "constant array"


def check_array(storage: UOp, array: Array, dims: Sequence[int] | None = None) -> None:
    """UserError when an array has not the dtype (and, where given, the shape) of a storage."""
    if not isinstance(array, np.ndarray):
        raise UserTypeError(f"{name_of(storage)}: expected an array, got {type(array).__name__}")
    if array.dtype != storage.dtype.numpy:
        raise UserTypeError(
            f"{name_of(storage)}: expected dtype {storage.dtype.name}, got {array.dtype}"
        )
    if dims is not None and array.shape != tuple(dims):
        raise UserError(f"{name_of(storage)}: expected shape {tuple(dims)}, got {array.shape}")


def unsupported(u: UOp) -> Unsupported:
    return Unsupported(f"the interpreter does not run {u.op!r} yet")


def misplaced(u: UOp, level: str) -> InvalidIR:
    return InvalidIR(f"{u.op!r} has no meaning at level {level}")
