"""Steps from an array to a view of it, for graphs and for NumPy's arrays; and writes through them.

    v = x[1:].reshape(2, -1)     steps: x[1:], then reshape
    v[...] = w                   x = after(storage, store (storage[1:]).reshape(2, -1), w)

A write is a STORE into storage that belongs to the array alone, an AFTER upon the one before it:
its cost does not grow with the writes before it. At a place that the graph computes, it is a value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.ir.builder import leaves, movement
from uopc.ir.core import shapes
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.tensor import creation, updates
from uopc.tensor.indexing import assign

NumPyArray = npt.NDArray[Any]


@dataclass(frozen=True)
class ViewStep:
    """A way from an array to a part of it that shares its memory.

    `name`: equal names of steps from equal shapes mean equal parts. `graph`, `numpy`: the part of a
    graph, and of NumPy's array; without `numpy`, the graph computes the place. `key`: the key of
    `x[key]`. `frozen`: why nobody may write to the part.
    """

    name: Hashable
    graph: Callable[[UOp], UOp]
    numpy: Callable[[NumPyArray], NumPyArray] | None
    key: Any = None
    frozen: str = ""


def through(u: UOp, steps: Sequence[ViewStep]) -> UOp:
    """The part of a graph that the steps lead to."""
    for step in steps:
        u = step.graph(u)
    return u


def known_through(a: NumPyArray, steps: Sequence[ViewStep]) -> NumPyArray | None:
    """The part of NumPy's array that the steps lead to; None if the graph computes a place."""
    for step in steps:
        if step.numpy is None:
            return None
        a = step.numpy(a)
    return a


def written(
    now: UOp, storage: UOp | None, steps: Sequence[ViewStep], value: UOp
) -> tuple[UOp, UOp | None]:
    """The array after a write of the value, of the part's dtype and shape; and the storage that
    holds the array then. `storage`: storage that holds it now and belongs to it alone."""
    place = next((i for i, s in enumerate(steps) if s.numpy is None), len(steps))
    if place < len(steps):
        before = through(now, steps[:place])
        value = replaced(before, steps[place:], value)
        steps = steps[:place]
    if through(now, steps) is now:  # all of it
        return value, None
    own = storage
    if own is None:
        new = creation.buffer(shapes.shape(now), now.dtype)
        own = new.after(assign(new, now))
    target = through(own, steps)
    if 0 in shapes.shape(target):
        return now, own
    made = own.after(assign(target, value))
    return made, made


def replaced(u: UOp, steps: Sequence[ViewStep], value: UOp) -> UOp:
    """The graph with the part that the steps lead to replaced by the value, without storage."""
    step, *rest = steps
    inner = step.graph(u)
    new = replaced(inner, rest, value) if rest else value
    if step.key is not None:
        return updates.updated(u, step.key, "set", new)
    dims = shapes.shape(u)
    count = shapes.size(dims)
    places = step.graph(movement.reshape(leaves.iota(count), dims))
    flat = movement.reshape(u, (count,))
    line = (shapes.size(shapes.shape(inner)),)
    key = movement.reshape(places, line)
    made = updates.updated(flat, key, "set", movement.reshape(new, line))
    return movement.reshape(made, dims)


def shares_memory(
    dims: Sequence[Any], steps: Sequence[ViewStep], shape: Any, order: Any
) -> bool | None:
    """Does NumPy's reshape of the part give a view? None if that depends on sizes of a call."""
    if not steps or all([isinstance(s.name, tuple) and s.name[0] == "reshape" for s in steps]):
        return order in (None, "C") or (not steps and len(dims) < 2)
    if not all([isinstance(d, int) for d in (*dims, *shape)]):
        return None
    part = known_through(np.empty(dims, np.int8), steps)
    if part is None:
        return None
    try:
        part.reshape(tuple(shape), order=order or "C", copy=False)
    except ValueError:
        return False
    except TypeError:  # NumPy before 2.1
        made = part.reshape(tuple(shape), order=order or "C")
        return bool(np.may_share_memory(made, part)) or not part.size
    return True
