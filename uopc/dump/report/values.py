"""The values of a run for the report: their lines in each stage, their copies, the user's lines.

A value is the number of its %name. Equal lines of all stages are stored once; a stage is the list
of its lines' numbers, each as the difference from the previous number.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from uopc.dump.stages import Dump
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

WHOLE_FILE: Final = 3000  # most lines of a file to embed whole; longer files: around values
_AROUND: Final = 12
_NAMED: Final = frozenset((Ops.PARAM, Ops.VARIABLE))  # by the user
Place = tuple[str, int]  # a file and a line


class Interned:
    """A list without repetitions."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def add(self, text: str) -> int:
        """The number of a text."""
        return self.numbers.setdefault(text, len(self.numbers))

    def add_all(self, texts: Iterable[str]) -> list[int]:
        """The numbers of texts, each as the difference from the previous number."""
        known = self.numbers
        found = [known.setdefault(text, len(known)) for text in texts]
        return [b - a for a, b in zip([0, *found], found)]

    def as_json(self) -> list[str]:
        """The texts by number."""
        return list(self.numbers)


def number(name: str) -> int:
    """The number in a value's %name."""
    return int(name[1:])


class Sources:
    """The user's source lines, by number from 1, and the text of their files."""

    def __init__(self, given: Iterable[UOp]) -> None:
        self.known: dict[Any, int] = {}  # by the origin of a node, which the nodes of a line share
        self.places: dict[Place, int] = {}
        for u in given:
            if u.origin is not None and u.op is not Ops.CONST and u.origin not in self.known:
                code, line = u.origin
                place = self.places.setdefault((code.co_filename, line), len(self.places) + 1)
                self.known[u.origin] = place

    def of(self, u: UOp) -> int:
        """The number of the source line that made a node; 0 if no line of the user did."""
        return self.known.get(u.origin, 0) if u.origin is not None else 0

    def as_json(self) -> dict[str, Any]:
        """The files with their text, and the lines that have numbers."""
        files = list(dict.fromkeys([file for file, _ in self.places]))
        return {
            "files": [
                {"name": os.path.basename(file), "path": file, **self._text(file)} for file in files
            ],
            "places": [[files.index(file), line] for file, line in self.places],
        }

    def _text(self, file: str) -> dict[str, Any]:
        """The lines of a file, each piece as [first number, text]."""
        lines = [line.rstrip("\n") for line in linecache.getlines(file)]
        used = sorted([line for name, line in self.places if name == file])
        if len(lines) <= WHOLE_FILE:
            return {"lines": len(lines), "pieces": [[1, "\n".join(lines)]] if lines else []}
        pieces: list[tuple[int, int]] = []
        for line in used:
            begin, end = max(1, line - _AROUND), min(len(lines), line + _AROUND)
            if pieces and begin <= pieces[-1][1] + 1:
                pieces[-1] = pieces[-1][0], end
            else:
                pieces.append((begin, end))
        shown = [[begin, "\n".join(lines[begin - 1 : end])] for begin, end in pieces]
        return {"lines": len(lines), "pieces": shown}


def facts(dump: Dump, sources: Sources, kernels: Mapping[UOp, str]) -> dict[str, Any]:
    """For each value: the value that it copies, its source line, and the user's or the kernel's
    name (`kernels`: by kernel of split-kernels)."""
    named = [(u, number(name)) for u, name in dump.names.items()]
    count = max([n for _, n in named], default=0) + 1
    kin, places = [0] * count, [0] * count
    labels: dict[int, str] = {}
    known = sources.known
    for u, n in named:
        if not places[n] and u.origin is not None:
            places[n] = known.get(u.origin, 0)
        if u.op in _NAMED and u.arg.name:
            labels[n] = u.arg.name
    for name, older in dump.kin.items():
        kin[number(name)] = number(older) if name != older else 0
    for stage in dump.stages:
        for split, now in stage.kernels.items():
            known_as = dump.names.known(now)
            if known_as is not None and split in kernels:
                labels[number(known_as)] = kernels[split]
    return {"kin": kin, "place": places, "labels": labels}


def lines_of(dump: Dump, known: Interned) -> list[list[int] | None]:
    """The lines of each stage that changed something; None for other stages."""
    out: list[list[int] | None] = []
    before: Sequence[str] | str = ""
    for at in range(len(dump.stages)):
        body = dump.body(at)
        out.append(known.add_all(body.split("\n")) if body is not before else None)
        before = body
    return out
