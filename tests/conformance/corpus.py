"""The files of a corpus directory: groups of graphs in zips, rows of IR data in jsonl."""

from __future__ import annotations

import functools
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.ir import dtypes

Case = dict[str, Any]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Place:
    """Where a case is: a file, and its line in there."""

    path: Path
    line: int
    id: str
    test: str
    group: str  # the name of the file
    kind: str  # "graph", or the kind of an IR row
    nodes: int = 0


def find(directory: Path) -> Iterator[Place]:
    """Every case below a directory (or in one file), in a fixed order."""
    files = [directory] if directory.is_file() else sorted(directory.rglob("*"))
    for path in files:
        if path.suffix == ".zip":
            yield from _graphs(path)
        elif path.suffix == ".jsonl":
            yield from _rows(path)


def _graphs(path: Path) -> Iterator[Place]:
    for line, text in enumerate(_zip_lines(path)):
        case = json.loads(text)
        size = len(case["nodes"])
        yield Place(path, line, case["id"], case["test"], path.stem, "graph", size)


def _rows(path: Path) -> Iterator[Place]:
    """Rows that state a result; statistics and tests that failed where recorded state none."""
    with path.open() as rows:
        for line, text in enumerate(rows):
            row = json.loads(text)
            if row.get("kind", "test_failed") != "test_failed":
                name = f"{path.stem}:{line + 1}"
                yield Place(path, line, name, row.get("test", ""), path.stem, row["kind"])


@functools.lru_cache(2)
def _zip_lines(path: Path) -> tuple[str, ...]:
    with zipfile.ZipFile(path) as archive:
        return tuple(archive.read("cases.jsonl").decode().splitlines())


@functools.lru_cache(2)
def _zip_data(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read("data.bin") if "data.bin" in archive.namelist() else b""


@functools.lru_cache(2)
def _row_lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text().splitlines())


def read_row(place: Place) -> Case:
    """One row of IR data."""
    row: Case = json.loads(_row_lines(place.path)[place.line])
    return row


def read_graph(place: Place) -> tuple[Case, dict[str, Array]]:
    """One case of a zip, and its arrays in the NumPy types of uopc."""
    case: Case = json.loads(_zip_lines(place.path)[place.line])
    blob = _zip_data(place.path)
    arrays = {name: _array(blob, entry) for name, entry in case.get("arrays", {}).items()}
    return case, arrays


def _array(blob: bytes, entry: dict[str, Any]) -> Array:
    dtype = dtypes.by_name(entry["dtype"]).numpy
    flat = np.frombuffer(blob, dtype, entry["count"], entry["offset"])
    return flat.reshape(entry["shape"])
