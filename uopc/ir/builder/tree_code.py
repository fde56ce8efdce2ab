"""Generated Python functions that flatten and make containers of one structure.

    {"x": *, "v": (*, *)}   →   if type(a) is not dict or tuple(a) != ("x", "v"): raise other
                                b, c = a.values()
                                if type(c) is not tuple or len(c) != 2: raise other
                                d, e = c
                                return program(b, d, e)

They take a tenth of the time of `flatten` and `unflatten`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from uopc.ir.builder.pytrees import (
    LEAF,
    Structure,
    exactly,
    has_names,
    is_registered,
    put_together,
    split,
)

Classes = tuple[type, ...]


class _TreeFunction:
    """Lines of a generated function, and the objects that the lines name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.objects: dict[str, Any] = {}
        self._names = 0

    def name(self, of: Any = None) -> str:
        """A new name; with `of`, the name of that object."""
        self._names += 1
        made = f"n{self._names}"
        if of is not None:
            self.objects[made] = of
        return made

    def function(self, parameter: str) -> Callable[[Any], Any]:
        body = "\n    ".join(self.lines)
        exec(f"def made({parameter}):\n    {body}\n", self.objects)
        function: Callable[[Any], Any] = self.objects["made"]
        return function


# ---------------------------------------------------------------- apart
def caller(
    parts: Sequence[Any], classes: Mapping[int, Classes], program: Callable[..., Any],
    write: Callable[[Any], Any] | None, limits: Mapping[int, tuple[int, int]],
) -> Callable[..., Any]:  # fmt: skip
    """A function of values with these structures that calls the program with their leaves and makes
    results of the program's results. TypeError or ValueError for other values. `classes`: by number
    of the leaf, the allowed classes, if not all; `limits`: the least and greatest allowed value."""
    code = _TreeFunction()
    leaves: list[str] = []
    values = [code.name() for _ in parts]
    todo = list(zip(values, parts))[::-1]
    while todo:
        value, structure = todo.pop()
        if structure == LEAF:
            allowed = classes.get(len(leaves))
            if allowed is not None:
                other = [f"type({value}) is not {code.name(c)}" for c in allowed]
                code.lines.append(f"if {' and '.join(other)}: raise {_OTHER}")
            if len(leaves) in limits:
                least, greatest = limits[len(leaves)]
                code.lines.append(f"if not {least} <= {value} <= {greatest}: raise {_OTHER}")
            leaves.append(value)
        else:
            inner = [code.name() for _ in structure.parts]
            code.lines += _apart(code, value, structure, inner)
            todo += list(zip(inner, structure.parts))[::-1]
    found = f"{code.name(program)}({', '.join(leaves)})"
    code.lines.append(f"return {found if write is None else f'{code.name(write)}({found})'}")
    return code.function(f"{''.join([f'{v}, ' for v in values])}/" if values else "")


_OTHER = "TypeError"  # its message is nobody's: `jit` looks at the arguments again


def _unpacked(names: list[str], value: str) -> str:
    return f"{''.join([f'{n}, ' for n in names])} = {value}" if names else "pass"


def _apart(code: _TreeFunction, value: str, structure: Structure, parts: list[str]) -> list[str]:
    """Lines that name the parts of a value, and refuse a value of another structure."""
    kind, detail = structure.kind, structure.detail
    if kind is type(None):
        return [f"if {value} is not None: raise {_OTHER}"]
    own = f"type({value}) is not {code.name(kind)}"
    if is_registered(kind):
        known, found = code.name(structure[:3]), code.name()
        split_, names = code.name(split), code.name()
        return [
            f"if {own}: raise {_OTHER}", f"{found}, {names}, {value} = {split_}({value})",
            f"if ({found}, tuple({names})) != {known}[1:]: raise {_OTHER}",
            *_same_detail(code, found, detail), _unpacked(parts, value),
        ]  # fmt: skip
    if kind in (dict, OrderedDict):
        keys = f"tuple({value}) != {code.name(detail)}"
        return [
            f"if {own} or {keys}: raise {_OTHER}",
            *_same_detail(code, f"tuple({value})", detail), _unpacked(parts, f"{value}.values()"),
        ]  # fmt: skip
    if issubclass(kind, (list, tuple)):
        length = f"len({value}) != {len(parts)}"
        return [f"if {own} or {length}: raise {_OTHER}", _unpacked(parts, value)]
    fields = [f"{part} = {value}.{name}" for part, name in zip(parts, structure.names)]
    return [f"if {own}: raise {_OTHER}", *fields]


def _same_detail(code: _TreeFunction, value: str, detail: Any) -> list[str]:
    """Lines that refuse an object equal to the detail but of another type, such as 1 for True."""
    if has_names(detail):
        return []
    return [f"if {code.name(exactly)}({value}) != {code.name(exactly(detail))}: raise {_OTHER}"]


# ---------------------------------------------------------------- together
def writer(structure: Any) -> Callable[[Sequence[Any]], Any]:
    """A function that makes a value of this structure from its leaves."""
    code = _TreeFunction()
    leaves: list[str] = []
    made = _together(code, structure, leaves)
    code.lines = [_unpacked(leaves, "leaves"), *code.lines, f"return {made}"]
    return code.function("leaves")


def _together(code: _TreeFunction, structure: Any, leaves: list[str]) -> str:
    """Append lines that make a value from new names for its leaves; return the value's name."""
    made = code.name()
    if structure == LEAF:
        leaves.append(made)
    else:
        parts = [_together(code, p, leaves) for p in structure.parts]
        code.lines.append(f"{made} = {_container(code, structure, parts)}")
    return made


def _container(code: _TreeFunction, structure: Structure, parts: list[str]) -> str:
    """An expression of a container with these parts."""
    kind, listed = structure.kind, ", ".join(parts)
    if kind is dict and not is_registered(kind):
        keys = code.name(structure.detail)
        return f"{{{', '.join([f'{keys}[{i}]: {part}' for i, part in enumerate(parts)])}}}"
    if kind in (list, tuple) and not is_registered(kind):
        return f"[{listed}]" if kind is list else f"({''.join([f'{p}, ' for p in parts])})"
    whole = code.name(structure._replace(parts=()))
    return f"{code.name(put_together)}({whole}, [{listed}])"
