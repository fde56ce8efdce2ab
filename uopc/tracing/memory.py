"""Effects of a traced function on the memory of its arguments: which of them it writes, and which
results are arguments or parts of them.

    def f(x, y): x[1:] += y; return x, x[0]     written: x    results: the caller's x, a new array
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uopc.derivatives import effects, functions
from uopc.errors import UserError
from uopc.ir.builder import rebuild
from uopc.ir.builder.pytrees import Pairs
from uopc.ir.core import calls, dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern
from uopc.ir.records import dataclass
from uopc.numpy.array import Array, captured
from uopc.numpy.memory.steps import ViewStep, known_through
from uopc.numpy.memory.viewing import owner_of
from uopc.tracing import twin


@dataclass(frozen=True)
class ArgumentPart:
    """A result that is a part of an argument: the argument's number, and the steps to the part."""

    argument: int
    steps: tuple[ViewStep, ...]

    def of(self, arrays: Sequence[Any]) -> Any:
        """The part of the array that a call gave."""
        given = arrays[self.argument]
        if not self.steps:
            return given
        return known_through(np.asarray(given), self.steps)


@dataclass(frozen=True)
class Effects:
    """The arguments that a function writes, with their last values stored in their own memory; and
    for each result the ArgumentPart that it is, or None for a new array."""

    written: dict[int, UOp]
    parts: list[ArgumentPart | None]

    def __bool__(self) -> bool:
        return bool(self.written) or any([p is not None for p in self.parts])


def effects_of(
    arguments: Sequence[Array], params: Sequence[UOp], results: Sequence[Any],
    whole: Sequence[int],
) -> Effects:  # fmt: skip
    """The effects of a function that has run on these Arrays of params, and gave these results.

    whole: the numbers of the arguments of which results may be parts. Parts of complex numbers are
    new arrays.
    """
    number = {id(arguments[i]): i for i in whole}
    written = {}
    for i, (a, p) in enumerate(zip(arguments, params)):
        if a.version:
            now = a.uop
            written[i] = now if now is a.storage and before_effects(now) is p else p.assign(now)
    parts = [_part(leaf, number) for leaf in results]
    return Effects(written, parts)


def _part(leaf: Any, number: dict[int, int]) -> ArgumentPart | None:
    if not isinstance(leaf, Array):
        return None
    i = number.get(id(owner_of(leaf)))
    if i is None or leaf.weak or any([s.numpy is None for s in leaf.steps]):
        return None
    return ArgumentPart(i, leaf.steps)


def with_effects(
    program: Callable[..., Any], found: Effects, write: Callable[[Any], Any], name: str
) -> Callable[..., Any]:
    """A function of the arrays of a call: it runs the program, which gives new results and then the
    written arguments, and makes the results of the function."""
    parts, written = found.parts, list(found.written)

    def run(*arrays: Any) -> Any:
        given = arrays
        for i in written:
            a = arrays[i]
            if isinstance(a, np.ndarray) and not (a.flags.c_contiguous and a.flags.aligned):
                given = _packed(arrays, written, name)
                break
        new = iter(program(*given))
        leaves = [next(new) if part is None else part.of(arrays) for part in parts]
        if given is not arrays:
            for i in written:
                if given[i] is not arrays[i]:
                    arrays[i][...] = given[i]
        return write(leaves)

    return run


def _packed(arrays: tuple[Any, ...], written: Sequence[int], name: str) -> tuple[Any, ...]:
    """The arrays, with copies of those that are written and not contiguous."""
    given = list(arrays)
    for i in written:
        a = arrays[i]
        if a.flags.c_contiguous and a.flags.aligned:
            continue
        if not a.flags.writeable:
            raise UserError(f"{name}(): argument {i} is written, but the array is read-only")
        for j, other in enumerate(arrays):
            if j != i and isinstance(other, np.ndarray) and np.may_share_memory(a, other):
                raise UserError(
                    f"{name}(): argument {i} overlaps argument {j} in memory, and is written"
                )
        given[i] = np.ascontiguousarray(a)
    return tuple(given)


def by_values(outputs: Sequence[UOp]) -> tuple[UOp, ...]:
    """The results of a function with values in place of its stores, where stores would wait for
    each other's readers. An argument that is written is stored at the end."""
    roots = [before_effects(u) for u in outputs]
    targets = [r if r is not u and r.op is Ops.PARAM else None for r, u in zip(roots, outputs)]
    made, _ = effects.pure(outputs)
    return tuple([v if t is None else t.assign(v) for t, v in zip(targets, made)])


# ---------------------------------------------------------------- bodies
def run_body(who: str, begun: int, f: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call a function, which may write to arrays that were born since `begun`: others are from
    outside of it. UserError if it writes to others."""
    token = captured.set((begun, who))
    function = twin.rebound(f)
    try:
        return function(*args, **named)
    finally:
        captured.reset(token)
        twin.settle(function)


def as_values(results: Sequence[UOp], seeds: Sequence[UOp]) -> list[UOp]:
    """Replace stores that depend on the seeds of a body by values: the body may run many times."""
    order = calls.graph_order(list(results), calls.outside_bodies)
    inside = set(seeds)
    for u in order:
        if u not in inside and not inside.isdisjoint(calls.outside_bodies(u)):
            inside.add(u)
    known: dict[UOp, UOp] = {}
    storages = {
        before_effects(u, known) for u in order
        if u.op is Ops.AFTER and u in inside and _stores(u)
    }  # fmt: skip
    if not storages:
        return list(results)
    kept = {
        u: functions.seed(u) for u in order
        if u.op is Ops.AFTER and u not in inside and before_effects(u, known) not in storages
    }  # fmt: skip
    root = rebuild.rebuild(intern(Ops.TUPLE, dtypes.void, tuple(results)), kept)
    made, _ = effects.pure(root.src)
    back = {v: u for u, v in kept.items()}
    return list(rebuild.rebuild(intern(Ops.TUPLE, dtypes.void, tuple(made)), back).src)


def _stores(u: UOp) -> bool:
    return any([s.op is Ops.STORE or (s.op is Ops.AFTER and _stores(s)) for s in u.src[1:]])


def results_by_values(results: list[UOp | Pairs]) -> list[UOp | Pairs]:
    """The results without stores: see `by_values`."""
    graphs = [u.data if isinstance(u, Pairs) else u for u in results]
    found = zip(by_values(graphs), results)
    return [Pairs(u) if isinstance(given, Pairs) else u for u, given in found]
