"""Arguments for a measurement: a value for each variable, and random arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from uopc.backends.cpu.arguments import shape_of
from uopc.backends.plan import AnyArray, Plan
from uopc.errors import UserError
from uopc.ir.core import dtypes
from uopc.ir.core.data.blocks import new_array
from uopc.ir.index.dims import typical_value


def sizes(plan: Plan, given: Mapping[str, int]) -> dict[str, int]:
    """A value for each variable: the given value, else the graph's, else a typical one.

    UserError for a name that is no variable, or a value out of bounds.
    """
    known = {v.name: v for v in plan.variables}
    for name in given:
        if name not in known:
            shown = ", ".join(known) or "none"
            raise UserError(f"{plan.name} has no variable {name!r}; it has {shown}")
    values = {}
    for name, v in known.items():
        chosen = given.get(name, v.default)
        values[name] = typical_value(v.lo, v.hi) if chosen is None else chosen
        if not v.lo <= values[name] <= v.hi:
            raise UserError(f"variable {name!r} is {values[name]}, expected {v.lo}..{v.hi}")
    return values


def sizes_of(plan: Plan, arrays: Mapping[int, AnyArray]) -> dict[str, int]:
    """The values of variables that follow from the shapes of arguments, given by number."""
    return {
        dim.variable: size
        for number, array in arrays.items()
        for dim, size in zip(plan.arguments[number].shape, array.shape)
        if not isinstance(dim, int) and dim.variable is not None
    }


def random_arrays(
    plan: Plan, values: Mapping[str, int], below: Mapping[int, int] | None = None
) -> list[AnyArray]:
    """An array for each argument, the same each time: floats in 0.5..1.5 (their logarithm and root
    exist), integers in 0..3 (small enough for indices), booleans. Each begins at a cache line, as
    results do. `below`: by argument, a limit of its integers other than 4."""
    rng = np.random.default_rng(0)
    made: list[AnyArray] = []
    for number, argument in enumerate(plan.arguments):
        shape, dtype = shape_of(argument.shape, values), argument.dtype
        kind, limit = dtypes.from_numpy(dtype), (below or {}).get(number, 4)
        integers = None if kind.is_float else rng.integers(0, limit, shape)
        drawn = rng.random(shape, np.float32) + 0.5 if integers is None else integers
        array = new_array(shape, dtype)
        array[...] = (drawn > 1 if kind is dtypes.bool_ else drawn).astype(dtype)
        made.append(array)
    return made
