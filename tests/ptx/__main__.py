"""python -m tests.ptx DIR [--seconds N] [--architectures sm_80,sm_90a] [--jobs N]: a sample.

Each case of the corpus is compiled for an architecture, its kernels are assembled by ptxas and
executed by the PTX machine under the runtime, and the results are judged as those of the CPU are.
The sample is the same at each run: cases in the order of a hash of their names, as many as the time
allows, half for each architecture. A kernel that spills is a failure, but for the few bytes that
ptxas spills of its own will.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

from tests.conformance import corpus, report, workers
from tests.conformance.corpus import Place
from tests.conformance.runner import FAILED, Outcome

TOO_LARGE = "too large to execute"
# Bytes, stored and loaded, that ptxas spills though it has registers: it stops at a count that lets
# one block more run on an SM (32, 80, 128), and stores what is used outside of loops.
MOST_SPILLED, ALL_REGISTERS = 32, 255
_REASONS = (TOO_LARGE, "device is out of memory")  # of the machine, or of the stand-in's memory


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.ptx", description=(__doc__ or "").strip())
    parser.add_argument("directory", type=Path, metavar="DIR", help="or one .zip")
    parser.add_argument("--seconds", type=float, default=240.0, help="for all together")
    parser.add_argument("--architectures", default="sm_80,sm_90a")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default 1)")
    parser.add_argument("--case", metavar="ID", help="only cases whose id begins so")
    parser.add_argument("--limit", type=float, metavar="N", help="seconds of a case (60)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome")
    return parser.parse_args()


def sample(directory: Path, start: str | None) -> list[Place]:
    """The graph cases, and what cannot be read of them, in an order that mixes all groups."""
    places = [p for p in corpus.find(directory) if p.kind in ("graph", "damaged")]
    places = [p for p in places if start is None or p.id.startswith(start)]
    return sorted(places, key=lambda p: zlib.crc32(f"{p.group}/{p.id}".encode()))


def main() -> int:
    args = _arguments()
    workers.LIMIT = args.limit or workers.LIMIT
    places, targets = sample(args.directory, args.case), args.architectures.split(",")
    outcomes: dict[str, list[Outcome]] = {}
    for k, target in enumerate(targets):
        mine = places if args.case else places[k :: len(targets)]
        outcomes[target] = _run(mine, target, args.seconds / len(targets), args.jobs)
    everything = [o for found in outcomes.values() for o in found]
    for target, found in outcomes.items():
        print(*_lines(target, found), sep="\n")
    if args.json:
        report.write_json(args.json, everything)
    return int(any(_is_failure(o) for o in everything))


def _run(places: list[Place], target: str, seconds: float, jobs: int) -> list[Outcome]:
    end = time.monotonic() + seconds
    found = []
    for outcome in workers.run_all(places, jobs, f"cuda:{target}"):
        found.append(judged(outcome))
        if _is_failure(outcome):
            print(target, report.failure_line(outcome), flush=True)
        if time.monotonic() > end:
            break
    return found


def judged(o: Outcome) -> Outcome:
    """The outcome, failed where a kernel spills that need not."""
    for f in o.notes.get("figures", ()):
        few = f["spills"] <= MOST_SPILLED and f["registers"] < ALL_REGISTERS
        if f["spills"] and not few and o.verdict != FAILED:
            o.fail(f"{f['name']} spills {f['spills']} bytes beside {f['registers']} registers")
    return o


def is_too_large(o: Outcome) -> bool:
    """True if a case failed only because it is too large for the machine."""
    return o.verdict == FAILED and any(r in o.reason for r in _REASONS)


def _is_failure(o: Outcome) -> bool:
    return o.verdict == FAILED and not is_too_large(o)


def _lines(target: str, outcomes: list[Outcome]) -> list[str]:
    verdicts = Counter(
        "failed" if _is_failure(o) else TOO_LARGE if o.verdict == FAILED else o.verdict
        for o in outcomes
    )
    kernels = {k for o in outcomes for k in o.notes.get("kernels", ())}
    figures = [f for o in outcomes for f in o.notes.get("figures", ())]
    spilled = [f for f in figures if f["spills"]]
    inexact = sorted({a for o in outcomes for a in o.notes.get("approximate", ())})
    counts = ", ".join(f"{n} {name}" for name, n in sorted(verdicts.items()))
    lines = [f"{target}: {counts}; {len(kernels)} distinct kernels, {len(figures)} assemblies"]
    if inexact:
        lines.append(f"{target}: instructions that hardware approximates: {', '.join(inexact)}")
    worst = sorted(spilled, key=lambda f: -f["spills"])[:8]
    lines += [f"{target}: {len(spilled)} with spills"] if spilled else [f"{target}: no spills"]
    lines += [f"  {f['spills']} bytes, {f['registers']} registers: {f['name']} ({f['arch']})"
              for f in worst]  # fmt: skip
    return lines


if __name__ == "__main__":
    sys.exit(main())
