"""The table of operators: for a domain and a name, a function for each version that changed it.

    @op("Softmax", since=13)
    def softmax(n: Node) -> UOp:
        return n.x(0).softmax(axis=n.attr("axis", -1))

The function with the greatest `since` that is not above the model's opset makes the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uopc.onnx.node import Node

Handler = Callable[["Node"], Any]
TABLE: dict[tuple[str, str], list[tuple[int, Handler]]] = {}


def op(names: str, since: int = 1, domain: str = "") -> Callable[[Handler], Handler]:
    """Register a function for operators, from a version of their domain on."""

    def register(f: Handler) -> Handler:
        for name in names.split():
            rows = TABLE.setdefault((domain, name), [])
            rows.append((since, f))
            rows.sort(key=lambda row: -row[0])
        return f

    return register


def find(domain: str, name: str, version: int) -> Handler | None:
    """The function of an operator at a version of its domain; None if there is none."""
    for since, f in TABLE.get((domain, name), ()):
        if since <= version:
            return f
    return None


def operators() -> list[tuple[str, str, list[int]]]:
    """Domain, name and versions of each operator that has a function here."""
    return [(d, name, sorted([s for s, _ in rows])) for (d, name), rows in sorted(TABLE.items())]
