"""Measured lists of Opts of kernels, and how well a cost orders them.

A line of `points.jsonl` is a kernel as the pass `optimize` gets it, and lists of Opts with the ns
of each: CPU time of one thread on one core of an Emerald Rapids (`XEON`), the least of nine turns
in which all lists of a kernel took part. Sets: `developed`, kernels of the first experiments;
`benchmarks`, those of benchmarks/workloads.py; `random`, shapes drawn at random.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from uopc.cost.accuracy import Score
from uopc.ir.core.arena import arena
from uopc.ir.nest.describe import outline_of
from uopc.ir.nest.outline import Outline
from uopc.ir.text.printer import parse
from uopc.passes.optimize.opts.substitution import Tiled
from uopc.program.tuned import kernel_opts
from uopc.program.tuned.schedules import opts_of
from uopc.target import Figures, Target

FILE = Path(__file__).with_name("points.jsonl")
KIB, MIB = 1 << 10, 1 << 20
XEON = Target(
    "xeon", "cpu", 512, 32, "emeraldrapids", "", 48 * KIB, 2 * MIB, 260 * MIB,
    figures=Figures(
        clock=3.0, multiply_bytes=128.0, load_bytes=128.0, l2_bytes=47.0, last_bytes=8.2,
        memory_bytes=4.6, launch=40.0, l2_alone=3.0, last_alone=25.0, memory_alone=30.0,
        l2_written=1.4, last_written=3.9, memory_written=7.0,
    ),
)  # fmt: skip


@dataclass
class Point:
    """A kernel with the outline and the measured ns of each list that can be applied."""

    set: str
    family: str
    graph: str
    outlines: list[Outline] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    refused: int = 0


@functools.cache
def points(step: int = 1) -> list[Point]:
    """Every `step`-th kernel."""
    lines = FILE.read_text("utf-8").splitlines()[::step]
    return [_point(json.loads(line)) for line in lines]


def _point(row: dict) -> Point:
    found = Point(row["set"], row["family"], row["graph"])
    with arena():
        base = Tiled(parse(row["kernel"]))
        for text, nanoseconds in row["lists"]:
            made = kernel_opts.replayed(base, opts_of(text) or ())
            if made is None:
                found.refused += 1
                continue
            found.outlines.append(outline_of(made.kernel))
            found.times.append(nanoseconds)
    return found


def scores(found: Iterable[Point], cost: Callable[[Outline], float]) -> dict[str, Score]:
    """The scores by family, by set and family, and of all kernels."""
    made: dict[str, Score] = {}
    for p in found:
        costs = [cost(o) for o in p.outlines]
        family = "product" if p.family.startswith("product") else p.family
        for name in ("all", family, f"{p.set}: {family}"):
            made.setdefault(name, Score()).add(p.times, costs)
    return made
