"""Shapes with symbolic sizes: the operators that exporters put between Shape and Reshape.

Such a value is an array of objects, ints and UOps, and NumPy computes with them. It moves strings
that are known, too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uopc import UOp, dtypes
from uopc.onnx.values import Array, is_text, objects

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.floordiv,
    "Mod": operator.mod,
}  # fmt: skip


def computed(name: str, given: Sequence[Any], attributes: dict[str, Any]) -> Array | None:
    """The result of an operator on shapes, or None if it must be computed as a tensor."""
    if name in _BINARY and len(given) == 2:
        a, b = (np.asarray(v, object) for v in given)
        if all([isinstance(x, (int, np.integer, UOp)) for v in (a, b) for x in v.reshape(-1)]):
            return _object(_BINARY[name](_whole(a), _whole(b)))
        return None
    made = None if name == "Cast" and is_text(given[0]) else _MOVES.get(name)
    return None if made is None else made(list(given), attributes)


def _whole(a: Array) -> Array:
    """Symbolic entries as indices, so that their arithmetic is exact."""
    flat = [x.cast(dtypes.index) if isinstance(x, UOp) else int(x) for x in a.reshape(-1)]
    return objects(flat).reshape(a.shape)


def _object(value: Any) -> Array:
    """An array of objects, or one of them, as NumPy gives it."""
    return value if isinstance(value, np.ndarray) else objects([value]).reshape(())


def _axes(given: list[Any], attributes: dict[str, Any]) -> tuple[int, ...] | None:
    if len(given) > 1 and given[1] is not None:
        return tuple(int(i) for i in given[1].reshape(-1))
    found = attributes.get("axes")
    return None if found is None else tuple(found)


def _gather(given: list[Any], attributes: dict[str, Any]) -> Array:
    index = np.asarray(given[1], np.int64)
    return _object(np.take(given[0], index, attributes.get("axis", 0)))


def _slice(given: list[Any], attributes: dict[str, Any]) -> Array | None:
    data, *rest = given
    if data.ndim != 1 or not rest:
        return None
    begin, end = (int(np.asarray(v).reshape(-1)[0]) for v in rest[:2])
    step = int(rest[3].reshape(-1)[0]) if len(rest) > 3 and rest[3] is not None else 1
    low, high = -len(data) - 1, len(data)
    begin, end = max(min(begin, high), low), max(min(end, high), low)
    if step < 0 and end == low:
        return _object(data[begin::step])
    return _object(data[begin:end:step])


def _product(given: list[Any], attributes: dict[str, Any]) -> Array:
    total: Any = 1
    for x in _whole(given[0].reshape(-1)):
        total = x * total
    return objects([total]) if attributes.get("keepdims", 1) else _object(total)


def _concat(given: list[Any], axis: int) -> Array:
    parts = given if all(map(is_text, given)) else [np.asarray(v, object) for v in given]
    return np.concatenate(parts, axis)


def _unsqueeze(given: list[Any], attributes: dict[str, Any]) -> Array:
    return np.asarray(np.expand_dims(given[0], _axes(given, attributes) or (0,)))


def _squeeze(given: list[Any], attributes: dict[str, Any]) -> Array:
    return _object(np.squeeze(given[0], _axes(given, attributes)))


_MOVES: dict[str, Callable[[list[Any], dict[str, Any]], Array | None]] = {
    "Gather": _gather, "Slice": _slice, "ReduceProd": _product, "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze, "Identity": lambda given, _: given[0], "Cast": lambda given, _: given[0],
    "Concat": lambda given, a: _concat(given, a.get("axis", 1)),
    "Reshape": lambda given, _: np.asarray(given[0].reshape([int(i) for i in given[1]])),
}  # fmt: skip
