"""NumPy's namespace in a traced function: the same names, but its arrays hold traced values.

A traced function runs as a copy of itself, whose globals are a dict of another class: CPython then
reads each global name by `__getitem__`, and `np` becomes its twin, `zeros` of `from numpy import
zeros` the twin's, a helper of the user its own copy. No module changes; other threads see nothing.

    np.zeros(3)        →   a known Array: see `known.py`
    np.array([x, y])   →   an Array, where x or y are traced
"""

from __future__ import annotations

import builtins
import functools
import math
import os
import sysconfig
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from uopc.ir.core.uop import UOp
from uopc.numpy import namespace
from uopc.numpy.array import Array
from uopc.tracing.known import all_known, by_numpy, captured_array, unwrapped, wrapped

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_ELSEWHERE = tuple({sysconfig.get_path(n) + os.sep for n in ("stdlib", "purelib", "platlib")})


# ---------------------------------------------------------------- functions of NumPy
def _array(obj: Any, dtype: Any = None, *, copy: Any = True, ndmin: int = 0, **options: Any) -> Any:
    """`np.array`: of traced values an Array of its own."""
    given = unwrapped(obj)
    if all_known(given):
        return wrapped(np.array(given, dtype=dtype, ndmin=ndmin))
    made = namespace.asarray(_arrays(given), dtype=dtype, copy=True)
    made = made.astype(dtype) if dtype is not None else made
    while ndmin > made.ndim:
        made = namespace.expand_dims(made, 0)
    made.held = True
    return made


def _arrays(obj: Any) -> Any:
    """Nested lists whose leaves are Arrays, UOps and numbers."""
    return [_arrays(v) for v in obj] if isinstance(obj, (list, tuple)) else obj


def _asarray(obj: Any, dtype: Any = None, **options: Any) -> Any:
    """`np.asarray`: an Array of that dtype is itself."""
    if isinstance(obj, Array) and (dtype is None or obj.dtype == np.dtype(dtype)):
        return obj
    return _array(obj, dtype)


def _full(shape: Any, fill_value: Any, dtype: Any = None, **options: Any) -> Any:
    """`np.full` of a value that may be traced."""
    if all_known((shape, fill_value)):
        return wrapped(np.full(unwrapped(shape), unwrapped(fill_value), dtype))
    made = namespace.full(shape, fill_value, dtype=dtype)
    made.held = True
    return made


class _Grid:
    """`np.mgrid`, `np.ogrid`, `np.r_` and `np.c_`: their parts are known Arrays."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def __getitem__(self, key: Any) -> Any:
        return wrapped(self._grid[unwrapped(key)])


class _Broadcast:
    """`np.broadcast`: the shape of the arrays together."""

    def __init__(self, *values: Any) -> None:
        self.shape = np.broadcast_shapes(*[np.shape(v) for v in values])
        self.ndim, self.size = len(self.shape), math.prod(self.shape)


_MADE: dict[Any, Any] = {
    np.broadcast: _Broadcast,
    np.array: _array, np.asarray: _asarray, np.asanyarray: _asarray,
    np.ascontiguousarray: _asarray, np.full: _full,
}  # fmt: skip
_GRIDS = tuple([type(g) for g in (np.mgrid, np.ogrid, np.r_, np.c_)])


@functools.cache
def _numpy_function(function: Any) -> Any:
    """A function of NumPy that gives known Arrays of what is known."""

    @functools.wraps(function, assigned=("__name__", "__doc__", "__module__"), updated=())
    def called(*args: Any, **named: Any) -> Any:
        if all_known((args, named)):
            return by_numpy(function, args, named)
        own = getattr(namespace, function.__name__, None)
        if own is not None and not any([isinstance(v, Array) for v in args]) and _sized(args):
            return own(*args, **named)  # of sizes that a call decides
        return function(*args, **named)

    return called


def _sized(args: Any) -> bool:
    first = args[0] if args else None
    parts = first if isinstance(first, tuple) else (first,)
    return any([isinstance(v, UOp) for v in parts])


def twin_of(value: Any) -> Any:
    """The object that stands for one of NumPy's in a traced function."""
    if isinstance(value, types.ModuleType):
        return _modules(value)
    if isinstance(value, _GRIDS):
        return _Grid(value)
    try:
        made = _MADE.get(value)
    except TypeError:
        return value
    if made is not None:
        return made
    if isinstance(value, (type, np.ufunc)):
        return value
    return _numpy_function(value) if callable(value) else value


class Twin:
    """A module of NumPy whose functions make Arrays."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        made = twin_of(found) if _is_numpys(found) else found
        setattr(self, name, made)
        return made


_modules = functools.cache(Twin)


def _is_numpys(value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] == "numpy"
    if isinstance(value, _GRIDS):
        return True
    home = getattr(value, "__module__", None) or ""
    return callable(value) and home.partition(".")[0] == "numpy"


# ---------------------------------------------------------------- a function on the twin
class Globals(dict[str, Any]):
    """The globals of a traced function: those of its module, with twins of NumPy's. `family`: those
    of the functions that it calls, by module."""

    def __init__(self, own: dict[str, Any], family: dict[int, Globals]) -> None:
        super().__init__(__builtins__=builtins.__dict__, __name__=own.get("__name__", ""))
        self._own, self._seen = own, dict[str, tuple[Any, Any]]()
        self.family = family
        family[id(own)] = self

    def __getitem__(self, name: str) -> Any:
        if name in self and name not in _FIXED:
            self.settle()
        if name not in self._own:
            return builtins.__dict__[name]
        value = self._own[name]
        seen = self._seen.get(name)
        if seen is None or seen[0] is not value:
            seen = self._seen[name] = value, _converted(value, self.family, {})
        return seen[1]

    def settle(self) -> None:
        """Hand on to the module what the function has assigned by `global`."""
        for name in [n for n in self if n not in _FIXED]:
            self._own[name] = dict.pop(self, name)


_FIXED = ("__builtins__", "__name__")
_Made = dict[types.FunctionType, types.FunctionType]


def rebound(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a user's function that sees NumPy's twin; other callables are themselves."""
    return _rebound(function, {}, {}) if _is_users(function) else function


def _is_users(value: Any) -> bool:
    if not isinstance(value, types.FunctionType) or isinstance(value.__globals__, Globals):
        return False
    return not value.__code__.co_filename.startswith((_PACKAGE, *_ELSEWHERE))


def _converted(value: Any, family: dict[int, Globals], made: _Made) -> Any:
    """The object that stands for a captured one in a traced function."""
    if _is_users(value):
        return _rebound(value, family, made)
    if type(value) is np.ndarray:
        return captured_array(value)
    return twin_of(value) if _is_numpys(value) else value


def _rebound(
    function: Any, family: dict[int, Globals], made: _Made
) -> types.FunctionType:
    """Copy a function. `made`: the copies so far of functions in each other's closures."""
    if function in made:
        return made[function]
    names = family.get(id(function.__globals__)) or Globals(function.__globals__, family)
    cells = [_is_captured(c) for c in function.__closure__ or ()]
    closure = tuple([types.CellType() if new else c for c, new in cells])
    copy = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, closure or None
    )
    made[function] = copy
    for cell, (old, new) in zip(closure, cells):
        if new:
            cell.cell_contents = _converted(old.cell_contents, family, made)
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    copy.__dict__.update(function.__dict__)
    return copy


def _is_captured(cell: types.CellType) -> tuple[types.CellType, bool]:
    """A cell of a closure, and whether a copy of the function holds another object in its place."""
    try:
        value = cell.cell_contents
    except ValueError:
        return cell, False
    return cell, _is_users(value) or _is_numpys(value) or type(value) is np.ndarray


def settle(function: Callable[..., Any]) -> None:
    """Hand on what a copy, and the functions that it called, have assigned to global names."""
    own = getattr(function, "__globals__", None)
    if isinstance(own, Globals):
        for names in own.family.values():
            names.settle()
