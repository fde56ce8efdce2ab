"""The results of a model: tensors, and values that are made of tensors after a call.

| an output | its node | what a call gives |
| --- | --- | --- |
| a tensor | it | an array |
| strings that are known | none | an array of strings |
| strings of a table: `Labels` | their places in the table | an array of strings |
| a sequence of maps: `Maps` | the values | a list of dicts |
| a sequence | those of its elements | a list |
| an optional that is empty | none | None |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from uopc import UOp
from uopc.errors import UserError
from uopc.onnx.values import Labels, Maps, is_text, lifted


def output(v: Any) -> Any:
    """Convert a value of the model into an output: its tensors become nodes."""
    if isinstance(v, list):
        return [output(x) for x in v]
    return v if v is None or is_text(v) or isinstance(v, (Labels, Maps)) else lifted(v)


def replaced(v: Any, new: Mapping[UOp, UOp]) -> Any:
    """Replace the nodes of an output."""
    if isinstance(v, list):
        return [replaced(x, new) for x in v]
    if isinstance(v, Labels):
        return Labels(new[v.index], v.texts)
    if isinstance(v, Maps):
        return Maps(new[v.values], v.keys)
    return new[v] if isinstance(v, UOp) else v


def are_tensors(outputs: Mapping[str, Any]) -> bool:
    """True if each output is a tensor."""
    return all([isinstance(v, UOp) for v in outputs.values()])


def all_nodes(outputs: Mapping[str, Any]) -> dict[str, UOp]:
    """The nodes of all outputs by name; nodes of a sequence are `name[0]`, `name[1]`, ..."""
    found: dict[str, UOp] = {}
    for name, v in outputs.items():
        for key, u in _nodes(name, v):
            if key in found:
                raise UserError(f"two outputs are named {key!r}")
            found[key] = u
    return found


def nodes(v: Any) -> list[UOp]:
    """The nodes of an output."""
    return [u for _, u in _nodes("", v)]


def _nodes(name: str, v: Any) -> list[tuple[str, UOp]]:
    if isinstance(v, list):
        return [pair for i, x in enumerate(v) for pair in _nodes(f"{name}[{i}]", x)]
    if isinstance(v, Labels):
        return [(name, v.index)]
    if isinstance(v, Maps):
        return [(name, v.values)]
    return [(name, v)] if isinstance(v, UOp) else []


def filled(v: Any, arrays: Iterator[Any]) -> Any:
    """The result of a call for an output; `arrays` are the values of its nodes, in order."""
    if isinstance(v, list):
        return [filled(x, arrays) for x in v]
    if isinstance(v, Labels):
        return v.texts[next(arrays)]
    if isinstance(v, Maps):
        rows = np.atleast_2d(next(arrays)).tolist()
        return [dict(zip(v.keys, row)) for row in rows]
    return next(arrays) if isinstance(v, UOp) else v
