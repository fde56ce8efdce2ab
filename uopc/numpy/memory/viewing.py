"""Results that share the memory of an Array, as NumPy's do: parts by keys, and functions that move
axes. Of UOps, and of NumPy's arrays, the functions give values as before."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from uopc.errors import UserError
from uopc.ir.builder import movement, rebuild
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.numpy.array import Array, arrays_in, index_of, same_kind
from uopc.numpy.memory.steps import ViewStep, shares_memory

F = TypeVar("F", bound=Callable[..., Any])


def owner_of(a: Array) -> Array:
    """The array whose memory this is."""
    return a if a.base is None else a.base


def viewed(a: Array, step: ViewStep) -> Array:
    """The part of an array that a step leads to: writes to either are seen by both."""
    owner = owner_of(a)
    made = Array(step.graph(a.uop), a.tracing)
    made.base, made.steps, made.version = owner, (*a.steps, step), owner.version
    return made


def view(function: F) -> F:
    """Make a function of the namespace, which moves axes, give views of Arrays. NumPy's function of
    its name does the same to NumPy's arrays."""
    made: F = _viewing(function, "")
    return made


def frozen_view(function: F) -> F:
    """Make views that nobody may write to: several of their elements are one."""
    made: F = _viewing(
        function, f"the result of {function.__name__} is read-only: write to a copy()"
    )
    return made


def _viewing(function: Any, frozen: str) -> Any:
    name = function.__name__

    @functools.wraps(function)
    def method(x: Any, *args: Any, **named: Any) -> Any:
        if not isinstance(x, Array):
            return function(x, *args, **named)

        def graph(u: UOp) -> Any:
            return function(u, *args, **named)

        def numpy(a: Any) -> Any:
            own = _NUMPY.get(name) or getattr(np, name)
            return own(a, *args, **named)

        return viewed(x, ViewStep((name, repr(args), repr(named)), graph, numpy, None, frozen))

    return method


_NUMPY: dict[str, Callable[..., Any]] = {
    "permute_dims": np.transpose, "matrix_transpose": lambda a: np.swapaxes(a, -1, -2),
}  # fmt: skip


def reshaped(
    x: Array, dims: tuple[Any, ...], order: str | None, graph: Callable[[UOp], UOp]
) -> Array:
    """Reshape an Array: a view where NumPy's reshape gives one, else a copy."""
    made = graph(x.uop)
    shared = shares_memory(owner_of(x).shape, x.steps, made.shape, order)
    if shared is False:
        return Array(made, x.tracing, x.weak)
    name = "reshape" if order in (None, "C") else "reshape by columns"

    def numpy(a: Any) -> Any:
        return a.reshape(dims, order=order or "C")

    view = viewed(x, ViewStep((name, made.shape), graph, numpy))
    if shared is None:
        view.steps = (*x.steps, ViewStep(name, _unsure, None, None, _UNSURE))
    return view


_UNSURE = (
    "whether reshape gives a view depends on sizes that only a call knows: write before the"
    " reshape, or reshape a copy()"
)


def _unsure(u: UOp) -> UOp:
    """Refuse to read a part anew whose array was written after it was made."""
    raise UserError(_UNSURE)


# ---------------------------------------------------------------- elements that a mask holds
# By `x[mask]`, a graph: x and the mask.
_compacted: weakref.WeakKeyDictionary[UOp, tuple[UOp, UOp]] = weakref.WeakKeyDictionary()


def in_place_of(value: UOp, mask: UOp) -> UOp | None:
    """The elements of a graph of `x[mask]`, at the places of x; None if it is not made of such
    elements of one mask by elementwise operations.

        x[mask] * 2 - y[mask]   →   x * 2 - y
    """
    return _in_place_of(value, mask, shapes.shape(value), {})


def _in_place_of(
    u: UOp, mask: UOp, dims: shapes.Shape, done: dict[UOp, UOp | None]
) -> UOp | None:
    if u in done:
        return done[u]
    known = _compacted.get(u)
    made: UOp | None = None
    if known is not None:
        made = known[0] if known[1] is mask else None
    elif u.op is Ops.EXPAND and all([d == 1 for d in shapes.shape(u.src[0])]):
        whole = (*shapes.shape(mask), *shapes.shape(u)[1:])
        scalar = movement.reshape(u.src[0], (1,) * len(whole))
        made = movement.expand(scalar, whole)
    elif not shapes.shape(u):
        made = u
    elif u.op in (Ops.EXPAND, Ops.RESHAPE) and _begins_alike(u, dims):
        inner = _in_place_of(u.src[0], mask, dims, done)
        if inner is not None:
            change = movement.expand if u.op is Ops.EXPAND else movement.reshape
            made = change(inner, (*shapes.shape(mask), *shapes.shape(u)[1:]))
    elif u.op.is_alu or u.op is Ops.CAST:
        sources = [_in_place_of(s, mask, dims, done) for s in u.src]
        if all([s is not None for s in sources]):
            made = rebuild.remake(u, tuple([s for s in sources if s is not None]))
    done[u] = made
    return made


def _begins_alike(u: UOp, dims: shapes.Shape) -> bool:
    """True if a node and its source have the same first dimension as the elements."""
    return all([shapes.shape(v)[:1] == dims[:1] for v in (u, u.src[0])])


# ---------------------------------------------------------------- keys
def parts_of(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def is_integer(k: Any) -> bool:
    """True for one integer, also for one that the graph computes."""
    if isinstance(k, (Array, UOp, np.ndarray)):
        return not k.ndim and k.dtype.kind in ("i", "u", "int", "uint", "index")
    return isinstance(k, (int, np.integer)) and not isinstance(k, (bool, np.bool_))


def gives_view(key: Any) -> bool:
    """True for a key of integers, slices, None and an ellipsis."""
    return all([
        k is None or k is Ellipsis or isinstance(k, slice) or is_integer(k) for k in parts_of(key)
    ])  # fmt: skip


def _bounds_of(k: Any) -> tuple[Any, ...]:
    return (k.start, k.stop, k.step) if isinstance(k, slice) else (k,)


def step_of(key: Any) -> ViewStep:
    """The step to `x[key]`, a view."""
    own = index_of(key)
    settled = tuple([
        int(k) if isinstance(k, (np.integer, np.ndarray)) else k for k in parts_of(own)
    ])  # fmt: skip
    computed = any([isinstance(bound, UOp) for k in settled for bound in _bounds_of(k)])

    def graph(u: UOp) -> UOp:
        made: UOp = u[settled]
        return made

    def numpy(a: Any) -> Any:  # a view even of one element
        whole = any([k is Ellipsis for k in settled])
        return a[settled if whole else (*settled, Ellipsis)]

    name = ("[]", *[(type(k).__name__, str(k) if isinstance(k, slice) else k) for k in settled])
    return ViewStep(name, graph, None if computed else numpy, settled)


def getitem(a: Array, key: Any) -> Any:
    """`x[key]`: a view for a key of integers, slices, None and an ellipsis; else a new array. An
    element by integers alone is a number, which shares nothing.

    UserIndexError for a known index out of range.
    """
    if isinstance(key, Array) and key.dtype is dtypes.bool_ and not key.ndim:
        return getitem(getitem(a, None), getitem(key, None))
    if not gives_view(key):
        found = a.uop[index_of(key)]
        if isinstance(key, Array) and key.dtype is dtypes.bool_:
            _compacted[found] = a.uop, key.uop
        return same_kind(found, (a, *arrays_in(key)))
    made = viewed(a, step_of(key))
    if made.ndim or any([k is Ellipsis for k in parts_of(key)]):
        return made
    return same_kind(made.uop, (a, *arrays_in(key)))
