"""Turn a call's arguments into arrays that kernels may use, with precise messages.

Nothing is cast. An input that is not contiguous or not aligned is copied; an array that the program
writes to is never copied.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.backends.cpu.layout import data_address
from uopc.backends.plan import AnyArray, AnyDtype, Argument, Dim, Plan, Shape
from uopc.errors import UserError, UserTypeError

# Steps that NumPy may take to tell interleaved arrays apart: exponential in the worst case.
EXACT_WORK: Any = 10_000


@dataclass(slots=True)
class Bound:
    """One call's arrays. `outs` has one entry per result, None where memory is still to be made."""

    objects: list[object]
    arrays: list[AnyArray]
    values: dict[str, int]
    outs: list[AnyArray | None]
    out_objects: list[object]

    def results(
        self,
        plan: Plan,
        shapes: Iterable[tuple[int, ...]],
        made: Iterable[object],
        array: Callable[[int], Any],
    ) -> object:
        """The value of the call: `made` are the fresh results, `array` gives argument i."""
        fresh = iter(made)
        results = []
        for result, shape, given in zip(plan.results, shapes, self.out_objects, strict=True):
            if result.source is None:
                made_here = next(fresh)
                results.append(made_here if given is None else given)
            elif result.shape == plan.arguments[result.source].shape:
                results.append(self.objects[result.source])
            else:  # a view of the caller's array
                results.append(array(result.source).reshape(shape))
        return plan.contained(results)


def number(dim: Dim, values: Mapping[str, int]) -> int:
    """A dimension's value."""
    return dim if isinstance(dim, int) else dim.evaluate(values)


def shape_of(shape: Shape, values: Mapping[str, int]) -> tuple[int, ...]:
    """A shape's value."""
    return tuple(number(dim, values) for dim in shape)


def describe(dtype: AnyDtype, shape: Iterable[object]) -> str:
    """`float32[8, n]`."""
    dims = (getattr(dim, "variable", None) or str(dim) for dim in shape)
    return f"{dtype.name}[{', '.join(dims)}]"


# Variable values of calls seen before, by the shapes of their arrays and their named integers.
KnownSizes: TypeAlias = BoundedMap[Hashable, dict[str, int]]


def bind(
    plan: Plan, positional: Sequence[object], named: dict[str, object], known: KnownSizes
) -> Bound:
    """Match, convert and check one call's arguments. Empties `named`."""
    out = named.pop("out", None)
    objects = _match_names(plan, positional, named)
    arrays = [
        _as_input(argument, value) for argument, value in zip(plan.arguments, objects, strict=True)
    ]
    integers = {name: _as_integer(name, value) for name, value in named.items()}
    key = (*[array.shape for array in arrays], *integers.items())
    values = known.get(key)
    if values is None:
        values = known.add(key, _bind_variables(plan, arrays, integers))
    bound = Bound(objects, arrays, values, [None] * len(plan.results), [None] * len(plan.results))
    if out is not None:
        bound.out_objects = _match_outs(plan, out, objects)
        bound.outs = _as_outs(plan, bound)
    _check_overlaps(plan, bound)
    for index, argument in enumerate(plan.arguments):
        if not argument.writable:
            arrays[index] = _contiguous(arrays[index])
    return bound


def _match_names(
    plan: Plan, positional: Sequence[object], named: dict[str, object]
) -> list[object]:
    parameters = plan.arguments
    if not named and len(positional) == len(parameters):
        return list(positional)
    if len(positional) > len(parameters):
        raise UserTypeError(
            f"{plan.name}() takes {_count(len(parameters), 'array')}"
            f"{_list_names(parameters)}, {len(positional)} were given"
        )
    found: dict[str, object] = {
        argument.name: value for argument, value in zip(parameters, positional)
    }
    known = {argument.name for argument in parameters}
    variables = {variable.name for variable in plan.variables}
    for name in list(named):
        if name in found:
            raise UserTypeError(f"{plan.name}() got argument {name!r} by position and by name")
        if name in known:
            found[name] = named.pop(name)
        elif name not in variables:
            expected = [*known, *variables]
            hint = f"; it has {', '.join(sorted(expected))}" if expected else ""
            raise UserTypeError(f"{plan.name}() has no argument {name!r}{hint}")
    missing = [argument for argument in parameters if argument.name not in found]
    if missing:
        names = ", ".join(f"{arg.name!r} ({describe(arg.dtype, arg.shape)})" for arg in missing)
        raise UserTypeError(f"{plan.name}() is missing {_count(len(missing), 'argument')}: {names}")
    return [found[argument.name] for argument in parameters]


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _list_names(parameters: Sequence[Argument]) -> str:
    return f" ({', '.join(argument.name for argument in parameters)})" if parameters else ""


def _as_array(label: str, value: object) -> AnyArray:
    """The same memory as a NumPy array."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            raise UserTypeError(f"{label}: a masked array is not accepted; pass its data")
        return value.view(np.ndarray)
    try:
        if hasattr(value, "__array_interface__"):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(memoryview(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError, RuntimeError, AttributeError) as error:
        kind = type(value).__name__
        reason = "" if type(error) is TypeError else f" ({error})"
        raise UserTypeError(f"{label}: expected an array, got {kind}{reason}") from None


def _label(argument: Argument) -> str:
    return f"argument {argument.name!r}"


def _as_input(argument: Argument, value: object) -> AnyArray:
    label = _label(argument)
    array = _as_array(label, value)
    _check_dtype(label, argument.dtype, argument.shape, array)
    if argument.writable:
        _check_writable(label, array)
    return array


def _check_dtype(label: str, dtype: AnyDtype, shape: Shape, array: AnyArray) -> None:
    if array.dtype == dtype and array.ndim == len(shape):
        return
    expected = describe(dtype, shape)
    got = describe(array.dtype, array.shape)
    if array.dtype != dtype:
        same_name = array.dtype.name == dtype.name
        order = f" in byte order {array.dtype.byteorder!r}" if same_name else ""
        raise UserTypeError(f"{label}: expected {expected}, got {got}{order}")
    raise UserError(f"{label}: expected {expected}, got {got}")


def _check_writable(label: str, array: AnyArray) -> None:
    if not array.flags.writeable:
        raise UserError(f"{label} is written, but the array is read-only")
    if not array.flags.c_contiguous:
        raise UserError(f"{label} is written, but the array is not contiguous")
    if not array.flags.aligned:
        raise UserError(f"{label} is written, but the array is not aligned")


def _bind_variables(
    plan: Plan, arrays: Sequence[AnyArray], integers: Mapping[str, int]
) -> dict[str, int]:
    """Every variable's value, after checking all shapes and bounds."""
    values: dict[str, int] = {}
    origins: dict[str, str] = {}
    for argument, array in zip(plan.arguments, arrays, strict=True):
        if array.shape == argument.shape:
            continue
        for axis, (dim, size) in enumerate(zip(argument.shape, array.shape, strict=True)):
            if isinstance(dim, int):
                continue
            name = dim.variable
            if name is not None and name not in values:
                values[name] = size
                origins[name] = f"dimension {axis} of {_label(argument)}"
    for variable in plan.variables:
        if variable.name in integers:
            value = integers[variable.name]
            values.setdefault(variable.name, value)
            origins.setdefault(variable.name, "the call")
            if values[variable.name] != value:
                raise UserError(
                    f"variable {variable.name!r} is {value} by name, but "
                    f"{values[variable.name]} from {origins[variable.name]}"
                )
        if variable.name not in values and variable.default is not None:
            values[variable.name] = variable.default
            origins[variable.name] = "the graph"
        if variable.name not in values:
            raise UserTypeError(f"{plan.name}() needs variable {variable.name!r} by name")
        value = values[variable.name]
        if not variable.lo <= value <= variable.hi:
            raise UserError(
                f"variable {variable.name!r} is {value} (from {origins[variable.name]}), "
                f"expected {variable.lo}..{variable.hi}"
            )
    for argument, array in zip(plan.arguments, arrays, strict=True):
        _check_shape(_label(argument), argument.dtype, argument.shape, array, values, origins)
    return values


def _as_integer(name: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        kind = type(value).__name__
        raise UserTypeError(f"variable {name!r}: expected an integer, got {kind}") from None


def _check_shape(
    label: str,
    dtype: AnyDtype,
    shape: Shape,
    array: AnyArray,
    values: Mapping[str, int],
    origins: Mapping[str, str],
) -> None:
    if array.shape == shape:
        return
    for axis, (dim, size) in enumerate(zip(shape, array.shape, strict=True)):
        want = number(dim, values)
        if size == want:
            continue
        got = describe(array.dtype, array.shape)
        if isinstance(dim, int):
            raise UserError(f"{label}: expected {describe(dtype, shape)}, got {got}")
        because = ", ".join(f"{name} = {values[name]} from {origins[name]}" for name in origins)
        raise UserError(
            f"{label}: expected {describe(dtype, shape)}, got {got}: dimension {axis} must be "
            f"{want} ({because})"
        )


def _out_labels(plan: Plan) -> list[str]:
    if plan.structure == "single":
        return ["out"]
    if plan.structure == "dict":
        return [f"out[{key!r}]" for key in plan.keys]
    return [f"out[{index}]" for index in range(len(plan.results))]


def _match_outs(plan: Plan, out: object, objects: Sequence[object]) -> list[object]:
    """One object per result; results that are arguments accept only that argument."""
    count = len(plan.results)
    if plan.structure == "single":
        given: list[object] = [out]
    elif plan.structure == "dict":
        if not isinstance(out, Mapping) or set(out) != set(plan.keys):
            raise UserTypeError(f"out: expected a dict with the keys {list(plan.keys)}")
        given = [out[key] for key in plan.keys]
    else:
        if not isinstance(out, (tuple, list)) or len(out) != count:
            raise UserTypeError(f"out: expected a {plan.structure} of {_count(count, 'array')}")
        given = list(out)
    for label, result, value in zip(_out_labels(plan), plan.results, given, strict=True):
        if result.source is not None and value is not None and value is not objects[result.source]:
            name = plan.arguments[result.source].name
            raise UserTypeError(f"{label}: this result is argument {name!r} itself, written")
    return given


def _as_outs(plan: Plan, bound: Bound) -> list[AnyArray | None]:
    origins = dict.fromkeys(bound.values, "the arguments")
    outs: list[AnyArray | None] = []
    labelled = zip(_out_labels(plan), plan.results, bound.out_objects, strict=True)
    for label, result, value in labelled:
        if value is None or result.source is not None:
            outs.append(None)
            continue
        out = _as_array(label, value)
        _check_dtype(label, result.dtype, result.shape, out)
        _check_shape(label, result.dtype, result.shape, out, bound.values, origins)
        _check_writable(label, out)
        outs.append(out)
    return outs


def _check_overlaps(plan: Plan, bound: Bound) -> None:
    """Raise UserError for memory that is written and that another array of the call shares."""
    writes_arguments = any(argument.writable for argument in plan.arguments)
    if not writes_arguments and all(out is None for out in bound.outs):
        return
    everything = [
        (_label(argument), array, argument.writable)
        for argument, array in zip(plan.arguments, bound.arrays, strict=True)
    ]
    for label, out in zip(_out_labels(plan), bound.outs, strict=True):
        if out is not None:
            everything.append((label, out, True))
    spans = [_span(array) for _, array, _ in everything]
    for i, (label, array, writes) in enumerate(everything):
        for j, (other_label, other, other_writes) in enumerate(everything[:i]):
            if not (writes or other_writes):
                continue
            if spans[i][0] >= spans[j][1] or spans[j][0] >= spans[i][1]:
                continue
            if _share_memory(array, other):
                raise UserError(
                    f"{label} overlaps {other_label} in memory, and "
                    f"{label if writes else other_label} is written"
                )


def _span(array: AnyArray) -> tuple[int, int]:
    """The first byte and the byte after the last."""
    begin = data_address(array)
    if not array.size:
        return begin, begin
    lowest = highest = begin
    for size, stride in zip(array.shape, array.strides, strict=True):
        reach = (size - 1) * stride
        lowest += min(reach, 0)
        highest += max(reach, 0)
    return lowest, highest + array.itemsize


def _share_memory(one: AnyArray, other: AnyArray) -> bool:
    if one.flags.c_contiguous and other.flags.c_contiguous:
        return True  # their spans meet, and a contiguous array fills its span
    try:
        return bool(np.shares_memory(one, other, max_work=EXACT_WORK))
    except np.exceptions.TooHardError:
        return True


def _contiguous(array: AnyArray) -> AnyArray:
    """Contiguous and aligned, copied only when it is not."""
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.array(array, order="C", copy=True, subok=False)
