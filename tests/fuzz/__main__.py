"""`python -m tests.fuzz`: random graphs until the time is up; prints what failed and what was seen.

A failure is printed with the command that draws it again, the smallest graph inside of it that is
wrong on its own, and its arguments. The exit code is 1 when anything failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter

import uopc
from tests.fuzz import check, generate, vocabulary


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long (default 60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, default=1 << 60, help="most cases")
    parser.add_argument("--json", metavar="FILE", help="what was seen, by level, op and dtype")
    options = parser.parse_args()
    end, seen = time.monotonic() + options.seconds, Counter[tuple[str, str, str]]()
    done = failed = refused = 0
    reasons: Counter[str] = Counter()
    for i in range(options.first, options.first + options.count):
        if time.monotonic() > end:
            break
        case = generate.draw(options.seed, i)
        verdict = check.check(case)
        done += 1
        refused += bool(verdict.refused)
        reasons.update([verdict.refused] if verdict.refused else [])
        seen.update(verdict.seen)
        if verdict.failures:
            failed += 1
            _report(case, verdict, options.seed, i)
    _print_coverage(seen, reasons)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({" ".join(k): n for k, n in sorted(seen.items())}, file, indent=0)
    print(f"{done} graphs, {failed} failed, {refused} refused")
    return 1 if failed else 0


def _report(case: generate.Case, verdict: check.Verdict, seed: int, i: int) -> None:
    print(f"FAILED: python -m tests.fuzz --seed {seed} --first {i} --count 1")
    small = check.smallest(case)
    for line in verdict.failures[:6]:
        print(f"  {line}")
    print(uopc.print_graph(uopc.UOp(uopc.Ops.SINK, uopc.dtypes.void, small.outputs)))
    for name, array in small.inputs.items():
        print(f"  {name} = {array!r}"[:2000])
    if small.variables:
        print(f"  {small.variables}")
    sys.stdout.flush()


def _print_coverage(seen: Counter[tuple[str, str, str]], reasons: Counter[str]) -> None:
    levels = list(dict.fromkeys(level for level, _, _ in seen))
    print(f"{'level':10}{'ops':>6}{'op × dtype':>12}{'nodes':>10}")
    for level in levels:
        here = {(o, t): n for (at, o, t), n in seen.items() if at == level}
        print(f"{level:10}{len({o for o, _ in here}):6}{len(here):12}{sum(here.values()):10}")
    missing = missing_pairs(seen)
    print(f"elementwise op × dtype at level tensor: {len(vocabulary.pairs()) - len(missing)} of "
          f"{len(vocabulary.pairs())}")  # fmt: skip
    if missing:
        print("not seen: " + ", ".join(missing[:60]))
    for reason, n in reasons.most_common(5):
        print(f"refused {n}: {reason}")


def missing_pairs(seen: Counter[tuple[str, str, str]]) -> list[str]:
    """The pairs of the vocabulary that did not occur at level tensor."""
    return [
        f"{op.name} {t.name}" for op, t in vocabulary.pairs()
        if ("tensor", op.name, t.name) not in seen
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
