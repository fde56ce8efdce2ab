"""Turn a call's arguments into arrays that kernels may use, with precise messages.

Nothing is cast. An input that is not contiguous or not aligned is copied, unless it is not aligned
in a file; an array that the program writes to is never copied.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.backends.cpu.layout import data_address
from uopc.backends.plan import (
    AnyArray,
    AnyDtype,
    Argument,
    Plan,
    ResultArray,
    Shape,
    SizeRelation,
    Variable,
    value_of,
)  # fmt: skip
from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks
from uopc.ir.core.data import files
from uopc.ir.index.size_conditions import holds, message
from uopc.ir.records import dataclass

# Steps that NumPy may take to tell interleaved arrays apart: exponential in the worst case.
EXACT_WORK: Any = 10_000


@dataclass(slots=True)
class BoundArguments:
    """One call's arrays. `outs` has one entry per result, None where memory is still to be made.

    `values`: of all variables.
    """

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
                new = next(fresh)
                results.append(new if given is None else given)
            elif result.shape == plan.arguments[result.source].shape:
                results.append(self.objects[result.source])
            else:  # a view of the caller's array
                results.append(array(result.source).reshape(shape))
        return plan.contained(results)


def shape_of(shape: Shape, values: Mapping[str, int]) -> tuple[int, ...]:
    """A shape's value."""
    return tuple(value_of(dim, values) for dim in shape)


def describe(dtype: AnyDtype, shape: Iterable[object]) -> str:
    """`float32[8, n]`."""
    dims = (getattr(dim, "variable", None) or str(dim) for dim in shape)
    return f"{dtype.name}[{', '.join(dims)}]"


# Variable values of calls seen before, by the shapes of their arrays and their named integers.
KnownSizes: TypeAlias = BoundedMap[Hashable, dict[str, int]]


def bind(
    plan: Plan, positional: Sequence[object], named: dict[str, object], known: KnownSizes
) -> BoundArguments:
    """Match, convert and check one call's arguments. Empties `named`."""
    bound = match(plan, positional, named, known)
    arrays = bound.arrays
    for index, array in enumerate(arrays):
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned):  # an array that is written has both
            if not flags.aligned and files.is_mapped(array):
                raise UserError(
                    f"{label_of(plan.arguments[index])} lies in a file and is not aligned: its"
                    f" offset must be a multiple of {array.itemsize}"
                )
            arrays[index] = np.array(array, order="C")
    return bound


def match(
    plan: Plan, positional: Sequence[object], named: dict[str, object], known: KnownSizes,
    as_input: Callable[[int, object], AnyArray] | None = None,
) -> BoundArguments:  # fmt: skip
    """Match and check one call's arguments, in any memory order. Empties `named`. `as_input` makes
    the array of argument i from an object, where given."""
    out = named.pop("out", None)
    objects = match_names(plan, positional, named)
    made = as_input or (lambda i, value: input_array(plan.arguments[i], value))
    arrays = [made(i, value) for i, value in enumerate(objects)]
    integers = {name: as_integer(name, value) for name, value in named.items()}
    key = (*[array.shape for array in arrays], *integers.items())
    values = known.obtain(key, lambda: _bind_variables(plan, arrays, integers))
    count = len(plan.results)
    bound = BoundArguments(objects, arrays, values, [None] * count, [None] * count)
    if out is not None:
        _bind_outs(plan, out, bound)
    _check_overlaps(plan, bound)
    return bound


def match_names(
    plan: Plan, positional: Sequence[object], named: dict[str, object]
) -> list[object]:
    """The objects of the arguments, in order: UserTypeError unless the names fit. Takes them out of
    `named`."""
    parameters = plan.arguments
    if not named and len(positional) == len(parameters):
        return list(positional)
    if len(positional) > len(parameters):
        names = f" ({', '.join(argument.name for argument in parameters)})" if parameters else ""
        raise UserTypeError(
            f"{plan.name}() takes {_plural(len(parameters), 'array')}{names}, "
            f"{len(positional)} were given"
        )
    known = [argument.name for argument in parameters]
    found = dict(zip(known, positional))
    variables = [variable.name for variable in plan.variables]
    for name in list(named):
        if name in found:
            raise UserTypeError(f"{plan.name}() got argument {name!r} by position and by name")
        if name in known:
            found[name] = named.pop(name)
        elif name not in variables:
            expected = ", ".join(sorted([*known, *variables]))
            hint = f"; it has {expected}" if expected else ""
            raise UserTypeError(f"{plan.name}() has no argument {name!r}{hint}")
    if missing := [argument for argument in parameters if argument.name not in found]:
        names = ", ".join(f"{arg.name!r} ({describe(arg.dtype, arg.shape)})" for arg in missing)
        count = _plural(len(missing), "argument")
        raise UserTypeError(f"{plan.name}() is missing {count}: {names}")
    return [found[name] for name in known]


def _plural(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def _as_array(label: str, value: object) -> AnyArray:
    """The same memory as a NumPy array."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ndarray):
        checks.usual_array(label, value)
        return value.view(np.ndarray)
    refused = "bytes" if type(value) is bytes else getattr(type(value), "NO_ARRAY", None)
    if refused is not None:
        raise UserTypeError(f"{label}: expected an array, got {refused}")
    try:
        if hasattr(value, "__array_interface__"):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(memoryview(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError, RuntimeError, AttributeError) as error:
        kind = type(value).__name__
        reason = "" if type(error) is TypeError else f" ({error})"
        if isinstance(value, (bool, int, float)):
            reason = f"; NumPy's numbers are arrays: np.float64({value!r})"
        raise UserTypeError(f"{label}: expected an array, got {kind}{reason}") from None


# The kinds of dtypes that hold a number of Python's. Of others than NumPy's own, all are floats.
_NUMBERS = {bool: "b", int: "iufV", float: "fV"}


def _as_number(label: str, argument: Argument, value: Any) -> AnyArray:
    """A number of Python's as the array that a 0-d argument takes; a float type rounds it."""
    dtype = argument.dtype
    if dtype.kind not in _NUMBERS[type(value)]:
        raise UserTypeError(f"{label}: expected {dtype.name}, got {type(value).__name__} {value!r}")
    try:
        with np.errstate(over="ignore"):
            return np.array(value if dtype.kind in "biu" else float(value), dtype)
    except OverflowError:
        raise UserError(f"{label}: {value} does not fit in {dtype.name}") from None


def label_of(argument: Argument) -> str:
    """The name of an argument in messages."""
    return f"argument {argument.name!r}"


def input_array(argument: Argument, value: object) -> AnyArray:
    """The array of an argument; UserError where it does not fit."""
    label = label_of(argument)
    is_number = type(value) in _NUMBERS and not argument.shape and not argument.writable
    array = _as_number(label, argument, value) if is_number else _as_array(label, value)
    check_dtype(label, argument, array)
    if argument.writable:
        _check_writable(label, array)
    return array


class TypedArray(Protocol):
    """An object with a dtype and a shape, such as an array."""

    @property
    def dtype(self) -> AnyDtype: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


def check_dtype(label: str, expected: Argument | ResultArray, array: TypedArray) -> None:
    """Check the dtype and the number of dimensions."""
    if array.dtype == expected.dtype and len(array.shape) == len(expected.shape):
        return
    message = _mismatch(label, expected, array)
    if array.dtype == expected.dtype:
        raise UserError(message)
    same_name = array.dtype.name == expected.dtype.name
    order = f" in byte order {array.dtype.byteorder!r}" if same_name else ""
    raise UserTypeError(f"{message}{order}")


def _mismatch(label: str, expected: Argument | ResultArray, array: TypedArray) -> str:
    got = describe(array.dtype, array.shape)
    return f"{label}: expected {describe(expected.dtype, expected.shape)}, got {got}"


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
        for axis, (dim, size) in enumerate(zip(argument.shape, array.shape, strict=True)):
            symbol = None if isinstance(dim, int) else dim.variable
            if symbol is not None and symbol not in values:
                values[symbol] = size
                origins[symbol] = f"dimension {axis} of {label_of(argument)}"
    for variable in plan.variables:
        name = variable.name
        for value, origin in ((integers.get(name), "the call"), (variable.default, "the graph")):
            if value is not None and name not in values:
                values[name], origins[name] = value, origin
        if name not in values:
            raise UserTypeError(f"{plan.name}() needs variable {name!r} by name")
        value, given = values[name], integers.get(name, values[name])
        if value != given:
            raise UserError(
                f"variable {name!r} is {given} by name, but {value} from {origins[name]}"
            )
        check_bounds(variable, value, origins[name])
    for argument, array in zip(plan.arguments, arrays, strict=True):
        check_shape(label_of(argument), argument, array, values, origins)
    for condition in plan.conditions:
        if not plan.is_computed(condition.left, condition.right):
            check_condition(condition, values, origins)
    return values


def check_bounds(variable: Variable, value: int, origin: str) -> None:
    """UserError unless a variable may have a value."""
    if not variable.lo <= value <= variable.hi:
        raise UserError(
            f"variable {variable.name!r} is {value} (from {origin}), "
            f"expected {variable.lo}..{variable.hi}"
        )


def check_condition(
    condition: SizeRelation, values: Mapping[str, int], origins: Mapping[str, str]
) -> None:
    """UserError unless a condition of the graph holds."""
    left, right = value_of(condition.left, values), value_of(condition.right, values)
    if holds(condition.relation, left, right):
        return
    found = message(condition.what, condition.relation, condition.sides, (left, right))
    because = ", ".join([f"{name} = {values[name]} from {origins[name]}" for name in values])
    raise UserError(f"{found} ({because}){condition.line}")


def as_integer(name: str, value: object) -> int:
    """The value of a variable; UserTypeError unless it is an integer."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        kind = type(value).__name__
        raise UserTypeError(f"variable {name!r}: expected an integer, got {kind}") from None


def check_shape(
    label: str,
    expected: Argument | ResultArray,
    array: AnyArray,
    values: Mapping[str, int],
    origins: Mapping[str, str],
) -> None:
    """UserError unless an array has the shape that these variables give it."""
    for axis, (dim, size) in enumerate(zip(expected.shape, array.shape, strict=True)):
        want = value_of(dim, values)
        if size == want:
            continue
        message = _mismatch(label, expected, array)
        if not isinstance(dim, int):
            because = ", ".join(f"{name} = {values[name]} from {origins[name]}" for name in origins)
            message += f": dimension {axis} must be {want} ({because})"
        raise UserError(message)


def out_labels(plan: Plan) -> list[str]:
    """The names of the results in messages: out, or out[key] each."""
    if plan.structure == "single":
        return ["out"]
    keys = plan.keys or range(len(plan.results))
    return [f"out[{key!r}]" for key in keys]


def _bind_outs(plan: Plan, out: Any, bound: BoundArguments) -> None:
    """Check the arrays of `out=`: one per result. A result that is an argument accepts only it."""
    if plan.structure == "single":
        bound.out_objects = [out]
    elif plan.structure == "dict":
        if not isinstance(out, Mapping) or set(out) != set(plan.keys):
            raise UserTypeError(f"out: expected a dict with the keys {list(plan.keys)}")
        bound.out_objects = [out[key] for key in plan.keys]
    else:
        count = len(plan.results)
        if not isinstance(out, (tuple, list)) or len(out) != count:
            raise UserTypeError(f"out: expected a {plan.structure} of {_plural(count, 'array')}")
        bound.out_objects = list(out)
    origins = dict.fromkeys(bound.values, "the arguments")
    labelled = zip(out_labels(plan), plan.results, bound.out_objects, strict=True)
    for i, (label, result, value) in enumerate(labelled):
        if value is None:
            continue
        if plan.is_computed(*result.shape):
            raise UserError(f"{label}: the program computes the length of this result: omit it")
        if result.source is None:
            array = bound.outs[i] = _as_array(label, value)
            check_dtype(label, result, array)
            check_shape(label, result, array, bound.values, origins)
            _check_writable(label, array)
        elif value is not bound.objects[result.source]:
            name = plan.arguments[result.source].name
            raise UserTypeError(
                f"{label}: this result is argument {name!r} itself: pass the same array"
            )


def _check_overlaps(plan: Plan, bound: BoundArguments) -> None:
    """Raise UserError for memory that is written and that another array of the call shares."""
    writes_arguments = any(argument.writable for argument in plan.arguments)
    if not writes_arguments and all(out is None for out in bound.outs):
        return
    everything = [
        (label_of(argument), array, argument.writable)
        for argument, array in zip(plan.arguments, bound.arrays, strict=True)
    ]
    outs = zip(out_labels(plan), bound.outs, strict=True)
    everything += [(label, out, True) for label, out in outs if out is not None]
    in_place = {frozenset((i, a.over)) for i, a in enumerate(plan.arguments) if a.over is not None}
    for i, (label, array, writes) in enumerate(everything):
        for j, (other_label, other, other_writes) in enumerate(everything[:i]):
            if frozenset((i, j)) in in_place and data_address(array) == data_address(other):
                continue
            if (writes or other_writes) and _share_memory(array, other):
                raise UserError(
                    f"{label} overlaps {other_label} in memory, and "
                    f"{label if writes else other_label} is written"
                )


def _share_memory(one: AnyArray, other: AnyArray) -> bool:
    try:
        return np.shares_memory(one, other, max_work=EXACT_WORK)
    except np.exceptions.TooHardError:
        return True
