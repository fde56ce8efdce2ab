"""python -m tests.conformance.select FROM TO: the part of a corpus that this repository carries.

A graph once, however many inputs it was recorded with; no case with more than 64 KiB of arrays, no
graph of more than 2,000 nodes in `scale`; every row of IR data. Everything compressed.
"""

from __future__ import annotations

import json
import lzma
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

from tests.conformance import corpus
from uopc.ir.core import dtypes

MOST_BYTES: Final = 1 << 16
MOST_SCALE_NODES: Final = 2000
SCALE: Final = "scale"


def select(source: Path, target: Path) -> None:
    """Write the selection of a corpus directory, one file for each of its files."""
    for path in sorted(source.rglob("*")):
        to = target / path.relative_to(source)
        if path.suffix == ".zip":
            to.parent.mkdir(parents=True, exist_ok=True)
            _select_graphs(path, to)
        elif path.suffix == ".jsonl" and path.parent.name == "ir":
            to.parent.mkdir(parents=True, exist_ok=True)
            with lzma.open(f"{to}.xz", "wb", preset=9) as out:
                out.write(path.read_bytes())


def _select_graphs(path: Path, to: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("cases.jsonl").decode().splitlines()
        blob = archive.read("data.bin") if "data.bin" in archive.namelist() else b""
    seen: set[str] = set()
    kept: list[str] = []
    data, places = bytearray(), dict[bytes, int]()
    for line in lines:
        case = json.loads(line)
        graph = case["id"].partition(".")[0]
        if graph not in seen and _is_small(case, path.parent.name == SCALE):
            seen.add(graph)
            for entry in case.get("arrays", {}).values():
                content = blob[entry["offset"] : entry["offset"] + _nbytes(entry)]
                entry["offset"] = places.setdefault(content, len(data))
                if entry["offset"] == len(data):
                    data += content
            kept.append(json.dumps(case, separators=(",", ":")))
    with zipfile.ZipFile(to, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("cases.jsonl", "\n".join(kept) + "\n")
        archive.writestr("data.bin", bytes(data))


def _is_small(case: corpus.Case, scale: bool) -> bool:
    size = sum(_nbytes(entry) for entry in case.get("arrays", {}).values())
    return size <= MOST_BYTES and not (scale and len(case["nodes"]) > MOST_SCALE_NODES)


def _nbytes(entry: dict[str, Any]) -> int:
    count: int = entry["count"]
    return count * dtypes.by_name(entry["dtype"]).itemsize


if __name__ == "__main__":
    select(Path(sys.argv[1]), Path(sys.argv[2]))
