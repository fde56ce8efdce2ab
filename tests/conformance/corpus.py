"""The files of a corpus directory: groups of graphs in zips, rows of IR data in jsonl.

A group may also be a folder, with what the zip would hold; a jsonl may be compressed with xz. What
cannot be read is a case of its own, which fails.
"""

from __future__ import annotations

import functools
import json
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from uopc.ir.core import dtypes

Case = dict[str, Any]
Array = npt.NDArray[Any]

CASES: Final = "cases.jsonl"
DATA: Final = "data.bin"
# Reading a damaged file raises these.
_DAMAGE: Final = (
    OSError, EOFError, ValueError, KeyError, TypeError, NotImplementedError,
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, RecursionError,
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """The place of a case: a file, and a line in it."""

    path: Path
    line: int
    id: str
    test: str
    group: str  # the name of the file
    kind: str  # "graph", or the kind of an IR row
    nodes: int = 0
    problem: str = ""  # why it cannot be read


def find(directory: Path) -> Iterator[Place]:
    """Every case below a directory (or in one file), in a fixed order."""
    if not directory.exists():
        yield _damaged(directory, "there is no such file or directory")
        return
    files = [directory] if directory.is_file() else sorted(directory.rglob("*"))
    for path in files:
        if path.suffix == ".zip" or path.name == CASES:
            yield from _lines(path, _graph)
        elif path.name.removesuffix(".xz").endswith(".jsonl"):
            yield from _lines(path, _row)


def _lines(path: Path, read: Any) -> Iterator[Place]:
    """A place for each line of a file that states a result, and for each that cannot be read."""
    try:
        lines = _text_lines(path)
    except _DAMAGE as error:
        yield _damaged(path, f"{type(error).__name__}: {error}")
        return
    for number, text in enumerate(lines):
        try:
            place = read(path, number, _record(text)) if text.strip() else None
        except _DAMAGE as error:
            place = _damaged(path, f"line {number + 1}: {type(error).__name__}: {error}", number)
        if place is not None:
            yield place


def _record(text: str) -> Case:
    record = json.loads(text)
    if not isinstance(record, dict):
        raise ValueError(f"expected an object, got {text[:40]}")
    return record


def _damaged(path: Path, problem: str, line: int = 0) -> Place:
    return Place(path, line, f"{path.name}:{line + 1}", "", group_of(path), "damaged", 0, problem)


def group_of(path: Path) -> str:
    """A file's name without its endings; a folder's for the cases in it."""
    return path.parent.name if path.name == CASES else path.name.partition(".")[0]


# The fields of a case that the command itself reads.
_FIELDS: Final = {
    "id": str, "nodes": list, "outs": list, "test": str | None, "kernels": int | None,
    "arrays": dict | None, "flags": dict | None,
}  # fmt: skip


def _graph(path: Path, line: int, case: Case) -> Place:
    for name, kinds in _FIELDS.items():
        if not isinstance(case.get(name), kinds):
            raise ValueError(f"{name} is {case.get(name)!r:.40}, expected {kinds}")
    size = len(case["nodes"])
    return Place(path, line, case["id"], case.get("test") or "", group_of(path), "graph", size)


def _row(path: Path, line: int, row: Case) -> Place | None:
    """Statistics and tests that failed where recorded state no result."""
    if row.get("kind", "test_failed") == "test_failed":
        return None
    group = group_of(path)
    test = row.get("test") or ""
    return Place(path, line, f"{group}:{line + 1}", str(test), group, str(row["kind"]))


@functools.lru_cache(2)
def _text_lines(path: Path) -> tuple[str, ...]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            text = archive.read(CASES)
    elif path.suffix == ".xz":
        text = lzma.decompress(path.read_bytes())
    else:
        text = path.read_bytes()
    return tuple(text.decode().split("\n"))


@functools.lru_cache(2)
def _data(path: Path) -> bytes:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return archive.read(DATA) if DATA in archive.namelist() else b""
    beside = path.with_name(DATA)
    return beside.read_bytes() if beside.exists() else b""


def read_row(place: Place) -> Case:
    """One row of IR data."""
    row: Case = json.loads(_text_lines(place.path)[place.line])
    return row


def read_graph(place: Place) -> tuple[Case, dict[str, Array]]:
    """One case of a group, and its arrays in the NumPy types of uopc."""
    case: Case = json.loads(_text_lines(place.path)[place.line])
    blob = _data(place.path)
    arrays = {name: _array(blob, entry) for name, entry in (case.get("arrays") or {}).items()}
    return case, arrays


def _array(blob: bytes, entry: dict[str, Any]) -> Array:
    dtype = dtypes.by_name(entry["dtype"]).numpy
    flat = np.frombuffer(blob, dtype, entry["count"], entry["offset"])
    return flat.reshape(entry["shape"])
