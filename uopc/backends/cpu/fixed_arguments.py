"""A plan with some arguments and variables fixed: the same code, and a call without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from uopc.backends.bound_plan import bound_plan
from uopc.backends.cpu.arguments import (
    as_integer,
    check_bounds,
    check_condition,
    check_shape,
    input_array,
    label_of,
)  # fmt: skip
from uopc.backends.plan import AnyArray, Plan, Pointer, Word
from uopc.errors import UserError, UserTypeError


def without(plan: Plan, values: Mapping[str, Any]) -> Plan:
    """The plan with these arguments and variables fixed: see `Program.bind`."""
    arrays = {
        i: as_constant(input_array(a, values[a.name]))
        for i, a in enumerate(plan.arguments) if a.name in values
    }  # fmt: skip
    return _without_arguments(with_values(plan, arrays, values), arrays)


def with_values(plan: Plan, arrays: Mapping[int, AnyArray], values: Mapping[str, Any]) -> Plan:
    """Fix variables of the plan: the given ones, and those that the sizes of `arrays` (by number)
    decide. The arrays stay arguments. UserError for an array that is written or does not fit."""
    for i in arrays:
        if plan.arguments[i].writable:
            label = label_of(plan.arguments[i])
            raise UserError(f"bind: {label} is written: pass it in each call")
    return _without_variables(plan, arrays, _numbers(plan, values))


def as_constant(given: AnyArray) -> AnyArray:
    """The elements of an array in memory to which nobody else writes."""
    fixed = not given.flags.writeable and (given.flags.owndata or given.base is None)
    usable = given.flags.c_contiguous and given.flags.aligned
    return given if fixed and usable else np.array(given, order="C")


def _numbers(plan: Plan, values: Mapping[str, Any]) -> dict[str, int]:
    """The values of the variables that are fixed. UserTypeError for another name."""
    known = {a.name for a in plan.arguments}
    variables = {v.name: v for v in plan.variables}
    found: dict[str, int] = {}
    for name, value in values.items():
        if name in known:
            continue
        if name not in variables:
            expected = ", ".join(sorted([*known, *variables])) or "nothing"
            raise UserTypeError(f"bind: {plan.name}() has no argument {name!r}; it has {expected}")
        found[name] = as_integer(name, value)
    return found


def _without_variables(plan: Plan, arrays: Mapping[int, AnyArray], given: dict[str, int]) -> Plan:
    """The plan with values in the place of variables: those given, and the sizes of the arrays.
    While others are missing, variables with a value stay, and take no other."""
    values, origins = dict(given), dict.fromkeys(given, "bind")
    for i, array in arrays.items():
        for axis, (dim, size) in enumerate(zip(plan.arguments[i].shape, array.shape)):
            name = None if isinstance(dim, int) else dim.variable
            if name is not None and values.setdefault(name, size) == size:
                origins.setdefault(name, f"dimension {axis} of {label_of(plan.arguments[i])}")
    for v in plan.variables:
        if v.name in values:
            check_bounds(v, values[v.name], origins[v.name])
    for i, array in arrays.items():
        argument = plan.arguments[i]
        needed = {n for d in argument.shape if not isinstance(d, int) for n in d.variables}
        if needed - values.keys():
            missing = ", ".join(sorted(needed - values.keys()))
            raise UserError(f"bind: the shape of {label_of(argument)} needs variable {missing}")
        check_shape(label_of(argument), argument, array, values, origins)
    if any([v.name not in values for v in plan.variables]):
        fixed = [
            replace(v, lo=values[v.name], hi=values[v.name], default=values[v.name])
            if v.name in values else v
            for v in plan.variables
        ]  # fmt: skip
        return replace(plan, variables=tuple(fixed))
    for condition in plan.conditions:
        if not plan.is_computed(condition.left, condition.right):
            check_condition(condition, values, origins)
    made = bound_plan(plan, values)
    later = [c for c in made.conditions if plan.is_computed(c.left, c.right)]
    return replace(made, conditions=tuple(later))


def _without_arguments(plan: Plan, arrays: Mapping[int, AnyArray]) -> Plan:
    """The plan with arrays as constants in the place of arguments."""
    if not arrays:
        return plan
    kept = [i for i in range(len(plan.arguments)) if i not in arrays]
    count, shift = len(plan.arguments), len(plan.arguments) - len(kept)
    bases = {i: n for n, i in enumerate(kept)}
    last = plan.arena_base + len(plan.constants)
    bases |= {b: b - shift for b in range(count, last + 1)}
    bases |= {i: last - shift + 1 + n for n, i in enumerate(arrays)}

    def words(given: Sequence[Word]) -> tuple[Word, ...]:
        return tuple([
            Pointer(bases[w.base], w.offset) if isinstance(w, Pointer) else w for w in given
        ])  # fmt: skip

    return replace(
        plan,
        arguments=tuple([plan.arguments[i] for i in kept]),
        results=tuple([
            r if r.source is None else replace(r, source=bases[r.source]) for r in plan.results
        ]),
        launches=tuple([replace(x, words=words(x.words)) for x in plan.launches]),
        lengths=tuple([
            replace(x, at=Pointer(bases[x.at.base], x.at.offset)) for x in plan.lengths
        ]),
        constants=(*plan.constants, *arrays.values()),
    )  # fmt: skip
