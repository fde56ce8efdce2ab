"""The arguments of a traced function: as arrays, their names, and advice for lists of numbers."""

from __future__ import annotations

import keyword
import re
from typing import Any

import numpy as np

from uopc.ir.builder.pytrees import LEAF


def lists_of(structure: Any, path: str, first: int) -> tuple[int, list[tuple[int, str]]]:
    """Find lists of leaves in a structure whose first leaf has number `first`. Return the number of
    the next leaf; and for each leaf of a list, its number and a hint for an error."""
    if structure == LEAF:
        return first + 1, []
    found: list[tuple[int, str]] = []
    parts = structure.parts
    if structure.kind in (list, tuple) and path and parts and set(parts) == {LEAF}:
        kind, count = structure.kind.__name__, len(parts)
        text = (
            f"{path[1:]} is a {kind} of {count}, each of which is an argument of its own: pass"
            f" np.array({path[1:]})"
        )
        return first + count, [(first + i, text) for i in range(count)]
    for name, part in zip(structure.names, parts):
        first, more = lists_of(part, f"{path}.{name}", first)
        found += more
    return first, found


def as_array(leaf: Any) -> Any:
    """The value itself if it has a shape and a dtype, or a NumPy array on its memory; None for
    other objects: classes have attributes of these names, and bytes are text."""
    if isinstance(leaf, (type, bytes)):
        return None
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return leaf
    if hasattr(leaf, "__array_interface__"):
        return np.asarray(leaf)
    if hasattr(leaf, "__dlpack__"):
        return np.from_dlpack(leaf)
    try:
        return np.asarray(memoryview(leaf))
    except TypeError:
        return None


def identifier(text: str) -> str:
    found = re.sub(r"\W", "_", text)
    return found if found.isidentifier() else f"a_{found}"


def names(paths: list[str]) -> list[str]:
    """A unique name for each argument: its path as an identifier."""
    taken: dict[str, None] = {}
    for path in paths:
        name = wanted = identifier(path)
        if keyword.iskeyword(name) or name == "out":
            name = wanted = f"{name}_"
        count = 1
        while name in taken:
            count += 1
            name = f"{wanted}_{count}"
        taken[name] = None
    return list(taken)
