"""Shapes with symbolic sizes: the operators that exporters put between Shape and Reshape.

Such a value is an array of objects (`values.sizes_of`): whole numbers, some of them symbolic, in
one of ONNX's dtypes. A result stays known if it is a whole number that its dtype holds exactly;
other results are tensors. Operators that move elements take known strings, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uopc import UOp, dtypes
from uopc.ir.core import bounds
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.index import dims
from uopc.ir.index.dims import uop_dim
from uopc.onnx.values import DTYPES, Array, as_size, dtype_of_sizes, has_symbols, is_text, sizes_of

Attributes = dict[str, Any]


def computed(name: str, given: Sequence[Any], attributes: Attributes) -> Array | None:
    """Compute an operator on shapes; None if the result must be computed as a tensor."""
    if name in _MOVES and is_text(given[0]):
        return _MOVES[name](list(given), attributes)
    if name in _MOVES:
        t = _dtype(given[0])
        made = None if t is None else _MOVES[name](list(given), attributes)
        return None if made is None or t is None else sizes_of(_numbers(made), made.shape, t)
    if name in _ARITHMETIC:
        return _elementwise(_ARITHMETIC[name], given, attributes)
    if name in _CONDITIONS:
        return _condition(name, given)
    if name in _REDUCTIONS:
        return _reduced(name, given, attributes)
    special = {
        "Concat": _concat, "Cast": _cast, "CastLike": _cast, "Where": _where, "Neg": _negative
    }  # fmt: skip
    return special[name](given, attributes) if name in special else None


# ---------------------------------------------------------------- numbers and their dtype
def _dtype(v: Any) -> DType | None:
    """The dtype of an array of whole numbers; None for others."""
    if has_symbols(v):
        return dtype_of_sizes(v)
    number = isinstance(v, np.ndarray) and v.dtype.kind in "biuf"
    return dtypes.from_numpy(v.dtype) if number and _is_whole(v) else None


def _is_whole(v: Array) -> bool:
    """False if an element is a fraction, an infinity, NaN, or -0."""
    whole_numbers = np.isfinite(v).all() and (v == np.trunc(v)).all()
    return v.dtype.kind in "biu" or bool(whole_numbers and not (np.signbit(v) & (v == 0)).any())


def _numbers(v: Array) -> list[Any]:
    """The elements as ints and nodes of dtype index."""
    return [as_size(x) for x in v.reshape(-1)]


def _interval(x: Any) -> tuple[float, float]:
    return bounds.bounds(x) if isinstance(x, UOp) else (x, x)


def _holds(t: DType, numbers: Sequence[Any]) -> bool:
    """True if a dtype holds each number exactly for all values of the symbolic sizes."""
    least, most = (-(2 ** _DIGITS[t]), 2 ** _DIGITS[t]) if t.is_float else t.bounds
    return all([least <= low and high <= most for low, high in map(_interval, numbers)])


# The digits of a float: all whole numbers up to 2 to the power of them are exact.
_DIGITS = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 53}


def _known_in(t: DType, numbers: list[Any], shape: tuple[int, ...]) -> Array | None:
    return sizes_of(numbers, shape, t) if _holds(t, numbers) else None


def _cast(given: Sequence[Any], attributes: Attributes) -> Array | None:
    """Cast sizes to the second operand's dtype or to a named dtype; None if they do not fit."""
    t = _dtype(given[1]) if len(given) > 1 else DTYPES.get(attributes.get("to", 0))
    if t is None or not (t.is_integral or t in _DIGITS) or _dtype(given[0]) is None:
        return None
    numbers = _numbers(given[0])
    if t is dtypes.bool_:
        numbers = [1 - dims.condition(Ops.CMPEQ, x, 0) for x in numbers]
    return _known_in(t, numbers, given[0].shape)


# ---------------------------------------------------------------- arithmetic
def _elementwise(
    f: Callable[[Any, Any, bool], Any], given: Sequence[Any], attributes: Attributes
) -> Array | None:
    """Combine all operands from left to right by a function of two. None if the dtypes differ, or
    if a result is not a whole number."""
    found = {_dtype(v) for v in given}
    t = found.pop()
    if found or t is None:
        return None
    spread = np.broadcast_arrays(*given)
    truncates = bool(attributes.get("fmod", 0))
    columns = zip(*[_numbers(v) for v in spread])
    made = [functools.reduce(lambda a, b: _pair(f, a, b, t, truncates), c) for c in columns]
    if any([x is None for x in made]):
        return None
    return _known_in(t, made, spread[0].shape)


def _pair(f: Callable[[Any, Any, bool], Any], a: Any, b: Any, t: DType, truncates: bool) -> Any:
    """f(a, b); None if f returns None, or if floats could give a zero of the other sign."""
    if a is None or b is None:
        return None
    negative = min(_interval(a)[0], _interval(b)[0]) < 0
    if t.is_float and (f is _quotient or (f in (_product, _rest) and negative)):
        return None
    made = f(a, b, truncates)
    return uop_dim(made) if isinstance(made, UOp) else made


def _product(a: Any, b: Any, truncates: bool) -> Any:
    return a * b


def _quotient(a: Any, b: Any, truncates: bool) -> Any:
    return dims.truncated(Ops.CDIV, a, b)


def _rest(a: Any, b: Any, truncates: bool) -> Any:
    """The remainder with the sign of the divisor; with `fmod`, of the dividend."""
    if truncates:
        return dims.truncated(Ops.CMOD, a, b)
    low, high = _interval(b)
    return None if low <= 0 <= high else a % b


_ARITHMETIC: dict[str, Callable[[Any, Any, bool], Any]] = {
    "Add": lambda a, b, _: a + b, "Sub": lambda a, b, _: a - b, "Mul": _product,
    "Div": _quotient, "Mod": _rest, "Sum": lambda a, b, _: a + b,
    "Max": lambda a, b, _: dims.maximum(a, b), "Min": lambda a, b, _: dims.minimum(a, b),
}  # fmt: skip
# Conditions are numbers, too: 1 where they hold, else 0.
_CONDITIONS: dict[str, Callable[..., Any]] = {
    "Equal": lambda a, b: dims.condition(Ops.CMPEQ, a, b),
    "Less": lambda a, b: dims.condition(Ops.CMPLT, a, b),
    "Greater": lambda a, b: dims.condition(Ops.CMPLT, b, a),
    "LessOrEqual": lambda a, b: 1 - dims.condition(Ops.CMPLT, b, a),
    "GreaterOrEqual": lambda a, b: 1 - dims.condition(Ops.CMPLT, a, b),
    "Not": lambda a: 1 - a, "And": lambda a, b: a * b, "Or": lambda a, b: a + b - a * b,
    "Xor": lambda a, b: a + b - 2 * a * b,
}  # fmt: skip


def _condition(name: str, given: Sequence[Any]) -> Array | None:
    """A comparison of numbers of one dtype, or logic of conditions."""
    found = {_dtype(v) for v in given}
    if len(found) > 1 or None in found:
        return None
    spread = np.broadcast_arrays(*given)
    made = [_CONDITIONS[name](*c) for c in zip(*[_numbers(v) for v in spread])]
    return _known_in(dtypes.bool_, made, spread[0].shape)


def _where(given: Sequence[Any], attributes: Attributes) -> Array | None:
    """Choose between numbers of one dtype."""
    t = _dtype(given[1])
    if _dtype(given[0]) is not dtypes.bool_ or t is None or _dtype(given[2]) is not t:
        return None
    spread = np.broadcast_arrays(*given)
    made = [dims.chosen(*c) for c in zip(*[_numbers(v) for v in spread])]
    return _known_in(t, made, spread[0].shape)


def _negative(given: Sequence[Any], attributes: Attributes) -> Array | None:
    t = _dtype(given[0])
    if t is None or t.is_float:  # there, 0 becomes -0
        return None
    return _known_in(t, [-x for x in _numbers(given[0])], given[0].shape)


_REDUCTIONS = {"ReduceProd": "Mul", "ReduceSum": "Add", "ReduceMax": "Max", "ReduceMin": "Min"}


def _reduced(name: str, given: Sequence[Any], attributes: Attributes) -> Array | None:
    """Combine the numbers of a vector; None for other shapes, or if no axis is reduced."""
    data, t = given[0], _dtype(given[0])
    stays = not _axes(given, attributes) and attributes.get("noop_with_empty_axes", 0)
    if t is None or data.ndim != 1 or stays or not data.size:
        return None
    f = _ARITHMETIC[_REDUCTIONS[name]]
    made = functools.reduce(lambda a, b: f(b, a, False), _numbers(data))
    return _known_in(t, [made], (1,) if attributes.get("keepdims", 1) else ())


# ---------------------------------------------------------------- moves
def _axes(given: Sequence[Any], attributes: Attributes) -> tuple[int, ...] | None:
    if len(given) > 1 and given[1] is not None:
        return tuple(int(i) for i in given[1].reshape(-1))
    found = attributes.get("axes")
    return None if found is None else tuple(found)


def _object(value: Any) -> Array:
    """Wrap a value in an array where NumPy returns the element itself."""
    if isinstance(value, np.ndarray):
        return value
    made = np.empty((), np.asarray(value).dtype if isinstance(value, str) else object)
    made[()] = value
    return made


def _gather(given: list[Any], attributes: Attributes) -> Array | None:
    if has_symbols(given[1]):
        return None
    index = np.asarray(given[1], np.int64)
    return _object(np.take(given[0], index, attributes.get("axis", 0)))


def _slice(given: list[Any], attributes: Attributes) -> Array | None:
    data, *rest = given
    if any(map(has_symbols, rest)):
        return None
    if not rest:  # of versions before 10
        rest = [np.asarray(attributes.get(n, [])) for n in ("starts", "ends")]
        rest.append(np.asarray(attributes["axes"]) if "axes" in attributes else None)
    begins, ends, axes, steps = [*rest, None, None][:4]
    key = [slice(None)] * data.ndim
    for k in range(begins.size):
        axis = k if axes is None else int(axes.reshape(-1)[k])
        step = 1 if steps is None else int(steps.reshape(-1)[k])
        low, high = -data.shape[axis] - 1, data.shape[axis]
        begin, end = (max(min(int(v.reshape(-1)[k]), high), low) for v in (begins, ends))
        key[axis] = slice(begin, None if step < 0 and end == low else end, step)
    return _object(data[tuple(key)])


def _concat(given: Sequence[Any], attributes: Attributes) -> Array | None:
    """Join parts of one dtype, or strings."""
    axis = attributes.get("axis", 1)
    if all(map(is_text, given)):
        return np.concatenate(given, axis)
    found = {_dtype(v) for v in given}
    t = found.pop()
    if found or t is None:
        return None
    made = np.concatenate([v.astype(object) for v in given], axis)
    return sizes_of(_numbers(made), made.shape, t)


def _unsqueeze(given: list[Any], attributes: Attributes) -> Array:
    return np.asarray(np.expand_dims(given[0], _axes(given, attributes) or (0,)))


def _squeeze(given: list[Any], attributes: Attributes) -> Array:
    return _object(np.squeeze(given[0], _axes(given, attributes)))


def _reshape(given: list[Any], attributes: Attributes) -> Array | None:
    if has_symbols(given[1]):
        return None
    data, wanted = given[0], [int(i) for i in given[1].reshape(-1)]
    if not attributes.get("allowzero", 0):
        wanted = [data.shape[i] if d == 0 else d for i, d in enumerate(wanted)]
    return np.asarray(data.reshape(wanted))


def _expand(given: list[Any], attributes: Attributes) -> Array | None:
    if has_symbols(given[1]):
        return None
    shape = np.broadcast_shapes(given[0].shape, tuple(given[1].reshape(-1).tolist()))
    return _object(np.broadcast_to(given[0], shape))


def _tile(given: list[Any], attributes: Attributes) -> Array | None:
    return None if has_symbols(given[1]) else np.tile(given[0], given[1].reshape(-1).tolist())


_MOVES: dict[str, Callable[[list[Any], Attributes], Array | None]] = {
    "Gather": _gather, "Slice": _slice, "Unsqueeze": _unsqueeze, "Squeeze": _squeeze,
    "Reshape": _reshape, "Expand": _expand, "Tile": _tile,
    "Transpose": lambda given, a: np.transpose(given[0], a.get("perm")),
    **dict.fromkeys(("Identity", "Floor", "Ceil", "Round"), lambda given, _: given[0]),
}  # fmt: skip
