"""Drawn graphs with heavy values stored by hand: is any placement faster than the compiler's own?

    python benchmarks/placements.py [--page docs/lab/placements.md]     30 graphs, a table
    python benchmarks/placements.py 17 40:80               graphs of `composites.py` by number
    python benchmarks/placements.py 0:500 --out f.jsonl --minutes 4     goes on where f.jsonl ends
    python benchmarks/placements.py --report f.jsonl       the report of what was recorded
    python benchmarks/placements.py --report f.jsonl --before e.jsonl   and what became slower

A caller stores each heavy value alone, all of them, and all but one, with `.contiguous()`. Programs
take turns in one process: the least CPU time of a call, or its least time on several threads. Every
result is compared with NumPy's. The compiler's own program takes part twice: turns go on until its
two times agree, and how often they do not decides from which time on a ratio says anything.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np
from composites import KINDS, Composite, placements
from kernel_report import geometric_mean
from records import make_parser, numbers_of, read, recorded, report_all

import uopc
from uopc.backends import detect

# Of 24 kinds the graph that storing by hand sped up most, and six that storing slows down, of 200.
BENCHMARK: tuple[int, ...] = (
    18, 27, 30, 34, 41, 59, 71, 78, 80, 82, 83, 91, 94, 104, 124, 166, 170, 173, 175, 180, 182, 185,
    186, 193, 10, 23, 42, 54, 156, 160,
)  # fmt: skip
ROUNDS, LEAST = 30, 2e-4  # turns; seconds of a sample at least
SAME, MORE = (
    1.02,
    20,
)  # the two times of a program agree; times as many turns until they do, at most
TOLERANCE = 1e-4  # of the largest number of a result
NEAR, FAR = 1.05, 1.15  # times the best placement: as fast, and clearly slower
AGREE = 0.95  # share of repeats that are within NEAR above the floor


# ------------------------------------------------------------------ one graph
@dataclass
class Placed:
    """A program with some heavy values stored, and its error beside NumPy."""

    stored: tuple[int, ...]
    program: uopc.Program
    error: float

    @property
    def code(self) -> tuple[str, ...]:
        """The code of each launch: equal where the compiler itself stores what a caller stores."""
        return tuple([launch.kernel.source for launch in self.program.launches])


@dataclass
class Record:
    """Times of one graph in seconds, by the heavy values that are stored: `""`, `"0"`, `"0 2"`.

    `again` is the second time of the compiler's own program. Placements of equal code are one.
    """

    number: int
    kind: str
    threads: int
    heavies: int
    seconds: dict[str, float]
    again: float
    kernels: dict[str, int]
    wrong: dict[str, float]  # the errors of wrong results

    @property
    def own(self) -> float:
        return min(self.seconds[""], self.again)

    @property
    def best(self) -> str:
        """The fastest placement, the compiler's own if no other is faster."""
        return min(self.seconds, key=lambda s: self.own if s == "" else self.seconds[s])

    @property
    def ratio(self) -> float:
        """The time of our program over that of the fastest placement by hand."""
        others = [t for s, t in self.seconds.items() if s]
        return self.own / min(others) if others else 1.0

    @property
    def repeat(self) -> float:
        """The greater time of the compiler's own program over the lesser."""
        first = self.seconds[""]
        return max(first, self.again) / min(first, self.again)


def storing(stored: Collection[int]) -> Callable[[int, uopc.UOp], uopc.UOp]:
    """A function that stores some heavy values, by number."""
    return lambda i, value: value.contiguous() if i in stored else value


def placed(c: Composite, threads: int) -> Iterator[Placed]:
    """The graph in every placement."""
    heavies = c.graph(lambda i, value: value)[2]
    expected = c.expected()
    most = max(float(np.abs(expected).max()), 1e-30)
    for stored in placements(heavies):
        graph, arrays, _ = c.graph(storing(stored))
        with uopc.options(cache_dir=""):
            program = uopc.compile(graph, threads=threads)
        got = program(**{u: arrays[u] for u in names(program)})
        with np.errstate(invalid="ignore"):
            error = float(np.abs(got - expected).max()) / most
        yield Placed(stored, program, error)


def names(program: uopc.Program) -> list[str]:
    return [str(u.name) for u in program.inputs]


def least(calls: list[Callable[[], Any]], clock: Callable[[], float]) -> list[float]:
    """The least seconds of each call; they take turns. The first and the last call are the same."""
    best = [math.inf] * len(calls)
    times = [1] * len(calls)
    for turn in range(ROUNDS * MORE):
        for i, call in enumerate(calls):
            call()  # the caches are those of this program
            begin = clock()
            for _ in range(times[i]):
                call()
            best[i] = min(best[i], (clock() - begin) / times[i])
        times = [math.ceil(LEAST / max(b, 1e-7)) for b in best]
        if turn >= ROUNDS and max(best[0], best[-1]) <= SAME * min(best[0], best[-1]):
            break
    return best


def measured(number: int, threads: int) -> Record:
    c = Composite(number)
    every = list(placed(c, threads))
    distinct = {p.code: p for p in reversed(every)}  # the first of those with equal code
    kept = [p for p in every if distinct[p.code] is p]
    arrays = c.graph(lambda i, value: value)[1]

    def call(p: Placed) -> Callable[[], Any]:
        bound = [arrays[name] for name in names(p.program)]
        return lambda: p.program(*bound)

    clock = time.thread_time if threads == 1 else time.perf_counter
    *times, again = least([call(p) for p in [*kept, every[0]]], clock)
    seconds = {" ".join(map(str, p.stored)): t for p, t in zip(kept, times)}
    record = Record(
        number, c.kind, threads, len({i for p in every for i in p.stored}), seconds, again,
        {" ".join(map(str, p.stored)): len(p.program.launches) for p in kept},
        {" ".join(map(str, p.stored)): p.error for p in every if not p.error <= TOLERANCE},
    )  # fmt: skip
    if record.ratio > NEAR:  # the least of many is lucky: these two once more, alone
        other = next(p for p in kept if " ".join(map(str, p.stored)) == record.best)
        pair = [call(every[0]), call(other), call(every[0])]
        own, hand, again = least(pair, clock)
        record.seconds |= {"": own, record.best: hand}
        record.again = again
    return record


# ------------------------------------------------------------------ the report
def floor(records: list[Record]) -> float:
    """The least time of a program from which on its repeats agree."""
    ordered = sorted(records, key=lambda r: -r.own)
    least, agreeing = math.inf, 0
    for n, r in enumerate(ordered, 1):
        agreeing += r.repeat <= NEAR
        if agreeing >= AGREE * n:
            least = r.own
    return least


def line(r: Record) -> str:
    best = r.best
    stored = f"{{{best.replace(' ', ', ')}}}" if best else "as chosen"
    return (
        f"| {r.number} | {r.kind} | {r.threads} | {r.heavies} | {r.own * 1e6:.1f} |"
        f" {min([t for s, t in r.seconds.items() if s], default=r.own) * 1e6:.1f} |"
        f" {r.ratio:.2f} | {stored} | {r.kernels['']} | {r.kernels.get(best, 0)} |"
        f" {r.repeat:.2f} |" + (f" WRONG {r.wrong}" if r.wrong else "")
    )


HEAD = (
    "| number | kind | threads | heavy | ours, µs | by hand, µs | ours / by hand | stored | kernels"
    " | by hand | repeat |\n|" + "---|" * 11
)


def _row(name: str, records: list[Record]) -> str:
    ratios = sorted(max(r.ratio, 1.0) for r in records)
    mean = geometric_mean(ratios)
    cells = [sum(x > bound for x in ratios) for bound in (NEAR, FAR, 1.3, 2.0)]
    near = 1 - cells[0] / len(ratios)
    return (
        f"| {name} | {len(ratios)} | {mean:.3f} | {near:.1%} | "
        + " | ".join(map(str, cells[1:])) + f" | {ratios[-1]:.2f} |"
    )  # fmt: skip


def report(records: list[Record], worst: int = 10) -> Iterator[str]:
    """Markdown: all graphs, each kind, and the worst."""
    bound = floor(records)
    known = [r for r in records if r.own >= bound]
    repeats = sorted(r.repeat for r in records)
    yield (
        f"{len(records)} graphs, {len(known)} of them take {bound * 1e6:.1f} µs (the floor) or"
        " more. Repeats of the same program differ by"
        f" {repeats[len(repeats) // 2] - 1:.1%} (median), {repeats[-1] - 1:.0%} (worst);"
        f" {sum(r.repeat <= NEAR for r in records) / len(records):.1%} are within {NEAR}."
    )
    wrong = [r for r in records if r.wrong]
    yield f"{len(wrong)} graphs have a wrong result{': ' if wrong else '.'}" + ", ".join(
        [f"{r.number} ({r.kind})" for r in wrong]
    )
    yield ""
    yield "Time of ours / of the fastest placement, 1 where ours is the fastest:"
    yield ""
    yield f"| kind | graphs | mean | within {NEAR} | above {FAR} | above 1.3 | above 2 | worst |"
    yield "|---" * 8 + "|"
    if known:
        yield _row("all", known)
    for threads in sorted({r.threads for r in known}):
        yield _row(f"{threads} threads", [r for r in known if r.threads == threads])
    for kind in [k.__name__ for k in KINDS]:
        if of := [r for r in known if r.kind == kind]:
            yield _row(kind, of)
    yield ""
    yield HEAD
    for r in sorted(known, key=lambda r: -r.ratio)[:worst]:
        yield line(r)


def beside(before: list[Record], after: list[Record], worst: int = 10) -> Iterator[str]:
    """Our times beside those of an earlier compiler: nobody can take back by hand what ours stores.

    The clocks of the two runs differ: by the median of the placements that store most.
    """
    known = {(r.number, r.threads): r for r in before}
    pairs = [(r, known[r.number, r.threads]) for r in after if (r.number, r.threads) in known]
    clocks = []
    for r, old in pairs:
        most = max(r.seconds.keys() & old.seconds.keys(), key=lambda s: (len(s), s))
        clocks.append(r.seconds[most] / old.seconds[most])
    clock = statistics.median(clocks or [1.0])
    rows = [(r.own / old.own / clock, r, old) for r, old in pairs]
    ratios = [ratio for ratio, _, _ in rows]
    yield (
        f"{len(rows)} graphs before and now: our time now / before is {geometric_mean(ratios):.3f}"
        f" (mean), above {FAR} in {sum(x > FAR for x in ratios)}, below {1 / FAR:.2f} in"
        f" {sum(x < 1 / FAR for x in ratios)}."
    )
    yield ""
    yield "| number | kind | threads | before, µs | now, µs | now / before |\n" + "|---" * 6 + "|"
    for ratio, r, old in sorted(rows, key=lambda row: -row[0])[:worst]:
        yield (
            f"| {r.number} | {r.kind} | {r.threads} | {old.own * 1e6:.1f} | {r.own * 1e6:.1f}"
            f" | {ratio:.2f} |"
        )


def page(records: list[Record]) -> Iterator[str]:
    """The page of the benchmark: the answer, how it was made, the table."""
    ratios = [max(r.ratio, 1.0) for r in records]
    host = detect.host()
    yield "# Placements"
    yield ""
    yield (
        f"On {len(records)} graphs of {len({r.kind for r in records})} kinds, the compiler's own"
        f" choice of stored values takes {geometric_mean(ratios):.3f} of the time of the fastest"
        f" placement by hand (geometric mean), {max(ratios):.2f} at worst;"
        f" {sum(x <= NEAR for x in ratios)} of them are within {NEAR}."
    )
    yield ""
    yield from PAGE.splitlines()
    yield ""
    yield f"{host.cpu}, vectors of {host.vector_bits} bits, one thread."
    yield ""
    yield HEAD
    yield from map(line, sorted(records, key=lambda r: r.number))


PAGE = """Made by `python benchmarks/placements.py --page docs/lab/placements.md`.

A heavy value has a sum in it, or a function that takes long. A caller stores each alone, all of
them, and all but one with `.contiguous()`; each placement is a program, and programs take turns
(least CPU time). Ratios below 1: the compiler's own is the fastest. `benchmarks/composites.py`
draws the graphs by number. Of 200 these are, for 24 kinds, the one that storing by hand sped up
most when the benchmark was made, and six that storing slows down. *Repeat* compares two times of
one program."""


# ------------------------------------------------------------------ the command
def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--threads", type=int, nargs="*", default=[1],
        help="time with these numbers of threads; default: %(default)s",
    )  # fmt: skip
    parser.add_argument("--before", type=Path, nargs="*", help="records of an earlier compiler")
    args = parser.parse_args()
    if args.report:
        found = read(args.report, Record)
        print(*report(found), sep="\n")
        if args.before:
            print("", *beside(read(args.before, Record), found), sep="\n")
        return 0
    numbers = numbers_of(args.numbers) or BENCHMARK
    print(HEAD)
    found = recorded(
        args, Record, itertools.product(numbers, args.threads), lambda r: (r.number, r.threads),
        lambda case: measured(*case), line,
    )  # fmt: skip
    report_all(args, found, report, page)
    return 1 if any(r.wrong for r in found) else 0


if __name__ == "__main__":
    sys.exit(main())
