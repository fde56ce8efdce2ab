"""`python -m tests.fuzz`: random cases until the time is up; prints what failed and what was seen.

Each case runs in a child process, so a crash or a hang is a finding as well. A failure is printed
with the command that draws it again, its graph and its arguments. The exit code is 1 when anything
failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

from tests.fuzz import vocabulary
from tests.fuzz.kinds import KINDS, Seen, Verdict
from tests.fuzz.workers import Worker


class Tally:
    """The counts of verdicts by kind; several threads note them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.seen: Seen = Counter()
        self._lock = threading.Lock()

    def note(self, kind: str, number: int, verdict: Verdict) -> None:
        """Count a verdict, and print its failures."""
        with self._lock:
            self.done[kind] += 1
            self.refused[kind] += bool(verdict.refused)
            self.reasons.update([verdict.refused] if verdict.refused else [])
            self.seen.update(verdict.seen)
            if verdict.failures:
                self.failed[kind] += 1
                print(f"FAILED: python -m tests.fuzz {kind} --seed {self.seed} --first {number}"
                      " --count 1")  # fmt: skip
                for line in verdict.failures[:6]:
                    print(f"  {line}")
                print(verdict.report, flush=True)

    def print(self) -> None:
        """The summary."""
        if self.seen:
            print_coverage(self.seen)
        for reason, n in self.reasons.most_common(5):
            print(f"refused {n}: {reason}")
        for kind, n in self.done.items():
            print(f"{kind}: {n} cases, {self.failed[kind]} failed, {self.refused[kind]} refused")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    known = "; ".join(f"{name}: {kind.meaning}" for name, kind in KINDS.items())
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", help=f"draw these kinds (default: all). {known}"
    )
    parser.add_argument(
        "--minutes", type=float, default=1, help="stop after these minutes (default: 1)"
    )
    parser.add_argument("--seed", type=int, default=0, help="draw by this seed (default: 0)")
    parser.add_argument("--first", type=int, default=0, help="begin at this case of a kind")
    parser.add_argument(
        "--count", type=int, default=1 << 60, help="draw at most this many of a kind"
    )
    parser.add_argument("--jobs", type=int, default=1, help="run in N processes (default: 1)")
    parser.add_argument("--limit", type=float, default=300, help="end a case after these seconds")
    parser.add_argument(
        "--json", metavar="FILE", help="write what was seen, by level, op and dtype"
    )
    options = parser.parse_args()
    if unknown := set(options.kinds) - KINDS.keys():
        parser.error(f"unknown kind {', '.join(unknown)}: choose {', '.join(KINDS)}")
    end = time.monotonic() + 60 * options.minutes
    tally, lock = Tally(options.seed), threading.Lock()
    cases = _cases(options.kinds or list(KINDS), options.first, options.count)

    def work() -> None:
        worker = Worker()
        while time.monotonic() < end:
            with lock:
                case = next(cases, None)
            if case is None:
                break
            kind, number = case
            module = KINDS[kind].module
            tally.note(kind, number, worker.run(module, options.seed, number, options.limit))
        worker.close()

    threads = [threading.Thread(target=work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tally.print()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({" ".join(k): n for k, n in sorted(tally.seen.items())}, file, indent=0)
    return 1 if tally.failed else 0


def _cases(names: list[str], first: int, count: int) -> Iterator[tuple[str, int]]:
    """One case of each kind after the other."""
    numbers = itertools.count(first) if count >= 1 << 60 else range(first, first + count)
    return ((name, i) for i in numbers for name in names)


def print_coverage(seen: Seen) -> None:
    """The ops and dtypes by level, and the pairs of the vocabulary that did not occur."""
    levels = list(dict.fromkeys(level for level, _, _ in seen))
    print(f"{'level':10}{'ops':>6}{'op × dtype':>12}{'nodes':>10}")
    for level in levels:
        here = {(o, t): n for (at, o, t), n in seen.items() if at == level}
        print(f"{level:10}{len({o for o, _ in here}):6}{len(here):12}{sum(here.values()):10}")
    missing = [
        f"{op.name} {t.name}" for op, t in vocabulary.pairs()
        if ("tensor", op.name, t.name) not in seen
    ]  # fmt: skip
    print(f"elementwise op × dtype at level tensor: {len(vocabulary.pairs()) - len(missing)} of "
          f"{len(vocabulary.pairs())}")  # fmt: skip
    if missing:
        print("not seen: " + ", ".join(missing[:60]))


if __name__ == "__main__":
    sys.exit(main())
