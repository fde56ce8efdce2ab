"""python -m tests.conformance DIR [--jobs N] [--json FILE] [--device D] …"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.conformance import corpus, graphs, report, workers
from tests.conformance.runner import FAILED, Outcome


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.conformance", description="Compile and run every case found in DIR."
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="a folder, a .zip or a .jsonl")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="run in N processes (default: 1)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome")
    parser.add_argument("--device", metavar="D", help="compile for it, as uopc.compile")
    parser.add_argument("--group", metavar="G", help="run only this group (an IR file's name)")
    parser.add_argument("--case", metavar="ID", help="run only cases whose id begins so")
    parser.add_argument("--limit", type=int, metavar="N", help="run only the first N")
    parser.add_argument(
        "--graphs", type=Path, metavar="FOLDER", help="write .uop files, and run nothing"
    )
    parser.add_argument("--summary", action="store_true", help="print failures by class")
    parser.add_argument("--kernels", action="store_true", help="list cases with more kernels")
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    places = [
        p for p in corpus.find(args.directory)
        if args.group in (None, p.group) and (args.case is None or p.id.startswith(args.case))
    ][: args.limit]  # fmt: skip
    if args.graphs:
        print(f"{graphs.write(places, args.graphs)} graphs in {args.graphs}")
        return 0
    outcomes: list[Outcome] = []
    for outcome in workers.run_all(places, max(1, args.jobs), args.device):
        outcomes.append(outcome)
        if outcome.verdict == FAILED:
            print(report.failure_line(outcome), flush=True)
    if args.summary:
        print(*report.summary_lines(outcomes), sep="\n")
    if args.kernels:
        print(*report.more_kernels(outcomes), sep="\n")
    if args.json:
        report.write_json(args.json, outcomes)
    print(*report.tally_lines(outcomes), sep="\n")
    print(report.last_line(outcomes))
    return int(any(o.verdict == FAILED for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
