"""The table of operators: domain and name -> a function for each version that changed the operator.

    @op("Softmax", since=13)
    def softmax(n: Node) -> UOp:
        return n.x(0).softmax(axis=n.attr("axis", -1))

The function with the greatest `since` that is not above the model's opset makes the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uopc.onnx.node import Node

MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own operators
Handler = Callable[["Node"], Any]
TABLE: dict[tuple[str, str], list[tuple[int, Handler]]] = {}


def op(names: str, since: int = 1, domain: str = "") -> Callable[[Handler], Handler]:
    """Register a function for operators, from version `since` of their domain on."""

    def register(f: Handler) -> Handler:
        for name in names.split():
            rows = TABLE.setdefault((domain, name), [])
            rows.append((since, f))
            rows.sort(key=lambda row: -row[0])
        return f

    return register


def find(domain: str, name: str, version: int) -> Handler | None:
    """Return the function of an operator at a version of its domain; None if there is none."""
    for since, f in TABLE.get((domain, name), ()):
        if since <= version:
            return f
    return None


def missing(domain: str, name: str, version: int) -> str:
    """The message for an operator without a function: similar names, and what to do."""
    import difflib  # a model without mistakes needs it not

    whole = f"{domain}.{name}" if domain else name
    text = f"no operator {whole} of version {version}"
    later = [s for s, _ in TABLE.get((domain, name), ()) if s > version]
    if later:
        return f"{text}; there is one of version {min(later)}: convert the model to that opset"
    elsewhere = sorted({d or "ai.onnx" for d, n in TABLE if n == name and d != domain})
    if elsewhere:
        return f"{text}; domain {', '.join(elsewhere)} has it"
    own = difflib.get_close_matches(name, [n for d, n in TABLE if d == domain], 1)
    like = own or difflib.get_close_matches(name, [n for _, n in TABLE], 1, 0.8)
    if like:
        return f"{text}: did you mean {like[0]}?"
    return f"{text}: define a function of this name in the model"


def operators() -> list[tuple[str, str, list[int]]]:
    """Domain, name and versions of each registered operator."""
    return [(d, name, sorted([s for s, _ in rows])) for (d, name), rows in sorted(TABLE.items())]
