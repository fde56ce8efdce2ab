"""Random graphs, and the same with `.contiguous()` at random places: is any of these faster?

    python benchmarks/placements.py [FIRST LAST [steps]]

Each line is a graph for which a placement takes less than 0.9 of the time of the compiler's own,
with both times and the ratio that `tests/placements.py` predicts. One thread, the least of many
calls in turns. The last line has the number of graphs, and how many placements were 1.5 x faster.
With `steps` the graphs are recurrences whose steps read rows of a product, also with it stored.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["UOPC_THREADS"] = "1"
sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import numpy as np

import uopc
from tests.placements import drawn, predicted, recurrent, stored_elsewhere
from uopc import UOp
from uopc.ir.core import shapes, walk
from uopc.ir.core.ops import Ops

PLACES, SECONDS = 5, 0.02  # placements of a graph, time for one of them
FASTER, MUCH_FASTER = 0.9, 1 / 1.5


def least(programs: list[Any], arrays: list[Any]) -> list[float]:
    """The least seconds of a call of each program; they take turns."""
    best = [float("inf")] * len(programs)
    end = time.perf_counter() + SECONDS * len(programs)
    while time.perf_counter() < end:
        for i, program in enumerate(programs):
            start = time.perf_counter()
            program(*arrays)
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def main() -> None:
    first, last = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (0, 60)
    steps = sys.argv[3:] == ["steps"]
    rng, much = np.random.default_rng(0), 0
    for number in range(first, last):
        graph = [recurrent(number)[0]] if steps else drawn(number)
        inputs = [u for u in walk.nodes(graph[0].sink(*graph[1:])) if u.op is Ops.PARAM]
        arrays = [rng.random(shapes.shape(u), np.float32) for u in inputs]
        others: dict[UOp, list[UOp]] = {}
        for g in stored_elsewhere(graph, number, PLACES):
            others[g[0].sink(*g[1:])] = g
        if steps:
            stored = recurrent(number, stored=True)[0]
            others[stored.sink()] = [stored]
        graphs = [graph, *others.values()]
        programs = [uopc.compile(g, inputs=inputs, threads=1) for g in graphs]
        own, *times = least(programs, arrays)
        k = int(np.argmin(times))
        if times[k] < FASTER * own:
            much += times[k] < MUCH_FASTER * own
            ratio = predicted(graph) / predicted(graphs[k + 1])
            print(f"{number}: {own * 1e6:.2f} us, {times[k] * 1e6:.2f} stored elsewhere"
                  f" ({own / times[k]:.2f} x; predicted {ratio:.2f})", flush=True)  # fmt: skip
    print(f"{last - first} graphs, {much} much faster with values stored elsewhere")


if __name__ == "__main__":
    main()
