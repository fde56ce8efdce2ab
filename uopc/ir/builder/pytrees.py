"""Nested containers of arrays, taken apart and put together again.

A container is a dict, list, tuple, NamedTuple, dataclass, or an object of a class that
`register_pytree` knows. None is an empty container; any other object is a leaf. A Structure is
hashable, as part of a program's key.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from uopc.errors import UserError, UserTypeError

Flatten = Callable[[Any], tuple[Iterable[Any], Hashable]]
Unflatten = Callable[[Any, list[Any]], Any]
_registered: dict[type, tuple[Flatten, Unflatten]] = {}


class Structure(NamedTuple):
    """A container without its leaves: its class, the data that the class needs (the keys of a dict,
    say), the names of its parts, and their structures, LEAF for a leaf."""

    kind: type
    detail: Hashable
    names: tuple[str, ...]
    parts: tuple[Any, ...]


class LaidOut:
    """A result that is one node, and facts that a program does not need: the places of a sparse
    matrix's entries, say. `compile` computes the node."""

    data: Any
    layout: Any  # hashable


class Pairs(LaidOut):
    """Complex numbers as pairs of floats in the last axis of `data`. Programs take and give them as
    arrays of a complex dtype, which is the same memory."""

    layout = None

    def __init__(self, data: Any) -> None:
        self.data = data


LEAF = "*"
_DEEPEST = 200  # containers in containers


def leaf_count(structure: Any) -> int:
    """The number of leaves that a structure, or LEAF, has."""
    return 1 if structure == LEAF else sum(map(leaf_count, structure.parts))


def spread(given: Any, structure: Any, kind: type, what: str) -> list[Any]:
    """An entry for each leaf: an object of class `kind`, or None, stands for all leaves of a
    container.

    UserError, which begins with `what`, for containers that do not match the structure.
    """
    if given is None or isinstance(given, kind):
        return [given] * leaf_count(structure)
    if structure == LEAF:
        raise UserError(f"{what} must have no container for an array, got {given!r}")
    found = split(given)
    if found is None or len(found[2]) != len(structure.parts):
        raise UserError(f"{what} must have the containers of the values, got {given!r}")
    parts = zip(found[2], structure.parts)
    return [entry for part, inner in parts for entry in spread(part, inner, kind, what)]


def given_outs(given: Any, structure: Any, path: str = "out") -> list[Any]:
    """The arrays of `out=` for each leaf of the results; None for a missing one. UserTypeError for
    containers that differ from those of the results."""
    if structure == LEAF:
        return [given]
    if given is None:
        return [None] * leaf_count(structure)
    found = split(given)
    if found is None or type(given) is not structure.kind or tuple(found[1]) != structure.names:
        raise UserTypeError(f"{path}: expected {_shown(structure)}, as of the results")
    return [
        array
        for name, part, inner in zip(found[1], found[2], structure.parts)
        for array in given_outs(part, inner, f"{path}.{name}")
    ]


def _shown(structure: Structure) -> str:
    return f"{structure.kind.__name__} of {', '.join(structure.names) or 'nothing'}"


def register_pytree(kind: type, flatten: Flatten, unflatten: Unflatten) -> None:
    """Let objects of a class be arguments and results of `jit`.

    flatten(value) returns the parts in order, and the rest of the value, which must be hashable;
    unflatten(rest, parts) makes a value again. UserTypeError unless kind is a class and both are
    functions.

    Examples:
        >>> class Ball:
        ...     def __init__(self, place, speed):
        ...         self.place, self.speed = place, speed
        >>> uopc.register_pytree(
        ...     Ball, lambda b: ((b.place, b.speed), None), lambda rest, parts: Ball(*parts))
        >>> move = uopc.jit(lambda b: Ball(b.place + b.speed, b.speed))
        >>> move(Ball(np.array([1.0, 2.0]), np.array([0.5, 0.5]))).place
        array([1.5, 2.5])
    """
    if not isinstance(kind, type):
        raise UserTypeError(f"register_pytree: expected a class, got {kind!r}")
    if not callable(flatten) or not callable(unflatten):
        raise UserTypeError("register_pytree: flatten and unflatten must be functions")
    _registered[kind] = flatten, unflatten


def exactly(value: Any) -> Hashable:
    """A key of a value that tells 1, 1.0 and True apart, and zeros and NaNs by sign, also in
    containers."""
    if isinstance(value, tuple):
        return type(value), tuple([exactly(v) for v in value])
    if isinstance(value, frozenset):
        return type(value), frozenset([exactly(v) for v in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        compared = [f for f in dataclasses.fields(value) if f.compare and f.hash is not False]
        fields = tuple([exactly(getattr(value, f.name)) for f in compared])
        try:
            hash(fields)
        except TypeError:  # the class has a hash of its own
            return type(value), value
        return type(value), value, fields
    exact = isinstance(value, (float, complex, np.floating))
    return type(value), np.asarray(value).tobytes() if exact else value


def details(structure: Any) -> tuple[Hashable, ...]:
    """Keys for the data that a structure's containers need besides parts. Such data may be equal
    without being the same."""
    if structure == LEAF:
        return ()
    inner = [details(p) for p in structure.parts if p != LEAF]
    own = structure.detail
    return (None if has_names(own) else exactly(own), *inner)


def has_names(detail: Hashable) -> bool:
    """True for a detail of names only: equal names are the same."""
    return detail is None or (isinstance(detail, tuple) and all([type(k) is str for k in detail]))


def flatten(value: Any, whole: tuple[type, ...] = ()) -> tuple[list[tuple[str, Any]], Any]:
    """The leaves of a value, each with its path (`.weights.0`), and its structure. Objects of the
    classes `whole` are leaves.

    UserError where a container contains itself.
    """
    leaves: list[tuple[str, Any]] = []
    return leaves, _taken_apart(value, "", leaves, 0, whole)


def _taken_apart(
    value: Any, path: str, leaves: list[tuple[str, Any]], depth: int, whole: tuple[type, ...]
) -> Any:
    if depth > _DEEPEST:
        raise UserError("a container is nested too deeply, or contains itself")
    found = None if isinstance(value, whole) else split(value)
    if found is None:
        leaves.append((path, value))
        return LEAF
    detail, names, children = found
    parts = [
        _taken_apart(c, f"{path}.{n}", leaves, depth + 1, whole) for n, c in zip(names, children)
    ]
    return Structure(type(value), detail, tuple(names), tuple(parts))


def is_registered(kind: type) -> bool:
    """True for classes that `register_pytree` knows."""
    return kind in _registered


def split(value: Any) -> tuple[Hashable, list[str], list[Any]] | None:
    """A container as (the rest, the names of its parts, the parts); None for a leaf."""
    kind = type(value)
    if value is None:
        return (), [], []
    if kind in _registered:
        parts, detail = _registered[kind][0](value)
        children = list(parts)
        try:
            hash(detail)
        except TypeError:
            raise UserTypeError(
                f"register_pytree: what flatten gives besides the parts of a {kind.__name__} must"
                f" be hashable, got {type(detail).__name__}"
            ) from None
        return detail, [str(i) for i in range(len(children))], children
    if kind in (dict, OrderedDict):
        return tuple(value), [str(k) for k in value], list(value.values())
    if kind in (list, tuple):
        return None, [str(i) for i in range(len(value))], list(value)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return None, list(kind._fields), list(value)
    if dataclasses.is_dataclass(value) and not hasattr(value, "dtype"):  # it is no array
        names = [f.name for f in dataclasses.fields(value)]
        return None, names, [getattr(value, n) for n in names]
    return None


def unflatten(structure: Any, leaves: Iterable[Any]) -> Any:
    """The value with this structure and these leaves."""
    return _unflattened(structure, iter(leaves))


def _unflattened(structure: Any, leaves: Iterator[Any]) -> Any:
    if structure == LEAF:
        return next(leaves)
    return put_together(structure, [_unflattened(p, leaves) for p in structure.parts])


def put_together(structure: Structure, made: list[Any]) -> Any:
    """Make a container of this structure from its parts."""
    kind, names = structure.kind, structure.names
    detail: Any = structure.detail
    if kind in _registered:
        return _registered[kind][1](detail, made)
    if kind is type(None):
        return None
    if kind in (dict, OrderedDict):
        return kind(zip(detail, made))
    if kind in (list, tuple):
        return kind(made)
    if issubclass(kind, tuple):
        return kind(*made)
    found = object.__new__(kind)  # a dataclass: its __init__ may want other arguments
    for name, value in zip(names, made):
        object.__setattr__(found, name, value)
    return found
