"""The recorded graphs as .uop files, for `uopc dump`, `uopc run` and `uopc replay`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.conformance import corpus, loader
from uopc.dump import files
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.serialize import fingerprint
from uopc.ir.core.uop import UOp, intern
from uopc.ir.text.printer import print_graph


def write(places: Iterable[corpus.Place], folder: Path) -> int:
    """Write each graph that the loader knows, by group and id; return their number."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for place in places:
        if place.kind != "graph":
            continue
        case, _ = corpus.read_graph(place)
        try:
            graph = _sink(loader.load(case).outputs)
        except NotImplementedError:
            continue
        files.write_text(folder / f"{place.group}-{place.id[:12]}.uop", print_graph(graph) + "\n")
        files.write_arrays(folder, fingerprint(graph).arrays)
        count += 1
    return count


def _sink(outputs: list[UOp]) -> UOp:
    single = outputs[0] if len(outputs) == 1 else None
    return single if single is not None and single.op is Ops.SINK else intern(
        Ops.SINK, dtypes.void, tuple(outputs)
    )
