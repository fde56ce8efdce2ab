"""Arrays that a traced function makes by NumPy itself: their numbers are known, so Python may
branch on them and index by them, until the first write of a traced value.

    r = np.zeros(3)     the numbers are NumPy's
    v = r[1:]           a view of them
    r[0] = x            from here on r is a graph, and so is v
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.ir.builder import leaves, operands
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp
from uopc.numpy.array import Array
from uopc.numpy.memory import viewing, writing
from uopc.numpy.protocols import INSTALLED

Numbers = npt.NDArray[Any]


class KnownArray(Array):
    """An Array whose base holds NumPy's numbers, as long as nobody writes a traced value to it."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: Numbers) -> None:
        super().__init__(_PLACEHOLDER)
        self.numbers: Numbers | None = numbers  # of the base, and of each view, which shares them
        self.version = -1  # less by 1 for each write of known numbers

    @property
    def known(self) -> Numbers | None:
        """NumPy's array of the numbers, if they are known."""
        owner = self if self.base is None else self.base
        return self.numbers if isinstance(owner, KnownArray) and owner.numbers is not None else None

    @property
    def uop(self) -> UOp:
        """The graph: a constant as long as the numbers are known."""
        found = self.known
        if found is None:
            return super().uop
        return _constant(found)

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        found = self.known
        return super().dtype if found is None else dtypes.from_numpy(found.dtype)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The dimensions."""
        found = self.known
        return super().shape if found is None else found.shape

    @property
    def is_unknown(self) -> bool:
        """True from the first write of a traced value on."""
        return self.known is None and super().is_unknown

    def value(self, who: str = "its value") -> Numbers:
        """The numbers. UserTypeError after a write of a traced value."""
        found = self.known
        return super().value(who) if found is None else found

    def _promote(self) -> None:
        """Make the base and all of its views graphs."""
        owner = viewing.owner_of(self)
        if isinstance(owner, KnownArray) and owner.numbers is not None:
            owner._uop = _constant(owner.numbers)
            owner.numbers, owner.version = None, 1

    def __repr__(self) -> str:
        found = self.known
        return super().__repr__() if found is None else repr(found)


_PLACEHOLDER = leaves.const(dtypes.float64, 0.0)


def _constant(numbers: Numbers) -> UOp:
    """A constant graph; one number repeated has no data."""
    first = numbers.ravel()[:1]
    if numbers.size > 1 and (numbers == first).all() and not np.signbit(first).any():
        number = leaves.const(dtypes.from_numpy(first.dtype), first.item())
        return leaves.full(number, numbers.shape)
    return operands.constant(np.array(numbers))


def captured_array(numbers: Numbers) -> Any:
    """An array of NumPy's from outside of the function, which the function may read by a traced
    place, and may not write. NumPy's functions see its memory."""
    if numbers.dtype.kind not in "biuf":
        return numbers
    made = KnownArray(numbers)
    made.held, made.born = True, -1
    return made


def wrapped(found: Any) -> Any:
    """Results of NumPy: arrays as known Arrays, NumPy's scalars as they are."""
    if type(found) in (tuple, list):
        return type(found)([wrapped(v) for v in found])
    if type(found) is np.ndarray and found.dtype.kind in "biuf":
        made = KnownArray(found)
        made.held = True
        return made
    return found


def all_known(tree: Any) -> bool:
    """True if nothing in nested arguments is of a graph."""
    if isinstance(tree, Array):
        return isinstance(tree, KnownArray) and tree.known is not None
    if isinstance(tree, UOp):
        return False
    if isinstance(tree, dict):
        return all([all_known(v) for v in tree.values()])
    if isinstance(tree, (tuple, list)):
        return all([all_known(v) for v in tree])
    if isinstance(tree, slice):
        return all_known((tree.start, tree.stop, tree.step))
    return True


def unwrapped(tree: Any) -> Any:
    """Nested arguments with NumPy's arrays in place of known Arrays."""
    if isinstance(tree, KnownArray):
        found = tree.known
        return tree if found is None else found
    if type(tree) in (tuple, list):
        return type(tree)([unwrapped(v) for v in tree])
    if type(tree) is dict:
        return {k: unwrapped(v) for k, v in tree.items()}
    if isinstance(tree, slice):
        return slice(*[unwrapped(v) for v in (tree.start, tree.stop, tree.step)])
    return tree


def by_numpy(call: Callable[..., Any], args: Any, options: Any) -> Any:
    """Call a function of NumPy on known arguments. A result that shares the memory of the first
    one is a view of it, and becomes a graph with it."""
    with np.errstate(all="ignore"):
        found = call(*unwrapped(args), **unwrapped(options))
    out = options.get("out")
    out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if out is not None:
        _touched(out)
        return out
    first = args[0] if args and isinstance(args[0], KnownArray) else None
    if first is None or not isinstance(found, (np.ndarray, list, tuple)):
        return wrapped(found)
    parts = found if isinstance(found, (list, tuple)) else [found]
    numbers = first.known
    shared = [isinstance(p, np.ndarray) and np.may_share_memory(p, numbers) for p in parts]
    if not any(shared):
        return wrapped(found)
    graphs = call(Array(_constant(np.array(numbers))), *args[1:], **options)
    rows = graphs if isinstance(graphs, (list, tuple)) else [graphs]
    made = [_as_view(first, p, g) if s else wrapped(p) for p, g, s in zip(parts, rows, shared)]
    return type(found)(made) if isinstance(found, (list, tuple)) else made[0]


def _as_view(first: KnownArray, numbers: Numbers, graph: Array) -> KnownArray:
    made = KnownArray(numbers)
    made.held = True
    if graph.base is not None:
        made.base, made.steps = viewing.owner_of(first), (*first.steps, *graph.steps)
    return made


def _touched(*written: Any) -> None:
    """Note that NumPy has written the numbers: parts that are graphs read them anew."""
    for a in written:
        if isinstance(a, KnownArray):
            owner = viewing.owner_of(a)
            owner.version -= 1


def _method(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method of known Arrays, computed by NumPy where all operands are known."""
    writes = name in ("sort", "fill", "put")

    @functools.wraps(method)
    def called(a: Any, *args: Any, **named: Any) -> Any:
        if not all_known((a, args, named)):
            return method(a, *unwrapped(args), **named)
        found = by_numpy(lambda v, *w, **k: getattr(v, name)(*w, **k), (a, *args), named)
        if writes:
            _touched(a)
        return found

    return called


def _property(name: str, own: property) -> property:
    def read(a: Any) -> Any:
        if a.known is None:
            return own.__get__(a)
        return by_numpy(lambda v: getattr(v, name), (a,), {})

    return property(read)


def _getitem(a: KnownArray, key: Any) -> Any:
    numbers = a.known
    key = unwrapped(key)
    if numbers is None or not all_known(key):
        return viewing.getitem(a, key)
    found = numbers[key]
    if isinstance(found, np.ndarray) and viewing.gives_view(key):
        made = KnownArray(found)
        made.held, made.base = True, viewing.owner_of(a)
        made.steps = (*a.steps, viewing.step_of(key))
        return made
    return wrapped(found)


def _check_own(a: KnownArray) -> None:
    """UserError for a write to an array that the function captures."""
    if viewing.owner_of(a).born < 0:
        writing.check_writable(a)


def _setitem(a: KnownArray, key: Any, value: Any) -> None:
    _check_own(a)
    numbers = a.known
    key, value = unwrapped(key), unwrapped(value)
    if numbers is None or not all_known((key, value)):
        writing.setitem(a, key, value)
        return
    with np.errstate(all="ignore"):
        numbers[key] = value
    _touched(a)


def _in_place(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def called(a: KnownArray, other: Any) -> Any:
        _check_own(a)
        numbers = a.known
        if numbers is None or not all_known(other):
            return method(a, unwrapped(other))
        with np.errstate(all="ignore"):
            getattr(numbers, name)(unwrapped(other))
        _touched(a)
        return a

    return called


def _ufunc(a: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    if not all_known((inputs, options)):
        kept = inputs[:1] if method == "at" else ()
        given = (*kept, *unwrapped(inputs[len(kept) :]))
        return INSTALLED["__array_ufunc__"](a, ufunc, method, *given, **options)
    found = by_numpy(getattr(ufunc, method), inputs, options)
    if method == "at":
        _touched(inputs[0])
    return found


def _function(a: Any, function: Any, types: Any, args: Any, options: Any) -> Any:
    if not all_known((args, options)):
        kept = args[:1] if function.__name__ in writing.FUNCTIONS else ()
        given = (*kept, *unwrapped(args[len(kept) :]))
        named = {k: v if k == "out" else unwrapped(v) for k, v in options.items()}
        return INSTALLED["__array_function__"](a, function, types, given, named)
    found = by_numpy(function, args, options)
    if function.__name__ in writing.FUNCTIONS:
        _touched(*args[:1])
    return found


def _install() -> None:
    own = {"__getitem__": _getitem, "__setitem__": _setitem,
           "__array_ufunc__": _ufunc, "__array_function__": _function}  # fmt: skip
    kept = ("__array_namespace__",)
    for name, method in INSTALLED.items():
        if name in own or name in kept:
            made = own.get(name, method)
        elif isinstance(method, property):
            made = _property(name, method)
        elif name.startswith("__i") and name != "__invert__":
            made = _in_place(name, method)
        else:
            made = _method(name, method)
        setattr(KnownArray, name, made)


_install()
